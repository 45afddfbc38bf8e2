"""Starts programs and workers that end with the process that started them.

Workers finish their tasks in any order. A result that must be the same for any number of processes
must not depend on that order.
"""

import concurrent.futures
import contextlib
import ctypes
import functools
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from albert.io import file_io, progress, signals

if TYPE_CHECKING:
    from multiprocessing.sharedctypes import Synchronized

A = TypeVar("A", contravariant=True)  # arguments that a worker starts with
T = TypeVar("T", contravariant=True)  # a task
R = TypeVar("R", covariant=True)  # its result


class Worker(Protocol[T, R]):
    """Does tasks."""

    def run(self, task: T, /) -> R:
        """Returns the result of a task."""


class Start(Protocol[A, T, R]):
    """A function or class of a module that makes a worker from `arguments` of `run`.

    The worker calls `advance` with the amount of work it has finished.
    """

    def __call__(self, arguments: A, advance: Callable[[int], None], /) -> Worker[T, R]: ...


# In a worker process: calls the `Start`, but only once.
_make_worker: Callable[[], Worker[Any, Any]] | None = None
# Loaded here, as a process between fork and exec must not load libraries.
_PRCTL = ctypes.CDLL(None).prctl if sys.platform == "linux" else None
_PR_SET_PDEATHSIG = 1  # from linux/prctl.h


class WorkerLost(file_io.InputError):
    """A process was killed."""


def num_cores() -> int:
    """Returns the number of cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        return os.cpu_count() or 1


def end_with_parent(parent: int) -> None:
    """Has this process end when its parent ends, even if the parent is killed.

    Outside Linux only workers can do that, not programs. The parent may have ended already.
    """
    if _PRCTL:
        _PRCTL(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
    else:
        threading.Thread(target=_exit_after_parent, daemon=True).start()


def _exit_after_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent:
        parent.join()
    os._exit(1)


def start_program(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
    """Starts a program that ends with this process; `options` are those of `subprocess.Popen`."""
    prepare = functools.partial(end_with_parent, os.getpid()) if _PRCTL else None
    return subprocess.Popen(command, preexec_fn=prepare, **options)


def run(
    start: Start[A, T, R],
    arguments: A,
    tasks: Sequence[T],
    num_workers: int,
    bar: progress.Progress,
    always_start: bool = False,
) -> Iterator[R]:
    """Yields the result of each task, in the order in which they end.

    Args:
      arguments: passed to `start`; they must survive pickling, as tasks and results must.
      num_workers: processes; 1 works in this process.
      always_start: also start a process for a single worker.

    Raises:
      WorkerLost: a process was killed. Errors of the workers are raised as they are.
    """
    if num_workers <= 1 and not always_start:
        worker = start(arguments, bar.advance)
        for task in tasks:
            yield worker.run(task)
    else:
        yield from _run_in_processes(start, arguments, tasks, num_workers, bar)


def call(function: Callable[..., R], *arguments: object) -> R:
    """Returns the result of a function that lets Python handle no signal for minutes.

    Calls it in another process, which a signal to this one ends at once. The function (of a
    module), its arguments, result and errors must survive pickling.

    Raises:
      WorkerLost: the process was killed. Errors of the function are raised as they are.
    """
    with _executor(1, end_with_parent, os.getpid()) as executor:
        with _starting_workers():
            future = executor.submit(function, *arguments)
        try:
            return future.result()
        except concurrent.futures.BrokenExecutor:
            raise WorkerLost(
                "the process that did the work was killed, most likely because memory ran out"
            ) from None


def _start_worker(
    start: Start[A, T, R], arguments: A, num_done: "Synchronized[int]", parent: int
) -> None:
    global _make_worker
    end_with_parent(parent)

    def advance(count: int) -> None:
        with num_done.get_lock():
            num_done.value += count

    # The first task calls it: an error here would look as if the process had been killed.
    _make_worker = functools.cache(functools.partial(start, arguments, advance))


def _run_task(task: object) -> object:
    assert _make_worker
    return _make_worker().run(task)


@contextlib.contextmanager
def _starting_workers() -> Iterator[None]:
    """Starts processes in the block completely; keeps Ctrl-C and SIGHUP of a terminal from them.

    Only the parent handles Ctrl-C, and ends them: a worker that ignored the signal itself would be
    open to it until its imports are done. A signal to the parent waits until they are started.
    """
    is_main_thread = threading.current_thread() is threading.main_thread()
    kinds = (signal.SIGINT, *signals.end_signals()) if is_main_thread else ()
    arrived: list[int] = []
    handlers = {
        kind: signal.signal(kind, lambda number, _: arrived.append(number)) for kind in kinds
    }
    # Inherited by the workers. Here, other threads may still take the signal.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for kind, handler in handlers.items():
            signal.signal(kind, handler)
        for number in arrived:
            signal.raise_signal(number)


@contextlib.contextmanager
def _executor(
    num_workers: int, prepare: Callable[..., None], *arguments: object
) -> Iterator[concurrent.futures.ProcessPoolExecutor]:
    """Yields an executor whose processes first call `prepare`, and end with the block."""
    # Spawned, not forked: the parent may have threads, and a fork would copy them half-alive.
    context = multiprocessing.get_context("spawn")
    others = set(multiprocessing.active_children())
    with _starting_workers():  # also the process that multiprocessing has for semaphores
        executor = concurrent.futures.ProcessPoolExecutor(num_workers, context, prepare, arguments)
    try:
        yield executor
    finally:
        for worker in set(multiprocessing.active_children()) - others:
            worker.kill()  # After a failure nothing waits for its task.
        executor.shutdown(cancel_futures=True)


def _run_in_processes(
    start: Start[A, T, R],
    arguments: A,
    tasks: Sequence[T],
    num_workers: int,
    bar: progress.Progress,
) -> Iterator[R]:
    with _starting_workers():
        num_done = multiprocessing.get_context("spawn").Value("q", 0)
    prepare = _start_worker, start, arguments, num_done, os.getpid()
    try:
        with _executor(num_workers, *prepare) as executor:
            with _starting_workers():
                waiting = {executor.submit(_run_task, task) for task in tasks}
            while waiting:
                done, waiting = concurrent.futures.wait(
                    waiting, timeout=0.5, return_when=concurrent.futures.FIRST_EXCEPTION
                )
                bar.show(num_done.value)
                for future in done:
                    yield cast(R, future.result())
            executor.shutdown()
    except concurrent.futures.BrokenExecutor as error:
        if signals.REQUESTS.terminate:  # The signal was also sent to the workers.
            raise signals.Terminated from None
        raise WorkerLost(
            "a worker process was killed, most likely because memory ran out; try again with a "
            f"smaller num_workers than {num_workers}"
        ) from error
