"""Targets, accuracy and loss of the places of answers."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from albert.tasks.squad import answers as squad_answers
from albert.tasks.squad import features as squad_features
from albert.tasks.squad import positions
from tests.support import squad_samples


def questions_of(path, tokenizer, count=None, **lengths):
    """Questions to answer, and the same windows as training has them."""
    examples = squad_answers.read_squad_examples(path, is_training=False)[:count]
    features = squad_samples.features_of(tokenizer, examples, **lengths)
    training = [
        dataclasses.replace(
            example,
            orig_answer_text=(example.answers or ("",))[0],
            start_position=(example.answer_starts or (-1,))[0],
            is_impossible=not example.answers,
        )
        for example in examples
    ]
    windows = squad_samples.features_of(tokenizer, training, is_training=True, **lengths)
    return squad_answers.Questions(examples, features), windows


def check_targets(questions, windows):
    found = positions.targets(questions)
    for name, attribute in (
        ("start_positions", "start_position"),
        ("end_positions", "end_position"),
        ("is_impossible", "is_impossible"),
    ):
        expected = [int(getattr(window, attribute)) for window in windows]
        np.testing.assert_array_equal(found[name], expected, err_msg=name)
    assert found["place_is_known"].all()
    return found


def test_targets_are_those_of_training(tmp_path, tokenizer, wordpiece):
    path = squad_samples.write_long_context(tmp_path)
    for made_by in (tokenizer, wordpiece):
        found = check_targets(*questions_of(path, made_by, length=48, stride=16))
        assert 0 < found["is_impossible"].sum() < len(found["is_impossible"])


def test_targets_of_published_questions(shared, english):
    path = str(shared / "data" / "squad" / "dev-v2.0-small.json")
    found = check_targets(*questions_of(path, english, 400, length=128, stride=48, query=32))
    assert 0.2 < found["is_impossible"].mean() < 0.9


def test_an_answer_at_the_begin_of_a_text_starts_with_its_letter(tokenizer):
    """The piece "▁" before it stands for nothing in the text."""
    text = "Ω the boat is old."
    assert tokenizer.tokenize(text)[:2] == ["▁", "ω"]
    example = squad_features.SquadExample(
        "q", "Where?", text, answers=("Ω the",), answer_starts=(0,)
    )
    windows = squad_samples.features_of(tokenizer, [example])
    found = positions.targets(squad_answers.Questions([example], windows))
    assert found["start_positions"][0] == windows[0].text_begin + 1


def test_places_that_are_not_said_do_not_count(tokenizer):
    example = squad_features.SquadExample(
        "q", "Where?", squad_samples.TEXT, answers=("harbour",), answer_starts=(None,)
    )
    features = squad_samples.features_of(tokenizer, [example])
    found = positions.targets(squad_answers.Questions([example], features))
    assert not found["place_is_known"].any()


def test_scores_are_means_over_windows_with_a_known_place():
    rows = {
        "start_is_right": np.float32([1, 0, 1]),
        "end_is_right": np.float32([0, 0, 1]),
        "per_example_loss": np.float32([1.0, 2.0, 50.0]),
        "place_is_known": np.int32([1, 1, 0]),
        "unique_ids": np.arange(3),
    }
    scores = positions.Scores()
    assert scores.result() == {}
    assert list(scores.take(rows)) == ["unique_ids"]
    assert list(scores.take({"unique_ids": np.arange(2)})) == ["unique_ids"]
    assert scores.result() == {"start_accuracy": 0.5, "end_accuracy": 0.0, "eval_loss": 1.5}


@pytest.mark.parametrize("names", [("a", "b")])
def test_rows_of_a_batch(names):
    outputs = {
        "a": tf.constant([[0.0, 3, 1], [2, 1, 0]]),
        "b": tf.constant([[0.0, 0, 1], [2, 1, 0]]),
        "per_example_loss": tf.constant([0.5, 1.5]),
    }
    assert positions.eval_rows(outputs, {}, names) == {}
    features = {
        "start_positions": tf.constant([[1], [1]]),
        "end_positions": tf.constant([[2], [0]]),
        "place_is_known": tf.constant([1, 1]),
    }
    rows = positions.eval_rows(outputs, features, names)
    assert rows["start_is_right"].numpy().tolist() == [1, 0]
    assert rows["end_is_right"].numpy().tolist() == [1, 1]
    assert rows["per_example_loss"].numpy().tolist() == [0.5, 1.5]
    found = positions.train_metrics(outputs, features, names)
    assert [float(x) for x in found["start_accuracy"]] == [1, 2]
    assert [float(x) for x in found["end_accuracy"]] == [2, 2]
