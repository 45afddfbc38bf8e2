"""Reads files as they are or compressed: gzip, bzip2 and Zstandard, in one or several streams.

A file that is cut off is an error, whatever its format.
"""

import bz2
import contextlib
import gzip
import io
import os
import zlib

from albert import file_io

ENDINGS = (".gz", ".bz2", ".zst")
_CHUNK = 1 << 20  # bytes read at a time


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
