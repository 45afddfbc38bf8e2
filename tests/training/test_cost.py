"""The cost of runs in ``run.json``: what is counted, over several sessions, what is not known."""

import json
import types

import pytest

from albert.io import file_io, usage
from albert.model import layers
from albert.training import cost, flops, run_record, run_session, training_log
from tests.support.builders import make_model

WORK = (8, 192, 4608, 104, 0, 0)


class Clock:
    """In place of `usage.read`: a test says what was used."""

    def __init__(self, monkeypatch):
        self.now = usage.Usage(100.0, 50.0)
        monkeypatch.setattr(usage, "read", lambda: self.now)

    def spend(self, *amounts):
        self.now = usage.Usage(*(n + a for n, a in zip(self.now, amounts, strict=True)))


def session(folder, stages=("train",)):
    recorder = run_session.Recorder("run_classifier", ["python"], {}, {})
    return recorder.session(str(folder), stages, {})


def test_steps_and_evaluations_are_counted_apart(tmp_path, monkeypatch):
    monkeypatch.setattr(usage, "peak_memory", lambda: 1_900_000_000)
    model, clock = make_model("classifier", layers.Compute(skip_padding=True)), Clock(monkeypatch)
    with session(tmp_path):
        meter = cost.Meter()
        meter.start(model, str(tmp_path), words_per_token=0.75)
        meter.write()
        assert run_record.read_cost(str(tmp_path)) is None  # There was no step.
        clock.spend(2.0, 3.0)
        meter.add_steps(1, 100, WORK)
        with meter.evaluating():
            clock.spend(5.0, 7.0)
        clock.spend(1.0, 1.5)
        meter.add_steps(2, 220, [2 * number for number in WORK])
        meter.write()
        clock.spend(0.25, 0.5)
        meter.write()
        found = run_record.read_cost(str(tmp_path))
    work = flops.StepWork(*(3 * number for number in WORK))
    assert found == run_record.Cost(
        steps=3, examples=24, tokens=320, positions=312, words=240,
        flop=flops.training_flops(model, work), seconds=3.25, processor_seconds=5.0,
        evaluation_seconds=5.0, evaluation_processor_seconds=7.0,
        peak_memory=1_900_000_000,
    )  # fmt: skip
    assert found == run_record.read_cost(str(tmp_path))


def test_sessions_add_up_also_after_a_kill(tmp_path):
    folder = str(tmp_path)

    def spend(steps, **rest):
        run_record.add_cost(folder, {"steps": steps, "seconds": 1.5, "peak_memory": steps, **rest})

    with session(tmp_path):
        spend(10, joules=1.0, words=7)
        spend(5, joules=1.0, words=3)
        killed = run_record.read(folder)
    # As a kill leaves it: the record still says that the session runs.
    killed["sessions"][0].update(status=run_record.RUNNING, pid=1)
    file_io.write_json(f"{folder}/{run_record.RUN}", killed)
    with session(tmp_path, ["eval"]):
        pass
    with session(tmp_path):
        assert run_record.read_cost(folder).steps == 15
        spend(4, words=2)  # This version counts no joules.
    found = run_record.read_cost(folder)
    assert (found.steps, found.seconds, found.words) == (19, 4.5, 12)
    assert found.peak_memory == 10
    first, _, last = run_record.read(folder)["sessions"]
    assert (first["cost"]["steps"], first["cost"]["joules"]) == (15, 2.0)
    assert last["cost"] == {"steps": 4, "seconds": 1.5, "peak_memory": 4, "words": 2}


def test_a_session_of_unknown_cost_makes_the_sum_unknown(tmp_path):
    folder = str(tmp_path)
    with session(tmp_path):
        run_record.set_steps(folder, 0)
        run_record.set_steps(folder, 20)
    assert run_record.read_cost(folder) is None
    with session(tmp_path):
        run_record.add_cost(folder, {"steps": 5})
    assert run_record.read_cost(folder) is None
    assert run_record.read(folder)["sessions"][1]["cost"] == {"steps": 5}


def test_what_is_not_known_is_left_out(tmp_path):
    with session(tmp_path):
        meter = cost.Meter()
        meter.start(object(), str(tmp_path))
        meter.add_steps(3, None, None)
        meter.write()
    found = json.loads((tmp_path / "run.json").read_text())["cost"]
    assert set(found) == {
        "steps", "seconds", "processor_seconds", "evaluation_seconds",
        "evaluation_processor_seconds", "peak_memory",
    }  # fmt: skip


def test_workers_that_do_not_report_write_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    meter = cost.Meter()
    meter.start(object(), None)
    meter.add_steps(1, 10, None)
    meter.report()
    assert not list(tmp_path.iterdir())


def test_a_folder_without_a_record_has_no_cost(tmp_path):
    run_record.add_cost(str(tmp_path), {"steps": 1})
    assert run_record.read_cost(str(tmp_path)) is None
    with session(tmp_path):
        run_record.add_cost(str(tmp_path), {"steps": 1})
    record = json.loads((tmp_path / "run.json").read_text())
    record["cost"]["steps"] = "many"
    (tmp_path / "run.json").write_text(json.dumps(record))
    with pytest.raises(file_io.InputError, match=r"cost"):
        run_record.read_cost(str(tmp_path))


def test_the_log_writes_the_cost_before_checkpoints_and_at_the_end(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(usage, "peak_memory", lambda: 1_900_000_000)
    clock, folder = Clock(monkeypatch), str(tmp_path)
    totals = {training_log.INPUT_SECONDS: (0.0, 1), training_log.TOKENS: (12_345_678, 1)}
    with caplog.at_level("INFO", logger="absl"), session(tmp_path):
        meter = cost.Meter()
        meter.start(make_model("classifier"), folder)
        with training_log.TrainingLog(folder, 0, 2, 8, 0.0, meter) as log:
            log.update(1, totals, 0.5, report=False, work=WORK)
            log.before_checkpoint()
            assert run_record.read_cost(folder).steps == 1
            clock.spend(1.0, 1234.0)
            log.update(2, totals, 0.5, report=True, work=WORK)
            assert run_record.read_cost(folder).steps == 1  # Writes are seconds apart.
            monkeypatch.setattr(cost, "time", types.SimpleNamespace(monotonic=lambda: float("inf")))
            meter.write_if_due()
            assert run_record.read_cost(folder).steps == 2
    flop = run_record.read_cost(folder).flop
    expected = f"cost: 24.7 million tokens, {flop:.2g} FLOP, 1,234 processor seconds, 1.9 GB"
    assert expected in caplog.text
