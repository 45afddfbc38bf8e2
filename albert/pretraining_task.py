"""Pre-training (masked words and sentence order) as a task of the engine."""

import contextlib
import functools

import numpy as np
import tensorflow as tf
from absl import logging

from albert import (
    compact_records,
    file_io,
    heads,
    pretraining_data,
    pretraining_masks,
    records,
    task,
)

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
def damage_reported(paths, lengths, without_masks=()):
    """As `records.damage_reported`, also for what is refused of a record's content.

    Args:
      paths: record files that are read inside the block.
      lengths: (S, P).
      without_masks: those of them whose records have no masks.

    Raises:
      file_io.InputError: names the file and the record.
    """
    masked = [path for path in paths if path not in without_masks]
    others = [path for path in paths if path in without_masks]
    refused = {
        _MISPLACED: lambda: _first_misplaced(masked, lengths),
        pretraining_masks.TOO_LONG: lambda: pretraining_masks.first_too_long(others, lengths[0]),
    }
    with records.damage_reported(paths):
        try:
            yield
        except tf.errors.InvalidArgumentError as error:
            for reason, find in refused.items():
                if reason in error.message:
                    logging.info("%s; looking for it", reason.capitalize())
                    raise file_io.InputError(find()) from error
            raise


def _first_misplaced(paths, lengths):
    """What to tell the user of the first record that `prepare` refuses."""
    specs = pretraining_data.feature_specs(*lengths, with_boundaries=False)
    for path in paths:
        dataset = records.serialized_examples([path]).batch(_SCANNED_AT_ONCE)
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


def make_data(files, lengths, max_eval_examples, masker=None, anew=False):
    """The `task.Data` of records that `create_pretraining_data` has made.

    Args:
      files: {"train": …, "dev": …}, what `pretraining_masks.look_at` gives.
      lengths: (S, P) that records with masks were made with; others have at most S tokens.
      max_eval_examples: most examples to evaluate, from the front.
      masker: `pretraining_masks.Masker` for records without masks.
      anew: the masker masks records for training that have masks, too.

    Raises:
      file_io.InputError: there are no records, a file is cut off, or the lengths differ.
    """
    specs, train_input = {}, {"prepare": prepare}
    # Predictions of short texts need no less memory.
    eval_input = {
        "prepare": prepare, "max_examples": max_eval_examples, "least_tokens": lengths[0] // 4,
    }  # fmt: skip
    for split, found in files.items():
        slots = masker.config.num_slots if found.without_masks else lengths[1]
        specs[split] = pretraining_data.feature_specs(
            lengths[0], slots, with_boundaries=anew and split == "train"
        )
        written = compact_records.feature_specs() if found.without_masks else specs[split]
        if split == "train" or found is not files["train"]:
            records.check_files(found.paths, written, _HINT)
    if files["train"].without_masks:
        read = functools.partial(masker.read, seq_length=lengths[0])
        train_input = {"read": read, "transform": masker.transform}
    elif anew:
        train_input["transform"] = masker.transform
    if files["dev"].without_masks:
        eval_input["rewrite"] = functools.partial(masker.rewrite, seq_length=lengths[0])
    unmasked = {path for found in files.values() if found.without_masks for path in found.paths}
    return task.Data(
        specs=specs.get,
        records=lambda split: files[split].paths,
        ids=_no_predictions,
        write_predictions=_no_predictions,
        reading=lambda read: damage_reported(read, lengths, unmasked),
        train_input=train_input,
        eval_input=eval_input,
    )


def _no_predictions(*_):
    raise ValueError("pre-training predicts nothing")
