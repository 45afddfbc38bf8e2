"""Reads and checks the specification of a sweep, and lists the points of its parameters.

A point is a value for each parameter. A trial is one run of a script: a point, with one of the
seeds if points are repeated over seeds. Trials are numbered from 0, all seeds of a point before
the next point.
"""

import dataclasses
import itertools
import json
import math
import random
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from albert.io import file_io, json_shapes
from albert.training import evaluation_basis, results

METHODS = ("grid", "random", "tpe")
Value = bool | int | float | str
SCALARS = (bool, int, float, str)
_SHAPE = {
    "script?": str, "flags?": dict, "parameters?": dict, "trials?": dict, "seeds?": list,
    "metric?": str, "minimize?": bool, "method?": str, "num_trials?": int, "prune?": bool,
    "prune_after?": int, "seed?": int,
}  # fmt: skip
# As people write it: 007 and 2024_01 are names, though Python reads them as numbers.
_NUMBER = re.compile(r"[+-]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]+)?", re.I)
_DIGITS = 4  # of a drawn number: precise enough, and short to read and to repeat


@dataclasses.dataclass(frozen=True)
class Range:
    """The numbers from `low` to `high`, both included; integers if both are integers.

    Attributes:
      log: whether numbers are drawn evenly on a logarithmic scale.
    """

    low: float
    high: float
    log: bool = False

    @property
    def is_whole(self) -> bool:
        """Returns whether only integers are drawn."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def at(self, fraction: float) -> float:
        """Returns the number at a fraction (0 to 1) of the way from `low` to `high`."""
        if self.log:
            low, high = math.log(self.low), math.log(self.high)
            return self.near(math.exp(low + fraction * (high - low)))
        return self.near(self.low + fraction * (self.high - self.low))

    def near(self, value: float) -> float:
        """Rounds `value` to few digits, inside the range."""
        if self.is_whole:
            value = round(value)
        elif value:
            value = round(value, _DIGITS - 1 - math.floor(math.log10(abs(value))))
        return min(max(value, self.low), self.high)


@dataclasses.dataclass(frozen=True)
class Plan:
    """A sweep.

    Attributes:
      script: module of the trials: the name of a script of this package, or dotted.
      arguments: arguments that all trials get.
      parameters: {flag: tuple of values or `Range`}; empty with `trials`.
      trials: {name: arguments} if the trials are listed by name.
      seeds: values of the flag ``seed``, one trial each; empty: one trial per point.
      metric: score of a trial; None: the metric that picks its best checkpoint.
      minimize: whether lower is better; None: yes if the metric is a loss.
      method: one of `METHODS`.
      num_trials: total number of trials; None: the whole grid.
      prune: whether to end trials that are behind the median of the earlier ones.
      prune_after: step before which no trial is pruned.
      seed: determines the points of a random or TPE search.
    """

    script: str
    arguments: tuple[str, ...] = ()
    parameters: dict = dataclasses.field(default_factory=dict)
    trials: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    seeds: tuple[int, ...] = ()
    metric: str | None = None
    minimize: bool | None = None
    method: str = "grid"
    num_trials: int | None = None
    prune: bool = False
    prune_after: int = 0
    seed: int = 12345

    def __post_init__(self) -> None:
        if self.minimize is None:
            object.__setattr__(self, "minimize", results.is_loss(self.metric or ""))
        if bool(self.parameters) == bool(self.trials):
            raise file_io.InputError(
                "a sweep needs parameters (a grid or a specification) or trials, not both"
            )
        _check_search(self)
        _check_repeats(self)

    def scored_by(self, metric: str | None) -> "Plan":
        """Returns the plan with this metric, unless it already has one or the metric is None."""
        if self.metric or not metric:
            return self
        return dataclasses.replace(self, metric=metric, minimize=self.minimize or None)

    @property
    def repeats(self) -> int:
        """Returns the number of trials per point."""
        return max(1, len(self.seeds))

    @property
    def needs_history(self) -> bool:
        """Returns whether a trial depends on the results of earlier ones."""
        return self.method == "tpe" or self.prune

    def describe(self) -> dict:
        """Returns {field: value}, without those that may grow, and "order", names of parameters."""
        fields = dataclasses.asdict(self)
        for name in ("arguments", "num_trials", "trials"):
            del fields[name]  # A sweep may get more trials.
        fields["order"] = list(self.parameters)
        return json.loads(json.dumps(fields))


def _check_search(plan: Plan) -> None:
    if names := evaluation_basis.choose_examples(plan.parameters):
        raise file_io.InputError(
            f"parameters: with other values of {', '.join(names)} other examples or labels are "
            "evaluated, so scores cannot be compared; make a sweep for each value"
        )
    if plan.method not in METHODS:
        raise file_io.InputError(f"method={plan.method!r}; expected one of {', '.join(METHODS)}")
    if plan.trials and (plan.method != "grid" or plan.prune or plan.num_trials is not None):
        raise file_io.InputError(
            "method, num_trials and prune are for parameters; trials that are given are all run"
        )
    for name, values in plan.parameters.items():
        if isinstance(values, Range) and plan.method == "grid":
            raise file_io.InputError(
                f"parameter {name!r} is a range, which a grid cannot go through: list its "
                "values, or use method=random or method=tpe"
            )
    if plan.num_trials is None:
        if plan.method != "grid":
            raise file_io.InputError(f"method={plan.method} needs num_trials")
    elif plan.num_trials < 1 or plan.num_trials % plan.repeats:
        raise file_io.InputError(
            f"num_trials={plan.num_trials} must be above 0 and a multiple of the number of seeds "
            f"({plan.repeats}), as each point is tried with each"
        )


def _check_repeats(plan: Plan) -> None:
    if plan.prune_after < 0:
        raise file_io.InputError(f"prune_after={plan.prune_after} must be a step, from 0 on")
    if len(set(plan.seeds)) < len(plan.seeds):
        raise file_io.InputError(f"seeds={list(plan.seeds)}: a seed appears twice")
    for seed in plan.seeds:
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise file_io.InputError(f"seeds: expected whole numbers, found {seed!r}")
    if plan.seeds and "seed" in plan.parameters:
        raise file_io.InputError("seed is a parameter and seeds are given; drop one of the two")
    if plan.prune and len(plan.seeds) > 1:
        raise file_io.InputError(
            "prune with several seeds would leave the bad ones out of the mean; drop one of the two"
        )


# --- reading ------------------------------------------------------------------------------------


def read_spec(path: str) -> dict:
    """Reads a specification file: a JSON object with some of the keys in `_SHAPE`."""
    spec = file_io.read_json(path, "spec")
    json_shapes.check_text(spec, f"spec: {path}")
    json_shapes.check(spec, _SHAPE, f"spec: {path}")
    keys = [key.rstrip("?") for key in _SHAPE]
    for key in spec:
        if key not in keys:
            raise file_io.InputError(
                f"spec: {path} has the unknown key {key!r}; known are {', '.join(keys)}"
            )
    return spec


def make_plan(
    spec: dict,
    arguments: Sequence[str] = (),
    trials: dict[str, list[str]] | None = None,
    path: str | None = None,
) -> Plan:
    """Makes the plan of a specification.

    Args:
      spec: JSON object of the file of the sweep: some of the keys in `_SHAPE`.
      trials: {name: arguments} that replace those of the specification; None: nothing does.
      path: file that the specification was read from, for messages; None: no file.
      arguments: further arguments of all trials.
    """
    try:
        return _make_plan(spec, arguments, trials)
    except file_io.InputError as error:
        if path is None:
            raise
        raise file_io.InputError(f"{path}: {error}") from error


def _make_plan(
    spec: Mapping[str, Any], arguments: Sequence[str], trials: Mapping[str, list[str]] | None
) -> Plan:
    """Makes the plan of a specification, see `make_plan`."""
    fields = dict(spec)
    if not fields.get("script"):
        raise file_io.InputError("script must name what each trial runs, such as run_classifier")
    common = arguments_of("flags", fields.pop("flags", {}))
    parameters = {
        name: _values(name, value) for name, value in fields.pop("parameters", {}).items()
    }
    own = {name: arguments_of(name, value) for name, value in fields.pop("trials", {}).items()}
    own = dict(trials or own)
    for name in own:
        if not re.fullmatch(r"\w[\w.-]*", name) or name == "logs":
            raise file_io.InputError(f"trials: {name!r} cannot be the name of a folder of results")
    return Plan(
        arguments=(*common, *arguments),
        parameters=parameters,
        trials={name: tuple(value) for name, value in own.items()},
        seeds=tuple(fields.pop("seeds", ())),
        **fields,
    )


def arguments_of(owner: str, flags: dict) -> list[str]:
    """Returns {flag: value} as arguments; messages name their owner, "flags" or a trial."""
    if not isinstance(flags, dict):
        raise file_io.InputError(f"{owner}: expected an object of flags, found {flags!r}")
    for name, value in flags.items():
        if not isinstance(value, SCALARS):
            raise file_io.InputError(
                f"{owner}: {name} must be a text, a number or true or false, found {value!r}"
            )
    return [argument(name, value) for name, value in flags.items()]


def argument(name: str, value: object) -> str:
    """Returns the command line argument that sets the flag `name` to a value of JSON."""
    return f"--{name}={text_of(value)}"


def text_of(value: object) -> str:
    """Returns a value in the form that scripts accept and tables show."""
    return json.dumps(value) if isinstance(value, bool) else str(value)


def _values(name: str, spec: object) -> tuple | Range:
    """Returns the values of a parameter from a list, or from a range, see `_range`."""
    if isinstance(spec, dict):
        return _range(name, spec)
    if not isinstance(spec, list) or not spec:
        raise file_io.InputError(
            f"parameter {name!r}: expected a list of values or a range "
            f'{{"low": …, "high": …, "log": true}}, found {spec!r}'
        )
    for value in spec:
        if not isinstance(value, SCALARS):
            raise file_io.InputError(
                f"parameter {name!r}: {value!r} is not a text, a number, true or false"
            )
    if len({text_of(value) for value in spec}) < len(spec):
        raise file_io.InputError(f"parameter {name!r}: a value appears twice in {spec}")
    return tuple(spec)


def _range(name: str, spec: dict[str, Any]) -> Range:
    """Returns the range of {"low": number, "high": number, "log": whether it is logarithmic}."""
    unknown = set(spec) - {"low", "high", "log"}
    ends: list[Any] = [spec.get(key) for key in ("low", "high")]
    for end in ends:
        if unknown or not json_shapes.is_number(end) or not abs(end) <= sys.float_info.max:
            raise file_io.InputError(
                f'parameter {name!r}: a range is {{"low": number, "high": number}}, for a '
                f'logarithmic scale with "log": true; found {spec!r}'
            )
    log = spec.get("log", False)
    if not isinstance(log, bool) or not ends[0] < ends[1] or (log and ends[0] <= 0):
        raise file_io.InputError(
            f"parameter {name!r}: low must be below high, and above 0 on a logarithmic scale; "
            f"found {spec!r}"
        )
    return Range(ends[0], ends[1], log)


def parse_grid(text: str) -> dict[str, list[Value]]:
    """Parses {name: values} in text such as ``learning_rate=1e-3,3e-3;train_batch_size=16,32``."""
    grid = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        name, equals, text_of_values = part.partition("=")
        name, values = name.strip(), [value.strip() for value in text_of_values.split(",")]
        if not equals or not name or not all(values):
            raise file_io.InputError(
                f"grid: expected name=value,value;name=value, found {part!r} in {text!r}"
            )
        if name in grid:
            raise file_io.InputError(f"grid: {name} appears twice in {text!r}")
        grid[name] = [_parse(value) for value in values]
    if not grid:
        raise file_io.InputError(f"grid: there is no parameter in {text!r}")
    return grid


def _parse(text: str) -> Value:
    """Returns the value in a text: a bool, a finite number, or the text."""
    if text in ("true", "false"):
        return text == "true"
    if not _NUMBER.fullmatch(text):
        return text
    value = float(text)
    if not math.isfinite(value):
        return text
    return int(text) if re.fullmatch("[+-]?[0-9]+", text) else value


# --- points -------------------------------------------------------------------------------------


def grid_size(parameters: Mapping[str, tuple | Range]) -> int | None:
    """Returns the number of points of a grid of {parameter: values}; None if it has a range."""
    sizes = [None if isinstance(x, Range) else len(x) for x in parameters.values()]
    return None if None in sizes else math.prod(filter(None, sizes))


def points(plan: Plan) -> Iterator[dict[str, object]]:
    """Yields the points of grid and random search, {name: value}, all different.

    The last parameter of a grid changes fastest. The points of a random search depend only on
    the seed; there are at most as many as the parameters have.
    """
    if plan.method == "grid":
        for values in itertools.product(*plan.parameters.values()):
            yield dict(zip(plan.parameters, values, strict=True))
        return
    source = random.Random(plan.seed)
    size = grid_size(plan.parameters)
    seen: set[str] = set()
    while size is None or len(seen) < size:
        point = {
            name: values.at(source.random()) if isinstance(values, Range) else source.choice(values)
            for name, values in plan.parameters.items()
        }
        key = json.dumps(point)
        if key not in seen:
            seen.add(key)
            yield point


def count(plan: Plan) -> float | None:
    """Returns the number of trials in the whole sweep, an integer; a valid plan has one."""
    if plan.trials:
        return len(plan.trials) * plan.repeats
    size = grid_size(plan.parameters)
    if plan.method == "tpe" or size is None:
        return plan.num_trials
    return min(plan.num_trials or math.inf, size * plan.repeats)
