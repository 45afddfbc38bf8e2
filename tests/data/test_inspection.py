"""Counts of records are those that were made; the script prints them."""

import collections
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from albert import create_pretraining_data, describe_records
from albert.data import inspection, instance_files, instances, masking, tfrecord
from albert.io import file_io
from albert.text import tokenization
from tests.support import builders
from tests.support.sources import ROOT

TEXT = "the boats leave before the sun is up\nit rained all night\nnobody knew who\n\n" * 30
MODEL = str(ROOT / "tests" / "testdata" / "tiny.model")


@pytest.fixture
def make(tmp_path):
    """Function, mask -> (paths of records, counts of their making)."""

    def make(mask, compress=False):
        text = tmp_path / "text"
        text.write_text(TEXT)
        settings = instances.Settings(max_seq_length=32, mask=mask)
        job = instance_files.Job(settings, 2, spm_model_file=MODEL, compress=compress)
        paths = [str(tmp_path / "a"), str(tmp_path / "b")]
        return paths, instance_files.create([str(text)], paths, job)

    return make


@pytest.mark.parametrize("compress", [False, True])
def test_records_with_masks(make, compress):
    paths, counts = make(masking.MaskingConfig(5), compress)
    found = inspection.describe(paths, 2)
    assert sum(found.files.values()) == counts["instances"] and list(found.files) == paths
    assert found.lengths.total() == counts["instances"]
    tokens = sum(length * count for length, count in found.lengths.items())
    assert tokens == counts["instance_tokens"] == found.masked_of
    assert found.positions == 32 * counts["instances"]
    assert sum(n * count for n, count in found.masked.items()) == counts["masked"]
    assert found.labels["next_sentence_labels"][1] == counts["labels_1"]
    assert 0 < found.second < tokens
    assert dict(found.features["input_ids"]) == {("int64", 32): counts["instances"]}
    assert dict(found.features["masked_lm_weights"]) == {("float32", 5): counts["instances"]}
    text = inspection.report(found)
    assert text.startswith(f"{counts['instances']} records in 2 file(s)")
    assert f"masked: {counts['masked']} ({counts['masked'] / tokens:.1%}) of the tokens" in text
    label = f"1: {counts['labels_1']} ({counts['labels_1'] / counts['instances']:.1%})"
    assert label in text
    assert text.count("\n  record ") == 2


def test_a_record_in_words_is_the_text(make):
    paths, _ = make(masking.MaskingConfig(5))
    tokenizer = tokenization.FullTokenizer(spm_model_file=MODEL)
    pieces = [tokenizer.inv_vocab[i] for i in range(tokenizer.vocab_size)]
    (example,) = inspection.describe(paths, 1).examples
    text = inspection.example_text(example, pieces)
    assert text.startswith("[CLS] ") and text.count("[SEP]") == 2
    # With each [there=before] replaced by what was before it is words of the corpus.
    words = [word.strip("[]").split("=")[-1] if "=" in word else word for word in text.split()]
    words = "".join(words[1 : words.index("[SEP]")]).replace("▁", " ").split()
    assert " ".join(words) in " ".join(TEXT.split())
    assert sum("=" in word for word in text.split()[:-1]) == np.count_nonzero(
        example["masked_lm_weights"]
    )
    ids = inspection.example_text(example).split()
    assert ids[0] == str(tokenizer.cls_id)


def test_records_without_masks(make):
    paths, counts = make(None)
    found = inspection.describe(paths, 1)
    tokens = sum(length * count for length, count in found.lengths.items())
    assert tokens == counts["instance_tokens"] == found.positions
    assert not found.masked and found.labels["next_sentence_labels"].total() == counts["instances"]
    assert 0 < found.second < tokens
    text = inspection.report(found)
    assert "masked" not in text and "input_ids: int64, " in text and " to " in text


def test_records_of_another_kind(tmp_path):
    rows = [{"x": [1.5, 2.0], "label_ids": [n % 2]} for n in range(3)] + [{"x": [1.0]}]
    records = [
        tfrecord.example([tfrecord.feature_entry(name, np.array(v)) for name, v in row.items()])
        for row in rows
    ]
    (tmp_path / "records").write_bytes(b"".join(tfrecord.frame(records)))
    found = inspection.describe([str(tmp_path / "records")], 1)
    text = inspection.report(found)
    assert "x: float32, 1 to 2 value(s)\n" in text
    assert "label_ids: int64, 1 value(s); not in 1 records" in text
    assert "label_ids: 0: 2 (66.7%), 1: 1 (33.3%)" in text
    assert "record 1: x=[1.5, 2.0], label_ids=[0]" in text and "tokens" not in text
    found.labels["label_ids"] = collections.Counter(range(30))
    assert "label_ids: 30 different values, mean 14.5, minimum 0, median 14" in (
        inspection.report(found)
    )


def test_every_choice_of_a_record_is_shown_without_padding():
    example = {"input_ids": [5, 6, 0, 7, 0, 0], "input_mask": [1, 1, 0, 1, 0, 0], "label_ids": [1]}
    example = {name: np.array(values) for name, values in example.items()}
    assert inspection.example_text(example) == "5 6 7 label_ids=[1]"


def test_nothing_to_describe(tmp_path):
    (tmp_path / "records").write_bytes(b"")
    with pytest.raises(file_io.InputError, match="no records in .*records"):
        inspection.describe([str(tmp_path / "records")])
    (tmp_path / "records").write_bytes(b"".join(tfrecord.frame([b"\x0a\xff\xff\xff\xff"])))
    with pytest.raises(file_io.InputError, match="record 1 is bad: it is not an Example"):
        inspection.describe([str(tmp_path / "records")])


def test_words_are_those_that_records_were_made_of(tmp_path, capsys):
    """Beside the configuration of a BERT, ids are numbers of lines, also where pieces repeat."""
    words = sorted({*TEXT.split()})
    lines = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", words[0], *words]
    (tmp_path / "vocab.txt").write_text("\n".join(lines))
    (tmp_path / "bert_config.json").write_text("{}")
    (tmp_path / "text").write_text("the boats leave\nbefore the sun\n")
    flags = {"vocab_file": tmp_path / "vocab.txt"}
    builders.run(
        create_pretraining_data, **flags, input_file=tmp_path / "text",
        output_file=tmp_path / "records", max_seq_length=16, mask_in_training=True,
        sentence_task="none", sequence_format="doc_sentences",
    )  # fmt: skip
    capsys.readouterr()
    builders.run(describe_records, **flags, input_file=tmp_path / "records")
    assert "the boats leave before the sun" in capsys.readouterr().out


def test_the_script(make):
    paths, counts = make(masking.MaskingConfig(5))
    arguments = [sys.executable, "-m", "albert.describe_records", f"--input_file={paths[0]}"]
    options = {"cwd": ROOT, "capture_output": True, "text": True, "stdin": subprocess.DEVNULL}
    folder = os.path.dirname(paths[0])  # of a model
    shutil.copy(MODEL, folder)
    result = subprocess.run([*arguments, f"--spm_model_file={folder}"], **options)
    assert result.returncode == 0, result.stderr
    assert "all checksums are right" in result.stdout and "record 3: [CLS]" in result.stdout
    with open(paths[0], "r+b") as file:
        file.seek(30)
        file.write(b"\xff")
    result = subprocess.run(arguments, **options)
    assert result.returncode == 1
    assert (
        result.stderr.endswith("make the file again\n") and "record 1, at byte 0" in result.stderr
    )
