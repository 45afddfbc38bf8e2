"""Numbers of seeds against statsmodels and drawn experiments."""

import numpy as np
import pytest

from albert.experiments import power

stats = pytest.importorskip("scipy.stats")
DRAWS = 20_000


@pytest.mark.parametrize("difference", [0.5, 1, 2])
def test_seeds_equal_those_of_statsmodels(difference):
    test = pytest.importorskip("statsmodels.stats.power").TTestPower()
    expected = test.solve_power(difference, alpha=0.05, power=0.8)
    pairs = power.needed(0.02, difference * 0.02)
    assert pairs == np.ceil(expected)
    found = power.probability(0.02, pairs, difference * 0.02)
    assert found == pytest.approx(test.power(difference, pairs, alpha=0.05), abs=1e-6)


def test_the_power_of_seeds_is_that_of_drawn_runs():
    rng = np.random.default_rng(1)
    for pairs in (3, 5, 10):
        gaps = rng.normal(power.visible(1, pairs), 1, (DRAWS, pairs))
        p = stats.ttest_1samp(gaps, 0, axis=1).pvalue
        assert np.mean(p <= 0.05) == pytest.approx(0.8, abs=0.015)


@pytest.mark.parametrize("level", [0.9, 0.99])
def test_n_and_difference_are_inverse(level):
    pairs = power.needed(0.01, 0.03, level)
    assert power.probability(0.01, pairs, 0.03, level) >= power.POWER
    assert pairs > 2 and power.probability(0.01, pairs - 1, 0.03, level) < power.POWER
    difference = power.visible(0.01, pairs, level)
    assert difference <= 0.03
    assert power.probability(0.01, pairs, difference, level) == pytest.approx(power.POWER)


def test_two_seeds_see_large_differences_only():
    # With 1 degree of freedom the spread is one normal number, which is below 1.2816 in 80%.
    limit = stats.t.ppf(0.975, 1)
    assert power.visible(0.01, 2) == pytest.approx(1.2816 * limit * 0.01 / 2**0.5, rel=0.01)
    assert power.needed(0.01, 1.0) == 2
    assert power.needed(0.01, 1e-9) is None
