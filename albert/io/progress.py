"""Shows the progress of a long job: a bar on a terminal, else log lines with the time left."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from absl import logging

if TYPE_CHECKING:
    from tqdm import tqdm

_LOG_SECONDS = 10


@contextlib.contextmanager
def bar(what: str, total: int | None = None) -> Iterator[Callable[[int], object]]:
    """Yields ``show(count)``, which moves a bar on a terminal and does nothing elsewhere.

    `what`: words for the job; `total`: number of its units, if known.
    """
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    from tqdm import tqdm

    with tqdm(total=total, desc=what, unit="ex", leave=False) as progress_bar:
        yield progress_bar.update


def duration(seconds: float) -> str:
    """Returns seconds as h:mm:ss."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


class Progress:
    """Shows a bar on a terminal, else a log line every ten seconds; both with the time left.

    The time before the first progress, such as starting processes, does not count for the speed.

    Args:
      what: words for the job.
      total: number of units of the whole job.
      unit: name of a unit.
    """

    def __init__(self, what: str, total: int, unit: str) -> None:
        self._what, self._total, self._unit = what, total, unit
        self._done = 0
        self._logged = time.monotonic()
        self._first: tuple[float, int] | None = None  # time and work done of the first progress
        self._bar: tqdm | None = None

    def __enter__(self) -> "Progress":
        if sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(
                total=self._total, desc=self._what, unit=self._unit, unit_scale=True, leave=False
            )
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def advance(self, count: int) -> None:
        """Notes that `count` more units are finished."""
        self.show(self._done + count)

    def show(self, count: int) -> None:
        """Notes that `count` units of the total are finished."""
        if self._bar is not None:
            self._bar.update(count - self._done)
        self._done = count
        now = time.monotonic()
        if count and self._first is None:
            self._first = now, count
        if self._bar is not None or now - self._logged < _LOG_SECONDS or not count:
            return
        self._logged = now
        logging.info("%s: %.0f%%%s", self._what, 100 * count / self._total, self._left(now))

    def _left(self, now: float) -> str:
        """Returns the time left as the end of a line; "" before enough was seen."""
        assert self._first
        began, before = self._first
        seconds, units = now - began, self._done - before
        if seconds < _LOG_SECONDS / 2 or units <= 0:
            return ""
        return f", {duration(seconds * (self._total - self._done) / units)} left"
