"""Draws the loss against tokens of the study `experiments/two_hours.json`."""

import csv
import json
import pathlib

from drawing import Drawing

RESULTS = pathlib.Path(__file__).parents[2] / "experiments" / "results" / "two_hours"
LEFT, RIGHT, TOP, BOTTOM = 76, 690, 62, 330
HIGHEST = 7.0  # The first steps fall fast from 9 and would take most of the height.

Point = tuple[float, float]


def read_curve(path: pathlib.Path, before: float = 0) -> list[Point]:
    """Returns (tokens, loss) of the training steps of a recorded curve.

    Args:
      path: the csv file.
      before: tokens seen before this stage.
    """
    with open(path, newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["kind"] == "train"]
    return [(before + float(row["tokens_seen"]), float(row["masked_lm_loss"])) for row in rows]


def draw() -> str:
    """Returns the SVG."""
    first = read_curve(RESULTS / "two_hours-seed_1-first_stage.csv")
    second = read_curve(RESULTS / "two_hours-seed_1.csv", first[-1][0])
    record = json.loads((RESULTS / "two_hours-seed_1.json").read_text())
    last, heldout = second[-1][0], record["heldout"]["loss"]
    lowest = min(heldout, *(loss for _, loss in [*first, *second]))
    floor = int(lowest * 2) / 2

    def place(tokens: float, loss: float) -> Point:
        x = LEFT + (RIGHT - LEFT) * tokens / last
        return x, BOTTOM - (BOTTOM - TOP) * (loss - floor) / (HIGHEST - floor)

    drawing = Drawing(720, 396, "Loss of masked words against tokens, in two hours on two cores")
    legend = ((LEFT, "green", "training, 32 tokens"), (LEFT + 205, "blue", "training, 128 tokens"))
    for x, color, name in legend:
        drawing.line([(x, 28), (x + 34, 28)], color=color, width=2.5)
        drawing.text(x + 44, 33, name, anchor="start")
    drawing.dot(LEFT + 420, 28, 5, fill="orange")
    drawing.text(LEFT + 432, 33, "held-out text, 15% masked", anchor="start")
    for half in range(int(floor * 2), int(HIGHEST * 2) + 1):
        _, y = place(0, half / 2)
        drawing.line([(LEFT, y), (RIGHT, y)], color="rule", width=1)
        drawing.text(LEFT - 12, y + 5, f"{half / 2:.1f}", color="soft", anchor="end")
    step = 20_000_000
    for number in range(int(last // step) + 1):
        x, _ = place(number * step, floor)
        drawing.text(x, BOTTOM + 24, f"{number * step // 1_000_000}", color="soft")
    for points, (_, color, _) in zip((first, second), legend, strict=True):
        shown = [place(*point) for point in points if point[1] <= HIGHEST]
        drawing.line(shown, color=color, width=2)
    drawing.dot(*place(last, heldout), 5, fill="orange", stroke="paper")
    note = "million tokens (without padding)"
    drawing.text((LEFT + RIGHT) / 2, BOTTOM + 48, note, size=14, color="soft")
    return drawing.svg()
