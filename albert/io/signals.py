"""Requests from outside: SIGTERM saves and ends a run, SIGUSR1 saves and goes on.

SIGHUP, of a terminal that is closed, does what SIGTERM does, unless it is ignored as by `nohup`.
A signal may come at any time. Python handles it between two of its own operations; where none ends
for long, as something waits that never comes, the process ends without that. Where everything that
was computed is on the disk already (before the first step, in an evaluation, in a prediction)
SIGTERM ends the process there. While steps are taken both are only noted, and the training loop
asks for them between two steps.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

# Of a process that was ended by SIGTERM: EX_TEMPFAIL of sysexits.h, "try again".
STATUS = 75
# A signal is to be handled within so many seconds; a second Ctrl-C behind the other time counts.
SECONDS, _SECOND_PRESS = 30.0, 1.0


class Terminated(BaseException):
    """SIGTERM has come and nothing is left to be saved; like KeyboardInterrupt no error.

    Its text says what is left: what the same command goes on from, for example.
    """


def end_behind(error: BaseException | None) -> type[BaseException] | None:
    """`Terminated` or KeyboardInterrupt if an error comes of it, else None.

    Both may come anywhere, also in code that makes another error of them or that fails because of
    them, as TensorFlow's does while it traces a function.
    """
    while error is not None:
        for end in (Terminated, KeyboardInterrupt):
            if isinstance(error, end) or f"REPLACED BY {end.__name__}" in str(error):
                return end
        error = error.__context__
    return None


class Requests:
    """What signals have asked for so far.

    Attributes:
      terminate: end as soon as everything is saved.
      by: name of the signal that has asked for it.
      save: save, and go on.
      interrupt: Ctrl-C has come. Python may have raised it where exceptions are lost (in
        callbacks of its memory management), so the training loop asks, too.
      answered: what deferred SIGTERM knows that it has come.
      seconds: how long a computation may take that Python cannot interrupt.
    """

    def __init__(self) -> None:
        self.terminate = self.save = self.interrupt = self.answered = False
        self.by = signal.SIGTERM.name
        self.pid: int | None = None  # of the process that handles signals
        self.deferred = False
        self.seconds = SECONDS


REQUESTS = Requests()


def ending() -> list[signal.Signals]:
    """What asks this process to end: SIGTERM and, unless it is ignored, SIGHUP."""
    is_ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return [signal.SIGTERM] if is_ignored else [signal.SIGTERM, signal.SIGHUP]


def install() -> None:
    """Handles these signals from now on, in this process but not in its children."""
    REQUESTS.pid = os.getpid()
    for number in (*ending(), signal.SIGUSR1):
        signal.signal(number, _handle)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)


def ignore() -> None:
    """After the work: the exit status is known, and no signal is to change it while Python ends."""
    for number in (*ending(), signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)


def _handle(number, _):
    if os.getpid() != REQUESTS.pid:  # A child has nothing to save.
        if number != signal.SIGUSR1:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
    elif number == signal.SIGUSR1:
        REQUESTS.save = True
    else:
        REQUESTS.terminate, REQUESTS.by = True, signal.Signals(number).name
        if not REQUESTS.deferred:
            raise Terminated


def _interrupt(number, frame):
    REQUESTS.interrupt = True
    signal.default_int_handler(number, frame)


def wait(process: subprocess.Popen[Any]) -> int:
    """The exit status of a process that this one has started, which ends with it.

    Ctrl-C has reached the process, too; other signals are handed on, so that it can save.

    Args:
      process: `subprocess.Popen`.
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
    """Notes that a computation may take so long before a signal ends it; the longest counts."""
    REQUESTS.seconds = max(REQUESTS.seconds, seconds)


@contextlib.contextmanager
def deferred(on_arrival: Callable[[], Any] | None = None) -> Iterator[None]:
    """Lets SIGTERM be noted only; the block is to ask `REQUESTS` and to act on it.

    Args:
      on_arrival: function without arguments that a thread calls as soon as any signal comes, also
        while this thread waits for a computation and no handler of Python can run.

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
    """Lets SIGTERM end the process again, for a part of `deferred` in which all is saved."""
    before, REQUESTS.deferred = REQUESTS.deferred, False
    try:
        if REQUESTS.terminate:
            raise Terminated
        yield
    finally:
        REQUESTS.deferred = before


def obeyed() -> contextlib.AbstractContextManager[None]:
    """A context in which SIGTERM and Ctrl-C end the process, also where Python cannot handle them.

    That is where a computation of TensorFlow takes longer than `REQUESTS.seconds`, as one does that
    waits for data forever. What was saved by then stays, as when the process is killed.
    """
    pressed = []

    def arrived(numbers):
        for number in numbers:
            if signal.getsignal(number) not in (_handle, _interrupt) or number == signal.SIGUSR1:
                continue  # Somebody else's handler, or nothing to end for.
            seconds = REQUESTS.seconds
            if number == signal.SIGINT:
                pressed.append(time.monotonic())
                if pressed[-1] - pressed[0] > _SECOND_PRESS:
                    seconds = 0.0
            timer = threading.Timer(seconds, _end_unless_handled, [number])
            timer.daemon = True
            timer.start()

    return _watching(arrived)


def _end_unless_handled(number):
    is_handled = REQUESTS.interrupt
    if number != signal.SIGINT:  # Noted only is not enough: a computation may have begun then.
        is_handled = REQUESTS.terminate and (REQUESTS.answered or not REQUESTS.deferred)
    if not is_handled:
        sys.stderr.write(
            f"ended by {signal.Signals(number).name} in a computation that does not end; the same "
            "command resumes from the last checkpoint\n"
        )
        sys.stderr.flush()
        os._exit(128 + number if number == signal.SIGINT else STATUS)


def _unwatch():
    """In a fork: what comes to a child is no news for those who watch the parent."""
    with contextlib.suppress(ValueError):
        signal.set_wakeup_fd(-1)


os.register_at_fork(after_in_child=_unwatch)


@contextlib.contextmanager
def _watching(on_arrival):
    """Has a thread call a function with the numbers of signals as they come, as bytes."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Only the main thread gets signals.
        return
    receiver, sender = socket.socketpair()
    sender.setblocking(False)

    def watch():
        # A signal that the system gives to this thread would not wake the main thread.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while numbers := receiver.recv(64):
            on_arrival(numbers)
            if before >= 0:  # who has watched before does so still
                with contextlib.suppress(OSError):
                    os.write(before, numbers)

    # Python's own part of a handler writes there at once, whatever the main thread is doing.
    before = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    thread = threading.Thread(target=watch, name="signals", daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        sender.close()
        thread.join()
        receiver.close()
