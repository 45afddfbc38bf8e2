"""Fused functions against their plain definitions."""

import numpy as np
import pytest
import tensorflow as tf

from albert import fused


@pytest.mark.parametrize("shape", [(3,), (5, 7), (2, 3, 4)])
def test_gelu_and_its_gradient_equal_the_plain_one(shape):
    rng = np.random.default_rng(0)
    x = tf.constant(rng.normal(scale=3, size=shape), tf.float32)
    upstream = tf.constant(rng.normal(size=shape), tf.float32)
    found = []
    for function in (fused.gelu, lambda x: tf.nn.gelu(x, approximate=True)):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
        found.append((y, tape.gradient(y, x, upstream)))
    for ours, plain in zip(*found, strict=True):
        np.testing.assert_allclose(ours, plain, rtol=1e-5, atol=2e-6)


def test_the_gradient_of_gelu_is_its_slope():
    x = np.linspace(-4, 4, 33)
    step = 1e-3
    gelu = lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))  # noqa: E731
    slope = (gelu(x + step) - gelu(x - step)) / (2 * step)
    with tf.GradientTape() as tape:
        inputs = tf.constant(x, tf.float32)
        tape.watch(inputs)
        y = fused.gelu(inputs)
    np.testing.assert_allclose(y, gelu(x), atol=1e-6)
    np.testing.assert_allclose(tape.gradient(y, inputs), slope, atol=1e-5)


@pytest.mark.parametrize("classes", [2, 1000])
def test_cross_entropy_and_its_gradient_equal_the_plain_one(classes):
    rng = np.random.default_rng(0)
    logits = tf.constant(rng.normal(scale=5, size=(6, classes)), tf.float32)
    labels = tf.constant(rng.integers(classes, size=6), tf.int32)
    upstream = tf.constant(rng.normal(size=6), tf.float32)
    found = []
    for function in (fused.cross_entropy, tf.nn.sparse_softmax_cross_entropy_with_logits):
        with tf.GradientTape() as tape:
            tape.watch(logits)
            losses = function(labels, logits)
        found.append((losses, tape.gradient(losses, logits, upstream)))
    for ours, plain in zip(*found, strict=True):
        np.testing.assert_allclose(ours, plain, rtol=1e-5, atol=2e-6)
