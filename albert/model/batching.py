"""How examples of different lengths become batches: sorted, cut to their real length, put back.

Predictors hold arrays; input pipelines and compiled functions hold tensors. Both follow one rule of
lengths. Letters in shapes: see the docstring of the package; N are examples here.
"""

import math

import numpy as np
import tensorflow as tf

# Lengths are multiples of this.
STEP = 8
# As many lengths lie between a power of two and the next, where these are more than STEP apart.
_PER_OCTAVE = 16
# Training batches of equally many tokens are cut from the records of so many.
CUT_TOGETHER = 16


def round_up(size):
    """The next of a few sizes: multiples of 8, from 128 on sixteen of them up to the next double.

    Args:
      size: positive int, or positive int32 scalar tensor.

    Returns:
      As `size`: int or tensor.
    """
    if isinstance(size, int):
        step = max(2 ** (size.bit_length() - 1) // _PER_OCTAVE, STEP)
        return -(-size // step) * step
    octave = tf.cast(tf.math.log(tf.cast(size, tf.float64)) / math.log(2.0) + 1e-9, tf.int32)
    step = tf.maximum(tf.bitwise.left_shift(1, octave) // _PER_OCTAVE, STEP)
    return -(-size // step) * step


def trim(features, names):
    """Cuts the padding that all examples of a batch share.

    Padded positions add exactly nothing to any result, so leaving them out only saves time. The
    length is rounded up so that few lengths occur.

    Args:
      features: dict of tensors with `input_mask`, all with examples first.
      names: those of them whose last axis is the padded sequence.

    Returns:
      All features.
    """
    real = tf.reduce_max(tf.reduce_sum(features["input_mask"], axis=-1))
    return _cut(features, names, round_up(tf.maximum(real, 1)))


def trim_arrays(features, names, least=1):
    """`trim` for numpy arrays.

    Args:
      features, names: see `trim`.
      least: a length below which nothing is cut.
    """
    real = int(features["input_mask"].sum(axis=-1).max())
    return _cut(features, names, round_up(max(real, least)))


def _cut(features, names, length):
    cut = {name: features[name][..., :length] for name in names if name in features}
    return {**features, **cut}


# Longest first: a batch that does not fit in memory then fails at once.


def sorted_by_length(lengths):
    """Tensor [N] of lengths -> int32 [N], the places of examples by falling length."""
    return tf.argsort(lengths, direction="DESCENDING", stable=True)


def batches_by_length(lengths, batch_size):
    """Batches of examples of similar length.

    Args:
      lengths: array-like [N].
      batch_size: B.

    Returns:
      List of int arrays [B], the last [1 to B]: places of examples, by falling length.
    """
    order = np.argsort(-np.asarray(lengths), kind="stable")
    return [order[start : start + batch_size] for start in range(0, len(order), batch_size)]


def places_in(batches):
    """Where the examples are among the rows of batches, one after another.

    Args:
      batches: list of int arrays, the places of examples; each of 0 to N - 1 once.

    Returns:
      int [N]: rows taken in this order are those of examples 0 to N - 1.
    """
    return np.argsort(np.concatenate(batches), kind="stable")


def equal_tokens(dataset, batch_size, lengths):
    """Batches of nearly equally many tokens, and so of different numbers of records.

    Each 16 * B records, in their order, become 16 batches: where a batch lies among the records
    depends on nothing before these, so a resumed run finds its place.

    Args:
      dataset: endless `tf.data.Dataset` of serialized records.
      batch_size: B, the mean number of records in a batch.
      lengths: ``(serialized [n]) -> [n]`` tokens of each record, at least 1.

    Returns:
      Dataset of strings [1 or more].
    """

    def cut(serialized):
        tokens = tf.cast(lengths(serialized), tf.int64)
        # A record belongs to the batch in which its middle lies. Twice all, to stay with integers.
        middles = 2 * tf.cumsum(tokens, exclusive=True) + tokens
        ends = 2 * tf.reduce_sum(tokens) * tf.range(CUT_TOGETHER, dtype=tf.int64) // CUT_TOGETHER
        starts = tf.searchsorted(middles, ends, out_type=tf.int64)
        # Records longer than a batch leave others without any: each gets one at least.
        order = tf.range(CUT_TOGETHER, dtype=tf.int64)
        starts = tf.scan(tf.maximum, starts - order)
        last = tf.size(serialized, tf.int64) - CUT_TOGETHER
        starts = tf.minimum(starts, last) + order
        rows = tf.RaggedTensor.from_row_starts(serialized, starts)
        return tf.data.Dataset.from_tensor_slices(rows)

    return dataset.batch(CUT_TOGETHER * batch_size, drop_remainder=True).flat_map(cut)
