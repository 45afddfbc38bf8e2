"""Draws what sharing layers costs and saves: the study `experiments/sharing.json`."""

import json
import pathlib
from statistics import mean
from typing import Any

from drawing import Drawing

from albert.experiments.statistics import mean_interval

RESULTS = pathlib.Path(__file__).parents[2] / "experiments" / "results" / "sharing"
NAMES = {
    "none-words": "nothing shared (BERT)",
    "ffn-words": "feed-forward layers shared",
    "attention-words": "attention shared",
    "three_groups-words": "three groups of layers",
    "two_groups-words": "two groups of layers",
    "every_second-words": "every second layer",
    "layer_scales-words": "all shared, scales per layer",
    "all-words": "all shared (ALBERT)",
}
LOSS_LEFT, LOSS_RIGHT = 262, 500
# Left end, name, unit and format of each column of bars.
BARS = (
    (528, "parameters", 1e6, "{:.1f}M"),
    (644, "s per step", 1, "{:.2f}"),
    (752, "GiB", 2**30, "{:.2f}"),
)
BAR_WIDTH, TOP, ROW = 48, 74, 40
_MIN_SEEDS = 3  # of a row with an interval; that of two seeds is wider than the drawing


def read() -> dict[str, dict[str, Any]]:
    """Returns the losses, parameters, seconds per step and bytes of each run by its name.

    All but the losses are those of the first seed: other seeds may be from another machine.
    """
    runs: dict[str, dict[str, Any]] = {}
    for path in sorted(RESULTS.glob("*-words-seed_*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        if "heldout" not in record:
            continue
        cost = record["pretraining"]
        first = {
            "loss": [],
            "parameters": cost["parameters"]["total"],
            "s per step": cost["seconds"] / cost["steps"],
            "GiB": cost["peak_memory"],
        }
        run = runs.setdefault(path.stem.rpartition("-seed_")[0], first)
        run["loss"].append(record["heldout"]["loss"])
    return runs


def draw() -> str:
    """Returns the SVG."""
    runs = read()
    order = sorted(runs, key=lambda name: mean(runs[name]["loss"]))
    intervals = {
        name: mean_interval(runs[name]["loss"])
        for name in order
        if len(runs[name]["loss"]) >= _MIN_SEEDS
    }
    ends = [loss for run in runs.values() for loss in run["loss"]]
    ends += [end for interval in intervals.values()
             for end in (interval.low, interval.high) if end is not None]  # fmt: skip
    low, high = int(min(ends) * 10) / 10, (int(max(ends) * 10) + 1) / 10

    def place(loss: float) -> float:
        return LOSS_LEFT + (LOSS_RIGHT - LOSS_LEFT) * (loss - low) / (high - low)

    bottom = TOP + ROW * len(order)
    drawing = Drawing(840, bottom + 44, "Held-out loss, parameters, time and memory of sharing")
    drawing.text((LOSS_LEFT + LOSS_RIGHT) / 2, 30, "held-out loss of each seed", bold=True)
    for tick in range(round(low * 10), round(high * 10) + 1):
        x = place(tick / 10)
        drawing.line([(x, TOP - 16), (x, bottom - 12)], color="rule", width=1)
        drawing.text(x, TOP - 22, f"{tick / 10:.1f}", size=13, color="soft")
    for left, name, *_ in BARS:
        drawing.text(left, 30, name, anchor="start", bold=True)
    for number, name in enumerate(order):
        y = TOP + ROW * number + 6
        drawing.text(16, y + 5, NAMES[name], anchor="start")
        interval = intervals.get(name)
        if interval and interval.low is not None and interval.high is not None:
            drawing.line(
                [(place(interval.low), y), (place(interval.high), y)], color="blue", width=2
            )
        for loss in runs[name]["loss"]:
            drawing.dot(place(loss), y, 4, fill="blue", stroke="paper")
        for left, column, unit, form in BARS:
            value = runs[name][column]
            width = BAR_WIDTH * value / max(run[column] for run in runs.values())
            drawing.box(left, y - 8, width, 16, fill="orange", stroke="", radius=3)
            text = form.format(value / unit)
            drawing.text(left + BAR_WIDTH + 4, y + 5, text, size=13, color="soft", anchor="start")
    note = "Lines are 95% intervals of three seeds. Words and machine: experiments/REPORT.md"
    drawing.text(16, bottom + 26, note, size=14, color="soft", anchor="start")
    return drawing.svg()
