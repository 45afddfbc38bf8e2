"""Formats of predictions."""

import io
import json

import numpy as np

from albert.tasks import prediction_files


def test_probabilities_are_plain_floats():
    probabilities = np.float32([[0.1, 0.9]])
    (row,) = prediction_files.predictions(["x", "y"], ["7"], np.int64([1]), probabilities)
    fields = {"id": "7", "prediction": "y", "probabilities": {"x": 0.1, "y": 0.9}}
    assert json.loads(json.dumps(row.probabilities)) == fields["probabilities"]
    assert prediction_files.to_dict(["x", "y"], row) == fields
    (row,) = prediction_files.predictions([], ["8"], np.float32([0.1]), [None])
    assert type(row.prediction) is float and row.chosen == "0.1"


def test_forms_of_predictions():
    probabilities = np.float32([[0.1, 0.9], [0.75, 0.25]])
    rows = list(prediction_files.predictions(("no", "yes"), ["a", "b"], [1, 0], probabilities))
    file = io.StringIO()
    prediction_files.write_predictions(file, "tsv", ("no", "yes"), rows)
    assert file.getvalue().splitlines() == [
        "id\tprediction\tprobability_no\tprobability_yes",
        "a\tyes\t0.1\t0.9",
        "b\tno\t0.75\t0.25",
    ]
    file = io.StringIO()
    prediction_files.write_predictions(file, "jsonl", ("no", "yes"), rows[:1])
    assert json.loads(file.getvalue()) == {
        "id": "a", "prediction": "yes", "probabilities": {"no": 0.1, "yes": 0.9},
    }  # fmt: skip
    numbers = list(prediction_files.predictions((), ["a"], np.float32([2.3]), np.zeros((1, 1))))
    file = io.StringIO()
    prediction_files.write_predictions(file, "jsonl", (), numbers)
    assert file.getvalue() == '{"id": "a", "prediction": 2.3}\n'
