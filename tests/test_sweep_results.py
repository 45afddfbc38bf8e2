"""Scores of trials from the files of their folders, and the table of a sweep."""

import math

import pytest

from albert import file_io, results, sweep_plan, sweep_results
from albert.sweep_journal import DONE, FAILED, INTERRUPTED, Trial
from tests import run_folders


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
    with pytest.raises(
        file_io.InputError, match="no recall among the results .*: eval_accuracy, f1"
    ):
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
