"""The table of a sweep over GLUE tasks with several seeds."""

import json
import math
import pathlib
import sys

import pytest
import scipy.stats

from albert import glue_report
from albert.experiments import glue_table, sweep_journal, sweep_plan
from albert.io import file_io
from albert.training import results
from tests.support import command_lines, run_folders

SCORES = {1: 0.70, 2: 0.75, 3: 0.71}


def write_sweep(path, scores):
    """Writes a sweep over tasks: {task: {seed: score}}; a run without a score has failed."""
    spec = {"script": "run_classifier", "trials": {task: {} for task in scores}}
    plan = sweep_plan.make_plan({**spec, "seeds": [*next(iter(scores.values()))]})
    journal = sweep_journal.Journal(str(path), {**plan.describe(), "settings": {}})
    for task, runs in scores.items():
        for seed, score in runs.items():
            name, state = f"{task}/seed_{seed}", sweep_journal.DONE
            (path / name).mkdir(parents=True)
            if score is None:
                state = sweep_journal.FAILED
            else:
                results.write_trial(str(path / name), results.Trial(9, 9, score))
            journal.trials.append(
                sweep_journal.Trial(
                    len(journal.trials), name, [], seed=seed, state=state, value=score
                )
            )
    journal.write()
    return str(path)


@pytest.fixture
def folder(tmp_path):
    """A sweep of RTE with three seeds and a fourth that failed."""
    return write_sweep(tmp_path, {"RTE": {**SCORES, 4: None}})


def test_intervals_over_seeds_and_runs_without_a_score(folder):
    summary = glue_table.summarize(folder, ["RTE"])
    (row,) = summary["tasks"]
    values = [*SCORES.values()]
    low, high = scipy.stats.t.interval(0.95, 2, row["score"], scipy.stats.sem(values))
    assert row["interval"] == pytest.approx((low, high))
    table, _, notes = glue_table.to_markdown(summary).partition("\n\n")
    header, _, cells, _ = (
        [cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()
    )
    found = dict(zip(header, cells, strict=True))
    assert found["interval of 95%"] == f"{low:.4f} to {high:.4f}"
    assert found["score"] == "0.7200" and found["seeds"] == "3 of 4"
    assert notes.startswith("RTE: 1 of 4 runs have no score in the mean, as they failed, did not")
    json.dumps(summary)
    assert row["restarts"] == 0 and "restarts" not in notes


def test_the_case_of_a_task_does_not_matter(folder):
    assert glue_table.summarize(folder, ["rte"]) == glue_table.summarize(folder, ["RTE"])


def test_undefined_scores_are_no_numbers(tmp_path):
    """Correlations are undefined where all dev labels are equal."""
    folder = write_sweep(tmp_path, {"CoLA": {1: math.nan, 2: 0.5}, "RTE": {1: 0.7, 2: 0.7}})
    for seed, score in ((1, math.nan), (2, 0.5)):
        block = results.make_block({"matthew_corr": score}, 9)
        results.write_blocks(f"{folder}/CoLA/seed_{seed}", [block])
    summary = glue_table.summarize(folder, ["CoLA", "RTE"])
    cola = summary["tasks"][0]
    assert cola["score"] == cola["metrics"]["matthew_corr"] == 0.5
    assert summary["average"] == pytest.approx(0.6)
    json.dumps(summary, allow_nan=False)
    assert glue_table.read_metrics(f"{folder}/CoLA/seed_1", 9) == {"matthew_corr": None}


def test_restarts_are_told(folder):
    attempt = {"seed": 1, "step": 5, "share": 0.5, "message": "x", "folder": "attempt_1"}
    path = pathlib.Path(folder) / "RTE" / "seed_2" / "attempts.json"
    run_folders.write_json(path, {"given_up": [attempt]})
    text = glue_table.to_markdown(glue_table.summarize(folder, ["RTE"]))
    assert "RTE: 1 restarts with other seeds after attempts that did not learn" in text


def test_without_scipy_the_means_are_there(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy", None)
    text = glue_table.to_markdown(glue_table.summarize(folder, ["RTE"]))
    assert "0.7200" in text and "need SciPy: pip install 'scipy>=1.15'." in text


def test_two_sweeps_are_compared_over_tasks(tmp_path):
    ours = {"RTE": {1: 0.7, 2: 0.8, 3: 0.9}, "MRPC": {1: 0.5, 2: 0.6, 3: None}}
    theirs = {"RTE": {1: 0.75, 2: 0.65}, "MRPC": {1: 0.5, 2: 0.5}, "CoLA": {1: 0.1, 2: 0.1}}
    own = write_sweep(tmp_path / "own", ours)
    other = write_sweep(tmp_path / "other", theirs)
    summary = glue_table.summarize(own, ["RTE", "MRPC", "CoLA"], baseline=other)
    found = summary["probability_of_improvement"]
    # The first two runs of each task. RTE: 0.7 beats 0.65 and 0.8 beats both, 3 of 4 pairs; MRPC:
    # 2 of 4 pairs and 2 ties.
    assert found["estimate"] == pytest.approx((3 / 4 + (2 + 2 / 2) / 4) / 2)
    assert found["low"] < found["estimate"] < found["high"]
    assert found["tasks"] == ["RTE", "MRPC"] and found["n"] == 2
    assert summary["interquartile_mean"]["estimate"] == pytest.approx((0.6 + 0.7) / 2)
    text = glue_table.to_markdown(summary)
    assert "Mean of the middle half of all scores: 0.6500, interval of 95% " in text
    assert f"better than one of {other} on a task drawn at random: 0.7500, interval of 95% " in text
    assert "(RTE, MRPC; seeds: 2; " in text
    json.dumps(summary)


def test_a_baseline_of_other_data_is_refused(tmp_path):
    folders = [tmp_path / name for name in ("own", "other")]
    for number, folder in enumerate(folders):
        write_sweep(folder, {"RTE": {1: 0.7, 2: 0.8}})
        data = tmp_path / f"dev{number}.tsv"
        data.write_text(str(number))
        for seed in (1, 2):
            run = run_folders.make_run(folder / "RTE" / f"made_{seed}", data=data)
            run.joinpath("run.json").rename(folder / "RTE" / f"seed_{seed}" / "run.json")
    with pytest.raises(file_io.InputError, match="cannot be compared: data .*dev0.tsv .*dev1.tsv"):
        glue_table.summarize(str(folders[0]), ["RTE"], baseline=str(folders[1]))
    assert glue_table.summarize(str(folders[0]), ["RTE"], baseline=str(folders[0]))


def test_a_baseline_without_the_tasks_is_refused(folder, tmp_path):
    other = write_sweep(tmp_path / "other", {"CoLA": {1: 0.1, 2: 0.2}})
    with pytest.raises(file_io.InputError, match="other: expected scores over seeds of RTE .*CoLA"):
        glue_table.summarize(folder, ["RTE", "CoLA"], baseline=other)


def test_a_folder_that_is_no_sweep_and_unknown_tasks_are_refused(folder, tmp_path):
    (tmp_path / "other").mkdir()
    for name in ("other", "typo"):
        with pytest.raises(file_io.InputError, match=f"{name}/sweep.json"):
            command_lines.run(glue_report, f"--output_dir={tmp_path / name}", "--tasks=RTE")
    with pytest.raises(file_io.InputError, match="SST: expected one of .* did you mean sst-2"):
        command_lines.run(glue_report, f"--output_dir={folder}", "--tasks=RTE,SST")
    assert not list(tmp_path.glob("**/results.*"))
    command_lines.run(glue_report, f"--output_dir={folder}", "--tasks=RTE,SST-2")
    assert "not run" in (tmp_path / "results.md").read_text()
