"""Words to pieces, long sentences in parts, and parts put together again."""

import json

import numpy as np
import pytest

from albert.io import file_io
from albert.tasks import custom, token_classification, word_files

LABELS = ("O", "B-A", "I-A")


def make(tokenizer, words, labels, length):
    sentence = word_files.Sentence("7", tuple(words), tuple(labels), "f line 1")
    return list(token_classification.parts_of(sentence, 3, LABELS, length, tokenizer))


def test_the_first_piece_of_a_word_has_its_label(tokenizer):
    (part,) = make(tokenizer, ["baker", "\u0301", "the"], ["B-A", "I-A", "O"], 12)
    assert tokenizer.convert_ids_to_tokens(part.ids) == [
        *("\u2581b", "ak", "er", tokenizer.inv_vocab[tokenizer.unk_id], "\u2581the")
    ]
    features = token_classification.convert_part(part, 12, tokenizer)
    assert features["input_ids"].tolist()[:7] == [tokenizer.cls_id, *part.ids, tokenizer.sep_id]
    assert features["first_pieces"].tolist() == [0, 1, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0]
    assert features["label_ids"].tolist() == [0, 1, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]
    assert features["input_mask"].sum() == 7 and not features["segment_ids"].any()
    names = {spec.name for spec in token_classification.feature_specs(12)}
    assert names == set(features) and features["sentence"] == 3 and features["part"] == 0


@pytest.mark.parametrize("length", [3, 5, 6, 9, 40])
def test_parts_hold_every_word_once(tokenizer, length):
    words = "the baker and the cook was old . bread".split()
    labels = ["O", "B-A", "O", "O", "B-A", "O", "O", "O", "I-A"]
    parts = make(tokenizer, words, labels, length)
    assert [part.part for part in parts] == list(range(len(parts)))
    # The words have 1, 3, 2, 1, 2, 2, 2, 2 and 2 pieces.
    assert len(parts) == {3: 9, 5: 8, 6: 5, 9: 3, 40: 1}[length]
    rows = [token_classification.convert_part(part, length, tokenizer) for part in parts]
    assert all(row["input_mask"].sum() <= length for row in rows)
    # Batches come in any order.
    stacked = {name: np.stack([row[name] for row in rows[::-1]]) for name in rows[0]}
    ((found, ids),) = token_classification.by_sentence(stacked, "label_ids", "input_ids")
    assert [LABELS[i] for i in found] == labels
    assert ids == [tokenizer.encode(word)[0] for word in words]


def test_scores_of_evaluations(tokenizer):
    evaluator = token_classification.Evaluator(LABELS)
    starts = np.array([[0, 1, 1, 0], [0, 1, 0, 0]])
    evaluator.update({
        "label_ids": np.array([[0, 1, 2, 0], [0, 1, 0, 0]]), "first_pieces": starts,
        "predictions": np.array([[2, 1, 2, 1], [1, 0, 0, 0]]), "sentence": np.array([4, 1]),
        "part": np.array([0, 0]), "token_loss": np.array([1.0, 0.5], np.float32),
    })  # fmt: skip
    found = evaluator.result()
    assert found == pytest.approx({
        "eval_accuracy": 2 / 3, "eval_loss": 0.5, "loss": 0.5, "precision": 1.0, "recall": 0.5,
        "f1": 2 / 3, "precision_A": 1.0, "recall_A": 0.5, "f1_A": 2 / 3,
    })  # fmt: skip
    shares = np.array([2, 1]) / 3  # of the labels of first pieces: 1, 2, 1
    assert evaluator.baseline() == pytest.approx({
        "eval_accuracy": 2 / 3, "eval_loss": -np.sum(shares * np.log(shares)),
        "loss": -np.sum(shares * np.log(shares)), "precision": 1 / 3, "recall": 0.5, "f1": 0.4,
        "precision_A": 1 / 3, "recall_A": 0.5, "f1_A": 0.4,
    })  # fmt: skip
    assert evaluator.classes() == (("A", 2, 1, 1),)  # entities
    words = token_classification.Evaluator(("NN", "VB", "DT"))
    words.update({
        "label_ids": np.array([[0, 1, 2, 0]]), "first_pieces": np.array([[0, 1, 1, 1]]),
        "predictions": np.array([[2, 1, 0, 1]]), "sentence": np.array([0]), "part": np.array([0]),
    })  # fmt: skip
    assert words.classes() == (("NN", 1, 1, 0), ("VB", 1, 2, 1), ("DT", 1, 0, 0))
    assert token_classification.make_task(LABELS, 9).best_metric == "f1"
    assert token_classification.make_task(("NN", "VB"), 9).best_metric == "eval_accuracy"


def test_a_model_to_start_from_brings_its_labels(tmp_path):
    """In its own order, which is that of its weights."""
    path, theirs = tmp_path / "train.conll", tmp_path / "theirs"
    path.write_text("a B-X\nb O\n")
    theirs.mkdir()

    files = {"train": str(path)}

    def find(files=files, **config):
        (theirs / "config.json").write_text(json.dumps({"model_type": "bert", **config}))
        checkpoint = str(theirs / "model.safetensors")
        columns = word_files.Columns()
        return token_classification.find_labels(str(tmp_path), files, columns, checkpoint)

    tagger = {"architectures": ["BertForTokenClassification"]}
    labels = {"0": "B-X", "2": "O", "1": "I-X"}
    assert find(**tagger, id2label=labels) == ("B-X", "I-X", "O")
    assert find({}, **tagger, id2label=labels) == ("B-X", "I-X", "O")
    assert find(architectures=["BertForMaskedLM"], id2label=labels) == ("O", "B-X")
    with pytest.raises(file_io.InputError, match="has labels B-X, which the model to start from d"):
        find(**tagger, id2label={"0": "O", "1": "B-Y"})
    for wrong in (None, {}, {"0": "O", "2": "B-X"}, {"0": "O", "1": "O"}, {"0": "O", "1": 3}):
        with pytest.raises(file_io.InputError, match="expected id2label with different names of t"):
            find(**tagger, id2label=wrong)


def test_labels_of_data_and_of_folders(tmp_path):
    path = tmp_path / "train.conll"
    path.write_text("a B-X\nb O\n\nc A-X\n")

    def find():
        return token_classification.find_labels(
            str(tmp_path), {"train": str(path)}, word_files.Columns()
        )

    assert find() == ("O", "A-X", "B-X")
    path.write_text("a O\n")
    with pytest.raises(
        file_io.InputError, match=r"conll: expected two labels or more, found O: add"
    ):
        find()
    with pytest.raises(file_io.InputError, match="labels.json with the names of the labels: expec"):
        token_classification.find_labels(str(tmp_path), {}, word_files.Columns())
    custom.save_labels(str(tmp_path), ("O", "Z"))
    assert find() == ("O", "Z")
