"""RACE: recorded features, both layouts of the files, mistakes in them, scores by level."""

import gzip
import json

import numpy as np
import pytest
import tensorflow as tf

from albert.data import input_pipeline
from albert.io import file_io
from albert.tasks import example_data, race
from albert.text import tokenization
from tests.support import builders

STRATEGY = tf.distribute.get_strategy()
PASSAGE = {
    "id": "middle7.txt",
    "article": "The  Cook\nserved soup .",
    "questions": ["The cook served  _ . A _ !", "What now ?"],
    "options": [["soup", "Bread", "cake", "tea"], ["a", "b", "c", "d"]],
    "answers": ["A", "D"],
}


def write_passages(folder, split="dev", level="middle", passages=(PASSAGE,), merged=True):
    folder = folder / "RACE" / split / level
    folder.mkdir(parents=True)
    texts = [json.dumps(passage) for passage in passages]
    if merged:
        (folder / "all.txt").write_text("\n".join(texts) + "\n")
    else:
        for number, text in enumerate(texts):
            (folder / f"{number}.txt").write_text(text)
    return folder


# --- recorded ---------------------------------------------------------------------------------


def test_recorded_features(shared):
    with gzip.open(shared / "golden" / "data" / "race_features.json.gz", "rt") as file:
        recorded = json.load(file)
    spm = str(shared / "data" / "spm" / "30k-clean.model")
    tokenizer = tokenization.FullTokenizer(spm_model_file=spm)
    examples = race.read_race_examples(str(shared / "data" / "race"), "dev")
    assert len(examples) == recorded["num_examples"]
    found = {(example.example_id, example.endings): example for example in examples}
    assert len(recorded["rows"]) == 40
    for row in recorded["rows"]:
        example = found[row["example_id"], tuple(row["endings"])]
        assert example.label == row["label"]
        features = race.convert_example(
            example, recorded["max_seq_length"], recorded["max_qa_length"], tokenizer
        )
        for name in ("input_ids", "input_mask", "segment_ids", "label_ids"):
            np.testing.assert_array_equal(features[name], row[name])


# --- reading ----------------------------------------------------------------------------------


def test_examples(tmp_path):
    write_passages(tmp_path)
    write_passages(tmp_path, level="high", passages=[{**PASSAGE, "id": 12}])
    examples = race.read_race_examples(str(tmp_path), "dev")
    assert [example.guid for example in examples] == [
        *("middle7.txt#1", "middle7.txt#2", "12#1", "12#2"),
    ]
    first, second, *_ = examples
    assert first.article == "the cook served soup ."
    assert first.endings[:2] == (
        "the cook served soup . a soup !",
        "the cook served bread . a bread !",
    )
    assert second.endings == ("what now ? a", "what now ? b", "what now ? c", "what now ? d")
    assert [example.label for example in examples] == [0, 3, 0, 3]
    assert [example.level for example in examples] == ["middle"] * 2 + ["high"] * 2
    for level in ("middle", "high"):
        chosen = race.read_race_examples(str(tmp_path), "dev", **{f"{level}_only": True})
        assert chosen == [example for example in examples if example.level == level]
    cased = race.read_race_examples(str(tmp_path), "dev", do_lower_case=False)
    assert cased[0].article == "The Cook served soup ."
    raw = race.read_race_examples(str(tmp_path), "dev", use_spm=False)
    assert raw[0].article == PASSAGE["article"]


def test_people_see_all_choices_and_the_question_once(tmp_path):
    long = {**PASSAGE, "article": "word " * 100, "questions": ["What now ?", "What _ ?"]}
    write_passages(tmp_path, passages=[long])
    first, second = (
        row.text for row in race.iter_race_examples(str(tmp_path), "dev", middle_only=True)
    )
    article = "word " * 32 + "…"
    assert first == f"what now ? A: soup | B: bread | C: cake | D: tea — {article}"
    assert second == f"what A: a ? | B: b ? | C: c ? | D: d ? — {article}"


def test_a_task_cleans_each_text_up_once(tmp_path, tokenizer, monkeypatch):
    """Readers of a task leave that to the tokenizer; its features are those of cleaned texts."""
    write_passages(tmp_path)
    first, _ = race.read_race_examples(str(tmp_path), "dev", middle_only=True)
    raw, _ = race.read_race_examples(str(tmp_path), "dev", middle_only=True, use_spm=False)
    expected = race.convert_example(first, 40, 20, tokenizer)
    seen = builders.watch_cleaning(monkeypatch)
    cache = example_data.FeatureCache({"dev": str(tmp_path / "records")}, {}, STRATEGY)
    data = race.make_data(tokenizer, 40, 20, str(tmp_path), cache, middle_only=True)
    (path,) = data.records("dev")
    assert seen[: 1 + len(raw.endings)] == [raw.article, *raw.endings]
    (serialized,) = tf.data.TFRecordDataset(path).take(1)
    features = input_pipeline.parse(data.specs("dev"), [serialized])
    for name, value in expected.items():
        np.testing.assert_array_equal(np.ravel(features[name]), np.ravel(value), name)


def test_the_published_layout_gives_the_same_examples(tmp_path):
    """One file a passage, numbered; 10.txt comes after 2.txt, and line breaks do not matter."""
    passages = [{**PASSAGE, "id": f"middle{i}.txt"} for i in range(12)]
    write_passages(tmp_path / "merged", passages=passages)
    folder = write_passages(tmp_path / "single", passages=passages, merged=False)
    (folder / "3.txt").write_text(json.dumps(passages[3], indent=1))
    merged, single = (
        race.read_race_examples(str(tmp_path / layout), "dev", middle_only=True)
        for layout in ("merged", "single")
    )
    assert merged == single
    before = race.fingerprint(str(tmp_path / "single"), "dev", middle_only=True)
    (folder / "5.txt").write_text(json.dumps({**passages[5], "answers": ["B", "D"]}))
    assert race.fingerprint(str(tmp_path / "single"), "dev", middle_only=True) != before


def test_all_txt_wins_over_single_files(tmp_path):
    folder = write_passages(tmp_path)
    (folder / "1.txt").write_text("not JSON")
    assert len(race.read_race_examples(str(tmp_path), "dev", middle_only=True)) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"answers": ["A"]}, "answers must be 2, one per question; found 1"),
        ({"answers": ["A", "E"]}, "question 2: answer 'E', expected one of A, B, C, D"),
        ({"options": [["a", "b", "c"], ["a"] * 4]}, "question 1: expected 4 options, found"),
        ({"options": [["a"] * 4]}, "options must be 2, one per question; found 1"),
        ({"questions": ["a", 2]}, r"passage\.questions\[1\]: expected text, found whole number"),
        ({"questions": None}, r"passage\.questions: expected list, found null"),
        ({"article": 3}, r"passage\.article: expected text, found whole number"),
        ({"id": None}, r"passage\.id: expected text or whole number, found null"),
        (None, "passage: there is no 'article'"),
    ],
)
def test_what_does_not_fit_is_named_with_its_line(tmp_path, change, message):
    bad = {**PASSAGE, **(change or {})}
    if change is None:
        del bad["article"]
    write_passages(tmp_path, passages=[PASSAGE, bad])
    with pytest.raises(file_io.InputError, match=r"dev/middle/all\.txt line 2: " + message):
        race.read_race_examples(str(tmp_path), "dev", middle_only=True)


def test_bad_files_are_named(tmp_path):
    def read():
        return race.read_race_examples(str(tmp_path), "dev", middle_only=True)

    with pytest.raises(file_io.InputError, match=r"RACE/dev/middle does not exist; .* data_dir"):
        read()
    folder = write_passages(tmp_path)
    path = folder / "all.txt"
    with pytest.raises(file_io.InputError, match=r"dev is in .*RACE itself: give the folder above"):
        race.read_race_examples(str(tmp_path / "RACE"), "dev")
    whole = path.read_text()
    path.write_text(whole + whole[:40] + "\n")
    with pytest.raises(file_io.InputError, match=r"all\.txt line 2: .* JSON object .*art"):
        read()
    path.write_text(whole + "[1]\n")
    with pytest.raises(file_io.InputError, match="line 2: passage: expected object, found list"):
        read()
    path.write_bytes(whole.encode() + b'{"id": "\xff"}\n')
    with pytest.raises(file_io.InputError, match="line 2: not UTF-8 text"):
        read()
    path.write_text("\n")
    with pytest.raises(file_io.InputError, match="there is no question in the dev data"):
        read()
    path.unlink()
    with pytest.raises(file_io.InputError, match=r"holds no \.txt file"):
        read()
    (folder / "1.txt").write_text(json.dumps({**PASSAGE, "answers": ["A", "b"]}))
    with pytest.raises(file_io.InputError, match=r"dev/middle/1\.txt: question 2: answer 'b'"):
        read()
    with pytest.raises(file_io.InputError, match="high_only and middle_only contradict"):
        race.read_race_examples(str(tmp_path), "dev", high_only=True, middle_only=True)


@pytest.mark.parametrize(
    ("levels", "ids", "places"),
    [
        (["middle", "high"], ["1.txt"], ("high/all.txt line 1", "middle/all.txt line 1")),
        (["middle"], [12, "12"], ("middle/all.txt line 2", "middle/all.txt line 1")),
    ],
)
def test_two_passages_with_one_id_are_named(tmp_path, levels, ids, places):
    for level in levels:
        write_passages(tmp_path, level=level, passages=[{**PASSAGE, "id": i} for i in ids])
    only = {} if len(levels) == 2 else {"middle_only": True}
    second, first = places
    text = f"{second}: the id '{ids[0]}' is already that of .*{first}; give each"
    with pytest.raises(file_io.InputError, match=text):
        race.read_race_examples(str(tmp_path), "dev", **only)


# --- features ---------------------------------------------------------------------------------


def test_the_article_is_cut_at_its_end_and_the_ending_at_its_start(tokenizer, tmp_path):
    write_passages(tmp_path)
    example = race.read_race_examples(str(tmp_path), "dev", middle_only=True)[0]
    article, ending = tokenizer.encode(example.article), tokenizer.encode(example.endings[1])
    assert len(article) > 4 and len(ending) > 5
    features = race.convert_example(example, 12, 5, tokenizer)
    ids = features["input_ids"].reshape(4, 12)
    assert ids[1].tolist() == [
        *(tokenizer.cls_id, *article[:4], tokenizer.sep_id),
        *(*ending[-5:], tokenizer.sep_id),
    ]
    assert features["segment_ids"].reshape(4, 12)[1].tolist() == [0] * 6 + [1] * 6
    wide = race.convert_example(example, 64, 40, tokenizer)
    lengths = wide["input_mask"].reshape(4, 64).sum(axis=1)
    expected = [len(article) + len(tokenizer.encode(text)) + 3 for text in example.endings]
    assert lengths.tolist() == expected
    assert wide["label_ids"] == 0 and wide["is_real_example"] == 1


def test_a_task_writes_what_it_declares(tokenizer, tmp_path):
    write_passages(tmp_path, level="high")
    paths = {split: str(tmp_path / f"{split}.tf_record") for split in ("dev", "test")}
    cache = example_data.FeatureCache(paths, {}, STRATEGY)
    data = race.make_data(tokenizer, 32, 8, str(tmp_path), cache, high_only=True)
    assert data.records("dev") == [paths["dev"]]
    (serialized,) = tf.data.TFRecordDataset(paths["dev"]).batch(1).take(1)
    features = input_pipeline.parse(data.specs("dev"), serialized)
    assert features["input_ids"].shape == [1, 4, 32]
    assert features["level"] == race.LEVELS.index("high")


@pytest.mark.parametrize("max_qa_length", [0, 29])
def test_a_length_without_room_for_the_article_is_refused(tokenizer, max_qa_length):
    with pytest.raises(file_io.InputError, match=f"max_qa_length={max_qa_length} .* 4 below .*=32"):
        race.make_data(tokenizer, 32, max_qa_length, "", None)
    race.make_data(tokenizer, 32, 28, "", None)


# --- scores -----------------------------------------------------------------------------------


def rows_of(labels, predictions, levels, real=None):
    count = len(labels)
    return {
        "label_ids": np.array(labels), "predictions": np.array(predictions),
        "level": np.array(levels), "per_example_loss": np.arange(count, dtype=np.float32),
        "is_real_example": np.ones(count, int) if real is None else np.array(real),
    }  # fmt: skip


def test_middle_high_and_overall_are_reported_apart():
    evaluator = race.Evaluator()
    evaluator.update(rows_of([0, 1, 2], [0, 1, 0], [0, 1, 1]))
    evaluator.update(rows_of([3, 3], [3, 3], [1, 1], real=[1, 0]))
    result = evaluator.result()
    assert result["eval_accuracy"] == 0.75
    assert result["eval_accuracy_middle"] == 1
    assert result["eval_accuracy_high"] == pytest.approx(2 / 3)
    assert result["eval_loss"] == result["loss"] == pytest.approx((0 + 1 + 2 + 0) / 4)
    assert evaluator.baseline()["eval_accuracy"] == 0.25
    assert evaluator.classes()[2:] == (("C", 1, 0, 0), ("D", 1, 1, 1))


def test_a_level_without_questions_is_left_out():
    evaluator = race.Evaluator()
    evaluator.update(rows_of([0], [0], [1]))
    assert set(evaluator.result()) == {"eval_accuracy", "eval_accuracy_high", "eval_loss", "loss"}


def test_prediction_files(tmp_path):
    rows = rows_of([0, 1], [0, 3], [0, 1])
    rows["probabilities"] = np.float32([[0.7, 0.1, 0.1, 0.1], [0.25, 0.25, 0, 0.5]])
    found = race.write_predictions(str(tmp_path), rows, ["middle7.txt#1", "high1.txt#1"])
    assert found["eval_accuracy"] == 0.5
    assert (tmp_path / "predict_results.txt").read_text() == (
        "eval_accuracy = 0.5\neval_accuracy_high = 0.0\neval_accuracy_middle = 1.0\n"
        "eval_loss = 0.5\nloss = 0.5\n"
    )
    assert (tmp_path / "predictions.tsv").read_text().splitlines() == [
        "id\tprediction\tprobability_A\tprobability_B\tprobability_C\tprobability_D",
        "middle7.txt#1\tA\t0.7\t0.1\t0.1\t0.1",
        "high1.txt#1\tD\t0.25\t0.25\t0.0\t0.5",
    ]
