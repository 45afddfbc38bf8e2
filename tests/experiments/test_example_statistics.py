"""Models on the same examples, several tasks, and seeds with examples. Calibrated by draws."""

import itertools
import re

import numpy as np
import pytest

from albert.experiments import equivalence, example_statistics
from albert.experiments.example_statistics import bootstrap_of_means
from albert.io import file_io
from albert.tasks import metrics

stats = pytest.importorskip("scipy.stats")


def covered(intervals, truth=0.0):
    return np.mean([found.low <= truth <= found.high for found in intervals])


# --- one run of each ------------------------------------------------------------------------------


def outcomes(both, only_a, only_b, neither):
    counts = [both, only_a, only_b, neither]
    return np.repeat([1, 1, 0, 0], counts), np.repeat([1, 0, 1, 0], counts)


@pytest.mark.parametrize("table", [(5, 3, 9, 2), (50, 30, 12, 2), (0, 1, 0, 3), (4, 6, 6, 0)])
def test_mcnemar_equals_that_of_statsmodels(table):
    peer = pytest.importorskip("statsmodels.stats.contingency_tables").mcnemar
    square = [[table[0], table[1]], [table[2], table[3]]]
    a, b = outcomes(*table)
    exact = peer(square, exact=True).pvalue
    total = table[1] + table[2]
    mid = example_statistics.mcnemar(a, b)
    point = stats.binom.pmf(table[1], total, 0.5)
    expected = 1 - point / 2 if table[1] == table[2] else exact - point  # as in the paper
    assert mid.p == pytest.approx(expected)
    assert mid.difference == pytest.approx((table[2] - table[1]) / sum(table))
    assert mid.low <= mid.difference <= mid.high and mid.n_a == sum(table)


def test_models_that_never_differ_are_not_distinguishable():
    a, _ = outcomes(5, 0, 0, 3)
    found = example_statistics.mcnemar(a, a == 1)
    assert (found.p, found.verdict) == (1, "not distinguishable")
    assert found.low < 0 < found.high


@pytest.mark.parametrize(("each", "p"), [(1, 0.75), (5, 0.877), (20, 0.937)])
def test_equally_many_gains_and_losses_are_no_evidence(each, p):
    assert example_statistics.mcnemar(*outcomes(5, each, each, 3)).p == pytest.approx(p, abs=5e-4)


def drawn_pairs(n, count, seed):
    """Right answers (1) of two models with accuracy 0.8 that often agree."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        a = (rng.random(n) < 0.8).astype(int)
        yield a, np.where(rng.random(n) < 0.3, rng.random(n) < 0.8, a)


def bootstrap(a, b, of_means=lambda means: means[..., 0], **settings):
    """The bootstrap of a metric of means; by default of the mean of numbers [examples]."""
    sides = (side.reshape(len(side), -1) for side in (a, b))
    return bootstrap_of_means(*sides, of_means, **settings)


@pytest.mark.slow(2)
def test_mcnemar_and_the_bootstrap_keep_their_level():
    tests, boots = [], []
    for a, b in drawn_pairs(150, 1000, 0):
        tests.append(example_statistics.mcnemar(a, b))
        boots.append(bootstrap(a, b, resamples=499))
    for found in (tests, boots):
        assert np.mean([comparison.better is not None for comparison in found]) <= 0.065
        assert 0.93 <= covered(found) <= 0.985  # accuracies have few values


def test_a_metric_of_means_is_drawn_like_examples():
    """The same as drawing every example by itself."""
    a, b = next(drawn_pairs(200, 1, 3))
    fast, rng = bootstrap(a, b), np.random.default_rng(0)
    rows = rng.integers(200, size=(3000, 200))
    draws = (b[rows] - a[rows].astype(float)).mean(axis=1)
    assert fast.difference == pytest.approx(b.mean() - a.mean())
    assert (fast.low, fast.high) == pytest.approx(np.quantile(draws, [0.025, 0.975]), abs=0.011)
    p = 2 * stats.t.sf(abs(fast.difference) / draws.std(), 199)
    assert fast.p == pytest.approx(p, abs=0.02)


@pytest.mark.parametrize("n", [2, 3, 5, 8, 20])
def test_few_examples_claim_no_more_than_promised(n):
    """Of two equal models; percentiles of 3 examples claim a difference in a fourth of draws."""
    rng, claims = np.random.default_rng(n), 0
    for index in range(300):
        a, b = np.abs(rng.normal(size=(2, n)))
        claims += bootstrap(a, b, resamples=200, random_seed=index).better is not None
    assert claims <= 0.085 * 300


def test_few_examples_prove_little():
    labels = np.array([1.1, 2.1, 2.9])
    a, b = (np.abs(labels - guesses) for guesses in ([1, 2, 3], [1.3, 2.4, 3.2]))
    found = bootstrap(a, b, minimize=True)
    assert (found.p, found.better) == (
        0.25,
        None,
    ) and found.note == "so few examples: p cannot be below 0.25"
    for count, better in ((5, None), (6, "b")):
        found = bootstrap(np.zeros(count), np.ones(count))
        assert (found.p, found.better) == (2.0 ** (1 - count), better)
        assert found.low is None and found.note.endswith("in all bootstrap samples: no interval")
    same = bootstrap(a, a)
    assert (same.difference, same.low, same.p) == (0, None, 1)

    def compare(level):
        return bootstrap(a, a, level=level)

    assert not equivalence.test_margin(compare, 0.001, 0.95, 1, 3, "examples").is_equal
    one = np.ones((3, 1, 1))
    with pytest.raises(file_io.InputError, match="needs 2 or more, found 1"):
        bootstrap(np.ones(1), np.zeros(1))
    with pytest.raises(file_io.InputError, match="needs 2 or more, found 1"):
        example_statistics.multi_bootstrap(
            one, 0 * one, lambda means: means[..., 0], paired_seeds=True
        )


def numbers_of_f1(labels, predictions):
    return np.stack([labels * predictions, labels + predictions], axis=1)


def f1(means):
    return 2 * means[..., 0] / means[..., 1]


def test_samples_without_a_score_are_left_out():
    """With one positive of 30, a third of the samples has none: F1 is undefined there."""
    truth, wrong = np.arange(30) == 0, np.arange(30) < 3

    def of_means(means):
        return metrics.f1_of_counts(*np.moveaxis(means, -1, 0))

    def counts(labels):
        return [np.stack([labels & x, x, labels], axis=1) * 1.0 for x in (wrong, truth)]

    found = bootstrap_of_means(*counts(truth), of_means)
    assert found.difference == pytest.approx(0.5) and found.low >= 0 and found.high < 1
    assert re.fullmatch(
        r"3\d{3} of 9999 bootstrap samples left out: .* undefined there", found.note
    )
    sides = [np.stack([side, side]) for side in counts(truth)]
    found = example_statistics.multi_bootstrap(*sides, of_means, paired_seeds=True)
    assert np.isfinite([found.low, found.high, found.p]).all() and "undefined there" in found.note
    none = counts(truth & False)
    several = {"paired_seeds": True, "of_means": of_means}
    for call in (
        lambda: bootstrap_of_means(*none, of_means),
        lambda: example_statistics.multi_bootstrap(*([side, side] for side in none), **several),
    ):
        with pytest.raises(file_io.InputError, match="a: the metric is undefined, because the lab"):
            call()


def test_any_metric_and_direction():
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, 300)
    good = numbers_of_f1(truth, np.where(rng.random(300) < 0.05, 1 - truth, truth))
    bad = numbers_of_f1(truth, np.where(rng.random(300) < 0.3, 1 - truth, truth))
    settings = {"of_means": f1, "resamples": 300, "names": ("bad", "good")}
    found = bootstrap(bad, good, **settings)
    assert found.better == "good"
    assert found.difference == pytest.approx(f1(good.mean(0)) - f1(bad.mean(0)))
    assert found == bootstrap(bad, good, **settings)
    assert bootstrap(bad, good, minimize=True, **settings).better == "bad"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: example_statistics.mcnemar([1, 0], [1]), "a has 2, b has 1"),
        (lambda: example_statistics.mcnemar([1, 2], [1, 0]), "a: expected 1 for correct and 0"),
        (lambda: bootstrap(np.ones(2), np.ones(1)), "examples are paired; a has 2, b has 1"),
        (lambda: bootstrap(np.array([1, np.nan]), np.ones(2)), "a: score .* is nan"),
    ],
)
def test_bad_examples_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# --- seeds and examples ---------------------------------------------------------------------------


def multi_bootstrap(a, b, **settings):
    """The multi-bootstrap of the mean of numbers [seeds, examples]."""
    sides = (side[..., None] for side in (a, b))
    return example_statistics.multi_bootstrap(*sides, lambda means: means[..., 0], **settings)


def drawn_models(seeds, examples, paired, rng):
    """Scores [seeds, examples] of two equal models; seeds differ, as examples do."""
    shared = rng.normal(size=(seeds, 1))
    base = shared if paired else rng.normal(size=(seeds, 1))
    both = rng.normal(size=examples)
    a = shared + both + rng.normal(size=(seeds, examples)) + rng.normal(size=(seeds, 1))
    own = rng.normal(size=examples)  # what only one model finds difficult
    b = base + both + own + rng.normal(size=(seeds, examples)) + rng.normal(size=(seeds, 1))
    return a, b


@pytest.mark.slow
@pytest.mark.parametrize("n", [example_statistics.MIN_BOTH, 10])
@pytest.mark.parametrize("paired", [False, True])
def test_the_multi_bootstrap_covers_new_seeds_and_new_examples(paired, n):
    rng, found = np.random.default_rng(n), []
    for index in range(2000):
        a, b = drawn_models(n, 30, paired, rng)
        comparison = multi_bootstrap(a, b, paired_seeds=paired, resamples=200, random_seed=index)
        found.append(comparison)
    assert 0.93 <= covered(found) <= 0.97
    assert all((c.p <= 0.05) == (not c.low <= 0 <= c.high) for c in found)
    assert found[0].note == "" and found[0].paired == paired


def test_the_multi_bootstrap_is_wider_than_that_of_examples():
    a, b = drawn_models(5, 400, True, np.random.default_rng(1))
    both = multi_bootstrap(a, b, paired_seeds=True)
    gaps = (b - a).mean(axis=0)
    error = gaps.std() / np.sqrt(len(gaps))
    assert both.difference == pytest.approx(gaps.mean())
    assert both.high - both.low > 3 * 2 * 1.96 * error
    of_seeds = (b - a).mean(axis=1).std(ddof=1) / 5**0.5
    assert both.errors["seeds"] == pytest.approx(of_seeds)
    whole = (both.high - both.low) / 2
    assert np.hypot(*both.errors.values()) < whole < 4 * np.hypot(*both.errors.values())
    few = multi_bootstrap(a[:4], b[:4], paired_seeds=True)
    assert both.note == ""
    assert few.note == "4 seeds: the interval may be too narrow; from 5 on it is not"


def test_the_multi_bootstrap_without_noise_of_examples_is_the_t_test():
    a, b = np.random.default_rng(4).normal(size=(2, 5, 1)) * np.ones((1, 1, 200))
    for paired in (True, False):
        found = multi_bootstrap(a, b, paired_seeds=paired, resamples=20_000)
        same, x, y = (stats.ttest_rel if paired else stats.ttest_ind), a[:, 0], b[:, 0]
        expected = same(y, x, **({} if paired else {"equal_var": False}))
        assert found.p == pytest.approx(expected.pvalue, rel=0.03)
        bounds = expected.confidence_interval(0.95)
        assert (found.low, found.high) == pytest.approx((bounds.low, bounds.high), rel=0.03)


@pytest.mark.parametrize(("gap", "verdict"), [(0, "not distinguishable"), (1, "b is better by 1")])
def test_the_multi_bootstrap_of_sides_without_a_spread(gap, verdict):
    a = np.full((3, 40), 0.1) + np.arange(40) / 7
    found = multi_bootstrap(a, a + gap, paired_seeds=True)
    assert (found.low, found.high, found.verdict) == (None, None, verdict)
    assert found.note.endswith("in all bootstrap samples: no interval") and not found.errors


def test_the_multi_bootstrap_of_few_examples_is_the_t_test_of_these():
    """Seeds are alike here, so all variance is that of four examples."""
    a, b = np.random.default_rng(5).normal(size=(2, 1, 4)) * np.ones((1, 3, 1))
    found = multi_bootstrap(a, b, paired_seeds=True, resamples=20_000)
    expected = stats.ttest_rel(b[0], a[0])
    assert found.p == pytest.approx(max(0.125, expected.pvalue), rel=0.03)
    bounds = expected.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((bounds.low, bounds.high), rel=0.03)


def test_the_multi_bootstrap_without_spread_over_seeds_is_that_of_examples():
    rng = np.random.default_rng(2)
    a, gap = rng.normal(size=300), rng.normal(0.5, 1, 300)
    found = multi_bootstrap(
        np.stack([a] * 4), np.stack([a + gap] * 4), paired_seeds=True, names=("old", "new")
    )
    half = 1.96 * gap.std() / np.sqrt(300)
    assert (found.low, found.high) == pytest.approx(
        (gap.mean() - half, gap.mean() + half), abs=0.015
    )
    assert found.better == "new" and found.p < 0.01


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ((3, 5), (3, 6), "a has 5, b 6"),
        ((3, 5), (4, 5), "paired seeds: a has 3 seeds, b has 4"),
        ((1, 5), (1, 5), "over seeds needs 2 or more"),
        ((5,), (5,), "a: expected scores with 3 dimensions"),
    ],
)
def test_bad_shapes_are_named(a, b, message):
    with pytest.raises(file_io.InputError, match=message):
        multi_bootstrap(np.zeros(a), np.zeros(b), paired_seeds=True)


# --- many tasks -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_intervals_over_tasks_cover():
    rng, means, chances = np.random.default_rng(0), [], []
    for index in range(300):
        a, b = rng.normal(size=(2, example_statistics.MIN_SEEDS, 6))
        settings = {"resamples": 300, "random_seed": index}
        means.append(example_statistics.interquartile_mean(a, **settings))
        chances.append(example_statistics.probability_of_improvement(a, b, **settings))
    assert 0.92 <= covered(means) <= 0.98
    assert 0.92 <= covered(chances, 0.5) <= 0.98
    assert means[0].note == chances[0].note == ""


def test_the_interquartile_mean_is_that_of_the_middle_half():
    scores = np.array([[0.1, 0.5], [0.9, 0.4], [0.3, 0.7], [0.2, 100]])
    found = example_statistics.interquartile_mean(scores)
    assert found.estimate == pytest.approx(np.mean([0.3, 0.4, 0.5, 0.7]))
    assert found.low <= found.estimate <= found.high and found.n == 4
    assert found.note == "4 seeds: the interval may be too narrow; from 20 on it is not"
    one = example_statistics.interquartile_mean(scores[:1])
    assert (one.low, one.high, one.note) == (None, None, "one seed: the spread is unknown")


def test_runs_are_drawn_within_their_task():
    # Without a spread within tasks nothing varies, however different the tasks are.
    found = example_statistics.interquartile_mean(np.tile([0.1, 0.5, 0.9, 0.7], (3, 1)))
    assert found.low == pytest.approx(found.high) == pytest.approx(0.6)


def test_the_probability_of_improvement_counts_pairs():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 4, (3, 2)), rng.integers(0, 4, (4, 2))
    wins = [
        (b[j, task] > a[i, task]) + (b[j, task] == a[i, task]) / 2
        for i, j, task in itertools.product(range(3), range(4), range(2))
    ]
    found = example_statistics.probability_of_improvement(a, b)
    assert found.estimate == pytest.approx(np.mean(wins)) and found.n == 3
    u = [stats.mannwhitneyu(b[:, task], a[:, task]).statistic / 12 for task in range(2)]
    assert found.estimate == pytest.approx(np.mean(u))
    lower = example_statistics.probability_of_improvement(a, b, minimize=True)
    assert lower.estimate == pytest.approx(1 - found.estimate)
    one = example_statistics.probability_of_improvement(a[:1], b)
    assert one.low is None and one.note == "one seed: the spread is unknown"
    with pytest.raises(file_io.InputError, match="the same tasks; a has 2, b has 1"):
        example_statistics.probability_of_improvement(a, b[:, :1])


def _ratio(means):
    return means[..., 0] / means[..., 1]


@pytest.mark.parametrize("paired", [True, False])
def test_the_multi_bootstrap_of_a_metric_of_means_equals_that_of_means(paired):
    rng = np.random.default_rng(5)
    a, b = rng.normal(0, 1, (4, 50)), rng.normal(0.2, 1, (4, 50))
    expected = multi_bootstrap(a, b, paired_seeds=paired)
    rows = [np.stack([side, np.ones_like(side)], axis=2) for side in (a, b)]
    found = example_statistics.multi_bootstrap(*rows, _ratio, paired_seeds=paired)
    for name in ("difference", "low", "high", "p"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name))
