"""Commands of reproductions, and comparisons of two runs; without running anything."""

import copy
import json
import sys

import pytest

from albert import reproduce, run_classifier
from albert.cli import command_flags
from albert.experiments import reproduction
from albert.io import file_io
from albert.training import budget, run_record, run_session
from tests.support import command_lines


def flag(value, source="command line"):
    return {"value": value, "source": source}


@pytest.fixture
def run(tmp_path):
    """Output folder of a run, as one leaves it."""
    folder = tmp_path / "run"
    (folder / "data").mkdir(parents=True)
    for name in ("train.tsv", "vocabulary"):
        (folder / "data" / name).write_text(name)
    values = command_lines.parse(run_classifier, task_name="sst-2", output_dir=folder, seed=3)
    flags = command_flags.describe(values, "run_classifier")
    inputs = {
        role: (str(path), [str(path)])
        for role, path in (
            ("train_data", folder / "data" / "train.tsv"),
            ("vocabulary", folder / "data" / "vocabulary"),
        )
    }
    write_run(folder, run_session.Recorder("run_classifier", [], flags, inputs))
    return folder


def write_run(folder, recorder, change=0.0, first=0, last=4):
    path = str(folder)
    with recorder.session(path, ["train", "eval"], {}):
        run_record.set_model(path, "sst-2", "accuracy", 10, 5)
        run_record.start_training(path, first)
        for step in range(first + 2, last + 1, 2):
            values = {"loss": 1 / step + change, "examples_per_second": 7.0 + change}
            run_record.append_training(path, step, step / 2 + change, values)
            run_record.append_evaluation(path, step, path, {"accuracy": 0.5 + change})
            run_record.set_result(path, step, {"accuracy": 0.5 + change})
            run_record.set_steps(path, step)


def repeat(monkeypatch, change=0.0, seen=None):
    """Lets `reproduction.run` write what a run would."""

    def run(words, directory):
        if seen is not None:
            seen.append((words, directory))
        folder = next(w for w in words if w.startswith("--output_dir=")).partition("=")[2]
        file_io.make_dirs(folder)
        write_run(folder, run_session.Recorder("run_classifier", [], {}, {}), change)

    monkeypatch.setattr(reproduction, "run", run)


# --- the script ---------------------------------------------------------------------------------


def test_an_equal_repetition(run, tmp_path, run_script, monkeypatch, capsys):
    seen = []
    repeat(monkeypatch, seen=seen)
    run_script(reproduce, run=run, output_dir=tmp_path / "new")
    printed = capsys.readouterr().out.splitlines()
    assert printed[:3] == [
        "equal: result: accuracy 0.5, step 4",
        "equal: training: 2 lines",
        "equal: evaluation: 2 lines",
    ]
    ((words, directory),) = seen
    assert words == [
        *(sys.executable, "-m", "albert.run_classifier"),
        *(f"--output_dir={tmp_path / 'new'}", "--seed=3", "--task_name=sst-2"),
    ]
    assert directory == json.loads((run / "run.json").read_text())["directory"]


def test_a_repetition_that_differs_has_a_status_of_its_own(
    run, tmp_path, run_script, monkeypatch, capsys
):
    repeat(monkeypatch, change=0.25)
    record = json.loads((run / "run.json").read_text())
    record["versions"]["numpy"] = "1.0"
    record["host"]["name"] = "elsewhere"
    (run / "run.json").write_text(json.dumps(record))
    with pytest.raises(SystemExit) as ended:
        run_script(reproduce, run=run, output_dir=tmp_path / "new")
    assert ended.value.code == 1
    printed = capsys.readouterr().out
    assert "different: result: accuracy 0.5, now 0.75\n" in printed
    assert "different: training: 2 of 2 lines, first at step 2: loss 0.5, now 0.75\n" in printed
    assert "different: evaluation: 2 of 2 lines, first at step 2: accuracy 0.5, now 0" in printed
    assert "not the same around them: versions.numpy: 1.0, now " in printed
    assert "not the same around them: host.name: elsewhere, now " in printed


def test_changed_inputs_are_named_and_refused(run, tmp_path, run_script, monkeypatch):
    repeat(monkeypatch)
    (run / "data" / "train.tsv").write_text("other")
    (run / "data" / "vocabulary").unlink()
    flags = {"run": run, "output_dir": tmp_path / "new"}
    with pytest.raises(file_io.InputError) as error:
        run_script(reproduce, **flags)
    for text in (
        "2 input(s)", "train_data: ", "train.tsv is another file than before (5 bytes, SHA-256 ",
        "vocabulary: the file ", " does not exist", "--accept_changed_inputs continues",
    ):  # fmt: skip
        assert text in str(error.value), text
    assert not (tmp_path / "new").exists()
    run_script(reproduce, **flags, accept_changed_inputs=True)


def test_a_run_that_ended_by_the_clock_hands_on_its_steps(run, tmp_path, run_script, monkeypatch):
    seen = []
    repeat(monkeypatch, seen=seen)
    record = json.loads((run / "run.json").read_text())
    record["flags"]["budget_minutes"] = flag(6.0)
    (run / "run.json").write_text(json.dumps(record))
    with pytest.raises(file_io.InputError, match="the file .*run/budget.json does not exist"):
        run_script(reproduce, run=run, output_dir=tmp_path / "new")
    assert not seen and not (tmp_path / "new").exists()
    plan = {"step": 9, "share": 1.0, "num_train_steps": 9, "seconds": 1.0, "is_known": True}
    seconds = {"evaluation": 1.0, "saving": 1.0}
    attempt = {"plans": [plan], "saved": {}, "seconds": seconds}
    written = {"budget_minutes": 6.0, "is_repeated": False, "attempts": [attempt]}
    (run / "budget.json").write_text(json.dumps(written))
    run_script(reproduce, run=run, output_dir=tmp_path / "new")
    assert "--budget_minutes=6.0" in seen[0][0]
    found = budget.read(str(tmp_path / "new"), 6.0)
    assert found["is_repeated"] and found["attempts"] == [attempt]


def test_what_cannot_be_run_again(run, tmp_path, run_script, monkeypatch):
    repeat(monkeypatch)
    with pytest.raises(file_io.InputError, match="run is not empty; name a new one"):
        run_script(reproduce, run=run, output_dir=run)
    with pytest.raises(file_io.InputError, match="the file .*run.json does not exist"):
        run_script(reproduce, run=tmp_path, output_dir=tmp_path / "new")
    record = json.loads((run / "run.json").read_text())
    changes = (
        (("sessions", 0, "stages"), ["eval"], "only done .'eval'.; only training"),
        (("script",), "run_nothing", "there is no script run_nothing"),
        (("script",), "run_record", "there is no script run_record"),
        (("script",), "train_vocab", "there is no script train_vocab: expected .* training script"),
        (("flags", "old_flag"), flag(1), "no longer has the flags .'old_flag'."),
    )
    for (*path, last), value, message in changes:
        changed = copy.deepcopy(record)
        place = changed
        for name in path:
            place = place[name]
        place[last] = value
        (run / "run.json").write_text(json.dumps(changed))
        with pytest.raises(file_io.InputError, match=message):
            run_script(reproduce, run=run, output_dir=tmp_path / "new")


def test_a_command_that_fails():
    with pytest.raises(file_io.InputError, match="the run failed with status 3"):
        reproduction.run([sys.executable, "-c", "raise SystemExit(3)"], "/no/such/folder")


# --- the command --------------------------------------------------------------------------------


def test_the_command_writes_nothing_into_the_folder_of_the_run():
    flags = {
        "output_dir": flag("out"), "cached_dir": flag("out/cache"), "data_dir": flag("data"),
        "export_dir": flag("elsewhere"), "do_train": flag(True), "do_eval": flag(False),
        "labels": flag(["a", "b"]), "rate": flag(1e-5), "unset": flag(None),
        "seed": flag(1, "default"), "budget_minutes": flag(5.0),
    }  # fmt: skip
    record = {"script": "run_classifier", "flags": flags, "directory": "/home"}
    words = reproduction.command(record, "/new", {"warmup_step": 3})
    assert words[3:] == [
        *("--budget_minutes=5.0", "--cached_dir=/new/cache", "--data_dir=data", "--nodo_eval"),
        *("--do_train", "--export_dir=/new/export", "--labels=a,b", "--output_dir=/new"),
        *("--rate=1e-05", "--warmup_step=3"),
    ]


def test_values_that_the_run_derived_are_derived_again(run, tmp_path):
    """The steps of epochs are recorded; the command takes either, not both."""
    given = {"task_name": "sst-2", "do_train": True, "num_train_epochs": 2.0}
    settings = {**given, "from_scratch": True, "albert_config_file": "c", "data_dir": "d"}
    values = command_lines.parse(run_classifier, output_dir=run, **settings)
    line = command_flags.CommandLine.from_values(values, "run_classifier")
    line = line.with_value("train_step", 40).with_value("warmup_step", 4)
    record = {"script": "run_classifier", "flags": line.flags, "directory": str(tmp_path)}
    words = reproduction.command(record, str(tmp_path / "new"))
    assert "--num_train_epochs=2.0" in words
    assert not [word for word in words if "_step" in word]


def test_a_default_that_was_another_one_is_given(run):
    record = run_record.read(str(run))
    assert command_flags.changed_defaults(record) == {}
    record["flags"]["train_step"]["value"] = 10
    assert command_flags.changed_defaults(record) == {"train_step": 10}


# --- the comparison -----------------------------------------------------------------------------


def test_lines_of_a_resumed_run_are_compared_where_they_cover_the_same_steps(run, tmp_path):
    """Its first line after the start is the mean of fewer steps; changes are listed."""
    flags = {"seed": flag(4), "output_dir": flag("x")}
    recorder = run_session.Recorder("run_classifier", [], flags, {})
    write_run(run, recorder, first=3, last=5, change=0.125)  # a line for steps 4 and 5
    other = tmp_path / "other"
    other.mkdir()
    write_run(other, recorder, last=6)
    _, different, circumstances = reproduction.compare(str(run), str(other))
    assert not [text for text in different if text.startswith("training")]
    assert "flags.seed: 3, from step 3 on 4" in circumstances


def test_a_run_that_did_not_end_is_compared_as_far_as_it_came(run, tmp_path):
    record = json.loads((run / "run.json").read_text())
    record["status"] = "failed"
    (run / "run.json").write_text(json.dumps(record))
    other = tmp_path / "other"
    other.mkdir()
    write_run(other, run_session.Recorder("run_classifier", [], {}, {}), last=8)
    equal, different, circumstances = reproduction.compare(str(run), str(other))
    assert "training: 2 lines" in equal and "evaluation: 2 lines" in equal
    assert not different
    assert "status: the run was failed, not done" in circumstances
