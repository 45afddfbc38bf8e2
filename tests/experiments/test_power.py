"""Numbers of seeds against statsmodels and drawn experiments."""

import numpy as np
import pytest

from albert.experiments import power
from albert.io import file_io

stats = pytest.importorskip("scipy.stats")
DRAWS = 20_000


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("difference", [0.5, 1, 2])
def test_seeds_equal_those_of_statsmodels(paired, difference):
    found = pytest.importorskip("statsmodels.stats.power")
    test = found.TTestPower() if paired else found.TTestIndPower()
    design = power.Seeds(deviation=0.02, paired=paired)
    expected = test.solve_power(difference, alpha=0.05, power=0.8)
    plan = power.needed(design, difference * 0.02)
    assert plan.n == np.ceil(expected) and plan.power >= 0.8
    assert test.power(difference, plan.n, alpha=0.05) == pytest.approx(plan.power, abs=1e-6)


@pytest.mark.parametrize("paired", [False, True])
def test_the_power_of_seeds_is_that_of_drawn_runs(paired):
    design, rng = power.Seeds(deviation=1, paired=paired), np.random.default_rng(1)
    for n in (3, 5, 10):
        difference = power.visible(design, n).difference
        b = rng.normal(difference, 1, (DRAWS, n))
        if paired:
            p = stats.ttest_1samp(b, 0, axis=1).pvalue
        else:
            p = stats.ttest_ind(b, rng.normal(size=(DRAWS, n)), axis=1).pvalue
        assert np.mean(p <= 0.05) == pytest.approx(0.8, abs=0.015)


DESIGNS = [power.Seeds(0.01, paired=True), power.Seeds(0.01, paired=False)]


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("wanted", [0.5, 0.8, 0.99])
def test_n_and_difference_are_inverse(design, wanted):
    for level in (0.9, 0.99):
        plan = power.needed(design, 0.03, power=wanted, level=level)
        assert plan.power >= wanted and plan.design == design and plan.level == level
        if plan.n > design.smallest:
            assert design.power(plan.n - 1, 0.03, level) < wanted
        back = power.visible(design, plan.n, power=wanted, level=level)
        assert back.difference <= 0.03 * (1 + 1e-6) and back.power == pytest.approx(wanted)


def test_two_seeds_see_large_differences_only():
    plan = power.visible(power.Seeds(deviation=0.01, paired=True), 2)
    # With 1 degree of freedom the spread is one normal number, which is below 1.2816 in 80%.
    limit = stats.t.ppf(0.975, 1)
    assert plan.difference == pytest.approx(1.2816 * limit * 0.01 / 2**0.5, rel=0.01)
    assert power.needed(power.Seeds(0.01, paired=True), 1.0).n == 2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: power.Seeds(0, True), "deviation must be above 0; got 0"),
        (lambda: power.needed(DESIGNS[0], 0), "difference must be above 0"),
        (lambda: power.needed(DESIGNS[0], float("nan")), "difference must be above 0"),
        (lambda: power.needed(DESIGNS[0], 0.1, power=0.01), "power must be between 0.05 and 1"),
        (lambda: power.needed(DESIGNS[0], 0.1, level=1), "level must be between 0 and 1; got 1"),
        (lambda: power.needed(DESIGNS[0], 1e-9), "needs more than 1000000000 of n"),
        (lambda: power.visible(DESIGNS[0], 1), "n must be at least 2; got 1"),
    ],
)
def test_impossible_plans_are_named(call, message):
    with pytest.raises(file_io.InputError, match=message):
        call()
