"""The journal of a sweep, ``sweep.json``: its plan and the outcome of each trial.

The file is replaced as a whole at each change, so a killed sweep resumes from its content. It holds
no times: the final journal of an interrupted sweep equals that of an uninterrupted one.
"""

import dataclasses
import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from types import NoneType
from typing import Any

from albert.experiments import sweep_plan
from albert.io import file_io, json_shapes

NAME = "sweep.json"
WAITING, RUNNING, INTERRUPTED = "waiting", "running", "interrupted"
DONE, FAILED, PRUNED = "done", "failed", "pruned"
_STATES = (WAITING, RUNNING, INTERRUPTED, DONE, FAILED, PRUNED)
_FORMAT = 1
_NUMBER = (*json_shapes.NUMBER, NoneType)
_SHAPE = {
    "number": int, "name": str, "arguments": [str], "seed?": (int, NoneType), "known?": int,
    "parameters?": {"*": (*sweep_plan.SCALARS, NoneType)}, "state?": str, "step?": (int, NoneType),
    "value?": _NUMBER, "metrics?": {"*": _NUMBER}, "error?": [str], "verdict?": str,
    "evaluated?": (int, NoneType), "baseline?": _NUMBER, "test?": {"*": _NUMBER},
}  # fmt: skip
# A folder name, as `sweep_plan` accepts it; all seeds of a named trial are in one folder.
_NAME = re.compile(r"\w[\w.-]*(/seed_-?\d+)?")


@dataclasses.dataclass
class Trial:
    """One run of the script.

    Attributes:
      name: its folder, below that of the sweep.
      arguments: arguments in addition to those of all trials.
      parameters: {name: value}; empty if trials are listed by name.
      seed: value of its flag ``seed``; None without `sweep_plan.Plan.seeds`.
      known: number of trials that had certainly ended when it was planned; decisions use only
        their results.
      state: one of `_STATES`.
      step: step of the evaluation that gave `value`.
      value: its score; None if it is missing or not finite.
      metrics: {name: number} of the same evaluation; None if not finite.
      error: last lines of the log if the trial failed.
      verdict: whether it has learned, see `stuck_runs.verdict`.
      evaluated, baseline, test: see `run_record.Context`.
    """

    number: int
    name: str
    arguments: list[str]
    parameters: dict[str, Any] = dataclasses.field(default_factory=dict)
    seed: int | None = None
    known: int = 0
    state: str = WAITING
    step: int | None = None
    value: float | None = None
    metrics: dict[str, float | None] = dataclasses.field(default_factory=dict)
    error: list[str] = dataclasses.field(default_factory=list)
    verdict: str = ""
    evaluated: int | None = None
    baseline: float | None = None
    test: dict[str, float | None] = dataclasses.field(default_factory=dict)

    @property
    def has_ended(self) -> bool:
        """Returns whether the trial no longer needs a process."""
        return self.state in (DONE, FAILED, PRUNED)

    def reset(self) -> None:
        """Clears its results, so that it runs again."""
        self.state, self.step, self.value, self.metrics, self.error = WAITING, None, None, {}, []
        self.verdict, self.evaluated, self.baseline, self.test = "", None, None, {}


def by_point(trials: Iterable[Trial]) -> list[list[Trial]]:
    """Groups trials: all seeds of a point together, points in the order of their first trials.

    A point that a search has tried twice counts as two points.
    """
    groups: list[list[Trial]] = []
    alike: dict[str, list[list[Trial]]] = {}
    for trial in trials:
        # All seeds of a named trial are in one folder.
        same = alike.setdefault(key_of(trial.parameters or os.path.dirname(trial.name)), [])
        if not trial.parameters and trial.seed is None:
            same = []  # Each named trial without seeds is its own point.
        group = next((g for g in same if trial.seed not in [other.seed for other in g]), None)
        if group is None:
            group = []
            groups.append(group)
            same.append(group)
        group.append(trial)
    return groups


def key_of(point: object) -> str:
    """Returns a text that is the same for equal points."""
    return json.dumps(point, sort_keys=True)


class Journal:
    """The journal of a folder, read if it exists.

    Args:
      description: the plan as JSON, see `sweep_plan.Plan.describe`.
      changeable: keys of it that may differ from those of an earlier start.
    """

    def __init__(self, folder: str, description: dict, changeable: Iterable[str] = ()) -> None:
        self.folder = folder
        self.trials: list[Trial] = []
        self._description = description
        path = os.path.join(folder, NAME)
        if file_io.exists(path):
            old, self.trials = read(folder)
            _check_same(path, old, description, changeable)

    def write(self) -> None:
        """Writes the journal, replacing the file."""
        content = {
            "format": _FORMAT,
            "plan": self._description,
            "trials": [dataclasses.asdict(trial) for trial in self.trials],
        }
        file_io.write_json(os.path.join(self.folder, NAME), content)


def is_sweep(folder: str) -> bool:
    """Returns whether a folder has a journal."""
    return file_io.exists(os.path.join(folder, NAME))


def read(folder: str) -> tuple[dict, list[Trial]]:
    """Reads the plan of a sweep, see `sweep_plan.Plan.describe`, and its trials."""
    path = os.path.join(folder, NAME)
    content = file_io.read_json(path, "journal of the sweep")
    json_shapes.check_text(content, path)
    try:
        if content["format"] != _FORMAT:
            raise file_io.InputError(
                f"{path}: format {content['format']}, expected {_FORMAT}; another version of this "
                "toolkit wrote it: use another output_dir"
            )
        json_shapes.check(content["trials"], [_SHAPE], f"{path}: trials")
        trials = [_checked(Trial(**fields), i) for i, fields in enumerate(content["trials"])]
        return {**content["plan"]}, trials
    except (KeyError, TypeError) as error:
        raise file_io.InputError(
            f"{path}: not the journal of a sweep ({error}); use another output_dir"
        ) from error


def _checked(trial: Trial, number: int) -> Trial:
    """Returns the trial of an entry; checks that its name stays inside the folder.

    `number`: that of its line in the journal.
    """
    if trial.number != number or trial.state not in _STATES or not _NAME.fullmatch(trial.name):
        raise TypeError(f"trial {number} is damaged")
    return trial


def _check_same(
    path: str, old: dict[str, Any], new: dict[str, Any], changeable: Iterable[str]
) -> None:
    """Rejects a plan with other values, except of changeable keys and of those that have grown."""
    for key in sorted({*old, *new} - set(changeable)):
        was, now = old.get(key), new.get(key)
        if was != now and not (key in _GROWING and _GROWING[key](was, now)):
            raise file_io.InputError(
                f"{path}: this sweep was started with {_difference(key, old, new)}; give the "
                f"same{' or more' if key in _GROWING else ''}, or use another output_dir"
            )


def _all_in(was: object, now: list) -> bool:
    """Returns whether a list has all earlier values; False if `was` is empty or no list."""
    return isinstance(was, list) and bool(was) and {*map(key_of, was)} <= {*map(key_of, now)}


def _parameters_in(was: object, now: dict[str, Any]) -> bool:
    """Returns whether the parameters are the same, with all of their earlier values."""
    if not isinstance(was, dict) or was.keys() != now.keys():
        return False
    return all(_values_in(was[name], now[name]) for name in now)


def _values_in(was: Any, now: Any) -> bool:
    """Returns whether the values of a parameter, list or range, include the earlier ones."""
    if isinstance(now, list):
        return _all_in(was, now)
    if not isinstance(was, dict) or was.keys() != now.keys():
        return False
    is_same_kind = all(type(was[key]) is type(now[key]) for key in now)
    return (
        is_same_kind
        and (was["log"] == now["log"])
        and now["low"] <= was["low"]
        and was["high"] <= now["high"]
    )


# Keys whose values may grow between starts.
_GROWING: dict[str, Callable[[Any, Any], bool]] = {"seeds": _all_in, "parameters": _parameters_in}


def _difference(key: str, old: dict[str, Any], new: dict[str, Any]) -> str:
    """Returns the earlier and the present value of a key; for an object only the differences."""
    was, now = old.get(key), new.get(key)
    if isinstance(was, dict) and isinstance(now, dict):
        names = [name for name in {**was, **now} if was.get(name) != now.get(name)]
        was, now = ({name: side.get(name) for name in names} for side in (was, now))
    return f"{key} {was!r}, now {now!r}"


# --- points ---------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Point:
    """A point of a sweep.

    Attributes:
      name: its parameters as ``name=value;name=value``, or the name of its trials.
      trials: its trials, one for each seed.
    """

    name: str
    trials: Sequence[Trial]


def read_points(folder: str) -> list[Point]:
    """Returns the points of the sweep in a folder, in the order of their first trials."""
    return points_of(read(folder)[1])


def points_of(trials: Iterable[Trial]) -> list[Point]:
    """Returns the points of trials, with names that differ."""
    points: list[Point] = []
    for group in by_point(trials):
        values = group[0].parameters
        name = ";".join(f"{key}={sweep_plan.text_of(value)}" for key, value in values.items())
        if not name:
            first = group[0].name
            name = os.path.dirname(first) if group[0].seed is not None else first
        if any(point.name == name for point in points):  # a search has tried it twice
            name = f"{name};{group[0].name}"
        points.append(Point(name, group))
    return points


def find_point(points: Sequence[Point], text: str) -> Point:
    """Finds the point that a text names.

    Args:
      text: the name of a point or of one of its trials, or some of its parameters, such as
        ``learning_rate=1e-5`` or ``learning_rate=1e-5;seed=2``, that only it has.
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


def _matches(parameters: dict[str, Any], name: str, text: str) -> bool:
    """Returns whether a point's parameter has the value in a text; numbers may have any form."""
    if name not in parameters:
        return False
    value = parameters[name]
    try:
        return float(text) == float(value)
    except (TypeError, ValueError):
        return text == sweep_plan.text_of(value)
