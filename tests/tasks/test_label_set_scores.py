"""Scores of several labels per text against scikit-learn, also for labels that never occur."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sklearn_metrics

from albert.tasks import label_set_scores, multi_label

NAMES = ("cheap", "a = b", "sweet")
# Labels of each text, and few different probabilities, so that many are equal.
ROWS = st.lists(st.tuples(*[st.booleans()] * 3, *[st.integers(0, 4)] * 3), min_size=1, max_size=30)


def arrays(rows):
    values = np.array(rows, int)
    probabilities = (values[:, 3:] / 4).astype(np.float32)
    return values[:, :3], (probabilities >= 0.5).astype(np.int32), probabilities


@settings(deadline=None)
@given(ROWS)
@pytest.mark.slow
def test_scores_equal_those_of_scikit_learn(rows):
    labels, predictions, probabilities = arrays(rows)
    found = label_set_scores.measure(NAMES, labels, predictions, probabilities)
    both, near = (labels, predictions), {"rel": 1e-14, "abs": 1e-15}
    scores = ("precision", "recall", "f1")
    by_label = sklearn_metrics.precision_recall_fscore_support(*both, zero_division=0)
    for score, values in zip((*scores, "support"), by_label, strict=True):
        assert [found[f"{score}_{name}"] for name in NAMES] == list(values)
    for average in ("micro", "macro", "weighted", "samples"):
        expected = sklearn_metrics.precision_recall_fscore_support(
            *both, average=average, zero_division=0
        )
        names = scores if average != "samples" else ("f1",)
        values = dict(zip(scores, expected, strict=False))
        for score in names:
            assert found[f"{average}_{score}"] == pytest.approx(values[score], **near), average
    assert found["subset_accuracy"] == sklearn_metrics.accuracy_score(*both)
    assert found["hamming_loss"] == pytest.approx(sklearn_metrics.hamming_loss(*both), **near)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn warns of labels that do not occur
        expected = sklearn_metrics.average_precision_score(labels, probabilities, average=None)
    precisions = [found[f"average_precision_{name}"] for name in NAMES]
    assert precisions == pytest.approx(expected, **near)
    assert found["macro_average_precision"] == pytest.approx(np.mean(expected), **near)
    form = label_set_scores.results_form(NAMES)
    assert {*found} == {*form.added, *form.by_class}


@settings(deadline=None)
@given(ROWS)
@pytest.mark.slow
def test_the_constant_answer(rows):
    labels, _, _ = arrays(rows)
    found = label_set_scores.constant_answer(NAMES, labels)
    sets = [tuple(row) for row in labels.tolist()]
    most = max(sets.count(members) for members in sets)
    answers = [np.tile(row, (len(sets), 1)) for row in {*sets} if sets.count(row) == most]
    scores = [
        sklearn_metrics.f1_score(labels, answer, average="micro", zero_division=0)
        for answer in answers
    ]
    assert any(found["micro_f1"] == pytest.approx(score, abs=1e-15) for score in scores)
    assert found["subset_accuracy"] == most / len(sets)
    for place, name in enumerate(NAMES):
        column = labels[:, place]
        best = max(
            sklearn_metrics.f1_score(column, np.full_like(column, answer), zero_division=0)
            for answer in (0, 1)
        )
        assert found[f"f1_{name}"] == pytest.approx(best, abs=1e-15)
    assert found["macro_f1"] == pytest.approx(np.mean([found[f"f1_{name}"] for name in NAMES]))
    assert "micro_recall" in found and "macro_recall" not in found
    errors = [min(np.mean(column), 1 - np.mean(column)) for column in labels.T]
    assert found["hamming_loss"] == pytest.approx(np.mean(errors), abs=1e-15)


def test_the_loss_of_a_constant_answer():
    labels = np.array([[1, 0, 1], [1, 0, 0], [1, 0, 0], [1, 0, 0]])
    expected = sklearn_metrics.log_loss([1, 0, 0, 0], [0.25] * 4) / 3
    assert label_set_scores.constant_loss(labels) == pytest.approx(expected)


def test_an_evaluator_ignores_rows_that_fill_up_a_batch():
    evaluator = multi_label.Evaluator(NAMES[:2])
    for real in ([1, 1], [1, 0]):
        evaluator.update(
            {
                "label_ids": np.array([[1, 0], [0, 0]]),
                "predictions": np.array([[1, 0], [1, 1]]),
                "probabilities": np.array([[0.9, 0.2], [0.8, 0.6]], np.float32),
                "per_example_loss": np.array([0.5, 2.0], np.float32),
                "is_real_example": np.array(real),
            }
        )
    found = evaluator.result()
    assert found["eval_loss"] == found["loss"] == 1.0
    assert found["micro_f1"] == pytest.approx(2 * 2 / (2 + 4))
    assert [tuple(row) for row in evaluator.classes()] == [("cheap", 2, 3, 2), ("a = b", 0, 1, 0)]
    missing = {*found} - {*evaluator.baseline()}
    assert missing == {"macro_recall", "weighted_recall", "recall_cheap", "recall_a = b"}
