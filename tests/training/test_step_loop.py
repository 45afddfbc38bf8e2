"""The compiled loop over steps: sums of their results, and its two early ends."""

import numpy as np
import tensorflow as tf

from albert.training import step_loop, train_step


def make_loop(losses):
    """A loop whose steps have these losses, each of weight 2, and a learning signal."""
    dataset = tf.data.Dataset.from_tensor_slices(tf.constant(losses, tf.float32))
    strategy = tf.distribute.get_strategy()

    def step(loss):
        pair = tf.stack([2.0 * loss, 2.0])
        norm = tf.constant([1.0, 1.0])
        return {"loss": pair, "gradient_norm": norm, f"{train_step.SIGNALS}seen": tf.ones([3])}

    return step_loop.StepLoop(strategy, step, iter(dataset))


def test_results_of_steps_are_added_up():
    loop = make_loop([1.0, 2.0, 4.0])
    totals = loop(2)
    assert totals.steps == 2 and totals.work is None
    np.testing.assert_array_equal(totals.sums["loss"], [6.0, 4.0])
    np.testing.assert_array_equal(totals.signals["seen"], [2.0, 2.0, 2.0])
    assert loop(1).sums["loss"][0] == 8.0


def test_batches_of_all_lengths_share_a_trace():
    lengths, traced = [8, 16, 24, 8, 40], []
    dataset = tf.data.Dataset.from_tensor_slices(lengths).map(lambda length: tf.ones([length]))

    def step(batch):
        traced.append(batch.shape.as_list())
        pair = tf.stack([tf.reduce_sum(batch), 1.0])
        return {"loss": pair, "gradient_norm": pair}

    loop = step_loop.StepLoop(tf.distribute.get_strategy(), step, iter(dataset))
    assert loop(5).sums["loss"][0] == sum(lengths)
    assert traced == [[None]]


def test_a_loss_that_is_not_finite_ends_the_loop():
    assert make_loop([1.0, np.inf, 4.0])(3).steps == 2


def test_the_loop_ends_after_the_present_step_on_request():
    loop = make_loop([1.0, 2.0, 4.0])
    loop.stop.assign(True)
    assert loop.can_stop and loop(3).steps == 1
