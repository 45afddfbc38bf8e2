"""The command that writes runs to other trackers: its flags, and what it prints."""

import pytest
from absl import flags

from albert import export_runs
from albert.experiments import trackers
from albert.io import file_io
from tests.support import command_lines, run_folders


def export(*arguments):
    command_lines.run(export_runs, *arguments)


def test_it_says_what_it_wrote_and_what_it_left_out(tmp_path, capsys):
    rates = {"learning_rate": [0.1, 0.2]}
    run_folders.make_sweep(
        tmp_path / "sweep", rates, lambda p, s: 0.5 if p == {"learning_rate": 0.1} else None
    )
    run_folders.make_run(tmp_path / "run")
    arguments = [f"--runs={tmp_path}/sweep,{tmp_path}/ru*", "--to=csv", f"--output={tmp_path}/out"]
    export(*arguments)
    assert capsys.readouterr().out.splitlines() == [
        "Skipped, as they left no record: sweep/trial_0001",
        f"2 runs in {tmp_path}/out: 2 added",
    ]
    export(*arguments)
    assert capsys.readouterr().out.endswith(f"2 runs in {tmp_path}/out: 2 unchanged\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--to=csv", "--project=x"], "--project: only for --to=mlflow, wandb, trackio"),
        (["--to=wandb", "--project=a/b"], "--project=a/b must have 1 to 64 letters"),
        (["--to=csv", "--runs=none"], "no folder matches 'none'"),
        (["--to=wandb", "--output=gs://bucket/x"], "to=wandb needs a folder of this machine"),
    ],
)
def test_mistakes_are_named(arguments, message, tmp_path):
    run = run_folders.make_run(tmp_path / "run")
    with pytest.raises(file_io.InputError, match=message):
        export(f"--runs={run}", f"--output={tmp_path}/out", *arguments)
    assert not (tmp_path / "out").exists()


def test_an_unknown_tracker_is_refused_with_the_known_ones():
    with pytest.raises(flags.IllegalFlagValueError, match=r"csv\|mlflow\|wandb\|trackio"):
        export("--runs=x", "--output=y", "--to=excel")
    assert set(trackers.WITH_PROJECT) < set(trackers.TRACKERS)


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(file_io.InputError, match="is not the output folder of a run"):
        export(f"--runs={tmp_path}", "--to=csv", f"--output={tmp_path}/out")
