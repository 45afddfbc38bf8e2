"""The files of pre-training next to its checkpoints."""

import dataclasses

import pytest
from absl import logging

from albert.io import file_io
from albert.model import checkpoints, encoder, model_folder, pretraining_heads, sources
from albert.text import text_rules
from tests.support.sources import ROOT

CONFIG = encoder.AlbertConfig(
    vocab_size=40, embedding_size=8, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
    intermediate_size=16, max_position_embeddings=16,
)  # fmt: skip
NO_FILES = sources.Source("", None, None, None, text_rules.TextRules(True))


def test_the_configuration_is_that_of_the_run(tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr(logging, "info", lambda text, *rest: told.append(text % rest))
    path = tmp_path / sources.CONFIG_NAME
    model_folder.write_pretrained(str(tmp_path), CONFIG, "sop")
    assert encoder.AlbertConfig.from_json_file(path) == CONFIG and not told
    # One that says the same stays as it is written.
    path.write_text(path.read_text() + "\n\n")
    model_folder.write_pretrained(str(tmp_path), CONFIG, "sop")
    assert path.read_text().endswith("\n\n\n") and not told
    other = dataclasses.replace(CONFIG, hidden_dropout_prob=0.1, share="none")
    model_folder.write_pretrained(str(tmp_path), other, "sop")
    assert encoder.AlbertConfig.from_json_file(path) == other
    changes = "hidden_dropout_prob 0.1 (was 0.0), share none (was all)"
    assert told == [f"{path} now has the values of this run: {changes}"]


def test_a_damaged_configuration_is_named(tmp_path):
    (tmp_path / sources.CONFIG_NAME).write_text("{")
    with pytest.raises(file_io.InputError, match=sources.CONFIG_NAME):
        model_folder.write_pretrained(str(tmp_path), CONFIG, "sop")


@pytest.mark.parametrize(
    ("flag", "file", "name"),
    [("spm_model_file", "tiny.model", "tiny.model"), ("vocab_file", "tiny_vocab.txt", "vocab.txt")],
)
def test_the_vocabulary_is_left_where_fine_tuning_finds_it(tmp_path, flag, file, name):
    given = str(ROOT / "tests" / "testdata" / file)
    source = dataclasses.replace(NO_FILES, **{flag: given})
    for _ in range(2):
        model_folder.write_pretrained(str(tmp_path), CONFIG, "sop", source)
    assert (tmp_path / name).read_bytes() == (ROOT / "tests" / "testdata" / file).read_bytes()
    save(tmp_path, "sop")
    found = sources.locate(checkpoint=str(tmp_path))
    assert getattr(found, flag) == str(tmp_path / name)
    model_folder.write_pretrained(str(tmp_path), CONFIG, "sop", found)  # the next run of the folder
    assert sorted(path.name for path in tmp_path.iterdir() if "ckpt" not in path.name) == sorted(
        [sources.CONFIG_NAME, sources.PRETRAINING_NAME, sources.RULES_NAME, name]
    )


def test_without_a_vocabulary_none_is_left(tmp_path):
    model_folder.write_pretrained(str(tmp_path), CONFIG, "sop", NO_FILES)
    assert len(list(tmp_path.iterdir())) == 2


def test_pre_training_never_resumes_another_model(tmp_path):
    source = dataclasses.replace(
        NO_FILES, spm_model_file=str(ROOT / "tests" / "testdata" / "tiny.model")
    )
    other = dataclasses.replace(source, spm_model_file=str(tmp_path / "other.model"))
    (tmp_path / "other.model").write_bytes(b"another")
    out = tmp_path / "out"
    out.mkdir()
    model_folder.write_pretrained(str(out), CONFIG, "sop", source)
    save(out, "sop")
    with pytest.raises(file_io.InputError, match=r"tiny.model \(here .*other"):
        model_folder.check_same_pretrained(str(out), other)
    model_folder.check_same_pretrained(str(out), source)
    model_folder.check_same_pretrained(str(out), NO_FILES)
    cased = dataclasses.replace(source, rules=text_rules.TextRules(False, keep_accents=True))
    with pytest.raises(file_io.InputError, match=r"do_lower_case true \(here false\); keep_acc"):
        model_folder.check_same_pretrained(str(out), cased)
    (out / sources.DESCRIPTION_NAME).write_text("{}")
    with pytest.raises(file_io.InputError, match="out holds checkpoints of a fine-tuned model"):
        model_folder.check_same_pretrained(str(out), source)


def save(path, sentence_task):
    model = pretraining_heads.PretrainingModel(CONFIG, seed=1, sentence_task=sentence_task)
    checkpoints.save(str(path / "model.ckpt-3"), model)


def test_the_sentence_task_is_told_by_description_or_variables(tmp_path):
    def found():
        return model_folder.sentence_tasks(str(tmp_path))

    assert found() == model_folder.sentence_tasks("nowhere") == ["sop", "nsp", "none"]
    model_folder.write_pretrained(str(tmp_path), CONFIG, "nsp")
    assert found() == ["sop", "nsp", "none"]  # a run that has no checkpoint yet may be any
    save(tmp_path, "nsp")
    assert found() == ["nsp"]
    description = tmp_path / sources.PRETRAINING_NAME
    description.unlink()
    assert found() == ["sop", "nsp"]
    save(tmp_path, "none")
    assert found() == ["none"]
    for text in ("[]", '{"version": 1}', '{"version": 2, "sentence_task": "sop"}'):
        description.write_text(text)
        with pytest.raises(file_io.InputError, match=f"{description} is not"):
            found()
