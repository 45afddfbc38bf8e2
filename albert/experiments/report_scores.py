"""Blocks of a report about scores: means with their intervals, and what they have cost."""

from collections.abc import Iterator, Sequence

from albert.experiments import (
    charts,
    comparison,
    comparison_text,
    report_axes,
    statistics,
)
from albert.experiments.comparison_sides import Side
from albert.training import results

_SAME = 1.001  # ratio of costs up to which they are the same


def score_sides(sides: Sequence[Side]) -> list[comparison.SideScore]:
    """Returns the scores of sides, best first; [] without evaluations or SciPy."""
    metric = next((side.best_metric for side in sides if side.best_metric), None)
    if metric is None or not statistics.is_installed():
        return []
    scored = [comparison.score_side(side, metric) for side in sides]
    sign = 1 if results.is_loss(metric) else -1
    without_mean = [row for row in scored if row.mean is None]
    with_mean = [row for row in scored if row.mean is not None]
    return [*sorted(with_mean, key=lambda row: sign * row.mean.estimate), *without_mean]


def blocks(sides: Sequence[Side], axis: report_axes.Axis, in_sweep: bool = False) -> Iterator[dict]:
    """Yields the table of scores and costs, the intervals, and scores against cost.

    Args:
      sides: the sides of the report.
      axis: unit of the costs in the figure.
      in_sweep: whether the page has a table of the sweep with the intervals, so that this one only
        needs means and costs.
    """
    if len(sides) > 1 and not statistics.is_installed():
        yield {"note": f"{statistics.NOT_INSTALLED}."}
    scored = score_sides(sides)
    if not scored:
        return
    several = any(len(row.side.runs) > 1 for row in scored)
    if several or in_sweep:
        yield table(scored, with_runs=not in_sweep)
    metric, name = scored[0].side.best_metric, scored[0].name
    bars = [_bar(row, axis) for row in scored if row.mean is not None]
    figures = []
    if several:
        limit = charts.MAX_BARS
        for start in range(0, len(bars), limit):
            caption = f"{name}: mean over seeds, its 95% interval, and each run as a dot"
            figures.append((caption, charts.intervals(metric, bars[start : start + limit])))
    cost_figures, note = _against_cost(metric, name, bars, axis)
    yield {"figures": [*figures, *cost_figures]}
    if note:
        yield {"note": note}


def table(scored: Sequence[comparison.SideScore], with_runs: bool) -> dict:
    """Returns the table of sides with their scores and the mean cost of a run.

    Args:
      scored: the sides.
      with_runs: whether to show intervals, runs and remarks.
    """
    costs = cost_names([row.cost for row in scored])
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


def cost_names(costs: Sequence[dict]) -> list[str]:
    """Returns the fields of `run_record.Cost` that at least one of the costs has."""
    return [n for n in comparison_text.COSTS if any(cost.get(n) is not None for cost in costs)]


def _bar(row, axis):
    mean, cost = row.mean, row.cost.get(axis.field)
    cost = None if cost is None else axis.scale * cost
    values = [*row.scores.values()]
    return charts.Bar(row.side.name, mean.estimate, mean.low, mean.high, values, cost)


def _against_cost(metric, name, bars, axis):
    """Returns the figure of scores against cost, in a list, and a note."""
    with_cost = [bar for bar in bars if bar.cost]
    unit = "steps" if axis == report_axes.STEPS else axis.label
    if not with_cost:
        return [], f"No run has recorded its {unit}: scores are not drawn against cost."
    lacking = [bar.label for bar in bars if not bar.cost]
    note = f"Not drawn against cost: {', '.join(lacking)}, without {unit}." if lacking else ""
    lowest, highest = min(bar.cost for bar in with_cost), max(bar.cost for bar in with_cost)
    if len(with_cost) > 1 and highest <= _SAME * lowest:
        return [], f"A run of each costs the same, {lowest:.4g} {unit}. {note}".rstrip()
    if len(with_cost) < 2:
        return [], note
    caption = f"{name} against the mean cost of a run in {unit}"
    if len(with_cost) > charts.MAX_NAMED:
        caption += f"; gray: the other {len(with_cost) - charts.MAX_NAMED}"
    return [(caption, charts.score_by_cost(metric, with_cost, unit))], note
