"""Divides tasks among processes that end with the one that started them.

The order in which tasks end is chance; whoever wants the same result for any number of processes
must not depend on it.
"""

import concurrent.futures
import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from concurrent.futures.process import BrokenProcessPool

from albert.io import file_io, signals

_PR_SET_PDEATHSIG = 1
_worker = None  # what `start` made in a worker process


class WorkerLost(file_io.InputError):
    """A process was killed."""


def end_with_parent():
    """Has Linux end this process when the one that started it is gone, even by a kill."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def num_cores():
    """Cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        return os.cpu_count() or 1


def run(start, arguments, tasks, num_workers, shown, apart=False):
    """Yields what each task gives, in the order in which they end.

    Args:
      start: function or class of a module, ``(arguments, advance) -> worker``; the worker has a
        method ``run(task)``, and calls `advance` with how much of the whole it has done.
      arguments: what it needs; it must survive pickling, as tasks and results must.
      tasks: list.
      num_workers: processes; 1 works in this process.
      shown: `progress.Progress`.
      apart: one worker is a process of its own, too.

    Raises:
      WorkerLost: a process was killed; beside what the workers raise.
    """
    if num_workers <= 1 and not apart:
        worker = start(arguments, shown.advance)
        for task in tasks:
            yield worker.run(task)
    else:
        yield from _run_in_processes(start, arguments, tasks, num_workers, shown)


def call(function, *arguments):
    """What a function returns that lets Python handle no signal for minutes.

    It is called in a process of its own, which a signal to this one ends at once.

    Args:
      function: of a module; arguments and what it returns or raises must survive pickling.
      *arguments: of the function.

    Raises:
      WorkerLost: the process was killed; beside what the function raises.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send_result, args=(sender, function, arguments))
    with _starting_workers():
        process.start()
    sender.close()
    try:
        result, error = receiver.recv()
    except EOFError:
        raise WorkerLost(
            "the process that did the work was killed, most likely because memory ran out"
        ) from None
    finally:
        process.kill()
        process.join()
    if error is not None:
        raise error
    return result


def _send_result(sender, function, arguments):
    end_with_parent()
    try:
        answer = function(*arguments), None
    except Exception as error:
        answer = None, error
    sender.send(answer)


def _start_worker(start, arguments, num_done, parent_lives):
    global _worker
    threading.Thread(target=_exit_with_parent, args=(parent_lives,), daemon=True).start()

    def advance(count):
        with num_done.get_lock():
            num_done.value += count

    _worker = start(arguments, advance)


def _exit_with_parent(parent_lives):
    with contextlib.suppress(EOFError, OSError):
        parent_lives.recv()
    os._exit(1)


def _run_task(task):
    return _worker.run(task)


@contextlib.contextmanager
def _starting_workers():
    """Processes started inside start whole; Ctrl-C and SIGHUP, of a terminal, never reach them.

    The parent alone answers it, and ends them: a worker that ignored it by itself would be open to
    it until its imports are done. A signal that reaches the parent waits until they are started.
    """
    is_main_thread = threading.current_thread() is threading.main_thread()
    kinds = (signal.SIGINT, *signals.ending()) if is_main_thread else ()
    arrived = []
    handlers = {kind: signal.signal(kind, lambda kind, _: arrived.append(kind)) for kind in kinds}
    # Inherited by the workers. Here, other threads may still take the signal.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for kind, handler in handlers.items():
            signal.signal(kind, handler)
        for kind in arrived:
            signal.raise_signal(kind)


def _run_in_processes(start, arguments, tasks, num_workers, shown):
    # Spawned, not forked: the parent may have threads, and a fork would copy them half-alive.
    context = multiprocessing.get_context("spawn")
    with _starting_workers():  # also the process that multiprocessing has for semaphores
        num_done = context.Value("q", 0)
    # Nothing is ever sent: the workers see this pipe close, even if the parent is killed.
    parent_lives, keep_open = context.Pipe(duplex=False)
    executor = concurrent.futures.ProcessPoolExecutor(
        num_workers, context, _start_worker, (start, arguments, num_done, parent_lives)
    )
    try:
        with _starting_workers():
            waiting = {executor.submit(_run_task, task) for task in tasks}
        while waiting:
            done, waiting = concurrent.futures.wait(
                waiting, timeout=0.5, return_when=concurrent.futures.FIRST_EXCEPTION
            )
            shown.show(num_done.value)
            for future in done:
                yield future.result()
        executor.shutdown()
    except BrokenProcessPool as error:
        if signals.REQUESTS.terminate:  # The signal was sent to the workers, too.
            raise signals.Terminated from None
        raise WorkerLost(
            "a worker process was killed, most likely because memory ran out; try again with a "
            f"smaller num_workers than {num_workers}"
        ) from error
    finally:
        keep_open.close()
        executor.shutdown(cancel_futures=True)
        parent_lives.close()
