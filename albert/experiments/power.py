"""Power analysis: seeds needed to detect a difference, and the smallest detectable one.

`describe` says before a sweep how many seeds a difference needs, and how long the runs take here.
Needs SciPy (extra `stats`).
"""

import bisect
import dataclasses
import datetime
import math
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from albert.experiments import comparison_sides, statistics, sweep_journal, sweep_plan, text_tables
from albert.experiments.runs import NOT_STARTED, RunGroup, check_same_task, has_record
from albert.io import file_io
from albert.training import run_record

POWER = 0.8
_MULTIPLES = (0.5, 1.0, 2.0, 4.0)  # differences of the table, in deviations
_LEVEL = 0.95
_MAX_SEEDS = 10_000


def probability(deviation: float, pairs: int, difference: float, level: float = _LEVEL) -> float:
    """Returns the probability that the paired t test finds a true difference.

    It is exact for normal scores (noncentral t).

    Args:
      deviation: standard deviation of the differences of pairs, above 0.
      pairs: pairs of seeds, at least 2.
      difference: true difference in units of the score.
      level: 1 minus the probability of a false claim.
    """
    stats, freedom = statistics.scipy_stats(), pairs - 1
    limit = stats.t.ppf(0.5 + level / 2, freedom)
    shift = difference / (deviation * math.sqrt(1 / pairs))
    if shift > limit + 30:  # beyond what the noncentral t computes; the power is above 0.999
        return 1.0
    # The second is the lower tail, mirrored: `cdf` gives NaN where it is tiny.
    return float(stats.nct.sf(limit, freedom, shift) + stats.nct.sf(limit, freedom, -shift))


def needed(deviation: float, difference: float, level: float = _LEVEL) -> int | None:
    """Returns the smallest number of pairs of seeds that shows a difference with `POWER`.

    None stands for more than anybody can run. The arguments are those of `probability`.
    """
    pairs = range(2, _MAX_SEEDS + 1)
    place = bisect.bisect_left(
        pairs, POWER, key=lambda n: probability(deviation, n, difference, level)
    )
    return pairs[place] if place < len(pairs) else None


def visible(deviation: float, pairs: int, level: float = _LEVEL) -> float:
    """Returns the smallest difference that is shown with the probability `POWER`.

    It is in the unit of the deviation; the arguments are those of `probability`.
    """
    low, high = 0.0, 1e-9
    while probability(deviation, pairs, high, level) < POWER:
        high *= 2
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        if probability(deviation, pairs, middle, level) < POWER:
            low = middle
        else:
            high = middle
    return high


# --- seeds of a sweep -----------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Spread:
    """The spread of scores over seeds.

    Attributes:
      deviation: standard deviation of the scores of a point.
      of_differences: standard deviation of the difference of two points with the same seed.
      low, high: 95% interval of the deviation; None if it is assumed.
      source: where it comes from, in words.
    """

    deviation: float
    of_differences: float
    low: float | None
    high: float | None
    source: str


@dataclasses.dataclass(frozen=True)
class FinishedRuns:
    """Finished runs that tell the spread and the time of further ones.

    Attributes:
      seconds: time by the clock of each run that has trained and ended.
      total: number of runs that have ended in any way.
      without_score: number of them that failed or did not learn.
    """

    sides: tuple[RunGroup, ...]
    metric: str
    seconds: tuple[float, ...]
    hosts: tuple[str, ...]
    total: int
    without_score: int


def read_runs(folders: Sequence[str], metric: str | None) -> FinishedRuns | None:
    """Reads finished runs; None if there is no record of a run.

    Args:
      folders: folders of runs, of runs over seeds and of sweeps.
      metric: the score; None: the one that picks their best checkpoints.
    """
    sides = comparison_sides.read(folders, only_recorded=True) if folders else []
    if not sides:
        return None
    names = [side.folder for side in sides]
    tasks = [side.task for side in sides]
    check_same_task(names, tasks, "only runs of one task tell the spread of a score", "plan_from")
    name = metric or next((side.best_metric for side in sides if side.best_metric), "")
    runs = [run for side in sides for run in side.runs if run.status != NOT_STARTED]
    records = [run.record for run in runs if run.has_learned and run.record]
    if records and not any(name in side.score_names for side in sides):
        raise file_io.InputError(
            f"plan_from: the finished runs have no score {name!r}; they have "
            f"{', '.join(sides[0].score_names) or 'none'}"
        )
    return FinishedRuns(
        tuple(sides),
        name,
        tuple(filter(None, map(_seconds, records))),
        tuple(dict.fromkeys(str(record["host"].get("name")) for record in records)),
        len(runs),
        sum(not run.has_learned for run in runs),
    )


def check_task(runs: FinishedRuns, script: str, task: str | None) -> None:
    """Rejects finished runs of another script or task than those of the sweep.

    Args:
      task: None: it has none, or trials differ in it.
    """
    side = runs.sides[0]
    own, of_runs = script.rpartition(".")[2], (side.task[0], (side.task[1] or "").lower())
    if of_runs != (own, (task or of_runs[1]).lower()):
        raise file_io.InputError(
            f"plan_from: {side.folder} is {' of the task '.join(filter(None, of_runs))}, but the "
            f"sweep is {' of the task '.join(filter(None, (own, task)))}: name finished runs of "
            "the same task, or give assumed_deviation without them"
        )


def _seconds(record: dict[str, Any]) -> float:
    """Returns the seconds by the clock of the sessions in a ``run.json`` that trained."""
    times = [
        datetime.datetime.fromisoformat(session["ended"])
        - datetime.datetime.fromisoformat(session["started"])
        for session in record["sessions"]
        if session["ended"] and run_record.TRAIN in session["stages"]
    ]
    return sum((time.total_seconds() for time in times), 0.0)


def measure_spread(runs: FinishedRuns) -> Spread:
    """Returns the spread of finished runs, pooled over their points."""
    scores = [side.scores(runs.metric) for side in runs.sides]
    repeated = [values for values in scores if len(values) > 1]
    freedom = sum(len(values) - 1 for values in repeated)
    if not freedom:
        raise file_io.InputError(
            "plan: no point has two finished runs with different seeds: run a few, or give "
            "assumed_deviation"
        )
    squares = sum(float(np.var([*v.values()])) * len(v) for v in repeated)
    deviation = math.sqrt(squares / freedom)
    if deviation == 0:
        raise file_io.InputError(
            "plan: the scores of the finished runs are equal, so that their spread is unknown: "
            "give assumed_deviation"
        )
    quantiles = statistics.scipy_stats().chi2.ppf([0.975, 0.025], freedom)
    low, high = (math.sqrt(squares / float(q)) for q in quantiles)
    count = sum(map(len, repeated))
    points = "point" if len(repeated) == 1 else "points"
    source = f"{count} finished runs of {len(repeated)} {points}, {runs.metric}"
    return Spread(deviation, _difference_deviation(repeated, deviation), low, high, source)


def _difference_deviation(scores: Sequence[Mapping[int, float]], deviation: float) -> float:
    """Returns the deviation of differences of points with the same seed.

    Args:
      scores: {seed: score} of each point.
      deviation: deviation of scores of one point over seeds.
    """
    same = [values for values in scores if set(values) == set(scores[0])]
    if len(same) < 2:
        return deviation * math.sqrt(2)
    table = np.array([[values[seed] for seed in same[0]] for values in same])
    # What is left after the means of points and of seeds; two of it make a difference.
    rest = table - table.mean(axis=0) - table.mean(axis=1, keepdims=True) + table.mean()
    freedom = (table.shape[0] - 1) * (table.shape[1] - 1)
    paired_deviation = math.sqrt(2 * float((rest**2).sum()) / freedom)
    return paired_deviation or deviation * math.sqrt(2)


def assume_spread(deviation: float) -> Spread:
    """Returns the spread of a deviation that the user assumes; seeds are taken as unrelated."""
    return Spread(deviation, deviation * math.sqrt(2), None, None, "assumed")


# --- the plan -------------------------------------------------------------------------------------


def time_text(seconds: float) -> str:
    """Returns a duration in the unit that suits it."""
    for size, name in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {name}"
    return f"{seconds:.0f} seconds"


def describe(
    plan: sweep_plan.Plan,
    spread: Spread,
    runs: FinishedRuns | None,
    detect: Sequence[float] = (),
    parallel: int = 1,
    with_baseline: bool = False,
) -> str:
    """Returns what a sweep can show, in words and a table.

    Args:
      runs: finished runs that tell the time; None: it is not known.
      detect: differences to show, in units of the score; empty: multiples of the deviation.
      parallel: number of runs at the same time.
      with_baseline: whether points are compared with a baseline alone.
    """
    total = int(sweep_plan.count(plan) or 0)
    points = max(1, total // plan.repeats)
    pairs = max(1, points - 1 if with_baseline else points * (points - 1) // 2)
    seconds = sum(runs.seconds) / len(runs.seconds) if runs and runs.seconds else None
    between = "" if spread.low is None else f", 95% interval {spread.low:.3g} to {spread.high:.3g}"
    lines = [
        f"The plan has {total} runs: {points} points, {plan.repeats} seeds each.",
        f"Standard deviation over seeds: {spread.deviation:.3g} ({spread.source}{between}).",
        "",
        *_table(spread, detect, points, pairs, seconds, parallel),
        "",
        *_planned_seeds_text(spread, plan, pairs),
        *_time(runs, seconds, total, parallel),
        *_warnings(runs),
        "Nothing was started.",
    ]
    return "\n".join(lines) + "\n"


def _table(
    spread: Spread,
    detect: Sequence[float],
    points: int,
    pairs: int,
    seconds: float | None,
    parallel: int,
) -> Iterator[str]:
    """Yields the lines of the table of differences.

    Args:
      detect: differences to show, in units of the score.
      points, pairs: number of points and of compared pairs of points.
      seconds: mean time of a run; None: it is not known.
      parallel: number of runs at the same time.
    """
    differences = detect or [m * spread.deviation for m in _MULTIPLES]
    level = 1 - (1 - _LEVEL) / pairs
    header = ["difference", "seeds for one pair of points", "seeds for the whole table", "runs"]
    header += ["time"] if seconds else []
    rows = []
    for difference in differences:
        one, whole = (needed(spread.of_differences, difference, value) for value in (_LEVEL, level))
        runs = None if whole is None else whole * points
        too_many = f"above {_MAX_SEEDS}"
        row = [f"{difference:.3g}", *(too_many if n is None else str(n) for n in (one, whole))]
        row.append("-" if runs is None else str(runs))
        if seconds:
            row.append("-" if runs is None else time_text(seconds * math.ceil(runs / parallel)))
        rows.append(row)
    yield text_tables.write(header, rows).rstrip()
    yield ""
    yield (
        f"Each difference is found with a probability of {POWER:.0%}. The probability of a false "
        f"claim is {1 - _LEVEL:.0%}: for one pair, or in the whole table of {pairs} comparisons."
    )


def _planned_seeds_text(spread: Spread, plan: sweep_plan.Plan, pairs: int) -> Iterator[str]:
    """Yields a sentence on the smallest difference that the planned seeds show.

    `pairs`: see `_table`.
    """
    if plan.repeats < 2:
        yield "With one seed no difference can be distinguished from that of seeds: give `seeds`."
        return
    one, whole = (
        visible(spread.of_differences, plan.repeats, level)
        for level in (_LEVEL, 1 - (1 - _LEVEL) / pairs)
    )
    yield (
        f"With the planned {plan.repeats} seeds a difference is found from {one:.3g} on in one "
        f"pair, from {whole:.3g} on in the whole table."
    )


def _time(
    runs: FinishedRuns | None, seconds: float | None, total: int, parallel: int
) -> Iterator[str]:
    """Yields sentences on how long the plan takes, see `_table`."""
    if seconds is None or runs is None:
        yield "How long runs take here is not known: name finished ones with plan_from."
        return
    whole = time_text(seconds * math.ceil(total / parallel))
    how = "one after another" if parallel == 1 else f"{parallel} at the same time"
    yield (
        f"A run takes {time_text(seconds)} (mean of {len(runs.seconds)} finished runs): the plan "
        f"takes {whole}, {how}."
    )
    if parallel > 1:
        yield "Runs at the same time share this machine, so that each takes longer than alone."
    others = [name for name in runs.hosts if name != platform.node()]
    if others:
        yield f"Finished runs are of another machine ({', '.join(others)}): times here may differ."


def _warnings(runs: FinishedRuns | None) -> Iterator[str]:
    """Yields a sentence about finished runs without a score, if there are such runs."""
    if runs and runs.without_score:
        yield (
            f"{runs.without_score} of {runs.total} finished runs failed, were pruned or did not "
            "learn: expect the same of as many new ones, and plan more seeds."
        )


def find_finished(folder: str) -> list[str]:
    """Returns the folder of a sweep if one of its trials has left a record, as a list."""
    if not sweep_journal.is_sweep(folder):
        return []
    trials = sweep_journal.read(folder)[1]
    folders = (os.path.join(folder, trial.name) for trial in trials)
    return [folder] if any(map(has_record, folders)) else []
