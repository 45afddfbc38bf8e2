"""Scores of classes against scikit-learn, also for classes that are absent and equal scores."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sklearn_metrics

from albert.io import tables
from albert.tasks import class_scores, custom, glue, metrics
from albert.training import results

NAMES = ("ham", "a = b", "spam")
PAIRS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=40)
# Few different probabilities, so that many are equal.
RANKED = st.lists(st.tuples(st.booleans(), st.integers(0, 6)), min_size=1, max_size=40)


@pytest.mark.slow
@settings(deadline=None)
@given(PAIRS)
def test_scores_equal_those_of_scikit_learn(pairs):
    labels, predictions = np.array(pairs).T
    found = class_scores.measure(results.count_classes(NAMES, labels, predictions))
    rows = sklearn_metrics.precision_recall_fscore_support(
        labels, predictions, labels=[0, 1, 2], zero_division=0
    )
    for score, values in zip(("precision", "recall", "f1", "support"), rows, strict=True):
        assert [found[f"{score}_{name}"] for name in NAMES] == list(values)
    for average in ("macro", "weighted"):
        expected = sklearn_metrics.precision_recall_fscore_support(
            labels, predictions, average=average, zero_division=0
        )[:3]
        scores = [found[f"{average}_{score}"] for score in ("precision", "recall", "f1")]
        assert scores == pytest.approx(expected, rel=1e-15)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn warns of predicted classes without labels
        expected = sklearn_metrics.balanced_accuracy_score(labels, predictions)
    assert found["balanced_accuracy"] == pytest.approx(expected, rel=1e-15)
    names = {*class_scores.names_by_class(NAMES), *class_scores.average_names(NAMES)}
    assert {*found} == names | {*class_scores.names_of_support(NAMES)}


@settings(deadline=None)
@given(RANKED)
def test_rankings_equal_those_of_scikit_learn(pairs):
    labels, probabilities = np.array(pairs, np.float32).T / np.array([[1], [6]], np.float32)
    found = class_scores.rank(labels == 1, probabilities)
    if len({*labels}) == 1:
        assert all(map(math.isnan, found.values()))
        return
    assert found["roc_auc"] == pytest.approx(
        sklearn_metrics.roc_auc_score(labels, probabilities), rel=1e-14
    )
    assert found["average_precision"] == pytest.approx(
        sklearn_metrics.average_precision_score(labels, probabilities), rel=1e-14
    )


@settings(deadline=None)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=30), st.sampled_from([2, 3]))
def test_the_best_constant_answer_is_the_best_of_all(labels, count):
    labels, names = np.array(labels) % count, NAMES[:count]
    found = class_scores.constant_answer(results.count_classes(names, labels, labels * 0))
    answers = []
    for answer in {*labels.tolist()}:
        predictions = np.full_like(labels, answer)
        scores = class_scores.measure(results.count_classes(names, labels, predictions))
        if count == 2:
            scores |= class_scores.rank(labels == 1, np.full(len(labels), 0.3))
        answers.append(scores)
    # The recall of a class has none: the answer with this class finds all of it.
    names = [name for name in answers[0] if not name.startswith("recall_")]
    best = {name: max(row[name] for row in answers) for name in names}
    assert found == pytest.approx(best, nan_ok=True)


def test_an_evaluator_adds_the_scores_of_classes():
    evaluator = metrics.Evaluator((("acc", metrics.accuracy),), 1.0, NAMES[:2], True)
    probabilities = np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.5, 0.5]])
    rows = {
        "label_ids": np.array([0, 1, 1, 0]), "predictions": np.array([0, 0, 1, 1]),
        "probabilities": probabilities, "per_example_loss": np.ones(4),
        "is_real_example": np.array([1, 1, 1, 0]),
    }  # fmt: skip
    evaluator.update(rows)
    found = evaluator.result()
    assert found["roc_auc"] == 1.0 and found["support_ham"] == 1
    assert found["f1_a = b"] == found["macro_f1"] == pytest.approx(2 / 3)
    assert {*found} - {*evaluator.baseline()} == {f"recall_{name}" for name in NAMES[:2]}


@pytest.mark.parametrize(
    "task",
    [
        custom.CustomTask({}, tables.Columns(), ("bad", "good")),
        custom.CustomTask({}, tables.Columns(), ("negative", "positive")),
        glue.get_task("sst-2"),
        glue.get_task("rte"),
    ],
)
def test_the_order_of_two_labels_changes_no_score(task):
    """That of a model from elsewhere may be another; F1 and rankings are of the same label."""
    labels, predictions = np.array([0, 1, 1, 0, 0]), np.array([0, 0, 1, 0, 1])
    second = np.array([0.1, 0.35, 0.9, 0.3, 0.6])
    found = []
    for order in (slice(None), slice(None, None, -1)):
        ordered = task.in_order(task.labels[order])
        flip = ordered.labels != task.labels
        evaluator = metrics.Evaluator(ordered.scores, 1.0, ordered.labels, True, ordered.positive)
        rows = {
            "label_ids": labels ^ flip, "predictions": predictions ^ flip,
            "probabilities": np.stack([1 - second, second], axis=1)[:, order],
            "per_example_loss": np.ones(5), "is_real_example": np.ones(5),
        }  # fmt: skip
        evaluator.update(rows)
        found.append((evaluator.result(), evaluator.baseline()))
    assert found[0] == found[1]
    expected = sklearn_metrics.average_precision_score(labels, second)
    assert found[0][0]["average_precision"] == pytest.approx(expected)
