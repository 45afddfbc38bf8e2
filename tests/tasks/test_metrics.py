"""Metrics against scikit-learn and scipy, worked examples and degenerate input."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics as sklearn_metrics

from albert.tasks import metrics
from albert.training import results

ALL = [
    metrics.accuracy,
    metrics.matthews_correlation,
    metrics.f1,
    metrics.pearson,
    metrics.spearman,
    metrics.mean_squared_error,
]
CLASSES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=60)
NUMBERS = st.lists(st.tuples(st.integers(0, 50), st.integers(-90, 90)), min_size=2, max_size=60)


@settings(deadline=None)
@given(CLASSES)
def test_classes_against_scikit_learn(pairs):
    labels, predictions = np.array(pairs).T
    assert metrics.accuracy(labels, predictions) == pytest.approx(
        sklearn_metrics.accuracy_score(labels, predictions)
    )
    if 1 in labels:
        assert metrics.f1(labels, predictions) == pytest.approx(
            sklearn_metrics.f1_score(labels == 1, predictions == 1, zero_division=0)
        )
    if len(set(labels)) == 1:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn warns of a single class
        expected = sklearn_metrics.matthews_corrcoef(labels, predictions)
    assert metrics.matthews_correlation(labels, predictions) == pytest.approx(expected, abs=1e-12)


@settings(deadline=None)
@given(NUMBERS)
def test_numbers_against_scipy(pairs):
    labels, predictions = np.array(pairs, np.float32).T / 10
    assert metrics.mean_squared_error(labels, predictions) == pytest.approx(
        sklearn_metrics.mean_squared_error(labels.astype(float), predictions.astype(float))
    )
    if len(set(labels)) > 1 and len(set(predictions)) > 1:
        assert metrics.pearson(labels, predictions) == pytest.approx(
            stats.pearsonr(labels.astype(float), predictions.astype(float))[0], abs=1e-9
        )
        assert metrics.spearman(labels, predictions) == pytest.approx(
            stats.spearmanr(labels, predictions)[0], abs=1e-9
        )


def test_worked_examples():
    labels, predictions = [1, 1, 1, 0, 0], [1, 0, 1, 0, 1]  # tp 2, fp 1, fn 1, tn 1
    assert metrics.accuracy(labels, predictions) == 0.6
    assert metrics.f1(labels, predictions) == pytest.approx(2 / 3)
    assert metrics.f1(labels, predictions, positive=0) == pytest.approx(0.5)
    assert metrics.matthews_correlation(labels, predictions) == pytest.approx(1 / 6)
    assert metrics.matthews_correlation([0, 1], [1, 0]) == -1
    assert metrics.pearson([0, 1, 2], [1, 3, 5]) == pytest.approx(1)
    assert metrics.spearman([1, 2, 3, 4], [1, 10, 100, -5]) == pytest.approx(-0.2)
    assert metrics.mean_squared_error([0, 5], [1, 2]) == 5


@pytest.mark.parametrize("constant", [0.0, 0.1, 1e9])
def test_constant_predictions_give_zero_and_constant_labels_leave_scores_undefined(constant):
    labels = [0.0, 2.5, 5.0, 1.0]
    predictions = np.full(4, constant, np.float32)
    for correlation in (metrics.pearson, metrics.spearman):
        assert correlation(labels, predictions) == 0.0
        assert math.isnan(correlation(predictions, labels))
    assert metrics.matthews_correlation([0, 1, 1, 0], [1, 1, 1, 1]) == 0.0
    for same in ([1, 1], [0, 1]):
        assert math.isnan(metrics.matthews_correlation([1, 1], same))
        assert math.isnan(metrics.f1([0, 0], same))
    assert metrics.f1([1, 0], [0, 1]) == 0.0


def test_one_example():
    found = [metric([1], [1]) for metric in ALL]
    np.testing.assert_equal(found, [1.0, math.nan, 1.0, math.nan, math.nan, 0.0])


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_pearson_of_extreme_numbers(scale):
    assert metrics.pearson([scale, 2 * scale, 4 * scale], [1, 2, 4]) == pytest.approx(1)


def test_large_counts_do_not_overflow():
    labels = np.tile(np.array([0, 1], np.int32), 200_000)
    predictions = np.where(np.arange(400_000) % 4 == 0, 1 - labels, labels)
    assert metrics.matthews_correlation(labels, predictions) == pytest.approx(
        sklearn_metrics.matthews_corrcoef(labels, predictions)
    )


@pytest.mark.parametrize("metric", ALL)
def test_results_are_python_floats(metric):
    assert type(metric(np.array([1, 0, 1]), np.array([1, 1, 0], np.int32))) is float


@pytest.mark.parametrize("metric", ALL)
@pytest.mark.parametrize("predictions", [[1, 0], [[1], [0], [1]], []])
def test_wrong_shapes(metric, predictions):
    with pytest.raises(ValueError, match="expected as many predictions as labels"):
        metric([1, 0, 1] if predictions else [], predictions)


def test_classes_that_are_never_predicted_are_named():
    evaluator = metrics.Evaluator((("accuracy", metrics.accuracy),), labels=("a", "b", "c", "d"))
    rows = {
        "label_ids": np.array([0, 1, 1, 0, 1, 3]), "predictions": np.array([0, 0, 0, 3, 0, 1]),
        "per_example_loss": np.zeros(6), "is_real_example": np.array([1, 1, 1, 1, 1, 0]),
    }  # fmt: skip
    evaluator.update(rows)
    found = evaluator.classes()
    assert found == (("a", 2, 4, 1), ("b", 3, 0, 0), ("c", 0, 0, 0), ("d", 0, 1, 0))
    assert results.remark_on_classes(found) == "never predicted: b (0 of 3)"
    assert not results.remark_on_classes(found[:1]) and not results.remark_on_classes(found[2:])
    many = [results.ClassCount(str(i), 1, 0, 0) for i in range(10)]
    assert results.remark_on_classes(many).endswith("7 (0 of 1) and 2 more")
    assert not metrics.Evaluator(()).classes()


def test_the_best_constant_answer():
    def baseline(labels, *scores):
        evaluator = metrics.Evaluator(scores)
        rows = {"label_ids": labels, "predictions": labels, "per_example_loss": labels}
        for part in (slice(0, 2), slice(2, None)):
            real = np.arange(len(labels))[part] < len(labels) - 1  # the last one is padding
            evaluator.update({k: v[part] for k, v in rows.items()} | {"is_real_example": real})
        return evaluator.baseline()

    names = (("accuracy", metrics.accuracy), ("f1", metrics.f1))
    names += (("corr", metrics.matthews_correlation),)
    found = baseline(np.array([0, 1, 0, 0, 1]), *names)
    assert found["accuracy"] == 0.75 and found["corr"] == 0.0
    assert found["f1"] == pytest.approx(0.4)  # of naming the rare class
    shares = np.array([0.75, 0.25])
    assert found["loss"] == found["eval_loss"] == pytest.approx(-np.sum(shares * np.log(shares)))
    names = (("pearson", metrics.pearson), ("MSE", metrics.mean_squared_error))
    found = baseline(np.array([1, 2, 3, 6, 9], np.float32), *names)
    assert found["pearson"] == 0.0 and found["MSE"] == found["loss"] == pytest.approx(3.5)
