"""Draws the speed of a training step and of inference next to other toolkits."""

from drawing import Drawing
from measured import read_table

SECTION = "One step against transformers and keras-hub"
SIDES = ["this toolkit", "transformers", "torch.compile", "keras-hub"]
COLUMNS = [1, 2, 4, 6]  # of the table: examples per second of each side
LEFT, LONGEST, TOP = 150, 440, 26
BAR, GROUP = 24, 134


def _group(drawing: Drawing, top: float, row: list[str]) -> None:
    texts = [row[column] for column in COLUMNS]
    speeds = [float(text) for text in texts]
    drawing.text(20, top + 16, row[0], size=17, bold=True, anchor="start")
    for number, (side, text) in enumerate(zip(SIDES, texts, strict=True)):
        y = top + 26 + number * BAR
        own, length = number == 0, LONGEST * speeds[number] / max(speeds)
        drawing.text(LEFT - 10, y + 15, side, size=14, anchor="end", bold=own)
        drawing.box(
            *(LEFT, y, length, BAR - 5),
            fill="blue" if own else "gray",
            stroke="",
            radius=3,
        )
        if not own:
            text += f"  ({speeds[0] / speeds[number]:.2f})"
        drawing.text(LEFT + length + 8, y + 15, text, size=14, anchor="start")


def draw() -> str:
    """Returns the SVG."""
    rows = read_table(SECTION)
    drawing = Drawing(720, TOP + GROUP * len(rows) + 42, "Examples per second next to others")
    for number, row in enumerate(rows):
        _group(drawing, TOP + GROUP * number, row)
    y = TOP + GROUP * len(rows)
    for line, note in enumerate(
        [
            "Examples per second, base classifier, 16 × 128 tokens, two cores of a Xeon with AMX.",
            "In brackets: how many times as fast this toolkit is. torch.compile: of transformers.",
        ]
    ):
        drawing.text(20, y + 8 + 21 * line, note, size=14, color="soft", anchor="start")
    return drawing.svg()
