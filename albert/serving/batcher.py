"""Batches the rows of many requests and computes them in one thread.

Rows wait until there are enough of them or the oldest has waited long enough; rows of similar
length form a batch. A CPU gains nothing from concurrent inferences, so there is one thread. Rows
that arrive while it computes become the next batch.
"""

import collections
import concurrent.futures
import contextlib
import dataclasses
import itertools
import math
import threading
import time
from collections.abc import Callable
from typing import Any

from absl import logging

from albert.io import file_io

_MAX_PADDING = 1.5  # maximum ratio of a batch's padded size to its real size
_MAX_RETRY = 60  # seconds
# Rows may be computed before older ones of other lengths, but only if they are among this many
# times `max_batch_size` oldest ones, so that no row waits much longer than the mean.
_WINDOW = 4
_LONGEST_WAIT = 4  # ratio of the longest wait to the expected one, with some allowance
_DECAY = 0.8  # weight of the past in the moving average of the time per sequence


class Full(Exception):
    """The queue has no room for a request; there may be room after `retry_after` seconds."""

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Closed(Exception):
    """The batcher accepts no further requests."""


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One input row of a request."""

    value: object  # what the model's function takes; the batcher does not look at it
    length: int  # approximate length in any unit; at least 1
    weight: int = 1  # approximate number of sequences of the row


@dataclasses.dataclass(eq=False, slots=True)
class Pending:
    """A request with unanswered rows."""

    future: concurrent.futures.Future
    results: list  # of each row
    missing: int  # number of rows without a result

    def add(self, place: int, result: object) -> None:
        self.results[place] = result
        self.missing -= 1
        if not self.missing:
            self.end(self.future.set_result, self.results)

    def end(self, set_to: Callable[[Any], None], value: object) -> None:
        # Another thread may cancel it at any time.
        with contextlib.suppress(concurrent.futures.InvalidStateError):
            set_to(value)


@dataclasses.dataclass(eq=False, slots=True)
class Waiting:
    """A queued row."""

    row: Row
    arrived: float  # time in seconds
    request: Pending
    place: int  # index of the row in the request, from 0


class Queue:
    """Queued rows in order of arrival; without threads and without a clock.

    Args:
      max_batch_size: maximum number of sequences per batch; a larger row is computed alone.
      delay: seconds that the oldest row may wait for others.
      max_batch_length: maximum length of a batch with its padding, in the unit of `Row.length`: the
        longest row's times the number of sequences. None: any; a longer row is computed alone.
    """

    def __init__(
        self, max_batch_size: int, delay: float, max_batch_length: int | None = None
    ) -> None:
        self._max_batch_size = max_batch_size
        self._max_batch_length = math.inf if max_batch_length is None else max_batch_length
        self._delay = delay
        self._waiting: collections.deque[Waiting] = collections.deque()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def weight(self) -> int:
        """Number of sequences of all rows."""
        return sum(item.row.weight for item in self._waiting)

    def add(self, item: Waiting) -> None:
        self._waiting.append(item)

    def drop_cancelled(self) -> None:
        """Removes the rows of cancelled or failed requests."""
        items = [item for item in self._waiting if not item.request.future.done()]
        self._waiting = collections.deque(items)

    def due_in(self, now: float) -> float | None:
        """Returns the seconds until the next batch is due, 0 for now; None if nothing waits."""
        if not self._waiting:
            return None
        if self._is_full():
            return 0.0
        return max(0.0, self._waiting[0].arrived + self._delay - now)

    def _is_full(self) -> bool:
        """Returns whether the waiting rows fill a batch, without padding."""
        if self.weight >= self._max_batch_size or self._max_batch_length == math.inf:
            return self.weight >= self._max_batch_size
        length = sum(item.row.length * item.row.weight for item in self._waiting)
        return length >= self._max_batch_length

    def take(self) -> list[Waiting]:
        """Removes and returns a batch: the oldest row and the rows nearest to it in length."""
        oldest = self._waiting[0]
        candidates = itertools.islice(self._waiting, _WINDOW * self._max_batch_size)
        near = sorted(candidates, key=lambda item: abs(item.row.length - oldest.row.length))
        batch: list[Waiting] = []
        sequences = longest = total = 0
        for item in near:  # the oldest is first: the sort is stable
            longest, total = max(longest, item.row.length), total + item.row.length
            sequences += item.row.weight
            is_padding = longest * (len(batch) + 1) > _MAX_PADDING * total
            is_full = (
                sequences > self._max_batch_size or longest * sequences > self._max_batch_length
            )
            if batch and (is_padding or is_full):
                break
            batch.append(item)
        ids = set(map(id, batch))
        self._waiting = collections.deque(i for i in self._waiting if id(i) not in ids)
        return batch


class Batcher:
    """Answers requests of any thread with a function that takes rows of several requests.

    If a batch fails, its rows are computed one by one, so a bad row fails its own request only. Of
    a request with several rows, the message of a `file_io.InputError` begins with the row's place.

    Args:
      function: ``(values) -> results``, one result per value, in order.
      max_batch_size, delay, max_batch_length: see `Queue`.
      capacity: maximum number of queued rows.
      on_batch: ``(rows, seconds)``, called after each batch.
      max_wait: maximum seconds that a request may take. A request that would probably take longer,
        by the time of earlier ones, is refused at once. None: any.
    """

    def __init__(
        self,
        function: Callable,
        max_batch_size: int,
        delay: float,
        capacity: int,
        clock: Callable = time.monotonic,
        on_batch: Callable = lambda rows, seconds: None,
        max_batch_length: int | None = None,
        max_wait: float | None = None,
    ) -> None:
        self._max_wait = math.inf if max_wait is None else max_wait
        self._function = function
        self._queue = Queue(max_batch_size, delay, max_batch_length)
        self._capacity = capacity
        self._clock = clock
        self._on_batch = on_batch
        self._changed = threading.Condition()
        self._closed = False
        self._row_seconds = 0.0  # moving average of the seconds per sequence
        self._thread = threading.Thread(target=self._work, name="inference", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        """Returns the number of queued rows whose requests are not cancelled."""
        with self._changed:
            self._queue.drop_cancelled()
            return len(self._queue)

    def submit(self, rows: list[Row]) -> concurrent.futures.Future:
        """Queues a request of at least one row.

        If the future of its results is cancelled, its queued rows are not computed.

        Raises:
          Full: too many rows are queued, or they would take too long.
          Closed: after `close`.
        """
        future: concurrent.futures.Future = concurrent.futures.Future()
        request = Pending(future, [None] * len(rows), len(rows))
        with self._changed:
            if self._closed:
                raise Closed("the server is stopping")
            waiting = len(self)
            seconds = self._queue.weight * self._row_seconds
            retry_after = min(max(math.ceil(seconds), 1), _MAX_RETRY)
            if waiting + len(rows) > self._capacity:
                raise Full(
                    f"the queue is full: {waiting} of {self._capacity} texts are waiting",
                    retry_after,
                )
            if _LONGEST_WAIT * seconds > self._max_wait:
                raise Full(
                    f"the queue is full: {waiting} texts are waiting, for about "
                    f"{math.ceil(seconds)} seconds",
                    retry_after,
                )
            now = self._clock()
            for place, row in enumerate(rows):
                self._queue.add(Waiting(row, now, request, place))
            self._changed.notify()
        return future

    def close(self) -> None:
        """Answers queued rows, rejects new ones, and returns when the thread has ended."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _next_batch(self) -> list[Waiting] | None:
        """Waits for the next batch; returns None after the last one."""
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
            past = _DECAY if self._row_seconds else 0.0
            self._row_seconds = past * self._row_seconds + (1 - past) * mean
            self._on_batch(len(batch), seconds)
            batch = None  # frees the last texts while waiting

    def _answer(self, batch: list[Waiting]) -> None:
        try:
            results = self._function([item.row.value for item in batch])
            for item, result in zip(batch, results, strict=True):
                item.request.add(item.place, result)
        except Exception as error:
            if len(batch) == 1:
                if not isinstance(error, file_io.InputError):
                    logging.exception("A text could not be answered")
                elif len(batch[0].request.results) > 1:
                    error = type(error)(f"examples[{batch[0].place}]: {error}")
                batch[0].request.end(batch[0].request.future.set_exception, error)
                return
            for item in batch:
                if not item.request.future.done():
                    self._answer([item])
