"""Exported models that label words say what the model in its folder says."""

import numpy as np
import pytest
import tensorflow as tf

from albert.export import saved_model_export
from albert.model import checkpoints, heads, model_folder, sources
from albert.serving import token_predictor
from albert.text import text_rules
from tests.support import builders

CONFIG = builders.tiny_config(initializer_range=0.5)
LABELS = ["O", "B-A", "I-A"]
LENGTH = 16


@pytest.fixture(scope="module")
def predictor(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("tokens"))
    source = sources.Source("", None, str(builders.SPM), None, text_rules.TextRules(True))
    settings = {"labels": LABELS, "max_seq_length": LENGTH, "columns": {}}
    model_folder.write(folder, "token_classifier", CONFIG, source, settings)
    checkpoints.save(f"{folder}/model.ckpt-7", heads.TokenClassifierModel(CONFIG, 3, seed=4))
    return token_predictor.TokenPredictor(folder)


def load_model(folder):
    return tf.saved_model.load(folder).signatures


@pytest.mark.slow
def test_texts_and_words(predictor, tmp_path):
    pytest.importorskip("tensorflow_text")
    model = heads.TokenClassifierModel(CONFIG, 3, seed=4)
    server = saved_model_export.WordServer(model, predictor.tokenizer, LENGTH, LABELS)
    signatures = load_model(saved_model_export.export_text(server, str(tmp_path)))
    texts = ["The bread was\u2003old .", " ", "\u0301 soup", "2,000 cakes"]
    by_text = signatures["serving_default"](text=tf.constant(texts))
    assert by_text["words"].shape == [4, 5]
    by_words = signatures["words"](words=by_text["words"])
    answers = list(predictor.predict([texts[row] for row in (0, 2, 3)]))
    assert len({label for answer in answers for label in answer.labels}) > 1
    for row, answer in zip((0, 2, 3), answers, strict=True):
        for outputs in (by_text, by_words):
            found = {name: value[row].numpy() for name, value in outputs.items()}
            count = len(answer.labels)
            assert [word.decode() for word in found["words"][:count]] == texts[row].split()
            assert [label.decode() for label in found["labels"][:count]] == answer.labels
            np.testing.assert_allclose(
                found["probabilities"][:count], answer.probabilities, atol=1e-5
            )
            assert not any(found["labels"][count:]) and not found["probabilities"][count:].any()
    assert not any(by_text["labels"][1].numpy())
    # What does not fit has no label; the predictor cuts such a text into parts.
    long = "the baker and the cook was old . bread"
    cut = signatures["serving_default"](text=tf.constant([long]))
    kept = [bool(label) for label in cut["labels"][0].numpy()]
    assert kept == sorted(kept, reverse=True) and 0 < sum(kept) < len(kept) == len(long.split())
    (whole,) = predictor.predict([long])
    assert len(whole.labels) == len(kept)


def test_ids(predictor, tmp_path):
    model = heads.TokenClassifierModel(CONFIG, 3, seed=4)
    signatures = load_model(saved_model_export.export_ids(model, str(tmp_path)))
    ids = tf.constant([[2, 100, 101, 3]])
    inputs = {"input_ids": ids, "input_mask": tf.ones_like(ids), "segment_ids": tf.zeros_like(ids)}
    outputs, expected = signatures["serving_default"](**inputs), model(inputs)
    np.testing.assert_allclose(outputs["probabilities"], expected["probabilities"], atol=1e-6)
    np.testing.assert_array_equal(outputs["predictions"], expected["predictions"])
