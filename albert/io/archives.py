"""Gzipped tar archives of models: unpacked once into a cache, and nothing in them is trusted."""

import bz2
import contextlib
import gzip
import io
import os
import zlib

from albert.io import file_io

_CHUNK = 1 << 20  # bytes read at a time
# What an archive may unpack to: weights hardly shrink, so more is meant to fill the disk.
_MOST_TIMES_LARGER, ALWAYS_UNPACKED = 20, 1 << 30


def is_archive(path):
    """True for the names of gzipped tar archives."""
    return path.endswith((".tar.gz", ".tgz"))


def unpack_archive(path, cache_dir):
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
    target = os.path.join(cache_dir, file_io.sha256(path)[:32])
    if not file_io.is_dir(target):
        file_io.make_dirs(cache_dir)
        with file_io.room_for(target):
            _unpack(path, target)
    names = file_io.listdir(target)
    only = os.path.join(target, names[0]) if len(names) == 1 else target
    return only if file_io.is_dir(only) else target


def _unpack(path, target):
    # Imported here: data workers, which start in milliseconds, unpack nothing.
    import gzip
    import tarfile
    import zlib

    damage = (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile)
    temporary = file_io.temporary_name(target)
    try:
        with (
            file_io.open_file(path, "rb") as file,
            tarfile.open(fileobj=file, mode="r:gz") as tar,
        ):
            file_io.make_dirs(temporary)
            left = max(_MOST_TIMES_LARGER * file_io.size(path), ALWAYS_UNPACKED)
            for member in tar:
                left -= member.size
                if left < 0:
                    raise file_io.InputError(
                        f"{path} unpacks to more than {_MOST_TIMES_LARGER} times its size; "
                        "not unpacked"
                    )
                _write_member(path, tar, member, temporary)
            while tar.fileobj.read(_CHUNK):  # to its end, where the checksum is
                pass
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


def _write_member(path, tar, member, folder):
    """Writes one file or folder of an archive under `folder`; names that lead out are refused."""
    name = os.path.normpath(member.name)
    if os.path.isabs(name) or name.split(os.sep)[0] == "..":
        raise file_io.InputError(f"{path}: the member {member.name!r} lies outside; not unpacked")
    if not (member.isfile() or member.isdir()):
        raise file_io.InputError(
            f"{path}: the member {member.name!r} is neither a file nor a folder; not unpacked"
        )
    target = os.path.join(folder, name)
    file_io.make_dirs(target if member.isdir() else os.path.dirname(target))
    if member.isfile():
        try:
            out = file_io.open_file(target, "xb")
        except (OSError, ValueError) as error:  # too long, a NUL in it, a folder, there already
            if file_io.disk_full_reason(error):
                raise
            raise file_io.InputError(
                f"{path}: the member {member.name!r} cannot be written: {error}; not unpacked"
            ) from error
        with out, tar.extractfile(member) as content:
            while chunk := content.read(_CHUNK):
                out.write(chunk)


# --- Reads files as they are or compressed: gzip, bzip2 and Zstandard, in one or several streams


ENDINGS = (".gz", ".bz2", ".zst")


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
def open_input(path, what):
    """Opens a file that the user named for reading bytes; its name says how it is compressed.

    Names that end in .gz, .bz2 or .zst do so, any other file is read as it is.

    Raises:
      file_io.InputError: as `file_io.open_input`; or the file is cut off or damaged, or there is no
        package for it.
    """
    ending = os.path.splitext(path)[1].lower()
    with file_io.open_input(path, what, "rb") as file:
        if ending == ".gz":
            damage = (EOFError, zlib.error, gzip.BadGzipFile)
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
