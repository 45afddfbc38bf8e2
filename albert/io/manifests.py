"""Sizes and SHA-256 sums of files, as manifests hold them."""

import os
from collections.abc import Iterable, Mapping
from typing import Any

from albert.io import file_io


def of(start: str, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """{name: {"bytes", "sha256"}} of the files at `start` + name.

    Raises:
      OSError: a file cannot be read.
    """
    return {
        name: {"bytes": file_io.size(start + name), "sha256": file_io.sha256(start + name)}
        for name in names
    }


def read(path: str, version: int) -> dict[str, Any]:
    """What `of` returned, from the entry ``files`` of a manifest.

    Args:
      path: JSON file.
      version: what it must have as ``version``.

    Raises:
      file_io.InputError: it is damaged, or another kind of file.
    """
    found = file_io.read_json(path, "manifest", dict)
    files = found.get("files")
    if (
        not isinstance(files, dict)
        or found.get("version") != version
        or not all(map(_is_entry, files.values()))
    ):
        raise file_io.InputError(
            f"manifest: {path} has no sizes and sums of files in version {version}"
        )
    return files


def _is_entry(value):
    return (
        isinstance(value, dict)
        and isinstance(value.get("bytes"), int)
        and isinstance(value.get("sha256"), str)
    )


def mismatch(start: str, files: Mapping[str, dict[str, Any]]) -> str | None:
    """Which file is not as it was, and in what; None if all are.

    Args:
      start: what the names are added to.
      files: of `read`.

    Raises:
      file_io.UnreadableError: a file cannot be read, so nobody knows.
    """
    try:
        return _misfit(start, files)
    except OSError as error:
        raise file_io.UnreadableError(f"cannot read {error.filename}: {error.strerror}") from error


def _misfit(start, files):
    for name, wanted in files.items():
        path = start + name
        if not file_io.exists(path):
            return f"{path} is missing"
        if (size := file_io.size(path)) != wanted["bytes"]:
            return f"{path} has {size} bytes, {wanted['bytes']} were written"
    for name, wanted in files.items():  # which takes longer
        digest = file_io.sha256(start + name)
        if digest != wanted["sha256"]:
            sums = f"{digest[:12]}…, {wanted['sha256'][:12]}…"
            return f"{start}{name} has the SHA-256 {sums} was written"
    return None


# --- The manifest of an exported model: size and SHA-256 of every file of its folder -------------


NAME = "export.manifest.json"
VERSION = 1


def write(folder: str) -> None:
    """Writes the manifest of a folder whose other files are all there."""
    files = of(f"{folder}/", sorted(_files(folder)))
    file_io.write_json(os.path.join(folder, NAME), {"version": VERSION, "files": files})


def _files(folder, start=""):
    """Names of the files in a folder and in those below it."""
    for name in file_io.listdir(os.path.join(folder, start)):
        path = os.path.join(start, name)
        if file_io.is_dir(os.path.join(folder, path)):
            yield from _files(folder, path)
        elif path != NAME:
            yield path


def export_mismatch(folder: str, name: str | None = None) -> str | None:
    """What is wrong with a folder by its manifest; None if it fits, or if there is none.

    Args:
      folder: the folder; files that were added later are none of the manifest's business.
      name: of the only file to look at; by default all.
    """
    path = os.path.join(folder, NAME)
    if not file_io.exists(path):
        return None
    try:
        files = read(path, VERSION)
        chosen = {file: sums for file, sums in files.items() if name in (None, file)}
        return mismatch(f"{folder}/", chosen)
    except file_io.InputError as error:
        return str(error)
