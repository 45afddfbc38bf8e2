"""Classification of texts that have any number of labels: the task, its data and its predictions.

Texts are read and cut as those of `glue`. Letters in shapes: B batch, K labels, N texts.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from albert.data import tfrecord
from albert.model import decision as decisions
from albert.model import head_config
from albert.tasks import custom, glue, label_set_scores, label_sets, metrics, prediction_files
from albert.text import long_texts
from albert.training import contracts, results

if TYPE_CHECKING:
    import tensorflow as tf

    from albert.data.input_options import Tensors
    from albert.model import configuration, layers


class Evaluator(metrics.Evaluator):
    """Collects rows of evaluation outputs, [B, ...], and scores them together."""

    def __init__(self, labels: Sequence[str]) -> None:
        super().__init__((), labels=labels)
        self._rows["probabilities"] = []

    def _joined(self, name: str) -> np.ndarray:
        """Returns the output of all examples [N, …] with this name, a key of the rows."""
        return np.concatenate(self._rows[name])

    def result(self) -> dict[str, float]:
        """Returns the scores of `label_set_scores`, ``eval_loss`` and ``loss`` (the same)."""
        sides = map(self._joined, ("label_ids", "predictions", "probabilities"))
        loss = float(np.mean(self._joined("per_example_loss"), dtype=np.float64))
        scores = label_set_scores.measure(self._labels, *sides)
        return {**scores, "eval_loss": loss, "loss": loss}

    def classes(self) -> tuple[results.ClassCount, ...]:
        """Counts the texts of each label."""
        sides = map(self._joined, ("label_ids", "predictions"))
        return label_set_scores.count(self._labels, *sides)

    def baseline(self) -> dict[str, float]:
        """Returns the scores of `result`, each of its best constant answer."""
        labels = self._joined("label_ids")
        loss = label_set_scores.constant_loss(labels)
        scores = label_set_scores.constant_answer(self._labels, labels)
        return {**scores, "eval_loss": loss, "loss": loss}


def _train_metrics(
    outputs: "Tensors", features: "Tensors"
) -> dict[str, tuple["tf.Tensor", "tf.Tensor"]]:
    """Returns {"decision_accuracy": (sum of the fractions of right decisions, number of texts)}."""
    import tensorflow as tf

    real = tf.cast(features["is_real_example"], tf.float32)
    right = tf.cast(outputs["predictions"] == features["label_ids"], tf.float32)
    return {
        "decision_accuracy": (
            tf.reduce_sum(tf.reduce_mean(right, axis=-1) * real), tf.reduce_sum(real)
        )
    }  # fmt: skip


def make_task(
    label_task: label_sets.LabelSetTask,
    dropout_prob: float = 0.1,
    head: head_config.Head = head_config.NO_LAYER,
    decision: decisions.Decision = decisions.PLAIN,
    positive_weights: Sequence[float] = (),
) -> contracts.Task:
    """Returns the `contracts.Task` of texts with several labels.

    Args:
      positive_weights: weights by label id of the texts that have the label, in the loss; empty: 1.
    """
    from albert.model import heads
    from albert.training import learning_signals

    labels = label_task.labels
    form = label_set_scores.results_form(labels)
    names = (*form.added, *label_set_scores.names_by_label(labels))

    def build_model(
        config: "configuration.AlbertConfig", compute: "layers.Compute", seed: int
    ) -> heads.Model:
        """Builds the model; `seed` is that of the new variables."""
        settings = (compute, seed, dropout_prob, head, decision, positive_weights)
        return heads.MultiLabelModel(config, len(labels), *settings)

    return contracts.Task(
        name=label_task.name,
        build_model=build_model,
        eval_outputs=glue.eval_outputs,
        evaluator=functools.partial(
            metrics.TextEvaluator,
            functools.partial(Evaluator, labels),
            label_sets.answers_of(labels, decision),
        ),
        train_metrics=_train_metrics,
        best_metric=label_task.best_metric,
        metrics=(*names, "eval_loss", "loss"),
        learning_signals=learning_signals.label_set_signals,
        results_form=form,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class MultiLabelData(glue.ClassifierData):
    """The data of texts with several labels."""

    task: label_sets.LabelSetTask
    data_dir: str = ""

    @property
    def answers(self) -> long_texts.Answers:
        """The kind of answers of the model: sets of labels."""
        return label_sets.answers_of(self.task.labels, self.decision)

    @property
    def limits(self) -> dict[str, int]:
        """Returns {feature: number below which its integers must be}."""
        return {"label_ids": 2, "is_real_example": 2}

    def specs(self, split: str) -> Sequence[tfrecord.FeatureSpec]:
        """Returns the features in records of the split "train", "dev" or "test"."""
        label_ids = tfrecord.FeatureSpec("label_ids", "int64", (len(self.task.labels),))
        return [label_ids if spec.name == "label_ids" else spec for spec in super().specs(split)]

    def write_files(
        self, output_dir: str, rows: contracts.Rows, ids: list[str]
    ) -> dict[str, float] | None:
        """Does what `ExampleData.write_files` says; only test data are scored."""
        separator = self.task.form.separator
        prediction_files.write_classifier_files(output_dir, rows, ids, self.task.labels, separator)
        if self.predicted != "test" or not self.task.is_labeled("test"):
            return None
        return prediction_files.write_scores(output_dir, Evaluator(self.task.labels), rows)


def settings_of(
    label_task: label_sets.LabelSetTask,
    max_seq_length: int,
    dropout_prob: float,
    head: head_config.Head = head_config.NO_LAYER,
    decision: decisions.Decision = decisions.PLAIN,
) -> dict[str, Any]:
    """Returns the JSON-ready settings that describe a model in its folder, by name."""
    settings = custom.settings_of(label_task, max_seq_length, dropout_prob, head, decision=decision)
    return {**settings, "label_type": label_sets.LABEL_TYPE, **label_task.form.settings}
