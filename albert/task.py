"""The contract between a task and the engine: a frozen record of plain functions.

The engine trains, evaluates and predicts any `Task` without knowing which one it is.
"""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any


@dataclasses.dataclass(frozen=True)
class Task:
    """What the engine needs to know of a task.

    Attributes:
      name: short lower-case name; part of the names of cached files.
      feature_specs: ``(seq_length) -> tuple of records.FeatureSpec``, used for writing and parsing.
      examples: ``(data_dir, split) -> iterable`` of the task's own examples, each with a `guid`;
        split is "train", "dev" or "test".
      featurize: ``(example) -> iterable`` of feature dicts of numpy arrays, one per model input.
      build_model: ``(AlbertConfig, layers.Compute, seed) -> model`` of `heads`: callable on a
        feature dict, with `loss_weights`, `losses` and `loss`.
      eval_outputs: ``(model, outputs, features) -> dict`` of tensors whose first axis is B: what
        evaluators and prediction writers see, made inside the compiled step and kept small.
      evaluator: ``() -> object`` with ``update(rows)`` (dict of numpy arrays, first axis the
        examples) and ``result() -> dict[str, float]``.
      best_metric: key of the evaluator's result by which the best checkpoint is picked.
      write_predictions: ``(output_dir, rows)``; rows is a dict of numpy arrays in input order, and
        ``guid``, the examples' ids.
      train_metrics: ``(outputs, features) -> dict of (sum, weight)`` scalar pairs for the training
        log, computed inside the compiled step.
    """

    name: str
    feature_specs: Callable[[int], tuple]
    build_model: Callable[[Any, Any, int], Any]
    eval_outputs: Callable[[Any, dict, dict], dict]
    evaluator: Callable[[], Any]
    best_metric: str
    examples: Callable[[str, str], Iterable] | None = None
    featurize: Callable[[Any], Iterable[dict]] | None = None
    write_predictions: Callable[[str, dict], None] | None = None
    train_metrics: Callable[[dict, dict], dict] = lambda outputs, features: {}
