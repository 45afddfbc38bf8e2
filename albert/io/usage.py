"""Measures time, processor time and memory that this process has used so far."""

import contextlib
import os
import re
import sys
import time
from typing import NamedTuple

from albert.io import file_io


class Usage(NamedTuple):
    """Totals of time since an arbitrary moment; only differences are meaningful."""

    seconds: float  # by the clock
    processor_seconds: float  # of all threads, and of child processes that have ended


def read() -> Usage:
    """Returns the usage so far, user and system time together."""
    spent = os.times()
    processor_seconds = spent.user + spent.system + spent.children_user + spent.children_system
    return Usage(time.monotonic(), processor_seconds)


def peak_memory() -> int | None:
    """Returns the peak bytes of main memory that this process has held; None if unknown."""
    # getrusage of a child process may give the peak of its parent.
    with contextlib.suppress(OSError, ValueError), file_io.open_file("/proc/self/status") as file:
        match = re.search(r"^VmHWM:\s*(\d+) kB", file.read(), re.MULTILINE)
        if match:
            return int(match[1]) << 10
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak << 10
