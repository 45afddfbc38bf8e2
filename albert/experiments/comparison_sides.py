"""Reads the sides of a comparison: runs with their seeds, scores, costs and predictions.

A side is what one name in ``runs`` stands for: a run, the runs of ``num_seeds``, a point of a
sweep, or a file of predictions. The folder of a sweep stands for all of its points.
"""

import collections
import dataclasses
import functools
import math
import os
from collections.abc import Iterable, Iterator, Mapping

from albert.experiments import (
    example_predictions,
    exported_runs,
    report_data,
    seeds,
    sweep_journal,
)
from albert.io import file_io, tables
from albert.training import evaluation_basis, results, run_record, stuck_runs

NO_RECORD = "not started"
_ENDINGS = (".tsv", ".csv", ".jsonl", ".json", ".conll")
_NOT_SCORES = ("step",)
TEST = "test/"  # prefix of scores on labeled test data


@dataclasses.dataclass(frozen=True)
class Run:
    """One run of a side.

    Attributes:
      name: name of its folder.
      folder: its folder, or a file of predictions.
      seed: its seed; 0 without one.
      status: "finished", "running", "stuck", "best at step 0", "pruned", "failed", "interrupted"
        or "not started".
      scores: {metric: score of its best checkpoint}; those on test data begin with ``test/``.
      restarts: number of abandoned attempts, which did not learn.
      evaluated: number of checkpoints of which the score is the best; None if unknown.
      cost: `run_record.Cost`; None if unknown.
      record: `report_data.Run`; None for files and runs that left no record.
      own_predictions: predictions of a file that is not in the folder of its run.
    """

    name: str
    folder: str
    seed: int
    status: str
    scores: Mapping[str, float] = dataclasses.field(default_factory=dict)
    restarts: int = 0
    evaluated: int | None = None
    cost: run_record.Cost | None = None
    record: report_data.Run | None = dataclasses.field(default=None, repr=False)
    own_predictions: example_predictions.Predictions | None = dataclasses.field(
        default=None, repr=False
    )

    @property
    def has_learned(self) -> bool:
        """Returns whether it ended well and has learned."""
        return self.status == exported_runs.FINISHED

    @functools.cached_property
    def predictions(self) -> example_predictions.Predictions:
        """Returns its predictions, with right answers.

        Raises:
          file_io.InputError: none are kept, see `example_predictions.read`.
        """
        if self.own_predictions is not None:
            return self.own_predictions
        if self.record is None:
            raise file_io.InputError(f"{self.folder} keeps no predictions: it left no record")
        return example_predictions.read(self.record)


@dataclasses.dataclass(frozen=True)
class Side:
    """Runs that differ only in their seed.

    Attributes:
      name: short name, different from that of other sides.
      folder: folder of the runs, of the sweep, or the file of predictions.
      runs: all `Run`s, by seed.
      task: (script, task); ("", None) for a file of predictions.
      best_metric: the score that picks the best checkpoints; "" for a file of predictions.
      basis: what the scores were measured on; None for a file of predictions.
    """

    name: str
    folder: str
    runs: tuple[Run, ...]
    task: tuple[str, str | None]
    best_metric: str
    basis: evaluation_basis.Basis | None = None

    @property
    def counted(self) -> tuple[Run, ...]:
        """Returns the runs that are compared: those that have learned, or all that ended well."""
        learned = tuple(run for run in self.runs if run.has_learned)
        return learned or tuple(r for r in self.runs if r.status in stuck_runs.LEARNED_NOTHING)

    @property
    def counts(self) -> dict[str, int]:
        """Returns {status: number of runs}, finished ones first."""
        counts = collections.Counter(run.status for run in self.runs)
        return dict(sorted(counts.items(), key=lambda pair: pair[0] != exported_runs.FINISHED))

    @property
    def restarts(self) -> int:
        """Returns the number of abandoned attempts of all runs."""
        return sum(run.restarts for run in self.runs)

    @property
    def score_names(self) -> list[str]:
        """Returns the metrics that all counted runs have."""
        return [
            name
            for name in dict.fromkeys(name for run in self.counted for name in run.scores)
            if all(name in run.scores for run in self.counted)
        ]

    def scores(self, metric: str, with_stuck: bool = False) -> dict[int, float]:
        """Returns {seed: score} of the compared runs, and of those that have not learned if asked.

        Args:
          metric: a name in `Run.scores`.
          with_stuck: whether to add runs that ended without having learned.
        """
        runs = [run for run in self.runs if run.status in stuck_runs.LEARNED_NOTHING]
        runs = [*self.counted, *(run for run in runs if with_stuck and run not in self.counted)]
        return {run.seed: run.scores[metric] for run in runs if metric in run.scores}

    def mean_cost(self) -> dict[str, float]:
        """Returns {name: mean over the runs} of the fields of `run_record.Cost` that all know.

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


# --- reading --------------------------------------------------------------------------------------


def read(
    names: Iterable[str],
    labels: str | None = None,
    columns: tables.Columns | None = None,
    only_recorded: bool = False,
) -> list[Side]:
    """Reads the sides that paths stand for.

    Args:
      names: folders of runs, of runs over seeds, of sweeps; points of a sweep as SWEEP/POINT, see
        `sweep_journal.find_point`; files of predictions; globs of folders.
      labels: file of the right answers for files of predictions outside of a run's folder.
      columns: columns of this file.
      only_recorded: whether to omit points of sweeps of which no run has left a record yet.

    Raises:
      file_io.InputError: a name stands for nothing, a record is damaged, or two sides have one
        folder.
    """
    sides: list[Side] = []
    for name in names:
        sides += _read_name(name.rstrip("/"), labels, columns or tables.Columns(), only_recorded)
    folders = [(side.folder, side.runs) for side in sides]
    short_names = _short_names([side.name for side in sides])
    for place, side in enumerate(sides):
        if folders.index((side.folder, side.runs)) != place:
            raise file_io.InputError(f"runs: {side.folder} is named twice")
    return [dataclasses.replace(s, name=name) for s, name in zip(sides, short_names, strict=True)]


def _short_names(paths):
    """Returns paths without their common leading part; sides of one sweep keep their points."""
    if len(paths) == 1:
        return [os.path.basename(paths[0])]
    short = report_data.short_names(paths)
    return short if len(set(short)) == len(short) else list(paths)


def _read_name(name, labels, columns, only_recorded):
    """Yields the sides of a name."""
    if name.endswith(_ENDINGS) and file_io.exists(name) and not file_io.is_dir(name):
        yield _read_file(name, labels, columns)
        return
    parent, point = os.path.split(name)
    if parent and sweep_journal.is_sweep(parent) and not has_record(name):
        yield _read_point(parent, point)
        return
    for folder in report_data.find_folders([name]):
        kind = report_data.kind_of(folder)
        if kind in (report_data.SWEEP, report_data.GLUE):
            for point in sweep_journal.read_points(folder):
                parts = (os.path.join(folder, trial.name) for trial in point.trials)
                if not only_recorded or any(map(has_record, parts)):
                    yield _read_point(folder, point.name)
        else:
            yield _make_side(folder, folder, list(_parts(folder, "")))


def has_record(folder: str) -> bool:
    """Returns whether a folder holds the record of a run or of runs over seeds."""
    names = (run_record.RUN, seeds.SEEDS)
    return any(file_io.exists(os.path.join(folder, name)) for name in names)


def _read_file(path, labels, columns):
    """Returns the side of a file of predictions."""
    folder = os.path.dirname(path) or "."
    if file_io.exists(os.path.join(folder, run_record.RUN)) and not labels:
        return _make_side(path, folder, [(folder, "")])
    own = example_predictions.read_file(path, labels, columns)
    scores = {name: metric.value for name, metric in own.metrics.items()}
    run = Run(os.path.basename(path), path, 0, exported_runs.FINISHED, scores, own_predictions=own)
    return Side(path, path, (run,), ("", None), next(iter(own.metrics)))


def _parts(folder: str, outcome: str) -> Iterator[tuple[str, str]]:
    """Yields (folder, outcome) of a run, or of each run over seeds, also those that failed."""
    if not file_io.exists(os.path.join(folder, seeds.SEEDS)):
        yield folder, outcome
        return
    content = seeds.read(os.path.join(folder, seeds.SEEDS))
    outcomes = {run["folder"]: run["status"] for run in content["runs"]}
    for name, status in outcomes.items():
        yield os.path.join(folder, name), status
    # The seed that is running is not in the file yet.
    for name in sorted(file_io.listdir(folder)):
        if name.startswith("seed_") and name not in outcomes:
            yield os.path.join(folder, name), ""


def _make_side(name, folder, parts, given_seeds=()):
    """Returns the side of (folder, outcome) pairs."""
    runs = []
    for number, (part, outcome) in enumerate(parts):
        seed = given_seeds[number] if given_seeds else None
        runs.append(_read_run(part, outcome, seed))
    records = [run.record for run in runs if run.record is not None]
    if not records:
        raise file_io.InputError(f"runs: no run of {name} has a {run_record.RUN} yet")
    report_data.check_same_evaluation(records)
    runs.sort(key=lambda run: run.seed)
    metrics = dict.fromkeys(run.best_metric for run in records if run.best_metric)
    if len(metrics) > 1:
        raise file_io.InputError(
            f"runs: the runs of {name} pick their best checkpoints by {' and '.join(metrics)}"
        )
    best_metric, basis = next(iter(metrics), ""), records[0].basis
    return Side(name, folder, tuple(runs), records[0].task, best_metric, basis)


def _read_run(folder, outcome, seed):
    """Reads one run; `outcome` is what its sweep or its seeds say."""
    name = os.path.basename(folder)
    if not file_io.exists(os.path.join(folder, run_record.RUN)):
        tail = name.rpartition("_")[2]
        number = seed if seed is not None else int(tail) if tail.isdecimal() else 0
        status = outcome if outcome not in ("", sweep_journal.WAITING) else NO_RECORD
        return Run(name, folder, number, status)
    with report_data.damage_named(os.path.join(folder, run_record.RUN)):
        run = report_data.read_run(folder, name)
        return Run(
            name=name,
            folder=folder,
            seed=seed if seed is not None else _seed(run),
            status=_status(run, outcome),
            scores=_scores(run),
            restarts=len(run.given_up),
            evaluated=run.record.get("evaluated"),
            cost=run_record.read_cost(folder),
            record=run,
        )


def _seed(run):
    seed = run.flag("seed")
    return seed if isinstance(seed, int) else 0


def _status(run, outcome):
    status = exported_runs.status_of(run, outcome)
    if status == exported_runs.FINISHED:
        verdicts = [v for v in (outcome, *run.remarks) if v in stuck_runs.LEARNED_NOTHING]
        return verdicts[0] if verdicts else status
    return status


def _scores(run):
    """Returns the finite scores of the best checkpoint, and those on labeled test data."""
    parts = (("", run.result), (TEST, run.record.get("test") or {}))
    return {
        f"{prefix}{name}": float(value)
        for prefix, scores in parts
        for name, value in scores.items()
        if name not in _NOT_SCORES and value is not None and math.isfinite(value)
    }


# --- points of a sweep ----------------------------------------------------------------------------


def _read_point(folder, text):
    """Returns the side of a point of a sweep."""
    try:
        point = sweep_journal.find_point(sweep_journal.read_points(folder), text)
    except file_io.InputError as error:
        raise file_io.InputError(f"runs: {folder}/{text}: {error}") from error
    trials = point.trials
    parts = [
        (part, outcome if several else trial.state)
        for trial in trials
        for several in [file_io.exists(os.path.join(folder, trial.name, seeds.SEEDS))]
        for part, outcome in _parts(os.path.join(folder, trial.name), trial.state)
    ]
    trial_seeds = [t.seed for t in trials] if len(parts) == len(trials) else []
    trial_seeds = [] if None in trial_seeds else trial_seeds
    return _make_side(f"{folder}/{point.name}", folder, parts, trial_seeds)
