"""Predictions with the names of their labels: one form for files and for standard output."""

import dataclasses
import json
import os

import numpy as np

from albert import file_io

TABLE = "predictions.tsv"
SCORES = "predict_results.txt"
_PROBABILITY = "probability_"


@dataclasses.dataclass(frozen=True, slots=True)
class Prediction:
    """What a model says of one example.

    Attributes:
      guid: id of the example.
      prediction: name of the likeliest label; for regression the number.
      probabilities: {label name: probability} in the order of the label ids; empty for regression.
    """

    guid: str
    prediction: str | float
    probabilities: dict[str, float]

    @property
    def chosen(self):
        """`prediction` as text."""
        is_name = isinstance(self.prediction, str)
        return self.prediction if is_name else _number(self.prediction)


def _number(value):
    # str() of a float32 is the shortest text that reads back as the same number.
    return str(np.float32(value))


def predictions(labels, guids, indices, probabilities):
    """Yields a `Prediction` for each example.

    Args:
      labels: K label names by id; empty for regression.
      guids: ids [B].
      indices: predicted label ids [B]; for regression the numbers.
      probabilities: float32 [B, K]; not read for regression.
    """
    for guid, index, row in zip(guids, indices, probabilities, strict=True):
        if labels:
            yield Prediction(guid, labels[index], dict(zip(labels, row, strict=True)))
        else:
            yield Prediction(guid, index, {})


def _tsv_lines(labels, rows):
    yield "\t".join(["id", "prediction", *(_PROBABILITY + label for label in labels)])
    for row in rows:
        yield "\t".join([row.guid, row.chosen, *map(_number, row.probabilities.values())])


def _json_lines(labels, rows):
    for row in rows:
        fields = {"id": row.guid, "prediction": row.chosen if labels else float(row.chosen)}
        if labels:
            numbers = map(float, map(_number, row.probabilities.values()))
            fields["probabilities"] = dict(zip(labels, numbers, strict=True))
        yield json.dumps(fields, ensure_ascii=False)


def write(file, form, labels, rows):
    """Writes predictions to an open file, one at a time.

    Args:
      file: takes text.
      form: "tsv": id, prediction and ``probability_<label>`` for each label, under a header; or
        "jsonl": objects with id, prediction and, for labels, their probabilities.
      labels: label names by id; empty for regression.
      rows: iterable of `Prediction`.
    """
    make_lines = {"tsv": _tsv_lines, "jsonl": _json_lines}[form]
    file.writelines(f"{line}\n" for line in make_lines(labels, rows))


def write_table(output_dir, labels, rows):
    """Writes predictions to ``predictions.tsv``; see `write`."""
    with file_io.atomic_writer(os.path.join(output_dir, TABLE)) as file:
        write(file, "tsv", labels, rows)


def write_classifier_files(output_dir, rows, ids, labels):
    """Writes ``test_results.tsv``, ``submit_results.tsv`` and ``predictions.tsv``.

    The first holds the tab-separated probabilities (for regression the score) of each example, the
    second a header, then id and predicted label name (for regression the score), the third all of
    these under a header, see `write`.

    Args:
      output_dir: folder to write to.
      rows: dict of arrays in input order: probabilities [B, K], predictions [B].
      ids: ids of the examples [B].
      labels: label names by id; empty for regression.
    """
    probabilities = np.asarray(rows["probabilities"], np.float32)
    indices = rows["predictions"]
    if len(ids) != len(indices):
        raise ValueError(f"{len(ids)} ids for {len(indices)} predictions")
    # str() of a float32 is the shortest text that reads back as the same number.
    with file_io.atomic_writer(os.path.join(output_dir, "test_results.tsv")) as file:
        file.writelines("\t".join(map(str, row)) + "\n" for row in probabilities)
    named = lambda: predictions(  # noqa: E731
        labels, ids, indices, probabilities
    )
    with file_io.atomic_writer(os.path.join(output_dir, "submit_results.tsv")) as file:
        file.write("index\tprediction\n")
        file.writelines(f"{row.guid}\t{row.chosen}\n" for row in named())
    write_table(output_dir, labels, named())


def write_scores(output_dir, evaluator, rows):
    """Writes the scores of labelled test data to ``predict_results.txt``.

    Args:
      output_dir: folder to write to.
      evaluator: see `task.Task.evaluator`.
      rows: dict of arrays, first axis the examples.

    Returns:
      The scores.
    """
    evaluator.update(rows)
    scores = evaluator.result()
    lines = [f"{key} = {_number(value)}\n" for key, value in sorted(scores.items())]
    file_io.write_text(os.path.join(output_dir, SCORES), "".join(lines))
    return scores
