"""Tasks in this process and in others; how both end is tested with what uses them."""

import os
import signal

import pytest

from albert.io import file_io, processes


class Adder:
    """A worker for the test."""

    def __init__(self, arguments, advance):
        if arguments < 0:
            raise file_io.InputError(f"cannot start with {arguments}")
        self._number, self._advance = arguments, advance

    def run(self, task):
        if task < 0:
            raise file_io.InputError(f"negative: {task}")
        self._advance(task)
        return self._number + task, os.getpid()


class Shown:
    """Reports of progress."""

    def __init__(self):
        self.done = 0

    def advance(self, count):
        self.done += count

    def show(self, done):
        self.done = done


@pytest.mark.parametrize("num_workers", [0, 2])
def test_all_tasks_are_done_once(num_workers):
    shown = Shown()
    results = list(processes.run(Adder, 10, [1, 2, 3, 4], num_workers, shown))
    assert sorted(value for value, _ in results) == [11, 12, 13, 14]
    assert shown.done == 10
    here = {pid == os.getpid() for _, pid in results}
    assert here == {num_workers < 2}


def test_a_mistake_is_raised_here():
    with pytest.raises(file_io.InputError, match="negative: -1"):
        list(processes.run(Adder, 10, [-1, 1], 2, Shown()))


def test_a_mistake_at_the_start_of_a_worker_is_raised_here():
    with pytest.raises(file_io.InputError, match="cannot start with -1"):
        list(processes.run(Adder, -1, [1, 2], 2, Shown()))


def test_cores():
    assert 1 <= processes.num_cores() <= os.cpu_count()


def killed():
    os.kill(os.getpid(), signal.SIGKILL)


def refused(value):
    raise file_io.InputError(f"{value} is refused")


def test_a_call_in_a_process_of_its_own():
    assert processes.call(divmod, 17, 5) == (3, 2)
    with pytest.raises(file_io.InputError, match="^seven is refused$"):
        processes.call(refused, "seven")
    with pytest.raises(processes.WorkerLost, match="did the work was killed"):
        processes.call(killed)
