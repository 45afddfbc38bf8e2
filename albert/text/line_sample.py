"""A random sample of lines that does not depend on who draws it, nor on how many do.

Each line has a random number, which follows from the seed and its place alone; the lines with the
least numbers are the sample. Every set of so many lines is equally likely, as for a reservoir, but
blocks of text may be gone through in any order and by any number of workers.

Source: Cohen and Kaplan, "Summarizing data using bottom-k sketches" (2007).
"""

import itertools

import numpy as np

_ALL = 1 << 64  # above each number
_AT_A_TIME = 1 << 14


def numbers(seed, block, place):
    """Function, n -> uint64 numbers of the next n lines of a segment of text.

    Args:
      seed: non-negative integer.
      block: number of the block that the segment belongs to.
      place: of the segment in its block.
    """
    return np.random.PCG64([seed, block, place]).random_raw


def limit(sizes, wanted, seed):
    """The number below which those of the sample's lines are.

    Args:
      sizes: for each block a list with the number of lines of each of its segments.
      wanted: lines of the sample; memory for some times as many numbers is needed.
      seed: see `numbers`.
    """
    if sum(map(sum, sizes)) <= wanted:
        return _ALL
    kept, below = np.zeros(0, np.uint64), _ALL
    for found in _all_numbers(sizes, seed):
        if below < _ALL:
            found = found[found < np.uint64(below)]
        kept = np.concatenate([kept, found])
        if len(kept) > 2 * wanted:
            kept, below = _least(kept, wanted)
    return _least(kept, wanted)[1] if len(kept) > wanted else below


def _all_numbers(sizes, seed):
    for block, counts in enumerate(sizes):
        for place, count in enumerate(counts):
            draw = numbers(seed, block, place)
            for start in range(0, count, _AT_A_TIME):
                yield draw(min(_AT_A_TIME, count - start))


def _least(kept, wanted):
    """(so many of the least numbers, the least of the others)."""
    kept = np.partition(kept, wanted)
    return kept[:wanted], int(kept[wanted])


def chosen(lines, below, draw):
    """Those of some lines that belong to the sample.

    Args:
      lines: list.
      below: what `limit` gave.
      draw: what `numbers` gave, for the segment that they are the next lines of.
    """
    found = draw(len(lines))
    if below == _ALL:
        return lines
    return list(itertools.compress(lines, (found < np.uint64(below)).tolist()))
