"""Whether sides are equal enough: the claim keeps its level, and verdicts say what is known."""

from functools import partial

import numpy as np
import pytest

from albert.experiments import equivalence, example_statistics, statistics
from albert.io import file_io


@pytest.mark.slow
def test_at_the_margin_equality_is_claimed_as_rarely_as_promised():
    rng, claims = np.random.default_rng(0), {0.02: 0, 0.0: 0}
    for gap in claims:
        for _ in range(400):
            a = dict(enumerate(rng.normal(0.8, 0.01, 5)))
            b = dict(enumerate(rng.normal(0.8 + gap, 0.01, 5), start=5))
            compare = partial(statistics.compare_seeds, a, b)
            claims[gap] += equivalence.test_margin(compare, 0.02, 0.95, 1, 5, "seeds").is_equal
    assert 8 <= claims[0.02] <= 32  # 20 are promised, give or take 4.4
    assert claims[0.0] > 250


def test_many_pairs_need_more_for_each_claim():
    right = np.random.default_rng(0).random((2, 2000)) < 0.9
    compare = partial(example_statistics.mcnemar, *right)
    one, ten = (
        equivalence.test_margin(compare, 0.05, 0.95, pairs, 2000, "examples") for pairs in (1, 10)
    )
    same = example_statistics.mcnemar(*right, level=0.9)
    assert (one.low, one.high) == (same.low, same.high) and one.is_equal
    assert ten.low < one.low and ten.high > one.high


@pytest.mark.parametrize(
    ("interval", "better", "verdict"),
    [
        ((-0.004, 0.008), None, "equal within 0.01"),
        ((0.001, 0.008), "b", "b is better by 0.0045, yet equal within 0.01"),
        ((0.002, 0.03), "b", "b is better by 0.0045"),
        (
            (-0.018, 0.022),
            None,
            "cannot be decided: neither a difference nor equal within 0.01; about 525 more "
            "examples would",
        ),
        (
            (-9.0, 9.001),
            None,
            "cannot be decided: neither a difference nor equal within 0.01; many more examples "
            "would",
        ),
        ((None, None), None, "not distinguishable"),
    ],
)
def test_verdicts_say_what_is_known(interval, better, verdict):
    low, high = interval

    def compare(*, level):
        return statistics.Comparison(
            0.0045, low, high, 0.5, level, "a test", 100, 100, True, better, ""
        )

    found = equivalence.test_margin(compare, 0.01, 0.95, 1, 100, "examples")
    before = f"{better} is better by 0.0045" if better else statistics.NOT_DISTINGUISHABLE
    assert found.verdict(better, before) == verdict


def test_the_number_that_it_asks_for_decides():
    """Equal sides of that many examples are found to be equal about half of the time."""
    rng, decided = np.random.default_rng(2), []
    for _ in range(200):
        right = rng.random((2, 300)) < 0.9
        compare = partial(example_statistics.mcnemar, *right)
        found = equivalence.test_margin(compare, 0.02, 0.95, 1, 300, "examples")
        if found.is_equal or found.more is None:
            continue
        more = rng.random((2, 300 + found.more)) < 0.9
        again = example_statistics.mcnemar(*more, level=0.9)
        is_equal = again.low > -0.02 and again.high < 0.02
        decided.append(is_equal or not again.low <= 0 <= again.high)
    assert len(decided) > 100 and np.mean(decided) > 0.4


@pytest.mark.parametrize("margin", [0, -0.1, float("nan"), float("inf")])
def test_margins_must_be_above_zero(margin):
    with pytest.raises(file_io.InputError, match="equivalence_margin=.* above 0"):
        equivalence.check_margin("equivalence_margin", margin)
