"""The manifest beside a checkpoint: size and SHA-256 of each of its files, step, variables.

It is written last, so that it speaks of files that are whole. Checkpoints of other programs have
none and are read as they are.
"""

import os
import re

from albert import file_io, file_sums

VERSION = 1
ENDING = ".manifest.json"
# Files without which a checkpoint cannot be read.
_PART = re.compile(r"\.(index|data-\d+-of-\d+)$")
# Added to the names of the files of a damaged checkpoint, which no search finds then.
ASIDE = ".damaged"


def path_of(prefix):
    """Name of the manifest of the checkpoint at `prefix`."""
    return prefix + ENDING


def parts(prefix):
    """Endings of the files of a checkpoint that hold its values, sorted: data, then index."""
    folder, name = os.path.split(prefix)
    names = file_io.listdir(folder or ".")
    endings = [found[len(name) :] for found in names if found.startswith(f"{name}.")]
    return sorted(filter(_PART.fullmatch, endings))


def write(prefix, step, names):
    """Writes the manifest of a checkpoint that is whole.

    Args:
      prefix: of the checkpoint.
      step: which it was saved at; None if nothing says so.
      names: of its variables.

    Raises:
      OSError: a file cannot be read or written.
    """
    files = file_sums.of(prefix, parts(prefix))
    manifest = {"version": VERSION, "step": step, "variables": sorted(names), "files": files}
    file_io.write_json(path_of(prefix), manifest)


def misfit(prefix):
    """What is wrong with a checkpoint by its manifest; None if it fits, or if there is none.

    Raises:
      file_io.UnreadableError: a file cannot be read, so nobody knows.
    """
    path = path_of(prefix)
    if not file_io.exists(path):
        return None
    try:
        files = file_sums.read(path, VERSION)
    except file_io.UnreadableError:
        raise
    except file_io.InputError as error:
        return str(error)
    if ".index" not in files or not all(map(_PART.fullmatch, files)):
        return f"{path} is no manifest of a checkpoint"
    if problem := file_sums.misfit(prefix, files):
        return f"{problem} (delete {path} if another program has replaced the files)"
    surplus = sorted({*parts(prefix)} - {*files})
    return f"{path} does not name {prefix}{surplus[0]}" if surplus else None


def is_outdated(prefix):
    """Whether each file of a checkpoint is another than the manifest names, and came later.

    Damage hits one of them; another program replaces both.
    """
    path, found = path_of(prefix), parts(prefix)
    try:
        files = file_sums.read(path, VERSION)
    except file_io.InputError:  # no manifest, or a damaged one
        return False
    if sorted(files) != found or not all(file_sums.misfit(prefix, {x: files[x]}) for x in found):
        return False
    return min(file_io.changed(prefix + part) for part in found) > file_io.changed(path)


def set_aside(prefix):
    """Gives the files of a damaged checkpoint names under which nothing takes it for one.

    Its index goes first: until that, and after it, no part is taken for a whole.
    """
    for part in [".index", *filter(".index".__ne__, parts(prefix)), ENDING]:
        if file_io.exists(prefix + part):
            file_io.rename(prefix + part, prefix + part + ASIDE)
