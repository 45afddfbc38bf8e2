"""Evaluates checkpoints, writes the results and keeps the best one as ``model.ckpt-best``."""

import os
import time

import numpy as np
import tensorflow as tf
from absl import logging

from albert import checkpoints, distribution, file_io

RESULTS = "eval_results.txt"
BEST_TRIAL = "best_trial.txt"
_RULE = "=" * 50


def format_value(value):
    """Shortest text of a number as float32, integers as they are."""
    return str(value) if isinstance(value, int) else str(np.float32(value))


class BestTracker:
    """The best evaluated step of a folder, and its result files.

    Args:
      folder: output folder.
      metric: key of the results to maximise.
      resume: go on from the files of an earlier run; else they are written anew.
      is_chief: False in the workers that must not write.
    """

    def __init__(self, folder, metric, resume, is_chief=True):
        self._folder = folder
        self._metric = metric
        self._is_chief = is_chief
        self.last_step, self.best_step, self.best_value = -1, None, None
        self._text = ""
        trial = os.path.join(folder, BEST_TRIAL)
        if resume and file_io.exists(trial):
            text = file_io.read_text(trial, "best trial")
            try:
                last, best, value = text.strip().split(":")
                self.last_step = int(last)
                trial_best = int(best), float(value)
            except ValueError as error:
                raise file_io.InputError(
                    f"best trial: {trial} must hold last:best:value, found {text!r}; delete it to "
                    "evaluate what is there anew"
                ) from error
            # A run killed while it replaced the best has none: the next one evaluated is better.
            if checkpoints.prefix_exists(self._best_prefix()):
                self.best_step, self.best_value = trial_best
            results = os.path.join(folder, RESULTS)
            self._text = file_io.read_text(results, "results") if file_io.exists(results) else ""
        if is_chief:
            file_io.make_dirs(os.path.join(folder, "eval"))
            self._writer = tf.summary.create_file_writer(os.path.join(folder, "eval"))

    def _best_prefix(self):
        return os.path.join(self._folder, checkpoints.BEST)

    def record(self, prefix, step, metrics):
        """Takes in the metrics of a checkpoint; copies it if it is the best so far.

        Raises:
          file_io.InputError: the metrics do not hold the one to maximise.
        """
        if self._metric not in metrics:
            raise file_io.InputError(f"no {self._metric} among the results {sorted(metrics)}")
        value = float(np.float32(metrics[self._metric]))
        is_better = self.best_value is None or value > self.best_value
        if is_better:
            self.best_step, self.best_value = step, value
        self.last_step = step
        if not self._is_chief:
            return
        lines = _result_lines(metrics, step)
        if is_better and prefix != self._best_prefix():
            checkpoints.copy(prefix, self._best_prefix())
        logging.info("Results of %s: %s", os.path.basename(prefix), ", ".join(lines))
        self._text += "\n".join([*lines, f"best = {self.best_value}", _RULE]) + "\n"
        file_io.write_text(os.path.join(self._folder, RESULTS), self._text)
        # Written last: a run killed before this line evaluates the same checkpoint again.
        file_io.write_text(
            os.path.join(self._folder, BEST_TRIAL), f"{step}:{self.best_step}:{self.best_value}"
        )
        with self._writer.as_default(step=step):
            for key, number in metrics.items():
                tf.summary.scalar(key, number)
        self._writer.flush()


def evaluate_while_training(engine, input_fn):
    """``on_checkpoint`` callback for `Engine.train`: each checkpoint is evaluated as it is saved.

    So every one is evaluated, however few are kept. All workers evaluate; the chief knows what is
    new, and writes.
    """
    tracker = BestTracker(
        engine.run_config.output_dir,
        engine.task.best_metric,
        resume=True,
        is_chief=distribution.is_chief(engine.strategy),
    )

    def on_checkpoint(prefix, step):
        if distribution.from_chief(engine.strategy, lambda: step > tracker.last_step):
            tracker.record(prefix, step, engine.evaluate(input_fn))

    return on_checkpoint


def evaluate_all(engine, input_fn, wait_secs=0):
    """Evaluates every checkpoint of the output folder once, by step, and ends.

    Args:
      engine: `engine.Engine`.
      input_fn: evaluation input.
      wait_secs: go on for checkpoints that a trainer beside this run writes, until none has come
        for that many seconds.

    Returns:
      The `BestTracker`.

    Raises:
      file_io.InputError: there is no checkpoint.
    """
    folder = engine.run_config.output_dir
    find = lambda last_step: distribution.from_chief(  # noqa: E731
        engine.strategy, lambda: _wait_for_checkpoints(folder, last_step, wait_secs)
    )
    pending = find(-1)
    if not pending:
        raise file_io.InputError(f"there is no checkpoint to evaluate in {folder}; train first")
    is_chief = distribution.is_chief(engine.strategy)
    tracker = BestTracker(folder, engine.task.best_metric, resume=False, is_chief=is_chief)
    try:
        while pending:
            step, prefix = pending[0]
            held = distribution.from_chief(engine.strategy, lambda: _hold(folder, prefix))  # noqa: B023
            if held:
                checkpoints.restore(engine.model, held, allow_new_heads=False)
                tracker.record(held, step, engine.evaluate(input_fn))
            else:
                logging.warning("%s was deleted before it could be evaluated: left out", prefix)
                tracker.last_step = step
            pending = find(tracker.last_step)
    finally:
        if is_chief:
            _let_go(folder)
    if tracker.best_step is None:
        raise file_io.InputError(
            f"every checkpoint of {folder} was deleted before it could be evaluated; let the "
            "trainer keep more (keep_checkpoint_max) or save fewer"
        )
    return tracker


def _hold(folder, prefix):
    """A copy of a checkpoint that no trainer beside this run deletes; None if it is gone."""
    if prefix == os.path.join(folder, checkpoints.BEST):
        return prefix
    _let_go(folder)
    held = os.path.join(folder, "eval", os.path.basename(prefix))
    try:
        checkpoints.copy(prefix, held)
    except (OSError, tf.errors.NotFoundError):
        if checkpoints.prefix_exists(prefix):
            raise
        return None
    return held


def _let_go(folder):
    """Deletes the copy of `_hold`, also one that a killed run left."""
    folder = os.path.join(folder, "eval")
    for name in file_io.listdir(folder):
        if name.startswith("model.ckpt-"):
            file_io.remove(os.path.join(folder, name))


def _wait_for_checkpoints(folder, last_step, wait_secs):
    """[(step, prefix)] after a step; empty if none comes within so many seconds."""
    deadline = time.time() + wait_secs
    while True:
        pending = [(step, prefix) for step, prefix in _with_steps(folder) if step > last_step]
        if pending or time.time() >= deadline:
            return pending
        time.sleep(1)


def _with_steps(folder):
    """[(step, prefix)] of a folder's checkpoints; the best counts unless its original is there."""
    found = {checkpoints.step_of(prefix): prefix for prefix in checkpoints.numbered(folder)}
    best = os.path.join(folder, checkpoints.BEST)
    if checkpoints.prefix_exists(best):
        found.setdefault(checkpoints.read_step(best) or 0, best)
    return sorted(found.items())


def choose(folder, which):
    """Prefix of the checkpoint that ``checkpoint`` names.

    Args:
      folder: output folder.
      which: "best", "last", a path, or None for the best, else the last.

    Raises:
      file_io.InputError: it is not there.
    """
    best, last = os.path.join(folder, checkpoints.BEST), checkpoints.numbered(folder)[-1:]
    if which == "best" or (which is None and checkpoints.prefix_exists(best)):
        return checkpoints.resolve(best)
    if which in ("last", None):
        if not last:
            raise file_io.InputError(f"there is no checkpoint in {folder}; train first")
        return last[0]
    return checkpoints.resolve(which)


def evaluate(engine, input_fn, which=None, wait_secs=0):
    """Evaluates without training: all checkpoints, or the one that ``checkpoint`` names.

    One alone is reported in the log and in the results file; the best checkpoint stays as it is.
    """
    if which in (None, "all"):
        tracker = evaluate_all(engine, input_fn, wait_secs)
        logging.info("Best: step %d, %s", tracker.best_step, tracker.best_value)
        return
    folder = engine.run_config.output_dir
    prefix = distribution.from_chief(engine.strategy, lambda: choose(folder, which))
    checkpoints.restore(engine.model, prefix, allow_new_heads=False)
    report(engine, prefix, engine.evaluate(input_fn))


def report(engine, prefix, metrics):
    """Takes the metrics of one checkpoint, evaluated by itself, to the log and the results file."""
    folder = engine.run_config.output_dir
    lines = _result_lines(metrics, checkpoints.read_step(prefix) or 0)
    logging.info("Results of %s: %s", prefix, ", ".join(lines))
    if distribution.is_chief(engine.strategy):
        file_io.make_dirs(folder)
        file_io.write_text(os.path.join(folder, RESULTS), "\n".join([*lines, _RULE]) + "\n")


def _result_lines(metrics, step):
    values = {**metrics, "global_step": step}
    return [f"{key} = {format_value(value)}" for key, value in sorted(values.items())]
