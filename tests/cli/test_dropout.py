"""Flags of dropout: what they set in models and folders, what they refuse, what the log says."""

import importlib
import json
import pathlib
import types

import numpy as np
import pytest
import tensorflow as tf
from absl import logging

from albert import run_squad_v1
from albert.cli import training
from albert.io import file_io
from albert.model import encoder, layers, sources
from albert.text import text_rules
from albert.training import stages
from tests.support import command_lines

SPM = pathlib.Path(__file__).parent.parent / "testdata" / "tiny.model"
ENCODER = ("hidden_dropout_prob", "attention_probs_dropout_prob")
OF_SCRIPTS = {
    "run_pretraining": {"input_file": "records"},
    "run_classifier": {"task_name": "sst-2", "data_dir": "glue"},
    "run_race": {"data_dir": "race", "max_qa_length": 20},
    "run_squad_v1": {},
    "run_squad_v2": {},
}
WITH_HEAD = ("run_classifier", "run_race", "run_squad_v2")


def given(script):
    return [f"--{name}={value}" for name, value in OF_SCRIPTS[script].items()]


def config_file(folder, **rates):
    config = encoder.AlbertConfig(
        vocab_size=400, embedding_size=8, hidden_size=16, num_hidden_layers=1,
        num_attention_heads=2, intermediate_size=16, max_position_embeddings=64, **rates,
    )  # fmt: skip
    file_io.write_text(str(folder / "config.json"), config.to_json_string())
    return folder / "config.json"


@pytest.fixture
def started(monkeypatch, run_script, tmp_path):
    """``started(script, **flags)``: the task and the run that a script would start."""
    found = []
    monkeypatch.setattr(stages, "run", lambda task, data, run: found.append((task, run)))

    def start(script, **given):
        module = importlib.import_module(f"albert.{script}")
        run_script(
            module, albert_config_file=config_file(tmp_path), spm_model_file=SPM,
            output_dir=tmp_path / "out", do_train=True, max_seq_length=64,
            **{} if script == "run_pretraining" else {"from_scratch": True},
            **OF_SCRIPTS[script], **given,
        )  # fmt: skip
        return found.pop()

    return start


@pytest.fixture
def told(monkeypatch):
    found = []
    monkeypatch.setattr(logging, "info", lambda text, *rest: found.append(text % rest))
    return found


@pytest.mark.parametrize("script", OF_SCRIPTS)
def test_every_training_script_has_the_flags(script):
    values = command_lines.define(script)
    assert all(values[name].default is None for name in ENCODER)
    assert ("classifier_dropout_prob" in values) == (script in WITH_HEAD)
    if script in WITH_HEAD:
        values(["script", "--output_dir=x", *given(script)])
        assert values.classifier_dropout_prob == 0.1


@pytest.mark.parametrize("script", ["run_race", "run_squad_v2"])
def test_one_rate_may_have_two_names(script):
    values = command_lines.define(script)
    required = ["--output_dir=x", *given(script)]
    values(["script", *required, "--classifier_dropout_prob=0.3"])
    assert values.dropout_prob == values.classifier_dropout_prob == 0.3
    values(["script", *required, "--dropout_prob=0.4"])
    assert values.dropout_prob == values.classifier_dropout_prob == 0.4


@pytest.mark.parametrize("script", OF_SCRIPTS)
@pytest.mark.parametrize("rate", ["1", "-0.1", "nan"])
def test_what_is_no_share_is_refused(started, script, rate):
    names = ENCODER + ("classifier_dropout_prob",) * (script == "run_classifier")
    more = {"train_file": "x"} if "squad" in script else {}
    for name in names:
        with pytest.raises(file_io.InputError, match=f"^--{name}=.* fraction"):
            started(script, **more, **{name: rate})


def test_the_configuration_decides_what_is_not_given(tmp_path, told):
    rates = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.0}
    source = sources.Source(
        str(config_file(tmp_path, **rates)), None, None, None, text_rules.TextRules(True)
    )

    def read(*given):
        settings = command_lines.read(run_squad_v1, "--output_dir=x", *given)
        return training.read_config(settings, source)

    config = read("--do_train")
    assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == (0.2, 0.0)
    assert told == ["Dropout: hidden_dropout_prob 0.2, attention_probs_dropout_prob 0"]
    config = read("--do_train", "--hidden_dropout_prob=0", "--attention_probs_dropout_prob=0.1")
    assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == (0.0, 0.1)
    assert told[1:] == [
        "Dropout: hidden_dropout_prob 0, attention_probs_dropout_prob 0.1; "
        f"{source.config_file} says 0 for attention_probs_dropout_prob"
    ]
    read("--do_predict")
    assert len(told) == 2  # Only training drops anything.


def features():
    rows = {name: tf.ones([4, 8], tf.int32) for name in ("input_ids", "input_mask", "segment_ids")}
    return {**rows, "masked_lm_positions": tf.ones([4, 2], tf.int32)}


def is_dropped(task, run, output):
    """Returns whether the model's outputs differ between training and prediction."""
    model = task.build_model(run.model_config, layers.Compute(), 1)
    inputs = features()
    if "race" in task.name:
        inputs = {name: tf.reshape(x, [1, 4, -1]) for name, x in inputs.items()}
    seed = tf.constant([1, 2])
    found = [model(inputs, training, seed)[output].numpy() for training in (False, True)]
    return not np.allclose(*found, atol=1e-6)


@pytest.mark.parametrize("script", ["run_classifier", "run_race"])
def test_rates_reach_model_and_folder(started, tmp_path, told, script):
    assert is_dropped(*started(script), "logits")
    assert not is_dropped(*started(script, classifier_dropout_prob=0), "logits")
    rates = {"hidden_dropout_prob": 0.25, "attention_probs_dropout_prob": 0.0}
    task, run = started(script, classifier_dropout_prob=0, hidden_dropout_prob=0.25)
    assert is_dropped(task, run, "logits")
    run.complete_folder(True)
    config = json.loads((tmp_path / "out" / "albert_config.json").read_text())
    assert {name: config[name] for name in ENCODER} == rates
    settings = json.loads((tmp_path / "out" / "model.json").read_text())["settings"]
    name = "classifier_dropout_prob" if script == "run_classifier" else "dropout_prob"
    assert settings[name] == 0
    assert "attention_probs_dropout_prob 0, classifier_dropout_prob 0; " in told[-1]
    # A run without training drops nothing, so its rates are no reason for a warning.
    warned = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logging, "warning", lambda text, *rest: warned.append(text % rest))
        _, later = started(script)
        later.complete_folder(False)
        assert not warned
        _, later = started(script, do_lower_case=False)
        later.complete_folder(False)
        assert len(warned) == 1 and "do_lower_case" in warned[0] and "dropout" not in warned[0]


def test_rates_of_pretraining_reach_model_and_folder(started, tmp_path, monkeypatch):
    data = types.SimpleNamespace(files=lambda split: [])
    monkeypatch.setattr("albert.run_pretraining.make_data", lambda *arguments, **_: data)
    (tmp_path / "out").mkdir()
    assert not is_dropped(*started("run_pretraining"), "masked_lm_logits")
    task, run = started("run_pretraining", hidden_dropout_prob=0.25)
    assert is_dropped(task, run, "masked_lm_logits")
    run.complete_folder(True)
    config = json.loads((tmp_path / "out" / "albert_config.json").read_text())
    assert (config["hidden_dropout_prob"], config["attention_probs_dropout_prob"]) == (0.25, 0.0)
