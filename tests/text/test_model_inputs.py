"""Packing: truncations against the one-token-at-a-time rule, and the layout of inputs."""

import collections
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from albert.text import model_inputs

P_THRESHOLD = 1e-3  # seeds are fixed, so a test that passes once passes always


def _one_at_a_time(a, b, max_length):
    """The rule as it is stated."""
    a, b = list(a), list(b)
    while len(a) + len(b) > max_length:
        (a if len(a) > len(b) else b).pop()
    return a, b


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 90))
def test_truncate_pair_is_the_rule(length_a, length_b, max_length):
    a, b = list(range(length_a)), list(range(100, 100 + length_b))
    assert model_inputs.truncate_pair(a, b, max_length) == _one_at_a_time(a, b, max_length)
    assert (len(a), len(b)) == (length_a, length_b)  # the input is left alone


@pytest.mark.parametrize(
    ("length_a", "length_b", "max_length", "expected"),
    [(5, 2, 4, (2, 2)), (2, 5, 4, (2, 2)), (3, 3, 5, (3, 2)), (3, 3, 4, (2, 2)), (4, 4, 1, (1, 0))],
)
def test_truncate_pair_table(length_a, length_b, max_length, expected):
    a, b = model_inputs.truncate_pair("a" * length_a, "b" * length_b, max_length)
    assert (len(a), len(b)) == expected


def test_negative_length():
    with pytest.raises(ValueError, match="cannot cut a pair of texts to -1 tokens"):
        model_inputs.truncate_pair([1], [2], -1)


def test_texts_are_cut_to_fit_with_special_pieces():
    a, b = list(range(10)), list(range(20, 30))
    assert model_inputs.truncate_to_fit(a, None, 8) == (a[:6], None)
    assert model_inputs.truncate_to_fit(a, None, 12) == (a, None)
    assert model_inputs.truncate_to_fit(a, b, 12) == model_inputs.truncate_pair(a, b, 9)
    assert len(model_inputs.pack(*model_inputs.truncate_to_fit(a, b, 12), 2, 3, 12)[0]) == 12


def test_cuts_are_counted():
    cuts = model_inputs.Cuts()
    cuts.add(6, 6)
    assert cuts.describe() == "none of 1 texts was cut"
    cuts.add(10, 6)
    assert (cuts.inputs, cuts.cut, cuts.tokens, cuts.lost) == (2, 1, 16, 4)
    assert cuts.describe() == "1 of 2 texts were cut to fit, which lost 25.0% of all tokens"


def test_the_second_text_is_cut_at_its_front_and_the_first_fills_the_rest():
    a, b = list(range(10)), list(range(20, 30))
    assert model_inputs.truncate_front_and_first(a, b, 4, 12) == (a[:5], b[-4:])
    assert model_inputs.truncate_front_and_first(a, b[:2], 4, 12) == (a[:7], b[:2])
    assert model_inputs.truncate_front_and_first(a[:3], b, 4, 12) == (a[:3], b[-4:])


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(0, 30)), min_size=1, max_size=20),
    st.integers(2, 40),
    st.integers(0, 100),
)
def test_spans_keep_the_lengths_of_pairs(lengths, max_tokens, seed):
    pairs = np.array([(100, 100 + a, 500, 500 + b, 1) for a, b in lengths])
    model_inputs.truncate_spans_at_both_ends(pairs, max_tokens, np.random.default_rng(seed))
    for (a, b), pair in zip(lengths, pairs.tolist(), strict=True):
        kept = model_inputs.truncate_pair(range(a), range(b), max_tokens)
        assert [pair[1] - pair[0], pair[3] - pair[2]] == list(map(len, kept))
        assert 100 <= pair[0] <= pair[1] <= 100 + a
        assert 500 <= pair[2] <= pair[3] <= 500 + b
        assert pair[4] == 1


def _one_at_a_time_at_both_ends(a, b, max_length, rng):
    """Drops one token at a time from the longer text, at either end with equal chance."""
    a, b = list(a), list(b)
    while len(a) + len(b) > max_length:
        (a if len(a) > len(b) else b).pop(0 if rng.random() < 0.5 else -1)
    return a, b


def test_tokens_dropped_at_the_front_are_distributed_as_the_rule():
    trials = 4000
    pairs = np.tile([0, 9, 20, 26, 0], (trials, 1))
    model_inputs.truncate_spans_at_both_ends(pairs, 8, np.random.default_rng(0))
    rng = random.Random(0)
    theirs = [_one_at_a_time_at_both_ends(range(9), range(20, 26), 8, rng) for _ in range(trials)]
    for column, index in ((0, 0), (2, 1)):
        first = collections.Counter(kept[index][0] for kept in theirs)
        ours = collections.Counter(pairs[:, column].tolist())
        values = sorted(set(first) | set(ours))
        table = [[counts[value] for value in values] for counts in (first, ours)]
        assert stats.chi2_contingency(table).pvalue > P_THRESHOLD


def test_pack_pair():
    ids, mask, segments = model_inputs.pack([7, 8], [9], 2, 3, 8)
    assert ids.tolist() == [2, 7, 8, 3, 9, 3, 0, 0]
    assert mask.tolist() == [1, 1, 1, 1, 1, 1, 0, 0]
    assert segments.tolist() == [0, 0, 0, 0, 1, 1, 0, 0]
    assert {array.dtype for array in (ids, mask, segments)} == {np.dtype(np.int64)}


def test_pack_one_text():
    ids, mask, segments = model_inputs.pack([7, 8], None, 2, 3, 5, pad_id=99)
    assert ids.tolist() == [2, 7, 8, 3, 99]
    assert mask.tolist() == [1, 1, 1, 1, 0]
    assert segments.tolist() == [0] * 5


def test_pack_tells_an_empty_second_text_from_none():
    ids, _, segments = model_inputs.pack([7], [], 2, 3, 4)
    assert ids.tolist() == [2, 7, 3, 3]
    assert segments.tolist() == [0, 0, 0, 1]


def test_pack_full_length_and_one_more():
    assert model_inputs.pack([7, 8], [9], 2, 3, 6)[1].tolist() == [1] * 6
    with pytest.raises(ValueError, match=r"6 tokens with \[CLS\] and \[SEP\] .* length of 5"):
        model_inputs.pack([7, 8], [9], 2, 3, 5)
