"""Entities and their scores, against what the package seqeval 1.2.2 gave for the same labels."""

import json
import math

import pytest

from albert.tasks import entities


def test_scores_are_those_of_seqeval(testdata):
    """Random labels with the letters of IOB1, IOB2 and IOBES, well formed or not."""
    cases = json.loads((testdata / "seqeval.json").read_text())
    assert len(cases) == 40
    for case in cases:
        pair = [[row.split() for row in case[name]] for name in ("labels", "predictions")]
        scores, expected = entities.scores(*pair), case["scores"]
        if not any(map(entities.find, pair[0])):  # seqeval says 0, with a warning
            expected |= dict.fromkeys(entities.SCORES, math.nan)
        assert scores == pytest.approx(expected, abs=1e-12, nan_ok=True)
        assert entities.accuracy(*pair) == pytest.approx(case["accuracy"], abs=1e-12)


@pytest.mark.parametrize(
    "labels",
    [
        "I-PER I-PER O I-LOC B-LOC O I-ORG",  # IOB1: B only where another of its type ends
        "B-PER I-PER O B-LOC B-LOC O B-ORG",  # IOB2
        "B-PER E-PER O S-LOC S-LOC O S-ORG",  # IOBES
        "B-PER L-PER O U-LOC U-LOC O U-ORG",  # BILOU
    ],
)
def test_one_rule_reads_every_scheme(labels):
    assert entities.find(labels.split()) == [
        ("PER", 0, 2), ("LOC", 3, 4), ("LOC", 4, 5), ("ORG", 6, 7)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ("O B-PER I-PER", True),
        ("B-A-1 E-b c", False),  # a label with white space is split here
        ("O", False),
        ("O NN VB", False),
        ("B-PER X-PER", False),
        ("B-PER I-", False),
    ],
)
def test_labels_that_mark_entities(labels, expected):
    assert entities.mark_entities(labels.split()) == expected


def test_without_entities_the_scores_are_undefined():
    undefined = dict.fromkeys(entities.SCORES, math.nan)
    found = entities.scores([["O", "O"]], [["O", "O"]])
    assert found == pytest.approx(undefined, nan_ok=True)
