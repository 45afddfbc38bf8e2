"""Batches examples of different lengths: sorts them, trims padding and restores their order.

Predictors hold arrays; input pipelines and compiled functions hold tensors. Both round lengths in
the same way. Letters in shapes: see the docstring of the package; here N is the number of examples.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

# Lengths are multiples of this.
STEP = 8
# Number of lengths between a power of two and the next, if they are more than STEP apart.
_PER_OCTAVE = 16
# Training batches of equal token counts are cut from the records of this many batches.
CUT_TOGETHER = 16


def round_up(size: Any) -> Any:
    """Rounds up to one of a few sizes: multiples of 8; from 128 on, sixteen sizes per doubling.

    Args:
      size: positive int, or positive int32 scalar tensor.

    Returns:
      An int or a tensor, like `size`.
    """
    if isinstance(size, int):
        step = max(2 ** (size.bit_length() - 1) // _PER_OCTAVE, STEP)
        return -(-size // step) * step
    octave = tf.cast(tf.math.log(tf.cast(size, tf.float64)) / math.log(2.0) + 1e-9, tf.int32)
    step = tf.maximum(tf.bitwise.left_shift(1, octave) // _PER_OCTAVE, STEP)
    return -(-size // step) * step


def trim(features: Mapping[str, tf.Tensor], names: Iterable[str]) -> dict[str, tf.Tensor]:
    """Cuts off the padding that all examples of a batch have in common.

    Padded positions do not change any result, so cutting them only saves time. The length is
    rounded up so that only a few lengths occur.

    Args:
      features: dict of tensors with `input_mask`; examples are the first axis of each.
      names: the features whose last axis is the padded sequence.

    Returns:
      All features.
    """
    real = tf.reduce_max(tf.reduce_sum(features["input_mask"], axis=-1))
    return _cut(features, names, round_up(tf.maximum(real, 1)))


def trim_arrays(
    features: Mapping[str, np.ndarray], names: Iterable[str], least: int = 1
) -> dict[str, np.ndarray]:
    """Cuts off common padding like `trim`, for numpy arrays.

    Args:
      features, names: see `trim`.
      least: minimum length that is kept.
    """
    real = int(features["input_mask"].sum(axis=-1).max())
    return _cut(features, names, round_up(max(real, least)))


def _cut(features, names, length):
    cut = {name: features[name][..., :length] for name in names if name in features}
    return {**features, **cut}


# Longest first, so that a batch that does not fit in memory fails immediately.


def sorted_by_length(lengths: tf.Tensor) -> tf.Tensor:
    """Returns int32 [N]: the indices of examples by decreasing length, from lengths [N]."""
    return tf.argsort(lengths, direction="DESCENDING", stable=True)


def batches_by_length(lengths: Any, batch_size: int) -> list[np.ndarray]:
    """Groups examples of similar length into batches.

    Args:
      lengths: array-like [N].
      batch_size: B.

    Returns:
      List of int arrays [B], the last [1 to B]: indices of examples, by decreasing length.
    """
    order = np.argsort(-np.asarray(lengths), kind="stable")
    return [order[start : start + batch_size] for start in range(0, len(order), batch_size)]


def trimmed_batches(
    columns: Mapping[str, np.ndarray], batch_size: int, least: int = 1
) -> Iterator[tuple[np.ndarray, dict[str, np.ndarray]]]:
    """Yields batches of rows of similar length, without the padding that they have in common.

    Args:
      columns: arrays [N, S] by name, with `input_mask`.
      batch_size: B.
      least: minimum length that is kept.

    Yields:
      Indices of the rows, int [B], and arrays [B, S'] by name. The last batch may be smaller.
    """
    for chosen in batches_by_length(columns["input_mask"].sum(axis=1), batch_size):
        batch = {name: values[chosen] for name, values in columns.items()}
        yield chosen, trim_arrays(batch, columns, least)


def places_in(batches: Sequence[np.ndarray]) -> np.ndarray:
    """Finds the row of each example in the concatenated batches.

    Args:
      batches: list of int arrays, the indices of examples; each of 0 to N - 1 once.

    Returns:
      int [N]: taking the rows in this order gives examples 0 to N - 1.
    """
    return np.argsort(np.concatenate(batches), kind="stable")


def equal_tokens(
    dataset: tf.data.Dataset, batch_size: int, lengths: Callable[[Any], Any]
) -> tf.data.Dataset:
    """Cuts records into batches of nearly equal token counts and different numbers of records.

    Each 16 * B records, in their order, become 16 batches. Their boundaries depend only on these
    records, so a resumed run finds its place.

    Args:
      dataset: endless `tf.data.Dataset` of serialized records.
      batch_size: B, the mean number of records per batch.
      lengths: ``(serialized [n]) -> [n]``, the number of tokens of each record, at least 1.

    Returns:
      Dataset of strings [1 or more].
    """

    def cut(serialized):
        tokens = tf.cast(lengths(serialized), tf.int64)
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
        return tf.data.Dataset.from_tensor_slices(rows)

    return dataset.batch(CUT_TOGETHER * batch_size, drop_remainder=True).flat_map(cut)
