"""A seeded share of the examples of a task, for studies that ask how much data is needed.

TensorFlow is imported only where records are copied, as in `task`.
"""

import dataclasses
import random
from typing import Any

from albert.io import file_io
from albert.training.contracts import Data


def check_share(name: str, share: float) -> None:
    """Refuses what is no share of something.

    Raises:
      file_io.InputError: names the parameter, its value and what is possible.
    """
    if not 0 < share <= 1:
        raise file_io.InputError(f"{name}={share} must be a share, above 0 and at most 1")


def chosen(count: int, share: float, seed: int) -> list[int]:
    """Places of a share of `count` things, in order; always at least one.

    For one seed and count the places of a smaller share are among those of a larger one.

    Args:
      count: how many there are.
      share: above 0 and at most 1; times `count` it is rounded.
      seed: integer.
    """
    places = list(range(count))
    random.Random(f"share of examples {seed}").shuffle(places)
    return sorted(places[: max(1, round(count * share))])


def subset(data: Data, shares: dict, seed: int, strategy: Any) -> Data:
    """Reduces some splits to a fraction, whose records are copied to a file next to theirs.

    Args:
      data: `contracts.Data` with a record for each example.
      shares: {split: (name of the setting, share)}; a share of 1 changes nothing.
      seed: see `chosen`.
      strategy: `tf.distribute.Strategy`.

    Returns:
      `contracts.Data`.

    Raises:
      file_io.InputError: see `check_share`.
    """
    for name, share in shares.values():
        check_share(name, share)
    shares = {split: found for split, found in shares.items() if found[1] < 1}
    if not shares:
        return data

    def records_of(split):
        paths = data.records(split)
        if split not in shares:
            return paths
        name, share = shares[split]
        settings = {name: share, "seed": seed}
        return [_copy(path, data.specs(split), settings, share, strategy) for path in paths]

    return dataclasses.replace(data, records=records_of)


def _copy(path, specs, settings, share, strategy):
    """Makes the file of a share of a file's records unless it is there; its path."""
    from albert.data import record_files
    from albert.training import distribution

    target = f"{path}.share-{share:g}-seed-{settings['seed']}"
    manifest = file_io.read_json(record_files.manifest_path(path), "manifest", most=None)
    made_with = {**manifest["settings"], **settings}

    def make_rows():
        wanted = set(chosen(record_files.count_records([path]), share, settings["seed"]))
        for place, record in enumerate(
            record_files.serialized_examples([path]).as_numpy_iterator()
        ):
            if place in wanted:
                yield record

    with distribution.chief_first(strategy):
        record_files.cached(target, specs, made_with, make_rows, record_files.write_serialized)
    return target
