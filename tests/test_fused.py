"""Fused functions against their plain definitions."""

import numpy as np
import pytest
import tensorflow as tf

from albert import fused, layers


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("compiled", [False, True])
def test_numbers_are_rounded_as_a_cast_does(dtype, compiled):
    bits = np.arange(0, 2**32, 32749, np.int64)  # of all exponents and signs
    halfway = (np.arange(2**16, dtype=np.int64) << 16) | 0x8000  # between two bfloat16 each
    patterns = np.concatenate([bits, halfway, halfway - 1, halfway + 1, halfway ^ 0x8000])
    x = tf.constant(patterns.astype(np.uint32).view(np.float32))
    narrowed = tf.function(lambda x: fused._narrowed(x, tf.dtypes.as_dtype(dtype)))
    if compiled:
        narrowed = tf.function(narrowed, jit_compile=True)
        # What is compiled takes the smallest numbers for 0, as the processor then does.
        x = tf.where(tf.abs(x) < np.finfo(np.float32).tiny, 0.0, x)
    found, wanted = (tf.cast(y, tf.float32).numpy() for y in (narrowed(x), tf.cast(x, dtype)))
    np.testing.assert_array_equal(found, wanted)
    known = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(found[known]), np.signbit(wanted[known]))


def outputs_and_gradients(function, inputs, upstream):
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        y = function(*inputs)
    return y, *tape.gradient(y, inputs, upstream)


def plain_gelu(x, bias):
    return tf.nn.gelu(x + bias, approximate=True)


def plain_norm(x, bias, residual, gamma, beta):
    return layers.normalize(x + bias + residual, gamma, beta)


@pytest.mark.parametrize("width", [8, 256])  # narrow ones are not compiled
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(
    ("function", "plain", "shapes"),
    [
        (fused.add_bias, lambda x, bias: x + bias, "mv"),
        (fused.gelu, plain_gelu, "mv"),
        (fused.residual_norm, plain_norm, "mvmVV"),
        (layers._Plain.add_bias, lambda x, bias: x + bias, "mv"),
        (layers._Plain.gelu, plain_gelu, "mv"),
        (layers._Plain.residual_norm, plain_norm, "mvmVV"),
    ],
)
def test_functions_and_their_gradients_equal_the_plain_ones(function, plain, shapes, dtype, width):
    rng = np.random.default_rng(0)
    draw = lambda kind: rng.normal(size=(5, width) if kind == "m" else width)  # noqa: E731
    # A capital stands for a vector that is float32 in any type.
    inputs = [tf.constant(draw(x), tf.float32 if x.isupper() else dtype) for x in shapes]
    upstream = tf.constant(draw("m"), dtype)
    found = outputs_and_gradients(function, inputs, upstream)
    wide = [tf.cast(x, tf.float32) for x in inputs]
    wanted = outputs_and_gradients(plain, wide, tf.cast(upstream, tf.float32))
    # XLA's tanh is less exact in TensorFlow 2.18.
    tolerance = {"float32": 4e-6, "float16": 4e-3, "bfloat16": 3e-2}[dtype]
    for ours, exact, kind in zip(found, wanted, "m" + shapes, strict=True):
        assert ours.dtype == (tf.float32 if kind.isupper() else dtype)
        np.testing.assert_allclose(
            tf.cast(ours, tf.float32), exact, rtol=10 * tolerance, atol=tolerance
        )


def test_the_gradient_of_gelu_is_its_slope():
    x = np.linspace(-4, 4, 33)
    step = 1e-3
    gelu = lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))  # noqa: E731
    slope = (gelu(x + step) - gelu(x - step)) / (2 * step)
    inputs = [tf.constant(x[:, np.newaxis] - 0.5, tf.float32), tf.constant([0.5])]
    y, by_x, by_bias = outputs_and_gradients(fused.gelu, inputs, None)
    np.testing.assert_allclose(y[:, 0], gelu(x), atol=1e-6)
    np.testing.assert_allclose(by_x[:, 0], slope, atol=1e-5)
    np.testing.assert_allclose(by_bias, [slope.sum()], atol=1e-4)


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


def test_sizes_are_rounded_up_to_few():
    rounded = [int(fused.round_up(tf.constant(size))) for size in range(1, 1025)]
    assert rounded[:128] == [-(-size // 8) * 8 for size in range(1, 129)]
    for size, found in enumerate(rounded, 1):
        assert size <= found < size + max(8, size / 16 + 1)
    assert len(set(rounded[512:])) == 16 and rounded[511] == 512 and rounded[1023] == 1024


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("length", [1, 4, 13, 24, 200])  # the last is compiled
def test_masked_softmax_and_its_gradient_equal_the_plain_ones(masked, length):
    rng = np.random.default_rng(0)
    shape = (2, 3, length, length)
    scores, upstream = (tf.constant(rng.normal(size=shape), tf.float32) for _ in range(2))
    bias = tf.constant(rng.choice([0, -10000], (2, 1, 1, length)), tf.float32) if masked else None
    plain = lambda scores, bias: tf.nn.softmax(scores if bias is None else scores + bias)  # noqa: E731
    found = []
    for function in (fused.masked_softmax, plain):
        with tf.GradientTape() as tape:
            tape.watch(scores)
            y = function(scores, bias)
        found.append((y, tape.gradient(y, scores, upstream)))
    for ours, wanted in zip(*found, strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=1e-5, atol=1e-7)
    assert fused.masked_softmax(tf.cast(scores, tf.bfloat16), bias).dtype == tf.bfloat16


@pytest.mark.parametrize("shape", [(3,), (4, 8), (512, 512)])
@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_adam_update_follows_its_formula(shape, decay):
    rng = np.random.default_rng(0)
    variable, gradient, mean = (rng.normal(size=shape) for _ in range(3))
    square = rng.uniform(size=shape)
    tensors = [tf.constant(x, tf.float32) for x in (variable, gradient, mean, square, 0.5)]
    found = fused.adam_update(*tensors, beta_1=0.9, beta_2=0.99, epsilon=1e-6, decay=decay)
    mean = 0.9 * mean + 0.1 * gradient / 2
    square = 0.99 * square + 0.01 * (gradient / 2) ** 2
    wanted = (mean, square, mean / (np.sqrt(square) + 1e-6) + decay * variable)
    for ours, value in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, value, rtol=1e-5, atol=1e-6)


def test_what_is_kept_apart_has_all_gradients():
    x = tf.Variable(3.0)
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            y = fused.apart(fused.apart(x) ** 3)
        first = inner.gradient(y, x)
    assert float(first) == 27 and float(outer.gradient(first, x)) == 18
