"""Draws masks while training and evaluating, for records with or without masks.

Masks depend on the seed and the number of the batch, so a resumed run sees the masks that an
uninterrupted run would have seen. In an evaluation they depend on the place of the record in its
files: always the same masks, on any number of devices.

Shapes: B batch, S positions, P predictions.
"""

import contextlib
import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
from google.protobuf import message

from albert.data import (
    input_options,
    input_pipeline,
    instances,
    masking,
    record_files,
    record_values,
    tfrecord,
)
from albert.data.input_options import Tensors
from albert.io import file_io
from albert.text import model_inputs, tokenization

_HINT = "Make the records again with this version of create_pretraining_data"
_TRAINING, _EVALUATION, _WHOLE = 0, 1, 2  # random streams
_EVALUATION_SEED = 12345  # of all runs, so that their scores compare
_SAMPLED_FILES, _SAMPLED_RECORDS = 16, 1024  # that are inspected
REMAKE = "make the records again, with the vocabulary of the model"
INVALID = "a record is longer than the sequence, or holds an impossible value"
LABELS = "next_sentence_labels"


@dataclasses.dataclass(frozen=True)
class RecordFiles:
    """Files of one split.

    Attributes:
      without_masks: whether they were made to be masked while training, see `instances`.
      fingerprints: {path: fingerprint of its vocabulary}; empty for records with masks.
      has_second_texts: whether one of the first records of some files has a second segment.
    """

    paths: list[str]
    without_masks: bool
    fingerprints: Mapping[str, int]
    has_second_texts: bool = True

    def lengths(self, serialized: tf.Tensor) -> tf.Tensor:
        """Counts the tokens of records: [B] strings -> [B] int32."""
        if self.without_masks:
            return _token_counts(serialized)
        mask = tf.io.RaggedFeature(tf.int64)
        parsed = tf.io.parse_example(serialized, {"input_mask": mask})
        return tf.cast(tf.reduce_sum(parsed["input_mask"], axis=1), tf.int32)

    def mean_length(self) -> float:
        """Returns the mean number of tokens of the first records of up to 16 files with records."""
        with_records = [
            path
            for path, count in zip(self.paths, record_files.counts(self.paths), strict=True)
            if count
        ]
        paths = _sample(with_records or self.paths)
        with record_files.report_damage(paths):
            lengths = [
                self.lengths(serialized).numpy()
                for path in paths
                for serialized in (
                    record_files.serialized_examples([path]).batch(_SAMPLED_RECORDS).take(1)
                )
            ]
        if not lengths:
            raise file_io.InputError(f"no records in {', '.join(paths)}")
        return float(np.mean(np.concatenate(lengths)))

    def check_vocabulary(self, fingerprint: int, name: str) -> None:
        """Compares a vocabulary, called `name` in messages, with that of the records."""
        for path, file_fingerprint in self.fingerprints.items():
            if file_fingerprint != fingerprint:
                raise file_io.InputError(
                    f"{path} was made with another vocabulary than {name}: give, as spm_model_file "
                    "or vocab_file, the one that the records were made with"
                )


def inspect(paths: Sequence[str]) -> RecordFiles:
    """Inspects files by the first record of each."""
    first_examples = {path: record_files.first_example(path) for path in paths}
    examples = {path: example for path, example in first_examples.items() if example is not None}
    name = instances.FINGERPRINT
    compact = [path for path, example in examples.items() if name in example.features.feature]
    masked = [path for path in examples if path not in compact]
    if compact and masked:
        raise file_io.InputError(
            f"{compact[0]} holds records without masks, {masked[0]} records with masks: give files "
            "of one kind"
        )
    for path in compact:
        record_files.check_example(examples[path], path, instances.compact_feature_specs(), _HINT)
    return RecordFiles(
        list(paths),
        bool(compact),
        {path: examples[path].features.feature[name].int64_list.value[0] for path in compact},
        _have_second_texts(list(examples), bool(compact)),
    )


def _sample(paths: Sequence[str]) -> Sequence[str]:
    """Returns up to `_SAMPLED_FILES` of the files."""
    return paths[:: max(1, -(-len(paths) // _SAMPLED_FILES))]


def _have_second_texts(paths: Sequence[str], without_masks: bool) -> bool:
    """Returns whether one of the first records of up to `_SAMPLED_FILES` files has one."""
    for path in _sample(paths):
        with record_files.report_damage([path]):
            for serialized in record_files.serialized_examples([path]).take(_SAMPLED_RECORDS):
                # What is no Example is reported when it is read for training.
                with contextlib.suppress(message.DecodeError):
                    example = tf.train.Example.FromString(serialized.numpy())
                    if _has_second_text(example, without_masks):
                        return True
    return False


def _has_second_text(example: tf.train.Example, without_masks: bool) -> bool:
    def values(name: str) -> Sequence[int]:
        return example.features.feature[name].int64_list.value

    if without_masks:
        return any(len(values("input_ids")) > start for start in values("segment_b_start"))
    return any(values("segment_ids"))


def _token_counts(serialized: tf.Tensor) -> tf.Tensor:
    """Counts the tokens of records without masks: [B] strings -> [B] int32."""
    specs = instances.compact_feature_specs(with_fingerprint=False)[:1]
    real = input_pipeline.parse(specs, serialized)["input_ids"] >= 0
    return tf.reduce_sum(tf.cast(real, tf.int32), axis=1)


def find_invalid_record(paths: Sequence[str], seq_length: int, vocab_size: int) -> str:
    """Returns a message on the first record without masks that `Masker` cannot read."""
    hint = "give the max_seq_length that the records were made with"
    for path in paths:
        records = itertools.chain.from_iterable(tfrecord.read_records(path))
        for number, serialized in enumerate(records, 1):
            example = tfrecord.parse_example(serialized)
            length = len(example["input_ids"])
            place = f"{path}, record {number}"
            if length > seq_length:
                return f"{place} has {length} tokens, more than max_seq_length={seq_length}: {hint}"
            highest = {"input_ids": vocab_size, "segment_b_start": length + 1, LABELS: 2}
            for name, high in highest.items():
                wrong = (example[name] < 0) | (example[name] >= high)
                if wrong.any():
                    first = int(wrong.argmax())
                    text = record_values.describe_value(name, [first], example[name][first], high)
                    return f"{place}: {text}: {REMAKE}"
    return f"{INVALID}, in {', '.join(paths)}"


def unmask(
    input_ids: np.ndarray, positions: np.ndarray, labels: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """Returns the original ids [B, S], with the tokens at the predicted positions restored.

    Args:
      positions, labels, weights: [B, P]; entries of weight 0 are padding.
    """
    original = input_ids.copy()
    rows, slots = np.nonzero(weights)
    original[rows, positions[rows, slots]] = labels[rows, slots]
    return original


@dataclasses.dataclass(frozen=True)
class Masker:
    """Draws masks for batches of pre-training records.

    Attributes:
      seed: non-negative integer, the only source of randomness.
      whole: fraction of the training examples that get no masks, and predict nothing.
    """

    config: masking.MaskingConfig
    vocabulary: instances.Vocabulary
    seed: int
    whole: float = 0.0

    def _draw(
        self,
        stream: tuple[int, int],
        input_ids: np.ndarray,
        input_mask: np.ndarray,
        word_starts: np.ndarray,
    ) -> masking.MaskedBatch:
        """Masks [B, S] arrays; every token but [CLS] and [SEP] may be masked."""
        vocabulary = self.vocabulary
        seed = self.seed if stream[0] == _TRAINING else _EVALUATION_SEED
        special = (input_ids == vocabulary.cls_id) | (input_ids == vocabulary.sep_id)
        return masking.mask_batch(
            input_ids,
            input_mask.sum(axis=1),
            word_starts,
            (input_mask > 0) & ~special,
            self.config,
            len(vocabulary.word_starts),
            vocabulary.mask_id,
            np.random.default_rng([seed, *map(int, stream)]),
        )

    def read(self, serialized: tf.Tensor, seq_length: int) -> dict[str, tf.Tensor]:
        """Parses a batch of records without masks, [B] strings.

        Returns:
          input_ids, input_mask and segment_ids [B, S] and next_sentence_labels [B, 1], all int32.

        Raises:
          tf.errors.InvalidArgumentError: a record is longer than S, or holds an impossible value;
            `find_invalid_record` finds it.
        """
        _, *others = instances.compact_feature_specs(with_fingerprint=False)
        parsed = input_pipeline.parse(others, serialized)
        column = {"input_ids": tf.io.RaggedFeature(tf.int64)}
        ids = tf.io.parse_example(serialized, column)["input_ids"]
        lengths = tf.cast(ids.row_lengths(), tf.int32)
        tokens, starts, labels = ids.flat_values, parsed["segment_b_start"][:, 0], parsed[LABELS]
        in_range = [
            (tokens >= 0) & (tokens < len(self.vocabulary.word_starts)),
            (starts >= 0) & (starts <= lengths) & (lengths <= seq_length),
            (labels >= 0) & (labels <= 1),
        ]
        is_valid = tf.reduce_all([tf.reduce_all(values) for values in in_range])
        with tf.control_dependencies([tf.debugging.Assert(is_valid, [INVALID])]):
            ids = tf.cast(ids.to_tensor(-1)[:, :seq_length], tf.int32)
        ids = tf.pad(ids, [[0, 0], [0, seq_length - tf.shape(ids)[1]]], constant_values=-1)
        ids = tf.ensure_shape(ids, [None, seq_length])
        real = ids >= 0
        in_b = real & (tf.range(seq_length) >= parsed["segment_b_start"])
        return {
            "input_ids": tf.where(real, ids, self.vocabulary.pad_id),
            "input_mask": tf.cast(real, tf.int32),
            "segment_ids": tf.cast(in_b, tf.int32),
            LABELS: labels,
        }

    def transform(self, number: tf.Tensor, features: Tensors) -> dict[str, tf.Tensor]:
        """Masks a training batch, see `input_options.TrainInput.transform`.

        Args:
          number: scalar integer, the batch's own number.
          features: what `read` returns; or those of records with masks and ``token_boundary``,
            whose masks are replaced.

        Returns:
          The features with input_ids [B, S] masked and with masked_lm_positions, masked_lm_ids and
          masked_lm_weights [B, P]; without ``token_boundary``.
        """

        def mask(
            number: int, input_ids: np.ndarray, input_mask: np.ndarray, *previous: np.ndarray
        ) -> tuple[np.ndarray, ...]:
            if previous:  # token_boundary and the masks of the records
                word_starts = previous[0] > 0
                input_ids = unmask(input_ids, *previous[1:])
            else:
                word_starts = self.vocabulary.word_starts[input_ids]
            masked = self._draw((_TRAINING, number), input_ids, input_mask, word_starts)
            random = np.random.default_rng([self.seed, _WHOLE, int(number)]).random(len(input_ids))
            is_whole = (random < self.whole)[:, np.newaxis]
            ids = np.where(is_whole, input_ids, masked.input_ids)
            filled = np.arange(self.config.num_slots) < masked.num_predictions[:, np.newaxis]
            arrays = (ids, masked.positions, masked.labels, filled & ~is_whole)
            return tuple(array.astype(np.int32) for array in arrays)

        names = ("token_boundary", "masked_lm_positions", "masked_lm_ids", "masked_lm_weights")
        inputs = [number, features["input_ids"], features["input_mask"]]
        inputs += [features[name] for name in names if name in features]
        ids, *predicted = tf.numpy_function(mask, inputs, [tf.int32] * 4)
        shape = features["input_ids"].shape
        predicted = [tf.ensure_shape(x, [shape[0], self.config.num_slots]) for x in predicted]
        return {
            **{name: value for name, value in features.items() if name != "token_boundary"},
            "input_ids": tf.ensure_shape(ids, shape),
            "masked_lm_positions": predicted[0],
            "masked_lm_ids": predicted[1],
            "masked_lm_weights": tf.cast(predicted[2], tf.float32),
        }

    def rewrite(self, number: tf.Tensor, serialized: tf.Tensor, seq_length: int) -> tf.Tensor:
        """Makes records with masks, [B] strings, from those of the block `number`, a scalar."""

        def mask(
            number: int,
            input_ids: np.ndarray,
            input_mask: np.ndarray,
            segment_ids: np.ndarray,
            labels: np.ndarray,
        ) -> np.ndarray:
            word_starts = self.vocabulary.word_starts[input_ids]
            masked = self._draw((_EVALUATION, number), input_ids, input_mask, word_starts)
            lengths = input_mask.sum(axis=1)
            rows = instances.serialize(masked, lengths, segment_ids, word_starts, labels)
            # As objects, as arrays of fixed width cut zeros off the ends.
            return np.array(rows, dtype=object)

        features = self.read(serialized, seq_length)
        inputs = [number, *(features[name] for name in model_inputs.NAMES), features[LABELS][:, 0]]
        return tf.ensure_shape(tf.numpy_function(mask, inputs, tf.string), [None])


def make_masker(
    config: masking.MaskingConfig,
    files: dict[str, RecordFiles],
    tokenizer: tokenization.FullTokenizer,
    seed: int,
    whole: float = 0.0,
) -> Masker:
    """Makes the `Masker` of records; `files` are by split, `whole` as in `Masker`."""
    pieces = instances.Vocabulary.from_tokenizer(tokenizer)
    for records in files.values():
        records.check_vocabulary(pieces.fingerprint, str(tokenizer.vocabulary_file))
    return Masker(config, pieces, seed, whole)


def mean_length(sources: list[input_options.Source]) -> float:
    """Returns the mean number of tokens of the records of a mixture."""
    counts = input_pipeline.counts_per_block(sources)
    return sum(
        count / input_pipeline.BLOCK * inspect(source.paths).mean_length()
        for source, count in zip(sources, counts, strict=True)
    )
