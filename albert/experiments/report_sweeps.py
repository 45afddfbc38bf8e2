"""Blocks of a report about a sweep: its points, and what its settings do to the score."""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from albert.experiments import (
    charts,
    comparison_text,
    main_effects,
    report_cells,
    report_curves,
    report_groups,
    sweep_plan,
    sweep_results,
    text_tables,
)
from albert.experiments.report_cells import Block, Link
from albert.experiments.runs import RunGroup, recorded
from albert.io import file_io


def check_axes(sweep: sweep_results.Sweep, axes: Sequence[str] | None) -> Sequence[str]:
    """Returns the names of both axes of the heat map; fewer than two: there is none.

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


def facts(sweep: sweep_results.Sweep) -> list[Block]:
    """Returns what a sweep is, its best point and a verdict on it."""
    summary = sweep.summary
    states = [trial["state"] for trial in summary["trials"]]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    best = summary["best"]
    pairs = [("folder", sweep.folder), ("method", sweep.plan["method"]), ("trials", counts)]
    if best is not None:
        point = summary["points"][best]
        values = point["parameters"]
        values_text = [f"{n}={sweep_plan.text_of(values[n])}" for n in summary["parameters"]]
        score = f"{summary['metric']} {text_tables.number(point['mean'])}"
        if point["deviation"] is not None:
            score += f" ± {text_tables.number(point['deviation'])} over {point['num_done']} seeds"
        pairs.insert(0, ("best", f"{score} with {' '.join(values_text) or point['name']}"))
    blocks: list[Block] = [*_verdict(summary), {"pairs": pairs}]
    if fixed := [[name, value] for name, value in sweep.plan["settings"].items()]:
        table: Block = {"table": ["setting", "value"], "rows": fixed}
        blocks.append({"folded": "Settings of all trials", "blocks": [table]})
    return blocks


def _verdict(summary: Mapping[str, Any]) -> Iterator[Block]:
    """Yields a sentence on the reference in a summary of `sweep_comparison.add`, if it has one."""
    comparison = summary.get("comparison") or {}
    reference = comparison.get("reference")
    if reference is None:
        return
    verdicts = [row["verdict"] or "" for row in comparison["points"]]
    others = sum(bool(text) for text in verdicts) - 1
    worse, better = (
        sum(text.startswith(word) for text in verdicts) for word in ("worse", "better")
    )
    counts = [f"{n} {'is' if n == 1 else 'are'}" for n in (worse, better)]
    name = summary["points"][reference]["name"]
    yield {
        "paragraph": f"Of {others} other points, {counts[0]} worse than {name}, {counts[1]} "
        f"better, and {others - worse - better} cannot be told apart from it."
    }


def points(sweep: sweep_results.Sweep, sides: Sequence[RunGroup]) -> Iterator[Block]:
    """Yields the table of a sweep, score first, with intervals as lines and costs; and notes."""
    summary = sweep.summary
    comparison = summary.get("comparison") or {}
    header, rows = sweep_results.rows(summary)
    order = sweep_results.order(summary["points"], summary["minimize"])
    own = [summary["points"][place] for place in order]
    runs, score = recorded(sides), 1 + len(summary["parameters"])
    bounds = report_curves.bounds(runs[0], summary["metric"]) if runs else (-math.inf, math.inf)
    columns = [list[object](column) for column in zip(*rows, strict=True)]
    # Of each point, the folder of its first trial; and the first run in each folder.
    folders = [summary["trials"][p["trials"][0]]["name"].split("/")[0] for p in own]
    targets = {
        _trial_folder(sweep, folder): target
        for folder, target in reversed(report_groups.page_ids(runs).items())
    }
    columns[0] = [
        Link(p["name"], targets[folder]) if folder in targets and len(runs) > 1 else p["name"]
        for p, folder in zip(own, folders, strict=True)
    ]
    columns[score] = [
        report_cells.bar(p["mean"], bounds, str(x))
        for p, x in zip(own, columns[score], strict=True)
    ]
    first = [0, score]
    interval = next((i for i, name in enumerate(header) if name.startswith("interval of")), None)
    if interval is not None:
        first.append(interval)
        ends = [comparison["points"][place]["interval"] for place in order]
        means = [e and (point["mean"], *e) for e, point in zip(ends, own, strict=True)]
        columns[interval] = [*report_cells.intervals(means, bounds)]
    costs = {
        _trial_folder(sweep, run.folder): cost
        for side, cost in [(side, side.mean_cost()) for side in sides]
        for run in recorded([side])
    }
    for name in comparison_text.cost_names(costs.values()):
        spent = [costs.get(folder, {}).get(name) for folder in folders]
        columns.append([comparison_text.cost(name, value) for value in spent])
        header.append(comparison_text.COSTS[name])
    places = [*first, *(i for i in range(len(header)) if i not in first)]
    yield {
        "table": [header[i] for i in places],
        "rows": [*zip(*(columns[i] for i in places), strict=True)],
        "best": 0 if summary["best"] is not None else None,
        "id": "runs",
    }
    method = [f"Method: {comparison['method']}."] if comparison.get("method") else []
    yield from (Block(note=line) for line in (*method, *comparison.get("notes", ())))


def _trial_folder(sweep: sweep_results.Sweep, folder: str) -> str:
    """Returns the name of the subfolder of the sweep that holds the folder of a run."""
    return os.path.relpath(folder, sweep.folder).split(os.sep)[0]


def effects(sweep: sweep_results.Sweep) -> Iterator[Block]:
    """Yields the mean scores of the values of each setting, that with the largest effect first."""
    metric, tried = sweep.summary["metric"], sweep_results.scored_points(sweep)
    found = main_effects.find(tried, _names(sweep)) if len(tried) > 1 else []
    if not found:
        return
    rows = []
    for effect in found:
        means = effect.means
        low, high = min(means, key=means.__getitem__), max(means, key=means.__getitem__)
        rows.append([effect.name, effect.size, high, means[high], low, means[low]])
    header = ["setting", "difference", "highest with", "mean", "lowest with", "mean"]
    yield {"table": header, "rows": rows}
    scores = [point["mean"] for point in tried]
    limits = min(scores), max(scores)
    yield {"figures": [(e.name, charts.effect(e.name, e.groups, metric, limits)) for e in found]}
    yield {
        "note": f"Mean {metric} of all points with a value, whatever their other settings; each "
        "point is a gray dot."
    }


def _names(sweep: sweep_results.Sweep) -> list[str]:
    """Returns the settings with several values, in the order of the plan."""
    names = sweep_results.axes_of(sweep)
    return [name for name in sweep.summary["parameters"] if name in names]


def pairs(sweep: sweep_results.Sweep, axes: Sequence[str]) -> Iterator[Block]:
    """Yields scores over two settings: a heat map, or points if there are too many values.

    `axes` are names from `check_axes`.
    """
    tried, metric = sweep_results.scored_points(sweep), sweep.summary["metric"]
    if len(tried) < 2 or len(axes) < 2:
        return
    grid = sweep_results.grid_of(sweep, axes)
    if grid is None:
        xs, ys = ([point["parameters"][name] for point in tried] for name in axes)
        svg = charts.points(axes, xs, ys, [point["mean"] for point in tried], metric)
        yield {"figures": [("Each point that was tried; the higher its score, the stronger", svg)]}
        return
    known = [score for row in grid[1] for score in row if score is not None]
    low, spread = min(known), max(known) - min(known)
    columns, names = ([sweep_plan.text_of(value) for value in side] for side in grid[0])
    yield {
        "matrix": [
            (name, [
                None if score is None else report_cells.Square(
                    f"{score:.4g}", (score - low) / spread if spread else 1.0,
                    f"{axes[0]} {column}, {axes[1]} {name}: {score:.4g}",
                )
                for column, score in zip(columns, row, strict=True)
            ])
            for name, row in zip(names, grid[1], strict=True)
        ],
        "columns": columns,
        "corner": f"{axes[1]} ↓ {axes[0]} →",
        "vertical": False,
        "caption": f"Mean {metric} over all other settings and seeds",
    }  # fmt: skip


def parallel(sweep: sweep_results.Sweep) -> Iterator[Block]:
    """Yields parallel coordinates of a sweep over three settings or more."""
    tried, names = sweep_results.scored_points(sweep), _names(sweep)
    metric = sweep.summary["metric"]
    if len(tried) < 2 or len(names) < 3:
        return
    rows = [[point["parameters"][name] for name in names] for point in tried]
    svg = charts.parallel_coordinates(names, rows, [point["mean"] for point in tried], metric)
    yield {"figures": [(f"Each point, from its settings to {metric}; higher is stronger", svg)]}


def failures(summary: Mapping[str, Any]) -> Block:
    """Returns the table of failed trials in a summary of `sweep_results`, with ends of logs."""
    rows = [[t["name"], "\n".join(t["error"])] for t in summary["trials"] if t["error"]]
    return {"table": ["trial", "the end of its log"], "rows": rows}
