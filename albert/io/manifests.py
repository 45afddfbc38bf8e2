"""Manifests: sizes and SHA-256 sums of files, also of the folder of an exported model."""

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from albert.io import file_io

NAME = "export.manifest.json"
VERSION = 1


def describe_files(start: str, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Returns {name: {"bytes", "sha256"}} of the files at `start` + name."""
    return {
        name: {"bytes": file_io.size(start + name), "sha256": file_io.sha256(start + name)}
        for name in names
    }


def read(path: str, version: int) -> dict[str, Any]:
    """Reads the result of `describe_files` from the entry ``files`` of a manifest.

    Its entry ``version`` must be `version`.
    """
    manifest = file_io.read_json(path, "manifest", dict)
    files = manifest.get("files")
    if (
        not isinstance(files, dict)
        or manifest.get("version") != version
        or not all(map(_is_entry, files.values()))
    ):
        raise file_io.InputError(
            f"manifest: {path} has no sizes and sums of files in version {version}"
        )
    return files


def _is_entry(value: object) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("bytes"), int)
        and isinstance(value.get("sha256"), str)
    )


def mismatch(start: str, files: Mapping[str, dict[str, Any]]) -> str | None:
    """Returns which of the files at `start` + name has changed and how; None if none has.

    Args:
      files: result of `describe_files`.

    Raises:
      file_io.UnreadableError: the system denies reading a file, which may be undamaged.
    """
    try:
        return _find_mismatch(start, files)
    except OSError as error:
        raise file_io.UnreadableError(f"cannot read {error.filename}: {error.strerror}") from error


def _find_mismatch(start: str, files: Mapping[str, dict[str, Any]]) -> str | None:
    for name, entry in files.items():
        path = start + name
        if not file_io.exists(path):
            return f"{path} is missing"
        if (size := file_io.size(path)) != entry["bytes"]:
            return f"{path} has {size} bytes, {entry['bytes']} were written"
    for name, entry in files.items():  # This takes longer.
        digest = file_io.sha256(start + name)
        if digest != entry["sha256"]:
            sums = f"{digest[:12]}…, {entry['sha256'][:12]}…"
            return f"{start}{name} has the SHA-256 {sums} was written"
    return None


def write(folder: str) -> None:
    """Writes the manifest of the folder of an exported model, after all other files."""
    files = describe_files(f"{folder}/", sorted(_files(folder)))
    file_io.write_json(os.path.join(folder, NAME), {"version": VERSION, "files": files})


def _files(folder: str, start: str = "") -> Iterator[str]:
    """Yields the names of the files in a folder and its subfolders."""
    for name in file_io.listdir(os.path.join(folder, start)):
        path = os.path.join(start, name)
        if file_io.is_dir(os.path.join(folder, path)):
            yield from _files(folder, path)
        elif path != NAME:
            yield path


def export_mismatch(folder: str, name: str | None = None) -> str | None:
    """Returns how an exported model differs from its manifest; None if it does not, or has none.

    Ignores files that were added later, and checks only the file `name` if given. Raises as
    `mismatch` does.
    """
    path = os.path.join(folder, NAME)
    if not file_io.exists(path):
        return None
    try:
        files = read(path, VERSION)
        entries = {file: sums for file, sums in files.items() if name in (None, file)}
        return mismatch(f"{folder}/", entries)
    except file_io.UnreadableError:
        raise
    except file_io.InputError as error:
        return str(error)


def check_export(folder: str, name: str) -> None:
    """Refuses a file of an exported model that differs from its manifest; see `export_mismatch`."""
    if mismatch := export_mismatch(folder, name):
        raise file_io.InputError(
            f"{folder}/{name} has changed since its export: {mismatch}; export it again, or delete "
            f"{NAME} if another program changed it on purpose"
        )
