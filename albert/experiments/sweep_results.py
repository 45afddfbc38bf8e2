"""Scores of a sweep's trials, and its table as Markdown, CSV and JSON.

Nothing here depends on the time, so a sweep that was killed and resumed ends with the same files
as one that was not.
"""

import dataclasses
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from albert.experiments import (
    seed_runs,
    statistics,
    sweep_comparison,
    sweep_journal,
    sweep_plan,
    text_tables,
)
from albert.experiments.runs import damage_named
from albert.io import file_io
from albert.training import evaluation_basis, results, run_record, stuck_runs

NAME = "sweep_results"
SCORE = "score"  # its name without `sweep_plan.Plan.metric`
_FAILURES = "failures"  # among the results of a study over seeds: runs that its mean omits


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def read_score(folder: str, metric: str | None) -> tuple[int | None, float | None, dict]:
    """Reads the score of the best checkpoint of a run from its folder.

    For a run over several seeds this is the mean.

    Args:
      metric: key of its results; None: the metric that picks its best checkpoint.

    Returns:
      (step, score, {name: score or None} of that step); (None, None, {}) without an evaluation.
    """
    path = os.path.join(folder, seed_runs.SEEDS)
    if file_io.exists(path):
        return _score_of_seeds(path, metric)
    trial, blocks = results.read_trial(folder), results.read_blocks(folder)
    step = trial.best_step if trial else (blocks[-1].step if blocks else None)
    values = next((block.metrics for block in blocks if block.step == step), {})
    metrics = {key: _finite(value) for key, value in values.items()}
    if metric is None:
        return step, _best_value(trial, metrics), metrics
    if blocks and metric not in metrics:
        raise file_io.InputError(
            f"there is no {metric} among the results of {folder}: {', '.join(sorted(metrics))}"
        )
    return step, metrics.get(metric), metrics


def _best_value(trial: results.Trial | None, metrics: dict[str, float | None]) -> float | None:
    """Returns the value of a `results.Trial` as its results show it; None if not finite.

    `metrics`: {metric: value} of its best step.
    """
    value = _finite(trial.best_value) if trial else None
    same = [v for v in metrics.values() if None not in (v, value) and np.float32(v) == value]
    return same[0] if same else value


def _score_of_seeds(
    path: str, metric: str | None
) -> tuple[int | None, float | None, dict[str, float]]:
    """Reads the mean score of a study over seeds, which must be the metric unless this is None.

    Args:
      path: its file `seeds.json`.

    Returns:
      (None, mean or None, {metric: mean, "deviation": …, "failures": number of runs that the mean
      omits, if any}).
    """
    content = seed_runs.read(path)
    name, mean = content["metric"], _finite(content["mean"])
    if metric not in (None, name):
        raise file_io.InputError(
            f"{path} has the mean of {name}, not of {metric}: leave the metric out"
        )
    metrics = {name: mean, "deviation": content["deviation"]}
    if content.get("failures"):
        metrics[_FAILURES] = content["failures"]
    return None, mean, metrics


def read_learning(folder: str, metric: str | None, step: int | None) -> dict:
    """Reads the verdict on the score of a run, and the scores to compare it with.

    Args:
      metric: key of its results; None: the metric that picks its best checkpoint.
      step: step of its best checkpoint.

    Returns:
      {"verdict", "evaluated", "baseline", "test"}: attributes of a `sweep_journal.Trial`.
    """
    path = os.path.join(folder, seed_runs.SEEDS)
    if file_io.exists(path):
        return _learning_of_seeds(path)
    context = run_record.read_context(folder, metric)
    return {"verdict": stuck_runs.verdict(folder, step), **context._asdict()}


def _learning_of_seeds(path: str) -> dict[str, Any]:
    """Returns the result of `read_learning` for a file `seeds.json`: the most telling verdict."""
    content = seed_runs.read(path)
    runs = content["runs"]
    states = {run["status"] for run in runs}
    states |= {stuck_runs.NOT_JUDGED for run in runs if not run.get("judged", True)}
    verdicts = [v for v in (*stuck_runs.LEARNED_NOTHING, stuck_runs.NOT_JUDGED) if v in states]
    counts = {run.get("evaluated") for run in runs}
    test = content.get("test_mean")
    return {
        "verdict": verdicts[0] if verdicts else "",
        "evaluated": counts.pop() if len(counts) == 1 else None,
        "baseline": next((b for run in runs if (b := run.get("baseline")) is not None), None),
        "test": {} if test is None else {content["metric"]: test},
    }


def find_difference(folder: str, trials: Sequence[sweep_journal.Trial]) -> str:
    """Returns how the evaluations of two trials differ, so that nothing is compared; "" if not.

    `folder`: that of the sweep.
    """
    folders = [
        path
        for trial in trials
        if trial.state == sweep_journal.DONE
        for path in seed_runs.folders_of_runs(os.path.join(folder, trial.name))
    ]
    try:
        evaluation_basis.check_same(folders, list(map(run_record.read_basis, folders)))
    except evaluation_basis.DifferenceError as error:
        return str(error)
    return ""


def read_curve(folder: str, metric: str | None) -> dict[int, float]:
    """Reads {step: finite value} of a run's evaluations so far, ascending; see `read_score`."""
    metric = metric or _best_metric(folder)
    scores = {
        block.step: _finite(block.values.get(metric)) for block in results.read_blocks(folder)
    }
    return {step: value for step, value in scores.items() if step and value is not None}


def _best_metric(folder: str) -> str | None:
    """Returns the name of the metric that picks a run's best checkpoint; None until it is known."""
    if file_io.exists(os.path.join(folder, run_record.RUN)):
        return run_record.read(folder).get("best_metric")
    trial = results.read_trial(folder)
    if trial is None:
        return None
    values = next((b.values for b in results.read_blocks(folder) if b.step == trial.best_step), {})
    names = [k for k, v in values.items() if k != "best" and np.float32(v) == trial.best_value]
    return min(names, default=None)


# --- the table ----------------------------------------------------------------------------------


def summarize(plan: dict, trials: Sequence[sweep_journal.Trial]) -> dict:
    """Returns the table of a sweep.

    Args:
      plan: the sweep as a JSON object, from `sweep_plan.Plan.describe`.

    Returns:
      dict: metric, minimize, parameters (names), points and trials in the order of their numbers,
      and the index of the best point. A point has the values of its parameters, the numbers of
      its trials and of those that are done, mean and deviation of the scores of trials that have
      learned (of a sample, so None for one), the mean on test data, the state of the first trial
      that is not done, remarks, and whether it can be the best.
    """
    repeats = max(1, len(plan["seeds"]))
    minimize = plan["minimize"]
    points = [_point(group, repeats, minimize) for group in sweep_journal.by_point(trials)]
    ranked = [place for place in order(points, minimize) if points[place]["can_win"]]
    return {
        "metric": plan["metric"] or _name_of_score(trials),
        "minimize": minimize,
        "parameters": plan["order"],
        "points": points,
        "best": ranked[0] if ranked else None,
        # Without what only planning needs.
        "trials": [
            {k: v for k, v in dataclasses.asdict(trial).items() if k not in ("arguments", "known")}
            for trial in trials
        ],
    }


def _name_of_score(trials: Iterable[sweep_journal.Trial]) -> str:
    """Returns the result that all trials use as their score; of several the first of a run."""
    names = None
    for trial in trials:
        if trial.metrics and trial.value is not None:
            same = [name for name, value in trial.metrics.items() if value == trial.value]
            names = same if names is None else [name for name in names if name in same]
    return names[0] if names else SCORE


def counted(trials: Sequence[sweep_journal.Trial]) -> list[sweep_journal.Trial]:
    """Returns the trials of a mean: those that have learned, or all that are done if none has."""
    done_trials = [trial for trial in trials if trial.state == sweep_journal.DONE]
    return [
        trial for trial in done_trials if trial.verdict not in stuck_runs.LEARNED_NOTHING
    ] or done_trials


def remarks(trials: Sequence[sweep_journal.Trial], minimize: bool) -> list[str]:
    """Returns warnings about the scores of the trials of a point."""
    verdicts = [trial.verdict for trial in trials if trial.state == sweep_journal.DONE]
    notes = [
        verdict if len(trials) == 1 else f"{verdicts.count(verdict)} of {len(trials)} {verdict}"
        for verdict in (*stuck_runs.LEARNED_NOTHING, stuck_runs.NOT_JUDGED)
        if verdict in verdicts
    ]
    others = [_on_failures(trials), _on_undefined(trials), _on_baseline(trials, minimize)]
    return [*notes, *filter(None, others)]


def _on_failures(trials: Iterable[sweep_journal.Trial]) -> str:
    """Returns a remark on runs that the means of studies over seeds omit; else ""."""
    count = sum(trial.metrics.get(_FAILURES) or 0 for trial in trials)
    return f"{count:g} of its seeds failed, learned nothing or have no score" if count else ""


def _on_undefined(trials: Sequence[sweep_journal.Trial]) -> str:
    """Returns a remark on scores that are undefined; else ""."""
    evaluated = [t for t in trials if t.state == sweep_journal.DONE and t.step is not None]
    is_undefined = any(trial.value is None for trial in evaluated)
    return f"its score is {results.UNDEFINED}: any answers score the same" if is_undefined else ""


def _on_baseline(trials: Sequence[sweep_journal.Trial], minimize: bool) -> str:
    """Returns a remark on a mean score that a constant answer also gets; "" for better ones."""
    value, baseline = (_mean(_known(counted(trials), name)) for name in ("value", "baseline"))
    return results.remark_on_baseline(value, baseline, minimize)


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _known(trials: Iterable[sweep_journal.Trial], name: str) -> list[float]:
    """Returns the known values of a numeric attribute, `name`, of trials."""
    return [value for trial in trials if (value := getattr(trial, name)) is not None]


def _point(trials: Sequence[sweep_journal.Trial], repeats: int, minimize: bool) -> dict[str, Any]:
    """Returns the entry of a point, of which `repeats` seeds are planned, see `summarize`."""
    done_trials = [trial for trial in trials if trial.state == sweep_journal.DONE]
    scores = _known(counted(trials), "value")
    summary = statistics.Summary.from_scores(scores)
    states = [trial.state for trial in trials if trial.state != sweep_journal.DONE]
    states += [sweep_journal.WAITING] * (len(trials) < repeats)
    is_whole = bool(scores) and not states and not _on_failures(done_trials)
    all_learned = all(trial.verdict not in stuck_runs.LEARNED_NOTHING for trial in done_trials)
    return {
        "name": _name(trials),
        "parameters": trials[0].parameters,
        "trials": [trial.number for trial in trials],
        "num_done": len(done_trials),
        "num_runs": max(repeats, len(trials)),
        "mean": summary.mean,
        "deviation": summary.deviation,
        "test": _means([trial.test for trial in counted(trials) if trial.test]),
        "evaluated": _known(trials, "evaluated"),
        "state": states[0] if states else sweep_journal.DONE,
        "remarks": remarks(trials, minimize),
        "can_win": is_whole and all_learned and not _on_baseline(trials, minimize),
        "error": next((trial.error for trial in trials if trial.error), []),
    }


def _means(rows: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """Returns {name: mean} of the numbers that all rows, {name: number or None}, know."""
    names = set.intersection(*map(set, rows)) if rows else ()
    values = {name: [row[name] for row in rows] for name in sorted(names)}
    return {name: _mean(numbers) for name, numbers in values.items() if None not in numbers}


def _name(trials: Sequence[sweep_journal.Trial]) -> str:
    """Returns the folder of the trials, with the numbers of the others if each has its own."""
    first, *rest = trials
    if first.seed is not None and not first.parameters:
        return os.path.dirname(first.name)
    numbers = [trial.number for trial in trials]
    if not rest:
        return first.name
    if numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{first.name} to {numbers[-1]}"
    return ", ".join([first.name, *map(str, numbers[1:])])  # seeds that were added later


def order(points: Sequence[dict], minimize: bool) -> list[int]:
    """Returns the places of the points, best first; points that cannot be the best come last."""
    sign = 1 if minimize else -1

    def place(i: int) -> tuple[bool, float]:
        mean = points[i]["mean"]
        return not points[i]["can_win"], math.inf if mean is None else sign * mean

    return sorted(range(len(points)), key=place)


def rows(summary: dict) -> tuple[list[str], list[list[str]]]:
    """Returns header and rows of the table of points of `summarize`, best first, as texts."""
    names, metric, points = summary["parameters"], summary["metric"], summary["points"]
    repeated = any(len(point["trials"]) > 1 for point in points)
    tested = any(metric in point["test"] for point in points)
    header = ["trial", *names]
    header.append(results.best_of(metric, [n for point in points for n in point["evaluated"]]))
    header += ["deviation", "done"] if repeated else []
    compared, cells = sweep_comparison.columns(summary)
    header += compared
    header += [f"{metric} (test)"] if tested else []
    lines = []
    for place in order(points, summary["minimize"]):
        point = points[place]
        line = [point["name"]]
        line += [sweep_plan.text_of(point["parameters"][name]) for name in names]
        line.append(text_tables.number(point["mean"]))
        if repeated:
            line.append(text_tables.number(point["deviation"]))
            line.append(f"{point['num_done']} of {point['num_runs']}")
        line += cells[place]
        line += [text_tables.number(point["test"].get(metric))] if tested else []
        state = [point["state"], *(text.removeprefix("error: ") for text in point["error"][:1])]
        lines.append([*line, "; ".join([": ".join(state), *point["remarks"]])])
    return [*header, "state"], lines


def to_markdown(summary: dict) -> str:
    """Returns the table of a `summarize`, for terminals, and what its differences are worth."""
    header, lines = rows(summary)
    table = text_tables.write(header, lines)
    sentences = sweep_comparison.sentences(summary)
    return f"{table}\n{sentences}" if sentences else table


def to_csv(summary: dict) -> str:
    """Returns a row per trial of `summarize`: parameters, state, score, results of that step."""
    of = {
        key: sorted({name for trial in summary["trials"] for name in trial[key]})
        for key in ("metrics", "test")
    }
    names = summary["parameters"]
    fixed = ["number", "name", "seed", "state", "step", "value", "verdict", "baseline", "evaluated"]
    if "seed" in names:
        fixed.remove("seed")
    header = [*fixed, *names, *(f"result_{name}" for name in of["metrics"])]
    header += [*(f"test_{name}" for name in of["test"]), "error"]
    lines = []
    for trial in summary["trials"]:
        values = [trial[name] for name in fixed] + [trial["parameters"][name] for name in names]
        values += [trial[key].get(name) for key, names_of in of.items() for name in names_of]
        lines.append([*values, " / ".join(trial["error"])])
    return text_tables.write(header, lines, text_tables.CSV)


def write(folder: str, summary: dict) -> None:
    """Writes ``sweep_results.md``, ``.csv`` and ``.json`` of a `summarize` to a folder."""
    file_io.write_text(os.path.join(folder, f"{NAME}.md"), to_markdown(summary))
    file_io.write_text(os.path.join(folder, f"{NAME}.csv"), to_csv(summary))
    file_io.write_json(os.path.join(folder, f"{NAME}.json"), summary)


# --- a sweep in a folder --------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Sweep:
    """A sweep and its table.

    Attributes:
      plan: its description, see `sweep_plan.Plan.describe`.
      summary: see `sweep_comparison.add`.
    """

    folder: str
    plan: dict
    summary: dict


def read_sweep(folder: str) -> Sweep:
    """Reads the sweep of a folder."""
    plan, trials = sweep_journal.read(folder)
    with damage_named(os.path.join(folder, sweep_journal.NAME)):
        table = summarize(plan, trials)
        summary = sweep_comparison.add(table, difference=find_difference(folder, trials))
        settings = dict(plan["settings"])
    return Sweep(folder, {**plan, "settings": settings}, summary)


def axes_of(sweep: Sweep) -> list[str]:
    """Returns the parameters with more than one value in a sweep, most values first."""
    points = sweep.summary["points"]
    counts = {
        name: len({repr(point["parameters"].get(name)) for point in points})
        for name in sweep.summary["parameters"]
    }
    return [name for name in sorted(counts, key=lambda n: -counts[n]) if counts[name] > 1]


def scored_points(sweep: Sweep) -> list[dict]:
    """Returns the points of a sweep that have a mean score, see `summarize`."""
    return [point for point in sweep.summary["points"] if point["mean"] is not None]


def grid_of(sweep: Sweep, names: Sequence[str]) -> tuple[list, list] | None:
    """Returns the mean scores over two parameters for a heat map.

    Args:
      names: the parameters of the columns and of the rows.

    Returns:
      ((values of the columns, values of the rows), [rows, columns] of means over all other
      parameters, None without a score), or None if there are too many values for a grid, such
      as those of a random search.
    """
    if any(isinstance(sweep.plan["parameters"].get(name), dict) for name in names):
        return None  # drawn from a range
    points = scored_points(sweep)
    values = [_sorted({point["parameters"][name] for point in points}) for name in names]
    num_columns, num_rows = map(len, values)
    if max(num_columns, num_rows) > 16 or len(points) < 0.5 * num_columns * num_rows:
        return None
    cells: dict[tuple[object, ...], list[float]] = {}
    for point in points:
        key = tuple(point["parameters"][name] for name in names)
        cells.setdefault(key, []).append(point["mean"])
    means = {key: sum(scores) / len(scores) for key, scores in cells.items()}
    return values, [[means.get((c, r)) for c in values[0]] for r in values[1]]


def _sorted(values: Iterable[Any]) -> list:
    """Returns values of a parameter in order, numbers before texts."""
    return sorted(values, key=lambda value: (isinstance(value, str), value))
