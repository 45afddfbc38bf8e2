"""Every kind of model behind one function: the answers of its predictor, whatever is in a text."""

import importlib.util
import json

import numpy as np
import pytest

from albert.export import graphs, serving_export
from albert.io import file_io
from albert.model import batching, checkpoints, head_config, heads, layers, model_folder, sources
from albert.serving import (
    choice_predictor,
    inference,
    predictors,
    requests,
    served_model,
    tensors,
    token_predictor,
    trained_model,
)
from albert.tasks import custom, glue, kinds, race, token_classification, word_files
from albert.tasks.squad import task as squad_task
from albert.text import text_rules
from tests.support import builders, serving_samples

CONFIG = builders.tiny_config(initializer_range=0.5)
SOURCE = sources.Source("", None, str(builders.SPM), None, text_rules.TextRules(True))
LENGTH = 24
TEXTS = ["the bread was fine .", "a soup", "the bread was very good . " * 9, "\ud800 \x00 🙂 é"]


def save(folder, model):
    checkpoints.save(f"{folder}/model.ckpt-7", model)
    return str(folder)


def classifier(folder, labels, pair=None):
    return builders.write_classifier(folder, labels, CONFIG, pair, LENGTH, seed=4, step=7)


def token_classifier(folder):
    labels = ("O", "B-PER", "I-PER")
    columns, kind = word_files.Columns(), token_classification.KIND
    settings = custom.label_settings(labels, columns, LENGTH, 0.1, head_config.NO_LAYER)
    kinds.write_folder(str(folder), kind, CONFIG, SOURCE, settings)
    made = token_classification.make_task(labels, LENGTH)
    return save(folder, made.build_model(CONFIG, layers.Compute(), 4))


def multiple_choice(folder):
    settings = {"max_seq_length": LENGTH, "max_qa_length": 12}
    model_folder.write(str(folder), race.KIND, CONFIG, SOURCE, settings)
    return save(folder, heads.MultipleChoiceModel(CONFIG, 4, seed=4))


def squad(folder):
    settings = squad_task.Settings(48, 16, 10, 20, 30)
    model_folder.write(str(folder), squad_task.V1, CONFIG, SOURCE, settings.to_dict())
    made = squad_task.make_task(squad_task.V1, settings)
    return save(folder, made.build_model(CONFIG, layers.Compute(), 4))


def answered(model, examples):
    """As JSON: whatever a model answers must have that form."""
    return json.loads(requests.to_json(model.answer(examples)))


def test_labels_of_texts_and_pairs(tmp_path, monkeypatch):
    folder = classifier(tmp_path / "pair", ("no", "yes"), pair="text_pair")
    model = served_model.load(folder)
    assert (model.form, model.max_seq_length) == (requests.TWO_TEXTS, LENGTH)
    pairs = [(text, "it is good") for text in TEXTS]
    # Whatever order a client has the fields in.
    found = answered(model, [{"text_pair": b, "text": a} for a, b in pairs])
    expected = list(predictors.TextPredictor(folder).predict(pairs, 1))
    assert [row["prediction"] for row in found] == [row.prediction for row in expected]
    assert [other.truncated for other in expected] == [False, False, True, False]
    for row, other in zip(found, expected, strict=True):
        assert row.pop("truncated", False) == other.truncated
        assert row.keys() == {"prediction", "probabilities"}
        assert list(row["probabilities"]) == ["no", "yes"]
        values = list(other.probabilities.values())
        np.testing.assert_allclose(list(row["probabilities"].values()), values, atol=1e-5)
    with pytest.raises(file_io.InputError, match="runtime=onnxruntime: TensorFlow computes"):
        served_model.load(folder, runtime="onnxruntime")
    asked = []
    served_model.warm(model, 4, lambda: asked.append(1) or len(asked) < 4)
    assert len(asked) == 4
    monkeypatch.setattr(model, "answer", asked.append)
    served_model.warm(model, 4)
    tried = [(len(examples), len(examples[0]["text"].split())) for examples in asked[4:]]
    assert tried == [(1, 2), (1, 10), (1, 18), (2, 18), (4, 18)]  # in addition to 6 other tokens
    for most_tokens, rows in ((LENGTH, [1]), (5 * LENGTH, [1, 2, 4])):
        asked.clear()
        served_model.warm(model, 4096, max_batch_tokens=most_tokens)
        assert [len(examples) for examples in asked[2:]] == rows


@pytest.mark.slow
def test_numbers_words_and_choices(tmp_path):
    folder = classifier(tmp_path / "number", ())
    model = served_model.load(folder)
    (row,) = answered(model, [{"text": TEXTS[0]}])
    (expected,) = predictors.TextPredictor(folder).predict(TEXTS[:1])
    assert row == {"prediction": float(expected.chosen)}
    (row,) = answered(model, [{"text": TEXTS[2]}])
    assert row.keys() == {"prediction", "truncated"} and row["truncated"] is True

    folder = token_classifier(tmp_path / "words")
    model = served_model.load(folder)
    words = [text.split() for text in TEXTS[:3]]
    found = answered(model, [{"words": row} for row in words])
    expected = list(token_predictor.TokenPredictor(folder).predict(words, 1))
    for row, other in zip(found, expected, strict=True):
        assert row.keys() == {"words", "labels", "probabilities", "entities"}
        assert (row["words"], row["labels"]) == (list(other.sentence.words), other.labels)
    long_word = answered(model, [{"words": ["good"]}, {"words": ["a", "good" * LENGTH]}])
    assert ["truncated" in row for row in long_word] == [False, True]

    folder = multiple_choice(tmp_path / "choice")
    model = served_model.load(folder)
    question = choice_predictor.Question("", TEXTS[0], "it was _ .", ("fine", "bad", "so"))
    example = {"article": TEXTS[0], "question": "it was _ .", "options": ["fine", "bad", "so"]}
    with pytest.MonkeyPatch.context() as patch:
        asked = []
        patch.setattr(model, "answer", asked.append)
        served_model.warm(model, 16)
        # Rows of four options each.
        assert [len(examples) for examples in asked] == [1, 1, 1, 2, 4]
    served_model.warm(model, 1)
    found = answered(
        model,
        [example, example | {"options": ["fine", "bad"]}, example | {"article": TEXTS[2]}],
    )
    assert [row.pop("truncated", False) for row in found] == [False, False, True]
    (expected,) = choice_predictor.ChoicePredictor(folder).predict([question])
    assert found[0]["answer"] == expected.to_dict()["answer"]
    assert [list(row["probabilities"]) for row in found] == [list("ABC"), list("AB"), list("ABC")]


def test_answers_to_questions(tmp_path):
    folder = squad(tmp_path / "squad")
    model = served_model.load(folder)
    assert model.form.entry == "/ask" and model.max_seq_length == 48
    served_model.warm(model, 1)
    example = {"question": "how was it ?", "context": TEXTS[2], "num_answers": 2}
    found = answered(model, [example, example | {"context": TEXTS[0], "num_answers": 1}])
    reply = predictors.Answerer(folder).ask(example["question"], TEXTS[2])
    assert found[0]["answer"] == reply.answers[0].text
    assert [len(row["answers"]) for row in found] == [2, 1]
    assert all(TEXTS[2][a["start"] : a["end"]] == a["text"] for a in found[0]["answers"])
    (long_question,) = answered(model, [example | {"question": "how was it ? " * 9}])
    assert long_question["truncated"] is True and "truncated" not in found[0]  # of a long text
    with pytest.raises(file_io.InputError, match="the text cannot be searched"):
        answered(model, [example | {"context": "\u200b"}])


@pytest.mark.parametrize("make", [squad, multiple_choice])
def test_windows_and_options_are_computed_a_few_at_a_time(tmp_path, monkeypatch, make):
    folder = make(tmp_path / "run")
    examples = {
        squad: {"question": "how ?", "context": "the bread was good . " * 9, "num_answers": 2},
        multiple_choice: {"article": "a", "question": "b", "options": ["c", "d", "e", "f"]},
    }
    sizes, found = [], []
    with monkeypatch.context() as patch:
        load = inference.FoundModel.load

        def watched(self, *args):
            infer = load(self, *args)
            return lambda inputs: sizes.append(len(inputs["input_ids"])) or infer(inputs)

        patch.setattr(inference.FoundModel, "load", watched)
        for most in (None, 3):
            model = served_model.load(folder, max_batch_size=most)
            found += answered(model, [examples[make]])
    number = sizes[0]
    assert number > 3 and sizes[1:] == [3] * (number // 3) + [number % 3] * (number % 3 > 0)
    assert is_close(*found)


@pytest.mark.slow
def test_exported_models(tmp_path):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    folder = classifier(tmp_path / "trained", ("no", "yes"))
    serving_export.export(folder, str(tmp_path / "exported"), "onnx")
    exported = served_model.load(str(tmp_path / "exported"), threads=1)
    assert (exported.form, exported.max_seq_length) == (requests.ONE_TEXT, LENGTH)
    examples = [{"text": text} for text in TEXTS]
    found, expected = answered(exported, examples), answered(served_model.load(folder), examples)
    for row, other in zip(found, expected, strict=True):
        assert row["prediction"] == other["prediction"]
        both = [list(r["probabilities"].values()) for r in (row, other)]
        np.testing.assert_allclose(*both, atol=1e-5)
    with pytest.raises(file_io.InputError, match="runtime=none"):
        served_model.load(str(tmp_path / "exported"), runtime="none")


@pytest.mark.parametrize("kind", serving_samples.KINDS)
@pytest.mark.parametrize("length", [1, True, 10**30])
def test_lengths_that_leave_no_room_are_named(tmp_path, kind, length):
    path = tmp_path / "run" / "model.json"
    trained = serving_samples.trained_in(path.parent, kind)
    description = json.loads(path.read_text())
    description["settings"]["max_seq_length"] = length
    path.write_text(json.dumps(description))
    with pytest.raises(file_io.InputError, match=rf"model\.json: .* max_seq_length is {length},"):
        served_model.load(trained.path)
    changed = model_folder.read(trained.path)
    with pytest.raises(file_io.InputError, match=f"max_seq_length is {length},"):
        graphs.ExportedModel(changed)


def test_what_cannot_be_served(tmp_path):
    with pytest.raises(file_io.InputError, match="there is no model folder"):
        served_model.load(str(tmp_path / "nothing"))
    with pytest.raises(file_io.InputError, match=r"has no model\.json"):
        served_model.load(str(tmp_path))


def is_close(a, b):
    """Rows of a batch may be rounded in different ways, depending on the processor."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(is_close(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(is_close, a, b))
    return a == (pytest.approx(b, abs=1e-5) if isinstance(b, float) else b)


@pytest.mark.slow
@pytest.mark.parametrize("kind", serving_samples.MARKED_KINDS)
def test_ids_are_answered_with_the_outputs_of_the_file(tmp_path, kind):
    folder = tmp_path / "run"
    folder.mkdir()
    trained = serving_samples.trained_in(folder, kind)
    given = serving_samples.features(kind, 3, 16)
    expected = trained_model.from_training_folder(trained)(given)
    for max_batch_tokens in (None, 2 * 16):
        model = served_model.load(trained.path, max_batch_tokens=max_batch_tokens)
        text = dict(model.form.example)
        if "num_answers" in model.form.optional:
            text["num_answers"] = 1
        answers = model.answer([text, requests.Ids(given), text])
        assert is_close(answers[0], answers[2]) and isinstance(answers[0], dict)
        found = {name: np.asarray(values) for name, values in answers[1].items()}
        expected = {name: np.asarray(values) for name, values in expected.items()}
        serving_samples.assert_close(found, expected, given, 1e-5)
        assert [tensor.name for tensor in model.ids.inputs] == list(given)
        types = {"INT32": "i", "FP32": "f"}
        for tensor in model.ids.outputs:
            values = found[tensor.name]
            assert values.dtype.kind == types[tensor.datatype], tensor
            shape = tensor.shape
            assert len(shape) == values.ndim, tensor
            assert all(a in (b, tensors.ANY) for a, b in zip(shape, values.shape, strict=True))
    for tensor in model.outputs:
        value = np.array([tensor.value_of(answers[0])])
        assert value.ndim == len(tensor.shape) and value.dtype.kind in "Uf"
    limits = model.ids.limits
    assert limits["input_ids"] == trained.config.vocab_size and limits["input_mask"] == 2
    assert model.ids.max_length == trained.config.max_position_embeddings


def test_logits_at_padding_are_those_of_exported_models(tmp_path):
    (tmp_path / "run").mkdir()
    trained = serving_samples.trained_in(tmp_path / "run", squad_task.V1)
    given = serving_samples.features(squad_task.V1, 2, 8)
    (found,) = served_model.load(trained.path).answer([requests.Ids(given)])
    for values in found.values():
        assert ((values == np.float32(-1e30)) == (given["input_mask"] == 0)).all()
    if importlib.util.find_spec("onnxruntime"):
        serving_export.export(trained.path, str(tmp_path / "onnx"), "onnx")
        (other,) = served_model.load(str(tmp_path / "onnx")).answer([requests.Ids(given)])
        for name, values in other.items():
            np.testing.assert_allclose(found[name], values, rtol=1e-4, atol=1e-4)


def test_outputs_of_ids_that_are_not_finite_are_no_answers(tmp_path):
    folder = classifier(tmp_path / "run", ("no", "yes"))
    values = builders.weights(f"{folder}/model.ckpt-7")
    large = {n: v * 3e38 if n.endswith("output_weights") else v for n, v in values.items()}
    checkpoints.write_tensors(f"{folder}/model.ckpt-7", large)
    model = served_model.load(folder)
    ids = requests.Ids(serving_samples.features(glue.KIND, 2, 8))
    with pytest.raises(batching.NonFiniteError, match="computed probabilities that are not fin"):
        model.answer([ids])


def test_no_more_tokens_are_computed_at_once_than_allowed():
    seen = []

    def infer(features):
        seen.append(features["input_ids"].shape)
        return {"sums": features["input_ids"].sum(axis=1)}

    ids = {"input_ids": np.arange(35).reshape(7, 5)}
    for most, shapes in (
        (None, [(7, 5)]), (35, [(7, 5)]), (34, [(6, 5), (1, 5)]), (14, [(2, 5)] * 3 + [(1, 5)]),
        (3, [(1, 5)] * 7),
    ):  # fmt: skip
        seen.clear()
        found = inference.in_parts(infer, most)(ids)["sums"]
        assert seen == shapes and (found == ids["input_ids"].sum(axis=1)).all()
