"""LAMB's trust ratio; tests/test_optimization.py compares whole runs with the reference."""

import numpy as np
import pytest
import tensorflow as tf

from albert.training import lamb, optimizers


def first_step(value, gradient, name="kernel", **settings):
    """The weight after one step at rate 0.1; the plain update is 2 * gradient / (2 * |gradient|).

    With beta_1 = 0.5, beta_2 = 0.75 and no epsilon the update has the gradient's sign and size 1.
    """
    variable = tf.Variable(value, name=name, dtype=tf.float32)
    optimizer = lamb.LAMB(
        0.1, **{"beta_1": 0.5, "beta_2": 0.75, "epsilon": 0.0, "weight_decay_rate": 0.0, **settings}
    )
    optimizer.apply_gradients([(tf.constant(gradient, tf.float32), variable)])
    return variable.numpy()


def test_rate_is_scaled_by_the_norm_of_the_weights_over_that_of_the_update():
    # |w| = 5, |update| = sqrt(2)
    moved = np.array([3.0, 4.0]) - first_step([3.0, 4.0], [0.2, -0.7])
    np.testing.assert_allclose(moved, 0.1 * 5 / 2**0.5 * np.array([1, -1]), rtol=1e-5)


def test_length_of_the_move_does_not_depend_on_the_gradient():
    lengths = [
        np.linalg.norm(first_step([3.0, 4.0], gradient) - [3.0, 4.0])
        for gradient in ([1e-3, 2e-3], [5.0, -1.0], [100.0, 0.1])
    ]
    np.testing.assert_allclose(lengths, 0.1 * 5, rtol=1e-4)


def test_ratio_is_one_for_weights_of_zero():
    np.testing.assert_allclose(first_step([0.0, 0.0], [0.2, -0.7]), [-0.1, 0.1], rtol=1e-5)


def test_update_of_zero_moves_nothing():
    moved = first_step([3.0, 4.0], [0.0, 0.0], epsilon=1e-6)
    np.testing.assert_array_equal(moved, [3.0, 4.0])


@pytest.mark.parametrize("name", ["dense/bias", "x/LayerNorm/gamma", "cls/output_bias"])
def test_variables_that_do_not_decay_have_no_ratio(name):
    moved = first_step([3.0, 4.0], [0.2, -0.7], name=name, weight_decay_rate=0.5)
    np.testing.assert_allclose(moved, [2.9, 4.1], rtol=1e-5)


def test_decay_is_part_of_the_update_that_the_ratio_measures():
    # update = [1, 1] + 0.5 * [3, 4] = [2.5, 3]
    moved = np.array([3.0, 4.0]) - first_step([3.0, 4.0], [0.2, 0.7], weight_decay_rate=0.5)
    update = np.array([2.5, 3.0])
    np.testing.assert_allclose(moved, 0.1 * 5 / np.linalg.norm(update) * update, rtol=1e-5)


@pytest.mark.parametrize(
    "lists, decays, scaled",
    [
        ({}, False, False),
        ({"exclude_from_layer_adaptation": ()}, False, True),
        ({"exclude_from_weight_decay": ()}, True, True),
        (
            {"exclude_from_weight_decay": (), "exclude_from_layer_adaptation": ("bias",)},
            True,
            False,
        ),
    ],
)
def test_decay_and_ratio_can_have_lists_of_their_own(lists, decays, scaled):
    update = np.array([1.0, 1.0]) + (0.5 * np.array([3.0, 4.0]) if decays else 0)
    ratio = 5 / np.linalg.norm(update) if scaled else 1.0
    moved = first_step([3.0, 4.0], [0.2, 0.7], name="bias", weight_decay_rate=0.5, **lists)
    np.testing.assert_allclose(np.array([3.0, 4.0]) - moved, 0.1 * ratio * update, rtol=1e-5)


def test_is_what_create_optimizer_makes():
    optimizer = optimizers.create_optimizer(0.1, 10, 0, optimizer="lamb", beta_2=0.9)
    assert type(optimizer) is lamb.LAMB


@pytest.mark.slow
def test_trust_ratios_are_reported():
    optimizer = lamb.LAMB(
        0.1, beta_1=0.5, beta_2=0.75, epsilon=0.0, weight_decay_rate=0.0, clip_norm=None
    )
    sizes = {"a": 5.0, "b": 1.0, "zero": 0.0, "c": 3.0, "bias": 100.0}
    variables = [tf.Variable([size], name=name) for name, size in sizes.items()]

    @tf.function
    def step(gradient):
        optimizer.apply_gradients([(gradient, variable) for variable in variables])
        return optimizer.report()

    # Each update is 1 long, so ratios are sizes: 1 for the weight of zero, none for the bias.
    found = {name: float(value) for name, value in step(tf.constant([2.0])).items()}
    assert found == pytest.approx(
        {"trust_ratio_lowest": 1.0, "trust_ratio_median": 2.0, "trust_ratio_highest": 5.0}
    )


def test_without_a_ratio_there_is_nothing_to_report():
    optimizer = lamb.LAMB(0.1)
    variable = tf.Variable([1.0], name="bias")
    optimizer.apply_gradients([(tf.constant([1.0]), variable)])
    assert optimizer.report() == {}


def test_ratios_of_an_update_that_is_left_out_are_numbers():
    optimizer = lamb.LAMB(0.1)
    optimizer.scale_loss()
    variable = tf.Variable([1.0], name="kernel")
    optimizer.apply_gradients([(tf.constant([float("inf")]), variable)])
    report = optimizer.report()
    assert report["loss_scale"] == 2.0**14
    assert report["trust_ratio_lowest"] == report["trust_ratio_highest"] == 1
