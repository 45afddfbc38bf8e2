"""Thresholds of several labels per text: chosen by F1, and scored on texts they do not know.

Letters in shapes: N texts, K labels.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from albert.model import decision as decisions
from albert.tasks import calibration, label_set_scores

THRESHOLD = "threshold_"  # prefixes of results
_CROSS_FITTED = "cross_fitted_"
_SHOWN = 30  # maximum number of rows in the log


def best_threshold(probabilities: np.ndarray, is_positive: np.ndarray) -> float:
    """Finds the threshold of a label with the highest F1 over texts [N]; of several the largest.

    It is halfway between the smallest probability that is accepted and the next one, since other
    batches and exported forms compute probabilities that differ in the last digits.

    Returns:
      The threshold, a float32 number; `decisions.THRESHOLD` if no text has the label.
    """
    if not is_positive.any():
        return decisions.THRESHOLD
    tried, places = np.unique(np.asarray(probabilities, np.float32), return_inverse=True)
    places = places.reshape(-1)
    accepted = np.bincount(places)[::-1].cumsum()
    right = np.bincount(places[is_positive], minlength=len(tried))[::-1].cumsum()
    best = len(tried) - 1 - int(np.argmax(2 * right / (accepted + is_positive.sum())))
    lower = tried[best - 1] if best else np.float32(0)
    middle = np.float32((np.float64(lower) + np.float64(tried[best])) / 2)
    return float(middle if middle > lower else tried[best])


def cross_fit(probabilities: np.ndarray, is_positive: np.ndarray) -> np.ndarray:
    """Decides for each text with a threshold chosen on the other parts: bool [N]."""
    found = np.zeros(len(is_positive), bool)
    for part in calibration.split_in_parts(is_positive.astype(np.int64)):
        threshold = best_threshold(probabilities[~part], is_positive[~part])
        found[part] = probabilities[part] >= np.float32(threshold)
    return found


@dataclasses.dataclass(frozen=True)
class Row:
    """The threshold of a label.

    Attributes:
      support: number of texts with the label.
      f1: at the threshold of `decisions.THRESHOLD`.
      f1_cross_fitted: at thresholds that were chosen on other texts, see `cross_fit`.
    """

    name: str
    threshold: float
    support: int
    f1: float
    f1_cross_fitted: float


@dataclasses.dataclass(frozen=True)
class Choice:
    """The thresholds of all labels.

    Attributes:
      examples: N.
      means: {"micro_f1", "macro_f1": (F1 at `decisions.THRESHOLD`, F1 cross-fitted)}.
    """

    rows: tuple[Row, ...]
    examples: int
    means: dict[str, tuple[float, float]]

    @property
    def thresholds(self) -> tuple[float, ...]:
        """The thresholds by label id."""
        return tuple(row.threshold for row in self.rows)

    def with_thresholds(self, thresholds: Sequence[float]) -> "Choice":
        """Returns the choice with other thresholds by label id: those at a new temperature."""
        pairs = zip(self.rows, thresholds, strict=True)
        rows = tuple(dataclasses.replace(row, threshold=value) for row, value in pairs)
        return dataclasses.replace(self, rows=rows)

    def results(self) -> dict[str, float]:
        """Returns ``cross_fitted_f1_<label>`` and the cross-fitted `means`, for results by name."""
        rows = {f"{_CROSS_FITTED}f1_{row.name}": row.f1_cross_fitted for row in self.rows}
        return rows | {f"{_CROSS_FITTED}{name}": pair[1] for name, pair in self.means.items()}

    def to_json(self) -> dict[str, Any]:
        """Returns the attributes and ``text`` as a JSON-ready dict."""
        return {**dataclasses.asdict(self), "text": self.describe()}

    def describe(self) -> str:
        """Says in a sentence what the thresholds change."""
        means = " and ".join(
            f"{name.replace('_f1', ' F1')} {after:.4f} (at {decisions.THRESHOLD}: {before:.4f})"
            for name, (before, after) in self.means.items()
        )
        return (
            f"Thresholds chosen by F1 on {self.examples} examples: {means}, each example decided "
            "with thresholds that were chosen on others (cross-fitted)"
        )

    def table(self) -> str:
        """Formats a table of the labels."""
        cells = [("label", "threshold", "support", f"F1 at {decisions.THRESHOLD}", "cross-fitted")]
        for row in self.rows[:_SHOWN]:
            plain, fitted = (f"{score:.3f}" for score in (row.f1, row.f1_cross_fitted))
            cells.append((row.name, f"{row.threshold:.4f}", str(row.support), plain, fitted))
        width = max(len(name) for name, *_ in cells)
        lines = [
            f"  {name:{width}}  {threshold:>9}  {support:>7}  {plain:>9}  {fitted:>12}"
            for name, threshold, support, plain, fitted in cells
        ]
        more = len(self.rows) - _SHOWN
        return "\n".join([*lines, f"  … and {more} more labels"] if more > 0 else lines)


def choose(names: Sequence[str], probabilities: np.ndarray, labels: np.ndarray) -> Choice:
    """Chooses a threshold for each label.

    Args:
      probabilities, labels: [N, K]; a label is 1 if the text has it, else 0.
    """
    is_positive = labels.astype(bool)
    columns = [*zip(probabilities.T, is_positive.T, strict=True)]
    fitted = np.stack([cross_fit(*column) for column in columns], axis=1)
    plain = probabilities >= np.float32(decisions.THRESHOLD)
    sides = [label_set_scores.count(names, labels, side) for side in (plain, fitted)]
    means = [label_set_scores.score_counts(side) for side in sides]
    chosen = [best_threshold(*column) for column in columns]
    return Choice(
        tuple(
            Row(name, threshold, before.labels, before.f1, after.f1)
            for name, threshold, before, after in zip(names, chosen, *sides, strict=True)
        ),
        len(labels),
        {name: (means[0][name], means[1][name]) for name in ("micro_f1", "macro_f1")},
    )


def lines(names: Sequence[str], decision: decisions.Decision) -> dict[str, float]:
    """Returns {``threshold_<label>``: threshold} of label names by id; {} if none were chosen."""
    pairs = zip(names, decision.thresholds, strict=bool(decision.thresholds))
    return {f"{THRESHOLD}{name}": threshold for name, threshold in pairs}
