"""Decides which checkpoint of a run is the best, and keeps it as ``model.ckpt-best``."""

import os
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from albert.io import file_io
from albert.model import checkpoints, model_folder
from albert.model import decision as decisions
from albert.training import results, run_record, training_log
from albert.training.evaluation_basis import Basis

Metrics = dict[str, float]  # {name of a score: number}


class BestTracker:
    """The best evaluated step of a folder, and its result files.

    An existing best checkpoint is replaced only by a better one. If its score is unknown,
    `unscored_best` is its prefix: call `take_best` before `record`. A checkpoint of step 0 with
    random parts is the best only until another one is recorded, whatever its score.

    Args:
      metric: key of the results by which the best is chosen; for losses, lower is better.
      resume: whether the checkpoints up to the last evaluated step keep their scores; else each
        that is recorded is new, and only those that exist no more keep their results.
      is_chief: False in the workers that must not write; they do not read files either.
      baseline: returns {name: score} of a constant answer; None if they are unknown.
      random_parts: function that returns the names of variables that had random values at step 0.
      basis: what the scores are measured on; results on another basis are set aside. None: unknown.
    """

    def __init__(
        self,
        folder: str,
        metric: str,
        resume: bool,
        is_chief: bool = True,
        baseline: Callable[[], dict[str, float] | None] = lambda: None,
        form: results.ResultsFormat = results.SHORT,
        random_parts: Callable[[], list[str]] = list,
        basis: Basis | None = None,
    ) -> None:
        self._folder = folder
        self._random_parts = random_parts
        self._best_is_untrained = False
        self._baseline = baseline
        self._metric = metric
        self._form = form
        self._sign = -1.0 if results.is_loss(metric) else 1.0
        self._is_chief = is_chief
        self.last_step = -1
        self.best_step: int | None = None
        self.best_value: float | None = None
        self.unscored_best: str | None = None
        self._reported_value: float | None = None  # the best among the blocks of the results
        self._blocks: list[results.Block] = []
        if is_chief:
            self._events = os.path.join(folder, "eval")
            file_io.make_dirs(self._events)
            with file_io.room_for(self._events):
                self._writer = tf.summary.create_file_writer(self._events)
            checkpoints.complete_best(folder)
            quarantine_others(folder, basis)
            self.unscored_best = checkpoints.find_best(folder)
            self._blocks = results.read_blocks(folder)
            if resume:
                self._resume()

    def _resume(self) -> None:
        try:
            trial = results.read_trial(self._folder)
        except file_io.InputError as error:
            logging.warning("Not used: %s", error)
            return
        if trial is None:
            return
        self.last_step = trial.last_step
        if self.unscored_best and self._is_score_of_best(trial):
            self.unscored_best = None
            self.best_step, self.best_value = trial.best_step, trial.best_value
            best = checkpoints.find_best(self._folder)
            self._best_is_untrained = best is not None and self._is_untrained(
                checkpoints.read_step(best)
            )
            self._reported_value = self.best_value

    def _is_score_of_best(self, trial: results.Trial) -> bool:
        """Returns whether a trial is of the existing best checkpoint and of this metric."""
        # The file does not name the metric; the results of that step do.
        blocks = [block for block in self._blocks if block.step == trial.best_step]
        value = blocks[0].values.get(self._metric, np.nan) if blocks else np.nan
        with np.errstate(over="ignore"):
            value, best_value = np.float32(value), np.float32(trial.best_value)
        is_score = np.isfinite(value) and value == best_value
        try:
            stored = self.unscored_best and (checkpoints.read_step(self.unscored_best) or 0)
            return bool(is_score) and trial.best_step == stored
        except file_io.InputError:
            return False  # `_score_best` reports what is wrong with it.

    def _value(self, metrics: Metrics) -> float:
        """Returns the score by which checkpoints are compared, from {name: score}."""
        if self._metric not in metrics:
            raise file_io.InputError(f"no {self._metric} among the results {sorted(metrics)}")
        return float(self._form.number(metrics[self._metric]))

    def _is_untrained(self, step: int | None) -> bool:
        """Returns whether a step (None: unknown) has random parts; only the chief needs to know."""
        return self._is_chief and step == 0 and bool(self._random_parts())

    def take_best(self, step: int | None, metrics: Metrics) -> None:
        """Sets the metrics of the existing best checkpoint, without writing; step None: unknown."""
        self.best_step, self.best_value = step or 0, self._value(metrics)
        self._best_is_untrained = self._is_untrained(step)
        self.unscored_best = None

    def write_best(self, metrics: Metrics, classes: Sequence[results.ClassCount] = ()) -> None:
        """Adds the metrics of `take_best` to the results of an earlier run."""
        if self._is_chief and self.best_step is not None:
            self._reported_value = self.best_value
            self._write_results(checkpoints.BEST, self.best_step, metrics)
            run_record.set_result(self._folder, self.best_step, metrics, classes)
            run_record.set_evaluated(self._folder, len(self._blocks), self._baseline())

    def record(
        self, prefix: str, step: int, metrics: Metrics, classes: Sequence[results.ClassCount] = ()
    ) -> None:
        """Records the metrics of a checkpoint and copies it if it is the best so far."""
        value, is_untrained = self._value(metrics), self._is_untrained(step)
        is_better = self.best_step is None or self._best_is_untrained > is_untrained
        if self._best_is_untrained == is_untrained:
            is_better |= self._is_better(value, self.best_value)
        if is_better:
            self.best_step, self.best_value = step, value
            self._best_is_untrained = is_untrained
        if self._is_better(value, self._reported_value):
            self._reported_value = value
        self.last_step = step
        if not self._is_chief:
            return
        if is_better:
            # The old score must not be read as that of the new checkpoint.
            results.remove_trial(self._folder)
            checkpoints.replace_best(self._folder, prefix)
        self._write_results(os.path.basename(prefix), step, metrics)
        if step == self.best_step:  # also if it was the best before this session
            run_record.set_result(self._folder, step, metrics, classes)
        run_record.set_evaluated(self._folder, len(self._blocks), self._baseline())
        with file_io.room_for(self._events), self._writer.as_default(step=step):
            for key, number in metrics.items():
                training_log.write_scalar(key, number)
            self._writer.flush()

    def _is_better(self, value: float, best: float | None) -> bool:
        """Returns whether a score, `value`, replaces the best one, which is None before the first.

        Any number is better than None or NaN. Of several NaN the last one counts.
        """
        if best is None or np.isnan(best):
            return True
        return self._sign * value > self._sign * best

    def since_best(self) -> int:
        """Returns the number of evaluated checkpoints after the best one."""
        if self.best_step is None:
            return 0
        steps = [block.step for block in self._blocks if block.step is not None]
        return sum(step > self.best_step for step in steps)

    def _write_results(self, name: str, step: int, metrics: Metrics) -> None:
        """Writes the results of a checkpoint, its name or prefix, and which one is the best."""
        training_log.log_results(
            self._folder, name, step, metrics, self._form, is_chief=True, best=self._metric
        )
        block = results.make_block(metrics, step, self._reported_value, self._form, self._metric)
        decision = model_folder.described_decision(self._folder)
        if decision != decisions.PLAIN and step == (decision.step or 0):
            block = results.keep_lines(self._blocks, block)  # of the calibration, still in use
        self._blocks = results.put(self._blocks, block)
        best_step = self.best_step if self._form.has_summary else None
        results.write_blocks(self._folder, self._blocks, best_step)
        # Written last: after a kill before this line the same checkpoint is evaluated again.
        assert self.best_step is not None and self.best_value is not None
        trial = results.Trial(self.last_step, self.best_step, self.best_value)
        results.write_trial(self._folder, trial)


def quarantine_others(folder: str, basis: Basis | None) -> None:
    """Sets aside results in a folder that were measured on another basis (None: unknown)."""
    differences = run_record.read_differences(folder, basis) if basis else []
    if differences:
        logging.warning(
            "The results in %s were measured on something else (%s): they are set aside, and the "
            "best checkpoint is evaluated again",
            folder,
            "; ".join(differences),
        )
        results.quarantine(folder)
        run_record.quarantine_evaluations(folder)
    if basis:
        run_record.set_basis(folder, basis)
