"""The stages of a fine-tuning script: train, evaluate, predict, on records made once and kept."""

import dataclasses
import os
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from absl import logging

from albert import (
    checkpoint_walk,
    checkpoints,
    distribution,
    engine,
    file_io,
    model_folder,
    records,
)


@dataclasses.dataclass(frozen=True)
class Job:
    """What a fine-tuning run works on.

    Attributes:
      task: `task.Task`.
      model_config: `modeling.AlbertConfig`.
      run_config: `engine.RunConfig`.
      strategy: `tf.distribute.Strategy`.
      init_checkpoint: prefix of the weights to start from, or None.
      from_scratch: start from random weights.
      make_optimizer: function without arguments.
      complete_folder: function that makes the output folder usable by itself with the function it
        is given: `model_folder.write` before training, else `model_folder.write_if_absent`.

    The rest says where `run` finds its data; not needed where only `train` is called:
      data_dir: folder that `task.examples` reads.
      max_seq_length: S.
      settings: JSON-ready dict of what the features depend on, beside the data.
      fingerprint: ``(split) -> JSON-ready dict`` that identifies the data of a split.
      cached_dir: folder of the records for training and evaluation.
      record_files: {split: path} of records that do not go by their default names.
    """

    task: Any
    model_config: Any
    run_config: Any
    strategy: Any
    init_checkpoint: str | None
    from_scratch: bool
    make_optimizer: Callable[[], Any]
    complete_folder: Callable[[Callable], Any] = lambda write: None
    data_dir: str | None = None
    max_seq_length: int | None = None
    settings: dict | None = None
    fingerprint: Callable[[str], dict] | None = None
    cached_dir: str | None = None
    record_files: dict = dataclasses.field(default_factory=dict)

    @property
    def specs(self):
        return self.task.feature_specs(self.max_seq_length)


def check_start(job, do_train, do_eval, do_predict):
    """Refuses before any work on the data what the stages of a run could not do.

    Raises:
      file_io.InputError: no checkpoint of this run, no weights named and no --from_scratch; or the
        batches cannot be dealt as asked, see `engine.training_batch` and `engine.check_batches`.
    """
    stages = {"eval_batch_size": do_eval, "predict_batch_size": do_predict}
    needed = [name for name, is_needed in stages.items() if is_needed]
    engine.check_batches(job.run_config, job.strategy, *needed)
    if not do_train:
        return
    engine.training_batch(job.run_config, job.strategy)
    if not (
        job.init_checkpoint or job.from_scratch or checkpoints.numbered(job.run_config.output_dir)
    ):
        raise file_io.InputError(
            "no weights to start from: give --init_checkpoint or --albert_hub_module_handle, or "
            "--from_scratch to start from random weights"
        )


def prepare(job, split, name, folder=None):
    """Path of the records of a split, made unless they are there already."""
    path = job.record_files.get(split) or os.path.join(folder or job.cached_dir, name)
    file_io.make_dirs(os.path.dirname(path) or ".")

    def rows():
        for example in job.task.examples(job.data_dir, split):
            yield from job.task.featurize(example)

    settings = {**job.settings, "task": job.task.name, "split": split, **job.fingerprint(split)}
    # Workers on the chief's file system use its file; others make their own, which is the same.
    with distribution.chief_first(job.strategy):
        count = records.cached(path, job.specs, settings, rows)
    if not count:
        raise file_io.InputError(f"the {split} data of {job.task.name} holds no example")
    return path


def run(job, do_train, do_eval, do_predict, checkpoint=None, eval_wait_secs=0):
    """Runs the stages that were asked for.

    Args:
      job: `Job`.
      do_train: train; with `do_eval` each checkpoint is evaluated as it is saved.
      do_eval: evaluate and keep the best checkpoint.
      do_predict: write the predictions for the test data.
      checkpoint: which one to evaluate or predict with; see `checkpoint_walk.choose`.
      eval_wait_secs: see `checkpoint_walk.evaluate_all`.

    Returns:
      The `engine.Engine`.
    """
    file_io.make_dirs(job.run_config.output_dir)
    check_start(job, do_train, do_eval, do_predict)
    paths = {}
    if do_train:
        paths["train"] = prepare(job, "train", f"{job.task.name}_train.tf_record")
        if distribution.is_chief(job.strategy):
            job.complete_folder(model_folder.write)
    if do_eval:
        paths["dev"] = prepare(job, "dev", f"{job.task.name}_eval.tf_record")
    if do_predict:
        paths["test"] = prepare(job, "test", "predict.tf_record", job.run_config.output_dir)
    runner = engine.Engine(job.task, job.model_config, job.run_config, job.strategy)
    with records.damage_reported(paths.values()):
        eval_input = records.eval_input_fn([paths["dev"]], job.specs) if do_eval else None
        if do_train:
            train_input = records.train_input_fn([paths["train"]], job.specs, job.run_config.seed)
            train(job, runner, train_input, eval_input)
        elif do_eval:
            checkpoint_walk.evaluate(runner, eval_input, checkpoint, eval_wait_secs)
        if do_predict:
            _predict(job, runner, paths["test"], checkpoint)
    return runner


def train(job, runner, train_input, eval_input=None):
    """Trains; with an evaluation input each checkpoint is evaluated as it is saved."""
    evaluate = eval_input and checkpoint_walk.evaluate_while_training(runner, eval_input)
    initialize = lambda model: _initialize(job, model)  # noqa: E731
    runner.train(train_input, job.make_optimizer, initialize, evaluate)


def _initialize(job, model):
    return checkpoints.restore(model, job.init_checkpoint) if job.init_checkpoint else None


def load(runner, checkpoint=None):
    """Loads the checkpoint that a flag names (default: the best, else the last); its prefix."""
    folder = runner.run_config.output_dir
    prefix = distribution.from_chief(
        runner.strategy, lambda: checkpoint_walk.choose(folder, checkpoint)
    )
    checkpoints.restore(runner.model, prefix, allow_new_heads=False)
    logging.info("Using %s", prefix)
    return prefix


def complete_folder(job, do_train, checkpoint):
    """Adds what the output folder lacks, such as one that another program has trained.

    Called at the end of a run that succeeded; training completes its folder before the first
    checkpoint. What cannot be written is a warning: the run has done what it was asked for.

    Args:
      job: `Job`.
      do_train: whether the run trained; nothing is done then.
      checkpoint: the one that was used, as the flag names it; one of another folder says nothing
        about this.
    """
    folder = job.run_config.output_dir
    if do_train or not distribution.is_chief(job.strategy):
        return
    try:
        used = checkpoint_walk.choose(folder, None if checkpoint == "all" else checkpoint)
        if os.path.abspath(os.path.dirname(used)) == os.path.abspath(folder):
            job.complete_folder(model_folder.write_if_absent)
    except (OSError, tf.errors.OpError, file_io.InputError) as error:
        logging.warning("%s could not be completed for use by itself: %s", folder, error)


def _predict(job, runner, path, checkpoint):
    load(runner, checkpoint)
    rows = runner.predict(records.eval_input_fn([path], job.specs))
    if distribution.is_chief(job.strategy):
        rows["guid"] = [example.guid for example in job.task.examples(job.data_dir, "test")]
        job.task.write_predictions(job.run_config.output_dir, rows)
