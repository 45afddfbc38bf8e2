"""Sentences whose words have labels that the words give away, for tests of token classification."""

import json
import random

# Each word, and what it is the beginning or the inside of.
KINDS = {"bread": "FOOD", "soup": "FOOD", "cake": "FOOD", "cook": "MAN", "baker": "MAN"}
LABELS = ["O", "B-FOOD", "B-MAN", "I-FOOD", "I-MAN"]


def sentences(count, seed=0):
    """Lists of (word, label): "fresh bread" is one entity, two adjacent nouns are two."""
    rng = random.Random(seed)
    for _ in range(count):
        words = []
        for _ in range(rng.randint(1, 3)):
            words.append((rng.choice(["the", "was", "and", "."]), "O"))
            noun = rng.choice(list(KINDS))
            kind = KINDS[noun]
            if rng.random() < 0.4:
                words += [("old", f"B-{kind}"), (noun, f"I-{kind}")]
            else:
                words.append((noun, f"B-{kind}"))
        yield words


def write(path, rows, labeled=True):
    """In the form that the name of the file calls for, CoNLL's with a column that is not read."""
    rows = list(rows)
    if path.suffix == ".jsonl":
        keys = ("words", "labels") if labeled else ("words",)
        objects = [dict(zip(keys, zip(*row, strict=True), strict=False)) for row in rows]
        lines = [json.dumps(row) for row in objects]
    else:
        lines = ["-DOCSTART- -X- O", ""] if labeled else []
        for row in rows:
            lines += [f"{word} NN {label}" if labeled else word for word, label in row] + [""]
    path.write_text("\n".join(lines) + "\n")
    return path
