"""Selects the questions of a SQuAD file for a study."""

import pytest

from albert.io import file_io
from albert.tasks.squad import features as squad_features
from albert.tasks.squad import selection
from albert.training import subsets

TEXT = "The old harbour lies at the end of a narrow road."


def example(number, answers=("road",), impossible=False, text=TEXT, question="Where is it?"):
    return squad_features.SquadExample(
        f"q{number}", question, text, is_impossible=impossible, answers=answers
    )


def ids(chosen, examples, tokenizer, longest=64):
    chosen = chosen.choose(examples, tokenizer, longest, "dev.json")
    return [int(found.qas_id[1:]) for found in chosen]


def test_questions_without_an_answer_are_left_out(tokenizer):
    examples = [example(0), example(1, ()), example(2, ("x",), impossible=True), example(3)]
    assert ids(selection.ALL, examples, tokenizer) == [0, 1, 2, 3]
    chosen = selection.Selection(answerable_only=True)
    assert ids(chosen, examples, tokenizer) == [0, 3]
    with pytest.raises(file_io.InputError, match=r"dev\.json does not say whether question 'q1'"):
        ids(chosen, [example(0), example(1, None)], tokenizer)
    with pytest.raises(file_io.InputError, match="none of the 2 questions remains after .*only"):
        ids(chosen, examples[1:3], tokenizer)


def test_what_does_not_fit_in_one_span_is_left_out(tokenizer):
    examples = [example(i, text="a " * (i + 1) + TEXT, question="Why " * i + "?") for i in range(9)]
    longest = 4  # of a question
    lengths = [
        len(tokenizer.encode(found.paragraph_text))
        + min(len(tokenizer.encode(found.question_text)), longest)
        + 3
        for found in examples
    ]
    for limit in (lengths[0], lengths[4], lengths[4] + 1, max(lengths)):
        chosen = selection.Selection(drop_longer_than=limit)
        expected = [number for number, length in enumerate(lengths) if length <= limit]
        assert ids(chosen, examples, tokenizer, longest) == expected
    with pytest.raises(file_io.InputError, match="remains after .*drop_longer_than"):
        ids(selection.Selection(drop_longer_than=4), examples, tokenizer)


def test_a_fraction_is_of_what_is_left(tokenizer):
    examples = [example(number, ("x",) if number % 2 else ()) for number in range(100)]
    chosen = selection.Selection(True, None, 0.2, "eval_fraction", 3)
    expected = [2 * place + 1 for place in subsets.choose_indices(50, 0.2, 3)]
    assert ids(chosen, examples, tokenizer) == expected
    with pytest.raises(file_io.InputError, match="eval_fraction=2"):
        selection.Selection(fraction=2, fraction_name="eval_fraction")


def test_manifests_say_what_was_left_out():
    assert selection.ALL.settings == {}
    chosen = selection.Selection(True, 512, 0.05, "train_fraction", 7)
    assert chosen.settings == {
        "answerable_only": True, "drop_longer_than": 512, "train_fraction": 0.05, "seed": 7,
    }  # fmt: skip
