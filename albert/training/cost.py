"""Measures what training costs: text, operations, time, processor time, memory."""

import contextlib
import time
from collections.abc import Iterator

import numpy as np
from absl import logging

from albert.io import usage
from albert.training import contracts, flops, run_record

_EVALUATION = "evaluation_"  # prefix of what evaluations cost
_SECONDS_BETWEEN_WRITES = 10.0


class Meter:
    """Measures the cost of training and adds it to ``run.json``; see `run_record.Cost`.

    Time counts from the construction of the meter.
    """

    def __init__(self) -> None:
        self._last = usage.read()
        # Since the last call of `write`; unknown values have no entry.
        self._spent: dict[str, float] = {}
        self._written = time.monotonic()
        self._model: contracts.Model | None = None
        self._folder: str | None = None
        self._words_per_token: float | None = None

    def start(
        self, model: contracts.Model, folder: str | None, words_per_token: float | None = None
    ) -> None:
        """Sets the model and the folder (None in workers that do not write), before training."""
        self._model, self._folder, self._words_per_token = model, folder, words_per_token

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        """Counts the usage of the block as the cost of an evaluation."""
        self._add_usage("")
        try:
            yield
        finally:
            self._add_usage(_EVALUATION)

    def add_steps(self, steps: int, tokens: int | None, work: np.ndarray | None) -> None:
        """Counts steps of training.

        Args:
          tokens: number of tokens in these steps, without padding; None: unknown.
          work: array [6] of the sums of `flops.StepWork`; None: unknown.
        """
        self._add("steps", steps)
        if tokens is not None:
            self._add("tokens", tokens)
            if self._words_per_token is not None:
                self._add("words", tokens * self._words_per_token)
        if work is not None and self._model is not None:
            sizes = flops.StepWork(*map(int, work))
            self._add("examples", flops.num_examples(self._model, sizes))
            self._add("positions", sizes.rows)
            flop = flops.training_flops(self._model, sizes)
            assert flop is not None, "its work is known"
            self._add("flop", flop)

    def write_if_due(self) -> None:
        """Calls `write` if the last call was some seconds ago."""
        if time.monotonic() - self._written >= _SECONDS_BETWEEN_WRITES:
            self.write()

    def write(self) -> None:
        """Adds the cost since the last call to the record of the run, once there was a step."""
        if self._folder is None or "steps" not in self._spent:
            return
        self._add_usage("")
        spent = {**self._spent, "peak_memory": usage.peak_memory()}
        run_record.add_cost(self._folder, {k: v for k, v in spent.items() if v is not None})
        self._spent = dict.fromkeys(self._spent, 0)
        self._written = time.monotonic()

    def report(self) -> None:
        """Writes the cost and logs the run's total."""
        self.write()
        if self._folder is not None and (cost := run_record.read_cost(self._folder)):
            logging.info("%s", cost.text())

    def _add(self, name: str, value: float) -> None:
        """Adds a value to the amount spent of `name`, a field of `run_record.Cost`."""
        self._spent[name] = self._spent.get(name, 0) + value

    def _add_usage(self, prefix: str) -> None:
        """Adds the `usage.Usage` since the last call; a prefix of names is `_EVALUATION` or ""."""
        last, self._last = self._last, usage.read()
        for name, before, now in zip(last._fields, last, self._last, strict=True):
            for each in ("", _EVALUATION):
                self._add(each + name, now - before if each == prefix else 0)
