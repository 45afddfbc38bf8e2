"""Names the points of a sweep, and finds the point that a text names."""

import dataclasses
import os
from collections.abc import Iterable, Sequence

from albert.experiments import sweep_journal, sweep_plan
from albert.io import file_io


@dataclasses.dataclass(frozen=True)
class Point:
    """A point of a sweep.

    Attributes:
      name: its parameters as ``name=value;name=value``, or the name of its trials.
      trials: its trials, one for each seed.
    """

    name: str
    trials: Sequence[sweep_journal.Trial]


def read(folder: str) -> list[Point]:
    """Returns the points of the sweep in a folder, in the order of their first trials."""
    return of_trials(sweep_journal.read(folder)[1])


def of_trials(trials: Iterable[sweep_journal.Trial]) -> list[Point]:
    """Returns the points of trials, with names that differ."""
    points: list[Point] = []
    for group in sweep_journal.by_point(trials):
        values = group[0].parameters
        name = ";".join(f"{key}={sweep_plan.text_of(value)}" for key, value in values.items())
        if not name:
            first = group[0].name
            name = os.path.dirname(first) if group[0].seed is not None else first
        if any(point.name == name for point in points):  # a search has tried it twice
            name = f"{name};{group[0].name}"
        points.append(Point(name, group))
    return points


def find(points: Sequence[Point], text: str) -> Point:
    """Finds the point that a text names.

    Args:
      points: the points of a sweep.
      text: the name of a point or of one of its trials, or some of its parameters, such as
        ``learning_rate=1e-5`` or ``learning_rate=1e-5;seed=2``, that only it has.

    Raises:
      file_io.InputError: no point or several match; lists the names.
    """
    for point in points:
        if text == point.name or text in [trial.name for trial in point.trials]:
            return point
    pairs = [part.strip().partition("=")[::2] for part in text.split(";")]
    matches = [
        point
        for point in points
        if all(_matches(point.trials[0].parameters, *pair) for pair in pairs)
    ]
    if len(matches) != 1:
        names = ", ".join(repr(point.name) for point in (matches or points)[:20])
        how = "several points of the sweep" if matches else "no point of the sweep"
        raise file_io.InputError(f"{how}: {text!r}; expected one of {names}")
    return matches[0]


def _matches(parameters, name, text):
    if name not in parameters:
        return False
    value = parameters[name]
    try:
        return float(text) == float(value)
    except (TypeError, ValueError):
        return text == sweep_plan.text_of(value)
