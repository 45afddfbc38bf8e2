"""Pre-training instances: text to documents to masked, serialized records.

Everything works on one block of a corpus (`corpus.plan_blocks`) that is tokenized once into one
flat array; an input is a few spans of it, and a batch of inputs becomes records with a few numpy
calls. No TensorFlow, so that worker processes start at once.

Source: ALBERT (Lan et al., 2020), section 4.1 (lengths, masking).
Shapes: B inputs in the batch, S positions, P predictions, V vocabulary.
"""

import array
import collections
import dataclasses
import functools
import hashlib
import operator

import numpy as np

from albert.data import masking, sequence_formats, tfrecord
from albert.text import corpus

FINGERPRINT = "vocabulary_fingerprint"
_FINGERPRINT_BITS = 63  # what an int64 holds without a sign


def compact_feature_specs(with_fingerprint=True):
    """`tfrecord.FeatureSpec` of the records.

    Args:
      with_fingerprint: also ``vocabulary_fingerprint``, see `fingerprint`; it is to be compared,
        not parsed.
    """
    spec = tfrecord.FeatureSpec
    return (
        # [CLS] and [SEP] counted.
        spec("input_ids", "int64", (None,), sequence=True),
        # Tokens before the second segment: all, if there is none.
        spec("segment_b_start", "int64", (1,)),
        spec("next_sentence_labels", "int64", (1,)),
        *([spec(FINGERPRINT, "int64", (1,))] * with_fingerprint),
    )


def fingerprint(pieces):
    """What tells one vocabulary from another: 63 bits of the SHA-256 of its pieces, in order."""
    digest = hashlib.sha256("\n".join(pieces).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 64 - _FINGERPRINT_BITS


def serialize_compact(input_ids, lengths, segment_ids, labels, vocabulary_fingerprint):
    """Serialized `tf.train.Example`s.

    Args:
      input_ids: [B, S] integers, padded.
      lengths: [B] tokens of each sequence.
      segment_ids: [B, S] booleans, true from the start of the second segment to the last token.
      labels: [B] integers, `next_sentence_labels`.
      vocabulary_fingerprint: what `fingerprint` gives.

    Returns:
      List of B byte strings.

    Raises:
      ValueError: a second segment does not reach to the last token.
    """
    starts = lengths - np.count_nonzero(segment_ids, axis=1)
    column = np.arange(segment_ids.shape[1])
    follows = (column >= starts[:, None]) & (column < lengths[:, None])
    if not np.array_equal(segment_ids.astype(bool), follows):
        raise ValueError("a second segment has to be all that follows the first, to the last token")
    rows = {
        "input_ids": tfrecord.packed_rows(input_ids, lengths),
        "segment_b_start": tfrecord.packed_rows(starts[:, None]),
        "next_sentence_labels": tfrecord.packed_rows(labels[:, None]),
        FINGERPRINT: [tfrecord.packed_varints([vocabulary_fingerprint])] * len(lengths),
    }
    specs = compact_feature_specs()
    tfrecord.check_names(specs, rows)
    # Keys in alphabetical order, as protobuf's deterministic serialization has them.
    names = sorted(map(operator.attrgetter("name"), specs))
    entries = [
        [tfrecord.int64_header(name, len(row)) + row for row in rows[name]] for name in names
    ]
    return [tfrecord.example(row) for row in zip(*entries, strict=True)]


# --- Pre-training instances: text to documents to masked, serialized records ---------------------


NUM_SPECIALS = 3  # [CLS] A [SEP] B [SEP]
BATCH_CELLS = 1 << 18  # B * S of the arrays that are worked on at a time
_LINES_AT_A_TIME = 2048  # sentences per call of the tokenizer


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the instances are like.

    Attributes:
      max_seq_length: S.
      short_seq_prob: share of documents (per pass) that aim at a random length in 2..S-3 tokens;
        only of segment pairs.
      sentence_task: "reference", "sop", "nsp" or "none"; see `sequence_formats.draw_pairs`.
      random_seed: non-negative integer, the one source of chance.
      mask: `masking.MaskingConfig`; None makes records without masks, see `instances`.
      sequence_format: a name in `sequence_formats.FORMATS`; see `sequence_formats.draw_inputs`.
    """

    max_seq_length: int = 512
    short_seq_prob: float = 0.1
    sentence_task: str = "reference"
    random_seed: int = 12345
    mask: masking.MaskingConfig | None = masking.MaskingConfig()
    sequence_format: str = "segment_pair"

    def __post_init__(self):
        sequence_formats.check(self)

    @property
    def max_tokens(self):
        """Most tokens of A and B together."""
        return self.max_seq_length - NUM_SPECIALS


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """What is needed of a tokenizer once the text is ids.

    Attributes:
      word_starts: [V] booleans, see `masking.starts_word`.
      cls_id, sep_id, mask_id, pad_id: ids of the special pieces.
      fingerprint: what `fingerprint` gives; only records without masks hold it.
    """

    word_starts: np.ndarray
    cls_id: int
    sep_id: int
    mask_id: int
    pad_id: int
    fingerprint: int = 0

    @classmethod
    def of(cls, tokenizer):
        pieces = [tokenizer.inv_vocab[i] for i in range(tokenizer.vocab_size)]
        starts = masking.word_start_table(pieces, wordpiece=tokenizer.sp_model is None)
        special = (tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id, tokenizer.pad_id)
        return cls(starts, *special, fingerprint(pieces))


@dataclasses.dataclass(frozen=True)
class Documents:
    """Tokenized documents of one block; none is empty, nor is any sentence.

    Attributes:
      tokens: ids of all sentences, one after another.
      sentence_offsets: list, where in `tokens` each sentence begins; and the end of the last.
      document_offsets: list, which sentence each document begins with; and the end of the last.
    """

    tokens: np.ndarray
    sentence_offsets: list
    document_offsets: list


# --- text -------------------------------------------------------------------------------------


def read_documents(segments, encode_batch):
    """Reads and tokenizes a block.

    Args:
      segments: `corpus.Segment`s; their ends are also ends of documents.
      encode_batch: function, list of texts -> list of lists of ids.

    Returns:
      (`Documents`, Counter of what was read and what was left out).
    """
    counts = collections.Counter()
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
    return Documents(np.array(tokens, np.int32), sentence_offsets, document_offsets), counts


def _encoded_lines(segments, encode_batch, counts):
    """Yields the ids of each line that has text, and None where a document ends."""
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


# --- records ----------------------------------------------------------------------------------


def assemble(tokens, inputs, max_seq_length, vocabulary):
    """Arrays of [CLS] span [SEP] span [SEP] … padding.

    Args:
      tokens: `Documents.tokens`.
      inputs: `sequence_formats.Inputs`, each of at most S tokens with [CLS] and [SEP].
      max_seq_length: S.
      vocabulary: `Vocabulary`.

    Returns:
      (input_ids [B, S], lengths [B], segment_ids [B, S] booleans, maskable [B, S] booleans).
    """
    # First all rows in one, without padding.
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

    def padded(values, padding):
        rows = np.full(is_real.shape, padding, values.dtype)
        rows[is_real] = values
        return rows

    return padded(ids, vocabulary.pad_id), lengths, padded(segment_ids, 0), padded(is_text, 0)


@functools.cache
def _ones_entry(name, num_ones, size, dtype):
    """Feature-map entry of `num_ones` ones followed by zeros."""
    return tfrecord.feature_entry(name, (np.arange(size) < num_ones).astype(dtype))


def feature_specs(
    seq_length, max_predictions_per_seq, with_boundaries=True, with_sentence_labels=True
):
    """`tfrecord.FeatureSpec` of the records.

    Args:
      seq_length: S.
      max_predictions_per_seq: P.
      with_boundaries: also ``token_boundary`` [S], 1 where a word begins; only masking needs it.
      with_sentence_labels: also ``next_sentence_labels``, which only a sentence task needs.
    """
    spec = tfrecord.FeatureSpec
    sequences = ("input_ids", "input_mask", "segment_ids")
    sequences += ("token_boundary",) * with_boundaries
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


def serialize(masked, lengths, segment_ids, token_boundary, labels):
    """Serialized `tf.train.Example`s.

    Args:
      masked: `masking.MaskedBatch`.
      lengths: [B] tokens of each sequence.
      segment_ids, token_boundary: [B, S] booleans.
      labels: [B] integers, `next_sentence_labels`.

    Returns:
      List of B byte strings.
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
        name: [tfrecord.int64_header(name, len(row)) + row for row in tfrecord.packed_rows(values)]
        for name, values in columns.items()
    }
    seq_length, num_slots = segment_ids.shape[1], masked.positions.shape[1]
    entries["input_mask"] = [
        _ones_entry("input_mask", length, seq_length, np.int64) for length in lengths.tolist()
    ]
    entries["masked_lm_weights"] = [
        _ones_entry("masked_lm_weights", count, num_slots, np.float32)
        for count in masked.num_predictions.tolist()
    ]
    specs = feature_specs(seq_length, num_slots)
    tfrecord.check_names(specs, entries)
    # Keys in alphabetical order, as protobuf's deterministic serialization has them.
    rows = zip(
        *(entries[spec.name] for spec in sorted(specs, key=operator.attrgetter("name"))),
        strict=True,
    )
    return [tfrecord.example(row) for row in rows]


def make_records(documents, settings, vocabulary, stream):
    """One pass over the documents of a block.

    Args:
      documents: `Documents`.
      settings: `Settings`.
      vocabulary: `Vocabulary`.
      stream: tuple of integers; passes with different ones are independent of each other.

    Yields:
      (list of serialized Examples, Counter of what is in them).
    """
    rng = np.random.default_rng([settings.random_seed, *stream])
    inputs, counts = sequence_formats.draw_inputs(documents, settings, rng)
    yield [], counts
    batch_size = max(1, BATCH_CELLS // settings.max_seq_length)
    for start in range(0, len(inputs), batch_size):
        batch = inputs.part(start, start + batch_size)
        yield _make_batch(documents.tokens, batch, settings, vocabulary, rng)


def _make_batch(tokens, inputs, settings, vocabulary, rng):
    input_ids, lengths, segment_ids, maskable = assemble(
        tokens, inputs, settings.max_seq_length, vocabulary
    )
    labels = inputs.labels
    token_boundary = vocabulary.word_starts[input_ids] & maskable
    counts = collections.Counter(
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
