"""Makes the pages of reports: a run, several runs, a sweep, a GLUE table.

The functions of this module collect the content of a page as data; the template
`report.html.j2` turns it into HTML. A section is its title and a list of blocks. A block is a dict
with the key "paragraph", "note", "warning", "heading", "program", "pairs" (names and values),
"figures" (captions and SVG; with "wide"), "table" (names of columns; with "rows" and "best", the
index of the highlighted row) or "folded" (a summary; with "table" and "rows").
"""

import dataclasses
import datetime
import importlib.resources
import json
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from albert.experiments import (
    charts,
    comparison,
    comparison_text,
    glue_table,
    predictions,
    report_curves,
    report_groups,
    run_summary,
    statistics,
    sweep_comparison,
    sweep_plan,
    sweep_results,
    text_tables,
)
from albert.experiments.report_curves import Block
from albert.experiments.runs import (
    AXES,
    STEPS,
    Axis,
    Run,
    RunGroup,
    check_axis,
    damage_named,
    differing_flags,
    recorded,
)
from albert.io import file_io
from albert.tasks.outcomes import Outcome
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
_SAME = 1.001  # ratio of costs up to which they are the same
_MAX_FLAGS = 12  # columns of settings in a table of runs


def check_installed() -> None:
    """Checks that the libraries of reports are installed."""
    charts.check_installed()
    try:
        import jinja2  # noqa: F401
    except ImportError as error:
        raise file_io.InputError("reports need jinja2: pip install jinja2") from error


def render(
    title: str, facts: Iterable[Block], sections: Iterable[tuple[str, Iterable[Block]]]
) -> str:
    """Renders the content of a page as HTML.

    Args:
      facts: blocks, see the docstring of this module.
      sections: titles and blocks; a section whose blocks are empty is omitted.
    """
    import jinja2

    template = importlib.resources.files("albert.experiments").joinpath("report.html.j2")
    environment = jinja2.Environment(autoescape=True, keep_trailing_newline=True)
    environment.filters |= {"column_kinds": _column_kinds, "cell": _cell}
    page = environment.from_string(template.read_text(encoding="utf-8"))
    return page.render(title=title, facts=facts, sections=sections)


def _column_kinds(rows: Iterable[text_tables.Cells]) -> list[str]:
    """Returns the CSS class of each column of a table: numbers, long texts or short texts."""
    return [_column_kind(column) for column in zip(*rows, strict=True)]


def _column_kind(column: Iterable[object]) -> str:
    values = [value for value in column if value not in (None, "")]
    if values and all(map(_is_number, values)):
        return "number"
    return "long" if any(len(str(value)) > 40 for value in values) else ""


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _cell(value: object) -> object:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else value


def _shown(value: object) -> str:
    """Returns a setting as text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# --- one run ------------------------------------------------------------------------------------


def run_page(run: Run, axis: Axis = STEPS) -> str:
    """Makes the HTML of the report on one `Run`."""
    check_axis([run], axis)
    return render(
        f"{_title(run)}: {run.name}",
        [*_failure(run), *({"paragraph": text} for text in run_summary.sentences(run))],
        [
            ("Scores of each label", _classes_of_run(run)),
            ("Probabilities", _probabilities(run)),
            ("Predictions", _predictions(run)),
            ("Curves", report_curves.run_curves(run, axis)),
            ("Attempts that were given up", _attempts(run, axis)),
            ("Evaluations", [_evaluations(run)]),
            ("Settings", _settings(run)),
            ("The run", _facts(run)),
        ],
    )


def _failure(run: Run) -> Iterator[dict[str, Any]]:
    """Yields a warning if the run has not finished."""
    record = run.record
    if record["status"] != run_record.DONE:
        message = record.get("message") or "the process did not finish"
        yield {"warning": f"This run is {record['status']}: {message}"}


def _title(run: Run) -> str:
    script, task = run.task
    return f"{script} {task}" if task and task not in script else script


def _facts(run: Run) -> list[dict[str, Any]]:
    record, host = run.record, run.record["host"]
    parameters = record["parameters"] or {}
    counts = (parameters.get("total"), parameters.get("trained"))
    cost = run_record.read_cost(run.folder)
    versions = ", ".join(f"{k} {v}" for k, v in record["versions"].items() if v)
    machine = f"{host['name']}: {host['processor']}, {host['cores']} cores"
    facts = [
        ("folder", run.folder),
        ("status", record["status"]),
        ("result", _result_text(run) if run.result else ""),
        ("test data", _test_text(run)),
        ("started", record["started"]),
        ("took", _duration(record)),
        ("sessions", len(record["sessions"]) if len(record["sessions"]) > 1 else ""),
        ("cost", cost.text().removeprefix("cost: ") if cost else ""),
        ("parameters", counts[0] and f"{counts[0]:,}, of which {counts[1]:,} were trained"),
        ("machine", machine),
        ("versions", versions),
        ("commit", record["git_commit"]),
    ]
    return [{"pairs": facts}, {"program": shlex.join(record["command"])}]


def _result_text(run: Run) -> str:
    score = results.UNDEFINED if run.score is None else f"{run.score:.6g}"
    result = f"{run.score_name} {score} at step {run.result.get('step')}"
    return "; ".join([result, *run.remarks])


def _test_text(run: Run) -> str:
    if run.test_score is None:
        return ""
    path = run.record["inputs"].get("predict_data", {}).get("path")
    step = run.record["test"]["step"]
    result = f"{run.best_metric} (test) {run.test_score:.6g} at step {step}"
    return f"{result} of {path}" if path else result


def _duration(record: dict[str, Any]) -> str:
    """Returns the time of all ended sessions as h:mm:ss; "" if none has ended."""
    seconds = 0.0
    for session in record["sessions"]:
        if session["ended"]:
            ends = [datetime.datetime.fromisoformat(session[k]) for k in ("started", "ended")]
            seconds += (ends[1] - ends[0]).total_seconds()
    text = str(datetime.timedelta(seconds=round(seconds))) if seconds else ""
    is_whole = all(session["ended"] for session in record["sessions"])
    return text if is_whole or not text else f"at least {text}"


def _attempts(run: Run, axis: Axis) -> Iterator[Block]:
    """Yields the abandoned attempts, and their curves together with those of the final run."""
    pairs = []
    for attempt in run.given_up:
        words = f"seed {attempt['seed']}, at step {attempt['step']} ({attempt['share']:.0%})"
        # If all were abandoned, the message of the run already says why.
        if run.given_up[-1]["message"] not in run.record.get("message", ""):
            words += f": {attempt['message']}"
        pairs.append((attempt["folder"], words))
    yield {"pairs": pairs}
    if attempts := run.attempts():
        groups = [RunGroup(each.name, each.folder, (each,)) for each in (*attempts, run)]
        yield from report_curves.together(groups, axis, "attempts")


def _evaluations(run: Run) -> dict[str, Any]:
    rows = [row for row in run.rows if row.get("kind") == "eval"]
    names = run.names("eval")
    if "eval_loss" in names and "loss" in names:
        names.remove("loss")  # a duplicate under another name
    names = [name for name in names if not name.startswith("support_")]  # the same in each row
    best = run.result.get("step")
    place = next((i for i, row in enumerate(rows) if row["step"] == best), None)
    lines = [[row["step"], *(row.get(name) for name in names)] for row in rows]
    return {"table": ["step", *names], "rows": lines, "best": place}


def _classes_of_run(run: Run) -> Iterator[Block]:
    """Yields the scores of each class in the evaluation of the best checkpoint, if known."""
    yield from _classes([results.ClassCount(**row) for row in run.record.get("classes", ())])


def _classes(classes: Sequence[results.ClassCount]) -> Iterator[Block]:
    """Yields the scores of classes, the worst first, and a warning about those never predicted."""
    if remark := results.remark_on_classes(classes):
        yield {"warning": f"{remark[:1].upper()}{remark[1:]}."}
    if rows := results.worst_first(classes):
        yield {
            "table": ["label", "precision", "recall", "F1", "support", "predicted", ""],
            "rows": [
                [r.name, r.precision, r.recall, r.f1, r.labels, r.predictions, r.note] for r in rows
            ],
        }


def _probabilities(run: Run) -> Iterator[dict[str, Any]]:
    """Yields how far the probabilities can be trusted, and where the model abstains."""
    found = run.record.get("calibration") or {}
    if promise := found.get("abstention"):
        kind = "warning" if promise["threshold"] is None else "paragraph"
        yield {kind: f"{promise['text']}."}
    if chosen := found.get("thresholds"):
        keys = ("name", "threshold", "support", "f1", "f1_cross_fitted")
        yield {"paragraph": f"{chosen['text']}."}
        yield {
            "table": ["label", "threshold", "support", "F1 at 0.5", "F1, cross-fitted"],
            "rows": [[row[key] for key in keys] for row in chosen["rows"]],
        }
    if not (temperature := found.get("temperature")):
        return
    yield {"paragraph": f"{temperature['text']}."}
    sides = {"Before": temperature["before"], "After, cross-fitted": temperature["after"]}
    yield {
        "table": ["", "log loss", "Brier", "ECE", "from", "to", "by chance"],
        "rows": [
            [name, *(s[key] for key in ("log_loss", "brier", "ece", "ece_low", "ece_high")),
             s["ece_by_chance"]]
            for name, s in sides.items()
        ],
    }  # fmt: skip
    caption = (
        "How often answers are right, by their probability, in bins of equal mass with intervals "
        "of 95%; on the line a probability says how often."
    )
    yield {
        "figures": [
            (f"{name}. {caption}", charts.reliability(f"{name} calibration", side["bins"]))
            for name, side in sides.items()
        ]
    }
    yield {
        "folded": "Examples of each bin",
        "table": ["bins", "examples", "probability", "right", "from", "to"],
        "rows": [
            [name, *(row[k] for k in ("count", "confidence", "accuracy", "low", "high"))]
            for name, side in sides.items()
            for row in side["bins"]
        ],
    }


def _predictions(run: Run) -> Iterator[Block]:
    """Yields the predictions next to the right answers, or why changed data has none for them."""
    path, entry = predictions.find_file(run), run.predicted
    if path is None or entry is None or run.record["script"] == "run_token_classifier":
        return
    try:
        rows = predictions.read_outcomes(run, path)
    except file_io.InputError as error:
        warning = predictions.find_warning(run, path)
        if not warning:
            raise
        yield {"warning": f"{warning.partition(' Texts and')[0]} They do not fit: {error}"}
        return
    if not rows:
        return
    data = entry["path"]
    count = "1 example" if len(rows) == 1 else f"{len(rows):,} examples"
    yield {"paragraph": f"{os.path.basename(path)} of this run next to {data}: {count}."}
    if warning := predictions.find_warning(run, path):
        yield {"warning": warning}
    name = os.path.basename(data.rstrip("/"))
    if "f1" in rows[0].numbers:
        yield from _answers(rows, predictions.find_threshold(run), name)
    else:
        yield from _classifier_predictions(rows, name)


def _answers(rows: Sequence[Outcome], threshold: float | None, name: str) -> Iterator[Block]:
    """Yields the blocks of a SQuAD run: scores over the threshold, and the worst answers.

    Args:
      threshold: null odds from which no answer is given; None: none is used.
      name: name of the predicted data.
    """
    curve = predictions.threshold_curve(rows)
    if curve:
        svg = charts.threshold_curve(*curve, threshold)
        caption = (
            f"Scores on {name}, where questions whose null odds are below the threshold are "
            "answered: on the left none is, on the right all are."
        )
        if len(curve[0]) > charts.MAX_POINTS:
            caption += f" Thinned: {charts.MAX_POINTS} of {len(curve[0]):,} places are drawn."
        yield {"figures": [(caption, svg)], "wide": True}
    header, worst = predictions.worst_answers(rows)
    if not worst:
        return
    yield {"heading": f"Worst answers to {name}"}
    if "null odds" in header:
        yield {
            "note": "The probability is that of what was predicted: of no answer, or of there "
            "being an answer and of this text for it."
        }
    yield {"table": header, "rows": worst}


def _classifier_predictions(rows: Sequence[Outcome], name: str) -> Iterator[Block]:
    """Yields the blocks of a classifier or regression: its figure, classes and worst examples.

    Args:
      name: name of the predicted data.
    """
    if not predictions.has_label_sets(rows):  # Of several labels none is confused with another.
        yield _figure_of_predictions(rows, name)
    if rows[0].probabilities:
        yield from _classes(predictions.count_classes(rows))
    if worst := predictions.worst_examples(rows):
        yield {"heading": f"Worst examples of {name}"}
        yield {"table": ["text", "right", "predicted", "probability"], "rows": worst}


def _figure_of_predictions(rows: Sequence[Outcome], name: str) -> Block:
    """Returns the block with the confusion of labels, or predicted numbers against the labels.

    Args:
      name: name of the predicted data.
    """
    if rows[0].probabilities:
        svg = charts.confusion(*predictions.count_labels(rows))
        caption = f"How often each label was predicted for examples of each label, in {name}."
    else:
        labels, guesses = [row.label for row in rows], [row.prediction for row in rows]
        svg = charts.scatter("Predictions", labels, guesses, "label", "prediction")
        caption = f"Predicted numbers against the labels of {name}; on the line they are the same."
        if len(rows) > charts.MAX_DOTS:
            caption += f" Thinned: {charts.MAX_DOTS:,} of {len(rows):,} are drawn."
    return {"figures": [(caption, svg)], "wide": True}


def _settings(run: Run) -> Iterator[Block]:
    flags = run.record["flags"].items()
    rows = [[n, _shown(f["value"]), f["source"]] for n, f in flags if f["source"] != "default"]
    defaults = [[name, _shown(f["value"])] for name, f in flags if f["source"] == "default"]
    yield {"table": ["setting", "value", "from"], "rows": rows}
    summary = f"{len(defaults)} settings at their defaults"
    yield {"folded": summary, "table": ["setting", "value"], "rows": defaults}
    inputs = [
        [role, entry.get("path"), entry.get("bytes"), (entry.get("sha256") or "")[:16]]
        for role, entry in (run.record["inputs"] or {}).items()
    ]
    yield {"table": ["input", "path", "bytes", "SHA-256 begins"], "rows": inputs}


# --- several runs -------------------------------------------------------------------------------


def runs_page(
    sides: Sequence[RunGroup],
    axis: Axis = STEPS,
    cost_axis: Axis = AXES["flop"],
    note: str = "",
) -> str:
    """Makes the HTML of a report on several runs of one task.

    Args:
      sides: the runs, see `report_groups.read`.
      cost_axis: unit of the costs that scores are drawn against.
    """
    runs = recorded(sides)
    check_axis(runs, axis)
    notes = [{"paragraph": note}] if note else []
    return render(
        f"{_title(runs[0])}: {len(runs)} runs",
        [],
        [
            ("Scores and costs", [*notes, *score_blocks(sides, cost_axis)]),
            ("What differs", _table_of_runs(sides)),
            ("Curves together", report_curves.together(_ranked(sides), axis)),
        ],
    )


def _ranked(sides: Sequence[RunGroup]) -> Sequence[RunGroup]:
    """Returns sides, best first, since only the first lines of a figure have names."""
    return [row.side for row in score_sides(sides)] or sides


def _table_of_runs(sides: Sequence[RunGroup]) -> Iterator[Block]:
    """Yields the table of all runs with the settings in which they differ."""
    runs = recorded(sides)
    flags = differing_flags(runs)
    columns, rest = flags[:_MAX_FLAGS], flags[_MAX_FLAGS:]
    metric = next((run.best_metric for run in runs if run.best_metric), "score")
    restarted = any(run.given_up for run in runs)
    tested = any(run.test_score is not None for run in runs)
    costs = [{} if run.cost is None else dataclasses.asdict(run.cost) for run in runs]
    cost_names = _cost_names(costs)
    header = ["run", *columns, results.best_of(metric, [r.evaluated for r in runs])]
    header += [f"{metric} (test)"] if tested else []
    header += [comparison_text.COSTS[name] for name in cost_names]
    header += ["step", "status", "took"]
    header += ["restarts"] if restarted else []
    rows = [
        [
            run.name,
            *(_shown(run.flag(name)) for name in columns),
            results.UNDEFINED if run.best_metric in run.undefined else run.score,
            *([run.test_score] if tested else []),
            *(comparison_text.cost(name, cost.get(name)) for name in cost_names),
            run.result.get("step"),
            "; ".join([run.record["status"], *run.remarks]),
            _duration(run.record),
            *([len(run.given_up)] if restarted else []),
        ]
        for run, cost in zip(runs, costs, strict=True)
    ]
    yield {"table": header, "rows": rows}
    if rest:
        yield {"paragraph": f"They also differ in {', '.join(rest)}."}
    if not flags:
        yield {"paragraph": "All settings are the same."}


def comparison_page(
    sides: Sequence[RunGroup],
    axis: Axis = STEPS,
    cost_axis: Axis = AXES["flop"],
    equivalence_margin: float | None = None,
    cluster_column: str | None = None,
) -> str:
    """Makes the HTML of the page that compares two sides, see `comparison_sides.read`.

    Args:
      cost_axis: unit of the costs that scores are drawn against.
      equivalence_margin, cluster_column: see `comparison.compare`.
    """
    compared = comparison.compare_two(sides, equivalence_margin, cluster_column)
    (pair,) = compared.pairs
    runs = recorded(sides)
    check_axis(runs, axis)
    groups = [side for side in sides if side.recorded]
    return render(
        f"{pair.second} against {pair.first}",
        [],
        [
            ("Verdict", comparison_text.verdict_blocks(compared)),
            ("Scores and costs", score_blocks(sides, cost_axis)),
            ("Examples that changed sides", comparison_text.change_blocks(compared)),
            ("What differs", _table_of_runs(sides) if runs else []),
            ("Curves together", report_curves.together(groups, axis)),
        ],
    )


# --- scores and costs -----------------------------------------------------------------------------


def score_sides(sides: Sequence[RunGroup]) -> list[comparison.SideScore]:
    """Returns the scores of sides, best first; [] without evaluations or SciPy."""
    metric = next((side.best_metric for side in sides if side.best_metric), None)
    if metric is None or not statistics.is_installed():
        return []
    scored = [comparison.score_side(side, metric) for side in sides]
    sign = 1 if results.is_loss(metric) else -1
    without_mean = [row for row in scored if row.mean is None]
    with_mean = [row for row in scored if row.mean is not None]
    return [
        *sorted(with_mean, key=lambda row: sign * row.mean.estimate if row.mean else 0.0),
        *without_mean,
    ]


def score_blocks(sides: Sequence[RunGroup], axis: Axis, in_sweep: bool = False) -> Iterator[Block]:
    """Yields the table of scores and costs, the intervals, and scores against cost.

    Args:
      axis: unit of the costs in the figure.
      in_sweep: whether the page has a table of the sweep with the intervals, so that this one only
        needs means and costs.
    """
    if len(sides) > 1 and not statistics.is_installed():
        yield {"note": f"{statistics.NOT_INSTALLED}."}
    scored = score_sides(sides)
    if not scored:
        return
    has_seeds = any(len(row.side.runs) > 1 for row in scored)
    if has_seeds or in_sweep:
        yield _score_table(scored, with_runs=not in_sweep)
    metric, name = scored[0].side.best_metric, scored[0].name
    bars = [_bar(row, row.mean, axis) for row in scored if row.mean is not None]
    figures = []
    if has_seeds:
        limit = charts.MAX_BARS
        for start in range(0, len(bars), limit):
            caption = f"{name}: mean over seeds, its 95% interval, and each run as a dot"
            figures.append((caption, charts.intervals(metric, bars[start : start + limit])))
    cost_figures, note = _against_cost(metric, name, bars, axis)
    yield {"figures": [*figures, *cost_figures]}
    if note:
        yield {"note": note}


def _score_table(scored: Sequence[comparison.SideScore], with_runs: bool) -> Block:
    """Returns the block with the table of sides, their scores and the mean cost of a run.

    Args:
      with_runs: whether to show intervals, runs and remarks.
    """
    costs = _cost_names([row.cost for row in scored])
    names = ["side", "mean", "interval", "runs", "remarks"] if with_runs else ["side", "mean"]
    places = [comparison_text.SIDES.index(name) for name in names]
    # Costs stand next to the score.
    first = names.index("interval") + 1 if with_runs else len(names)
    rows = []
    for row in scored:
        texts = comparison_text.side_row(row)
        cells = [texts[place].replace(" to ", "\u00a0to\u00a0") for place in places]
        spent = [comparison_text.cost(name, row.cost.get(name)) for name in costs]
        rows.append([*cells[:first], *spent, *cells[first:]])
    header = [*names[:first], *(comparison_text.COSTS[name] for name in costs), *names[first:]]
    return {"table": header, "rows": rows}


def _cost_names(costs: Sequence[Mapping[str, float]]) -> list[str]:
    """Returns the fields of `run_record.Cost` that at least one of the costs has."""
    return [n for n in comparison_text.COSTS if any(cost.get(n) is not None for cost in costs)]


def _bar(row: comparison.SideScore, mean: statistics.Estimate, axis: Axis) -> charts.Bar:
    """Returns the bar of a side, with its mean cost in the unit of the axis."""
    cost = row.cost.get(axis.field)
    cost = None if cost is None else axis.scale * cost
    values = [*row.scores.values()]
    return charts.Bar(row.side.name, mean.estimate, mean.low, mean.high, values, cost)


def _against_cost(
    metric: str, name: str, bars: Sequence[charts.Bar], axis: Axis
) -> tuple[list[report_curves.Figure], str]:
    """Returns (caption, SVG) of scores against cost, in a list, and a note.

    Args:
      metric: name of the score.
      name: what the caption calls the score.
    """
    with_cost = [bar for bar in bars if bar.cost]
    costs = [bar.cost for bar in bars if bar.cost]
    unit = "steps" if axis == STEPS else axis.label
    if not with_cost:
        return [], f"No run has recorded its {unit}: scores are not drawn against cost."
    lacking = [bar.label for bar in bars if not bar.cost]
    note = f"Not drawn against cost: {', '.join(lacking)}, without {unit}." if lacking else ""
    lowest, highest = min(costs), max(costs)
    if len(with_cost) > 1 and highest <= _SAME * lowest:
        return [], f"A run of each costs the same, {lowest:.4g} {unit}. {note}".rstrip()
    if len(with_cost) < 2:
        return [], note
    caption = f"{name} against the mean cost of a run in {unit}"
    if len(with_cost) > charts.MAX_NAMED:
        caption += f"; gray: the other {len(with_cost) - charts.MAX_NAMED}"
    return [(caption, charts.score_by_cost(metric, with_cost, unit))], note


# --- sweeps -------------------------------------------------------------------------------------


def sweep_page(
    sweep: sweep_results.Sweep,
    axes: Sequence[str] | None = None,
    axis: Axis = STEPS,
    cost_axis: Axis = AXES["flop"],
) -> str:
    """Makes the HTML of the report on a `sweep_results.Sweep`.

    Args:
      axes: the two parameters of the heat map; by default those with the most values.
      cost_axis: unit of the costs that scores are drawn against.
    """
    summary = sweep.summary
    axes = _checked_axes(sweep, axes)
    header, rows = sweep_results.rows(summary)
    is_best = 0 if summary["best"] is not None else None
    sides = report_groups.read_sweep(sweep.folder)
    check_axis(recorded(sides), axis)
    notes = [{"note": line} for line in sweep_comparison.sentences(summary).splitlines()]
    return render(
        f"{sweep.plan['script']}: sweep {os.path.basename(os.path.abspath(sweep.folder))}",
        _sweep_facts(sweep),
        [
            ("Parameters", [{"figures": _sweep_figures(sweep, axes), "wide": True}]),
            ("Table", [{"table": header, "rows": rows, "best": is_best}, *notes]),
            ("Scores and costs", score_blocks(sides, cost_axis, in_sweep=True)),
            ("Curves together", report_curves.together(_ranked(sides), axis)),
            ("Failures", [_failures(summary)]),
        ],
    )


def _checked_axes(sweep: sweep_results.Sweep, axes: Sequence[str] | None) -> Sequence[str]:
    """Returns the names of the parameters on the axes of the heat map; fewer than two: there is
    none.

    Args:
      axes: two names from the user; None: the two parameters with the most values.
    """
    names = sweep_results.axes_of(sweep)
    if axes is None:
        return names[:2]
    for name in axes:
        if name not in names:
            raise file_io.InputError(
                f"heat_map: {name!r} is not a parameter with several values in {sweep.folder}; "
                f"expected two of {', '.join(names) or 'none'}"
            )
    if len(set(axes)) != 2:
        raise file_io.InputError(f"heat_map: expected two parameters, found {', '.join(axes)}")
    return axes


def _sweep_facts(sweep: sweep_results.Sweep) -> list[dict[str, Any]]:
    summary = sweep.summary
    states = [trial["state"] for trial in summary["trials"]]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    best = summary["best"]
    facts = [("folder", sweep.folder), ("method", sweep.plan["method"]), ("trials", counts)]
    if best is not None:
        point = summary["points"][best]
        values = point["parameters"]
        pairs = [f"{n}={sweep_plan.text_of(values[n])}" for n in summary["parameters"]]
        score = f"{summary['metric']} {text_tables.number(point['mean'])}"
        if point["deviation"] is not None:
            score += f" ± {text_tables.number(point['deviation'])} over {point['num_done']} seeds"
        facts.append(("best", f"{score} with {' '.join(pairs) or point['name']}"))
    blocks: list[dict[str, Any]] = [{"pairs": facts}]
    if fixed := [[name, value] for name, value in sweep.plan["settings"].items()]:
        title = "Settings of all trials"
        blocks.append({"folded": title, "table": ["setting", "value"], "rows": fixed})
    return blocks


def _sweep_figures(sweep: sweep_results.Sweep, axes: Sequence[str]) -> list[report_curves.Figure]:
    """Returns (caption, SVG) of the figures of a sweep; none for fewer than two points with scores.

    Args:
      axes: names of the parameters of columns and rows, see `_checked_axes`.
    """
    points = sweep_results.scored_points(sweep)
    metric = sweep.summary["metric"]
    figures: list[report_curves.Figure] = []
    if len(points) < 2:
        return figures
    scores = [point["mean"] for point in points]
    if len(axes) == 2:
        grid = sweep_results.grid_of(sweep, axes)
        if grid:
            values = [[sweep_plan.text_of(value) for value in side] for side in grid[0]]
            svg = charts.heat_map(axes, values, grid[1], metric)
            caption = f"Mean {metric} over all other parameters and seeds"
        else:
            xs, ys = ([point["parameters"][name] for point in points] for name in axes)
            svg = charts.points(axes, xs, ys, scores, metric)
            caption = f"{metric} of each point that was tried"
        figures.append((caption, svg))
    names = [name for name in sweep.summary["parameters"] if name in sweep_results.axes_of(sweep)]
    if names:
        rows = [[point["parameters"][name] for name in names] for point in points]
        svg = charts.parallel_coordinates(names, rows, scores, metric)
        figures.append((f"Each point that was tried, from its parameters to {metric}", svg))
    return figures


def _failures(summary: dict[str, Any]) -> dict[str, Any]:
    rows = [[t["name"], "\n".join(t["error"])] for t in summary["trials"] if t["error"]]
    return {"table": ["trial", "the end of its log"], "rows": rows}


# --- GLUE ---------------------------------------------------------------------------------------


def glue_page(folder: str, axis: Axis = STEPS) -> str:
    """Makes the HTML of the report on a folder of `run_glue.sh`, with curves on an axis."""
    path = os.path.join(folder, glue_table.NAME)
    summary = file_io.read_json(path, "results")
    with damage_named(path):
        return _glue_page(folder, summary, axis)


def _glue_page(folder: str, summary: dict[str, Any], axis: Axis) -> str:
    """Makes the HTML of `glue_page`.

    Args:
      summary: result of `glue_table.summarize`.
    """
    rows = [_glue_row(row) for row in summary["tasks"]]
    tasks_text = f"{summary['num_averaged']} of {len(rows)} tasks"
    average = summary["average"]
    mean = None if average is None else 100 * average
    rows.append(["average", "", mean, None, "", tasks_text, *[None] * len(PUBLISHED)])
    header = ["task", "metric", "score", "deviation", "seeds", "state"]
    header += [f"published: {name}" for name in PUBLISHED]
    note = (
        "Scores are percent of the dev data, of the best checkpoint of each run; correlations are "
        "times 100. Each published score of ALBERT v2 is one run and its best dev score over "
        "checkpoints saved every 100 steps, so a mean over seeds is lower; that of Lambert came "
        "out in two of three runs. An empty cell: no score is published."
    )
    sweep, sides = sweep_results.read_sweep(folder), report_groups.read_sweep(folder)
    check_axis(recorded(sides), axis)
    curves: list[report_curves.Figure] = []
    for row in summary["tasks"]:
        groups = [side for side in sides if _is_of_task(side, folder, row["task"])]
        title = f"{row['task']}: {row['metric']}"
        curves += report_curves.metric_curves(groups, title, row["metric"], axis)
    return render(
        f"GLUE: {os.path.basename(os.path.abspath(folder))}",
        [],
        [
            ("Table", [{"table": header, "rows": rows}, {"note": note}]),
            ("Curves", [{"figures": curves}]),
            ("Failures", [_failures(sweep.summary)]),
        ],
    )


def _glue_row(row: dict[str, Any]) -> list[object]:
    def percent(value: float | None) -> float | None:
        return None if value is None else 100 * value

    seeds = f"{len(row['scores'])} of {row['num_seeds']}" if "num_seeds" in row else ""
    score, deviation = percent(row["score"]), percent(row.get("deviation"))
    state = glue_table.state_text(row)
    published_scores = [scores.get(row["task"]) for scores in PUBLISHED.values()]
    return [row["task"], row["metric"], score, deviation, seeds, state, *published_scores]


def _is_of_task(side: RunGroup, folder: str, task: str) -> bool:
    """Returns whether a side of `run_glue.sh` is of a task, which names the folders of its runs."""
    return any(task in os.path.relpath(run.folder, folder).split(os.sep) for run in side.runs)
