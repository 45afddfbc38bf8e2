"""Exports to other trackers, each with its own library, offline, and read back with it."""

import csv
import json
import os
import signal
import sys

import pytest

from albert.experiments import exported_runs, trackers
from albert.experiments.runs import FAILED
from albert.io import file_io
from albert.training import run_record
from tests.support import processes, run_folders
from tests.support.sources import ROOT

TWO = {"added": 2}


def export(to, output, *folders, project="albert"):
    runs, _ = exported_runs.read([str(folder) for folder in folders])
    return trackers.export(runs, to, str(output), project)


def run_python(*arguments):
    """Runs Python in a process of its own; returns the last line that it prints."""
    result = processes.run([sys.executable, *map(str, arguments)], cwd=ROOT)
    if result.returncode == -signal.SIGKILL:
        return "killed"
    assert not result.returncode, result.stderr
    return result.stdout.splitlines()[-1]


@pytest.fixture
def folders(tmp_path):
    names = ("a/sst", "b/sst")  # two runs of one name
    made = [run_folders.make_run(tmp_path / name, learning_rate=0.5) for name in names]
    run_record.update(str(made[1]), lambda record: record["sessions"][0].update(pid=1))
    return made


def rows_of(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


# --- csv ------------------------------------------------------------------------------------------


def test_csv_has_a_row_for_each_run_and_each_point(tmp_path, folders):
    output = tmp_path / "out"
    assert export("csv", output, *folders) == TWO
    rows, points = rows_of(output / "runs.csv"), rows_of(output / "curves.csv")
    assert [(row["name"], row["status"]) for row in rows] == [("sst", "finished")] * 2
    assert rows[0]["flag/learning_rate"] == "0.5" and rows[0]["best/eval_accuracy"] == "0.76"
    losses = [p for p in points if (p["id"], p["curve"]) == (rows[0]["id"], "train/loss")]
    assert [(int(p["step"]), float(p["value"])) for p in losses] == [
        (step, 1 / step + 0.01) for step in range(1, 11)
    ]
    assert len(points) == 2 * (5 * 10 + 2 * 2)


def test_csv_of_runs_that_have_grown_and_of_others(tmp_path, folders):
    output = tmp_path / "out"
    assert export("csv", output, folders[0]) == {"added": 1}
    before = [(output / name).stat().st_mtime_ns for name in ("runs.csv", "curves.csv")]
    assert export("csv", output, folders[0]) == {"unchanged": 1}
    assert before == [(output / name).stat().st_mtime_ns for name in ("runs.csv", "curves.csv")]
    run_folders.grow_run(folders[0], columns=["a,b", 'c"d'])
    assert export("csv", output, *folders) == {"updated": 1, "added": 1}
    row, other = rows_of(output / "runs.csv")
    assert json.loads(row["flag/columns"]) == ["a,b", 'c"d'] and other["flag/columns"] == ""
    assert row["best/step"] == "11"
    # A file that a killed export has not reached is completed.
    (output / "runs.csv").unlink()
    assert export("csv", output, *folders) == TWO
    assert len(rows_of(output / "runs.csv")) == 2
    assert len(rows_of(output / "curves.csv")) == 2 * 54 + 3


# --- TensorBoard ----------------------------------------------------------------------------------


def read_sessions(folder):
    """The table of TensorBoard's plugin: {status: (settings, {metric: (step, value)})}."""
    from tensorboard import context as contexts
    from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer
    from tensorboard.plugins import base_plugin
    from tensorboard.plugins.hparams import api_pb2, backend_context, list_session_groups

    events = plugin_event_multiplexer.EventMultiplexer().AddRunsFromDirectory(str(folder))
    events.Reload()
    provider = data_provider.MultiplexerDataProvider(events, str(folder))
    context = backend_context.Context(base_plugin.TBContext(data_provider=provider))
    request = api_pb2.ListSessionGroupsRequest(allowed_statuses=[1, 2, 3], slice_size=100)
    handler = list_session_groups.Handler(contexts.RequestContext(), context, "", request)
    found = {}
    for group in handler.run().session_groups:
        (session,) = group.sessions
        metrics = {m.name.tag: (m.training_step, m.value) for m in session.metric_values}
        found[api_pb2.Status.Name(session.status)] = group.hparams, metrics
    return found


def test_tensorboard_shows_settings_scores_and_state(tmp_path, folders):
    output = tmp_path / "out"
    assert export("tensorboard_hparams", output, *folders) == TWO
    assert export("tensorboard_hparams", output, *folders) == {"unchanged": 2}
    run_folders.grow_run(folders[0], run_record.FAILED, columns=["a"])
    assert export("tensorboard_hparams", output, *folders) == {"unchanged": 1, "updated": 1}
    assert len(list(output.glob("*/*"))) == 2
    found = read_sessions(output)
    assert set(found) == {"STATUS_FAILURE", "STATUS_SUCCESS"}
    flags, metrics = found["STATUS_FAILURE"]
    assert flags["learning_rate"].number_value == 0.5 and flags["columns"].string_value == '["a"]'
    assert metrics["eval/eval_loss"] == (11, pytest.approx(0.1))
    assert metrics["best/eval_accuracy"] == (11, pytest.approx(0.9))


# --- trackers with their own libraries ------------------------------------------------------------

# What each calls the end of a run that is done and of one that failed.
STATES = {
    "mlflow": ("FINISHED", "FAILED"),
    "wandb": (0, 1),
    "trackio": ("finished", "failed"),
}
# Exports as the command does, but dies as the second run of the tracker is about to end.
DYING = """
import importlib, os, signal, sys
from absl import flags
from albert import export_runs
os.environ.update(TRACKIO_DIR=sys.argv[2], HF_HUB_OFFLINE="1")
module, name = sys.argv[1].split(":")
owner = importlib.import_module(module)
for part in name.split(".")[:-1]:
    owner = getattr(owner, part)
end, calls = getattr(owner, name.split(".")[-1]), []
def die(*arguments, **named):
    calls.append(arguments)
    if len(calls) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return end(*arguments, **named)
setattr(owner, name.split(".")[-1], die)
values = flags.FlagValues()
export_runs.define_flags(values)
values(["export_runs", *sys.argv[3:]])
export_runs.main(values)
"""
ENDS = {
    "mlflow": "mlflow:MlflowClient.set_tag",
    "wandb": "wandb:Run.finish",
    "trackio": "trackio:finish",
}


def arguments_of(to, tmp_path, folders):
    pytest.importorskip(to)
    output = tmp_path / ("out.db" if to == "mlflow" else "out")
    runs = ",".join(map(str, folders))
    return output, [f"--to={to}", f"--output={output}", f"--runs={runs}"]


def check_content(to, output, folders):
    """Compares what the tracker has with the folders; returns what it has, by key."""
    found = json.loads(run_python("tests/testdata/tracker_reader.py", to, output))
    runs, _ = exported_runs.read(map(str, folders))
    keys = [run["settings"].get("albert.key", run["id"]) for run in found]
    assert sorted(keys) == sorted(run.key for run in runs)
    found = dict(zip(keys, found, strict=True))
    for run in runs:
        got = found[run.key]
        assert got["name"] == run.name
        assert got["state"] == STATES[to][run.status == FAILED]
        for name, value in run.flags.items():
            assert got["settings"][name] == (str(value) if to == "mlflow" else value), name
        for name, text in run.tags.items():
            assert got["settings"][name] == text, name
        assert got["settings"]["status"] == run.status
        assert {name: got["scores"][name] for name in run.scores} == pytest.approx(run.scores)
        for name, curve in run.curves.items():
            points = {str(step): value for step, (_, value) in curve.items()}
            assert got["curves"][name] == pytest.approx(points), name
    return found


@pytest.mark.slow
@pytest.mark.parametrize("to", STATES)
def test_a_library_has_each_run_once_and_as_it_is(to, tmp_path, folders):
    output, arguments = arguments_of(to, tmp_path, folders)
    command = ["-m", "albert.export_runs", *arguments]
    assert run_python(*command) == f"2 runs in {output}: 2 added"
    before = check_content(to, output, folders)
    assert run_python(*command) == f"2 runs in {output}: 2 unchanged"
    run_folders.grow_run(folders[0], run_record.FAILED)
    assert run_python(*command) == f"2 runs in {output}: 1 updated, 1 unchanged"
    after = check_content(to, output, folders)
    if to != "trackio":  # which gives the same run another id
        assert {run["id"] for run in before.values()} == {run["id"] for run in after.values()}
    run_folders.grow_run(folders[0], learning_rate=0.25)
    assert run_python(*command) == f"2 runs in {output}: 1 updated, 1 unchanged"
    check_content(to, output, folders)


@pytest.mark.slow
@pytest.mark.parametrize("to", STATES)
def test_an_export_that_was_killed_is_completed(to, tmp_path, folders):
    output, arguments = arguments_of(to, tmp_path, folders)
    assert run_python("-c", DYING, ENDS[to], output, *arguments) == "killed"
    assert "1 unchanged" in run_python("-m", "albert.export_runs", *arguments)
    check_content(to, output, folders)


@pytest.mark.parametrize("to", STATES)
def test_a_missing_library_is_named(to, tmp_path, folders, monkeypatch):
    monkeypatch.setitem(sys.modules, to, None)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    with pytest.raises(file_io.InputError, match=rf"to={to} needs .*pip install '\.\[trackers\]'"):
        export(to, tmp_path / "out", folders[0])


# --- outputs that hold something else -------------------------------------------------------------


@pytest.mark.parametrize(
    ("to", "name", "message"),
    [
        ("csv", "out", "out is a file; to=csv writes to a folder"),
        (
            "csv",
            "out/runs.csv",
            r"runs\.csv was not written by this command: expected the columns",
        ),
        ("csv", "out/run.json", "out is the folder of a run"),
        ("csv", "out/wandb/x", "out holds wandb of to=wandb; give another folder for to=csv"),
        ("tensorboard_hparams", "out/runs.csv", "holds runs.csv of to=csv"),
        ("wandb", "out/sst-0123456789ab/x", "of to=tensorboard_hparams"),
        ("trackio", "out/runs.csv", "holds runs.csv of to=csv"),
    ],
)
def test_an_output_of_another_kind_is_kept(to, name, message, tmp_path, folders):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("a,b\n1,2\n")
    with pytest.raises(file_io.InputError, match=message):
        export(to, tmp_path / "out", folders[0])
    assert path.read_text() == "a,b\n1,2\n"


@pytest.mark.slow
def test_mlflow_shows_scores_that_fall_or_are_withdrawn(tmp_path):
    """It takes the largest of several values of one step and time for the last."""
    mlflow = pytest.importorskip("mlflow")
    folder, output = run_folders.make_run(tmp_path / "run", test=0.7), tmp_path / "out.db"

    def shown():
        client = mlflow.MlflowClient(f"sqlite:///{output}")
        (run,) = client.search_runs([client.get_experiment_by_name("albert").experiment_id])
        return run.data.metrics.get("test/eval_accuracy")

    export("mlflow", output, folder)
    assert shown() == 0.7
    for score in (0.4, None):
        test = score and {"step": 10, "eval_accuracy": score}
        run_record.update(str(folder), lambda record, test=test: record.update(test=test))
        assert export("mlflow", output, folder) == {"updated": 1}
        assert shown() == score


@pytest.mark.parametrize("name", [".", "text"])
def test_mlflow_takes_only_databases(name, tmp_path, folders):
    pytest.importorskip("mlflow")
    (tmp_path / "text").write_text("text")
    with pytest.raises(file_io.InputError, match="is not an SQLite database"):
        export("mlflow", tmp_path / name, folders[0])


def test_a_mistake_that_mlflow_finds_is_one_line(folders):
    pytest.importorskip("mlflow")
    with pytest.raises(file_io.InputError, match=r"^output=ftp://x: MLflow: [^\n]+$"):
        export("mlflow", "ftp://x", folders[0])
