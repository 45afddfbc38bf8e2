"""Reads the runs of a report, and puts those together that differ only in their seed."""

import dataclasses
import os
from collections.abc import Hashable, Iterable, Sequence

from albert.experiments import comparison_sides, runs, sweep_journal, sweep_plan
from albert.experiments.runs import Run, RunGroup
from albert.io import file_io
from albert.training import evaluation_basis

_SEED = "seed"
_MAX_NAMES = 2  # settings in the name of runs that were put together


def merge(sides: Sequence[RunGroup]) -> list[RunGroup]:
    """Returns sides, where those with the same settings and inputs but other seeds are one."""
    groups: dict[Hashable, list[RunGroup]] = {}
    for side in sides:
        key: Hashable = _settings(side)
        seeds = {run.seed for other in groups.get(key, ()) for run in other.runs}
        if seeds & {run.seed for run in side.runs}:  # The same run again is not another seed.
            key = (key, side.folder)
        groups.setdefault(key, []).append(side)
    merged = []
    names = _differing([group[0] for group in groups.values()])
    for group in groups.values():
        first, *rest = group
        if rest:
            own = sorted((run for side in group for run in side.runs), key=lambda run: run.seed)
            name = _settings_text(first, names) or f"{first.name} to {rest[-1].name}"
            first = dataclasses.replace(first, name=name, runs=tuple(own))
        merged.append(first)
    return merged


def _differing(sides: Sequence[RunGroup]) -> list[str]:
    """Returns the few settings that tell sides apart; [] if these are many or do not."""
    firsts = [side.recorded[0] for side in sides]
    names = [name for name in runs.differing_flags(firsts) if name != _SEED]
    values = {tuple(repr(run.flag(name)) for name in names) for run in firsts}
    return names if len(names) <= _MAX_NAMES and len(values) == len(firsts) else []


def _settings_text(side: RunGroup, names: Iterable[str]) -> str:
    """Returns settings as "name=value, name=value"."""
    run = side.recorded[0]
    return ", ".join(f"{name}={sweep_plan.text_of(run.flag(name))}" for name in names)


def _settings(side: RunGroup) -> tuple[Hashable, ...]:
    """Returns what all runs of a side share: settings without the seed, and hashes of inputs."""
    run = side.recorded[0]
    settings = sorted((name, repr(run.flag(name))) for name in run.settings if name != _SEED)
    inputs = {role: entry.get("sha256") for role, entry in (run.record["inputs"] or {}).items()}
    return run.task, tuple(settings), tuple(sorted(inputs.items()))


# --- reading --------------------------------------------------------------------------------------


def read(folders: Sequence[str]) -> list[RunGroup]:
    """Reads the runs of folders; those that differ only in their seed are one side."""
    for folder in folders:
        kind = runs.kind_of(folder)
        if kind in (runs.SWEEP, runs.GLUE):
            raise file_io.InputError(
                f"runs: {folder} is a whole {kind}: report it alone, or name its trials"
            )
    sides = comparison_sides.read(folders)
    runs.check_same_evaluation(runs.recorded(sides), evaluation_basis.METRIC)
    return merge(_renamed(sides))


def read_sweep(folder: str) -> list[RunGroup]:
    """Reads the points of a sweep of which a run has left a record, a side each."""
    trials = sweep_journal.read(folder)[1]
    if not any(runs.has_record(os.path.join(folder, t.name)) for t in trials):
        return []
    return _renamed(comparison_sides.read([folder], only_recorded=True))


def page_ids(own_runs: Iterable[Run]) -> dict[str, str]:
    """Returns {folder: id in the page} of runs."""
    return {run.folder: f"run-{number}" for number, run in enumerate(own_runs, 1)}


def read_sides(names: Iterable[str]) -> list[RunGroup]:
    """Reads the sides of a comparison, whose runs have names that differ among all of them."""
    return _renamed(comparison_sides.read(names))


def _renamed(sides: Sequence[RunGroup]) -> list[RunGroup]:
    """Returns sides whose runs have names that differ among all of them."""
    folders = [run.folder for run in runs.recorded(sides)]
    names = dict(zip(folders, runs.short_names(folders), strict=True))

    def rename(run: Run) -> Run:
        return dataclasses.replace(run, name=names[run.folder]) if run.record else run

    return [dataclasses.replace(side, runs=tuple(map(rename, side.runs))) for side in sides]
