"""The data of SQuAD runs: files of features that are made once, and answers."""

import json
import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from albert import (
    file_io,
    records,
    squad_data,
    squad_records,
    squad_task,
    squad_utils,
    tokenization,
)
from tests import squad_samples

V1 = squad_task.Settings(48, 16, 10, 20, 30)


@pytest.fixture(scope="module")
def tokenizer():
    return tokenization.FullTokenizer(spm_model_file=str(squad_samples.SPM))


@pytest.fixture(scope="module")
def squad_file(tmp_path_factory):
    """Six texts, of which the second is long enough for several windows."""
    data = squad_samples.content("dev", 6, version=2)
    paragraphs = data["data"][0]["paragraphs"]
    paragraphs[1]["context"] = " ".join(p["context"] for p in paragraphs[1:])
    path = str(tmp_path_factory.mktemp("data") / "squad.json")
    file_io.write_json(path, data)
    return path


def parsed(path, is_training):
    specs = squad_records.feature_specs(48, is_training)
    return records.parse(specs, tf.stack(list(tf.data.TFRecordDataset(path))))


def modified(*paths):
    return [os.stat(path).st_mtime_ns for path in paths]


# --- records ------------------------------------------------------------------------------------


def test_training_records_hold_the_features(squad_file, tokenizer, tmp_path):
    path = str(tmp_path / "train.tf_record")
    examples = squad_utils.read_squad_examples(squad_file, is_training=True)
    squad_data.make_training_records(path, squad_file, examples, tokenizer, V1)
    columns = parsed(path, is_training=True)
    shuffled = squad_utils.shuffle_examples(examples)
    wanted = list(
        squad_utils.convert_examples_to_features(shuffled, tokenizer, 48, 16, 10, True, True)
    )
    assert len(wanted) > len(examples)
    for name in ("input_ids", "input_mask", "segment_ids", "p_mask"):
        np.testing.assert_array_equal(columns[name], [getattr(f, name) for f in wanted])
    np.testing.assert_array_equal(columns["unique_ids"], [f.unique_id for f in wanted])
    np.testing.assert_array_equal(columns["start_positions"], [f.start_position for f in wanted])
    np.testing.assert_array_equal(columns["end_positions"], [f.end_position for f in wanted])
    np.testing.assert_array_equal(columns["is_impossible"], [f.is_impossible for f in wanted])
    before = modified(path)
    squad_data.make_training_records(path, squad_file, examples, tokenizer, V1)
    assert modified(path) == before


def make_questions(folder, squad_file, tokenizer, settings=V1):
    paths = [str(folder / name) for name in ("predict.tf_record", "left.json")]
    examples = squad_utils.read_squad_examples(squad_file, is_training=False)
    return paths, squad_data.make_questions(*paths, squad_file, examples, tokenizer, settings)


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
    monkeypatch.setattr(squad_records, "_MIN_EXAMPLES_PER_PROCESS", 1)
    examples = squad_utils.read_squad_examples(squad_file, is_training=True)
    contents = []
    for processes in (1, 2):
        path = tmp_path / f"{processes}.tf_record"
        squad_data.make_training_records(
            str(path), squad_file, examples, tokenizer, V1, num_processes=processes
        )
        contents.append(path.read_bytes())
    assert contents[0] == contents[1]
