"""Draws the way from texts and a model to a server, and the one to a model of your own."""

from drawing import Drawing

WIDTH, HEIGHT, GAP = 212, 104, 26
LEFT, TOP, SECOND = 16, 18, 214
# The first row is the main job; the second makes a model to begin with.
STEPS = [
    ("A model", "albert_mini, yours, …", "comes with the package"),
    ("Fine-tuning", "run_classifier, …", "your texts, GLUE, SQuAD"),
    ("Export and serve", "export_serving, serve", "ONNX, LiteRT, int8, HTTP"),
    ("Raw text", "prepare_corpus", "cleaned, without duplicates"),
    ("Records", "create_pretraining_data", "after train_vocab"),
    ("Pre-training", "run_pretraining", "LAMB or AdamW, resumable"),
]


def _corner(step: int) -> tuple[float, float]:
    return LEFT + step % 3 * (WIDTH + GAP), SECOND if step >= 3 else TOP


def _step(drawing: Drawing, step: int) -> None:
    name, command, note = STEPS[step]
    x, y = _corner(step)
    color = "green" if step < 3 else "blue"
    drawing.box(x, y, WIDTH, HEIGHT, fill=f"{color}_area", stroke=color)
    middle = x + WIDTH / 2
    drawing.text(middle, y + 34, name, size=20, bold=True)
    drawing.text(middle, y + 61, command, size=14, mono=True)
    drawing.text(middle, y + 86, note, size=14, color="soft")
    if step % 3 < 2:
        start = x + WIDTH + 3
        drawing.line([(start, y + HEIGHT / 2), (start + GAP - 6, y + HEIGHT / 2)], arrow=True)


def draw() -> str:
    """Returns the SVG."""
    drawing = Drawing(720, 340, "From your texts to a served model")
    for step in range(len(STEPS)):
        _step(drawing, step)
    training, model = _corner(5)[0] + WIDTH / 2, LEFT + WIDTH / 2
    turn = (TOP + HEIGHT + SECOND) / 2 + 8
    drawing.line(
        [(training, SECOND - 3), (training, turn), (model, turn), (model, TOP + HEIGHT + 3)],
        arrow=True,
    )
    drawing.text(360, turn - 10, "only for a model of your own", size=16, bold=True)
    return drawing.svg()
