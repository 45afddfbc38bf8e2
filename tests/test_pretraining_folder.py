"""What pre-training leaves beside its checkpoints."""

import dataclasses

import pytest
from absl import logging

from albert import file_io, modeling, pretrained, pretraining_folder

CONFIG = modeling.AlbertConfig(vocab_size=40, hidden_size=16, num_attention_heads=2)


def test_the_configuration_is_that_of_the_run(tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr(logging, "info", lambda text, *rest: told.append(text % rest))
    path = tmp_path / pretrained.CONFIG_NAME
    pretraining_folder.write(str(tmp_path), CONFIG)
    assert modeling.AlbertConfig.from_json_file(path) == CONFIG and not told
    # One that says the same stays as it is written.
    path.write_text(path.read_text() + "\n\n")
    pretraining_folder.write(str(tmp_path), CONFIG)
    assert path.read_text().endswith("\n\n\n") and not told
    other = dataclasses.replace(CONFIG, hidden_dropout_prob=0.1)
    pretraining_folder.write(str(tmp_path), other)
    assert modeling.AlbertConfig.from_json_file(path) == other
    assert told == [f"{path} now says what this run trains with: hidden_dropout_prob 0.1 (was 0.0)"]


def test_a_damaged_configuration_is_named(tmp_path):
    (tmp_path / pretrained.CONFIG_NAME).write_text("{")
    with pytest.raises(file_io.InputError, match=pretrained.CONFIG_NAME):
        pretraining_folder.write(str(tmp_path), CONFIG)
