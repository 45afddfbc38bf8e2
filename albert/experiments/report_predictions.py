"""Blocks of a report about what a run predicted: classes, probabilities, and single examples."""

import os
from collections.abc import Iterator, Sequence

import numpy as np

from albert.experiments import charts, predictions, report_cells
from albert.experiments.report_cells import Block
from albert.experiments.runs import Run
from albert.io import file_io
from albert.tasks import entities, metrics
from albert.tasks.outcomes import Outcome
from albert.tasks.squad.outcomes import NO_ANSWER
from albert.training import results

_MAX_WITH_FRACTIONS = 12  # classes of a confusion matrix that also shows fractions
_MAX_ACROSS = 70  # characters of names that fit side by side above a matrix
_NUM_CONFUSIONS = 10
_BEGINNINGS = ("B-", "S-", "U-")


# --- classes --------------------------------------------------------------------------------------


def classes_of_run(run: Run) -> Iterator[Block]:
    """Yields the scores of each class in the evaluation of the best checkpoint, if known."""
    yield from _classes([results.ClassCount(**row) for row in run.record.get("classes", ())])


def _classes(classes: Sequence[results.ClassCount]) -> Iterator[Block]:
    """Yields the scores of classes, the worst first."""
    rows = results.worst_first(classes)
    if not rows:
        return
    yield {
        "table": ["label", "precision", "recall", "F1", "support", "predicted", ""],
        "rows": [
            [row.name, *(report_cells.bar(getattr(row, name), (0, 1)) for name in entities.SCORES),
             row.labels, row.predictions, row.note]
            for row in rows
        ],
    }  # fmt: skip


def _confusion(rows: Sequence[Outcome]) -> Iterator[Block]:
    """Yields the confusion matrix, and of many classes the most frequent confusions."""
    labels, counts = predictions.count_labels(rows)
    right = sum(row.right is True for row in rows)
    has_fractions = len(labels) <= _MAX_WITH_FRACTIONS
    squares: list[tuple[str, list[report_cells.Square | None]]] = []
    for label, row in zip(labels, counts, strict=True):
        total = sum(row)
        squares.append((label, [
            report_cells.Square(
                f"{count / total:.0%}" if has_fractions else str(count), count / total,
                f"{label} was taken for {other} {count} of {total:,}",
                str(count) if has_fractions else "",
            ) if count else None
            for other, count in zip(labels, row, strict=True)
        ]))  # fmt: skip
    shown = "fraction of the row and count" if has_fractions else "counts"
    yield {
        "matrix": squares,
        "columns": labels,
        "corner": "label ↓ predicted →",
        "vertical": sum(map(len, labels)) > _MAX_ACROSS,
        "caption": f"Confusion matrix of {len(rows):,} examples, of which {right:,} are right: "
        f"{shown}",
    }
    if has_fractions:
        return
    wrong = [
        (count, label, other, count / sum(row))
        for label, row in zip(labels, counts, strict=True)
        for other, count in zip(labels, row, strict=True)
        if count and label != other
    ]
    if wrong:
        wrong.sort(key=lambda found: (-found[0], *found[1:3]))
        lines = [[*found[1:3], found[0], found[3]] for found in wrong[:_NUM_CONFUSIONS]]
        yield {"heading": "Most frequent confusions"}
        yield {"table": ["label", "predicted", "texts", "of the label"], "rows": lines}


# --- probabilities --------------------------------------------------------------------------------


def probabilities(run: Run) -> Iterator[Block]:
    """Yields how far the probabilities can be trusted, and where the model abstains."""
    found = run.record.get("calibration") or {}
    if promise := found.get("abstention"):
        text = f"{promise['text']}."
        yield {"warning": text} if promise["threshold"] is None else {"paragraph": text}
    if chosen := found.get("thresholds"):
        keys = ("name", "threshold", "support", "f1", "f1_cross_fitted")
        yield {"paragraph": f"{chosen['text']}."}
        yield {
            "table": ["label", "threshold", "support", "F1 at 0.5", "F1, cross-fitted"],
            "rows": [[row[key] for key in keys] for row in chosen["rows"]],
        }
    if not (temperature := found.get("temperature")):
        return
    yield {"paragraph": f"{temperature['text']}."}
    unit = "decisions" if temperature.get("per_text", 1) > 1 else "examples"
    sides = {"Before": temperature["before"], "After, cross-fitted": temperature["after"]}
    yield {
        "table": ["", "log loss", "Brier", "ECE", "from", "to", "by chance"],
        "rows": [
            [name, *(s[key] for key in ("log_loss", "brier", "ece", "ece_low", "ece_high")),
             s["ece_by_chance"]]
            for name, s in sides.items()
        ],
    }  # fmt: skip
    yield {
        "figures": [
            (name, charts.reliability(f"{name} calibration", side["bins"]))
            for name, side in sides.items()
        ]
    }
    yield {
        "note": "How often answers are right, by their probability, in bins of equal mass with "
        "intervals of 95%; on the line a probability says how often."
    }
    yield {
        "folded": f"{unit.capitalize()} of each bin",
        "table": ["bins", unit, "probability", "right", "from", "to"],
        "rows": [
            [name, *(row[k] for k in ("count", "confidence", "accuracy", "low", "high"))]
            for name, side in sides.items()
            for row in side["bins"]
        ],
    }


# --- single examples ------------------------------------------------------------------------------


def examples(run: Run) -> Iterator[Block]:
    """Yields the predictions next to the right answers, or why changed data has none for them."""
    path, entry = predictions.find_file(run), run.predicted
    if path is None or entry is None:
        return
    try:
        rows = predictions.read_outcomes(run, path)
    except file_io.InputError as error:
        warning = predictions.find_warning(run, path)
        if not warning:
            raise
        yield {"warning": f"{warning.partition(' Texts and')[0]} They do not fit: {error}"}
        return
    if not rows:
        return
    data = entry["path"]
    count = "1 example" if len(rows) == 1 else f"{len(rows):,} examples"
    yield {"paragraph": f"{os.path.basename(path)} of this run next to {data}: {count}."}
    if warning := predictions.find_warning(run, path):
        yield {"warning": warning}
    name = os.path.basename(data.rstrip("/"))
    if predictions.is_of_words(rows):
        yield from _sentences(rows, name)
    elif "f1" in rows[0].numbers:
        yield from _answers(rows, predictions.find_threshold(run), name)
    elif rows[0].probabilities:
        yield from _texts(run, rows, name)
    else:
        yield from _numbers(rows, name)


def _texts(run: Run, rows: Sequence[Outcome], name: str) -> Iterator[Block]:
    """Yields confusions, classes, the worst and the best examples of the data `name`."""
    if not predictions.has_label_sets(rows):  # Of several labels none is confused with another.
        yield from _confusion(rows)
    counts = predictions.count_classes(rows)
    known = [results.ClassCount(**row) for row in run.record.get("classes", ())]
    if results.worst_first(counts) != results.worst_first(known):  # else above, of the same data
        if remark := results.remark_on_classes(counts):
            yield {"warning": f"{remark[:1].upper()}{remark[1:]}."}
        yield from _classes(counts)
    header = ["text", "right", "predicted", "probability"]
    worst, best = predictions.worst_and_best_examples(rows)
    yield from _worst_and_best(f"examples of {name}", header, worst, best)


def _worst_and_best(
    what: str,
    header: Sequence[str],
    worst: Sequence[Sequence[object]],
    best: Sequence[Sequence[object]],
    above: Sequence[Block] = (),
) -> Iterator[Block]:
    """Yields tables of the worst and the best, with blocks above the first of them."""
    for title, rows in (("Worst", worst), ("Best", best)):
        if rows:
            yield {"heading": f"{title} {what}"}
            yield from above
            yield {"table": header, "rows": rows}
            above = ()


def _numbers(rows: Sequence[Outcome], name: str) -> Iterator[Block]:
    """Yields predicted against true numbers of the data `name`, and residuals."""
    labels, guesses = (
        np.array([getattr(row, side) for row in rows], float) for side in ("label", "prediction")
    )
    residuals = guesses - labels
    with np.errstate(over="ignore", invalid="ignore"):
        r2, error = (f(labels, guesses) for f in (metrics.r_squared, metrics.mean_absolute_error))
    pairs = [("R²", f"{r2:.4g}"), ("mean absolute error", f"{error:.4g}")]
    yield {"pairs": [*pairs, ("mean residual", f"{residuals.mean():+.4g}")]}
    caption = f"Predicted numbers against the labels of {name}; on the line they are the same"
    if len(rows) > charts.MAX_DOTS:
        caption += f"; thinned: {charts.MAX_DOTS:,} of {len(rows):,} are drawn"
    svg = charts.scatter("Predictions", list(labels), list(guesses), "label", "prediction")
    figures = [(caption, svg)]
    if len(rows) > 1:
        svg = charts.histogram("Residuals", list(residuals), "prediction minus label")
        figures.append(("Residuals: how often predictions are too low or too high", svg))
    yield {"figures": figures}
    worst, best = predictions.worst_and_best_examples(rows)
    header = ["text", "right", "predicted", ""]
    yield from _worst_and_best(f"examples of {name}", header, worst, best)


def _answers(rows: Sequence[Outcome], threshold: float | None, name: str) -> Iterator[Block]:
    """Yields the blocks of a SQuAD run: scores over the threshold, the worst and best answers.

    The threshold is of null odds, None: none is used. `name` is that of the data.
    """
    curve = predictions.threshold_curve(rows)
    if curve:
        svg = charts.threshold_curve(*curve, threshold)
        caption = (
            f"Scores on {name}, where questions whose null odds are below the threshold are "
            "answered: on the left none is, on the right all are"
        )
        if len(curve[0]) > charts.MAX_POINTS:
            caption += f"; thinned: {charts.MAX_POINTS} of {len(curve[0]):,} places are drawn"
        yield {"figures": [(caption, svg)]}
    header, *tables = predictions.worst_and_best_answers(rows)
    worst, best = (list(map(_mark_answers, table)) for table in tables)
    above = [Block(marked=report_cells.LEGEND)]
    if "null odds" in header:
        note = (
            "The probability is that of what was predicted: of no answer, or of there being an "
            "answer and of this text for it."
        )
        above.append(Block(note=note))
    yield from _worst_and_best(f"answers to {name}", header, worst, best, above)


def _mark_answers(line: Sequence[object]) -> list[object]:
    """Returns a row of `worst_and_best_answers` with both answers marked in their text."""
    question, text, right, predicted, *rest = line
    spans = {str(predicted): "wrong"}
    # A right answer that the prediction holds, or is held by, is not hidden by it.
    spans |= dict.fromkeys(str(right).split(" | "), "right")
    spans.pop(NO_ANSWER, None)
    return [question, report_cells.mark_spans(str(text), spans), right, predicted, *rest]


# --- words ----------------------------------------------------------------------------------------


def _sentences(rows: Sequence[Outcome], name: str) -> Iterator[Block]:
    """Yields the worst and the best sentences of the data `name`, with their words marked."""
    labels = {label for row in rows for label in _labels(row.label) + _labels(row.prediction)}
    marked = entities.mark_entities(labels)
    header, above = ["right words", "sentence"], [Block(marked=report_cells.LEGEND)]
    worst, best = (
        [
            [f"{row.numbers['right_words']:.0f} of {row.numbers['words']:.0f}",
             _mark_words(row, marked)]
            for row in chosen
        ]
        for chosen in predictions.worst_and_best_sentences(rows)
    )  # fmt: skip
    yield from _worst_and_best(f"sentences of {name}", header, worst, best, above)


def _labels(value: object) -> list[str]:
    """Returns the labels in a text, which spaces separate."""
    return str(value).split(" ")


def _mark_words(row: Outcome, has_entities: bool) -> report_cells.Marked:
    """Returns a sentence with wrong words marked, and with its entities if labels mark some.

    Neighbors with the same true and predicted type are marked as one.
    """
    words, true, found = (_labels(side) for side in (row.text, row.label, row.prediction))
    if len(words) != len(true) and not row.text.endswith("…"):
        return report_cells.Marked([report_cells.Part(row.text)])  # words with spaces
    parts: list[report_cells.Part] = []
    for word, right, guess in zip(words, true, found, strict=False):
        mark, note = _mark_of(right, guess, has_entities)
        begins = not has_entities or any(label[:2] in _BEGINNINGS for label in (right, guess))
        if parts and parts[-1][1:] == (mark, note) and not (mark and begins):
            parts[-1] = parts[-1]._replace(text=f"{parts[-1].text} {word}")
        else:
            parts.append(report_cells.Part(word, mark, note))
    return report_cells.Marked(parts, separator=" ")


def _mark_of(right: str, guess: str, has_entities: bool) -> tuple[str, str]:
    """Returns mark ("right", "wrong" or "") and note of a word, from its label and the guess."""
    if right == guess:
        is_entity = has_entities and right != entities.OUTSIDE
        return ("right", right[2:]) if is_entity else ("", "")
    if has_entities and right[2:] != guess[2:]:
        return "wrong", f"{guess[2:] or 'none'}, not {right[2:] or 'none'}"
    return "wrong", f"{guess}, not {right}"
