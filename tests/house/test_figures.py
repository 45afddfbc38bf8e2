"""The pictures in `docs/figures/` are what their scripts draw, and pages show them."""

import importlib.util
import re

import pytest

from tests.support.sources import ROOT

FIGURES = ROOT / "docs" / "figures"
MAX_BYTES = 600_000
PICTURES = sorted(path for path in FIGURES.iterdir() if path.suffix in (".svg", ".png", ".webp"))


def _make():
    spec = importlib.util.spec_from_file_location("make_figures", FIGURES / "make.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_drawings_are_those_of_their_scripts():
    stored = {path.name: path.read_text(encoding="utf-8") for path in FIGURES.glob("*.svg")}
    assert stored == _make().drawings()


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.name)
def test_pictures_have_a_script(path):
    assert path.with_suffix(".py").exists()


def test_pictures_are_small():
    assert 0 < sum(path.stat().st_size for path in PICTURES) <= MAX_BYTES


@pytest.mark.parametrize("path", sorted(FIGURES.glob("*.svg")), ids=lambda path: path.name)
def test_drawings_load_nothing_and_follow_light_and_dark(path):
    text = path.read_text(encoding="utf-8")
    assert set(re.findall(r"https?://[^\"\s]+", text)) == {"http://www.w3.org/2000/svg"}
    assert "@media(prefers-color-scheme:dark)" in text
