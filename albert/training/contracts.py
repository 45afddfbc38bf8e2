"""The interfaces between tasks, models and the engine.

The engine trains, evaluates and predicts any `Task` without knowing which one it is; `stages.run`
does the same with any `Task` and its `Data`. Modules that read data import this module, so only the
functions that make records import TensorFlow.
"""

import abc
import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import numpy as np

from albert.data.input_options import EvalInput, Tensors, TrainInput
from albert.data.tfrecord import FeatureSpec
from albert.model.configuration import AlbertConfig
from albert.training import results, subsets

if TYPE_CHECKING:
    import tensorflow as tf

    from albert.model.layers import Compute
    from albert.training.learning_rates import Pace

NO_LIMIT = 2**31 - 1  # number of steps
SPLITS = ("train", "dev", "test")
# (make) -> the result of make() in the chief; all workers must make each call.
OnChief = Callable[[Callable[[], Any]], Any]
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
        """Returns {name: tensor} of the outputs of a batch.

        Args:
          training: whether dropout is applied.
          seed: integers [2] that determine the dropout; None: a random one.
        """

    def loss_weights(self, features: Tensors) -> Tensors:
        """Returns {loss term: scalar}, the total weight of a batch of features in each term."""

    def losses(
        self, outputs: Tensors, features: Tensors, weights: Tensors | None = None
    ) -> Tensors:
        """Returns {name: scalar} of the loss terms of a batch.

        Args:
          weights: {name: total weight}, by default `loss_weights` of the features.
        """

    def total(self, losses: Tensors) -> "tf.Tensor":
        """Returns the scalar that training minimizes, of {name: scalar} of the loss terms."""

    def prepare_weights(self) -> list["tf.Tensor"]:
        """Returns the weights in the form that inference reads, for all batches."""

    def use_weights(self, weights: list["tf.Tensor"]) -> AbstractContextManager:
        """Uses prepared weights in place of variables inside the block."""


class Evaluator(Protocol):
    """Computes the metrics of a task over the examples of an evaluation."""

    def update(self, rows: dict[str, np.ndarray]) -> None:
        """Adds {name: [B, ...]}, the `Task.eval_outputs` of some examples."""

    def result(self) -> dict[str, float]:
        """Returns {name: score} of all examples."""

    def baseline(self) -> dict[str, float]:
        """Returns {name: score} of the best constant answer, as far as they are known."""

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
        """Records the end of a step; returns the last step of training if it moves, else None."""

    def observe(self, step: int, signals: Mapping[str, np.ndarray]) -> None:
        """Takes {name: sum} of the task's `learning_signals` from the last call up to a step."""

    def save(self, step: int) -> None:
        """Records that a checkpoint is about to be saved."""


def no_metrics(outputs: Tensors, features: Tensors) -> dict[str, "tf.Tensor"]:
    """Returns {}: the metrics of tasks that log only losses for a batch's outputs and features."""
    return {}


@dataclasses.dataclass(frozen=True)
class Task:
    """The interface between a task and the engine.

    Attributes:
      name: short lower-case name; part of the names of cached files.
      build_model: ``(config, compute, seed)`` makes the model; the seed is that of its weights.
      eval_outputs: ``(outputs, features) -> dict`` of tensors whose first axis is B: the
        input of evaluators and prediction writers. They are computed in the compiled step and
        should be small.
      train_metrics: ``(outputs, features) -> dict of (sum, weight)`` scalar pairs for the training
        log, computed inside the compiled step.
      best_metric: key of the evaluator's result by which the best checkpoint is chosen.
      extra_metrics: scores of the model on other data, which are added to the evaluator's scores
        in each evaluation.
      metrics: keys of the evaluator's result that `metric_for_best` accepts.
      learning_signals: ``(outputs, features) -> dict`` of statistics of a training batch that show
        whether the model learns: tensors of fixed shapes that add up.
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
    results_form: results.ResultsFormat = results.SHORT


def no_change(features: Tensors) -> Tensors:
    """Returns the features: the default of `Data.check`."""
    return features


_Prepare = Callable[[Tensors], Tensors]  # of the features of a batch


@dataclasses.dataclass(frozen=True, kw_only=True)
class Data(abc.ABC):
    """The examples of a task and the writer of its predictions.

    Splits are "train", "dev" (evaluation) and "test" (prediction).

    Attributes:
      train_input, eval_input: options of the input pipelines for training, and for evaluation and
        prediction.
      words_per_token: words per token in the training records; None: unknown.
      value_limits: {feature: upper limit (exclusive) of its integers} that are checked.
      check: ``(features) -> features`` of a batch as read; rejects invalid values.
      fractions: the fractions of the splits to use; None: all examples.
      fill: ``(data, split, paths)`` fills caches that the records need.
      predicts_dev: whether predictions are made for the evaluation examples, so that the scores of
        the predictions are also an evaluation.
    """

    train_input: TrainInput = TrainInput()
    eval_input: EvalInput = EvalInput()
    words_per_token: float | None = None
    value_limits: Mapping[str, int] | None = None
    check: Callable[[Tensors], Tensors] = no_change
    fractions: subsets.Fractions | None = None
    fill: "Callable[[Data, str, list[str]], None] | None" = None
    predicts_dev: ClassVar[bool] = False

    @property
    def limits(self) -> Mapping[str, int]:
        """{feature: upper limit (exclusive) of its integers} of the task, not of the model."""
        return {}

    @abc.abstractmethod
    def specs(self, split: str) -> Sequence[FeatureSpec]:
        """Returns the features of a split, to write and parse its records."""

    @abc.abstractmethod
    def make_records(self, split: str) -> list[str]:
        """Returns the TFRecord files of all examples of a split; makes them if missing."""

    @abc.abstractmethod
    def read_ids(self) -> list[str]:
        """Returns the ids of all examples to predict, in the order of the records."""

    @abc.abstractmethod
    def write_predictions(
        self, output_dir: str, rows: Rows, ids: list[str], prefix: str
    ) -> dict[str, float] | None:
        """Writes the prediction files.

        Args:
          rows: outputs of `Task.eval_outputs` in the order of the records.
          ids: those of the examples, in the same order.
          prefix: path of the checkpoint that computed the outputs.

        Returns:
          {name of a score: number} of the predictions, or None if there are no labels.
        """

    @abc.abstractmethod
    def files(self, split: str) -> list[str]:
        """Returns the paths of the source files of a split."""

    def dev_requests(self) -> Iterable[dict[str, Any]]:
        """Returns the dev examples as JSON bodies of requests to a server; none by default."""
        return ()

    def source(self, split: str) -> str:
        """Returns the name of the split of the source files whose examples a split has."""
        return split

    def records(self, split: str) -> list[str]:
        """Returns the TFRecord files of a split to use; makes them if missing."""
        paths = self.make_records(split)
        if self.fractions:
            specs, source = self.specs(split), self.source(split)
            paths = [self.fractions.copy(path, specs, source) for path in paths]
        if self.fill:
            self.fill(self, split, paths)
        return paths

    def ids(self) -> list:
        """Returns the ids of the examples to predict, in the order of the records."""
        ids = self.read_ids()
        return self.fractions.choose(ids, self.source("test")) if self.fractions else ids

    def reading(self, paths: Sequence[str]) -> AbstractContextManager[None]:
        """Returns a context in which these record files are read; errors name the invalid one."""
        from albert.data import record_files, record_values

        if self.value_limits is None:
            return record_files.report_damage(paths)
        specs = {spec.name: spec for split in SPLITS for spec in self.specs(split)}
        return record_values.report_damage_of_cache(paths, list(specs.values()), self.value_limits)

    def with_limits(self, model_limits: Mapping[str, int]) -> Self:
        """Returns data whose values are checked as they are read; errors name the record.

        Args:
          model_limits: {feature: number below which its integers must be} of the model; `limits`
            of the task replace them.
        """
        from albert.data import record_values

        limits = {**model_limits, **self.limits}
        check = functools.partial(record_values.check, limits=limits)
        data = dataclasses.replace(self, value_limits=limits, check=check)
        return data._preparing(first=check)

    def subset(self, fractions: subsets.Fractions) -> Self:
        """Returns the data of fractions of the splits, each with one record per example."""
        return dataclasses.replace(self, fractions=fractions)

    def cached(
        self, fill: "Callable[[Data, str, list[str]], None]", prepare: Callable[[Tensors], Tensors]
    ) -> Self:
        """Returns data that needs a cache.

        Args:
          fill: ``(data, split, paths)`` fills the cache for the record files of a split, "train"
            or "dev", before they are first read.
          prepare: adds content of the cache to the features of a batch as read.
        """
        data = dataclasses.replace(self, fill=fill)
        return data._preparing(last=prepare)

    def _preparing(self, first: _Prepare | None = None, last: _Prepare | None = None) -> Self:
        """Returns data whose inputs call `first` before and `last` after `prepare`, if not None."""
        train, evaluation = self.train_input, self.eval_input
        return dataclasses.replace(
            self,
            train_input=dataclasses.replace(
                train, prepare=functools.partial(_apply, (first, train.prepare, last))
            ),
            eval_input=dataclasses.replace(
                evaluation, prepare=functools.partial(_apply, (first, evaluation.prepare, last))
            ),
        )


def _apply(steps: Iterable[_Prepare | None], features: Tensors) -> Tensors:
    """Returns the features of a batch after all steps, in order; None is no step."""
    for step in filter(None, steps):
        features = step(features)
    return features
