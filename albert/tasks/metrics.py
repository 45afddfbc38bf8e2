"""Scores of predictions against labels.

A score that is the same for any predictions, because all labels are equal, is NaN: undefined. The
functions of counts and moments decide this, for training and for bootstraps over examples alike.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from albert.tasks import class_scores
from albert.text import long_texts
from albert.training import contracts, results

IdsOrNumbers = Sequence[Any] | np.ndarray  # [B]: class ids, or the numbers of a regression
NamedScore = tuple[str, Callable[[IdsOrNumbers, IdsOrNumbers], float]]  # key and function
_NO_SPREAD = 1e-12  # variance over the mean square, up to which numbers differ by rounding only


# --- of counts or means over examples [...] -------------------------------------------------------


def divide(
    part: npt.NDArray, whole: npt.NDArray, is_defined: npt.NDArray | bool = True
) -> npt.NDArray:
    """Returns quotients [...]; 0 where the divisor is 0, and NaN where they are not defined.

    Args:
      is_defined: bool [...], where quotients are defined; True: everywhere.
    """
    quotients = np.divide(part, whole, out=np.zeros(np.shape(whole)), where=whole > 0)
    return np.where(is_defined, quotients, math.nan)


def f1_of_counts(right: npt.NDArray, predicted: npt.NDArray, true: npt.NDArray) -> npt.NDArray:
    """Computes the F1 [...] of a class from its correct predictions, predictions and labels.

    It is NaN if the class is never true.
    """
    return divide(2 * right, predicted + true, true > 0)


def matthews_of_counts(table: npt.NDArray) -> npt.NDArray:
    """Computes the Matthews correlation [...] (Gorodkin 2004); NaN if one class only is true.

    Args:
      table: [..., K, K] numbers of examples, by true class and predicted class.
    """
    true, predicted = table.sum(axis=-1), table.sum(axis=-2)
    total = true.sum(axis=-1)
    covariance = np.trace(table, axis1=-2, axis2=-1) * total - (true * predicted).sum(axis=-1)
    spread = [
        np.where((side > 0).sum(axis=-1) > 1, total**2 - (side**2).sum(axis=-1), 0)
        for side in (true, predicted)
    ]
    return divide(covariance, np.sqrt(spread[0] * spread[1]), spread[0] > 0)


def pearson_of_moments(moments: npt.NDArray) -> npt.NDArray:
    """Computes the Pearson correlation [...]; NaN for constant labels.

    Args:
      moments: [..., 5], means of x, y, xx, yy and xy of labels x and predictions y. Both should
        have means near 0, as digits are lost otherwise.
    """
    x, y, xx, yy, xy = np.moveaxis(moments, -1, 0)
    spread = [np.where(v > _NO_SPREAD * s, v, 0) for v, s in ((xx - x * x, xx), (yy - y * y, yy))]
    return divide(xy - x * y, np.sqrt(spread[0] * spread[1]), spread[0] > 0)


# --- of labels and predictions [B] ----------------------------------------------------------------


def _pair(labels: IdsOrNumbers, predictions: IdsOrNumbers) -> tuple[np.ndarray, np.ndarray]:
    """Returns labels and predictions as arrays [B]; raises `ValueError` for other shapes."""
    labels, predictions = np.asarray(labels), np.asarray(predictions)
    if labels.ndim != 1 or labels.shape != predictions.shape or not labels.size:
        raise ValueError(
            "expected as many predictions as labels, at least one; got predictions of shape "
            f"{predictions.shape} and labels of shape {labels.shape}"
        )
    return labels, predictions


def accuracy(labels: IdsOrNumbers, predictions: IdsOrNumbers) -> float:
    """Returns the fraction of predictions [B], ids or numbers, that equal their label; B > 0."""
    labels, predictions = _pair(labels, predictions)
    return float(np.mean(labels == predictions))


def matthews_correlation(labels: IdsOrNumbers, predictions: IdsOrNumbers) -> float:
    """Computes the Matthews correlation of two or more classes (Gorodkin 2004).

    It is 0 if all predictions are the same class, and NaN if all labels are.
    """
    labels, predictions = _pair(labels, predictions)
    names, codes = np.unique(np.concatenate([labels, predictions]), return_inverse=True)
    table = np.zeros([len(names), len(names)])
    np.add.at(table, (codes[: len(labels)], codes[len(labels) :]), 1)
    return float(matthews_of_counts(table))


def f1(labels: IdsOrNumbers, predictions: IdsOrNumbers, positive: int = 1) -> float:
    """Computes the F1 of class `positive`; 0 without true positives, NaN without such labels."""
    true, predicted = (values == positive for values in _pair(labels, predictions))
    return float(f1_of_counts(*(np.sum(side) for side in (true & predicted, predicted, true))))


def pearson(labels: IdsOrNumbers, predictions: IdsOrNumbers) -> float:
    """Computes the Pearson correlation; 0 for constant predictions, NaN for constant labels."""
    x, y = (values.astype(np.float64) for values in _pair(labels, predictions))
    # Tested on the values: rounding of the mean can give a constant a spread above 0.
    if np.ptp(x) == 0:
        return math.nan
    if np.ptp(y) == 0:
        return 0.0
    x, y = x - x.mean(), y - y.mean()
    # Scaled first, so that squares of very small or large numbers stay in range.
    x, y = x / np.abs(x).max(), y / np.abs(y).max()
    return float(np.clip(x @ y / (np.linalg.norm(x) * np.linalg.norm(y)), -1.0, 1.0))


def _ranks(values: np.ndarray) -> np.ndarray:
    """Returns the ranks of values [N], from 1; equal values share the mean of their ranks."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[places]


def spearman(labels: IdsOrNumbers, predictions: IdsOrNumbers) -> float:
    """Computes the Spearman rank correlation, with mean ranks for ties.

    For constant labels or predictions see `pearson`.
    """
    return pearson(*map(_ranks, _pair(labels, predictions)))


def mean_squared_error(labels: IdsOrNumbers, predictions: IdsOrNumbers) -> float:
    """Computes the mean of the squared differences of numbers [B]."""
    labels, predictions = (np.asarray(x, np.float64) for x in _pair(labels, predictions))
    return float(np.mean(np.square(labels - predictions)))


def mean_absolute_error(labels: IdsOrNumbers, predictions: IdsOrNumbers) -> float:
    """Computes the mean of the absolute differences of numbers [B]."""
    labels, predictions = (np.asarray(x, np.float64) for x in _pair(labels, predictions))
    return float(np.mean(np.abs(labels - predictions)))


def r_squared(labels: IdsOrNumbers, predictions: IdsOrNumbers) -> float:
    """Computes the coefficient of determination: 1 less the MSE over the variance of the labels.

    Predicting the mean gives 0. It is NaN if the labels are constant.
    """
    labels, predictions = (np.asarray(x, np.float64) for x in _pair(labels, predictions))
    if np.ptp(labels) == 0:
        return math.nan
    return float(1 - np.mean(np.square(labels - predictions)) / np.var(labels))


def baseline_loss(labels: np.ndarray) -> float:
    """Computes the mean loss (cross-entropy, squared error) of the best constant output.

    Args:
      labels: [B] class ids, whose frequencies are the best probabilities; or numbers, whose mean
        is the best constant.
    """
    if np.issubdtype(labels.dtype, np.floating):
        return float(np.var(labels, dtype=np.float64))
    _, counts = np.unique(labels, return_counts=True)
    frequencies = counts / np.sum(counts)
    return float(-np.sum(frequencies * np.log(frequencies)))


class Evaluator:
    """Collects rows of evaluation outputs and scores them together.

    Args:
      scores: (key, function of labels [B] and predictions [B]) pairs.
      deviation: what numbers are divided by in ``per_example_loss``; 1 for classes.
      labels: names of the classes by id; empty for numbers.
      scores_classes: whether the results have the scores of `class_scores`.
      positive: id of the class, of two, whose probability ranks the examples.
    """

    def __init__(
        self,
        scores: Sequence[NamedScore],
        deviation: float = 1.0,
        labels: Sequence[str] = (),
        scores_classes: bool = False,
        positive: int = 1,
    ) -> None:
        self._scores = scores
        self._deviation = deviation
        self._labels = labels
        self._scores_classes = scores_classes and bool(labels)
        self._positive = positive
        self._ranks = self._scores_classes and len(labels) == 2
        names = ("label_ids", "predictions", "per_example_loss")
        self._rows: dict[str, list] = {
            name: [] for name in (*names, *(["probabilities"] if self._ranks else ()))
        }

    def update(self, rows: dict[str, np.ndarray]) -> None:
        """Adds a batch by name: label_ids, predictions, per_example_loss and is_real_example [B], 0
        for rows to ignore, and of two classes with scores of classes probabilities [B, 2].
        """
        real = np.asarray(rows["is_real_example"]).astype(bool)
        for name, parts in self._rows.items():
            parts.append(np.asarray(rows[name])[real])

    def result(self) -> dict[str, float]:
        """Returns the scores, ``eval_loss`` (mean loss of an example) and ``loss`` (the same)."""
        rows = {name: np.concatenate(parts) for name, parts in self._rows.items()}
        loss = float(np.mean(rows["per_example_loss"], dtype=np.float64))
        scores = {key: score(rows["label_ids"], rows["predictions"]) for key, score in self._scores}
        if self._scores_classes:
            scores |= class_scores.measure(self.classes())
        if self._ranks:
            is_positive = rows["label_ids"] == self._positive
            scores |= class_scores.rank(is_positive, rows["probabilities"][:, self._positive])
        return {**scores, "eval_loss": loss, "loss": loss}

    def classes(self) -> tuple[results.ClassCount, ...]:
        """Counts the examples of each class; () if there are no names."""
        if not self._labels:
            return ()
        sides = (np.concatenate(self._rows[name]) for name in ("label_ids", "predictions"))
        return results.count_classes(self._labels, *sides)

    def baseline(self) -> dict[str, float]:
        """Returns the scores of `result`, each of its best constant: class, mean or median."""
        labels = np.concatenate(self._rows["label_ids"])
        is_number = np.issubdtype(labels.dtype, np.floating)
        answers = [labels.mean(), np.median(labels)] if is_number else np.unique(labels)
        scores = {}
        for key, score in self._scores:
            values = [score(labels, np.full_like(labels, answer)) for answer in answers]
            scores[key] = min(values) if results.is_loss(key) else max(values)
        if self._scores_classes:
            scores |= class_scores.constant_answer(self.classes(), self._positive)
        loss = baseline_loss(labels) / self._deviation**2
        return {**scores, "eval_loss": loss, "loss": loss}


class TextEvaluator:
    """Scores texts by the rows of their inputs, of which a text may have several.

    Args:
      make: makes the evaluator of one row per text.
      answers: kind of answers of the model, such as `long_texts.Classes()`.
    """

    def __init__(
        self, make: Callable[[], contracts.Evaluator], answers: long_texts.Answers
    ) -> None:
        self._make, self._answers = make, answers
        self._parts: list[dict[str, np.ndarray]] = []

    def update(self, rows: dict[str, np.ndarray]) -> None:
        """Adds a batch, {name: array [B, …]}, of the evaluator's rows and `long_texts.FEATURES`."""
        self._parts.append({name: np.asarray(values) for name, values in rows.items()})

    def _whole(self) -> contracts.Evaluator:
        """Returns an evaluator of all texts so far."""
        names = self._parts[0] if self._parts else ()
        rows = {name: np.concatenate([part[name] for part in self._parts]) for name in names}
        evaluator = self._make()
        evaluator.update(long_texts.join_rows(rows, self._answers))
        return evaluator

    def result(self) -> dict[str, float]:
        """Returns the scores of all texts by name."""
        return self._whole().result()

    def classes(self) -> Sequence[results.ClassCount]:
        """Counts the texts of each class; () if the answers are numbers."""
        return self._whole().classes()

    def baseline(self) -> dict[str, float]:
        """Returns the scores of `result`, each of its best constant answer."""
        return self._whole().baseline()
