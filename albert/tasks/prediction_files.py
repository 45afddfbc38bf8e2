"""Writes predictions and scores to the files of an output folder, in the formats of each task.

In all arguments, `labels` are K label names by id; empty for regression.
"""

import dataclasses
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

import numpy as np

from albert.io import file_io, tables
from albert.training import results
from albert.training.contracts import Evaluator, Rows

PREDICTIONS = "predictions.tsv"
SCORES = "predict_results.txt"
_PROBABILITY = "probability_"
SEPARATOR = ","  # between several labels

ExtraColumns = tuple[Sequence[str], Iterable[Sequence[str]]]  # names, texts of each row


@dataclasses.dataclass(frozen=True, slots=True)
class Prediction:
    """The prediction of a model for the example with the id `guid`.

    Attributes:
      prediction: name of the most probable label; for regression the number; of several labels
        per text the names of all that it has.
      probabilities: {label name: probability} in the order of the label ids (plain floats, so
        that JSON takes them); empty for regression.
      truncated: whether the text was longer than the model's input and was cut.
      separator: text between several labels in files of columns.
    """

    guid: str
    prediction: str | float | tuple[str, ...]
    probabilities: dict[str, float]
    truncated: bool = False
    separator: str = SEPARATOR

    @property
    def chosen(self) -> str:
        """`prediction` as text."""
        value = self.prediction
        if isinstance(value, tuple):
            return self.separator.join(value)
        return value if isinstance(value, str) else _number(value)


def _number(value: float) -> str:
    """Returns a probability or number as the text that files have."""
    # str() of a float32 is the shortest text that reads back as the same number.
    return str(np.float32(value))


def plain_number(value: Any) -> float:
    """Returns the shortest float of Python that stands for the same float32 as a number."""
    return float(_number(value))


def predictions(
    labels: Sequence[str],
    guids: Iterable[str],
    indices: Iterable[Any],
    probabilities: Iterable[Any],
    truncated: Iterable[bool] = itertools.repeat(False),
    separator: str = SEPARATOR,
) -> Iterator[Prediction]:
    """Yields a `Prediction` for each example.

    Args:
      guids: ids [B].
      indices: predicted label ids [B]; for regression the numbers; of several labels per text
        [B, K], 1 for those of the text.
      probabilities: [B, K]; not read for regression.
    """
    columns = zip(guids, indices, probabilities, strict=True)
    for (guid, index, row), is_cut in zip(columns, truncated, strict=False):
        named = dict(zip(labels, map(plain_number, row), strict=True)) if labels else {}
        yield Prediction(guid, answer_of(labels, index), named, is_cut, separator)


def answer_of(labels: Sequence[str], value: Any) -> str | float | tuple[str, ...]:
    """Returns a label or a prediction as `Prediction.prediction` has it.

    Args:
      value: label id; for regression the number; of several labels per text [K], 1 for those of the
        text.
    """
    if not labels:
        return plain_number(value)
    if not np.ndim(value):
        return labels[value]
    return tuple(label for label, is_in in zip(labels, value, strict=True) if is_in)


def to_dict(labels: Sequence[str], row: Prediction) -> dict[str, Any]:
    """Returns a JSON-ready `Prediction`.

    It has id, prediction, for labels their probabilities, and truncated if the text was cut.
    """
    answer = list(row.prediction) if isinstance(row.prediction, tuple) else row.prediction
    fields: dict[str, Any] = {"id": row.guid, "prediction": answer}
    if labels:
        fields["probabilities"] = dict(row.probabilities)
    return fields | ({"truncated": True} if row.truncated else {})


def write_predictions(
    file: IO[str],
    form: str,
    labels: Sequence[str],
    rows: Iterable[Prediction],
    extra: ExtraColumns | None = None,
) -> None:
    """Writes predictions to an open file, one at a time.

    Args:
      form: "tsv": id, prediction and ``probability_<label>`` for each label, under a header; or
        "jsonl": objects with id, prediction and, for labels, their probabilities.
      extra: names of extra columns or keys, and their texts for each prediction; in tsv
        blanks replace tabs and line breaks.
    """
    names, values = extra or ((), itertools.repeat(()))
    pairs = zip(rows, values, strict=False)
    if form == "jsonl":
        for row, texts in pairs:
            added = dict(zip(names, texts, strict=True))
            file.write(tables.json_line({**to_dict(labels, row), **added}))
        return
    columns = ["id", "prediction", *(_PROBABILITY + label for label in labels), *names]
    file.write("\t".join(columns) + "\n")
    for row, texts in pairs:
        cells = [re.sub(f"{tables.NOT_IN_NAMES}+", " ", text) for text in texts]
        columns = [row.guid, row.chosen, *map(_number, row.probabilities.values()), *cells]
        file.write("\t".join(columns) + "\n")


def write_table(output_dir: str, labels: Sequence[str], rows: Iterable[Prediction]) -> None:
    """Writes predictions to ``predictions.tsv``."""
    with file_io.atomic_writer(os.path.join(output_dir, PREDICTIONS)) as file:
        write_predictions(file, "tsv", labels, rows)


def write_classifier_files(
    output_dir: str,
    rows: Rows,
    ids: Sequence[str],
    labels: Sequence[str],
    separator: str = SEPARATOR,
) -> None:
    """Writes ``test_results.tsv``, ``submit_results.tsv`` and ``predictions.tsv``.

    The first holds the tab-separated probabilities (for regression the score) of each example. The
    second has a header, then id and predicted label name (for regression the score). The third has
    all of these, see `write_predictions`.

    Args:
      rows: {name: array} in input order: probabilities [B, K], predictions [B] or [B, K].
    """
    probabilities = np.asarray(rows["probabilities"], np.float32)
    indices = rows["predictions"]
    if len(ids) != len(indices):
        raise ValueError(f"{len(ids)} ids for {len(indices)} predictions")
    with file_io.atomic_writer(os.path.join(output_dir, "test_results.tsv")) as file:
        file.writelines("\t".join(map(str, row)) + "\n" for row in probabilities)

    def named() -> Iterator[Prediction]:
        """Yields the prediction for each example."""
        return predictions(labels, ids, indices, probabilities, separator=separator)

    with file_io.atomic_writer(os.path.join(output_dir, "submit_results.tsv")) as file:
        file.write("index\tprediction\n")
        file.writelines(f"{row.guid}\t{row.chosen}\n" for row in named())
    write_table(output_dir, labels, named())


def write_scores(
    output_dir: str, evaluator: Evaluator, rows: Rows, further: Mapping[str, float] = {}
) -> dict[str, float]:
    """Writes the scores of labeled test data to ``predict_results.txt``, and returns them.

    Args:
      evaluator: a new evaluator of the task.
      further: {name: score} that follow those of the evaluator.
    """
    evaluator.update(dict(rows))
    scores = {**dict(sorted(evaluator.result().items())), **further}
    write_score_lines(output_dir, scores)
    return scores


def write_score_lines(output_dir: str, scores: Mapping[str, float]) -> None:
    """Writes scores by name to ``predict_results.txt``."""
    lines = [f"{key} = {results.format_value(value)}\n" for key, value in scores.items()]
    file_io.write_text(os.path.join(output_dir, SCORES), "".join(lines))
