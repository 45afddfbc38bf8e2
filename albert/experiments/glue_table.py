"""The table of a sweep over GLUE tasks: scores per task, over seeds if there are several."""

import dataclasses
import math
import os
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

from albert.experiments import (
    example_statistics,
    runs,
    seed_runs,
    statistics,
    sweep,
    sweep_journal,
    sweep_results,
    text_tables,
)
from albert.io import file_io
from albert.tasks import glue
from albert.training import evaluation_basis, results, run_record

DONE, NOT_RUN = "done", "not run"
NAME = runs.GLUE_TABLE
_COLUMNS = ("task", "metric", "best step", "score", "state")


def read_metrics(folder: str, step: int) -> dict:
    """Reads {metric: value} for a step in the ``eval_results.txt`` of a folder; {} if it has none.

    Undefined values are None.
    """
    for block in results.read_blocks(folder):
        if block.step == step:
            return run_record.plain(block.metrics)
    return {}


def read_task(sweep_dir: str, name: str, trials: Iterable[sweep_journal.Trial]) -> dict:
    """Reads the row of one task.

    Args:
      name: name of the task in the sweep, which is also the name of its folder.
      trials: all trials; those of this task are called ``name`` or ``name/seed_…``.

    Returns:
      dict: task, metric, state; best_step and score (None without an evaluation); metrics; remarks
      on the score. With several seeds, score and metrics are means over the runs that have learned
      (all runs if none has); deviation and interval (of 95%; None for one score or without
      SciPy), scores by seed, num_seeds and restarts are added.
    """
    row: dict[str, Any] = {"task": name, "best_step": None, "score": None, "metrics": {}}
    try:
        row["metric"] = glue.get_task(name).best_metric
    except file_io.InputError:
        row["metric"] = None  # its own run has failed and says why
    own = [trial for trial in trials if name in (trial.name, os.path.dirname(trial.name))]
    row["state"] = _state(sweep_dir, own)
    row["remarks"] = sweep_results.remarks(own, results.is_loss(row["metric"] or ""))
    if own and own[0].seed is not None:
        row.update(_over_seeds(sweep_dir, own))
    elif row["state"] != NOT_RUN:
        row["best_step"], row["score"], row["metrics"] = _scores(sweep_dir, own[0])
    return row


def _scores(
    sweep_dir: str, trial: sweep_journal.Trial
) -> tuple[int | None, float | None, dict[str, float]]:
    """Reads (best step, score, {metric: value}) of one run, (None, None, {}) if it was not
    evaluated.
    """
    folder = os.path.join(sweep_dir, trial.name)
    best = results.read_trial(folder)
    if best is None:
        return None, None, {}
    score = None if math.isnan(best.best_value) else best.best_value
    return best.best_step, score, read_metrics(folder, best.best_step)


def _over_seeds(sweep_dir: str, trials: Sequence[sweep_journal.Trial]) -> dict[str, Any]:
    """Returns the entries of `read_task` for the trials of a task with several seeds."""
    counted = sweep_results.counted(trials)
    rows = {trial.seed: _scores(sweep_dir, trial) for trial in counted}
    rows = {seed: row for seed, row in rows.items() if row[1] is not None}
    scores = {str(seed): score for seed, (_, score, _) in rows.items() if score is not None}
    summary = statistics.Summary.from_scores(list(scores.values()))
    metrics = [row[2] for row in rows.values()]
    metrics = [{k: value for k, value in row.items() if value is not None} for row in metrics]
    shared = set.intersection(*map(set, metrics)) if metrics else ()
    return {
        "score": summary.mean,
        "deviation": summary.deviation,
        "interval": summary.interval,
        "scores": scores,
        "num_seeds": len(trials),
        "restarts": sum(seed_runs.count_restarts(os.path.join(sweep_dir, t.name)) for t in trials),
        "metrics": {key: fmean(row[key] for row in metrics) for key in sorted(shared)},
    }


def _state(sweep_dir: str, trials: Sequence[sweep_journal.Trial]) -> str:
    """Returns the first state that is not `DONE`, with the path of the log; else `DONE`."""
    for trial in trials:
        if trial.state == sweep_journal.WAITING:
            return NOT_RUN
        if trial.state != sweep_journal.DONE:
            is_failed = trial.state == sweep_journal.FAILED
            state = trial.state if is_failed else sweep_journal.INTERRUPTED
            return f"{state}; log: {sweep.log_of(sweep_dir, trial.name)}"
    return DONE if trials else NOT_RUN


def _rows(sweep_dir: str, names: Iterable[str]) -> list[dict[str, Any]]:
    """Reads the rows of tasks of a sweep, one `read_task` each.

    A name in another case than that of its trials is theirs, as `glue.get_task` ignores case.

    Raises file_io.InputError if the folder holds no sweep, or a name is neither a GLUE task nor a
    trial of the sweep.
    """
    trials = sweep_journal.read(sweep_dir)[1]
    own = {name for trial in trials for name in (trial.name, os.path.dirname(trial.name))}
    by_lower = {name.lower(): name for name in sorted(own)}
    found = [name if name in own else by_lower.get(name.lower(), name) for name in names]
    for name in found:
        if name not in own:
            glue.get_task(name)
    return [read_task(sweep_dir, name, trials) for name in found]


def summarize(sweep_dir: str, names: Iterable[str], baseline: str | None = None) -> dict:
    """Returns the rows of the tasks and the mean score of those that are done.

    Args:
      names: tasks, in the order of the rows.
      baseline: folder of another sweep over GLUE tasks.

    Returns:
      dict: tasks (list of `read_task`), average (None if no task is done), num_averaged. With
      several seeds, tasks and SciPy: interquartile_mean of their scores; with a baseline: baseline
      (its folder) and probability_of_improvement. Both are the fields of `statistics.Estimate` and
      tasks.
    """
    names = list(names)
    rows = _rows(sweep_dir, names)
    scores = [row["score"] for row in rows if row["state"] == DONE and row["score"] is not None]
    average = sum(scores) / len(scores) if scores else None
    summary = {"tasks": rows, "average": average, "num_averaged": len(scores)}
    own = _scores_by_task(rows)
    if len(own) > 1 and statistics.is_installed():
        estimate = example_statistics.interquartile_mean(_matrix(own, own))
        summary["interquartile_mean"] = {**dataclasses.asdict(estimate), "tasks": [*own]}
    if baseline is not None:
        summary["baseline"] = baseline
        _check_same_evaluation(sweep_dir, baseline, own)
        summary["probability_of_improvement"] = _improvement(own, baseline, names)
    return summary


def _scores_by_task(rows: Iterable[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Returns {task: {seed: score}} of rows of `read_task` whose runs over seeds have scores."""
    return {row["task"]: row["scores"] for row in rows if row.get("scores")}


def _matrix(scores: dict[str, dict[str, float]], names: Iterable[str]) -> list[tuple[float, ...]]:
    """Returns {task: {seed: score}} as [seeds, tasks in the order of `names`].

    Where tasks have different numbers of seeds, these are the first few.
    """
    columns = [list(scores[name].values()) for name in names]
    return list(zip(*columns, strict=False))


def _check_same_evaluation(sweep_dir: str, baseline: str, names: Iterable[str]) -> None:
    """Rejects a baseline, the folder of another sweep, whose runs were evaluated on other data."""
    for name in names:
        folders = [
            path
            for folder in (sweep_dir, baseline)
            for path in seed_runs.folders_of_runs(os.path.join(folder, name))
        ]
        evaluation_basis.check_same(folders, list(map(run_record.read_basis, folders)))


def _improvement(
    own: dict[str, dict[str, float]], baseline: str, names: Sequence[str]
) -> dict[str, Any]:
    """Returns the probability that a run is better than one of the baseline on a random task.

    It has the fields of `statistics.Estimate`, and the tasks that both sweeps have.

    Args:
      own: {task: {seed: score}}.
      baseline: folder of the other sweep.
      names: names of the tasks.
    """
    others = _scores_by_task(_rows(baseline, names))
    shared = [name for name in own if name in others]
    if not shared:
        raise file_io.InputError(
            f"{baseline}: expected scores over seeds of {' '.join(own) or 'a task'} to compare "
            f"with, found those of {' '.join(others) or 'no task'}: both sweeps need several seeds"
        )
    estimate = example_statistics.probability_of_improvement(
        _matrix(others, shared), _matrix(own, shared)
    )
    return {**dataclasses.asdict(estimate), "tasks": shared}


def state_text(row: dict) -> str:
    """Returns the state of a task and the remarks on its score; `row`: from `read_task`."""
    return "; ".join([row["state"], *row.get("remarks", ())])


def to_markdown(summary: dict) -> str:
    """Returns the result of `summarize` as a table in Markdown."""
    repeated = any("num_seeds" in row for row in summary["tasks"])
    columns = [
        *_COLUMNS[:-1],
        *(["interval of 95%", "deviation", "seeds"] if repeated else []),
        _COLUMNS[-1],
    ]
    cells = []
    for row in summary["tasks"]:
        best = "-" if row["best_step"] is None else str(row["best_step"])
        line = [row["task"], row["metric"] or "-", best, text_tables.number(row["score"])]
        if repeated:
            line.append(text_tables.interval(*(row.get("interval") or (None, None))))
            line.append(text_tables.number(row.get("deviation")))
            line.append(f"{len(row.get('scores', ()))} of {row.get('num_seeds', 0)}")
        cells.append([*line, state_text(row)])
    tasks_text = f"{summary['num_averaged']} of {len(cells)} tasks"
    gap = ["", "", ""] if repeated else []
    cells.append(["average", "", "", text_tables.number(summary["average"]), *gap, tasks_text])
    table = text_tables.write(columns, cells)
    notes = _notes(summary) if repeated else []
    return "\n".join([table, *notes, ""]) if notes else table


def _notes(summary: dict[str, Any]) -> list[str]:
    """Returns sentences about runs that the means of `summarize` omit, and missing intervals."""
    notes = []
    for row in summary["tasks"]:
        count = row.get("num_seeds", 0) - len(row.get("scores", ()))
        if row.get("restarts"):
            notes.append(
                f"{row['task']}: {row['restarts']} restarts with other seeds after attempts that "
                "did not learn; the scores are those of the attempts that did."
            )
        if count:
            notes.append(
                f"{row['task']}: {count} of {row['num_seeds']} runs have no score in the mean, as "
                "they failed, did not learn or have not ended; it is the mean of the others."
            )
    if not statistics.is_installed():
        notes.append(f"{statistics.NOT_INSTALLED}.")
    if "interquartile_mean" in summary:
        text = _estimate_text(summary["interquartile_mean"])
        notes.append(f"Mean of the middle half of all scores: {text}.")
    if "baseline" in summary:
        text = _estimate_text(summary["probability_of_improvement"])
        notes.append(
            f"Probability that a run is better than one of {summary['baseline']} on a task drawn "
            f"at random: {text}."
        )
    return notes


def _estimate_text(estimate: dict[str, Any]) -> str:
    """Returns text of the fields of a `statistics.Estimate` and its "tasks", a list of names."""
    text = f"{estimate['estimate']:.4f}"
    if estimate["low"] is not None:
        text += f", interval of 95% {estimate['low']:.4f} to {estimate['high']:.4f}"
    text += f" ({', '.join(estimate['tasks'])}; seeds: {estimate['n']}"
    return f"{text}; {estimate['note']})" if estimate["note"] else f"{text})"
