"""Reports of training and of scores: log lines, a progress bar, TensorBoard, ``metrics.jsonl``."""

import contextlib
import time
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from albert.io import file_io, log_format, progress
from albert.training import cost, results, run_record

# Keys of the totals: seconds that steps waited for their batches, and tokens without padding.
INPUT_SECONDS, TOKENS = "input_seconds", "tokens"
# Values that log lines show in another form than the rest.
_SPEEDS = ("examples_per_second", "tokens_per_second", "input_share", "tokens_seen")
_SLOW_INPUT = 0.1  # fraction of the time; a short line shows it from here on
Totals = Mapping[str, np.ndarray]  # (sum, weight) by name
WORK = "work"  # key of `flops.StepWork` in the results of a step


def write_scalar(name: str, value: float) -> None:
    """Writes a number to the TensorBoard events under a name."""
    # TensorFlow caches every Python number that becomes a tensor, so memory would grow.
    tf.summary.scalar(name, np.float32(value))


def divide(totals: Totals) -> dict[str, float]:
    """Converts {name: (sum, weight)} to {name: mean}; the mean is 0 if the weight is 0."""
    return {name: float(s / w) if w else 0.0 for name, (s, w) in totals.items()}


def log_results(
    folder: str,
    name: str,
    step: int,
    metrics: results.Scores,
    form: results.ResultsFormat,
    is_chief: bool,
    kind: str = run_record.EVAL,
    best: str | None = None,
) -> None:
    """Writes the results of a checkpoint to the log and, in the chief, to ``metrics.jsonl``.

    On a terminal these are the scores of the reference and the one that chooses the `best`.

    Args:
      name: prefix or name of the checkpoint.
      kind: kind of the line: `run_record.EVAL`, or `AVERAGE` for averaged weights.
      best: metric that chooses the best checkpoint; None: not shown.
    """
    if log_format.is_short():
        text = results.short_line(metrics, form, best)
    else:
        text = ", ".join(map(results.in_words, results.lines(metrics, step, form)))
    logging.info("Results of %s: %s", name, text)
    if is_chief:
        run_record.append_evaluation(folder, step, name, metrics, kind)


class RunningMeans:
    """Running means of training values since the last call of `take`.

    Sums are kept in float64, so that a mean does not depend on the number of steps per call of the
    training loop.

    Args:
      names: names of the values; None: all.
    """

    def __init__(self, names: Iterable[str] | None = None) -> None:
        self._names = names
        self._totals: dict[str, np.ndarray] = {}  # (sum, weight)

    def add(self, totals: Totals) -> None:
        """Adds {name: (sum, weight)} of new steps."""
        for name in totals if self._names is None else self._names:
            own = np.asarray(totals[name], np.float64)
            self._totals[name] = self._totals.get(name, 0.0) + own

    def take(self) -> dict[str, float]:
        """Returns {name: mean} and resets the sums; empty if there were no steps."""
        totals, self._totals = self._totals, {}
        return divide(totals)


class TrainingLog:
    """A reporter of training: log lines on request, a progress bar and TensorBoard events.

    The values for TensorBoard are also written to ``metrics.jsonl``, see `run_record`.

    Args:
      folder: folder of these files; None in workers that do not report.
      first_step: steps taken before this run.
      last_step: step at which training ends, also an attribute; None: not yet known.
      batch_size: examples per step over all replicas.
      created: `time.time()` when the work before the first step began.
      meter: was started; None: the cost is not recorded.
    """

    def __init__(
        self,
        folder: str | None,
        first_step: int,
        last_step: int | None,
        batch_size: int,
        created: float,
        meter: cost.Meter | None = None,
    ) -> None:
        self.last_step = last_step
        self._batch_size = batch_size
        self._step = first_step
        self._folder, self._created = folder, created
        self._meter = meter
        self._open = contextlib.ExitStack()
        if folder is not None:
            rows = run_record.start_training(folder, first_step)
            self._tokens_seen = _tokens_seen(rows, first_step)
            with file_io.room_for(folder):
                self._writer = tf.summary.create_file_writer(folder)
            self._open.callback(self._writer.close)
            total = None if last_step is None else (last_step - first_step) * batch_size
            self._show = self._open.enter_context(progress.bar("training", total))
        self._means = RunningMeans()
        self._started = created
        self._first = True
        self._reported: int | None = None  # the last reported step
        self._timed_steps, self._seconds, self._input_seconds = 0, 0.0, 0.0

    def __enter__(self) -> "TrainingLog":
        return self

    def __exit__(self, *exception: object) -> None:
        self._open.close()
        if self._folder is not None:
            if self._meter:
                self._meter.report()
            run_record.set_steps(self._folder, self._step)

    def before_checkpoint(self) -> None:
        """Saves the number of tokens for a run that resumes from this step, and the cost so far."""
        if self._folder is None:
            return
        if self._reported != self._step and self._tokens_seen is not None:
            run_record.append_save(self._folder, self._step, self._tokens_seen)
        if self._meter:
            self._meter.write()

    def after_checkpoint(self) -> None:
        """Excludes the time since the last update (saving, evaluating) from the speed."""
        if self._folder is not None:
            run_record.set_steps(self._folder, self._step)
        self._started = time.time()

    def update(
        self, step: int, totals: Totals, rate: float, report: bool, work: np.ndarray | None = None
    ) -> None:
        """Adds the steps since the last call; the first call must follow one step.

        Args:
          totals: {name: (sum, weight)} over the new steps. `INPUT_SECONDS` is the time that they
            waited for their batches, `TOKENS` the number of tokens, if known.
          rate: learning rate of the next step.
          work: array [6], the sums of `flops.StepWork` over the new steps; None: unknown.
        """
        if self._folder is None:
            return
        steps = step - self._step
        elapsed = time.time() - self._started
        self._started = time.time()
        self._show(steps * self._batch_size)
        self._step = step
        totals = dict(totals)
        waited = float(totals.pop(INPUT_SECONDS)[0])
        if self._first:
            # The first step includes the work before training, so it is not timed.
            logging.info("First step after %.1f s", elapsed)
            self._first = False
        else:
            self._timed_steps += steps
            self._seconds += elapsed
            self._input_seconds += waited
        if TOKENS not in totals:
            self._tokens_seen = None
        elif self._tokens_seen is not None:
            self._tokens_seen += int(totals[TOKENS][0])
        if self._meter:
            tokens = int(totals[TOKENS][0]) if TOKENS in totals else None
            self._meter.add_steps(steps, tokens, work)
        self._means.add(totals)
        if report or step == self.last_step:
            self._report(self._folder, step, rate)

    def _report(self, folder: str, step: int, rate: float) -> None:
        """Writes the means since the last report to the log and the files."""
        values = self._means.take()
        tokens = values.pop(TOKENS, None)  # per step
        values["learning_rate"] = rate
        if self._timed_steps and self._seconds:
            self._add_speed(tokens, values)
        if self._tokens_seen is not None:
            values["tokens_seen"] = self._tokens_seen
        describe = describe_shortly if log_format.is_short() else describe_fully
        logging.info("%s", describe(step, self.last_step, values, self._time_left(step)))
        with file_io.room_for(folder), self._writer.as_default(step=step):
            for name, value in values.items():
                write_scalar(name, value)
        run_record.append_training(folder, step, self._started - self._created, values)
        if self._meter:
            self._meter.write_if_due()
        self._reported = step
        self._timed_steps, self._seconds, self._input_seconds = 0, 0.0, 0.0

    def _add_speed(self, tokens: float | None, values: dict[str, float]) -> None:
        """Adds the training speed, and the fraction of the time spent waiting for input.

        `tokens` are those of a step; None: unknown. `values` are changed.
        """
        steps_per_second = self._timed_steps / self._seconds
        values["examples_per_second"] = self._batch_size * steps_per_second
        if tokens is not None:
            values["tokens_per_second"] = tokens * steps_per_second
        values["input_share"] = self._input_seconds / self._seconds

    def _time_left(self, step: int) -> float | None:
        """Returns the seconds until the last step; None: not known."""
        if self.last_step is None or not (self._timed_steps and self._seconds):
            return None
        return (self.last_step - step) * self._seconds / self._timed_steps


def describe_fully(
    step: int, last_step: int | None, values: dict[str, float], time_left: float | None
) -> str:
    """Returns the log line of some steps, with all their values.

    `values` are {name: mean}, `time_left` seconds until the last step; None: not known.
    """
    line = _place(step, last_step)
    line += "".join(f"  {name} {x:.5g}" for name, x in values.items() if name not in _SPEEDS)
    if "examples_per_second" in values:
        line += f"  {_speed(values)}"
        if "tokens_per_second" in values:
            line += f"  {values['tokens_per_second']:.0f} tokens/s"
        line += f"  input {values['input_share']:.0%}"
    if time_left is not None:
        line += f"  {progress.duration(time_left)} left"
    if "tokens_seen" in values:
        line += f"  {values['tokens_seen']} tokens"
    return line


def describe_shortly(
    step: int, last_step: int | None, values: dict[str, float], time_left: float | None
) -> str:
    """Returns a line for a terminal: each loss once, scores, rate, speed and the time left.

    `values` are {name: mean}, `time_left` seconds until the last step; None: not known.
    """
    hidden = {*_SPEEDS, "gradient_norm"}
    losses = [name for name in values if name.endswith("_loss")]
    hidden |= {name for name in losses if values[name] == values.get("loss")}
    line = _place(step, last_step)
    line += "".join(f"  {name} {x:.4g}" for name, x in values.items() if name not in hidden)
    if "examples_per_second" in values:
        line += f"  {_speed(values)}"
        if values["input_share"] >= _SLOW_INPUT:
            line += f"  input {values['input_share']:.0%}"
    return line if time_left is None else f"{line}  {progress.duration(time_left)} left"


def _place(step: int, last_step: int | None) -> str:
    """Returns how far training is, such as "step 5/10", or "step 5" if the last step is None."""
    return f"step {step}" + (f"/{last_step}" if last_step else "")


def _speed(values: Mapping[str, float]) -> str:
    """Returns the training speed from {name: mean}, for a line."""
    speed = values["examples_per_second"]
    return f"{speed:.{1 if speed >= 1 else 4}f} examples/s"


def _tokens_seen(rows: Iterable[Mapping[str, Any]], step: int) -> int | None:
    """Returns the number of tokens of earlier steps, or None if the run's rows do not have it."""
    if not step:
        return 0
    counts = [row["tokens_seen"] for row in rows if row["step"] == step and "tokens_seen" in row]
    return counts[-1] if counts else None
