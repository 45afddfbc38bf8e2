"""``run.json`` and ``metrics.jsonl``, written without any training."""

import hashlib
import json
import math
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from albert.io import file_io
from albert.training import evaluation_basis, results, run_record, run_session
from tests.support.processes import wait_until
from tests.support.sources import ROOT

REPLACED = "x REPLACED BY KeyboardInterrupt: y"  # as TensorFlow leaves it
FLAGS = {
    "seed": {"value": 1, "source": "default"},
    "learning_rate": {"value": 0.5, "source": "flag file a.flags"},
    "output_dir": {"value": "out", "source": "command line"},
    "threshold": {"value": math.nan, "source": "default"},
}


def recorder(folder, **changes):
    data = folder / "data"
    if not data.exists():
        data.write_text("text")
    settings = {
        "script": "run_classifier", "command": ["python"], "flags": FLAGS,
        "inputs": {"data": (str(data), [str(data)])},
    }  # fmt: skip
    return run_session.Recorder(**{**settings, **changes})


def train(folder, first, last, scores=None, **changes):
    """A session as the engine and the evaluation make one."""
    path = str(folder)
    with recorder(folder, **changes).session(path, ["train", "eval"], {}):
        run_record.set_model(path, "sst-2", "accuracy", 10, 5)
        run_record.start_training(path, first)
        for step in range(first + 1, last + 1):
            run_record.append_training(path, step, step / 2, {"loss": np.float32(1 / step)})
        run_record.set_steps(path, last)
        if scores:
            run_record.append_evaluation(path, last, f"{path}/model.ckpt-{last}", scores)
            run_record.set_result(path, last, scores)


def lines(folder):
    return [(row["kind"], row["step"]) for row in run_record.read_metrics(str(folder))]


def test_a_run_describes_itself(tmp_path, caplog):
    with caplog.at_level("INFO", logger="absl"):
        train(tmp_path, 0, 2, {"accuracy": 0.5, "f1": math.nan})
    found = run_record.read(str(tmp_path))
    assert found["flags"]["learning_rate"] == FLAGS["learning_rate"]
    assert found["flags"]["threshold"]["value"] is None  # as JSON has no NaN
    assert found["parameters"] == {"total": 10, "trained": 5}
    assert (found["task"], found["best_metric"]) == ("sst-2", "accuracy")
    assert found["result"] == {"step": 2, "accuracy": 0.5, "f1": None}
    assert found["status"] == "done" and found["started"] <= found["ended"]
    assert found["started"][-6] in "+-"  # the time zone
    assert found["inputs"]["data"]["sha256"] == file_io.sha256(str(tmp_path / "data"))
    (session,) = found["sessions"]
    assert (session["first_step"], session["last_step"], session["status"]) == (0, 2, "done")
    text = (tmp_path / "metrics.jsonl").read_text()
    assert "NaN" not in text
    rows = [json.loads(line) for line in text.splitlines()]
    assert rows[1] == {"kind": "train", "step": 2, "seconds": 1.0, "loss": 0.5}
    assert rows[2]["checkpoint"] == "model.ckpt-2"
    messages = [record.getMessage() for record in caplog.records]
    assert "  flag file a.flags: learning_rate=0.5" in messages
    assert "  command line: output_dir=out" in messages


def test_a_resumed_run_has_no_line_twice(tmp_path, caplog):
    train(tmp_path, 0, 4, {"accuracy": 0.5})
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"kind": "train", "step": 5, "lo')  # the end of a killed run
    changed = {**FLAGS, "learning_rate": {"value": 0.25, "source": "command line"}}
    (tmp_path / "data").write_text("other text")
    train(tmp_path, 2, 5, flags=changed)
    assert "Resuming with other settings: learning_rate=0.25 (was 0.5)" in caplog.text
    assert lines(tmp_path) == [("train", step) for step in (1, 2, 3, 4, 5)]
    found = run_record.read(str(tmp_path))
    first, second = found["sessions"]
    assert (first["first_step"], first["last_step"]) == (0, 4)
    assert (second["first_step"], second["last_step"]) == (2, 5)
    assert set(second["changed"]) == {"flags.learning_rate", "inputs.data"}
    assert second["changed"]["flags.learning_rate"] == {"before": 0.5, "after": 0.25}
    assert found["flags"] == {**changed, "threshold": {"value": None, "source": "default"}}
    assert found["started"] == first["started"] and found["ended"] == second["ended"]
    # The checkpoint of the first session is still the best.
    assert found["result"] == {"step": 4, "accuracy": 0.5}


def test_an_evaluation_takes_the_place_of_an_earlier_one_of_its_step(tmp_path):
    train(tmp_path, 0, 2, {"accuracy": 0.5})
    run_record.append_evaluation(str(tmp_path), 2, "/elsewhere/model.ckpt-2", {"accuracy": 0.25})
    assert lines(tmp_path) == [("train", 1), ("train", 2), ("eval", 2)]
    row = run_record.read_metrics(str(tmp_path))[-1]
    assert (row["checkpoint"], row["accuracy"]) == ("/elsewhere/model.ckpt-2", 0.25)


def evaluate(folder, score, count=1):
    other = {"seed": {"value": 2, "source": "command line"}}
    with recorder(folder, flags=other).session(str(folder), ["eval"], {}):
        run_record.set_model(str(folder), "mnli", "other", 1, 1)
        run_record.set_result(str(folder), 2, {"accuracy": score})
        run_record.set_evaluated(str(folder), count, {"other": 0.25})


def test_an_evaluation_does_not_hide_the_training(tmp_path):
    train(tmp_path, 0, 2)
    before = run_record.read(str(tmp_path))
    for score in (0.5, 0.75):
        evaluate(tmp_path, score)
    found = run_record.read(str(tmp_path))
    assert len(found["sessions"]) == 3
    assert found["result"] == {"step": 2, "accuracy": 0.75}
    assert (found["evaluated"], found["baseline"]) == (1, {"other": 0.25})
    for name in set(before) - {"sessions", "result"}:
        assert found[name] == before[name], name
    train(tmp_path, 2, 4, {"accuracy": 0.25})
    evaluate(tmp_path, 1.0, 7)
    found = run_record.read(str(tmp_path))
    assert found["result"] == {"step": 4, "accuracy": 0.25} and found["evaluated"] == 1


def test_a_session_that_takes_no_step_does_not_change_a_finished_record(tmp_path):
    """It has flags and inputs of its own; if it begins to train, the record describes it."""
    path = str(tmp_path)
    train(tmp_path, 0, 2, {"accuracy": 0.5})
    before = run_record.read(path)
    other = {**FLAGS, "learning_rate": {"value": 9.0, "source": "command line"}}
    (tmp_path / "data").write_text("other text")
    with (
        pytest.raises(ZeroDivisionError),
        recorder(tmp_path, flags=other).session(path, ["train", "eval", "predict"], {}),
    ):
        run_record.set_model(path, "sst-2", "accuracy", 10, 5)
        run_record.set_result(path, 2, {"accuracy": 0.75})
        raise ZeroDivisionError
    found = run_record.read(path)
    session = found["sessions"][-1]
    assert session["status"] == "failed" and session["own"]["flags"]["learning_rate"]["value"] == 9
    assert found["result"] == session["result"]  # evaluated again
    for name in before.keys() - {"sessions", "result", "measured_on"}:
        assert found[name] == before[name], name
    train(tmp_path, 2, 3, flags=other)
    found = run_record.read(path)
    assert found["flags"]["learning_rate"]["value"] == 9
    assert found["inputs"]["data"]["sha256"] == file_io.sha256(str(tmp_path / "data"))
    assert set(found["sessions"][-1]["changed"]) == {"flags.learning_rate", "inputs.data"}
    assert not {"own", "inputs"} & found["sessions"][-1].keys()


def test_a_run_that_is_to_resume_and_fails_has_failed(tmp_path):
    train(tmp_path, 0, 2)
    path = tmp_path / "run.json"
    record = json.loads(path.read_text())
    record["status"] = record["sessions"][0]["status"] = "running"  # as after a kill
    path.write_text(json.dumps(record))
    with (
        pytest.raises(ZeroDivisionError),
        recorder(tmp_path).session(str(tmp_path), ["train"], {}),
    ):
        raise ZeroDivisionError
    assert run_record.read(str(tmp_path))["status"] == "failed"


def test_dev_data_that_a_finished_run_is_scored_on_again_belongs_to_its_record(
    tmp_path, monkeypatch
):
    """Else runs over seeds would be scored again forever."""
    path, dev = str(tmp_path), tmp_path / "dev"
    roles = ("train_data", "eval_data", "predict_data")
    names = {role: tmp_path / role for role in roles}
    for name in names.values():
        name.write_text("text")
    monkeypatch.chdir(tmp_path)
    train(tmp_path, 0, 2, inputs={role: (role, [role]) for role in roles})
    for name in names.values():
        name.write_text("other text")
    dev.mkdir()
    monkeypatch.chdir(dev)
    inputs = {"train_data": ("../train_data", ["../train_data"])}
    inputs["eval_data"] = ("../eval_data", ["../eval_data"])
    with recorder(tmp_path, inputs=inputs).session(path, ["train", "eval"], {}):
        pass
    assert run_record.changed_inputs([path]) == [["train_data", "predict_data"]]


def test_scores_of_test_data_stand_beside_the_result_until_there_is_a_better_one(tmp_path):
    path = str(tmp_path)
    assert run_record.read_context(path) == (None, None, {})
    train(tmp_path, 0, 2, {"accuracy": 0.5})
    with recorder(tmp_path).session(path, ["train", "predict"], {}):
        run_record.set_evaluated(path, 3, {"accuracy": 0.4, "f1": math.nan})
        run_record.set_test(path, f"{path}/model.ckpt-best", 2, {"accuracy": 0.45})
    assert run_record.read(path)["test"] == {"step": 2, "accuracy": 0.45}
    assert run_record.read_context(path) == (3, 0.4, {"accuracy": 0.45})
    assert run_record.read_context(path, "f1").baseline is None
    with recorder(tmp_path).session(path, ["predict"], {}):
        run_record.set_test(path, "/elsewhere/model.ckpt-9", 9, {"accuracy": 1.0})
    found = run_record.read(path)
    assert found["test"]["step"] == 2 and found["sessions"][-1]["test"]["step"] == 9
    for name in ("first", "second", "unlabeled"):
        (tmp_path / name).write_text(name)
        entry = {"predict_data": (str(tmp_path / name), [str(tmp_path / name)])}
        with recorder(tmp_path, inputs=entry).session(path, ["predict"], {}):
            if name != "unlabeled":
                run_record.set_test(path, f"{path}/model.ckpt-best", 2, {"accuracy": 0.5})
    tested_on = run_record.read(path)["tested_on"]
    assert tested_on["path"] == str(tmp_path / "second")
    assert tested_on["sha256"] == hashlib.sha256(b"second").hexdigest()
    train(tmp_path, 2, 4, {"accuracy": 0.75})
    assert not {"test", "tested_on"} & run_record.read(path).keys()


@pytest.mark.parametrize(
    ("step", "accuracy", "found", "remarks"),
    [
        (2, 0.75, 1, []),
        (2, 0.5, 1, ["no better than a constant answer (0.5000)"]),
        (0, 0.75, 1, ["best at step 0"]),
        (2, math.nan, 1, ["its accuracy is undefined: any answers score the same"]),
        (2, 0.795, 0, ["never predicted: no (0 of 23)"]),
    ],
)
def test_what_is_wrong_with_a_score_is_recorded(tmp_path, caplog, step, accuracy, found, remarks):
    path = str(tmp_path)
    with recorder(tmp_path).session(path, ["train"], {}):
        run_record.set_model(path, "sst-2", "accuracy", 10, 5)
        classes = [results.ClassCount("yes", 89, 112 - found, 89)]
        classes.append(results.ClassCount("no", 23, found, found))
        run_record.set_result(path, step, {"accuracy": accuracy}, classes)
        run_record.set_evaluated(path, 2, {"accuracy": 0.5})
    assert [row["labels"] for row in run_record.read(path)["classes"]] == [89, 23]
    assert run_record.read(path)["remarks"] == run_record.read_remarks(path) == remarks
    run_record.log_remarks(path, remarks)
    assert (f"The model of {path}: {remarks[0]}" in caplog.text) if remarks else not caplog.text


def test_remarks_on_a_result_are_not_those_of_a_later_evaluation_on_other_data(tmp_path):
    path = str(tmp_path)
    for stages, name in ((["train", "eval"], "a"), (["eval"], "b")):
        with recorder(tmp_path).session(path, stages, {}):
            run_record.set_model(path, "sst-2", "accuracy", 10, 5)
            run_record.set_basis(path, evaluation_basis.Basis(sha256=name * 64, path="dev.csv"))
            run_record.set_result(path, 2, {"accuracy": 0.5})
            if name == "a":
                run_record.set_evaluated(path, 2, {"accuracy": 0.5})
                remarks = run_record.read_remarks(path, only_current=True)
    assert remarks == ["no better than a constant answer (0.5000)"]
    assert run_record.read_remarks(path) == remarks  # of the model, which is the same
    assert run_record.read_remarks(path, only_current=True) == []


def test_classes_that_only_a_threshold_finds_are_not_missed(tmp_path):
    path = str(tmp_path)
    with recorder(tmp_path).session(path, ["train"], {}):
        run_record.set_model(path, "custom", "micro_f1", 10, 5)
        classes = [results.ClassCount("rare", 9, 0, 0)]
        run_record.set_result(path, 2, {"micro_f1": 0.5}, classes)
        assert run_record.read_remarks(path) == ["never predicted: rare (0 of 9)"]
        run_record.set_calibration(path, {"step": 2, "thresholds": {"rows": []}})
    assert run_record.read(path)["remarks"] == run_record.read_remarks(path) == []


@pytest.mark.parametrize(
    ("accuracy", "macro_f1", "remark"),
    [
        (0.75, 0.6, ""),
        (0.75, 0.3, "its macro F1 is no better than a constant answer (0.4000)"),
        (
            0.5,
            0.6,
            "its accuracy is no better than a constant answer (0.7000), its macro F1 is better "
            "(0.6000 and 0.4000)",
        ),
        (0.5, 0.3, "no better than a constant answer (0.7000)"),
    ],
)
def test_macro_f1_is_judged_as_well_as_accuracy(tmp_path, accuracy, macro_f1, remark):
    path = str(tmp_path)
    with recorder(tmp_path).session(path, ["train"], {}):
        run_record.set_model(path, "custom", "accuracy", 10, 5)
        run_record.set_result(path, 2, {"accuracy": accuracy, "macro_f1": macro_f1})
        run_record.set_evaluated(path, 2, {"accuracy": 0.7, "macro_f1": 0.4})
    assert run_record.read_remarks(path) == ([remark] if remark else [])


def test_a_score_worse_than_that_of_step_0_is_recorded(tmp_path):
    path = str(tmp_path)
    blocks = [results.make_block({"f1": f1}, step) for step, f1 in ((0, 8.96), (9, 4.0))]
    results.write_blocks(path, blocks)
    with recorder(tmp_path).session(path, ["train"], {}):
        run_record.set_model(path, "squad_v1", "f1", 10, 5)
        run_record.set_result(path, 9, {"f1": 4.0})
        run_record.set_evaluated(path, 2, {"f1": 0.0})
    assert run_record.read(path)["remarks"] == ["worse than before training (8.9600 at step 0)"]


def test_an_evaluation_beside_training_leaves_it_running(tmp_path):
    with recorder(tmp_path).session(str(tmp_path), ["train"], {}):

        def evaluate(record):
            other = {**record["sessions"][0], "stages": ["eval"], "pid": os.getpid() + 1}
            record["sessions"].append(other)

        run_record.update(str(tmp_path), evaluate)
    found = run_record.read(str(tmp_path))
    assert [s["status"] for s in found["sessions"]] == ["done", "running"]


COUNTING = """
import sys
from albert.training import run_record
def count(record):
    record["evaluated"] = record.get("evaluated", 0) + 1
for _ in range(100):
    run_record.update(sys.argv[1], count)
"""


def test_processes_change_a_record_one_after_another(tmp_path):
    """No change is lost."""
    train(tmp_path, 0, 1)
    before = run_record.read(str(tmp_path)).get("evaluated", 0)
    program = [sys.executable, "-c", COUNTING, str(tmp_path)]
    processes = [subprocess.Popen(program, cwd=ROOT) for _ in range(2)]
    assert [process.wait(60) for process in processes] == [0, 0]
    assert run_record.read(str(tmp_path))["evaluated"] == before + 200


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (file_io.InputError("no data"), "failed", "no data"),
        (ZeroDivisionError(), "failed", "ZeroDivisionError"),
        (KeyboardInterrupt(), "interrupted", "KeyboardInterrupt"),
        (RuntimeError(REPLACED), "interrupted", REPLACED),
        (ValueError("x" * 5000), "failed", "x" * 1000),
    ],
)
def test_how_a_run_ended(tmp_path, error, status, message):
    with (
        pytest.raises(type(error)),
        recorder(tmp_path).session(str(tmp_path), ["train"], {}),
    ):
        assert run_record.read(str(tmp_path))["status"] == "running"
        raise error
    found = run_record.read(str(tmp_path))
    assert found["status"] == status and found["message"].startswith(message)
    assert len(found["message"]) <= 1000
    assert found["ended"]
    train(tmp_path, 0, 1)
    found = run_record.read(str(tmp_path))
    assert found["status"] == "done" and "message" not in found
    assert found["sessions"][0]["message"] == message


KILLED = """
import sys
from albert.training import run_record, run_session
folder = sys.argv[1]
flags = {"seed": {"value": 1, "source": "default"}}
with run_session.Recorder("run_classifier", [], flags, {}).session(folder, ["train"], {}):
    run_record.start_training(folder, 0)
    for step in range(1, 10**6):
        run_record.append_training(folder, step, 0.0, {"loss": 1.0})
        if step % 5 == 0:
            run_record.append_evaluation(folder, step, "x", {"accuracy": step})
            run_record.set_result(folder, step, {"accuracy": step})
        run_record.set_steps(folder, step)
"""


@pytest.mark.slow
def test_a_killed_run_leaves_a_whole_record(tmp_path):
    """At any moment, again and again; the next run drops what it will repeat."""
    for kill in range(4):
        process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], cwd=ROOT)
        try:
            wait_until(lambda: len(lines(tmp_path)) > 20, process)
            time.sleep(0.003 * kill)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        found = run_record.read(str(tmp_path))
        assert found["status"] == "running" and len(found["sessions"]) == kill + 1
        rows = run_record.read_metrics(str(tmp_path))
        assert len(lines(tmp_path)) == len(set(lines(tmp_path)))
        assert abs(rows[-1]["step"] - found["sessions"][-1]["last_step"]) <= 1
        assert all(s["status"] == "interrupted" for s in found["sessions"][:-1])
        file_io.remove(str(tmp_path / "metrics.jsonl"))
    train(tmp_path, 0, 1)
    assert run_record.read(str(tmp_path))["status"] == "done"
    assert not [name for name in os.listdir(tmp_path) if "damaged" in name]


# --- damage -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "run.json is not valid JSON"),
        ("[]", "run.json is not the record of a run"),
        ('{"format": 2}', "run.json is not the record of a run"),
        (None, "the file .*run.json does not exist"),
    ],
)
def test_a_record_that_cannot_be_read_is_named(tmp_path, content, message):
    if content is not None:
        (tmp_path / "run.json").write_text(content)
    with pytest.raises(file_io.InputError, match=message):
        run_record.read(str(tmp_path))


@pytest.mark.parametrize("row", ["{", "[]", '{"kind": "train"}', "\ufffe"])
def test_a_damaged_line_is_named(tmp_path, row):
    good = '{"kind": "train", "step": 1}'
    (tmp_path / "metrics.jsonl").write_text(f"{good}\n{row}\n{good}\n")
    with pytest.raises(file_io.InputError, match="metrics.jsonl line 2"):
        run_record.read_metrics(str(tmp_path))


def test_a_run_goes_on_beside_damaged_files(tmp_path, caplog):
    """They keep their content under another name, each time another one."""
    for kept in ("damaged", "damaged2"):
        train(tmp_path, 0, 1)
        for name in ("run.json", "metrics.jsonl"):
            (tmp_path / name).write_text(f"{kept}\n")
        train(tmp_path, 1, 3)
        for name in ("run.json", "metrics.jsonl"):
            assert (tmp_path / f"{name}.{kept}").read_text() == f"{kept}\n"
            assert f"{name}.{kept} and started a new file" in caplog.text
        assert lines(tmp_path) == [("train", 2), ("train", 3)]
        assert len(run_record.read(str(tmp_path))["sessions"]) == 1


def test_damage_while_a_run_goes_on_ends_in_a_warning(tmp_path, caplog):
    with recorder(tmp_path).session(str(tmp_path), ["train"], {}):
        (tmp_path / "run.json").write_text("{")
    assert "run.json is incomplete for this run: " in caplog.text
    assert (tmp_path / "run.json").read_text() == "{"


def test_a_library_call_needs_no_record(tmp_path):
    """Metrics are written wherever training reports; there need be no record for them."""
    run_record.start_training(str(tmp_path), 0)
    run_record.append_training(str(tmp_path), 1, 0.0, {"loss": 1.0})
    run_record.set_result(str(tmp_path), 1, {"accuracy": 1.0})
    assert os.listdir(tmp_path) == ["metrics.jsonl"]
    assert run_record.read_metrics(str(tmp_path / "none")) == []
