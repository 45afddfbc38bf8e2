"""Unpacks gzipped tar archives of models, without trusting them, and reads compressed files.

In messages, `path` names the archive, and `what` is the purpose of a file or its flag.
"""

import bz2
import contextlib
import gzip
import io
import os
import zlib
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING

from albert.io import file_io, requirements

if TYPE_CHECKING:
    import tarfile

    import zstandard

ENDINGS = (".gz", ".bz2", ".zst")
_CHUNK = 1 << 20  # bytes read at a time
# An archive may unpack to this many times its size, or bytes if that is more. Compression hardly
# shrinks weights, so larger contents are meant to fill the disk.
_MAX_RATIO, ALWAYS_UNPACKED = 20, 1 << 30
MAX_MEMBERS = 10_000  # files and folders, including those in the middle of names
_MAX_DEPTH = 32  # nested folders
# Bytes of an extended header (a long name, settings of pax) and of all, and number of extended
# headers of one member.
_MAX_HEADER, _MAX_HEADER_BYTES, _MAX_HEADERS = 1 << 16, 1 << 24, 16
_MAX_NAME = 100  # characters of a name in a message
_BLOCK = 512
_LONG_NAME, _LONG_LINK, _SPARSE = b"L", b"K", b"S"
_PAX, _PAX_OLD, _PAX_FOR_ALL = b"x", b"X", b"g"
_EXTENDED = (_LONG_NAME, _LONG_LINK, _PAX, _PAX_OLD, _PAX_FOR_ALL)
_kept: dict[str, "_Place"] = {}  # by path; at most one file, see `open_at`


def is_archive(path: str) -> bool:
    """Returns whether a name is that of a gzipped tar archive."""
    return path.endswith((".tar.gz", ".tgz"))


def unpack_archive(path: str, cache_dir: str) -> str:
    """Unpacks an archive into a cache, unless it is there already; trusts nothing in it.

    Args:
      path: local ``.tar.gz`` file.
      cache_dir: gets a folder for the contents, named by the archive's SHA-256; it appears
        complete or not at all.

    Returns:
      That folder, or the only folder in it if it holds nothing else.

    Raises:
      file_io.InputError: the file is cut off, damaged or not an archive; a member is neither a file
        nor a folder, lies outside or has an impossible name; the contents are far larger than the
        archive; or the disk is full. Removes what was unpacked.
    """
    # Opened once, to unpack what was hashed even if the file is replaced.
    with file_io.open_input(path, "archive", "rb") as file:
        target = os.path.join(cache_dir, file_io.sha256_of(file)[:32])
        if not file_io.is_dir(target):
            file_io.make_dirs(cache_dir)
            with file_io.room_for(target):
                _unpack(path, file, target)
    # Programs of macOS add hidden files.
    names = [name for name in file_io.listdir(target) if not name.startswith(".")]
    only = os.path.join(target, names[0]) if len(names) == 1 else target
    return only if file_io.is_dir(only) else target


def _unpack(path: str, file: IO[bytes], target: str) -> None:
    import tarfile  # not above: data workers, which start in milliseconds, unpack nothing

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
                if len(names) > MAX_MEMBERS:
                    raise _rejection(path, f"holds more than {MAX_MEMBERS} files and folders")
                _write_member(path, stream, member, temporary)
            stream.read_to_end()  # The checksum is there.
        file_io.rename(temporary, target)
    except damage as error:
        raise file_io.InputError(
            f"{path} is cut off, damaged or not a .tar.gz archive ({error}); fetch it again"
        ) from error
    except OSError:
        if not file_io.is_dir(target):  # else another process has unpacked it
            raise
    finally:
        file_io.remove(temporary)


def _rejection(place: str, reason: str) -> file_io.InputError:
    return file_io.InputError(f"{place} {reason}; not unpacked")


def _describe(member: "tarfile.TarInfo") -> str:
    return f"the member {member.name[:_MAX_NAME]!r}"


class _Stream:
    """The unpacked bytes of an archive, up to a maximum.

    Args:
      content: file of the unpacked bytes.
      size: bytes of the archive.
    """

    def __init__(self, path: str, content: gzip.GzipFile, size: int) -> None:
        self.path = path
        self._content = content
        self._left = max(_MAX_RATIO * size, ALWAYS_UNPACKED)

    def _count(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise _rejection(self.path, f"unpacks to more than {_MAX_RATIO} times its size")

    def read(self, count: int) -> bytes:
        """Reads exactly `count` bytes; does not count them, as headers have other limits."""
        content = self._content.read(count)
        if len(content) < count:
            raise EOFError("it ends in the middle of a member")
        return content

    def read_block(self) -> bytes:
        """Reads the next block, which is shorter at the end."""
        return self._content.read(_BLOCK)

    def chunks(self, size: int) -> Iterator[bytes]:
        """Yields the content of a member of `size` bytes."""
        self._count(size)
        for start in range(0, size, _CHUNK):
            yield self.read(min(_CHUNK, size - start))
        self.skip_padding(size)

    def skip_padding(self, size: int) -> None:
        """Reads the padding of the last block of a content of `size` bytes."""
        self.read(-size % _BLOCK)

    def read_to_end(self) -> None:
        """Reads and ignores the rest after the last member."""
        self._left += _CHUNK  # tar pads its last blocks
        while content := self._content.read(_CHUNK):
            self._count(len(content))


def _members(stream: _Stream) -> Iterator["tarfile.TarInfo"]:
    """Yields a `tarfile.TarInfo` for each member; the caller reads the content of files.

    `tarfile` itself would recurse for each extended header, and keep headers of any size in memory.
    """
    import tarfile

    for_all: dict[str, str] = {}
    number = header_bytes = 0
    while (block := stream.read_block()) or not number:
        settings, extended = dict(for_all), 0
        while True:
            try:
                member = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
            except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
                if extended:
                    raise
                return
            if member.size < 0:
                raise tarfile.HeaderError("a size below zero")
            if member.type not in _EXTENDED:
                break
            extended, header_bytes = extended + 1, header_bytes + member.size
            if member.size > _MAX_HEADER or header_bytes > _MAX_HEADER_BYTES:
                raise _rejection(stream.path, f"has a header of {member.size} bytes, or too many")
            if extended > _MAX_HEADERS:
                raise _rejection(stream.path, f"has more than {_MAX_HEADERS} headers for a member")
            content = stream.read(member.size)
            stream.skip_padding(member.size)
            if member.type == _PAX_FOR_ALL:
                for_all.update(_pax(content))
                settings = for_all | settings
            else:
                settings.update(_settings(member.type, content))
            block = stream.read_block()
        yield _apply_settings(stream.path, member, settings)
        number += 1


def _settings(kind: bytes, content: bytes) -> dict[str, str]:
    """Returns {keyword of pax: value} of an extended header."""
    if kind in (_PAX, _PAX_OLD):
        return _pax(content)
    name = content.partition(b"\0")[0].decode("utf-8", "surrogateescape")
    return {"path": name} if kind == _LONG_NAME else {}  # Links are rejected anyway.


def _pax(content: bytes) -> dict[str, str]:
    """Returns {keyword: value} of an extended header of pax: lines "length keyword=value"."""
    import tarfile

    records: dict[str, str] = {}
    start = 0
    while content[start : start + 1].strip(b"\0"):
        number = content[start : start + 8].partition(b" ")[0]
        end = start + int(number) if number.isdigit() else start
        line = content[start + len(number) + 1 : end]
        keyword, equals, value = line.partition(b"=")
        if end > len(content) or not equals or not value.endswith(b"\n"):
            raise tarfile.HeaderError("a damaged header of pax")
        text = value[:-1].decode("utf-8", "surrogateescape")
        records[keyword.decode("utf-8", "surrogateescape")] = text
        start = end
    return records


def _apply_settings(
    path: str, member: "tarfile.TarInfo", settings: dict[str, str]
) -> "tarfile.TarInfo":
    """Returns the member with the settings of its extended headers, {keyword: text}."""
    import tarfile

    member.name = settings.get("path", member.name)
    if member.type == _SPARSE or any(keyword.startswith("GNU.sparse") for keyword in settings):
        raise _rejection(path, f"has a sparse file, {_describe(member)}")
    size = settings.get("size", str(member.size))
    if not (size.isascii() and size.isdigit() and len(size) < 20):
        raise tarfile.HeaderError("a size that is not a number")
    member.size = int(size)
    return member


def _checked_name(path: str, member: "tarfile.TarInfo") -> str:
    """Returns the name of a file or folder of an archive; rejects one outside of it."""
    name = os.path.normpath(member.name)
    place = f"{path}: {_describe(member)}"
    if os.path.isabs(name) or name.split(os.sep)[0] == "..":
        raise _rejection(place, "lies outside")
    if not (member.isfile() or member.isdir()):
        raise _rejection(place, "is neither a file nor a folder")
    if name.count(os.sep) >= _MAX_DEPTH:
        raise _rejection(place, f"lies in more than {_MAX_DEPTH} folders")
    return "" if name == os.curdir else name


def _write_member(path: str, stream: _Stream, member: "tarfile.TarInfo", folder: str) -> None:
    """Writes one file or folder of an archive under `folder`; `stream` is at its content."""
    target = os.path.join(folder, os.path.normpath(member.name))
    try:
        file_io.make_dirs(target if member.isdir() else os.path.dirname(target))
        if member.isdir():
            return
        out = file_io.open_file(target, "xb")
    except (OSError, ValueError) as error:  # too long, has a NUL, is a folder, exists
        if file_io.disk_full_reason(error.__cause__ or error):
            raise
        place = f"{path}: {_describe(member)}"
        raise _rejection(place, f"cannot be written: {error}") from error
    with out:
        for chunk in stream.chunks(member.size):
            out.write(chunk)


class _Unpacked(io.RawIOBase):
    """Content of a compressed file, whose damage raises `file_io.InputError`.

    Args:
      read: ``(count) -> bytes``, at most `count`, none at the end.
      damage: exceptions of `read` if the file is cut off or damaged.
    """

    def __init__(
        self, read: Callable[[int], bytes], damage: tuple[type[Exception], ...], name: str
    ) -> None:
        self._read, self._damage, self._name = read, damage, name

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        try:
            content = self._read(len(buffer))
        except self._damage as error:
            raise file_io.InputError(
                f"{self._name} is cut off or damaged ({error}); fetch it again"
            ) from error
        buffer[: len(content)] = content
        return len(content)


def _zstd_read(
    file: IO[bytes], decompressor: "zstandard.ZstdDecompressor"
) -> Callable[[int], bytes]:
    """Returns a function that reads the content of a zstd file of one or more frames.

    The package's own reader would accept a file that is cut off.
    """

    def chunks() -> Iterator[bytes]:
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

    def read(count: int) -> bytes:
        nonlocal content
        content = content or next(filter(None, waiting), b"")
        part, content = content[:count], content[count:]
        return part

    return read


@contextlib.contextmanager
def open_input(path: str, what: str) -> Iterator[IO[bytes]]:
    """Opens a file that the user named for reading bytes; unpacks .gz, .bz2 and .zst."""
    ending = os.path.splitext(path)[1].lower()
    with file_io.open_input(path, what, "rb") as file:
        if ending in ENDINGS and not file_io.size(path):
            raise file_io.InputError(
                f"{what}: {path} is cut off or damaged (it has 0 bytes); fetch it again"
            )
        if ending == ".gz":
            damage: tuple[type[Exception], ...] = (EOFError, zlib.error, gzip.BadGzipFile)
            read: Callable[[int], bytes] = gzip.GzipFile(fileobj=file).read
        elif ending == ".bz2":
            damage = (EOFError, OSError)
            read = bz2.BZ2File(file).read
        elif ending == ".zst":
            with requirements.needed(
                f"{path} needs the package zstandard: pip install zstandard ({{error}})"
            ):
                import zstandard
            damage = (EOFError, zstandard.ZstdError)
            read = _zstd_read(file, zstandard.ZstdDecompressor())
        else:
            yield file
            return
        with io.BufferedReader(_Unpacked(read, damage, f"{what}: {path}"), _CHUNK) as unpacked:
            yield unpacked


def is_compressed(path: str) -> bool:
    """Returns whether the name of a file is that of a compressed one."""
    return os.path.splitext(path)[1].lower() in ENDINGS


class _Place:
    """A compressed file that is read from the front, and its current place."""

    def __init__(self, path: str, what: str) -> None:
        self.stamp = _stamp(path)
        self._stack = contextlib.ExitStack()
        self._file = self._stack.enter_context(open_input(path, what))
        self.place = 0
        self.close = self._stack.close

    def read(self, count: int) -> bytes:
        content = self._file.read(count)
        self.place += len(content)
        return content

    def skip_to(self, start: int) -> None:
        while self.place < start and self.read(min(start - self.place, _CHUNK)):
            pass


def _stamp(path: str) -> tuple[int, float] | None:
    """Returns what changes when the file is written; None if it is gone."""
    return (file_io.size(path), file_io.modified(path)) if file_io.exists(path) else None


@contextlib.contextmanager
def open_at(path: str, what: str, start: int) -> Iterator["IO[bytes] | _Place"]:
    """Opens a file as `open_input`, at a byte of its content.

    To reach a place in a compressed file, everything before it must be read. So such a file stays
    open at the end of the block, and the next block continues from there if it can: reading parts
    in order, also with gaps, costs no more than reading all once.
    """
    if not is_compressed(path):
        with open_input(path, what) as plain:
            plain.seek(start)
            yield plain
        return
    file = _kept.pop(path, None)
    if file and (file.place > start or file.stamp != _stamp(path)):
        file.close()
        file = None
    file = file or _Place(path, what)
    try:
        file.skip_to(start)
        yield file
    except BaseException:
        file.close()
        raise
    for other in list(_kept):
        _kept.pop(other).close()
    _kept[path] = file
