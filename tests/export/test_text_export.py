"""Exports that take strings: the same as from records."""

import ast
import sys

import numpy as np
import pytest
import tensorflow as tf

from albert import run_classifier
from albert.export import saved_model_export
from albert.io import file_io
from albert.model import decision as decisions
from albert.model import heads
from albert.tasks import glue
from albert.text import model_inputs, tokenization
from tests.support import builders
from tests.support.builders import ODD_TEXTS, SPM, glue_flags
from tests.support.sources import MODULES, tree_of

pytest.importorskip("tensorflow_text")

WORDPIECE = builders.TESTDATA / "tiny_vocab.txt"


@pytest.fixture(scope="module", params=["sentencepiece", "wordpiece"])
def tokenizer(request):
    if request.param == "wordpiece":
        return request.getfixturevalue("wordpiece")
    return tokenization.FullTokenizer(spm_model_file=str(SPM))


# --- features ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model():
    config = builders.tiny_config(max_position_embeddings=32, initializer_range=0.2)
    return heads.ClassifierModel(config, 3, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("is_pair", "max_seq_length"),
    [(True, 5), (True, 6), (True, 9), (True, 32), (False, 5), (False, 32)],
)
def test_features_are_those_of_the_records(tokenizer, model, is_pair, max_seq_length):
    row = glue.get_task("mrpc" if is_pair else "sst-2")
    server = saved_model_export.TextServer(
        model, tokenizer, max_seq_length, ("a", "b", "c"), is_pair
    )
    pairs = [(first, second) for first in ODD_TEXTS for second in ODD_TEXTS]
    firsts, seconds = zip(*(pairs if is_pair else [(text, "") for text in ODD_TEXTS]), strict=True)
    found = server.features(tf.constant(firsts), tf.constant(seconds) if is_pair else None)
    width = found["input_ids"].shape[1]
    for number, (first, second) in enumerate(zip(firsts, seconds, strict=True)):
        texts = (first, second) if is_pair else (first,)
        is_spm = tokenizer.sp_model is not None
        example = glue.make_example("0", texts, "0", is_spm, True)
        expected = glue.convert_example(example, row, max_seq_length, tokenizer)
        for name, values in found.items():
            np.testing.assert_array_equal(values[number], expected[name][:width], err_msg=name)
            assert not expected[name][width:].any()


@pytest.mark.slow
def test_a_model_that_may_abstain_does(tokenizer, model):
    settings = (model, tokenizer, 32, ("a", "b", "c"), False)
    texts = tf.constant(ODD_TEXTS)
    plain = saved_model_export.TextServer(*settings).serve(texts)
    highest = plain["probabilities"].numpy().max(axis=1)
    decision = decisions.Decision(min_probability=float(np.sort(highest)[1:3].mean()))
    found = saved_model_export.TextServer(*settings, decision).serve(texts)["prediction"].numpy()
    is_sure = highest >= decision.min_probability
    assert not is_sure.all() and is_sure.any()
    np.testing.assert_array_equal(found, np.where(is_sure, plain["prediction"], b"abstains"))


@pytest.mark.slow
def test_lengths_of_pairs_are_those_of_model_inputs():
    lengths = [(a, b) for a in range(12) for b in range(12)]
    a, b = (tf.constant(side) for side in zip(*lengths, strict=True))
    for most in range(10):
        kept = saved_model_export.kept_lengths(a, b, most)
        for number, pair in enumerate(lengths):
            expected = model_inputs.truncate_pair(*map(range, pair), most)
            assert [int(side[number]) for side in kept] == list(map(len, expected))


# --- models -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text_export")
    builders.write_glue(folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "vocabulary"),
    [("SST-2", {"vocab_file": WORDPIECE, "spm_model_file": ""}), ("STS-B", {})],
)
def test_exported_models_reproduce_the_test_results(inputs, tmp_path, run_script, task, vocabulary):
    flags = glue_flags(
        inputs, tmp_path, task, do_train=True, do_predict=True, from_scratch=True,
        learning_rate=2e-3, export_dir=tmp_path / "export", export_text=True, **vocabulary,
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
    labels = glue.get_task(task).labels
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


@pytest.mark.slow
def test_modules_load_tensorflow_text_only_when_asked():
    def imported(node):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.Import, ast.ImportFrom)):
                yield ast.unparse(child)
            elif not isinstance(child, ast.FunctionDef):
                yield from imported(child)

    for name in MODULES:
        assert "tensorflow_text" not in " ".join(imported(tree_of(name))), name
