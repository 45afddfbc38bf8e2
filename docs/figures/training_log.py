"""Draws a terminal with the log of a fine-tuning run.

`training_log.txt` has lines of such a log: of the run in the tutorial, without the time and the
place in the source at the start of each line.
"""

import pathlib
import textwrap

from drawing import Drawing

LOG = pathlib.Path(__file__).with_suffix(".txt")
COLUMNS, LINE, TOP = 82, 20, 46


def _color(line: str) -> str:
    if line.startswith("$"):
        return "blue"
    return "green" if line.startswith(("Results of", "***** Eval", "  ")) else "ink"


def draw() -> str:
    """Returns the SVG."""
    rows = []
    for line in LOG.read_text(encoding="utf-8").splitlines():
        wrapped = textwrap.wrap(
            line, COLUMNS, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False
        )
        rows += [(part, _color(line)) for part in wrapped]
    drawing = Drawing(720, TOP + LINE * len(rows) + 14, "The log of a fine-tuning run")
    drawing.box(0.5, 0.5, 719, TOP + LINE * len(rows) + 13, fill="plain", radius=10)
    for number, color in enumerate(["orange", "gray", "green"]):
        drawing.dot(22 + 20 * number, 19, 6, fill=color)
    for number, (text, color) in enumerate(rows):
        y = TOP + 6 + LINE * number
        drawing.text(14, y, text, size=13.5, color=color, anchor="start", mono=True)
    return drawing.svg()
