"""The manifest of an exported model: size and SHA-256 of every file of its folder."""

import os

from albert import file_io, file_sums

NAME = "export.manifest.json"
VERSION = 1


def write(folder):
    """Writes the manifest of a folder whose other files are all there."""
    files = file_sums.of(f"{folder}/", sorted(_files(folder)))
    file_io.write_json(os.path.join(folder, NAME), {"version": VERSION, "files": files})


def _files(folder, start=""):
    """Names of the files in a folder and in those below it."""
    for name in file_io.listdir(os.path.join(folder, start)):
        path = os.path.join(start, name)
        if file_io.is_dir(os.path.join(folder, path)):
            yield from _files(folder, path)
        elif path != NAME:
            yield path


def misfit(folder, name=None):
    """What is wrong with a folder by its manifest; None if it fits, or if there is none.

    Args:
      folder: the folder; files that were added later are none of the manifest's business.
      name: of the only file to look at; by default all.
    """
    path = os.path.join(folder, NAME)
    if not file_io.exists(path):
        return None
    try:
        files = file_sums.read(path, VERSION)
        chosen = {file: sums for file, sums in files.items() if name in (None, file)}
        return file_sums.misfit(f"{folder}/", chosen)
    except file_io.InputError as error:
        return str(error)
