"""Forged records of features, with right checksums and manifests: refused by file and number."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from albert.data import input_options, input_pipeline, record_files, record_values
from albert.io.file_io import InputError
from albert.tasks import example_data, glue, race, token_classification, word_files
from albert.tasks.squad import question_files
from albert.tasks.squad import records as squad_records
from albert.tasks.squad import task as squad_task
from tests.support import builders

LENGTH = 16
CONFIG = builders.tiny_config(vocab_size=160, type_vocab_size=2)
STRATEGY = tf.distribute.get_strategy()
CACHE = example_data.FeatureCache({}, {}, STRATEGY)


def glue_data(name):
    task = glue.get_task(name)
    return glue.make_data(task, None, LENGTH, "", CACHE)


def race_data():
    return race.make_data(None, LENGTH, 8, "", CACHE)


def token_data():
    files = token_classification.Files({}, word_files.Columns(), ("O", "B-A", "I-A"))
    return token_classification.TokenData(
        cache=CACHE, sentence_files=files, tokenizer=None, max_seq_length=LENGTH
    )


def squad_data():
    settings = squad_task.Settings(LENGTH, 4, 4, 20, 8, 2, 2)
    data = question_files.QuestionFiles("squad_v2", settings, None, "", STRATEGY).data()
    # The places of answers, which an evaluation adds, need a file of questions.
    return dataclasses.replace(data, eval_input=input_options.EvalInput())


DATA = {
    "MNLI": lambda: glue_data("MNLI"),
    "STS-B": lambda: glue_data("STS-B"),
    "RACE": race_data,
    "words": token_data,
    "SQuAD": squad_data,
}


def write(path, specs, name=None, place=(), value=None):
    """40 records of ones, of which the 38th has another value; with a manifest."""
    rows = [{spec.name: np.ones(spec.shape, spec.dtype) for spec in specs} for _ in range(40)]
    if name:
        rows[37][name][place] = value
    record_files.write(path, specs, rows, {})
    return [path]


def read_all(data, paths, split):
    """Reads the batches of training, or those of an evaluation, as a run does."""
    specs, params = data.specs(split), {"batch_size": 8}
    train = input_pipeline.train_input_fn(paths, specs, 1, data.train_input)
    evaluation = input_pipeline.eval_input_fn(paths, specs, data.eval_input)
    with data.reading(paths):
        return list(train(params).take(5) if split == "train" else evaluation(params))


ids, labels = "input_ids", "label_ids"
FORGED = [
    ("MNLI", ids, (3,), 160, r"input_ids\[3\] = 160, expected 0 to 159"),
    ("MNLI", ids, (3,), -1, r"input_ids\[3\] = -1, expected 0 to 159"),
    ("MNLI", ids, (3,), 2**40 + 5, r"input_ids\[3\] = 1099511627781: a number does not fit in 32"),
    ("MNLI", "segment_ids", (5,), 2, r"segment_ids\[5\] = 2, expected 0 to 1"),
    ("MNLI", "input_mask", (5,), 9, r"input_mask\[5\] = 9, expected 0 to 1"),
    ("MNLI", labels, (), 3, r"label_ids = 3, expected 0 to 2"),
    ("MNLI", labels, (), -1, r"label_ids = -1, expected 0 to 2"),
    ("MNLI", "is_real_example", (), -5, r"is_real_example = -5, expected 0 to 1"),
    ("STS-B", ids, (3,), 160, r"input_ids\[3\] = 160, expected 0 to 159"),
    ("STS-B", labels, (), np.nan, r"label_ids = nan, expected a finite number"),
    ("STS-B", labels, (), -np.inf, r"label_ids = -inf, expected a finite number"),
    ("RACE", ids, (2, 3), 160, r"input_ids\[2\]\[3\] = 160, expected 0 to 159"),
    ("RACE", labels, (), 4, r"label_ids = 4, expected 0 to 3"),
    ("RACE", "level", (), 2, r"level = 2, expected 0 to 1"),
    ("words", ids, (3,), 160, r"input_ids\[3\] = 160, expected 0 to 159"),
    ("words", labels, (7,), 3, r"label_ids\[7\] = 3, expected 0 to 2"),
    ("words", "first_pieces", (7,), 2, r"first_pieces\[7\] = 2, expected 0 to 1"),
    ("SQuAD", ids, (3,), 160, r"input_ids\[3\] = 160, expected 0 to 159"),
    ("SQuAD", "p_mask", (3,), -1, r"p_mask\[3\] = -1, expected 0 to 1"),
]


def checked(data):
    return data.with_limits(record_values.limits_of_model(CONFIG))


def assert_refused(folder, split, task, name, place, value, message):
    data = checked(DATA[task]())
    paths = write(str(folder / "x.tf_record"), data.specs(split), name, place, value)
    with pytest.raises(InputError, match=rf"x\.tf_record, record 38: {message}"):
        read_all(data, paths, split)


@pytest.mark.parametrize(("task", "name", "place", "value", "message"), FORGED)
def test_forged_features_are_refused(tmp_path, task, name, place, value, message):
    assert_refused(tmp_path, "train", task, name, place, value, message)


@pytest.mark.parametrize("forged", [next(f for f in FORGED if f[0] == task) for task in DATA])
def test_forged_features_are_refused_in_an_evaluation(tmp_path, forged):
    assert_refused(tmp_path, "dev", *forged)


@pytest.mark.parametrize(
    ("name", "value", "high"),
    [("start_positions", LENGTH, 15), ("end_positions", -1, 15), ("is_impossible", 2, 1)],
)
def test_forged_places_of_answers_are_refused(tmp_path, name, value, high):
    data = checked(squad_data())
    paths = write(str(tmp_path / "x.tf_record"), data.specs("train"), name, (), value)
    message = rf"x\.tf_record, record 38: {name} = {value}, expected 0 to {high}: delete the file"
    with pytest.raises(InputError, match=message):
        read_all(data, paths, "train")


@pytest.mark.slow
@pytest.mark.parametrize("task", DATA)
def test_what_is_right_is_read_as_before(tmp_path, task):
    plain = DATA[task]()
    data = checked(plain)
    for split in ("train", "dev"):
        paths = write(str(tmp_path / split), data.specs(split))
        found, expected = read_all(data, paths, split), read_all(plain, paths, split)
        for batch, other in zip(found, expected, strict=True):
            assert batch.keys() == other.keys()
            for name, values in batch.items():
                np.testing.assert_array_equal(values, other[name])


def test_several_files_with_other_features(tmp_path):
    """The records of a training and of what is predicted are read in one block."""
    data = checked(squad_data())
    train = write(str(tmp_path / "a"), squad_records.feature_specs(LENGTH, True))
    specs = squad_records.feature_specs(LENGTH, False)
    dev = write(str(tmp_path / "b"), specs, "segment_ids", (2,), 2)
    input_fn = input_pipeline.eval_input_fn(dev, specs, data.eval_input)
    message = r"b, record 38: segment_ids\[2\] = 2, expected 0 to 1"
    with pytest.raises(InputError, match=message), data.reading([*train, *dev]):
        list(input_fn({"batch_size": 8}))
