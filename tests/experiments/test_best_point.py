"""How probably a point of a sweep is the best one."""

import numpy as np
import pytest
import scipy.stats

from albert.experiments import best_point


@pytest.mark.slow
def test_two_points_of_many_seeds_are_as_a_normal_distribution_says():
    rng = np.random.default_rng(0)
    a, b = rng.normal(0, 1, 400), rng.normal(0.1, 1, 400)
    points = {"a": dict(enumerate(a)), "b": dict(enumerate(b, 1000))}
    found = best_point.probabilities(points)
    gap, error = b.mean() - a.mean(), np.sqrt((a.var(ddof=1) + b.var(ddof=1)) / 400)
    assert found["b"] == pytest.approx(scipy.stats.norm.cdf(gap / error), abs=0.01)
    assert sum(found.values()) == pytest.approx(1)
    lower = best_point.probabilities(points, minimize=True)
    assert lower["a"] == pytest.approx(found["b"], abs=0.01)


def test_what_all_points_share_by_seed_does_not_count():
    shared = np.random.default_rng(1).normal(0, 10, 8)
    points = {name: dict(enumerate(shared + x)) for name, x in (("low", 0), ("high", 0.5))}
    assert best_point.probabilities(points) == {"low": 0, "high": 1}
    points["same"] = points["high"]
    assert best_point.probabilities(points) == {"low": 0, "high": 0.5, "same": 0.5}
    assert best_point.probabilities({**points, "one": {0: 1.0}}) == {}
