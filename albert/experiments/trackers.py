"""Writes runs to other trackers: csv files, MLflow, Weights & Biases, Trackio, TensorBoard.

Each tracker has one function, ``(runs, output, project) -> Iterator[str]``. It finds the runs of
earlier exports by their keys, and yields for each run `ADDED`, `UPDATED` or `UNCHANGED`. What marks
a run as complete is written last, so the next export repeats what a killed one left incomplete.

`project` is the name of a project or experiment; `to` is a key of `TRACKERS`.
"""

import collections
import contextlib
import csv
import datetime
import io
import os
import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

from albert.data import tfrecord
from albert.experiments import seed_runs, sweep_journal
from albert.experiments.exported_runs import ExportedRun
from albert.experiments.runs import FAILED, INTERRUPTED, PRUNED, RUNNING, setting_text
from albert.io import file_io, requirements
from albert.training import run_record

if TYPE_CHECKING:
    import mlflow
    from mlflow import MlflowClient
    from tensorboard.compat.proto import summary_pb2
    from trackio.sqlite_storage import SQLiteStorage

ADDED, UPDATED, UNCHANGED = "added", "updated", "unchanged"
PROJECT = "albert"  # default name of a project or experiment
_KEY, _DIGEST = "albert.key", "albert.digest"  # tags in MLflow, settings in Trackio
_Point = tuple[str, int, int, float]  # name, step, milliseconds since 1970, value
_FAILURES = (FAILED, INTERRUPTED, PRUNED)


def _needed(to: str, package: str) -> contextlib.AbstractContextManager[None]:
    """Returns `requirements.needed` for a tracker; `package` is its name for pip."""
    return requirements.needed(f"to={to} needs {package}: pip install '.[trackers]' ({{error}})")


def _one_line(error: Exception) -> str:
    """Returns the message of an error on one line, cut if it is long."""
    return " ".join(str(error).split())[:500]


def _outcome(was_there: object) -> str:
    """Returns `UPDATED` for a run that was there before (any true value), else `ADDED`."""
    return UPDATED if was_there else ADDED


# --- csv ------------------------------------------------------------------------------------------

RUNS, CURVES = "runs.csv", "curves.csv"
_FIRST = (
    *("id", "name", "status", "task", "kind", "script", "group", "best_metric", "score_name"),
    *("started", "ended", "remarks", "given", "git_commit", "message", "folder"),
)
_POINT = ("id", "name", "curve", "step", "time", "value")


def _iso(seconds: float | None) -> str:
    """Returns a time, in seconds since 1970, as text in UTC; "" for None."""
    if seconds is None:
        return ""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat()


def _row(run: ExportedRun) -> dict[str, str]:
    """Returns the row of a run in `RUNS`, {column: text}."""
    row = {"id": run.key, "name": run.name, "status": run.status, **run.tags}
    row |= {"started": _iso(run.started), "ended": _iso(run.ended)}
    row |= {f"flag/{name}": setting_text(value) for name, value in run.flags.items()}
    return row | {name: repr(value) for name, value in run.scores.items()}


def _points(run: ExportedRun) -> Iterator[dict[str, str]]:
    """Yields the rows of a run in `CURVES`, {column: text}."""
    for name, curve in sorted(run.curves.items()):
        for step, (time, value) in sorted(curve.items()):
            row = (run.key, run.name, name, str(step), _iso(time), repr(value))
            yield dict(zip(_POINT, row, strict=True))


def _read_csv(path: str, columns: tuple[str, ...]) -> dict[str, list[dict[str, str]]]:
    """Returns {id: its rows} of a file that an earlier export wrote; {} without one."""
    rows: dict[str, list[dict[str, str]]] = {}
    if not file_io.exists(path):
        return rows
    with file_io.open_input(path, "output", "rb") as file:
        lines = io.StringIO(file.read().decode("utf-8", "replace"), newline="")
    reader = csv.DictReader(lines)
    if tuple(reader.fieldnames or ())[: len(columns)] != columns:
        raise file_io.InputError(
            f"output: {path} was not written by this command: expected the columns "
            f"{', '.join(columns)}; give another folder"
        )
    for row in reader:
        rows.setdefault(row["id"], []).append({k: v for k, v in row.items() if k and v})
    return rows


def _write_csv(path: str, columns: Sequence[str], rows: Sequence[dict[str, str]]) -> None:
    """Writes {column: text} rows; their other names become columns at the end."""
    file = io.StringIO()
    others = sorted({name for row in rows for name in row} - {*columns})
    writer = csv.DictWriter(file, [*columns, *others], restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    file_io.write_text(path, file.getvalue())


def _to_csv(runs: Sequence[ExportedRun], output: str, project: str) -> Iterator[str]:
    """Writes one row per run to `RUNS`, and one row per point of its curves to `CURVES`.

    `output` is the folder of both files; `project` is not used.
    """
    del project
    tables = {
        RUNS: (_FIRST, lambda run: [_row(run)]),
        CURVES: (_POINT, lambda run: list(_points(run))),
    }
    outcomes = {run.key: UNCHANGED for run in runs}
    contents = {}
    for name, (columns, rows_of) in tables.items():
        rows = _read_csv(os.path.join(output, name), columns)
        for run in runs:
            new_rows = [{k: v for k, v in row.items() if v} for row in rows_of(run)]
            if rows.get(run.key, []) != new_rows:
                outcomes[run.key] = _outcome(run.key in rows)
            rows[run.key] = new_rows
        contents[name] = [row for own in rows.values() for row in own]
    if set(outcomes.values()) != {UNCHANGED}:
        for name in (CURVES, RUNS):
            _write_csv(os.path.join(output, name), tables[name][0], contents[name])
    yield from outcomes.values()


# --- MLflow ---------------------------------------------------------------------------------------

_SQLITE = b"SQLite format 3\0"
_MAX_METRICS, _MAX_PARAMETERS = 1000, 100  # of one call


def _is_sqlite(path: str) -> bool:
    """Returns whether an existing file begins like a database of SQLite."""
    with file_io.open_input(path, "output", "rb") as file:
        return file.read(len(_SQLITE)) == _SQLITE


def _mlflow_uri(output: str) -> str:
    """Returns the URI that MLflow takes for an output: a file of SQLite, or the URI of a server."""
    if "://" in output:
        return output
    if file_io.exists(output) and (file_io.is_dir(output) or not _is_sqlite(output)):
        raise file_io.InputError(
            f"output={output} is not an SQLite database; to=mlflow takes the file of one, which it "
            "makes if missing, or the URI of a tracking server"
        )
    path = os.path.abspath(output)
    file_io.make_dirs(os.path.dirname(path))
    return f"sqlite:///{path}"


def _to_mlflow(runs: Sequence[ExportedRun], output: str, project: str) -> Iterator[str]:
    """Writes runs to an experiment of MLflow.

    `output` is the file of an SQLite database, or the URI of a server.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    with _needed("mlflow", "mlflow-skinny"):
        import mlflow
    try:
        client = mlflow.MlflowClient(_mlflow_uri(output))
        match = client.get_experiment_by_name(project)
        experiment = match.experiment_id if match else client.create_experiment(project)
        for run in runs:
            yield _write_mlflow(mlflow, client, experiment, run)
    except mlflow.MlflowException as error:
        raise file_io.InputError(f"output={output}: MLflow: {_one_line(error)}") from error


def _mlflow_name(name: str) -> str:
    """Returns a name with the characters that MLflow takes; others become their code points."""
    return re.sub(r"[^A-Za-z0-9_\-./]", lambda match: f"_{ord(match[0]):x}", name)


def _write_mlflow(
    mlflow: ModuleType, client: "MlflowClient", experiment: str, run: ExportedRun
) -> str:
    """Adds what a run of MLflow lacks, or replaces it if that would not make it the same.

    `experiment`: id of the experiment.
    """
    entities = mlflow.entities
    olds = client.search_runs([experiment], f"tags.`{_KEY}` = '{run.key}'")
    if len(olds) == 1 and olds[0].data.tags.get(_DIGEST) == run.digest:
        return UNCHANGED
    parameters = {_mlflow_name(k): setting_text(v)[:6000] for k, v in run.flags.items()}
    points, scores = _mlflow_points(run)
    run_id, old_points = None, set()
    for old in olds:
        history = _mlflow_history(client, old)
        is_same = parameters.items() >= old.data.params.items()
        if run_id is None and is_same and _can_grow(history, points, scores):
            run_id, old_points = old.info.run_id, history
        else:
            client.delete_run(old.info.run_id)
    if run_id is None:
        tags = {_KEY: run.key}
        run_id = client.create_run(experiment, int(1000 * run.started), tags, run.name).info.run_id
    metrics = [
        entities.Metric(name, value, time, step)
        for name, step, time, value in sorted((points | scores) - old_points)
    ]
    params = [entities.Param(name, value) for name, value in sorted(parameters.items())]
    for at in range(0, len(metrics), _MAX_METRICS):
        client.log_batch(run_id, metrics=metrics[at : at + _MAX_METRICS])
    for at in range(0, len(params), _MAX_PARAMETERS):
        client.log_batch(run_id, params=params[at : at + _MAX_PARAMETERS])
    _end_mlflow(client, run_id, run, entities)
    return _outcome(olds)


def _mlflow_points(run: ExportedRun) -> tuple[set[_Point], set[_Point]]:
    """Returns {(name, step, ms, value)} of a run's curves, and of its scores at its end."""
    points = {
        (_mlflow_name(name), step, int(1000 * time), float(value))
        for name, curve in run.curves.items()
        for step, (time, value) in curve.items()
    }
    end = run.last_step, int(1000 * run.last_time)
    return points, {(_mlflow_name(name), *end, float(value)) for name, value in run.scores.items()}


def _mlflow_history(client: "MlflowClient", old: "mlflow.entities.Run") -> set[_Point]:
    """Returns all points of a run of MLflow."""
    return {
        (name, point.step, point.timestamp, point.value)
        for name in old.data.metrics
        for point in client.get_metric_history(old.info.run_id, name)
    }


def _can_grow(old_points: set[_Point], points: set[_Point], scores: set[_Point]) -> bool:
    """Returns whether old points stay, and those of scores come before the new ones."""
    new = {score[0]: score for score in scores}
    return {point for point in old_points if point[0] not in new} <= points and all(
        point[1:3] < new[point[0]][1:3] or point == new[point[0]]
        for point in old_points
        if point[0] in new
    )


def _end_mlflow(
    client: "MlflowClient", run_id: str, run: ExportedRun, entities: ModuleType
) -> None:
    """Sets the state and tags of a run, and at last the digest, which marks it as complete.

    `entities` is the module `mlflow.entities`.
    """
    status = "FAILED" if run.status == FAILED else "FINISHED"
    if run.status in (PRUNED, INTERRUPTED):
        status = "KILLED"
    if run.status == RUNNING:
        client.update_run(run_id, "RUNNING")
    else:
        client.set_terminated(run_id, status, int(1000 * run.last_time))
    tags = {**run.tags, "status": run.status, "mlflow.source.name": run.tags["script"]}
    run_tags = [entities.RunTag(name, text[:5000]) for name, text in tags.items()]
    client.log_batch(run_id, tags=run_tags)
    client.set_tag(run_id, _DIGEST, run.digest)  # last: the run is complete


# --- Weights & Biases -----------------------------------------------------------------------------

_WANDB, _MARKER = "wandb", "albert_export.json"


def _to_wandb(runs: Sequence[ExportedRun], output: str, project: str) -> Iterator[str]:
    """Writes offline runs to the folder `output`, which `wandb sync` uploads."""
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    with _needed("wandb", "wandb"):
        import wandb
    for run in runs:
        yield _write_wandb(wandb, output, project, run)


def _write_wandb(wandb: ModuleType, output: str, project: str, run: ExportedRun) -> str:
    """Writes an offline run; returns its outcome."""
    parent, content = os.path.join(output, _WANDB), {"project": project, "digest": run.digest}
    names = file_io.listdir(parent) if file_io.exists(parent) else []
    olds = []
    for name in names:
        if name.endswith(f"-{run.key}"):
            marker = os.path.join(parent, name, _MARKER)
            old_content = file_io.read_json(marker, "export") if file_io.exists(marker) else {}
            if old_content == content:
                return UNCHANGED
            if old_content.get("project", project) == project:
                olds.append(os.path.join(parent, name))
    for old in olds:
        file_io.remove(old)
    settings = wandb.Settings(
        silent=True, console="off", disable_git=True, save_code=False,
        x_disable_stats=True, x_disable_meta=True,
    )  # fmt: skip
    try:
        log = wandb.init(
            project=project, id=run.key, name=run.name, group=run.tags["group"] or None,
            job_type=run.tags["script"], dir=output, mode="offline", settings=settings,
            tags=[run.tags[k][:64] for k in ("task", "kind") if run.tags[k]] + [run.status],
            config={**run.flags, "albert": {**run.tags, "status": run.status}},
        )  # fmt: skip
        for step, values in run.rows():
            log.log(values, step=step)
        log.summary.update(run.scores)
        folder = os.path.dirname(log.dir)
        log.finish(exit_code=int(run.status in _FAILURES))
    except wandb.Error as error:
        raise file_io.InputError(f"output={output}: wandb: {_one_line(error)}") from error
    file_io.write_json(os.path.join(folder, _MARKER), content)
    return _outcome(olds)


# --- Trackio --------------------------------------------------------------------------------------


def _to_trackio(runs: Sequence[ExportedRun], output: str, project: str) -> Iterator[str]:
    """Writes runs to the database of a project in the folder `output`."""
    output = os.path.abspath(output)
    # Read when the library is imported; without the second it asks the Hub for the user's name.
    os.environ.update(TRACKIO_DIR=output, HF_HUB_OFFLINE="1")
    for name in ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL"):  # would win over the folder
        os.environ.pop(name, None)
    with _needed("trackio", "trackio"):
        import trackio
        from trackio import sqlite_storage
    if str(trackio.TRACKIO_DIR) != output:
        raise file_io.InputError(f"output={output}: this process uses Trackio in another folder")
    try:
        for run in runs:
            yield _write_trackio(trackio, sqlite_storage.SQLiteStorage, project, run)
    except (ValueError, sqlite3.Error) as error:
        raise file_io.InputError(f"output={output}: Trackio: {_one_line(error)}") from error


def _write_trackio(
    trackio: ModuleType, storage: "type[SQLiteStorage]", project: str, run: ExportedRun
) -> str:
    """Writes a run, and deletes older versions of it; returns its outcome."""
    digest, incomplete = run.digest, f"{run.key} incomplete"

    def known() -> list:
        if not file_io.exists(str(storage.get_project_db_path(project))):
            return []
        return list(trackio.Api().runs(project))

    olds = []
    for old in known():
        config = old.config or {}
        if old.name == incomplete or config.get(_KEY) == run.key:
            if old.name != incomplete and config.get(_DIGEST) == digest:
                return UNCHANGED
            olds.append(old)
    for old in olds:
        old.delete()
    tags = {**run.tags, "status": run.status, _KEY: run.key, _DIGEST: digest}
    rows = [*run.rows(), (run.last_step, run.scores)]
    with contextlib.redirect_stdout(io.StringIO()):  # it prints several lines per run
        log = trackio.init(
            project=project, name=incomplete, group=run.tags["group"] or None, embed=False,
            config={**run.flags, **tags}, auto_log_gpu=False, auto_log_cpu=False,
        )  # fmt: skip
        for step, values in rows:
            log.log(values, step=step)
        trackio.finish()
    new = [entry for entry in known() if entry.id == log.id]
    # The library only warns of what it could not write.
    if not new or storage.get_log_count(project, incomplete, run_id=log.id) != len(rows):
        raise file_io.InputError(f"Trackio did not store all of {run.name}; see its warnings")
    new[0].rename(run.name)  # last: the run is complete
    return _outcome(olds)


# --- TensorBoard ----------------------------------------------------------------------------------


def _to_tensorboard(runs: Sequence[ExportedRun], output: str, project: str) -> Iterator[str]:
    """Writes one folder per run, with one file of events whose name has the digest of the run.

    `output` is the folder of these folders; `project` is not used.
    """
    del project
    for run in runs:
        folder = f"{run.name.replace('/', '.')}-{run.key}"
        name = f"events.out.tfevents.{int(run.started)}.{run.digest[:12]}"
        path = os.path.join(output, folder, name)
        olds = [
            os.path.join(output, old, file)
            for old in file_io.listdir(output)
            if old.endswith(f"-{run.key}")
            for file in file_io.listdir(os.path.join(output, old))
        ]
        if path not in olds:
            file_io.make_dirs(os.path.dirname(path))
            file_io.write_bytes(path, b"".join(tfrecord.frame(_events(run))))
        for old in olds:
            if os.path.dirname(old) != os.path.dirname(path):
                file_io.remove(os.path.dirname(old))
            elif old != path:
                file_io.remove(old)
        yield UNCHANGED if path in olds else _outcome(olds)


def _events(run: ExportedRun) -> list[bytes]:
    """Returns the serialized events of a run: settings, curves, scores and the end."""
    from tensorboard.compat.proto import event_pb2, summary_pb2
    from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2, summary_v2
    from tensorboard.plugins.scalar import summary_v2 as scalars

    end = run.last_time
    flags = {
        k: v if isinstance(v, (bool, int, float)) else setting_text(v) for k, v in run.flags.items()
    }
    events = [event_pb2.Event(wall_time=run.started, file_version="brain.Event:2")]

    def add(summary: "summary_pb2.Summary", time: float, step: int = 0) -> None:
        events.append(event_pb2.Event(wall_time=time, step=step, summary=summary))

    add(summary_v2.hparams_pb(flags, run.key, run.started), run.started)
    for name, curve in sorted(run.curves.items()):
        for step, (time, value) in sorted(curve.items()):
            add(scalars.scalar_pb(name, value), time, step)
    for name, value in sorted(run.scores.items()):
        add(scalars.scalar_pb(name, value), end, run.last_step)
    status = api_pb2.STATUS_FAILURE if run.status in _FAILURES else api_pb2.STATUS_SUCCESS
    if run.status != RUNNING:
        info = plugin_data_pb2.SessionEndInfo(status=status, end_time_secs=end)
        data = plugin_data_pb2.HParamsPluginData(session_end_info=info)
        summary = summary_pb2.Summary()
        described = metadata.create_summary_metadata(data)
        summary.value.add(
            tag=metadata.SESSION_END_INFO_TAG, metadata=described, tensor=metadata.NULL_TENSOR
        )
        add(summary, end)
    return [event.SerializeToString() for event in events]


# --- all ------------------------------------------------------------------------------------------

TRACKERS = {
    "csv": _to_csv,
    "mlflow": _to_mlflow,
    "wandb": _to_wandb,
    "trackio": _to_trackio,
    "tensorboard_hparams": _to_tensorboard,
}
WITH_PROJECT = ("mlflow", "wandb", "trackio")
# Patterns of names in a folder that one tracker alone leaves there.
_SIGNS = {
    "csv": re.escape(RUNS),
    "wandb": _WANDB,
    "trackio": r"[\w-]+\.lock",
    "tensorboard_hparams": r".*-[0-9a-f]{12}",
}


def _check_folder(output: str, to: str) -> None:
    """Rejects outputs that are files, folders of runs, or exports to another tracker."""
    if to in WITH_PROJECT and file_io.is_remote(output):
        raise file_io.InputError(f"output={output}: to={to} needs a folder of this machine")
    if file_io.exists(output) and not file_io.is_dir(output):
        raise file_io.InputError(f"output={output} is a file; to={to} writes to a folder")
    file_io.make_dirs(output)
    names = sorted(file_io.listdir(output))
    if {run_record.RUN, sweep_journal.NAME, seed_runs.SEEDS} & {*names}:
        raise file_io.InputError(f"output={output} is the folder of a run; give another folder")
    for kind, sign in _SIGNS.items():
        matches = [name for name in names if kind != to and re.fullmatch(sign, name)]
        if matches:
            raise file_io.InputError(
                f"output={output} holds {matches[0]} of to={kind}; give another folder for to={to}"
            )


def export(
    runs: Iterable[ExportedRun], to: str, output: str, project: str = PROJECT
) -> dict[str, int]:
    """Writes runs to a tracker; those that it has already are updated.

    Args:
      to: a key of `TRACKERS`.
      output: folder; of MLflow the file of an SQLite database or the URI of a server.
      project: name of the experiment (MLflow) or project (Weights & Biases, Trackio).

    Returns:
      {`ADDED`, `UPDATED` or `UNCHANGED`: number of runs}.
    """
    if to != "mlflow":
        _check_folder(output, to)
    outcomes: Iterator[str] = TRACKERS[to](list(runs), output, project)
    return dict(collections.Counter(outcomes))
