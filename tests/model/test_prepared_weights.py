"""Weights that are prepared once for many batches."""

import numpy as np
import pytest
import tensorflow as tf

from albert.model import heads, layers, prepared_weights
from tests.support import builders

NAMES = ("input_ids", "input_mask", "segment_ids")


def features(batch, length):
    rng = np.random.RandomState(length)
    mask = (np.arange(length) < rng.randint(1, length + 1, [batch, 1])).astype(np.int32)
    ids = rng.randint(5, 50, [batch, length]).astype(np.int32)
    return {"input_ids": ids, "input_mask": mask, "segment_ids": np.zeros_like(ids)}


def made(dtype="float32", **changes):
    model = heads.ClassifierModel(builders.tiny_config(**changes), 2, layers.Compute(dtype), 1)
    return model, prepared_weights.CompiledModel(model, model, NAMES)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "changes"),
    [
        ("float32", {}),
        ("bfloat16", {}),
        ("float32", {"num_hidden_layers": 2, "share": "none"}),
        ("bfloat16", {"num_hidden_layers": 2, "layer_scales": True}),
    ],
)
def test_answers_are_those_of_the_model(dtype, changes):
    model, infer = made(dtype, **changes)
    for variable in model.albert.variables:
        if "/layer_norm/" in variable.name:
            variable.assign(variable + np.linspace(-0.3, 0.3, variable.shape[0]))
    infer.refresh()
    for batch in (features(1, 7), features(3, 12)):
        expected = tf.function(model, autograph=False)(batch)
        for name, found in infer(batch).items():
            np.testing.assert_allclose(found, expected[name], rtol=0, atol=1e-6, err_msg=name)


def test_no_call_prepares_weights_of_the_encoder():
    model, infer = made("bfloat16")
    names = {spec.name for spec in infer._compute.get_concrete_function().variables}
    prepared = {v.name for v in model.albert.variables if "embeddings" not in v.name}
    assert prepared and not names & prepared


def test_weights_are_those_of_the_last_refresh():
    model, infer = made()
    batch = features(2, 9)
    before = infer(batch)["logits"]
    for variable in model.albert.variables:
        if "kernel" in variable.name:
            variable.assign(variable * 2)
    np.testing.assert_array_equal(infer(batch)["logits"], before)
    infer.refresh()
    np.testing.assert_allclose(infer(batch)["logits"], model(batch)["logits"], atol=1e-6)
    assert np.abs(infer(batch)["logits"] - before).max() > 1e-3


def test_what_is_traced_after_takes_the_variables_again():
    model, _ = made()
    batch, weights = features(2, 9), model.prepare_weights()
    with pytest.raises(RuntimeError), model.use_weights(weights):
        raise RuntimeError
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(batch)["logits"][:, 0])
    assert all(x is not None for x in tape.gradient(loss, model.trained_variables))
