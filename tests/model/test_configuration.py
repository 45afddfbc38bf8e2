"""The configuration: what is read, what is refused, and what the messages say."""

import dataclasses
import json

import pytest

from albert.io import file_io
from albert.model import configuration, encoder
from tests.support import builders


def tiny_config(**changes):
    sizes = {"hidden_size": 12, "num_attention_heads": 3, "num_hidden_layers": 3}
    return builders.tiny_config(**sizes | changes)


# Without an activation, whose meaning depends on the other keys.
TINY = {key: value for key, value in tiny_config().to_dict().items() if key != "hidden_act"}


def test_config_defaults():
    assert encoder.AlbertConfig(vocab_size=30000).to_dict() == {
        "vocab_size": 30000,
        "embedding_size": 128,
        "hidden_size": 4096,
        "num_hidden_layers": 12,
        "num_hidden_groups": 1,
        "num_attention_heads": 64,
        "intermediate_size": 16384,
        "inner_group_num": 1,
        "down_scale_factor": 1,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "initializer_range": 0.02,
    }


def test_config_round_trips(tmp_path):
    config = tiny_config(hidden_act="relu", initializer_range=0.1)
    path = tmp_path / "albert_config.json"
    path.write_text(config.to_json_string())
    assert encoder.AlbertConfig.from_json_file(path) == config
    assert encoder.AlbertConfig.from_dict(config.to_dict()) == config
    assert json.loads(config.to_json_string()) == config.to_dict()


def test_config_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        tiny_config().hidden_size = 24


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"num_attention_heads": 5}, "hidden_size must be a multiple of .*_heads; got 12 and 5"),
        ({"num_hidden_groups": 2}, "num_hidden_layers must be a multiple of .*; got 3 and 2"),
        ({"hidden_size": 0}, "hidden_size must be an integer of at least 1; got 0"),
        ({"vocab_size": -3}, "vocab_size must be an integer of at least 1; got -3"),
        ({"inner_group_num": 1.5}, "inner_group_num must be an integer of at least 1; got 1.5"),
        ({"num_hidden_layers": "3"}, "num_hidden_layers must be a number; got '3'"),
        ({"num_hidden_layers": True}, "num_hidden_layers must be a number; got True"),
        ({"hidden_dropout_prob": 1.0}, "hidden_dropout_prob must be at least 0 and below 1; got 1"),
        ({"attention_probs_dropout_prob": -0.1}, "attention_probs_dropout_prob .* got -0.1"),
        ({"initializer_range": 0}, "initializer_range must be above 0 and finite; got 0"),
        ({"initializer_range": float("inf")}, "initializer_range must be .* finite; got inf"),
        ({"hidden_act": "swish"}, "must be one of gelu, gelu_erf, relu, .*, linear; got 'swish'"),
        ({"group_order": "random"}, "group_order must be one of sequence, cycle; got 'random'"),
        ({"layer_scales": 1}, "layer_scales must be true or false; got 1"),
        ({"position_initializer": "rope"}, "must be one of normal, sinusoidal; got 'rope'"),
        ({"share": "some"}, "share must be one of all, attention, ffn, none; got 'some'"),
        (
            {"share": "ffn", "num_hidden_groups": 3},
            "share=ffn needs num_hidden_groups=1, .* got 3",
        ),
        ({"hidden_act": ["gelu"]}, r"hidden_act must be one of .*; got \['gelu'\]"),
        ({"hidden_act": None}, "hidden_act must be one of .*; got None"),
    ],
)
def test_config_refuses_wrong_values(changes, message):
    with pytest.raises(file_io.InputError, match=message):
        tiny_config(**changes)


@pytest.mark.parametrize(
    "key, meant",
    [
        ("hiden_size", "hidden_size"),
        ("Hidden_Size", "hidden_size"),
        ("num_hidden_layer", "num_hidden_layers"),
        ("embeding_size", "embedding_size"),
        ("vocab_siez", "vocab_size"),
    ],
)
def test_misspelled_key_is_an_error(key, meant):
    with pytest.raises(file_io.InputError, match=f"unknown key '{key}'; did you mean '{meant}'"):
        encoder.AlbertConfig.from_dict(TINY | {key: 8})


def logged_warnings(monkeypatch):
    lines = []
    monkeypatch.setattr(
        configuration.logging, "warning", lambda text, *args: lines.append(text % tuple(args))
    )
    return lines


def test_other_unknown_keys_give_one_warning(monkeypatch):
    lines = logged_warnings(monkeypatch)
    values = TINY | {"author": "me", "color": 3}
    assert encoder.AlbertConfig.from_dict(values) == tiny_config()
    assert lines == ["Unknown keys of the configuration ignored: author, color"]


def test_usual_values_of_own_keys_are_not_written():
    own = {
        "share": "none", "group_order": "cycle", "layer_scales": True,
        "position_initializer": "sinusoidal",
    }  # fmt: skip
    assert not own.keys() & tiny_config().to_dict().keys()
    config = tiny_config(**own)
    assert {**config.to_dict(), **own} == config.to_dict()
    assert encoder.AlbertConfig.from_dict(config.to_dict()) == config


def test_known_legacy_keys_are_silently_ignored(monkeypatch):
    lines = logged_warnings(monkeypatch)
    legacy = {
        "net_structure_type": 0,
        "net_type": 0,
        "gap_size": 0,
        "num_memory_blocks": 0,
        "layers_to_keep": [],
        "ln_type": "postln",
        "directionality": "bidi",
        "pooler_fc_size": 768,
        "pooler_num_attention_heads": 12,
        "pooler_num_fc_layers": 3,
        "pooler_size_per_head": 128,
        "pooler_type": "first_token_transform",
        "model_type": "albert",
        "architectures": ["AlbertForMaskedLM"],
        "classifier_dropout_prob": 0.1,
        "layer_norm_eps": 1e-12,
        "position_embedding_type": "absolute",
        "pad_token_id": 0,
        "bos_token_id": 2,
        "eos_token_id": 3,
        "transformers_version": "4.0",
    }
    assert encoder.AlbertConfig.from_dict(TINY | legacy) == tiny_config()
    assert lines == []


@pytest.mark.parametrize(
    "key, value",
    [("ln_type", "preln"), ("layer_norm_eps", 1e-5), ("position_embedding_type", "relative_key")],
)
def test_other_networks_are_refused(key, value):
    with pytest.raises(file_io.InputError, match=f"{key} {value!r} is not supported"):
        encoder.AlbertConfig.from_dict(TINY | {key: value})


@pytest.mark.parametrize("alias", ["gelu_new", "gelu_pytorch_tanh", "gelu_fast"])
def test_other_names_of_the_tanh_gelu(alias):
    assert encoder.AlbertConfig.from_dict(TINY | {"hidden_act": alias}).hidden_act == "gelu"


def test_vocab_size_is_required():
    with pytest.raises(file_io.InputError, match="required key 'vocab_size' is missing"):
        encoder.AlbertConfig.from_dict({"hidden_size": 64})


@pytest.mark.parametrize(
    "text, message",
    [
        ('{"vocab_size": 10, "hiden_size": 3}', "hiden_size.*hidden_size"),
        ('{"vocab_size": 10, "hidden_size": 33}', "multiple of num_attention_heads; got 33 and 64"),
        ('{"vocab_size": 10,}', "not valid JSON.*line 1"),
        ("[1]", "must be a JSON object, got list"),
        ("{}", "'vocab_size' is missing"),
    ],
)
def test_errors_of_a_file_name_it(tmp_path, text, message):
    path = tmp_path / "some_config.json"
    path.write_text(text)
    with pytest.raises(file_io.InputError, match=rf"some_config\.json.*{message}"):
        encoder.AlbertConfig.from_json_file(path)


def test_missing_file(tmp_path):
    with pytest.raises(file_io.InputError, match="ALBERT configuration: .* does not exist"):
        encoder.AlbertConfig.from_json_file(tmp_path / "absent.json")
