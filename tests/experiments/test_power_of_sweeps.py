"""How many seeds a sweep needs, and how long it takes, from finished runs."""

import math

import numpy as np
import pytest

from albert.experiments import power, sweep_plan
from albert.io import file_io
from albert.training import run_record
from tests.support import compared_runs

SPEC = {"script": "run_classifier", "parameters": {"learning_rate": [1, 2, 3]}, "seeds": [1, 2]}
A = {1: 0.70, 2: 0.72, 3: 0.71}
B = {1: 0.80, 2: 0.81, 3: 0.82}


def take_seconds(folder, seconds):
    def change(record):
        for session in record["sessions"]:
            session["started"] = "2026-01-01T00:00:00+00:00"
            session["ended"] = f"2026-01-01T00:{seconds // 60:02d}:{seconds % 60:02d}+00:00"

    for path in folder.glob("seed_*"):
        run_record.update(str(path), change)
    return str(folder)


def test_spread_and_time_come_from_finished_runs(tmp_path):
    a = take_seconds(compared_runs.make_seeds(tmp_path / "a", A), 60)
    b = take_seconds(compared_runs.make_seeds(tmp_path / "b", B), 120)
    runs = power.read_runs([a, b], None)
    assert runs.metric == "eval_accuracy" and runs.seconds == (60.0,) * 3 + (120.0,) * 3
    spread = power.measure_spread(runs)
    deviation = math.sqrt((np.var([*A.values()], ddof=1) + np.var([*B.values()], ddof=1)) / 2)
    assert spread.deviation == pytest.approx(deviation)
    gaps = [B[seed] - A[seed] for seed in A]
    assert spread.of_differences == pytest.approx(np.std(gaps, ddof=1))
    assert spread.low < deviation < spread.high

    plan = sweep_plan.make_plan(SPEC)
    text = power.describe(plan, spread, runs, [0.02])
    one = power.needed(spread.of_differences, 0.02)
    whole = power.needed(spread.of_differences, 0.02, level=1 - 0.05 / 3)
    row = next(line for line in text.splitlines() if line.startswith("| 0.02"))
    assert [cell.strip() for cell in row.split("|")[1:-1]] == [
        "0.02", str(one), str(whole), str(3 * whole), power.time_text(3 * whole * 90),
    ]  # fmt: skip
    assert "The plan has 6 runs: 3 points, 2 seeds each." in text
    assert "A run takes 90 seconds (mean of 6 finished runs): the plan takes 9.0 minutes" in text
    assert text.endswith("Nothing was started.\n")


def test_other_seeds_give_the_spread_of_unrelated_runs(tmp_path):
    a = compared_runs.make_seeds(tmp_path / "a", A)
    b = compared_runs.make_seeds(tmp_path / "b", {seed + 5: score for seed, score in B.items()})
    spread = power.measure_spread(power.read_runs([str(a), str(b)], None))
    assert spread.of_differences == pytest.approx(math.sqrt(2) * spread.deviation)


def test_an_assumed_deviation_needs_no_runs():
    plan = sweep_plan.make_plan({**SPEC, "seeds": [1, 2, 3, 4, 5]})
    text = power.describe(plan, power.assume_spread(0.01), None)
    visible = power.visible(0.01 * math.sqrt(2), 5)
    assert f"With the planned 5 seeds a difference is found from {visible:.3g} on in one" in text
    assert "How long runs take here is not known" in text and "0.01 (assumed)" in text
    # With a baseline there are two comparisons instead of three.
    again = power.describe(plan, power.assume_spread(0.01), None, with_baseline=True)
    assert "whole table of 2 comparisons" in again and "whole table of 3 comparisons" in text


def test_parallel_runs_take_less_time_and_failures_are_told(tmp_path):
    lost = {3: "failed"}
    a = take_seconds(compared_runs.make_seeds(tmp_path / "a", A, lost=lost), 600)
    runs = power.read_runs([a], None)
    text = power.describe(sweep_plan.make_plan(SPEC), power.measure_spread(runs), runs, parallel=4)
    assert "takes 20.0 minutes, 4 at the same time" in text  # six runs in two rounds
    assert "1 of 3 finished runs failed, were pruned or did not learn" in text


def test_a_difference_that_nobody_can_show(tmp_path):
    text = power.describe(sweep_plan.make_plan(SPEC), power.assume_spread(1.0), None, [1e-4])
    assert "| 0.0001 " in text and "above 10000" in text


def runs_of(folder):
    return power.read_runs([str(folder)], None)


def test_runs_that_tell_no_spread_are_refused(tmp_path):
    one = compared_runs.make_run(tmp_path / "one", 0.8)
    runs = power.read_runs([str(one)], None)
    with pytest.raises(file_io.InputError, match="two finished runs .* assumed_deviation"):
        power.measure_spread(runs)
    same = compared_runs.make_seeds(tmp_path / "same", dict.fromkeys((1, 2), 0.5))
    runs = power.read_runs([str(same)], None)
    with pytest.raises(file_io.InputError, match="are equal, .* give assumed_deviation"):
        power.measure_spread(runs)
    with pytest.raises(file_io.InputError, match="have no score 'f1'; they have eval_accuracy"):
        power.read_runs([str(same)], "f1")
    other = compared_runs.make_run(tmp_path / "other", 0.8, script="run_race", task="race")
    with pytest.raises(file_io.InputError, match="same is run_classifier .*other is run_race"):
        power.read_runs([str(same), str(other)], None)
    with pytest.raises(file_io.InputError, match="is run_classifier of .*, but the sweep is run_r"):
        power.check_task(runs_of(same), "albert.run_race", None)
    task = runs_of(same).sides[0].task[1]
    power.check_task(runs_of(same), "run_classifier", task.upper())
    with pytest.raises(file_io.InputError, match="but the sweep is run_classifier of the task RTE"):
        power.check_task(runs_of(same), "run_classifier", "RTE")
    assert power.read_runs([], None) is None
    assert power.find_finished(str(tmp_path)) == []
