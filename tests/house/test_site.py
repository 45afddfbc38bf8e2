"""The documentation site has every page, and its helpers do what `mkdocs build` relies on."""

import importlib.util
import json

import pytest
import yaml

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
