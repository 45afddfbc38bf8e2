"""Facts about a run for its record: versions of libraries, the machine, hashes of input files."""

import contextlib
import functools
import hashlib
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from absl import logging

import albert
from albert.io import file_io, processes

# Maximum bytes hashed per input; of larger inputs, only the ends of long files are hashed.
MAX_BYTES = 1 << 30
# Maximum number of listed file names, to keep ``run.json`` short (RACE has a file per passage).
MAX_NAMES = 1000
_CHUNK = 1 << 20  # bytes read at a time


def versions() -> dict[str, str | None]:
    """Returns {name: version} of the libraries in use; None for unknown versions."""
    tensorflow = sys.modules.get("tensorflow")
    libraries: dict[str, str | None] = {
        "albert": albert.__version__,
        "python": platform.python_version(),
    }
    libraries["tensorflow"] = tensorflow.__version__ if tensorflow else _installed("tensorflow")
    return {**libraries, **{name: _installed(name) for name in ("numpy", "sentencepiece")}}


@functools.cache
def _installed(name: str) -> str | None:
    """Returns the version of the distribution `name`; None if it is not installed."""
    import importlib.metadata  # slow to import; commands that end early need no versions

    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def host() -> dict[str, Any]:
    """Returns this machine's "name", "processor", usable "cores", "memory" in bytes (or None)."""
    processor = platform.processor() or platform.machine()
    with contextlib.suppress(OSError), file_io.open_file("/proc/cpuinfo") as file:
        lines = (line.partition(":") for line in file)
        processor = next((v.strip() for k, _, v in lines if k.strip() == "model name"), processor)
    memory = None
    with contextlib.suppress(ValueError, OSError, AttributeError):
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "name": platform.node(),
        "processor": processor,
        "cores": processes.num_cores(),
        "memory": memory,
    }


@functools.cache
def git_commit() -> str | None:
    """Returns `commit_of` the package, as it was when this process asked first."""
    return commit_of(os.path.dirname(os.path.dirname(os.path.abspath(albert.__file__))))


def commit_of(root: str) -> str | None:
    """Returns the commit of a repository, with "-dirty" after changes; None if it is not one."""

    def git(*arguments: str) -> str:
        result = subprocess.run(
            ["git", "--no-optional-locks", "-C", root, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
        )
        return result.stdout.strip()

    try:
        # The package may be in another repository, such as one that contains the environment.
        if os.path.realpath(git("rev-parse", "--show-toplevel")) != os.path.realpath(root):
            return None
        # "describe --dirty" would write the index, and leave its lock if the disk is full.
        is_dirty = git("status", "--porcelain", "--untracked-files=no")
        return git("rev-parse", "HEAD") + ("-dirty" if is_dirty else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def checkpoint_files(prefix: str) -> list[str]:
    """Returns the files of the TensorFlow checkpoint `prefix`, or the file with this name."""
    if file_io.exists(prefix):
        return [prefix]
    folder, name = os.path.split(prefix)
    names = [
        other
        for other in file_io.listdir(folder or ".")
        if other == f"{name}.index" or other.startswith(f"{name}.data-")
    ]
    return [os.path.join(folder, other) for other in names]


def describe_input(path: str, files: Sequence[str]) -> dict[str, Any]:
    """Returns the entry of an input in ``run.json``.

    Args:
      path: name of the input: a file, a folder or the prefix of a checkpoint.

    Returns:
      dict with "path", "bytes" and "sha256" (None if a file cannot be read). For several files
      it also has their number as "count" and, up to `MAX_NAMES`, their paths as "files". Inputs
      larger than `MAX_BYTES` are hashed by the lengths and ends of their files, within seconds.
    """
    described: dict[str, Any] = {"path": path, "bytes": None, "sha256": None}
    if len(files) > 1:
        described["count"] = len(files)
        if len(files) <= MAX_NAMES:
            described["files"] = list(files)
    try:
        described["bytes"] = sum(map(file_io.size, files))
        limit = MAX_BYTES // len(files) if described["bytes"] > MAX_BYTES else MAX_BYTES
        hashes = [_sha256(file, limit) for file in files]
    except OSError as error:
        logging.warning("%s cannot be hashed: %s", path, error)
        return described
    if len(files) == 1:
        return {**described, "sha256": hashes[0]}
    text = "".join(f"{os.path.basename(f)} {h}\n" for f, h in zip(files, hashes, strict=True))
    return {**described, "sha256": hashlib.sha256(text.encode()).hexdigest()}


def _sha256(path: str, limit: int) -> str:
    """Hashes a file or, if it is longer than `limit` bytes, its length and its two ends."""
    length = file_io.size(path)
    if length <= limit:
        return file_io.sha256(path)
    digest = hashlib.sha256(str(length).encode())
    with file_io.open_file(path, "rb") as file:
        for start in (0, length - limit // 2):
            file.seek(start)
            rest = limit // 2
            while rest and (chunk := file.read(min(rest, _CHUNK))):
                digest.update(chunk)
                rest -= len(chunk)
    return digest.hexdigest()
