"""Statistics of scores over examples and tasks: two models on one test set, many seeds, many tasks.

Needs SciPy (extra `stats`).

In all functions, `minimize` says that lower scores are better, `level` is a fraction such as 0.95,
`resamples` a number of bootstrap samples, and `names` are those of a and b, for the verdict.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from albert.experiments import statistics
from albert.experiments.clusters import Clusters
from albert.io import file_io
from albert.training import results

# Fewer make percentile intervals too narrow: 95% intervals of normal scores cover less than 93%.
MIN_SEEDS = 20
MIN_BOTH = 5  # the same for intervals over seeds and examples
_LEAST_P = 1e-3  # of a difference without a spread
_CHUNK = 4_000_000  # numbers held at a time


def _few_seeds(count: int, enough: int = MIN_SEEDS) -> str:
    """Returns a caution about bootstraps over `count` seeds; "" if they are `enough`."""
    if count >= enough:
        return ""
    return f"{count} seeds: the interval may be too narrow; from {enough} on it is not"


def _percentiles(drawn: npt.NDArray, level: float) -> tuple[float, float]:
    """Returns both ends of the percentile interval of [draws] values of bootstrap samples."""
    low, high = np.quantile(drawn, [0.5 - level / 2, 0.5 + level / 2])
    return float(low), float(high)


def _check_defined(*scores: npt.NDArray, names: Sequence[str]) -> None:
    """Rejects a metric that is undefined (NaN) for a run of any side; scores: [runs], or one."""
    for name, values in zip(names, scores, strict=True):
        if np.isnan(values).any():
            raise file_io.InputError(
                f"{name}: the metric is {results.UNDEFINED}, because the labels of these examples "
                "make any answers score the same: choose another metric, or other examples"
            )


def _defined(draws: npt.NDArray) -> tuple[npt.NDArray, str]:
    """Returns the [draws] bootstrap samples that are not NaN, and a caution about the others or "".

    Small samples may have only examples of one label, for which no correlation is defined.
    """
    kept = draws[~np.isnan(draws)]
    if len(kept) == len(draws):
        return kept, ""
    if not len(kept):
        raise file_io.InputError(
            f"the metric is {results.UNDEFINED} in each bootstrap sample: its labels are too rare"
        )
    lost = len(draws) - len(kept)
    return kept, f"{lost} of {len(draws)} bootstrap samples left out: the metric is undefined there"


# --- many tasks -----------------------------------------------------------------------------------


def _chunks(total: int, size: int) -> Iterator[int]:
    """Yields counts that add up to `total`, for draws of `size` numbers each."""
    step = max(1, _CHUNK // size)
    for begin in range(0, total, step):
        yield min(step, total - begin)


def _bootstrap(
    sides: Sequence[npt.NDArray],
    metric: Callable[..., npt.NDArray],
    level: float,
    resamples: int,
    random_seed: int,
) -> statistics.Estimate:
    """Returns a metric with the percentile interval of seeds that are drawn within each task.

    Args:
      sides: scores [seeds, tasks] of each.
      metric: metric [...] of scores [..., seeds, tasks] of each side.
    """
    statistics.check_level(level)
    estimate, count = float(metric(*sides)), min(map(len, sides))
    method = "stratified bootstrap"
    if count == 1:
        note = "one seed: the spread is unknown"
        return statistics.Estimate(estimate, None, None, level, method, count, note)
    rng, tasks, drawn = np.random.default_rng(random_seed), np.arange(sides[0].shape[1]), []
    for size in _chunks(resamples, sides[0].size * math.prod(map(len, sides[1:]))):
        runs = [side[rng.integers(len(side), size=(size, *side.shape)), tasks] for side in sides]
        drawn.append(metric(*runs))
    low, high = _percentiles(np.concatenate(drawn), level)
    return statistics.Estimate(estimate, low, high, level, method, count, _few_seeds(count))


def interquartile_mean(
    scores: npt.ArrayLike, *, level: float = 0.95, resamples: int = 2000, random_seed: int = 0
) -> statistics.Estimate:
    """Returns the mean of the middle half of all scores, with a stratified bootstrap interval.

    Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice" (2021),
    arXiv 2108.13264, sections 4.1 and 4.3: seeds are drawn within each task, percentile interval.
    The interval treats the tasks as given. With fewer than `MIN_SEEDS` seeds it may be too narrow
    (95% intervals of normal scores cover about 90% at 5 seeds, 93% at 10), which `note` says; with
    one seed it is missing.

    Args:
      scores: [seeds, tasks], scaled so that tasks can be compared.
    """
    values = statistics.check_scores(scores, "scores", 2)
    trim_mean = statistics.scipy_stats().trim_mean

    def mean(runs: npt.NDArray) -> npt.NDArray:
        """Returns the interquartile means [...] of scores [..., seeds, tasks]."""
        return trim_mean(runs.reshape(*runs.shape[:-2], -1), 0.25, axis=-1)

    return _bootstrap([values], mean, level, resamples, random_seed)


def _improvement(a: npt.NDArray, b: npt.NDArray) -> npt.NDArray:
    """Returns P(b > a) + P(b = a) / 2, averaged over tasks; a [..., n, tasks], b [..., m, tasks].

    This is the Mann-Whitney statistic, counted directly because draws have many ties.
    """
    pairs = np.sign(b[..., :, None, :] - a[..., None, :, :])
    return 0.5 + pairs.mean(axis=(-3, -2, -1)) / 2


def probability_of_improvement(
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    *,
    minimize: bool = False,
    level: float = 0.95,
    resamples: int = 2000,
    random_seed: int = 0,
) -> statistics.Estimate:
    """Returns the probability that a run of b is better than one of a on a random task.

    Agarwal et al. (2021), arXiv 2108.13264, section 4.3; stratified bootstrap of both, percentile
    interval. `n` is the smaller number of seeds; see `interquartile_mean` for few seeds.

    Args:
      a, b: [seeds of each, tasks], the same tasks in the same order.
    """
    first = statistics.check_scores(a, "a", 2)
    second = statistics.check_scores(b, "b", 2)
    if first.shape[1] != second.shape[1]:
        raise file_io.InputError(
            f"a and b need the same tasks; a has {first.shape[1]}, b has {second.shape[1]}"
        )
    if minimize:
        first, second = -first, -second
    return _bootstrap([first, second], _improvement, level, resamples, random_seed)


# --- seeds and examples ---------------------------------------------------------------------------


def draw_counts(size: int, resamples: int, rng: np.random.Generator) -> npt.NDArray:
    """Returns how often each of `size` things is drawn, [resamples, size], as fractions."""
    return rng.multinomial(size, np.full(size, 1 / size), resamples) / size


def _seed_scores(
    a: npt.ArrayLike, b: npt.ArrayLike, paired: bool, names: tuple[str, str]
) -> tuple[npt.NDArray, npt.NDArray]:
    """Returns two arrays [seeds, examples, k] that the multi-bootstrap can compare."""
    first, second = (statistics.check_scores(x, n, 3) for x, n in zip((a, b), names, strict=True))
    if first.shape[1] != second.shape[1]:
        raise file_io.InputError(
            f"examples are paired; {names[0]} has {first.shape[1]}, {names[1]} {second.shape[1]}"
        )
    if paired and len(first) != len(second):
        raise file_io.InputError(
            f"paired seeds: {names[0]} has {len(first)} seeds, {names[1]} has {len(second)}"
        )
    if min(len(first), len(second)) < 2:
        raise file_io.InputError(
            "a bootstrap over seeds needs 2 or more; compare one seed with bootstrap_of_means"
        )
    return first, second


def _weighed_difference(
    sides: tuple[npt.NDArray, npt.NDArray],
    seeds: tuple[npt.NDArray, npt.NDArray],
    examples: npt.NDArray,
    of_means: Callable[[npt.NDArray], npt.NDArray],
) -> npt.NDArray:
    """Returns the difference [draws] of two sides with weights of their seeds and of examples.

    Args:
      sides: scores [seeds, examples, k] of both.
      seeds: weights [draws, seeds] of both.
      examples: weights [draws, examples].
      of_means: metric [...] of means over examples [..., k].
    """
    # Seed by seed: a product with all seeds at once would copy the side.
    scores = (np.stack([of_means(examples @ rows) for rows in side], axis=1) for side in sides)
    means = [(w * s).sum(axis=1) for w, s in zip(seeds, scores, strict=True)]
    return means[1] - means[0]


def _t_result(
    difference: float, error: float, freedom: float, units: int, level: float, tiny: float
) -> tuple[float | None, float | None, float, str]:
    """Returns interval, p and a caution, or "", of a difference with a standard error.

    Without a spread in the bootstrap there is no interval. n differences of one sign have a
    probability of 2^(1 - n) if neither side is better, so p is never lower.

    Args:
      units: n, number of examples, or of their groups.
      tiny: largest difference that rounding can cause.
    """
    least = 2.0 ** (1 - units)
    if error <= tiny:
        p = 1.0 if abs(difference) <= tiny else max(least, _LEAST_P)
        return None, None, p, "the difference is the same in all bootstrap samples: no interval"
    t = statistics.scipy_stats().t
    half = float(t.isf(0.5 - level / 2, freedom)) * error
    p = float(2 * t.sf(abs(difference) / error, freedom))
    note = f"so few examples: p cannot be below {least:.2g}" if p < least else ""
    return difference - half, difference + half, max(p, least), note


def _check_units(units: int) -> None:
    """Rejects fewer than two examples, or groups of them."""
    if units < 2:
        raise file_io.InputError(f"a bootstrap over examples needs 2 or more, found {units}")


def _tiny(*scores: npt.NDArray) -> float:
    """Returns the largest difference between such scores that rounding can cause."""
    return statistics.ROUNDING * max(float(np.abs(values).max()) for values in scores)


def _errors_of_draws(
    draws: npt.NDArray, a: npt.NDArray, b: npt.NDArray, paired: bool, units: int
) -> tuple[float, float, dict[str, float]]:
    """Returns standard error, degrees of freedom and parts of the error of b's mean less that of a.

    Samples of n seeds show only (n - 1) / n of the variance over seeds, and those of n examples
    only that part of the variance over examples, so the rest is added. As few seeds tell their
    variance poorly, the degrees of freedom are those of Satterthwaite ("An approximate distribution
    of estimates of variance components", 1946).

    Args:
      draws: [draws] differences of bootstrap samples.
      a, b: [seeds of each] scores on all examples.
      units: number of examples, or of their groups.
    """
    groups = (b - a,) if paired else (a, b)
    own = [(float(np.var(scores, ddof=1)) / len(scores), len(scores)) for scores in groups]
    of_seeds = sum(part for part, _ in own)
    shown = sum(part * (count - 1) / count for part, count in own)
    rest = max(0.0, float(np.var(draws)) - shown) * units / (units - 1)
    variance = of_seeds + rest
    parts = [(part, count - 1) for part, count in own] + [(rest, units - 1)]
    weighed = sum(part**2 / degrees for part, degrees in parts)
    errors = {"seeds": math.sqrt(of_seeds), "examples": math.sqrt(rest)}
    return math.sqrt(variance), variance**2 / weighed if weighed else 1.0, errors


def multi_bootstrap(
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    of_means: Callable[[npt.NDArray], npt.NDArray],
    *,
    paired_seeds: bool,
    minimize: bool = False,
    level: float = 0.95,
    resamples: int = 2000,
    names: tuple[str, str] = ("a", "b"),
    random_seed: int = 0,
    clusters: Clusters | None = None,
) -> statistics.Comparison:
    """Compares two models with several seeds on the same examples, drawing seeds and examples.

    Sellam et al., "The MultiBERTs" (2021), arXiv 2106.16163, section 3 and appendix: the result
    holds for new seeds and new examples. Examples are paired. Seeds are paired if run i of a and of
    b share something, such as the checkpoint that both were fine-tuned from. The metric is the mean
    over examples, or a function of such means. `n_a` and `n_b` are numbers of seeds.

    Interval and p are those of t with the variance of the bootstrap, as percentiles of few seeds
    are far too narrow. From `MIN_BOTH` seeds on 95% intervals cover as promised, or more, as chance
    in single examples of single seeds counts twice. At 2 and 3 seeds, if seeds matter most, they
    cover 89% and 93%; `note` says that they may be too narrow.

    Args:
      a, b: [seeds of each, examples, k] numbers of each example, such as 1 for a correct label.
      of_means: metric [...] of means over examples [..., k], NaN where it is undefined.
      paired_seeds: whether row i of a and of b are paired.
      clusters: groups of examples, which are then drawn in place of single ones.
    """
    first, second = _seed_scores(a, b, paired_seeds, names)
    units = first.shape[1] if clusters is None else clusters.count
    _check_units(units)
    statistics.check_level(level)
    rng, drawn = np.random.default_rng(random_seed), []
    for size in _chunks(resamples, first.shape[1]):
        seeds = draw_counts(len(first), size, rng)
        others = seeds if paired_seeds else draw_counts(len(second), size, rng)
        if clusters is None:
            examples = draw_counts(first.shape[1], size, rng)
        else:
            examples = clusters.draw(size, rng)[:, clusters.index]
        drawn.append(_weighed_difference((first, second), (seeds, others), examples, of_means))
    a_scores, b_scores = (of_means(side.mean(axis=1)) for side in (first, second))
    _check_defined(a_scores, b_scores, names=names)
    draws, undefined = _defined(np.concatenate(drawn))
    difference = float(b_scores.mean() - a_scores.mean())
    error, freedom, errors = _errors_of_draws(draws, a_scores, b_scores, paired_seeds, units)
    tiny = _tiny(a_scores, b_scores)
    low, high, p, spread = _t_result(difference, error, freedom, units, level, tiny)
    better, verdict = statistics.decide(difference, p, level, minimize, names)
    few = _few_seeds(min(len(first), len(second)), MIN_BOTH)
    note = "; ".join(filter(None, [few, undefined, spread]))
    over = "examples" if clusters is None else f"{clusters.name}s"
    method = f"multi-bootstrap over seeds and {over}, quantiles of t"
    return statistics.Comparison(
        difference, low, high, p, level, method, len(first), len(second), paired_seeds, better,
        verdict, note, {} if low is None else errors,
    )  # fmt: skip


# --- one run of each ------------------------------------------------------------------------------


def _mid_p(only_a: int, only_b: int) -> float:
    """Returns the two-sided mid-p of McNemar's test, given how many examples only one has right."""
    stats, total = statistics.scipy_stats(), only_a + only_b
    point = float(stats.binom.pmf(only_a, total, 0.5))
    if only_a == only_b:  # Both tails hold this count; p has it once.
        return 1 - point / 2 if total else 1.0
    return float(stats.binomtest(only_a, total).pvalue) - point


def mcnemar(
    a_correct: npt.ArrayLike,
    b_correct: npt.ArrayLike,
    *,
    level: float = 0.95,
    names: tuple[str, str] = ("a", "b"),
) -> statistics.Comparison:
    """Compares the accuracies of two models on the same examples with McNemar's test.

    The exact test is conservative; mid-p (Fagerland et al., "The McNemar test for binary
    matched-pairs data", 2013, section "mid-p") keeps the level in practice. The interval is the
    adjusted Wald interval of Bonett and Price (2012), equation 6. The result holds for new
    examples, not for new seeds.

    Args:
      a_correct, b_correct: [examples] of 0 and 1, or booleans.
    """
    statistics.check_level(level)
    first, second = _paired_examples(a_correct, b_correct, names, 1)
    for values, name in zip((first, second), names, strict=True):
        if not np.isin(values, (0, 1)).all():
            raise file_io.InputError(f"{name}: expected 1 for correct and 0 for wrong examples")
    n = len(first)
    only_a, only_b = int(np.sum(first > second)), int(np.sum(first < second))
    p = _mid_p(only_a, only_b)
    shares = (only_b + 1) / (n + 2), (only_a + 1) / (n + 2)
    gap = shares[0] - shares[1]
    z = float(statistics.scipy_stats().norm.ppf(0.5 + level / 2))
    half = z * math.sqrt((sum(shares) - gap**2) / (n + 2))
    difference, low, high = (only_b - only_a) / n, max(-1.0, gap - half), min(1.0, gap + half)
    better, verdict = statistics.decide(difference, p, level, False, names)
    return statistics.Comparison(
        difference, low, high, p, level, "McNemar, mid-p", n, n, True, better, verdict
    )


def _paired_examples(
    a: npt.ArrayLike, b: npt.ArrayLike, names: tuple[str, str], dimensions: int
) -> tuple[npt.NDArray, npt.NDArray]:
    """Returns arrays [examples, …] of both sides' scores, with this number of dimensions."""
    first, second = (
        statistics.check_scores(x, name, dimensions) for x, name in zip((a, b), names, strict=True)
    )
    if first.shape != second.shape:
        raise file_io.InputError(
            f"examples are paired; {names[0]} has {len(first)}, {names[1]} has {len(second)}"
        )
    return first, second


def bootstrap_of_means(
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    of_means: Callable[[npt.NDArray], npt.NDArray],
    *,
    minimize: bool = False,
    level: float = 0.95,
    resamples: int = 9999,
    names: tuple[str, str] = ("a", "b"),
    random_seed: int = 0,
    clusters: Clusters | None = None,
) -> statistics.Comparison:
    """Compares two models by a metric of the same examples, drawing examples with replacement.

    Efron and Tibshirani, "An Introduction to the Bootstrap" (1993), section 13.3. Interval and p
    are those of t with the variance of the bootstrap, as percentiles of few examples are far too
    narrow: with 3 to 20 examples they claim 24% to 6% of differences that do not exist, t at most
    7% (promised: 5%). The result holds for new examples, not for new seeds. Equal examples are
    weighed together.

    Args:
      a, b: [examples, k] numbers of each example, such as 1 for a correct label.
      of_means: metric [...] of means over examples [..., k], NaN where it is undefined.
      clusters: groups of examples, which are then drawn in place of single ones (None).
    """
    statistics.check_level(level)
    first, second = _paired_examples(a, b, names, 2)
    n, k, rng = len(first), first.shape[1], np.random.default_rng(random_seed)
    units = n if clusters is None else clusters.count
    _check_units(units)
    draw = _draws_of_rows if clusters is None else partial(_draws_of_clusters, clusters)
    drawn = [
        of_means(means[:, k:]) - of_means(means[:, :k])
        for means in draw(np.hstack([first, second]), resamples, rng)
    ]
    scores = [of_means(side.mean(axis=0)) for side in (first, second)]
    _check_defined(*scores, names=names)
    draws, undefined = _defined(np.concatenate(drawn))
    difference = float(scores[1] - scores[0])
    # Draws of n units show only (n - 1) / n of the variance.
    error = math.sqrt(float(np.var(draws)) * units / (units - 1))
    low, high, p, spread = _t_result(difference, error, units - 1, units, level, _tiny(*scores))
    over = "" if clusters is None else f" over {clusters.name}s"
    method = f"paired bootstrap{over}, quantiles of t"
    note = "; ".join(filter(None, [undefined, spread]))
    better, verdict = statistics.decide(difference, p, level, minimize, names)
    return statistics.Comparison(
        difference, low, high, p, level, method, n, n, True, better, verdict, note
    )


def _draws_of_rows(
    both: npt.NDArray, resamples: int, rng: np.random.Generator
) -> Iterator[npt.NDArray]:
    """Yields means [draws, k] of `resamples` draws of rows of [examples, k], in parts."""
    rows, counts = np.unique(both, axis=0, return_counts=True)
    for size in _chunks(resamples, len(rows)):
        yield rng.multinomial(len(both), counts / len(both), size) @ rows / len(both)


def _draws_of_clusters(
    clusters: Clusters, both: npt.NDArray, resamples: int, rng: np.random.Generator
) -> Iterator[npt.NDArray]:
    """Yields means [draws, k] of `resamples` draws of clusters of [examples, k], in parts."""
    sums = clusters.sums(both)
    for size in _chunks(resamples, clusters.count):
        yield clusters.draw(size, rng) @ sums
