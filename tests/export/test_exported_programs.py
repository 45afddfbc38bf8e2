"""The programs of docs/runtimes.md that run a serving folder without this toolkit."""

import json
import re

import numpy as np
import pytest

from albert.export import serving_export
from albert.serving import predictors
from albert.tasks import label_sets
from tests.support import builders, serving_samples
from tests.support.sources import ROOT

tokenizers = pytest.importorskip("tokenizers")
TEXTS = ["a charming journey", "Ann wrote it in the year. " * 5, "dejà \U0001f600 [SEP] ΟΔΟΣ", "x"]
CONTEXT = "The \U0001f600 cat wrote it, in 1901.\n  Ben read   it to the old man and the dog. " * 2
QUESTIONS = [("Who wrote it?", "Ann wrote it."), ("When was it? " * 3, CONTEXT), ("Who?", CONTEXT)]


def program(heading):
    """The program below a heading of the document."""
    text = (ROOT / "docs" / "runtimes.md").read_text(encoding="utf-8")
    (found,) = re.findall(rf"^## {heading}\n.*?^```py\n(.*?)^```", text, re.S | re.M)
    return found


def with_saved_model(source):
    """The program of texts with the lines that run a SavedModel in place of those of ONNX."""
    source = source.replace("import onnxruntime\n", "")
    lines = program("Texts, with the SavedModel")
    return re.sub(r"^session = .*?(?=\n\n\ndef ids_of)", lines, source, flags=re.S | re.M)


def run(
    heading, tmp_path, kind, format, runtime="auto", is_pair=False, long_texts=None,
    change=lambda source: source,
):  # fmt: skip
    """The names that the program defines, and the toolkit's predictor of the same folder."""
    if kind == label_sets.KIND:
        builders.write_multi_label(tmp_path / "trained")
    else:
        serving_samples.trained_in(tmp_path / "trained", kind)
    folder = str(tmp_path / "folder")
    serving_export.export(str(tmp_path / "trained"), folder, format)
    if is_pair:  # That is all that differs in the folder of a model for two texts.
        path = tmp_path / "folder" / "model.json"
        path.write_text(path.read_text().replace('"text_pair": null', '"text_pair": "other"'))
    if long_texts:
        path = tmp_path / "folder" / "model.json"
        settings = json.dumps({"long_texts": long_texts})[1:-1]
        path.write_text(path.read_text().replace('"settings": {', f'"settings": {{{settings},'))
    source = change(program(heading))
    assert "albert" not in source
    source, count = re.subn(r'^folder = "\w+"', f"folder = {folder!r}", source, flags=re.M)
    assert count == 1
    names = {}
    exec(compile(source, "runtimes.md", "exec"), names)  # noqa: S102
    return names, predictors.load(folder, runtime)


def probabilities(result):
    return {name: float(p) for name, p in result.probabilities.items()}


@pytest.mark.parametrize("kind", ["classifier", "regression", label_sets.KIND])
def test_texts_with_onnxruntime(tmp_path, kind):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    names, predictor = run("Texts, with ONNX Runtime", tmp_path, kind, "onnx")
    about = names["session"].get_modelmeta().custom_metadata_map
    about = {key: json.loads(value) for key, value in about.items()}
    is_set = kind == label_sets.KIND
    assert about == {"kind": kind if is_set else "classifier", **names["settings"]}
    for text, result in zip(TEXTS, predictor.predict(TEXTS), strict=True):
        found = names["predict"](text)
        if kind == "regression":
            assert found == pytest.approx(float(result.chosen), abs=1e-4)
        else:
            assert found == pytest.approx(probabilities(result), abs=1e-5)


@pytest.mark.parametrize("mode", ["cut", "head_tail", "windows"])
def test_pairs_and_long_texts_with_onnxruntime(tmp_path, mode):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    heading, long_texts = "Texts, with ONNX Runtime", {"mode": mode}
    if mode == "windows":
        long_texts["doc_stride"] = 12
    settings = {"is_pair": True, "long_texts": long_texts}
    names, predictor = run(heading, tmp_path, "classifier", "onnx", **settings)
    assert names["rule"] == long_texts
    pairs = [(a, b) for a in TEXTS for b in TEXTS]
    if mode == "windows":  # one text has no second one, which is all that differs in the folder
        one = [names["windows_of"](names["ids_of"](text), None) for text in TEXTS]
        rule = predictor._rule
        expected = [rule.read(names["ids_of"](t), None, predictor.max_seq_length) for t in TEXTS]
        assert [windows for windows, _ in one] == [[w[:2] for w in windows] for windows in expected]
        assert max(len(windows) for windows, _ in one) > 1
    for pair, result in zip(pairs, predictor.predict(pairs), strict=True):
        assert names["predict"](*pair) == pytest.approx(probabilities(result), abs=1e-5)


def test_words_with_openvino(tmp_path):
    pytest.importorskip("onnx")
    pytest.importorskip("openvino")
    names, predictor = run("Words, with OpenVINO", tmp_path, "token_classifier", "onnx", "openvino")
    sentences = [["John", "lives", "in", "New", "York"], ["\u0301", "a" * 99, *CONTEXT.split()]]
    for words, result in zip(sentences, predictor.predict(sentences), strict=True):
        assert names["labels_of"](words) == result.labels


@pytest.mark.slow
def test_multiple_choice_with_litert(tmp_path):
    pytest.importorskip("ai_edge_litert")
    names, predictor = run("Multiple choice, with LiteRT", tmp_path, "multiple_choice", "litert")
    for question in ("We stayed ____ .", "Where did they all stay on that day, and why?"):
        fields = {"article": CONTEXT, "question": question, "options": ["inside", "x y z", "b"]}
        (result,) = predictor.predict([predictor.read_request(fields)])
        found = names["probabilities_of"](**fields)
        np.testing.assert_allclose(found, result.probabilities, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["classifier", label_sets.KIND])
def test_windows_with_the_saved_model(tmp_path, kind):
    heading, long_texts = "Texts, with ONNX Runtime", {"mode": "windows", "doc_stride": 12}
    settings = {"long_texts": long_texts, "change": with_saved_model}
    names, predictor = run(heading, tmp_path, kind, "saved_model", **settings)
    assert "onnxruntime" not in names
    texts = [*TEXTS, CONTEXT * 2]
    assert len(names["windows_of"](names["ids_of"](texts[-1]), None)[0]) > 2
    for text, result in zip(texts, predictor.predict(texts), strict=True):
        assert names["predict"](text) == pytest.approx(probabilities(result), abs=1e-5)


@pytest.mark.parametrize("kind", ["squad_v1", "squad_v2"])
def test_questions_with_onnxruntime(tmp_path, kind):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    names, predictor = run("Questions", tmp_path, kind, "onnx")
    several = 0
    for question, context in QUESTIONS:
        answers, null_odds = names["ask"](question, context)
        reply = predictor.ask(question, context)
        expected = [answer for answer in reply.answers if answer.start is not None]
        assert [row[::2] for row in answers] == [(a.text, a.start) for a in expected]
        expected = [answer.probability for answer in expected]
        assert [p for _, p, _ in answers] == pytest.approx(expected, abs=1e-5)
        assert null_odds == (reply.null_odds and pytest.approx(reply.null_odds, abs=1e-4))
        several += len(answers) > 1
    assert several
