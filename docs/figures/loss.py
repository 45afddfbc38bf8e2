"""Draws the losses of the reference and of this toolkit after the same training runs."""

from drawing import Drawing
from measured import read_table

LEFT, RIGHT, TOP, ROW = 176, 566, 66, 52
LOWEST, HIGHEST = 6.7, 7.1


def _x(loss: float) -> float:
    if not LOWEST <= loss <= HIGHEST:
        raise ValueError(f"a loss of {loss} is outside the axis: widen LOWEST and HIGHEST")
    return LEFT + (RIGHT - LEFT) * (loss - LOWEST) / (HIGHEST - LOWEST)


def _row(drawing: Drawing, y: float, name: str, reference: list[float], here: float) -> None:
    optimizer, records = name.split(", ")
    drawing.text(20, y - 3, optimizer.split(" (")[0], size=16, anchor="start", bold=True)
    drawing.text(20, y + 16, records, size=14, color="soft", anchor="start")
    drawing.line([(LEFT, y), (RIGHT, y)], color="rule", width=1)
    for loss in reference:
        drawing.dot(_x(loss), y, 9, fill="orange")
    drawing.dot(_x(here), y, 5.5, fill="blue", stroke="paper")


def draw() -> str:
    """Returns the SVG."""
    rows = read_table("The reference's losses", "loss after 500 steps")
    bottom = TOP + ROW * len(rows)
    drawing = Drawing(720, bottom + 62, "Losses of the reference and of this toolkit")
    drawing.dot(185, 26, 9, fill="orange")
    drawing.text(202, 31, "the reference, each run", anchor="start")
    drawing.dot(395, 26, 5.5, fill="blue", stroke="paper")
    drawing.text(410, 31, "this toolkit", anchor="start")
    drawing.text(704, 31, "difference", color="soft", anchor="end")
    for tick in range(5):
        loss = LOWEST + (HIGHEST - LOWEST) * tick / 4
        drawing.line([(_x(loss), TOP - 12), (_x(loss), bottom - 10)], color="rule", width=1)
        drawing.text(_x(loss), bottom + 12, f"{loss:.1f}", color="soft")
    for number, (name, reference, here, difference) in enumerate(rows):
        losses = [float(loss) for loss in reference.split(",")]
        y = TOP + 14 + ROW * number
        _row(drawing, y, name, losses, float(here))
        drawing.text(704, y + 5, difference, size=14, anchor="end")
    note = "Loss after 500 steps of a small model on the same records, batch 32, length 128"
    drawing.text(20, bottom + 46, note, size=14, color="soft", anchor="start")
    return drawing.svg()
