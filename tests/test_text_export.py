"""Exports that take strings: the tokenizer in the graph is the one in Python."""

import gzip
import json
import random
import subprocess
import sys
import unicodedata

import numpy as np
import pytest
import tensorflow as tf

from albert import (
    classifier_utils,
    export,
    file_io,
    heads,
    packing,
    run_classifier,
    tokenization,
)
from tests import builders
from tests.builders import SPM, glue_flags

pytest.importorskip("tensorflow_text")

TEXTS = [
    "The bread was FINE .",
    "  white\t\u2003space\n everywhere\u3000",
    "caf\u00e9 na\u00efve \ufb01ne \u00bd \u00a8 \u00b4x \u1e9b\u0323 \u01c5",
    "A\u03a3 \u03a3\u0391\u03a3. \u0130stanbul STRASSE \u1e9e \u212b",
    "2,000 9, 12,, 3.0, \u00b2, x9,y \u0663,",
    "\u4e2d\u6587 \uac01 \ud55c\uad6d \u0e01\u0e33 \U0001f600\u200d\U0001f469",
    "[CLS] <unk> \u2581 [SEP]",
    "",
    "\u0301",
]


@pytest.fixture(scope="module", params=[True, False])
def tokenizer(request):
    return tokenization.FullTokenizer(spm_model_file=str(SPM), do_lower_case=request.param)


def assert_same_ids(tokenizer, texts):
    found = export.GraphTokenizer(tokenizer).encode(tf.constant(texts)).to_list()
    for text, ids in zip(texts, found, strict=True):
        preprocessed = tokenizer.preprocess(text)  # as readers of files do
        assert ids == tokenizer.encode(preprocessed), repr(text)


def characters():
    """All that are text and that Python's Unicode version knows."""
    codes = range(1, sys.maxunicode + 1)
    return [chr(c) for c in codes if unicodedata.category(chr(c)) not in ("Cs", "Cn", "Co")]


def test_every_character(tokenizer):
    """Characters that TensorFlow's Unicode version does not know yet are unknown pieces anyway."""
    texts = [f"A{character}b" for character in characters()]
    assert_same_ids(tokenizer, texts)
    found = export.GraphTokenizer(tokenizer).preprocess(tf.constant(texts)).numpy()
    differing = [
        text
        for text, other in zip(texts, found, strict=True)
        if tokenizer.preprocess(text) != other.decode()
    ]
    assert len(differing) < 100


def test_a_vocabulary_with_a_character_that_differs_is_refused(tokenizer, monkeypatch):
    preprocess = export.GraphTokenizer.preprocess

    def another(self, texts):
        return tf.strings.regex_replace(preprocess(self, texts), "e", "\u00e9")

    monkeypatch.setattr(export.GraphTokenizer, "preprocess", another)
    with pytest.raises(
        file_io.InputError, match="characters .*e .*that TensorFlow .* does not treat"
    ):
        export.GraphTokenizer(tokenizer)


def test_ids_of_hard_texts(tokenizer):
    assert_same_ids(tokenizer, TEXTS)


def test_ids_of_random_texts(tokenizer):
    """Equal scores may be told apart by their last bit; such a text may be cut another way."""
    rng = random.Random(1)
    signs = 'ab ,.9 1\u00e9\u0301\u00bd\u2003\u03a3\u0130\u2581\u4e2d\U0001f600\t"'
    texts = ["".join(rng.choices(signs, k=rng.randrange(1, 30))) for _ in range(2000)]
    found = export.GraphTokenizer(tokenizer).encode(tf.constant(texts)).to_list()
    expected = [tokenizer.encode(text) for text in texts]
    scores = tokenizer.sp_model.get_score(list(range(tokenizer.vocab_size)))
    differing = [pair for pair in zip(found, expected, strict=True) if pair[0] != pair[1]]
    assert len(differing) <= 4
    for pair in differing:
        ours, theirs = (sum(scores[i] for i in ids) for ids in pair)
        assert ours == pytest.approx(theirs, abs=1e-9)
        ours, theirs = ("".join(tokenizer.inv_vocab[i] for i in ids) for ids in pair)
        assert ours == theirs


def test_ids_of_glue_texts(shared):
    spm = str(shared / "data" / "spm" / "30k-clean.model")
    tokenizer = tokenization.FullTokenizer(spm_model_file=spm)
    columns = {"MRPC": (3, 4), "RTE": (1, 2), "STS-B": (7, 8), "CoLA": (3,), "SST-2": (0,)}
    texts = []
    for folder, places in columns.items():
        text = (shared / "data" / "glue" / folder / "dev.tsv").read_text(encoding="utf-8")
        rows = [line.split("\t") for line in text.split("\n")[1:] if line]
        texts += [row[place] for row in rows for place in places if len(row) > place]
    with gzip.open(shared / "golden" / "data" / "tokenization.json.gz", "rt") as file:
        recorded = json.load(file)
    texts += sorted({row["text"] for row in _rows_with_text(recorded)})
    assert len(texts) > 6000
    assert_same_ids(tokenizer, texts)


def _rows_with_text(value):
    """Every dict with a text, however deep."""
    if isinstance(value, dict):
        if isinstance(value.get("text"), str):
            yield value
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            yield from _rows_with_text(part)


# --- features ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model():
    config = builders.tiny_config(max_position_embeddings=32, initializer_range=0.2)
    return heads.ClassifierModel(config, 3, seed=1)


@pytest.mark.parametrize("max_seq_length", [5, 6, 9, 32])
@pytest.mark.parametrize("is_pair", [False, True])
def test_features_are_those_of_the_records(tokenizer, model, max_seq_length, is_pair):
    row = classifier_utils.get_task("mrpc" if is_pair else "sst-2")
    server = export.TextServer(model, tokenizer, max_seq_length, ("a", "b", "c"), is_pair)
    firsts = [text for text in TEXTS for _ in TEXTS]
    seconds = TEXTS * len(TEXTS)
    found = server.features(tf.constant(firsts), tf.constant(seconds) if is_pair else None)
    width = found["input_ids"].shape[1]
    for number, (first, second) in enumerate(zip(firsts, seconds, strict=True)):
        texts = (first, second) if is_pair else (first,)
        example = classifier_utils.make_example("0", texts, "0", True, tokenizer.do_lower_case)
        expected = classifier_utils.convert_example(example, row, max_seq_length, tokenizer)
        for name, values in found.items():
            np.testing.assert_array_equal(values[number], expected[name][:width], err_msg=name)
            assert not expected[name][width:].any()


def test_lengths_of_pairs_are_those_of_packing():
    lengths = [(a, b) for a in range(12) for b in range(12)]
    a, b = (tf.constant(side) for side in zip(*lengths, strict=True))
    for most in range(10):
        kept = export.kept_lengths(a, b, most)
        for number, pair in enumerate(lengths):
            expected = packing.truncate_pair(*map(range, pair), most)
            assert [int(side[number]) for side in kept] == list(map(len, expected))


# --- models -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text_export")
    builders.write_glue(folder)
    return folder


@pytest.mark.parametrize("task", ["SST-2", "RTE", "STS-B"])
def test_exported_models_reproduce_the_test_results(inputs, tmp_path, run_script, task):
    flags = glue_flags(
        inputs, tmp_path, task, do_train=True, do_predict=True, from_scratch=True,
        learning_rate=2e-3, export_dir=tmp_path / "export", export_text=True,
    )  # fmt: skip
    run_script(run_classifier, **flags)
    (exported,) = (tmp_path / "export" / "text").iterdir()
    assert exported.name.isdigit()
    serve = tf.saved_model.load(str(exported)).signatures["serving_default"]
    columns = zip(*builders.glue_texts(inputs / "glue" / task / "test.tsv", task), strict=True)
    given = dict(zip(("text", "text_pair"), map(tf.constant, columns), strict=False))
    answer = {name: value.numpy() for name, value in serve(**given).items()}
    lines = (tmp_path / "test_results.tsv").read_text().splitlines()
    expected = np.float32([line.split("\t") for line in lines])
    if task == "STS-B":
        assert set(answer) == {"prediction"}
        np.testing.assert_allclose(answer["prediction"], expected[:, 0], atol=1e-5)
        return
    np.testing.assert_allclose(answer["probabilities"], expected, atol=1e-6)
    submit = (tmp_path / "submit_results.tsv").read_text().splitlines()[1:]
    names = [line.split("\t")[1] for line in submit]
    assert [name.decode() for name in answer["prediction"]] == names
    labels = classifier_utils.get_task(task).labels
    assert [[name.decode() for name in row] for row in answer["labels"]] == [list(labels)] * 21


def test_the_package_is_asked_for_before_any_work(inputs, tmp_path, run_script, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_text", None)
    flags = glue_flags(
        inputs, tmp_path / "out", do_train=True, from_scratch=True, export_text=True,
        export_dir=tmp_path / "export",
    )  # fmt: skip
    with pytest.raises(file_io.InputError, match=r"export_text needs tensorflow-text.*pip insta"):
        run_script(run_classifier, **flags)
    assert not (tmp_path / "out").exists()


def test_wordpiece_is_refused(wordpiece):
    with pytest.raises(file_io.InputError, match="needs a SentencePiece vocabulary that holds the"):
        export.check_text(wordpiece)


def test_the_script_does_not_load_tensorflow_text_unasked():
    program = "import sys, albert.export; sys.exit('tensorflow_text' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
