"""SavedModels of serving folders compute what Python computes, and say what they are."""

import numpy as np
import pytest
import tensorflow as tf

from albert.export import saved_model_export, serving_export
from albert.io import file_io
from albert.serving import choice_predictor, predictors, runtimes, serving_folder, token_predictor
from tests.support import serving_samples
from tests.support.serving_samples import LENGTH

CHOICE_INPUTS = ("article", "question", "options")
TEXTS = ["the bread was fine .", "The soup", "a cake , a soup , a bread and more than fits"]


def write(path, trained, precision="float32", with_texts=False):
    with serving_folder.creating(str(path), trained, "saved_model", precision) as folder:
        saved_model_export.write(folder, trained, with_texts)
    return serving_folder.read(str(path))


@pytest.mark.slow
@pytest.mark.parametrize("kind", serving_samples.MARKED_KINDS)
def test_float_models_are_those_of_python(tmp_path, kind):
    trained = serving_samples.trained_in(tmp_path / "run", kind)
    folder = write(tmp_path / "out", trained)
    score = runtimes.load(folder)
    for rows, length in ((3, 9), (1, 24)):
        features = serving_samples.features(kind, rows, length)
        expected = serving_samples.expected(trained, features)
        serving_samples.assert_close(score(features), expected, features, 1e-5)


@pytest.mark.slow
def test_bfloat16_is_close(tmp_path):
    trained = serving_samples.trained_in(tmp_path / "run", "classifier", initializer_range=0.2)
    score = runtimes.load(write(tmp_path / "out", trained, "bfloat16"))
    features = serving_samples.features("classifier", 3, 9)
    expected = serving_samples.expected(trained, features)["probabilities"]
    found = score(features)["probabilities"]
    np.testing.assert_allclose(found, expected, atol=0.05)
    assert np.abs(found - expected).max() > 1e-5  # float32 would be closer


def test_int8_is_refused(tmp_path):
    trained = serving_samples.trained_in(tmp_path / "run", "classifier")
    with pytest.raises(file_io.InputError, match="format=saved_model .* precision=int8"):
        serving_export.export(trained.path, str(tmp_path / "out"), "saved_model", "int8")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


# --- texts --------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["classifier", "token_classifier"])
def texts(request, tmp_path_factory):
    """Kind, training's folder, serving folder."""
    pytest.importorskip("tensorflow_text")
    inputs = tmp_path_factory.mktemp("texts")
    trained = serving_samples.trained_in(inputs / "run", request.param)
    return request.param, trained, write(inputs / "out", trained, with_texts=True)


@pytest.mark.slow
def test_texts_get_the_answers_of_python(texts):
    kind, trained, folder = texts
    model = tf.saved_model.load(f"{folder.path}/saved_model_text")
    # Python cuts long texts with labels of words into parts, this model at the end.
    given = TEXTS if kind == "classifier" else TEXTS[:2]
    found = model.signatures["serving_default"](text=tf.constant(given))
    if kind == "classifier":
        expected = list(predictors.TextPredictor(trained.path).predict(given))
        assert [x.decode() for x in found["prediction"].numpy()] == [x.prediction for x in expected]
        return
    expected = list(token_predictor.TokenPredictor(trained.path).predict(given))
    for row, prediction in zip(found["labels"].numpy(), expected, strict=True):
        assert [x.decode() for x in row if x] == list(prediction.labels)


@pytest.mark.slow
def test_texts_of_choices_get_the_answers_of_python(tmp_path):
    pytest.importorskip("tensorflow_text")
    trained = serving_samples.trained_in(tmp_path / "run", "multiple_choice")
    folder = write(tmp_path / "out", trained, with_texts=True)
    questions = [
        choice_predictor.Question("0", "the bread was fine .", "_ was _ ?", ("bread", "old soup")),
        choice_predictor.Question("1", TEXTS[-1] * 2, "the cake and the soup", ("a b", "fine")),
    ]
    columns = [tf.constant([getattr(q, name) for q in questions]) for name in CHOICE_INPUTS]
    serve = tf.saved_model.load(f"{folder.path}/saved_model_text").signatures["serving_default"]
    found = serve(**dict(zip(CHOICE_INPUTS, columns, strict=True)))
    expected = list(choice_predictor.ChoicePredictor(trained.path).predict(questions))
    np.testing.assert_allclose(
        found["probabilities"], [x.probabilities for x in expected], atol=1e-5
    )
    assert found["prediction"].numpy().tolist() == [x.number for x in expected]


@pytest.mark.slow
def test_both_models_say_what_they_are(texts):
    kind, _, folder = texts
    for name in ("saved_model", "saved_model_text"):
        about = tf.saved_model.load(f"{folder.path}/{name}").signatures["description"]()
        assert about["labels"].numpy().tolist() == [b"bad", b"fine", b"good"]
        assert (about["kind"].numpy(), about["max_seq_length"].numpy()) == (kind.encode(), LENGTH)
