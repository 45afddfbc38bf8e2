"""Exports to other trackers, each with its own library, offline, and read back with it."""

import csv
import json
import os
import pathlib
import signal
import struct
import subprocess
import sys

import pytest

from albert.experiments import exported_runs, trackers
from albert.io import file_io
from albert.training import run_record
from tests.support import run_folders
from tests.support.sources import ROOT

LIBRARIES = ["mlflow", "wandb", "trackio"]
TWO = {"added": 2}


def export(to, output, *folders, project="albert"):
    runs, _ = exported_runs.read([str(folder) for folder in folders])
    return trackers.export(runs, to, str(output), project)


def run_program(program, *arguments, to):
    """Runs a program that exports; Trackio keeps its folder for the life of a process.

    Returns:
      What it prints last, as JSON; None if it was killed.
    """
    pytest.importorskip(to)
    start = "import sys\nfrom tests.experiments import export_program\n"
    result = subprocess.run(
        [sys.executable, "-c", start + program, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if result.returncode == -signal.SIGKILL:
        return None
    assert not result.returncode, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


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
