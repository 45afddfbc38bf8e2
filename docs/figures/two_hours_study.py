"""Draws the loss against tokens of the study `experiments/two_hours.json`."""

import csv
import pathlib

from drawing import Drawing

RESULTS = pathlib.Path(__file__).parents[2] / "experiments" / "results" / "two_hours"
LEFT, RIGHT, TOP, BOTTOM = 76, 690, 62, 330


def read_curve(path: pathlib.Path) -> tuple[list[tuple[float, float]], ...]:
    """Returns (tokens, loss) of the training steps, and of the evaluations, of a recorded curve."""
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    train = [(int(r["step"]), float(r["tokens_seen"]), r) for r in rows if r["kind"] == "train"]
    last_step, last_tokens, _ = train[-1]
    # Evaluations have no count of tokens; every step has nearly as many.
    heldout = [(int(r["step"]) * last_tokens / last_step, r) for r in rows if r["kind"] == "eval"]
    pairs = [(tokens, row) for _, tokens, row in train], heldout
    return tuple([(x, float(row["masked_lm_loss"])) for x, row in part] for part in pairs)


def draw() -> str:
    """Returns the SVG."""
    # The first steps fall fast from 9 and would take the most of the height.
    train, heldout = (
        [point for point in points if point[1] <= 7.5]
        for points in read_curve(RESULTS / "two_hours-seed_1.csv")
    )
    highest = max(loss for _, loss in train)
    lowest = min(loss for _, loss in [*train, *heldout])
    last = train[-1][0]
    floor, ceiling = int(lowest * 2) / 2, (int(highest * 2) + 1) / 2

    def place(tokens: float, loss: float) -> tuple[float, float]:
        x = LEFT + (RIGHT - LEFT) * tokens / last
        return x, BOTTOM - (BOTTOM - TOP) * (loss - floor) / (ceiling - floor)

    drawing = Drawing(720, 396, "Loss of masked words against tokens, in two hours on two cores")
    drawing.line([(LEFT, 28), (LEFT + 34, 28)], color="blue", width=2.5)
    drawing.text(LEFT + 44, 33, "training", anchor="start")
    drawing.dot(LEFT + 152, 28, 5, fill="orange")
    drawing.text(LEFT + 166, 33, "held-out text", anchor="start")
    for half in range(int(floor * 2), int(ceiling * 2) + 1):
        _, y = place(0, half / 2)
        drawing.line([(LEFT, y), (RIGHT, y)], color="rule", width=1)
        drawing.text(LEFT - 12, y + 5, f"{half / 2:.1f}", color="soft", anchor="end")
    step = 10_000_000
    for number in range(int(last // step) + 1):
        x, _ = place(number * step, floor)
        drawing.text(x, BOTTOM + 24, f"{number * step // 1_000_000}", color="soft")
    drawing.line([place(*point) for point in train], color="blue", width=2)
    for point in heldout:
        drawing.dot(*place(*point), 5, fill="orange", stroke="paper")
    note = "million tokens (without padding)"
    drawing.text((LEFT + RIGHT) / 2, BOTTOM + 48, note, size=14, color="soft")
    return drawing.svg()
