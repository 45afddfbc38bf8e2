"""SQuAD records, the processes that make them, and the file of features left for decoding."""

import pickle
import random
import subprocess
import sys

import numpy as np
import pytest

from albert.io.file_io import InputError
from albert.tasks.squad import answer_features
from albert.tasks.squad import features as squad_features
from albert.tasks.squad import records as squad_records
from tests.support.squad_samples import FIELDS, TEXT, features_of, training_example

# --- records and processes -----------------------------------------------------------------------


def _examples(count, is_training):
    rng = random.Random(3)
    sentences = TEXT.split(". ")
    items = []
    for number in range(count):
        text = ". ".join(rng.choices(sentences, k=1 + number % 7))
        answer = rng.choice(text.split()) if number % 3 else ""
        item = training_example(text, answer, number, f"where is the {number}?")
        if not is_training:
            item = squad_features.SquadExample(item.qas_id, item.question_text, text)
        items.append(item)
    if not is_training and count > 5:
        items[5].paragraph_text = ""
    return items


def _records(tokenizer, items, is_training, num_processes=1, **kwargs):
    return squad_records.convert_examples_to_records(
        items, tokenizer, (32, 8, 6), is_training, num_processes, **kwargs
    )


@pytest.mark.parametrize("is_training", [False, True])
def test_records_hold_the_features(tokenizer, is_training):
    import tensorflow as tf

    items = _examples(30, is_training)
    windows = features_of(tokenizer, items, 32, 8, 6, is_training)
    records = list(_records(tokenizer, items, is_training))
    assert len(windows) == len(records) > 60
    columns = {"unique_ids": "unique_id"}
    columns |= {name: name for name in ("input_ids", "input_mask", "segment_ids", "p_mask")}
    if is_training:
        columns |= {"start_positions": "start_position", "end_positions": "end_position"}
        columns |= {"is_impossible": "is_impossible"}
    for window, (record, features) in zip(windows, records, strict=True):
        found = tf.train.Example.FromString(record).features.feature
        assert {name: list(found[name].int64_list.value) for name in found} == {
            name: np.ravel(getattr(window, field)).tolist() for name, field in columns.items()
        }
        if is_training:
            assert features is None
        else:
            assert all(getattr(features, name) == getattr(window, name) for name in FIELDS)


@pytest.fixture
def many_processes(monkeypatch):
    monkeypatch.setattr(squad_records, "MIN_EXAMPLES_PER_PROCESS", 1)


@pytest.mark.slow
@pytest.mark.parametrize("is_training", [False, True])
def test_processes_keep_the_order(tokenizer, wordpiece, many_processes, is_training):
    for each in (tokenizer, wordpiece):
        items = _examples(200, is_training)
        reports = [squad_features.FeatureReport() for _ in range(2)]
        one = list(_records(each, items, is_training, report=reports[0]))
        two = list(_records(each, items, is_training, 2, report=reports[1]))
        assert [record for record, _ in one] == [record for record, _ in two]
        assert reports[0] == reports[1]
        assert reports[0].num_questions == 200
        if not is_training:
            assert reports[0].dropped == {squad_features.NO_TEXT: ["q5"]}
            for (_, a), (_, b) in zip(one, two, strict=True):
                assert all(getattr(a, name) == getattr(b, name) for name in FIELDS)
                assert a.example_index == b.example_index == int(a.qas_id[1:])


def test_a_dead_process_is_an_error(tokenizer, many_processes, monkeypatch):
    popen = subprocess.Popen
    dies = [sys.executable, "-c", "import sys; sys.exit(3)"]
    monkeypatch.setattr(subprocess, "Popen", lambda command, **more: popen(dies, **more))
    with pytest.raises(RuntimeError, match="ended early with code 3"):
        list(_records(tokenizer, _examples(50, True), True, 2))


def test_processes_end_with_the_iterator(tokenizer, many_processes, monkeypatch):
    started = []
    popen = subprocess.Popen

    def start(*args, **kwargs):
        started.append(popen(*args, **kwargs))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    made = _records(tokenizer, _examples(2000, True), True, num_processes=2)
    next(made)
    assert len(started) == 2
    del made
    assert all(process.poll() is not None for process in started)


# --- the file of what is left --------------------------------------------------------------------


def test_features_left_round_trip(tokenizer, tmp_path):
    windows = features_of(tokenizer, _examples(20, False), 32, 8, 6)
    path = str(tmp_path / "left.json")
    made_with = {"max_seq_length": 32, "vocabulary": "x", "lengths": (1, 2)}
    assert answer_features.write(path, iter(windows), made_with) == len(windows)
    read = answer_features.read(path, made_with)
    fields = {*FIELDS, "example_index", "max_context", "text_begin", "text_end"} - {"input_ids"}
    for a, b in zip(windows, read, strict=True):
        assert {name: getattr(a, name) for name in fields} == {
            name: getattr(b, name) for name in fields
        }


def test_features_left_of_other_settings(tmp_path):
    path = str(tmp_path / "left.json")
    answer_features.write(path, [], {"max_seq_length": 32, "doc_stride": 8})
    stale = answer_features.StaleFeaturesError
    with pytest.raises(stale, match="made with doc_stride = 8, now it is 9"):
        answer_features.read(path, {"max_seq_length": 32, "doc_stride": 9})
    with pytest.raises(stale, match="made with extra = None, now it is 1"):
        answer_features.read(path, {"max_seq_length": 32, "doc_stride": 8, "extra": 1})


def test_an_old_pickle_is_refused(tmp_path):
    path = tmp_path / "left.pkl"
    path.write_bytes(pickle.dumps([{"unique_id": 1000000000}]))
    with pytest.raises(InputError, match=r"left\.pkl is a pickle, as the original toolkit"):
        answer_features.read(str(path), {})


def test_our_file_is_no_pickle(tokenizer, tmp_path):
    """The reference fails on it, and runs nothing of it."""
    path = tmp_path / "left.json"
    answer_features.write(str(path), features_of(tokenizer, _examples(3, False)), {})
    with pytest.raises(pickle.UnpicklingError):
        pickle.loads(path.read_bytes())


@pytest.mark.parametrize("content", [b"", b"{}\n", b"\xff\xfe", b"[1, 2]\n", b'{"format": "x"}'])
def test_another_file_is_refused(tmp_path, content):
    path = tmp_path / "left.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"left\.json is not a file of SQuAD features"):
        answer_features.read(str(path), {})


def test_a_damaged_file_is_refused(tokenizer, tmp_path):
    path = tmp_path / "left.json"
    answer_features.write(str(path), features_of(tokenizer, _examples(3, False)), {})
    lines = path.read_text().splitlines(keepends=True)
    for damaged in (
        lines[:-1],
        lines[:-2] + lines[-1:],
        [*lines[:2], "[1]\n", *lines[3:]],
        lines[:1],
    ):
        path.write_text("".join(damaged))
        with pytest.raises(answer_features.StaleFeaturesError, match=r"left\.json is damaged"):
            answer_features.read(str(path), {})
    path.write_text("".join(lines)[:-40])
    with pytest.raises(answer_features.StaleFeaturesError, match=r"left\.json is damaged"):
        answer_features.read(str(path), {})
    path.write_text(lines[0].replace('"version": 3', '"version": 9'))
    with pytest.raises(answer_features.StaleFeaturesError, match="version 9, expected 3"):
        answer_features.read(str(path), {})
