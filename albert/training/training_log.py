"""What a user sees of training: log lines, a bar on a terminal, TensorBoard, metrics.jsonl."""

import contextlib
import time

import numpy as np
import tensorflow as tf
from absl import logging

from albert.io import file_io, progress
from albert.training import run_record

# Of the totals of training: seconds that steps waited for their batches, tokens without padding.
INPUT_SECONDS, TOKENS = "input_seconds", "tokens"


def write_scalar(name, value):
    """Adds a number to the events of TensorBoard."""
    # TensorFlow keeps every number of Python that ever became a tensor; a million steps would tell.
    tf.summary.scalar(name, np.float32(value))


def divide(totals):
    """{name: (sum, weight)} -> {name: mean}; 0 where nothing was weighed."""
    return {name: float(s / w) if w else 0.0 for name, (s, w) in totals.items()}


class RunningMeans:
    """Means of some of what training reports, since they were last asked for.

    Sums are kept, and in float64, so that a mean does not depend on how many steps a call of the
    training loop has taken.

    Args:
      names: of the values; None: all.
    """

    def __init__(self, names=None):
        self._names = names
        self._totals = {}

    def add(self, totals):
        """Takes in {name: (sum, weight)} of further steps."""
        for name in totals if self._names is None else self._names:
            own = np.asarray(totals[name], np.float64)
            self._totals[name] = self._totals.get(name, 0.0) + own

    def take(self):
        """{name: mean}, empty without a step; starts again."""
        totals, self._totals = self._totals, {}
        return divide(totals)


class TrainingLog:
    """Reports training: a line each time it is asked to, a bar on a terminal, TensorBoard events.

    What TensorBoard gets is also a line of ``metrics.jsonl``, see `run_record`.

    Args:
      folder: where these files go; None in workers that leave reporting to another.
      first_step: steps taken before this run.
      last_step: step at which training ends, as an attribute, too; None: not known yet.
      batch_size: examples per step over all replicas.
      created: `time.time()` at which the work began that came before the first step.
    """

    def __init__(self, folder, first_step, last_step, batch_size, created):
        self.last_step = last_step
        self._batch_size = batch_size
        self._step = first_step
        self._folder, self._created = folder, created
        self._quiet = folder is None
        self._open = contextlib.ExitStack()
        if not self._quiet:
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
        self._reported = None  # the last step that has a line
        self._timed_steps, self._seconds, self._input_seconds = 0, 0.0, 0.0

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self._open.close()
        if not self._quiet:
            run_record.set_steps(self._folder, self._step)

    def before_checkpoint(self):
        """Keeps the number of tokens for a run that goes on from this step."""
        if not self._quiet and self._reported != self._step and self._tokens_seen is not None:
            run_record.append_save(self._folder, self._step, self._tokens_seen)

    def after_checkpoint(self):
        """Leaves the time since the last update (saving, evaluating) out of the speed."""
        if not self._quiet:
            run_record.set_steps(self._folder, self._step)
        self._started = time.time()

    def update(self, step, totals, rate, report):
        """Takes in what happened since the last call. The first call is to come after one step.

        Args:
          step: steps taken so far.
          totals: {name: (sum, weight)} over the new steps. `INPUT_SECONDS` is the time that they
            waited for their batches, `TOKENS` the tokens of these, if that is known.
          rate: learning rate of the next step.
          report: write a line.
        """
        if self._quiet:
            return
        taken = step - self._step
        elapsed = time.time() - self._started
        self._started = time.time()
        self._show(taken * self._batch_size)
        self._step = step
        totals = dict(totals)
        waited = float(totals.pop(INPUT_SECONDS)[0])
        if self._first:
            # It took in all that comes before training: it says nothing about the speed.
            logging.info("First step after %.1f s", elapsed)
            self._first = False
        else:
            self._timed_steps += taken
            self._seconds += elapsed
            self._input_seconds += waited
        if TOKENS not in totals:
            self._tokens_seen = None
        elif self._tokens_seen is not None:
            self._tokens_seen += int(totals[TOKENS][0])
        self._means.add(totals)
        if report or step == self.last_step:
            self._report(step, rate)

    def _report(self, step, rate):
        values = self._means.take()
        tokens = values.pop(TOKENS, None)  # a step
        values["learning_rate"] = rate
        line = f"step {step}" + (f"/{self.last_step}" if self.last_step else "")
        line += "".join(f"  {name} {value:.5g}" for name, value in values.items())
        if self._timed_steps and self._seconds:
            line += self._speed(step, tokens, values)
        if self._tokens_seen is not None:
            values["tokens_seen"] = self._tokens_seen
            line += f"  {self._tokens_seen} tokens"
        logging.info("%s", line)
        with file_io.room_for(self._folder), self._writer.as_default(step=step):
            for name, value in values.items():
                write_scalar(name, value)
        run_record.append_training(self._folder, step, self._started - self._created, values)
        self._reported = step
        self._timed_steps, self._seconds, self._input_seconds = 0, 0.0, 0.0

    def _speed(self, step, tokens, values):
        """Adds to the values how fast training is; returns that and the time left as text."""
        steps_per_second = self._timed_steps / self._seconds
        speed = values["examples_per_second"] = self._batch_size * steps_per_second
        text = f"  {speed:.{1 if speed >= 1 else 4}f} examples/s"
        if tokens is not None:
            values["tokens_per_second"] = tokens * steps_per_second
            text += f"  {values['tokens_per_second']:.0f} tokens/s"
        # The share of the time that went into waiting for input.
        values["input_share"] = self._input_seconds / self._seconds
        text += f"  input {values['input_share']:.0%}"
        if self.last_step is None:
            return text
        return f"{text}  {progress.duration((self.last_step - step) / steps_per_second)} left"


def _tokens_seen(rows, step):
    """Tokens of the steps that were taken before, or None where the run's rows do not say."""
    if not step:
        return 0
    found = [row["tokens_seen"] for row in rows if row["step"] == step and "tokens_seen" in row]
    return found[-1] if found else None
