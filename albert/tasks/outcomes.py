"""Writes what a model predicted for each example with a known label: ``examples.jsonl``.

One form for all tasks, so that reports and comparisons of runs need not know the task: the mean of
each of the numbers over the examples gives the scores.
"""

import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from albert.io import file_io, tables
from albert.tasks import prediction_files
from albert.training.contracts import Rows

EXAMPLES = "examples.jsonl"
MAX_TEXT = 400  # characters


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """The label and the prediction of the example with the id `guid`.

    Attributes:
      text: the example, for people to read.
      label, prediction: names of classes, texts for people to read, or the numbers of a regression;
        of several labels per text their names.
      right: whether both are equal by the rules of the task; None for a regression.
      probabilities: {class: probability} in the order of the ids of the classes, if there are any.
      numbers: what the scores of the task are computed from, by name.
      context: the part of a longer text that `text` asks about.
      groups: {what a group of examples shares: its name}, such as {"passage": "high7.txt"}, the
        widest group first.
    """

    guid: str
    text: str
    label: str | float | Sequence[str]
    prediction: str | float | Sequence[str]
    right: bool | None = None
    probabilities: Mapping[str, float] = dataclasses.field(default_factory=dict)
    numbers: Mapping[str, float] = dataclasses.field(default_factory=dict)
    context: str = ""
    groups: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON-ready dict of the attributes that the example has; ``guid`` is ``id``."""
        fields = {
            "id": self.guid,
            "text": shortened(self.text),
            "context": self.context,
            "groups": dict(self.groups),
            "label": self.label,
            "prediction": self.prediction,
            "right": self.right,
            "probabilities": dict(self.probabilities),
            "numbers": dict(self.numbers),
        }
        needed = ("id", "text", "label", "prediction")
        return {key: x for key, x in fields.items() if key in needed or x not in (None, "", {})}


def shortened(text: str, maximum: int = MAX_TEXT) -> str:
    """Returns the first `maximum` characters of a text, with single spaces, in valid UTF-8."""
    text = tables.replace_lone_surrogates(" ".join(text.split()))
    return text if len(text) <= maximum else text[:maximum] + "…"


def remove(output_dir: str) -> None:
    """Removes the file of earlier predictions, before others are written next to it."""
    file_io.remove(os.path.join(output_dir, EXAMPLES))


def write(output_dir: str, outcomes: Iterable[Outcome]) -> None:
    """Writes ``examples.jsonl`` to a folder: a line for each example's outcome."""
    with file_io.atomic_writer(os.path.join(output_dir, EXAMPLES)) as file:
        file.writelines(tables.json_line(outcome.to_json()) for outcome in outcomes)


def texts_of(ids: Iterable[str], examples: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yields the text of each example that has been predicted; "" for an unknown id.

    Args:
      ids: some or all ids of the examples, in order.
      examples: (id, text) pairs.
    """
    remaining = iter(examples)
    for guid in ids:
        yield next((text for other, text in remaining if other == guid), "")


def class_outcomes(
    labels: Sequence[str], ids: Sequence[str], texts: Iterable[str], rows: Rows
) -> Iterator[Outcome]:
    """Yields the outcomes of a classifier, of texts with several labels, or of a regression.

    Args:
      rows: {name: array}: label_ids and predictions [B], of several labels [B, K]; probabilities
        [B, K].
    """
    columns = (ids, rows["predictions"], rows["probabilities"])
    predictions = prediction_files.predictions(labels, *columns)
    for row, text, label_id in zip(predictions, texts, rows["label_ids"], strict=True):
        label = prediction_files.answer_of(labels, label_id)
        right = label == row.prediction if labels else None
        yield Outcome(row.guid, text, label, row.prediction, right, row.probabilities)
