"""Blocks of a report about a sweep."""

import pytest

from albert.experiments import report_groups, report_sweeps, sweep_results
from tests.support import run_folders


def sweep_of(tmp_path, parameters, seeds=(), cost=None):
    def score(point, seed):
        return round(0.5 + point["a"] / 10 + 0.01 * (seed or 0), 4)

    return sweep_results.read_sweep(
        str(run_folders.make_sweep(tmp_path / "s", parameters, score, seeds, cost))
    )


def test_parallel_coordinates_need_three_settings(tmp_path):
    pytest.importorskip("matplotlib")
    sweep = sweep_of(tmp_path, {"a": [1, 2], "b": [3, 4], "c": ["x", "y"]})
    (block,) = report_sweeps.parallel(sweep)
    assert "is at a 2, b 3, c x" in block["figures"][0][1]
    assert next(report_sweeps.effects(sweep))["rows"][0][:4] == [
        "a", pytest.approx(0.1), "2", pytest.approx(0.7),
    ]  # fmt: skip
    small = sweep_of(tmp_path / "two", {"a": [1, 2], "b": [3, 4]})
    assert not list(report_sweeps.parallel(small))
    one = sweep_of(tmp_path / "one", {"a": [1]})
    assert not [*report_sweeps.effects(one), *report_sweeps.pairs(one, ["a"])]


def test_points_link_to_their_runs_and_a_sentence_compares_them(tmp_path):
    pytest.importorskip("scipy")
    cost = {"steps": 10, "seconds": 4.0, "tokens": 320}
    sweep = sweep_of(tmp_path, {"a": [1, 2]}, (1, 2, 3), cost)
    sides = report_groups.read_sweep(sweep.folder)
    table, *notes = report_sweeps.points(sweep, sides)
    assert table["table"][:4] == ["trial", "eval_accuracy", "interval of 95%", "a"]
    assert [(str(row[0]), row[0].target, str(row[1])) for row in table["rows"]] == [
        ("trial_0003 to 5", "run-4", "0.7200"), ("trial_0000 to 2", "run-1", "0.6200"),
    ]  # fmt: skip
    costs = [table["table"].index(name) for name in ("seconds", "tokens")]
    assert [[row[i] for i in costs] for row in table["rows"]] == [["4", "320"]] * 2
    assert any(note["note"].startswith("Method: ") for note in notes)
    verdict = report_sweeps.facts(sweep)[0]["paragraph"]
    assert verdict == (
        "Of 1 other points, 0 are worse than trial_0003 to 5, 0 are better, and 1 cannot be told "
        "apart from it."
    )
