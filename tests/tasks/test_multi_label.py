"""Texts with any number of labels: the head, training end to end, predictions of every way."""

import csv
import json
import random
import shutil

import numpy as np
import pytest
import tensorflow as tf

from albert import compare, export_to_huggingface, predict, run_classifier
from albert.experiments import predictions, report, runs, sweep_results
from albert.io import file_io, tables
from albert.model import decision, layers
from albert.serving import multi_label_predictor, predictors, served_model, tensors
from albert.tasks import kinds, label_sets, multi_label
from tests.support import builders, command_lines
from tests.support.builders import read_results

FOODS = ("bread", "cake", "soup")
COUNTS = {"train": 200, "dev": 40, "test": 12}
TEXTS = ["the bread was fine .", "the cake and the soup .", "the house ."]


def make_rows(split):
    """(text, labels) pairs: the text names its labels."""
    rng = random.Random(split)
    for _ in range(COUNTS[split]):
        foods = [food for food in FOODS if rng.random() < 0.4]
        words = rng.sample(foods, len(foods)) or ["house"]
        yield f"the {' and the '.join(words)} was {rng.choice(['fine', 'ugly'])} .", foods


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sets")
    config = builders.tiny_config(
        embedding_size=16, hidden_size=32, intermediate_size=64, initializer_range=0.2
    )
    (folder / "albert_config.json").write_text(config.to_json_string())
    for split in COUNTS:
        rows = list(make_rows(split))
        lines = [json.dumps({"text": text, "label": foods}) for text, foods in rows]
        (folder / f"{split}.jsonl").write_text("\n".join(lines))
        with open(folder / f"{split}.csv", "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["text", "label", *FOODS])
            for text, foods in rows:
                writer.writerow([text, "; ".join(foods), *(int(f in foods) for f in FOODS)])
    return folder


def flags_of(inputs, output_dir, ending="jsonl", **changes):
    names = {"train_file": "train", "validation_file": "dev", "test_file": "test"}
    return {
        "task_name": "custom", "label_type": "multi_label", "output_dir": output_dir,
        "albert_config_file": inputs / "albert_config.json", "spm_model_file": builders.SPM,
        "max_seq_length": 24, "train_batch_size": 16, "learning_rate": 2e-3, "train_step": 150,
        "save_checkpoints_steps": 150, "from_scratch": True, "eval_batch_size": 32,
        **{flag: inputs / f"{name}.{ending}" for flag, name in names.items()}, **changes,
    }  # fmt: skip


@pytest.fixture(scope="module")
def trained(inputs, run_script, tmp_path_factory):
    """The folder of a run that has learned."""
    folder = tmp_path_factory.mktemp("trained")
    flags = flags_of(inputs, folder)
    run_script(run_classifier, **flags, do_train=True, do_eval=True, do_predict=True)
    return folder


# --- the head -------------------------------------------------------------------------------------


def test_the_loss_is_the_mean_of_binary_cross_entropies():
    model, features = builders.make_model("multi_label"), builders.make_features("multi_label")
    outputs = model(features)
    logits, labels = outputs["logits"].numpy(), features["label_ids"].numpy()
    p = 1 / (1 + np.exp(-logits.astype(np.float64)))
    losses = -(labels * np.log(p) + (1 - labels) * np.log(1 - p))
    np.testing.assert_allclose(outputs["per_example_loss"], losses.mean(axis=1), rtol=1e-5)
    np.testing.assert_allclose(model.loss(outputs, features), losses.mean(), rtol=1e-5)
    np.testing.assert_allclose(outputs["probabilities"], p, rtol=1e-5)
    np.testing.assert_array_equal(outputs["predictions"], p >= 0.5)
    features["is_real_example"] = tf.constant([1, 0, 1, 0])
    real = losses[::2].mean()
    np.testing.assert_allclose(model.loss(model(features), features), real, rtol=1e-5)


def test_positive_weights_are_in_the_loss_of_training_alone():
    model, features = builders.make_model("multi_label"), builders.make_features("multi_label")
    plain = model(features)["per_example_loss"]
    weights = np.array([0.5, 2.0, 7.0])
    model._positive_weights = tuple(weights)
    outputs, labels = model(features), features["label_ids"].numpy()
    logits = outputs["logits"].numpy().astype(np.float64)
    losses = np.where(labels, weights, 1) * np.log1p(np.exp(np.where(labels, -logits, logits)))
    features["is_real_example"] = tf.constant([1, 0, 1, 1])
    expected = losses[[0, 2, 3]].mean()
    np.testing.assert_allclose(model.loss(outputs, features), expected, rtol=1e-5)
    np.testing.assert_array_equal(outputs["per_example_loss"], plain)
    task = multi_label.make_task(
        label_sets.LabelSetTask({}, tables.Columns(), FOODS), positive_weights=[0.5, 2.0, 7.0]
    )
    built = task.build_model(builders.tiny_config(), layers.Compute(), 1)
    assert built._positive_weights == (0.5, 2.0, 7.0)


def test_thresholds_and_temperature_decide_but_do_not_change_the_loss(tmp_path):
    model, features = builders.make_model("multi_label"), builders.make_features("multi_label")
    model.output.bias.assign([1.0, -1.0, 0.1])
    plain = model(features)
    probabilities = plain["probabilities"].numpy()
    thresholds = tuple(float(x) for x in probabilities[1])  # at the threshold: has the label
    model.decision = decision.Decision(2.0, thresholds=thresholds)
    model._thresholds = model.decision.thresholds_of(3)
    found = model(features)
    np.testing.assert_array_equal(found["per_example_loss"], plain["per_example_loss"])
    np.testing.assert_allclose(found["probabilities"], tf.sigmoid(plain["logits"] / 2), rtol=1e-6)
    np.testing.assert_array_equal(found["predictions"], found["probabilities"] >= thresholds)
    model.decision = decision.Decision(thresholds=thresholds)
    assert model(features)["predictions"].numpy()[1].tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"thresholds": [0.5, 1.5]}, "thresholds: number 1 is 1.5, expected one from 0 to 1"),
        ({"thresholds": 0.5}, "thresholds=0.5 must be a list"),
        ({"thresholds": [0.5]}, "there are 1 thresholds for 3 labels"),
    ],
)
def test_invalid_thresholds_name_the_folder(tmp_path, setting, message):
    folder = builders.write_multi_label(tmp_path)
    description = json.loads((tmp_path / "model.json").read_text())
    description["settings"]["decision"] = setting
    (tmp_path / "model.json").write_text(json.dumps(description))
    with pytest.raises(file_io.InputError, match=message):
        predictors.load(folder)


# --- training -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_learns_and_its_files_name_several_labels(trained, inputs):
    assert json.loads((trained / "labels.json").read_text()) == [*FOODS]
    first, last = read_results(trained)
    assert float(first["micro_f1"]) < 0.8 < float(last["micro_f1"])
    assert float(last["best"]) == float(last["micro_f1"])
    description = json.loads((trained / "model.json").read_text())
    assert description["kind"] == label_sets.KIND
    assert description["settings"]["label_type"] == "multi_label"
    true = [foods for _, foods in make_rows("test")]
    rows = builders.read_examples(trained)
    assert [row["label"] for row in rows] == true
    for row in rows:
        chosen = [name for name, x in row["probabilities"].items() if x >= 0.5]
        assert row["prediction"] == chosen and row["right"] == (chosen == row["label"])
    table = [line.split("\t") for line in (trained / "predictions.tsv").read_text().splitlines()]
    assert table[0] == ["id", "prediction", *(f"probability_{food}" for food in FOODS)]
    assert [line[1] for line in table[1:]] == [",".join(row["prediction"]) for row in rows]
    scores = (trained / "predict_results.txt").read_text()
    assert "subset_accuracy = " in scores and "average_precision_soup = " in scores
    record = json.loads((trained / "run.json").read_text())
    assert {row["name"] for row in record["classes"]} == {*FOODS}
    found = predictions.read(runs.read_run(str(trained), "one"))
    for name, metric in found.metrics.items():
        assert metric.value == pytest.approx(record["test"][name], rel=1e-6), name


@pytest.mark.slow
def test_all_forms_of_labels_give_the_same_model(trained, inputs, tmp_path, run_script):
    expected = (trained / "eval_results.txt").read_text().split("=" * 50)[0]
    stages = {"do_train": True, "do_eval": True, "save_checkpoints_steps": 1, "train_step": 1}
    for name, changes in {
        "column": {"label_separator": ";"}, "bits": {"label_columns": ",".join(FOODS)}
    }.items():  # fmt: skip
        flags = flags_of(inputs, tmp_path / name, "csv", **(changes | stages))
        run_script(run_classifier, **flags)
        assert (tmp_path / name / "eval_results.txt").read_text().split("=" * 50)[0] == expected
    # Prediction reads how labels are written from the folder.
    test = {"test_file": inputs / "test.csv", "output_dir": tmp_path / "bits"}
    run_script(run_classifier, task_name="custom", do_predict=True, **test)
    assert [row["label"] for row in builders.read_examples(tmp_path / "bits")] == [
        foods for _, foods in make_rows("test")
    ]
    settings = json.loads((tmp_path / "column" / "model.json").read_text())["settings"]
    assert settings["label_separator"] == ";"


@pytest.mark.slow
def test_a_run_starts_from_the_head_of_another(trained, inputs, tmp_path, run_script):
    flags = flags_of(inputs, tmp_path, init_checkpoint=trained, from_scratch=False)
    flags |= {"train_step": 1, "save_checkpoints_steps": 1, "warmup_step": 0}
    run_script(run_classifier, **flags, do_train=True, do_eval=True)
    assert read_results(tmp_path)[0]["micro_f1"] == read_results(trained)[-1]["micro_f1"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"label_type": "classification", "label_separator": ";"}, "--label_separator: only for"),
        ({"label_columns": "a,b", "label_column": "c"}, "give --label_columns or --label_column"),
        ({"standardize_labels": True}, "--standardize_labels: only for regressions"),
        ({"teacher": "somewhere"}, "--teacher: task custom is for several labels per text"),
        ({"label_column": "text"}, "must be different; found text, text"),
        ({"label_type": "classification"}, "must be one label, found a list; .*multi_label"),
    ],
)  # fmt: skip
def test_mistakes_are_named(inputs, tmp_path, run_script, changes, message):
    with pytest.raises(file_io.InputError, match=message):
        run_script(run_classifier, **flags_of(inputs, tmp_path, **changes), do_train=True)


@pytest.fixture(scope="module")
def worse(trained, tmp_path_factory):
    """A copy of the run that gives the first eight texts no label."""
    folder = tmp_path_factory.mktemp("worse") / "worse"
    shutil.copytree(trained, folder)
    rows = builders.read_examples(trained)
    changed = [row | {"prediction": [], "right": not row["label"]} for row in rows[:8]]
    lines = [json.dumps(row) + "\n" for row in [*changed, *rows[8:]]]
    (folder / "examples.jsonl").write_text("".join(lines))
    return folder


@pytest.mark.slow
def test_reports_and_cards_describe_several_labels(trained, worse, tmp_path, run_script):
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    page = report.run_page(runs.read_run(str(worse), "run"))
    assert "Micro F1 " in page and "fraction of texts with exactly the right labels" in page
    assert "always answering" not in page and "How often each label was predicted" not in page
    assert "Scores of each label" in page and "Worst examples of test.jsonl" in page
    run_script(export_to_huggingface, model_dir=trained, output_dir=tmp_path / "hub")
    card = (tmp_path / "hub" / "README.md").read_text()
    assert '"micro_f1, best of 2 checkpoints"' in card and "| 2 | soup |" in card
    assert "AutoModelForSequenceClassification" in card and "| macro_average_precision |" in card


@pytest.mark.slow
def test_runs_are_compared_by_decisions_and_read_by_sweeps(trained, worse, capsys):
    pytest.importorskip("scipy")
    rows = builders.read_examples(trained)
    command_lines.run(compare, f"--runs={trained},{worse}")
    text = capsys.readouterr().out
    lost = sum(row["right"] and bool(row["label"]) for row in rows[:8])
    assert f"worse loses {lost} examples" in text and "micro_f1" in text
    value_of = {}
    for name in (None, "macro_f1", "f1_soup", "hamming_loss"):
        step, value, scores = sweep_results.read_score(str(trained), name)
        assert step == 150 and value == scores[name or "micro_f1"]
        value_of[name] = value
        assert [*sweep_results.read_curve(str(trained), name)] == [150]
    learning = sweep_results.read_learning(str(trained), "macro_f1", 150)
    assert 0 < learning["baseline"] < value_of["macro_f1"]


# --- predictions ----------------------------------------------------------------------------------


def test_predictions_use_the_thresholds_of_the_folder(tmp_path, run_script):
    plain = predictors.load(builders.write_multi_label(tmp_path / "plain"))
    rows = list(plain.predict(TEXTS))
    thresholds = tuple(rows[1].probabilities.values())
    chosen = decision.Decision(thresholds=thresholds)
    strict = builders.write_multi_label(tmp_path / "strict", decision=chosen)
    found = list(predictors.load(strict).predict(TEXTS))
    for one, other in zip(rows, found, strict=True):
        assert one.probabilities == other.probabilities
        members = zip(other.probabilities.items(), thresholds, strict=True)
        assert list(other.prediction) == [name for (name, x), t in members if x >= t]
    assert found[1].prediction == builders.LABELS
    reply = predictors.load(strict).to_json(found[1])
    assert reply["prediction"] == [*builders.LABELS]
    assert tuple(reply["thresholds"].values()) == thresholds
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    for name in ("out.tsv", "out.jsonl"):
        files = {"input_file": tmp_path / "texts.txt", "output_file": tmp_path / name}
        run_script(predict, model_dir=strict, **files)
    lines = (tmp_path / "out.tsv").read_text().splitlines()
    assert lines[2].split("\t")[:2] == ["1", ",".join(builders.LABELS)]
    line = json.loads((tmp_path / "out.jsonl").read_text().splitlines()[1])
    assert line["prediction"] == [*builders.LABELS]


def test_labels_with_a_comma_are_not_joined_by_commas(tmp_path, run_script, capsys):
    """As a folder of Hugging Face may have them."""
    labels = ("soups, stews", "bread", "cake")
    folder = builders.write_multi_label(tmp_path / "run", labels)
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    flags = {"model_dir": folder, "input_file": tmp_path / "texts.txt"}
    for changes in ({}, {"output_file": tmp_path / "out.tsv"}):
        with pytest.raises(file_io.InputError, match=r"'soups, stews' has ',' .* write \.jsonl"):
            run_script(predict, **flags, **changes)
    assert not (tmp_path / "out.tsv").exists()
    run_script(predict, **flags, output_format="jsonl")
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert all({*row["probabilities"]} == {*labels} for row in rows)


def test_the_server_answers_with_members_and_thresholds(tmp_path):
    model = served_model.load(builders.write_multi_label(tmp_path))
    (reply,) = model.answer([{"text": TEXTS[0]}])
    assert {*reply} == {"prediction", "probabilities", "thresholds"}
    assert reply["thresholds"] == dict.fromkeys(builders.LABELS, 0.5)
    found = {tensor.name: tensor.value_of(reply) for tensor in model.outputs}
    assert found["probabilities"] == [*reply["probabilities"].values()]
    assert found["predictions"] == [int(x >= 0.5) for x in found["probabilities"]]
    shapes = {tensor.name: tensor.shape for tensor in model.outputs}
    assert shapes["predictions"] == shapes["probabilities"] == (tensors.ANY, 3)
    ids = {tensor.name: tensor.shape for tensor in model.ids.outputs}
    assert ids == {"predictions": (tensors.ANY, 3), "probabilities": (tensors.ANY, 3)}


def test_a_labeled_file_is_scored_by_decision(tmp_path):
    folder = builders.write_multi_label(tmp_path / "model")
    (tmp_path / "dev.jsonl").write_text(
        "\n".join(json.dumps({"text": text, "label": ["fine"]}) for text in TEXTS)
    )
    predictor = predictors.load(folder)
    assert isinstance(predictor, multi_label_predictor.MultiLabelPredictor)
    examples, gold = predictor.read(str(tmp_path / "dev.jsonl"), labeled=True)
    assert gold == [("fine",)] * 3
    answers = predictor.answers(predictor.predict(examples))
    assert len(answers) == 9
    assert predictor.score(gold, [False, True, False] * 3) == 100.0
    assert predictor.score(gold, [False, True, True] * 3) == pytest.approx(100 * 2 / 3)
    assert kinds.read_folder(folder).kind == label_sets.KIND
