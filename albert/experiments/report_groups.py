"""Reads the runs of a report, and puts those together that differ only in their seed."""

import dataclasses
import os
from collections.abc import Iterable, Sequence
from typing import Any

from albert.experiments import comparison_sides, report_data, sweep_journal, sweep_plan
from albert.experiments.comparison_sides import Run, Side
from albert.io import file_io
from albert.training import evaluation_basis

_SEED = "seed"
_MAX_NAMES = 2  # settings in the name of runs that were put together


@dataclasses.dataclass(frozen=True)
class Group:
    """Runs that differ only in their seed, which are drawn as their mean with its band.

    Attributes:
      name: its name in the report.
      runs: runs whose mean is drawn.
      others: the remaining runs with the reason, such as "stuck"; each is drawn as a thin line.
    """

    name: str
    runs: Sequence[report_data.Run]
    others: Sequence[tuple[report_data.Run, str]] = ()


def group_of(side: Side) -> Group:
    """Returns the `Group` of a side: the mean of its curves is over the runs of its score."""
    runs = [run for run in side.runs if run.record is not None]
    folders = {run.folder for run in side.counted if run.record is not None}
    folders = folders or {run.folder for run in runs}
    counted = [run.record for run in runs if run.folder in folders]
    others = [(run.record, run.status) for run in runs if run.folder not in folders]
    return Group(side.name, counted, others)


def merge(sides: Sequence[Side]) -> list[Side]:
    """Returns sides, where those with the same settings and inputs but other seeds are one."""
    groups: dict[Any, list[Side]] = {}
    for side in sides:
        key = _settings(side)
        seeds = {run.seed for other in groups.get(key, ()) for run in other.runs}
        if seeds & {run.seed for run in side.runs}:  # The same run again is not another seed.
            key = (key, side.folder)
        groups.setdefault(key, []).append(side)
    merged = []
    names = _differing([group[0] for group in groups.values()])
    for group in groups.values():
        first, *rest = group
        if rest:
            runs = sorted((run for side in group for run in side.runs), key=lambda run: run.seed)
            name = _settings_text(first, names) or f"{first.name} to {rest[-1].name}"
            first = dataclasses.replace(first, name=name, runs=tuple(runs))
        merged.append(first)
    return merged


def _first_record(side):
    return next(run.record for run in side.runs if run.record is not None)


def _differing(sides):
    """Returns the few settings that tell sides apart; [] if these are many or do not."""
    runs = [_first_record(side) for side in sides]
    names = [name for name in report_data.differing_flags(runs) if name != _SEED]
    values = {tuple(repr(run.flag(name)) for name in names) for run in runs}
    return names if len(names) <= _MAX_NAMES and len(values) == len(runs) else []


def _settings_text(side, names):
    """Returns settings as "name=value, name=value"."""
    record = _first_record(side)
    return ", ".join(f"{name}={sweep_plan.text_of(record.flag(name))}" for name in names)


def _settings(side):
    """Returns what all runs of a side share: settings without the seed, and hashes of inputs."""
    record = _first_record(side)
    settings = {name: repr(record.flag(name)) for name in report_data.settings_of(record)}
    settings.pop(_SEED, None)
    inputs = {role: entry.get("sha256") for role, entry in (record.record["inputs"] or {}).items()}
    return record.task, tuple(sorted(settings.items())), tuple(sorted(inputs.items()))


# --- reading --------------------------------------------------------------------------------------


def read(folders: Sequence[str]) -> list[Side]:
    """Reads the runs of folders; those that differ only in their seed are one side.

    Args:
      folders: folders of runs, and of runs over seeds.

    Raises:
      file_io.InputError: a folder is not a run, or the runs are of different tasks.
    """
    for folder in folders:
        kind = report_data.kind_of(folder)
        if kind in (report_data.SWEEP, report_data.GLUE):
            raise file_io.InputError(
                f"runs: {folder} is a whole {kind}: report it alone, or name its trials"
            )
    sides = comparison_sides.read(folders)
    records = [run.record for run in recorded(sides)]
    report_data.check_same_evaluation(records, evaluation_basis.METRIC)
    return merge(_renamed(sides))


def read_sweep(folder: str) -> list[Side]:
    """Reads the points of a sweep of which a run has left a record, a side each."""
    trials = sweep_journal.read(folder)[1]
    if not any(comparison_sides.has_record(os.path.join(folder, t.name)) for t in trials):
        return []
    return _renamed(comparison_sides.read([folder], only_recorded=True))


def read_sides(names: Iterable[str]) -> list[Side]:
    """Reads the sides of a comparison, whose runs have names that differ among all of them."""
    return _renamed(comparison_sides.read(names))


def recorded(sides: Iterable[Side]) -> list[Run]:
    """Returns the runs of sides that have left a record."""
    return [run for side in sides for run in side.runs if run.record is not None]


def _renamed(sides):
    """Returns sides whose runs have names that differ among all of them."""
    folders = [run.folder for run in recorded(sides)]
    names = dict(zip(folders, report_data.short_names(folders), strict=True))

    def rename(run):
        if run.record is None:
            return run
        name = names[run.folder]
        return dataclasses.replace(
            run, name=name, record=dataclasses.replace(run.record, name=name)
        )

    return [dataclasses.replace(side, runs=tuple(map(rename, side.runs))) for side in sides]
