"""GLUE: recorded features, the table, features, metrics and prediction files.

Reading files is tested in test_classifier_utils_reading.py.
"""

import collections
import gzip
import json
import re

import numpy as np
import pytest

from albert.io import file_io
from albert.model import layers
from albert.tasks import glue, metrics, prediction_files
from albert.text import model_inputs

LABELS = {
    "cola": ["0", "1"],
    "mnli": ["contradiction", "entailment", "neutral"],
    "mismnli": ["contradiction", "entailment", "neutral"],
    "mrpc": ["0", "1"],
    "rte": ["entailment", "not_entailment"],
    "sst-2": ["0", "1"],
    "sts-b": [],
    "qqp": ["0", "1"],
    "qnli": ["entailment", "not_entailment"],
    "wnli": ["0", "1"],
    "ax": ["contradiction", "entailment", "neutral"],
}


@pytest.fixture(scope="module")
def recorded(shared):
    with gzip.open(shared / "golden" / "data" / "glue_features.json.gz", "rt") as file:
        return json.load(file)


# --- recorded features --------------------------------------------------------------------------


def _reference_ids(sp_model, text):
    """The reference's defect: pieces made again keep a "▁" that the text does not have."""
    pieces = []
    for piece in sp_model.encode(text, out_type=str):
        if re.search(r"\d,$", piece) and len(piece) > 1:
            pieces += [*sp_model.encode(piece[:-1].replace("▁", ""), out_type=str), ","]
        else:
            pieces.append(piece)
    return sp_model.piece_to_id(pieces)


def _why_different(row, ids, tokenizer):
    """Asserts that recorded ids differ from ours only in a documented way; names it."""
    reference = [_reference_ids(tokenizer.sp_model, row["text_a"])]
    if row["text_b"] is not None:
        reference.append(_reference_ids(tokenizer.sp_model, row["text_b"]))
        reference = model_inputs.truncate_pair(*reference, 64 - 3)
    as_recorded = [tokenizer.cls_id]
    for part in reference:
        as_recorded += [*part, tokenizer.sep_id]
    if as_recorded == row["input_ids"]:
        return "comma"
    # Equally probable segmentations such as w|ww and ww|w: SentencePiece 0.2.1 and 0.2.3 choose
    # differently among them, so the pieces are the same in another order.
    assert sorted(ids) == sorted(row["input_ids"])
    return "tie"


@pytest.mark.parametrize("split", ["train", "dev", "test"])
@pytest.mark.parametrize("name", [name for name in LABELS if name != "ax"])
def test_recorded_features(recorded, shared, english, name, split):
    record = recorded[f"{name}/{split}"]
    task = glue.get_task(name)
    examples = task.examples(str(shared / "data" / "glue"), split)
    assert len(examples) == record["num_examples"]
    assert len(record["rows"]) == 60
    by_key = {(example.guid, example.text_a): example for example in examples}
    different = collections.Counter()
    for row in record["rows"]:
        example = by_key[row["guid"], row["text_a"]]
        assert (example.text_b, example.label) == (row["text_b"], row["label"])
        features = glue.convert_example(example, task, 64, english)
        length = int(features["input_mask"].sum())
        ids = features["input_ids"][:length].tolist()
        assert not features["input_ids"][length:].any()
        assert not features["segment_ids"][length:].any()
        assert not features["input_mask"][length:].any()
        assert features["label_ids"] == row["label_ids"]
        if ids == row["input_ids"]:
            assert features["segment_ids"][:length].tolist() == row["segment_ids"]
        else:
            different[_why_different(row, ids, english)] += 1
    assert different.total() <= 2, different


def test_diagnostic_set(shared):
    examples = glue.get_task("ax").examples(str(shared / "data" / "glue"), "test")
    assert len(examples) == 1104
    assert [example.guid for example in examples] == [str(i) for i in range(1104)]
    assert {example.label for example in examples} == {"contradiction"}
    assert examples[0].text_a == examples[1].text_b != examples[0].text_b


# --- the table ----------------------------------------------------------------------------------


def test_table_is_complete():
    assert {row.name: list(row.labels) for row in glue.TASKS} == LABELS
    assert [row.name for row in glue.TASKS if row.is_regression] == ["sts-b"]


def test_best_metric_is_among_the_scores():
    special = {"cola": "matthew_corr", "sts-b": "pearson"}
    for row in glue.TASKS:
        assert row.best_metric == special.get(row.name, "eval_accuracy")
        assert row.best_metric in dict(row.scores)
    scores = {row.name: sorted(dict(row.scores)) for row in glue.TASKS}
    assert scores["sts-b"] == ["MSE", "pearson", "spearman"]
    assert scores["mrpc"] == scores["qqp"] == ["eval_accuracy", "f1"]
    assert scores["cola"] == ["eval_accuracy", "matthew_corr"]


@pytest.mark.parametrize("name", ["MNLI", "SST-2", "sts-B"])
def test_case_of_a_name_does_not_matter(name):
    assert glue.get_task(name).name == name.lower()


@pytest.mark.parametrize(
    ("name", "near"), [("sst2", "sst-2"), ("STSB", "sts-b"), ("mnlli", "mnli"), ("qnil", "qnli")]
)
def test_unknown_task_with_a_near_name(name, near):
    with pytest.raises(file_io.InputError) as caught:
        glue.get_task(name)
    assert re.search(
        rf"task_name={name}: expected one of cola, mnli, .*, ax; did you mean {near}\?",
        str(caught.value),
    )


def test_unknown_task_without_a_near_name():
    with pytest.raises(file_io.InputError, match=r"task_name=imagenet: expected .* ax$"):
        glue.get_task("imagenet")


# --- features -----------------------------------------------------------------------------------


def _example(text_a, text_b=None, label="1"):
    return glue.InputExample("0", text_a, text_b, label)


def test_convert_pair(tokenizer):
    task = glue.get_task("mrpc")
    features = glue.convert_example(_example("the boat", "the"), task, 8, tokenizer)
    the, boat = tokenizer.convert_tokens_to_ids(["▁the", "▁boat"])
    assert features["input_ids"].tolist() == [2, the, boat, 3, the, 3, 0, 0]
    assert features["segment_ids"].tolist() == [0, 0, 0, 0, 1, 1, 0, 0]
    assert features["input_mask"].tolist() == [1, 1, 1, 1, 1, 1, 0, 0]
    assert (features["label_ids"], features["is_real_example"]) == (1, 1)


def test_convert_cuts(tokenizer):
    the, boat, is_ = tokenizer.convert_tokens_to_ids(["▁the", "▁boat", "▁is"])
    single = glue.convert_example(_example("the boat is"), glue.get_task("cola"), 4, tokenizer)
    assert single["input_ids"].tolist() == [2, the, boat, 3]
    pair = glue.convert_example(_example("the boat", "is boat"), glue.get_task("qqp"), 6, tokenizer)
    assert pair["input_ids"].tolist() == [2, the, boat, 3, is_, 3]


def test_convert_regression(tokenizer):
    task = glue.get_task("sts-b")
    for value in (0.0, 3.8, 5.0):
        features = glue.convert_example(_example("a", "b", value), task, 8, tokenizer)
        assert features["label_ids"] == np.float32(value)
        assert features["label_ids"].dtype == np.float32


def test_convert_with_wordpiece(wordpiece):
    task = glue.get_task("cola")
    features = glue.convert_example(_example("中国 Boats"), task, 8, wordpiece)
    pieces = wordpiece.convert_ids_to_tokens(features["input_ids"])
    assert pieces == ["[CLS]", "中", "国", "boats", "[SEP]", "[PAD]", "[PAD]", "[PAD]"]


def test_convert_unknown_label(tokenizer):
    task = glue.get_task("cola")
    with pytest.raises(file_io.InputError, match=r"example 0 of task cola: label '7', .* 0, 1"):
        glue.convert_example(_example("a", label="7"), task, 8, tokenizer)


@pytest.mark.parametrize("name", ["mnli", "sts-b", "sst-2"])
def test_features_survive_writing_and_parsing(tokenizer, name):
    from albert.data import input_pipeline, record_files

    label = {"sts-b": 4.25}.get(name, LABELS[name][-1] if LABELS[name] else None)
    glue_task = glue.get_task(name)
    text_b = None if name == "sst-2" else "a boat"
    example = _example("the boat", text_b, label)
    features = glue.convert_example(example, glue_task, 16, tokenizer)
    specs = glue.feature_specs(16, glue_task.is_regression)
    parsed = input_pipeline.parse(specs, [record_files.encode(specs, features)])
    assert parsed.keys() == features.keys()
    for key, value in features.items():
        np.testing.assert_array_equal(parsed[key][0], value)
    assert parsed["label_ids"].dtype == ("float32" if name == "sts-b" else "int32")
    assert [spec.name for spec in specs if spec.sequence] == [
        *("input_ids", "input_mask", "segment_ids"),
    ]


# --- the task of the engine ---------------------------------------------------------------------


@pytest.mark.parametrize(("name", "shortest"), [("sst-2", 3), ("rte", 5), ("ax", 5)])
def test_task_refuses_lengths_without_room(tokenizer, name, shortest):
    row = glue.get_task(name)
    label = row.labels[0]
    texts = ("the boat", None if name == "sst-2" else "the boat")
    example = _example(*texts, label)
    features = glue.convert_example(example, row, shortest, tokenizer)
    assert features["input_mask"].all()
    glue.check_length(row, shortest)
    with pytest.raises(file_io.InputError, match=rf"length={shortest - 1}: .* {shortest} for"):
        glue.check_length(row, shortest - 1)


def _model_rows(name, tokenizer, labels):
    """Runs the task's own model on a batch whose last example only fills it."""
    import tensorflow as tf

    from albert.model import encoder

    row = glue.get_task(name)
    made = glue.make_task(row)
    config = encoder.AlbertConfig(
        vocab_size=400,
        embedding_size=8,
        hidden_size=12,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=8,
        initializer_range=0.5,
    )
    model = made.build_model(config, layers.Compute(), 1)
    batch = [
        glue.convert_example(_example("the boat", "is", label), row, 8, tokenizer)
        for label in labels
    ]
    features = {key: tf.constant(np.stack([f[key] for f in batch])) for key in batch[0]}
    real = [1] * (len(labels) - 1) + [0]
    features["is_real_example"] = tf.constant(real, tf.int64)
    features = {k: tf.cast(v, tf.int32) if v.dtype == tf.int64 else v for k, v in features.items()}
    outputs = model(features, training=False)
    rows = made.eval_outputs(outputs, features)
    return made, {key: value.numpy() for key, value in rows.items()}, outputs, features


def test_eval_outputs_of_a_classifier(tokenizer):
    labels = ["neutral", "entailment", "contradiction", "neutral"]
    made, rows, outputs, features = _model_rows("mnli", tokenizer, labels)
    logits = outputs["logits"].numpy().astype(np.float64)
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    assert rows["probabilities"].shape == (4, 3)
    np.testing.assert_allclose(rows["probabilities"], probabilities, rtol=1e-5)
    np.testing.assert_array_equal(rows["predictions"], logits.argmax(1))
    expected = -np.log(probabilities[np.arange(4), [2, 1, 0, 2]])
    np.testing.assert_allclose(rows["per_example_loss"], expected, rtol=1e-5)
    np.testing.assert_array_equal(rows["label_ids"], [2, 1, 0, 2])
    result = _evaluate(made, rows)
    assert result["eval_loss"] == pytest.approx(expected[:3].mean(), rel=1e-5)
    assert result["eval_accuracy"] == np.mean(logits.argmax(1)[:3] == [2, 1, 0])
    total, weight = made.train_metrics(outputs, features)["accuracy"]
    assert float(weight) == 3 and float(total) == 3 * result["eval_accuracy"]


def test_eval_outputs_of_a_regression(tokenizer):
    made, rows, outputs, features = _model_rows("sts-b", tokenizer, [0.0, 2.5, 5.0, 1.0])
    logits = outputs["logits"].numpy()
    assert rows["probabilities"].shape == (4, 1)
    np.testing.assert_array_equal(rows["probabilities"][:, 0], rows["predictions"])
    expected = (logits - [0, 2.5, 5, 1]) ** 2
    np.testing.assert_allclose(rows["per_example_loss"], expected, rtol=1e-5)
    result = _evaluate(made, rows)
    # The three texts are the same, so the predictions are constant: correlations are 0, not NaN.
    assert result["pearson"] == result["spearman"] == 0.0
    assert result["MSE"] == pytest.approx(expected[:3].mean(), rel=1e-5)
    assert made.train_metrics(outputs, features) == {}


def _evaluate(made, rows, sizes=(1, 10**9)):
    evaluator = made.evaluator()
    start = 0
    for size in sizes:
        evaluator.update({key: value[start : start + size] for key, value in rows.items()})
        start += size
    return evaluator.result()


@pytest.mark.parametrize("name", list(LABELS))
def test_evaluator_scores_uneven_batches_as_one(name):
    rng = np.random.default_rng(5)
    row = glue.get_task(name)
    made = glue.make_task(row)
    count = 37
    rows = {
        "label_ids": rng.integers(0, 2, count),
        "predictions": rng.integers(0, 2, count),
        "probabilities": rng.random((count, 2)),
        "per_example_loss": rng.random(count).astype(np.float32),
        "is_real_example": (np.arange(count) % 9 > 0).astype(np.int32),
    }
    if row.is_regression:
        rows["label_ids"] = rng.random(count).astype(np.float32)
        rows["predictions"] = rng.random(count).astype(np.float32)
    result = _evaluate(made, rows, (16, 16, 5))
    assert result == pytest.approx(_evaluate(made, rows, (1, 36)), rel=1e-12)
    real = rows["is_real_example"] == 1
    labels, predictions = rows["label_ids"][real], rows["predictions"][real]
    loss = rows["per_example_loss"][real].mean(dtype=np.float64)
    expected = {"eval_loss": loss, "loss": loss}
    if row.is_regression:
        expected["pearson"] = np.corrcoef(labels, predictions)[0, 1]
        expected["spearman"] = metrics.spearman(labels, predictions)
        expected["MSE"] = np.mean((labels.astype(float) - predictions) ** 2)
    else:
        expected["eval_accuracy"] = np.mean(labels == predictions)
    if name == "cola":
        expected["matthew_corr"] = np.corrcoef(labels, predictions)[0, 1]
    if name in ("mrpc", "qqp"):
        expected["f1"] = metrics.f1(labels, predictions)
    known = {key: result.pop(key) for key in expected}
    assert known == pytest.approx(expected, rel=1e-6)
    assert all(type(value) is float for value in known.values())
    of_classes = (*made.results_form.added, *made.results_form.by_class)
    assert {*result} == {*of_classes}  # tests/tasks/test_class_scores.py


# --- prediction files ---------------------------------------------------------------------------


def write_files(task, folder, rows, ids):
    labels = glue.get_task(task).labels
    prediction_files.write_classifier_files(str(folder), rows, ids, labels)


def test_prediction_files_equal_the_recorded_ones(golden, tmp_path):
    recorded = golden / "runs" / "classifier"
    text = (recorded / "test_results.tsv").read_text()
    probabilities = np.array([line.split("\t") for line in text.splitlines()], np.float32)
    submitted = [line.split("\t") for line in (recorded / "submit_results.tsv").open()][1:]
    rows = {
        "probabilities": probabilities,
        "predictions": probabilities.argmax(1).astype(np.int32),
    }
    ids = [guid for guid, _ in submitted]
    write_files("wnli", tmp_path, rows, ids)
    for name in ("test_results.tsv", "submit_results.tsv"):
        assert (tmp_path / name).read_bytes() == (recorded / name).read_bytes()


def test_prediction_files_hold_ids_and_label_names(tmp_path):
    rows = {
        "probabilities": np.array([[0.25, 1e-6, 0.75], [0.1, 0.7, 0.2]], np.float32),
        "predictions": np.array([2, 1], np.int32),
    }
    write_files("mnli", tmp_path, rows, ["31", "x-7"])
    assert (tmp_path / "test_results.tsv").read_text() == "0.25\t1e-06\t0.75\n0.1\t0.7\t0.2\n"
    assert (tmp_path / "submit_results.tsv").read_text() == (
        "index\tprediction\n31\tneutral\nx-7\tentailment\n"
    )


def test_prediction_files_of_a_regression(tmp_path):
    scores = np.array([2.7182817, -0.1], np.float32)
    rows = {"probabilities": scores[:, None], "predictions": scores}
    write_files("sts-b", tmp_path, rows, ["0", "1"])
    assert (tmp_path / "test_results.tsv").read_text() == "2.7182817\n-0.1\n"
    assert (tmp_path / "submit_results.tsv").read_text() == (
        "index\tprediction\n0\t2.7182817\n1\t-0.1\n"
    )


def test_prediction_files_need_an_id_each(tmp_path):
    rows = {"probabilities": np.ones((2, 2)), "predictions": np.array([0, 1])}
    with pytest.raises(ValueError, match="1 ids for 2 predictions"):
        write_files("rte", tmp_path, rows, ["a"])
