"""Groups of examples that are alike: which are taken, and that intervals allow for them."""

import numpy as np
import pytest

from albert.experiments import example_statistics
from albert.experiments.clusters import Clusters, find_clusters


def rows_of(**kinds):
    return [dict(zip(kinds, names, strict=True)) for names in zip(*kinds.values(), strict=True)]


def test_the_widest_kind_with_enough_groups_is_taken():
    articles = [str(i // 10) for i in range(200)]
    found = find_clusters(rows_of(article=articles, paragraph=[str(i // 4) for i in range(200)]))
    assert (found.name, found.count, found.effective) == ("article", 20, pytest.approx(20))
    few = find_clusters(rows_of(article=articles[:190], paragraph=map(str, np.arange(190) // 4)))
    assert (few.name, few.count) == ("paragraph", 48)
    assert few.describe() == (
        "intervals allow for examples of one paragraph being alike: 48 of them"
    )


def test_unequal_groups_count_less_and_few_are_told():
    found = find_clusters(rows_of(passage="aaaaaaaab"))
    assert found.effective == pytest.approx(81 / 65)
    assert "2 of them, as many as 1 of equal size; from 20 on" in found.describe()


@pytest.mark.parametrize("rows", [[], [{}], rows_of(x="abc"), rows_of(x="aaa"), [{"x": "a"}, {}]])
def test_without_shared_groups_there_are_no_clusters(rows):
    assert find_clusters(rows) is None


def test_groups_of_one_example_are_the_bootstrap_of_examples():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 400, 1))
    settings = {"of_means": lambda means: means[..., 0], "resamples": 1000}
    alone = example_statistics.bootstrap_of_means(
        a, b, clusters=Clusters("row", np.arange(400)), **settings
    )
    plain = example_statistics.bootstrap_of_means(a, b, **settings)
    assert (alone.low, alone.high) == pytest.approx((plain.low, plain.high), abs=0.02)
    assert alone.difference == plain.difference


def draw_questions(groups, size, rng):
    """Two equal models that answer questions about passages; those of a passage are alike."""
    index = np.repeat(np.arange(groups), 1 + rng.poisson(size - 1, groups))
    of_groups = rng.normal(size=(groups, 2))[index] * np.sqrt(0.2)
    right = of_groups + rng.normal(size=(len(index), 2)) * np.sqrt(0.8) < 0.8
    return Clusters("passage", index), right.astype(float)


@pytest.mark.slow(2)
def test_intervals_of_alike_questions_cover_as_promised():
    rng, plain, clustered = np.random.default_rng(0), [], []
    for seed in range(500):
        clusters, right = draw_questions(40, 12, rng)
        a, b = right[:, :1], right[:, 1:]
        plain.append(example_statistics.mcnemar(right[:, 0], right[:, 1]))
        clustered.append(
            example_statistics.bootstrap_of_means(
                a, b, lambda means: means[..., 0], resamples=300, random_seed=seed,
                clusters=clusters,
            )
        )  # fmt: skip
    covered = [np.mean([c.low <= 0 <= c.high for c in row]) for row in (plain, clustered)]
    assert covered[0] < 0.85 and 0.93 <= covered[1] <= 0.97
    assert all((c.p <= 0.05) == (not c.low <= 0 <= c.high) for c in clustered)


def test_seeds_and_passages_are_both_drawn():
    rng, found = np.random.default_rng(1), []
    for seed in range(300):
        clusters, right = draw_questions(40, 6, rng)
        base = right.T[:, None] + rng.normal(size=(2, 5, 1)) * 0.05  # [model, seed, example]
        noise = rng.normal(size=(2, 5, right.shape[0])) * 0.1
        a, b = (base + noise)[..., None]
        found.append(
            example_statistics.multi_bootstrap(
                a, b, lambda means: means[..., 0], paired_seeds=False, resamples=200,
                random_seed=seed, clusters=clusters,
            )
        )  # fmt: skip
    assert 0.92 <= np.mean([c.low <= 0 <= c.high for c in found]) <= 0.98
    assert "seeds and passages" in found[0].method
