"""The pages of reports: a run, several runs, a sweep, a GLUE table."""

import datetime
import json
import os
import shlex

from albert.experiments import (
    charts,
    glue_table,
    report_data,
    report_html,
    report_predictions,
    sweep_plan,
    sweep_results,
)
from albert.io import file_io, tables
from albert.training import results, run_record

# Dev scores in percent: of google-research/albert's README for its v2 models, of BERT base with the
# inputs of RoBERTa (Liu et al. 2019, table 2, documents not mixed), and of Lambert (BERT large).
PUBLISHED = {
    "base v2": {"MNLI": 84.6, "SST-2": 92.9},
    "large v2": {"MNLI": 86.5, "SST-2": 94.9},
    "xlarge v2": {"MNLI": 87.9, "SST-2": 95.4},
    "xxlarge v2": {"MNLI": 90.6, "SST-2": 96.8},
    "BERT base, RoBERTa's inputs": {"MNLI": 84.7, "SST-2": 92.7},
    "Lambert": {"MNLI": 89.0},
}
# Name in the lines of training, title of its figure, what the figure says.
_PROGRESS = (
    ("learning_rate", "Learning rate", "at each report"),
    ("gradient_norm", "Gradient norm", "before clipping, mean of the steps of a report"),
    ("examples_per_second", "Speed", "without evaluating and saving"),
)
_MOST_FAMILIES = 8
_KINDS = {"train": "training", "eval": "evaluation"}
_MOST_FLAGS = 12  # columns of settings in a table of runs


def _shown(value):
    """A setting as text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# --- one run ------------------------------------------------------------------------------------


def run_page(run):
    """HTML of the report on one `report_data.Run`."""
    return report_html.page(
        f"{_title(run)}: {run.name}",
        [
            _facts(run),
            report_html.section("Curves", *_curves_of_run(run)),
            report_html.section("Attempts that were given up", *_attempts(run)),
            report_html.section("Evaluations", _evaluations(run)),
            report_html.section("Predictions", *_predictions(run)),
            report_html.section("Settings", *_settings(run)),
        ],
    )


def _title(run):
    script, task = run.task
    return f"{script} {task}" if task and task not in script else script


def _facts(run):
    record, host = run.record, run.record["host"]
    parameters = record["parameters"] or {}
    counts = (parameters.get("total"), parameters.get("trained"))
    versions = ", ".join(f"{k} {v}" for k, v in record["versions"].items() if v)
    machine = f"{host['name']}: {host['processor']}, {host['cores']} cores"
    found = [
        ("folder", run.folder),
        ("status", record["status"]),
        ("result", _said_result(run) if run.result else ""),
        ("test data", _said_test(run)),
        ("started", record["started"]),
        ("took", _duration(record)),
        ("sessions", len(record["sessions"]) if len(record["sessions"]) > 1 else ""),
        ("parameters", counts[0] and f"{counts[0]:,}, of which {counts[1]:,} were trained"),
        ("machine", machine),
        ("versions", versions),
        ("commit", record["git_commit"]),
    ]
    words = report_html.program(shlex.join(record["command"]))
    warning = ""
    if record["status"] != run_record.DONE:
        said = record.get("message") or "it has not ended by itself"
        warning = report_html.paragraph(f"This run is {record['status']}: {said}", "warning")
    return warning + report_html.pairs(found) + words


def _said_result(run):
    score = "unknown" if run.score is None else f"{run.score:.6g}"
    said = f"{run.score_name} {score} at step {run.result.get('step')}"
    return "; ".join([said, *run.remarks])


def _said_test(run):
    if run.test_score is None:
        return ""
    path = run.record["inputs"].get("predict_data", {}).get("path")
    said = f"{run.best_metric} (test) {run.test_score:.6g} at step {run.record['test']['step']}"
    return f"{said} of {path}" if path else said


def _duration(record):
    """Time of all sessions, as h:mm:ss; of killed ones it is not known. "" if none has ended."""
    seconds = 0
    for session in record["sessions"]:
        if session["ended"]:
            ends = [datetime.datetime.fromisoformat(session[k]) for k in ("started", "ended")]
            seconds += (ends[1] - ends[0]).total_seconds()
    shown = str(datetime.timedelta(seconds=round(seconds))) if seconds else ""
    is_whole = all(session["ended"] for session in record["sessions"])
    return shown if is_whole or not shown else f"at least {shown}"


def _curves_of_run(run):
    by_type = report_data.entity_scores(run)
    shown = {name for names in by_type.values() for name in names.values()}
    families = [
        (family, names)
        for family, names in report_data.score_families(run)
        if shown.isdisjoint(names.values())
    ]
    found = []
    for family, names in families[:_MOST_FAMILIES]:
        series = [(_KINDS[kind], *run.curve(kind, name)) for kind, name in names.items()]
        marks = []
        if run.best_metric in names.values() and run.score is not None:
            step = run.result["step"]
            marks = [(step, run.score, f"best: {run.score:.4g} at step {step}")]
        title = family.replace("_", " ")
        svg = charts.lines(title, series, title, marks, log="loss" in family)
        found.append((f"{title}, in {' and '.join(_KINDS[kind] for kind in names)}", svg))
    found += _curves_of_types(run, by_type)
    for name, title, said in _PROGRESS:
        steps, values = run.curve("train", name)
        if steps:
            words, log = name.replace("_", " "), name == "gradient_norm"
            svg = charts.lines(title, [(words, steps, values)], words, log=log)
            found.append((f"{title}, {said}", svg))
    yield report_html.figures(found)
    if left := [family for family, _ in families[_MOST_FAMILIES:]]:
        yield _note(f"Only in the table of evaluations: {', '.join(left)}.")


def _curves_of_types(run, by_type):
    """Figures of the scores of types of entities; each names as many types as it can."""
    found, most = [], charts.MOST_NAMED
    for score, names in by_type.items():
        kinds = list(names)
        for start in range(0, len(kinds), most):
            some = kinds[start : start + most]
            series = [(kind, *run.curve("eval", names[kind])) for kind in some]
            title = f"{score} by type of entity"
            if len(kinds) > most:
                title += f", {start + 1} to {start + len(some)} of {len(kinds)}"
            svg = charts.lines(title, series, score)
            found.append((f"{title}, in evaluation", svg))
    return found


def _attempts(run):
    """Attempts that were given up, and their curves beside those of the one that was not."""
    found = []
    for attempt in run.given_up:
        said = f"seed {attempt['seed']}, at step {attempt['step']} ({attempt['share']:.0%})"
        # Where all were given up, the message of the run has told why.
        if run.given_up[-1]["message"] not in run.record.get("message", ""):
            said += f": {attempt['message']}"
        found.append((attempt["folder"], said))
    yield report_html.pairs(found)
    if attempts := run.attempts():
        yield report_html.figures(curves_together([*attempts, run], "attempts"))


def _evaluations(run):
    rows = [row for row in run.rows if row.get("kind") == "eval"]
    names = run.names("eval")
    if "eval_loss" in names and "loss" in names:
        names.remove("loss")  # the same by another name
    best = run.result.get("step")
    place = next((i for i, row in enumerate(rows) if row["step"] == best), None)
    lines = [[row["step"], *(row.get(name) for name in names)] for row in rows]
    return report_html.table(["step", *names], lines, place)


def _predictions(run):
    if predictions := report_predictions.read_predictions(run):
        source = report_predictions.read_source(run)
        yield from _compared(source, tables.PREDICTIONS, len(predictions.rows))
        yield from _classifier_predictions(predictions, source.name)
    if answers := report_predictions.read_answers(run):
        source = report_predictions.read_source(run)
        yield from _compared(source, "predictions.json", len(answers.final))
        yield from _answers(answers, source.name)


def _compared(source, name, count):
    """Which files are compared, and whether they still belong together."""
    examples = "1 example" if count == 1 else f"{count:,} examples"
    yield report_html.paragraph(f"{name} of this run beside {source.path}: {examples}.")
    yield report_html.paragraph(source.warning, "warning") if source.warning else ""


def _answers(answers, name):
    curve = report_predictions.threshold_curve(answers)
    if curve:
        svg = charts.threshold_curve(*curve, answers.threshold)
        caption = (
            f"Scores on {name}, where questions whose null odds are below the threshold are "
            "answered: on the left none is, on the right all are."
        )
        yield report_html.figures([(caption, svg)], wide=True)
    header, rows = report_predictions.worst_answers(answers)
    if not rows:
        return
    yield report_html.heading(f"Worst answers to {name}")
    if answers.odds:
        yield _note(
            "The probability is that of what was predicted: of no answer, or of there being an "
            "answer and of this text for it."
        )
    yield report_html.table(header, rows)


def _classifier_predictions(predictions, name):
    if predictions.labels:
        svg = charts.confusion(predictions.labels, predictions.counts())
        caption = f"How often each label was predicted for examples of each label, in {name}."
    else:
        pairs = zip(*[(right, guess) for _, right, guess, _ in predictions.rows], strict=True)
        svg = charts.scatter("Predictions", *pairs, "label", "prediction")
        caption = f"Predicted numbers against the labels of {name}; on the line they are the same."
    yield report_html.figures([(caption, svg)], wide=True)
    if rows := predictions.worst():
        yield report_html.heading(f"Worst examples of {name}")
        yield report_html.table(["text", "right", "predicted", "probability"], rows)


def _settings(run):
    flags = run.record["flags"].items()
    given = [[n, _shown(f["value"]), f["source"]] for n, f in flags if f["source"] != "default"]
    left = [[name, _shown(f["value"])] for name, f in flags if f["source"] == "default"]
    yield report_html.table(["setting", "value", "from"], given)
    yield report_html.folded(
        f"{len(left)} settings at their defaults", report_html.table(["setting", "value"], left)
    )
    inputs = [
        [role, found.get("path"), found.get("bytes"), (found.get("sha256") or "")[:16]]
        for role, found in (run.record["inputs"] or {}).items()
    ]
    yield report_html.table(["input", "path", "bytes", "SHA-256 begins"], inputs)


# --- several runs -------------------------------------------------------------------------------


def runs_page(runs, said=""):
    """HTML of the report that compares several `report_data.Run`s of one task; `said` of all."""
    flags = report_data.differing_flags(runs)
    shown, rest = flags[:_MOST_FLAGS], flags[_MOST_FLAGS:]
    metric = next((run.best_metric for run in runs if run.best_metric), "score")
    restarted = any(run.given_up for run in runs)
    tested = any(run.test_score is not None for run in runs)
    header = ["run", *shown, results.best_of(metric, [r.record.get("evaluated") for r in runs])]
    header += [f"{metric} (test)"] if tested else []
    header += ["step", "status", "took"]
    header += ["restarts"] if restarted else []
    rows = [
        [
            run.name,
            *(_shown(run.flag(name)) for name in shown),
            run.score,
            *([run.test_score] if tested else []),
            run.result.get("step"),
            "; ".join([run.record["status"], *run.remarks]),
            _duration(run.record),
            *([len(run.given_up)] if restarted else []),
        ]
        for run in runs
    ]
    notes = [report_html.paragraph(said)] if said else []
    notes += [report_html.paragraph(f"They also differ in {', '.join(rest)}.")] if rest else []
    if not flags:
        notes.append(report_html.paragraph("All settings are the same."))
    return report_html.page(
        f"{_title(runs[0])}: {len(runs)} runs",
        [
            report_html.section("What differs", report_html.table(header, rows), *notes),
            report_html.section("Curves together", report_html.figures(curves_together(runs))),
        ],
    )


def curves_together(runs, called="runs"):
    """Figures with a line for each run; `called` says what they are."""
    metric = next((run.best_metric for run in runs if run.best_metric), None)
    wanted = [("train", "loss", "Training loss"), ("eval", "eval_loss", "Evaluation loss")]
    if metric:
        wanted.insert(0, ("eval", metric, metric.replace("_", " ")))
    wanted += [("train", name, title) for name, title, _ in _PROGRESS]
    found = []
    for kind, name, title in wanted:
        series = [(run.name, *run.curve(kind, name)) for run in runs]
        series = [line for line in series if line[1]]
        if series:
            log = "loss" in name or name == "gradient_norm"
            svg = charts.lines(title, series, name.replace("_", " "), log=log)
            found.append((f"{title} of {len(series)} {called}", svg))
    return found


# --- sweeps -------------------------------------------------------------------------------------


def sweep_page(sweep, axes=None):
    """HTML of the report on a `report_data.Sweep`.

    Args:
      sweep: it.
      axes: the two parameters of the heat map; by default those with the most values.

    Raises:
      file_io.InputError: a parameter is none of the sweep's.
    """
    summary = sweep.summary
    axes = _checked_axes(sweep, axes)
    header, rows = sweep_results.rows(summary)
    is_best = 0 if summary["best"] is not None else None
    ranked = sweep_results.order(summary["points"], summary["minimize"])
    numbers = [n for place in ranked for n in summary["points"][place]["trials"]]
    runs = [sweep.runs[number] for number in numbers if number in sweep.runs]
    return report_html.page(
        f"{sweep.plan['script']}: sweep {os.path.basename(os.path.abspath(sweep.folder))}",
        [
            _sweep_facts(sweep),
            report_html.section(
                "Parameters", report_html.figures(_sweep_figures(sweep, axes), wide=True)
            ),
            report_html.section("Table", report_html.table(header, rows, is_best)),
            report_html.section("Curves together", report_html.figures(curves_together(runs))),
            report_html.section("Failures", _failures(summary)),
        ],
    )


def _checked_axes(sweep, axes):
    names = report_data.axes_of(sweep)
    if axes is None:
        return names[:2]
    for name in axes:
        if name not in names:
            raise file_io.InputError(
                f"heat_map: {name!r} is no parameter with several values of {sweep.folder}; there "
                f"are {', '.join(names) or 'none'}"
            )
    if len(set(axes)) != 2:
        raise file_io.InputError(f"heat_map: expected two parameters, found {', '.join(axes)}")
    return axes


def _sweep_facts(sweep):
    summary = sweep.summary
    states = [trial["state"] for trial in summary["trials"]]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    best = summary["best"]
    found = [("folder", sweep.folder), ("method", sweep.plan["method"]), ("trials", counts)]
    if best is not None:
        point = summary["points"][best]
        values = point["parameters"]
        pairs = [f"{n}={sweep_plan.text_of(values[n])}" for n in summary["parameters"]]
        said = f"{summary['metric']} {sweep_results.number(point['mean'])}"
        if point["deviation"] is not None:
            said += f" ± {sweep_results.number(point['deviation'])} over {point['num_done']} seeds"
        found.append(("best", f"{said} with {' '.join(pairs) or point['name']}"))
    fixed = [[name, value] for name, value in sweep.plan["settings"].items()]
    table = report_html.table(["setting", "value"], fixed)
    shown = report_html.folded("Settings of all trials", table) if fixed else ""
    return report_html.pairs(found) + shown


def _sweep_figures(sweep, axes):
    points = report_data.scored_points(sweep)
    metric, found = sweep.summary["metric"], []
    if len(points) < 2:
        return found
    scores = [point["mean"] for point in points]
    if len(axes) == 2:
        grid = report_data.grid_of(sweep, axes)
        if grid:
            values = [[sweep_plan.text_of(value) for value in side] for side in grid[0]]
            svg = charts.heat_map(axes, values, grid[1], metric)
            caption = f"Mean {metric} over all other parameters and seeds"
        else:
            xs, ys = ([point["parameters"][name] for point in points] for name in axes)
            svg = charts.points(axes, xs, ys, scores, metric)
            caption = f"{metric} of each point that was tried"
        found.append((caption, svg))
    names = [name for name in sweep.summary["parameters"] if name in report_data.axes_of(sweep)]
    if names:
        rows = [[point["parameters"][name] for name in names] for point in points]
        svg = charts.parallel_coordinates(names, rows, scores, metric)
        found.append((f"Each point that was tried, from its parameters to {metric}", svg))
    return found


def _failures(summary):
    rows = [[t["name"], "\n".join(t["error"])] for t in summary["trials"] if t["error"]]
    return report_html.table(["trial", "the end of its log"], rows)


# --- GLUE ---------------------------------------------------------------------------------------


def glue_page(folder):
    """HTML of the report on a folder of `run_glue.sh`."""
    path = os.path.join(folder, glue_table.NAME)
    summary = file_io.read_json(path, "results")
    with report_data.damage_named(path):
        return _glue_page(folder, summary)


def _glue_page(folder, summary):
    rows = [_glue_row(row) for row in summary["tasks"]]
    done = f"{summary['num_averaged']} of {len(rows)} tasks"
    average = summary["average"]
    mean = None if average is None else 100 * average
    rows.append(["average", "", mean, None, "", done, *[None] * len(PUBLISHED)])
    header = ["task", "metric", "score", "deviation", "seeds", "state"]
    header += [f"published: {name}" for name in PUBLISHED]
    note = (
        "Scores are percent of the dev data, of the best checkpoint of each run; correlations are "
        "times 100. Each published score of ALBERT v2 is one run and its best dev score over "
        "checkpoints saved every 100 steps, so a mean over seeds is lower; that of Lambert came "
        "out in two of three runs. Where there is none, none is published."
    )
    sweep = report_data.read_sweep(folder)
    curves = []
    for row in summary["tasks"]:
        runs = [run for run in sweep.runs.values() if row["task"] in run.name.split("/")]
        curves += _glue_curves(row, runs)
    return report_html.page(
        f"GLUE: {os.path.basename(os.path.abspath(folder))}",
        [
            report_html.section("Table", report_html.table(header, rows), _note(note)),
            report_html.section("Curves", report_html.figures(curves)),
            report_html.section("Failures", _failures(sweep.summary)),
        ],
    )


def _note(words):
    return report_html.paragraph(words, "note")


def _glue_row(row):
    def percent(value):
        return None if value is None else 100 * value

    seeds = f"{len(row['scores'])} of {row['num_seeds']}" if "num_seeds" in row else ""
    score, deviation = percent(row["score"]), percent(row.get("deviation"))
    state = glue_table.said_state(row)
    known = [scores.get(row["task"]) for scores in PUBLISHED.values()]
    return [row["task"], row["metric"], score, deviation, seeds, state, *known]


def _glue_curves(row, runs):
    series = [(run.name, *run.curve("eval", row["metric"])) for run in runs]
    series = [line for line in series if line[1]]
    if not series:
        return []
    title = f"{row['task']}: {row['metric']}"
    return [(title, charts.lines(title, series, row["metric"]))]
