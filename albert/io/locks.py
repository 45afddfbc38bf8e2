"""Lets only one process write, by locks that show which one.

Locks of the operating system (`locked`, `inherited`) end with a process, but not all network file
systems have them. For these, a `Lock` is a file that only one process can create. If its process
ran on the same machine and has ended, that is known at once. A process of another machine counts
as lost when its heartbeat, the time at which the file was last touched, is too old by the clock of
the file system.
"""

import contextlib
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from typing import IO, Any

from absl import logging

from albert.io import file_io

NAME = ".lock"
HEARTBEAT_SECONDS = 15.0
# Heartbeats that a process may miss, for example on an overloaded machine.
MISSED = 8
_LOG_SECONDS = 60.0  # between log lines of a process that waits
_KILL_SECONDS = 1.0  # that a killed process may still be seen
_CHANGE_SECONDS = 10.0  # to wait for another process that changes a file
ORPHAN_SECONDS = 60.0  # that programs of a killed process may take to end


class Lock:
    """A lock file that this process may hold."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._text = ""
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._successor: dict[str, Any] | None = None

    def acquire(self) -> dict[str, Any] | None:
        """Returns None if this process now holds the lock, else the dict of the one that does.

        Creates the file, or replaces one whose process is gone.
        """
        self._text = json.dumps(_this_process())
        while not file_io.create(self.path, self._text):
            text = _read(self.path)
            if text is None:
                continue  # It has just been released.
            holder = _parse(text)
            reason = self._find_end(holder)
            if reason is None:
                return holder
            if self._remove(text):
                logging.warning(
                    "%s is from %s, which %s: taking over", self.path, _name(holder), reason
                )
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self._thread.start()
        return None

    def acquire_from_silent(self, holder: dict[str, Any]) -> dict[str, Any] | None:
        """Waits for the next heartbeat of `holder`, or for its loss; then as `acquire`."""
        if holder.get("machine") == file_io.machine():
            return holder
        logging.info(
            "Waiting for a heartbeat from %s, which holds the lock %s", _name(holder), self.path
        )
        first = self._last_beat()
        current: dict[str, Any] | None = holder
        while current is not None and self._last_beat() in (first, None):
            time.sleep(HEARTBEAT_SECONDS / 15)
            current = self.acquire()
        return current

    def check(self) -> None:
        """Ends a process that has lost its lock, for example after a long suspension."""
        if self._successor:
            raise file_io.InputError(
                f"{_name(self._successor)} has taken over {self.path}, because this process sent "
                "no heartbeat; this process ends, so that only one writes"
            )

    def release(self) -> None:
        """Deletes the file if it is still this process's."""
        self._ended.set()
        if self._thread:
            self._thread.join()
        if _read(self.path) == self._text:
            file_io.remove(self.path)

    def _find_end(self, holder: dict[str, Any]) -> str | None:
        """Returns the evidence that a holder no longer writes; None without any."""
        if holder.get("machine") == file_io.machine():
            started = _start_of(holder.get("pid"))
            return None if started and started == holder.get("process_start") else "has ended"
        silent = self._seconds_silent()
        if silent > HEARTBEAT_SECONDS * MISSED:
            return f"has sent no heartbeat for {silent:.0f} seconds"
        return None

    def _last_beat(self) -> float | None:
        try:
            return file_io.modified(self.path)
        except FileNotFoundError:
            return None

    def _seconds_silent(self) -> float:
        """Returns the seconds since the last heartbeat, by the clock of the file system."""
        probe = f"{file_io.temporary_name(self.path)}.now"
        try:
            file_io.write_text(probe, "")
            return file_io.modified(probe) - file_io.modified(self.path)
        except FileNotFoundError:  # released
            return 0.0
        finally:
            file_io.remove(probe)

    def _remove(self, text: str) -> bool:
        """Removes a file with this text; returns False if another process was faster."""
        moved = f"{file_io.temporary_name(self.path)}.old"
        try:
            file_io.rename(self.path, moved)
        except FileNotFoundError:
            return False
        try:
            content = _read(moved)
            if content not in (text, None):  # of a process that has taken over
                file_io.create(self.path, content)
            return content == text
        finally:
            file_io.remove(moved)

    def _beat(self) -> None:
        while not self._ended.wait(HEARTBEAT_SECONDS):
            try:
                text = _read(self.path)
                if text == self._text:
                    file_io.touch(self.path, text)
                elif text is None:
                    file_io.create(self.path, self._text)
                else:
                    self._successor = _parse(text)
            except Exception as error:  # A network folder may come back.
                logging.warning("The heartbeat %s cannot be written: %s", self.path, error)


@contextlib.contextmanager
def written_by_one(folder: str) -> Iterator[Lock]:
    """Keeps other processes from writing to a folder until the block ends.

    Raises:
      file_io.InputError: another process writes to it; the message names that process.
    """
    lock = Lock(os.path.join(folder, NAME))
    holder = lock.acquire()
    if holder and lock.acquire_from_silent(holder):
        raise file_io.InputError(
            f"{_name(holder)} writes to {folder}. Wait for its end, stop it or use another "
            f"output_dir; if it no longer runs, delete {lock.path}"
        )
    try:
        yield lock
    finally:
        lock.release()


@contextlib.contextmanager
def made_by_one(path: str) -> Iterator[None]:
    """Lets one process at a time into the block, which makes a file unless it already exists."""
    lock = Lock(f"{path}.lock")
    logged: float | None = None
    is_held = True
    try:
        while holder := lock.acquire():
            if logged is None or time.monotonic() > logged + _LOG_SECONDS:
                logged = time.monotonic()
                logging.info("Waiting for %s, which makes %s", _name(holder), path)
            time.sleep(0.2)
    except (OSError, file_io.InputError):
        is_held = False  # Where it cannot be written, as on a read-only mount, nothing else can.
    try:
        yield
    finally:
        if is_held:
            lock.release()


@contextlib.contextmanager
def locked(path: str, refusal: str | None = None) -> Iterator[bool]:
    """Holds a lock that ends with this process, however that ends; yields whether it had to wait.

    Args:
      path: local file, created if missing; it stays.
      refusal: message if another process holds the lock; None waits for that process.
    """
    with file_io.open_file(path, "ab") as file:
        is_free = _flock(file)
        if not is_free and refusal is not None:
            raise file_io.InputError(f"{refusal}; wait for it or end it")
        if not is_free:
            _flock(file, wait=True)
        yield not is_free


@contextlib.contextmanager
def inherited(path: str, refusal: str, orphans: str) -> Iterator[int]:
    """Holds a lock as `locked`, also for programs that inherit its descriptor.

    Args:
      path: local file, created if missing; it stays and names the process.
      refusal: words for what the other process does if it holds the lock.
      orphans: message if the other process has ended, but its programs keep the lock.

    Yields:
      The file descriptor to inherit, after waiting for programs that are about to end.
    """
    with file_io.open_file(path, "a+") as file:
        started = time.monotonic()
        while not _flock(file):
            waited = time.monotonic() - started
            file.seek(0)
            holder = file.read().strip()
            if waited > ORPHAN_SECONDS:
                raise file_io.InputError(orphans)
            if waited > _KILL_SECONDS and holder.isdigit() and _start_of(int(holder)):
                raise file_io.InputError(f"another process ({holder}) {refusal}")
            time.sleep(0.05)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield file.fileno()


@contextlib.contextmanager
def changing(folder: str) -> Iterator[None]:
    """Keeps other processes of this machine from changing the same file of a folder meanwhile.

    Waits up to `_CHANGE_SECONDS` for another process, which may be suspended, then continues
    without the lock. File systems without locks (remote folders, some network drives) give no
    protection.
    """
    import fcntl  # which Windows lacks

    with contextlib.ExitStack() as stack:
        try:
            if not file_io.is_remote(folder):
                descriptor = stack.enter_context(file_io.open_folder(folder))
                end = time.monotonic() + _CHANGE_SECONDS
                while not (is_held := _flock(descriptor)) and time.monotonic() < end:
                    time.sleep(0.01)
                if is_held:  # released for children, too, that have inherited the descriptor
                    stack.callback(fcntl.flock, descriptor, fcntl.LOCK_UN)
        except OSError as error:
            logging.debug("%s cannot be locked: %s", folder, error)
        yield


def _flock(file: IO[Any] | int, wait: bool = False) -> bool:
    """Takes the lock of the operating system on a file; False if another process holds it."""
    import fcntl  # which Windows lacks

    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


def _this_process() -> dict[str, Any]:
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "process_start": _start_of(os.getpid()),
        "machine": file_io.machine(),
        "since": time.time(),
        "command": os.path.basename(sys.argv[0]),
    }


def _start_of(pid: object) -> str | None:
    """Returns the start time of a process of this machine, in system units; None if it is gone.

    The system may reuse process ids, but not with the same start time.
    """
    if not isinstance(pid, int) or pid <= 0:
        return None
    try:
        with file_io.open_file(f"/proc/{pid}/stat", "rb") as file:
            # The name, in brackets, may hold anything.
            fields = file.read().rpartition(b")")[2].split()
    except FileNotFoundError:
        return _runs(pid) if not file_io.exists("/proc/self/stat") else None
    except OSError:  # It has just ended.
        return None
    state, started = fields[0], fields[19]
    return None if state in (b"Z", b"X") else started.decode()


def _runs(pid: int) -> str | None:
    """Replaces `_start_of` on systems that do not show start times."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:  # of another user
        pass
    return "unknown"


def _read(path: str) -> str | None:
    """Returns the text of a lock file; None if it does not exist."""
    if file_io.is_remote(path) and not file_io.exists(path):
        return None
    try:
        with file_io.open_file(path, "rb") as file:
            return file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return None


def _parse(text: str) -> dict[str, Any]:
    """Returns the dict of `_this_process`; "pid" is None if the text has another form."""
    try:
        value = file_io.parse_json(text)
    except file_io.InputError:
        value = None
    return {"pid": None, **value} if isinstance(value, dict) else {"pid": None}


def _name(holder: dict[str, Any]) -> str:
    """Returns words that name the process of a lock."""
    if holder["pid"] is None:
        return "a process that its lock file does not name"
    try:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(holder.get("since")))
    except (TypeError, ValueError, OverflowError, OSError):
        since = "an unknown time"
    return (
        f"process {holder.get('pid')} on {holder.get('host')} ({holder.get('command')}, since "
        f"{since})"
    )
