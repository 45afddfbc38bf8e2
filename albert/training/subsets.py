"""Selects a seeded fraction of a task's examples, for studies of how much data is needed.

Only the functions that copy records import TensorFlow.
"""

import dataclasses
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from albert.data.tfrecord import FeatureSpec
from albert.io import file_io
from albert.text import long_texts

if TYPE_CHECKING:
    import tensorflow as tf

# Features with a number that the records of one text or sentence share: all or none are chosen.
SENTENCE = "sentence"
_GROUPS = (long_texts.TEXT_NUMBER, SENTENCE)
_T = TypeVar("_T")


def check_fraction(name: str, fraction: float) -> None:
    """Checks that the parameter `name` is a fraction above 0, at most 1."""
    if not 0 < fraction <= 1:
        raise file_io.InputError(f"{name}={fraction} must be a fraction, above 0 and at most 1")


def choose_indices(count: int, fraction: float, seed: int) -> list[int]:
    """Chooses a fraction of the indices below `count`, in order; always at least one.

    For the same seed and count, a larger fraction contains the indices of a smaller one.

    Args:
      fraction: above 0 and at most 1; its product with `count` is rounded.
    """
    indices = list(range(count))
    random.Random(f"share of examples {seed}").shuffle(indices)
    return sorted(indices[: count_chosen(count, fraction)])


def count_chosen(count: int, fraction: float) -> int:
    """Returns the number of indices that `choose_indices` chooses."""
    return max(1, round(count * fraction)) if count else 0


@dataclasses.dataclass(frozen=True)
class Fractions:
    """The fractions of splits that a run uses.

    Attributes:
      settings: {split: (name of the setting, fraction)}; a fraction of 1 changes nothing.
      strategy: its workers share the files.
    """

    settings: Mapping[str, tuple[str, float]]
    seed: int
    strategy: "tf.distribute.Strategy"

    def __post_init__(self) -> None:
        for name, fraction in self.settings.values():
            check_fraction(name, fraction)

    def choose(self, values: Sequence[_T], split: str) -> list[_T]:
        """Returns the values in the fraction of a split; each example has one, in order."""
        _, fraction = self.settings.get(split, ("", 1.0))
        if fraction == 1:
            return list(values)
        return [values[index] for index in choose_indices(len(values), fraction, self.seed)]

    def copy(self, path: str, specs: Sequence[FeatureSpec], split: str) -> str:
        """Copies the fraction of the examples of a file of records to a file next to it.

        Records are examples; those with a feature `long_texts.TEXT_NUMBER`, from 0, are windows of
        the example with this number.

        Returns:
          The path of the copy, which may exist; that of the file if all of it is used.
        """
        from albert.data import record_files
        from albert.training import distribution

        name, fraction = self.settings.get(split, ("", 1.0))
        if fraction == 1:
            return path
        target = f"{path}.share-{fraction:g}-seed-{self.seed}"
        manifest = file_io.read_json(record_files.manifest_path(path), "manifest", max_bytes=None)
        made_with = {**manifest["settings"], name: fraction, "seed": self.seed}
        group = next((spec.name for spec in specs if spec.name in _GROUPS), None)
        if group == SENTENCE:  # older versions chose parts of sentences
            made_with["whole"] = group

        def make_rows() -> Iterator[bytes]:
            numbers: Sequence[int] = range(record_files.count_records([path]))
            if group:
                numbers = list(record_files.read_integers([path], group))
            chosen = set(self.choose(range(numbers[-1] + 1), split))
            records = record_files.serialized_examples([path]).as_numpy_iterator()
            pairs = zip(numbers, records, strict=True)
            return (record for number, record in pairs if number in chosen)

        with distribution.chief_first(self.strategy):
            record_files.cached(target, specs, made_with, make_rows, record_files.write_serialized)
        return target
