"""Packing: both truncations against the one-token-at-a-time rule, and the layout of inputs."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert import packing


def _one_at_a_time(a, b, max_length):
    """The rule as it is stated."""
    a, b = list(a), list(b)
    while len(a) + len(b) > max_length:
        (a if len(a) > len(b) else b).pop()
    return a, b


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 90))
def test_truncate_pair_is_the_rule(length_a, length_b, max_length):
    a, b = list(range(length_a)), list(range(100, 100 + length_b))
    assert packing.truncate_pair(a, b, max_length) == _one_at_a_time(a, b, max_length)
    assert (len(a), len(b)) == (length_a, length_b)  # the input is left alone


@pytest.mark.parametrize(
    ("length_a", "length_b", "max_length", "expected"),
    [(5, 2, 4, (2, 2)), (2, 5, 4, (2, 2)), (3, 3, 5, (3, 2)), (3, 3, 4, (2, 2)), (4, 4, 1, (1, 0))],
)
def test_truncate_pair_table(length_a, length_b, max_length, expected):
    a, b = packing.truncate_pair("a" * length_a, "b" * length_b, max_length)
    assert (len(a), len(b)) == expected


def test_negative_length():
    with pytest.raises(ValueError, match="cannot cut a pair of texts to -1 tokens"):
        packing.truncate_pair([1], [2], -1)


def test_pack_pair():
    ids, mask, segments = packing.pack([7, 8], [9], 2, 3, 8)
    assert ids.tolist() == [2, 7, 8, 3, 9, 3, 0, 0]
    assert mask.tolist() == [1, 1, 1, 1, 1, 1, 0, 0]
    assert segments.tolist() == [0, 0, 0, 0, 1, 1, 0, 0]
    assert {array.dtype for array in (ids, mask, segments)} == {np.dtype(np.int64)}


def test_pack_one_text():
    ids, mask, segments = packing.pack([7, 8], None, 2, 3, 5, pad_id=99)
    assert ids.tolist() == [2, 7, 8, 3, 99]
    assert mask.tolist() == [1, 1, 1, 1, 0]
    assert segments.tolist() == [0] * 5


def test_pack_tells_an_empty_second_text_from_none():
    ids, _, segments = packing.pack([7], [], 2, 3, 4)
    assert ids.tolist() == [2, 7, 3, 3]
    assert segments.tolist() == [0, 0, 0, 1]


def test_pack_full_length_and_one_more():
    assert packing.pack([7, 8], [9], 2, 3, 6)[1].tolist() == [1] * 6
    with pytest.raises(ValueError, match=r"6 tokens with \[CLS\] and \[SEP\] .* length of 5"):
        packing.pack([7, 8], [9], 2, 3, 5)


def test_import_brings_no_tensorflow():
    code = (
        "import sys, albert.packing, albert.metrics; "
        "print({'tensorflow', 'scipy', 'sklearn'} & {*sys.modules})"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert output.stdout.strip() == "set()"
