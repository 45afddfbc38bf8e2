"""The pictures in `docs/figures/` are what their scripts draw, and pages show them."""

import ast
import importlib.util
import re

import pytest

from tests.support.sources import ROOT

FIGURES = ROOT / "docs" / "figures"
MAX_BYTES = 600_000
PICTURES = sorted(path for path in FIGURES.iterdir() if path.suffix not in (".py", ".txt", ""))


def _drawings():
    spec = importlib.util.spec_from_file_location("make_figures", FIGURES / "make.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.drawings()


def _screenshots():
    tree = ast.parse((FIGURES / "screenshots.py").read_text(encoding="utf-8"))
    (files,) = (
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and node.targets[0].id == "FILES"
    )
    return set(files)


def test_drawings_are_those_of_their_scripts():
    """Where this fails, `python docs/figures/make.py` writes them."""
    stored = {path.name: path.read_text(encoding="utf-8") for path in FIGURES.glob("*.svg")}
    assert stored == _drawings()


def test_other_pictures_are_taken_by_a_script():
    assert {path.name for path in PICTURES if path.suffix != ".svg"} == _screenshots()


def test_pictures_are_small():
    assert 0 < sum(path.stat().st_size for path in PICTURES) <= MAX_BYTES


@pytest.mark.parametrize("path", sorted(FIGURES.glob("*.svg")), ids=lambda path: path.name)
def test_drawings_load_nothing_and_follow_light_and_dark(path):
    text = path.read_text(encoding="utf-8")
    assert set(re.findall(r"https?://[^\"\s]+", text)) == {"http://www.w3.org/2000/svg"}
    assert "@media(prefers-color-scheme:dark)" in text


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.name)
def test_pictures_are_shown(path):
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    assert any(f"figures/{path.name}" in page.read_text(encoding="utf-8") for page in pages)
