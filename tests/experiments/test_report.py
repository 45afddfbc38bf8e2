"""The HTML of single blocks of a report."""

import re

import pytest

from albert.experiments import report, report_cells
from albert.experiments.report_cells import Link, Part

pytest.importorskip("jinja2")


def body_of(*blocks):
    """HTML of blocks in a section "S"; "" if the section is omitted."""
    page = report.render("x", [], [("S", blocks)])
    return page.partition("<h1>x</h1>\n")[2].removesuffix("</body>\n</html>\n")


def test_tables():
    assert body_of({"table": ["a"], "rows": []}) == ""
    rows = [[1, "x" * 50], [0.123456, None]]
    text = body_of({"table": ["n", "<t>"], "rows": rows, "best": 1})
    assert text.startswith('<h2 id="section-1">S</h2>\n<div')
    assert '<th scope="col" class="number">n</th><th scope="col">&lt;t&gt;</th>' in text
    assert f'<td class="long">{"x" * 50}</td>' in text
    assert '<tr class=best><td class="number">0.1235</td><td class="long"></td></tr>' in text


def test_texts_are_escaped_and_empty_blocks_leave_nothing():
    html = """<b> & 'c' "d" """
    safe = "&lt;b&gt; &amp; &#39;c&#39; &#34;d&#34; "
    blocks = [
        *({kind: html} for kind in ("paragraph", "note", "warning", "heading", "program")),
        *({"pairs": [(html, html), ("no value", "")]}, {"figures": [(html, "<svg></svg>")]}),
        {"folded": html, "blocks": [{"table": [html], "rows": [[html]]}]},
    ]
    page = report.render(html, blocks, [(html, blocks)])
    assert page.count(safe) == 2 + 1 + 2 * 12 and html not in page and "no value" not in page
    assert page.count("</figcaption><svg></svg></figure>") == 2
    assert body_of({"pairs": []}, {"figures": [], "wide": True}) == ""


def test_bars_intervals_links_and_marks_keep_their_texts():
    parts = [Part("<Ann>", "right", "PER"), Part("slept")]
    cells = [
        report_cells.bar(0.25, (0, 1)), report_cells.bar(-3.0, (-1, 1)),
        *report_cells.intervals([(0.5, 0.4, 0.7)], (0, 1)),
        report_cells.Link("run <1>", "run-1"), report_cells.Marked(parts, separator=" "),
    ]  # fmt: skip
    text = body_of({"table": list("abcde"), "rows": [cells]})
    assert '<td class="number bar" style="--at: 25.0%">0.25</td><td class="number">-3</td>' in text
    assert (
        '<td class="short interval">0.4000\u00a0to\u00a00.7000<svg class="interval" aria-hidden'
        in text
    )
    assert '<line x1="0.0%" x2="100.0%" y1="5" y2="5"/><circle cx="33.3%"' in text
    assert '<a href="#run-1">run &lt;1&gt;</a>' in text
    assert '<mark class="right">&lt;Ann&gt; <small>PER</small></mark> slept</td>' in text


def test_intervals_of_one_table_have_one_scale_within_what_is_possible():
    """Wide intervals end where they would leave no room for the others, or at 0 and 1."""
    first, unknown, wide = report_cells.intervals(
        [(0.9, 0.85, 0.95), None, (0.6, -5.0, 5.0)], (0, 1)
    )
    assert unknown == "-" and (wide.low, wide.high) == (0, 1)
    assert (first.low, first.high) == pytest.approx((0.55 / 0.7, 0.65 / 0.7))
    assert str(wide) == "-5.0000\u00a0to\u00a05.0000"
    (same,) = report_cells.intervals([(1.0, 1.0, 1.0)], (0, 1))
    assert same.mean == 0.5
    found = report_cells.difference(0.1, -0.1, 0.2)
    assert (found.low, found.mean, found.high, found.zero) == pytest.approx((0.25, 0.75, 1, 0.5))


def test_spans_are_marked_where_they_first_occur():
    text = "In Rome, Ann Lee saw Rome."
    found = report_cells.mark_spans(text, {"Ann Lee": "wrong", "Lee": "right", "Bob": "right"})
    assert str(found) == text
    assert [part[:2] for part in found.parts] == [
        ("In Rome, ", ""), ("Ann ", "wrong"), ("Lee", "right"), (" saw Rome.", ""),
    ]  # fmt: skip
    assert str(report_cells.mark_spans("", {"": "right"})) == ""


def test_matrices_show_fractions_and_leave_empty_cells_empty():
    square = report_cells.Square("75%", 0.75, "a was taken for <b> 3 of 4", "3")
    block = {
        "matrix": [("a", [None, square])], "columns": ["a", "<b>"], "corner": "label",
        "vertical": True, "caption": "Confusions",
    }  # fmt: skip
    text = body_of(block)
    assert '<table class="matrix vertical">\n<caption>Confusions</caption>' in text
    assert '<th scope="row">a</th><td></td><td style="--at: 37.5%" title="a was' in text
    assert "75% <small>3</small></td>" in text


def test_sections_have_links_and_folded_blocks_an_address():
    table = {"table": ["a"], "rows": [[1]], "id": "runs"}
    folded = {"folded": "run 1", "id": "run-1", "blocks": [table, {"links": [Link("all", "runs")]}]}
    page = report.render("x", [], [(name, [folded]) for name in "ABC"])
    assert '<nav aria-label="Sections"><a href="#section-1">A</a>' in page
    assert '<summary id="run-1">run 1</summary>' in page and '<a href="#runs">all</a>' in page
    assert "<nav" not in report.render("x", [], [("A", [table])])


def test_tables_show_that_they_scroll():
    """A shadow at a side where more is hidden, under cells that let it through, and a bar."""
    page = report.render("x", [{"table": ["a", "<b>"], "rows": [[1, 2]], "best": 0}], [])
    assert '<div class="scroll" tabindex="0" role="region" aria-label="a, &lt;b&gt;">' in page
    rule, _ = re.findall(r"\.scroll, figure \{([^}]*)\}", page)  # on screens, in print
    assert "overflow-x: auto" in rule
    assert rule.count("no-repeat local") == rule.count("no-repeat scroll") == 2
    (head,), (best,) = (
        re.findall(r"--head: #(\w+); --shade: #00000066", page),
        re.findall(r"^tr.best td \{ background-color: #(\w+);", page, re.M),
    )
    assert len(head) == len(best) == 8, "the shadow is behind the cells"
    assert re.search(r"^th \{ background: var\(--head\);", page, re.M)
    assert ".scroll::-webkit-scrollbar, figure::-webkit-scrollbar { height:" in page
