"""Labels of the model that a run starts from, and those of its data."""

import json

import numpy as np
import pytest
from safetensors import numpy as safetensors_numpy

from albert import export_checkpoints, export_to_huggingface, predict, run_classifier
from albert.cli import options
from albert.io import file_io, tables
from albert.model import checkpoints, heads, model_folder
from albert.serving import predictors
from albert.tasks import custom, glue, kinds, model_labels
from tests.support import builders, command_lines, huggingface_samples
from tests.support.huggingface_samples import BERT

LETTERS = ("b", "a")
WORDS = {"0": "negative", "1": "positive"}
NO_NAMES = ("LABEL_0", "LABEL_1")


@pytest.mark.parametrize(
    ("labels", "theirs", "expected"),
    [
        (("a", "b"), LETTERS, LETTERS),
        (("A", "B"), LETTERS, ("B", "A")),
        (("a", "b"), ("c", "b", "a"), ("c", "b", "a")),
        (("a", "b", "c"), LETTERS, None),
        ((), LETTERS, None),
        (("a", "b"), (), None),
        ((), (), ()),
        (("0.0", "1.0"), ("1", "0"), ("1.0", "0.0")),
        (("0", "1"), ("POSITIVE", "NEGATIVE"), ("1", "0")),
        (("0", "1"), NO_NAMES, ("0", "1")),
        (("1.0", "0.0"), NO_NAMES, ("0.0", "1.0")),
        (("1", "2"), NO_NAMES, None),
        (("a", "b"), NO_NAMES, None),
        (("entailment", "not_entailment"), ("Not-Entailment", "Entailment"), "swapped"),
        (("a", "A"), ("A", "a"), ("A", "a")),
    ],
)
def test_the_model_gives_the_order(labels, theirs, expected):
    head = model_labels.ModelHead("config.json", "classifier", theirs)
    expected = labels[::-1] if expected == "swapped" else expected
    assert head.order("classifier", labels, WORDS) == expected
    assert head.means("classifier", expected or labels, WORDS) == (expected is not None)
    assert head.order("token_classifier", labels, WORDS) is None
    if len(labels) > 1:
        assert not head.means("classifier", expected[::-1] if expected else labels, WORDS)


@pytest.mark.parametrize(("labels", "theirs"), [(("x", "b"), LETTERS), (("0", "1"), LETTERS)])
def test_other_labels_are_an_error_that_shows_both(labels, theirs):
    head = model_labels.ModelHead("theirs/config.json", "classifier", theirs)
    with pytest.raises(file_io.InputError, match="it has b, a .theirs/config.json.*new_head") as e:
        head.order("classifier", labels)
    assert labels[0] in str(e.value)


def test_the_head_of_another_task_of_glue_is_a_start_for_training():
    head = model_labels.ModelHead("", "classifier", ("0", "1"), "sst-2")
    entailment = glue.get_task("RTE").labels
    assert head.is_of_other_task("rte", entailment)
    assert not head.is_of_other_task("cola", ("0", "1"))
    assert not head.is_of_other_task("custom", entailment)
    assert not head.is_of_other_task("mnli", glue.get_task("MNLI").labels)
    assert not head.is_of_other_task(None, entailment)


@pytest.mark.parametrize(
    ("config", "kind", "labels"),
    [
        ({"architectures": ["BertForSequenceClassification"]}, "classifier", NO_NAMES),
        ({"architectures": ["BertForSequenceClassification"], "num_labels": 1}, "classifier", ()),
        ({"architectures": ["AlbertForSequenceClassification"], "id2label": {"1": "a", "0": "b"}},
         "classifier", LETTERS),
        ({"architectures": ["AlbertForSequenceClassification"], "id2label": {"1": "a", "0": "b"},
          "problem_type": "multi_label_classification"},
         "multi_label_classifier", LETTERS),
        ({"architectures": ["BertForTokenClassification"], "id2label": {"0": "b", "1": "a"}},
         "token_classifier", LETTERS),
        ({"architectures": ["BertForMultipleChoice"]}, "multiple_choice", ()),
        ({"architectures": ["BertForQuestionAnswering"]}, "squad_v1", ()),
        ({"architectures": ["BertForPreTraining"], "id2label": {"0": "b"}}, None, ()),
        ({}, None, ()),
    ],
)  # fmt: skip
def test_a_folder_of_hugging_face_names_its_head(tmp_path, config, kind, labels):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert", **config}))
    head = model_labels.read(str(tmp_path / "model.safetensors"))
    assert (head and (head.kind, head.labels)) == (kind and (kind, labels))


# --- a whole folder -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """A folder of Hugging Face, texts, and the label of each text by the order of its outputs."""
    folder = tmp_path_factory.mktemp("theirs")
    model, path = huggingface_samples.exported(folder, "classification", BERT)
    config = json.loads((path / "config.json").read_text())
    names = ["yes", "no", "maybe"]  # not sorted
    config["id2label"] = dict(enumerate(names))
    (path / "config.json").write_text(json.dumps(config))
    texts = ["good", "a fine film", "bad plot", "so dull", "what", "never again", "one", "two"]
    found = kinds.read_folder(str(path))
    task = custom.CustomTask({}, tables.Columns(), tuple(names))
    tokenizer = model_folder.load_tokenizer(found.source, found.config)
    rows = [
        glue.convert_example(glue.make_example("", [t], "yes", False, False), task, 16, tokenizer)
        for t in texts
    ]
    features = {
        name: np.stack([row[name] for row in rows]).astype(np.int32)
        for name in ("input_ids", "input_mask", "segment_ids")
    }
    logits = model(features, training=False)["logits"].numpy()
    weights = safetensors_numpy.load_file(path / "model.safetensors")
    weights["classifier.bias"] -= logits.mean(0)  # so that each label is the most probable of some
    (path / "export.manifest.json").unlink()
    safetensors_numpy.save_file(weights, path / "model.safetensors", {"format": "pt"})
    return path, texts, [names[i] for i in (logits - logits.mean(0)).argmax(1)]


def write_csv(path, texts, labels):
    lines = ["text,label", *(f"{t},{label}" for t, label in zip(texts, labels, strict=True))]
    path.write_text("\n".join(lines) + "\n")
    return path


def flags_of(folder, dev, **changes):
    return {
        "task_name": "custom", "validation_file": dev, "output_dir": folder, "do_eval": True,
        "max_seq_length": 16, "train_batch_size": 4, "stuck_after": 0.0, **changes,
    }  # fmt: skip


def accuracy(folder):
    return float(builders.read_results(folder)[0]["eval_accuracy"])


@pytest.mark.slow
def test_a_folder_is_evaluated_and_used_as_it_is(theirs, tmp_path, run_script):
    path, texts, labels = theirs
    assert len(set(labels)) > 1
    dev = write_csv(tmp_path / "dev.csv", texts, labels)
    run_script(run_classifier, **flags_of(tmp_path / "out", dev, init_checkpoint=path))
    assert accuracy(tmp_path / "out") == 1.0
    run_script(predict, model_dir=path, input_file=dev, output_file=tmp_path / "answers.tsv")
    rows = [line.split("\t") for line in (tmp_path / "answers.tsv").read_text().splitlines()]
    assert rows[0][2:] == ["probability_yes", "probability_no", "probability_maybe"]
    assert [row[1] for row in rows[1:]] == labels
    run_script(export_to_huggingface, model_dir=path, output_dir=tmp_path / "again")
    config = json.loads((tmp_path / "again" / "config.json").read_text())
    assert list(config["id2label"].values()) == ["yes", "no", "maybe"]
    # A checkpoint made of it keeps the labels, and those of the data do not sort them.
    run_script(
        export_checkpoints, albert_directory=path, checkpoint_name="model.safetensors",
        export_path=f"{tmp_path}/ours/",
    )  # fmt: skip
    run_script(run_classifier, **flags_of(tmp_path / "ours", dev, train_file=dev))
    assert accuracy(tmp_path / "ours") == 1.0
    run_script(
        export_checkpoints, albert_directory=tmp_path / "ours", export_path=f"{tmp_path}/copy/"
    )
    assert model_labels.read_folder(str(tmp_path / "copy")).labels == ("yes", "no", "maybe")


@pytest.mark.slow
def test_a_checkpoint_of_another_folder_has_its_own_labels_and_texts(
    theirs, tmp_path, run_script, caplog
):
    path, texts, labels = theirs
    ours = builders.write_classifier(tmp_path / "ours", labels=("maybe", "no", "yes"))
    dev = write_csv(tmp_path / "dev.csv", texts, labels)
    with caplog.at_level("INFO", "absl"):
        run_script(run_classifier, **flags_of(ours, dev, checkpoint=path, log_format="full"))
    assert "eval_accuracy = 1.0" in caplog.text
    other = builders.write_classifier(tmp_path / "other", labels=("a", "b"))
    flags = {"test_file": dev, "do_predict": True, "checkpoint": f"{other}/model.ckpt-best"}
    with pytest.raises(file_io.InputError, match="label 'yes', expected a label .*: a, b"):
        run_script(run_classifier, **flags_of(ours, dev, **flags))


@pytest.mark.slow
def test_training_goes_on_with_the_head_or_with_a_new_one(theirs, tmp_path, run_script, caplog):
    path, texts, labels = theirs

    def train(name, labels):
        file = write_csv(tmp_path / f"{name}.csv", texts, labels)
        flags = {"train_step": 1, "do_train": True, "train_file": file, "init_checkpoint": path}
        folder = tmp_path / name
        run_script(run_classifier, **flags_of(folder, file, **flags))
        return json.loads((folder / "load_report.json").read_text())["new"]

    names = ["yes", "no", "maybe"]
    assert train("same", [*labels[:5], *names]) == []
    assert accuracy(tmp_path / "same") >= 5 / 8  # at step 0
    assert train("fewer", ["x", "y"] * 4) == ["output_bias", "output_weights"]
    assert "3 labels: yes, no, maybe; this run needs one of" in caplog.text
    assert "The head is new: only the encoder is taken" in caplog.text
    with pytest.raises(file_io.InputError, match="labels x, y, z, which .* yes, no, ma"):
        train("other", [*"xyzxyzxy"])
    dev = write_csv(tmp_path / "dev.csv", texts, ["x", "y"] * 4)
    with pytest.raises(file_io.InputError, match="3 labels: yes, no, .*2 labels: x, y. "):
        run_script(
            run_classifier,
            **flags_of(tmp_path / "out", dev, train_file=dev, init_checkpoint=path),
        )


@pytest.mark.parametrize(
    ("head", "form", "line", "key"),
    [
        ("token_classification", "jsonl", {"words": ["good", "film"]}, "labels"),
        ("multiple_choice", "jsonl",
         {"article": "a", "question": "b", "options": ["c", "d"]}, "answer"),
        ("squad_v1", "jsonl", {"question": "what", "context": "a good film"}, "answers"),
        ("regression", "jsonl", {"text": "good"}, "prediction"),
    ],
)  # fmt: skip
def test_every_kind_of_head_is_used_as_it_is(tmp_path, head, form, line, key):
    _, path = huggingface_samples.exported(tmp_path, head, BERT)
    predictor = predictors.load(str(path))
    lines = [json.dumps(line).encode()]
    (result,) = predictor.predict(predictor.read_lines(lines, "lines", form), 2)
    assert key in predictor.to_json(result)


def test_labels_of_glue_are_found_by_their_words(theirs, tmp_path, run_script):
    """1 is "positive", wherever the model has it; F1 stays that of the label 1."""
    task = glue.get_task("MRPC").in_order(("1", "0"))
    assert dict(task.scores)["f1"]([0, 0, 1], [0, 1, 1]) == pytest.approx(2 / 3)
    again = task.in_order(("0", "1"))
    assert dict(again.scores)["f1"]([1, 1, 0, 0, 1], [1, 1, 1, 0, 1]) == pytest.approx(6 / 7)
    head = model_labels.ModelHead("", "classifier", ("Equivalent", "Not equivalent"))
    assert custom.in_order_of(head, glue.get_task("MRPC").labels, task.words) == ("1", "0")
    assert glue.words_of("SST-2") == WORDS and glue.words_of("custom") == {}


def test_a_head_of_other_sizes_is_new_only_where_that_is_allowed(theirs):
    path = str(theirs[0])
    with pytest.raises(file_io.InputError, match="does not fit the configuration"):
        checkpoints.restore(heads.ClassifierModel(BERT, 2, seed=2), path)
    model = heads.ClassifierModel(BERT, 2, seed=2)
    report = checkpoints.restore(model, path, new_head=None)
    assert report.new == ["output_bias", "output_weights"]
    model = heads.ClassifierModel(BERT, 3, seed=2)
    assert checkpoints.restore(model, path, new_head=None).new == []
    assert checkpoints.restore(model, path, new_head=True).new == report.new


@pytest.mark.parametrize("split", ["dev", "test"])
def test_numbers_are_those_of_labels_without_names(tmp_path, split):
    head = model_labels.ModelHead("config.json", "classifier", NO_NAMES)
    files = {split: str(write_csv(tmp_path / "file.csv", ["a", "b"], ["1.0", "1.0"]))}
    task = custom.find_task(files, tables.Columns(), str(tmp_path), head=head)
    assert task.labels == ("0", "1")
    assert [row.label for row in task.iter_examples(None, split)] == ["1", "1"]
    write_csv(tmp_path / "file.csv", ["a", "b"], ["x", "y"])
    with pytest.raises(file_io.InputError, match="LABEL_1.*, so which of them is which of x, y is"):
        custom.find_task(files, tables.Columns(), str(tmp_path), head=head)
    (tmp_path / "file.csv").write_text("text\na\n")
    files = {"test": files[split]}
    assert custom.find_task(files, tables.Columns(), str(tmp_path), head=head).labels == NO_NAMES


def test_a_teacher_gives_the_order_to_a_student_without_initial_model(theirs, tmp_path):
    path, texts, labels = theirs
    file = write_csv(tmp_path / "train.csv", texts, [*labels[:5], "yes", "no", "maybe"])

    def labels_of(**changes):
        flags = {"task_name": "custom", "train_file": file, "output_dir": tmp_path, "teacher": path}
        values = command_lines.parse(run_classifier, **flags, **changes)
        return run_classifier.find_task(options.read(run_classifier.Settings, values)).labels

    assert labels_of() == ("yes", "no", "maybe")
    (tmp_path / "labels.json").write_text('["maybe", "no", "yes"]')
    assert labels_of() == ("maybe", "no", "yes")
