"""Scores of several labels per text, with the definitions of scikit-learn.

A score whose denominator is 0 is 0; means over labels are over all of them. If not stated
otherwise, labels and predictions are [B, K], 1 for labels of the text, probabilities [B, K], and
names those of the K labels by id.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from albert.tasks import class_scores
from albert.training import results

AVERAGES = (
    *("micro_f1", "micro_precision", "micro_recall"),
    *("macro_f1", "macro_precision", "macro_recall"),
    *("weighted_f1", "weighted_precision", "weighted_recall"),
    *("samples_f1", "subset_accuracy", "hamming_loss", "macro_average_precision"),
)
_OF_A_LABEL = ("f1", "precision", "recall")
_PRECISION = "average_precision"


def names_by_label(labels: Sequence[str]) -> tuple[str, ...]:
    """Returns the names of the scores of single labels, such as ``f1_<label>``."""
    return tuple(f"{score}_{label}" for label in labels for score in (*_OF_A_LABEL, _PRECISION))


def results_form(labels: Sequence[str]) -> results.ResultsFormat:
    """Returns the format of the results of texts with any of these labels."""
    by_class = (*names_by_label(labels), *class_scores.names_of_support(labels))
    return results.SHORT._replace(added=AVERAGES, by_class=by_class)


def count(
    names: Sequence[str], labels: np.ndarray, predictions: np.ndarray
) -> tuple[results.ClassCount, ...]:
    """Counts the texts of each label."""
    labels, predictions = labels.astype(bool), predictions.astype(bool)
    counts = [side.sum(axis=0).tolist() for side in (labels, predictions, labels & predictions)]
    return tuple(results.ClassCount(*row) for row in zip(names, *counts, strict=True))


def score_counts(counts: Sequence[results.ClassCount]) -> dict[str, float]:
    """Returns ``f1_<label>`` …, ``support_<label>`` and ``micro_f1``, ``macro_f1`` … by name."""
    scores: dict[str, float] = {f"support_{row.name}": row.labels for row in counts}
    for row in counts:
        scores |= {f"{score}_{row.name}": getattr(row, score) for score in _OF_A_LABEL}
    support = np.array([row.labels for row in counts])
    labels, predictions, right = np.array([row[1:] for row in counts]).sum(axis=0).tolist()
    whole = results.ClassCount("", labels, predictions, right)
    for score in _OF_A_LABEL:
        values = np.array([getattr(row, score) for row in counts])
        scores[f"micro_{score}"] = getattr(whole, score)
        scores[f"macro_{score}"] = float(np.mean(values))
        scores[f"weighted_{score}"] = float(values @ support / max(support.sum(), 1))
    return scores


def score_sets(labels: np.ndarray, predictions: np.ndarray) -> dict[str, float]:
    """Computes ``samples_f1``, ``subset_accuracy`` and ``hamming_loss`` of sets of labels."""
    labels, predictions = labels.astype(bool), predictions.astype(bool)
    both = np.count_nonzero(labels & predictions, axis=1)
    sizes = np.count_nonzero(labels, axis=1) + np.count_nonzero(predictions, axis=1)
    return {
        "samples_f1": float(np.mean(2 * both / np.maximum(sizes, 1))),
        "subset_accuracy": float(np.mean((labels == predictions).all(axis=1))),
        "hamming_loss": float(np.mean(labels != predictions)),
    }


def average_precisions(labels: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Returns the average precision of each label [K]: 0 for labels that do not occur, 1 for those
    of all texts.
    """
    found = []
    for is_positive, column in zip(labels.T.astype(bool), probabilities.T, strict=True):
        is_constant = is_positive.all() or not is_positive.any()
        ranked = None if is_constant else class_scores.rank(is_positive, column)
        found.append(ranked[_PRECISION] if ranked else float(is_positive[0]))
    return np.array(found)


def measure(
    names: Sequence[str], labels: np.ndarray, predictions: np.ndarray, probabilities: np.ndarray
) -> dict[str, float]:
    """Computes all scores by name: `AVERAGES`, `names_by_label` and ``support_<label>``."""
    precisions = average_precisions(labels, probabilities)
    return {
        **score_counts(count(names, labels, predictions)),
        **score_sets(labels, predictions),
        **_named(names, precisions),
    }


def _named(names: Sequence[str], precisions: np.ndarray) -> Mapping[str, float]:
    """Returns ``average_precision_<label>`` of each label, and ``macro_average_precision``."""
    values = zip(names, precisions.tolist(), strict=True)
    return {
        "macro_average_precision": float(np.mean(precisions)),
        **{f"{_PRECISION}_{name}": value for name, value in values},
    }


def constant_answer(names: Sequence[str], labels: np.ndarray) -> dict[str, float]:
    """Returns the scores of `measure`, each of its best constant answer.

    For scores of labels and their means, all texts have a label or none has it; there is none for
    recall, which is then 1. For the other scores all texts have the most frequent set of labels.
    """
    sets, counts = np.unique(labels, axis=0, return_counts=True)
    frequent = np.broadcast_to(sets[np.argmax(counts)], labels.shape)
    by_label = score_counts(count(names, labels, np.ones_like(labels)))
    by_set = score_counts(count(names, labels, frequent)) | score_sets(labels, frequent)
    micro = {name: value for name, value in by_set.items() if name.startswith("micro_")}
    sets_only = {name: value for name, value in by_set.items() if name not in by_label}
    recalls = {"macro_recall", "weighted_recall", *(f"recall_{name}" for name in names)}
    for name in recalls:
        del by_label[name]
    least = np.minimum(labels.mean(axis=0), 1 - labels.mean(axis=0))
    return {
        **by_label, **micro, **sets_only, "hamming_loss": float(least.mean()),
        **_named(names, labels.mean(axis=0)),
    }  # fmt: skip


def constant_loss(labels: np.ndarray) -> float:
    """Computes the mean binary cross-entropy of labels [B, K], 0 or 1, by their frequencies."""
    p = labels.mean(axis=0, dtype=np.float64)
    terms = [-x * np.log(np.where(x > 0, x, 1.0)) for x in (p, 1 - p)]
    return float(np.mean(sum(terms)))
