"""Named entities in the labels of words, and their scores.

Letters in shapes: W words of a sentence.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from albert.tasks import metrics
from albert.training import results

SCORES = ("precision", "recall", "f1")
OUTSIDE = "O"
_FORM = re.compile(r"[BIESLUM]-.+", re.S)
_BEGIN, _END = "BSU", "ESLU"


class Entity(NamedTuple):
    """An entity of a type: words `start` to `end` (exclusive) of a sentence."""

    kind: str
    start: int
    end: int


def mark_entities(labels: Iterable[str]) -> bool:
    """Returns whether labels mark entities: all are O or like "B-PER", and one is not O."""
    marks = [label for label in labels if label != OUTSIDE]
    return bool(marks) and all(map(_FORM.fullmatch, marks))


def find(labels: Sequence[str]) -> list[Entity]:
    """Finds the entities of a sentence, in order, by the labels of its words, which mark them."""
    entities: list[Entity] = []
    before = None  # letter and type of the previous label; None for O
    for place, label in enumerate(labels):
        if label == OUTSIDE:
            before = None
            continue
        letter, _, kind = label.partition("-")
        begins = letter in _BEGIN or before is None or before[0] in _END or before[1] != kind
        start = place if begins else entities.pop().start
        entities.append(Entity(kind, start, place + 1))
        before = letter, kind
    return entities


class Counts(NamedTuple):
    """Numbers of correct, predicted and true entities."""

    right: int
    predicted: int
    true: int


def score_counts(
    right: npt.NDArray, predicted: npt.NDArray, true: npt.NDArray
) -> Mapping[str, npt.NDArray]:
    """Computes precision, recall and F1 of entities by name; NaN where none is true.

    The arguments are numbers [...] of correct, predicted and labeled entities.
    """
    is_defined = true > 0
    values = (
        metrics.divide(right, predicted, is_defined),
        metrics.divide(right, true, is_defined),
        metrics.f1_of_counts(right, predicted, true),
    )
    return dict(zip(SCORES, values, strict=True))


def count(
    labels: Sequence[Sequence[str]], predictions: Sequence[Sequence[str]]
) -> tuple[tuple[results.ClassCount, ...], Counts]:
    """Counts the entities in labels and predictions.

    Args:
      labels, predictions: true and predicted labels [W] of each sentence.

    Returns:
      (counts of each type, counts of all entities), the types in sorted order.
    """
    true, predicted = (
        {(number, entity) for number, row in enumerate(rows) for entity in find(row)}
        for rows in (labels, predictions)
    )
    right = true & predicted
    by_kind = tuple(
        results.ClassCount(
            kind, *(sum(x.kind == kind for _, x in group) for group in (true, predicted, right))
        )
        for kind in sorted({entity.kind for _, entity in true | predicted})
    )
    return by_kind, Counts(len(right), len(predicted), len(true))


def scores(
    labels: Sequence[Sequence[str]], predictions: Sequence[Sequence[str]]
) -> dict[str, float]:
    """Scores the predictions for several sentences.

    Args:
      labels, predictions: labels [W] of each sentence.

    Returns:
      ``precision``, ``recall`` and ``f1`` over all entities, and of each type as
      ``precision_<type>`` and so on. An entity is correct if its words and its type are. Without
      entities in the labels the scores over all are undefined: NaN.
    """
    by_kind, total = count(labels, predictions)
    result = {name: float(value) for name, value in score_counts(*map(np.asarray, total)).items()}
    for row in by_kind:
        result |= {f"{name}_{row.name}": getattr(row, name) for name in SCORES}
    return result


def accuracy(labels: Sequence[Sequence[str]], predictions: Sequence[Sequence[str]]) -> float:
    """Returns the fraction of words with the correct label, from the labels of each sentence."""
    rows = zip(labels, predictions, strict=True)
    return float(np.mean([a == b for pair in rows for a, b in zip(*pair, strict=True)]))
