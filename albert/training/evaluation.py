"""Evaluates checkpoints, writes the results and keeps the best one as ``model.ckpt-best``.

`evaluate_while_training` evaluates each checkpoint when it is saved, `evaluate` and `evaluate_all`
the checkpoints of an earlier or concurrent run. `BestTracker` keeps track of the best one, and
`BackgroundWriter` saves checkpoints while training continues.
"""

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from typing import Protocol, TypeVar

import numpy as np
import tensorflow as tf
from absl import logging

from albert.data.input_pipeline import InputFn
from albert.io import file_io, log_format
from albert.model import checkpoints
from albert.training import contracts, distribution, optimizers, results, run_record, training_log
from albert.training.evaluation_basis import Basis

Metrics = dict[str, float]  # {name of a score: number}
T = TypeVar("T")
_MAX_NAMES = 4  # variables that a message names


class Config(Protocol):
    """The settings of `engine.RunConfig` that this module reads."""

    @property
    def output_dir(self) -> str:
        """Folder of checkpoints and results."""

    @property
    def early_stopping_patience(self) -> int:
        """Evaluations without improvement after which training ends; 0: disabled."""


class Engine(Protocol):
    """The members of `engine.Engine` that this module uses; that module imports this one.

    Attributes:
      baseline: scores of the best constant answer; None before the first evaluation.
      basis: returns what its evaluations are measured on; None: unknown.
      classes: examples of each class in the last evaluation.
    """

    task: contracts.Task
    model: contracts.Model
    strategy: tf.distribute.Strategy
    baseline: dict[str, float] | None
    basis: Callable[[], Basis | None]
    classes: Sequence[results.ClassCount]

    @property
    def run_config(self) -> Config:
        """The settings of the run."""

    def evaluate(self, input_fn: InputFn) -> dict[str, float]:
        """Returns the metrics of the current weights over all examples."""


class BestTracker:
    """The best evaluated step of a folder, and its result files.

    An existing best checkpoint is replaced only by a better one. If its score is unknown,
    `unscored_best` is its prefix: call `take_best` before `record`. A checkpoint of step 0 with
    random parts is the best only until another one is recorded, whatever its score.

    Args:
      metric: key of the results by which the best is chosen; for losses, lower is better.
      resume: whether to continue the files of an earlier run; else they are written from scratch.
      is_chief: False in the workers that must not write; they do not read files either.
      baseline: function that returns the scores of a constant answer; None if they are unknown.
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
        form: results.Form = results.SHORT,
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
            _quarantine_others(folder, basis)
            self.unscored_best = checkpoints.find_best(folder)
            if resume:
                self._resume()

    def _resume(self) -> None:
        self._blocks = results.read_blocks(self._folder)
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
            stored = self.unscored_best and _stored_step(self.unscored_best)
            return bool(is_score) and trial.best_step == stored
        except file_io.InputError:
            return False  # `_score_best` reports what is wrong with it.

    def _value(self, metrics: Metrics) -> float:
        if self._metric not in metrics:
            raise file_io.InputError(f"no {self._metric} among the results {sorted(metrics)}")
        return float(self._form.number(metrics[self._metric]))

    def _is_untrained(self, step: int | None) -> bool:
        """Returns whether a step has parts with random values; only the chief needs to know."""
        return self._is_chief and step == 0 and bool(self._random_parts())

    def take_best(self, step: int | None, metrics: Metrics) -> None:
        """Sets the metrics of the existing best checkpoint, without writing.

        Args:
          step: its step; None if unknown, as for a model that another program has trained.
        """
        self.best_step, self.best_value = step or 0, self._value(metrics)
        self._best_is_untrained = self._is_untrained(step)
        self.unscored_best = None

    def write_best(self, metrics: Metrics, classes: Sequence[results.ClassCount] = ()) -> None:
        """Adds the metrics of `take_best` to the results of an earlier run.

        Args:
          classes: counts of each class; empty if the task counts none.
        """
        if self._is_chief and self.best_step is not None:
            self._reported_value = self.best_value
            self._write_results(checkpoints.BEST, self.best_step, metrics)
            run_record.set_result(self._folder, self.best_step, metrics, classes)
            run_record.set_evaluated(self._folder, len(self._blocks), self._baseline())

    def record(
        self,
        prefix: str,
        step: int,
        metrics: Metrics,
        classes: Sequence[results.ClassCount] = (),
    ) -> None:
        """Records the metrics of a checkpoint and copies it if it is the best so far.

        Args:
          prefix, step: those of the checkpoint.
          classes: counts of each class; empty if the task counts none.
        """
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
        if is_better:
            run_record.set_result(self._folder, step, metrics, classes)
        run_record.set_evaluated(self._folder, len(self._blocks), self._baseline())
        with file_io.room_for(self._events), self._writer.as_default(step=step):
            for key, number in metrics.items():
                training_log.write_scalar(key, number)
            self._writer.flush()

    def _is_better(self, value: float, best: float | None) -> bool:
        """Returns whether a score replaces the best one, which is None before the first.

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
        """Writes the results of a checkpoint, and which one is the best.

        Args:
          name: prefix or name of the checkpoint.
        """
        _log(self._folder, name, step, metrics, self._form, is_chief=True, best=self._metric)
        block = results.make_block(metrics, step, self._reported_value, self._form, self._metric)
        self._blocks = results.put(self._blocks, block)
        best_step = self.best_step if self._form.has_summary else None
        results.write_blocks(self._folder, self._blocks, best_step)
        # Written last: after a kill before this line the same checkpoint is evaluated again.
        assert self.best_step is not None and self.best_value is not None
        trial = results.Trial(self.last_step, self.best_step, self.best_value)
        results.write_trial(self._folder, trial)


def _log(
    folder: str,
    name: str,
    step: int,
    metrics: Metrics,
    form: results.Form,
    is_chief: bool,
    kind: str = run_record.EVAL,
    best: str | None = None,
) -> None:
    """Writes the results of a checkpoint to the log and, in the chief, to ``metrics.jsonl``.

    On a terminal these are the scores of the reference and the one that chooses the `best`.

    Args:
      folder: output folder.
      name: prefix or name of the checkpoint.
      kind: see `run_record.append_evaluation`.
      best: metric that chooses the best checkpoint; None: not shown.
    """
    if log_format.is_short():
        text = results.short_line(metrics, form, best)
    else:
        text = ", ".join(map(results.in_words, results.lines(metrics, step, form)))
    logging.info("Results of %s: %s", name, text)
    if is_chief:
        run_record.append_evaluation(folder, step, name, metrics, kind)


def _stored_step(prefix: str) -> int:
    return checkpoints.read_step(prefix) or 0


@dataclasses.dataclass(frozen=True)
class _ScoredBest:
    """The existing best checkpoint, with its metrics.

    Attributes:
      prefix, step: prefix and step; a better checkpoint may have replaced it since.
      index: content of the index file, which has the checksums of all values.
      metrics, classes: metrics of the checkpoint, and counts of the classes.
    """

    prefix: str
    step: int
    index: bytes
    metrics: Metrics
    classes: Sequence[results.ClassCount]


def _score_best(engine: Engine, input_fn: InputFn, tracker: BestTracker) -> _ScoredBest | None:
    """Evaluates an existing best checkpoint with unknown score; returns None if there is none.

    Afterwards the model has its weights. All workers must call this function.
    """
    prefix = distribution.from_chief(engine.strategy, lambda: tracker.unscored_best)
    if not prefix:
        return None
    logging.info("The score of %s is unknown: evaluating it first", prefix)
    try:
        checkpoints.restore(engine.model, prefix, allow_new_heads=False)
        step, index = _stored_step(prefix), _read_index(prefix)
    except file_io.InputError as error:
        raise file_io.InputError(
            f"{error}. {prefix} is replaced only by a better checkpoint, but it cannot be "
            "evaluated: move it away, or use another output_dir"
        ) from error
    metrics = engine.evaluate(input_fn)
    tracker.take_best(checkpoints.read_step(prefix), metrics)
    return _ScoredBest(prefix, step, index, metrics, engine.classes)


def _read_index(prefix: str) -> bytes:
    with file_io.open_file(f"{prefix}.index", "rb") as file:
        return bytes(file.read())


@contextlib.contextmanager
def _preserving_weights(model: contracts.Model) -> Iterator[None]:
    """Restores the model's current weights at the end of the block."""
    values = [variable.numpy() for variable in model.variables]
    yield
    for variable, value in zip(model.variables, values, strict=True):
        variable.assign(value)


def find_best_block(engine: Engine) -> results.Block | None:
    """Returns the `results.Block` of the output folder's best checkpoint; None if unknown."""
    if not distribution.is_chief(engine.strategy):
        return None
    folder = engine.run_config.output_dir
    if (trial := results.read_trial(folder)) is None:
        return None
    blocks = results.read_blocks(folder)
    return next((block for block in blocks if block.step == trial.best_step), None)


def warn_of_start(engine: Engine, best: results.Block) -> None:
    """Warns if step 0 has a better score than the best checkpoint; it had random parts."""
    folder, metric = engine.run_config.output_dir, engine.task.best_metric
    value = best.values.get(metric)
    start = results.find_better_start(results.read_blocks(folder), value, metric)
    if start is not None and (parts := checkpoints.random_parts(folder, engine.model)):
        names = ", ".join(parts[:_MAX_NAMES])
        more = f" and {len(parts) - _MAX_NAMES} more" if len(parts) > _MAX_NAMES else ""
        logging.warning(
            "Step 0, before training, has a better %s (%.4f) than step %s (%.4f). It is not "
            "chosen, because these variables had random values: %s%s",
            metric,
            start,
            best.step,
            value,
            names,
            more,
        )


def evaluate_while_training(
    engine: Engine, input_fn: InputFn, extra: dict[str, float] | None = None
) -> Callable[[str, int], bool]:
    """Makes a callback for `Engine.train` that evaluates each checkpoint.

    Every checkpoint is evaluated when it is saved, even if few are kept. All workers evaluate; the
    chief decides which checkpoints are new, and writes. An existing best checkpoint with unknown
    score is evaluated first.

    Args:
      extra: {name: number} to add to the results; None: nothing.

    Returns:
      ``(prefix, step)`` -> whether training must end.
    """
    patience = engine.run_config.early_stopping_patience
    tracker = _tracker(engine, resume=True)
    with _preserving_weights(engine.model):
        scored = _score_best(engine, input_fn, tracker)
    if scored:
        tracker.write_best(scored.metrics, scored.classes)

    def on_checkpoint(prefix: str, step: int) -> bool:
        """Evaluates a new checkpoint; returns whether training must end."""
        if distribution.from_chief(engine.strategy, lambda: step > tracker.last_step):
            logging.info("Evaluating %s", os.path.basename(prefix))
            metrics = {**engine.evaluate(input_fn), **(extra or {})}
            tracker.record(prefix, step, metrics, engine.classes)
        stale = patience and distribution.from_chief(engine.strategy, tracker.since_best)
        if not patience or stale < patience:
            return False
        logging.info("Early stopping: no improvement in the last %d evaluations", stale)
        return True

    return on_checkpoint


def _tracker(engine: Engine, resume: bool) -> BestTracker:
    """Returns the tracker of the engine's folder; `resume`: it continues an earlier run's files."""
    folder, is_chief = engine.run_config.output_dir, distribution.is_chief(engine.strategy)
    task = engine.task
    return BestTracker(
        folder,
        task.best_metric,
        resume,
        is_chief,
        lambda: engine.baseline,
        task.results_form,
        lambda: checkpoints.random_parts(folder, engine.model),
        engine.basis() if is_chief else None,
    )


def _quarantine_others(folder: str, basis: Basis | None) -> None:
    """Sets results aside that were measured on another basis, so that they do not compete.

    Args:
      basis: that of this run; None: unknown.
    """
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


def evaluate_all(engine: Engine, input_fn: InputFn, wait_secs: float = 0) -> BestTracker:
    """Evaluates every checkpoint of the output folder once.

    The best checkpoint comes first and is replaced only by a better one; the others follow by step.

    Args:
      wait_secs: wait for checkpoints of a concurrent training run until none has appeared for
        this many seconds.
    """
    folder = engine.run_config.output_dir

    def from_chief(make: Callable[[], T]) -> T:
        return distribution.from_chief(engine.strategy, make)

    if not from_chief(
        lambda: bool(checkpoints.find_best(folder) or _wait_for_pending(folder, wait_secs))
    ):
        raise file_io.InputError(f"there is no checkpoint to evaluate in {folder}; train first")
    tracker = _tracker(engine, resume=False)
    scored = _score_best(engine, input_fn, tracker)

    def find() -> list[tuple[int, str]]:
        return _wait_for_pending(folder, wait_secs, tracker.last_step, scored)

    try:
        while pending := from_chief(find):
            _evaluate_next(engine, input_fn, tracker, scored, *pending[0])
    finally:
        if distribution.is_chief(engine.strategy):
            _delete_copy(folder)
    if tracker.best_step is None:
        raise file_io.InputError(
            f"every checkpoint of {folder} was deleted before it could be evaluated; let the "
            "trainer keep more (keep_checkpoint_max) or save fewer"
        )
    return tracker


def _evaluate_next(
    engine: Engine,
    input_fn: InputFn,
    tracker: BestTracker,
    scored: _ScoredBest | None,
    step: int,
    prefix: str,
) -> None:
    """Records one checkpoint of `_wait_for_pending`.

    Args:
      scored: the existing best checkpoint, whose score is known; None without one.
      step, prefix: those of the checkpoint.
    """
    if scored and prefix == scored.prefix:
        tracker.record(prefix, step, scored.metrics, scored.classes)
        return
    folder = engine.run_config.output_dir
    copy = distribution.from_chief(engine.strategy, lambda: _make_copy(folder, prefix))
    if copy:
        checkpoints.restore(engine.model, copy, allow_new_heads=False)
        metrics = engine.evaluate(input_fn)
        tracker.record(copy, step, metrics, engine.classes)
    else:
        logging.warning("%s was deleted before it could be evaluated: skipped", prefix)
        tracker.last_step = step


def _make_copy(folder: str, prefix: str) -> str | None:
    """Copies a checkpoint, as a concurrent trainer may delete it.

    Returns:
      The prefix of the copy in `folder`; None if the checkpoint is missing.
    """
    _delete_copy(folder)
    target = os.path.join(folder, "eval", os.path.basename(prefix))
    try:
        checkpoints.copy(prefix, target)
    except (OSError, tf.errors.NotFoundError):
        if checkpoints.prefix_exists(prefix):
            raise
        return None
    return target


def _delete_copy(folder: str) -> None:
    """Deletes the copies made by `_make_copy`, also in a killed run."""
    folder = os.path.join(folder, "eval")
    for name in file_io.listdir(folder):
        if name.startswith("model.ckpt-"):
            file_io.remove(os.path.join(folder, name))


def _wait_for_pending(
    folder: str, wait_secs: float, last_step: int = -1, scored: _ScoredBest | None = None
) -> list[tuple[int, str]]:
    """Returns [(step, prefix)] after a step; empty if none appears within `wait_secs`.

    Args:
      last_step: the step; -1: all checkpoints.
      scored: the existing best checkpoint, which is among them; None without one.
    """
    deadline = time.time() + wait_secs
    while True:
        steps = _list_steps(folder, scored)
        pending = [(step, prefix) for step, prefix in steps if step > last_step]
        if pending or time.time() >= deadline:
            return pending
        time.sleep(1)


def _list_steps(folder: str, scored: _ScoredBest | None) -> list[tuple[int, str]]:
    """Returns [(step, prefix)] of a folder's checkpoints and the scored best, once each."""
    prefixes = {checkpoints.step_of(x) or 0: x for x in checkpoints.numbered(folder)}
    if scored and _is_scored(prefixes.get(scored.step), scored):
        prefixes[scored.step] = scored.prefix
    return sorted(prefixes.items())


def _is_scored(prefix: str | None, scored: _ScoredBest) -> bool:
    """Returns whether a numbered checkpoint is missing or equals the scored best."""
    try:
        return prefix is None or _read_index(prefix) == scored.index
    except (OSError, tf.errors.NotFoundError):
        return True  # a trainer has just deleted it


def evaluate(
    engine: Engine, input_fn: InputFn, which: str | None = None, wait_secs: float = 0
) -> results.Block | None:
    """Evaluates without training: all checkpoints, or a selected one.

    A single checkpoint is reported in the log and the results file; the best one is not changed.

    Args:
      which: see `checkpoints.choose`; None or "all": all checkpoints.
      wait_secs: see `evaluate_all`.

    Returns:
      `results.Block` of the selected or the best checkpoint; None in workers that do not write.
    """
    folder = engine.run_config.output_dir
    if which in (None, "all"):
        tracker = evaluate_all(engine, input_fn, wait_secs)
        logging.info("Best: step %d, %s", tracker.best_step, tracker.best_value)
        return find_best_block(engine)
    prefix = distribution.from_chief(engine.strategy, lambda: checkpoints.choose(folder, which))
    checkpoints.restore(engine.model, prefix, allow_new_heads=False)
    return report(engine, prefix, engine.evaluate(input_fn))


def evaluate_average(engine: Engine, input_fn: InputFn, prefix: str) -> None:
    """Evaluates the averaged weights of this run and writes ``average_results.txt``.

    They do not take part in the choice of the best checkpoint. Afterwards the model has them.

    Args:
      prefix: their checkpoint, see `engine.Engine.train`.
    """
    folder, form = engine.run_config.output_dir, engine.task.results_form
    step = distribution.from_chief(engine.strategy, lambda: _stored_step(prefix))

    def is_evaluated() -> bool:
        blocks = results.read_blocks(folder, results.AVERAGE_RESULTS)
        return any(block.step == step for block in blocks)

    if distribution.from_chief(engine.strategy, is_evaluated):
        return
    checkpoints.restore(engine.model, prefix, allow_new_heads=False)
    metrics = engine.evaluate(input_fn)
    is_chief = distribution.is_chief(engine.strategy)
    name = os.path.basename(prefix)
    _log(folder, name, step, metrics, form, is_chief, run_record.AVERAGE)
    if is_chief:
        metric = engine.task.best_metric
        results.write_average(folder, results.make_block(metrics, step, form=form, metric=metric))


def report(engine: Engine, prefix: str, metrics: Metrics) -> results.Block | None:
    """Reports the scores of one checkpoint in the log and the results file.

    The results of other checkpoints are kept.

    Args:
      prefix: that of the checkpoint.

    Returns:
      `results.Block`; None in workers that do not write.
    """
    folder, form = engine.run_config.output_dir, engine.task.results_form
    step, is_chief = _stored_step(prefix), distribution.is_chief(engine.strategy)
    if is_chief:
        file_io.make_dirs(folder)
        _quarantine_others(folder, engine.basis())
    _log(folder, prefix, step, metrics, form, is_chief)
    if not is_chief:
        return None
    block = results.make_block(metrics, step, form=form, metric=engine.task.best_metric)
    blocks = results.read_blocks(folder)
    # An existing block that contains all lines of the new one is kept.
    if not any({*block.text.split("\n")} <= {*other.text.split("\n")} for other in blocks):
        blocks = results.put(blocks, block)
    trial = results.read_trial(folder) if form.has_summary else None
    results.write_blocks(folder, blocks, trial and trial.best_step)
    run_record.set_result(folder, step, metrics, engine.classes)
    run_record.set_evaluated(folder, 1, engine.baseline)
    return block


# --- checkpoints written in the background --------------------------------------------------------


class BackgroundWriter:
    """A writer that saves checkpoints in sequence while training continues.

    As a context manager it finishes the last checkpoint, even after an error.
    """

    def __init__(self) -> None:
        self._pool = futures.ThreadPoolExecutor(1)
        self._last: futures.Future[None] | None = None

    def __enter__(self) -> "BackgroundWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Waits for the last checkpoint; logs its error if the block ended with another."""
        if kind is None:
            self.wait()
        self._pool.shutdown()
        if self._last is not None and (error := self._last.exception()):
            logging.error("%s", error)  # in addition to the error that ends the block

    def save(
        self,
        prefix: str,
        model: contracts.Model,
        optimizer: optimizers.Optimizer,
        then: Callable[[], None],
    ) -> None:
        """Saves like `checkpoints.save`, but only waits until the values are copied.

        Args:
          prefix, model, optimizer: see `checkpoints.save`.
          then: function without arguments, called when the checkpoint is complete.
        """
        self.wait()
        values = checkpoints.values_of(model, optimizer)

        def write() -> None:
            checkpoints.write_tensors(prefix, values, with_meta=True)
            then()

        self._last = self._pool.submit(write)

    def wait(self) -> None:
        """Waits for the last checkpoint.

        Raises:
          file_io.InputError: the checkpoint could not be written.
        """
        last, self._last = self._last, None
        if last is not None:
            last.result()

    def check(self) -> None:
        """Raises the error of `wait` if the last checkpoint has already failed; does not wait."""
        if self._last is not None and self._last.done():
            self.wait()
