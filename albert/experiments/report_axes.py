"""Axes of a report: what a run had spent when it reached a step, and what it has cost in all.

A step costs the mean of the steps of its session. Steps that were lost by a kill and attempts that
were given up are not on the way to a step; they are in the cost of the run.
"""

import bisect
import dataclasses
from collections.abc import Iterable, Sequence

from albert.experiments import report_data
from albert.io import file_io
from albert.training import run_record


@dataclasses.dataclass(frozen=True)
class Axis:
    """An axis.

    Attributes:
      name: its name in flags.
      label: its name in figures.
      field: field of `run_record.Cost`.
      scale: units of the axis per unit of the field.
    """

    name: str
    label: str
    field: str
    scale: float = 1.0

    def total(self, cost: run_record.Cost | None) -> float | None:
        """Returns a cost in the unit of the axis; None if it is unknown."""
        amount = None if cost is None else getattr(cost, self.field)
        return None if amount is None else self.scale * amount


STEPS = Axis("steps", "step", "steps")
AXES = {
    axis.name: axis
    for axis in (
        STEPS,
        Axis("examples", "examples", "examples"),
        Axis("tokens", "tokens", "tokens"),
        Axis("words", "words", "words"),
        Axis("minutes", "minutes of training", "seconds", 1 / 60),
        Axis("flop", "FLOP", "flop"),
    )
}


def place(run: report_data.Run, steps: Sequence[int], axis: Axis) -> list[float] | None:
    """Returns the places of steps on an axis; None if the run has not recorded this cost."""
    if axis == STEPS:
        return list(steps)
    parts = _sessions(run.record, axis)
    if not parts:
        return None
    starts = [start for start, _ in parts]
    spent = [0.0]
    for (start, rate), (end, _) in zip(parts, parts[1:], strict=False):
        spent.append(spent[-1] + rate * (end - start))
    places = []
    for step in steps:
        part = max(0, bisect.bisect_left(starts, step) - 1)
        places.append(spent[part] + parts[part][1] * (step - starts[part]))
    return places


def _sessions(record, axis):
    """Returns [(first step, cost of a step)] of the sessions that took the steps of a run."""
    parts = []
    if axis.field not in (record.get("cost") or {}):
        return parts
    for session in record["sessions"]:
        cost, start = session.get("cost") or {}, session["first_step"]
        if start is None or not cost.get("steps"):
            continue
        # Steps after the checkpoint that this session resumed from were lost.
        parts = [part for part in parts if part[0] < start]
        parts.append((start, axis.scale * cost[axis.field] / cost["steps"]))
    return parts


def check(runs: Iterable[report_data.Run], axis: Axis) -> None:
    """Checks that at least one run can be drawn on an axis.

    Raises:
      file_io.InputError: none can; the message names the axes that are known.
    """
    runs = list(runs)
    if not runs or any(place(run, [0], axis) is not None for run in runs):
        return
    names = [other.name for other in AXES.values() if place(runs[0], [0], other) is not None]
    raise file_io.InputError(
        f"axis={axis.name}: no run has recorded its {axis.field}; expected one of "
        f"{', '.join(names)}"
    )
