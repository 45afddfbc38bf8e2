"""Blocks of the page about two sides."""

import dataclasses

import pytest

from albert.experiments import comparison, comparison_text, statistics
from albert.io import file_io


def made(**settings):
    """A comparison of the sides a and b without any finding."""
    pair = comparison.Pair("a", "b", None, None, None, "no seeds", "no predictions")
    pair = dataclasses.replace(pair, **settings)
    return comparison.Compared("f1", False, 0.95, (), (pair,), ("A note.",))


def finding(p):
    found = statistics.Comparison(
        0.1, 0.05, 0.15, p, 0.95, "paired t", 5, 5, True, "b", "b is better by 0.1", "two seeds"
    )
    return comparison.Finding(found, p, "b", found.verdict)


def examples(count):
    changes = tuple(
        comparison.Change(str(key), f"text {key}", "x", "y", "x", 0.2, 0.8) for key in range(count)
    )
    return comparison.Examples("f1", "dev.tsv", 1234, ((1, 2), (1, 2)), finding(0.5), changes, ())


def notes_of(blocks):
    return [block["note"] for block in blocks if "note" in block]


def test_what_is_not_known_is_said():
    seeds, examples, table, *notes = comparison_text.verdict_blocks(made())
    assert seeds == {"paragraph": "Over seeds, the result is not known: no seeds."}
    assert examples == {"paragraph": "Over examples, the result is not known: no predictions."}
    assert table == {"table": ["over", "difference", "interval", "p"], "rows": []}
    assert "b minus a; higher is better" in notes[0]["note"] and notes[1] == {"note": "A note."}
    assert list(comparison_text.change_blocks(made())) == [{"note": "Not known: no predictions."}]


def test_verdicts_are_sentences_and_name_their_methods():
    found = made(seeds=finding(0.01), with_stuck=finding(0.2).comparison, examples=examples(1))
    seeds, _, table, *blocks = comparison_text.verdict_blocks(found)
    assert seeds == {"paragraph": "Over seeds, b is better by 0.1."}
    assert [str(cell) for cell in table["rows"][0]] == [
        "seeds", "+0.1000", "0.0500\u00a0to\u00a00.1500", "0.010",
    ]  # fmt: skip
    notes = notes_of(blocks)
    assert "Over seeds (f1): paired t, in pairs; two seeds." in notes
    assert "With the runs that did not learn: b is better by 0.1 (+0.1000, p 0.200)." in notes
    assert "Over the 1,234 examples of dev.tsv (f1): paired t, in pairs; two seeds." in notes


@pytest.mark.parametrize(
    ("verdict", "sentence"),
    [
        (statistics.NOT_DISTINGUISHABLE, "b and a are not distinguishable."),
        ("equal within 0.01", "b and a are equal within 0.01."),
        ("cannot be decided: neither", "it cannot be decided: neither."),
        ("not known: one seed", "the result is not known: one seed."),
    ],
)
def test_verdicts_without_a_better_side_are_sentences(verdict, sentence):
    found = made(seeds=dataclasses.replace(finding(0.5), verdict=verdict))
    assert next(comparison_text.verdict_blocks(found)) == {"paragraph": f"Over seeds, {sentence}"}


def test_at_most_fifty_examples_are_shown_and_the_rest_is_counted():
    blocks = list(comparison_text.change_blocks(made(examples=examples(51))))
    assert blocks[0]["heading"] == "51 texts that most runs of b got right and most of a wrong"
    assert len(blocks[1]["rows"]) == 50
    assert blocks[1]["rows"][0] == [
        "0",
        "text 0",
        "x",
        "y (20% of runs right)",
        "x (80% of runs right)",
    ]
    assert blocks[2]["note"].startswith("The first 50 of 51;")
    assert blocks[3]["heading"].startswith("0 texts that most runs of a got right and most of b")
    blocks = list(comparison_text.change_blocks(made(examples=examples(0))))
    assert blocks == [{"note": "No example changed sides."}]


def test_other_numbers_of_sides_are_refused():
    with pytest.raises(file_io.InputError, match=r"compare: expected two sides, found 0"):
        comparison.compare_two([])
