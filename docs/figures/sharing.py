"""Draws which parameters the layers of BERT and ALBERT share, with the numbers of parameters."""

import json
import pathlib
from typing import NamedTuple

from drawing import Drawing

SIZES = json.loads(
    (pathlib.Path(__file__).parents[2] / "albert/configs/albert_base_v2.json").read_text("utf-8")
)
LAYERS = SIZES["num_hidden_layers"]
SHOWN = [1, LAYERS // 2, LAYERS // 2 + 1, LAYERS]  # both ends, and where the second group begins
WIDTH, HEIGHT, ROW = 222, 240, 30


class Plan(NamedTuple):
    """A plan of sharing: numbers of parameter sets of both parts of a layer."""

    name: str
    setting: str
    attention_sets: int
    ffn_sets: int
    factorized: bool = True  # embeddings of size E, mapped to H


PLANS = [
    Plan("ALBERT", "all layers share", 1, 1),
    Plan("2 groups", "num_hidden_groups: 2", 2, 2),
    Plan("BERT", "nothing shared, E = H", LAYERS, LAYERS, factorized=False),
    Plan("Attention shared", 'share: "attention"', 1, LAYERS),
    Plan("FFN shared", 'share: "ffn"', LAYERS, 1),
    Plan("Nothing shared", 'share: "none"', LAYERS, LAYERS),
]


def _parameters(plan: Plan) -> int:
    """Counts the encoder's parameters: embeddings, layers and pooler."""
    hidden, inner = SIZES["hidden_size"], SIZES["intermediate_size"]
    size = SIZES["embedding_size"] if plan.factorized else hidden
    tables = SIZES["vocab_size"] + SIZES["max_position_embeddings"] + SIZES["type_vocab_size"]
    dense, norm = hidden * (hidden + 1), 2 * hidden
    attention = 4 * dense + norm
    ffn = 2 * hidden * inner + inner + hidden + norm
    embeddings = tables * size + 2 * size + (hidden * (size + 1) if plan.factorized else 0)
    return embeddings + plan.attention_sets * attention + plan.ffn_sets * ffn + dense


def _part(drawing: Drawing, x: float, y: float, name: str, sets: int, layer: int) -> None:
    """Draws a layer's part, colored and numbered by the set of parameters that it uses."""
    used = (layer - 1) * sets // LAYERS
    color = "blue" if sets == 1 else ("blue", "orange")[used] if sets == 2 else "gray"
    fill = "plain" if color == "gray" else f"{color}_area"
    drawing.box(x, y, 94, ROW - 4, fill=fill, stroke=color, radius=4)
    label = name if sets == 1 else f"{name} {used + 1}"
    drawing.text(x + 47, y + 18, label, size=13)


def _panel(drawing: Drawing, plan: Plan, left: float, top: float) -> None:
    middle = left + WIDTH / 2
    drawing.text(middle, top + 20, plan.name, size=18, bold=True)
    drawing.text(middle, top + 41, plan.setting, size=13.5, mono=":" in plan.setting, color="soft")
    for row, layer in enumerate(reversed(SHOWN)):
        y = top + 52 + row * ROW
        drawing.text(left + 20, y + 18, str(layer), size=13, color="soft", anchor="end")
        _part(drawing, left + 26, y, "attention", plan.attention_sets, layer)
        _part(drawing, left + 124, y, "FFN", plan.ffn_sets, layer)
    y = top + 52 + len(SHOWN) * ROW
    hidden, size = SIZES["hidden_size"], SIZES["embedding_size"]
    drawing.box(left + 26, y, 192, ROW - 4, fill="green_area", stroke="green", radius=4)
    shape = f"V × {size}, {size} × {hidden}" if plan.factorized else f"V × {hidden}"
    drawing.text(left + 122, y + 18, shape, size=13.5)
    drawing.text(middle, y + 50, f"{_parameters(plan) / 1e6:.1f} million", size=17, bold=True)


def draw() -> str:
    """Returns the SVG."""
    drawing = Drawing(720, 548, "Parameters that layers share in BERT and ALBERT")
    for number, plan in enumerate(PLANS):
        _panel(drawing, plan, 14 + number % 3 * 236, 14 + number // 3 * (HEIGHT + 14))
    first, second, third, last = SHOWN
    drawing.text(
        360,
        536,
        f"Base size, layers {first}, {second}, {third} and {last} of {LAYERS}. "
        "Equal names: the same parameters. Green: embeddings.",
        size=14,
        color="soft",
    )
    return drawing.svg()
