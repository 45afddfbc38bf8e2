"""Compares runs or groups of runs (sides) over seeds and over examples, and their cost.

`comparison_sides.read` reads the sides. A pair is compared over seeds if one side has several runs
with scores, and over examples if both sides keep predictions of the same data.
"""

import collections
import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from albert.experiments import (
    clusters,
    comparison_sides,
    equivalence,
    example_statistics,
    predictions,
    runs,
    statistics,
)
from albert.experiments.predictions import Metric, Predictions
from albert.experiments.runs import Run, RunGroup
from albert.io import file_io
from albert.training import evaluation_basis, results

_Kept = tuple[Run, Predictions]  # a run and its predictions
_Groups = Sequence[Sequence[_Kept]]  # those of each side


@dataclasses.dataclass(frozen=True)
class Finding:
    """The comparison of a pair, with its p adjusted for all pairs.

    Attributes:
      comparison: its `difference` is the second side minus the first.
      p_holm: its p, adjusted by Holm for the number of pairs; None if p is unknown.
      better: name of the better side; None if none is claimed.
      verdict: in words, with the adjusted p, and with what is known of equality.
      equality: whether the sides are equal within a margin; None without a margin.
    """

    comparison: statistics.Comparison
    p_holm: float | None
    better: str | None
    verdict: str
    equality: equivalence.Equivalence | None = None


@dataclasses.dataclass(frozen=True)
class Change:
    """An example that most runs of one side have right and most runs of the other do not.

    Attributes:
      key, text: id of the example, and its text, cut if it is long.
      label: the right answer.
      first, second: the most frequent predictions of both sides.
      first_right, second_right: fractions of the runs that are right.
    """

    key: str
    text: str
    label: str
    first: str
    second: str
    first_right: float
    second_right: float


@dataclasses.dataclass(frozen=True)
class Examples:
    """The comparison of a pair over examples.

    Attributes:
      metric, data, count: name of the score, file or folder of the data, number of examples.
      seeds: seeds of the runs of both sides whose predictions are compared.
      gained, lost: examples that only the second, or only the first, side has right; empty for
        numbers.
      note: what restricts the comparison; "" if nothing does.
    """

    metric: str
    data: str
    count: int
    seeds: tuple[tuple[int, ...], tuple[int, ...]]
    finding: Finding
    gained: tuple[Change, ...]
    lost: tuple[Change, ...]
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Pair:
    """Two sides.

    Attributes:
      seeds: None if unknown, see `why_not_seeds`.
      with_stuck: the same comparison with the runs that did not learn; None if there are none.
      examples: None if unknown, see `why_not_examples`.
      why_not_seeds, why_not_examples: what is missing, a sentence; "" if nothing is.
    """

    first: str
    second: str
    seeds: Finding | None
    with_stuck: statistics.Comparison | None
    examples: Examples | None
    why_not_seeds: str = ""
    why_not_examples: str = ""


@dataclasses.dataclass(frozen=True)
class SideScore:
    """The score of one side.

    Attributes:
      name: name of the score, with the number of checkpoints that it is the best of.
      scores: {seed: score} of the runs that are counted.
      mean: None without scores.
      cost: {field of `run_record.Cost`: mean over the runs}.
      remark: what became of the other runs and what this does to the mean; "" if all are counted.
      is_undefined: whether its labels make any answers score the same.
    """

    side: RunGroup
    name: str
    scores: Mapping[int, float]
    mean: statistics.Estimate | None
    cost: Mapping[str, float]
    remark: str
    is_undefined: bool = False


@dataclasses.dataclass(frozen=True)
class Compared:
    """All sides and pairs.

    Attributes:
      level: level of the intervals; 1 minus the probability of a false claim in all pairs.
      pairs: all pairs, or those with the baseline.
    """

    metric: str
    minimize: bool
    level: float
    sides: tuple[SideScore, ...]
    pairs: tuple[Pair, ...]
    notes: tuple[str, ...] = ()


def compare(
    sides: Sequence[RunGroup],
    *,
    metric: str | None = None,
    baseline: str | None = None,
    level: float = 0.95,
    random_seed: int = 0,
    equivalence_margin: float | None = None,
    cluster_column: str | None = None,
    id_column: str | None = None,
) -> Compared:
    """Compares sides in pairs.

    Args:
      sides: groups of runs, at least two, from `comparison_sides.read`.
      metric: name of a score; None: the one that picks the best checkpoints, which must be the
        same on all sides.
      baseline: name of the side that all others are compared with; None: all pairs.
      level: level of the intervals; a difference is claimed if p is at most 1 - level after Holm.
      equivalence_margin: largest difference that does not matter, in the unit of the score; None:
        not tested.
      cluster_column: column of the data that names the group of each example; None: the groups
        that the task knows, such as passages.
      id_column: column of ids in that data, where no run names it; None: rows are numbered.
    """
    statistics.check_level(level)
    _check_comparable(sides)
    name = metric or _common_metric(sides)
    minimize = results.is_loss(name.removeprefix(comparison_sides.TEST))
    _check_metric(sides, name)
    if name.startswith(comparison_sides.TEST):
        _check_same_test_data(sides)
    names = [side.name for side in sides]
    if baseline is not None and baseline not in names:
        raise file_io.InputError(f"baseline={baseline}: expected one of {', '.join(names)}")
    kept = functools.cache(comparison_sides.predictions_of)  # each side is in several pairs
    if equivalence_margin is not None:
        equivalence.check_margin("equivalence_margin", equivalence_margin)
    if baseline is None:
        two_sides = list(itertools.combinations(sides, 2))
    else:
        first_side = next(side for side in sides if side.name == baseline)
        two_sides = [(first_side, side) for side in sides if side is not first_side]
    clusters_of = None
    if cluster_column:
        clusters_of = _reader_of_clusters(sides, kept, cluster_column, id_column)
    settings = _Settings(
        name, minimize, level, random_seed, kept, equivalence_margin, len(two_sides), clusters_of
    )
    pairs = [_compare_pair(a, b, settings) for a, b in two_sides]
    if not any(pair.seeds or pair.examples for pair in pairs):
        first = pairs[0]
        raise file_io.InputError(
            f"runs: {first.first} and {first.second} cannot be compared: {first.why_not_seeds}; "
            f"{first.why_not_examples}"
        )
    pairs = _adjust(pairs, level, minimize)
    scored = tuple(score_side(side, name, level) for side in sides)
    return Compared(name, minimize, level, scored, tuple(pairs), _notes(scored, pairs))


def _reader_of_clusters(
    sides: Sequence[RunGroup],
    kept: Callable[[Run], Predictions],
    cluster_column: str,
    id_column: str | None,
) -> Callable[[Run], clusters.Clusters]:
    """Returns what reads the groups of a run's examples, once for each run; checks the first."""
    first = next((run for side in sides for run in side.counted), None)
    if first is None:
        raise file_io.InputError(f"cluster_column={cluster_column}: no run has finished")
    read = functools.cache(
        lambda run: predictions.read_clusters(run, kept(run), cluster_column, id_column)
    )
    read(first)
    return read


def compare_two(
    sides: Sequence[RunGroup],
    equivalence_margin: float | None = None,
    cluster_column: str | None = None,
) -> Compared:
    """Compares two sides, as `compare` does."""
    if len(sides) != 2:
        names = ", ".join(side.name for side in sides)
        raise file_io.InputError(
            f"compare: expected two sides, found {len(sides)} ({names}); python -m "
            "albert.compare takes more"
        )
    return compare(sides, equivalence_margin=equivalence_margin, cluster_column=cluster_column)


# --- what can be compared -------------------------------------------------------------------------


def _check_comparable(sides: Sequence[RunGroup]) -> None:
    """Rejects sides of other tasks or data."""
    if len(sides) < 2:
        text = f"only {sides[0].name}" if sides else "none"
        raise file_io.InputError(f"runs: a comparison needs two sides or more; found {text}")
    with_task = [side for side in sides if side.task[0]]
    tasks = [side.task for side in with_task]
    names = [side.name for side in with_task]
    runs.check_same_task(names, tasks, "only runs of one task can be compared")
    bases = {side.name: side.basis for side in with_task if side.basis}
    evaluation_basis.check_same([*bases], [*bases.values()])


def _common_metric(sides: Sequence[RunGroup]) -> str:
    """Returns the name of the score that picks the best checkpoints of all sides."""
    metrics = {side.best_metric: side.name for side in reversed(sides) if side.best_metric}
    if len(metrics) > 1:
        details = ", ".join(f"{name} by {metric}" for metric, name in metrics.items())
        shared = [m for m in sides[0].score_names if all(m in s.score_names for s in sides)]
        raise file_io.InputError(
            f"runs: the sides pick their best checkpoints by different scores ({details}); choose "
            f"one with `metric`: {', '.join(shared) or 'they share none'}"
        )
    if not metrics:
        raise file_io.InputError("runs: no run has been evaluated: run them with do_eval")
    return next(iter(metrics))


def _check_metric(sides: Sequence[RunGroup], metric: str) -> None:
    """Rejects a metric that one of the sides with counted runs has not recorded."""
    for side in sides:
        known = any(metric in run.scores for run in side.counted) or side.is_undefined(metric)
        if side.counted and not known:
            names = ", ".join(side.score_names) or "none; run it with do_eval"
            raise file_io.InputError(
                f"metric={metric}: {side.name} has no such score; its scores are {names}"
            )


def _check_same_test_data(sides: Sequence[RunGroup]) -> None:
    """Rejects sides whose test scores are of other data, where the data are known."""
    bases = {
        run.folder: evaluation_basis.Basis(run.tested_on["sha256"], run.tested_on["path"])
        for side in sides
        for run in side.counted
        if run.tested_on
    }
    evaluation_basis.check_same([*bases], [*bases.values()])


# --- a pair ---------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Settings:
    """Settings of all pairs: arguments of `compare`, and the reader of predictions of a run.

    Attributes:
      margin, pairs: largest difference that does not matter (None: not tested); number of pairs.
      clusters_of: finds the groups of the examples of a run; None: those that the task knows.
    """

    metric: str
    minimize: bool
    level: float
    random_seed: int
    predictions_of: Callable[[Run], Predictions]
    margin: float | None
    pairs: int
    clusters_of: Callable[[Run], clusters.Clusters] | None

    def find(self, test: equivalence.Test, count: int, unit: str) -> Finding:
        """Compares two sides by a test of `count` seeds or examples, also for being equal."""
        comparison, equal = test(level=self.level), None
        if self.margin is not None:
            margin, pairs = self.margin, self.pairs
            equal = equivalence.test_margin(test, margin, self.level, pairs, count, unit)
        better, verdict = comparison.better, comparison.verdict
        return Finding(comparison, comparison.p, better, verdict, equal)


def _compare_pair(a: RunGroup, b: RunGroup, settings: _Settings) -> Pair:
    """Compares two groups of runs, `b` less `a`, over seeds and examples; p is not adjusted yet."""
    seeds, with_stuck, why_not_seeds = _over_seeds(a, b, settings)
    examples, why_not_examples = None, ""
    try:
        examples = _over_examples(a, b, settings)
    except file_io.InputError as error:
        why_not_examples = str(error)
    return Pair(a.name, b.name, seeds, with_stuck, examples, why_not_seeds, why_not_examples)


def _over_seeds(
    a: RunGroup, b: RunGroup, settings: _Settings
) -> tuple[Finding | None, statistics.Comparison | None, str]:
    """Compares the scores of both sides over their seeds.

    Returns:
      (finding, comparison that also counts runs that learned nothing, why there is no finding). The
      first two are None, and the last is "", where they do not apply.
    """
    metric = settings.metric
    first, second = a.scores(metric), b.scores(metric)
    if undefined := [side.name for side in (a, b) if side.is_undefined(metric)]:
        return None, None, f"{metric} is {results.UNDEFINED} for {' and '.join(undefined)}"
    few = [f"{side.name} has {len(s)}" for side, s in ((a, first), (b, second)) if len(s) < 2]
    if few:
        return None, None, f"each side needs two runs with scores, but {', '.join(few)}"
    failed = (len(a.runs) - len(first), len(b.runs) - len(second))
    compare_seeds = functools.partial(
        statistics.compare_seeds,
        minimize=settings.minimize,
        names=(a.name, b.name),
        random_seed=settings.random_seed,
    )
    test = functools.partial(compare_seeds, first, second, failed=failed)
    everything = [side.scores(metric, with_stuck=True) for side in (a, b)]
    with_stuck = None
    if everything != [first, second]:
        with_stuck = compare_seeds(*everything, level=settings.level)
    return settings.find(test, min(len(first), len(second)), "seeds"), with_stuck, ""


def _kept(side: RunGroup, settings: _Settings) -> list[_Kept]:
    """Returns [(run, its predictions)] of the counted runs."""
    if not side.counted:
        raise file_io.InputError(f"{side.name} has no run that finished successfully")
    return [(run, settings.predictions_of(run)) for run in side.counted]


def _over_examples(a: RunGroup, b: RunGroup, settings: _Settings) -> Examples:
    """Compares the predictions of both sides for the same examples, before p is adjusted."""
    groups = [_kept(side, settings) for side in (a, b)]
    _check_same_examples([pair for group in groups for pair in group])
    name = settings.metric.removeprefix(comparison_sides.TEST)
    metrics = groups[0][0][1].metrics
    notes = []
    if name not in metrics:
        notes.append(f"{name} is not known for single examples; this is {next(iter(metrics))}")
        name = next(iter(metrics))
    if min(map(len, groups)) == 1 and max(map(len, groups)) > 1:
        groups = _one_run_of_each(groups)
        seed_a, seed_b = (group[0][0].seed for group in groups)
        notes.append(
            f"one side has only one run: seed {seed_a} of {a.name} is compared with seed {seed_b} "
            f"of {b.name}, so the result says nothing about other seeds"
        )
    elif max(map(len, groups)) == 1:
        notes.append("one run of each side: the result says nothing about other seeds")
    run, one = groups[0][0]
    groups_of_examples = settings.clusters_of(run) if settings.clusters_of else one.clusters
    if groups_of_examples:
        notes.append(groups_of_examples.describe())
    test = functools.partial(
        _test_examples,
        groups,
        name,
        groups_of_examples,
        names=(a.name, b.name),
        random_seed=settings.random_seed,
    )
    of_a, of_b = (tuple(run.seed for run, _ in group) for group in groups)
    finding = settings.find(test, len(one.labels), "examples")
    gained, lost = _changes(groups)
    seeds, count = (of_a, of_b), len(one.labels)
    return Examples(name, one.data, count, seeds, finding, gained, lost, "; ".join(notes))


def _one_run_of_each(groups: list[list[_Kept]]) -> list[list[_Kept]]:
    """Returns [(run, its predictions)] of each group: of one common seed, else of the first run."""
    shared = {run.seed for run, _ in groups[0]} & {run.seed for run, _ in groups[1]}
    if not shared:
        return [group[:1] for group in groups]
    return [[pair for pair in group if pair[0].seed == min(shared)] for group in groups]


def _check_same_examples(pairs: Sequence[_Kept]) -> None:
    """Rejects (run, predictions) of which some are predictions of other data."""
    (first_run, first), *others = pairs
    for run, other in others:
        if first.sha256 and other.sha256 and first.sha256 != other.sha256:
            raise file_io.InputError(
                f"{first_run.folder} predicted {first.data} (SHA-256 {first.sha256[:16]}…), but "
                f"{run.folder} predicted {other.data} (SHA-256 {other.sha256[:16]}…)"
            )
        if list(first.labels) != list(other.labels):
            missing = [key for key in first.labels if key not in other.labels]
            odd = missing or [key for key in other.labels if key not in first.labels]
            raise file_io.InputError(
                f"{first_run.folder} and {run.folder} predicted different examples "
                f"({len(first.labels)} and {len(other.labels)}"
                f"{f', such as {odd[0]}' if odd else ', in another order'})"
            )
        if first.labels != other.labels or list(first.metrics) != list(other.metrics):
            raise file_io.InputError(
                f"{first_run.folder} and {run.folder} have different right answers to the same "
                "examples"
            )


def _test_examples(
    groups: _Groups,
    name: str,
    groups_of_examples: clusters.Clusters | None,
    *,
    level: float,
    names: tuple[str, str],
    random_seed: int,
) -> statistics.Comparison:
    """Compares the metric `name` of the predictions of both sides, whose names are `names`.

    Args:
      groups: runs with their predictions, of both sides.
      groups_of_examples: groups that are drawn whole; None: single examples are drawn.
    """
    sides = [[kept.metrics[name] for _, kept in group] for group in groups]
    metric: Metric = sides[0][0]
    first, second = (np.stack([m.rows for m in side]) for side in sides)
    bootstrap: Callable[..., statistics.Comparison]
    if min(map(len, sides)) > 1:
        seeds = [[run.seed for run, _ in group] for group in groups]
        is_paired = seeds[0] == seeds[1]
        bootstrap = functools.partial(example_statistics.multi_bootstrap, paired_seeds=is_paired)
    elif groups_of_examples or not metric.is_right:
        first, second = first[0], second[0]
        bootstrap = example_statistics.bootstrap_of_means
    else:
        right = [rows[0, :, 0] / metric.scale for rows in (first, second)]
        comparison = example_statistics.mcnemar(*right, level=level, names=names)
        return _scaled(comparison, metric.scale, names)
    return bootstrap(
        first,
        second,
        metric.of_means,
        minimize=results.is_loss(name),
        level=level,
        names=names,
        random_seed=random_seed,
        clusters=groups_of_examples,
    )


def _scaled(
    comparison: statistics.Comparison, scale: float, names: tuple[str, str]
) -> statistics.Comparison:
    """Returns a comparison of fractions in the unit of the metric, in which 1 is `scale`."""
    if scale == 1:
        return comparison
    values = {key: getattr(comparison, key) * scale for key in ("difference", "low", "high")}
    better, verdict = statistics.decide(
        values["difference"], comparison.p, comparison.level, False, names
    )
    return dataclasses.replace(comparison, **values, better=better, verdict=verdict)


def _changes(groups: _Groups) -> tuple[tuple[Change, ...], tuple[Change, ...]]:
    """Returns the examples that the second group of runs gains, and those that it loses."""
    if not groups[0][0][1].right:
        return (), ()
    fractions = [
        {
            key: sum(predictions.right[key] for _, predictions in group) / len(group)
            for key in groups[0][0][1].right
        }
        for group in groups
    ]
    gained: list[Change] = []
    lost: list[Change] = []
    for key, first in fractions[0].items():
        second = fractions[1][key]
        if (first - 0.5) * (second - 0.5) < 0:
            (gained if second > first else lost).append(_change(key, groups, first, second))
    for rows in (gained, lost):
        rows.sort(key=lambda row: -abs(row.second_right - row.first_right))
    return tuple(gained), tuple(lost)


def _change(key: str, groups: _Groups, first: float, second: float) -> Change:
    """Returns the `Change` of the example with id `key`, with each side's most frequent answer.

    Args:
      first, second: fraction of the runs of each side that are right, 0 to 1.
    """
    a, b = (
        collections.Counter(p.answers[key] for _, p in group).most_common(1)[0][0]
        for group in groups
    )
    one = groups[0][0][1]
    return Change(key, one.texts[key], one.labels[key], a, b, first, second)


# --- all pairs ------------------------------------------------------------------------------------


def _adjust(pairs: Sequence[Pair], level: float, minimize: bool) -> list[Pair]:
    """Returns the pairs with p adjusted by Holm, over seeds and over examples by themselves."""
    seeds = _holm([pair.seeds for pair in pairs], pairs, level, minimize)
    examples = [pair.examples for pair in pairs]
    is_loss = any(row and results.is_loss(row.metric) for row in examples)
    findings = _holm([row.finding if row else None for row in examples], pairs, level, is_loss)
    return [
        dataclasses.replace(
            pair,
            seeds=seed,
            examples=dataclasses.replace(row, finding=finding) if row and finding else None,
        )
        for pair, seed, row, finding in zip(pairs, seeds, examples, findings, strict=True)
    ]


def _holm(
    findings: Sequence[Finding | None], pairs: Sequence[Pair], level: float, minimize: bool
) -> list[Finding | None]:
    """Returns findings (None: nothing compared) with p and verdict adjusted for their number."""
    p_values = [f.comparison.p for f in findings if f is not None and f.comparison.p is not None]
    adjusted = iter(statistics.holm(p_values).tolist() if p_values else ())
    new_findings = []
    for pair, finding in zip(pairs, findings, strict=True):
        if finding is None or finding.comparison.p is None:
            new_findings.append(finding)
            continue
        p, difference = next(adjusted), finding.comparison.difference
        names = (pair.first, pair.second)
        better, verdict = statistics.decide(difference, p, level, minimize, names)
        if finding.better and not better:
            verdict = f"{verdict} after Holm, for {len(p_values)} comparisons"
        if finding.equality:
            verdict = finding.equality.verdict(better, verdict)
        new_findings.append(dataclasses.replace(finding, p_holm=p, better=better, verdict=verdict))
    return new_findings


def score_side(side: RunGroup, metric: str, level: float = 0.95) -> SideScore:
    """Returns the `SideScore` of a side: the mean of a score over its runs."""
    scores = side.scores(metric)
    mean = None
    if scores:
        mean = statistics.mean_interval([*scores.values()], level=level)
    return SideScore(
        side, side.score_name(metric), scores, mean, side.mean_cost(), remark(side),
        side.is_undefined(metric),
    )  # fmt: skip


def remark(side: RunGroup) -> str:
    """Returns what became of the runs of a side that are not counted, and what this does; or ""."""
    total, counts = len(side.runs), side.counts
    others = {status: count for status, count in counts.items() if status != runs.FINISHED}
    parts = []
    if others and len(side.counted) < total:
        outcomes = ", ".join(f"{count} {status}" for status, count in others.items())
        parts.append(
            f"{outcomes} of {total} runs left out: the score is that of the others, and too good "
            "if runs that fail would score badly"
        )
    elif others:
        parts.append("no run has learned; all that ended are counted")
    if side.restarts:
        parts.append(
            f"{side.restarts} restarts with other seeds after runs that did not learn: the score "
            "is that of the attempts that did"
        )
    return "; ".join(parts)


def _notes(sides: Sequence[SideScore], pairs: Sequence[Pair]) -> tuple[str, ...]:
    """Returns sentences about what was not checked, and about the adjustment of p."""
    notes = []
    if not all(basis.sha256 for score in sides if (basis := score.side.basis)):
        notes.append("The record of a side does not hold the SHA-256 of its data: not checked.")
    if any(score.side.task[0] == "" for score in sides) and any(
        score.side.task[0] for score in sides
    ):
        notes.append("Whether a file of predictions is of the same task is not known.")
    if len(pairs) > 1:
        notes.append(f"p is adjusted by Holm for {len(pairs)} pairs.")
    return tuple(notes)
