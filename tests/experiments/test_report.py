"""The HTML of single blocks of a report."""

import re

import pytest

from albert.experiments import report

pytest.importorskip("jinja2")


def body_of(*blocks):
    """HTML of blocks in a section "S"; "" if the section is omitted."""
    page = report.render("x", [], [("S", blocks)])
    return page.partition("<h1>x</h1>\n")[2].removesuffix("</body>\n</html>\n")


def test_tables():
    assert body_of({"table": ["a"], "rows": []}) == ""
    rows = [[1, "x" * 50], [0.123456, None]]
    text = body_of({"table": ["n", "<t>"], "rows": rows, "best": 1})
    assert text.startswith("<h2>S</h2>\n<div")
    assert '<th scope="col" class="number">n</th><th scope="col">&lt;t&gt;</th>' in text
    assert f'<td class="long">{"x" * 50}</td>' in text
    assert '<tr class=best><td class="number">0.1235</td><td class="long"></td></tr>' in text


def test_texts_are_escaped_and_empty_blocks_leave_nothing():
    html = """<b> & 'c' "d" """
    safe = "&lt;b&gt; &amp; &#39;c&#39; &#34;d&#34; "
    blocks = [
        *({kind: html} for kind in ("paragraph", "note", "warning", "heading", "program")),
        *({"pairs": [(html, html), ("no value", "")]}, {"figures": [(html, "<svg></svg>")]}),
        {"folded": html, "table": [html], "rows": [[html]]},
    ]
    page = report.render(html, blocks, [(html, blocks)])
    assert page.count(safe) == 2 + 1 + 2 * 12 and html not in page and "no value" not in page
    assert page.count("<figure><svg></svg><figcaption>") == 2
    assert body_of({"pairs": []}, {"figures": [], "wide": True}) == ""


def test_tables_show_that_they_scroll():
    """A shadow at a side where more is hidden, under cells that let it through, and a bar."""
    page = report.render("x", [{"table": ["a", "<b>"], "rows": [[1, 2]], "best": 0}], [])
    assert '<div class="scroll" tabindex="0" role="region" aria-label="a, &lt;b&gt;">' in page
    (rule,) = re.findall(r"\.scroll, figure \{([^}]*)\}", page)
    assert "overflow-x: auto" in rule
    assert rule.count("no-repeat local") == rule.count("no-repeat scroll") == 2
    for cell in ("th", "tr.best td"):
        (color,) = re.findall(rf"^{cell} \{{ background: #(\w+);", page, re.M)
        assert len(color) == 8, "the shadow is behind the cells"
    assert ".scroll::-webkit-scrollbar, figure::-webkit-scrollbar { height:" in page
