"""What a sweep does around its trials; tests/test_run_sweep.py runs whole ones."""

import fcntl
import os

import pytest

from albert import file_io, sweep_plan, sweep_runner
from tests import run_folders


def _sweep(folder, **spec):
    fields = {"script": "tests.fake_trial", "parameters": {"rate": [0.1]}, **spec}
    return sweep_runner.Sweep(sweep_plan.make_plan(fields), {}, str(folder), "no-such-python")


def test_names():
    assert sweep_runner.module_of("run_race") == "albert.run_race"
    assert sweep_runner.module_of("my.trials") == "my.trials"
    assert sweep_runner.log_of("out", "RTE/seed_1") == os.path.join("out", "logs", "RTE-seed_1.log")


def test_a_folder_that_is_not_of_this_machine_is_refused():
    with pytest.raises(file_io.InputError, match="output_dir=gs://b/x: a sweep needs a folder of"):
        _sweep("gs://b/x")


def test_an_interpreter_that_is_not_there_ends_the_sweep_and_no_state_is_lost(tmp_path):
    for _ in range(2):
        sweep = _sweep(tmp_path)
        with pytest.raises(FileNotFoundError, match="no-such-python"):
            sweep.run()
        assert [trial.has_ended for trial in sweep.trials] == [False]


def test_a_damaged_journal_is_named(tmp_path):
    (tmp_path / "sweep.json").write_text('{"format": 1, "plan": {}, "trials": [{"x": 1}]}')
    with pytest.raises(file_io.InputError, match="sweep.json: not the journal of a sweep"):
        _sweep(tmp_path).run()
    good = {"number": 0, "name": "trial_0000", "arguments": []}
    changes = [{"name": "../x"}, {"name": "/x"}, {"number": 1}, {"state": "x"}, {"value": "x"}]
    for change in (*changes, {"error": [1]}, {"metrics": {"a": []}}, {"parameters": []}):
        content = {"format": 1, "plan": {}, "trials": [{**good, **change}]}
        run_folders.write_json(tmp_path / "sweep.json", content)
        with pytest.raises(file_io.InputError, match="trial 0 is damaged"):
            _sweep(tmp_path).run()
    (tmp_path / "sweep.json").write_text('{"format": 99}')
    with pytest.raises(file_io.InputError, match="format 99, expected 1"):
        _sweep(tmp_path).run()


def test_who_holds_the_lock_is_named(tmp_path):
    with open(tmp_path / "sweep.lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        held.write(str(os.getpid()))
        held.flush()
        with pytest.raises(
            file_io.InputError, match=rf"another process \({os.getpid()}\) runs the"
        ):
            _sweep(tmp_path).run()
