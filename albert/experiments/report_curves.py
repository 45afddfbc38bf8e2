"""Figures of the curves of a report: of one run, and of groups of runs, with bands over seeds.

In all functions a number of a run is found by `kind`, that of the lines in its files of metrics,
such as `run_record.TRAIN`, and `name`, its key there; see `Run.curve`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from albert.experiments import charts, statistics
from albert.experiments.report_cells import Block, Figure
from albert.experiments.runs import Axis, Run, RunGroup, recorded
from albert.tasks import entities
from albert.training import results, run_record

_MAX_FAMILIES = 8
_KINDS = {"train": "training", "eval": "evaluation"}


class _Panel(NamedTuple):
    """A figure: the kind of lines, the name of the number in them, its title and its remark."""

    kind: str
    name: str
    title: str
    remark: str = ""

    @property
    def is_log(self) -> bool:
        return "loss" in self.name or self.name == "gradient_norm"


class _Curve(NamedTuple):
    """Values that a run has recorded of one number at steps, which have places on an axis."""

    run: Run
    steps: list[int]
    places: list[float]
    values: list[float]


_LOSSES = (
    _Panel("train", "loss", "Training loss"),
    _Panel("eval", "eval_loss", "Evaluation loss"),
)
_PROGRESS = (
    _Panel("train", "learning_rate", "Learning rate", "at each report"),
    _Panel(
        "train", "gradient_norm", "Gradient norm",
        "before clipping, mean of the steps of a report",
    ),
    _Panel("train", "examples_per_second", "Speed", "without evaluating and saving"),
)  # fmt: skip


def _lines_of(
    groups: Iterable[RunGroup], kind: str, name: str, axis: Axis
) -> tuple[list[charts.Line], list[str]]:
    """Returns the lines of groups for one `Run.curve`, and sentences about what they omit."""
    lines, notes = [], []
    for group in groups:
        group_lines, group_notes = _lines_of_group(group, kind, name, axis)
        lines += group_lines
        notes += group_notes
    return lines, notes if lines else []


def _lines_of_group(
    group: RunGroup, kind: str, name: str, axis: Axis
) -> tuple[list[charts.Line], list[str]]:
    """Returns the lines of a group for one `Run.curve`, and sentences about what they omit."""
    curves, lines, notes = [], [], []
    for run in group.averaged:
        steps, values = run.curve(kind, name)
        places = run.places(steps, axis)
        if places is None:
            notes.append(f"Not drawn: {run.name}, which has not recorded its {axis.label}.")
        elif steps:
            curves.append(_Curve(run, steps, places, values))
    if len(curves) > 1 and statistics.is_installed():
        line, note = _mean_line(group.name, curves)
        lines += [line] if line else []
        notes += [note] if note else []
    else:
        for curve in curves:
            label = group.name if len(group.averaged) == 1 else curve.run.name
            lines.append(charts.Line(label, curve.places, curve.values))
        notes += [statistics.NOT_INSTALLED + "."] if len(curves) > 1 else []
    for run in group.not_averaged:
        steps, values = run.curve(kind, name)
        places = run.places(steps, axis)
        if steps and places is not None:
            lines.append(charts.Line(run.name, places, values, faint=True))
            notes.append(
                f"Not in the mean of {group.name}, but thin and gray: {run.name}, {run.status}."
            )
    return lines, notes


def _mean_line(name: str, curves: Sequence[_Curve]) -> tuple[charts.Line | None, str]:
    """Returns the mean of curves with its band, labeled with a name, and a note, or "".

    It is None if they share no steps. It reaches as far as all of them do: a mean of fewer runs
    would jump.
    """
    first = max(curve.steps[0] for curve in curves)
    last = min(curve.steps[-1] for curve in curves)
    note = ""
    if any(curve.steps[-1] != last for curve in curves):
        shortest = next(curve.run.name for curve in curves if curve.steps[-1] == last)
        note = f"The mean of {name} ends at step {last}, where {shortest} does."
    grid = sorted({step for curve in curves for step in curve.steps if first <= step <= last})
    if not grid:
        return None, f"Not drawn: the runs of {name} share no steps."
    values = [np.interp(grid, curve.steps, curve.values) for curve in curves]
    places = [np.interp(grid, curve.steps, curve.places) for curve in curves]
    mean, low, high = (column.tolist() for column in statistics.mean_band(values))
    xs = np.mean(places, axis=0).tolist()
    return charts.Line(f"{name} ({len(curves)} seeds)", xs, mean, low, high), note


def bounds(run: Run, name: str) -> tuple[float, float]:
    """Returns the lowest and highest value that a number in the lines of a run can have."""
    return results.bounds(name, in_percent="squad" in run.record["script"])


def _figure(
    caption: str,
    lines: Sequence[charts.Line],
    axis: Axis,
    limits: tuple[float, float],
    log: bool = False,
    marks: Sequence[tuple[float, float, str]] = (),
    remark: str = "",
) -> Figure:
    """Returns a figure, see `charts.lines`; the caption says what is thinned, gray or cut off.

    Args:
      limits: lowest and highest value that is possible.
      marks: (x, y, label) of points to highlight.
      remark: follows the caption, but is not in the alternative text.
    """
    svg = charts.lines(caption, lines, marks, log=log, xlabel=axis.label, bounds=limits)
    caption += remark
    limit, longest = charts.max_points(lines), max(len(line.xs) for line in lines)
    if longest > limit:
        caption += f"; thinned: of up to {longest:,} points of a line, {limit} are drawn"
    count = sum(not line.faint for line in lines)
    if count > charts.MAX_NAMED:
        caption += f"; gray: the other {count - charts.MAX_NAMED} lines"
    ends = charts.band_limits(lines, charts.is_log(lines, log), limits)
    if any(min(line.low) < ends[0] or max(line.high) > ends[1] for line in lines if line.low):
        caption += "; bands reach beyond the figure"
    return caption, svg


def together(groups: Iterable[RunGroup], axis: Axis, noun: str = "runs") -> Iterator[Block]:
    """Yields figures with one line per group, and notes; captions call the runs `noun`."""
    groups = list(groups)
    metric = next((group.best_metric for group in groups if group.best_metric), None)
    best = [_Panel("eval", metric, metric.replace("_", " "))] if metric else []
    figures, notes, runs = [], [], recorded(groups)
    for panel in (*best, *_LOSSES, *_PROGRESS):
        lines, omitted = _lines_of(groups, panel.kind, panel.name, axis)
        if not lines:
            continue
        notes += omitted
        drawn = sum(bool(run.curve(panel.kind, panel.name)[0]) for run in runs)
        remark, limits = f" of {drawn} {noun}", bounds(runs[0], panel.name)
        figures.append(_figure(panel.title, lines, axis, limits, panel.is_log, remark=remark))
    yield {"figures": figures}
    if any(len(group.averaged) > 1 for group in groups) and figures and statistics.is_installed():
        yield {
            "note": "A line with a band is the mean of runs that differ only in their seed. The "
            "band is the 95% interval of this mean, computed for each step."
        }
    if notes:
        yield {"note": " ".join(dict.fromkeys(notes))}


def metric_curves(
    groups: Iterable[RunGroup], title: str, metric: str, axis: Axis
) -> Iterator[Figure]:
    """Yields a figure of one score of groups, if any has recorded it."""
    groups = list(groups)
    lines, notes = _lines_of(groups, "eval", metric, axis)
    if lines:
        remark = " ".join(["", *dict.fromkeys(notes)])
        limits = bounds(recorded(groups)[0], metric)
        yield _figure(title, lines, axis, limits, remark=remark)


# --- one run ------------------------------------------------------------------------------------


def run_curves(run: Run, axis: Axis) -> Iterator[Block]:
    """Yields the figures of all curves of a run, which has recorded the axis."""
    by_class = _scores_by_class(run)
    class_names = {name for names in by_class.values() for name in names.values()}
    families = [
        (family, names)
        for family, names in _score_families(run)
        if class_names.isdisjoint(names.values()) and not family.startswith("support_")
    ]
    figures = []
    for family, names in families[:_MAX_FAMILIES]:
        lines = [_line(run, _KINDS[kind], kind, name, axis) for kind, name in names.items()]
        marks = []
        if run.best_metric in names.values() and run.score is not None:
            step = run.result["step"]
            for x in run.places([step], axis) or ():
                marks = [(x, run.score, f"best: {run.score:.4g} at step {step}")]
        is_log, limits = "loss" in family, bounds(run, family)
        kinds = "" if len(names) > 1 else f", in {_KINDS[next(iter(names))]}"
        title = family.replace("_", " ")
        figures.append(_figure(title, lines, axis, limits, is_log, marks, remark=kinds))
    figures += _of_classes(run, by_class, axis)
    for panel in _PROGRESS:
        line = _line(run, panel.name.replace("_", " "), panel.kind, panel.name, axis)
        if line.xs:
            limits, remark = bounds(run, panel.name), f", {panel.remark}"
            figures.append(_figure(panel.title, [line], axis, limits, panel.is_log, remark=remark))
    yield {"figures": figures}
    if rest := [family for family, _ in families[_MAX_FAMILIES:]]:
        yield {"note": f"Only in the table of evaluations: {', '.join(rest)}."}


def _score_families(run: Run) -> list[tuple[str, dict[str, str]]]:
    """Returns the curves of a run: [(family, {kind: name})], losses first, then the best metric.

    A family is one quantity in training and evaluation, such as ``loss`` and ``eval_loss``.
    """
    omitted = {"learning_rate", "gradient_norm", "examples_per_second", "input_share"}
    omitted |= {"tokens_per_second", "tokens_seen"}
    omitted |= {"loss_scale", "threshold", "null_score_diff_threshold"}
    families: dict[str, dict[str, str]] = {}
    for kind in ("train", "eval"):
        for name in run.names(kind):
            if kind == "eval" and name.startswith("train_"):
                continue  # repeats the lines of training
            if name not in omitted and not name.endswith(("total", "_thresh")):
                family = name.removeprefix("eval_").removeprefix("train_")
                families.setdefault(family, {}).setdefault(kind, name)
    loss = run.curve("train", "loss")
    for family, kinds in list(families.items()):
        if (
            family != "loss"
            and "loss" in families
            and run.curve("train", kinds.get("train")) == loss
        ):
            del families[family]  # the only term of the loss
    best = (run.best_metric or "").removeprefix("eval_")

    def place(family: str) -> tuple[bool, ...]:
        kinds = families[family]
        return (family != "loss", "loss" not in family, family != best, len(kinds) < 2)

    return [(family, families[family]) for family in sorted(families, key=place)]


def _scores_by_class(run: Run) -> dict[str, dict[str, str]]:
    """Returns the scores of labels or types of entities: {"f1": {label: name}, …}."""
    scores: dict[str, dict[str, str]] = {}
    labels = {row["name"] for row in run.record.get("classes", ())}
    for name in run.names(run_record.EVAL):
        score, _, label = name.partition("_")
        if score in entities.SCORES and label and (_has_entities(run) or label in labels):
            scores.setdefault(score, {})[label] = name
    return scores


def _has_entities(run: Run) -> bool:
    return run.record["script"] == "run_token_classifier"


def _line(run: Run, label: str, kind: str, name: str, axis: Axis) -> charts.Line:
    """Returns the line of one number of a run, without points if it lacks the axis."""
    steps, values = run.curve(kind, name)
    return charts.Line(label, run.places(steps, axis) or [], values)


def _of_classes(run: Run, by_class: Mapping[str, Mapping[str, str]], axis: Axis) -> list[Figure]:
    """Returns figures of {score: {class: metric}}, each with at most `charts.MAX_NAMED` classes."""
    figures, limit = [], charts.MAX_NAMED
    noun = "type of entity" if _has_entities(run) else "label"
    for score, names in by_class.items():
        kinds = list(names)
        for start in range(0, len(kinds), limit):
            shown_kinds = kinds[start : start + limit]
            lines = [_line(run, kind, "eval", names[kind], axis) for kind in shown_kinds]
            limits = bounds(run, score)
            title = f"{score} by {noun}"
            if len(kinds) > limit:
                title += f", {start + 1} to {start + len(shown_kinds)} of {len(kinds)}"
            figures.append(_figure(title, lines, axis, limits, remark=", in evaluation"))
    return figures
