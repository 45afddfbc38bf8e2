"""The only place that opens, lists, renames, deletes or unpacks files.

Local paths use Python's own file functions. A path with a scheme (``gs://…``) goes through
`tf.io.gfile`, which is imported only then, so that data workers on local files never pay for
TensorFlow's start-up.

For messages, `what` is the purpose of a file or the flag that names it, and `name` that of a text.
"""

import codecs
import collections
import contextlib
import errno
import functools
import glob as _glob
import hashlib
import importlib
import itertools
import json
import mmap
import os
import re
import shutil
import socket
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Hashable, Iterable, Iterator
from types import ModuleType
from typing import IO, Any

_OPEN_FILE = re.compile(r"/dev/fd/(\d+)|/dev/std(out|err)")
# The disk is full, or a quota or a limit of the size of files is reached.
_CODES = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_CHUNK = 1 << 20  # bytes read at a time
_PACKED = {b"\x1f\x8b": "a gzip file does", b"PK\x03\x04": "a zip archive or an Excel file does"}
# Maximum bytes of a file that is read as a whole and describes something, such as `model.json`.
# Files of data, which are as large as users make them, have no maximum.
SMALL = 64 << 20
# The end of a `temporary_name`, after which a thread or the name of a part may follow.
_TEMPORARY = re.compile(r"\.tmp-([0-9]+)-([0-9a-f]{8})(?![^.-])")
# Without a change: some files are written to with long pauses.
_LOST_SECONDS = 24 * 3600.0


class InputError(ValueError):
    """A mistake in the input of the user: says what was expected, what was found and what to do.

    Commands print its message without a stack trace.
    """


class UnreadableError(InputError):
    """A file exists, but the system cannot read it: says why."""


class NoRoomError(InputError):
    """A disk is full: says for what file, how much it needs and how much is free."""


def disk_full_reason(error: BaseException) -> str | None:
    """Returns the system's message for an error of a full disk; None for other errors.

    The messages of libraries, such as TensorFlow, include that of the system.
    """
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno) if error.errno in _CODES else None
    text = str(error)
    return next((os.strerror(code) for code in _CODES if os.strerror(code) in text), None)


def refusal(error: BaseException) -> str | None:
    """Returns the system's message and advice if writing is forbidden; None for other errors."""
    if isinstance(error, OSError) and error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return f"{error.strerror}; name a folder that can be written to"
    return None


def describe(count: int) -> str:
    """Returns a number of bytes as text with a unit."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count / 1024:.1f} KiB" if count >= 1024 else f"{count} bytes"


def message(path: str, reason: str, need: int | None, free: int | None) -> str:
    """Returns the message for a full disk.

    Args:
      need: bytes of the file or folder; None if unknown.
      free: bytes that are free on its disk without the unfinished file; None if unknown.
    """
    text = f"cannot write {path}: {reason}"
    is_full = reason == os.strerror(errno.ENOSPC)
    if need is not None:
        text += f"; it needs {describe(need)}"
        is_full = is_full and (free is None or need > free)
    if free is not None and need is None and is_full:
        text += f"; it needs more than the {describe(free)} that are free there"
    elif free is not None:
        text += f"; {describe(free)} are free there"
        if not is_full:
            text += ", so a limit (such as a quota) or another program is the cause"
    return f"{text}. Make room there, or name a folder on another disk"


def is_remote(path: str) -> bool:
    """Returns whether a path has a scheme, such as ``gs://bucket/file``."""
    return "://" in str(path)


def _gfile() -> ModuleType:
    import tensorflow as tf

    return tf.io.gfile


def check_regular(path: str) -> None:
    """Checks that a path is a file or a folder: a device or a pipe may never end."""
    if is_remote(path):
        return
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):  # Opening it says why.
        return
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        kind = "a pipe" if stat.S_ISFIFO(mode) else "a device or a socket"
        raise InputError(f"{path} is {kind}, a regular file was expected")


def is_stream(path: str) -> bool:
    """Tells whether a path is a device, a pipe or an open file such as /dev/stdout, which no file
    may replace."""
    if is_remote(path):
        return False
    try:
        kind = os.stat(path).st_mode
    except (OSError, ValueError):
        return False
    is_open_file = _OPEN_FILE.fullmatch(os.path.abspath(path)) is not None
    return is_open_file or not (stat.S_ISREG(kind) or stat.S_ISDIR(kind))


def _open_stream(path: str, mode: str) -> IO[Any]:
    name = _OPEN_FILE.fullmatch(os.path.abspath(path))
    if not name:
        return open(path, mode, **_text_options(mode))
    # At its own position: opened by its name, a regular file would be cut.
    sys.stdout.flush()
    descriptor = int(name[1] or ("out", "err").index(name[2]) + 1)
    return open(os.dup(descriptor), mode, **_text_options(mode))


def _text_options(mode: str) -> dict[str, Any]:
    return {} if "b" in mode else {"encoding": "utf-8", "newline": ""}


def open_file(path: str, mode: str = "r") -> IO[Any]:
    """Opens `path`; text is UTF-8, line ends are kept; only regular files can be read."""
    if is_remote(path):
        return _gfile().GFile(path, mode)
    if mode.startswith("r"):
        check_regular(path)
    return open(path, mode, **_text_options(mode))


def open_input(path: str, what: str, mode: str = "r") -> IO[Any]:
    """Opens a file that the user named; `what` says what it is for the error message."""
    if not exists(path):
        raise InputError(f"{what}: the file {path} does not exist")
    if is_dir(path):
        raise InputError(f"{what}: {path} is a folder, a file was expected")
    try:
        return open_file(path, mode)
    except InputError as error:
        raise InputError(f"{what}: {error}") from error
    except OSError as error:
        raise UnreadableError(f"{what}: cannot read {path}: {error.strerror}") from error


def open_input_or_stdin(
    path: str | None, what: str
) -> contextlib.AbstractContextManager[IO[bytes]]:
    """Opens an input, see `open_input`, or without a path standard input, which stays open."""
    return open_input(path, what, "rb") if path else contextlib.nullcontext(sys.stdin.buffer)


def exists(path: str) -> bool:
    """Returns whether a file or folder exists, local or remote."""
    return _gfile().exists(path) if is_remote(path) else os.path.exists(path)


def is_dir(path: str) -> bool:
    """Returns whether a folder exists, local or remote."""
    return _gfile().isdir(path) if is_remote(path) else os.path.isdir(path)


def size(path: str) -> int:
    """Returns the length of a file in bytes."""
    return _gfile().stat(path).length if is_remote(path) else os.path.getsize(path)


def listdir(path: str) -> list[str]:
    """Returns the sorted names of the entries of a folder."""
    if is_remote(path):
        return sorted(name.rstrip("/") for name in _gfile().listdir(path))
    return sorted(os.listdir(path))


def glob(pattern: str) -> list[str]:
    """Returns the sorted paths that match a shell pattern; ``**`` is any number of local folders.

    Rejects it in remote patterns, where TensorFlow reads it as ``*``.
    """
    if not is_remote(pattern):
        return sorted(_glob.glob(pattern, recursive=True))
    if "**" in pattern:
        raise InputError(f"{pattern}: ** is only for local files; name each level of folders by *")
    return sorted(_gfile().glob(pattern))


def escape_glob(path: str) -> str:
    """Returns the shell pattern that matches exactly this path."""
    return _glob.escape(path)


def identity(path: str) -> Hashable | None:
    """Returns what two names of one file have in common, also links; None without a regular file.

    A remote path stands for itself, whether or not it exists.
    """
    if is_remote(path):
        return path
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None


def check_scheme(path: str, what: str) -> None:
    """Checks that TensorFlow or tensorflow-io can read a path, if it is remote."""
    if not is_remote(path):
        return
    scheme = path.split("://")[0]
    if scheme not in _gfile().get_registered_schemes():
        with contextlib.suppress(ImportError):
            importlib.import_module("tensorflow_io")  # It registers s3, hdfs and others.
    if scheme not in _gfile().get_registered_schemes():
        raise InputError(
            f"{what}: {path}: this TensorFlow cannot read {scheme}://; install tensorflow-io, or "
            "mount the files or copy them here"
        )


def _check_name(path: str, what: str) -> None:
    try:
        path.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            f"{what}: the name of the file {path!r} is not UTF-8, so it cannot be recorded; rename "
            "it"
        ) from error


def expand_globs(patterns: str, what: str) -> list[str]:
    """Expands comma-separated globs to files, in order and without repetition.

    The name of an existing file stands for it, whatever characters it has. Patterns do not match
    temporary files, nor files in temporary folders.
    """
    paths = []
    for pattern in patterns.split(","):
        pattern = pattern.strip()
        if not pattern:
            continue
        check_scheme(pattern, what)
        candidates = [pattern] if exists(pattern) else glob(pattern)
        named = pattern.split("/")
        matches = [
            path
            for path in candidates
            if not any(is_temporary(part) for part in path.split("/") if part not in named)
            and not is_dir(path)
        ]
        if not matches:
            raise InputError(f"{what}: no file matches {pattern!r}")
        for path in matches:
            _check_name(path, what)
            check_regular(path)  # Records are opened by TensorFlow.
        paths.extend(matches)
    if not paths:
        raise InputError(f"{what}: no file is named in {patterns!r}")
    return list(dict.fromkeys(paths))


def make_dirs(path: str) -> None:
    """Makes a folder and its parents; raises `InputError` also if it cannot be written to."""
    if is_remote(path):
        _gfile().makedirs(path)
        return
    try:
        os.makedirs(path, exist_ok=True)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", error)
        raise InputError(f"cannot make the folder {path}: {reason}") from error
    try:
        # A real file is the only sure test: access() says yes to root on read-only mounts.
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise InputError(f"cannot write to the folder {path}: {error.strerror}") from error


def rename(source: str, target: str) -> None:
    """Moves a file over `target`; on local disks the change is atomic."""
    if is_remote(target):
        _gfile().rename(source, target, overwrite=True)
    else:
        os.replace(source, target)


def remove(path: str) -> None:
    """Deletes a file or a folder with all its contents, if it exists."""
    if is_remote(path):
        if exists(path):
            (_gfile().rmtree if is_dir(path) else _gfile().remove)(path)
    elif os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):  # Else a read-only disk would refuse.
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)


def copy(source: str, target: str) -> None:
    """Copies a file through a temporary name, so `target` is never half-written."""
    with _rename_on_success(target, size(source)) as temporary:
        if is_remote(source) or is_remote(target):
            _gfile().copy(source, temporary, overwrite=True)
        else:
            shutil.copyfile(source, temporary)


def link(source: str, target: str) -> None:
    """Gives a file a second name, which replaces `target`; copies it if links are not possible.

    Neither name may be written to afterwards, but both may be replaced or removed.
    """
    try:
        if is_remote(source) or is_remote(target):
            raise OSError("links are for local files")
        with _rename_on_success(target, None) as temporary:
            remove(temporary)
            os.link(source, temporary)
    except (OSError, InputError):
        copy(source, target)


@functools.cache
def machine() -> str:
    """Returns an id of the running system and container: processes with it see each other."""
    name = socket.gethostname()
    with contextlib.suppress(OSError), open_file("/proc/sys/kernel/random/boot_id") as file:
        name = f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    return hashlib.sha256(name.encode()).hexdigest()[:8]


def temporary_name(path: str) -> str:
    """Returns a name next to `path` that only this process uses.

    Deletes the temporary files of killed processes for `path`: those of this machine at once, those
    of others if they have not changed for a day.
    """
    if not is_remote(path):
        for leftover in _glob.glob(f"{_glob.escape(str(path))}.tmp-*"):
            if _is_left_over(leftover):
                with contextlib.suppress(OSError):  # a read-only folder; already gone
                    remove(leftover)
    return f"{path}.tmp-{os.getpid()}-{machine()}"


def is_temporary(name: str) -> bool:
    """Returns whether the name of a file or folder has the form of `temporary_name`."""
    return _TEMPORARY.search(name) is not None


def _is_left_over(temporary: str) -> bool:
    """Returns whether a path is a temporary one whose process has ended."""
    marks = _TEMPORARY.findall(os.path.basename(temporary))
    if not marks:  # It is the user's.
        return False
    number, mark = marks[-1]
    if mark != machine():
        return _is_old(temporary)
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except (OverflowError, PermissionError):  # no process number; somebody else's process
        return False
    return False


def _is_old(path: str) -> bool:
    """Returns whether nothing in a file or folder has changed for long."""
    try:
        pattern = f"{_glob.escape(path)}/**"
        inside = _glob.iglob(pattern, recursive=True) if os.path.isdir(path) else ()
        changed = max(os.lstat(name).st_mtime for name in (path, *inside))
    except OSError:  # It is gone, or in use.
        return False
    return time.time() - changed > _LOST_SECONDS


@contextlib.contextmanager
def room_for(path: str, count: int | None = None) -> Iterator[None]:
    """Turns failures to write into errors that name the file, and the missing space.

    Args:
      path: file or folder that the block writes, and removes if that fails.
      count: bytes that it needs; None if unknown.
    """
    try:
        yield
    except Exception as error:
        if text := refusal(error):
            raise InputError(f"cannot write {path}: {text}") from error
        if isinstance(error, InputError) or not (reason := disk_full_reason(error)):
            raise
        free = None if is_remote(path) else free_bytes(path)
        raise NoRoomError(message(path, reason, count, free)) from error


@contextlib.contextmanager
def _rename_on_success(path: str, count: int | None) -> Iterator[str]:
    """Yields a temporary name, which becomes `path` only if the block succeeds."""
    check_regular(path)  # It would be replaced.
    temporary = temporary_name(path)
    with room_for(path, count):
        try:
            yield temporary
            rename(temporary, path)
        finally:
            with contextlib.suppress(OSError):
                remove(temporary)  # A rename also leaves it if both are the same file.


def atomic_writer_or_stdout(path: str | None) -> contextlib.AbstractContextManager[IO[str]]:
    """Returns `atomic_writer`, or without a path standard output, which stays open."""
    return atomic_writer(path) if path else contextlib.nullcontext(sys.stdout)


@contextlib.contextmanager
def atomic_writer(path: str, mode: str = "w", count: int | None = None) -> Iterator[IO[Any]]:
    """Opens a temporary file that replaces `path` only if the block succeeds.

    A stream, see `is_stream`, is written to itself. `count`: number of bytes to write, if known.
    """
    if is_stream(path):
        with room_for(path, count), _open_stream(path, mode) as stream:
            yield stream
        return
    with _rename_on_success(path, count) as temporary, open_file(temporary, mode) as file:
        yield file
        if not is_remote(path):
            file.flush()
            os.fsync(file.fileno())


def check_folder_of(path: str | None, flag: str) -> None:
    """Checks that the folder of an output file exists, before the work that ends with the file."""
    folder = os.path.dirname(path) if path and not is_remote(path) else ""
    if folder and not is_dir(folder):
        raise InputError(f"{flag}={path}: the folder {folder} does not exist")


@contextlib.contextmanager
def atomic_folder(path: str, last: str) -> Iterator[str]:
    """Makes a temporary folder, whose files move to the folder `path` only if the block succeeds.

    Other files in `path` stay; one of the same name with other content is an error.

    Args:
      last: name of the file that makes the others valid.
    """
    path = str(path).rstrip("/")
    new = not exists(path)
    make_dirs((os.path.dirname(path) or ".") if new else path)  # checks that it can be written to
    # Inside an existing folder, which may be its own file system. Hidden, so that nothing mistakes
    # it for the finished folder if the process is killed.
    hidden = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}")
    temporary = temporary_name(hidden if new else os.path.join(path, ".new"))
    make_dirs(temporary)
    try:
        yield temporary
        if new and not is_remote(path):
            rename(temporary, path)
            return
        make_dirs(path)
        for name in sorted(_new_files(temporary, path), key=lambda name: name == last):
            rename(os.path.join(temporary, name), os.path.join(path, name))
    finally:
        with contextlib.suppress(OSError):
            remove(temporary)


def _new_files(source: str, target: str) -> list[str]:
    """Returns the names in a folder that another one lacks; rejects others unless equal."""
    existing = {name for name in listdir(source) if exists(os.path.join(target, name))}
    pairs = {name: (os.path.join(source, name), os.path.join(target, name)) for name in existing}
    if others := sorted(name for name, pair in pairs.items() if not _are_equal(*pair)):
        raise InputError(
            f"the folder {target} already has other files with the names {', '.join(others)}, "
            "which would be lost: name a new folder, or remove them if you do not need them"
        )
    return [name for name in listdir(source) if name not in existing]


def _are_equal(one: str, other: str) -> bool:
    """Returns whether a file, or all files in a folder, equal their namesakes."""
    if is_dir(one) and is_dir(other):
        pairs = [(os.path.join(one, name), os.path.join(other, name)) for name in listdir(one)]
        return all(exists(theirs) and _are_equal(ours, theirs) for ours, theirs in pairs)
    return (
        is_dir(one) == is_dir(other) and size(one) == size(other) and sha256(one) == sha256(other)
    )


@contextlib.contextmanager
def open_folder(path: str) -> Iterator[int]:
    """Yields the descriptor of a local folder, for locks."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def create(path: str, text: str) -> bool:
    """Writes a small file unless the name exists; returns whether it was written.

    On local disks only one of several processes succeeds, and others never see half of the file.
    """
    if is_remote(path):
        if exists(path):
            return False
        write_text(path, text)
        return True
    temporary = f"{temporary_name(path)}-{threading.get_ident()}"
    with room_for(path, len(text)):
        try:
            with open_file(temporary, "w") as file:
                file.write(text)
            os.link(temporary, path)
        except FileExistsError:
            return False
        except OSError as error:
            if disk_full_reason(error):
                raise
            return _create_in_place(path, text)  # a file system without links
        finally:
            remove(temporary)
    return True


def _create_in_place(path: str, text: str) -> bool:
    with contextlib.suppress(FileExistsError), open_file(path, "x") as file:
        file.write(text)
        return True
    return False


def modified(path: str) -> float:
    """Returns when a file was last written, in seconds by the clock of the file system."""
    return _gfile().stat(path).mtime_nsec / 1e9 if is_remote(path) else os.stat(path).st_mtime


def changed(path: str) -> float:
    """Returns when a file was last written, renamed or linked, by the clock of the file system."""
    return modified(path) if is_remote(path) else max(modified(path), os.stat(path).st_ctime)


def touch(path: str, text: str) -> None:
    """Sets the time of `modified` of a file to now; `text` is its content."""
    if is_remote(path):
        write_text(path, text)
    else:
        os.utime(path)


def write_text(path: str, text: str) -> None:
    """Writes a whole text file atomically."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: str, content: bytes | bytearray | memoryview) -> None:
    """Writes a whole file atomically."""
    with atomic_writer(path, "wb", len(content)) as file:
        file.write(content)


def write_json(path: str, value: object) -> None:
    """Writes `value` as indented JSON, atomically."""
    write_text(path, json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n")


def read_bytes(path: str, what: str, max_bytes: int | None = SMALL) -> bytes:
    """Reads a file that the user named, see `open_input`; `max_bytes` None: of any size."""
    try:
        with open_input(path, what, "rb") as file:
            content = file.read(-1 if max_bytes is None else max_bytes + 1)
    except OSError as error:
        raise UnreadableError(f"{what}: cannot read {path}: {error.strerror}") from error
    if max_bytes is not None and len(content) > max_bytes:
        raise InputError(
            f"{what}: {path} has more than {max_bytes} bytes, a small file was expected"
        )
    return content


def read_text(path: str, what: str, max_bytes: int | None = SMALL) -> str:
    """Reads the text of a file that the user named, without a byte order mark; see `read_bytes`."""
    try:
        return read_bytes(path, what, max_bytes).removeprefix(codecs.BOM_UTF8).decode("utf-8")
    except UnicodeDecodeError as error:
        advice = encoding_advice(error.object)
        raise InputError(f"{what}: {path} is not UTF-8 text: {error}; {advice}") from error


def encoding_advice(content: bytes) -> str:
    """Returns what to do with a text that is not UTF-8; `content`: its bytes from the start."""
    for start, form in _PACKED.items():
        if content.startswith(start):
            return f"it begins as {form}: unpack it, or save it as text"
    name, so = "CP1252", "if it has the encoding of Western Windows, "
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        name, so = "UTF-16", "it begins as UTF-16 does: "
    return f"{so}convert it with iconv -f {name} -t UTF-8 FILE > NEW_FILE"


def check_line_ends(content: bytes, name: str) -> None:
    """Rejects a text whose lines end in carriage returns alone; needs its first two lines."""
    line, _, rest = content.partition(b"\n")
    if not rest and b"\r" in line.rstrip(b"\r"):
        raise InputError(
            f"{name}: its lines end in carriage returns alone, so it is one line; write it with "
            "line feeds (tr '\\r' '\\n')"
        )


def _with_line_feeds(lines: Iterable[bytes], name: str) -> Iterator[bytes]:
    """Yields the lines; before the first, checks line ends."""
    lines = iter(lines)
    read = list(itertools.islice(lines, 1))
    if read and b"\r" in read[0].rstrip(b"\r\n"):  # Others need not wait for a second line.
        read += itertools.islice(lines, 1)
        check_line_ends(b"".join(read), name)
    yield from read
    yield from lines


def text_lines(lines: Iterable[bytes], name: str) -> Iterator[tuple[int, str]]:
    """Yields (number from 1, line with its line end) of a text without its byte order mark."""
    for number, content in enumerate(_with_line_feeds(lines, name), 1):
        if number == 1:
            content = content.removeprefix(codecs.BOM_UTF8)
        try:
            line = content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(
                f"{name} line {number}: not UTF-8 text ({error}); {encoding_advice(content)}"
            ) from error
        yield number, line


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns the dict of the pairs of a JSON object, whose keys must differ."""
    value = dict(pairs)
    if len(value) < len(pairs):
        counts = collections.Counter(key for key, _ in pairs)
        key, count = counts.most_common(1)[0]
        raise InputError(f"the key {key!r} appears {count} times in one object; keep one of them")
    return value


def parse_json(text: str | bytes) -> object:
    """Parses a text as JSON, whose objects must not repeat a key; errors name no file."""
    try:
        return json.loads(text, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        raise InputError(f"{error.msg} (line {error.lineno}, column {error.colno})") from error
    except (RecursionError, ValueError) as error:  # ValueError: thousands of digits
        raise InputError(str(error)) from error


def read_json(
    path: str, what: str, kind: type[dict] | type[list] | None = None, max_bytes: int | None = SMALL
) -> Any:
    """Reads a JSON file that the user named, see `read_bytes`; None: of any `kind`."""
    text = read_text(path, what, max_bytes)
    try:
        value = parse_json(text)
    except InputError as error:
        raise InputError(f"{what}: {path} is not valid JSON: {error}") from error
    if kind is not None and not isinstance(value, kind):
        expected = "an object" if kind is dict else "a list"
        raise InputError(f"{what}: {path} must hold {expected}, found a {type(value).__name__}")
    return value


def sha256(path: str) -> str:
    """Returns the hexadecimal SHA-256 of a file's bytes."""
    with open_file(path, "rb") as file:
        return sha256_of(file)


def sha256_of(file: IO[bytes]) -> str:
    """Returns the hexadecimal SHA-256 of the rest of a file that was opened for reading bytes."""
    digest = hashlib.sha256()
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
    return digest.hexdigest()


def free_bytes(path: str) -> int:
    """Returns the free bytes on the disk of a local path, which need not exist yet."""
    path = os.path.abspath(path)
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return shutil.disk_usage(path).free


def map_bytes(path: str) -> mmap.mmap:
    """Maps the bytes of a local file into memory; empty files cannot be mapped."""
    with open_file(path, "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


@contextlib.contextmanager
def writing(folder: str) -> Iterator[None]:
    """Turns failures to write into `InputError`s that name the folder."""
    try:
        with room_for(folder):
            yield
    except NoRoomError as error:
        raise InputError(f"{error}, then start again (no output file was changed)") from error
    except OSError as error:
        raise InputError(
            f"cannot write in {folder}: {error.strerror}; choose another folder for the output, "
            "then start again (no output file was changed)"
        ) from error
