"""Tests which differences in the table of a sweep are significant.

In all functions a `summary` is the table of a sweep from `sweep_results.summarize`. Points are
dicts of this table, `scores` are {seed: score} of each, `candidates` are the indices to compare.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from albert.experiments import best_point, equivalence, statistics, sweep_journal, text_tables
from albert.training import results, stuck_runs

_DRAWS = (1, 2, 5, 10, 20, 50, 100, 200, 500)  # numbers of points whose expected best is printed
_OUTCOMES = {
    sweep_journal.FAILED: "failed: they have no score, and their points are not compared",
    sweep_journal.PRUNED: "pruned: their scores are those of an early step and are not compared",
    sweep_journal.INTERRUPTED: "interrupted: their points are not complete",
}
_STUCK = (
    "{} did not learn: means are those of the runs that learn (of all runs of a point, if none "
    "does), and points with such runs are not compared"
)


def add(
    summary: Mapping[str, Any],
    baseline: int | None = None,
    level: float = 0.95,
    restarts: int = 0,
    difference: str = "",
    equivalence_margin: float | None = None,
) -> dict[str, Any]:
    """Returns a summary with ``comparison``: what the differences of points that can win are worth.

    It has level, reference (index of a point, or None), method, verdict (a sentence or ""), points
    (of each: interval, difference, p, verdict, probability_best, or None) and notes (sentences).

    Args:
      baseline: index of the point to compare the others with; None: the best one.
      level: 1 minus the probability of a false claim in the whole table.
      restarts: number of attempts of all trials that were abandoned; only reported.
      difference: why scores cannot be compared; "" if they can.
      equivalence_margin: largest difference that does not matter; None: not tested.
    """
    points = summary["points"]
    comparison: dict[str, Any] = {
        "level": level, "reference": None, "method": "", "verdict": "",
        "points": [
            dict.fromkeys(("interval", "difference", "p", "verdict", "probability_best"))
            for _ in points
        ],
        "notes": _outcomes(summary, restarts),
    }  # fmt: skip
    why_not = f"Nothing is compared: {difference.removeprefix('runs: ')}" if difference else ""
    if not statistics.is_installed():
        why_not = statistics.NOT_INSTALLED
    if why_not:
        comparison["notes"].append(f"{why_not}.")
        return {**summary, "comparison": comparison}
    scores = [_scores(summary, point) for point in points]
    for row, values in zip(comparison["points"], scores, strict=True):
        interval = statistics.Summary.from_scores([*values.values()]).interval
        row["interval"] = interval and list(interval)
    candidates = [i for i, p in enumerate(points) if scores[i] and (p["can_win"] or i == baseline)]
    if baseline is not None and not scores[baseline]:
        name = points[baseline]["name"]
        comparison["notes"].append(
            f"Nothing is compared: no run of the baseline {name} has a score."
        )
    elif len(candidates) > 1 and any(len(scores[i]) > 1 for i in candidates):
        own = {str(i): scores[i] for i in candidates}
        _compare(summary, own, baseline, comparison)
        if equivalence_margin is not None:
            _test_margin(scores, candidates, equivalence_margin, comparison)
        chances = best_point.probabilities(own, minimize=summary["minimize"])
        for name, chance in chances.items():
            comparison["points"][int(name)]["probability_best"] = chance
    if baseline is not None or any(len(values) > 1 for values in scores):
        comparison["notes"] += _not_compared(points, candidates)
    if len(candidates) > 1:
        comparison["notes"] += _price_of_picking(
            [scores[i] for i in candidates], summary["minimize"]
        )
    return {**summary, "comparison": comparison}


def _scores(summary: Mapping[str, Any], point: dict[str, Any]) -> dict[int, float]:
    """Returns {seed: score} of the trials of a point that its mean counts."""
    trials = [summary["trials"][number] for number in point["trials"]]
    done_trials = [trial for trial in trials if trial["state"] == sweep_journal.DONE]
    learned = [trial for trial in done_trials if trial["verdict"] not in stuck_runs.LEARNED_NOTHING]
    return {t["seed"]: t["value"] for t in learned or done_trials if t["value"] is not None}


def _compare(
    summary: Mapping[str, Any],
    points: Mapping[str, Mapping[int, float]],
    baseline: int | None,
    comparison: dict[str, Any],
) -> None:
    """Adds differences to the reference, p and verdicts to the ``comparison`` of `add`.

    Args:
      points: {index of a point: {seed: score}}.
      baseline: index of a point; None: the best one.
    """
    result = statistics.compare_points(
        points,
        baseline=None if baseline is None else str(baseline),
        minimize=summary["minimize"],
        level=comparison["level"],
    )
    for point in result.points:
        comparison["points"][int(point.name)] |= {
            "difference": point.difference, "p": point.p, "verdict": point.verdict,
        }  # fmt: skip
    reference = int(result.reference)
    name = summary["points"][reference]["name"]
    verdict = name + result.verdict.removeprefix(result.reference)
    comparison |= {"reference": reference, "method": result.method, "verdict": f"{verdict}."}


def _test_margin(
    scores: Sequence[Mapping[int, float]],
    candidates: Sequence[int],
    margin: float,
    comparison: dict[str, Any],
) -> None:
    """Adds to the verdicts of ``comparison`` whether points are equal to the reference.

    `margin` is the largest difference that does not matter, in the unit of the score.
    """
    reference = comparison["reference"]
    others = [i for i in candidates if i != reference and len(scores[i]) > 1]
    for i in others:
        row, count = comparison["points"][i], min(len(scores[i]), len(scores[reference]))
        if count < 2:
            continue
        test = functools.partial(statistics.compare_seeds, scores[reference], scores[i])
        equality = equivalence.test_margin(
            test, margin, comparison["level"], len(others), count, "seeds"
        )
        claimed = row["verdict"] if row["verdict"].startswith(("better", "worse")) else None
        row["verdict"] = equality.verdict(claimed, row["verdict"])


def _outcomes(summary: Mapping[str, Any], restarts: int) -> list[str]:
    """Returns sentences about trials that the table omits, and about restarted ones."""
    trials = summary["trials"]
    states = [trial["state"] for trial in trials]
    notes = [
        f"{states.count(state)} of {len(trials)} trials {text}."
        for state, text in _OUTCOMES.items()
        if state in states
    ]
    stuck = sum(trial["verdict"] in stuck_runs.LEARNED_NOTHING for trial in trials)
    if stuck:
        notes.append(_STUCK.format(f"{stuck} of {len(trials)} trials") + ".")
    if restarts:
        notes.append(
            f"{restarts} restarts with other seeds after attempts that did not learn: the scores "
            "are those of the attempts that did."
        )
    return notes


def _not_compared(points: Sequence[dict[str, Any]], candidates: Sequence[int]) -> list[str]:
    """Returns sentences about points that are no better than a constant answer, or all but one."""
    poor = sum(
        any(remark.startswith(results.NOT_BETTER) for remark in point["remarks"])
        for i, point in enumerate(points)
        if i not in candidates
    )
    notes = []
    if poor:
        notes.append(f"{poor} of {len(points)} points not compared: {results.NOT_BETTER}.")
    if len(candidates) < 2 <= len(points):
        subject = f"only {points[candidates[0]]['name']}" if candidates else "no point"
        notes.append(f"Nothing is compared: {subject} could be.")
    return notes


def _price_of_picking(scores: Sequence[Mapping], minimize: bool) -> list[str]:
    """Returns sentences about the best of several points, which is too good by chance."""
    count, repeated = len(scores), [values for values in scores if len(values) > 1]
    notes = []
    if not repeated:
        notes.append(
            "One seed for each point: differences may be those of seeds; repeat the points with "
            "several to know."
        )
    else:
        repeats = min(map(len, repeated))
        errors = [
            (value - sum(values.values()) / len(values))
            * math.sqrt(len(values) / (len(values) - 1) / repeats)
            for values in repeated
            for value in values.values()
        ]
        if len(errors) >= count:
            bias = abs(statistics.expected_best(errors, count, minimize=minimize).bias)
            notes.append(
                f"Picking the best of {count} points adds about {bias:.4f} to its score, even if "
                "all points are equal: runs with other seeds will score less."
            )
    means = [sum(values.values()) / len(values) for values in scores]
    best = [
        f"{k}: {statistics.expected_best(means, k, minimize=minimize).estimate:.4f}"
        for k in (*(k for k in _DRAWS if k < count), count)
    ]
    notes.append(f"Expected best score if k of these points are tried: {', '.join(best)}.")
    return notes


def columns(summary: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Returns (header, cells of each point) of the columns for a summary of `add`; or empty."""
    comparison = summary.get("comparison")
    if not comparison or not any(row["interval"] or row["verdict"] for row in comparison["points"]):
        return [], [[] for _ in summary["points"]]
    rows, reference = comparison["points"], comparison["reference"]
    header = [f"interval of {comparison['level']:.0%}"]
    cells = [[text_tables.interval(*(row["interval"] or (None, None)))] for row in rows]

    def add_column(name: str, key: str, form: str, unknown: str = "-") -> None:
        header.append(name)
        for row, line in zip(rows, cells, strict=True):
            line.append(unknown if row[key] is None else format(row[key], form))

    if any(row.get("probability_best") is not None for row in rows):
        add_column("probability best", "probability_best", ".2f")
    if reference is not None:
        add_column(f"minus {summary['points'][reference]['name']}", "difference", "+.4f")
        add_column("p (adjusted)", "p", ".4f")
        add_column("verdict", "verdict", "", "not compared")
    return header, cells


def sentences(summary: Mapping[str, Any]) -> str:
    """Returns the lines below the table of a summary of `add`; "" without a comparison."""
    comparison = summary.get("comparison")
    if not comparison:
        return ""
    method = [f"Method: {comparison['method']}."] if comparison["method"] else []
    return "".join(
        f"{line}\n" for line in (comparison["verdict"], *method, *comparison["notes"]) if line
    )
