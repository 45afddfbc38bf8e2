"""Runs on disk: their records, the runs of a folder, groups of runs, and axes of what they cost."""

import bisect
import collections
import contextlib
import dataclasses
import functools
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from albert.experiments import seed_runs, sweep_journal
from albert.io import file_io, json_shapes
from albert.training import evaluation_basis, results, run_record, stuck_runs

# Kinds of folders.
RUN, SWEEP, GLUE, SEEDS = "run", "sweep", "GLUE sweep", "runs over seeds"
GLUE_TABLE = "results.json"  # file of a sweep over GLUE tasks
# Statuses, beside `stuck_runs.LEARNED_NOTHING`.
FINISHED, STUCK, PRUNED = "finished", stuck_runs.STUCK, sweep_journal.PRUNED
FAILED, INTERRUPTED = run_record.FAILED, run_record.INTERRUPTED
RUNNING, NOT_STARTED = run_record.RUNNING, "not started"
TEST = "test/"  # prefix of scores on labeled test data
# Flags that locate files or control logging; they do not affect what is learned.
_PLACES = {"output_dir", "cached_dir", "export_dir", "log_every_steps", "log_format"}
_NOT_SCORES = {"kind", "step", "seconds", "checkpoint", "time", "global_step", "best"}


# --- axes -----------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Axis:
    """An axis: what a run had spent when it reached a step, or what it has cost in all.

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


# --- a run ----------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """A run in its output folder, also one that has failed before it left a record.

    Attributes:
      name, folder: what tables call it; its output folder.
      record: content of its ``run.json``; {} without one.
      rows: lines of its ``metrics.jsonl``.
      outcome: what its sweep or its seeds say of it, such as "pruned"; "" if nothing.
      given_seed: its seed, if a sweep names it.
    """

    name: str
    folder: str
    record: dict[str, Any] = dataclasses.field(default_factory=dict, repr=False)
    rows: list[dict[str, Any]] = dataclasses.field(default_factory=list, repr=False)
    outcome: str = ""
    given_seed: int | None = None

    @property
    def task(self) -> tuple[str, str | None]:
        """Returns (script, task), which runs must share to be compared; ("", None) if unknown."""
        if not self.record:
            return "", None
        return self.record["script"], self.record.get("task") or self.flag("task_name")

    @property
    def best_metric(self) -> str | None:
        """Returns the name of the score that picks its best checkpoint; None if not known yet."""
        return self.record.get("best_metric")

    @functools.cached_property
    def basis(self) -> evaluation_basis.Basis | None:
        """Returns what its score was measured on; None without a record."""
        return run_record.basis_of_result(self.folder, self.record) if self.record else None

    @property
    def seed(self) -> int:
        """Returns its seed; 0 without one."""
        if self.given_seed is not None:
            return self.given_seed
        if self.record:
            seed = self.flag("seed")
            return seed if isinstance(seed, int) else 0
        end = os.path.basename(self.folder).rpartition("_")[2]
        return int(end) if end.isdecimal() else 0

    # What became of it.

    @functools.cached_property
    def given_up(self) -> list[dict[str, Any]]:
        """Returns the abandoned attempts, which did not learn; see `stuck_runs.read`."""
        return stuck_runs.read(self.folder) if self.record else []

    def attempts(self) -> list["Run"]:
        """Returns the abandoned attempts as runs, with their own lines."""
        runs = []
        for attempt in self.given_up:
            folder = os.path.join(self.folder, attempt["folder"])
            name = f"{attempt['folder']}, seed {attempt['seed']}"
            runs.append(Run(name, folder, self.record, run_record.read_metrics(folder)))
        return runs

    @functools.cached_property
    def ending(self) -> str:
        """Returns its status without a verdict on what it has learned, except `STUCK`."""
        if not self.record:
            known = self.outcome not in ("", sweep_journal.WAITING)
            return self.outcome if known else NOT_STARTED
        status = self.record["status"]
        if self.outcome == PRUNED:
            return PRUNED
        if status != RUNNING and (
            stuck_runs.verdict(self.folder, self.result.get("step")) == STUCK
            or (self.given_up and not self.rows)
        ):
            return STUCK
        if self.outcome == FAILED or (self.outcome == INTERRUPTED and status == RUNNING):
            return self.outcome
        return FINISHED if status == run_record.DONE else status

    @functools.cached_property
    def status(self) -> str:
        """Returns `ending`, or that it ended without having learned."""
        if self.ending == FINISHED and self.record:
            verdicts = (self.outcome, *self.remarks)
            return next((v for v in verdicts if v in stuck_runs.LEARNED_NOTHING), FINISHED)
        return self.ending

    @property
    def has_learned(self) -> bool:
        """Returns whether it ended well and has learned."""
        return self.status == FINISHED

    @property
    def remarks(self) -> list[str]:
        """Returns warnings about the score."""
        return stuck_runs.remarks(self.folder, {**self.record, "result": self.result})

    # Scores and costs.

    @property
    def result(self) -> dict[str, Any]:
        """Returns {"step": step, name: score} of its best checkpoint; {} without one.

        If all attempts were abandoned, the recorded result belongs to one of them: also {}.
        """
        if self.given_up and not self.rows:
            return {}
        return self.record["result"] or {}

    @property
    def score(self) -> float | None:
        """Returns the score of its best checkpoint; None without an evaluation."""
        return self.result.get(self.best_metric or "")

    @property
    def evaluated(self) -> int | None:
        """Returns the number of checkpoints of which the score is the best; None if unknown."""
        return self.record.get("evaluated")

    @property
    def score_name(self) -> str:
        """Returns the name of a metric with the number of checkpoints that it is the best of."""
        return results.best_of(self.best_metric or "score", [self.evaluated])

    @property
    def test_score(self) -> float | None:
        """Returns the same score on labeled test data; None without such data."""
        return (self.record.get("test") or {}).get(self.best_metric or "")

    @functools.cached_property
    def scores(self) -> dict[str, float]:
        """Returns {name: finite score} of its best checkpoint and, with `TEST`, of test data."""
        return {
            name: float(value)
            for name, value in self._values().items()
            if value is not None and math.isfinite(value)
        }

    @property
    def undefined(self) -> set[str]:
        """Returns the names of the other scores, whose labels make any answers score the same."""
        return self._values().keys() - self.scores.keys()

    def _values(self) -> Mapping[str, float | None]:
        """Returns {name: score} of dev and, with `TEST`, test data; None or NaN: undefined."""
        groups = {"": self.result, TEST: self.record.get("test") or {}}
        return {
            f"{prefix}{name}": value
            for prefix, scores in groups.items()
            for name, value in scores.items()
            if name != "step"
        }

    @functools.cached_property
    def cost(self) -> run_record.Cost | None:
        """Returns the cost of its training; None if unknown."""
        return run_record.read_cost(self.folder)

    # Settings, curves and inputs.

    def flag(self, name: str) -> Any:
        """Returns the value of the flag `name`; None if the script has no such flag."""
        return self.record["flags"].get(name, {}).get("value")

    @property
    def settings(self) -> list[str]:
        """Returns the names of its settings, except those that only name places."""
        return [name for name in self.record["flags"] if name not in _PLACES]

    def names(self, kind: str) -> list[str]:
        """Returns the names of the numbers in its lines of one kind ("train" or "eval")."""
        rows = (row for row in self.rows if row.get("kind") == kind)
        names = dict.fromkeys(
            name for row in rows for name in row if json_shapes.is_number(row[name])
        )
        return [name for name in names if name not in _NOT_SCORES]

    def curve(self, kind: str, name: str | None) -> tuple[list[int], list[float]]:
        """Returns (steps, values) of a number; two empty lists if it was not recorded.

        Args:
          kind: kind of the lines in the file of metrics, such as `run_record.TRAIN`.
          name: key of the number; None: nothing is found.
        """
        pairs = {
            row["step"]: row[name]
            for row in self.rows
            if row.get("kind") == kind and name is not None and json_shapes.is_number(row.get(name))
        }
        return sorted(pairs), [pairs[step] for step in sorted(pairs)]

    def places(self, steps: Sequence[int], axis: Axis) -> list[float] | None:
        """Returns the places of steps on an axis; None if the run has not recorded this cost.

        A step costs the mean of the steps of its session. Steps that were lost by a kill and
        attempts that were given up are not on the way to a step; they are in the cost of the run.
        """
        if axis == STEPS:
            return list(steps)
        parts = self._session_costs(axis)
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

    def _session_costs(self, axis: Axis) -> list[tuple[int, float]]:
        """Returns [(first step, cost of a step)] on an axis of the sessions that took the steps."""
        parts: list[tuple[int, float]] = []
        if axis.field not in (self.record.get("cost") or {}):
            return parts
        for session in self.record["sessions"]:
            cost, start = session.get("cost") or {}, session["first_step"]
            if start is None or not cost.get("steps"):
                continue
            # Steps after the checkpoint that this session resumed from were lost.
            parts = [part for part in parts if part[0] < start]
            parts.append((start, axis.scale * cost[axis.field] / cost["steps"]))
        return parts

    @property
    def _predicting_session(self) -> dict[str, Any] | None:
        """Returns the entry of the session that wrote its prediction files; None without one."""
        sessions = [s for s in self.record["sessions"] if run_record.PREDICT in s["stages"]]
        # Older records do not say whether a session came to predict.
        came = [session for session in sessions if "predicted" in session]
        return next(reversed(came or sessions), None)

    @property
    def predicted(self) -> dict[str, Any] | None:
        """Returns {"path", "sha256", …} of the data of its prediction files; None if unknown.

        A later session that only predicts has its own inputs.
        """
        session = self._predicting_session
        inputs = session and session.get("inputs", self.record["inputs"])
        return inputs.get("predict_data") if inputs else None

    @property
    def tested_on(self) -> dict[str, Any] | None:
        """Returns {"path", "sha256", …} of the data of its test scores; None if unknown."""
        return self.record.get(run_record.TESTED_ON)

    @property
    def predicted_step(self) -> int | None:
        """Returns the step of the checkpoint of its prediction files; None if it is unknown."""
        return ((self._predicting_session or {}).get("predicted") or {}).get("step")

    def find(self, path: str) -> str | None:
        """Finds a path of the run from any working directory; None if it is gone."""
        for candidate in (path, os.path.join(self.record["directory"], path)):
            if file_io.exists(candidate):
                return candidate
        return None


# --- reading --------------------------------------------------------------------------------------


@contextlib.contextmanager
def damage_named(path: str) -> Iterator[None]:
    """Turns errors caused by a file's unexpected content into a message that names the file."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        if isinstance(error, file_io.InputError):
            raise
        raise file_io.InputError(f"{path} does not hold what was expected: {error!r}") from error


def has_record(folder: str) -> bool:
    """Returns whether a folder holds the record of a run or of runs over seeds."""
    names = (run_record.RUN, seed_runs.SEEDS)
    return any(file_io.exists(os.path.join(folder, name)) for name in names)


def read_run(folder: str, name: str, outcome: str = "", given_seed: int | None = None) -> Run:
    """Reads the run of a folder, which may have left no record; see `Run`.

    Args:
      name: what tables call the run.
      outcome, given_seed: how it ended and its seed, if the caller knows them; else "" and None.
    """
    path = os.path.join(folder, run_record.RUN)
    if not file_io.exists(path):
        return Run(name, folder, outcome=outcome, given_seed=given_seed)
    record, rows = run_record.read(folder), run_record.read_metrics(folder)
    run = Run(name, folder, record, rows, outcome, given_seed)
    with damage_named(path):  # while the file can be named
        _ = run.status, run.scores, run.cost
    return run


def runs_of(folder: str) -> list[Run]:
    """Reads the run of a folder, its runs over seeds, or those of all trials of its sweep."""
    name = os.path.basename(folder)
    if kind_of(folder) not in (SWEEP, GLUE):
        return list(_read_parts(folder, name, "", None))
    trials = sweep_journal.read(folder)[1]
    return [run for trial in trials for run in runs_of_trial(folder, trial)]


def runs_of_trial(folder: str, trial: sweep_journal.Trial) -> list[Run]:
    """Reads the runs of a trial of the sweep in a folder: one, or several over seeds."""
    part, name = os.path.join(folder, trial.name), f"{os.path.basename(folder)}/{trial.name}"
    return list(_read_parts(part, name, trial.state, trial.seed))


def _read_parts(folder: str, name: str, outcome: str, seed: int | None) -> Iterator[Run]:
    """Yields the run of a folder, or each of its runs over seeds, also those that failed.

    The other arguments are those of `read_run`.
    """
    path = os.path.join(folder, seed_runs.SEEDS)
    if not file_io.exists(path):
        yield read_run(folder, name, outcome, seed)
        return
    # The seed that is running is not in the file yet.
    parts = (part for part in file_io.listdir(folder) if part.startswith("seed_"))
    outcomes = dict.fromkeys(sorted(parts), "")
    outcomes |= {run["folder"]: run["status"] for run in seed_runs.read(path)["runs"]}
    for part, status in outcomes.items():
        yield read_run(os.path.join(folder, part), f"{name}/{part}", status)


def find_folders(patterns: Iterable[str]) -> list[str]:
    """Returns the folders that match patterns, paths and globs, in order, without repetition."""
    paths = []
    for pattern in filter(None, (pattern.strip() for pattern in patterns)):
        matches = [pattern] if file_io.exists(pattern) else file_io.glob(pattern)
        folders = [path.rstrip("/") for path in matches if file_io.is_dir(path)]
        if not folders:
            raise file_io.InputError(f"runs: no folder matches {pattern!r}")
        paths += folders
    if not paths:
        raise file_io.InputError("runs: name at least one folder")
    return list(dict.fromkeys(paths))


def kind_of(folder: str) -> str:
    """Returns the kind of a folder: RUN, SWEEP, GLUE or SEEDS."""
    for kind, names in (
        (GLUE, (sweep_journal.NAME, GLUE_TABLE)),
        (SWEEP, (sweep_journal.NAME,)),
        (SEEDS, (seed_runs.SEEDS,)),
        (RUN, (run_record.RUN,)),
    ):
        if all(file_io.exists(os.path.join(folder, name)) for name in names):
            return kind
    raise file_io.InputError(
        f"runs: {folder} is not the output folder of a run or a sweep: it has no {run_record.RUN} "
        f"and no {sweep_journal.NAME}"
    )


# --- groups ---------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class RunGroup:
    """Runs that differ only in their seed, and are compared or drawn as one.

    Attributes:
      name: short name, different from that of other groups.
      folder: folder of the runs, of the sweep, or the file of predictions.
      runs: all runs, by seed.
    """

    name: str
    folder: str
    runs: tuple[Run, ...]

    @property
    def recorded(self) -> list[Run]:
        """Returns the runs that have left a record."""
        return [run for run in self.runs if run.record]

    @property
    def task(self) -> tuple[str, str | None]:
        """Returns (script, task); ("", None) for a file of predictions."""
        return next((run.task for run in self.recorded), ("", None))

    @property
    def best_metric(self) -> str:
        """Returns the name of the score that picks the best checkpoints; "" without evaluations."""
        return next((run.best_metric for run in self.runs if run.best_metric), "")

    @property
    def basis(self) -> evaluation_basis.Basis | None:
        """Returns what the scores were measured on; None for a file of predictions."""
        return next((run.basis for run in self.recorded), None)

    @property
    def counted(self) -> tuple[Run, ...]:
        """Returns the runs that are compared: those that have learned, or all that ended well."""
        learned = tuple(run for run in self.runs if run.has_learned)
        return learned or tuple(r for r in self.runs if r.status in stuck_runs.LEARNED_NOTHING)

    @property
    def averaged(self) -> list[Run]:
        """Returns the runs whose mean is drawn: those of the score, or all if there is none."""
        return [run for run in self.counted if run.record] or self.recorded

    @property
    def not_averaged(self) -> list[Run]:
        """Returns the other runs that have left a record, which are drawn as thin lines."""
        averaged = self.averaged
        return [run for run in self.recorded if run not in averaged]

    @property
    def counts(self) -> dict[str, int]:
        """Returns {status: number of runs}, finished ones first."""
        counts = collections.Counter(run.status for run in self.runs)
        return dict(sorted(counts.items(), key=lambda pair: pair[0] != FINISHED))

    @property
    def restarts(self) -> int:
        """Returns the number of abandoned attempts of all runs."""
        return sum(len(run.given_up) for run in self.runs)

    def is_undefined(self, metric: str) -> bool:
        """Returns whether the score `metric` is undefined in the compared runs."""
        return any(metric in run.undefined for run in self.counted)

    @property
    def score_names(self) -> list[str]:
        """Returns the metrics that all counted runs have."""
        return [
            name
            for name in dict.fromkeys(name for run in self.counted for name in run.scores)
            if all(name in run.scores for run in self.counted)
        ]

    def scores(self, metric: str, with_stuck: bool = False) -> dict[int, float]:
        """Returns {seed: score} of compared runs; `with_stuck` adds those that learned nothing."""
        runs = [run for run in self.runs if run.status in stuck_runs.LEARNED_NOTHING]
        runs = [*self.counted, *(run for run in runs if with_stuck and run not in self.counted)]
        return {run.seed: run.scores[metric] for run in runs if metric in run.scores}

    def mean_cost(self) -> dict[str, float]:
        """Returns {field of `run_record.Cost`: mean over the runs}, of those that all know.

        Failed and stuck runs count as well: they were paid for.
        """
        costs = [run.cost for run in self.runs if run.cost is not None]
        means = {}
        for field in dataclasses.fields(run_record.Cost):
            values = [getattr(cost, field.name) for cost in costs]
            if values and None not in values:
                means[field.name] = sum(values) / len(values)
        return means

    def score_name(self, metric: str) -> str:
        """Returns the name of a score with the number of checkpoints that it is the best of."""
        if metric.startswith(TEST):
            return f"{metric.removeprefix(TEST)} (test)"
        return results.best_of(metric, [run.evaluated for run in self.counted])


def recorded(groups: Iterable[RunGroup]) -> list[Run]:
    """Returns the runs of groups that have left a record."""
    return [run for group in groups for run in group.recorded]


# --- checks and names -----------------------------------------------------------------------------


def check_same_task(
    names: Sequence[str], tasks: Sequence[tuple[str, str | None]], reason: str, flag: str = "runs"
) -> None:
    """Checks that runs or groups are of one task.

    Args:
      names: what messages call the runs or groups.
      tasks: (script, name of the task or None) of each.
      reason: why they must be; ends the message.
      flag: begins the message.
    """
    for name, task in zip(names, tasks, strict=True):
        if task != tasks[0]:
            texts = [" of the task ".join(filter(None, pair)) for pair in (tasks[0], task)]
            raise file_io.InputError(
                f"{flag}: {names[0]} is {texts[0]}, but {name} is {texts[1]}; {reason}"
            )


def check_same_evaluation(runs: Sequence[Run], *parts: str) -> None:
    """Checks that runs are of one task, and were evaluated on the same data and labels.

    Args:
      parts: what must agree besides data and labels: `evaluation_basis.READING`, `METRIC`.
    """
    names = [run.folder for run in runs]
    check_same_task(names, [run.task for run in runs], "a report compares runs of one task")
    bases = [run.basis or evaluation_basis.Basis() for run in runs]
    evaluation_basis.check_same(names, bases, *parts)


def check_axis(runs: Sequence[Run], axis: Axis) -> None:
    """Checks that at least one of the runs, if there are any, can be drawn on an axis."""
    if not runs or any(run.places([0], axis) is not None for run in runs):
        return
    names = [other.name for other in AXES.values() if runs[0].places([0], other) is not None]
    raise file_io.InputError(
        f"axis={axis.name}: no run has recorded its {axis.field}; expected one of "
        f"{', '.join(names)}"
    )


def short_names(folders: Sequence[str]) -> list[str]:
    """Returns the paths of folders without their common leading part."""
    parts = [os.path.normpath(folder).split(os.sep) for folder in folders]
    if len(parts) == 1:
        return [parts[0][-1]]
    shared = 0
    while all(len(p) > shared + 1 and p[shared] == parts[0][shared] for p in parts):
        shared += 1
    return ["/".join(part[shared:]) for part in parts]


def setting_text(value: object) -> str:
    """Returns a setting as text: JSON for lists, numbers and truth values."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def differing_flags(runs: Sequence[Run]) -> list[str]:
    """Returns the names of the settings in which runs differ."""
    names = dict.fromkeys(name for run in runs for name in run.settings)
    return [name for name in names if len({repr(run.flag(name)) for run in runs}) > 1]
