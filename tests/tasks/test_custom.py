"""One's own data: labels, kinds, ids, and fine-tuning end to end."""

import csv
import json
import shutil
from contextlib import nullcontext

import numpy as np
import pytest

from albert import run_classifier
from albert.cli import options
from albert.io import file_io, tables
from albert.model import checkpoints, pretraining_heads
from albert.serving import text_predictor
from albert.tasks import custom, glue, kinds, label_sets
from albert.training import run_record
from tests.support import builders, command_lines
from tests.support.builders import glue_flags, read_results

TEXT = tables.Columns()


def task_of(folder, name="data.csv", content="text,label\na,x\nb,y\n", columns=TEXT, **changes):
    (folder / name).write_text(content)
    files = {"train": str(folder / name), "dev": None, "test": None, **changes}
    return custom.find_task(files, columns, str(folder / "out"))


def write_jsonl(path, labels):
    rows = [json.dumps({"text": f"text {i}", "label": label}) for i, label in enumerate(labels)]
    path.write_text("\n".join(rows))


# --- labels -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "positive"),
    [
        (("0", "1"), "1"),
        (("9.0", "10.0"), "10.0"),
        (("-0.5", "-1."), "-0.5"),
        (("good", "bad"), "good"),
        (("positive", "negative"), "positive"),
        (("entailment", "not_entailment"), "not_entailment"),  # the second label of RTE and QNLI
        (("equivalent", "not_equivalent"), "equivalent"),
    ],
)
def test_the_class_of_f1_is_that_of_the_glue_tasks(labels, positive):
    assert custom.find_positive(labels) == custom.find_positive(labels[::-1]) == positive


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        (["b", "a", "b"], ("a", "b")),
        (["1", "0"], ("0", "1")),
        ([10, 9, -1], ("-1", "9", "10")),
        ([True, False], ("false", "true")),
        (["1.0", "b"], ("1.0", "b")),
        (["0.5", "1"], ()),
        ([1, 2.5], ()),
        (["1e-3", "2"], ()),
        (["5.000", "0.000"], ()),
        (["0.0", "1.0"], ("0.0", "1.0")),
        (["10.0", "9.0", "2.0"] * 2, ("2.0", "9.0", "10.0")),
        ([0, 1] * 31 + [1.0], ("0", "1")),
        ([*range(63), 1.0], tuple(map(str, range(63)))),
        (["2.0", "7.0", "4.0"] * 2, ("2.0", "4.0", "7.0")),
        ([f"{minutes}.0" for minutes in range(2, 90)] * 2, ()),
    ],
)
def test_labels_and_kind_are_told_from_the_train_file(tmp_path, labels, found):
    write_jsonl(tmp_path / "train.jsonl", labels)
    files = {"train": str(tmp_path / "train.jsonl")}
    task = custom.find_task(files, TEXT, str(tmp_path / "out"))
    assert task.labels == found
    assert task.is_regression == (not found)
    assert task.best_metric == ("eval_accuracy" if found else "pearson")
    keys = [key for key, _ in task.scores]
    expected = {0: ["pearson", "spearman", "MSE", "MAE", "R2"], 2: ["eval_accuracy", "f1"]}
    assert keys == expected.get(len(found), ["eval_accuracy"])


@pytest.mark.parametrize(
    ("labels", "hint"),
    [
        ([1, 2], "suggest classification; if that is wrong, give label_type=regression"),
        ([1.5, 2], "suggest regression; if that is wrong, give label_type=classification"),
        (["a", "2"], "suggest classification"),
        ([1, 2, 2.5, 0.5], "line 3: the label '2.5' is not a whole number, as in 2 of 4 rows. The"),
    ],
)
def test_the_kind_is_logged_with_the_flag_that_changes_it(tmp_path, caplog, labels, hint):
    write_jsonl(tmp_path / "train.jsonl", labels)
    with caplog.at_level("INFO", logger="absl"):
        custom.find_task({"train": str(tmp_path / "train.jsonl")}, TEXT, str(tmp_path / "out"))
    (line,) = [found for found in caplog.messages if "suggest" in found]
    assert hint in line


@pytest.mark.parametrize(
    ("labels", "other", "hint"),
    [
        ([1, 2], 3, "1, 2; .*labels.json .*, or, to predict numbers, give label_type=regression"),
        (
            ["a", "b"],
            3,
            "a, b; correct the row, or train with examples of this label .*labels.json .*",
        ),
    ],
)
def test_a_label_that_training_lacks_is_named(tmp_path, labels, other, hint):
    write_jsonl(tmp_path / "train.jsonl", labels)
    write_jsonl(tmp_path / "dev.jsonl", [other])
    files = {split: str(tmp_path / f"{split}.jsonl") for split in ("train", "dev")}
    task = custom.find_task(files, TEXT, str(tmp_path / "out"))
    with pytest.raises(file_io.InputError, match=f"line 1: label '{other}', .*: {hint}$"):
        list(task.iter_examples(None, "dev", use_spm=True))


@pytest.mark.parametrize(("train", "dev"), [("0.0 1.0", "0 1"), ("0 1", "1.0 0."), ("0 1.", "0 1")])
def test_whole_numbers_in_several_spellings_are_one_label(tmp_path, train, dev):
    for split, labels in {"train": train.split() * 2, "dev": dev.split()}.items():
        rows = "".join(f"a,{label}\n" for label in labels)
        (tmp_path / f"{split}.csv").write_text(f"text,label\n{rows}")
    files = {split: str(tmp_path / f"{split}.csv") for split in ("train", "dev")}
    task = custom.find_task(files, TEXT, str(tmp_path / "out"))
    assert task.labels == tuple(train.split())
    found = [float(example.label) for example in task.iter_examples(None, "dev")]
    assert found == [float(label) for label in dev.split()]


def test_zeros_before_a_number_make_another_label():
    assert tables.match_label("01.0", ["1", "01.0"]) == "01.0"
    assert tables.match_label("01.0", ["1", "01"]) is None
    assert tables.match_label("1.0", ["1", "01"]) == "1"


@pytest.mark.parametrize("others", [[0, 1], ["1.5", "2"], ["good", "bad"]])
def test_a_missing_label_is_not_a_class(tmp_path, others):
    write_jsonl(tmp_path / "train.jsonl", [*others, "nan", "NaN"])
    files = {"train": str(tmp_path / "train.jsonl")}
    with pytest.raises(file_io.InputError, match=r"labels are 'nan', .*jsonl line 3: remove"):
        custom.find_task(files, TEXT, str(tmp_path / "out"))
    task = custom.find_task(files, TEXT, str(tmp_path / "out"), "classification")
    assert len(task.labels) == 4


def test_few_names_among_measured_numbers_are_a_mistake(tmp_path):
    labels = [i / 2 for i in range(19)]
    write_jsonl(tmp_path / "train.jsonl", [*labels, "N/A"])
    files = {"train": str(tmp_path / "train.jsonl")}
    message = r"jsonl line 20: the label 'N/A' is not a number, as in 1 of 20 rows; the others are"
    with pytest.raises(file_io.InputError, match=message):
        custom.find_task(files, TEXT, str(tmp_path / "out"))
    task = custom.find_task(files, TEXT, str(tmp_path / "out"), "classification")
    assert len(task.labels) == 20
    for others in (["low", "high", "N/A"], ["low"] * 3):  # more than a tenth
        write_jsonl(tmp_path / "train.jsonl", [*labels, *others])
        assert not custom.find_task(files, TEXT, str(tmp_path / "other")).is_regression


@pytest.mark.parametrize("form", [None, label_sets.LabelFormat()])
def test_a_test_file_whose_labels_are_blank_has_none(tmp_path, form, caplog):
    (tmp_path / "train.csv").write_text('text,label\na,x\nb,"y,x"\n')
    (tmp_path / "test.csv").write_text("text,label\na,\nb, \n")
    files = {split: str(tmp_path / f"{split}.csv") for split in ("train", "test")}
    arguments = (files, tables.Columns(), str(tmp_path / "out"))
    task = label_sets.find_task(*arguments, form) if form else custom.find_task(*arguments)
    with caplog.at_level("INFO", logger="absl"):
        assert not task.is_labeled("test")
    assert "test.csv has no labels: there are predictions, but no scores" in caplog.text
    assert len(list(task.iter_examples("", "test"))) == 2
    (tmp_path / "test.csv").write_text("text,label\na,\nb,x\n")
    assert task.is_labeled("test")


@pytest.mark.parametrize("label", ["1e39", "-4e38"])
def test_a_number_outside_float32_names_its_line(tmp_path, label):
    task = task_of(tmp_path, content=f"text,label\na,0.5\nb,{label}\n")
    with pytest.raises(file_io.InputError, match="data.csv line 3: label .*at most 3.4e[+]38"):
        list(task.iter_examples(None, "train"))


def test_the_kind_can_be_given(tmp_path):
    write_jsonl(tmp_path / "train.jsonl", ["1.0", "2.0"])
    files = {"train": str(tmp_path / "train.jsonl")}
    found = custom.find_task(files, TEXT, str(tmp_path), "classification")
    assert found.labels == ("1.0", "2.0")
    write_jsonl(tmp_path / "train.jsonl", [1, 2, 3])
    assert custom.find_task(files, TEXT, str(tmp_path), "regression").is_regression


def test_saved_labels_are_used_afterwards(tmp_path):
    task = task_of(tmp_path)
    (tmp_path / "out").mkdir()
    custom.save_labels(str(tmp_path / "out"), task.labels)
    assert json.loads((tmp_path / "out" / "labels.json").read_text()) == ["x", "y"]
    (tmp_path / "new.csv").write_text("text,label\na,y\nb,z\n")
    for split in ("train", "dev", "test"):
        later = custom.find_task({split: str(tmp_path / "new.csv")}, TEXT, str(tmp_path / "out"))
        assert later.labels == ("x", "y")
        with pytest.raises(file_io.InputError, match=r"new\.csv line 3: label 'z', .*: x, y"):
            list(later.iter_examples(None, split))
    with pytest.raises(file_io.InputError, match="=regression, but .*=classification: give"):
        custom.find_labels(str(tmp_path / "out"), {}, TEXT, "regression")
    (tmp_path / "out" / "labels.json").write_text('{"x": 1}')
    with pytest.raises(file_io.InputError, match=r"labels\.json must hold a list"):
        custom.find_labels(str(tmp_path / "out"), {}, TEXT)


def test_without_training_there_must_be_labels(tmp_path):
    (tmp_path / "dev.csv").write_text("text,label\na,x\n")
    with pytest.raises(file_io.InputError, match=r"there is no .*labels\.json with the names of"):
        custom.find_task({"dev": str(tmp_path / "dev.csv")}, TEXT, str(tmp_path))


def test_one_label_is_no_classification(tmp_path):
    with pytest.raises(file_io.InputError, match="two labels or more; all 2 rows have 'x'"):
        task_of(tmp_path, content="text,label\na,x\nb,x\n")
    with pytest.raises(file_io.InputError, match=r"data\.csv: there is no row"):
        task_of(tmp_path, content="text,label\n")


# --- examples ---------------------------------------------------------------------------------


def test_examples_of_pairs_with_ids(tmp_path):
    columns = tables.Columns("premise", "hypothesis", "gold", "key")
    content = 'key\tgold\tpremise\thypothesis\nk1\tno\tA  B\t"C"\nk2\tyes\tD\tE\n'
    task = task_of(tmp_path, "data.tsv", content, columns)
    assert task.is_pair
    examples = list(task.iter_examples(None, "train"))
    assert examples == [
        glue.InputExample("k1", "a b", '"c"', "no"),
        glue.InputExample("k2", "d", "e", "yes"),
    ]
    raw = next(iter(task.iter_examples(None, "train", use_spm=False)))
    assert raw.text_a == "A  B"


def test_all_forms_give_the_same_examples(tmp_path):
    columns = tables.Columns()
    found = []
    for form, content in (
        ("csv", "text,label\nfine bread,1\nugly cake,0\n"),
        ("tsv", "text\tlabel\nfine bread\t1\nugly cake\t0\n"),
        ("jsonl", '{"text": "fine bread", "label": 1}\n{"label": "0", "text": "ugly cake"}\n'),
    ):
        task = task_of(tmp_path, f"data.{form}", content, columns)
        found.append(list(task.iter_examples(None, "train")))
    assert found[0] == found[1] == found[2]
    assert [example.guid for example in found[0]] == ["0", "1"]


def test_test_data_may_lack_labels(tmp_path):
    (tmp_path / "test.csv").write_text("text\nc\n")
    task = task_of(tmp_path, test=str(tmp_path / "test.csv"))
    assert not task.is_labeled("test")
    assert [example.label for example in task.iter_examples(None, "test")] == ["x"]
    (tmp_path / "test.csv").write_text("text,label\nc,y\n")
    assert task.is_labeled("test")
    assert [example.label for example in task.iter_examples(None, "test")] == ["y"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("text,label\na,x\n ,y\n", r"data\.csv line 3: column 'text' holds no text"),
        (
            "sentence,label\na,x\nb,y\n",
            r"line 2: there is no column 'text' \(text_column\); there",
        ),
        (
            "text,target\na,x\nb,y\n",
            r"line 2: there is no column 'label' \(label_column\); there",
        ),
        ("text,label\na,x\nb,\n", "line 3: column 'label' must be a name"),
        ("text,label\na,x\nb\n", r"line 3: expected 2 columns \(text, label\), found 1"),
        ('text,label\na,x\n"b,y\n', "row that begins in line 3 is not csv"),
    ],
)
def test_bad_rows_are_named(tmp_path, content, message):
    with pytest.raises(file_io.InputError, match=message):
        list(task_of(tmp_path, content=content).iter_examples(None, "train"))


def test_a_label_of_a_regression_must_be_a_number(tmp_path):
    (tmp_path / "dev.csv").write_text("text,label\na,1.5\nb,nan\n")
    task = task_of(tmp_path, content="text,label\na,0.5\nb,2\n", dev=str(tmp_path / "dev.csv"))
    assert [example.label for example in task.iter_examples(None, "train")] == [0.5, 2.0]
    with pytest.raises(file_io.InputError, match=r"dev\.csv line 3: label 'nan', "):
        list(task.iter_examples(None, "dev"))


@pytest.mark.parametrize(
    ("first", "message"),
    [
        (1.7e9 + 0.5, "deviation of 0.816497, but .* steps of 128 .* their mean 1700000001.5$"),
        (20240101.5, "deviation of 0.816497, but .* steps of 2 there: .* their mean 20240102.5$"),
        (-20240101.5, "steps of 2 there"),
        (16_384.5, None),
    ],
)
def test_numbers_that_float32_cannot_tell_apart_are_refused(tmp_path, first, message):
    rows = "".join(f"a,{first + i!r}\n" for i in range(3))
    task = task_of(tmp_path, content=f"text,label\n{rows}")
    with pytest.raises(file_io.InputError, match=message) if message else nullcontext():
        assert glue.measure_labels(task, None).mean == first + 1


def test_mixed_endings_and_repeated_columns_are_refused(tmp_path):
    (tmp_path / "dev.jsonl").write_text("")
    with pytest.raises(file_io.InputError, match=r"one ending; found train_file=.*, validation_fi"):
        task_of(tmp_path, dev=str(tmp_path / "dev.jsonl"))
    with pytest.raises(file_io.InputError, match="must be different; found text, text, label"):
        task_of(tmp_path, columns=tables.Columns(text_pair="text"))
    with pytest.raises(file_io.InputError, match="test_file must be given"):
        task_of(tmp_path).check_splits(["test"])


# --- end to end -------------------------------------------------------------------------------


def own_files(folder):
    """The reviews of `reviews` as csv: training, validation, test data with and without labels."""
    folder.mkdir()
    for split, text in builders.reviews().items():
        rows = [line.split("\t") for line in text.splitlines()[1:]]
        with open(folder / f"{split}.csv", "w", newline="") as file:
            writer = csv.writer(file)
            if split == "test":
                writer.writerow(["key", "sentence"])
                writer.writerows([f"id-{key}", text] for key, text in rows)
            else:
                writer.writerow(["mood", "sentence"])
                writer.writerows([label, text] for text, label in rows)
    return folder


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    builders.write_glue(folder)
    own_files(folder / "own")
    return folder


def own_flags(inputs, output_dir, **changes):
    own = inputs / "own"
    flags = glue_flags(
        inputs, output_dir, "custom", train_file=own / "train.csv", text_column="sentence",
        validation_file=own / "dev.csv", label_column="mood", from_scratch=True, **changes,
    )  # fmt: skip
    del flags["data_dir"]
    return flags


@pytest.mark.slow
def test_the_same_data_gives_the_same_model_as_the_glue_task(inputs, tmp_path, run_script):
    stages = {"do_train": True, "do_eval": True, "do_predict": True, "train_step": 10}
    stages |= {"warmup_step": 0, "save_checkpoints_steps": 1000}  # own data has other defaults
    glue = glue_flags(inputs, tmp_path / "glue", from_scratch=True, **stages)
    run_script(run_classifier, **glue)
    test_file = inputs / "own" / "test.csv"
    own = own_flags(inputs, tmp_path / "own", test_file=test_file, **stages)
    run_script(run_classifier, **own)
    ours, theirs = (read_results(tmp_path / name) for name in ("own", "glue"))
    known = [{name: block[name] for name in theirs[0]} for block in ours]
    assert known == theirs and {"f1", "macro_f1", "roc_auc", "recall_0"} <= {*ours[0]}
    files = [(tmp_path / name / "test_results.tsv").read_text() for name in ("own", "glue")]
    assert files[0] == files[1]
    assert json.loads((tmp_path / "own" / "labels.json").read_text()) == ["0", "1"]
    # The id column is not that of the training files: prediction alone can name it.
    shutil.rmtree(tmp_path / "own" / "eval")
    only = {"do_train": False, "do_eval": False, "id_column": "key"}
    run_script(run_classifier, **{**own, **only})
    table = (tmp_path / "own" / "predictions.tsv").read_text().splitlines()
    assert table[0] == "id\tprediction\tprobability_0\tprobability_1"
    probabilities = np.float32([line.split("\t") for line in files[0].splitlines()])
    for number, (line, row) in enumerate(zip(table[1:], probabilities, strict=True)):
        guid, label, *numbers = line.split("\t")
        assert (guid, label) == (f"id-{number}", str(row.argmax()))
        assert numbers == [str(x) for x in row]
    assert not (tmp_path / "own" / "predict_results.txt").exists()
    assert not (tmp_path / "own" / "examples.jsonl").exists()


@pytest.mark.slow
def test_labeled_test_data_is_scored(inputs, tmp_path, run_script):
    flags = own_flags(inputs, tmp_path, test_file=inputs / "own" / "dev.csv", train_step=1)
    run_script(run_classifier, **flags, do_train=True, do_eval=True, do_predict=True)
    lines = (tmp_path / "predict_results.txt").read_text().splitlines()
    scores = dict(line.split(" = ") for line in lines)
    trained = read_results(tmp_path)[-1]  # step 0 is never the best of a new head
    assert scores == {key: value for key, value in trained.items() if key in scores}
    by_class = {f"{name}_{label}" for name in ("f1", "precision", "recall", "support")
                for label in json.loads((tmp_path / "labels.json").read_text())}  # fmt: skip
    assert {"eval_accuracy", "eval_loss", "f1", "loss", "macro_f1", "roc_auc"} <= set(scores)
    assert by_class <= set(scores) and len(set(scores)) == 4 + 9 + 8
    record = run_record.read(str(tmp_path))
    assert record["test"] == pytest.approx(record["result"]) and record["evaluated"] == 2
    assert set(record["baseline"]) == set(scores) - {"recall_0", "recall_1"}


@pytest.mark.slow
def test_a_regression_on_pairs(inputs, tmp_path, run_script):
    minutes = {"fine": 80.5, "ugly": 9.5, "lovely": 89, "awful": 2}
    content = "".join(
        json.dumps({"a": f"the bread was {word} .", "b": "the cake", "score": score}) + "\n"
        for word, score in minutes.items()
        for _ in range(8)
    )
    (tmp_path / "data.jsonl").write_text(content)
    flags = glue_flags(
        inputs, tmp_path / "out", "custom", from_scratch=True, do_train=True, do_eval=True,
        do_predict=True, text_column="a", text_pair_column="b", label_column="score",
        train_step=100, save_checkpoints_steps=100, warmup_step=10,
        **dict.fromkeys(
            ("train_file", "validation_file", "test_file"), tmp_path / "data.jsonl"
        ),
    )  # fmt: skip
    del flags["data_dir"]
    run_script(run_classifier, **flags)
    last = read_results(tmp_path / "out")[-1]
    assert {"pearson", "spearman", "MSE", "MAE", "R2"} <= set(last)
    assert float(last["R2"]) > 0.9  # of labels as they are, 100 clipped steps make -0.9
    labels = np.array([*minutes.values()])
    assert float(last["MSE"]) == pytest.approx(float(last["eval_loss"]) * labels.var(), rel=1e-5)
    settings = json.loads((tmp_path / "out" / "model.json").read_text())["settings"]
    assert settings["label_mean"] == labels.mean()
    assert settings["label_deviation"] == pytest.approx(labels.std())
    assert json.loads((tmp_path / "out" / "labels.json").read_text()) == []
    table = (tmp_path / "out" / "predictions.tsv").read_text().splitlines()
    results = (tmp_path / "out" / "test_results.tsv").read_text().splitlines()
    assert table == ["id\tprediction", *(f"{i}\t{score}" for i, score in enumerate(results))]
    found = text_predictor.TextPredictor(str(tmp_path / "out")).predict(
        [("the bread was lovely .", "the cake")]
    )
    assert next(found).prediction == pytest.approx(float(results[16]), rel=1e-4)
    # A run in another unit begins with the answers of the model that it starts from.
    other = {**flags, "output_dir": tmp_path / "raw", "init_checkpoint": tmp_path / "out"}
    other |= {"from_scratch": False, "standardize_labels": False, "do_predict": False}
    run_script(run_classifier, **{**other, "train_step": 1, "warmup_step": 0})
    first = read_results(tmp_path / "raw")[0]
    assert first["global_step"] == "0"
    assert float(first["eval_loss"]) == float(first["MSE"])
    assert float(first["MSE"]) == pytest.approx(float(last["MSE"]), rel=1e-3)
    # Another train file does not change the unit of the weights that exist.
    (tmp_path / "data.jsonl").write_text(content.replace("89", "890"))
    run_script(run_classifier, **{**flags, "train_step": 101, "save_checkpoints_steps": 1})
    resumed = json.loads((tmp_path / "out" / "model.json").read_text())["settings"]
    assert resumed == settings
    message = "holds checkpoints of a model that was trained with --standardize_labels"
    with pytest.raises(file_io.InputError, match=message):
        run_script(run_classifier, **flags, standardize_labels=False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data_dir": "x"}, "--data_dir: only for GLUE tasks"),
        ({"train_file": None, "do_train": True}, "there is no .*labels.json"),
        ({"validation_file": None, "do_eval": True}, "--validation_file must be given"),
        ({"do_predict": True}, "--test_file must be given"),
        ({"text_column": "text"}, "no column 'text' .*there are mood, sentence"),
        ({"label_column": "label"}, "no column 'label' .*there are mood, sentence"),
        ({"text_pair_column": "sentence"}, "must be different; found sentence, sentence, mood"),
        ({"train_file": "nowhere.csv"}, "--train_file: the file nowhere.csv does not exist"),
        ({"train_file": "x.xlsx"}, r"x\.xlsx: expected a name that ends in"),
        ({"export_text": True}, "--export_text needs --export_dir"),
    ],
)
def test_mistakes_are_named(inputs, tmp_path, run_script, changes, message):
    flags = {**own_flags(inputs, tmp_path), "do_train": True, **changes}
    flags = {name: value for name, value in flags.items() if value is not None}
    with pytest.raises(file_io.InputError, match=message):
        run_script(run_classifier, **flags)


def test_the_task_of_the_flags(inputs, tmp_path):
    def find(**chosen):
        values = command_lines.parse(run_classifier, **chosen)
        return run_classifier.find_task(options.read(run_classifier.Settings, values))

    own = own_flags(inputs, tmp_path)
    assert find(**own).columns == tables.Columns("sentence", None, "mood", None)
    assert find(**glue_flags(inputs, tmp_path, "mrpc")) is glue.get_task("MRPC")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"train_file": "x.csv", "label_type": "regression"},
            "--train_file, --label_type: only for",
        ),
        ({"data_dir": None}, "--data_dir must be given"),
    ],
)
def test_glue_tasks_take_no_files(inputs, tmp_path, run_script, changes, message):
    flags = {**glue_flags(inputs, tmp_path), "do_train": True, **changes}
    flags = {name: value for name, value in flags.items() if value is not None}
    with pytest.raises(file_io.InputError, match=message):
        run_script(run_classifier, **flags)


@pytest.mark.slow
def test_extra_pieces_are_recorded_and_get_rows_that_are_trained(tmp_path, run_script):
    config = builders.tiny_config()
    start = pretraining_heads.PretrainingModel(config, seed=3)
    builders.write_model(tmp_path / "start", start, config)
    (tmp_path / "train.csv").write_text("text,label\nthe NASA,a\na nasa,b\n<PER> b,a\nc,b\n")
    flags = {
        "task_name": "custom", "train_file": tmp_path / "train.csv", "output_dir": tmp_path / "out",
        "validation_file": tmp_path / "train.csv", "init_checkpoint": tmp_path / "start",
        "extra_pieces": "NASA,<PER>", "max_seq_length": 8, "train_batch_size": 4,
        "eval_batch_size": 4, "train_step": 2, "learning_rate": 0.1, "warmup_step": 0,
    }  # fmt: skip
    with pytest.raises(file_io.InputError, match="does not fit the configuration"):
        run_script(run_classifier, **flags, do_eval=True)
    run_script(run_classifier, **flags, do_train=True, do_eval=True)
    folder = kinds.read_folder(str(tmp_path / "out"))
    assert folder.source.rules.extra_pieces == ("NASA", "<PER>")
    assert folder.config.vocab_size == config.vocab_size + 2
    name = "bert/embeddings/word_embeddings"
    rows = checkpoints.read_tensors(str(tmp_path / "out" / "model.ckpt-2"))[name]
    before = checkpoints.read_tensors(str(tmp_path / "start" / "model.ckpt-best"))[name]
    assert rows.shape == (config.vocab_size + 2, config.embedding_size)
    # Words that do not occur stay what they were.
    assert np.median(np.abs(rows[: len(before)] - before)) < 1e-3
    used = np.abs(rows[-2:]).max(axis=1)
    assert (used > 0.1).all()  # two steps of 0.1; new rows begin near 0
    run_script(run_classifier, **flags, do_predict=True, test_file=tmp_path / "train.csv")
