"""Unpacks model archives (.tar.gz) into a cache, once, and without trusting what is in them."""

import gzip
import os
import tarfile
import zlib

from albert import file_io

_CHUNK = 1 << 20
_DAMAGE = (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile)


def is_archive(path):
    """True for the names of gzipped tar archives."""
    return path.endswith((".tar.gz", ".tgz"))


def unpack(path, cache_dir):
    """Unpacks an archive, unless that was done before.

    Args:
      path: local ``.tar.gz`` file.
      cache_dir: the contents go to a folder in here that is named by the archive's SHA-256; it
        appears whole or not at all.

    Returns:
      That folder, or the only folder in it if it holds nothing else.

    Raises:
      file_io.InputError: the archive is cut off, is none, or has a member that is neither a file
        nor a folder, or that lies outside; nothing is left behind.
    """
    target = os.path.join(cache_dir, file_io.sha256(path)[:32])
    if not file_io.is_dir(target):
        file_io.make_dirs(cache_dir)
        temporary = file_io.temporary_name(target)
        try:
            with (
                file_io.open_file(path, "rb") as file,
                tarfile.open(fileobj=file, mode="r:gz") as tar,
            ):
                file_io.make_dirs(temporary)
                for member in tar:
                    _write_member(path, tar, member, temporary)
            file_io.rename(temporary, target)
        except _DAMAGE as error:
            raise file_io.InputError(
                f"{path} is cut off or not a .tar.gz archive ({error}); fetch it again"
            ) from error
        except OSError:
            if not file_io.is_dir(target):  # else another process has unpacked it meanwhile
                raise
        finally:
            file_io.remove(temporary)
    names = file_io.listdir(target)
    only = os.path.join(target, names[0]) if len(names) == 1 else target
    return only if file_io.is_dir(only) else target


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
        with file_io.open_file(target, "wb") as out, tar.extractfile(member) as content:
            while chunk := content.read(_CHUNK):
                out.write(chunk)
