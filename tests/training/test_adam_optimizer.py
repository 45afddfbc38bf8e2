"""Adam against its paper's algorithm in float64, also resumed and with skipped updates."""

import numpy as np
import pytest
import tensorflow as tf

from albert.io import file_io
from albert.model import checkpoints
from albert.training import adam, learning_rates, optimizers

SHAPES = {"dense/kernel": (4, 3), "dense/bias": (3,), "wide": (520, 520)}


class Weights(tf.Module):
    def __init__(self):
        super().__init__()
        rng = np.random.default_rng(0)
        self.weights = [
            tf.Variable(rng.normal(size=shape), dtype=tf.float32, name=name)
            for name, shape in SHAPES.items()
        ]


def gradients_of(step):
    rng = np.random.default_rng(step + 1)
    return [rng.normal(size=shape) * 10.0 ** -(step % 4) for shape in SHAPES.values()]


def make(model, optimizer="adam", **settings):
    settings = {"clip_norm": None, **settings}
    optimizer = optimizers.create_optimizer(0.1, 20, 5, optimizer=optimizer, **settings)
    optimizer.build(model.variables)
    return optimizer


def train(model, optimizer, first, last):
    @tf.function
    def apply(gradients):
        optimizer.apply_gradients(zip(gradients, model.weights, strict=True))

    for step in range(first, last):
        apply([tf.constant(gradient, tf.float32) for gradient in gradients_of(step)])


def algorithm_1(weights, last, beta_1=0.9, beta_2=0.999, epsilon=1e-8):
    """Weights after some steps: the paper's algorithm, line by line."""
    m, v = [0.0] * len(weights), [0.0] * len(weights)
    for t in range(1, last + 1):
        rate = float(learning_rates.learning_rate_at(t - 1, 0.1, 20, 5))
        for i, g in enumerate(gradients_of(t - 1)):
            m[i] = beta_1 * m[i] + (1 - beta_1) * g
            v[i] = beta_2 * v[i] + (1 - beta_2) * g**2
            m_hat, v_hat = m[i] / (1 - beta_1**t), v[i] / (1 - beta_2**t)
            weights[i] = weights[i] - rate * m_hat / (np.sqrt(v_hat) + epsilon)
    return weights


def assert_equal_to_the_algorithm(model, last, **constants):
    expected = algorithm_1(
        [w.numpy().astype(np.float64) for w in Weights().weights], last, **constants
    )
    for variable, value in zip(model.weights, expected, strict=True):
        np.testing.assert_allclose(variable, value, rtol=0, atol=3e-6, err_msg=variable.name)


@pytest.mark.parametrize(
    "constants", [{}, {"beta_1": 0.0, "beta_2": 0.5, "epsilon": 0.01}, {"beta_2": 0.98}]
)
def test_steps_equal_the_algorithm_of_the_paper(constants):
    model = Weights()
    train(model, make(model, **constants), 0, 8)
    assert_equal_to_the_algorithm(model, 8, **constants)


@pytest.mark.slow
def test_corrected_adamw_without_decay_is_adam():
    """With decay the weights shrink in addition, by the rate times the decay."""
    adam, adamw, decayed = Weights(), Weights(), Weights()
    corrected = {"optimizer": "adamw", "bias_correction": True, "epsilon": 1e-8}
    train(adam, make(adam), 0, 6)
    train(adamw, make(adamw, weight_decay_rate=0.0, **corrected), 0, 6)
    for one, other in zip(adam.weights, adamw.weights, strict=True):
        np.testing.assert_array_equal(one, other)
    start = [weight.numpy() for weight in decayed.weights]
    train(decayed, make(decayed, weight_decay_rate=0.5, **corrected), 0, 2)
    train(once := Weights(), make(once), 0, 2)
    rate = float(learning_rates.learning_rate_at(1, 0.1, 20, 5))  # 0 at the first step
    for one, other, first in zip(once.weights, decayed.weights, start, strict=True):
        shrunk = 0.0 if "bias" in one.name else rate * 0.5 * first
        np.testing.assert_allclose(other, one - shrunk, rtol=1e-5, atol=1e-6)


def test_the_first_step_is_as_long_as_the_rate():
    variable = tf.Variable([1.0, 1.0], name="a")
    adam.Adam(0.1).apply_gradients([(tf.constant([0.3, -0.002]), variable)])
    np.testing.assert_allclose(variable, [0.9, 1.1], rtol=1e-5)


def test_a_resumed_run_goes_on_as_the_unbroken_one(tmp_path):
    model = Weights()
    optimizer = make(model)
    train(model, optimizer, 0, 3)
    prefix = str(tmp_path / "model.ckpt-3")
    checkpoints.save(prefix, model, optimizer)
    other = Weights()
    resumed = make(other)
    checkpoints.restore_training_state(prefix, other, resumed)
    train(other, resumed, 3, 8)
    assert_equal_to_the_algorithm(other, 8)
    train(model, optimizer, 3, 8)
    for one, two in zip(model.weights, other.weights, strict=True):
        np.testing.assert_array_equal(one, two)
    names = {name for name, _ in tf.train.list_variables(prefix)}
    slots = {f"{name}/{slot}" for name in SHAPES for slot in ("adam_m", "adam_v")}
    assert names == {*SHAPES, *slots, "global_step"}


def test_slots_are_those_of_the_other_optimizers(tmp_path):
    """They hold the same means, so another optimizer may continue from them."""
    model = Weights()
    optimizer = optimizers.create_optimizer(0.1, 20, 5, optimizer="lamb", clip_norm=None)
    optimizer.build(model.variables)
    train(model, optimizer, 0, 3)
    prefix = str(tmp_path / "model.ckpt-3")
    checkpoints.save(prefix, model, optimizer)
    resumed = make(model)
    checkpoints.restore_training_state(prefix, model, resumed)
    mean = sum(0.1 * 0.9 ** (2 - step) * gradients_of(step)[1] for step in range(3))
    found = resumed.variables_by_name()["dense/bias/adam_m"]
    np.testing.assert_allclose(found, mean, atol=1e-6)


def test_updates_that_are_left_out_do_not_count(tmp_path):
    model = Weights()
    optimizer = adam.Adam(0.1, clip_norm=None)
    optimizer.build(model.variables)
    optimizer.scale_loss()
    scale = optimizer.gradient_scale()
    gradients = [tf.constant(gradient, tf.float32) for gradient in gradients_of(0)]

    def apply(gradients):
        optimizer.apply_gradients(zip(gradients, model.weights, strict=True))

    before = [variable.numpy() for variable in model.weights]
    for _ in range(3):
        apply([gradient * np.inf for gradient in gradients])
    assert optimizer.global_step.numpy() == 3 and optimizer.updates_made().numpy() == 0
    apply([gradient * scale for gradient in gradients])
    assert optimizer.updates_made().numpy() == 1
    for variable, start, gradient in zip(model.weights, before, gradients, strict=True):
        gradient = gradient.numpy()
        first = start - 0.1 * gradient / (np.abs(gradient) + 1e-8)
        np.testing.assert_allclose(variable, first, rtol=0, atol=1e-6)
    # A resumed run counts on.
    prefix = str(tmp_path / "model.ckpt-4")
    checkpoints.save(prefix, model, optimizer)
    resumed = make(model)
    resumed.scale_loss()
    checkpoints.restore_training_state(prefix, model, resumed)
    assert resumed.updates_made().numpy() == 1


def test_there_is_no_decay():
    variable = tf.Variable([2.0], name="kernel")
    adam.Adam(0.5).apply_gradients([(tf.zeros([1]), variable)])
    assert variable.numpy() == 2.0
    with pytest.raises(file_io.InputError, match="=adam does not accept `weight_decay_rate`; it"):
        optimizers.create_optimizer(0.1, 10, 0, optimizer="adam", weight_decay_rate=0.1)
