"""Finds published models by name, and models in archives, local or on a web server.

The names and addresses are those of the README of google-research/albert.
"""

import difflib
import hashlib
import os

from albert.io import archives, downloads, file_io

ADDRESS = "https://storage.googleapis.com/albert_models/{}.tar.gz"
NAMES = tuple(
    f"albert_{size}_{version}"
    for version in ("v2", "v1", "zh")
    for size in ("base", "large", "xlarge", "xxlarge")
)
_GZIP = b"\x1f\x8b"  # with which archives begin
# The environment variable that names tensorflow-hub's download folder.
_CACHE_VARIABLE = "TFHUB_CACHE_DIR"


def cache_dir() -> str:
    """Returns the folder for archives and their content: tensorflow-hub's if set, else our own."""
    return os.environ.get(_CACHE_VARIABLE) or os.path.expanduser("~/.cache/albert")


def set_cache_dir(path: str) -> None:
    """Sets `cache_dir`, also tensorflow-hub's, for this process and the processes it starts."""
    os.environ[_CACHE_VARIABLE] = path


def local_path(path: str) -> str:
    """Returns the local path of a model; fetches and unpacks it, once, where that is needed.

    Args:
      path: one of `NAMES`, if there is no file or folder of this name; the URL of a ``.tar.gz``
        file; a local ``.tar.gz`` file; or any other path, which is returned as it is.

    Raises:
      file_io.InputError: the file cannot be fetched (says where to put it), or its archive cannot
        be trusted, see `archives.unpack_archive`.
    """
    if path in NAMES and not (file_io.exists(path) or file_io.exists(f"{path}.index")):
        return _fetched(ADDRESS.format(path), f"{path}.tar.gz")
    if downloads.is_url(path):
        if not archives.is_archive(path):
            raise file_io.InputError(f"{path} is not the URL of a .tar.gz file")
        # Files of one name on several servers are different files.
        key = hashlib.sha256(path.encode()).hexdigest()[:16]
        return _fetched(path, f"{key}-{os.path.basename(path)}")
    if archives.is_archive(path) and file_io.exists(path):
        return archives.unpack_archive(path, cache_dir())
    return path


def _fetched(url, name):
    """Returns the folder of an archive, which is fetched unless the cache has it."""
    path = os.path.join(cache_dir(), name)
    try:
        downloads.fetch(url, path, _GZIP)
    except file_io.NoRoomError:
        raise
    except file_io.InputError as error:
        raise file_io.InputError(
            f"{error}; without a network, fetch it elsewhere and put it at {path}"
        ) from error
    try:
        return archives.unpack_archive(path, cache_dir())
    except file_io.NoRoomError:
        raise
    except file_io.InputError as error:
        raise file_io.InputError(f"{error}; delete {path} to fetch it again") from error


def suggestion(path: str) -> str:
    """Returns advice for the path of a missing model; "" if it resembles no published name."""
    close = difflib.get_close_matches(path.lower().replace("-", "_"), NAMES, 1)
    return f"published models are {', '.join(NAMES)}" if close and os.sep not in path else ""
