"""Sweeps with trials that take no time: tables, failures, kills at any moment, changed settings."""

import contextlib
import dataclasses
import json
import os
import random
import re
import signal
import subprocess
import sys
import time

import pytest

from albert import report, run_sweep
from albert.experiments import comparison, comparison_sides, sweep_plan
from albert.io import file_io, signals
from tests.support import command_lines, forked, processes, run_folders
from tests.support.processes import killed_at_the_end, wait_until
from tests.support.sources import ROOT

GRID = "--grid=rate=0.1,0.3,0.5;batch=16,32"


def _command(folder, *arguments):
    words = [sys.executable, "-m", "albert.run_sweep", "--script=tests.support.fake_trial"]
    return [*words, f"--output_dir={folder}", *arguments]


def _sweep(folder, *arguments):
    return processes.run(_command(folder, *arguments), cwd=ROOT)


def _files(folder):
    """Journal and table of a sweep; what names its folder is made the same."""
    names = ("sweep.json", *(f"sweep_results.{form}" for form in ("md", "csv", "json")))
    return {name: (folder / name).read_text().replace(str(folder), "") for name in names}


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """A sweep of six trials, of which two fail."""
    folder = tmp_path_factory.mktemp("unbroken")
    result = _sweep(folder, GRID, "--script_flags=--fail_at=0.5")
    return folder, result


def test_the_table_names_the_best_and_what_failed(unbroken):
    folder, result = unbroken
    assert result.returncode == 1
    assert "error: 2 of 6 trials failed: trial_0004, trial_0005" in result.stderr
    table = (folder / "sweep_results.md").read_text()
    assert table in result.stdout
    table, _, notes = table.partition("\n\n")
    assert "2 of 6 trials failed: they have no score, and their points" in notes
    assert "One seed for each point: differences may be those of seeds" in notes
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    assert rows[0] == ["trial", "rate", "batch", "eval_score", "state"]
    assert rows[2] == ["trial_0002", "0.3", "16", "0.9970", "done"]
    assert rows[-1] == ["trial_0005", "0.5", "32", "-", "failed: --rate=0.5 does not learn"]
    lines = (folder / "sweep_results.csv").read_text().splitlines()
    header = "number,name,seed,state,step,value,verdict,baseline,evaluated,rate,batch"
    assert lines[0] == f"{header},result_eval_score,error"
    assert lines[1].startswith("0,trial_0000,,done,3,0.797") and len(lines) == 7
    summary = json.loads((folder / "sweep_results.json").read_text())
    assert summary["best"] == 2 and summary["metric"] == "eval_score"
    assert summary["trials"][4]["error"] == ["error: --rate=0.5 does not learn"]
    assert "some lines before" in (folder / "logs" / "trial_0004.log").read_text()


@pytest.mark.slow(2)
def test_what_is_done_is_not_run_again_and_failures_only_if_asked(unbroken):
    folder, _ = unbroken
    before = _files(folder)
    result = _sweep(folder, GRID, "--script_flags=--fail_at=0.5")
    assert "trial_0000: " not in result.stdout and _files(folder) == before
    result = _sweep(folder, GRID, "--script_flags=--fail_at=0.5", "--retry_failed")
    assert "trial_0004: rate=0.5 batch=16; log: " in result.stdout
    assert "trial_0003: " not in result.stdout and _files(folder) == before


@pytest.mark.slow
def test_another_sweep_in_the_same_folder_is_refused(unbroken):
    folder, _ = unbroken
    before = _files(folder)
    cases = [
        (["--grid=rate=0.1,0.3"], r"parameters \{'batch': \[16, 32\], 'rate': \[0.1, 0.3, 0.5\]\}"),
        (["--grid=batch=16,32;rate=0.1,0.3,0.5", "--script_flags=--fail_at=0.5"], "with order"),
        ([GRID, "--script_flags=--fail_at=0.4"], "settings {'fail_at': '0.5'}, now"),
        ([GRID, "--script_flags=--fail_at=0.5", "--seeds=1,2"], r"seeds \[\], now \[1, 2\]"),
    ]
    for arguments, message in cases:
        result = _sweep(folder, *arguments)
        assert result.returncode == 1 and "was started with" in result.stderr, message
        assert "Traceback" not in result.stderr
    assert _files(folder) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--grid=ratee=0.1"], "tests.support.fake_trial: Unknown command line flag 'ratee'"),
        (["--grid=rate=0.1,high"], "flag --rate=high: could not convert"),
        (["--grid=rate=1;batch=1,2.5"], "flag --batch=2.5: invalid literal"),
        (["--grid=rate=0.1", "--script_flags=--stepz=3"], "Unknown command line flag 'stepz'"),
        (["--grid=rate=0.1", "--script_flags=--rate=0.2"], "parameter 'rate' also stands among"),
        (["--grid=rate=0.1", "--script_flags=--output_dir=x"], "is a folder in that of the sweep"),
        (
            ["--grid=rate=0.1", "--script_flags=--steps='3"],
            "not a command line: No closing quotation",
        ),
        (["--grid=rate=0.1", "--script=run_clasifier"], "there is no script albert.run_clasifier"),
        (["--grid=rate=0.1", "--script=command_line"], "there is no script albert.command_line"),
        (["--spec=setup.py"], "setup.py is not valid JSON: .* .line 1, column"),
        (["--trials=--rate=0.1"], "expected lines 'name: flags'"),
        (["--trials=a: --ratee=1"], "Unknown command line flag 'ratee'"),
        ([GRID, "--baseline=rate=0.3"], "baseline: several points of the sweep: 'rate=0.3'; exp"),
        ([GRID, "--baseline=rate=0.4;batch=16"], "baseline: no point of the sweep"),
        (
            ["--grid=rate=0.1,0.2", "--method=random", "--num_trials=2", "--baseline=rate=0.1"],
            "such as trial_0000, as --method=random",
        ),
        ([GRID, "--seeds=1,²"], "seeds: expected whole numbers, found '²'"),
        ([GRID, "--seeds=-1,2", "--script=run_classifier"], r"--seed=-1: -1 is not .* \[0, "),
        ([GRID, "--plan"], "spread of the score over seeds is not known: name .* --plan_from"),
        ([GRID, "--plan", "--plan_from=setup.py"], "no folder matches 'setup.py'"),
        ([GRID, "--plan", "--detect=x", "--assumed_deviation=1"], "--detect=x: expected numbers"),
        ([GRID, "--assumed_deviation=1"], "--assumed_deviation: only for --plan"),
        ([GRID, "--plan", "--assumed_deviation=0"], "--assumed_deviation=0 must be above 0"),
    ],
)
def test_mistakes_are_refused_before_any_trial(arguments, message, tmp_path):
    flags = {"output_dir": tmp_path / "out", "script": "tests.support.fake_trial"}
    with pytest.raises(file_io.InputError, match=message):
        command_lines.run(run_sweep, *arguments, **flags)
    assert not (tmp_path / "out").exists()


def test_every_value_is_checked_once_and_the_parameters_are_no_settings():
    spec = {
        "script": "tests.support.fake_trial",
        "flags": {"steps": 3},
        "parameters": {"rate": [0.1, 0.2], "batch": [16, 32, 64]},
    }
    assert run_sweep.check_trials(sweep_plan.make_plan(spec)) == {"steps": "3"}
    spec["parameters"]["batch"].append("many")
    with pytest.raises(file_io.InputError, match="flag --batch=many"):
        run_sweep.check_trials(sweep_plan.make_plan(spec))
    spec["parameters"] = {"batch": {"low": 1.5, "high": 2.5}}
    with pytest.raises(file_io.InputError, match="flag --batch=1.5"):
        run_sweep.check_trials(sweep_plan.make_plan({**spec, "method": "random", "num_trials": 1}))


@pytest.mark.parametrize(
    ("arguments", "spec", "message"),
    [
        (["--rate=0.3"], {}, "parameter 'rate' also stands .*: '--rate=0.3'; remove it from"),
        (["-rate", "0.3"], {}, "parameter 'rate' also stands"),
        (["--seed=3"], {"seeds": [1, 2]}, "seeds: the flag 'seed' also stands"),
        ([], {"flags": {"rate": 0.3}}, "parameter 'rate' also stands"),
    ],
)
def test_a_parameter_is_given_once(arguments, spec, message):
    spec = {"script": "tests.support.fake_trial", "parameters": {"rate": [0.1]}, **spec}
    with pytest.raises(file_io.InputError, match=message):
        run_sweep.check_trials(sweep_plan.make_plan(spec, arguments))


def test_parameters_win_over_a_flag_file(tmp_path):
    (tmp_path / "recipe.flags").write_text("--rate=0.5\n--steps=2\n--seed=7\n")
    spec = {"script": "tests.support.fake_trial", "parameters": {"rate": [0.1]}, "seeds": [1]}
    plan = sweep_plan.make_plan(spec, [f"--flagfile={tmp_path}/recipe.flags"])
    assert run_sweep.check_trials(plan)["steps"] == "2"


@pytest.mark.slow
def test_a_specification_file_seeds_and_more_trials_later(tmp_path):
    spec = {
        "script": "tests.support.fake_trial",
        "flags": {"steps": 2},
        "parameters": {"rate": {"low": 0.1, "high": 0.9}, "batch": [16, 32]},
        "method": "random",
        "num_trials": 2,
        "seeds": [1, 3],
        "metric": "eval_score",
    }
    path, out = tmp_path / "sweep.json", tmp_path / "out"
    path.write_text(json.dumps(spec))
    for count in (2, 4):
        result = _sweep(out, f"--spec={path}", f"--num_trials={count}", "--parallel=2")
        assert result.returncode == 0, result.stderr
        summary = json.loads((out / "sweep_results.json").read_text())
        assert [trial["seed"] for trial in summary["trials"]] == [1, 3] * (count // 2)
    first, second = summary["points"]
    values = [trial["value"] for trial in summary["trials"]]
    assert first["mean"] == pytest.approx((values[0] + values[1]) / 2)
    assert first["deviation"] == pytest.approx(abs(values[0] - values[1]) / 2**0.5)
    assert first["trials"] == [0, 1] and second["trials"] == [2, 3]
    assert first["parameters"] != second["parameters"]
    assert summary["trials"][0]["parameters"] == summary["trials"][1]["parameters"]
    assert "2 of 2" in (out / "sweep_results.md").read_text()


@pytest.mark.slow
def test_a_sweep_grows_by_values_and_seeds(tmp_path):
    def names(*arguments):
        result = _sweep(tmp_path, *arguments, "--parallel=2")
        assert result.returncode == 0, result.stderr
        summary = json.loads((tmp_path / "sweep_results.json").read_text())
        run = re.findall(r"^(trial_\d+): .*log: ", result.stdout, re.M)
        points = {
            (p["parameters"]["rate"], p["parameters"]["batch"]): p["trials"]
            for p in summary["points"]
        }
        return sorted(run), points

    first, points = names("--grid=rate=0.1,0.3;batch=16", "--seeds=1")
    assert first == ["trial_0000", "trial_0001"] and points == {(0.1, 16): [0], (0.3, 16): [1]}
    again, points = names("--grid=rate=0.2,0.1,0.3;batch=8,16", "--seeds=2,1")
    assert again == [f"trial_{number:04d}" for number in range(2, 12)]
    assert points[0.1, 16] == [0, 2] and points[0.3, 16] == [1, 3] and len(points) == 6
    assert all(len(trials) == 2 for trials in points.values())
    table = (tmp_path / "sweep_results.md").read_text()
    assert "trial_0001, 3 " in table and "2 of 2" in table
    result = _sweep(tmp_path, "--grid=rate=0.1,0.3;batch=16", "--seeds=1")
    assert "give the same or more" in result.stderr


@pytest.mark.slow
def test_what_is_stuck_does_not_win(tmp_path):
    result = _sweep(tmp_path, "--grid=rate=0.3,0.2", "--script_flags=--stuck_at=0.3")
    assert result.returncode == 0, result.stderr
    lines = (tmp_path / "sweep_results.md").read_text().splitlines()
    assert "trial_0001" in lines[2] and lines[2].endswith("done        |")
    assert "trial_0000" in lines[3] and lines[3].endswith("done; stuck |")
    assert "trial_0000: done, score 0.9970 at step 3; stuck" in result.stdout
    result = _sweep(tmp_path / "all", "--grid=rate=0.3", "--script_flags=--stuck_at=0.3")
    assert json.loads((tmp_path / "all" / "sweep_results.json").read_text())["best"] is None
    assert "No trial wins" in result.stdout


@pytest.mark.slow
def test_a_sweep_is_pruned_by_the_score_that_picks_the_best(tmp_path):
    pytest.importorskip("optuna")
    rates = ",".join(str(rate / 100) for rate in (30, 31, 32, 33, 34, 90))
    flags = "--script_flags=--seconds=0.3"
    result = _sweep(tmp_path, f"--grid=rate={rates}", "--prune", flags)
    assert result.returncode == 0, result.stderr
    summary = json.loads((tmp_path / "sweep_results.json").read_text())
    assert [trial["state"] for trial in summary["trials"]] == [*["done"] * 5, "pruned"]


@pytest.mark.slow
@pytest.mark.parametrize(("flag", "status"), [("die_at", -9), ("end_at", signals.STATUS)])
def test_a_trial_that_is_ended_from_outside_is_tried_again_and_then_given_up(
    flag, status, tmp_path
):
    result = _sweep(tmp_path, "--grid=rate=0.3,0.4", f"--script_flags=--{flag}=0.3")
    assert result.stdout.count("killed from outside; it resumes") == 2
    summary = json.loads((tmp_path / "sweep_results.json").read_text())
    assert [trial["state"] for trial in summary["trials"]] == ["failed", "done"]
    assert f"killed from outside 3 times (status {status})" in summary["trials"][0]["error"][0]


def test_named_trials_are_ranked_by_the_metric_that_picks_their_checkpoints(caplog):
    def find(*own, metric=None):
        trials = {name: list(flags) for name, flags in zip("ab", own, strict=True)}
        plan = sweep_plan.Plan("run_classifier", ("--task_name=RTE",), trials=trials, metric=metric)
        return plan.scored_by(run_sweep.find_metric(plan, {}))

    by_loss = ["--metric_for_best=eval_loss"]
    assert find(by_loss, [*by_loss, "--seed=1"]).minimize
    assert find([], []).metric is None
    assert find(by_loss, []).metric is None
    assert "differ in metric_for_best (eval_loss, their task's)" in caplog.text
    assert not find(by_loss, [], metric="f1").minimize


def test_seeds_are_drawn_by_the_sweep_or_by_its_trials():
    arguments = ("--task_name=RTE", "--num_seeds=2")
    plan = sweep_plan.Plan("run_classifier", arguments, trials={"a": []}, seeds=(1, 2))
    with pytest.raises(file_io.InputError, match="num_seeds=2 .*seeds or num_seeds, not both"):
        run_sweep.check_trials(plan)
    one = ("--task_name=RTE", "--num_seeds=1")
    run_sweep.check_trials(dataclasses.replace(plan, arguments=one))


@pytest.mark.slow
def test_a_metric_that_is_not_there_is_named(tmp_path):
    _sweep(tmp_path, "--grid=rate=0.3", "--metric=f1")
    table = (tmp_path / "sweep_results.md").read_text()
    assert "failed: there is no f1 among the results of" in table and "eval_score" in table


@pytest.mark.slow
def test_trials_by_name_run_again_when_their_flags_change(tmp_path):
    assert _sweep(tmp_path, "--trials=a: --rate=0.3\nb: --rate=0.2").returncode == 0
    changed = "c: --steps=1\na: --rate=0.3\nb: --rate=0.2 --steps=4"
    result = _sweep(tmp_path, f"--trials={changed}")
    assert result.returncode == 0, result.stderr
    assert "\na: " not in result.stdout and "c: log: " in result.stdout
    summary = json.loads((tmp_path / "sweep_results.json").read_text())
    assert [(t["name"], t["step"]) for t in summary["trials"]] == [("c", 1), ("a", 3), ("b", 4)]


# --- killed -------------------------------------------------------------------------------------


def _children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(word) for word in file.read().split()]


def _kill_a_few_times(command, note, kills, seed):
    """Runs a command until it ends by itself, killing it and its trials several times before.

    Each time a trial has just taken a step, which `note` tells, so that each start comes further.
    """
    source = random.Random(seed)

    def size():
        return note.stat().st_size if note.exists() else 0

    while True:
        before = size()
        process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        with killed_at_the_end([process]):
            while process.poll() is None and (not kills or size() == before):
                time.sleep(0.005)
            time.sleep(source.uniform(0, 0.15))
            if process.poll() is not None:
                assert not kills, "it has ended before it was killed as often as it was to be"
                return
            victims = [process.pid, *_children(process.pid)]
            for pid in victims if kills % 2 else reversed(victims):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            kills -= 1


def _check_notes(path):
    """No process of a trial wrote after the trial's next one had begun."""
    last = {}
    for line in path.read_text().splitlines():
        trial, _, pid = line.split()
        pids = last.setdefault(trial, [])
        if not pids or pids[-1] != pid:
            assert pid not in pids, f"{trial}: {pid} ran at the same time as {pids[-1]}"
            pids.append(pid)
    return sum(len(pids) for pids in last.values())


@pytest.mark.slow
def test_a_killed_sweep_ends_with_the_table_of_an_unbroken_one(unbroken, tmp_path):
    note = tmp_path / "note"
    flags = f"--script_flags=--fail_at=0.5 --seconds=0.1 --note={note}"
    _kill_a_few_times(_command(tmp_path / "out", GRID, flags, "--parallel=2"), note, 4, seed=1)
    assert _check_notes(note) > 6  # some trials had more than one process
    whole, broken = _files(unbroken[0]), _files(tmp_path / "out")
    for name in ("sweep_results.md", "sweep_results.csv", "sweep_results.json"):
        assert broken[name] == whole[name]


@pytest.mark.slow
def test_a_killed_search_makes_the_suggestions_of_an_unbroken_one(tmp_path):
    pytest.importorskip("optuna")
    spec = {
        "script": "tests.support.fake_trial",
        "flags": {"seconds": 0.1, "note": f"{tmp_path}/note"},
        "parameters": {"rate": {"low": 0.01, "high": 1.0, "log": True}, "batch": [16, 32, 64]},
        "method": "tpe",
        "num_trials": 10,
        "metric": "eval_score",
        "prune": True,
    }
    (tmp_path / "spec").write_text(json.dumps(spec))
    outs = [tmp_path / "whole", tmp_path / "broken"]
    commands = [_command(out, f"--spec={tmp_path}/spec", "--parallel=2") for out in outs]
    _kill_a_few_times(commands[0], tmp_path / "note", 0, seed=1)
    _kill_a_few_times(commands[1], tmp_path / "note", 2, seed=2)
    assert _files(outs[0]) == _files(outs[1])
    summary = json.loads((outs[0] / "sweep_results.json").read_text())
    pruned = [trial for trial in summary["trials"] if trial["state"] == "pruned"]
    assert pruned and all(trial["step"] == 1 for trial in pruned)
    left = {path.name for trial in pruned for path in (outs[0] / trial["name"]).iterdir()}
    assert left == {"best_trial.txt", "eval_results.txt"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "status", "message"),
    [
        (signal.SIGINT, 130, "interrupted"),
        (signal.SIGTERM, 75, "ended by SIGTERM"),
    ],
)
def test_signals_end_the_trials_and_the_next_start_goes_on(tmp_path, kind, status, message):
    note = tmp_path / "note"
    flags = f"--script_flags=--seconds=0.1 --steps=30 --note={note}"
    command = _command(tmp_path / "out", "--grid=rate=0.3", flags)
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    with killed_at_the_end([process]):
        wait_until(lambda: note.exists() and note.read_text(), process)
        second = processes.run(command, cwd=ROOT)
        assert f"another process ({process.pid}) runs the sweep" in second.stderr
        os.killpg(process.pid, kind)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == status and f"{message}; the same command resumes" in errors
    assert json.loads((tmp_path / "out" / "sweep.json").read_text())["trials"][0]["state"] == (
        "interrupted"
    )
    before = note.read_text()
    assert subprocess.run(command, cwd=ROOT, capture_output=True).returncode == 0
    assert note.read_text().startswith(before) and _check_notes(note) == 2
    assert json.loads((tmp_path / "out" / "sweep_results.json").read_text())["best"] == 0


@pytest.mark.slow
def test_equal_points_are_not_distinguishable_from_the_baseline(tmp_path):
    # Both rates are as far from the best one.
    arguments = ["--grid=rate=0.2,0.4,0.3", "--seeds=1,2,3,4", "--baseline=rate=0.4"]
    arguments += ["--parallel=4"]
    result = _sweep(tmp_path, *arguments)
    assert result.returncode == 0, result.stderr
    rows = {
        cells[1]: cells
        for line in result.stdout.splitlines()
        if line.startswith("|")
        for cells in [[cell.strip() for cell in line.split("|")[1:-1]]]
    }
    place = rows["rate"].index("verdict")
    assert rows["0.2"][place] == "not distinguishable" and rows["0.4"][place] == "baseline"
    summary = json.loads((tmp_path / "sweep_results.json").read_text())
    assert summary["comparison"]["reference"] == 1
    before = _files(tmp_path)
    assert _sweep(tmp_path, *arguments).returncode == 0 and _files(tmp_path) == before
    assert "interval of 95%" in rows["rate"] and "restarts" not in result.stdout
    attempt = {"seed": 1, "step": 5, "share": 0.5, "message": "x", "folder": "attempt_1"}
    run_folders.write_json(tmp_path / "trial_0001" / "attempts.json", {"given_up": [attempt]})
    assert "1 restarts with other seeds after attempts" in _sweep(tmp_path, *arguments).stdout


def test_a_plan_starts_nothing(tmp_path, capsys):
    command_lines.run(
        run_sweep, GRID, "--plan", output_dir=tmp_path / "out", seeds="1,2,3",
        script="tests.support.fake_trial", assumed_deviation=0.02, detect="0.02,0.05",
        baseline="trial_0000",
    )  # fmt: skip
    text = capsys.readouterr().out
    assert "The plan has 18 runs: 6 points, 3 seeds each." in text
    assert re.search(r"\n\| 0.02 +\| 18 +\|", text) and "table of 5 comparisons" in text
    assert text.endswith("Nothing was started.\n") and not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_sweep_of_real_trials_and_its_report(tmp_path, golden):
    rows = [f"word {i} is {'good' if i % 2 else 'bad'}\t{i % 2}" for i in range(32)]
    (tmp_path / "data.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    given = {
        "task_name": "custom", "train_file": f"{tmp_path}/data.tsv", "train_step": 4,
        "validation_file": f"{tmp_path}/data.tsv", "test_file": f"{tmp_path}/data.tsv",
        "albert_hub_module_handle": str(golden / "hub_tf1"), "max_seq_length": 16,
        "save_checkpoints_steps": 2, "log_every_steps": 1, "do_train": True, "do_eval": True,
        "do_predict": True,
    }  # fmt: skip
    spec = {"script": "run_classifier", "flags": given, "parameters": {"train_batch_size": [8, 16]}}
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    out = tmp_path / "out"
    result = _sweep(
        out,
        f"--spec={tmp_path}/spec.json",
        "--script=run_classifier",
        "--parallel=2",
        f"--python={forked.python()}",
    )
    assert result.returncode == 0, result.stderr + result.stdout
    summary = json.loads((out / "sweep_results.json").read_text())
    assert summary["metric"] == "eval_accuracy"
    first = summary["trials"][0]
    assert {"eval_accuracy", "eval_loss", "f1"} <= set(first["metrics"])
    assert first["evaluated"] == 3 and first["baseline"] == 0.5
    # What is predicted is the dev data.
    assert first["test"] == pytest.approx(first["metrics"])
    table = (out / "sweep_results.md").read_text()
    assert "eval_accuracy (dev, best of 3 checkpoints)" in table and "(test)" in table
    assert re.search("not judged|no better than a constant", table)
    compared = comparison.compare(comparison_sides.read([str(out)]))
    assert [s.side.name for s in compared.sides] == ["train_batch_size=8", "train_batch_size=16"]
    examples = compared.pairs[0].examples
    assert examples.count == 32 and examples.metric == "eval_accuracy"
    scores = [trial["test"]["eval_accuracy"] for trial in summary["trials"]]
    assert examples.finding.comparison.difference == pytest.approx(scores[1] - scores[0])
    assert all(side.cost["steps"] == 4 for side in compared.sides)
    pytest.importorskip("matplotlib")
    page = report.make_page(report.Settings(runs=(str(out),)))
    assert ">trial_0001</a></td>" in page and 'aria-label="Training loss: ' in page
    page = report.make_page(report.Settings(runs=(str(out / "trial_0000"),)))
    assert (
        "Confusion matrix of 32 examples" in page and "<h3>Worst examples of data.tsv</h3>" in page
    )
