"""How a report looks in a browser: light or dark, narrow or wide, printed, used by keyboard.

The page has one block of each kind, so that it covers all colors and all that can be focused.
"""

import pytest

from albert.experiments import charts, report, report_cells
from albert.experiments.report_cells import Link, Part
from tests.support import browser, contrast

LONG = "a_setting_with_a_long_name"


@pytest.mark.parametrize("place", [0, 1])
def test_contrast_of_the_palette(place):
    """Texts have 4.5, lines 3, as WCAG 2 asks for AA."""
    colors = {name: contrast.parse(values[place]) for name, values in charts.PALETTE.items()}
    paper = colors.pop("paper")
    ratios = {name: contrast.ratio(color, paper) for name, color in colors.items()}
    del ratios["rule"]  # only decorates
    assert min(ratios.values()) >= 3
    texts = ("ink", "soft", "blue", "orange", "green")
    assert min(ratios[name] for name in texts) >= 4.5
    assert contrast.ratio((0, 0, 0, 1), (1, 1, 1, 1)) == pytest.approx(21)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    pytest.importorskip("matplotlib")
    pytest.importorskip("jinja2")
    cells = [
        Link("a run", "run-1"),
        *(report_cells.bar(x, (0, 1)) for x in (1.0, 0.5)),
        *report_cells.intervals([(0.5, 0.4, 0.9)], (0, 1)),
        report_cells.Marked([Part("Ann", "right", "PER"), Part("Rome", "wrong", "PER, not LOC")]),
    ]
    table = {"table": ["name", "score", "other", "interval", "text"], "rows": [cells], "best": 0}
    squares = [report_cells.Square(f"{x}", x / 10, f"square {x}", "2") for x in range(11)]
    lines = [charts.Line(f"line {n}", [1, 2], [n, 1]) for n in range(8)]
    figures = [("Curves", charts.lines("Loss", lines)), ("Few", charts.lines("F1", lines[:2]))]
    names, rows = [LONG, "rate", "optimizer", "batch"], [[1, 2.0, "x", 16], [2, 3.0, "y", 32]]
    figures.append(("All", charts.parallel_coordinates(names, rows, [1, 2], "f1")))
    blocks = [
        {"paragraph": "A paragraph."}, {"note": "A note."}, {"warning": "A warning."},
        {"heading": "A heading"}, {"program": "python -m albert.report"}, table,
        {"pairs": [("name", "value")]}, {"marked": report_cells.LEGEND}, {"figures": figures},
        {"matrix": [(LONG * 3, squares)] * 3, "columns": [LONG] * 11, "corner": "label",
         "vertical": True, "caption": "A matrix"},
        {"folded": "A run", "id": "run-1", "blocks": [{"paragraph": "What it found."}]},
        {"table": ["wide"] * 30, "rows": [["number"] * 30]},
    ]  # fmt: skip
    path = tmp_path_factory.mktemp("looks") / "report.html"
    path.write_text(report.render("A report", blocks, [("One", blocks[:1])] * 3), encoding="utf-8")
    return path


@pytest.mark.slow
def test_a_report_can_be_read_everywhere(path):
    with browser.opened() as chromium:
        for scheme in ("light", "dark"):
            for width in (400, 1000, 1600):
                size = {"width": width, "height": 800}
                page = chromium.new_page(viewport=size, color_scheme=scheme)
                _check_page(page, path, width, scheme)
                page.close()
        page = chromium.new_page(color_scheme="dark")
        page.goto(path.as_uri())
        page.emulate_media(media="print", color_scheme="dark")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") in (
            "rgb(255, 255, 255)"
        )
        assert page.get_by_text("What it found.").is_visible()  # folded on screens
        assert not page.get_by_role("navigation", name="Sections").is_visible()
        assert contrast.of_texts(page)[0][0] >= 4.5


def _check_page(page, path, width, scheme):
    requests = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto(path.as_uri())
    assert requests == [path.as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    found = contrast.of_texts(page)
    assert len(found) > 100 and found[0][0] >= 4.5, found[:5]
    paper = contrast.parse(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert (contrast.luminance(paper) > 0.5) == (scheme == "light")
    # Letters of all figures have one size.
    heights = page.evaluate(
        "[...document.querySelectorAll('figure svg text')].map(t => "
        "t.getBBox().height * t.getScreenCTM().d)"
    )
    assert len(heights) > 20 and max(heights) - min(heights) < 2.5 and min(heights) > 9


@pytest.mark.slow
def test_a_report_is_reached_by_keyboard(path):
    """Links, what is folded, and all that scrolls; a link to a folded part opens it."""
    with browser.opened() as chromium:
        page = chromium.new_page(viewport={"width": 400, "height": 800})
        page.goto(path.as_uri())
        reached = []
        while True:
            page.keyboard.press("Tab")
            now = page.evaluate(
                "(e => e == document.body ? '' : e.getAttribute('aria-label') || "
                "e.textContent.trim())(document.activeElement)"
            )
            if not now or len(reached) > 30:
                break
            assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
            reached.append(now)
        for name in ("a run", "A run", "One", "A matrix", "name, score, other, interval, text"):
            assert name in reached
        assert any(name.startswith("All") for name in reached)  # a figure that is too wide
        assert not page.get_by_text("What it found.").is_visible()
        page.get_by_role("link", name="a run").press("Enter")
        assert page.get_by_text("What it found.").is_visible()
