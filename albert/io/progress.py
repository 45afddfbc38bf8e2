"""How far a long job is: a bar on a terminal, lines with the time left."""

import contextlib
import sys
import time

from absl import logging

_LOG_SECONDS = 10


@contextlib.contextmanager
def bar(what, total=None):
    """Yields ``show(count)``, which moves a bar on a terminal and does nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    from tqdm import tqdm

    with tqdm(total=total, desc=what, unit="ex", leave=False) as shown:
        yield shown.update


def duration(seconds):
    """Seconds as h:mm:ss."""
    minutes, seconds = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}"


class Progress:
    """A bar on a terminal, else a line in the log every ten seconds; both with the time left.

    What comes before the first progress, such as starting processes, says nothing about the speed.

    Args:
      what: words for what is done.
      total: how much of it there is.
      unit: what is counted.
    """

    def __init__(self, what, total, unit):
        self._what, self._total, self._unit = what, total, unit
        self._done = 0
        self._logged = time.monotonic()
        self._first = None  # time of the first progress, and what was done by then
        self._bar = None

    def __enter__(self):
        if sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(
                total=self._total, desc=self._what, unit=self._unit, unit_scale=True, leave=False
            )
        return self

    def __exit__(self, *exception):
        if self._bar is not None:
            self._bar.close()

    def advance(self, count):
        """Takes note that so many more are finished."""
        self.show(self._done + count)

    def show(self, done):
        """Takes note that `done` of the total are finished."""
        if self._bar is not None:
            self._bar.update(done - self._done)
        self._done = done
        now = time.monotonic()
        if done and self._first is None:
            self._first = now, done
        if self._bar is not None or now - self._logged < _LOG_SECONDS or not done:
            return
        self._logged = now
        logging.info("%s: %.0f%%%s", self._what, 100 * done / self._total, self._left(now))

    def _left(self, now):
        """The time left as the end of a line; empty where too little was seen to tell."""
        began, before = self._first
        seconds, made = now - began, self._done - before
        if seconds < _LOG_SECONDS / 2 or made <= 0:
            return ""
        return f", {duration(seconds * (self._total - self._done) / made)} left"
