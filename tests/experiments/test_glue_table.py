"""The table of a sweep over GLUE tasks with several seeds."""

import json
import pathlib
import sys

import pytest
import scipy.stats

from albert.experiments import glue_table, sweep_journal, sweep_plan
from albert.training import results
from tests.support import run_folders

SCORES = {1: 0.70, 2: 0.75, 3: 0.71}


@pytest.fixture
def folder(tmp_path):
    """A sweep of RTE with three seeds and a fourth that failed."""
    spec = {"script": "run_classifier", "trials": {"RTE": {}}, "seeds": [*SCORES, 4]}
    plan = sweep_plan.make_plan(spec)
    journal = sweep_journal.Journal(str(tmp_path), {**plan.describe(), "settings": {}})
    for seed in plan.seeds:
        name, state = f"RTE/seed_{seed}", sweep_journal.DONE
        (tmp_path / name).mkdir(parents=True)
        if seed in SCORES:
            results.write_trial(str(tmp_path / name), results.Trial(9, 9, SCORES[seed]))
        else:
            state = sweep_journal.FAILED
        journal.trials.append(
            sweep_journal.Trial(
                len(journal.trials), name, [], seed=seed, state=state, value=SCORES.get(seed)
            )
        )
    journal.write()
    return str(tmp_path)


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
