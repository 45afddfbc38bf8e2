"""The file of outcomes: examples with known labels and what was predicted for them."""

import numpy as np
import pytest

from albert.tasks import outcomes, token_classification, word_files
from albert.tasks.squad import outcomes as squad_outcomes
from albert.tasks.squad.features import SquadExample
from albert.tasks.squad.task import Answers
from tests.support import builders


def written(folder, rows):
    outcomes.write(str(folder), rows)
    return builders.read_examples(folder)


def test_classes_and_numbers(tmp_path):
    rows = {
        "label_ids": np.int64([1, 0]),
        "predictions": np.int64([1, 1]),
        "probabilities": np.float32([[0.1, 0.9], [0.25, 0.75]]),
    }
    texts = outcomes.texts_of(["a", "c"], [("a", "x  y"), ("b", "skipped"), ("c", "z" * 500)])
    first, second = written(
        tmp_path, outcomes.class_outcomes(("no", "yes"), ["a", "c"], texts, rows)
    )
    assert first == {
        "id": "a", "text": "x y", "label": "yes", "prediction": "yes", "right": True,
        "probabilities": {"no": 0.1, "yes": 0.9},
    }  # fmt: skip
    assert second["text"] == "z" * outcomes.MAX_TEXT + "…" and second["right"] is False
    numbers = {
        "label_ids": np.float32([2.5]),
        "predictions": np.float32([0.1]),
        "probabilities": np.zeros([1, 1]),
    }
    (line,) = written(tmp_path, outcomes.class_outcomes((), ["a"], ["x"], numbers))
    assert line == {"id": "a", "text": "x", "label": 2.5, "prediction": 0.1}
    sets = {**rows, "label_ids": np.int64([[0, 0], [1, 1]]), "predictions": np.int64([[0, 0]] * 2)}
    lines = written(tmp_path, outcomes.class_outcomes(("no", "yes"), ["a", "c"], "xy", sets))
    found = [(line["label"], line["prediction"], line["right"]) for line in lines]
    assert found == [([], [], True), (["no", "yes"], [], False)]
    outcomes.remove(str(tmp_path))
    assert not list(tmp_path.iterdir())


def test_questions_of_both_versions(tmp_path):
    paragraph = "w " * 200 + "The bread was fine . " + "w " * 200
    examples = [
        SquadExample("1", "What was fine?", paragraph, answers=("The bread", "bread")),
        SquadExample("2", "What was not?", paragraph, answers=()),
    ]
    texts = {"1": "bread here", "2": "bread"}
    nbest = {key: [{"text": text, "probability": 0.5}] for key, text in texts.items()}
    v1 = squad_outcomes.question_outcomes(examples, Answers(texts, nbest, None), texts)
    (line,) = written(tmp_path, v1)
    assert line.pop("context").startswith("…w w") and line["label"] == "The bread | bread"
    assert (line["prediction"], line["right"]) == ("bread here", False)
    assert line["numbers"] == pytest.approx(
        {"exact_match": 0.0, "f1": 200 / 3, "probability": 0.5, "has_answer": 1}
    )
    odds = {"1": -2.0, "2": 3.0}
    given = {"1": "bread here", "2": ""}
    _, line = written(
        tmp_path, squad_outcomes.question_outcomes(examples, Answers(texts, nbest, odds), given)
    )
    assert (line["label"], line["prediction"], line["right"]) == ("(no answer)",) * 2 + (True,)
    assert line["numbers"] == {
        "exact": 100.0, "f1": 100.0, "probability": 0.5, "has_answer": 0, "null_odds": 3.0,
        "best_text_exact": 0.0, "best_text_f1": 0.0,
    }  # fmt: skip


def test_words_and_entities():
    sentence = word_files.Sentence("7", ("a", "b", "c"), ("B-X", "O", "B-X"), "")
    guess = word_files.Prediction(sentence, ["B-X", "I-X", "B-X"], [0.5] * 3)
    (row,) = token_classification.outcomes_of([guess], ("O", "B-X", "I-X"))
    assert row.numbers == {
        "right_words": 2, "words": 3, "right_entities": 1, "predicted_entities": 2,
        "true_entities": 2,
    }  # fmt: skip
    assert (row.guid, row.label, row.prediction, row.right) == (
        "7",
        "B-X O B-X",
        "B-X I-X B-X",
        False,
    )
