"""Models answer files of every kind, and their answers are compared and scored."""

import json

import numpy as np
import pytest

from albert.export import agreement
from albert.io import file_io
from albert.serving import inference, trained_model
from albert.tasks import glue, race
from albert.tasks import token_classification as tokens
from albert.tasks.squad import task as squad_task
from tests.support import builders, serving_samples

_ROWS = [("the bread was fine", "good"), ("the soup was old", "bad"), ("cake", "fine")]
_WORDS = [[("the", "bad"), ("cook", "good")], [("bread", "fine")]]


def write(folder, kind, labeled=True):
    """A file of examples for a model of this kind."""
    if kind in (glue.KIND, "regression"):
        numbers = {"good": "5.0", "bad": "1.0", "fine": "3.5"}
        rows = [{"sentence": text} for text, _ in _ROWS]
        for row, (_, label) in zip(rows, _ROWS, strict=True):
            if labeled:
                row["label"] = label if kind == glue.KIND else numbers[label]
        path, lines = folder / "texts.jsonl", [json.dumps(row) for row in rows]
    elif kind == tokens.KIND:
        path = folder / "words.conll"
        rows = [[" ".join(pair[: 1 + labeled]) for pair in words] for words in _WORDS]
        lines = [line for words in rows for line in (*words, "")]
    elif kind == race.KIND:
        path = folder / ("all.txt" if labeled else "questions.jsonl")
        if labeled:
            lines = [json.dumps(passage) for passage in builders.passages("high", "dev", 2)]
        else:
            question = {"article": "the bread", "question": "why ?", "options": ["good", "bad"]}
            lines = [json.dumps(question)] * 2
    else:
        path = folder / "squad.json"
        question = {"id": "1", "question": "what was fine ?"}
        if labeled:
            question["answers"] = [{"text": "bread", "answer_start": 4}]
        paragraph = {"context": "the bread was fine .", "qas": [question]}
        lines = [json.dumps({"version": "1.1", "data": [{"paragraphs": [paragraph]}]})]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def opposite(found):
    """The model that answers otherwise, by the scores with another sign."""

    def infer(features):
        outputs = found.load()(features)
        changed = {name: -x for name, x in outputs.items() if x.dtype == np.float32}
        if "predictions" in outputs and outputs["predictions"].dtype == np.int32:
            changed["predictions"] = (outputs["predictions"] + 1) % 3
        return {**outputs, **changed}

    return inference.FoundModel(found.folder, function=infer)


@pytest.mark.slow
@pytest.mark.parametrize("kind", serving_samples.KINDS)
def test_models_are_compared(tmp_path, kind):
    folder = serving_samples.trained_in(tmp_path / "run", kind)
    found = inference.FoundModel(folder, function=trained_model.from_training_folder(folder))
    examples = agreement.read(folder, write(tmp_path, kind), "check_file")
    same = agreement.measure(examples, found, found)
    assert same.rate == 1.0 and same.expected == same.actual
    assert same.count == {race.KIND: 4, squad_task.V1: 1, squad_task.V2: 1}.get(kind, 3)
    if kind not in squad_task.KINDS:  # whose beams are sorted
        other = agreement.measure(examples, found, opposite(found))
        assert other.rate < 1.0 and other.expected == same.expected
        assert other.to_dict()["agreement"] == round(other.rate, 6)
    unlabeled = write(tmp_path, kind, labeled=False)
    assert agreement.read(folder, unlabeled, "calibration_file", False).answers(found)
    with pytest.raises(file_io.InputError, match=r"label|right answers"):
        agreement.read(folder, unlabeled, "check_file")


def test_scores_are_in_points(tmp_path):
    folder = serving_samples.trained_in(tmp_path / "run", glue.KIND)
    examples = agreement.read(folder, write(tmp_path, glue.KIND), "check_file")
    assert examples.score(["good", "bad", "good"]) == pytest.approx(200 / 3)
    numbers = serving_samples.trained_in(tmp_path / "numbers", "regression")
    examples = agreement.read(numbers, write(tmp_path, "regression"), "check_file")
    assert examples.metric == "pearson"
    assert examples.score([10.0, 2.0, 7.0]) == pytest.approx(100)
    assert examples.same([2.0, 5.0], [2.02, 5.04]).tolist() == [True, False]  # of 3
    words = serving_samples.trained_in(tmp_path / "words", tokens.KIND)
    examples = agreement.read(words, write(tmp_path, tokens.KIND), "check_file")
    assert examples.score(["bad", "bad", "fine"]) == pytest.approx(200 / 3)
    squad = serving_samples.trained_in(tmp_path / "squad", squad_task.V1)
    examples = agreement.read(squad, write(tmp_path, squad_task.V1), "check_file")
    assert examples.score(["the bread"]) == 100 and examples.score(["fine"]) == 0


def test_numbers_are_equal_within_a_hundredth_of_the_range_of_the_first(tmp_path):
    folder = serving_samples.trained_in(tmp_path / "run", "regression")
    unlabeled = write(tmp_path, "regression", labeled=False)
    examples = agreement.read(folder, unlabeled, "calibration_file", False)
    assert agreement.agreement_rate(examples, [1.0, 2.0, 6.0], [1.04, 1.96, 6.04]) == 1.0
    assert agreement.agreement_rate(examples, [1.0, 2.0, 6.0], [1.06, 2.0, 6.0]) == pytest.approx(
        2 / 3
    )


def test_files_of_glue_are_read_as_its_own(tmp_path):
    folder = serving_samples.trained_in(tmp_path / "run", glue.KIND)
    settings = {"task_name": "CoLA", "labels": ["0", "1"], "columns": {"text": "text"}}
    object.__setattr__(folder, "settings", folder.settings | settings)
    (tmp_path / "dev.tsv").write_text("gj04\t1\t\tThe bread was fine.\ngj04\t0\t*\tBread fine.\n")
    examples = agreement.read(folder, str(tmp_path / "dev.tsv"), "check_file")
    assert examples.score(["1", "0"]) == 100


def test_bad_files_are_named(tmp_path):
    folder = serving_samples.trained_in(tmp_path / "run", tokens.KIND)
    with pytest.raises(file_io.InputError, match="check_file: .*nowhere.conll does not exist"):
        agreement.read(folder, "nowhere.conll", "check_file")
    (tmp_path / "other.conll").write_text("the O\n")
    with pytest.raises(file_io.InputError, match="has the label 'O'; this model has bad, fine"):
        agreement.read(folder, str(tmp_path / "other.conll"), "check_file")
    (tmp_path / "empty.jsonl").write_text("")
    for kind in (glue.KIND, race.KIND):
        folder = serving_samples.trained_in(tmp_path / kind, kind)
        with pytest.raises(file_io.InputError, match="there is no (row|question)"):
            agreement.read(folder, str(tmp_path / "empty.jsonl"), "calibration_file", False)
