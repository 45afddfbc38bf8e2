"""Batches examples of different lengths in input pipelines and compiled functions.

The same as `batching`, for tensors. Letters in shapes: see the docstring of the package; here N is
the number of examples.
"""

import math
from collections.abc import Callable, Iterable, Mapping

import tensorflow as tf

from albert.model import batching

# Batches of equal token counts are cut from this many batches' worth of records at a time.
CUT_TOGETHER = 16


def round_up(size: tf.Tensor) -> tf.Tensor:
    """Rounds a positive int32 scalar up as `batching.round_up` does."""
    octave = tf.cast(tf.math.log(tf.cast(size, tf.float64)) / math.log(2.0) + 1e-9, tf.int32)
    step = tf.maximum(tf.bitwise.left_shift(1, octave) // batching.PER_DOUBLING, batching.STEP)
    return -(-size // step) * step


def trim(features: Mapping[str, tf.Tensor], names: Iterable[str]) -> dict[str, tf.Tensor]:
    """Cuts off the padding that all examples have in common, as `batching.trim_arrays` does.

    `names` are the features whose last axis is the padded sequence.
    """
    real = tf.reduce_max(tf.reduce_sum(features["input_mask"], axis=-1))
    return batching.cut(features, names, round_up(tf.maximum(real, 1)))


def trim_predictions(
    features: Mapping[str, tf.Tensor], names: Iterable[str]
) -> dict[str, tf.Tensor]:
    """Cuts off the empty slots for masked tokens that all examples have in common.

    Args:
      features: with `masked_lm_weights` [B, P], 0 in empty slots.
      names: the features [B, P].
    """
    slots = 1 + tf.range(tf.shape(features["masked_lm_weights"])[1])
    filled = tf.reduce_max(tf.where(features["masked_lm_weights"] != 0, slots, 1))
    return batching.cut(features, names, round_up(filled))


def sorted_by_length(lengths: tf.Tensor) -> tf.Tensor:
    """Returns int32 [N]: the indices of examples by decreasing length, from lengths [N]."""
    return tf.argsort(lengths, direction="DESCENDING", stable=True)


def equal_tokens(
    dataset: tf.data.Dataset,
    batch_size: int,
    lengths: Callable[[tf.Tensor], tf.Tensor],
    first: int = 0,
    seed: int | None = None,
) -> tf.data.Dataset:
    """Cuts records into batches of nearly equal token counts and different numbers of records.

    Each 16 * B records become 16 batches. These depend only on the records and the number of the
    group, so a resumed run finds its place.

    Args:
      dataset: serialized records without end.
      batch_size: B, the mean number of records per batch.
      lengths: ``(serialized [n]) -> [n]``, the number of tokens of each record, at least 1.
      first: number of the first group of 16 * B records.
      seed: with a seed, a batch holds records of similar length, and the batches of a group come in
        random order; None: records keep their order.
    """

    def cut(group: tf.Tensor, serialized: tf.Tensor) -> tf.data.Dataset:
        tokens = tf.cast(lengths(serialized), tf.int64)
        if seed is not None:
            by_length = sorted_by_length(tokens)
            serialized, tokens = tf.gather(serialized, by_length), tf.gather(tokens, by_length)
        # A record belongs to the batch that contains its middle. Doubled, to stay with integers.
        middles = 2 * tf.cumsum(tokens, exclusive=True) + tokens
        ends = 2 * tf.reduce_sum(tokens) * tf.range(CUT_TOGETHER, dtype=tf.int64) // CUT_TOGETHER
        starts = tf.searchsorted(middles, ends, out_type=tf.int64)
        # A record longer than a batch would leave other batches empty: each gets at least one.
        order = tf.range(CUT_TOGETHER, dtype=tf.int64)
        starts = tf.scan(tf.maximum, starts - order)
        last = tf.size(serialized, tf.int64) - CUT_TOGETHER
        starts = tf.minimum(starts, last) + order
        rows = tf.RaggedTensor.from_row_starts(serialized, starts)
        if seed is not None:
            turns = tf.random.experimental.stateless_shuffle(order, tf.stack([seed, group]))
            rows = tf.gather(rows, turns)
        return tf.data.Dataset.from_tensor_slices(rows)

    groups = dataset.batch(CUT_TOGETHER * batch_size, drop_remainder=True)
    return groups.enumerate(first).flat_map(cut)
