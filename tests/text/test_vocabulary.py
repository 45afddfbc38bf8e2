"""Random samples of lines: exact size, any order of the work, bounded memory."""

import collections
import tracemalloc

import numpy as np

from albert.text import vocabulary


def drawn(sizes, below, seed, at_a_time):
    """(block, place, line) of the sample, with a number of lines at a time."""
    found = []
    for block, counts in enumerate(sizes):
        for place, count in enumerate(counts):
            draw = vocabulary.line_numbers(seed, block, place)
            for start in range(0, count, at_a_time):
                lines = [(block, place, n) for n in range(start, min(count, start + at_a_time))]
                found += vocabulary.sampled_lines(lines, below, draw)
    return found


def test_a_sample_has_the_wanted_size_and_does_not_depend_on_the_work():
    sizes = [[30, 0, 70], [], [1], [500, 299]]
    for expected in (1, 20, 450, 899):
        below = vocabulary.sample_limit(sizes, expected, 3)
        found = drawn(sizes, below, 3, 1000)
        assert len(found) == expected
        assert drawn(sizes, below, 3, 7) == found
        assert drawn(sizes, vocabulary.sample_limit(sizes, expected, 4), 4, 7) != found
    for expected in (900, 10_000):
        assert len(drawn(sizes, vocabulary.sample_limit(sizes, expected, 3), 3, 7)) == 900


def test_the_least_numbers_are_the_sample():
    sizes = [[1000], [2000, 500]]
    numbers = np.concatenate(
        [vocabulary.line_numbers(1, 0, 0)(1000)]
        + [vocabulary.line_numbers(1, 1, place)(count) for place, count in enumerate(sizes[1])]
    )
    assert len(set(numbers.tolist())) == 3500
    for expected in (1, 40, 3499):
        assert vocabulary.sample_limit(sizes, expected, 1) == np.sort(numbers)[expected]
    # Whether or not the last segments have one of them.
    for seed in range(50):
        numbers = np.concatenate([vocabulary.line_numbers(seed, block, 0)(2) for block in range(6)])
        assert vocabulary.sample_limit([[2]] * 6, 3, seed) == np.sort(numbers)[3]


def test_memory_depends_on_the_sample_alone():
    sizes = [[20_000, 20_000]] * 50
    tracemalloc.start()
    try:
        below = vocabulary.sample_limit(sizes, 5000, 1)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert abs(below / 2**64 - 5000 / 2_000_000) < 1e-4
    assert peak < 1.5e6 < 8 * 2_000_000 / 10


def test_long_lines_are_cut_at_spaces():
    recipe, counts = (
        vocabulary.VocabRecipe(do_lower_case=False, keep_accents=True),
        collections.Counter(),
    )
    lines = ["ein Satz", " ", "wört " * 2000, "あ" * 5000]
    parts = list(vocabulary.sentences(lines, recipe, counts))
    assert counts == {"sentences": 3, "empty": 1, "cut": 2}
    assert all(len(part.encode()) <= vocabulary.MAX_SENTENCE_BYTES for part in parts)
    assert parts[0] == "ein Satz" and "".join(parts[-4:]) == "あ" * 5000
    assert " ".join(parts[1:-4]) == ("wört " * 2000).strip()
    assert list(vocabulary.sentences(["Ärger"], recipe, counts)) == ["Ärger"]
