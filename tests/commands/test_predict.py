"""Predictions for plain texts from the folder of a training run alone."""

import csv
import io
import json
import shutil
import subprocess
import tracemalloc

import numpy as np
import pytest

from albert import predict, run_classifier
from albert.io import file_io
from albert.serving import text_predictor
from tests.support import builders, forked
from tests.support.sources import ROOT

TASKS = ("SST-2", "RTE", "STS-B")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Folders of models of one text, two texts, and a regression; what made them is gone."""
    made = tmp_path_factory.mktemp("made")
    builders.write_glue(made)
    folder = tmp_path_factory.mktemp("models")
    for task in TASKS:
        chosen = builders.glue_flags(
            made, folder / task, task, do_train=True, do_predict=True, from_scratch=True,
            learning_rate=2e-3, predict_batch_size=4, do_lower_case=True,
        )  # fmt: skip
        builders.run(run_classifier, **chosen)
        shutil.copy(made / "glue" / task / "test.tsv", folder / f"{task}.tsv")
    shutil.rmtree(made)
    return folder


def texts_of(models, task):
    return builders.glue_texts(models / f"{task}.tsv", task)


def results_of(models, task):
    lines = (models / task / "test_results.tsv").read_text().splitlines()
    return np.float32([line.split("\t") for line in lines])


def write_texts(path, texts, names=("text", "text_pair")):
    """In the form that the name of the file calls for."""
    if path.suffix == ".txt":
        lines = ["\t".join(row) for row in texts]
    elif path.suffix == ".jsonl":
        lines = [json.dumps(dict(zip(names, row, strict=False))) for row in texts]
    elif path.suffix == ".csv":
        file = io.StringIO()
        csv.writer(file).writerows([names[: len(texts[0])], *texts])
        lines = file.getvalue().splitlines()
    else:
        lines = ["\t".join(row) for row in (names[: len(texts[0])], *texts)]
    path.write_text("\n".join(lines) + "\n")
    return path


def read_table(text):
    header, *rows = [line.split("\t") for line in text.splitlines()]
    return header, [row[0] for row in rows], [row[1] for row in rows], [row[2:] for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["txt", "tsv", "csv", "jsonl"])
@pytest.mark.parametrize("task", TASKS)
def test_the_numbers_are_those_of_the_training_run(models, tmp_path, run_script, task, ending):
    source = write_texts(tmp_path / f"in.{ending}", texts_of(models, task))
    chosen = {"model_dir": models / task, "input_file": source, "batch_size": 8}
    run_script(predict, **chosen, output_file=tmp_path / "out.tsv")
    header, guids, predictions, rows = read_table((tmp_path / "out.tsv").read_text())
    expected = results_of(models, task)
    assert guids == [str(i) for i in range(21)]
    labels = {
        "SST-2": ["negative", "positive"],
        "RTE": ["entailment", "not_entailment"],
        "STS-B": [],
    }[task]
    assert header == ["id", "prediction", *(f"probability_{label}" for label in labels)]
    if labels:
        np.testing.assert_allclose(np.float32(rows), expected, atol=1e-6)
        assert predictions == [labels[i] for i in expected.argmax(axis=1)]
    else:
        np.testing.assert_allclose(np.float32(predictions), expected[:, 0], atol=1e-5)
    run_script(predict, **chosen, output_file=tmp_path / "out.jsonl")
    objects = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["id"] for row in objects] == guids
    assert [str(np.float32(row["prediction"])) if not labels else row["prediction"]
            for row in objects] == predictions  # fmt: skip
    if labels:
        assert [list(row["probabilities"]) for row in objects] == [labels] * 21
        found = [[str(np.float32(x)) for x in row["probabilities"].values()] for row in objects]
        assert found == rows


@pytest.mark.slow
def test_the_python_function(models):
    texts = [text for (text,) in texts_of(models, "SST-2")]
    predictor = text_predictor.TextPredictor(str(models / "SST-2"))
    found = list(predictor.predict(texts, batch_size=3))
    probabilities = [list(row.probabilities.values()) for row in found]
    np.testing.assert_allclose(probabilities, results_of(models, "SST-2"), atol=1e-6)
    assert [row.guid for row in found] == [str(i) for i in range(21)]
    pairs = text_predictor.TextPredictor(str(models / "RTE"))
    for wrong in ("one text", ("a", "b", "c")):
        with pytest.raises(file_io.InputError, match="text 0: the model takes 2, found [13]"):
            list(pairs.predict([wrong]))
    with pytest.raises(file_io.InputError, match="text 1: column 'text' holds no text"):
        list(predictor.predict(["a", ""]))


@pytest.mark.slow
def test_texts_are_read_as_they_come(models):
    """No more than a batch ahead, whatever the length of the input."""
    taken = []

    def endless():
        while True:
            taken.append(1)
            yield "the bread was fine ."

    predictor = text_predictor.TextPredictor(str(models / "SST-2"))
    answers = predictor.predict(endless(), batch_size=4)
    next(answers)
    assert len(taken) == 4
    tracemalloc.start()
    for _ in range(400):
        next(answers)
    early = tracemalloc.get_traced_memory()[0]
    for _ in range(2000):
        next(answers)
    assert tracemalloc.get_traced_memory()[0] - early < 1 << 20
    tracemalloc.stop()


def test_ids_and_other_columns(models, tmp_path, run_script, capsys):
    source = tmp_path / "in.csv"
    source.write_text('key,what\nk 1,"the bread, fine"\nk2,the cake\n')
    chosen = {"model_dir": models / "SST-2", "input_file": source}
    run_script(predict, **chosen, text_column="what", id_column="key")
    _, guids, _, _ = read_table(capsys.readouterr().out)
    assert guids == ["k 1", "k2"]
    run_script(predict, **chosen, text_column="what", id_column="", output_format="jsonl")
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["0", "1"]
    with pytest.raises(file_io.InputError, match=r"in\.csv line 2: there is no column 'text' "):
        run_script(predict, **chosen)
    with pytest.raises(file_io.InputError, match="this model takes one text, not two"):
        run_script(predict, **chosen, text_column="key", text_pair_column="what")


def test_texts_stand_beside_their_answers(models, tmp_path, run_script):
    texts = ["the bread\twas fine", "the cake \ud800"]
    pairs = [json.dumps({"text": text, "text_pair": "no"}) for text in texts]
    (tmp_path / "in.jsonl").write_text("\n".join(pairs))
    source = {"input_file": tmp_path / "in.jsonl", "with_text": True}
    run_script(predict, model_dir=models / "SST-2", **source, output_file=tmp_path / "out.tsv")
    header, _, answers, rows = read_table((tmp_path / "out.tsv").read_text())
    assert header[2:] == ["probability_negative", "probability_positive", "text"]
    assert set(answers) <= {"negative", "positive"}
    assert [row[2] for row in rows] == ["the bread was fine", "the cake  "]
    run_script(predict, model_dir=models / "RTE", **source, output_file=tmp_path / "out.jsonl")
    objects = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [(row["text"], row["text_pair"]) for row in objects] == [
        (texts[0], "no"),
        ("the cake \ufffd", "no"),
    ]


@pytest.mark.slow
def test_standard_input_is_answered_line_by_line(models):
    """An answer comes before the next line is sent."""
    process = subprocess.Popen(
        [forked.python(), "-m", "albert.predict", f"--model_dir={models / 'SST-2'}",
         "--batch_size=1"],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True,
    )  # fmt: skip
    texts = [text for (text,) in texts_of(models, "SST-2")][:3]
    expected = results_of(models, "SST-2")
    for number, text in enumerate(texts):
        process.stdin.write(text + "\n")
        process.stdin.flush()
        if not number:
            assert process.stdout.readline().startswith("id\tprediction\t")
        guid, _, *row = process.stdout.readline().rstrip("\n").split("\t")
        assert guid == str(number)
        np.testing.assert_allclose(np.float32(row), expected[number], atol=1e-6)
    assert process.communicate()[0] == ""
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_dir": "nowhere"}, "there is no model folder nowhere"),
        ({"input_file": "nowhere.txt"}, "--input_file: the file nowhere.txt does not exist"),
        ({"input_file": "x.xlsx"}, r"x\.xlsx: expected a name that ends in .*\.txt"),
        ({"output_file": "x.csv"}, r"x\.csv: expected a name that ends in \.tsv or \.jsonl"),
        ({"output_file": "no/x.tsv"}, "--output_file=no/x.tsv: the folder no does not exist"),
        ({"text_column": "x"}, "--text_column: only for input with columns"),
        ({"batch_size": 0}, "--batch_size=0 must be at least 1"),
        ({}, r"in\.txt line 2: column 'text' holds no text; --skip_empty leaves out rows"),
    ],
)
def test_mistakes_are_named(models, tmp_path, run_script, changes, message):
    (tmp_path / "in.txt").write_text("the bread\n\nthe cake\n")
    chosen = {"model_dir": models / "SST-2", "input_file": tmp_path / "in.txt", **changes}
    with pytest.raises(file_io.InputError, match=message):
        run_script(predict, **chosen)


def test_a_single_text_is_no_list_of_texts(models):
    predictor = text_predictor.TextPredictor(str(models / "SST-2"))
    with pytest.raises(TypeError, match="a list of texts, found a single str"):
        list(predictor.predict("the bread"))


def test_a_folder_without_description_is_named(tmp_path, run_script):
    with pytest.raises(file_io.InputError, match="has no model.json: expected the output_dir"):
        run_script(predict, model_dir=tmp_path)


def test_rows_before_a_mistake_are_answered_on_standard_output(models, tmp_path, capsys, caplog):
    (tmp_path / "in.txt").write_text("the bread\nthe cake\n \nthe soup\n")
    values = {"model_dir": models / "SST-2", "input_file": tmp_path / "in.txt"}
    with pytest.raises(file_io.InputError, match=r"in\.txt line 3: column 'text' holds no text"):
        builders.run(predict, **values)
    rows = [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()]
    assert rows == ["id", "0", "1"]
    builders.run(predict, **values, skip_empty=True, output_file=tmp_path / "out.tsv")
    rows = [line.split("\t")[0] for line in (tmp_path / "out.tsv").read_text().splitlines()]
    assert rows == ["id", "0", "1", "3"]  # the numbers of the lines
    warnings = [row.getMessage() for row in caplog.records if row.levelname == "WARNING"]
    assert [text for text in warnings if "skipped" in text] == [
        f"1 rows without text were skipped, first {tmp_path}/in.txt line 3"
    ]


@pytest.mark.parametrize(
    ("task", "name", "content"),
    [
        ("SST-2", "in.jsonl", '{"text": "a"}\n{"text": null}\n{"text": "b"}\n'),
        ("RTE", "in.txt", "a\tb\n\nc\td\n"),
        ("RTE", "in.jsonl", '{"a": "a", "b": "b"}\n{"a": "a", "b": null}\n{"a": "a", "b": "b"}\n'),
    ],
)
def test_rows_without_text_are_skipped(models, tmp_path, capsys, task, name, content):
    (tmp_path / name).write_text(content)
    columns = {"text_column": "a", "text_pair_column": "b"} if '"b":' in content else {}
    values = {"model_dir": models / task, "input_file": tmp_path / name, **columns}
    builders.run(predict, **values, skip_empty=True)
    assert [row.split("\t")[0] for row in capsys.readouterr().out.splitlines()] == ["id", "0", "2"]


def test_no_file_is_left_after_a_mistake(models, tmp_path, run_script, monkeypatch):
    (tmp_path / "in.txt").write_text("the bread\n\n")
    # All is read before the model works, which may take hours.
    monkeypatch.setattr(text_predictor.TextPredictor, "predict", None)
    with pytest.raises(file_io.InputError, match="line 2"):
        run_script(
            predict, model_dir=models / "SST-2", input_file=tmp_path / "in.txt",
            output_file=tmp_path / "out.tsv", batch_size=1,
        )  # fmt: skip
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]
