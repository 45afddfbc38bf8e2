"""What is said where a disk has no room for what is to be written, or takes nothing."""

import errno
import os

# No room, a quota, or a limit of the size of files.
_CODES = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def reason(error):
    """What the system says of an error that comes of too little room; None for other errors.

    Args:
      error: exception of Python, or of a library, such as TensorFlow, whose messages hold what the
        system says.
    """
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno) if error.errno in _CODES else None
    text = str(error)
    return next((os.strerror(code) for code in _CODES if os.strerror(code) in text), None)


def refusal(error):
    """What the system says, and what to do, where nothing may be written; None for other errors."""
    if isinstance(error, OSError) and error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return f"{error.strerror}; name a folder that can be written to"
    return None


def describe(count):
    """A number of bytes as people say it."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count / 1024:.1f} KiB" if count >= 1024 else f"{count} bytes"


def message(path, reason, needed, free):
    """The message to the user.

    Args:
      path: file or folder that could not be written.
      reason: of `reason`.
      needed: its bytes; None if they are not known.
      free: bytes that are free on its disk without what has been written of it; None if they are
        not known.
    """
    text = f"cannot write {path}: {reason}"
    is_full = reason == os.strerror(errno.ENOSPC)
    if needed is not None:
        text += f"; it needs {describe(needed)}"
        is_full = is_full and (free is None or needed > free)
    if free is not None and needed is None and is_full:
        text += f"; it needs more than the {describe(free)} that are free there"
    elif free is not None:
        text += f"; {describe(free)} are free there"
        if not is_full:
            text += " by now, so a limit (such as a quota) or another program is in the way"
    return f"{text}. Make room there, or name a folder on another disk"
