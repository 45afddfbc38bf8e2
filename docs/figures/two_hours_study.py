"""Draws the loss against tokens of the study `experiments/two_hours.json`."""

import csv
import pathlib

from drawing import Drawing

RESULTS = pathlib.Path(__file__).parents[2] / "experiments" / "results" / "two_hours"
LEFT, RIGHT, TOP, BOTTOM = 76, 690, 62, 330
HIGHEST = 7.0  # The first steps fall fast from 9 and would take most of the height.

Point = tuple[float, float]


def read_curve(path: pathlib.Path, before: float = 0) -> tuple[list[Point], ...]:
    """Returns (tokens, loss) of the training steps, and of the evaluations, of a recorded curve.

    Args:
      path: the csv file.
      before: tokens seen before this stage.
    """
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    train = [row for row in rows if row["kind"] == "train"]
    # Evaluations have no count of tokens; every step has nearly as many.
    per_step = float(train[-1]["tokens_seen"]) / int(train[-1]["step"])
    found = [
        (before + int(row["step"]) * per_step, float(row["masked_lm_loss"]), row["kind"])
        for row in rows
    ]
    return tuple([(x, y) for x, y, kind in found if kind == name] for name in ("train", "eval"))


def draw() -> str:
    """Returns the SVG."""
    # The first stage is evaluated on its own records, so these losses are not shown.
    first, _ = read_curve(RESULTS / "two_hours-seed_1-first_stage.csv")
    second, heldout = read_curve(RESULTS / "two_hours-seed_1.csv", first[-1][0])
    last = second[-1][0]
    lowest = min(loss for _, loss in [*first, *second, *heldout])
    floor = int(lowest * 2) / 2

    def place(tokens: float, loss: float) -> Point:
        x = LEFT + (RIGHT - LEFT) * tokens / last
        return x, BOTTOM - (BOTTOM - TOP) * (loss - floor) / (HIGHEST - floor)

    drawing = Drawing(720, 396, "Loss of masked words against tokens, in two hours on two cores")
    legend = ((LEFT, "green", "training, 32 tokens"), (LEFT + 215, "blue", "training, 128 tokens"))
    for x, color, name in legend:
        drawing.line([(x, 28), (x + 34, 28)], color=color, width=2.5)
        drawing.text(x + 44, 33, name, anchor="start")
    drawing.dot(LEFT + 442, 28, 5, fill="orange")
    drawing.text(LEFT + 456, 33, "held-out text", anchor="start")
    for half in range(int(floor * 2), int(HIGHEST * 2) + 1):
        _, y = place(0, half / 2)
        drawing.line([(LEFT, y), (RIGHT, y)], color="rule", width=1)
        drawing.text(LEFT - 12, y + 5, f"{half / 2:.1f}", color="soft", anchor="end")
    step = 10_000_000
    for number in range(int(last // step) + 1):
        x, _ = place(number * step, floor)
        drawing.text(x, BOTTOM + 24, f"{number * step // 1_000_000}", color="soft")
    for points, (_, color, _) in zip((first, second), legend, strict=True):
        shown = [place(*point) for point in points if point[1] <= HIGHEST]
        drawing.line(shown, color=color, width=2)
    for point in heldout:
        drawing.dot(*place(*point), 5, fill="orange", stroke="paper")
    note = "million tokens (without padding)"
    drawing.text((LEFT + RIGHT) / 2, BOTTOM + 48, note, size=14, color="soft")
    return drawing.svg()
