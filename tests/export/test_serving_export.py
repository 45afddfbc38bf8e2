"""Exports are checked against the model in Python, and refused where they answer otherwise."""

import json
import random

import numpy as np
import pytest

from albert import export_serving, predict
from albert.export import onnx_export, onnx_int8, serving_export
from albert.io import file_io, tables
from albert.serving import example_requests, predictors, requests, serving_folder
from albert.tasks import glue
from albert.tasks.squad import task as squad_task
from tests.support import builders, serving_samples

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

_WORDS = "the bread was fine and old soup cake cook baker grandmother baked".split()


def write_texts(path, labels=None, count=60):
    rng = random.Random(3)
    rows = [{"sentence": " ".join(rng.choices(_WORDS, k=rng.randint(2, 9)))} for _ in range(count)]
    if labels:
        rows = [row | {"label": label} for row, label in zip(rows, labels, strict=True)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return [row["sentence"] for row in rows]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """A trained folder, texts without labels, and labels that the model itself gave them."""
    folder = tmp_path_factory.mktemp("inputs")
    # Wider weights make a network that blows up each rounding.
    changes = {"num_hidden_layers": 4, "hidden_size": 64, "intermediate_size": 96}
    changes |= {"initializer_range": 0.2}
    serving_samples.trained_in(folder / "run", glue.KIND, **changes)
    texts = write_texts(folder / "texts.jsonl")
    found = predictors.TextPredictor(str(folder / "run")).predict(texts)
    write_texts(folder / "check.jsonl", [one.prediction for one in found])
    return folder


@pytest.mark.parametrize("examples", [True, False])
def test_examples_are_copied_unless_they_are_not_wanted(tmp_path, examples):
    serving_samples.trained_in(tmp_path / "run", "regression")
    example_requests.write(str(tmp_path / "run"), [{"text": "a"}])
    export(tmp_path, tmp_path / "out", examples=examples)
    found = example_requests.read(str(tmp_path / "out"), requests.ONE_TEXT)
    assert found == (({"text": "a"},) if examples else ())


def export(inputs, output_dir, **changes):
    flags = {"model_dir": inputs / "run", "output_dir": output_dir, "format": "onnx"}
    builders.run(export_serving, **(flags | changes))
    return serving_folder.read(str(output_dir))


def test_weights_in_float16_take_half_of_the_space(inputs, tmp_path):
    whole = export(inputs, tmp_path / "whole")
    half = export(
        inputs, tmp_path / "half", weights="float16", check_file=inputs / "check.jsonl",
        min_agreement=0.9, max_metric_drop=10,
    )  # fmt: skip
    assert half.measured["weights"] == "float16" and half.precision == "float32"
    sizes = [file_io.size(folder.model_file) for folder in (whole, half)]
    assert sizes[1] < 0.6 * sizes[0]
    texts = [row["sentence"] for _, row in tables.read_file(str(inputs / "texts.jsonl"), "texts")]
    one, other = (
        [list(row.probabilities.values()) for row in predictors.TextPredictor(path).predict(texts)]
        for path in (whole.path, half.path)
    )
    assert 0 < np.abs(np.array(one) - np.array(other)).max() < 0.2


@pytest.mark.slow
def test_int8_is_calibrated_checked_and_described(inputs, tmp_path):
    folder = export(
        inputs, tmp_path / "out", precision="int8", calibration_file=inputs / "texts.jsonl",
        check_file=inputs / "check.jsonl", min_agreement=0.9, max_metric_drop=10,
    )  # fmt: skip
    check, calibration = folder.measured["check"], folder.measured["calibration"]
    assert check["answers"] == 60 and check["agreement"] >= 0.9
    assert check["points_of_float32"] == 100
    assert check["points"] == pytest.approx(100 * check["agreement"], abs=1e-3)
    assert check["file_sha256"] == file_io.sha256(str(inputs / "check.jsonl"))
    assert calibration["int8"] and calibration["answers"] == 60
    parts = (*onnx_export.PARTS, onnx_int8.TABLE)
    assert sorted(calibration["int8"] + calibration["float32"]) == sorted(parts)
    graph = onnx.load(folder.model_file).graph
    weights = [c for c in graph.initializer if c.data_type == 3 and len(c.dims) == 2]  # int8
    assert len(weights) == len(calibration["int8"])  # one for all four layers
    quantized = [node for node in graph.node if node.op_type == "QuantizeLinear"]
    products = {*calibration["int8"]} - {onnx_int8.TABLE}
    assert len({node.input[1] for node in quantized}) == 4 * len(products)  # scales by depth
    # The script answers by either folder.
    for name, model_dir in (("one", inputs / "run"), ("other", tmp_path / "out")):
        output_file = tmp_path / f"{name}.tsv"
        builders.run(
            predict, model_dir=model_dir, input_file=inputs / "texts.jsonl", output_file=output_file
        )
    one, other = (
        [row["prediction"] for _, row in tables.read_file(str(tmp_path / f"{name}.tsv"), "")]
        for name in ("one", "other")
    )
    same = [a == b for a, b in zip(one, other, strict=True)]
    assert len(same) == 60 and np.mean(same) == pytest.approx(check["agreement"], abs=1e-6)


@pytest.mark.slow
def test_int8_with_bfloat16_is_checked_by_the_runtime_that_computes_it(inputs, tmp_path):
    pytest.importorskip("openvino")
    folder = export(
        inputs, tmp_path / "out", precision="int8_bfloat16", check_file=inputs / "check.jsonl",
        calibration_file=inputs / "texts.jsonl", min_agreement=0.8, max_metric_drop=20,
    )  # fmt: skip
    assert folder.precision == "int8_bfloat16" and folder.measured["calibration"]["int8"]
    texts = [row["sentence"] for _, row in tables.read_file(str(inputs / "texts.jsonl"), "")]
    labels = [row["label"] for _, row in tables.read_file(str(inputs / "check.jsonl"), "")]
    found = predictors.TextPredictor(str(tmp_path / "out"), runtime="openvino").predict(texts)
    same = np.mean([a.prediction == b for a, b in zip(found, labels, strict=True)])
    assert same == pytest.approx(folder.measured["check"]["agreement"], abs=1e-6)


def test_numbers_are_calibrated_without_labels(tmp_path):
    serving_samples.trained_in(tmp_path / "run", "regression")
    texts = write_texts(tmp_path / "texts.jsonl")
    found = predictors.TextPredictor(str(tmp_path / "run")).predict(texts)
    write_texts(tmp_path / "check.jsonl", [str(one.prediction) for one in found])
    folder = export(
        tmp_path, tmp_path / "out", precision="int8", calibration_file=tmp_path / "texts.jsonl",
        check_file=tmp_path / "check.jsonl", min_agreement=0.5,
    )  # fmt: skip
    check, calibration = folder.measured["check"], folder.measured["calibration"]
    assert calibration["agreement"] == check["agreement"] >= 0.5
    assert check["points_of_float32"] == pytest.approx(100)


@pytest.mark.slow
@pytest.mark.parametrize("min_agreement", [0.99, 0.0])  # then the score decides
def test_what_answers_otherwise_is_refused(inputs, tmp_path, monkeypatch, min_agreement):
    useless = classmethod(lambda cls, low, high: cls(1e-6, 128))
    monkeypatch.setattr(onnx_int8.Scale, "from_range", useless)
    with pytest.raises(file_io.InputError) as error:
        export(
            inputs, tmp_path / "out", precision="int8", check_file=inputs / "check.jsonl",
            calibration_file=inputs / "texts.jsonl", min_agreement=min_agreement,
        )  # fmt: skip
    text = str(error.value)
    assert "nothing was exported: " in text and "accuracy 100.00 there, " in text
    assert "% of 60 answers to --check_file=" in text
    assert f"--min_agreement={min_agreement:g} and --max_metric_drop=1 percentage points" in text
    assert not list(tmp_path.iterdir())


def test_float32_of_questions(tmp_path):
    trained = serving_samples.trained_in(tmp_path / "run", squad_task.V2)
    folder = export(tmp_path, tmp_path / "out")
    assert folder.null_odds_threshold == -1.5 and folder.measured == {}
    asked = ("What was fine?", "The bread was fine and the cook was old.")
    one, other = (predictors.Answerer(str(tmp_path / name)).ask(*asked) for name in ("run", "out"))
    assert [a.text for a in one.answers] == [a.text for a in other.answers]
    assert one.threshold == other.threshold == -1.5
    np.testing.assert_allclose(one.null_odds, other.null_odds, atol=1e-4)
    assert trained.kind == folder.kind


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"precision": "int8", "check_file": "x"}, "--precision=int8 needs --calibration_file"),
        ({"precision": "int8", "calibration_file": "x"}, "--precision=int8 needs --check_file"),
        ({"precision": "bfloat16"}, "--precision=bfloat16 needs --check_file"),
        ({"weights": "float16"}, "--weights=float16 needs --check_file"),
        ({"weights": "float16", "format": "litert"}, "--weights=float16 is for onnx in float32"),
        ({"calibration_file": "x"}, "--format=onnx with --precision=float32 takes no --cali"),
        ({"min_agreement": 99, "check_file": "x"}, "--min_agreement=99.0 must be a fraction, from"),
        ({"max_metric_drop": -1, "check_file": "x"}, "--max_metric_drop=-1 must be at least 0"),
        ({"min_agreement": 1}, "--min_agreement is for the answers to --check_file: give both"),
        ({"max_metric_drop": 0}, "--max_metric_drop is for the answers to --check_file: give both"),
        ({"check_file": "nowhere.csv"}, "--check_file: the file nowhere.csv does not exist"),
        ({"model_dir": "nowhere"}, "there is no model folder nowhere"),
    ],
)
def test_bad_parameters_are_named(inputs, tmp_path, changes, message):
    with pytest.raises(file_io.InputError) as error:
        export(inputs, tmp_path / "out", **changes)
    assert message in str(error.value)
    assert not list(tmp_path.iterdir())


def test_combinations_that_cannot_be_are_refused():
    with pytest.raises(file_io.InputError, match="format=onnx .* onnx in float"):
        serving_export.export("run", "out", "onnx", "int4")


def test_exported_models_are_not_exported_again(inputs, tmp_path):
    export(inputs, tmp_path / "out")
    with pytest.raises(file_io.InputError, match="is an exported model; give the --output_dir of"):
        export(inputs, tmp_path / "again", model_dir=tmp_path / "out")
    with pytest.raises(file_io.InputError, match=r"--output_dir=.*out exists already"):
        export(inputs, tmp_path / "out")
    with pytest.raises(file_io.InputError, match="has no correct answers|label"):
        export(inputs, tmp_path / "again", check_file=inputs / "texts.jsonl")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
