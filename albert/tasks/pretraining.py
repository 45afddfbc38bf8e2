"""Pre-training (masked words and a task on two pieces of text) as a task of the engine."""

import contextlib
import functools

import numpy as np
import tensorflow as tf
from absl import logging

from albert.data import (
    dynamic_masking,
    input_options,
    input_pipeline,
    instances,
    record_files,
)
from albert.io import file_io
from albert.model import pretraining_heads
from albert.training import contracts

_HINT = "Give the max_seq_length and max_predictions_per_seq that the records were made with"


# --- records of other programs -------------------------------------------------------------------

_WRONG = "a record with masks holds a value that cannot be"
_SCANNED_AT_ONCE = 1024  # records


def limits(config):
    """{name of a feature: number below which its values must be} of records with masks.

    Args:
      config: `configuration.AlbertConfig` of the model.
    """
    return {
        "input_ids": config.vocab_size,
        "masked_lm_ids": config.vocab_size,
        "segment_ids": config.type_vocab_size,
        "input_mask": 2,
        "next_sentence_labels": 2,
    }


def _counting(features):
    """{name: booleans} where a value matters: at real tokens, and where there is weight."""
    is_token, used = features["input_mask"] != 0, features["masked_lm_weights"] != 0
    return {
        "input_ids": is_token,
        "segment_ids": is_token,
        "masked_lm_ids": used,
        "masked_lm_positions": used,
    }


def _wrong(features, limits):
    """{name: booleans, True for a value that counts, but cannot be} of tensors."""
    real = tf.reduce_sum(features["input_mask"], axis=-1, keepdims=True)
    counting, weights = _counting(features), features["masked_lm_weights"]
    found = {"masked_lm_weights": ~((weights >= 0) & (weights < np.inf))}
    for name, high in {**limits, "masked_lm_positions": real}.items():
        if name in features:
            outside = (features[name] < 0) | (features[name] >= high)
            found[name] = outside & counting.get(name, True)
    return found


def prepare(features, limits):
    """Checks a batch as it was read: no result exists where there is no real token.

    Args:
      features: of records with masks.
      limits: see `limits`.

    Returns:
      The features, with 0 for each position, label, token and segment that has no effect, as it
      has no weight or is padding: it may be anything.

    Raises:
      tf.errors.InvalidArgumentError: a value cannot be, such as a position that has weight, but is
        not that of a real token; `damage_reported` finds its record.
    """
    wrong = [tf.reduce_any(values) for values in _wrong(features, limits).values()]
    with tf.control_dependencies([tf.debugging.Assert(~tf.reduce_any(wrong), [_WRONG])]):
        cleared = {
            name: tf.where(counts, features[name], 0)
            for name, counts in _counting(features).items()
        }
        return {**features, **cleared}


@contextlib.contextmanager
def damage_reported(paths, specs, without_masks=(), find_unmasked=None, limits=()):
    """As `record_files.damage_reported`, also for what is refused of a record's content.

    Args:
      paths: record files that are read inside the block.
      specs: feature specifications of those that have masks.
      without_masks: those of them whose records have no masks.
      find_unmasked: function, list of these -> what is wrong with the first that is refused.
      limits: see `prepare`.

    Raises:
      file_io.InputError: names the file and the record.
    """
    masked = [path for path in paths if path not in without_masks]
    others = [path for path in paths if path in without_masks]
    refused = {
        _WRONG: lambda: _first_wrong(masked, specs, limits),
        dynamic_masking.WRONG: lambda: find_unmasked(others),
    }
    with record_files.damage_reported(paths):
        try:
            yield
        except tf.errors.InvalidArgumentError as error:
            for reason, find in refused.items():
                if reason in error.message:
                    logging.info("%s; looking for it", reason.capitalize())
                    raise file_io.InputError(find()) from error
            raise


def _first_wrong(paths, specs, limits):
    """What to tell the user of the first record that `prepare` refuses."""
    for path in paths:
        dataset = record_files.serialized_examples([path]).batch(_SCANNED_AT_ONCE)
        for batch, serialized in enumerate(dataset):
            features = input_pipeline.parse(specs, serialized, narrow=False)
            found = {name: np.argwhere(x) for name, x in _wrong(features, limits).items()}
            found = {name: places[0] for name, places in found.items() if len(places)}
            if found:
                name = min(found, key=lambda name: found[name][0])
                row, place = found[name]
                text = _text_of_wrong(name, place, _row(features, row), limits)
                return f"{path}, record {batch * _SCANNED_AT_ONCE + row + 1}: {text}"
    return f"{_WRONG}, in {', '.join(paths)}"


def _row(features, row):
    return {name: values[row].numpy() for name, values in features.items()}


def _text_of_wrong(name, place, features, limits):
    value, weight = features[name][place], features["masked_lm_weights"]
    if name == "masked_lm_positions":
        return (
            f"{name}[{place}] = {value} is the place of none of the {features['input_mask'].sum()} "
            f"real tokens (input_mask), but masked_lm_weights[{place}] is {weight[place]}: give "
            "entries that do not count the weight 0, which makes any position harmless, and make "
            "the records again"
        )
    if name in limits:
        return dynamic_masking.value_text(name, place, value, limits[name])
    return f"{name}[{place}] = {value}, expected a weight of 0 or more: make the records again"


# --- metrics -------------------------------------------------------------------------------------


def _correct(labels, logits):
    """[rows] 1 where the label has the highest of the logits [rows, V], else 0.

    A maximum is several times faster than an argmax over a large vocabulary.
    """
    of_label = tf.gather(logits, labels, batch_dims=1)
    return tf.cast(of_label >= tf.reduce_max(logits, axis=-1), tf.float32)


def _ratios(sentence):
    """{metric: (numerator, denominator)}, names of sums that each row carries.

    Args:
      sentence: name of what is measured of two pieces of text; None: nothing.
    """
    measured = ("masked_lm", sentence) if sentence else ("masked_lm",)
    return {
        f"{name}_{metric}": (f"{name}_{total}", f"{name}_weight")
        for name in measured
        for metric, total in (("accuracy", "correct"), ("loss", "loss"))
    }


def _row_sums(outputs, features, head, sentence):
    """Sums over the masked positions of each example, {name: [B]}.

    Args:
      head: name of the outputs of the sentence task; None: there are none.
      sentence: see `_ratios`.
    """
    weights = features["masked_lm_weights"]  # [B, P]
    ids = tf.reshape(features["masked_lm_ids"], [-1])
    losses = tf.reshape(outputs["masked_lm_example_loss"], tf.shape(weights))
    correct = tf.reshape(_correct(ids, outputs["masked_lm_logits"]), tf.shape(weights))
    sums = {
        "masked_lm_loss": tf.reduce_sum(losses * weights, axis=1),
        "masked_lm_correct": tf.reduce_sum(correct * weights, axis=1),
        "masked_lm_weight": tf.reduce_sum(weights, axis=1),
    }
    if head:
        labels = tf.reshape(features["next_sentence_labels"], [-1])
        log_probs = outputs[f"{head}_log_probs"]  # [B, 2]
        sums |= {
            f"{sentence}_loss": -tf.gather(log_probs, labels, batch_dims=1),
            f"{sentence}_correct": _correct(labels, log_probs),
            f"{sentence}_weight": tf.ones_like(labels, tf.float32),
        }
    return sums


def _train_metrics(outputs, features, head, sentence):
    sums = _row_sums(outputs, features, head, sentence)
    return {
        name: (tf.reduce_sum(sums[top]), tf.reduce_sum(sums[bottom]))
        for name, (top, bottom) in _ratios(sentence).items()
        if name.endswith("accuracy")
    }


class Evaluator:
    """Adds up rows of sums.

    Args:
      sentence: name of what is measured of two pieces of text; None: nothing.
    """

    def __init__(self, sentence="sentence_order"):
        self._totals = {}
        self._ratios = _ratios(sentence)

    def update(self, rows):
        for name, values in rows.items():
            self._totals[name] = self._totals.get(name, 0.0) + values.sum(dtype=np.float64)

    def result(self):
        """Accuracy and loss of each task, and ``loss``, the sum."""
        result = {
            name: float(self._totals[top] / max(self._totals[bottom], 1e-5))
            for name, (top, bottom) in self._ratios.items()
        }
        result["loss"] = sum(value for name, value in result.items() if name.endswith("_loss"))
        return result

    def baseline(self):
        """Nothing: the sums do not say which token is the most frequent."""
        return {}


def make_task(sentence_task="sop", trained_for=None):
    """The `contracts.Task` of pre-training.

    Args:
      sentence_task: key of `pretraining_heads.SENTENCE_TASKS`: what the labels of two pieces of
        text say, and what is learnt or measured.
      trained_for: another such key: what the head was trained for whose answers are measured. The
        metrics are then called ``<head>_head_on_<labels>_…``. None: the same.
    """
    labels = pretraining_heads.SENTENCE_TASKS[sentence_task]
    model = sentence_task if labels is None or trained_for is None else trained_for
    head = pretraining_heads.SENTENCE_TASKS[model]
    names = {"head": head, "sentence": labels if head == labels else f"{head}_head_on_{labels}"}
    partial = functools.partial
    return contracts.Task(
        name="pretraining",
        build_model=partial(pretraining_heads.PretrainingModel, sentence_task=model),
        eval_outputs=partial(_row_sums, **names),
        evaluator=partial(Evaluator, names["sentence"]),
        train_metrics=partial(_train_metrics, **names),
        best_metric="masked_lm_accuracy",
        metrics=(*_ratios(names["sentence"]), "loss"),
    )


TASK = make_task()


def make_data(
    files, lengths, max_eval_examples, masker=None, anew=False, sentence_labels=True,
    equal_tokens=False, mixture=None, limits=None,
):  # fmt: skip
    """The `contracts.Data` of records that `create_pretraining_data` has made.

    Args:
      files: {"train": …, "dev": …}, what `dynamic_masking.look_at` gives.
      lengths: (S, P) that records with masks were made with; others have at most S tokens.
      max_eval_examples: most examples to evaluate, from the front.
      masker: `dynamic_masking.Masker` for records without masks.
      anew: the masker masks records for training that have masks, too.
      sentence_labels: read them; records with masks need not have any otherwise.
      equal_tokens: training batches hold equally many tokens, see `tensor_batching.equal_tokens`.
      mixture: `input_pipeline.Source`s of the training files; by default all are one.
      limits: what `limits` gives for the model; by default any number may stand for a token.

    Raises:
      file_io.InputError: there are no records, a file is cut off, or the lengths differ.
    """
    check = functools.partial(prepare, limits=limits or {})
    specs = {}
    for split, found in files.items():
        slots = masker.config.num_slots if found.without_masks else lengths[1]
        specs[split] = instances.feature_specs(
            lengths[0],
            slots,
            with_boundaries=anew and split == "train",
            with_sentence_labels=sentence_labels,
        )
        written = instances.compact_feature_specs() if found.without_masks else specs[split]
        if split == "train" or found is not files["train"]:
            record_files.check_files(found.paths, written, _HINT)
    unmasked_train, unmasked_dev = files["train"].without_masks, files["dev"].without_masks
    train_input = input_options.TrainInput(
        read=functools.partial(masker.read, seq_length=lengths[0]) if unmasked_train else None,
        prepare=None if unmasked_train else check,
        transform=masker.transform if unmasked_train or anew else None,
        lengths=files["train"].lengths if equal_tokens else None,
        mixture=mixture,
    )
    eval_input = input_options.EvalInput(
        prepare=check,
        rewrite=functools.partial(masker.rewrite, seq_length=lengths[0]) if unmasked_dev else None,
        max_examples=max_eval_examples,
        min_tokens=lengths[0] // 4,  # Predictions of short texts need no less memory.
    )
    return contracts.Data(
        specs=specs.get,
        records=lambda split: files[split].paths,
        ids=_no_predictions,
        write_predictions=_no_predictions,
        reading=functools.partial(_reading, files, lengths, masker, limits or {}, sentence_labels),
        train_input=train_input,
        eval_input=eval_input,
        files=lambda split: files[split].paths,
    )


def _reading(files, lengths, masker, limits, sentence_labels, paths):
    """`damage_reported` of what `make_data` was given."""
    unmasked = {path for found in files.values() if found.without_masks for path in found.paths}

    def find_unmasked(read):
        vocab_size = len(masker.vocabulary.word_starts)
        return dynamic_masking.first_wrong(read, lengths[0], vocab_size)

    specs = instances.feature_specs(*lengths, False, sentence_labels)
    return damage_reported(paths, specs, unmasked, find_unmasked, limits)


def _no_predictions(*_):
    raise ValueError("pre-training predicts nothing")
