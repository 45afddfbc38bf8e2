"""Confusions, marked answers and marked sentences of reports."""

import json

import pytest

from albert.experiments import report_predictions, runs
from tests.support import run_folders


def blocks_of(tmp_path, script, rows):
    """Blocks of a run that has kept outcomes."""
    run = run_folders.make_run(tmp_path / "run", script, data="dev.tsv")
    lines = [json.dumps({"id": str(place), **row}) + "\n" for place, row in enumerate(rows)]
    (run / "examples.jsonl").write_text("".join(lines), encoding="utf-8")
    return list(report_predictions.examples(runs.read_run(str(run), "run")))


def words(text, label, prediction):
    pairs = list(zip(label.split(), prediction.split(), strict=True))
    right = sum(a == b for a, b in pairs)
    numbers = {"right_words": right, "words": len(pairs)}
    right = right == len(pairs)
    return {
        "text": text, "label": label, "prediction": prediction, "right": right, "numbers": numbers
    }  # fmt: skip


def test_entities_and_wrong_words_are_marked_in_their_sentences(tmp_path):
    rows = [
        words("Ann Lee saw Rome", "B-PER I-PER O B-LOC", "B-PER I-PER O B-PER"),
        words("Bob Jim slept", "B-PER B-PER O", "B-PER B-PER O"),
        words("in York", "O O", "O I-LOC"),
    ]
    blocks = blocks_of(tmp_path, "run_token_classifier", rows)
    worst, best = (block["rows"] for block in blocks if "table" in block)
    assert [row[0] for row in worst] == ["3 of 4", "1 of 2"] and best[0][0] == "3 of 3"
    assert [tuple(part) for part in worst[0][1].parts] == [
        ("Ann Lee", "right", "PER"), ("saw", "", ""), ("Rome", "wrong", "PER, not LOC"),
    ]  # fmt: skip
    assert tuple(worst[1][1].parts[1]) == ("York", "wrong", "LOC, not none")
    assert [part.text for part in best[0][1].parts] == ["Bob", "Jim", "slept"]  # two persons
    assert str(worst[0][1]) == "Ann Lee saw Rome"


def test_only_wrong_words_are_marked_if_labels_mark_no_entities(tmp_path):
    blocks = blocks_of(
        tmp_path, "run_token_classifier", [words("They run fast", "PRON VERB ADV", "PRON NOUN ADV")]
    )
    (table,) = (block for block in blocks if "table" in block)
    assert [tuple(part) for part in table["rows"][0][1].parts] == [
        ("They", "", ""), ("run", "wrong", "NOUN, not VERB"), ("fast", "", ""),
    ]  # fmt: skip


def test_both_answers_are_marked_in_their_text(tmp_path):
    answers = {
        "text": "Who?", "context": "Ann met Bob Lee.", "label": "Lee | Bob", "prediction": "Ann",
        "right": False, "numbers": {"exact_match": 0, "f1": 0, "probability": 0.5, "has_answer": 1},
    }  # fmt: skip
    blocks = blocks_of(tmp_path, "run_squad_v1", [answers])
    (table,) = (block for block in blocks if "table" in block)
    marked = table["rows"][0][1]
    assert str(marked) == "Ann met Bob Lee."
    assert [part.text for part in marked.parts if part.mark == "wrong"] == ["Ann"]
    assert [part.text for part in marked.parts if part.mark == "right"] == ["Bob", "Lee"]


@pytest.mark.parametrize("count", [3, 30])
def test_confusions_are_fractions_of_rows_or_counts_of_many_labels(tmp_path, count):
    names = [f"label number {number:02}" for number in range(count)]
    rows = [
        {"text": name, "label": name, "prediction": names[max(0, place - 1)],
         "right": place == 0, "probabilities": dict.fromkeys(names, 1 / count)}
        for place, name in enumerate(names)
    ]  # fmt: skip
    blocks = blocks_of(tmp_path, "run_classifier", [*rows, rows[1], rows[1] | {"right": True}])
    (matrix,) = (block for block in blocks if "matrix" in block)
    name, squares = matrix["matrix"][1]
    assert name == names[1] and squares[1] is None
    assert squares[0].title == "label number 01 was taken for label number 00 3 of 3"
    assert (squares[0].text, squares[0].small) == (("100%", "3") if count == 3 else ("3", ""))
    assert matrix["vertical"] == (count == 30)
    assert f"Confusion matrix of {count + 2} examples" in matrix["caption"]
    frequent = [
        b for b in blocks if b.get("table") == ["label", "predicted", "texts", "of the label"]
    ]
    assert len(frequent) == (count == 30)
    if frequent:
        assert frequent[0]["rows"][0] == [names[1], names[0], 3, 1.0]
