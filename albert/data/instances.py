"""Turns text into documents, and these into masked, serialized records for pre-training.

A block of a corpus (`corpus.plan_blocks`) is tokenized once into one flat array. An input is a few
spans of it, and a batch of inputs becomes records with a few numpy calls. No TensorFlow, so that
worker processes start quickly.

Records have masks, or none if training draws them: these compact records hold ids, the start of the
second segment and a fingerprint of their vocabulary.

Source: ALBERT (Lan et al., 2020), section 4.1 (lengths, masking).
Shapes: B inputs in the batch, S positions, P predictions, V vocabulary.
"""

import array
import collections
import dataclasses
import functools
import hashlib
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from albert.data import masking, sentence_pairs, sequence_formats, tfrecord
from albert.text import corpus, model_inputs, tokenization

FINGERPRINT = "vocabulary_fingerprint"
_FINGERPRINT_BITS = 63  # fit in an int64
BATCH_CELLS = 1 << 18  # B * S of the arrays of a batch
_LINES_AT_A_TIME = 2048  # sentences per call of the tokenizer

EncodeBatch = Callable[[list[str]], Sequence[list[int]]]
Batch = tuple[
    list[bytes], collections.Counter[str]
]  # (serialized Examples, counts of their content)


def compact_feature_specs(with_fingerprint: bool = True) -> tuple[tfrecord.FeatureSpec, ...]:
    """Returns the feature specifications of records without masks.

    Args:
      with_fingerprint: include ``vocabulary_fingerprint`` (see `fingerprint`), which is compared
        with a vocabulary and not parsed.
    """
    spec = tfrecord.FeatureSpec
    return (
        # With [CLS] and [SEP].
        spec("input_ids", "int64", (None,), sequence=True),
        # Number of tokens before the second segment; all tokens if there is none.
        spec("segment_b_start", "int64", (1,)),
        spec("next_sentence_labels", "int64", (1,)),
        *([spec(FINGERPRINT, "int64", (1,))] * with_fingerprint),
    )


def fingerprint(pieces: Iterable[str]) -> int:
    """Returns 63 bits of the SHA-256 of a vocabulary's pieces, in order, which identify it."""
    digest = hashlib.sha256("\n".join(pieces).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 64 - _FINGERPRINT_BITS


def serialize_compact(
    input_ids: np.ndarray,
    lengths: np.ndarray,
    segment_ids: np.ndarray,
    labels: np.ndarray,
    vocabulary_fingerprint: int,
) -> list[bytes]:
    """Serializes records without masks.

    Args:
      input_ids: [B, S] integers, padded.
      lengths, labels: [B] numbers of tokens, and `next_sentence_labels`.
      segment_ids: [B, S] booleans, true from the start of the second segment to the last token.

    Raises:
      ValueError: a second segment does not reach to the last token.
    """
    starts = lengths - np.count_nonzero(segment_ids, axis=1)
    column = np.arange(segment_ids.shape[1])
    follows = (column >= starts[:, None]) & (column < lengths[:, None])
    if not np.array_equal(segment_ids.astype(bool), follows):
        raise ValueError("the second segment must be all tokens after the first, to the last")
    rows = {
        "input_ids": tfrecord.packed_rows(input_ids, lengths),
        "segment_b_start": tfrecord.packed_rows(starts[:, None]),
        "next_sentence_labels": tfrecord.packed_rows(labels[:, None]),
        FINGERPRINT: [tfrecord.packed_varints([vocabulary_fingerprint])] * len(lengths),
    }
    entries = {name: _int64_entries(name, packed) for name, packed in rows.items()}
    return _join_entries(compact_feature_specs(), entries)


def _int64_entries(name: str, rows: Iterable[bytes]) -> list[bytes]:
    """Returns the feature-map entry of each row of packed integers."""
    return [tfrecord.int64_header(name, len(row)) + row for row in rows]


def _join_entries(
    specs: Sequence[tfrecord.FeatureSpec], entries: dict[str, list[bytes]]
) -> list[bytes]:
    """Returns B serialized Examples of B feature-map entries by name."""
    tfrecord.check_names(specs, entries)
    # Keys in alphabetical order, as in protobuf's deterministic serialization.
    names = sorted(map(operator.attrgetter("name"), specs))
    rows = zip(*(entries[name] for name in names), strict=True)
    return [tfrecord.example(row) for row in rows]


@dataclasses.dataclass(frozen=True)
class Settings(sequence_formats.Settings):
    """Settings of the instances: those of `sequence_formats.Settings`, seed and masks.

    Attributes:
      random_seed: non-negative integer, the only source of randomness.
      mask: how masks are drawn; None makes records without masks.
    """

    random_seed: int = 12345
    mask: masking.MaskingConfig | None = masking.MaskingConfig()


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """The properties of a tokenizer that are needed when the text is ids.

    Attributes:
      word_starts: [V] booleans, see `masking.starts_word`.
      fingerprint: see `fingerprint`; only records without masks hold it.
    """

    word_starts: np.ndarray
    cls_id: int
    sep_id: int
    mask_id: int
    pad_id: int
    fingerprint: int = 0

    @classmethod
    def from_tokenizer(cls, tokenizer: tokenization.FullTokenizer) -> "Vocabulary":
        pieces = [tokenizer.inv_vocab[i] for i in range(tokenizer.vocab_size)]
        starts = masking.word_start_table(pieces, wordpiece=tokenizer.sp_model is None)
        for piece in tokenizer.rules.extra_pieces:  # the text around it is tokenized by itself
            starts[tokenizer.vocab[piece]] = True
        special = (tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id, tokenizer.pad_id)
        return cls(starts, *special, fingerprint(pieces))


def read_documents(
    segments: Iterable[corpus.Segment], encode_batch: EncodeBatch
) -> tuple[sentence_pairs.Documents, collections.Counter[str]]:
    """Reads and tokenizes a block; the end of a segment also ends a document."""
    counts: collections.Counter[str] = collections.Counter()
    tokens = array.array("i")
    sentence_offsets, document_offsets = [0], [0]
    lines_of_document = 0
    for ids in _encoded_lines(segments, encode_batch, counts):
        if ids is not None:
            lines_of_document += 1
            if ids:
                tokens.extend(ids)
                sentence_offsets.append(len(tokens))
            else:
                counts["sentences_without_tokens"] += 1
        elif lines_of_document:
            lines_of_document = 0
            if len(sentence_offsets) - 1 > document_offsets[-1]:
                document_offsets.append(len(sentence_offsets) - 1)
            else:
                counts["documents_without_tokens"] += 1
    counts["documents"] = len(document_offsets) - 1
    counts["sentences"] = len(sentence_offsets) - 1
    counts["tokens"] = len(tokens)
    documents = np.array(tokens, np.int32), sentence_offsets, document_offsets
    return sentence_pairs.Documents(*documents), counts


def _encoded_lines(
    segments: Iterable[corpus.Segment], encode_batch: EncodeBatch, counts: collections.Counter[str]
) -> Iterator[list[int] | None]:
    """Yields the ids of each line with text, and None at the end of a document."""
    for segment in segments:
        for lines in corpus.read_lines(segment):
            lines = [line.strip() for line in lines]
            for start in range(0, len(lines), _LINES_AT_A_TIME):
                group = lines[start : start + _LINES_AT_A_TIME]
                encoded = iter(encode_batch([line for line in group if line]))
                for line in group:
                    if not line:
                        counts["empty_lines"] += 1
                    yield next(encoded) if line else None
        yield None


def assemble(
    tokens: np.ndarray, inputs: sequence_formats.Inputs, max_seq_length: int, vocabulary: Vocabulary
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Makes arrays of [CLS] span [SEP] span [SEP] … padding.

    Args:
      inputs: each of at most S tokens with [CLS] and [SEP].

    Returns:
      (input_ids [B, S], lengths [B], segment_ids [B, S] booleans, maskable [B, S] booleans).
    """
    # First all rows in one array, without padding.
    sizes = inputs.spans[:, 1] - inputs.spans[:, 0]
    row_of_span = np.repeat(np.arange(len(inputs)), np.diff(inputs.offsets))
    seps = np.cumsum(sizes + 1) + row_of_span
    row_ends = seps[inputs.offsets[1:] - 1] + 1
    lengths = np.diff(row_ends, prepend=0)
    is_text = np.ones(row_ends[-1], bool)
    is_text[seps] = is_text[row_ends - lengths] = False
    places = np.arange(sizes.sum())
    places += np.repeat(inputs.spans[:, 0] - np.cumsum(sizes) + sizes, sizes)
    ids = np.full(len(is_text), vocabulary.sep_id, tokens.dtype)
    ids[is_text] = tokens[places]
    ids[row_ends - lengths] = vocabulary.cls_id
    repeats = sizes + 1
    repeats[inputs.offsets[:-1]] += 1  # [CLS]
    segment_ids = np.repeat(inputs.segment_ids > 0, repeats)

    is_real = np.arange(max_seq_length) < lengths[:, None]

    def pad(values: np.ndarray, padding: int) -> np.ndarray:
        rows = np.full(is_real.shape, padding, values.dtype)
        rows[is_real] = values
        return rows

    return pad(ids, vocabulary.pad_id), lengths, pad(segment_ids, 0), pad(is_text, 0)


@functools.cache
def _ones_entry(name: str, num_ones: int, size: int, dtype: type[np.number]) -> bytes:
    """Returns a feature-map entry of `num_ones` ones followed by zeros."""
    return tfrecord.feature_entry(name, (np.arange(size) < num_ones).astype(dtype))


def feature_specs(
    seq_length: int,
    max_predictions_per_seq: int,
    with_boundaries: bool = True,
    with_sentence_labels: bool = True,
) -> tuple[tfrecord.FeatureSpec, ...]:
    """Returns the feature specifications of records with masks.

    Args:
      seq_length: S.
      max_predictions_per_seq: P.
      with_boundaries: include ``token_boundary`` [S], 1 where a word begins, for masking.
      with_sentence_labels: include ``next_sentence_labels``, which only a sentence task needs.
    """
    spec = tfrecord.FeatureSpec
    sequences = [*model_inputs.NAMES]
    if with_boundaries:
        sequences.append("token_boundary")
    predicted = {
        "masked_lm_positions": "int64",
        "masked_lm_ids": "int64",
        "masked_lm_weights": "float32",
    }
    return (
        *(spec(name, "int64", (seq_length,), sequence=True) for name in sequences),
        *(spec(name, dtype, (max_predictions_per_seq,)) for name, dtype in predicted.items()),
        *([spec("next_sentence_labels", "int64", (1,))] * with_sentence_labels),
    )


def serialize(
    masked: masking.MaskedBatch,
    lengths: np.ndarray,
    segment_ids: np.ndarray,
    token_boundary: np.ndarray,
    labels: np.ndarray,
) -> list[bytes]:
    """Serializes records with masks.

    Args:
      lengths, labels: [B] numbers of tokens, and `next_sentence_labels`.
      segment_ids, token_boundary: [B, S] booleans.
    """
    columns = {
        "input_ids": masked.input_ids,
        "masked_lm_ids": masked.labels,
        "masked_lm_positions": masked.positions,
        "next_sentence_labels": labels[:, None],
        "segment_ids": segment_ids,
        "token_boundary": token_boundary,
    }
    entries = {
        name: _int64_entries(name, tfrecord.packed_rows(values)) for name, values in columns.items()
    }
    seq_length, num_slots = segment_ids.shape[1], masked.positions.shape[1]
    entries["input_mask"] = [
        _ones_entry("input_mask", length, seq_length, np.int64) for length in lengths.tolist()
    ]
    entries["masked_lm_weights"] = [
        _ones_entry("masked_lm_weights", count, num_slots, np.float32)
        for count in masked.num_predictions.tolist()
    ]
    return _join_entries(feature_specs(seq_length, num_slots), entries)


def make_records(
    documents: sentence_pairs.Documents,
    settings: Settings,
    vocabulary: Vocabulary,
    stream: tuple[int, ...],
) -> Iterator[Batch]:
    """Makes the records of one pass over documents; passes of other `stream`s are independent."""
    rng = np.random.default_rng([settings.random_seed, *stream])
    inputs, counts = sequence_formats.draw_inputs(documents, settings, rng)
    yield [], counts
    batch_size = max(1, BATCH_CELLS // settings.max_seq_length)
    for start in range(0, len(inputs), batch_size):
        batch = inputs.part(start, start + batch_size)
        yield _make_batch(documents.tokens, batch, settings, vocabulary, rng)


def _make_batch(
    tokens: np.ndarray,
    inputs: sequence_formats.Inputs,
    settings: Settings,
    vocabulary: Vocabulary,
    rng: np.random.Generator,
) -> Batch:
    input_ids, lengths, segment_ids, maskable = assemble(
        tokens, inputs, settings.max_seq_length, vocabulary
    )
    labels = inputs.labels
    token_boundary = vocabulary.word_starts[input_ids] & maskable
    counts: collections.Counter[str] = collections.Counter(
        instances=len(inputs),
        instance_tokens=int(lengths.sum()),
        instance_words=int(np.count_nonzero(token_boundary)),
        labels_1=int(labels.sum()),
    )
    if settings.mask is None:
        records = serialize_compact(input_ids, lengths, segment_ids, labels, vocabulary.fingerprint)
        return records, counts
    # [CLS] and [SEP] count as words, padding does not.
    token_boundary |= ~maskable & (np.arange(settings.max_seq_length) < lengths[:, None])
    masked = masking.mask_batch(
        input_ids,
        lengths,
        token_boundary,
        maskable,
        settings.mask,
        len(vocabulary.word_starts),
        vocabulary.mask_id,
        rng,
    )
    counts["masked"] = int(masked.num_masked.sum())
    counts["permuted"] = int((masked.num_predictions - masked.num_masked).sum())
    return serialize(masked, lengths, segment_ids, token_boundary, labels), counts
