"""Curves of groups of runs."""

import json
import re

import numpy as np
import pytest

from albert.experiments import charts, report_curves, report_groups, runs, statistics
from albert.training import results
from tests.support import run_folders


@pytest.fixture
def drawn(monkeypatch):
    """{title: lines} of the figures."""
    found = {}

    def lines(title, series, *_, xlabel="step", **__):
        found[title] = series
        return f"<svg>{xlabel}</svg>"

    monkeypatch.setattr(charts, "lines", lines)
    return found


def groups_of(tmp_path):
    folders = [str(path) for path in sorted(tmp_path.iterdir())]
    return report_groups.read(folders)


def notes_of(blocks):
    return " ".join(block["note"] for block in blocks if "note" in block)


def test_the_band_is_the_interval_of_the_mean_at_each_step(tmp_path, drawn):
    pytest.importorskip("scipy")
    for seed in (1, 2, 4):
        cost = {"steps": 10, "tokens": 1000 * seed}
        run_folders.make_run(tmp_path / f"r{seed}", seed=seed, cost=cost)
    blocks = list(report_curves.together(groups_of(tmp_path), runs.AXES["tokens"]))
    (line,) = drawn["eval accuracy"]
    expected = statistics.mean_interval([0.635, 0.645, 0.665])
    assert line.ys[0] == pytest.approx(expected.estimate)
    assert (line.low[0], line.high[0]) == pytest.approx((expected.low, expected.high))
    assert line.xs == pytest.approx([np.mean([500, 1000, 2000]), np.mean([1000, 2000, 4000])])
    assert line.label.endswith("(3 seeds)")
    assert "the 95% interval of this mean, computed for each step" in notes_of(blocks)


def test_a_mean_ends_with_its_shortest_run_and_says_so(tmp_path, drawn):
    pytest.importorskip("scipy")
    for seed in (1, 2):
        run_folders.make_run(tmp_path / f"r{seed}", seed=seed)
    path = tmp_path / "r2" / "metrics.jsonl"
    rows = [row for row in path.read_text().splitlines() if json.loads(row)["step"] <= 5]
    path.write_text("".join(f"{row}\n" for row in rows))
    blocks = list(report_curves.together(groups_of(tmp_path), runs.STEPS))
    (line,) = drawn["Training loss"]
    assert line.xs == [1, 2, 3, 4, 5]
    assert re.search(r"The mean of .* ends at step 5, where r2 does\.", notes_of(blocks))


def test_runs_outside_of_the_mean_are_faint_and_named(tmp_path, drawn):
    pytest.importorskip("scipy")
    for seed in (1, 2, 3):
        run = run_folders.make_run(tmp_path / f"r{seed}", seed=seed)
    state = {"told": {"step": 5}, "judgements": [], "signs": {}}
    (run / "stuck.json").write_text(json.dumps(state))
    blocks = list(report_curves.together(groups_of(tmp_path), runs.STEPS))
    mean, other = drawn["Training loss"]
    assert mean.ys[0] == pytest.approx(1.015) and other.faint and other.ys[0] == 1.03
    assert "but thin and gray: r3, stuck." in notes_of(blocks)


def test_without_scipy_each_run_has_its_line(tmp_path, drawn, monkeypatch):
    for seed in (1, 2):
        run_folders.make_run(tmp_path / f"r{seed}", seed=seed)
    monkeypatch.setattr(statistics, "is_installed", lambda: False)
    blocks = list(report_curves.together(groups_of(tmp_path), runs.STEPS))
    assert [line.label for line in drawn["Training loss"]] == ["r1", "r2"]
    assert not drawn["Training loss"][0].low and statistics.NOT_INSTALLED in notes_of(blocks)


def test_captions_say_what_is_thinned_and_cut_off(tmp_path, drawn):
    pytest.importorskip("scipy")
    for seed in (1, 2):
        run = run_folders.make_run(tmp_path / f"r{seed}", seed=seed)
        run_folders.write_curves(run, 1000, seed)
    figures = next(iter(report_curves.together(groups_of(tmp_path), runs.STEPS)))["figures"]
    (loss,) = [caption for caption, _ in figures if caption.startswith("Training loss")]
    assert "; thinned: of up to 1,000 points of a line, 300 are drawn" in loss
    assert loss.endswith("; bands reach beyond the figure")
    assert not any("thinned" in caption for caption, _ in figures if "accuracy" in caption)


def test_axes_have_the_values_that_a_score_can_have(tmp_path):
    run_folders.make_run(tmp_path / "r1", "run_squad_v2", "squad_v2", "f1")
    (run,) = runs.recorded(groups_of(tmp_path))
    assert report_curves.bounds(run, "f1") == (0, 100)
    assert report_curves.bounds(run, "start_accuracy") == (0, 1)
    assert report_curves.bounds(run, "eval_loss") == (0, np.inf)
    for name, bounds in (
        ("macro_f1", (0, 1)), ("matthew_corr", (-1, 1)), ("R2", (-np.inf, 1)), ("MSE", (0, np.inf)),
        ("perplexity", (-np.inf, np.inf)),
    ):  # fmt: skip
        assert results.bounds(name) == bounds
