"""GLUE files: layouts, text preparation, skipped lines, and every message."""

import os
import re
import sys
from concurrent import futures

import numpy as np
import pytest
import tensorflow as tf

from albert.data import input_pipeline, record_files
from albert.io import file_io
from albert.tasks import example_data, glue
from albert.text import tokenization
from albert.training import distribution, subsets
from tests.support import builders, processes

SPLITS = ("train", "dev", "test")
# Task: (text columns, label column, test columns, files, label of the examples made below)
LAYOUTS = {
    "cola": ([3], 1, [0, 1], "CoLA train dev test", "1"),
    "mnli": ([8, 9], -1, [0, 8, 9], "MNLI train dev_matched test_matched", "neutral"),
    "mismnli": ([8, 9], -1, [0, 8, 9], "MNLI train dev_mismatched test_mismatched", "neutral"),
    "mrpc": ([3, 4], 0, [0, 3, 4], "MRPC train dev test", "1"),
    "rte": ([1, 2], -1, [0, 1, 2], "RTE train dev test", "not_entailment"),
    "sst-2": ([0], 1, [0, 1], "SST-2 train dev test", "1"),
    "sts-b": ([7, 8], -1, [0, 7, 8], "STS-B train dev test", "2.500"),
    "qqp": ([3, 4], 5, [0, 1, 2], "QQP train dev test", "1"),
    "qnli": ([1, 2], -1, [0, 1, 2], "QNLI train dev test", "not_entailment"),
    "wnli": ([1, 2], -1, [0, 1, 2], "WNLI train dev test", "1"),
}
# Examples of test data carry the first label of their task.
FIRST_LABELS = {
    **dict.fromkeys(["mnli", "mismnli"], "contradiction"),
    **dict.fromkeys(["rte", "qnli"], "entailment"),
    "sts-b": 0.0,
}
NUMBERED = ("cola", "mrpc", "sst-2")  # train and dev examples have no id column


# --- reading ------------------------------------------------------------------------------------


def _line(name, split, index, texts, label=None):
    """One line of a file in the layout of a task, from the literal table above."""
    text_columns, label_column, test_columns, _, usual = LAYOUTS[name]
    if split == "test":
        cells = {test_columns[0]: str(index), **dict(zip(test_columns[1:], texts, strict=True))}
    else:
        cells = dict(zip(text_columns, texts, strict=True))
        last = max(*text_columns, 0) + 1
        cells[last if label_column == -1 else label_column] = usual if label is None else label
        cells.setdefault(0, str(index))
    return "\t".join(cells.get(i, "-") for i in range(max(cells) + 1))


def _texts(name, index):
    return (
        [f"The  First {index}"] if name in ("cola", "sst-2") else [f"A {index}", f" É\u00a0{index}"]
    )


def _file(folder, name, split):
    parts = LAYOUTS[name][3].split()
    path = folder / parts[0] / f"{parts[1 + SPLITS.index(split)]}.tsv"
    path.parent.mkdir(exist_ok=True)
    return path


def _write(folder, name, split, lines, header="a header"):
    path = _file(folder, name, split)
    has_header = name != "cola" or split == "test"
    text = "\n".join([header] * has_header + lines) + "\n"
    path.write_text(text, encoding="utf-8", newline="")
    return path


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts(tmp_path, name, split):
    _write(tmp_path, name, split, [_line(name, split, 40 + i, _texts(name, i)) for i in range(3)])
    task = glue.get_task(name)
    examples = task.examples(str(tmp_path), split, use_spm=False)
    first_number = 0 if name == "cola" else 1
    for i, example in enumerate(examples):
        texts = [*_texts(name, i), None][:2]
        assert [example.text_a, example.text_b] == texts
        numbered = name in NUMBERED and split != "test"
        assert example.guid == (f"{split}-{first_number + i}" if numbered else str(40 + i))
        if split == "test":
            expected = FIRST_LABELS.get(name, "0")
        else:
            expected = 2.5 if name == "sts-b" else LAYOUTS[name][4]
        assert example.label == expected
    assert len(examples) == 3
    assert list(task.iter_examples(str(tmp_path), split, use_spm=False)) == examples


@pytest.mark.parametrize(
    ("name", "split", "header", "message"),
    [
        ("sst-2", "test", "0 text", r"found an example \(id '0'\)"),
        ("cola", "test", "gj04 1 * text.", r"found an example \(label '1', as in data with labels"),
        ("sst-2", "test", "sentence label", "'sentence' as the name of column 2, found 'la"),
        ("qqp", "test", "id qid1 qid2 question1 question2 is_duplicate", "column 2, found 'qid1' "),
        ("mrpc", "test", "Quality #1_ID #2_ID #1_String #2_String", "'index' as the name of colum"),
        ("mrpc", "dev", "index #1_ID #2_ID #1_String #2_String", "'quality' as the name of column"),
        ("rte", "train", "sentence1 sentence2 label idx", "'sentence1' as the name of column 2"),
        ("sst-2", "dev", "label sentence", "'sentence' as the name of column 1, found 'label' amo"),
    ],
)  # fmt: skip
def test_a_header_of_other_data_is_an_error(tmp_path, name, split, header, message):
    header = header.replace(" ", "\t").replace("_", " ").replace("is duplicate", "is_duplicate")
    _write(tmp_path, name, split, [_line(name, split, 1, _texts(name, 1))], header)
    with pytest.raises(file_io.InputError, match=f"line 1: expected .*{message}"):
        glue.get_task(name).examples(str(tmp_path), split)


def test_text_preparation(tmp_path):
    _write(tmp_path, "rte", "dev", [_line("rte", "dev", 0, ["  Émile \u00a0 Zola", "½ «X»"])])
    read = glue.get_task("rte").examples

    def texts(**arguments):
        (example,) = read(str(tmp_path), "dev", **arguments)
        return example.text_a, example.text_b

    assert texts() == ("emile zola", "1⁄2 «x»")
    assert texts(do_lower_case=False) == ("Emile Zola", "1⁄2 «X»")
    assert texts(use_spm=False) == ("  Émile \u00a0 Zola", "½ «X»")


def test_a_task_cleans_each_text_up_once(tmp_path, tokenizer, monkeypatch):
    """Readers of a task leave that to the tokenizer; its features are those of cleaned texts."""
    texts = ["  The \u00a8 Cook ", "½ «SOUP»"]
    _write(tmp_path, "rte", "dev", [_line("rte", "dev", 0, texts)])
    row = glue.get_task("rte")
    (cleaned,) = row.examples(str(tmp_path), "dev")
    expected = glue.convert_example(cleaned, row, 24, tokenizer)
    seen = builders.watch_cleaning(monkeypatch)
    data = _data(tmp_path, tokenizer, length=24)
    (path,) = data.records("dev")
    assert sorted(seen) == sorted(texts)
    (serialized,) = tf.data.TFRecordDataset(path)
    features = input_pipeline.parse(data.specs("dev"), [serialized])
    for name, value in expected.items():
        np.testing.assert_array_equal(features[name][0], value, name)


def test_quotes_line_ends_marks_and_blank_last_lines(tmp_path):
    path = _file(tmp_path, "sst-2", "dev")
    path.write_bytes(
        b'\xef\xbb\xbfsentence\tlabel\r\n"one\t1\r\ntwo" \x0b\xe2\x80\xa8 x\ry\t0\r\n\r\n\n'
    )
    examples = glue.get_task("sst-2").examples(str(tmp_path), "dev", use_spm=False)
    assert [(e.text_a, e.label) for e in examples] == [
        ('"one', "1"),
        ('two" \x0b\u2028 x\ry', "0"),
    ]


def test_byte_order_mark_without_header(tmp_path):
    path = _file(tmp_path, "cola", "train")
    path.write_bytes(b"\xef\xbb\xbfg\t1\t\tone\ng\t0\t*\ttwo\n")
    examples = glue.get_task("cola").examples(str(tmp_path), "train")
    assert [(e.guid, e.label) for e in examples] == [("train-0", "1"), ("train-1", "0")]


def _error(folder, name, split):
    with pytest.raises(file_io.InputError) as caught:
        glue.get_task(name).examples(str(folder), split)
    return str(caught.value)


@pytest.mark.parametrize(("name", "expected"), [("rte", 4), ("mrpc", 5), ("mnli", 11), ("cola", 4)])
def test_short_line(tmp_path, name, expected):
    good = _line(name, "train", 0, _texts(name, 0))
    path = _write(tmp_path, name, "train", [good, good, "a\tb", good])
    number = 3 if name == "cola" else 4
    assert _error(tmp_path, name, "train") == (
        f"{path} line {number}: expected at least {expected} tab-separated columns, found 2"
    )


def test_short_test_line_of_a_task_that_skips(tmp_path):
    path = _write(tmp_path, "qqp", "test", ["0\ta\tb", "1\ta"])
    assert _error(tmp_path, "qqp", "test") == (
        f"{path} line 3: expected at least 3 tab-separated columns, found 2"
    )


def test_blank_line_between_examples(tmp_path):
    good = _line("rte", "dev", 0, _texts("rte", 0))
    path = _write(tmp_path, "rte", "dev", [good, "", good])
    message = _error(tmp_path, "rte", "dev")
    assert message.startswith(f"{path} line 3: expected at least 4 tab-separated columns, found 1")


@pytest.mark.parametrize("label", ["2", "", " 1", "1.0"])
def test_label_outside_the_list(tmp_path, label):
    good = _line("sst-2", "dev", 0, ["x"])
    path = _write(tmp_path, "sst-2", "dev", [good, _line("sst-2", "dev", 1, ["y"], label)])
    message = _error(tmp_path, "sst-2", "dev")
    assert message == f"{path} line 3: label {label!r}, expected one of 0, 1"


@pytest.mark.parametrize("label", ["x", "", "nan", "inf"])
def test_label_that_is_no_number(tmp_path, label):
    path = _write(tmp_path, "sts-b", "train", [_line("sts-b", "train", 0, ["a", "b"], label)])
    message = _error(tmp_path, "sts-b", "train")
    assert message == f"{path} line 2: label {label!r}, expected a number"


@pytest.mark.parametrize("name", ["sst-2", "sts-b", "rte"])
def test_header_that_is_an_example(tmp_path, name):
    line = _line(name, "train", 0, _texts(name, 0)[:1] if name == "sst-2" else ["a", "b"])
    path = _write(tmp_path, name, "train", [line], header=line)
    label = LAYOUTS[name][4]
    assert _error(tmp_path, name, "train") == (
        f"{path} line 1: expected a header line with column names, found an example "
        f"(label {label!r})"
    )


def test_header_that_is_an_example_behind_a_byte_order_mark(tmp_path):
    line = "\ufeff" + _line("mrpc", "train", 0, ["a", "b"])  # the label is the first column
    path = _write(tmp_path, "mrpc", "train", [line], header=line)
    message = _error(tmp_path, "mrpc", "train")
    assert message.startswith(f"{path} line 1: expected a header line")
    assert message.endswith("(label '1')")


def test_not_utf8(tmp_path):
    path = _write(tmp_path, "sst-2", "dev", ["x\t1"])
    path.write_bytes(path.read_bytes() + b"caf\xe9\t1\n")
    message = _error(tmp_path, "sst-2", "dev")
    assert re.search(r"dev\.tsv line 3: not UTF-8 text \(.*0xe9 in position 3", message)


def test_empty_files(tmp_path):
    path = _file(tmp_path, "rte", "dev")
    path.write_text("")
    assert _error(tmp_path, "rte", "dev") == f"{path}: there is no example in 0 lines"
    path.write_text("index\tsentence1\tsentence2\tlabel\n")
    assert _error(tmp_path, "rte", "dev") == f"{path}: there is no example in 1 lines"


def test_missing_file_names_the_layout(tmp_path):
    assert _error(tmp_path, "mnli", "dev") == (
        f"task mnli: the file {tmp_path}/MNLI/dev_matched.tsv does not exist; "
        "expected data_dir to hold a folder MNLI with train.tsv, dev_matched.tsv, test_matched.tsv"
    )
    (tmp_path / "dev_matched.tsv").touch()
    message = _error(tmp_path, "mnli", "dev")
    assert message.endswith(f"(dev_matched.tsv is in {tmp_path} itself: give the folder above)")


def test_path(tmp_path):
    path = _write(tmp_path, "rte", "dev", ["x"])
    assert glue.get_task("rte").path(str(tmp_path), "dev") == str(path)


def test_splits_that_a_task_does_not_have(tmp_path):
    diagnostic = glue.get_task("ax")
    diagnostic.check_splits(["test"])
    with pytest.raises(file_io.InputError, match="task ax has no train data, only test"):
        diagnostic.check_splits(["test", "train"])
    assert _error(tmp_path, "ax", "dev") == "task ax has no dev data, only test"
    glue.get_task("rte").check_splits(SPLITS)
    with pytest.raises(file_io.InputError, match="rte has no eval data, only train, dev, test"):
        glue.get_task("rte").check_splits(["eval"])


# --- short lines that are skipped ---------------------------------------------------------------


def _qqp_lines(good, short):
    lines = [_line("qqp", "train", i, ["a", "b"]) for i in range(good)]
    for i in range(short):
        lines.insert(2 * i, "7\t8\t9\ta")
    return lines


def test_short_lines_are_counted_and_reported(tmp_path, caplog):
    path = _write(tmp_path, "qqp", "train", _qqp_lines(40, 6))
    with caplog.at_level("WARNING", logger="absl"):
        examples = glue.get_task("qqp").examples(str(tmp_path), "train")
    assert [example.guid for example in examples] == [str(i) for i in range(40)]
    assert (
        f"{path}: 6 lines (13.04%) with fewer than 6 columns were skipped; the first are "
        "2, 4, 6, 8, 10"
    ) in caplog.text


@pytest.mark.parametrize(
    ("good", "short", "ok"), [(100, 10, True), (1089, 11, True), (1088, 11, False)]
)
def test_limit_of_short_lines(tmp_path, good, short, ok):
    _write(tmp_path, "qqp", "dev", _qqp_lines(good, short))
    if ok:
        assert len(glue.get_task("qqp").examples(str(tmp_path), "dev")) == good
    else:
        message = _error(tmp_path, "qqp", "dev")
        assert re.search(r"11 lines .* More than 1% is too much: is the file damaged\?", message)


def test_no_report_without_short_lines(tmp_path, caplog):
    _write(tmp_path, "qqp", "train", _qqp_lines(3, 0))
    with caplog.at_level("WARNING", logger="absl"):
        glue.get_task("qqp").examples(str(tmp_path), "train")
    assert not caplog.records


# --- from the engine's task ---------------------------------------------------------------------


def _data(folder, tokenizer, settings=None, length=16, shared=(), predicted="test"):
    """`contracts.Data` of RTE, which keeps its records in the folder."""
    return glue.make_data(
        glue.get_task("rte"),
        tokenizer,
        length,
        str(folder),
        example_data.FeatureCache(
            dict.fromkeys(SPLITS, str(folder / "records")),
            settings or {},
            distribution.create_strategy("one_device"),
            shared,
        ),
        predicted,
    )


def test_task_reads_for_its_tokenizer(tmp_path, tokenizer, wordpiece):
    _write(tmp_path, "rte", "dev", [_line("rte", "dev", 0, ["ÉA  b", "C"])])
    cased = tokenization.FullTokenizer(spm_model_file=tokenizer.spm_model_file, do_lower_case=False)
    for chosen, text in ((tokenizer, "ea b"), (cased, "EA b"), (wordpiece, "ÉA  b")):
        data = _data(tmp_path, chosen, {"text": text})
        (path,) = data.records("dev")
        (serialized,) = tf.data.TFRecordDataset(path)
        features = input_pipeline.parse(data.specs("dev"), [serialized])
        expected = chosen.cls_id, *chosen.encode(text), chosen.sep_id
        assert features["input_ids"][0, : len(expected)].numpy().tolist() == list(expected)


@pytest.mark.parametrize("split", ["dev", "test"])
def test_cut_texts_are_counted_in_the_log(tmp_path, tokenizer, caplog, split):
    texts = [["a b", "c"], ["the bread was fine " * 9, "it is good"], ["a", "b"]]
    _write(tmp_path, "rte", split, [_line("rte", split, i, row) for i, row in enumerate(texts)])
    tokens = [sum(len(tokenizer.encode(text)) for text in row) for row in texts]
    lost = 100 * (tokens[1] - 13) / sum(tokens)
    with caplog.at_level("WARNING", logger="absl"):
        _data(tmp_path, tokenizer, length=16).records(split)
    message = f"records: 1 of 3 texts were cut to fit, which lost {lost:.1f}% of all tokens"
    assert message in caplog.text
    caplog.clear()
    with caplog.at_level("WARNING", logger="absl"):
        _data(tmp_path, tokenizer, {"length": 99}, length=99).records(split)
    assert "cut to fit" not in caplog.text


def test_ids_of_test_data_come_from_the_cache(tmp_path, tokenizer):
    lines = [_line("rte", "test", guid, ["a", "b"]) for guid in ("31", "x-7")]
    _write(tmp_path, "rte", "test", lines)
    data = _data(tmp_path, tokenizer)
    data.records("test")
    os.remove(_file(tmp_path, "rte", "test"))
    assert data.ids() == ["31", "x-7"]


@pytest.mark.parametrize(("predicted", "count"), [("dev", 4), ("test", 8)])
def test_a_fraction_of_the_dev_data_is_predicted(tmp_path, tokenizer, predicted, count):
    """Where the dev data is predicted: the same examples as are evaluated, with their ids."""
    for split in ("dev", "test"):
        lines = [_line("rte", split, guid, [f"text {guid}", "b"]) for guid in range(8)]
        _write(tmp_path, "rte", split, lines)
    strategy = distribution.create_strategy("one_device")
    fractions = subsets.Fractions({"dev": ("eval_fraction", 0.5)}, 3, strategy)
    data = _data(tmp_path, tokenizer, predicted=predicted).subset(fractions)
    (path,) = data.records("test")
    assert record_files.count_records([path]) == len(data.ids()) == count
    chosen = subsets.choose_indices(8, count / 8, 3)
    assert data.ids() == [str(place) for place in chosen]
    rows = {
        "label_ids": np.zeros(count, np.int64),
        "predictions": np.ones(count, np.int64),
        "probabilities": np.full([count, 2], 0.5, np.float32),
    }
    data.write_predictions(str(tmp_path), rows, data.ids(), "")
    if predicted == "dev":
        examples = builders.read_examples(tmp_path)
        assert [row["text"] for row in examples] == [f"text {place} / b" for place in chosen]
    else:
        assert not (tmp_path / "examples.jsonl").exists()


def test_records_without_ids_are_made_again(tmp_path, tokenizer, caplog):
    _write(tmp_path, "rte", "test", [_line("rte", "test", 31, ["a", "b"])])
    path, data = str(tmp_path / "records"), _data(tmp_path, tokenizer)
    data.records("test")
    manifest = file_io.read_json(record_files.manifest_path(path), "manifest")
    del manifest["ids"]
    file_io.write_json(record_files.manifest_path(path), manifest)
    with caplog.at_level("WARNING", logger="absl"):
        data.records("test")
    assert "again: it has no ids of its examples" in caplog.text
    assert data.ids() == ["31"]


def test_runs_of_other_settings_share_a_folder(tmp_path, tokenizer):
    """Each uses what it has made, in turns and at the same time."""
    _write(tmp_path, "rte", "dev", [_line("rte", "dev", 0, ["a", "b"])])

    def of_length(length, shared=("dev",)):
        return _data(tmp_path, tokenizer, {"x": length}, length, shared)

    (old,) = of_length(12, ()).records("dev")  # of a run whose output folder it is
    with futures.ThreadPoolExecutor() as pool:
        found = list(pool.map(lambda n: of_length(n).records("dev")[0], [8, 16, 8, 16, 12]))
    assert found[4] == old == str(tmp_path / "records")
    assert found[:2] == found[2:4] and len(set(found)) == 3
    assert all(re.fullmatch(rf"{old}-\w{{8}}", path) for path in found[:2])
    made = [os.stat(path).st_mtime_ns for path in found]
    for length, path in zip([16, 8, 12], [found[1], found[0], old], strict=True):
        data = of_length(length)
        assert data.records("dev") == [path]
        (serialized,) = tf.data.TFRecordDataset(path)
        assert input_pipeline.parse(data.specs("dev"), [serialized])["input_ids"].shape == (
            1,
            length,
        )
    assert made == [os.stat(path).st_mtime_ns for path in found]


# --- cost ---------------------------------------------------------------------------------------


def test_readers_need_no_tensorflow(tmp_path, testdata):
    _write(tmp_path, "rte", "dev", [_line("rte", "dev", 0, ["a", "b"])])
    code = (
        "import sys\nfrom albert import classifier_utils as c, tokenization as t\n"
        "row, tokenizer = c.get_task('rte'), t.FullTokenizer(spm_model_file=sys.argv[1])\n"
        "examples = row.iter_examples(sys.argv[2], 'dev')\n"
        "rows = [c.convert_example(e, row, 16, tokenizer) for e in examples]\n"
        "print(len(rows), {'tensorflow', 'scipy', 'sklearn'} & set(sys.modules))"
    )
    command = [sys.executable, "-c", code, str(testdata / "tiny.model"), str(tmp_path)]
    run = processes.run(command, check=True)
    assert run.stdout.strip() == "1 set()"
