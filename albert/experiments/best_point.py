"""How probably each point of a sweep is the best one, given the spread over seeds."""

import math
from collections.abc import Mapping

import numpy as np

from albert.experiments import statistics
from albert.experiments.example_statistics import draw_counts


def probabilities(
    points: Mapping[str, Mapping[int, float]],
    *,
    minimize: bool = False,
    resamples: int = 9999,
    random_seed: int = 0,
) -> dict[str, float]:
    """Returns {name: probability} of each point to have the best mean over all seeds.

    It is the fraction of bootstrap samples of the seeds in which the point is the best. All points
    get the same seeds if they have the same ones. Samples of n seeds show only (n - 1) / n of the
    variance, so their distance from the mean grows by the root of the inverse. It is {} if a point
    has one seed, whose spread is unknown.

    Args:
      points: {name: {seed: score}}.
    """
    if min(map(len, points.values())) < 2:
        return {}
    scores, paired = statistics.scores_of_points(points)
    rng, sign = np.random.default_rng(random_seed), -1 if minimize else 1
    shared = None if not paired else draw_counts(len(scores[0]), resamples, rng)
    means = []
    for own in scores:
        values = sign * own
        weights = draw_counts(len(values), resamples, rng) if shared is None else shared
        grown = math.sqrt(len(values) / (len(values) - 1))
        means.append(values.mean() + grown * (weights @ values - values.mean()))
    is_best = np.stack(means) >= np.max(means, axis=0) - statistics.ROUNDING
    wins = (is_best / is_best.sum(axis=0)).mean(axis=1)
    return dict(zip(points, map(float, wins), strict=True))
