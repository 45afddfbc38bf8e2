"""Pre-training (masked words and sentence order) as a task of the engine."""

import functools

import numpy as np
import tensorflow as tf

from albert import heads, masking, records, task

# Sums that each row carries; a metric is the ratio of two totals.
_RATIOS = {
    "masked_lm_accuracy": ("masked_lm_correct", "masked_lm_weight"),
    "masked_lm_loss": ("masked_lm_loss", "masked_lm_weight"),
    "sentence_order_accuracy": ("sentence_order_correct", "sentence_order_weight"),
    "sentence_order_loss": ("sentence_order_loss", "sentence_order_weight"),
}


def feature_specs(seq_length, max_predictions_per_seq, with_boundaries=False):
    """Specifications of the records of `create_pretraining_data`.

    Args:
      seq_length: S.
      max_predictions_per_seq: P.
      with_boundaries: also ``token_boundary`` [S], 1 where a word begins; only masking needs it.
    """
    boundaries = records.FeatureSpec("token_boundary", "int64", (seq_length,), sequence=True)
    return (boundaries,) * with_boundaries + (
        records.FeatureSpec("input_ids", "int64", (seq_length,), sequence=True),
        records.FeatureSpec("input_mask", "int64", (seq_length,), sequence=True),
        records.FeatureSpec("segment_ids", "int64", (seq_length,), sequence=True),
        records.FeatureSpec("masked_lm_positions", "int64", (max_predictions_per_seq,)),
        records.FeatureSpec("masked_lm_ids", "int64", (max_predictions_per_seq,)),
        records.FeatureSpec("masked_lm_weights", "float32", (max_predictions_per_seq,)),
        records.FeatureSpec("next_sentence_labels", "int64", (1,)),
    )


def unmask(input_ids, positions, labels, weights):
    """[B, S] ids with the original tokens put back at the predicted positions.

    Args:
      input_ids: [B, S] masked ids.
      positions, labels, weights: [B, P]; entries of weight 0 are padding.
    """
    original = input_ids.copy()
    rows, slots = np.nonzero(weights)
    original[rows, positions[rows, slots]] = labels[rows, slots]
    return original


def mask_anew(config, vocab_size, mask_id, special_ids, seed):
    """Transform for `records.train_input_fn` that masks each batch afresh.

    Args:
      config: `masking.MaskingConfig`.
      vocab_size: V.
      mask_id: id of [MASK].
      special_ids: ids that are never masked: [CLS] and [SEP].
      seed: integer; a batch's masks are a function of it and of the batch's number.
    """

    def on_arrays(number, input_ids, input_mask, token_boundary, positions, labels, weights):
        original = unmask(input_ids, positions, labels, weights)
        maskable = (input_mask > 0) & ~np.isin(original, special_ids)
        masked = masking.mask_batch(
            original,
            input_mask.sum(axis=1),
            token_boundary > 0,
            maskable,
            config,
            vocab_size,
            mask_id,
            np.random.default_rng([seed, int(number)]),
        )
        filled = np.arange(config.num_slots) < masked.num_predictions[:, np.newaxis]
        arrays = (masked.input_ids, masked.positions, masked.labels, filled)
        return tuple(np.int32(array) for array in arrays)

    def transform(number, features):
        inputs = ("input_ids", "input_mask", "token_boundary", "masked_lm_positions")
        inputs = [features[name] for name in (*inputs, "masked_lm_ids", "masked_lm_weights")]
        ids, *predicted = tf.numpy_function(on_arrays, [number, *inputs], [tf.int32] * 4)
        ids = tf.ensure_shape(ids, features["input_ids"].shape)
        predicted = [tf.ensure_shape(x, features["masked_lm_ids"].shape) for x in predicted]
        return {
            **{name: v for name, v in features.items() if name != "token_boundary"},
            "input_ids": ids,
            "masked_lm_positions": predicted[0],
            "masked_lm_ids": predicted[1],
            "masked_lm_weights": tf.cast(predicted[2], tf.float32),
        }

    return transform


def _correct(labels, logits):
    """[rows] 1 where the label has the highest of the logits [rows, V], else 0.

    A maximum is several times faster than an argmax over a large vocabulary.
    """
    of_label = tf.gather(logits, labels, batch_dims=1)
    return tf.cast(of_label >= tf.reduce_max(logits, axis=-1), tf.float32)


def _row_sums(model, outputs, features):
    """Sums over the masked positions of each example, {name: [B]}."""
    del model
    weights = features["masked_lm_weights"]  # [B, P]
    ids = tf.reshape(features["masked_lm_ids"], [-1])
    losses = tf.reshape(outputs["masked_lm_example_loss"], tf.shape(weights))
    correct = tf.reshape(_correct(ids, outputs["masked_lm_logits"]), tf.shape(weights))
    labels = tf.reshape(features["next_sentence_labels"], [-1])
    order_log_probs = outputs["sentence_order_log_probs"]  # [B, 2]
    return {
        "masked_lm_loss": tf.reduce_sum(losses * weights, axis=1),
        "masked_lm_correct": tf.reduce_sum(correct * weights, axis=1),
        "masked_lm_weight": tf.reduce_sum(weights, axis=1),
        "sentence_order_loss": -tf.gather(order_log_probs, labels, batch_dims=1),
        "sentence_order_correct": _correct(labels, order_log_probs),
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
        build_model=heads.PretrainingModel,
        eval_outputs=_row_sums,
        evaluator=Evaluator,
        best_metric="masked_lm_accuracy",
        train_metrics=_train_metrics,
    )
