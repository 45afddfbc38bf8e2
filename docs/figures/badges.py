"""Draws badges of the version, the supported Python and TensorFlow, and the license."""

import pathlib
import re

from drawing import Drawing

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEIGHT, GAP, LETTER = 24, 8, 7.2
BADGES = [  # label, file, regular expression with the value
    ("version", "albert/__init__.py", r'__version__ = "(.*)"'),
    ("Python", "setup.py", r'python_requires="(.*)"'),
    ("TensorFlow", "setup.py", r'"tensorflow(>=[\d.]+)"'),
    ("license", "setup.py", r'"license": "(.*)"'),
]


def _width(text: str) -> float:
    return LETTER * len(text) + 16


def draw() -> str:
    """Returns the SVG."""
    badges = []
    for label, file, pattern in BADGES:
        (value,) = re.findall(pattern, (ROOT / file).read_text(encoding="utf-8"))
        badges.append((label, value))
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
