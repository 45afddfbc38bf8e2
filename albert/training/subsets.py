"""Selects a seeded fraction of a task's examples, for studies of how much data is needed.

Only the functions that copy records import TensorFlow.
"""

import dataclasses
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from albert.data.tfrecord import FeatureSpec
from albert.io import file_io
from albert.training.contracts import Data

if TYPE_CHECKING:
    import tensorflow as tf


def check_fraction(name: str, fraction: float) -> None:
    """Checks that a parameter is a fraction above 0.

    Raises:
      file_io.InputError: names the parameter, its value and the valid range.
    """
    if not 0 < fraction <= 1:
        raise file_io.InputError(f"{name}={fraction} must be a fraction, above 0 and at most 1")


def choose_indices(count: int, fraction: float, seed: int) -> list[int]:
    """Chooses a fraction of the indices below `count`, in order; always at least one.

    For the same seed and count, a larger fraction contains the indices of a smaller one.

    Args:
      count: number of examples.
      fraction: above 0 and at most 1; its product with `count` is rounded.
      seed: integer.
    """
    indices = list(range(count))
    random.Random(f"share of examples {seed}").shuffle(indices)
    return sorted(indices[: max(1, round(count * fraction))])


def subset(
    data: Data,
    fractions: Mapping[str, tuple[str, float]],
    seed: int,
    strategy: "tf.distribute.Strategy",
) -> Data:
    """Reduces splits to fractions; their records are copied to a file next to the original one.

    Args:
      data: has one record per example.
      fractions: {split: (name of the setting, fraction)}; a fraction of 1 changes nothing.
      seed: see `choose_indices`.
      strategy: its workers share the files.

    Raises:
      file_io.InputError: see `check_fraction`.
    """
    for name, fraction in fractions.values():
        check_fraction(name, fraction)
    fractions = {split: setting for split, setting in fractions.items() if setting[1] < 1}
    if not fractions:
        return data

    def records_of(split: str) -> list[str]:
        paths = data.records(split)
        if split not in fractions:
            return paths
        name, fraction = fractions[split]
        settings = {name: fraction, "seed": seed}
        return [_copy(path, data.specs(split), settings, fraction, strategy) for path in paths]

    return dataclasses.replace(data, records=records_of)


def _copy(
    path: str,
    specs: Sequence[FeatureSpec],
    settings: Mapping[str, float],
    fraction: float,
    strategy: "tf.distribute.Strategy",
) -> str:
    """Copies a fraction of a file's records unless the copy exists; returns its path."""
    from albert.data import record_files
    from albert.training import distribution

    target = f"{path}.share-{fraction:g}-seed-{settings['seed']}"
    manifest = file_io.read_json(record_files.manifest_path(path), "manifest", max_bytes=None)
    made_with = {**manifest["settings"], **settings}

    def make_rows() -> Iterator[bytes]:
        count = record_files.count_records([path])
        indices = set(choose_indices(count, fraction, int(settings["seed"])))
        for index, record in enumerate(
            record_files.serialized_examples([path]).as_numpy_iterator()
        ):
            if index in indices:
                yield record

    with distribution.chief_first(strategy):
        record_files.cached(target, specs, made_with, make_rows, record_files.write_serialized)
    return target
