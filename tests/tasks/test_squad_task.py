"""The SQuAD tasks: rows of batches, answers and scores; files of features that are made once."""

import json
import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from albert.data import input_options, input_pipeline
from albert.io import file_io
from albert.model import heads, layers
from albert.tasks.squad import answers as squad_answers
from albert.tasks.squad import features as squad_features
from albert.tasks.squad import question_files
from albert.tasks.squad import records as squad_records
from albert.tasks.squad import task as squad_task
from albert.training import engine
from tests.support import builders, squad_samples

V1 = squad_task.Settings(48, 16, 10, 20, 30)
V2 = squad_task.Settings(48, 16, 10, 20, 30, start_n_top=3, end_n_top=4, dropout_prob=0.1)
CONFIG = builders.tiny_config()


@pytest.fixture(scope="module")
def squad_file(tmp_path_factory):
    return squad_samples.write_long_context(tmp_path_factory.mktemp("data"))


def files_of(tokenizer, settings, **files):
    strategy = tf.distribute.get_strategy()
    return question_files.QuestionFiles("squad_v1", settings, tokenizer, "", strategy, **files)


def make_questions(folder, squad_file, tokenizer, settings=V1):
    paths = [str(folder / name) for name in ("predict.tf_record", "left.json")]
    names = ("predict_feature_file", "predict_feature_left_file")
    files = dict(zip(names, paths, strict=True), predict_file=squad_file)
    return paths, files_of(tokenizer, settings, **files).to_answer


def make_training_records(path, squad_file, tokenizer, **settings):
    files = {"train_file": squad_file, "train_feature_file": path}
    return files_of(tokenizer, V1, **files, **settings).train_records()


# --- rows and answers ---------------------------------------------------------------------------


def run_config(folder, batch_size):
    return engine.RunConfig(str(folder), 0, 8, batch_size, batch_size, 1, 1, 1, 1, seed=3)


@pytest.mark.slow
@pytest.mark.parametrize("kind", squad_task.KINDS)
def test_batches_of_all_lengths_give_the_same_answers(squad_file, tokenizer, tmp_path, kind):
    """Rows have one shape whatever a batch was cut to, and cutting does not change answers."""
    settings = {"squad_v1": V1, "squad_v2": V2}[kind]
    paths, questions = make_questions(tmp_path, squad_file, tokenizer, settings)
    task = squad_task.make_task(kind, settings, lambda: questions)
    specs = squad_records.feature_specs(48, is_training=False)
    found = []
    for batch_size, trims in ((1, True), (7, True), (7, False)):
        runner = engine.Engine(
            task, CONFIG, run_config(tmp_path, batch_size), tf.distribute.get_strategy()
        )
        evaluator = task.evaluator()
        rows = runner.predict(
            input_pipeline.eval_input_fn(paths[:1], specs, input_options.EvalInput(trims))
        )
        evaluator.update(rows)
        found.append(evaluator.answers())
        scores = runner.evaluate(
            input_pipeline.eval_input_fn(paths[:1], specs, input_options.EvalInput(trims))
        )
        assert scores == evaluator.score(found[-1])
    for other in found[1:]:
        assert other.texts == found[0].texts
        for key, answers in other.nbest.items():
            probabilities = [answer["probability"] for answer in answers]
            expected = [answer["probability"] for answer in found[0].nbest[key]]
            np.testing.assert_allclose(probabilities[:3], expected[:3], atol=1e-4)
    assert set(found[0].texts) == {example.qas_id for example in questions.examples}


def test_the_answers_are_those_of_the_recorded_rules(squad_file, tokenizer, tmp_path):
    """The evaluator adds nothing to `squad_answers`: same rows and answers, any threshold."""
    _, questions = make_questions(tmp_path, squad_file, tokenizer, V2)
    rng = np.random.default_rng(5)
    count = len(questions.features)
    rows = {
        "unique_ids": np.array([window.unique_id for window in questions.features]),
        "start_top_log_probs": -np.sort(rng.random((count, 3)).astype(np.float32)),
        "start_top_index": rng.integers(10, 40, (count, 3)),
        "end_top_log_probs": -rng.random((count, 12)).astype(np.float32),
        "end_top_index": rng.integers(10, 40, (count, 12)),
        "cls_logits": rng.normal(size=count).astype(np.float32),
    }
    task = squad_task.make_task(squad_task.V2, V2, lambda: questions)
    evaluator = task.evaluator()
    for half in (slice(0, count // 2), slice(count // 2, None)):
        evaluator.update({name: values[half] for name, values in rows.items()})
    answers = evaluator.answers()
    results = {
        int(number): {name: values[i] for name, values in rows.items()}
        for i, number in enumerate(rows["unique_ids"])
    }
    _, nbest, null_odds = squad_answers.predictions_v2(
        questions.examples, questions.features, results, 20, 30, 3, 4
    )
    assert answers.nbest == nbest and answers.null_odds == null_odds
    assert answers.texts == {key: found[0]["text"] for key, found in nbest.items()}
    scores = evaluator.result()
    assert {"exact", "f1", "total", "null_score_diff_threshold", "HasAns_f1", "NoAns_f1"} <= set(
        scores
    )
    assert (scores["total"], scores["HasAns_total"], scores["NoAns_total"]) == (30, 24, 6)
    assert evaluator.baseline() == {"exact": 20.0, "f1": 20.0}  # no answer to anything
    assert {"f1_at_0", "HasAns_f1_at_0", "NoAns_f1_at_0", "best_f1_thresh"} <= set(scores)


def test_windows_without_scores_are_an_error(squad_file, tokenizer, tmp_path):
    _, questions = make_questions(tmp_path, squad_file, tokenizer)
    evaluator = squad_task.make_task(squad_task.V1, V1, lambda: questions).evaluator()
    with pytest.raises(file_io.InputError, match=r"windows have no scores; the first is window"):
        evaluator.result()


def test_models_are_those_of_the_settings():
    def build(kind, settings):
        return squad_task.make_task(kind, settings).build_model(CONFIG, layers.Compute(), 1)

    assert isinstance(build(squad_task.V1, V1), heads.SquadV1Model)
    model = build(squad_task.V2, V2)
    features = {
        "input_ids": tf.ones([2, 16], tf.int32),
        "p_mask": tf.zeros([2, 16], tf.int32),
        "unique_ids": tf.constant([[7], [8]]),
    }
    task = squad_task.make_task(squad_task.V2, V2)
    rows = task.eval_outputs(model(features), features)
    assert rows["end_top_index"].shape == [2, 12] and rows["cls_logits"].shape == [2]
    assert rows["unique_ids"].numpy().tolist() == [7, 8]


@pytest.mark.parametrize(
    ("answers", "impossible", "known"),
    [
        ([("a",), ()], [False, False], True),
        ([("a",), None], [False, False], False),
        ([(), ()], [False, False], False),  # how questions are given out without answers
        ([(), ()], [False, True], True),
    ],
)
def test_when_answers_are_known(answers, impossible, known):
    examples = [
        squad_features.SquadExample(str(i), "q", "c", answers=a, is_impossible=b)
        for i, (a, b) in enumerate(zip(answers, impossible, strict=True))
    ]
    assert squad_answers.Questions(examples, []).answers_known == known


# --- records ------------------------------------------------------------------------------------


def parsed(path, is_training):
    specs = squad_records.feature_specs(48, is_training)
    return input_pipeline.parse(specs, tf.stack(list(tf.data.TFRecordDataset(path))))


def modified(*paths):
    return [os.stat(path).st_mtime_ns for path in paths]


def test_training_records_hold_the_features(squad_file, tokenizer, tmp_path):
    path = str(tmp_path / "train.tf_record")
    examples = squad_answers.read_squad_examples(squad_file, is_training=True)
    assert make_training_records(path, squad_file, tokenizer) == path
    columns = parsed(path, is_training=True)
    shuffled = squad_answers.shuffle_examples(examples)
    expected = list(
        squad_features.convert_examples_to_features(shuffled, tokenizer, 48, 16, 10, True, True)
    )
    assert len(expected) > len(examples)
    for name in ("input_ids", "input_mask", "segment_ids", "p_mask"):
        np.testing.assert_array_equal(columns[name], [getattr(f, name) for f in expected])
    np.testing.assert_array_equal(columns["unique_ids"], [f.unique_id for f in expected])
    np.testing.assert_array_equal(columns["start_positions"], [f.start_position for f in expected])
    np.testing.assert_array_equal(columns["end_positions"], [f.end_position for f in expected])
    np.testing.assert_array_equal(columns["is_impossible"], [f.is_impossible for f in expected])
    before = modified(path)
    make_training_records(path, squad_file, tokenizer)
    assert modified(path) == before


def test_features_for_prediction_are_kept(squad_file, tokenizer, tmp_path):
    paths, made = make_questions(tmp_path, squad_file, tokenizer)
    before = modified(*paths)
    _, read = make_questions(tmp_path, squad_file, tokenizer)
    assert modified(*paths) == before
    numbers = [window.unique_id for window in made.features]
    assert [window.unique_id for window in read.features] == numbers
    assert [w.tok_end_to_orig_index for w in read.features] == [
        w.tok_end_to_orig_index for w in made.features
    ]
    np.testing.assert_array_equal(parsed(paths[0], is_training=False)["unique_ids"], numbers)


def test_features_of_other_settings_are_made_again(squad_file, tokenizer, tmp_path, caplog):
    paths, before = make_questions(tmp_path, squad_file, tokenizer)
    other = squad_task.Settings(48, 8, 10, 20, 30)
    with caplog.at_level("WARNING", logger="absl"):
        _, after = make_questions(tmp_path, squad_file, tokenizer, other)
    assert "left.json was made with doc_stride = 16, now it is 8" in caplog.text
    assert len(after.features) > len(before.features)
    assert len(list(tf.data.TFRecordDataset(paths[0]))) == len(after.features)
    # How many answers are kept does not change features.
    moment = modified(*paths)
    make_questions(tmp_path, squad_file, tokenizer, squad_task.Settings(48, 8, 10, 3, 4))
    assert modified(*paths) == moment


def test_long_questions_are_counted_in_the_log(squad_file, tokenizer, tmp_path, caplog):
    data = json.loads(file_io.read_text(squad_file, "data"))
    questions = data["data"][0]["paragraphs"][0]["qas"]
    questions[0]["question"] = "who was there ? " * 5
    questions[1]["question"] = "e" * 40  # more bytes than --max_query_length, but one piece or few
    number = sum(
        len(tokenizer.encode(qa["question"])) > V1.max_query_length
        for paragraph in data["data"][0]["paragraphs"]
        for qa in paragraph["qas"]
    )
    (tmp_path / "long.json").write_text(json.dumps(data))
    with caplog.at_level("WARNING", logger="absl"):
        make_questions(tmp_path, str(tmp_path / "long.json"), tokenizer)
    assert f"{number} of 30 questions were cut: they have more than" in caplog.text and number


@pytest.mark.parametrize("lost", [0, 1])
def test_a_file_that_is_lost_or_cut_is_made_again(squad_file, tokenizer, tmp_path, lost):
    paths, _ = make_questions(tmp_path, squad_file, tokenizer)
    contents = [pathlib.Path(path).read_bytes() for path in paths]
    os.remove(paths[lost])
    make_questions(tmp_path, squad_file, tokenizer)
    assert [pathlib.Path(path).read_bytes() for path in paths] == contents
    pathlib.Path(paths[lost]).write_bytes(contents[lost][:-40])
    make_questions(tmp_path, squad_file, tokenizer)
    assert [pathlib.Path(path).read_bytes() for path in paths] == contents


def test_a_file_of_something_else_is_not_replaced(squad_file, tokenizer, tmp_path):
    (tmp_path / "left.json").write_text("my notes")
    with pytest.raises(file_io.InputError, match=r"left\.json is not a file of SQuAD features"):
        make_questions(tmp_path, squad_file, tokenizer)
    assert (tmp_path / "left.json").read_text() == "my notes"


def test_texts_without_text_are_counted_and_none_at_all_is_an_error(
    squad_file, tokenizer, tmp_path, caplog
):
    data = json.loads(file_io.read_text(squad_file, "data"))
    data["data"][0]["paragraphs"][0]["context"] = " \t"
    path = tmp_path / "gap.json"
    path.write_text(json.dumps(data))
    with caplog.at_level("WARNING", logger="absl"):
        _, questions = make_questions(tmp_path, str(path), tokenizer)
    assert "5 of 30 questions cannot be used: 5 because the paragraph has no text" in caplog.text
    assert len(questions.examples) == 30
    data["data"][0]["paragraphs"] = data["data"][0]["paragraphs"][:1]
    path.write_text(json.dumps(data))
    with pytest.raises(file_io.InputError, match="none of the 5 contexts has any text"):
        make_questions(tmp_path, str(path), tokenizer)


def test_processes_make_the_same_records(squad_file, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(squad_records, "MIN_EXAMPLES_PER_PROCESS", 1)
    contents = []
    for processes in (1, 2):
        path = tmp_path / f"{processes}.tf_record"
        make_training_records(str(path), squad_file, tokenizer, num_processes=processes)
        contents.append(path.read_bytes())
    assert contents[0] == contents[1]
