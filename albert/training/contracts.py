"""The interfaces between tasks, models and the engine.

The engine trains, evaluates and predicts any `Task` without knowing which one it is; `stages.run`
does the same with any `Task` and its `Data`. Modules that read data import this module, so only the
functions that make records import TensorFlow.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from absl import logging

from albert.data.input_options import EvalInput, Tensors, TrainInput
from albert.data.tfrecord import FeatureSpec
from albert.io import file_io
from albert.model.configuration import AlbertConfig
from albert.text import model_inputs
from albert.training import results

if TYPE_CHECKING:
    import tensorflow as tf

    from albert.model.layers import Compute
    from albert.training.optimizers import Pace

NO_LIMIT = 2**31 - 1  # number of steps
Rows = Mapping[str, np.ndarray]  # outputs of examples, which are the first axis of each array


class Model(Protocol):
    """A model as the engine trains it: `heads.Model`, or one with a teacher."""

    @property
    def config(self) -> AlbertConfig:
        """The sizes of the model."""

    @property
    def variables(self) -> Sequence["tf.Variable"]:
        """All variables, which checkpoints contain."""

    @property
    def used_variables(self) -> Sequence["tf.Variable"]:
        """The variables that the loss depends on."""

    @property
    def trained_variables(self) -> Sequence["tf.Variable"]:
        """The variables that training changes."""

    def __call__(
        self, features: Tensors, training: bool = False, seed: "tf.Tensor | None" = None
    ) -> dict[str, "tf.Tensor"]:
        """Returns the outputs of a batch; the seed [2] draws the dropout."""

    def loss_weights(self, features: Tensors) -> Tensors:
        """Returns the total weight of a batch in each loss term, from inputs only: scalars."""

    def losses(
        self, outputs: Tensors, features: Tensors, weights: Tensors | None = None
    ) -> Tensors:
        """Returns the loss terms of a batch: scalars, see `heads.Model.losses`."""

    def total(self, losses: Tensors) -> "tf.Tensor":
        """Returns the scalar that training minimizes."""

    def prepare_weights(self) -> list["tf.Tensor"]:
        """Returns the weights in the form that inference reads, for all batches."""

    def use_weights(self, weights: list["tf.Tensor"]) -> AbstractContextManager:
        """Uses prepared weights in place of variables inside the block."""


class Evaluator(Protocol):
    """Computes the metrics of a task over the examples of an evaluation."""

    def update(self, rows: dict[str, np.ndarray]) -> None:
        """Adds the rows of `Task.eval_outputs` for some examples."""

    def result(self) -> dict[str, float]:
        """Returns the metrics of all examples."""

    def baseline(self) -> dict[str, float]:
        """Returns the known scores of the best constant answer."""

    def classes(self) -> Sequence[results.ClassCount]:
        """Returns the examples of each class; none if the answers are no classes."""


class Hook:
    """Follows a training run from step to step; does nothing by default.

    Attributes:
      pace: plan that the learning rate follows; None: the rate depends on the steps alone.
    """

    pace: "Pace | None" = None

    @property
    def knows_end(self) -> bool:
        """Whether the last step is known, not only an upper bound."""
        return True

    def resume(self, step: int) -> int | None:
        """Resumes from a step; returns the last step of training if it moves, else None."""

    def steps_to_stop(self, step: int) -> int:
        """Returns the maximum number of steps before the next `update`; they begin now."""
        del step
        return NO_LIMIT

    def update(self, step: int) -> int | None:
        """Records the end of some steps; returns the last step of training if it moves."""

    def observe(self, step: int, signals: Rows) -> None:
        """Takes the sums of the task's `learning_signals` over the steps since the last call."""

    def save(self, step: int) -> None:
        """Records that a checkpoint is about to be saved."""


def no_metrics(outputs: Tensors, features: Tensors) -> dict[str, "tf.Tensor"]:
    """Returns no metrics, for tasks that log only losses and are not judged."""
    return {}


@dataclasses.dataclass(frozen=True)
class Task:
    """The interface between a task and the engine.

    Attributes:
      name: short lower-case name; part of the names of cached files.
      build_model: makes the model of a configuration and a seed.
      eval_outputs: ``(outputs, features) -> dict`` of tensors whose first axis is B: the
        input of evaluators and prediction writers. They are computed in the compiled step and
        should be small.
      evaluator: makes the evaluator of one evaluation.
      train_metrics: ``(outputs, features) -> dict of (sum, weight)`` scalar pairs for the training
        log, computed inside the compiled step.
      best_metric: key of the evaluator's result by which the best checkpoint is chosen.
      extra_metrics: scores of the model on other data, which are added to the evaluator's scores
        in each evaluation.
      metrics: keys of the evaluator's result that `metric_for_best` accepts.
      learning_signals: ``(outputs, features) -> dict`` of statistics of a training batch that show
        whether the model learns: tensors of fixed shapes that add up.
      results_form: format of the results.
      training_means: names of training losses and metrics. Each evaluation also reports their means
        since the last evaluation, as ``train_<name>``.
    """

    name: str
    build_model: Callable[[AlbertConfig, "Compute", int], Model]
    eval_outputs: Callable[[Tensors, Tensors], dict[str, "tf.Tensor"]]
    evaluator: Callable[[], Evaluator]
    train_metrics: Callable[[Tensors, Tensors], Mapping[str, tuple["tf.Tensor", "tf.Tensor"]]]
    best_metric: str
    extra_metrics: Callable[[Model], dict[str, float]] = lambda model: {}
    metrics: Sequence[str] = ()
    learning_signals: Callable[[Tensors, Tensors], Tensors] = no_metrics
    training_means: Sequence[str] = ()
    results_form: results.Form = results.SHORT


@dataclasses.dataclass(frozen=True)
class Data:
    """The examples of a task and the writer of its predictions.

    Splits are "train", "dev" (evaluation) and "test" (prediction).

    Attributes:
      specs: ``(split) -> tuple of input_pipeline.FeatureSpec``, which write and parse its records.
      records: ``(split) -> list of paths`` of TFRecord files, which are created if missing.
      ids: ``(split) -> list`` of the ids of examples to predict, in the order of the records.
      write_predictions: ``(output_dir, rows, ids, prefix)``: writes the prediction files. rows is a
        dict of numpy arrays in the order of the records, prefix the checkpoint that computed them.
        Returns the scores of the predictions, or None if there are no labels.
      reading: ``(paths) -> context manager`` in which the records are read; its errors name the
        file of an invalid record.
      train_input, eval_input: options of the input pipelines for training, and for evaluation and
        prediction.
      files: ``(split) -> list of paths`` of the source files of the examples.
      limits: {feature: upper limit (exclusive) of its integers} of the task; the limits of the
        model are in `record_values`.
      check: ``(features) -> features`` of a batch as read; rejects invalid values.
      predicts_dev: whether predictions are made for the evaluation examples, so that the scores of
        the predictions are also an evaluation.
      words_per_token: words per token in the training records; None: unknown.
    """

    specs: Callable[[str], Sequence[FeatureSpec]]
    records: Callable[[str], list[str]]
    ids: Callable[[str], list]
    write_predictions: Callable[[str, Rows, list, str], dict[str, float] | None]
    reading: Callable[[Sequence[str]], AbstractContextManager[None]]
    train_input: TrainInput = TrainInput()
    eval_input: EvalInput = EvalInput()
    files: Callable[[str], list[str]] = lambda split: []
    limits: Mapping[str, int] = dataclasses.field(default_factory=dict)
    check: Callable[[Tensors], Tensors] = lambda features: features
    predicts_dev: bool = False
    words_per_token: float | None = None

    def checked(self, model_limits: Mapping[str, int]) -> "Data":
        """Returns data whose values are checked as they are read; errors name the record.

        Args:
          model_limits: see `record_values.limits_of_model`; `limits` replace them.
        """
        from albert.data import record_values

        limits = {**model_limits, **self.limits}
        splits = ("train", "dev", "test")
        specs = {spec.name: spec for split in splits for spec in self.specs(split)}
        check = functools.partial(record_values.check, limits=limits)

        def reading(paths: Sequence[str]) -> AbstractContextManager[None]:
            return record_values.report_damage_of_cache(paths, list(specs.values()), limits)

        def prepare(before: Callable[[Tensors], Tensors] | None, features: Tensors) -> Tensors:
            features = check(features)
            return before(features) if before else features

        train, evaluation = self.train_input, self.eval_input
        return dataclasses.replace(
            self,
            reading=reading,
            check=check,
            train_input=dataclasses.replace(
                train, prepare=functools.partial(prepare, train.prepare)
            ),
            eval_input=dataclasses.replace(
                evaluation, prepare=functools.partial(prepare, evaluation.prepare)
            ),
        )


@dataclasses.dataclass(frozen=True)
class FeatureCache:
    """The files that keep the features of a task.

    Attributes:
      paths: {split: record file}.
      settings: JSON-ready dict of everything that the features depend on, except the data.
      strategy: its workers share the files.
      shared: splits whose folder may also have records made with other settings, see
        `record_files.shared_name`.
    """

    paths: Mapping[str, str]
    settings: Mapping[str, Any]
    strategy: "tf.distribute.Strategy"
    shared: Sequence[str] = ()


class Example(Protocol):
    """An example of a task; `guid` identifies it in its split."""

    @property
    def guid(self) -> Any:
        """The id, which JSON can store."""


E = TypeVar("E", bound=Example)


def _reading(paths: Sequence[str]) -> AbstractContextManager[None]:
    """Returns `Data.reading` of records that are cached."""
    from albert.data import record_files

    return record_files.report_damage(paths)


def data_of_examples(
    name: str,
    specs: Sequence[FeatureSpec],
    examples: Callable[[str], Iterable[E]],
    featurize: Callable[..., Mapping[str, Any]],
    fingerprint: Callable[[str], Mapping[str, Any]],
    cache: FeatureCache,
    **rest: Any,
) -> Data:
    """Builds the `Data` of examples that are read from files, featurized and cached.

    Args:
      name: name of the task.
      specs: features of the records of all splits.
      examples: ``(split) -> iterable`` of the task's own examples.
      featurize: ``(example, cuts=) -> feature dict`` of numpy arrays; counts what it cuts in the
        `model_inputs.Cuts`, which are logged.
      fingerprint: ``(split) -> JSON-ready dict`` that identifies the data of a split.
      cache: where the features are kept.
      **rest: `write_predictions`, `files` and `limits` of `Data`.
    """

    def records_of(split: str) -> list[str]:
        from albert.data import record_files
        from albert.training import distribution

        path, cuts = cache.paths[split], model_inputs.Cuts()
        made_with = {**cache.settings, "task": name, "split": split, **fingerprint(split)}
        # Workers on the chief's file system use its file; others make an identical one.
        with distribution.chief_first(cache.strategy):
            if split in cache.shared:
                path = record_files.shared_name(path, specs, made_with)
            make = functools.partial(featurize, cuts=cuts)
            if split == "test":
                rows = ((example.guid, make(example)) for example in examples(split))
                count = record_files.cached_with_ids(path, specs, made_with, lambda: rows)
            else:
                count = record_files.cached(
                    path, specs, made_with, lambda: map(make, examples(split))
                )
        if cuts.cut:
            logging.warning("%s: %s", path, cuts.describe())
        if not count:
            raise file_io.InputError(f"the {split} data of {name} has no examples")
        return [path]

    def ids_of(split: str) -> list:
        from albert.data import record_files

        ids = record_files.read_ids(cache.paths[split])
        assert ids is not None, "records_of writes them"
        return ids

    return Data(
        specs=lambda split: specs,
        records=records_of,
        ids=ids_of,
        reading=_reading,
        **rest,
    )
