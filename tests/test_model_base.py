"""What all models share: weights of examples, sums that add up over parts, the output layer."""

import numpy as np
import pytest
import tensorflow as tf

from albert import layers, model_base, modeling
from tests.test_layers import CONFIG, MODELS, make_features


def test_examples_that_fill_up_a_batch_have_no_weight():
    features = {"input_ids": tf.zeros([3, 4], tf.int32)}
    np.testing.assert_array_equal(model_base.real_examples(features), [1, 1, 1])
    features["is_real_example"] = tf.constant([[1], [0], [1]])
    np.testing.assert_array_equal(model_base.real_examples(features), [1, 0, 1])


@pytest.mark.parametrize("name", list(MODELS))
def test_losses_of_parts_add_up_under_common_weights(name):
    model = MODELS[name](modeling.AlbertConfig.from_dict(CONFIG))
    features = make_features(name)
    outputs = model(features, training=True, seed=tf.constant([1, 2]))
    weights = model.loss_weights(features)
    whole = model.losses(outputs, features, weights)
    half = {key: 2.0 * weight for key, weight in weights.items()}
    for key, value in model.losses(outputs, features, half).items():
        assert float(value) == pytest.approx(float(whole[key]) / 2, rel=1e-4)
    assert float(model.loss(outputs, features)) == pytest.approx(float(sum(whole.values())))


def test_the_way_of_computing_is_that_of_the_encoder():
    model = MODELS["classifier"](modeling.AlbertConfig.from_dict(CONFIG))
    assert model.compute == layers.Compute() == model.albert.compute
    model.compute = layers.Compute("bfloat16", recompute=True)
    assert model.albert.compute.dtype == "bfloat16" and model.albert.compute.recompute


def test_the_output_layer_is_stored_transposed():
    config = modeling.AlbertConfig.from_dict(CONFIG)
    layer = model_base.LabelWeights("cls/", 5, config, seed=1)
    assert layer.weights.shape == (5, 12) and layer.weights.name == "cls/output_weights:0"
    layer.bias.assign(tf.range(5.0))
    x = tf.random.stateless_normal([2, 12], [1, 2])
    wanted = x.numpy() @ layer.weights.numpy().T + np.arange(5)
    np.testing.assert_allclose(layer(x), wanted, atol=1e-6)
    assert layer(tf.cast(x, tf.bfloat16)).dtype == tf.float32
