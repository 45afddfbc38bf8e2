"""Runs as other trackers get them: keys, states, times and numbers."""

import pytest

from albert.experiments import exported_runs, runs, seed_runs, sweep_journal
from albert.io import file_io
from albert.training import run_record, stuck_runs
from tests.support import run_folders


def read_one(folder):
    (run,), missing = exported_runs.read([str(folder)])
    assert not missing
    return run


def change(folder, **fields):
    run_record.update(str(folder), lambda record: record.update(fields))


def test_a_run_has_its_settings_scores_and_curves(tmp_path):
    folder = run_folders.make_run(tmp_path / "sst", test=0.7, baseline=0.5, warmup=None)
    change(
        folder,
        started="2026-01-01T00:00:00+00:00",
        ended="2026-01-01T00:01:00+00:00",
        cost={"steps": 10, "flop": 4.5e14, "joules": 0.25},
    )
    run = read_one(folder)
    assert (run.name, run.status, run.ended - run.started) == ("sst", "finished", 60)
    assert run.flags == {"task_name": "custom", "learning_rate": 0.001, "seed": 1}
    assert run.scores["score"] == run.scores["best/eval_accuracy"] == 0.76
    assert run.scores["final/eval_loss"] == 0.15 and run.scores["test/eval_accuracy"] == 0.7
    assert (run.scores["best/step"], run.scores["evaluated"]) == (10, 2)
    costs = {name: value for name, value in run.scores.items() if name.startswith("cost")}
    assert costs == {"cost/steps": 10, "cost/flop": 4.5e14, "cost/joules": 0.25}
    end = run.started + 5  # the evaluations follow the whole training
    assert run.curves["eval/eval_loss"] == {5: (end, 0.3), 10: (end, 0.15)}
    assert [step for step, _ in run.rows()] == list(range(1, 11)) and run.last_step == 10
    assert run.rows()[4][1]["train/loss"] == pytest.approx(0.21)
    assert {name: run.tags[name] for name in ("task", "kind", "script", "score_name")} == {
        "task": "custom",
        "kind": "classifier",
        "script": "run_classifier",
        "score_name": "eval_accuracy (dev, best of 2 checkpoints)",
    }
    assert run.tags["given"] == "learning_rate seed task_name warmup"


def test_a_run_that_has_grown_keeps_its_key(tmp_path):
    folder = run_folders.make_run(tmp_path / "run")
    before = read_one(folder)
    assert read_one(folder).digest == before.digest
    run_folders.grow_run(folder, learning_rate=0.5)
    after = read_one(folder)
    assert after.key == before.key and after.digest != before.digest
    assert after.curves["train/loss"].items() > before.curves["train/loss"].items()
    # Its second session counts seconds from 0 again.
    times = [time for time, _ in after.curves["train/loss"].values()]
    assert times[-2:] == [before.started + 5, before.started + 5.5]
    folder.rename(tmp_path / "elsewhere")
    assert read_one(tmp_path / "elsewhere").key != before.key
    (tmp_path / "moved").mkdir()
    (tmp_path / "elsewhere").rename(tmp_path / "moved" / "run")
    assert read_one(tmp_path / "moved" / "run").key == before.key


@pytest.mark.parametrize("status", [run_record.FAILED, run_record.RUNNING])
def test_a_run_that_has_not_ended_well_says_so(status, tmp_path):
    run = read_one(run_folders.grow_run(run_folders.make_run(tmp_path / "run"), status))
    assert run.status == status and (run.ended is None) == (status == run_record.RUNNING)
    assert run.tags["message"] == ("out of memory" if status == run_record.FAILED else "")


def test_a_run_that_did_not_learn_is_stuck(tmp_path):
    folder = run_folders.make_run(tmp_path / "run")
    state = {"told": {"step": 5}, "judgements": [{"step": 5, "is_stuck": True}], "signs": {}}
    run_folders.write_json(folder / stuck_runs.STATE, state)
    run = read_one(folder)
    assert run.status == runs.STUCK and run.tags["remarks"] == "stuck"


def test_a_sweep_gives_its_trials_with_what_became_of_them(tmp_path):
    grid = {"learning_rate": [0.1, 0.2]}
    folder = run_folders.make_sweep(
        tmp_path / "sweep", grid, lambda p, s: 0.6 if p["learning_rate"] < 0.15 else None, (1, 2)
    )
    path = folder / sweep_journal.NAME
    path.write_text(path.read_text().replace('"state": "done"', '"state": "pruned"', 1))
    runs, missing = exported_runs.read([str(folder), str(folder / "trial_0001")])
    assert [(run.name, run.status) for run in runs] == [
        ("sweep/trial_0000", "pruned"),
        ("sweep/trial_0001", "finished"),
    ]
    assert {run.tags["group"] for run in runs} == {"sweep"} and runs[1].flags["seed"] == 2
    assert missing == ["sweep/trial_0002", "sweep/trial_0003"]


def test_seeds_inside_of_a_trial_and_one_that_still_runs(tmp_path):
    folder = run_folders.make_sweep(tmp_path / "sweep", {"learning_rate": [0.1]}, lambda p, s: None)
    study = folder / "trial_0000"
    made = [run_folders.make_run(study / f"seed_{seed}", seed=seed) for seed in (1, 2)]
    run_folders.grow_run(made[1], run_record.RUNNING)
    entry = {"seed": 1, "folder": "seed_1", "status": seed_runs.FAILED, "restarts": 0, "step": None}
    content = seed_runs.summarize("eval_accuracy", [{**entry, "result": None}])
    run_folders.write_json(study / seed_runs.SEEDS, content)
    runs, _ = exported_runs.read([str(folder)])
    assert sorted((run.name, run.status) for run in runs) == [
        ("sweep/trial_0000/seed_1", "failed"),
        ("sweep/trial_0000/seed_2", "running"),
    ]


def test_folders_without_runs_are_named(tmp_path):
    with pytest.raises(file_io.InputError, match="is not the output folder of a run or a sweep"):
        exported_runs.read([str(tmp_path)])
    folder = run_folders.make_sweep(tmp_path / "sweep", {"seed": [1]}, lambda p, s: None)
    with pytest.raises(file_io.InputError, match=r"no trial has a run.json.*sweep/trial_0000"):
        exported_runs.read([str(folder)])


def test_a_damaged_time_is_named(tmp_path):
    folder = run_folders.make_run(tmp_path / "run")
    change(folder, started="yesterday")
    with pytest.raises(file_io.InputError, match=r"run/run\.json does not hold.*yesterday"):
        read_one(folder)
