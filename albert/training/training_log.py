"""What a user sees of training: log lines, a bar on a terminal, TensorBoard, metrics.jsonl."""

import contextlib
import time

import numpy as np
import tensorflow as tf
from absl import logging

from albert.io import file_io, progress
from albert.training import run_record


def write_scalar(name, value):
    """Adds a number to the events of TensorBoard."""
    # TensorFlow keeps every number of Python that ever became a tensor; a million steps would tell.
    tf.summary.scalar(name, np.float32(value))


class RunningMeans:
    """Means of some of what training reports, since they were last asked for.

    Args:
      names: of the values; others are left out.
    """

    def __init__(self, names):
        self._names = names
        self._sums, self._steps = dict.fromkeys(names, 0.0), 0

    def add(self, means, steps):
        """Takes in {name: mean over so many steps}."""
        self._steps += steps
        for name in self._names:
            self._sums[name] += means[name] * steps

    def take(self):
        """{``train_<name>``: mean}, empty without a step; starts anew."""
        if not self._steps:
            return {}
        found = {f"train_{name}": total / self._steps for name, total in self._sums.items()}
        self._sums, self._steps = dict.fromkeys(self._names, 0.0), 0
        return found


class TrainingLog:
    """Reports training: a line each time it is asked to, a bar on a terminal, TensorBoard events.

    What TensorBoard gets is also a line of ``metrics.jsonl``, see `run_record`.

    Args:
      folder: where these files go; None in workers that leave reporting to another.
      first_step: steps taken before this run.
      last_step: step at which training ends.
      batch_size: examples per step over all replicas.
      created: `time.time()` at which the work began that came before the first step.
    """

    def __init__(self, folder, first_step, last_step, batch_size, created):
        self._last_step = last_step
        self._batch_size = batch_size
        self._step = first_step
        self._folder, self._created = folder, created
        self._quiet = folder is None
        self._open = contextlib.ExitStack()
        if not self._quiet:
            run_record.start_training(folder, first_step)
            with file_io.room_for(folder):
                self._writer = tf.summary.create_file_writer(folder)
            self._open.callback(self._writer.close)
            total = (last_step - first_step) * batch_size
            self._show = self._open.enter_context(progress.bar("training", total))
        self._sums, self._weight = {}, 0
        self._started = created
        self._first = True
        self._counted_from = first_step
        self._seconds = self._input_seconds = 0.0

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self._open.close()
        if not self._quiet:
            run_record.set_steps(self._folder, self._step)

    def after_checkpoint(self):
        """Leaves the time since the last update (saving, evaluating) out of the speed."""
        if not self._quiet:
            run_record.set_steps(self._folder, self._step)
        self._started = time.time()

    def update(self, step, means, input_seconds, report):
        """Takes in what happened since the last call. The first call is to come after one step.

        Args:
          step: steps taken so far.
          means: {name: mean over the new steps}, with ``learning_rate``.
          input_seconds: time that the new steps waited for their batches.
          report: write a line.
        """
        if self._quiet:
            return
        taken = step - self._step
        elapsed = time.time() - self._started
        self._started = time.time()
        self._show(taken * self._batch_size)
        self._step = step
        if self._first:
            # It took in all that comes before training: it says nothing about the speed.
            logging.info("First step after %.1f s", elapsed)
            self._first, self._counted_from = False, step
        else:
            self._seconds += elapsed
            self._input_seconds += input_seconds
        for name, value in means.items():
            self._sums[name] = self._sums.get(name, 0.0) + value * taken
        self._weight += taken
        if report or step == self._last_step:
            self._report(step, means["learning_rate"])

    def _report(self, step, rate):
        values = {name: total / self._weight for name, total in self._sums.items()}
        values["learning_rate"] = rate
        self._sums, self._weight = {}, 0
        timed = step - self._counted_from
        line = f"step {step}/{self._last_step}"
        line += "".join(f"  {name} {value:.5g}" for name, value in values.items())
        if timed and self._seconds:
            seconds_per_step = self._seconds / timed
            speed = values["examples_per_second"] = self._batch_size / seconds_per_step
            left = progress.duration(seconds_per_step * (self._last_step - step))
            # The share of the time that went into waiting for input.
            values["input_share"] = self._input_seconds / self._seconds
            line += f"  {speed:.{1 if speed >= 1 else 4}f} examples/s"
            line += f"  input {values['input_share']:.0%}  {left} left"
        logging.info("%s", line)
        with file_io.room_for(self._folder), self._writer.as_default(step=step):
            for name, value in values.items():
                write_scalar(name, value)
        run_record.append_training(self._folder, step, self._started - self._created, values)
        self._counted_from = step
        self._seconds = self._input_seconds = 0.0
