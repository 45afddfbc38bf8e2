"""Scores of SQuAD: every rule on a case made by hand, thresholds against a plain search."""

import pathlib
import random

import pytest

from albert.io.file_io import InputError
from albert.model import checkpoints
from albert.tasks.squad import metrics as squad_metrics
from albert.tasks.squad import null_threshold


def dataset_of(gold):
    """File content with one question per entry of ``{id: [gold text, …]}``."""
    questions = [
        {
            "id": key,
            "question": "?",
            "answers": [{"text": text, "answer_start": 0} for text in answers],
            "is_impossible": not answers,
        }
        for key, answers in gold.items()
    ]
    return {"version": "v2.0", "data": [{"paragraphs": [{"context": "", "qas": questions}]}]}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Cat", "cat"),
        ("a cat and an owl", "cat and owl"),
        ("theatre, another banana", "theatre another banana"),  # only whole words are articles
        ("the the", ""),
        ("A.B.C.", "abc"),  # punctuation vanishes before articles are looked for
        ("a.", ""),
        ("the-cat", "thecat"),  # so that here no word "the" is left
        ("don't", "dont"),
        ("U.S. $5.00", "us 500"),
        ("  two \t words\n", "two words"),
        ("non\u00a0breaking", "non breaking"),
        ("naïve Über", "naïve über"),  # accents stay
        ("“quoted” – dash", "“quoted” – dash"),  # punctuation outside ASCII stays
        ("été à la", "été à la"),
        ("àthe", "àthe"),
        ("", ""),
    ],
)
def test_normalize_answer(text, expected):
    assert squad_metrics.normalize_answer(text) == expected


@pytest.mark.parametrize(
    ("prediction", "answer", "expected"),
    [
        ("The Cat!", "cat", 1),
        ("cat dog", "dog cat", 0),
        ("cats", "cat", 0),
        ("", "the", 1),
        ("", "cat", 0),
    ],
)
def test_exact_match(prediction, answer, expected):
    assert squad_metrics.exact_match(prediction, answer) == expected


@pytest.mark.parametrize(
    ("prediction", "answer", "v1", "v2"),
    [
        ("the cat", "Cat.", 1, 1),
        ("dog cat", "cat dog", 1, 1),
        ("cat sat", "cat", 2 / 3, 2 / 3),  # precision 1/2, recall 1
        ("cat", "big cat sat", 1 / 2, 1 / 2),  # precision 1, recall 1/3
        ("cat cat", "cat", 2 / 3, 2 / 3),  # a word counts as often as both texts have it
        ("cat cat dog", "cat cat owl", 2 / 3, 2 / 3),
        ("dog", "cat", 0, 0),
        ("", "cat", 0, 0),
        ("cat", "", 0, 0),
        ("", "", 0, 1),  # no answer is a right answer under 2.0 alone
        ("the", "a", 0, 1),
    ],
)
def test_f1(prediction, answer, v1, v2):
    assert squad_metrics.f1(prediction, answer, empty_is_an_answer=False) == pytest.approx(v1)
    assert squad_metrics.f1(prediction, answer, empty_is_an_answer=True) == pytest.approx(v2)


# --- 1.1 ---------------------------------------------------------------------------------------


def test_v1_takes_the_best_gold_answer_for_each_score():
    # The first answer is best for no score, the second for exact match and F1.
    gold = {"x": ["black dog", "cat"], "y": ["one two three", "two"]}
    scores = squad_metrics.evaluate_v1(dataset_of(gold), {"x": "the cat", "y": "two three"})
    # y: against "one two three" precision 1, recall 2/3.
    assert scores == pytest.approx({"exact_match": 50.0, "f1": 100 * (1 + 0.8) / 2})


def test_v1_counts_a_missing_prediction_as_wrong(caplog):
    gold = {"x": ["cat"], "y": ["dog"], "z": ["owl"], "w": ["bee"]}
    with caplog.at_level("WARNING"):
        scores = squad_metrics.evaluate_v1(dataset_of(gold), {"x": "cat", "extra": "owl"})
    assert scores == {"exact_match": 25.0, "f1": 25.0}
    assert "3 of 4 questions have no prediction and count as wrong; the first is y" in caplog.text


def test_v1_counts_an_empty_prediction_as_wrong():
    scores = squad_metrics.evaluate_v1(dataset_of({"x": ["cat"]}), {"x": ""})
    assert scores == {"exact_match": 0.0, "f1": 0.0}


def test_v1_leaves_unanswerable_questions_out():
    dataset = dataset_of({"x": ["cat"], "y": []})
    scores = squad_metrics.evaluate_v1(dataset, {"x": "cat", "y": "dog"})
    assert scores == {"exact_match": 100.0, "f1": 100.0}
    with pytest.raises(InputError, match="none of the questions has one"):
        squad_metrics.evaluate_v1(dataset_of({"y": []}), {"y": ""})


def test_the_list_of_articles_will_do():
    dataset = dataset_of({"x": ["cat"]})
    for evaluate in (squad_metrics.evaluate_v1, squad_metrics.evaluate_v2):
        assert evaluate(dataset["data"], {"x": "cat"}) == evaluate(dataset, {"x": "cat"})


def test_no_answers_at_all_in_the_file():
    dataset = dataset_of({"x": [], "y": []})
    for question in dataset["data"][0]["paragraphs"][0]["qas"]:
        del question["answers"]
    assert squad_metrics.gold_answers(dataset) == {"x": [], "y": []}


# --- 2.0 ---------------------------------------------------------------------------------------

GOLD = {"a": ["cat", "big cat"], "b": [], "c": ["dog"], "d": []}
TEXTS = {"a": "big cat", "b": "owl", "c": "dog sat", "d": ""}


def test_v2_without_null_odds():
    scores = squad_metrics.evaluate_v2(dataset_of(GOLD), TEXTS)
    assert scores == pytest.approx(
        {
            "exact": 50.0,  # a, and d, to which the empty text is the right answer
            "f1": 100 * (1 + 2 / 3 + 1) / 4,
            "total": 4,
            "HasAns_exact": 50.0,
            "HasAns_f1": 100 * (1 + 2 / 3) / 2,
            "HasAns_total": 2,
            "NoAns_exact": 50.0,
            "NoAns_f1": 50.0,
            "NoAns_total": 2,
        }
    )


def test_v2_groups_without_questions_are_left_out():
    scores = squad_metrics.evaluate_v2(dataset_of({"a": ["cat"]}), {"a": "cat"})
    assert not any(key.startswith("NoAns") for key in scores)
    scores = squad_metrics.evaluate_v2(dataset_of({"a": []}), {"a": "cat"})
    assert scores == {"exact": 0, "f1": 0, "total": 1} | {
        "NoAns_exact": 0,
        "NoAns_f1": 0,
        "NoAns_total": 1,
    }


def test_v2_gold_answers_without_words_are_no_answers():
    # "the" normalizes to nothing and is dropped; where nothing is left, "" is right.
    gold = {"a": ["the", "cat"], "b": ["the", "!"]}
    scores = squad_metrics.evaluate_v2(dataset_of(gold), {"a": "", "b": ""})
    assert scores["exact"] == 50.0


def test_v2_threshold_search_by_hand():
    # By rising odds: d (no answer, wrong text: 1 lost), a (right), c (F1 2/3), b (wrong again).
    texts = {**TEXTS, "d": "bee"}
    odds = {"d": -2.0, "a": -1.0, "c": 0.5, "b": 0.5}
    scores = squad_metrics.evaluate_v2(dataset_of(GOLD), texts, odds)
    # Never answering gives 2; then 1, 2, 2.67, 1.67. Exact: 2, 1, 2, 2, 1.
    assert scores["best_f1"] == pytest.approx(100 * (2 + 2 / 3) / 4)
    assert scores["best_f1_thresh"] == 0.5
    assert scores["best_exact"] == 50.0
    assert scores["best_exact_thresh"] == 0.0
    # Questions at the threshold are not answered: a is right, b is "" and right.
    assert scores["null_score_diff_threshold"] == 0.5
    assert (scores["exact"], scores["f1"]) == (50.0, 50.0)
    assert (scores["HasAns_exact"], scores["NoAns_exact"]) == (50.0, 50.0)
    # At 0 it is the same here.
    assert (scores["exact_at_0"], scores["HasAns_f1_at_0"], scores["NoAns_f1_at_0"]) == (50, 50, 50)
    assert "total_at_0" not in scores


def test_v2_with_a_given_threshold():
    odds = {"d": -2.0, "a": -1.0, "c": 0.5, "b": 0.5}
    scores = squad_metrics.evaluate_v2(dataset_of(GOLD), TEXTS, odds, 0.6)
    assert scores["null_score_diff_threshold"] == 0.6
    assert scores["HasAns_f1"] == pytest.approx(100 * (1 + 2 / 3) / 2)
    assert scores["NoAns_f1"] == 50.0
    never = squad_metrics.evaluate_v2(dataset_of(GOLD), TEXTS, odds, -2.0)
    assert (never["HasAns_f1"], never["NoAns_f1"], never["f1"]) == (0.0, 100.0, 50.0)


def test_v2_threshold_is_zero_where_answering_never_pays():
    odds = dict.fromkeys(GOLD, -1.0)
    scores = squad_metrics.evaluate_v2(dataset_of(GOLD), dict.fromkeys(GOLD, "bee"), odds)
    # As in the official script; so the score at the threshold is not the best one.
    assert scores["best_f1"] == 50.0
    assert scores["null_score_diff_threshold"] == 0.0
    assert scores["f1"] == 0.0


def test_v2_missing_predictions_are_left_out_and_reported(caplog):
    odds = {"a": 1.0, "b": 0.0, "c": 0.0, "d": -1.0}
    with caplog.at_level("WARNING"):
        scores = squad_metrics.evaluate_v2(dataset_of(GOLD), {"a": "cat", "d": "bee"}, odds)
    assert scores["total"] == 2
    assert scores["best_f1"] == 50.0  # b is no unanswerable question that was got right
    assert "2 of 4 questions have no prediction and are not scored" in caplog.text


def test_v2_errors():
    with pytest.raises(InputError, match="none of the 4 questions has a prediction"):
        squad_metrics.evaluate_v2(dataset_of(GOLD), {"x": "cat"})
    with pytest.raises(InputError, match="3 of 4 predicted questions have no null odds.*is b"):
        squad_metrics.evaluate_v2(dataset_of(GOLD), TEXTS, {"a": 0.0})


def test_threshold_search_finds_the_best_cut():
    rng = random.Random(5)
    for _ in range(50):
        keys = [f"q{i}" for i in range(12)]
        has_answer = {key: rng.random() < 0.5 for key in keys}
        texts = {key: rng.choice(["", "x"]) for key in keys}
        scores = {key: rng.random() if has_answer[key] else float(not texts[key]) for key in keys}
        odds = {key: rng.gauss(0, 1) for key in keys}
        best, threshold = null_threshold.find_best(texts, scores, odds, has_answer)
        totals = {
            cut: sum(scores[k] if odds[k] <= cut else not has_answer[k] for k in keys)
            for cut in [-10.0, *odds.values()]
        }
        assert best == pytest.approx(100 * max(totals.values()) / len(keys))
        if totals[-10.0] < max(totals.values()) - 1e-9:
            assert totals[threshold] == pytest.approx(max(totals.values()))
        else:
            assert threshold == 0.0


def test_a_few_questions_do_not_replace_the_threshold_of_many(tmp_path, caplog):
    folder, prefix = str(tmp_path), str(tmp_path / "model.ckpt-7")
    checkpoints.write_tensors(prefix, {"w": 1.0})
    dev, few, moved = (str(tmp_path / name) for name in ("dev.json", "few.json", "moved.json"))
    for path, text in ((dev, "dev"), (few, "few"), (moved, "dev")):
        pathlib.Path(path).write_text(text)

    def threshold_after(value, path, num_questions):
        null_threshold.update(folder, value, prefix, path, num_questions)
        return null_threshold.read(prefix)

    assert threshold_after(-1.0, dev, 100) == -1.0
    assert threshold_after(2.0, few, 3) == -1.0
    assert "Kept the threshold -1 of" in caplog.text
    assert "found on 100 questions of dev.json; here 2 is the best of 3" in caplog.text
    assert f"delete {tmp_path / null_threshold.FILE_NAME}" in caplog.text
    assert threshold_after(2.0, few, 100) == threshold_after(2.0, dev, 99) == -1.0
    assert threshold_after(-2.0, moved, 100) == -2.0  # of the same bytes
    assert threshold_after(3.0, few, 101) == 3.0
    null_threshold.write(folder, -4.0, prefix, "dev.json")  # as an older version
    assert threshold_after(5.0, few, 1000) == -4.0
    assert threshold_after(5.0, dev, 2) == 5.0
    checkpoints.write_tensors(prefix := str(tmp_path / "model.ckpt-8"), {"w": 1.0})
    assert threshold_after(6.0, few, 1) == 6.0  # of another step
