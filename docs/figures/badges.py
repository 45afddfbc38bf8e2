"""Draws badges of the version, the supported Python and TensorFlow, and the license."""

import pathlib
import re

from drawing import Drawing

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEIGHT, GAP, LETTER = 24, 8, 7.2


def _badges() -> dict[str, str]:
    """Reads the value of each badge from the sources."""
    setup = (ROOT / "setup.py").read_text(encoding="utf-8")
    package = (ROOT / "albert" / "__init__.py").read_text(encoding="utf-8")
    ((first, end),) = re.findall(r"PYTHON_MINORS = range\((\d+), (\d+)\)", setup)
    (tensorflow,) = re.findall(r'"tensorflow>=([\d.]+)"', setup)
    return {
        "version": re.findall(r'__version__ = "(.*)"', package)[0],
        "Python": f"3.{first} to 3.{int(end) - 1}",
        "TensorFlow": f"{tensorflow} and later",
        "license": re.findall(r'"license": "(.*)"', setup)[0],
    }


def _width(text: str) -> float:
    return LETTER * len(text) + 16


def draw() -> str:
    """Returns the SVG."""
    badges = list(_badges().items())
    total = sum(_width(text) for badge in badges for text in badge) + GAP * (len(badges) - 1)
    drawing = Drawing(round(total), HEIGHT, "; ".join(" ".join(badge) for badge in badges))
    x = 0.0
    for badge in badges:
        for text, fill, color in zip(badge, ("plain", "blue_area"), ("soft", "blue"), strict=True):
            drawing.box(x, 0, _width(text), HEIGHT, fill=fill, stroke="", radius=4)
            drawing.text(x + _width(text) / 2, 16, text, size=12, color=color)
            x += _width(text)
        x += GAP
    return drawing.svg()
