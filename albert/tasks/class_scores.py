"""Scores of a classifier per class and over classes, with the definitions of scikit-learn.

A score whose denominator is 0 is 0. Means over classes are over those that occur in the labels or
in the predictions.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from albert.training import results

AVERAGES = (
    *("macro_f1", "macro_precision", "macro_recall", "balanced_accuracy"),
    *("weighted_f1", "weighted_precision", "weighted_recall"),
)
RANKINGS = ("roc_auc", "average_precision")  # scores of two classes by their probabilities
_OF_A_CLASS = ("f1", "precision", "recall")


def average_names(labels: Sequence[str]) -> tuple[str, ...]:
    """Returns the names of the scores over all classes with these labels."""
    return (*AVERAGES, *(RANKINGS if len(labels) == 2 else ()))


def names_by_class(labels: Sequence[str]) -> tuple[str, ...]:
    """Returns the names of the scores of each of these labels, such as ``f1_<label>``."""
    return tuple(f"{score}_{label}" for label in labels for score in _OF_A_CLASS)


def names_of_support(labels: Sequence[str]) -> tuple[str, ...]:
    """Returns the names of the numbers of examples of single classes with these labels."""
    return tuple(f"support_{label}" for label in labels)


def add_to_form(
    form: results.ResultsFormat, labels: Sequence[str], in_file: bool
) -> results.ResultsFormat:
    """Returns the format of results with the scores of classes.

    Args:
      in_file: whether ``eval_results.txt`` has them, which the reference does not write.
    """
    by_class = (*names_by_class(labels), *names_of_support(labels))
    return form._replace(added=average_names(labels), by_class=by_class, writes_added=in_file)


def measure(counts: Sequence[results.ClassCount]) -> dict[str, float]:
    """Returns the scores of classes by name: `AVERAGES`, ``f1_<label>`` …, ``support_<label>``."""
    scores: dict[str, float] = {f"support_{row.name}": row.labels for row in counts}
    for row in counts:
        scores |= {f"{score}_{row.name}": getattr(row, score) for score in _OF_A_CLASS}
    rows = [row for row in counts if row.labels or row.predictions]
    support = [row.labels for row in rows]
    for score in _OF_A_CLASS:
        values = [getattr(row, score) for row in rows]
        scores[f"macro_{score}"] = float(np.mean(values))
        scores[f"weighted_{score}"] = float(np.average(values, weights=support))
    scores["balanced_accuracy"] = float(np.mean([row.recall for row in rows if row.labels]))
    return scores


def constant_answer(counts: Sequence[results.ClassCount], positive: int = 1) -> dict[str, float]:
    """Returns {name: score of its best constant answer} of `measure`; of two classes `RANKINGS`.

    There is none for the recall of a class: a constant answer has the highest, 1.

    Args:
      positive: id of the class, of two, whose probability ranks the examples.
    """
    total = sum(row.labels for row in counts)
    constant = [row._replace(predictions=total, right=row.labels) for row in counts]
    # The most frequent class is the best answer for means, a class itself for its own scores.
    best = max(constant, key=lambda row: row.labels)
    scores = measure(
        [row if row is best else row._replace(predictions=0, right=0) for row in constant]
    )
    for row in constant:
        scores |= {f"{score}_{row.name}": getattr(row, score) for score in _OF_A_CLASS}
        del scores[f"recall_{row.name}"]
    if len(counts) == 2:
        is_defined = all(row.labels for row in counts)
        values = (0.5, counts[positive].labels / total) if is_defined else (math.nan, math.nan)
        scores |= dict(zip(RANKINGS, values, strict=True))
    return scores


def rank(is_positive: np.ndarray, probabilities: np.ndarray) -> Mapping[str, float]:
    """Computes ROC AUC and average precision; NaN unless both classes occur.

    Args:
      is_positive: bool [B].
      probabilities: [B], probability of the positive class; equal ones are one threshold.

    Returns:
      {name in `RANKINGS`: score}.
    """
    positives = np.count_nonzero(is_positive)
    negatives = len(is_positive) - positives
    if not (positives and negatives):
        return dict.fromkeys(RANKINGS, math.nan)
    order = np.argsort(-probabilities, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(probabilities[order])), len(order) - 1)
    true = np.cumsum(is_positive[order], dtype=np.int64)[ends]
    # Both begin at 0, above the highest threshold.
    recall = np.append(0, true) / positives
    false_rate = np.append(0, 1 + ends - true) / negatives
    precision = true / (1 + ends)
    area = np.sum(np.diff(false_rate) * (recall[1:] + recall[:-1]) / 2)
    values = area, np.sum(np.diff(recall) * precision)
    return dict(zip(RANKINGS, map(float, values), strict=True))
