"""Draws one instance of pre-training with its features, and the four input formats."""

from drawing import Drawing

TOKENS = "[CLS] the cook [MASK] [MASK] . [SEP] it was [MASK] [SEP] <pad>".split()
TARGETS = {3: "made", 4: "soup", 9: "good"}
SECOND_TEXT, REAL = range(7, 11), range(11)
LEFT, CELL = 120, 49.2

# Parts of an instance: name (a sentence of document a or b, or a special token) and width.
SEP = ("", 12)
FORMATS = [
    (
        "segment_pair",
        "two texts of one or more sentences",
        [SEP, ("a1", 90), ("a2", 130), ("a3", 70), SEP, ("a4", 110), ("a5", 120), SEP],
    ),
    (
        "sentence_pair",
        "two sentences that follow each other",
        [SEP, ("a1", 90), SEP, ("a2", 130), SEP],
    ),
    (
        "full_sentences",
        "sentences until the next does not fit, across documents",
        [SEP, ("a1", 90), ("a2", 130), ("a3", 70), SEP, ("b1", 130), ("b2", 100), SEP],
    ),
    (
        "doc_sentences",
        "the same, but an instance ends with its document",
        [SEP, ("a1", 90), ("a2", 130), ("a3", 70), SEP],
    ),
]


def _row(drawing: Drawing, y: float, name: str, values: list[str]) -> None:
    drawing.text(LEFT - 8, y + 20, name, size=13, mono=True, anchor="end", color="soft")
    for place, value in enumerate(values):
        fill = "plain"
        if value.startswith(("[MASK", "made", "soup", "good")):
            fill = "orange_area"
        elif place in SECOND_TEXT:
            fill = "green_area"
        elif place in REAL:
            fill = "blue_area"
        if value:
            drawing.box(LEFT + place * CELL, y, CELL - 3, 30, fill=fill, radius=4)
            drawing.text(
                LEFT + (place + 0.5) * CELL - 1.5, y + 20, value, size=11 if len(value) > 4 else 13
            )


def _format(drawing: Drawing, y: float, name: str, note: str, parts: list[tuple[str, int]]) -> None:
    drawing.text(16, y, name, size=16, mono=True, bold=True, anchor="start")
    drawing.text(172, y, note, size=15, color="soft", anchor="start")
    x, end, first_text = 16.0, 704, True
    for number, (part, width) in enumerate(parts):
        last = number == len(parts) - 1
        if not part:
            drawing.box(x, y + 12, width - 2, 32, fill="gray", stroke="", radius=2)
            first_text = first_text and number == 0
        else:
            second = name.endswith("pair") and not first_text
            fill = "green_area" if second else "orange_area" if part[0] == "b" else "blue_area"
            drawing.box(x, y + 12, width - 2, 32, fill=fill, radius=3)
            drawing.text(x + width / 2 - 1, y + 33, part, size=15)
        x += width
        if last and end - x > 60:
            drawing.box(x, y + 12, end - x, 32, fill="paper", radius=3, dashed=True)
            drawing.text((x + end) / 2, y + 33, "padding", size=14, color="soft")


def draw() -> str:
    """Returns the SVG."""
    drawing = Drawing(720, 588, "An instance of pre-training and the four input formats")
    drawing.text(16, 34, "One instance", size=18, bold=True, anchor="start")
    _row(drawing, 50, "input_ids", TOKENS)
    segments = ["1" if place in SECOND_TEXT else "0" for place in range(len(TOKENS))]
    _row(drawing, 84, "segment_ids", segments)
    _row(drawing, 118, "input_mask", ["1" if p in REAL else "0" for p in range(len(TOKENS))])
    _row(drawing, 152, "targets", [TARGETS.get(place, "") for place in range(len(TOKENS))])
    drawing.text(
        16,
        208,
        "A masked span is one to three words. Label 0: the second text follows the first.",
        size=14.5,
        color="soft",
        anchor="start",
    )
    drawing.text(16, 254, "--sequence_format", size=17, bold=True, anchor="start", mono=True)
    for number, (name, note, parts) in enumerate(FORMATS):
        _format(drawing, 286 + number * 68, name, note, parts)
    drawing.text(
        16,
        570,
        "a, b: documents. Green: second text. Gray bars: [CLS] and [SEP].",
        size=14.5,
        color="soft",
        anchor="start",
    )
    return drawing.svg()
