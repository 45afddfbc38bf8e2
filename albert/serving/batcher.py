"""Rows of many requests, computed together in one thread.

Rows wait until enough of them are there or the oldest has waited long enough; those of similar
length are taken together. A CPU gains nothing from several inferences side by side, so there is one
thread, and while it computes, others wait and become the next batch.
"""

import collections
import concurrent.futures
import contextlib
import dataclasses
import math
import threading
import time
from collections.abc import Callable
from typing import Any

from absl import logging

from albert.io import file_io

# The padded size of a batch is at most this many times its real one.
_MOST_PADDING = 1.5
_LONGEST_RETRY = 60  # seconds
_REMEMBERED = 0.8  # weight of the past in the mean time per row


class Full(Exception):
    """No room for the rows of a request.

    Attributes:
      retry_after: whole seconds after which there may be some.
    """

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Closed(Exception):
    """No further requests are taken."""


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One input row of a request.

    Attributes:
      value: what the function of the model takes.
      length: about how long it is, in any unit; at least 1.
      weight: about how many sequences it brings.
    """

    value: Any
    length: int
    weight: int = 1


@dataclasses.dataclass(eq=False, slots=True)
class Pending:
    """A request some of whose rows are not answered yet.

    Attributes:
      future: `concurrent.futures.Future` of `results`.
      results: list, one for each row.
      missing: number of rows without a result.
    """

    future: concurrent.futures.Future
    results: list
    missing: int

    def add(self, place: int, result: Any) -> None:
        self.results[place] = result
        self.missing -= 1
        if not self.missing:
            self.end(self.future.set_result, self.results)

    def end(self, set_to: Callable[[Any], None], value: Any) -> None:
        # It may be cancelled, by another thread, until the very end.
        with contextlib.suppress(concurrent.futures.InvalidStateError):
            set_to(value)


@dataclasses.dataclass(eq=False, slots=True)
class Waiting:
    """A row that waits.

    Attributes:
      row: `Row`.
      arrived: when it came, in seconds.
      request: `Pending`.
      place: of the row in the request, from 0.
    """

    row: Row
    arrived: float
    request: Pending
    place: int


class Queue:
    """Rows that wait, in the order in which they came; without threads and without a clock.

    Args:
      max_batch_size: maximum number of sequences per batch; a larger row is computed alone.
      delay: seconds that the oldest row may wait for others.
    """

    def __init__(self, max_batch_size: int, delay: float) -> None:
        self._max_batch_size = max_batch_size
        self._delay = delay
        self._waiting: collections.deque[Waiting] = collections.deque()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def weight(self) -> int:
        """Sequences that all rows bring."""
        return sum(item.row.weight for item in self._waiting)

    def add(self, item: Waiting) -> None:
        """Puts a `Waiting` behind the others."""
        self._waiting.append(item)

    def drop_cancelled(self) -> None:
        """Removes the rows of requests that were cancelled or have failed."""
        kept = [item for item in self._waiting if not item.request.future.done()]
        self._waiting = collections.deque(kept)

    def due_in(self, now: float) -> float | None:
        """Returns the seconds until the next batch is due, 0 for now; None if nothing waits."""
        if not self._waiting:
            return None
        if self.weight >= self._max_batch_size:
            return 0.0
        return max(0.0, self._waiting[0].arrived + self._delay - now)

    def take(self) -> list[Waiting]:
        """Removes a batch: the oldest row, and those that are nearest to it in length."""
        oldest = self._waiting[0]
        near = sorted(self._waiting, key=lambda item: abs(item.row.length - oldest.row.length))
        batch: list[Waiting] = []
        sequences = longest = total = 0
        for item in near:  # the oldest is the first: the order of equals stays
            longest, total = max(longest, item.row.length), total + item.row.length
            sequences += item.row.weight
            is_padding = longest * (len(batch) + 1) > _MOST_PADDING * total
            if batch and (is_padding or sequences > self._max_batch_size):
                break
            batch.append(item)
        chosen = set(map(id, batch))
        self._waiting = collections.deque(i for i in self._waiting if id(i) not in chosen)
        return batch


class Batcher:
    """Answers requests of any thread with a function that takes the rows of several.

    A row that the function fails with ends its own request only: the rows of a batch that failed
    are tried one by one.

    Args:
      function: ``(values) -> results``, one for each, in their order.
      max_batch_size, delay: see `Queue`.
      capacity: maximum number of queued rows.
      clock: function that returns seconds.
      on_batch: ``(rows, seconds)``, called after each batch.
    """

    def __init__(
        self,
        function: Callable,
        max_batch_size: int,
        delay: float,
        capacity: int,
        clock: Callable = time.monotonic,
        on_batch: Callable = lambda rows, seconds: None,
    ) -> None:
        self._function = function
        self._queue = Queue(max_batch_size, delay)
        self._capacity = capacity
        self._clock = clock
        self._on_batch = on_batch
        self._changed = threading.Condition()
        self._closed = False
        self._row_seconds = 0.0  # moving average of the seconds per sequence
        self._thread = threading.Thread(target=self._work, name="inference", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        """Number of rows that wait, and that somebody still waits for."""
        with self._changed:
            self._queue.drop_cancelled()
            return len(self._queue)

    def submit(self, rows: list[Row]) -> concurrent.futures.Future:
        """Queues a request.

        Args:
          rows: list of `Row`, at least one.

        Returns:
          `concurrent.futures.Future` of the list of results. If it is cancelled, those of its rows
          that still wait are not computed.

        Raises:
          Full: too many rows wait.
          Closed: after `close`.
        """
        future: concurrent.futures.Future = concurrent.futures.Future()
        request = Pending(future, [None] * len(rows), len(rows))
        with self._changed:
            if self._closed:
                raise Closed("the server is stopping")
            if len(self) + len(rows) > self._capacity:
                seconds = math.ceil(self._queue.weight * self._row_seconds)
                raise Full(
                    f"{len(self._queue)} texts wait already, of at most {self._capacity}",
                    min(max(seconds, 1), _LONGEST_RETRY),
                )
            now = self._clock()
            for place, row in enumerate(rows):
                self._queue.add(Waiting(row, now, request, place))
            self._changed.notify()
        return future

    def close(self) -> None:
        """Answers the queued rows, rejects new ones, and returns when the thread has ended."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _next_batch(self) -> list[Waiting] | None:
        """Waits for a batch; None after the last."""
        with self._changed:
            while True:
                self._queue.drop_cancelled()
                due = self._queue.due_in(self._clock())
                if due is None and self._closed:
                    return None
                if due == 0 or (due is not None and self._closed):
                    return self._queue.take()
                self._changed.wait(due)

    def _work(self) -> None:
        while batch := self._next_batch():
            started = self._clock()
            self._answer(batch)
            seconds = self._clock() - started
            mean = seconds / sum(item.row.weight for item in batch)
            past = _REMEMBERED if self._row_seconds else 0.0
            self._row_seconds = past * self._row_seconds + (1 - past) * mean
            self._on_batch(len(batch), seconds)
            batch = None  # else the last texts would stay in memory

    def _answer(self, batch: list[Waiting]) -> None:
        try:
            results = self._function([item.row.value for item in batch])
            for item, result in zip(batch, results, strict=True):
                item.request.add(item.place, result)
        except Exception as error:
            if len(batch) == 1:
                if not isinstance(error, file_io.InputError):
                    logging.exception("A text could not be answered")
                batch[0].request.end(batch[0].request.future.set_exception, error)
                return
            for item in batch:
                if not item.request.future.done():
                    self._answer([item])
