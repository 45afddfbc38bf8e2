"""Pre-training records without masks and without padding; masks are drawn while training.

An instance is stored once, with as many ids as it has tokens: a few percent of what ten passes
with masks and padding take. No TensorFlow, so that worker processes start at once.

Shapes: B instances in the batch, S positions.
"""

import hashlib
import operator

import numpy as np

from albert import tfrecord

FINGERPRINT = "vocabulary_fingerprint"
_FINGERPRINT_BITS = 63  # what an int64 holds without a sign


def feature_specs(with_fingerprint=True):
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


def serialize(input_ids, lengths, segment_ids, labels, vocabulary_fingerprint):
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
    specs = feature_specs()
    tfrecord.check_names(specs, rows)
    # Keys in alphabetical order, as protobuf's deterministic serialization has them.
    names = sorted(map(operator.attrgetter("name"), specs))
    entries = [
        [tfrecord.int64_header(name, len(row)) + row for row in rows[name]] for name in names
    ]
    return [tfrecord.example(row) for row in zip(*entries, strict=True)]
