"""Draws the way from raw text to a served model."""

from drawing import Drawing

WIDTH, HEIGHT, GAP = 212, 104, 26
LEFT, TOP, SECOND = 16, 18, 184
STEPS = [
    ("Raw text", "prepare_corpus", "cleaned, without duplicates"),
    ("Vocabulary", "train_vocab", "SentencePiece pieces"),
    ("Records", "create_pretraining_data", "masks, sentence order"),
    ("Pre-training", "run_pretraining", "LAMB or AdamW, resumable"),
    ("Fine-tuning", "run_classifier, …", "GLUE, SQuAD, your data"),
    ("Export and serve", "export_serving, serve", "ONNX, LiteRT, int8, HTTP"),
]


def _corner(step: int) -> tuple[float, float]:
    return LEFT + step % 3 * (WIDTH + GAP), SECOND if step >= 3 else TOP


def _step(drawing: Drawing, step: int) -> None:
    name, command, note = STEPS[step]
    x, y = _corner(step)
    color = "blue" if step < 4 else "green"
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
    drawing = Drawing(720, 382, "From raw text to a served model")
    for step in range(len(STEPS)):
        _step(drawing, step)
    records, training = _corner(2)[0] + WIDTH / 2, LEFT + WIDTH / 2
    turn = (TOP + HEIGHT + SECOND) / 2
    drawing.line(
        [(records, TOP + HEIGHT + 3), (records, turn), (training, turn), (training, SECOND - 3)],
        arrow=True,
    )
    x, y = _corner(4)[0], SECOND + HEIGHT
    drawing.box(x - 60, y + 32, WIDTH + 120, 46, fill="orange_area", stroke="orange")
    drawing.text(x + WIDTH / 2, y + 61, "Start here with a published model", size=16, bold=True)
    drawing.line([(x + WIDTH / 2, y + 32), (x + WIDTH / 2, y + 3)], color="orange", arrow=True)
    return drawing.svg()
