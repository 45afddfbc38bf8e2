"""Scores over seeds: intervals, comparisons, sweeps, best of several runs. Calibrated by draws."""

import itertools
import sys

import numpy as np
import pytest

from albert.experiments import statistics
from albert.io import file_io

stats = pytest.importorskip("scipy.stats")
DRAWS = 2000


def seeds(values, first=0):
    return dict(enumerate(values, first))


def covered(intervals, truth=0.0):
    return np.mean([found.low <= truth <= found.high for found in intervals])


# --- one set of scores ----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("n", [3, 5, 10])
def test_t_intervals_cover(n):
    draws = np.random.default_rng(n).normal(0.8, 0.01, (DRAWS, n))
    found = [statistics.mean_interval(row) for row in draws]
    assert 0.93 <= covered(found, 0.8) <= 0.97
    expected = stats.t.interval(0.95, n - 1, draws[0].mean(), stats.sem(draws[0]))
    assert (found[0].low, found[0].high) == pytest.approx(expected)
    assert (found[0].n, found[0].level, found[0].note) == (n, 0.95, "")


@pytest.mark.slow
def test_bca_intervals_cover_from_the_number_where_they_begin():
    n = statistics.MIN_BOOTSTRAP
    draws = np.random.default_rng(1).normal(size=(DRAWS, n))
    found = [statistics.mean_interval(row, method="bca", resamples=499) for row in draws]
    assert 0.93 <= covered(found) <= 0.97
    short = statistics.mean_interval(draws[0, :-1], method="bca")
    assert short.low is None and short.high is None
    assert short.note == "29 seeds: BCa needs 30; take the t interval"
    # Why: with few scores it misses the mean far too often.
    bounds = stats.bootstrap(
        (draws[:, :5],), np.mean, axis=-1, n_resamples=499, rng=1, batch=50
    ).confidence_interval
    assert np.mean((bounds.low <= 0) & (bounds.high >= 0)) < 0.87


@pytest.mark.parametrize("method", ["t", "bca"])
def test_one_seed_and_equal_scores_have_no_interval(method):
    found = statistics.mean_interval([0.7], method=method)
    assert (found.estimate, found.low, found.high, found.n) == (0.7, None, None, 1)
    assert found.note == "one seed: the spread is unknown"
    found = statistics.mean_interval([0.7] * 40, method=method)
    assert found.low is None and found.note == "all scores are equal: the spread is unknown"


def test_two_seeds_are_cautioned():
    assert statistics.mean_interval([0.7, 0.8]).note == "two seeds: the interval is very wide"


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([], "scores: expected scores with 1 dimensions, .* shape \\[0\\]"),
        ([0.5, np.nan], "scores: score 1 is nan; expected a finite number: leave failed runs out"),
        ([[0.5]], "scores: expected scores with 1 dimensions"),
        (["x"], "scores: expected numbers"),
        ([None], "scores: score 0 is nan"),
    ],
)
def test_bad_scores_are_named(scores, message):
    with pytest.raises(ValueError, match=message):
        statistics.mean_interval(scores)


def test_bad_settings_are_named():
    with pytest.raises(file_io.InputError, match="level must be between 0 and 1; got 95"):
        statistics.mean_interval([1, 2], level=95)
    with pytest.raises(file_io.InputError, match="method must be t or bca; got 'z'"):
        statistics.mean_interval([1, 2], method="z")


def test_a_missing_scipy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(file_io.InputError, match="need the package scipy: pip install 'scipy>="):
        statistics.mean_interval([1, 2])


@pytest.mark.parametrize("minimize", [False, True])
@pytest.mark.parametrize("k", [1, 2, 3, 6])
def test_the_expected_best_is_the_mean_of_the_best_of_all_subsets(k, minimize):
    scores = [0.3, 0.9, 0.1, 0.5, 0.5, 0.2]
    pick = min if minimize else max
    expected = np.mean([pick(drawn) for drawn in itertools.combinations(scores, k)])
    found = statistics.expected_best(scores, k, minimize=minimize)
    assert found.estimate == pytest.approx(expected)
    assert found.bias == pytest.approx(expected - np.mean(scores)) and found.k == k
    assert found.low is None and found.note == f"an interval needs {15 * k} scores; got 6"


@pytest.mark.parametrize("k", [2, 5])
def test_intervals_of_the_expected_best_cover(k):
    rng = np.random.default_rng(k)
    truth = rng.normal(size=(200_000, k)).max(axis=1).mean()
    draws = rng.normal(size=(DRAWS, statistics.RUNS_PER_DRAW * k))
    found = [statistics.expected_best(row, k) for row in draws]
    assert 0.93 <= covered(found, truth) <= 0.97
    assert np.mean([best.estimate for best in found]) == pytest.approx(truth, abs=0.02)
    lowest = statistics.expected_best(-draws[0], k, minimize=True)
    assert (lowest.low, lowest.high) == pytest.approx((-found[0].high, -found[0].low))


def test_a_jackknife_error_of_the_mean_is_that_of_the_t_interval():
    scores = np.random.default_rng(3).normal(size=20)
    best, mean = statistics.expected_best(scores, 1), statistics.mean_interval(scores)
    assert (best.low, best.high) == pytest.approx((mean.low, mean.high))


@pytest.mark.parametrize("k", [0, 4])
def test_an_impossible_number_of_runs_is_named(k):
    with pytest.raises(file_io.InputError, match=f"k must be from 1 to .* scores, 3; got {k}"):
        statistics.expected_best([1, 2, 3], k)


# --- two sets of scores ---------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_sign_flips_equal_a_full_loop(n):
    differences = np.random.default_rng(n).normal(0.5, 1, n).round(2)
    sums = [np.dot(signs, differences) for signs in itertools.product((1, -1), repeat=n)]
    expected = np.mean(np.abs(sums) >= abs(differences.sum()) - 1e-9)
    assert statistics.sign_flip_p(differences) == pytest.approx(expected)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (2, 2), (3, 4), (5, 5)])
def test_permutations_equal_a_full_loop(n, m):
    rng = np.random.default_rng(n)
    a, b = rng.normal(size=n).round(1), rng.normal(1, 1, m).round(1)
    every, gaps = np.concatenate([a, b]), []
    for chosen in itertools.combinations(range(n + m), n):
        is_a = np.isin(np.arange(n + m), chosen)
        gaps.append(every[~is_a].mean() - every[is_a].mean())
    gap = b.mean() - a.mean()
    tails = np.mean(np.array(gaps) >= gap - 1e-9), np.mean(np.array(gaps) <= gap + 1e-9)
    assert statistics.permutation_p(a, b) == pytest.approx(min(1, 2 * min(tails)))


def test_many_pairs_are_drawn_by_the_seed():
    differences = np.random.default_rng(0).normal(0.3, 1, 30)
    first, again, other = (statistics.sign_flip_p(differences, random_seed=s) for s in (1, 1, 2))
    assert first == again != other and first == pytest.approx(other, abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("n", [3, 5, 10])
def test_paired_intervals_cover_and_false_claims_are_rare(n):
    rng = np.random.default_rng(n)
    shared = rng.normal(size=(DRAWS, n))  # what both runs of a seed have in common
    a, b = shared + rng.normal(size=(DRAWS, n)), shared + rng.normal(size=(DRAWS, n))
    pairs = zip(a[:500], b[:500], strict=True)
    found = [statistics.compare_seeds(seeds(x), seeds(y)) for x, y in pairs]
    # One test has exactly 5%, as its interval covers 95%: 93% to 97% are asked for.
    assert np.mean([comparison.better is not None for comparison in found]) <= 0.07
    bounds = stats.ttest_rel(b, a, axis=1).confidence_interval(0.95)
    assert found[0].low == pytest.approx(bounds.low[0])
    assert found[0].high == pytest.approx(bounds.high[0])
    assert 0.93 <= np.mean((bounds.low <= 0) & (bounds.high >= 0)) <= 0.97


@pytest.mark.parametrize("n", [3, 5, 10])
def test_unpaired_intervals_cover(n):
    rng = np.random.default_rng(n)
    a, b = rng.normal(0, 2, (DRAWS, n)), rng.normal(0, 1, (DRAWS, n))
    bounds = stats.ttest_ind(b, a, axis=1, equal_var=False).confidence_interval(0.95)
    found = statistics.compare_seeds(seeds(a[0]), seeds(b[0], 100))
    assert (found.low, found.high) == pytest.approx((bounds.low[0], bounds.high[0]))
    assert 0.93 <= np.mean((bounds.low <= 0) & (bounds.high >= 0)) <= 0.97


@pytest.mark.slow
@pytest.mark.parametrize("n", [3, 5])
def test_unpaired_false_claims_are_rare(n):
    draws = np.random.default_rng(n).normal(size=(300, 2, n))
    found = [statistics.compare_seeds(seeds(a), seeds(b, 100)) for a, b in draws]
    assert not found[0].paired
    assert np.mean([comparison.better is not None for comparison in found]) <= 0.07


def test_a_difference_is_said_in_words():
    a = {1: 0.80, 2: 0.82, 3: 0.81}
    b = {3: 0.861, 1: 0.85, 2: 0.872}
    found = statistics.compare_seeds(a, b, names=("old", "new"))
    assert found.paired and (found.n_a, found.n_b) == (3, 3)
    assert found.better == "new" and found.verdict == "new is better by 0.051"
    assert found.low < found.difference < found.high and found.method == "paired t"
    assert found.note == "too few seeds for a permutation test: p assumes normal scores"
    loss = statistics.compare_seeds(a, b, names=("old", "new"), minimize=True)
    assert loss.verdict == "old is better by 0.051"
    close = statistics.compare_seeds(a, {1: 0.81, 2: 0.80, 3: 0.82})
    assert (close.better, close.verdict) == (None, "not distinguishable") and close.p > 0.5


def test_from_six_pairs_on_both_tests_must_agree():
    # One collapsed pair: the t test alone would see it as spread, sign flips as 1 of 64.
    a, b = np.zeros(6), np.array([1, 2, 1, 2, 1, 2.0])
    found = statistics.compare_seeds(seeds(a), seeds(b))
    assert found.method == "paired t and sign flips, the larger p"
    assert found.p == pytest.approx(2 / 64) and found.better == "b" and found.note == ""
    assert stats.ttest_rel(b, a).pvalue < found.p
    found = statistics.compare_seeds(seeds([1, 2, 3, 4]), seeds([11, 12, 13, 14], 100))
    assert found.method == "Welch t and permutations, the larger p"
    assert found.p == pytest.approx(2 / 70)


def test_seeds_that_differ_are_not_paired():
    a, b = {1: 0.5, 2: 0.6}, {2: 0.5, 3: 0.7}
    assert not statistics.compare_seeds(a, b).paired


@pytest.mark.parametrize("other", [{1: 0.6}, {2: 0.6}])
def test_one_seed_of_each_is_not_compared(other):
    found = statistics.compare_seeds({1: 0.5}, other)
    assert (found.low, found.high, found.p, found.better) == (None, None, None, None)
    assert found.verdict == "not known: one seed" and found.difference == pytest.approx(0.1)


def test_equal_differences_claim_nothing_with_few_seeds():
    # Accuracies have few values: differences are often equal by chance, with rounding.
    a, b = {1: 0.80, 2: 0.83, 3: 0.86}, {1: 0.81, 2: 0.84, 3: 0.87}
    found = statistics.compare_seeds(a, b)
    assert found.low is None and found.better is None
    assert found.verdict == "not known: too few seeds without a spread"
    assert found.note == "differences are equal: no interval"
    same = statistics.compare_seeds(a, a)
    assert (same.difference, same.verdict) == (0, "not distinguishable")
    many = statistics.compare_seeds(seeds(np.zeros(8)), seeds(np.ones(8)))
    assert many.better == "b" and many.p == pytest.approx(2 / 2**8) and many.low is None


def test_failed_runs_are_reported():
    found = statistics.compare_seeds({1: 0.5, 2: 0.6}, {1: 0.5, 2: 0.7}, failed=(0, 2))
    assert "failed runs are not compared: 2 of b" in found.note
    with pytest.raises(file_io.InputError, match="b: score 1 is nan; expected a finite number"):
        statistics.compare_seeds({1: 0.5, 2: 0.6}, {1: 0.5, 2: np.nan})
    with pytest.raises(file_io.InputError, match="b: expected scores"):
        statistics.compare_seeds({1: 0.5}, {})


# --- sweeps ---------------------------------------------------------------------------------------


def test_holm_equals_that_of_statsmodels():
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    rng = np.random.default_rng(0)
    for n in (1, 2, 9):
        p = rng.random(n).round(2) / 3
        expected = multitest.multipletests(p, method="holm")[1]
        np.testing.assert_allclose(statistics.holm(p), expected)
    assert statistics.holm([0.01, 0.04, 0.03]).tolist() == pytest.approx([0.03, 0.06, 0.06])
    with pytest.raises(file_io.InputError, match="p_values must be from 0 to 1; got -0.1"):
        statistics.holm([-0.1, 0.5])


def false_claims(draws, first_seeds=None, **settings):
    """Number of sweeps [seeds, points] with a claim."""
    claims = 0
    for index, draw in enumerate(draws):
        points = {
            str(j): seeds(column, 100 * j if first_seeds else 0) for j, column in enumerate(draw.T)
        }
        found = statistics.compare_points(points, resamples=199, random_seed=index, **settings)
        claims += any(point.verdict.startswith(("worse", "better")) for point in found.points)
    return claims


def at_most_5_percent(count, draws):
    """Returns whether the exact 95% bound of a rate, given its count in draws, is at most 5%."""
    return stats.binomtest(count, draws, alternative="less").proportion_ci(0.95).high <= 0.05


def test_equal_points_have_no_winner():
    draws = np.random.default_rng(0).normal(0.8, 0.01, (400, 3, 20))
    assert at_most_5_percent(false_claims(draws), 400)


@pytest.mark.slow
@pytest.mark.parametrize("n", [2, 3, 5, 10])
@pytest.mark.parametrize("first_seeds", [False, True])
def test_equal_points_have_no_winner_with_any_number_of_seeds(n, first_seeds):
    draws = np.random.default_rng(n).normal(size=(DRAWS if n == 10 else 500, n, 20))
    claims = false_claims(draws, first_seeds)
    assert claims <= 0.05 * DRAWS if n == 10 else at_most_5_percent(claims, 500)


@pytest.mark.slow
@pytest.mark.parametrize(
    "spread",
    [np.r_[10, np.ones(19)], np.repeat([10, 1], 10), np.geomspace(1, 100, 20)],
    ids=["one wild", "half wild", "growing"],
)
@pytest.mark.parametrize("first_seeds", [False, True])
def test_equal_points_of_different_spread_have_no_winner(spread, first_seeds):
    draws = np.random.default_rng(3).normal(size=(500, 3, 20)) * spread
    assert at_most_5_percent(false_claims(draws, first_seeds), 500)


@pytest.mark.slow
def test_equal_points_with_a_seed_effect_a_long_tail_or_a_baseline_have_no_winner():
    rng = np.random.default_rng(5)
    effect = rng.normal(0, 3, (500, 4, 1))
    assert at_most_5_percent(false_claims(effect + rng.normal(size=(500, 4, 20))), 500)
    assert at_most_5_percent(false_claims(-rng.lognormal(size=(500, 4, 20))), 500)
    points = rng.normal(size=(DRAWS, 10, 20))
    assert false_claims(points, baseline="3") <= 0.05 * DRAWS
    assert false_claims(points, True, baseline="3") <= 0.05 * DRAWS


@pytest.mark.slow
def test_groups_of_equal_points_are_not_split():
    """Bad points are removed step by step, which must not make the good ones differ."""
    draws = np.random.default_rng(7).normal(size=(300, 4, 12))
    draws[:, :, 2:8] -= 8
    draws[:, :, 8:] -= 100
    split = found_worse = 0
    for draw in draws:
        points = {str(j): seeds(column) for j, column in enumerate(draw.T)}
        found = statistics.compare_points(points, resamples=499)
        worse = {point.name for point in found.points if point.verdict.startswith("worse")}
        split += bool(worse & {"0", "1"})
        found_worse += len(worse - {"0", "1"})
    assert at_most_5_percent(split, 300) and found_worse / 3000 > 0.9


def sweep():
    noise = np.random.default_rng(2).normal(0, 0.01, (3, 5))
    means = [0.80, 0.95, 0.80, 0.50, 0.79]
    return {f"p{j}": seeds(mean + noise[:, j]) for j, mean in enumerate(means)}


def test_a_real_winner_is_found():
    found = statistics.compare_points(sweep())
    assert found.reference == "p1"
    assert found.verdict == "p1 is better than all 4 others"
    assert [point.name for point in found.points][0::4] == ["p1", "p3"]
    best, *_, last = found.points
    assert (best.verdict, best.p, best.difference, best.n) == ("best", None, 0, 3)
    assert last.verdict.startswith("worse by 0.4") and last.p <= 0.05
    assert found == statistics.compare_points(sweep())
    losses = {name: {s: -v for s, v in runs.items()} for name, runs in sweep().items()}
    assert statistics.compare_points(losses, minimize=True).verdict == found.verdict


def test_points_are_compared_with_a_baseline():
    found = statistics.compare_points(sweep(), baseline="p0")
    verdicts = {point.name: point.verdict for point in found.points}
    assert found.reference == "p0"
    assert verdicts["p0"] == "baseline" and verdicts["p1"].startswith("better by 0.1")
    assert verdicts["p3"].startswith("worse by ") and verdicts["p2"] == "not distinguishable"
    raw = {
        name: stats.ttest_rel(list(runs.values()), list(sweep()["p0"].values())).pvalue
        for name, runs in sweep().items()
        if name != "p0"
    }
    adjusted = dict(zip(raw, statistics.holm(list(raw.values())), strict=True))
    assert {point.name: point.p for point in found.points if point.p} == pytest.approx(adjusted)
    assert found.verdict == "p0: 1 are worse, 1 better, 2 of 4 not distinguishable"


def test_two_points_are_compared_as_two_runs_are():
    a, b = np.random.default_rng(0).normal(size=(2, 4))
    for first in (0, 10):
        expected = statistics.compare_seeds(seeds(a), seeds(b, first)).p
        if first:  # 4 and 4 runs: the range of two points is the difference
            expected = pytest.approx(expected, abs=0.02)
        found = statistics.compare_points({"a": seeds(a), "b": seeds(b, first)})
        assert found.points[1].p == (expected if first else pytest.approx(expected))


def test_one_side_without_a_spread_is_compared_without_a_warning(recwarn):
    found = statistics.compare_seeds(seeds([0.51] * 3), seeds([0.6, 0.7, 0.5], 100))
    expected = stats.ttest_1samp([0.6, 0.7, 0.5], 0.51)
    assert found.p == pytest.approx(expected.pvalue) and not recwarn.list


def test_points_of_one_seed_or_without_a_spread_are_not_ranked():
    found = statistics.compare_points({"a": {0: 0.5}, "b": {0: 0.9}, "c": {0: 0.7}})
    assert [point.verdict for point in found.points] == ["best", *["not known: one seed"] * 2]
    constant = {name: {0: value, 1: value} for name, value in (("a", 0.5), ("b", 0.9))}
    assert (
        statistics.compare_points(constant).verdict
        == "b: 0 are worse, 0 better, 1 of 1 not distinguishable"
    )


def test_points_with_other_numbers_of_seeds_are_compared():
    points = sweep()
    points["p3"].pop(1)
    found = statistics.compare_points(points)
    assert "Welch" in found.method and found.points[-1].n == 2
    assert found.points[-1].verdict.startswith("worse by")


@pytest.mark.parametrize(
    ("points", "settings", "message"),
    [
        ({"a": {0: 1.0}}, {}, "needs at least 2 points; got 1"),
        ({"a": {0: 1.0}, "b": {}}, {}, "point b: expected scores"),
        ({"a": {0: 1.0}, "b": {0: np.inf}}, {}, "point b: score 0 is inf"),
        ({"a": {0: 1.0}, "b": {0: 1}}, {"baseline": "c"}, "baseline 'c' is not one of a, b"),
    ],
)
def test_bad_points_are_named(points, settings, message):
    with pytest.raises(file_io.InputError, match=message):
        statistics.compare_points(points, **settings)


def test_a_band_holds_the_intervals_of_its_points():
    scores = np.random.default_rng(0).normal(size=(4, 3))
    mean, low, high = statistics.mean_band(scores, level=0.9)
    for place in range(3):
        one = statistics.mean_interval(scores[:, place], level=0.9)
        found = (mean[place], low[place], high[place])
        assert found == pytest.approx((one.estimate, one.low, one.high))
    with pytest.raises(file_io.InputError, match="a band needs at least 2 seeds; got 1"):
        statistics.mean_band(scores[:1])
