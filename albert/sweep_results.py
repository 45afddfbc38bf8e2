"""Scores of a sweep's trials, and its table as Markdown, CSV and JSON.

Nothing in here depends on the time, so a sweep that was killed and went on ends with the same
files as one that was not.
"""

import csv
import io
import math
import os
import statistics

import numpy as np

from albert import file_io, results, sweep_journal, sweep_plan

NAME = "sweep_results"
SEEDS = "seeds.json"  # of a run that repeats itself over seeds
SCORE = "score"  # what it is called without `sweep_plan.Plan.metric`


def _finite(value):
    return value if value is not None and math.isfinite(value) else None


def read_score(folder, metric):
    """The score of a run from the files of its folder: that of its best checkpoint.

    A run over several seeds has the mean over them.

    Args:
      folder: output folder of the run.
      metric: key of its results; None: the one that its best checkpoint is picked by.

    Returns:
      (step, score, all results of that step); (None, None, {}) if it has not been evaluated.

    Raises:
      file_io.InputError: the results do not hold the metric, or are damaged.
    """
    several = os.path.join(folder, SEEDS)
    if file_io.exists(several):
        return _score_of_seeds(several, metric)
    trial, blocks = results.read_trial(folder), results.read_blocks(folder)
    wanted = trial.best_step if trial else (blocks[-1].step if blocks else None)
    found = next((block.metrics for block in blocks if block.step == wanted), {})
    found = {key: _finite(value) for key, value in found.items()}
    if metric is None:
        return wanted, _best_value(trial, found), found
    if blocks and metric not in found:
        raise file_io.InputError(
            f"there is no {metric} among the results of {folder}: {', '.join(sorted(found))}"
        )
    return wanted, found.get(metric), found


def _best_value(trial, found):
    """The value of a `results.Trial`, if it is finite, with the digits that the results have."""
    value = _finite(trial.best_value) if trial else None
    same = [v for v in found.values() if None not in (v, value) and np.float32(v) == value]
    return same[0] if same else value


def _score_of_seeds(path, metric):
    content = file_io.read_json(path, "results over seeds")
    try:
        name, mean, deviation = (content[key] for key in ("metric", "mean", "deviation"))
    except (KeyError, TypeError) as error:
        raise file_io.InputError(f"{path}: expected an object with metric and mean") from error
    if metric not in (None, name):
        raise file_io.InputError(
            f"{path} has the mean of {name}, not of {metric}: leave the metric out"
        )
    return None, _finite(mean), {name: _finite(mean), "deviation": deviation}


def read_curve(folder, metric):
    """{step: finite value of a metric} of the evaluations of a run so far, by rising steps."""
    found = {block.step: _finite(block.values.get(metric)) for block in results.read_blocks(folder)}
    return {step: value for step, value in found.items() if step and value is not None}


# --- the table ----------------------------------------------------------------------------------


def summarize(plan, trials):
    """The table of a sweep.

    Args:
      plan: `sweep_plan.Plan.describe`.
      trials: its `sweep_journal.Trial`s.

    Returns:
      dict: metric, minimize, parameters (names), points and trials in the order of their numbers,
      and the place of the best point. A point has the values of its parameters, the numbers of its
      trials and how many of them are done, mean and deviation of their scores (of a sample, so None
      for one), and the state of the first that is not done.
    """
    repeats = max(1, len(plan["seeds"]))
    starts = range(0, len(trials), repeats)
    points = [_point(trials[start : start + repeats]) for start in starts]
    ranked = [place for place in order(points, plan["minimize"]) if _ranks(points[place])]
    return {
        "metric": plan["metric"] or _name_of_score(trials),
        "minimize": plan["minimize"],
        "parameters": plan["order"],
        "points": points,
        "best": ranked[0] if ranked else None,
        "trials": [_trial(trial) for trial in trials],
    }


def _name_of_score(trials):
    """The result that is the score of every trial; they do not say by what they pick the best."""
    names = None
    for trial in trials:
        if trial.metrics and trial.value is not None:
            same = {k for k, v in trial.metrics.items() if v == trial.value}
            names = same if names is None else names & same
    return min(names) if names else SCORE


def _trial(trial):
    fields = ("number", "name", "parameters", "seed", "state", "step", "value", "metrics", "error")
    return {name: getattr(trial, name) for name in fields}


def _point(trials):
    done = [trial.value for trial in trials if trial.state == sweep_journal.DONE]
    scores = [value for value in done if value is not None]
    states = [trial.state for trial in trials if trial.state != sweep_journal.DONE]
    return {
        "name": _name(trials),
        "parameters": trials[0].parameters,
        "trials": [trial.number for trial in trials],
        "num_done": len(done),
        "mean": statistics.fmean(scores) if scores else None,
        "deviation": statistics.stdev(scores) if len(scores) > 1 else None,
        "state": states[0] if states else sweep_journal.DONE,
        "error": next((trial.error for trial in trials if trial.error), []),
    }


def _name(trials):
    """Folder of the trials; numbers of several that have a folder each."""
    first, last = trials[0], trials[-1]
    if first.seed is not None and not first.parameters:
        return os.path.dirname(first.name)
    return first.name if first is last else f"{first.name} to {last.number}"


def _ranks(point):
    return point["state"] == sweep_journal.DONE and point["mean"] is not None


def order(points, minimize):
    """Places of the points, best first; those of which a trial is missing at the end."""
    sign = 1 if minimize else -1
    return sorted(
        range(len(points)),
        key=lambda i: (not _ranks(points[i]), _sign(points[i], sign), i),
    )


def _sign(point, sign):
    return sign * point["mean"] if point["mean"] is not None else math.inf


def number(value):
    """A score as tables show it."""
    return "-" if value is None else f"{value:.4f}"


def rows(summary):
    """Header and rows of the table of points, best first, as texts."""
    names = summary["parameters"]
    repeated = any(len(point["trials"]) > 1 for point in summary["points"])
    header = ["trial", *names, summary["metric"]]
    header += ["deviation", "done"] if repeated else []
    lines = []
    for place in order(summary["points"], summary["minimize"]):
        point = summary["points"][place]
        line = [point["name"]]
        line += [sweep_plan.text_of(point["parameters"][name]) for name in names]
        line.append(number(point["mean"]))
        if repeated:
            line += [number(point["deviation"]), f"{point['num_done']} of {len(point['trials'])}"]
        said = [point["state"], *(text.removeprefix("error: ") for text in point["error"][:1])]
        lines.append([*line, ": ".join(said)])
    return [*header, "state"], lines


def to_markdown(summary):
    """The table of points; aligned, so that it can be read as it is."""
    header, lines = rows(summary)
    cells = [[_cell(text) for text in line] for line in (header, *lines)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    cells.insert(1, ["-" * width for width in widths])
    return "".join(
        "| " + " | ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) + " |\n"
        for line in cells
    )


def _cell(text):
    return " ".join(text.replace("|", "\\|").split())


def to_csv(summary):
    """A row for each trial: its parameters, state and score, and all results of that step."""
    metrics = sorted({name for trial in summary["trials"] for name in trial["metrics"]})
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    names = summary["parameters"]
    fixed = ["number", "name", "seed", "state", "step", "value"]
    if "seed" in names:
        fixed.remove("seed")
    writer.writerow([*fixed, *names, *(f"result_{name}" for name in metrics), "error"])
    for trial in summary["trials"]:
        values = [trial[name] for name in fixed] + [trial["parameters"][name] for name in names]
        values += [trial["metrics"].get(name) for name in metrics]
        writer.writerow(["" if v is None else v for v in (*values, " / ".join(trial["error"]))])
    return file.getvalue()


def write(folder, summary):
    """Writes ``sweep_results.md``, ``.csv`` and ``.json``."""
    file_io.write_text(os.path.join(folder, f"{NAME}.md"), to_markdown(summary))
    file_io.write_text(os.path.join(folder, f"{NAME}.csv"), to_csv(summary))
    file_io.write_json(os.path.join(folder, f"{NAME}.json"), summary)
