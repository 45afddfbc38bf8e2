"""Where a run comes from: versions, machine, commit of the package, hashes of its inputs."""

import contextlib
import functools
import hashlib
import importlib.metadata
import os
import platform
import subprocess
import sys

from absl import logging

import albert
from albert import file_io

# Of an input of more bytes than these no more are hashed: the ends of its longer files.
MOST_BYTES = 1 << 30
# More names of files than these (RACE has one a passage) would make a long ``run.json``.
MOST_NAMES = 1000
_CHUNK = 1 << 20  # bytes read at a time


def versions():
    """{name: version} of what computes; None where it is not known."""
    tensorflow = sys.modules.get("tensorflow")
    found = {"albert": albert.__version__, "python": platform.python_version()}
    found["tensorflow"] = tensorflow.__version__ if tensorflow else _installed("tensorflow")
    return {**found, **{name: _installed(name) for name in ("numpy", "sentencepiece")}}


@functools.cache
def _installed(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def host():
    """Name, processor, cores and bytes of memory of this machine; None where it is not known."""
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
        "cores": os.cpu_count(),
        "memory": memory,
    }


def git_commit():
    """Commit of the package's own repository, with "-dirty" after changes; None without one."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

    def git(command, *options):
        found = subprocess.run(
            ["git", "-C", root, command, *(f"--{option}" for option in options)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
        )
        return found.stdout.strip()

    try:
        # The package may lie in a repository that is not its own, such as an environment's.
        if os.path.realpath(git("rev-parse", "show-toplevel")) != os.path.realpath(root):
            return None
        return git("describe", "always", "dirty", "abbrev=40", "exclude=*")
    except (OSError, subprocess.CalledProcessError):
        return None


def describe_input(path, files):
    """What ``run.json`` says of an input.

    Args:
      path: what it is called: a file, a folder or the prefix of a checkpoint.
      files: paths of its files.

    Returns:
      dict with "path", "bytes" and "sha256" (None where a file cannot be read); for several files
      also their number as "count" and, unless they are many, their paths as "files". Of inputs
      longer than `MOST_BYTES` the lengths and ends of files are hashed, which takes seconds.
    """
    described = {"path": path, "bytes": None, "sha256": None}
    if len(files) > 1:
        described["count"] = len(files)
        if len(files) <= MOST_NAMES:
            described["files"] = list(files)
    try:
        described["bytes"] = sum(map(file_io.size, files))
        most = MOST_BYTES // len(files) if described["bytes"] > MOST_BYTES else MOST_BYTES
        hashes = [_sha256(file, most) for file in files]
    except OSError as error:
        logging.warning("%s cannot be hashed: %s", path, error)
        return described
    if len(files) == 1:
        return {**described, "sha256": hashes[0]}
    text = "".join(f"{os.path.basename(f)} {h}\n" for f, h in zip(files, hashes, strict=True))
    return {**described, "sha256": hashlib.sha256(text.encode()).hexdigest()}


def _sha256(path, most):
    """Hash of a file or, if it is longer than `most` bytes, of its length and its two ends."""
    length = file_io.size(path)
    if length <= most:
        return file_io.sha256(path)
    digest = hashlib.sha256(str(length).encode())
    with file_io.open_file(path, "rb") as file:
        for start in (0, length - most // 2):
            file.seek(start)
            left = most // 2
            while left and (chunk := file.read(min(left, _CHUNK))):
                digest.update(chunk)
                left -= len(chunk)
    return digest.hexdigest()
