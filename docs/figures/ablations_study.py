"""Draws what single choices change: the study `experiments/ablations.json`."""

import json
import pathlib

from drawing import Drawing

from albert.experiments.statistics import compare_seeds

RESULTS = pathlib.Path(__file__).parents[2] / "experiments" / "results" / "ablations"
# The run that others are compared with, and their names. Losses of other vocabularies do not
# compare.
GROUPS = {
    "base": {
        "masks_40": "masks 40%",
        "masks_30": "masks 30%",
        "masks_20": "masks 20%",
        "masks_stored": "stored masks",
        "ngram_3": "masked n-grams of 1 to 3",
        "muon_batch_16": "batch 16, 4 times the steps",
        "adamw_batch_16": "AdamW, batch 16, 4 times the steps",
        "adamw_batch_64": "AdamW",
        "lamb_batch_64_rate_4e-3": "LAMB, rate 4e-3",
        "embedding_64": "E = 64",
        "embedding_32": "E = 32",
        "format_doc_sentences": "inputs of one document",
        "format_segment_pair": "pairs of segments",
        "format_sentence_pair": "pairs of sentences",
        "task_nsp": "pairs of segments, next sentence",
        "task_sop": "pairs of segments, sentence order",
        "average": "averaged weights",
    },
    "student_alone": {
        "student_copy": "teacher, start as a copy",
        "student_random": "teacher, random start",
        "student_without_teacher": "copy, without the teacher's loss",
        "student_without_masked_lm": "copy, without masked LM",
        "student_without_cosine": "copy, without cosine",
    },
}
# What the named rows of a group are compared with.
TITLES = {
    "base": "against base (all layers shared, E = H = 128, single masks of 15%, Muon, batch 64)",
    "student_alone": "3 layers: against the same model without a teacher",
}
LEFT, RIGHT, TOP, ROW = 282, 640, 56, 28


def read_losses() -> dict[str, dict[int, float]]:
    """Returns {run: {seed: held-out loss}}."""
    losses: dict[str, dict[int, float]] = {}
    for path in sorted(RESULTS.glob("*-seed_*.json")):
        name, _, seed = path.stem.rpartition("-seed_")
        record = json.loads(path.read_text(encoding="utf-8"))
        if "heldout" in record:
            losses.setdefault(name, {})[int(seed)] = record["heldout"]["loss"]
    return losses


def draw() -> str:
    """Returns the SVG."""
    losses = read_losses()
    groups = {
        base: {
            name: compare_seeds(losses[base], losses[name], minimize=True)
            for name in names
            if name in losses and base in losses
        }
        for base, names in GROUPS.items()
    }
    differences = [row.difference for rows in groups.values() for row in rows.values()]
    low, high = int(min(differences) * 5) / 5 - 0.2, int(max(differences) * 5) / 5 + 0.2

    def place(difference: float) -> float:
        """Returns the place on the axis; wider intervals are cut at its ends."""
        share = (difference - low) / (high - low)
        return LEFT + (RIGHT - LEFT) * min(max(share, 0), 1)

    height = TOP + sum(ROW * (len(rows) + 2) for rows in groups.values()) + 30
    drawing = Drawing(720, height, "What single choices change in the held-out loss")
    for fifth in range(round(low * 5), round(high * 5) + 1):
        x = place(fifth / 5)
        color = "soft" if fifth == 0 else "rule"
        drawing.line([(x, TOP - 16), (x, height - 44)], color=color, width=1)
        drawing.text(x, TOP - 24, f"{fifth / 5:+.1f}" if fifth else "0", size=13, color="soft")
    y = TOP
    for base, rows in groups.items():
        y += ROW
        drawing.text(16, y + 5, TITLES[base], anchor="start", size=14, color="soft", halo=True)
        for name in sorted(rows, key=lambda name: rows[name].difference):
            y += ROW
            row = rows[name]
            drawing.text(16, y + 5, GROUPS[base][name], anchor="start", size=14)
            color = {"a": "orange", "b": "green"}.get(row.better or "", "gray")
            if row.low is not None and row.high is not None:
                drawing.line([(place(row.low), y), (place(row.high), y)], color=color, width=2)
            drawing.dot(place(row.difference), y, 4, fill=color, stroke="paper")
            text = f"{row.difference:+.3f}"
            drawing.text(704, y + 5, text, size=13, color="soft", anchor="end")
        y += ROW
    note = "Lines are 95% intervals over seeds; gray: not distinguishable. Lower is better."
    drawing.text(16, height - 16, note, size=14, color="soft", anchor="start")
    return drawing.svg()
