"""Gzipped tar archives of models: unpacked once into a cache, and nothing in them is trusted."""

import bz2
import contextlib
import gzip
import io
import os
import zlib
from collections.abc import Iterator
from typing import IO, Any

from albert.io import file_io

_CHUNK = 1 << 20  # bytes read at a time
# What an archive may unpack to: weights hardly shrink, so more is meant to fill the disk.
_MOST_TIMES_LARGER, ALWAYS_UNPACKED = 20, 1 << 30
_MOST_MEMBERS = 10_000  # files and folders, those in the middle of names as well
_DEEPEST = 32  # folders in each other
# Bytes of an extended header (a long name, settings of pax), of all of them, and how many may
# stand before one member.
_LARGEST_HEADER, _MOST_HEADER_BYTES, _MOST_HEADERS = 1 << 16, 1 << 24, 16
_LONGEST_NAME = 100  # characters of a name in a message
_BLOCK = 512
_LONG_NAME, _LONG_LINK, _SPARSE = b"L", b"K", b"S"
_PAX, _PAX_OLD, _PAX_FOR_ALL = b"x", b"X", b"g"
_EXTENDED = (_LONG_NAME, _LONG_LINK, _PAX, _PAX_OLD, _PAX_FOR_ALL)


def is_archive(path: str) -> bool:
    """True for the names of gzipped tar archives."""
    return path.endswith((".tar.gz", ".tgz"))


def unpack_archive(path: str, cache_dir: str) -> str:
    """Unpacks an archive into a cache, unless that was done before; nothing in it is trusted.

    Args:
      path: local ``.tar.gz`` file.
      cache_dir: the contents go to a folder in here that is named by the archive's SHA-256; it
        appears whole or not at all.

    Returns:
      That folder, or the only folder in it if it holds nothing else.

    Raises:
      file_io.InputError: the archive is cut off, damaged or none, has a member that is neither a
        file nor a folder, that lies outside or has no possible name, or unpacks to far more than
        its size, or there is no room; nothing is left behind.
    """
    # Opened once: what is unpacked is what was hashed, even if the path gets another file.
    with file_io.open_input(path, "archive", "rb") as file:
        target = os.path.join(cache_dir, file_io.sha256_of(file)[:32])
        if not file_io.is_dir(target):
            file_io.make_dirs(cache_dir)
            with file_io.room_for(target):
                _unpack(path, file, target)
    names = file_io.listdir(target)
    only = os.path.join(target, names[0]) if len(names) == 1 else target
    return only if file_io.is_dir(only) else target


def _unpack(path, file, target):
    # Imported here: data workers, which start in milliseconds, unpack nothing.
    import gzip
    import tarfile
    import zlib

    damage = (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile)
    temporary = file_io.temporary_name(target)
    try:
        size = file.tell()  # after it was hashed
        file.seek(0)
        with gzip.open(file) as content:
            file_io.make_dirs(temporary)
            stream = _Stream(path, content, size)
            names = {""}
            for member in _members(stream):
                name = _checked_name(path, member)
                while name not in names:  # with the folders in its middle
                    names.add(name)
                    name = os.path.dirname(name)
                if len(names) > _MOST_MEMBERS:
                    raise _refusal(path, f"holds more than {_MOST_MEMBERS} files and folders")
                _write_member(path, stream, member, temporary)
            stream.read_to_end()  # where the checksum is
        file_io.rename(temporary, target)
    except damage as error:
        raise file_io.InputError(
            f"{path} is cut off, damaged or not a .tar.gz archive ({error}); fetch it again"
        ) from error
    except OSError:
        if not file_io.is_dir(target):  # else another process has unpacked it meanwhile
            raise
    finally:
        file_io.remove(temporary)


def _refusal(path, said):
    return file_io.InputError(f"{path} {said}; not unpacked")


def _of(member):
    """A member as messages have it."""
    return f"the member {member.name[:_LONGEST_NAME]!r}"


class _Stream:
    """The unpacked bytes of an archive, whose contents may be only so large.

    Args:
      path: of the archive, for messages.
      content: file of the unpacked bytes.
      size: of the archive, in bytes.
    """

    def __init__(self, path, content, size):
        self.path = path
        self._content = content
        self._left = max(_MOST_TIMES_LARGER * size, ALWAYS_UNPACKED)

    def _count(self, size):
        self._left -= size
        if self._left < 0:
            raise _refusal(self.path, f"unpacks to more than {_MOST_TIMES_LARGER} times its size")

    def read(self, count):
        """Exactly so many bytes; those of headers, which have other limits, are not counted."""
        content = self._content.read(count)
        if len(content) < count:
            raise EOFError("it ends in the middle of a member")
        return content

    def read_block(self):
        """The next block, which is shorter at the end."""
        return self._content.read(_BLOCK)

    def chunks(self, size):
        """Yields a content of so many bytes."""
        self._count(size)
        for start in range(0, size, _CHUNK):
            yield self.read(min(_CHUNK, size - start))
        self.skip_padding(size)

    def skip_padding(self, size):
        """Reads what fills the last block of a content of so many bytes."""
        self.read(-size % _BLOCK)

    def read_to_end(self):
        """Reads, and forgets, what is behind the last member."""
        self._left += _CHUNK  # tar fills its last blocks up
        while content := self._content.read(_CHUNK):
            self._count(len(content))


def _members(stream):
    """Yields a `tarfile.TarInfo` for each member; the caller reads the content of files.

    This is not left to `tarfile`, which calls itself for each extended header and keeps what these
    hold in memory, of any size.
    """
    import tarfile

    for_all, number, header_bytes = {}, 0, 0
    while (block := stream.read_block()) or not number:
        settings, extended = dict(for_all), 0
        while True:
            try:
                member = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
            except tarfile.EOFHeaderError:
                if extended:
                    raise
                return
            if member.size < 0:
                raise tarfile.InvalidHeaderError("a size below zero")
            if member.type not in _EXTENDED:
                break
            extended, header_bytes = extended + 1, header_bytes + member.size
            if member.size > _LARGEST_HEADER or header_bytes > _MOST_HEADER_BYTES:
                raise _refusal(stream.path, f"has a header of {member.size} bytes, or too many")
            if extended > _MOST_HEADERS:
                raise _refusal(stream.path, f"has more than {_MOST_HEADERS} headers for a member")
            content = stream.read(member.size)
            stream.skip_padding(member.size)
            if member.type == _PAX_FOR_ALL:
                for_all.update(_pax(content))
                settings = for_all | settings
            else:
                settings.update(_settings(member.type, content))
            block = stream.read_block()
        yield _with(stream.path, member, settings)
        number += 1


def _settings(kind, content):
    """What an extended header says, as {keyword of pax: value}."""
    if kind in (_PAX, _PAX_OLD):
        return _pax(content)
    name = content.partition(b"\0")[0].decode("utf-8", "surrogateescape")
    return {"path": name} if kind == _LONG_NAME else {}  # links are refused anyway


def _pax(content):
    """{keyword: value} of an extended header of pax: lines "length keyword=value"."""
    import tarfile

    found, start = {}, 0
    while content[start : start + 1].strip(b"\0"):
        number = content[start : start + 8].partition(b" ")[0]
        end = start + int(number) if number.isdigit() else start
        line = content[start + len(number) + 1 : end]
        keyword, equals, value = line.partition(b"=")
        if end > len(content) or not equals or not value.endswith(b"\n"):
            raise tarfile.InvalidHeaderError("a damaged header of pax")
        text = value[:-1].decode("utf-8", "surrogateescape")
        found[keyword.decode("utf-8", "surrogateescape")] = text
        start = end
    return found


def _with(path, member, settings):
    """A member as its extended headers describe it."""
    import tarfile

    member.name = settings.get("path", member.name)
    if member.type == _SPARSE or any(keyword.startswith("GNU.sparse") for keyword in settings):
        raise _refusal(path, f"has a sparse file, {_of(member)}")
    size = settings.get("size", str(member.size))
    if not (size.isascii() and size.isdigit() and len(size) < 20):
        raise tarfile.InvalidHeaderError("a size that is no number")
    member.size = int(size)
    return member


def _checked_name(path, member):
    """Name of a file or folder of an archive; one that leads out is refused."""
    name = os.path.normpath(member.name)
    if os.path.isabs(name) or name.split(os.sep)[0] == "..":
        raise file_io.InputError(f"{path}: {_of(member)} lies outside; not unpacked")
    if not (member.isfile() or member.isdir()):
        raise file_io.InputError(
            f"{path}: {_of(member)} is neither a file nor a folder; not unpacked"
        )
    if name.count(os.sep) >= _DEEPEST:
        raise file_io.InputError(
            f"{path}: {_of(member)} lies in more than {_DEEPEST} folders; not unpacked"
        )
    return "" if name == os.curdir else name


def _write_member(path, stream, member, folder):
    """Writes one file or folder of an archive under `folder`."""
    target = os.path.join(folder, os.path.normpath(member.name))
    try:
        file_io.make_dirs(target if member.isdir() else os.path.dirname(target))
        if member.isdir():
            return
        out = file_io.open_file(target, "xb")
    except (OSError, ValueError) as error:  # too long, a NUL in it, a folder, there already
        if file_io.disk_full_reason(error.__cause__ or error):
            raise
        raise file_io.InputError(
            f"{path}: {_of(member)} cannot be written: {error}; not unpacked"
        ) from error
    with out:
        for chunk in stream.chunks(member.size):
            out.write(chunk)


# --- Reads files as they are or compressed: gzip, bzip2 and Zstandard, in one or several streams


ENDINGS = (".gz", ".bz2", ".zst")
_kept: dict[str, Any] = {}  # {path: `_Place`} of at most one file, see `open_at`


class _Unpacked(io.RawIOBase):
    """Content of a compressed file, which has a mistake of its own for damage.

    Args:
      read: function, number of bytes -> at most so many bytes, none at the end.
      damage: what it raises where the file is cut off or damaged.
      name: what messages call the file.
    """

    def __init__(self, read, damage, name):
        self._read, self._damage, self._name = read, damage, name

    def readable(self):
        return True

    def readinto(self, buffer):
        try:
            content = self._read(len(buffer))
        except self._damage as error:
            raise file_io.InputError(
                f"{self._name} is cut off or damaged ({error}); fetch it again"
            ) from error
        buffer[: len(content)] = content
        return len(content)


def _zstd_read(file, decompressor):
    """Function that reads content of a file in zstd format, of one or several frames.

    The reader of the package would take a file that is cut off for a whole one.
    """

    def chunks():
        frame = None
        while packed := file.read(_CHUNK):
            while packed:
                frame = frame or decompressor.decompressobj()
                yield frame.decompress(packed)
                packed = frame.unused_data
                if frame.eof:
                    frame = None
        if frame:
            raise EOFError("the file ends inside a frame")

    waiting, content = chunks(), b""

    def read(count):
        nonlocal content
        content = content or next(filter(None, waiting), b"")
        part, content = content[:count], content[count:]
        return part

    return read


@contextlib.contextmanager
def open_input(path: str, what: str) -> Iterator[IO[bytes]]:
    """Opens a file that the user named for reading bytes; its name says how it is compressed.

    Names that end in .gz, .bz2 or .zst do so, any other file is read as it is.

    Raises:
      file_io.InputError: as `file_io.open_input`; or the file is cut off or damaged, or there is no
        package for it.
    """
    ending = os.path.splitext(path)[1].lower()
    with file_io.open_input(path, what, "rb") as file:
        if ending == ".gz":
            damage: tuple[type[Exception], ...] = (EOFError, zlib.error, gzip.BadGzipFile)
            read = gzip.GzipFile(fileobj=file).read
        elif ending == ".bz2":
            damage = (EOFError, OSError)
            read = bz2.BZ2File(file).read
        elif ending == ".zst":
            try:
                import zstandard
            except ImportError as error:
                raise file_io.InputError(
                    f"{path} needs the package zstandard: pip install '.[corpus]' ({error})"
                ) from error
            damage = (EOFError, zstandard.ZstdError)
            read = _zstd_read(file, zstandard.ZstdDecompressor())
        else:
            yield file
            return
        with io.BufferedReader(_Unpacked(read, damage, f"{what}: {path}"), _CHUNK) as unpacked:
            yield unpacked


def is_compressed(path: str) -> bool:
    """Whether the name of a file says that it is compressed."""
    return os.path.splitext(path)[1].lower() in ENDINGS


class _Place:
    """A compressed file that is read from the front, and how far it was."""

    def __init__(self, path, what):
        self.stamp = _stamp(path)
        self._stack = contextlib.ExitStack()
        self._file = self._stack.enter_context(open_input(path, what))
        self.place = 0
        self.close = self._stack.close

    def read(self, count):
        content = self._file.read(count)
        self.place += len(content)
        return content

    def go_to(self, start):
        while self.place < start and self.read(min(start - self.place, _CHUNK)):
            pass


def _stamp(path):
    """Returns what changes when the file is written; None if it is gone."""
    return (file_io.size(path), file_io.modified(path)) if file_io.exists(path) else None


@contextlib.contextmanager
def open_at(path: str, what: str, start: int) -> Iterator[IO[bytes]]:
    """As `open_input`, from a byte of the content on.

    There is no way to a place in a compressed file but reading everything before it. So such a file
    is left open at the end of the block, and the next block goes on from there if it can: parts
    that are read in order, also with gaps, cost no more than reading all once.
    """
    if not is_compressed(path):
        with open_input(path, what) as plain:
            plain.seek(start)
            yield plain
        return
    file: Any = _kept.pop(path, None)
    if file and (file.place > start or file.stamp != _stamp(path)):
        file.close()
        file = None
    file = file or _Place(path, what)
    try:
        file.go_to(start)
        yield file
    except BaseException:
        file.close()
        raise
    for other in list(_kept):
        _kept.pop(other).close()
    _kept[path] = file
