"""The documentation site has every page, and its helpers do what `mkdocs build` relies on."""

import doctest
import importlib.util
import json
import shutil

import pytest
import yaml

from tests.support import browser
from tests.support.sources import DOORS, ROOT

SITE = ROOT / "docs" / "site"


def _texts():
    spec = importlib.util.spec_from_file_location("site_texts", SITE / "texts.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TEXTS = _texts()


def _pages(nav):
    for entry in nav:
        (value,) = entry.values()
        yield from [value] if isinstance(value, str) else _pages(value)


def test_every_page_is_in_the_navigation_once():
    """A new page of docs/ gets a line in `nav` of mkdocs.yml."""
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    pages = [path.name for path in (ROOT / "docs").glob("*.md")]
    pages += [*TEXTS.PAGES.values(), *(f"api/{door}.md" for door in TEXTS.DOORS)]
    assert sorted(_pages(settings["nav"])) == sorted(pages)
    assert set(TEXTS.DOORS) | {"lamb_optimizer"} == set(DOORS)


def test_pages_from_outside_are_there():
    assert [source for source in TEXTS.PAGES if not (ROOT / source).is_file()] == []


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        ("Low precision", "low-precision"),
        ("A `b_c`, d / E?", "a-b_c-d--e"),
        ("SQuAD 1.1", "squad-11"),
    ],
)
def test_anchors_are_those_of_github(heading, anchor):
    assert TEXTS.slug(heading) == anchor


def test_a_notebook_becomes_a_page_with_its_outputs(tmp_path):
    cells = [
        {"cell_type": "markdown", "source": ["# A\n", "b"]},
        {"cell_type": "code", "source": ["print(1)"], "outputs": [{"text": ["1\n"]}]},
        {"cell_type": "code", "source": ["x = 1"], "outputs": []},
        {
            "cell_type": "code",
            "source": ["x"],
            "outputs": [{"data": {"image/svg+xml": ["<svg>\n", "\n", "</svg>"]}}],
        },
    ]
    path = tmp_path / "a.ipynb"
    path.write_text(json.dumps({"cells": cells}))
    assert TEXTS.notebook_page(path) == (
        "# A\nb\n\n```python\nprint(1)\n```\n\n```text\n1\n```\n\n```python\nx = 1\n```\n\n"
        "```python\nx\n```\n\n<div><svg>  </svg></div>\n"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<code>--a-b=c d</code>", '<code><span class="name">--a-b=c</span> d</code>'),
        ("<code>a_b</code> c-d", "<code>a_b</code> c-d"),
        ("<pre><code>a-b</code></pre>", "<pre><code>a-b</code></pre>"),
        (f"<code>{'a-' * 25}</code>", f"<code>{'a-' * 25}</code>"),
    ],
)
def test_names_do_not_break(text, expected):
    assert TEXTS.keep_names_whole(text) == expected


def test_the_navigation_is_visible_from_1000_pixels():
    wide, narrow = "@media screen and (min-width:76.25em)", "(max-width:76.234375em)"
    assert TEXTS.show_navigation(wide) == "@media screen and (min-width:62.5em)"
    assert TEXTS.show_navigation(narrow) == "(max-width:62.484375em)"


WORKER = "addEventListener('message', async event => postMessage(event.data.map(x => 2 * x)));"
PAGE = """<!doctype html><script src="iframe-worker.js"></script><body><script>
const worker = new Worker("worker.js");
worker.addEventListener("message", event => { document.title += event.data.join(); });
worker.postMessage([1, 2]);
worker.postMessage([3]);
</script>"""


def test_the_search_runs_in_pages_opened_from_a_folder(tmp_path):
    shutil.copy(SITE / "iframe-worker.js", tmp_path)
    (tmp_path / "worker.js").write_text(WORKER)
    (tmp_path / "page.html").write_text(PAGE)
    with browser.opened() as chromium:
        page = chromium.new_page()
        page.goto((tmp_path / "page.html").as_uri())
        page.wait_for_function("document.title === '2,46'")


@pytest.mark.parametrize("door", TEXTS.DOORS)
def test_examples_of_the_python_pages_run(door, monkeypatch):
    monkeypatch.chdir(ROOT)
    found = doctest.testmod(importlib.import_module(f"albert.{door}"))
    assert found.attempted >= 2 and not found.failed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('<script src="https://a.b/c.js">', True),
        ("<img alt=x src=//a.b/c.png>", True),
        ('<link rel="stylesheet" href="http://a.b/c.css">', True),
        ("body{background:url(https://a.b/c.png)}", True),
        ('<a href="https://a.b/">text</a> <img src="figures/a.svg">', False),
        ('<svg xmlns="http://www.w3.org/2000/svg"><rect/></svg>', False),
    ],
)
def test_what_is_loaded_from_elsewhere_is_found(text, expected):
    assert bool(TEXTS.loaded_from_elsewhere(text)) == expected
