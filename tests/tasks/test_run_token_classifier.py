"""Token classification end to end: training, scores, predictions, exports, other programs."""

import importlib.util
import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

from albert import export_checkpoints, export_to_huggingface, predict, run_token_classifier
from albert.cli import options
from albert.experiments import model_card, reproduction, runs
from albert.experiments.predictions import read as read_predictions
from albert.io import file_io
from albert.model import checkpoints, encoder, heads
from albert.serving import example_requests, requests, token_predictor
from albert.tasks import entities, token_classification, word_files
from albert.text import tokenization
from albert.training import run_record
from tests.support import builders, command_lines, token_samples

LENGTH = 20
HAS_TEXT = importlib.util.find_spec("tensorflow_text") is not None
CONFIG = builders.tiny_config(
    embedding_size=16, hidden_size=32, intermediate_size=64, initializer_range=0.2,
    num_attention_heads=4,
)  # fmt: skip
TEST = list(token_samples.sentences(25, seed=3))


def flags_of(folder, output_dir, **changes):
    return {
        "train_file": folder / "train.conll", "validation_file": folder / "dev.conll",
        "test_file": folder / "test.conll", "output_dir": output_dir,
        "albert_config_file": folder / "config.json", "spm_model_file": builders.SPM,
        "max_seq_length": LENGTH, "train_step": 150, "save_checkpoints_steps": 150,
        "train_batch_size": 16, "learning_rate": 3e-3, "log_every_steps": 50, **changes,
    }  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Data, and a model in `model`, with exported models; the last test sentence is a long one."""
    folder = tmp_path_factory.mktemp("tokens")
    token_samples.write(folder / "train.conll", token_samples.sentences(400, seed=1))
    token_samples.write(folder / "dev.conll", token_samples.sentences(50, seed=2))
    token_samples.write(folder / "test.conll", [*TEST, sum(TEST[:5], [])])
    (folder / "config.json").write_text(CONFIG.to_json_string())
    builders.run(
        run_token_classifier,
        **flags_of(
            folder, folder / "model", do_train=True, do_eval=True, do_predict=True,
            from_scratch=True, export_dir=folder / "export", export_text=HAS_TEXT,
        ),
    )  # fmt: skip
    return folder


def read_conll(path):
    """[[fields of a word]] of each sentence."""
    blocks = path.read_text().strip("\n").split("\n\n")
    return [[line.split("\t") for line in block.split("\n")] for block in blocks]


@pytest.mark.slow
def test_labels_are_learned_and_scored(trained):
    first, last = builders.read_results(trained / "model")
    assert float(last["f1"]) > 0.9 > float(first["f1"])
    assert {"precision", "recall", "eval_accuracy", "eval_loss", "f1_FOOD", "f1_MAN"} <= set(last)
    labels = json.loads((trained / "model" / "labels.json").read_text())
    assert labels == token_samples.LABELS
    kept = example_requests.read(str(trained / "model"), requests.WORDS)
    _, *dev = (trained / "dev.conll").read_text().strip("\n").split("\n\n")  # -DOCSTART- first
    assert [example["words"] for example in kept] == [
        [line.split()[0] for line in dev[i].split("\n")] for i in (0, 16, 33)
    ]
    rows = read_conll(trained / "model" / "predictions.conll")
    assert [[tuple(fields[:2]) for fields in row] for row in rows] == [*TEST, sum(TEST[:5], [])]
    # The scores are those of what was written, the parts of the long sentence put together.
    true, predicted = ([[fields[i] for fields in row] for row in rows] for i in (1, 2))
    text = (trained / "model" / "predict_results.txt").read_text()
    found = {key: float(value) for key, value in (line.split(" = ") for line in text.splitlines())}
    for name, value in entities.scores(true, predicted).items():
        assert found[name] == pytest.approx(value, abs=1e-6)
    assert found["eval_accuracy"] == pytest.approx(entities.accuracy(true, predicted), abs=1e-6)
    kept = read_predictions(runs.read_run(str(trained / "model"), "run"))
    for name in ("f1", "precision", "recall", "eval_accuracy"):
        assert kept.metrics[name].value == pytest.approx(found[name], abs=1e-6)
    assert [kept.right[key] for key in kept.labels] == [
        a == b for a, b in zip(true, predicted, strict=True)
    ]
    examples = builders.read_examples(trained / "model")
    right, words = (
        sum(row["numbers"][name] for row in examples) for name in ("right_words", "words")
    )
    assert right / words == pytest.approx(found["eval_accuracy"], abs=1e-6)
    assert {row["id"]: row["right"] for row in examples} == kept.right
    record = run_record.read(str(trained / "model"))
    assert record["test"]["f1"] == pytest.approx(found["f1"]) and record["evaluated"] == 2
    assert 0 <= record["baseline"]["f1"] < record["baseline"]["eval_accuracy"] < 0.9
    lines = (trained / "model" / "predictions.jsonl").read_text().splitlines()
    for line, row in zip(lines, rows, strict=True):
        one = json.loads(line)
        assert one["labels"] == [fields[2] for fields in row]
        assert len(one["probabilities"]) == len(row)
        spans = [(e["type"], e["start"], e["end"]) for e in one["entities"]]
        assert spans == entities.find(one["labels"])


def test_the_record_knows_the_data(trained):
    """So `reproduce` notices changed files, and a model card has the results."""
    record = run_record.read(str(trained / "model"))
    for role, name in (("train", "train"), ("eval", "dev"), ("predict", "test")):
        entry = record["inputs"][f"{role}_data"]
        assert entry["path"] == str(trained / f"{name}.conll") and entry["sha256"]
    assert reproduction.changed_inputs(record) == []
    entry["sha256"] = "0" * 64
    assert reproduction.changed_inputs(record)[0].startswith("predict_data: ")
    scores = record["result"]
    front = model_card.front_matter(
        "x", export_checkpoints.FORM, record, scores, model_card.CardFields()
    )
    (results,) = front["model-index"][0]["results"]
    assert results["dataset"] == {"name": "dev.conll", "type": "own"}
    found = {entry["name"]: entry["value"] for entry in results["metrics"]}
    assert found == {name: scores[name] for name in ("eval_accuracy", "f1", "precision", "recall")}


def one_by_one(trained, words):
    """(labels, probabilities) of a sentence that fits, by the model as it is."""
    model = heads.TokenClassifierModel(CONFIG, 5)
    checkpoints.restore(model, str(trained / "model"), allow_new_heads=False)
    predictor = token_predictor.TokenPredictor(str(trained / "model"))
    tokenizer = predictor.tokenizer
    ids, starts = [tokenizer.cls_id], []
    for word in words:
        starts.append(len(ids))
        ids += tokenizer.encode(word)
    probabilities = model({"input_ids": [[*ids, tokenizer.sep_id]]})["probabilities"][0].numpy()
    best = probabilities[starts].argmax(axis=1)
    return [token_samples.LABELS[i] for i in best], probabilities[starts].max(axis=1)


def test_epochs_count_the_parts_of_long_sentences(trained, tmp_path):
    rows = list(token_samples.sentences(20, seed=3))
    token_samples.write(tmp_path / "long.conll", [*rows[:4], sum(rows[:15], [])])
    flags = flags_of(trained, tmp_path / "out", train_file=tmp_path / "long.conll")
    values = command_lines.define(run_token_classifier)
    values(["x", *(f"--{name}={value}" for name, value in flags.items())])
    settings = options.read(run_token_classifier.Settings, values)
    columns = word_files.Columns()
    files = token_classification.Files({"train": flags["train_file"]}, columns, ("O",))
    sentences = word_files.read(str(flags["train_file"]), "train_file", columns, False)
    tokenizer = tokenization.FullTokenizer(spm_model_file=str(builders.SPM))
    parts = [
        [*token_classification.parts_of(s, 0, files.labels, LENGTH, tokenizer)] for s in sentences
    ]
    assert run_token_classifier.count_inputs(settings) == sum(map(len, parts))
    assert [len(some) for some in parts[:4]] == [1] * 4 and len(parts[4]) > 2


@pytest.mark.slow(4)
def test_the_columns_are_those_of_the_training(trained, tmp_path, run_script):
    for split in ("train", "dev"):
        lines = (trained / f"{split}.conll").read_text().splitlines()[:200]
        numbered = [f"{i} {line}" if line else "" for i, line in enumerate(lines)]
        (tmp_path / f"{split}.conll").write_text("\n".join(numbered[2:]) + "\n")
    flags = flags_of(tmp_path, tmp_path / "out", train_step=1, from_scratch=True)
    flags |= {"albert_config_file": trained / "config.json", "test_file": None}
    chosen = {"do_train": True, "words_column": 2, "validation_file": None}
    run_script(run_token_classifier, **{k: v for k, v in (flags | chosen).items() if v})
    later = {"do_predict": True, "output_dir": tmp_path / "out", "max_seq_length": LENGTH}
    run_script(run_token_classifier, **later, test_file=tmp_path / "dev.conll")
    words = [row[0] for rows in read_conll(tmp_path / "out/predictions.conll") for row in rows]
    assert words and not any(word.isdigit() for word in words)
    (tmp_path / "new.jsonl").write_text('{"words": ["anna", "sleeps"]}\n')
    run_script(
        predict, model_dir=tmp_path / "out", input_file=tmp_path / "new.jsonl",
        output_file=tmp_path / "out.jsonl",
    )  # fmt: skip
    assert len(json.loads((tmp_path / "out.jsonl").read_text())["labels"]) == 2


def test_predictions_of_plain_texts(trained, tmp_path, run_script, capsys):
    texts = [" ".join(word for word, _ in row) for row in TEST]
    rows = read_conll(trained / "model" / "predictions.conll")
    (tmp_path / "in.txt").write_text("".join(f"{text}\n" for text in texts))
    chosen = {"model_dir": trained / "model", "batch_size": 4}
    run_script(
        predict, **chosen, input_file=tmp_path / "in.txt", output_file=tmp_path / "out.jsonl"
    )
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["labels"] for row in found] == [[f[2] for f in row] for row in rows[:25]]
    labels, probabilities = one_by_one(trained, texts[0].split())
    assert found[0]["labels"] == labels
    np.testing.assert_allclose(found[0]["probabilities"], probabilities, atol=1e-5)
    token_samples.write(tmp_path / "in.conll", TEST[:2], labeled=False)
    run_script(predict, **chosen, input_file=tmp_path / "in.conll")
    printed = capsys.readouterr().out.strip("\n").split("\n\n")
    expected = ["\n".join(f"{f[0]}\t{f[2]}" for f in row) for row in rows[:2]]
    assert printed == expected
    predictor = token_predictor.TokenPredictor(str(trained / "model"))
    both = list(predictor.predict([texts[0], texts[1].split()]))
    assert [row.labels for row in both] == [row["labels"] for row in found[:2]]


def test_models_are_exported(trained):
    (ids_dir,) = [path for path in (trained / "export").iterdir() if path.name != "text"]
    text_dirs = list((trained / "export").glob("text/*"))
    assert len(text_dirs) == HAS_TEXT
    for folder in (ids_dir, *text_dirs):
        assert (folder / "saved_model.pb").stat().st_size > 0


def test_a_folder_of_hugging_face_and_back(trained, tmp_path, run_script):
    """Written, evaluated as it is, and refused as a start for labels that it does not have."""
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    shutil.copytree(trained / "model", ours)
    described = json.loads((ours / "model.json").read_text())
    described["settings"]["classifier_dropout_prob"] = 0.05
    (ours / "model.json").write_text(json.dumps(described))
    run_script(export_to_huggingface, model_dir=ours, output_dir=theirs)
    config = json.loads((theirs / "config.json").read_text())
    assert config["architectures"] == ["AlbertForTokenClassification"]
    assert list(config["id2label"].values()) == token_samples.LABELS
    assert "problem_type" not in config and config["classifier_dropout_prob"] == 0.05
    model = heads.TokenClassifierModel(CONFIG, 5)
    report = checkpoints.restore(model, str(theirs), allow_new_heads=False)
    assert report.unused == [] and "bert/pooler/dense/kernel" in report.new
    flags = flags_of(trained, tmp_path / "out", init_checkpoint=theirs, do_eval=True)
    del flags["albert_config_file"], flags["spm_model_file"]
    run_script(run_token_classifier, **flags, checkpoint=theirs)
    (block,) = builders.read_results(tmp_path / "out")
    last = builders.read_results(trained / "model")[-1]
    assert float(block["f1"]) == pytest.approx(float(last["f1"]), abs=1e-6)
    config["id2label"]["1"] = "B-DRINK"
    (theirs / "config.json").write_text(json.dumps(config))
    flags |= {"output_dir": tmp_path / "new", "do_train": True}
    with pytest.raises(file_io.InputError, match=r"train\.conll has labels B-FOOD, "):
        run_script(run_token_classifier, **flags)


@pytest.mark.slow
def test_a_head_with_a_layer_on_a_frozen_encoder(trained, tmp_path, run_script):
    flags = flags_of(
        trained, tmp_path, from_scratch=True, train_step=60, do_train=True, do_eval=True,
        do_predict=True, freeze_encoder=True, head_hidden_size=8, warmup_step=5, learning_rate=0.03,
        class_weights="balanced",
    )  # fmt: skip
    for name, cached in (("plain", False), ("cached", True)):
        flags |= {"output_dir": tmp_path / name, "cache_encoder_outputs": cached}
        run_script(run_token_classifier, **flags)
    last = [builders.read_results(tmp_path / name)[-1] for name in ("plain", "cached")]
    assert float(last[0]["eval_accuracy"]) > 0.6  # 0.42 are "O"
    assert float(last[1]["eval_loss"]) == pytest.approx(float(last[0]["eval_loss"]), abs=1e-4)
    before, after = (builders.weights(tmp_path / "cached" / f"model.ckpt-{n}") for n in (0, 60))
    encoders = [
        {name: value for name, value in found.items() if name.startswith("bert/")}
        for found in (before, after)
    ]
    builders.assert_same(*encoders)
    words = token_predictor.TokenPredictor(str(tmp_path / "cached")).predict([TEST[0][0]])
    assert len(list(words)) == 1
    settings = json.loads((tmp_path / "cached" / "model.json").read_text())["settings"]
    words = [label for row in token_samples.sentences(400, seed=1) for _, label in row]
    found = {
        label: weight * words.count(label) for label, weight in settings["class_weights"].items()
    }
    assert found == pytest.approx(dict.fromkeys(settings["labels"], len(words) / len(found)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_file": ""}, "--train_file must be given"),
        ({"do_train": False}, "nothing to do: none of --do_train"),
        ({"export_text": True}, "--export_text needs --export_dir"),
        ({"label_column": 9}, "conll line 3: --label_column=9 must be the num"),
        ({"max_seq_length": 2}, "--max_seq_length=2 must be at least 3"),
    ],
)
def test_mistakes_of_training_are_named(trained, tmp_path, run_script, changes, message):
    flags = flags_of(trained, tmp_path / "out", from_scratch=True, do_train=True)
    with pytest.raises(file_io.InputError, match=message):
        run_script(run_token_classifier, **{**flags, **changes})


def test_mistakes_are_named(trained, tmp_path, run_script):
    dev = token_samples.write(tmp_path / "dev.conll", [[("soup", "B-DRINK")]])
    flags = flags_of(trained, trained / "model", do_eval=True, validation_file=dev)
    with pytest.raises(file_io.InputError, match="line 3: label 'B-DRINK' of 'soup', expected one"):
        run_script(run_token_classifier, **flags)
    with pytest.raises(file_io.InputError, match="expected the output_dir|has no model.json"):
        run_script(run_token_classifier, output_dir=tmp_path, do_predict=True, test_file=dev)


def test_padding_changes_nothing():
    """And the loss counts first pieces alone."""
    config = encoder.AlbertConfig.from_dict(builders.GROUPED)
    model = heads.TokenClassifierModel(config, 3, seed=1)
    ids = tf.constant([[5, 6, 7, 8, 0, 0], [9, 5, 5, 5, 5, 9]])
    starts = tf.constant([[0, 1, 1, 0, 0, 0], [0, 1, 0, 0, 1, 0]])
    features = {
        "input_ids": ids, "input_mask": tf.cast(ids > 0, tf.int32), "first_pieces": starts,
        "segment_ids": tf.zeros_like(ids), "label_ids": 2 * starts,
    }  # fmt: skip
    outputs = model(features)
    alone = model({name: x[:1, :4] for name, x in features.items()})
    np.testing.assert_allclose(outputs["logits"][0, :4], alone["logits"][0], atol=1e-5)
    log_probs = np.log(outputs["probabilities"].numpy()[..., 2])
    expected = -(log_probs * starts.numpy()).sum() / 4
    assert float(model.loss(outputs, features)) == pytest.approx(expected, rel=1e-5)
