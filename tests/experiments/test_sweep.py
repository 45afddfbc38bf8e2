"""The work of a sweep around its trials; test_run_sweep.py runs whole ones."""

import fcntl
import functools
import os

import pytest

from albert.cli import command_flags
from albert.experiments import sweep, sweep_journal, sweep_plan, trial_processes
from albert.io import file_io
from tests.support import run_folders


def _sweep(folder, **spec):
    fields = {"script": "tests.support.fake_trial", "parameters": {"rate": [0.1]}, **spec}
    return sweep.Sweep(sweep_plan.make_plan(fields), {}, str(folder), "no-such-python")


def test_names():
    assert trial_processes.module_of("run_race") == "albert.run_race"
    assert trial_processes.module_of("my.trials") == "my.trials"
    assert sweep.log_of("out", "RTE/seed_1") == os.path.join("out", "logs", "RTE-seed_1.log")


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
    good = {"number": 0, "name": "trial_0000", "arguments": []}
    changes = [
        ({"x": 1}, "sweep.json: not the journal of a sweep"),
        *(({key: "../x"}, "trial 0 is damaged") for key in ("name", "state")),
        ({"name": "/x"}, "trial 0 is damaged"),
        ({"number": 1}, "trial 0 is damaged"),
        ({"value": "x"}, r"sweep.json: trials\[0\].value: expected .*number or null, found text"),
        ({"error": [1]}, r"trials\[0\].error\[0\]: expected text, found whole number"),
        ({"metrics": {"a": []}}, r"trials\[0\].metrics.a: expected .*, found list"),
        ({"parameters": []}, r"trials\[0\].parameters: expected object, found list"),
    ]
    for change, message in changes:
        content = {"format": 1, "plan": {}, "trials": [{**good, **change}]}
        run_folders.write_json(tmp_path / "sweep.json", content)
        with pytest.raises(file_io.InputError, match=message):
            _sweep(tmp_path).run()
    (tmp_path / "sweep.json").write_text('{"format": 99}')
    with pytest.raises(file_io.InputError, match="format 99, expected 1"):
        _sweep(tmp_path).run()


def test_who_holds_the_lock_is_named(tmp_path):
    with open(tmp_path / "sweep.lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        held.write(str(os.getpid()))
        held.flush()
        with pytest.raises(file_io.InputError, match=rf"another process \({os.getpid()}\) "):
            _sweep(tmp_path).run()


# --- growth -------------------------------------------------------------------------------------


def _journal(folder, **spec):
    """Plans the whole sweep in a folder, each trial done as soon as it is planned; the trials."""
    folder.mkdir(exist_ok=True)
    sweep = _sweep(folder, **spec)
    sweep._read_journal()
    while trial := sweep._next():
        trial.state = sweep_journal.DONE
    sweep._journal.write()
    return [(t.parameters["rate"], t.parameters.get("batch", t.seed)) for t in sweep.trials]


def test_a_random_search_grows_without_trying_anything_twice(tmp_path):
    spec = {"method": "random", "parameters": {"rate": [1, 2], "batch": [1, 2]}, "num_trials": 3}
    first = _journal(tmp_path, **spec)
    spec["parameters"] = {"rate": [1, 2, 3], "batch": [2, 1]}
    grown = _journal(tmp_path, **{**spec, "num_trials": 100})
    assert grown[:3] == first and len(set(grown)) == len(grown) == 6
    spec = {"method": "random", "num_trials": 2, "parameters": {"rate": {"low": 1, "high": 9}}}
    first = _journal(tmp_path / "range", **spec)
    spec.update(parameters={"rate": {"low": 1, "high": 99}}, num_trials=5)
    grown = _journal(tmp_path / "range", **spec)
    assert grown[:2] == first and len(set(grown)) == 5


def test_new_seeds_are_tried_at_the_old_points_first(tmp_path):
    spec = {"parameters": {"rate": [1, 2]}}
    assert _journal(tmp_path, **spec, seeds=[5]) == [(1, 5), (2, 5)]
    spec["parameters"]["rate"].append(3)
    found = _journal(tmp_path, **spec, seeds=[5, 6])
    assert found == [(1, 5), (2, 5), (1, 6), (2, 6), (3, 5), (3, 6)]
    assert found == _journal(tmp_path, **spec, seeds=[5, 6])  # nothing is lacking


def test_trials_scored_on_data_that_has_changed_run_again(tmp_path):
    data, folder = tmp_path / "dev.csv", tmp_path / "sweep"
    data.write_text("text")
    _journal(folder, parameters={"rate": [1, 2]})
    for trial, path in ((0, data), (1, tmp_path / "gone.csv")):
        run_folders.make_run(folder / f"trial_000{trial}", data=path)

    def states():
        sweep = _sweep(folder, parameters={"rate": [1, 2]})
        sweep._read_journal()
        return [trial.state for trial in sweep.trials]

    assert states() == ["done", "done"]
    data.write_text("other text")
    assert states() == ["waiting", "done"]


def test_trials_by_name_with_other_settings_leave_their_folder(tmp_path):
    lines, script = [], "run_classifier"

    def start(*own, seeds=()):
        fields = {"script": script, "seeds": list(seeds), "flags": {"task_name": "custom"}}
        changed = functools.partial(command_flags.changed_flags, script)
        runner = sweep.Sweep(
            sweep_plan.make_plan(fields, trials={"a": list(own)}),
            {}, str(tmp_path), "", say=lines.append, changed_flags=changed,
        )  # fmt: skip
        runner._read_journal()
        states = [trial.state for trial in runner.trials]
        for trial in runner.trials:
            trial.state = sweep_journal.DONE
        runner._journal.write()
        return states, sorted(path.name for path in tmp_path.iterdir() if path.is_dir())

    rate, seed = "--learning_rate=0.001", "--seed=1"
    assert start(rate, seed) == (["waiting"], [])
    run_folders.make_run(tmp_path / "a")
    assert start(rate, seed) == (["done"], ["a"])
    assert start(rate, seed, "--do_predict") == (["waiting"], ["a"])  # resumes
    assert not lines
    assert start("--learning_rate=0.01", seed) == (["waiting"], ["a.earlier1"])
    change = "other settings: learning_rate=0.01 (was 0.001)"
    assert lines == [f"a: it is trained again; {tmp_path}/a.earlier1 has the run with {change}"]
    run_folders.make_run(tmp_path / "a" / "seed_7", seed=7, text_column="x")
    assert start(rate, seeds=[7]) == (["waiting"], ["a", "a.earlier1"])
    assert (tmp_path / "a.earlier1" / "seed_7" / "run.json").exists()
    (tmp_path / "a").rmdir()
    run_folders.make_seeds(tmp_path / "a")
    assert start(rate, "--num_seeds=5") == (["waiting"], ["a", "a.earlier1"])
    assert start(rate) == (["waiting"], ["a.earlier1", "a.earlier2"])


def test_points_that_a_search_has_come_to_twice_are_two():
    trials = [
        sweep_journal.Trial(number, "", [], {"rate": 1}, seed)
        for number, seed in enumerate([1, 2, 1, 2, 3, 3, 4])
    ]
    found = [[trial.number for trial in group] for group in sweep_journal.by_point(trials)]
    assert found == [[0, 1, 4, 6], [2, 3, 5]]
    trials = [sweep_journal.Trial(i, name, []) for i, name in enumerate(("a", "b"))]
    assert len(sweep_journal.by_point(trials)) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"parameters": {"rate": [1]}},
        {"parameters": {"rate": [1, 2], "batch": [3]}},
        {"seeds": [1]},
        {"seeds": []},
        {"metric": "f1"},
    ],
)
def test_what_is_no_growth_is_refused(change, tmp_path):
    spec = {"parameters": {"rate": [1, 2]}, "seeds": [1, 2]}
    _journal(tmp_path, **spec)
    with pytest.raises(file_io.InputError, match="this sweep was started with"):
        _journal(tmp_path, **{**spec, **change})
