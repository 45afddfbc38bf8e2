"""Statistics of scores over seeds: intervals, comparisons, sweeps, and the best of several runs.

A comparison claims a difference only if its p is at most 1 - level. If a value cannot be computed,
such as the interval of one seed, the result says so. Needs SciPy (extra `stats`).

In all functions, `minimize` says that lower scores are better, `level` is a fraction such as 0.95,
and `names` are those of a and b, for the verdict. If `scores` are a sequence, they are [seeds] of
each point; `paired` says that all have the same seeds in the same order.
"""

import dataclasses
import importlib.util
import math
import warnings
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from types import ModuleType

import numpy as np
import numpy.typing as npt

from albert.io import file_io, requirements

MIN_BOOTSTRAP = 30  # scores from which BCa intervals of a mean cover as promised
NOT_DISTINGUISHABLE = "not distinguishable"
NOT_INSTALLED = "Intervals and comparisons need SciPy: pip install 'scipy>=1.15'"
RUNS_PER_DRAW = 15  # scores per k from which intervals of the best of k cover as promised
_ENUMERATED = 2**16  # permutations: up to this many are all tried, of more this many are drawn
_CHUNK = 2_000_000  # numbers held at a time
# Relative spread below which differences are the rounding of float32 scores.
ROUNDING = 1e-7


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A number with its interval.

    Attributes:
      low, high: interval; None if the scores are too few, see `note`.
      level: fraction of such intervals that hold the true value.
      n: number of scores (runs).
      note: caution in words; "" without one.
    """

    estimate: float
    low: float | None
    high: float | None
    level: float
    method: str
    n: int
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Two sets of scores, a and b.

    Attributes:
      difference: b minus a.
      low, high: interval of the difference; None if the scores are too few, see `note`.
      p: two-sided p-value of no difference; None if unknown.
      level: level of the interval; a difference is claimed if p is at most 1 - level.
      method: names of the tests behind p.
      n_a, n_b: numbers of scores (runs or examples).
      better: name of the better one; None if none is claimed.
      verdict: "b is better by 0.0123", "not distinguishable" or "not known: …".
      note: caution in words; "" without one.
      errors: parts of the standard error of the difference by their source, if both are known.
    """

    difference: float
    low: float | None
    high: float | None
    p: float | None
    level: float
    method: str
    n_a: int
    n_b: int
    paired: bool
    better: str | None
    verdict: str
    note: str = ""
    errors: Mapping[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Point:
    """A point of a sweep, compared with the reference of its `Points`.

    Attributes:
      n: number of scores.
      difference: mean minus that of the reference.
      p: p-value, adjusted for all comparisons; None for the reference and if unknown.
      verdict: "best", "baseline", "better by …", "worse by …", "not distinguishable" or
        "not known: …".
    """

    name: str
    mean: float
    n: int
    difference: float
    p: float | None
    verdict: str


@dataclasses.dataclass(frozen=True)
class Points:
    """All points of a sweep, the best mean first.

    Attributes:
      reference: name of the point that the others are compared with.
      method: names of the tests behind p.
      verdict: one sentence about the reference.
    """

    points: tuple[Point, ...]
    reference: str
    method: str
    verdict: str


@dataclasses.dataclass(frozen=True)
class BestOf(Estimate):
    """Expected best score of `k` runs.

    Attributes:
      bias: expected best minus the mean: what reporting only the best adds.
    """

    k: int = 1
    bias: float = 0.0


# --- checks -------------------------------------------------------------------------------------


def scipy_stats() -> ModuleType:
    """Returns `scipy.stats`."""
    message = "statistics need the package scipy: pip install 'scipy>=1.15' ({error})"
    with requirements.needed(message):
        import scipy.stats
    return scipy.stats


def is_installed() -> bool:
    """Returns whether SciPy is installed."""
    return importlib.util.find_spec("scipy") is not None


def check_level(level: float, name: str = "level") -> float:
    """Returns 1 - level; raises `file_io.InputError` with its name if it is not from 0 to 1."""
    if not 0 < level < 1:
        raise file_io.InputError(f"{name} must be between 0 and 1; got {level}")
    return round(1 - level, 12)


def check_scores(scores: npt.ArrayLike, name: str, dimensions: int = 1) -> npt.NDArray:
    """Checks that scores are finite numbers, at least one; returns them as float64, same shape.

    `name` is what has them, for messages; `dimensions`: the number of axes that they must have.
    """
    try:
        values = np.asarray(scores, np.float64)
    except (TypeError, ValueError) as error:
        raise file_io.InputError(f"{name}: expected numbers: {error}") from error
    if values.ndim != dimensions or not values.size:
        raise file_io.InputError(
            f"{name}: expected scores with {dimensions} dimensions, at least 1 in each; got shape "
            f"{list(values.shape)}"
        )
    if not np.isfinite(values).all():
        place = tuple(int(i) for i in np.argwhere(~np.isfinite(values))[0])
        raise file_io.InputError(
            f"{name}: score {', '.join(map(str, place))} is {values[place]}; expected a finite "
            "number: leave failed runs out"
        )
    return values


def decide(
    difference: float, p: float | None, level: float, minimize: bool, names: Sequence[str]
) -> tuple[str | None, str]:
    """Returns the better of two names, or None, and the verdict of a `Comparison`.

    Args:
      difference: mean of the second less that of the first.
      p: None: it is not known.
    """
    if p is None or p > check_level(level) or difference == 0:
        return None, NOT_DISTINGUISHABLE
    better = names[int((difference > 0) != minimize)]
    return better, f"{better} is better by {abs(difference):.4g}"


# --- one set of scores ----------------------------------------------------------------------------


def mean_interval(
    scores: npt.ArrayLike,
    *,
    level: float = 0.95,
    method: str = "t",
    resamples: int = 9999,
    random_seed: int = 0,
) -> Estimate:
    """Returns the mean over seeds with its interval.

    The t interval is exact from 2 scores on if scores are normal; at 2 it is very wide. It does
    not describe runs of which some collapse: report these by number. The BCa bootstrap (Efron,
    "Better bootstrap confidence intervals", 1987) needs no normal distribution but many scores: at
    5, 10 and 20 normal scores its 95% intervals cover 83%, 90% and 93%. Below `MIN_BOOTSTRAP` it
    gives no interval.

    Args:
      scores: [seeds].
      method: "t" or "bca".
    """
    values = check_scores(scores, "scores")
    check_level(level)
    if method not in ("t", "bca"):
        raise file_io.InputError(f"method must be t or bca; got {method!r}")
    stats, n, mean = scipy_stats(), len(values), float(values.mean())
    name = "t interval" if method == "t" else "BCa bootstrap"
    note = ""
    if n == 1:
        note = "one seed: the spread is unknown"
    elif method == "bca" and n < MIN_BOOTSTRAP:
        note = f"{n} seeds: BCa needs {MIN_BOOTSTRAP}; take the t interval"
    elif np.ptp(values) == 0 or (method == "t" and _has_no_spread(values)):
        note = "all scores are equal: the spread is unknown"
    if note:
        return Estimate(mean, None, None, level, name, n, note)
    if method == "bca":
        rng = np.random.default_rng(random_seed)
        interval = stats.bootstrap(
            (values,), np.mean, confidence_level=level, n_resamples=resamples, rng=rng
        ).confidence_interval
        return Estimate(mean, float(interval.low), float(interval.high), level, name, n)
    half = float(stats.sem(values) * stats.t.ppf(0.5 + level / 2, n - 1))
    note = "two seeds: the interval is very wide" if n == 2 else ""
    return Estimate(mean, mean - half, mean + half, level, name, n, note)


def mean_band(
    scores: npt.ArrayLike, *, level: float = 0.95
) -> tuple[npt.NDArray, npt.NDArray, npt.NDArray]:
    """Returns the mean over seeds of each point of a curve, and the ends of its t interval.

    Each interval holds for its point alone, not for the whole curve. Without a spread both ends
    are the mean.

    Args:
      scores: [seeds, points], at least two seeds.

    Returns:
      (mean, low, high), [points] each.
    """
    values = check_scores(scores, "scores", dimensions=2)
    check_level(level)
    n = len(values)
    if n < 2:
        raise file_io.InputError("a band needs at least 2 seeds; got 1")
    mean, stats = values.mean(axis=0), scipy_stats()
    half = values.std(axis=0, ddof=1) / math.sqrt(n) * stats.t.ppf(0.5 + level / 2, n - 1)
    return mean, mean - half, mean + half


@dataclasses.dataclass(frozen=True)
class Summary:
    """The scores of several runs in short; None where they are too few.

    Attributes:
      interval: 95% t interval of the mean; also None without SciPy.
    """

    mean: float | None
    deviation: float | None
    interval: tuple[float, float] | None

    @classmethod
    def from_scores(cls, scores: Sequence[float]) -> "Summary":
        """Returns the summary of scores."""
        mean = fmean(scores) if scores else None
        if len(scores) < 2:
            return cls(mean, None, None)
        interval = None
        if is_installed():
            estimate = mean_interval(scores)
            if estimate.low is not None and estimate.high is not None:
                interval = estimate.low, estimate.high
        return cls(mean, stdev(scores), interval)


def expected_best(
    scores: npt.ArrayLike, k: int, *, minimize: bool = False, level: float = 0.95
) -> BestOf:
    """Returns the expected best score of k runs, which a report of only the best one shows.

    Dodge et al., "Show Your Work" (2019), arXiv 1909.03004, section 3.1, with draws of k scores
    without replacement, which makes it unbiased (Tang et al., 2020, arXiv 2004.13705). The interval
    is that of the jackknife with quantiles of t; it needs n of at least `RUNS_PER_DRAW` times k,
    from where on 95% intervals of normal scores cover at least 93% for k up to 10.

    Args:
      scores: [n], such as one per trial of a random search.
      k: number of runs, at most n.
    """
    values = np.sort(check_scores(scores, "scores"))
    alpha, n, sign = check_level(level), len(values), -1 if minimize else 1
    if not 1 <= k <= n:
        raise file_io.InputError(f"k must be from 1 to the number of scores, {n}; got {k}")
    ordered = np.sort(sign * values)
    best = sign * float(ordered @ _best_weights(n, k))
    low = high = None
    note = f"an interval needs {RUNS_PER_DRAW * k} scores; got {n}"
    if n >= max(2, RUNS_PER_DRAW * k):
        weights, zero = _best_weights(n - 1, k), np.zeros(1)
        # Sums without score i: those below it keep their weights, those above move down by one.
        below = np.concatenate([zero, np.cumsum(ordered[:-1] * weights)])
        above = np.concatenate([np.cumsum((ordered[1:] * weights)[::-1])[::-1], zero])
        error = math.sqrt((n - 1) * np.var(below + above))
        half = float(scipy_stats().t.isf(alpha / 2, n - 1)) * error
        low, high, note = best - half, best + half, ""
    bias = best - float(values.mean())
    return BestOf(best, low, high, level, "best of k", n, note, k=k, bias=bias)


def _best_weights(n: int, k: int) -> npt.NDArray:
    """Returns [n] probabilities of ascending scores to be the highest of k drawn ones."""
    return np.array([math.comb(i, k - 1) / math.comb(n, k) for i in range(n)])


# --- two sets of scores ---------------------------------------------------------------------------


def _has_no_spread(values: npt.NDArray) -> bool:
    """Returns whether values, of any shape, are equal apart from rounding."""
    return np.ptp(values) <= ROUNDING * np.abs(values).max()


def sign_flip_p(differences: npt.ArrayLike, *, random_seed: int = 0) -> float:
    """Returns the two-sided p of the sign-flip permutation test of paired differences [pairs].

    Exact: all 2^n signs are tried up to n = 16; of more, 65,536 are drawn. Its smallest p is
    2^(1-n), so n = 6 pairs are needed for p < 0.05.
    """
    values = check_scores(differences, "differences")
    if len(values) == 1:
        return 1.0
    test = scipy_stats().permutation_test(
        (values,),
        np.mean,
        permutation_type="samples",
        vectorized=True,
        n_resamples=_ENUMERATED,
        batch=max(1, _CHUNK // len(values)),
        rng=np.random.default_rng(random_seed),
    )
    return float(test.pvalue)


def permutation_p(a: npt.ArrayLike, b: npt.ArrayLike, *, random_seed: int = 0) -> float:
    """Returns the two-sided p of the permutation test of the difference of means of [n] and [m].

    Exact: all splits are tried if there are at most 65,536 (9 and 9 scores); of more, this many
    are drawn. Its smallest p is 2 / C(n + m, n), so 4 and 4 scores are needed for p < 0.05.
    """
    first, second = check_scores(a, "a"), check_scores(b, "b")
    if len(first) == len(second) == 1:
        return 1.0
    test = scipy_stats().permutation_test(
        (second, first),
        lambda x, y, axis: x.mean(axis) - y.mean(axis),
        vectorized=True,
        n_resamples=_ENUMERATED,
        batch=max(1, _CHUNK // (len(first) + len(second))),
        rng=np.random.default_rng(random_seed),
    )
    return float(test.pvalue)


def _t_test(
    a: npt.NDArray, b: npt.NDArray, paired: bool, level: float = 0.95
) -> tuple[float, float, float] | tuple[None, None, None]:
    """Returns low, high and p of b - a by the t test; (None, None, None) without a spread."""
    if paired:
        difference, scale = b - a, max(np.abs(a).max(), np.abs(b).max())
        if len(a) < 2 or np.ptp(difference) <= ROUNDING * scale:
            return None, None, None
        test = scipy_stats().ttest_rel(b, a)
    else:
        if min(len(a), len(b)) < 2 or (_has_no_spread(a) and _has_no_spread(b)):
            return None, None, None
        with warnings.catch_warnings():  # SciPy doubts a side without a spread, which is no trouble
            warnings.simplefilter("ignore", RuntimeWarning)
            test = scipy_stats().ttest_ind(b, a, equal_var=False)
    interval = test.confidence_interval(level)
    return float(interval.low), float(interval.high), float(test.pvalue)


def _compare(
    a: npt.NDArray,
    b: npt.NDArray,
    paired: bool,
    level: float,
    minimize: bool,
    names: tuple[str, str],
    random_seed: int,
) -> Comparison:
    """Compares [n] and [m] scores; if they are paired, a[i] and b[i] belong together."""
    difference = float((b - a).mean()) if paired else float(b.mean() - a.mean())
    low, high, p = _t_test(a, b, paired, level)
    method, notes = "paired t" if paired else "Welch t", []
    fewest = min(len(a), len(b))
    smallest = 2.0 ** (1 - len(a)) if paired else 2 / math.comb(len(a) + len(b), len(a))
    if fewest > 1 and low is None:
        notes.append(f"{'differences' if paired else 'scores'} are equal: no interval")
    if smallest <= check_level(level):
        if paired:
            permuted_p, name = sign_flip_p(b - a, random_seed=random_seed), "sign flips"
        else:
            permuted_p, name = permutation_p(a, b, random_seed=random_seed), "permutations"
        p, method = max(permuted_p, p or 0.0), f"{method} and {name}, the larger p"
    elif low is not None:
        notes.append("too few seeds for a permutation test: p assumes normal scores")
    better, verdict = decide(difference, p, level, minimize, names)
    if p is None:
        one = fewest == 1
        verdict = f"not known: {'one seed' if one else 'too few seeds without a spread'}"
        if not one and abs(difference) <= ROUNDING * np.abs(a).max():
            verdict = NOT_DISTINGUISHABLE
    return Comparison(
        difference, low, high, p, level, method, len(a), len(b), paired, better, verdict,
        "; ".join(notes),
    )  # fmt: skip


def compare_seeds(
    a: Mapping[int, float],
    b: Mapping[int, float],
    *,
    minimize: bool = False,
    level: float = 0.95,
    failed: tuple[int, int] = (0, 0),
    names: tuple[str, str] = ("a", "b"),
    random_seed: int = 0,
) -> Comparison:
    """Compares two sets of runs over seeds, in pairs if both have the same seeds.

    The interval is that of the paired t test, or of Welch's t test without pairs. From 6 pairs, or
    4 and 4 runs, on (at level 0.95) a permutation test is also made, and p is the larger of both:
    it then needs no normal distribution. With fewer runs p is that of the t test alone. Colas et
    al., "How Many Random Seeds?" (2018), arXiv 1806.08295, compare these tests on few runs.

    Args:
      a, b: {seed: score}.
      failed: numbers of runs of a and b that failed and have no score; they are only reported.
    """
    check_level(level)
    is_paired = set(a) == set(b)
    first = check_scores([a[seed] for seed in a], names[0])
    second = check_scores([b[seed] for seed in (a if is_paired else b)], names[1])
    comparison = _compare(first, second, is_paired, level, minimize, names, random_seed)
    notes = [comparison.note] if comparison.note else []
    if any(failed):
        counts = [f"{n} of {name}" for n, name in zip(failed, names, strict=True) if n]
        notes.append(f"failed runs are not compared: {', '.join(counts)}")
    return dataclasses.replace(comparison, note="; ".join(notes))


# --- many sets of scores --------------------------------------------------------------------------


def holm(p_values: npt.ArrayLike) -> npt.NDArray:
    """Returns p-values [n] adjusted for their number (Holm, 1979, "A simple sequentially
    rejective multiple test procedure").
    """
    values = check_scores(p_values, "p_values")
    if values.min() < 0 or values.max() > 1:
        raise file_io.InputError(
            f"p_values must be from 0 to 1; got {values.min()} to {values.max()}"
        )
    order = np.argsort(values, kind="stable")
    steps = values[order] * np.arange(len(values), 0, -1)
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(1, np.maximum.accumulate(steps))
    return adjusted


def _t_p_values(
    scores: Sequence[npt.NDArray], reference: int, others: Sequence[int], paired: bool
) -> npt.NDArray:
    """Returns p of the t test of each other point [others]; 1 without a spread.

    `reference` and `others` are indices of points.
    """
    stats, one, p = scipy_stats(), scores[reference], np.ones(len(others))
    if paired:
        gaps = np.stack([scores[j] - one for j in others])
        scale = max(np.abs(values).max() for values in scores)
        usable = (len(one) > 1) & (np.ptp(gaps, axis=1) > ROUNDING * scale)
        if usable.any():
            p[usable] = stats.ttest_1samp(gaps[usable], 0, axis=1).pvalue
        return p
    sizes = np.array([len(scores[j]) for j in others])
    spread = np.array([not _has_no_spread(scores[j]) for j in others])
    usable = (sizes > 1) & (len(one) > 1) & (spread | (not _has_no_spread(one)))
    samples = [scores[j] for j, is_usable in zip(others, usable, strict=True) if is_usable]
    if samples:
        means, deviations = zip(*((v.mean(), v.std(ddof=1)) for v in samples), strict=True)
        p[usable] = stats.ttest_ind_from_stats(
            one.mean(), one.std(ddof=1), len(one), means, deviations, sizes[usable], equal_var=False
        ).pvalue
    return p


def _permuted_ranges(
    scores: Sequence[npt.NDArray], paired: bool, resamples: int, rng: "np.random.Generator"
) -> npt.NDArray:
    """Returns the highest minus the lowest mean of points whose scores are exchanged at random.

    Paired scores are exchanged among the points of a seed, others among all, `resamples` times.
    """
    sizes = np.array([len(values) for values in scores])
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    flat = np.stack(scores, axis=1) if paired else np.concatenate(scores)
    ranges, chunk = [], max(1, _CHUNK // flat.size)
    for begin in range(0, resamples, chunk):
        count = min(chunk, resamples - begin)
        drawn = rng.permuted(np.broadcast_to(flat, (count, *flat.shape)), axis=-1)
        means = drawn.mean(axis=1) if paired else np.add.reduceat(drawn, starts, axis=1) / sizes
        ranges.append(np.ptp(means, axis=1))
    return np.concatenate(ranges)


def _smallest_range_p(scores: Sequence[npt.NDArray], paired: bool) -> float:
    """Returns the smallest p that the permuted range of points, the best first, can give."""
    k, n, m = len(scores), len(scores[0]), len(scores[-1])
    if paired:
        return float(k * (k - 1)) ** (1 - n)
    rest = sum(map(len, scores)) - n
    return k * (k - 1) / (math.comb(rest + n, n) * math.comb(rest, m))


def _against_best(
    scores: Sequence[npt.NDArray],
    order: Sequence[int],
    paired: bool,
    level: float,
    resamples: int,
    rng: "np.random.Generator",
) -> list[float]:
    """Returns the adjusted p of each point against the best.

    See `compare_points`. Points that are found to be worse are removed, and the rest is judged
    again.

    Args:
      order: indices of the points, the best first.
    """
    alpha, p, floor, open_points = check_level(level), {}, 0.0, list(order)
    best, others = order[0], order[1:]
    t_p = _t_p_values(scores, best, others, paired)
    t_holm = dict(zip(others, holm(t_p), strict=True))
    t_p_of = dict(zip(others, t_p, strict=True))
    while len(open_points) > 1:
        rest, open_scores = open_points[1:], [scores[j] for j in open_points]
        gaps = np.abs([scores[best].mean() - scores[j].mean() for j in rest])
        if _smallest_range_p(open_scores, paired) <= alpha:
            ranges = np.sort(_permuted_ranges(open_scores, paired, resamples, rng))
            slack = 1e-9 * np.abs(ranges[-1])  # sums of the same numbers in another order
            above = resamples - np.searchsorted(ranges, gaps - slack)
            p_values = (1 + above) / (1 + resamples)
        else:
            pairs = len(open_points) * len(rest) / 2
            p_values = np.minimum(1, pairs * np.array([t_p_of[j] for j in rest]))
        p_values = np.maximum(p_values, floor)
        worse = {j for j, value in zip(rest, p_values, strict=True) if value <= alpha}
        settled = worse or set(rest)
        for j, value in zip(rest, p_values, strict=True):
            if j in settled:
                p[j] = float(max(value, t_holm[j]))
                floor = max(floor, float(value))
        open_points = [j for j in open_points if j not in settled]
    return [p[j] for j in others]


def scores_of_points(points: Mapping[str, Mapping[int, float]]) -> tuple[list[npt.NDArray], bool]:
    """Returns [seeds] scores of each point, and whether all have the same seeds, in one order."""
    first = next(iter(points.values()))
    paired = all(set(point) == set(first) for point in points.values())
    scores = [
        check_scores([point[seed] for seed in (first if paired else point)], f"point {name}")
        for name, point in points.items()
    ]
    return scores, paired


def compare_points(
    points: Mapping[str, Mapping[int, float]],
    *,
    baseline: str | None = None,
    minimize: bool = False,
    level: float = 0.95,
    resamples: int = 9999,
    random_seed: int = 0,
) -> Points:
    """Compares all points of a sweep with a baseline, or with the best of them.

    The probability of one or more false claims in the whole table is at most 1 - level for normal
    scores, also if points differ in their spread:

    - Baseline: t tests (paired if all points have the same seeds, else Welch's), adjusted by
      `holm`.
    - Best: it was picked because it is the best, so that each test must allow for the pick. The
      distance of a point from the best is compared with the range of the means of all points when
      their scores are exchanged within seeds (or among all, if seeds differ): the permutation
      form of Tukey's range test, from the worst point to the best. Exchanged scores assume that
      points have the same spread, so a claim also needs p of the pair's t test, adjusted by
      `holm`, as against a baseline. Where permutations are too few, t tests are adjusted for the
      number of all pairs.

    Args:
      points: {name: {seed: score}}.
      baseline: name of the point to compare with; None: the point with the best mean.
    """
    check_level(level)
    names = list(points)
    if len(points) < 2:
        raise file_io.InputError(f"a comparison needs at least 2 points; got {len(points)}")
    if baseline is not None and baseline not in points:
        raise file_io.InputError(f"baseline {baseline!r} is not one of {', '.join(points)}")
    scores, paired = scores_of_points(points)
    means = [float(values.mean()) for values in scores]
    order = sorted(range(len(names)), key=lambda j: means[j] if minimize else -means[j])
    reference = order[0] if baseline is None else names.index(baseline)
    others = [j for j in order if j != reference]
    test = "paired t tests" if paired else "Welch's t tests"
    if baseline is None:
        rng = np.random.default_rng(random_seed)
        adjusted_p = _against_best(scores, order, paired, level, resamples, rng)
        method = f"permuted range of all points and {test} adjusted by Holm, the larger p"
    else:
        adjusted_p = holm(_t_p_values(scores, reference, others, paired)).tolist()
        method = f"{test}, adjusted by Holm"
    p_values = dict(zip(others, adjusted_p, strict=True))
    rows = []
    for j in order:
        has_p = j != reference and min(len(scores[j]), len(scores[reference])) > 1
        difference, p = means[j] - means[reference], p_values[j] if has_p else None
        verdict = _point_verdict(difference, p, level, minimize)
        if j == reference:
            verdict = "baseline" if baseline else "best"
        rows.append(Point(names[j], means[j], len(scores[j]), difference, p, verdict))
    verdict = _verdict(names[reference], [row.verdict for row in rows])
    return Points(tuple(rows), names[reference], method, verdict)


def _point_verdict(difference: float, p: float | None, level: float, minimize: bool) -> str:
    """Returns the verdict on a point that is not the reference."""
    better, verdict = decide(difference, p, level, minimize, ("worse", "better"))
    if better:
        return f"{better} by {abs(difference):.4g}"
    return "not known: one seed" if p is None else verdict


def _verdict(reference: str, verdicts: Sequence[str]) -> str:
    """Returns a sentence about the reference from the verdicts on all points, also its own."""
    others = len(verdicts) - 1
    worse, better = (
        sum(text.startswith(word) for text in verdicts) for word in ("worse", "better")
    )
    if worse == others:
        return f"{reference} is better than all {others} others"
    counts = f"{worse} are worse, {better} better, {others - worse - better} of "
    return f"{reference}: {counts}{others} {NOT_DISTINGUISHABLE}"
