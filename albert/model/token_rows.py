"""The rows of a batch that the encoder computes, usually only those of real tokens.

A batch of texts is mostly padding. The encoder works on a matrix with a row per computed token, and
only attention needs the positions of the rows. `PaddedRows` has a row for every position,
`TokenRows` only for real tokens. A batch can also be cut into parts that are computed in parallel.

Letters in shapes: see the docstring of the package.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import tensorflow as tf

from albert.model import tensor_batching

Size: TypeAlias = int | tf.Tensor  # a scalar tensor if it is known only while the graph runs


def make_rows(
    input_ids: tf.Tensor, input_mask: tf.Tensor | None, num_heads: int, skip_padding: bool
) -> "PaddedRows":
    """Returns the rows of ids [B, S] with a mask [B, S] or None: `TokenRows` if it may skip."""
    kind = TokenRows if skip_padding and input_mask is not None else PaddedRows
    return kind(input_mask, dimension(input_ids, 0), dimension(input_ids, 1), num_heads)


def dimension(x: tf.Tensor, axis: int) -> Size:
    """Returns the length of an axis."""
    static = x.shape[axis]
    return tf.shape(x)[axis] if static is None else static


def cut_batch(inputs: tuple, count: int) -> list:
    """Cuts tensors [B, ...] (or None) into `count` tuples of slices [about B / count, ...].

    On two cores a batch of 16 x 128 is 1 to 5% faster as two halves in parallel.
    """
    if count == 1:
        return [inputs]
    batch = dimension(inputs[0], 0)
    bounds = [batch * i // count for i in range(count + 1)]
    return [
        tuple(x if x is None else x[start:end] for x in inputs)
        for start, end in zip(bounds, bounds[1:], strict=False)
    ]


def join_batch(parts: Sequence[tf.Tensor]) -> tf.Tensor:
    """Joins the tensors [about B / count, ...] of the parts of a batch: [B, ...]."""
    return parts[0] if len(parts) == 1 else tf.concat(parts, 0)


@tf.custom_gradient
def _take(x: tf.Tensor, index: tf.Tensor, inverse: tf.Tensor) -> tuple[tf.Tensor, Callable]:
    """Computes ``tf.gather(x, index)``, whose gradient gathers by `inverse` instead of adding up.

    This is only correct if the gradient of rows that are read twice, or not at all, is 0.
    """
    return tf.gather(x, index), lambda upstream: (tf.gather(upstream, inverse), None, None)


class PaddedRows:
    """Rows of all positions of a batch: position s of text b is row b * S + s of [T, width].

    Only attention needs the positions of rows; the rest of the encoder works on each row alone.

    Args:
      input_mask: [B, S]; None: all positions are real tokens.
      batch, length, heads: B, S and N.
    """

    def __init__(self, input_mask: tf.Tensor | None, batch: Size, length: Size, heads: int) -> None:
        self.batch = batch
        self.length = length
        self.heads = heads
        self.attention_bias = None  # [B, 1, 1, S], added to attention scores
        if input_mask is not None:
            # TensorFlow Lite has no slices that add two axes at once.
            mask = tf.reshape(tf.cast(input_mask, tf.float32), [batch, 1, 1, length])
            self.attention_bias = (1.0 - mask) * -10000.0

    def flatten(self, x: tf.Tensor) -> tf.Tensor:
        """Maps [B, S] to [T]."""
        return tf.reshape(x, [-1])

    def by_position(self, table: tf.Tensor) -> tf.Tensor:
        """Returns for each row the row of a table [positions, E] at its position: [T, E]."""
        shape = [self.batch, self.length, table.shape[1]]
        return tf.reshape(tf.broadcast_to(table[: self.length], shape), [-1, table.shape[1]])

    def unflatten(self, x: tf.Tensor) -> tf.Tensor:
        """Maps [T, width] to [B, S, width]."""
        return tf.reshape(x, [self.batch, self.length, x.shape[-1]])

    def rows_at(self, positions: tf.Tensor) -> tf.Tensor:
        """Maps positions [B, R] to the numbers of their rows [B * R]."""
        return tf.reshape(tf.range(self.batch)[:, tf.newaxis] * self.length + positions, [-1])

    def split_heads(self, x: tf.Tensor, parts: int) -> list[tf.Tensor]:
        """Splits [T, parts * H] into `parts` tensors [B, N, S, D]."""
        size = x.shape[-1] // parts // self.heads
        x = tf.reshape(x, [self.batch, self.length, parts, self.heads, size])
        return tf.unstack(tf.transpose(x, [2, 0, 3, 1, 4]), parts)

    def merge_heads(self, x: tf.Tensor) -> tf.Tensor:
        """Maps [B, N, S, D] to [T, H]."""
        return self.merge_heads_at(x)

    def merge_heads_at(self, x: tf.Tensor) -> tf.Tensor:
        """Maps [B, N, R, D] to [B * R, H], in the order of `rows_at`."""
        return tf.reshape(tf.transpose(x, [0, 2, 1, 3]), [-1, x.shape[1] * x.shape[3]])


class TokenRows(PaddedRows):
    """Rows of the real tokens, and of a few padded positions so that T is a round number.

    Few values of T then occur, for each of which functions may be compiled. Positions without a row
    read the last row. It always belongs to a padded position, unless every position has a row. As
    no result depends on padded positions, their gradients are 0.
    """

    def __init__(self, input_mask: tf.Tensor, batch: Size, length: Size, heads: int) -> None:
        super().__init__(input_mask, batch, length, heads)
        self._real = tf.reshape(tf.cast(input_mask, tf.bool), [-1])  # [B * S]
        tokens_first = tf.concat([tf.where(self._real), tf.where(~self._real)], 0)[:, 0]
        positions = tf.size(self._real)
        tokens = tf.reduce_sum(tf.cast(self._real, tf.int32))
        count = tf.minimum(tensor_batching.round_up(tokens + 1), positions)
        self._position = tf.cast(tokens_first[:count], tf.int32)  # [T] row -> b * S + s
        self._row = tf.tensor_scatter_nd_update(  # [B * S] b * S + s -> row
            tf.fill([positions], count - 1), self._position[:, tf.newaxis], tf.range(count)
        )
        # Made before the blocks, which all use them. Unused indices are removed from the graph.
        self._indices = {parts: self._head_indices(parts) for parts in (1, 2, 3)}

    def flatten(self, x: tf.Tensor) -> tf.Tensor:
        return tf.gather(tf.reshape(x, [-1]), self._position)

    def by_position(self, table: tf.Tensor) -> tf.Tensor:
        return tf.gather(table, self._position % self.length)

    def unflatten(self, x: tf.Tensor) -> tf.Tensor:
        x = _take(x, self._row, self._position)
        x = tf.where(self._real[:, tf.newaxis], x, tf.zeros([], x.dtype))
        return tf.reshape(x, [self.batch, self.length, x.shape[-1]])

    def rows_at(self, positions: tf.Tensor) -> tf.Tensor:
        return tf.gather(self._row, super().rows_at(positions))

    def _head_indices(self, parts: int) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the indices of slices [parts, B, N, S] in [T, parts, N], and the inverse."""
        heads = self.heads
        part = np.arange(parts, dtype=np.int32)[:, np.newaxis]
        head = np.arange(heads, dtype=np.int32)
        row = tf.reshape(self._row, [self.batch, 1, self.length])
        to_heads = row * (parts * heads) + (part * heads + head)[:, np.newaxis, :, np.newaxis]
        # The slice of part 0 and head 0; the next head is S slices further, the next part B N S.
        first = self._position // self.length * (heads * self.length) + self._position % self.length
        others = part * (self.batch * heads * self.length) + head * self.length
        to_rows = first[:, tf.newaxis, tf.newaxis] + others
        return tf.reshape(to_heads, [-1]), tf.reshape(to_rows, [-1])

    def split_heads(self, x: tf.Tensor, parts: int) -> list[tf.Tensor]:
        size = x.shape[-1] // parts // self.heads
        to_heads, to_rows = self._indices[parts]
        # Padding and transposition are one pass over slices of D.
        x = _take(tf.reshape(x, [-1, size]), to_heads, to_rows)
        return tf.unstack(tf.reshape(x, [parts, self.batch, self.heads, self.length, size]), parts)

    def merge_heads(self, x: tf.Tensor) -> tf.Tensor:
        size = x.shape[3]
        to_heads, to_rows = self._indices[1]
        return tf.reshape(
            _take(tf.reshape(x, [-1, size]), to_rows, to_heads), [-1, self.heads * size]
        )
