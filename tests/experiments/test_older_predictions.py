"""Labels and ids of predictions and of data meet by the names that training gives them."""

import itertools
import json

import pytest

from albert.experiments import predictions, runs
from albert.io import file_io, tables
from albert.tasks import custom, prediction_files
from tests.support import run_folders

BY_ID = tables.Columns(guid="id")


def write_lines(path, rows):
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def write_predictions(path, rows, names):
    """Writes (id, prediction) pairs; the prediction has all of the probability."""
    return write_lines(
        path,
        (
            {"id": key, "prediction": x, "probabilities": {n: float(n == x) for n in names}}
            for key, x in rows
        ),
    )


# --- pairs of labels, ids and formats: perfect predictions score 1 --------------------------------

LABELS = {
    "booleans": ([False, True], ["false", "true"]),
    "integers": ([0, 1], ["0", "1"]),
    "decimals": ([0.0, 1.0], ["0.0", "1.0"]),
    "spelled otherwise": ([0.0, "1."], ["0", "1"]),
    "texts": ([" no", "yes "], ["no", "yes"]),
    "text and number": (["1", 2], ["1", "2"]),
}
IDS = {
    "numbered": lambda i: None,
    "integers": lambda i: 7 * i,
    "texts": lambda i: f"a {i}",
    "blanks around": lambda i: f" {i} " if i % 2 else f"{i}",
    "decimals": lambda i: i + 0.5,
}


@pytest.mark.parametrize(("labels", "ids"), [*itertools.product(LABELS, IDS)])
def test_perfect_predictions_score_1_in_each_form(labels, ids, tmp_path):
    values, names = LABELS[labels]
    rows = [{"text": f"t {i}", "label": values[i % 2], "id": IDS[ids](i)} for i in range(6)]
    data = write_lines(tmp_path / "data.jsonl", rows)
    columns = BY_ID if ids != "numbered" else tables.Columns()
    # What training reads of the file is what it writes next to its predictions.
    task = custom.CustomTask({"dev": str(data)}, columns, tuple(names))
    pairs = [(row.guid, row.label) for row in task.iter_examples("", "dev")]
    path = write_predictions(tmp_path / "found.jsonl", pairs, names)
    found = predictions.read_file(str(path), str(data), columns)
    assert found.metrics["eval_accuracy"].value == 1 and len(found.right) == 6
    flags = {"text_column": "text", "label_column": "label", "id_column": columns.guid}
    run = run_folders.make_run(tmp_path / "run", data=data, **flags)
    with (run / "predictions.tsv").open("w") as file:
        guesses = [
            prediction_files.Prediction(k, x, {n: float(n == x) for n in names}) for k, x in pairs
        ]
        prediction_files.write_predictions(file, "tsv", names, guesses)
    record = runs.read_run(str(run), "run")
    kept = predictions.read_outcomes(record, predictions.find_file(record))
    assert predictions.count_labels(kept) == (sorted(names), [[3, 0], [0, 3]])


# --- rows that do not meet ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "found", "message"),
    [
        (
            [("a", "no"), ("b", "no"), ("a", "yes")],
            [("a", "no"), ("b", "no")],
            "data.jsonl line 3: the id 'a' is already that of .*data.jsonl line 1; ids must differ",
        ),
        (
            [("a", "no"), ("b", "yes")],
            [("a", "no"), ("b", "no"), (" b", "yes")],
            "found.jsonl line 3: the id 'b' is already that of .*found.jsonl line 2",
        ),
        (
            [("a", "no"), ("b", "no")],
            [("a", "no"), ("c", "no")],
            r"1 of 2 examples have no prediction, the first is 'b' \(.*data.jsonl line 2\); 1 of 2 "
            r"predictions belong to no example, the first is 'c' \(.*found.jsonl line 2\)",
        ),
        ([("a", "no"), (None, "yes")], [("a", "no")], "data.jsonl line 2: column 'id' must be"),
        ([("a", None)], [("a", "no")], "data.jsonl line 1: column 'label' must be a name"),
        ([("a", 1.0)], [("a", "no")], "line 1: the label '1.0' is none of the labels in .*no, yes"),
        ([("a", "no")], [("a", "maybe")], "line 1: the prediction 'maybe' has no probability"),
    ],
)  # fmt: skip
def test_rows_that_do_not_meet_are_named(data, found, message, tmp_path):
    rows = [{"id": key, "label": label} for key, label in data]
    labels = write_lines(tmp_path / "data.jsonl", rows)
    path = write_predictions(tmp_path / "found.jsonl", found, ["no", "yes"])
    with pytest.raises(file_io.InputError, match=message):
        predictions.read_file(str(path), str(labels), BY_ID)


@pytest.mark.parametrize(
    ("label", "prediction", "message"),
    [
        (
            "x",
            "x,y",
            "the prediction 'x,y' has no probability; only x, y have one. Several labels ",
        ),
        ("x", ["x", "y"], r"the prediction \['x', 'y'\] has no probability.* Several labels per "),
        ("x", "", "the prediction '' has no probability.* Several labels per text can only be "),
        (["x"], "x", "data.jsonl line 1: several labels per text can only be compared by the fold"),
        ("x", "abstains", "the prediction 'abstains' has no .* A model that abstains can only be "),
    ],
)
def test_several_labels_and_no_answer_are_refused_with_the_remedy(
    label, prediction, message, tmp_path
):
    labels = write_lines(tmp_path / "data.jsonl", [{"label": label}])
    row = {"id": "0", "prediction": prediction, "probabilities": {"x": 0.5, "y": 0.5}}
    path = write_lines(tmp_path / "found.jsonl", [row])
    with pytest.raises(file_io.InputError, match=f"{message}.*name the folder"):
        predictions.read_file(str(path), str(labels), tables.Columns())


def test_rows_of_other_labels_are_refused(tmp_path):
    labels = write_lines(tmp_path / "data.jsonl", [{"label": "no"}] * 2)
    rows = [
        {"id": str(i), "prediction": "no", "probabilities": {"no": 1.0, name: 0.0}}
        for i, name in enumerate(["yes", "maybe"])
    ]
    path = write_lines(tmp_path / "found.jsonl", rows)
    with pytest.raises(file_io.InputError, match="line 2: the probabilities are those of no, may"):
        predictions.read_file(str(path), str(labels), tables.Columns())


@pytest.mark.parametrize("keys", ["a", "abc", "ac"])
def test_questions_that_do_not_meet_are_named(keys, tmp_path):
    questions = [
        {"id": key, "question": "who?", "answers": [{"text": "he", "answer_start": 0}]}
        for key in "ab"
    ]
    data = {"data": [{"paragraphs": [{"context": "he waits", "qas": questions}]}]}
    run_folders.write_json(tmp_path / "dev.json", data)
    run = run_folders.make_run(
        tmp_path / "run", "run_squad_v1", "squad_v1", "f1", data=tmp_path / "dev.json"
    )
    run_folders.write_json(run / "predictions.json", dict.fromkeys(keys, "he"))
    nbest = dict.fromkeys(keys, [{"text": "he", "probability": 1.0}])
    run_folders.write_json(run / "nbest_predictions.json", nbest)
    record = runs.read_run(str(run), "run")
    with pytest.raises(file_io.InputError, match="predictions.json holds the predictions of "):
        predictions.read(record)
    if keys == "a":  # as with --eval_fraction, which the record of the run shows
        record.record["flags"]["eval_fraction"] = {"value": 0.5, "source": "command line"}
        assert len(predictions.read(record).right) == 1
        path = predictions.find_file(record)
        assert [row.guid for row in predictions.read_outcomes(record, path)] == ["a"]
