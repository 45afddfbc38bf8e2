"""Scores of trials from the files of their folders, and the table of a sweep."""

import math

import pytest

from albert.experiments import seed_runs, sweep_plan, sweep_results
from albert.experiments.sweep_journal import DONE, FAILED, INTERRUPTED, Trial
from albert.io import file_io
from albert.training import results, stuck_runs
from tests.support import run_folders


def _run(folder, best, **by_step):
    folder.mkdir(exist_ok=True)
    blocks = [results.make_block(found, int(step[1:])) for step, found in by_step.items()]
    results.write_blocks(str(folder), blocks)
    if best:
        results.write_trial(str(folder), results.Trial(30, *best))
    return str(folder)


def test_the_score_is_that_of_the_best_checkpoint(tmp_path):
    first, second = {"eval_accuracy": 0.7, "f1": 0.9}, {"eval_accuracy": 0.6, "f1": math.nan}
    folder = _run(tmp_path / "run", (10, 0.699999988079071), _10=first, _20=second)
    assert sweep_results.read_score(folder, None) == (10, 0.7, first)  # with its own digits
    assert sweep_results.read_score(folder, "f1") == (10, 0.9, first)
    with pytest.raises(file_io.InputError, match="no recall .*: eval_accuracy, f1"):
        sweep_results.read_score(folder, "recall")
    assert sweep_results.read_curve(folder, "f1") == {10: 0.9}
    assert sweep_results.read_score(_run(tmp_path / "last", None, _20=second), "f1")[:2] == (
        20,
        None,
    )
    assert sweep_results.read_score(str(tmp_path), "f1") == (None, None, {})


def test_a_run_over_seeds_scores_their_mean(tmp_path):
    content = {"metric": "f1", "mean": 0.5, "deviation": 0.1, "runs": []}
    run_folders.write_json(tmp_path / "seeds.json", content)
    assert sweep_results.read_score(str(tmp_path), None) == (
        None,
        0.5,
        {"f1": 0.5, "deviation": 0.1},
    )
    with pytest.raises(file_io.InputError, match="has the mean of f1, not of recall"):
        sweep_results.read_score(str(tmp_path), "recall")


def _trials(*values):
    states = [DONE if isinstance(v, float) or v is None else v for v in values]
    values = [v if isinstance(v, float) else None for v in values]
    return [
        Trial(
            i,
            f"trial_{i:04d}",
            [],
            {"a": f"x|{i}"},
            state=state,
            value=value,
            error=["error: e\nf"],
        )
        if state == FAILED
        else Trial(i, f"trial_{i:04d}", [], {"a": f"x|{i}"}, state=state, value=value)
        for i, (state, value) in enumerate(zip(states, values, strict=True))
    ]


@pytest.mark.parametrize(("minimize", "best"), [(False, 2), (True, 1)])
def test_the_table_has_the_best_first_and_what_has_no_score_last(minimize, best):
    plan = sweep_plan.make_plan({"script": "x", "parameters": {"a": ["b"]}, "minimize": minimize})
    summary = sweep_results.summarize(plan.describe(), _trials(FAILED, 0.1, 0.9, None, INTERRUPTED))
    assert summary["best"] == best and summary["metric"] == sweep_results.SCORE
    lines = sweep_results.to_markdown(summary).splitlines()
    assert len({len(line) for line in lines}) == 1 and r"x\|" in lines[2]
    assert f"trial_000{best}" in lines[2] and f"trial_000{3 - best}" in lines[3]
    assert "failed: e f" in lines[4] and "done" in lines[5] and "interrupted" in lines[6]


def test_a_point_of_which_a_seed_is_missing_is_not_the_best():
    spec = {"script": "x", "parameters": {"a": [1, 2]}, "seeds": [1, 2]}
    trials = [
        Trial(i, f"t{i}", [], {"a": 1 + i // 2}, seed=1 + i % 2, state=DONE) for i in range(4)
    ]
    for trial, value in zip(trials, (0.9, 0.8, 0.5, 0.7), strict=True):
        trial.value, trial.metrics = value, {"f1": value, "other": 0.0}
    plan = sweep_plan.make_plan(spec).describe()
    assert sweep_results.summarize(plan, trials)["best"] == 0
    trials[1].state = FAILED
    summary = sweep_results.summarize(plan, trials)
    assert summary["best"] == 1 and summary["metric"] == "f1"
    assert summary["points"][1]["deviation"] == pytest.approx(0.1414, abs=1e-4)
    assert sweep_results.rows(summary)[1][1][:6] == [
        "t0 to 1",
        "1",
        "0.9000",
        "-",
        "1 of 2",
        "failed",
    ]


# --- what has not learned ------------------------------------------------------------------------


def _summary(trials, **spec):
    rates = list(dict.fromkeys(trial.parameters["rate"] for trial in trials))
    fields = {"script": "x", "parameters": {"rate": rates}, "metric": "eval_accuracy", **spec}
    return sweep_results.summarize(sweep_plan.make_plan(fields).describe(), trials)


def _states(summary):
    """{first cell of a row: its last one}, in the order of the table."""
    return {row[0]: row[-1] for row in sweep_results.rows(summary)[1]}


def _trial(number, rate, value, **fields):
    fields = {"baseline": 0.53, "evaluated": 5, "step": 40, **fields}
    metrics = {"eval_accuracy": value}
    name = f"trial_{number:04d}"
    return Trial(
        number, name, [], {"rate": rate}, state=DONE, value=value, metrics=metrics, **fields
    )


def test_runs_that_are_stuck_do_not_win():
    trials = [_trial(i, 0.3, 0.53, seed=i, verdict=stuck_runs.STUCK) for i in range(4)]
    summary = _summary(trials, seeds=[0, 1, 2, 3])
    assert summary["best"] is None
    remark = "no better than a constant answer (0.5300)"
    assert _states(summary) == {"trial_0000 to 3": f"done; 4 of 4 stuck; {remark}"}
    trials += [_trial(4 + i, 1e-4, 0.54, seed=i) for i in range(4)]
    trials += [_trial(8 + i, 1e-3, (0.9, 0.8, 0.53, 0.7)[i], seed=i) for i in range(4)]
    trials[10].verdict = stuck_runs.STUCK
    summary = _summary(trials, seeds=[0, 1, 2, 3])
    assert summary["best"] == 1
    assert list(_states(summary).values())[:2] == ["done", "done; 1 of 4 stuck"]
    assert summary["points"][2]["mean"] == pytest.approx(0.8)  # of those that have learned
    header, rows = sweep_results.rows(summary)
    assert header[2] == "eval_accuracy (dev, best of 5 checkpoints)"
    assert rows[1][4] == "4 of 4"


def test_a_study_of_which_seeds_failed_does_not_win(tmp_path):
    run = {"folder": "x", "restarts": 0, "step": 5}
    runs = [{**run, "seed": seed, "status": "failed", "result": None} for seed in (1, 2)]
    runs.append({**run, "seed": 3, "status": "finished", "result": 0.75})
    run_folders.write_json(tmp_path / "seeds.json", seed_runs.summarize("eval_accuracy", runs))
    step, value, metrics = sweep_results.read_score(str(tmp_path), None)
    trials = [_trial(0, 0.1, value, step=step), _trial(1, 0.2, 0.625, step=None)]
    trials[0].metrics = metrics
    summary = _summary(trials)
    assert value == 0.75 and summary["best"] == 1
    remark = "2 of its seeds failed, learned nothing or have no score"
    assert _states(summary) == {"trial_0001": "done", "trial_0000": f"done; {remark}"}


def test_the_majority_and_the_untrained_model_do_not_win():
    trials = [
        _trial(0, 0.1, 0.53),
        _trial(1, 0.2, 0.6, step=0, verdict=stuck_runs.UNTRAINED),
        _trial(2, 0.3, 0.55, verdict=stuck_runs.NOT_JUDGED),
        _trial(3, 0.4, 0.54, baseline=None),
    ]
    summary = _summary(trials)
    assert summary["best"] == 2
    assert _states(summary) == {
        "trial_0002": "done; not judged",
        "trial_0003": "done",
        "trial_0001": "done; best at step 0",
        "trial_0000": "done; no better than a constant answer (0.5300)",
    }
    assert _summary([_trial(0, 0.1, 0.53), _trial(1, 0.2, 0.5)])["best"] is None
    trials = [_trial(0, 0.1, 0.7, baseline=0.69), _trial(1, 0.2, 0.65, baseline=0.69)]
    summary = _summary(trials, metric="eval_loss")
    assert summary["best"] == 1 and "no better" in _states(summary)["trial_0000"]


def test_scores_on_test_data_stand_beside_those_of_the_dev_data():
    trials = [_trial(i, 0.1 + i, 0.8, test={"eval_accuracy": 0.7 + i / 10}) for i in range(2)]
    trials.append(_trial(2, 3, 0.6, evaluated=3))
    summary = _summary(trials)
    header, rows = sweep_results.rows(summary)
    dev = "eval_accuracy (dev, best of 3 to 5 checkpoints)"
    assert header == ["trial", "rate", dev, "eval_accuracy (test)", "state"]
    assert [row[2:4] for row in rows] == [
        ["0.8000", "0.7000"],
        ["0.8000", "0.8000"],
        ["0.6000", "-"],
    ]
    lines = sweep_results.to_csv(summary).splitlines()
    assert "verdict,baseline,evaluated" in lines[0] and lines[0].endswith(
        "test_eval_accuracy,error"
    )
    assert lines[1].endswith("0.7,")


def test_what_a_folder_says_of_learning(tmp_path):
    folder = run_folders.make_run(tmp_path / "run")
    judged = {"told": {"step": 5}, "judgements": [{"step": 5}], "signs": {}}
    run_folders.write_json(folder / "stuck.json", judged)
    found = sweep_results.read_learning(str(folder), None, 5)
    assert found["verdict"] == stuck_runs.STUCK and found["evaluated"] is None
    run_folders.make_run(tmp_path / "tested", baseline=0.5, test=0.625)
    found = sweep_results.read_learning(str(tmp_path / "tested"), "eval_accuracy", 10)
    test = {"eval_accuracy": 0.625}
    assert found == {"verdict": "", "evaluated": 2, "baseline": 0.5, "test": test}
    run = {"seed": 1, "folder": "x", "restarts": 0, "result": 0.5, "step": 5, "evaluated": 3}
    runs = [{**run, "status": "finished", "baseline": 0.0}, {**run, "status": "stuck"}]
    summary = {"metric": "f1", "mean": 0.5, "deviation": None, "test_mean": 0.25, "failures": 1}
    run_folders.write_json(tmp_path / "seeds.json", {**summary, "runs": runs})
    found = sweep_results.read_learning(str(tmp_path), None, None)
    assert found == {"verdict": "stuck", "evaluated": 3, "baseline": 0.0, "test": {"f1": 0.25}}
    assert sweep_results.read_score(str(tmp_path), None)[2]["failures"] == 1


def test_the_curve_is_of_the_score_that_picks_the_best(tmp_path):
    first, second = {"f1": 0.5, "eval_loss": 0.1}, {"f1": 0.75, "eval_loss": 0.2}
    folder = _run(tmp_path / "run", (20, 0.75), _10=first, _20=second)
    assert sweep_results.read_curve(folder, None) == {10: 0.5, 20: 0.75}
    assert sweep_results.read_curve(_run(tmp_path / "new", None, _10=first), None) == {}
    recorded = run_folders.make_run(tmp_path / "recorded", metric="eval_loss")
    _run(recorded, (20, 0.75), _10=first, _20=second)
    assert sweep_results.read_curve(str(recorded), None) == {10: 0.1, 20: 0.2}
