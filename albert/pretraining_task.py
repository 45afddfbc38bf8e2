"""Pre-training (masked words and sentence order) as a task of the engine."""

import functools

import numpy as np
import tensorflow as tf

from albert import heads, records, task

# Sums that each row carries; a metric is the ratio of two totals.
_RATIOS = {
    "masked_lm_accuracy": ("masked_lm_correct", "masked_lm_weight"),
    "masked_lm_loss": ("masked_lm_loss", "masked_lm_weight"),
    "sentence_order_accuracy": ("sentence_order_correct", "sentence_order_weight"),
    "sentence_order_loss": ("sentence_order_loss", "sentence_order_weight"),
}


def feature_specs(seq_length, max_predictions_per_seq):
    """Specifications of the records of `create_pretraining_data` (``token_boundary`` aside)."""
    return (
        records.FeatureSpec("input_ids", "int64", (seq_length,), sequence=True),
        records.FeatureSpec("input_mask", "int64", (seq_length,), sequence=True),
        records.FeatureSpec("segment_ids", "int64", (seq_length,), sequence=True),
        records.FeatureSpec("masked_lm_positions", "int64", (max_predictions_per_seq,)),
        records.FeatureSpec("masked_lm_ids", "int64", (max_predictions_per_seq,)),
        records.FeatureSpec("masked_lm_weights", "float32", (max_predictions_per_seq,)),
        records.FeatureSpec("next_sentence_labels", "int64", (1,)),
    )


def _row_sums(model, outputs, features):
    """Sums over the masked positions of each example, {name: [B]}."""
    del model
    weights = features["masked_lm_weights"]  # [B, P]
    log_probs = outputs["masked_lm_log_probs"]  # [B*P, V]
    ids = tf.reshape(features["masked_lm_ids"], [-1])
    loss = tf.reshape(-tf.gather(log_probs, ids, batch_dims=1), tf.shape(weights))
    best = tf.argmax(log_probs, axis=-1, output_type=tf.int32)
    correct = tf.reshape(tf.cast(best == ids, tf.float32), tf.shape(weights))
    labels = tf.reshape(features["next_sentence_labels"], [-1])
    order_log_probs = outputs["sentence_order_log_probs"]  # [B, 2]
    order = tf.argmax(order_log_probs, axis=-1, output_type=tf.int32)
    return {
        "masked_lm_loss": tf.reduce_sum(loss * weights, axis=1),
        "masked_lm_correct": tf.reduce_sum(correct * weights, axis=1),
        "masked_lm_weight": tf.reduce_sum(weights, axis=1),
        "sentence_order_loss": -tf.gather(order_log_probs, labels, batch_dims=1),
        "sentence_order_correct": tf.cast(order == labels, tf.float32),
        "sentence_order_weight": tf.ones_like(labels, tf.float32),
    }


def _train_metrics(outputs, features):
    sums = _row_sums(None, outputs, features)
    return {
        name: (tf.reduce_sum(sums[top]), tf.reduce_sum(sums[bottom]))
        for name, (top, bottom) in _RATIOS.items()
        if name.endswith("accuracy")
    }


class Evaluator:
    """Adds up rows of `_row_sums`."""

    def __init__(self):
        self._totals = {}

    def update(self, rows):
        for name, values in rows.items():
            self._totals[name] = self._totals.get(name, 0.0) + values.sum(dtype=np.float64)

    def result(self):
        """Accuracy and loss of both tasks, and ``loss``, their sum."""
        result = {
            name: float(self._totals[top] / max(self._totals[bottom], 1e-5))
            for name, (top, bottom) in _RATIOS.items()
        }
        result["loss"] = result["masked_lm_loss"] + result["sentence_order_loss"]
        return result


def make_task(max_predictions_per_seq):
    """The pre-training task; its records are made by `create_pretraining_data`.

    Args:
      max_predictions_per_seq: P, masked positions per example.
    """
    return task.Task(
        name="pretraining",
        feature_specs=functools.partial(
            feature_specs, max_predictions_per_seq=max_predictions_per_seq
        ),
        build_model=lambda config, seed: heads.PretrainingModel(config, seed=seed),
        eval_outputs=_row_sums,
        evaluator=Evaluator,
        best_metric="masked_lm_accuracy",
        train_metrics=_train_metrics,
    )
