"""Evaluates checkpoints and writes the results; `best_checkpoint` decides which one is the best.

`evaluate_while_training` evaluates each checkpoint when it is saved, `evaluate` and `evaluate_all`
the checkpoints of an earlier or concurrent run.
"""

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Iterator, Sequence

import tensorflow as tf
from absl import logging

from albert.data.input_pipeline import InputFn
from albert.io import file_io
from albert.model import checkpoints
from albert.training import (
    best_checkpoint,
    contracts,
    distribution,
    results,
    run_record,
    training_log,
)
from albert.training.best_checkpoint import BestTracker, Metrics
from albert.training.engine import Engine

_MAX_NAMES = 4  # variables that a message names


def _stored_step(prefix: str) -> int:
    """Returns the step of the checkpoint `prefix`; 0 if it has none."""
    return checkpoints.read_step(prefix) or 0


@dataclasses.dataclass(frozen=True)
class _ScoredBest:
    """The existing best checkpoint, with its metrics.

    Attributes:
      prefix, step: prefix and step; a better checkpoint may have replaced it since.
      index: content of the index file, which has the checksums of all values.
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
    `extra`, {name: number}, is added to the results.

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


def evaluate_all(engine: Engine, input_fn: InputFn, wait_secs: float = 0) -> BestTracker:
    """Evaluates every checkpoint of the output folder once.

    The best checkpoint comes first and is replaced only by a better one; the others follow by step.

    Args:
      wait_secs: wait for checkpoints of a concurrent training run until none has appeared for
        this many seconds.
    """
    folder, strategy = engine.run_config.output_dir, engine.strategy
    if not distribution.from_chief(
        strategy,
        lambda: bool(checkpoints.find_best(folder) or _wait_for_pending(folder, wait_secs)),
    ):
        raise file_io.InputError(f"there is no checkpoint to evaluate in {folder}; train first")
    tracker = _tracker(engine, resume=False)
    scored = _score_best(engine, input_fn, tracker)

    def find() -> list[tuple[int, str]]:
        return _wait_for_pending(folder, wait_secs, tracker.last_step, scored)

    try:
        while pending := distribution.from_chief(strategy, find):
            _evaluate_next(engine, input_fn, tracker, scored, *pending[0])
    finally:
        if distribution.is_chief(strategy):
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
    """Records one checkpoint of `_wait_for_pending`."""
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
    """Copies a checkpoint to `folder`; returns its prefix there, None if it was deleted."""
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
    """Returns [(step, prefix)] after a step; empty if none appears within `wait_secs`."""
    deadline = time.time() + wait_secs
    while True:
        steps = _list_steps(folder, scored)
        pending = [(step, prefix) for step, prefix in steps if step > last_step]
        if pending or time.time() >= deadline:
            return pending
        time.sleep(1)


def _list_steps(folder: str, scored: _ScoredBest | None) -> list[tuple[int, str]]:
    """Returns [(step, prefix)] of a folder's checkpoints and the scored best (None: no such)."""
    prefixes = {checkpoints.step_of(x) or 0: x for x in checkpoints.numbered(folder)}
    if scored and _is_scored(prefixes.get(scored.step), scored):
        prefixes[scored.step] = scored.prefix
    return sorted(prefixes.items())


def _is_scored(prefix: str | None, scored: _ScoredBest) -> bool:
    """Returns whether a numbered checkpoint is missing (None) or equals the scored best."""
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
      which: "best", "last" or a path; None or "all": all checkpoints.
      wait_secs: see `evaluate_all`.

    Returns:
      `results.Block` of the selected or the best checkpoint; None in workers that do not write, and
      for a checkpoint of another folder, see `report`.
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
    training_log.log_results(folder, name, step, metrics, form, is_chief, run_record.AVERAGE)
    if is_chief:
        metric = engine.task.best_metric
        results.write_average(folder, results.make_block(metrics, step, form=form, metric=metric))


def report(engine: Engine, prefix: str, metrics: Metrics) -> results.Block | None:
    """Reports the scores of one checkpoint in the log and the results file.

    The results of other checkpoints are kept; of one that is foreign there is only a log.

    Returns:
      `results.Block`; None in workers that do not write, or for a foreign checkpoint.
    """
    folder, form = engine.run_config.output_dir, engine.task.results_form
    step, is_chief = _stored_step(prefix), distribution.is_chief(engine.strategy)
    writes = is_chief and not checkpoints.is_foreign(prefix, folder)
    if writes:
        file_io.make_dirs(folder)
        best_checkpoint.quarantine_others(folder, engine.basis())
    training_log.log_results(folder, prefix, step, metrics, form, writes)
    block = results.make_block(metrics, step, form=form, metric=engine.task.best_metric)
    if not writes:
        if is_chief:
            logging.info("%s", results.display(block, form))
            logging.info("%s is of another folder: no file of %s has its results", prefix, folder)
        return None
    blocks = results.read_blocks(folder)
    # An existing block that contains all lines of the new one is kept.
    if not any({*block.text.split("\n")} <= {*other.text.split("\n")} for other in blocks):
        blocks = results.put(blocks, block)
    trial = results.read_trial(folder) if form.has_summary else None
    results.write_blocks(folder, blocks, trial and trial.best_step)
    run_record.set_result(folder, step, metrics, engine.classes)
    run_record.set_evaluated(folder, 1, engine.baseline)
    return block
