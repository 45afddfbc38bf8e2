"""The two interfaces of a task: `Task` for the engine and `Data` for the stages.

Both are frozen dataclasses of plain functions. The engine trains, evaluates and predicts any `Task`
without knowing which one it is; `stages.run` does the same with any `Task` and its `Data`. Modules
that read data import this module, so only the functions that make records import TensorFlow.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from albert.data.input_options import EvalInput, TrainInput
from albert.io import file_io
from albert.training import results


def no_metrics(outputs: dict, features: dict) -> dict:
    """Returns no metrics: the default of `Task.signs`, also for tasks that log only losses."""
    return {}


@dataclasses.dataclass(frozen=True)
class Task:
    """The interface between a task and the engine.

    Attributes:
      name: short lower-case name; part of the names of cached files.
      build_model: ``(AlbertConfig, layers.Compute, seed) -> model`` of `heads`: callable on a
        feature dict, with `loss_weights`, `losses`, `loss`, `prepare_weights` and `use_weights`.
      eval_outputs: ``(outputs, features) -> dict`` of tensors whose first axis is B: the
        input of evaluators and prediction writers. They are computed in the compiled step and
        should be small.
      evaluator: ``() -> object`` with ``update(rows)`` (dict of numpy arrays, first axis the
        examples), ``result() -> dict[str, float]`` and ``baseline()``, which returns the known
        scores of the best constant answer.
      train_metrics: ``(outputs, features) -> dict of (sum, weight)`` scalar pairs for the training
        log, computed inside the compiled step.
      best_metric: key of the evaluator's result by which the best checkpoint is chosen.
      further_metrics: ``(model) -> dict[str, float]`` of scores on other data, which are added to
        the evaluator's scores in each evaluation.
      metrics: keys of the evaluator's result that `metric_for_best` accepts.
      signs: ``(outputs, features) -> dict`` of statistics of a training batch that show whether the
        model learns, see `learning_signals`: tensors of fixed shapes that add up.
      results_form: format of the results.
      training_means: names of training losses and metrics. Each evaluation also reports their means
        since the last evaluation, as ``train_<name>``.
    """

    name: str
    build_model: Callable[[Any, Any, int], Any]
    eval_outputs: Callable[[dict, dict], dict]
    evaluator: Callable[[], Any]
    train_metrics: Callable[[dict, dict], dict]
    best_metric: str
    further_metrics: Callable[[Any], dict] = lambda model: {}
    metrics: tuple = ()
    signs: Callable[[dict, dict], dict] = no_metrics
    training_means: tuple = ()
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

    specs: Callable[[str], tuple]
    records: Callable[[str], list]
    ids: Callable[[str], list]
    write_predictions: Callable[[str, dict, list, str], dict | None]
    reading: Callable[[list], Any]
    train_input: TrainInput = TrainInput()
    eval_input: EvalInput = EvalInput()
    files: Callable[[str], list] = lambda split: []
    limits: Mapping[str, int] = dataclasses.field(default_factory=dict)
    check: Callable[[dict], dict] = lambda features: features
    predicts_dev: bool = False
    words_per_token: float | None = None


@dataclasses.dataclass(frozen=True)
class FeatureCache:
    """The files that keep the features of a task.

    Attributes:
      paths: {split: record file}.
      settings: JSON-ready dict of everything that the features depend on, except the data.
      strategy: `tf.distribute.Strategy`, whose workers share the files.
      shared: splits whose folder may also have records made with other settings, see
        `record_files.shared_name`.
    """

    paths: Mapping[str, str]
    settings: Mapping[str, Any]
    strategy: Any
    shared: Sequence[str] = ()


def data_of_examples(
    name: str,
    specs: tuple,
    examples: Callable[[str], Iterable[Any]],
    featurize: Callable[[Any], dict],
    fingerprint: Callable[[str], dict],
    cache: FeatureCache,
    **rest: Any,
) -> Data:
    """Builds the `Data` of examples that are read from files, featurized and cached.

    Args:
      name: name of the task.
      specs: tuple of `input_pipeline.FeatureSpec`, the same for all splits.
      examples: ``(split) -> iterable`` of the task's own examples, each with a `guid`.
      featurize: ``(example) -> feature dict`` of numpy arrays.
      fingerprint: ``(split) -> JSON-ready dict`` that identifies the data of a split.
      cache: where the features are kept.
      **rest: `write_predictions`, `files` and `limits` of `Data`.
    """

    def records_of(split):
        from albert.data import record_files
        from albert.training import distribution

        path = cache.paths[split]
        made_with = {**cache.settings, "task": name, "split": split, **fingerprint(split)}
        # Workers on the chief's file system use its file; others make an identical one.
        with distribution.chief_first(cache.strategy):
            if split in cache.shared:
                path = record_files.shared_name(path, specs, made_with)
            if split == "test":
                rows = ((example.guid, featurize(example)) for example in examples(split))
                count = record_files.cached_with_ids(path, specs, made_with, lambda: rows)
            else:
                count = record_files.cached(
                    path, specs, made_with, lambda: map(featurize, examples(split))
                )
        if not count:
            raise file_io.InputError(f"the {split} data of {name} has no examples")
        return [path]

    def reading(paths):
        from albert.data import record_files

        return record_files.report_damage(paths)

    def ids_of(split):
        from albert.data import record_files

        return record_files.read_ids(cache.paths[split])

    return Data(
        specs=lambda split: specs,
        records=records_of,
        ids=ids_of,
        reading=reading,
        **rest,
    )
