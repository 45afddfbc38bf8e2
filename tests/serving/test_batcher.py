"""Rows of several requests in one batch: which, when, and what becomes of those that fail."""

import concurrent.futures
import threading

import pytest

from albert.io import file_io
from albert.serving import batcher
from albert.serving.batcher import Batcher, Row


def queue_of(lengths, max_batch_size=4, delay=1.0, max_batch_length=None):
    """A queue of rows that came one a second, from 0 on; their value is their place."""
    queue = batcher.Queue(max_batch_size, delay, max_batch_length)
    for number, length in enumerate(lengths):
        length, weight = length if isinstance(length, tuple) else (length, 1)
        request = batcher.Pending(concurrent.futures.Future(), [None], 1)
        row = Row(number, length, weight)
        queue.add(batcher.Waiting(row, float(number), request, 0))
    return queue


def taken(queue):
    return [item.row.value for item in queue.take()]


def test_a_batch_is_due_when_it_is_full_or_its_oldest_row_has_waited():
    queue = queue_of([10], max_batch_size=2, delay=0.5)
    assert [queue.due_in(now) for now in (0.0, 0.125, 0.5, 9.0)] == [0.5, 0.375, 0.0, 0.0]
    assert queue_of([10, 10], max_batch_size=2, delay=5.0).due_in(1.0) == 0.0
    assert queue_of([(10, 2)], max_batch_size=2, delay=5.0).due_in(0.0) == 0.0
    assert queue_of([]).due_in(3.0) is None


def test_rows_of_similar_length_go_together_and_the_oldest_always_goes():
    queue = queue_of([50, 500, 60, 510, 40, 45, 490])
    assert taken(queue) == [0, 5, 2, 4]  # the nearest to the oldest first
    assert taken(queue) == [1, 3, 6]
    assert len(queue) == 0
    queue = queue_of([500, 10, 10, 10])
    assert taken(queue) == [0] and taken(queue) == [1, 2, 3]
    assert taken(queue_of([10] * 6)) == [0, 1, 2, 3]  # of equals those that came first


def test_a_batch_is_so_many_sequences():
    queue = queue_of([(10, 3), (10, 3), (10, 1), (10, 9)])
    assert [taken(queue) for _ in range(3)] == [[0], [1, 2], [3]]


def test_a_batch_has_no_more_than_its_length_with_padding():
    rows = [(10, 1), (8, 1), (10, 2), (100, 1), (9, 1)]
    queue = queue_of(rows, max_batch_size=9, max_batch_length=30)
    assert [taken(queue) for _ in range(3)] == [[0, 2], [1, 4], [3]]  # a long one goes alone
    assert queue_of([10, 10], 9, 5.0, max_batch_length=20).due_in(1.0) == 0.0
    assert queue_of([10, 9], 9, 5.0, max_batch_length=20).due_in(1.0) == 4.0


def test_rows_overtake_a_few_older_ones_only():
    queue = queue_of([10] + [500] * 7 + [10] * 9, max_batch_size=2)
    assert taken(queue) == [0]  # those of its length are beyond the eight oldest
    assert taken(queue) == [1, 2]


class Model:
    """Doubles numbers; waits for `go` in each call, and fails with some values."""

    def __init__(self):
        self.calls, self.go, self.called = [], threading.Event(), threading.Semaphore(0)

    def __call__(self, values):
        self.calls.append(values)
        self.called.release()
        assert self.go.wait(30)
        if "bad" in values:
            raise file_io.InputError("bad text")
        if "broken" in values:
            raise RuntimeError("broken model")
        return [2 * value for value in values]


@pytest.fixture
def started():
    """``started(**arguments)``: a model and its batcher, which ends with the test."""
    made = []

    def start(max_batch_size=8, delay=0.0, capacity=10, **rest):
        model = Model()
        made.append((model, Batcher(model, max_batch_size, delay, capacity, **rest)))
        return made[-1]

    yield start
    for model, running in made:
        model.go.set()
        running.close()


def rows(*values):
    return [Row(value, 10) for value in values]


def busy(model, running):
    """Occupies the thread with a first request."""
    future = running.submit(rows(0))
    assert model.called.acquire(timeout=30)
    return future


def test_what_comes_while_the_thread_computes_is_the_next_batch(started):
    seen = []
    model, running = started(on_batch=lambda count, seconds: seen.append((count, seconds >= 0)))
    futures = [busy(model, running), running.submit(rows(1, 2)), running.submit(rows(3))]
    assert len(running) == 3
    model.go.set()
    assert [future.result(30) for future in futures] == [[0], [2, 4], [6]]
    assert model.calls == [[0], [1, 2, 3]]
    running.close()
    assert seen == [(1, True), (3, True)]


def test_a_request_of_many_rows_is_answered_in_order(started):
    model, running = started(max_batch_size=2, delay=0.01)
    model.go.set()
    asked = [Row(number, 10 + 100 * (number % 3)) for number in range(9)]
    assert running.submit(asked).result(30) == [2 * number for number in range(9)]
    assert all(len(call) <= 2 for call in model.calls)


def test_a_row_that_fails_ends_its_own_request_only(started):
    model, running = started()
    first = busy(model, running)
    values = ((1,), (2, "bad"), ("broken",), (3,), ("bad",))
    others = [running.submit(rows(*each)) for each in values]
    model.go.set()
    assert first.result(30) == [0]
    assert [others[0].result(30), others[3].result(30)] == [[2], [6]]
    for place, message in ((1, r"^examples\[1\]: bad text$"), (4, "^bad text$")):
        with pytest.raises(file_io.InputError, match=message):
            others[place].result(30)
    with pytest.raises(RuntimeError, match="broken model"):
        others[2].result(30)
    assert running.submit(rows(5)).result(30) == [10]


def test_no_room_says_when_to_come_back(started):
    times = iter(range(0, 10_000, 4))  # the clock advances by 4 seconds whenever it is read
    model, running = started(capacity=3, clock=lambda: next(times))
    model.go.set()
    running.submit(rows(0)).result(30)
    model.go.clear()
    model.called.acquire(timeout=30)
    busy(model, running)
    waiting = [running.submit(rows(1, 2)), running.submit(rows(3))]
    with pytest.raises(batcher.Full, match="the queue is full: 3 of 3 texts are waiting") as error:
        running.submit(rows(4))
    assert 4 <= error.value.retry_after <= 60
    waiting[0].cancel()  # a client that has gone makes room
    again = running.submit(rows(5, 6))
    model.go.set()
    assert [waiting[1].result(30), again.result(30)] == [[6], [10, 12]]
    assert 1 not in sum(model.calls, [])


def test_the_end_answers_what_was_taken(started):
    model, running = started(delay=1000.0)
    future = running.submit(rows(1))
    closer = threading.Thread(target=running.close)
    closer.start()
    model.go.set()
    assert future.result(30) == [2]  # without waiting for others any longer
    closer.join(30)
    with pytest.raises(batcher.Closed):
        running.submit(rows(2))


def test_what_would_not_be_answered_in_time_is_refused():
    now, go, called = [0.0], threading.Event(), threading.Semaphore(0)

    def function(values):
        now[0] += 8.0  # seconds for each row
        called.release()
        assert go.wait(30)
        return values

    running = Batcher(function, 1, 0.0, 100, clock=lambda: now[0], max_wait=40.0)
    go.set()
    assert running.submit(rows(0)).result(30) == [0]
    go.clear()
    futures = [running.submit(rows(1))]
    assert called.acquire(timeout=30) and called.acquire(timeout=30)  # it computes the second
    futures += [running.submit(rows(2)), running.submit(rows(3))]
    with pytest.raises(
        batcher.Full, match="^the queue is full: 2 texts are waiting, for about 16 seconds$"
    ) as full:
        running.submit(rows(4))
    assert full.value.retry_after == 16
    go.set()
    assert [future.result(30) for future in futures] == [[1], [2], [3]]
    running.close()
