"""Batches examples of different lengths: sorts them, trims padding and restores their order.

These functions take arrays, as predictors hold them; those of `tensor_batching` take tensors. Both
round lengths in the same way. Letters in shapes: see the docstring of the package; here N is the
number of examples.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from albert.io import file_io

Arrays = dict[str, np.ndarray]  # by name
Infer = Callable[[Arrays], Arrays]  # a model: outputs [B, ...] of inputs [B, S]
# Lengths are multiples of this.
STEP = 8
# Number of lengths between one power of two and the next, if they are more than STEP apart.
PER_DOUBLING = 16


class NonFiniteError(file_io.InputError):
    """A model has computed NaN or infinity, which would look like an answer."""


def check_finite(outputs: Mapping[str, np.ndarray]) -> None:
    """Rejects outputs of a model, arrays by name, that are not finite."""
    for name, values in outputs.items():
        if not np.isfinite(values).all():
            raise NonFiniteError(
                f"the model has computed {name} that are not finite: its weights are damaged or "
                "its training has diverged, or numbers are too large for its precision; take "
                "another checkpoint, or compute in float32"
            )


def round_up(size: int) -> int:
    """Rounds up to one of a few sizes: multiples of 8; from 128 on, sixteen sizes per doubling."""
    step = max(2 ** (size.bit_length() - 1) // PER_DOUBLING, STEP)
    return -(-size // step) * step


def trim_arrays(
    features: Mapping[str, np.ndarray], names: Iterable[str], min_length: int = 1
) -> dict[str, np.ndarray]:
    """Cuts off the padding that all examples of a batch share.

    Padded positions do not change any result, so cutting them only saves time. The length is
    rounded up so that only a few lengths occur.

    Args:
      features: arrays with `input_mask`; examples are the first axis of each.
      names: the features whose last axis is the padded sequence.
    """
    real = int(features["input_mask"].sum(axis=-1).max())
    return cut(features, names, round_up(max(real, min_length)))


def cut(features: Mapping[str, Any], names: Iterable[str], length: int) -> dict[str, Any]:
    """Returns all features, those of the names (missing ones are ignored) cut to a length."""
    shorter = {name: features[name][..., :length] for name in names if name in features}
    return {**features, **shorter}


def batches_by_length(lengths: npt.ArrayLike, batch_size: int) -> list[np.ndarray]:
    """Groups examples of similar length into batches.

    The longest come first, so that a batch that does not fit in memory fails immediately.

    Returns:
      Indices of examples by decreasing length, int [B] each, the last [1 to B].
    """
    order = np.argsort(-np.asarray(lengths), kind="stable")
    return [order[start : start + batch_size] for start in range(0, len(order), batch_size)]


def trimmed_batches(
    columns: Mapping[str, np.ndarray], batch_size: int, min_length: int = 1
) -> Iterator[tuple[np.ndarray, dict[str, np.ndarray]]]:
    """Yields batches of rows of similar length, without the padding that they share.

    Args:
      columns: arrays [N, S] by name, with `input_mask`.

    Yields:
      Indices of the rows, int [B], and arrays [B, S'] by name. The last batch may be smaller.
    """
    for rows in batches_by_length(columns["input_mask"].sum(axis=1), batch_size):
        batch = {name: values[rows] for name, values in columns.items()}
        yield rows, trim_arrays(batch, columns, min_length)


def places_in(batches: Sequence[np.ndarray]) -> np.ndarray:
    """Finds the row of each example in the concatenated batches of indices 0 to N - 1: int [N].

    Taking the rows in this order gives examples 0 to N - 1.
    """
    return np.argsort(np.concatenate(batches), kind="stable")
