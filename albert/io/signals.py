"""Handles signals: SIGTERM saves and ends a run, SIGUSR1 saves and lets it continue.

SIGHUP, which a closed terminal sends, does what SIGTERM does, unless it is ignored as by `nohup`.
A signal may come at any time. Python handles it between two of its own operations. If an operation
does not return in time, the process ends without the handler. While nothing is unsaved (before the
first step, in an evaluation, in a prediction), SIGTERM ends the process at once.
During training both signals are only noted, and `training.engine` checks for them between steps.
"""

import _thread
import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

# What the same command does after a script has ended early: without and with saved checkpoints.
BEGINS_AGAIN = "the same command begins again"
RESUMES = "the same command resumes from the last checkpoint"
# Exit status after SIGTERM: EX_TEMPFAIL from sysexits.h, "try again".
STATUS = 75
# Exit status after the reader of standard output has ended, as of a program that SIGPIPE ends.
READER_GONE = 141
# Seconds to handle a signal, and after which a second Ctrl-C ends the process.
SECONDS, _SECOND_PRESS = 30.0, 1.0
# Until a signal that came during a ``__del__`` is sent again.
_AGAIN_SECONDS = 0.01


class Terminated(BaseException):
    """SIGTERM has come and everything is saved; like KeyboardInterrupt, not an error.

    Its text describes what was saved, such as the step that the same command resumes from.
    """


def root_interrupt(error: BaseException | None) -> type[BaseException] | None:
    """Returns `Terminated` or KeyboardInterrupt if it caused an error, else None.

    Both may be raised anywhere, also in code that turns them into another error or fails because of
    them, as TensorFlow does while it traces a function. Some of its C++ code drops them and fails
    with an error without context, so a signal also counts as the cause of all later errors.
    """
    while error is not None:
        for end in (Terminated, KeyboardInterrupt):
            if isinstance(error, end) or f"REPLACED BY {end.__name__}" in str(error):
                return end
        error = error.__context__
    return REQUESTS.raised


class Requests:
    """Requests of the signals that have come so far."""

    terminate = False  # end as soon as everything is saved
    by = signal.SIGTERM.name  # the signal that requested the end
    save = False  # save, and continue
    # Ctrl-C has come. Python may have raised it where exceptions are lost (in callbacks of its
    # memory management), so the training loop checks this also.
    interrupt = False
    raised: type[BaseException] | None = None  # by a handler
    pid: int | None = None  # of the process that handles signals
    deferred = False
    answered = False  # the code that deferred SIGTERM knows that it has come
    seconds = SECONDS  # maximum duration of a computation that Python cannot interrupt
    remedy = BEGINS_AGAIN  # what the same command does after the end, for messages


REQUESTS = Requests()


def end_signals() -> list[signal.Signals]:
    """Returns the signals that end this process: SIGTERM and, unless it is ignored, SIGHUP."""
    is_ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return [signal.SIGTERM] if is_ignored else [signal.SIGTERM, signal.SIGHUP]


def install() -> None:
    """Handles these signals from now on, in this process but not in its children."""
    REQUESTS.pid = os.getpid()
    for number in (*end_signals(), signal.SIGUSR1):
        signal.signal(number, _handle)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)


def ignore() -> None:
    """Ignores signals after the work, so that none changes the exit status while Python ends."""
    for number in (*end_signals(), signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)


def _handle(number: int, frame: FrameType | None) -> None:
    if os.getpid() != REQUESTS.pid:  # A child has nothing to save.
        if number != signal.SIGUSR1:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
    elif number == signal.SIGUSR1:
        REQUESTS.save = True
    else:
        REQUESTS.terminate, REQUESTS.by = True, signal.Signals(number).name
        if REQUESTS.deferred:
            return
        if _is_in_finalizer(frame):
            # Unlike threading's, this start takes no lock, which the finalizer may hold.
            _thread.start_new_thread(_send_again, (number,))
        else:
            REQUESTS.raised = Terminated
            raise Terminated


def _send_again(number: int) -> None:
    time.sleep(_AGAIN_SECONDS)
    os.kill(os.getpid(), number)


def _is_in_finalizer(frame: FrameType | None) -> bool:
    """Returns whether Python runs a ``__del__``, whose exceptions it prints and ignores."""
    while frame is not None and frame.f_code.co_name != "__del__":
        frame = frame.f_back
    return frame is not None


def _interrupt(number: int, frame: FrameType | None) -> None:
    REQUESTS.interrupt, REQUESTS.raised = True, KeyboardInterrupt
    signal.default_int_handler(number, frame)


def wait(process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> int:
    """Waits for a process that this one has started; returns its exit status.

    The process gets Ctrl-C itself; other signals are passed on to it, so that it can save.
    """
    try:
        return process.wait()
    except (KeyboardInterrupt, Terminated) as end:
        if isinstance(end, Terminated):
            process.terminate()
        process.wait()
        raise


def raise_interrupt() -> None:
    """Raises KeyboardInterrupt if Ctrl-C has come, as it may have been lost."""
    if REQUESTS.interrupt:
        raise KeyboardInterrupt


def allow(seconds: float) -> None:
    """Allows a computation this many seconds before a signal ends it; the maximum counts."""
    REQUESTS.seconds = max(REQUESTS.seconds, seconds)


@contextlib.contextmanager
def deferred(on_arrival: Callable[[], object] | None = None) -> Iterator[None]:
    """Only notes SIGTERM during the block, which must check `REQUESTS` and act on it.

    Args:
      on_arrival: ``()``, called by a thread as soon as any signal comes, also while this thread
        waits for a computation and no handler of Python can run.

    Raises:
      Terminated: at the end of the block, if SIGTERM has come.
    """
    REQUESTS.deferred = True
    try:
        with _watching(lambda _: on_arrival()) if on_arrival else contextlib.nullcontext():
            yield
    finally:
        REQUESTS.deferred = False
    if REQUESTS.terminate:
        raise Terminated


@contextlib.contextmanager
def not_deferred() -> Iterator[None]:
    """Lets SIGTERM end the process again, for a part of `deferred` in which everything is saved."""
    before, REQUESTS.deferred = REQUESTS.deferred, False
    try:
        if REQUESTS.terminate:
            raise Terminated
        yield
    finally:
        REQUESTS.deferred = before


def is_reader_gone() -> bool:
    """Returns whether standard output is a pipe that nobody reads any more."""
    if sys.stdout is None:
        return False
    poll = select.poll()
    poll.register(sys.stdout.fileno(), select.POLLOUT)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


@contextlib.contextmanager
def end_with_reader() -> Iterator[None]:
    """Ends the process silently if the reader of its standard output, such as `head`, has ended."""
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:
        if not is_reader_gone():
            raise
        # Python writes the rest of its buffer at its end: into a pipe that nothing reads, but open.
        os.dup2(os.pipe()[1], sys.stdout.fileno())
        sys.exit(READER_GONE)


def ensure_end() -> contextlib.AbstractContextManager[None]:
    """Returns a context in which SIGTERM and Ctrl-C end the process even if Python cannot run.

    Python cannot run if a computation of TensorFlow takes longer than `REQUESTS.seconds`, for
    example because it waits for data forever. Saved files stay, as when a process is killed.
    """
    pressed: list[float] = []

    def arrived(numbers: bytes) -> None:
        for number in numbers:
            if signal.getsignal(number) not in (_handle, _interrupt) or number == signal.SIGUSR1:
                continue  # Another handler, or no request to end.
            seconds = REQUESTS.seconds
            if number == signal.SIGINT:
                pressed.append(time.monotonic())
                if pressed[-1] - pressed[0] > _SECOND_PRESS:
                    seconds = 0.0
            timer = threading.Timer(seconds, _end_unless_handled, [number])
            timer.daemon = True
            timer.start()

    return _watching(arrived)


def _end_unless_handled(number: int) -> None:
    is_handled = REQUESTS.interrupt
    if number != signal.SIGINT:  # Only noted is not handled: a computation may have begun.
        is_handled = REQUESTS.terminate and (REQUESTS.answered or not REQUESTS.deferred)
    if not is_handled:
        sys.stderr.write(
            f"ended by {signal.Signals(number).name} in a computation that does not end; "
            f"{REQUESTS.remedy}\n"
        )
        sys.stderr.flush()
        os._exit(128 + number if number == signal.SIGINT else STATUS)


def _unwatch() -> None:
    """Stops watching in a forked child, whose signals are not those of the parent."""
    with contextlib.suppress(ValueError):
        signal.set_wakeup_fd(-1)


os.register_at_fork(after_in_child=_unwatch)


@contextlib.contextmanager
def _watching(on_arrival: Callable[[bytes], object]) -> Iterator[None]:
    """Calls a function in a thread with the numbers of signals as they come, as bytes."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Only the main thread gets signals.
        return
    receiver, sender = socket.socketpair()
    sender.setblocking(False)

    def watch() -> None:
        # A signal that the system delivers to this thread would not wake the main thread.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while numbers := receiver.recv(64):
            on_arrival(numbers)
            if before >= 0:  # an outer block also watches
                with contextlib.suppress(OSError):
                    os.write(before, numbers)

    # Python's C handler writes there at once, whatever the main thread is doing.
    before = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    thread = threading.Thread(target=watch, name="signals", daemon=True)
    thread.start()
    try:
        yield
    finally:
        # Ctrl-C between two instructions can leave this block open until the outer one is closed.
        with contextlib.suppress(OSError):
            signal.set_wakeup_fd(before)
        sender.close()
        thread.join()
        receiver.close()
