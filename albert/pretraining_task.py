"""Pre-training (masked words and sentence order) as a task of the engine."""

import contextlib

import numpy as np
import tensorflow as tf
from absl import logging

from albert import file_io, heads, masking, pretraining_data, records, task

_HINT = "Give the max_seq_length and max_predictions_per_seq that the records were made with"
# Sums that each row carries; a metric is the ratio of two totals.
_RATIOS = {
    "masked_lm_accuracy": ("masked_lm_correct", "masked_lm_weight"),
    "masked_lm_loss": ("masked_lm_loss", "masked_lm_weight"),
    "sentence_order_accuracy": ("sentence_order_correct", "sentence_order_weight"),
    "sentence_order_loss": ("sentence_order_loss", "sentence_order_weight"),
}


# --- records of other programs -------------------------------------------------------------------

_MISPLACED = "a masked position is not the place of a real token"
_SCANNED_AT_ONCE = 1024  # records


def _misplaced(features):
    """[B, P] True for a position that has weight, but no real token; for tensors and arrays."""
    positions = features["masked_lm_positions"]
    real = tf.reduce_sum(features["input_mask"], axis=-1, keepdims=True)
    outside = (positions < 0) | (positions >= real)
    return (features["masked_lm_weights"] != 0) & outside


def prepare(features):
    """Checks a batch as it was read: no result exists where there is no real token.

    Returns:
      The features, with position and label 0 wherever the weight is 0: they have no effect, but
      may be anything.

    Raises:
      tf.errors.InvalidArgumentError: a position that has weight is not that of a real token;
        `damage_reported` finds its record.
    """
    used = features["masked_lm_weights"] != 0
    placed = tf.debugging.Assert(~tf.reduce_any(_misplaced(features)), [_MISPLACED])
    with tf.control_dependencies([placed]):
        names = ("masked_lm_positions", "masked_lm_ids")
        return {**features, **{name: tf.where(used, features[name], 0) for name in names}}


@contextlib.contextmanager
def damage_reported(paths, specs):
    """As `records.damage_reported`, also for what `prepare` refuses.

    Args:
      paths: record files that are read inside the block.
      specs: their feature specifications.

    Raises:
      file_io.InputError: names the file and the record.
    """
    with records.damage_reported(paths):
        try:
            yield
        except tf.errors.InvalidArgumentError as error:
            if _MISPLACED not in error.message:
                raise
            logging.info("A record has a wrong masked position; looking for it")
            raise file_io.InputError(_first_misplaced(paths, specs)) from error


def _first_misplaced(paths, specs):
    """What to tell the user of the first record that `prepare` refuses."""
    for path in paths:
        dataset = tf.data.TFRecordDataset(path).batch(_SCANNED_AT_ONCE)
        for batch, serialized in enumerate(dataset):
            features = records.parse(specs, serialized)
            rows, slots = np.nonzero(_misplaced(features))
            if rows.size:
                row, slot = rows[0], slots[0]
                return (
                    f"{path}, record {batch * _SCANNED_AT_ONCE + row + 1}: masked_lm_positions"
                    f"[{slot}] = {features['masked_lm_positions'][row, slot]} is the place of none "
                    f"of the {tf.reduce_sum(features['input_mask'][row])} real tokens (input_mask),"
                    f" but masked_lm_weights[{slot}] is "
                    f"{features['masked_lm_weights'][row, slot]}: give entries that do not count "
                    "the weight 0, which makes any position harmless, and make the records again"
                )
    return f"{_MISPLACED}, in {', '.join(paths)}"


# --- masks ---------------------------------------------------------------------------------------


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


# --- metrics -------------------------------------------------------------------------------------


def _correct(labels, logits):
    """[rows] 1 where the label has the highest of the logits [rows, V], else 0.

    A maximum is several times faster than an argmax over a large vocabulary.
    """
    of_label = tf.gather(logits, labels, batch_dims=1)
    return tf.cast(of_label >= tf.reduce_max(logits, axis=-1), tf.float32)


def _row_sums(outputs, features):
    """Sums over the masked positions of each example, {name: [B]}."""
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
    sums = _row_sums(outputs, features)
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


TASK = task.Task(
    name="pretraining",
    build_model=heads.PretrainingModel,
    eval_outputs=_row_sums,
    evaluator=Evaluator,
    train_metrics=_train_metrics,
    best_metric="masked_lm_accuracy",
)


def make_data(train_paths, eval_paths, lengths, max_eval_examples, transform=None):
    """The `task.Data` of records that `create_pretraining_data` has made.

    Args:
      train_paths, eval_paths: record files.
      lengths: (S, P) that they were made with.
      max_eval_examples: most examples to evaluate, from the front.
      transform: what `mask_anew` returns, for training; None keeps the masks of the records.

    Raises:
      file_io.InputError: there are no records, a file is cut off, or the lengths differ.
    """
    paths = {"train": list(train_paths), "dev": list(eval_paths)}
    specs = {
        "train": pretraining_data.feature_specs(*lengths, with_boundaries=bool(transform)),
        "dev": pretraining_data.feature_specs(*lengths, with_boundaries=False),
    }
    for split, found in paths.items():
        records.check_files(found, specs[split], _HINT)
    # Predictions of short texts need no less memory.
    least = lengths[0] // 4
    return task.Data(
        specs=specs.get,
        records=paths.get,
        ids=_no_predictions,
        write_predictions=_no_predictions,
        reading=lambda read: damage_reported(read, specs["dev"]),
        train_input={"prepare": prepare, "transform": transform},
        eval_input={
            "prepare": prepare,
            "max_examples": max_eval_examples,
            "least_tokens": least,
        },
    )


def _no_predictions(*_):
    raise ValueError("pre-training predicts nothing")
