"""Requests from outside: SIGTERM saves and ends a run, SIGUSR1 saves and goes on.

A signal may come at any time. Where everything that was computed is on the disk already (before the
first step, in an evaluation, in a prediction) SIGTERM ends the process there. While steps are taken
both are only noted, and the training loop asks for them between two steps.
"""

import contextlib
import os
import signal
import socket
import threading

# Of a process that was ended by SIGTERM: EX_TEMPFAIL of sysexits.h, "try again".
STATUS = 75
_HANDLED = (signal.SIGTERM, signal.SIGUSR1)


class Terminated(BaseException):
    """SIGTERM has come and nothing is left to be saved; like KeyboardInterrupt no error."""


def end_behind(error):
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
      save: save, and go on.
      interrupt: Ctrl-C has come. Python may have raised it where exceptions are lost (in
        callbacks of its memory management), so the training loop asks, too.
    """

    def __init__(self):
        self.terminate = self.save = self.interrupt = False
        self.pid = None  # of the process that handles signals
        self.deferred = False


REQUESTS = Requests()


def install():
    """Handles both signals from now on, in this process but not in its children."""
    REQUESTS.pid = os.getpid()
    for number in _HANDLED:
        signal.signal(number, _handle)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)


def ignore():
    """After the work: the exit status is known, and no signal is to change it while Python ends."""
    for number in _HANDLED:
        signal.signal(number, signal.SIG_IGN)


def _handle(number, _):
    if os.getpid() != REQUESTS.pid:  # A child has nothing to save.
        if number == signal.SIGTERM:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
    elif number == signal.SIGUSR1:
        REQUESTS.save = True
    else:
        REQUESTS.terminate = True
        if not REQUESTS.deferred:
            raise Terminated


def _interrupt(number, frame):
    REQUESTS.interrupt = True
    signal.default_int_handler(number, frame)


def raise_interrupt():
    """Raises KeyboardInterrupt if Ctrl-C has come, as it may have been lost."""
    if REQUESTS.interrupt:
        raise KeyboardInterrupt


@contextlib.contextmanager
def deferred(on_arrival=None):
    """Lets SIGTERM be noted only; the block is to ask `REQUESTS` and to act on it.

    Args:
      on_arrival: function without arguments that a thread calls as soon as any signal comes, also
        while this thread waits for a computation and no handler of Python can run.

    Raises:
      Terminated: at the end of the block, if SIGTERM has come.
    """
    REQUESTS.deferred = True
    try:
        with _watching(on_arrival) if on_arrival else contextlib.nullcontext():
            yield
    finally:
        REQUESTS.deferred = False
    if REQUESTS.terminate:
        raise Terminated


@contextlib.contextmanager
def not_deferred():
    """Lets SIGTERM end the process again, for a part of `deferred` in which all is saved."""
    before, REQUESTS.deferred = REQUESTS.deferred, False
    try:
        if REQUESTS.terminate:
            raise Terminated
        yield
    finally:
        REQUESTS.deferred = before


@contextlib.contextmanager
def _watching(on_arrival):
    if threading.current_thread() is not threading.main_thread():
        yield  # Only the main thread gets signals.
        return
    receiver, sender = socket.socketpair()
    sender.setblocking(False)

    def watch():
        while receiver.recv(64):
            on_arrival()

    thread = threading.Thread(target=watch, name="signals", daemon=True)
    thread.start()
    # Python's own part of a handler writes there at once, whatever the main thread is doing.
    before = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        sender.close()
        thread.join()
        receiver.close()
