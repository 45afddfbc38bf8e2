"""Pre-training with other sentence tasks; test_heads.py has the one that was recorded."""

import numpy as np
import pytest
import tensorflow as tf

from albert.io import file_io
from albert.model import encoder, pretraining_heads

CONFIG = encoder.AlbertConfig(
    vocab_size=40, embedding_size=8, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
    intermediate_size=32, max_position_embeddings=32, initializer_range=0.2,
)  # fmt: skip


def make_features():
    rng = np.random.default_rng(1)
    return {
        "input_ids": tf.constant(rng.integers(5, 40, (3, 10)), tf.int32),
        "masked_lm_positions": tf.constant(rng.integers(0, 10, (3, 2)), tf.int32),
        "masked_lm_ids": tf.constant(rng.integers(5, 40, (3, 2)), tf.int32),
        "masked_lm_weights": tf.constant([[1, 1], [1, 0], [1, 1]], tf.float32),
        "next_sentence_labels": tf.constant([[1], [0], [1]]),
    }


def make_model(sentence_task):
    return pretraining_heads.PretrainingModel(CONFIG, seed=1, sentence_task=sentence_task)


def losses_and_gradients(model, features):
    with tf.GradientTape() as tape:
        losses = model.losses(model(features, training=True), features)
        loss = tf.add_n(list(losses.values()))
    return losses, dict(
        zip(
            [variable.name for variable in model.trained_variables],
            tape.gradient(loss, model.trained_variables),
            strict=True,
        )
    )


def test_next_sentence_has_names_of_its_own_and_the_same_values():
    order, following, features = make_model("sop"), make_model("nsp"), make_features()
    for training in (False, True):
        expected, found = order(features, training), following(features, training)
        renamed = {
            name.replace("sentence_order", "next_sentence"): x for name, x in expected.items()
        }
        assert set(found) == set(renamed) != set(expected)
        for name, value in renamed.items():
            np.testing.assert_array_equal(found[name], value)
    (expected, _), (found, _) = (losses_and_gradients(m, features) for m in (order, following))
    assert list(expected) == ["masked_lm_loss", "sentence_order_loss"]
    assert list(found) == ["masked_lm_loss", "next_sentence_loss"]
    assert found["next_sentence_loss"] == expected["sentence_order_loss"]
    assert {v.name for v in order.variables} == {v.name for v in following.variables}


def test_without_a_sentence_task_masked_words_are_all_that_is_learned():
    both, alone, features = make_model("sop"), make_model("none"), make_features()
    head = {"cls/seq_relationship/output_weights:0", "cls/seq_relationship/output_bias:0"}
    pooler = {"bert/pooler/dense/kernel:0", "bert/pooler/dense/bias:0"}
    assert {v.name for v in both.variables} - {v.name for v in alone.variables} == head
    trained = {v.name for v in alone.trained_variables}
    assert {v.name for v in alone.variables} - trained == pooler
    expected, _ = losses_and_gradients(both, features)
    labels = features.pop("next_sentence_labels")
    found, gradients = losses_and_gradients(alone, features)
    assert list(found) == ["masked_lm_loss"] and labels.shape == [3, 1]
    np.testing.assert_allclose(found["masked_lm_loss"], expected["masked_lm_loss"], rtol=1e-6)
    assert all(gradient is not None for gradient in gradients.values())
    outputs = alone(features)
    assert not any("sentence" in name or "next" in name for name in outputs)
    np.testing.assert_allclose(
        outputs["masked_lm_logits"], both(features)["masked_lm_logits"], atol=1e-6
    )
    # What hub modules and fine-tuning use is there.
    assert outputs["pooled_output"].shape == [3, 16]


def test_other_tasks_are_refused():
    with pytest.raises(file_io.InputError, match="sentence_task=order: expected one of sop, nsp, "):
        make_model("order")
    assert list(pretraining_heads.SENTENCE_TASKS) == ["sop", "nsp", "none"]
