"""Scores and costs of reports, and the size of large ones."""

import re

import pytest

from albert.experiments import report, report_groups, runs, statistics
from tests.support import browser, run_folders

FLOP = runs.AXES["flop"]


def read(tmp_path):
    return report_groups.read([str(path) for path in sorted(tmp_path.iterdir())])


def test_costs_stand_next_to_scores_best_first(tmp_path):
    pytest.importorskip("scipy")
    pytest.importorskip("matplotlib")
    for rate, shift in ((0.1, 0), (0.2, 10)):
        for seed in (1, 2):
            cost = {"steps": 10, "tokens": 2000 + 2000 * seed, "flop": 10**9}
            path = tmp_path / f"r{rate}_{seed}"
            run_folders.make_run(path, seed=seed + shift, learning_rate=rate, cost=cost)
    (table,) = report.score_blocks(read(tmp_path))
    assert table["table"] == [
        "side", "eval_accuracy", "interval of 95%", "FLOP", "tokens", "runs", "remarks",
    ]  # fmt: skip
    first, second = ([str(cell) for cell in row] for row in table["rows"])
    assert first[:2] == ["learning_rate=0.2", "0.8650"]
    assert second[:2] == ["learning_rate=0.1", "0.7650"]
    assert second[2] == "0.7015\u00a0to\u00a00.8285" and second[3:6] == ["1.00e+09", "5,000", "2"]
    figures, note = report.cost_blocks(read(tmp_path), FLOP)
    assert note["note"] == "A run of each costs the same, 1e+09 FLOP." and not figures["figures"]


def test_losses_are_better_if_they_are_low(tmp_path):
    pytest.importorskip("scipy")
    for rate in (0.1, 0.2):
        path = tmp_path / f"r{rate}"
        run_folders.make_run(path, seed=round(10 * rate), learning_rate=rate, metric="eval_loss")
    assert [row.side.name for row in report.score_sides(read(tmp_path))] == ["r0.1", "r0.2"]


def test_without_scipy_a_note_says_what_to_install(tmp_path, monkeypatch):
    for seed in (1, 2):
        run_folders.make_run(tmp_path / f"r{seed}", learning_rate=seed)
    monkeypatch.setattr(statistics, "is_installed", lambda: False)
    assert list(report.score_blocks(read(tmp_path))) == [{"note": f"{statistics.NOT_INSTALLED}."}]


@pytest.fixture(scope="module", params=[5, 1])
def fifty(request, tmp_path_factory):
    """A page of 50 runs with 1,000 lines of training each, and the seeds per group."""
    pytest.importorskip("scipy")
    pytest.importorskip("matplotlib")
    pytest.importorskip("jinja2")
    folder, seeds = tmp_path_factory.mktemp("fifty"), request.param
    for number in range(50):
        point, seed = divmod(number, seeds)
        cost = {"steps": 1000, "tokens": 10**6 + point, "flop": 10**12 * (point + 1)}
        run = run_folders.make_run(
            folder / f"r{number:02}", seed=seed + 1, learning_rate=1e-5 * (point + 1), cost=cost
        )
        run_folders.write_curves(run, 1000, 0.01 * number)
    return report.runs_page(read(folder)), seeds


@pytest.mark.slow
def test_fifty_runs_are_a_small_file_that_says_what_is_thinned(fifty):
    page, seeds = fifty
    assert len(page.encode()) < 1_000_000
    assert not re.search(r"https?:|<script|<link|<img|@import|@font-face|url\((?!#)", page)
    assert "thinned: of up to 1,000 points of a line, 300 are drawn" in page
    assert f"gray: the other {50 // seeds - 8}" in page
    assert len(set(re.findall(r'<a href="#run-\d+">(r\d\d)</a></td>', page))) == 50


@pytest.mark.slow
@pytest.mark.parametrize("width", [1200, 400])
def test_fifty_runs_can_be_read_in_a_browser(fifty, width, tmp_path):
    """Nothing is requested, nothing but tables is wider than the page, no text is tiny."""
    path, requests = tmp_path / "report.html", []
    path.write_text(fifty[0], encoding="utf-8")
    with browser.opened() as chromium:
        page = chromium.new_page(viewport={"width": width, "height": 800})
        page.on("request", lambda request: requests.append(request.url))
        page.goto(path.as_uri())
        assert requests == [path.as_uri()]
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        heights = page.evaluate(
            "[...document.querySelectorAll('svg text')].map(t => t.getBoundingClientRect().height)"
        )
        assert len(heights) > 50 and min(heights) >= 8
