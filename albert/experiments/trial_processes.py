"""Starts and ends the processes of trials, for sweeps and for runs with several seeds."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence

from albert.io import file_io, processes

_STOP_SECONDS = 10  # between the request to end and the kill
_MAX_ERROR_LINES = 5
_MAX_ERROR_BYTES = 10000


def module_of(script: str) -> str:
    """Returns the module of a script: a module of this package unless the name has dots."""
    return script if "." in script else f"albert.{script}"


def start(
    script: str,
    arguments: list[str],
    python: str = "",
    log: str = "",
    descriptors: Sequence[int] = (),
) -> subprocess.Popen:
    """Starts a script in a process that ends with this one.

    Args:
      script: name of a script, or of a module with dots.
      python: program that runs modules with ``-m``; "": the program of this process.
      log: file that output is appended to. The process then leads a process group, so Ctrl-C
        does not reach it. "": the process shares the terminal of this one.
      descriptors: file descriptors that the process inherits.
    """
    command = [python or sys.executable, "-m", module_of(script), *arguments]
    if not log:
        return processes.start_program(command, pass_fds=descriptors)
    with file_io.open_file(log, "ab") as file:
        return processes.start_program(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=descriptors,
        )


def kill(process: subprocess.Popen) -> None:
    """Kills all processes of a trial with a log, and waits for its end."""
    _signal(process, signal.SIGKILL)
    process.wait()


def stop(running: Sequence[subprocess.Popen]) -> None:
    """Asks running trials, which have logs, to end, and kills those that do not comply."""
    for process in running:
        _signal(process, signal.SIGTERM)
    for process in running:
        try:
            process.wait(timeout=_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            kill(process)


def _signal(process: subprocess.Popen, number: int) -> None:
    """Sends a signal to the group of a process that was not waited for, so its number is valid."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def error_lines(log: str, start: int) -> list[str]:
    """Returns the message at the end of a log, a few lines, from byte `start`."""
    with file_io.open_file(log, "rb") as file:
        file.seek(max(start, file_io.size(log) - _MAX_ERROR_BYTES))
        text = file.read().decode("utf-8", errors="replace")
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    # The message of a script begins in one line; all lines after it belong to it.
    marked = [i for i, line in enumerate(lines) if re.match(r"error: |FATAL ", line)]
    if marked:
        return lines[marked[-1] :][:_MAX_ERROR_LINES]
    return lines[-_MAX_ERROR_LINES:] or ["no output"]
