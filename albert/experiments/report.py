"""Makes the pages of reports: a run, several runs, a sweep, a GLUE table.

The functions of this module collect the content of a page as data; ``report.html.j2``
turns it into HTML. A section is its title and a list of `report_cells.Block`s.
"""

import dataclasses
import datetime
import importlib.resources
import math
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from albert.experiments import (
    charts,
    comparison,
    comparison_text,
    glue_table,
    report_cells,
    report_curves,
    report_groups,
    report_predictions,
    report_sweeps,
    run_summary,
    statistics,
    sweep_results,
    text_tables,
)
from albert.experiments.report_cells import Block, Figure, Link
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
    setting_text,
)
from albert.io import file_io, json_shapes, requirements
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
_GLUE_NOTE = (
    "Scores are percent of the dev data, of the best checkpoint of each run; correlations are "
    "times 100. Each published score of ALBERT v2 is one run and its best dev score over "
    "checkpoints saved every 100 steps, so a mean over seeds is lower; that of Lambert came "
    "out in two of three runs. An empty cell: no score is published."
)
_NUMBER = re.compile(r"[+-]?[\d,]*\.?\d+(e[+-]?\d+)?%?|-")
_SHORT = 16  # characters of cells whose lines do not break
_SAME = 1.001  # ratio of costs up to which they are the same
_EACH_RUN = "Each run"
_MAX_FLAGS = 12  # columns of settings in a table of runs


def check_installed() -> None:
    """Checks that the libraries of reports are installed."""
    charts.check_installed()
    with requirements.needed("reports need jinja2: pip install jinja2"):
        import jinja2  # noqa: F401


def render(
    title: str, facts: Iterable[Block], sections: Iterable[tuple[str, Iterable[Block]]]
) -> str:
    """Renders the content of a page as HTML.

    Args:
      sections: titles and blocks; a section whose blocks are empty is omitted.
      facts: blocks above all sections.
    """
    import jinja2

    template = importlib.resources.files("albert.experiments").joinpath("report.html.j2")
    environment = jinja2.Environment(autoescape=True, keep_trailing_newline=True)
    environment.filters |= {"column_kinds": _column_kinds, "cell": _cell}
    page = environment.from_string(template.read_text(encoding="utf-8"))
    filled = [(heading, list(blocks)) for heading, blocks in sections]
    return page.render(title=title, facts=facts, sections=filled, palette=charts.PALETTE)


def _column_kinds(rows: Iterable[text_tables.Cells]) -> list[str]:
    """Returns the CSS class of each column of a table: numbers, long texts or short texts."""
    return [_column_kind(column) for column in zip(*rows, strict=True)]


def _column_kind(column: Iterable[object]) -> str:
    """Returns the CSS class of a column of cells."""
    values = [value for value in column if value not in (None, "")]
    if values and all(map(_is_number, values)):
        return "number"
    longest = max((len(str(value)) for value in values), default=0)
    return "long" if longest > 40 else "short" if longest <= _SHORT else ""


def _is_number(value: object) -> bool:
    if isinstance(value, (str, report_cells.Bar)):
        return bool(_NUMBER.fullmatch(str(value)))
    return json_shapes.is_number(value)


def _cell(value: object) -> object:
    """Returns the content of a cell as the page shows it."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else value


# --- one run ------------------------------------------------------------------------------------


def run_page(run: Run, axis: Axis = STEPS) -> str:
    """Makes the HTML of the report on one `Run`."""
    check_axis([run], axis)
    return render(
        f"{_title(run)}: {run.name}",
        [
            *_failure(run),
            *_other_evaluations(run),
            *(Block(paragraph=text) for text in run_summary.sentences(run)),
        ],
        [
            ("Scores of each label", report_predictions.classes_of_run(run)),
            ("Probabilities", report_predictions.probabilities(run)),
            ("Predictions", report_predictions.examples(run)),
            ("Curves", report_curves.run_curves(run, axis)),
            ("Attempts that were given up", _attempts(run, axis)),
            ("Evaluations", [_evaluations(run)]),
            ("Settings", _settings(run)),
            ("The run", _facts(run)),
        ],
    )


def _failure(run: Run) -> Iterator[Block]:
    """Yields a warning if the run has not finished."""
    record = run.record
    if record["status"] != run_record.DONE:
        message = record.get("message") or "the process did not finish"
        yield {"warning": f"This run is {record['status']}: {message}"}


def _other_evaluations(run: Run) -> Iterator[Block]:
    """Yields a warning if the table and curves of evaluations are not of the data of the result."""
    if differing := run_record.find_other_basis(run.record):
        texts = "; ".join(differing)
        yield Block(warning=f"The result and the evaluations are not of the same: {texts}.")


def _title(run: Run) -> str:
    script, task = run.task
    return f"{script} {task}" if task and task not in script else script


def _facts(run: Run) -> list[Block]:
    """Returns names and values of what is known of a run, and its command."""
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
    """Returns the score of a run, its step and remarks."""
    score = results.UNDEFINED if run.score is None else f"{run.score:.6g}"
    result = f"{run.score_name} {score} at step {run.result.get('step')}"
    return "; ".join([result, *run.remarks])


def _test_text(run: Run) -> str:
    """Returns the score of a run on test data; "" without one."""
    if run.test_score is None:
        return ""
    path = (run.tested_on or {}).get("path")
    step = run.record["test"]["step"]
    result = f"{run.best_metric} (test) {run.test_score:.6g} at step {step}"
    return f"{result} of {path}" if path else result


def _duration(record: dict[str, Any]) -> str:
    """Returns the time of all ended sessions of a ``run.json`` as h:mm:ss; "" if none has ended."""
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


def _evaluations(run: Run) -> Block:
    """Returns the table of all evaluations, a row per step, the best one marked."""
    rows = [row for row in run.rows if row.get("kind") == "eval"]
    rows.sort(key=lambda row: row["step"])  # Evaluations append the best checkpoint again.
    names = run.names("eval")
    if "eval_loss" in names and "loss" in names:
        names.remove("loss")  # a duplicate under another name
    names = [name for name in names if not name.startswith("support_")]  # the same in each row
    best = None if run_record.find_other_basis(run.record) else run.result.get("step")
    place = next((i for i, row in enumerate(rows) if row["step"] == best), None)
    lines = [[row["step"], *(row.get(name) for name in names)] for row in rows]
    return {"table": ["step", *names], "rows": lines, "best": place}


def _settings(run: Run) -> Iterator[Block]:
    """Yields the tables of the settings and of the inputs of a run."""
    flags = run.record["flags"].items()
    rows = [
        [n, setting_text(f["value"]), f["source"]] for n, f in flags if f["source"] != "default"
    ]
    defaults = [[name, setting_text(f["value"])] for name, f in flags if f["source"] == "default"]
    yield {"table": ["setting", "value", "from"], "rows": rows}
    summary = f"{len(defaults)} settings at their defaults"
    table: Block = {"table": ["setting", "value"], "rows": defaults}
    yield {"folded": summary, "blocks": [table]}
    inputs = [
        [role, entry.get("path"), entry.get("bytes"), (entry.get("sha256") or "")[:16]]
        for role, entry in (run.record["inputs"] or {}).items()
    ]
    yield {"table": ["input", "path", "bytes", "SHA-256 begins"], "rows": inputs}


# --- several runs -------------------------------------------------------------------------------


def runs_page(
    sides: Sequence[RunGroup], axis: Axis = STEPS, cost_axis: Axis = AXES["flop"], note: str = ""
) -> str:
    """Makes the HTML of a report on several runs of one task.

    `cost_axis` is the unit of costs; `note`: a sentence about the runs, or "".
    """
    runs = recorded(sides)
    check_axis(runs, axis)
    facts = [Block(paragraph=text) for text in (_best_side(sides), note) if text]
    return render(
        f"{_title(runs[0])}: {len(runs)} runs",
        facts,
        [
            ("Scores and costs", score_blocks(sides)),
            ("Table of runs", _table_of_runs(sides)),
            ("Score against cost", cost_blocks(sides, cost_axis)),
            ("Curves together", report_curves.together(_ranked(sides), axis)),
            (_EACH_RUN, _each_run(runs)),
        ],
    )


def _best_side(sides: Sequence[RunGroup]) -> str:
    """Returns a sentence about the best of several sides; "" if it is not known."""
    scored = [row for row in score_sides(sides) if row.mean is not None]
    if len(scored) < 2:
        return ""
    best = scored[0]
    assert best.mean is not None
    text = f"Of {len(scored)}, {best.side.name} has the best {best.name}: "
    text += text_tables.number(best.mean.estimate)
    if best.mean.low is not None:
        interval = text_tables.interval(best.mean.low, best.mean.high)
        text += f" (95% interval {interval}, {best.mean.n} seeds)"
    return f"{text}. A comparison of two says whether the difference is more than chance."


def _each_run(runs: Sequence[Run]) -> Iterator[Block]:
    """Yields what is known of each run, folded, with links to the table and the next runs."""
    if len(runs) < 2:
        return
    ids = report_groups.page_ids(runs)
    for place, run in enumerate(runs):
        near = [*runs[max(0, place - 1) : place], *runs[place + 1 : place + 2]]
        links = [Link("table of runs", "runs"), *(Link(r.name, ids[r.folder]) for r in near)]
        sentences = [Block(paragraph=text) for text in run_summary.sentences(run)]
        yield {
            "folded": run.name,
            "id": ids[run.folder],
            "blocks": [*_failure(run), *sentences, *_facts(run), {"links": links}],
        }


def _ranked(sides: Sequence[RunGroup]) -> Sequence[RunGroup]:
    """Returns sides, best first, since only the first lines of a figure have names."""
    return [row.side for row in score_sides(sides)] or sides


def _table_of_runs(sides: Sequence[RunGroup]) -> Iterator[Block]:
    """Yields the table of all runs, best first, with the settings in which they differ."""
    runs = recorded(sides)
    ids, flags = report_groups.page_ids(runs), differing_flags(runs)
    columns, rest = flags[:_MAX_FLAGS], flags[_MAX_FLAGS:]
    metric = next((run.best_metric for run in runs if run.best_metric), "score")
    bounds = report_curves.bounds(runs[0], metric)
    restarted = any(run.given_up for run in runs)
    tested = any(run.test_score is not None for run in runs)
    costs = {r.folder: {} if r.cost is None else dataclasses.asdict(r.cost) for r in runs}
    cost_names = comparison_text.cost_names([*costs.values()])
    header = ["run", results.best_of(metric, [r.evaluated for r in runs])]
    header += [f"{metric} (test)"] if tested else []
    header += [*columns, *(comparison_text.COSTS[name] for name in cost_names)]
    header += ["step", "status", "took"]
    header += ["restarts"] if restarted else []
    sign = 1 if results.is_loss(metric) else -1
    ranked = sorted(runs, key=lambda run: math.inf if run.score is None else sign * run.score)
    rows = [
        [
            Link(run.name, ids[run.folder]) if len(runs) > 1 else run.name,
            results.UNDEFINED if run.best_metric in run.undefined
            else report_cells.bar(run.score, bounds),
            *([report_cells.bar(run.test_score, bounds)] if tested else []),
            *(setting_text(run.flag(name)) for name in columns),
            *(comparison_text.cost(name, costs[run.folder].get(name)) for name in cost_names),
            run.result.get("step"),
            "; ".join([run.record["status"], *run.remarks]),
            _duration(run.record),
            *([len(run.given_up)] if restarted else []),
        ]
        for run in ranked
    ]  # fmt: skip
    yield {"table": header, "rows": rows, "id": "runs"}
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
    """Makes the HTML of the page that compares two sides, as `comparison.compare` does."""
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
            ("Scores and costs", score_blocks(sides)),
            ("Texts that changed sides", comparison_text.change_blocks(compared)),
            ("Table of runs", _table_of_runs(sides) if runs else []),
            ("Score against cost", cost_blocks(sides, cost_axis)),
            ("Curves together", report_curves.together(groups, axis)),
            (_EACH_RUN, _each_run(runs)),
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
    return sorted(scored, key=lambda row: sign * row.mean.estimate if row.mean else math.inf)


def score_blocks(sides: Sequence[RunGroup]) -> Iterator[Block]:
    """Yields the table of scores with their intervals, and costs, if there are several seeds."""
    if len(sides) > 1 and not statistics.is_installed():
        yield {"note": f"{statistics.NOT_INSTALLED}."}
    scored = score_sides(sides)
    if not any(len(row.side.runs) > 1 for row in scored):
        return
    costs = comparison_text.cost_names([row.cost for row in scored])
    bounds = report_curves.bounds(recorded(sides)[0], scored[0].side.best_metric)
    intervals = report_cells.intervals([_ends(row.mean) for row in scored], bounds)
    rows: list[list[object]] = []
    for row, interval in zip(scored, intervals, strict=True):
        name, mean, _, runs, _, remarks = comparison_text.side_row(row)
        score = report_cells.bar(None if row.mean is None else row.mean.estimate, bounds, mean)
        spent = [comparison_text.cost(name, row.cost.get(name)) for name in costs]
        rows.append([name, score, interval, *spent, runs, remarks])
    header = ["side", scored[0].name, "interval of 95%"]
    header += [*(comparison_text.COSTS[name] for name in costs), "runs", "remarks"]
    yield {"table": header, "rows": rows}


def _ends(mean: statistics.Estimate | None) -> tuple[float, float, float] | None:
    """Returns (mean, low, high) of an estimate; None if the interval is not known."""
    if mean is None or mean.low is None or mean.high is None:
        return None
    return mean.estimate, mean.low, mean.high


def cost_blocks(sides: Sequence[RunGroup], axis: Axis) -> Iterator[Block]:
    """Yields scores against costs in the unit of an axis."""
    scored = [row for row in score_sides(sides) if row.mean is not None]
    if scored:
        bounds = report_curves.bounds(recorded(sides)[0], scored[0].side.best_metric)
        bars = [_bar(row, axis) for row in scored]
        figures, note = _against_cost(scored[0].side.best_metric, bars, axis, bounds)
        yield {"figures": figures}
        if note:
            yield {"note": note}


def _bar(row: comparison.SideScore, axis: Axis) -> charts.Bar:
    """Returns the bar of a side with a mean, with its mean cost in the unit of the axis."""
    cost = row.cost.get(axis.field)
    cost = None if cost is None else axis.scale * cost
    assert row.mean is not None
    return charts.Bar(row.side.name, row.mean.estimate, row.mean.low, row.mean.high, cost)


def _against_cost(
    metric: str, bars: Sequence[charts.Bar], axis: Axis, bounds: tuple[float, float]
) -> tuple[list[Figure], str]:
    """Returns (caption, SVG) of scores against cost, in a list, and a note.

    `bounds`: lowest and highest score that is possible.
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
    caption = "Mean score and cost of a run, with the interval of the mean"
    if all(bar.low is None for bar in with_cost):
        caption = "Score and cost of each run"
    if len(with_cost) > charts.MAX_NAMED:
        caption += f"; gray: the other {len(with_cost) - charts.MAX_NAMED}"
    return [(caption, charts.score_by_cost(metric, with_cost, unit, bounds))], note


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
    """
    summary = sweep.summary
    axes = report_sweeps.check_axes(sweep, axes)
    sides = report_groups.read_sweep(sweep.folder)
    runs = recorded(sides)
    check_axis(runs, axis)
    return render(
        f"{sweep.plan['script']}: sweep {os.path.basename(os.path.abspath(sweep.folder))}",
        report_sweeps.facts(sweep),
        [
            ("Points, best first", report_sweeps.points(sweep, sides)),
            ("Which setting mattered", report_sweeps.effects(sweep)),
            ("Two settings together", report_sweeps.pairs(sweep, axes)),
            ("All settings together", report_sweeps.parallel(sweep)),
            ("Score against cost", cost_blocks(sides, cost_axis)),
            ("Curves together", report_curves.together(_ranked(sides), axis)),
            (_EACH_RUN, _each_run(runs)),
            ("Failures", [report_sweeps.failures(summary)]),
        ],
    )


# --- GLUE ---------------------------------------------------------------------------------------


def glue_page(folder: str, axis: Axis = STEPS) -> str:
    """Makes the HTML of the report on a folder of `run_glue.sh`, with curves on an axis."""
    path = os.path.join(folder, glue_table.NAME)
    summary = file_io.read_json(path, "results")
    with damage_named(path):
        rows = [_glue_row(row) for row in summary["tasks"]]
        tasks_text = f"{summary['num_averaged']} of {len(rows)} tasks"
        mean = _percent(summary["average"])
        rows.append(["average", "", mean, None, "", tasks_text, *[None] * len(PUBLISHED)])
        header = ["task", "metric", "score", "deviation", "seeds", "state"]
        header += [f"published: {name}" for name in PUBLISHED]
        sweep, sides = sweep_results.read_sweep(folder), report_groups.read_sweep(folder)
        check_axis(recorded(sides), axis)
        curves: list[Figure] = []
        for row in summary["tasks"]:
            groups = [side for side in sides if _is_of_task(side, folder, row["task"])]
            title = f"{row['task']}: {row['metric']}"
            curves += report_curves.metric_curves(groups, title, row["metric"], axis)
        return render(
            f"GLUE: {os.path.basename(os.path.abspath(folder))}",
            [],
            [
                ("Table", [{"table": header, "rows": rows}, {"note": _GLUE_NOTE}]),
                ("Curves", [{"figures": curves}]),
                ("Failures", [report_sweeps.failures(sweep.summary)]),
            ],
        )


def _glue_row(row: dict[str, Any]) -> list[object]:
    """Returns the cells of a task; `row`: from `glue_table.read_task`."""
    seeds = f"{len(row['scores'])} of {row['num_seeds']}" if "num_seeds" in row else ""
    score, deviation = _percent(row["score"]), _percent(row.get("deviation"))
    state = glue_table.state_text(row)
    published_scores = [scores.get(row["task"]) for scores in PUBLISHED.values()]
    return [row["task"], row["metric"], score, deviation, seeds, state, *published_scores]


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _is_of_task(side: RunGroup, folder: str, task: str) -> bool:
    """Returns whether a side of `run_glue.sh` is of a task, which names the folders of its runs."""
    return any(task in os.path.relpath(run.folder, folder).split(os.sep) for run in side.runs)
