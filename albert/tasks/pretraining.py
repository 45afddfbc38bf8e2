"""Defines pre-training (masked words and a sentence task) as a task of the engine."""

import contextlib
import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from albert.data import (
    dynamic_masking,
    input_options,
    instances,
    record_files,
    record_values,
    tfrecord,
)
from albert.data.input_options import Tensors
from albert.model import encoder, pretraining_heads
from albert.training import contracts, results

_NO_PREDICTIONS = "pre-training predicts nothing"
_HINT = (
    "Give the max_seq_length and max_predictions_per_seq that the records were made with (of the "
    "latter twice the number, if they were made with do_permutation)"
)


def limits(config: encoder.AlbertConfig) -> dict[str, int]:
    """Returns {name of a feature: exclusive maximum of its values} of records with masks."""
    return {
        **record_values.limits_of_model(config),
        "masked_lm_ids": config.vocab_size,
        "next_sentence_labels": 2,
    }


def _used_values(features: Tensors) -> Tensors:
    """Returns {name: bool tensor like the feature}: whether a value is of a token or has weight."""
    is_token, has_weight = features["input_mask"] != 0, features["masked_lm_weights"] != 0
    return {
        "input_ids": is_token,
        "segment_ids": is_token,
        "masked_lm_ids": has_weight,
        "masked_lm_positions": has_weight,
    }


def _invalid_values(features: Tensors, limits: Mapping[str, int]) -> dict[str, tf.Tensor]:
    """Returns {name: bool tensor like the feature}: whether a value is used but invalid."""
    real = tf.reduce_sum(features["input_mask"], axis=-1, keepdims=True)
    limits = {**limits, "masked_lm_positions": real}
    errors, counting = record_values.find_wrong(features, limits), _used_values(features)
    errors = {name: values & counting.get(name, True) for name, values in errors.items()}
    errors["masked_lm_weights"] |= features["masked_lm_weights"] < 0
    return errors


def prepare(features: dict[str, Any], limits: Mapping[str, int]) -> dict[str, Any]:
    """Checks the features of a batch as it was read, which must be below the `limits`.

    Returns:
      The features, with 0 for each position, label, token and segment that has no effect because it
      is padding or has no weight; the records may hold any value there.

    Raises:
      tf.errors.InvalidArgumentError: a value is invalid, such as a position with a weight that is
        not a real token; `record_values.report_damage` finds its record.
    """
    with tf.control_dependencies([record_values.refuse(_invalid_values(features, limits))]):
        cleared = {
            name: tf.where(counts, features[name], 0)
            for name, counts in _used_values(features).items()
        }
        return {**features, **cleared}


def _describe(
    name: str, place: tuple[int, ...], features: Mapping[str, np.ndarray], limits: Mapping[str, int]
) -> str:
    """Returns the message on a value that `prepare` refuses.

    `name` is a key of `_invalid_values`, `place` the index of the value in its array.
    """
    value, weight, index = features[name][place], features["masked_lm_weights"], place[-1]
    if name == "masked_lm_positions":
        return (
            f"{name}[{index}] = {value} is the place of none of the {features['input_mask'].sum()} "
            f"real tokens (input_mask), but masked_lm_weights[{index}] is {weight[index]}: give "
            "entries that do not count the weight 0, which makes any position harmless, and make "
            "the records again"
        )
    if name in limits:
        text = record_values.describe_value(name, place, value, limits[name])
        return f"{text}: {dynamic_masking.REMAKE}"
    return f"{name}[{index}] = {value}, expected a weight of 0 or more: make the records again"


# --- metrics -------------------------------------------------------------------------------------


def _is_correct(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Returns [rows]: 1 if the label has the highest of the logits [rows, V], else 0.

    A maximum is several times faster than an argmax over a large vocabulary.
    """
    of_label = tf.gather(logits, labels, batch_dims=1)
    return tf.cast(of_label >= tf.reduce_max(logits, axis=-1), tf.float32)


def _ratios(sentence: str | None) -> dict[str, tuple[str, str]]:
    """Returns {metric: (numerator, denominator)}: names of sums of `_row_sums`."""
    measured = ("masked_lm", sentence) if sentence else ("masked_lm",)
    return {
        f"{name}_{metric}": (f"{name}_{total}", f"{name}_weight")
        for name in measured
        for metric, total in (("accuracy", "correct"), ("loss", "loss"))
    }


def _row_sums(
    outputs: Tensors, features: Tensors, head: str | None, sentence: str | None
) -> dict[str, tf.Tensor]:
    """Returns {name: [B]}, ``<task>_loss``, ``<task>_correct`` and ``<task>_weight`` of examples.

    Args:
      head: prefix of the outputs of the sentence task; None: the model has none.
      sentence: name of the sentence task in metrics; None: not measured.
    """
    weights = features["masked_lm_weights"]  # [B, P]
    ids = tf.reshape(features["masked_lm_ids"], [-1])
    losses = tf.reshape(outputs["masked_lm_example_loss"], tf.shape(weights))
    correct = tf.reshape(_is_correct(ids, outputs["masked_lm_logits"]), tf.shape(weights))
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
            f"{sentence}_correct": _is_correct(labels, log_probs),
            f"{sentence}_weight": tf.ones_like(labels, tf.float32),
        }
    return sums


def _train_metrics(
    outputs: Tensors, features: Tensors, head: str | None, sentence: str | None
) -> dict[str, tuple[tf.Tensor, tf.Tensor]]:
    """Returns {``<task>_accuracy``: (sum of correct, sum of weights)} of a batch."""
    sums = _row_sums(outputs, features, head, sentence)
    return {
        name: (tf.reduce_sum(sums[top]), tf.reduce_sum(sums[bottom]))
        for name, (top, bottom) in _ratios(sentence).items()
        if name.endswith("accuracy")
    }


class Evaluator:
    """Adds up the sums of examples; for `sentence` see `_row_sums`."""

    def __init__(self, sentence: str | None = "sentence_order") -> None:
        self._totals: dict[str, float] = {}
        self._ratios = _ratios(sentence)

    def update(self, rows: dict[str, np.ndarray]) -> None:
        """Adds a batch of `_row_sums`: {name: array [B]}."""
        for name, values in rows.items():
            self._totals[name] = self._totals.get(name, 0.0) + values.sum(dtype=np.float64)

    def result(self) -> dict[str, float]:
        """Returns ``<task>_accuracy`` and ``<task>_loss`` of each task, and ``loss``, their sum."""
        result = {
            name: float(self._totals[top] / max(self._totals[bottom], 1e-5))
            for name, (top, bottom) in self._ratios.items()
        }
        result["loss"] = sum(value for name, value in result.items() if name.endswith("_loss"))
        return result

    def classes(self) -> tuple[results.ClassCount, ...]:
        """Returns (): the answers are no classes."""
        return ()

    def baseline(self) -> dict[str, float]:
        """Returns {}: the sums do not show which token is the most frequent."""
        return {}


def make_task(sentence_task: str = "sop", trained_for: str | None = None) -> contracts.Task:
    """Returns the `contracts.Task` of pre-training.

    Args:
      sentence_task: key of `pretraining_heads.SENTENCE_TASKS`: the sentence task to learn or
        measure, which gives the labels.
      trained_for: key of the task that the model's head was trained for; None: `sentence_task`. If
        they differ, metrics are named ``<head>_head_on_<labels>_…``.
    """
    labels = pretraining_heads.SENTENCE_TASKS[sentence_task]
    model = sentence_task if labels is None or trained_for is None else trained_for
    head = pretraining_heads.SENTENCE_TASKS[model]
    sentence = labels if head == labels else f"{head}_head_on_{labels}"
    partial = functools.partial
    return contracts.Task(
        name="pretraining",
        build_model=partial(pretraining_heads.PretrainingModel, sentence_task=model),
        eval_outputs=partial(_row_sums, head=head, sentence=sentence),
        evaluator=partial(Evaluator, sentence),
        train_metrics=partial(_train_metrics, head=head, sentence=sentence),
        best_metric="masked_lm_accuracy",
        metrics=(*_ratios(sentence), "loss"),
    )


@dataclasses.dataclass(frozen=True)
class Reading:
    """How to read records from `create_pretraining_data`, for training and for evaluation.

    Attributes:
      lengths: (S, P) of records with masks; other records have at most S tokens.
      masker: draws masks for records without masks.
      remask: whether the masker also masks training records that have masks.
      sentence_labels: whether to read labels of the sentence task; records with masks may lack them
        otherwise.
      limits: `limits` of the model; by default tokens may have any id.
    """

    lengths: tuple[int, int]
    masker: dynamic_masking.Masker | None = None
    remask: bool = False
    sentence_labels: bool = True
    limits: Mapping[str, int] = dataclasses.field(default_factory=dict)


def make_data(
    files: Mapping[str, dynamic_masking.RecordFiles],
    reading: Reading,
    max_eval_examples: int,
    equal_tokens: bool = False,
    group_by_length: bool = False,
    mixture: Sequence[input_options.Source] | None = None,
    words_per_token: float | None = None,
) -> "PretrainingData":
    """Returns the `contracts.Data` of records from `create_pretraining_data`.

    Args:
      files: {"train": …, "dev": …}, the records of each split.
      max_eval_examples: maximum number of examples to evaluate, from the front.
      equal_tokens: whether training batches hold equal numbers of tokens.
      mixture: sources of the training files; by default all files are one source.
      words_per_token: words per token in the training files; None: unknown.
    """
    masker, length = reading.masker, reading.lengths[0]
    check = functools.partial(prepare, limits=reading.limits)
    unmasked_train, unmasked_dev = files["train"].without_masks, files["dev"].without_masks
    reader, rewriter = (masker if x else None for x in (unmasked_train, unmasked_dev))
    transformer = masker if unmasked_train or reading.remask else None
    train_input = input_options.TrainInput(
        read=functools.partial(reader.read, seq_length=length) if reader else None,
        prepare=None if unmasked_train else check,
        transform=transformer.transform if transformer else None,
        lengths=files["train"].lengths if equal_tokens else None,
        group_by_length=group_by_length,
        mixture=mixture,
    )
    eval_input = input_options.EvalInput(
        prepare=check,
        rewrite=functools.partial(rewriter.rewrite, seq_length=length) if rewriter else None,
        max_examples=max_eval_examples,
        min_tokens=length // 4,  # Shorter batches need no less memory for predictions.
    )
    return PretrainingData(
        train_input=train_input,
        eval_input=eval_input,
        words_per_token=words_per_token,
        inputs=files,
        settings=reading,
        specs_by_split=_checked_specs(files, reading),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingData(contracts.Data):
    """Records of `create_pretraining_data`, of which nothing is predicted; see `make_data`."""

    inputs: Mapping[str, dynamic_masking.RecordFiles]
    settings: Reading
    specs_by_split: Mapping[str, Sequence[tfrecord.FeatureSpec]]

    def specs(self, split: str) -> Sequence[tfrecord.FeatureSpec]:
        """Returns the features in records of the split "train", "dev" or "test"."""
        return self.specs_by_split[split]

    def make_records(self, split: str) -> list[str]:
        """Returns the paths of the records of a split, which exist."""
        return self.inputs[split].paths

    def files(self, split: str) -> list[str]:
        """Returns the paths of the files of a split."""
        return self.inputs[split].paths

    def reading(self, paths: Sequence[str]) -> contextlib.AbstractContextManager[None]:
        """Returns a context in which these files are read; errors name invalid records."""
        reading = self.settings
        unmasked = {
            path
            for records in self.inputs.values()
            if records.without_masks
            for path in records.paths
        }
        specs = instances.feature_specs(*reading.lengths, False, reading.sentence_labels)
        find_wrong = functools.partial(_invalid_values, limits=reading.limits)
        describe = functools.partial(_describe, limits=reading.limits)

        def find_masked() -> str:
            """Returns the message on the first invalid record with masks."""
            masked = [path for path in paths if path not in unmasked]
            return record_values.find_wrong_record(masked, specs, find_wrong, describe)

        def find_unmasked() -> str:
            """Returns the message on the first invalid record without masks."""
            unmasked_paths = [path for path in paths if path in unmasked]
            assert reading.masker  # which records without masks need
            vocab_size = len(reading.masker.vocabulary.word_starts)
            return dynamic_masking.find_invalid_record(
                unmasked_paths, reading.lengths[0], vocab_size
            )

        return record_values.report_damage(
            paths, {record_values.WRONG: find_masked, dynamic_masking.INVALID: find_unmasked}
        )

    def read_ids(self) -> list[str]:
        """Raises `ValueError`: pre-training has no predictions."""
        raise ValueError(_NO_PREDICTIONS)

    def write_predictions(
        self, output_dir: str, rows: contracts.Rows, ids: list[str], prefix: str
    ) -> None:
        """Raises `ValueError`: pre-training has no predictions, whatever is given."""
        raise ValueError(_NO_PREDICTIONS)


def _checked_specs(
    files: Mapping[str, dynamic_masking.RecordFiles], reading: Reading
) -> dict[str, Sequence[tfrecord.FeatureSpec]]:
    """Returns {split: specifications of its features}, after a check of the files."""
    masker, (length, slots) = reading.masker, reading.lengths
    specs: dict[str, Sequence[tfrecord.FeatureSpec]] = {}
    for split, records in files.items():
        specs[split] = instances.feature_specs(
            length,
            masker.config.num_slots if masker and records.without_masks else slots,
            with_boundaries=reading.remask and split == "train",
            with_sentence_labels=reading.sentence_labels,
        )
        file_specs = instances.compact_feature_specs() if records.without_masks else specs[split]
        if split == "train" or records is not files["train"]:
            record_files.check_files(records.paths, file_specs, _HINT)
    return specs
