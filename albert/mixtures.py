"""Mixtures of record files: which source each record of a run comes from.

Of every `BLOCK` records in a row, each source has its share, and their order within the block is
drawn. So how much of every source a run has read depends on seed and step alone, and a resumed run
goes on where each source was left.
"""

import dataclasses
import math

from albert import file_io, tfrecord

BLOCK = 10_000  # records in which the shares are kept


@dataclasses.dataclass(frozen=True)
class Source:
    """Files that are read together.

    Attributes:
      paths: the files.
      weight: share of the records of a run, relative to those of the other sources.
    """

    paths: tuple
    weight: float = 1.0


def parse(patterns, what):
    """List of `Source`s of comma-separated globs, each of which may have a weight behind a colon.

    Without weights all files are one source.

    Args:
      patterns: such as ``books/*:0.3,wiki/*:0.7``; the name of an existing file counts as such.
      what: what messages call them.

    Raises:
      file_io.InputError: a pattern matches nothing or only some have weights, a weight is not above
        0 or too small beside the others, or a file belongs to two sources.
    """
    found = [_weighted(pattern.strip(), what) for pattern in patterns.split(",") if pattern.strip()]
    if all(weight is None for _, weight in found):
        return [Source(tuple(tfrecord.named_files(patterns, what)))]
    sources, source_of = [], {}
    for pattern, weight in found:
        if weight is None:
            raise file_io.InputError(
                f"{what}: {pattern} has no weight, others have: give all of them one, as in "
                "books/*:0.3,wiki/*:0.7, or none"
            )
        if not 0 < weight < math.inf:
            raise file_io.InputError(f"{what}: the weight of {pattern}:{weight:g} must be above 0")
        source = Source(tuple(tfrecord.named_files(pattern, what)), weight)
        for path in source.paths:
            if path in source_of:
                raise file_io.InputError(
                    f"{what}: {path} belongs to {source_of[path]} and to {pattern}"
                )
            source_of[path] = pattern
        sources.append(source)
    for (pattern, weight), count in zip(found, counts(sources), strict=True):
        if not count:
            raise file_io.InputError(
                f"{what}: the weight of {pattern}:{weight:g} is less than 1 in {BLOCK} of all"
            )
    return sources


def _weighted(pattern, what):
    """(glob, weight or None)."""
    file_io.check_scheme(pattern, what)
    name, colon, weight = pattern.rpartition(":")
    if not colon or file_io.exists(pattern):
        return pattern, None
    try:
        return name, float(weight)
    except ValueError:  # a colon of the name
        return pattern, None


def counts(sources):
    """Records of each source in a block; together they are `BLOCK`."""
    total = sum(source.weight for source in sources)
    exact = [BLOCK * source.weight / total for source in sources]
    whole = [int(count) for count in exact]
    # What is missing goes to those that lost most by rounding.
    order = sorted(range(len(exact)), key=lambda place: whole[place] - exact[place])
    for place in order[: BLOCK - sum(whole)]:
        whole[place] += 1
    return whole
