"""Reads the sides of a comparison: runs with their seeds, scores, costs and predictions.

A side is what one name in ``runs`` stands for: a run, the runs of ``num_seeds``, a point of a
sweep, or a file of predictions. The folder of a sweep stands for all of its points.
"""

import dataclasses
import os
from collections.abc import Iterable, Iterator

from albert.experiments import predictions as kept_predictions
from albert.experiments import runs, sweep_journal
from albert.experiments.predictions import Predictions
from albert.experiments.runs import TEST, Run, RunGroup
from albert.io import file_io, tables
from albert.training import run_record

__all__ = ("TEST", "PredictionFile", "predictions_of", "read")

_ENDINGS = (".tsv", ".csv", ".jsonl", ".json", ".conll")


@dataclasses.dataclass(frozen=True, eq=False)
class PredictionFile(Run):
    """A file of predictions that is not in the folder of its run; the file is its `folder`."""

    predictions: Predictions = dataclasses.field(kw_only=True, repr=False)

    @property
    def status(self) -> str:
        """Returns `runs.FINISHED`."""
        return runs.FINISHED

    def _values(self) -> dict[str, float]:
        return {name: metric.value for name, metric in self.predictions.metrics.items()}

    @property
    def best_metric(self) -> str:
        """Returns the usual metric of its predictions."""
        return next(iter(self.predictions.metrics))


def predictions_of(run: Run) -> Predictions:
    """Reads the predictions of a run, with right answers."""
    if isinstance(run, PredictionFile):
        return run.predictions
    if not run.record:
        raise file_io.InputError(f"{run.folder} keeps no predictions: it left no record")
    return kept_predictions.read(run)


def read(
    names: Iterable[str],
    labels: str | None = None,
    columns: tables.Columns | None = None,
    only_recorded: bool = False,
) -> list[RunGroup]:
    """Reads the sides that paths stand for.

    Args:
      names: folders of runs, of runs over seeds, of sweeps; points of a sweep as SWEEP/POINT, by
        its name, that of a trial, or some parameters; files of predictions; globs of folders.
      labels: file of the right answers for predictions outside of a run's folder; None: none.
      columns: names of the columns in that file; None: the usual ones.
      only_recorded: whether to omit points of sweeps of which no run has left a record yet.
    """
    sides: list[RunGroup] = []
    for name in names:
        sides += _read_name(name.rstrip("/"), labels, columns or tables.Columns(), only_recorded)
    folders = [(side.folder, [run.folder for run in side.runs]) for side in sides]
    short_names = _short_names([side.name for side in sides])
    for place, side in enumerate(sides):
        if folders.index(folders[place]) != place:
            raise file_io.InputError(f"runs: {side.folder} is named twice")
    return [dataclasses.replace(s, name=name) for s, name in zip(sides, short_names, strict=True)]


def _short_names(paths: list[str]) -> list[str]:
    """Returns paths without their common leading part; sides of one sweep keep their points."""
    if len(paths) == 1:
        return [os.path.basename(paths[0])]
    short = runs.short_names(paths)
    return short if len(set(short)) == len(short) else list(paths)


def _read_name(
    name: str, labels: str | None, columns: tables.Columns, only_recorded: bool
) -> Iterator[RunGroup]:
    """Yields the sides of a name, see `read`."""
    if name.endswith(_ENDINGS) and file_io.exists(name) and not file_io.is_dir(name):
        yield _read_file(name, labels, columns)
        return
    parent, point_name = os.path.split(name)
    if parent and sweep_journal.is_sweep(parent) and not runs.has_record(name):
        yield _read_point(parent, _find_point(parent, point_name))
        return
    for folder in runs.find_folders([name]):
        if runs.kind_of(folder) not in (runs.SWEEP, runs.GLUE):
            yield _side(folder, folder, runs.runs_of(folder))
            continue
        for point in sweep_journal.read_points(folder):
            parts = (os.path.join(folder, trial.name) for trial in point.trials)
            if not only_recorded or any(map(runs.has_record, parts)):
                yield _read_point(folder, point)


def _read_file(path: str, labels: str | None, columns: tables.Columns) -> RunGroup:
    """Returns the side of a file of predictions.

    Args:
      labels: file of the right answers, with `columns`; None: the run in the folder of the
        predictions knows them.
    """
    folder, name = os.path.dirname(path) or ".", os.path.basename(path)
    is_kept = name in kept_predictions.FILES and not labels
    if is_kept and file_io.exists(os.path.join(folder, run_record.RUN)):
        return _side(path, folder, [runs.read_run(folder, os.path.basename(folder))])
    own = kept_predictions.read_file(path, labels, columns)
    return RunGroup(path, path, (PredictionFile(name, path, predictions=own),))


def _find_point(folder: str, text: str) -> sweep_journal.Point:
    """Finds the point of a folder's sweep that a text names, by name or some of its parameters."""
    try:
        return sweep_journal.find_point(sweep_journal.read_points(folder), text)
    except file_io.InputError as error:
        raise file_io.InputError(f"runs: {folder}/{text}: {error}") from error


def _read_point(folder: str, point: sweep_journal.Point) -> RunGroup:
    """Returns the side of a point of a sweep; `folder`: folder of the sweep."""
    read_runs = [run for trial in point.trials for run in runs.runs_of_trial(folder, trial)]
    return _side(f"{folder}/{point.name}", folder, read_runs)


def _side(name: str, folder: str, read_runs: list[Run]) -> RunGroup:
    """Returns the side of runs, which must be of one task, data and metric.

    `folder`: that of a run, a study of seeds or a sweep.
    """
    side = RunGroup(name, folder, tuple(sorted(read_runs, key=lambda run: run.seed)))
    if not side.recorded:
        raise file_io.InputError(f"runs: no run of {name} has a {run_record.RUN} yet")
    runs.check_same_evaluation(side.recorded)
    metrics = dict.fromkeys(run.best_metric for run in side.recorded if run.best_metric)
    if len(metrics) > 1:
        raise file_io.InputError(
            f"runs: the runs of {name} pick their best checkpoints by {' and '.join(metrics)}"
        )
    return side
