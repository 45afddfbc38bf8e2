"""Statistics of a batch that show whether outputs follow the labels."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from albert.training import learning_signals

LABELS = np.array([0, 2, 1, 0, 0, 1])


def outputs(seed=1, classes=3):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(len(LABELS), classes)).astype(np.float32)
    return {
        "probabilities": tf.nn.softmax(tf.constant(logits)),
        "predictions": tf.argmax(logits, -1, tf.int32),
    }


def of_classes(found, labels=LABELS):
    signs = learning_signals.label_signals(found, {"label_ids": tf.constant(labels, tf.int32)})
    return {name: value.numpy() for name, value in signs.items()}


def test_mean_and_variance_are_those_of_all_orders_of_the_labels():
    found = outputs()
    probabilities = found["probabilities"].numpy()
    sums = [
        probabilities[range(len(LABELS)), list(order)].sum()
        for order in itertools.permutations(LABELS)
    ]
    signs = of_classes(found)
    own = probabilities[range(len(LABELS)), LABELS].sum()
    value, variance, highest, count = signs["association"]
    assert value == pytest.approx(own - np.mean(sums), abs=1e-6)
    assert variance == pytest.approx(np.var(sums), rel=1e-5)
    shares = np.bincount(LABELS) / len(LABELS)
    assert highest == pytest.approx(len(LABELS) * (1 - np.sum(shares**2)), rel=1e-6)
    assert count == len(LABELS)


def test_classes_are_counted():
    found = outputs()
    signs = of_classes(found)
    predictions = found["predictions"].numpy()
    np.testing.assert_array_equal(signs["labels"], [3, 2, 1])
    np.testing.assert_array_equal(signs["predictions"], np.bincount(predictions, minlength=3))
    assert signs["correct"] == np.sum(predictions == LABELS)


def test_the_labels_themselves_have_the_highest_value():
    exact = tf.one_hot(LABELS, 3)
    signs = of_classes({"probabilities": exact, "predictions": tf.argmax(exact, -1, tf.int32)})
    assert signs["association"][0] == pytest.approx(signs["association"][2])


def test_equal_outputs_and_single_examples_tell_nothing():
    same = {"probabilities": tf.fill([6, 3], 1 / 3), "predictions": tf.zeros([6], tf.int32)}
    np.testing.assert_allclose(of_classes(same)["association"][:2], 0, atol=1e-6)
    one = {name: value[:1] for name, value in outputs().items()}
    np.testing.assert_allclose(of_classes(one, LABELS[:1])["association"], [0, 0, 0, 1], atol=1e-6)


def test_sets_of_labels_have_the_mean_and_variance_of_all_their_orders():
    rng = np.random.default_rng(3)
    labels, probabilities = rng.integers(0, 2, (5, 4)), rng.random((5, 4)).astype(np.float32)
    features = {"label_ids": tf.constant(labels, tf.int32)}
    signs = learning_signals.label_set_signals({"probabilities": probabilities}, features)
    value, variance, _, count = signs.pop("association").numpy()
    sums = [
        (probabilities * labels[list(order)]).sum() for order in itertools.permutations(range(5))
    ]
    assert not signs and count == 5
    assert value == pytest.approx((probabilities * labels).sum() - np.mean(sums), abs=1e-5)
    assert variance == pytest.approx(np.var(sums), rel=1e-4)
    exact = {"probabilities": tf.cast(labels, tf.float32)}
    own, _, highest, _ = learning_signals.label_set_signals(exact, features)["association"].numpy()
    assert own == pytest.approx(highest)


def test_numbers_have_their_covariance():
    rng = np.random.default_rng(2)
    labels, predictions = rng.normal(size=(2, 6)).astype(np.float32)
    signs = learning_signals.label_signals(
        {"predictions": tf.constant(predictions)}, {"label_ids": tf.constant(labels)}
    )
    value, variance, highest, _ = signs.pop("association").numpy()
    assert not signs
    assert value == pytest.approx(6 * np.cov(labels, predictions, ddof=0)[0, 1], rel=1e-4)
    assert highest == pytest.approx(6 * np.var(labels), rel=1e-5)
    sums = [labels @ np.array(order) for order in itertools.permutations(predictions)]
    assert variance == pytest.approx(np.var(sums), rel=1e-4)


def test_answers_are_followed_by_where_they_start_and_whether_there_are_any():
    starts = np.array([3, 1, 4, 1])
    impossible = np.array([0, 1, 0, 0])
    features = {
        "start_positions": tf.constant(starts[:, np.newaxis]),
        "is_impossible": tf.constant(impossible),
    }
    logits = 30.0 * tf.one_hot(starts, 6)
    signs = learning_signals.span_signals({"start_logits": logits}, features)["association"].numpy()
    assert signs[0] == pytest.approx(signs[2], rel=1e-5)
    known = {
        "start_log_probs": tf.nn.log_softmax(logits),
        "cls_logits": tf.constant(60.0 * impossible - 30.0, tf.float32),
    }
    both = learning_signals.span_or_none_signals(known, features)["association"].numpy()
    assert both[0] == pytest.approx(both[2], rel=1e-5)
    assert both[2] > signs[2]
    constant = {"start_log_probs": tf.fill([4, 6], -1.8), "cls_logits": tf.zeros([4])}
    nothing = learning_signals.span_or_none_signals(constant, features)["association"].numpy()
    np.testing.assert_allclose(nothing[:2], 0, atol=1e-6)
