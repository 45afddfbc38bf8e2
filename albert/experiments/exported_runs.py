"""Reads finished and running runs from their folders in the form that other trackers take."""

import dataclasses
import datetime
import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator

from albert.experiments import runs
from albert.experiments.runs import Run
from albert.io import file_io, json_shapes
from albert.tasks import race
from albert.training import run_record

_KINDS = {"run_race": race.KIND}  # kinds of models whose name is not that of the script
_LARGEST = 2**53  # larger integers do not fit into a float
_KEY_LENGTH = 12


@dataclasses.dataclass(frozen=True)
class ExportedRun:
    """A run in the form that trackers take.

    Attributes:
      key: 12 hexadecimal digits that stay the same while the run resumes and grows.
      name: folder of the run; for parts of a sweep or study with the folder of the whole.
      status: "finished", "running", "stuck", "pruned", "failed" or "interrupted".
      started: seconds since 1970.
      ended: the same; None if the run has not ended.
      flags: {name: value} of all settings, except those that are None.
      scores: {name: number}, such as ``best/eval_accuracy``.
      curves: {name: {step: (seconds since 1970, value)}}, such as ``train/loss``.
    """

    key: str
    name: str
    status: str
    started: float
    ended: float | None
    flags: dict[str, object]
    scores: dict[str, float]
    curves: dict[str, dict[int, tuple[float, float]]]
    tags: dict[str, str]

    @property
    def digest(self) -> str:
        """Returns a hash of all of the run, which changes when the run does."""
        return _hash(dataclasses.asdict(self))

    @property
    def last_step(self) -> int:
        """Returns the last step of its curves; 0 without any."""
        return max((step for curve in self.curves.values() for step in curve), default=0)

    @property
    def last_time(self) -> float:
        """Returns the time of its end, or of its last point if it has not ended."""
        times = (time for curve in self.curves.values() for time, _ in curve.values())
        return self.ended or max(times, default=self.started)

    def rows(self) -> list[tuple[int, dict[str, float]]]:
        """Returns [(step, {name: value})] of its curves, by ascending steps."""
        rows: dict[int, dict[str, float]] = {}
        for name, curve in self.curves.items():
            for step, (_, value) in curve.items():
                rows.setdefault(step, {})[name] = value
        return sorted(rows.items())


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


# --- folders --------------------------------------------------------------------------------------


def read(folders: Iterable[str]) -> tuple[list[ExportedRun], list[str]]:
    """Reads all runs of folders of any kind, each once, and lists the parts that left no record."""
    exported: dict[str, ExportedRun] = {}
    missing = []
    for folder in folders:
        path = folder if file_io.is_remote(folder) else os.path.abspath(folder)
        for run in runs.runs_of(path):
            if not run.record:
                missing.append(run.name)
                continue
            with runs.damage_named(os.path.join(run.folder, run_record.RUN)):
                new = _export(run)
            exported.setdefault(new.key, new)
    if not exported:
        raise file_io.InputError(f"runs: no trial has a {run_record.RUN} yet: {missing}")
    return list(exported.values()), missing


# --- a run ----------------------------------------------------------------------------------------


def _export(run: Run) -> ExportedRun:
    record, first = run.record, run.record["sessions"][0]
    begun = [first["command"], first["pid"], first["started"]]
    start = _time(record["started"])
    flags = {name: flag["value"] for name, flag in record["flags"].items()}
    return ExportedRun(
        key=_hash([os.path.basename(run.folder), *begun])[:_KEY_LENGTH],
        name=run.name,
        status=run.ending,
        started=start,
        ended=_time(record["ended"]) if record["ended"] else None,
        flags={name: value for name, value in flags.items() if value is not None},
        scores=_scores(run),
        curves=_curves(run, start),
        tags=_tags(run),
    )


def _time(text: str) -> float:
    return datetime.datetime.fromisoformat(text).timestamp()


def _numbers(value: object, name: str) -> Iterator[tuple[str, float]]:
    """Yields (name, number) of all finite numbers in JSON at any depth; names are paths to them."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _numbers(part, f"{name}/{key}")
    elif json_shapes.is_number(value) and math.isfinite(value):
        yield name, value if abs(value) < _LARGEST else float(value)


def _scores(run: Run) -> dict[str, float]:
    """Returns {name: number} of the record and, as ``final/…``, of the last evaluation."""
    record = run.record
    evaluations = [row for row in run.rows if row["kind"] == run_record.EVAL]
    final = evaluations[-1] if evaluations else {}
    parts = {
        "score": run.score, "evaluated": record.get("evaluated"), "restarts": len(run.given_up),
        "best": run.result, "final": final, "test": record.get("test"),
        "baseline": record.get("baseline"), "parameters": record["parameters"],
        "cost": record.get("cost"),
    }  # fmt: skip
    return dict(pair for name, part in parts.items() for pair in _numbers(part, name))


def _curves(run: Run, start: float) -> dict[str, dict[int, tuple[float, float]]]:
    """Returns {name: {step: (seconds since 1970, value)}} of all numbers that a run recorded.

    `start`: seconds since 1970 when the run began.
    """
    curves: dict[str, dict[int, tuple[float, float]]] = {}
    begun = time = start
    earlier = 0.0
    for row in run.rows:
        seconds = row.get("seconds")
        if seconds is not None:
            if seconds < earlier:
                begun = time  # `seconds` counts from the start of each session
            earlier, time = seconds, begun + seconds
        values = {k: v for k, v in row.items() if k not in ("kind", "step", "seconds")}
        for name, value in _numbers(values, row["kind"]):
            curves.setdefault(name, {})[row["step"]] = (time, value)
    return curves


def _tags(run: Run) -> dict[str, str]:
    """Returns {name: text} of what a run is, such as "task", "script" and "remarks"."""
    record = run.record
    script, task = run.task
    flag_names = sorted(n for n, flag in record["flags"].items() if flag["source"] != "default")
    tags = {
        "task": task,
        "kind": _KINDS.get(script, script.removeprefix("run_")),
        "script": script,
        "group": run.name.rpartition("/")[0],
        "best_metric": run.best_metric,
        "score_name": run.score_name,
        "remarks": "; ".join(run.remarks),
        "given": " ".join(flag_names),
        "git_commit": record["git_commit"],
        "message": record.get("message"),
        "folder": run.folder,
    }
    return {name: str(text or "") for name, text in tags.items()}
