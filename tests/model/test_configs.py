"""The configurations of published sizes: complete, loadable, and of the published size."""

import dataclasses
import functools
import json
import pathlib

import pytest
import tensorflow as tf

from albert.model import configuration, encoder, pretraining_heads

FOLDER = pathlib.Path(__file__).resolve().parent.parent.parent / "configs"
PUBLISHED = {  # hidden size, layers, heads, intermediate size
    "base": (768, 12, 12, 3072),
    "large": (1024, 24, 16, 4096),
    "xlarge": (2048, 24, 16, 8192),
    "xxlarge": (4096, 12, 64, 16384),
}
# Parameters with both pre-training heads.
PARAMETERS = {
    "albert_base_v1": 11_813_810,
    "albert_base_v2": 11_813_810,
    "albert_base_v2_6_layers": 11_813_810,
    "albert_base_zh": 10_669_322,
    "albert_large_v1": 17_847_474,
    "albert_large_v2": 17_847_474,
    "albert_large_zh": 16_702_986,
    "albert_xlarge_v1": 59_021_490,
    "albert_xlarge_v2": 59_021_490,
    "albert_xlarge_zh": 57_877_002,
    "albert_xxlarge_v1": 223_158_450,
    "albert_xxlarge_v2": 223_158_450,
    "albert_xxlarge_zh": 222_013_962,
    "albert_small": 4_858_290,
    "albert_mini": 6_273_164,
    "albert_tiny": 1_048_530,
    "bert_base": 110_106_428,
    "bert_large": 336_226_108,
    "lambert": 336_226_108,
}


def load(name):
    return encoder.AlbertConfig.from_json_file(FOLDER / f"{name}.json")


@functools.cache
def parameter_shapes(config):
    """{name: shape} of the pre-training model, without memory for the values."""
    with tf.Graph().as_default():
        model = pretraining_heads.PretrainingModel(config, seed=1)
        return {variable.name: tuple(variable.shape) for variable in model.variables}


def counted_by_hand(config):
    """The sum of REFERENCE's list of variables, written out."""
    v, e, h, i = (
        config.vocab_size,
        config.embedding_size,
        config.hidden_size,
        config.intermediate_size,
    )
    embeddings = (v + config.type_vocab_size + config.max_position_embeddings) * e + 2 * e
    mapping = 0 if e == h else e * h + h
    block = 4 * (h * h + h) + (h * i + i) + (i * h + h) + 2 * 2 * h
    pooler = h * h + h
    masked_lm = h * e + e + 2 * e + v
    sentence_order = 2 * h + 2
    blocks = config.num_hidden_groups * config.inner_group_num
    return embeddings + mapping + blocks * block + pooler + masked_lm + sentence_order


def test_every_file_is_in_the_table_of_sizes():
    assert {path.stem for path in FOLDER.iterdir()} == set(PARAMETERS)


@pytest.mark.slow
@pytest.mark.parametrize("name", PARAMETERS)
def test_number_of_parameters(name):
    config = load(name)
    shapes = parameter_shapes(config)
    count = sum(tf.TensorShape(shape).num_elements() for shape in shapes.values())
    assert count == PARAMETERS[name] == counted_by_hand(config)


@pytest.mark.parametrize("name", PARAMETERS)
def test_files_name_every_setting_that_has_an_effect(name):
    values = json.loads((FOLDER / f"{name}.json").read_text())
    fields = {field.name for field in dataclasses.fields(encoder.AlbertConfig)}
    # Without these keys all parameters are shared, as published.
    assert set(values) == fields - {"down_scale_factor", *configuration.OWN_KEYS}


def shape_of(config):
    names = "hidden_size num_hidden_layers num_attention_heads intermediate_size".split()
    return tuple(getattr(config, name) for name in names)


@pytest.mark.parametrize("version", ["v1", "v2", "zh"])
@pytest.mark.parametrize("size", PUBLISHED)
def test_published_shapes(size, version):
    config = load(f"albert_{size}_{version}")
    assert shape_of(config) == PUBLISHED[size]
    assert config.vocab_size == (21128 if version == "zh" else 30000)
    assert (config.embedding_size, config.num_hidden_groups, config.inner_group_num) == (128, 1, 1)
    rate = 0.1 if version == "v1" and size != "xxlarge" else 0.0
    assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == (rate, rate)


@pytest.mark.parametrize("size", ["base", "large"])
def test_v2_equals_the_recorded_configuration(golden, size):
    recorded = golden / "full_size" / f"albert_{size}_config.json"
    assert load(f"albert_{size}_v2") == encoder.AlbertConfig.from_json_file(recorded)


def test_number_of_variables_does_not_depend_on_layers():
    counts = {size: len(parameter_shapes(load(f"albert_{size}_v2"))) for size in PUBLISHED}
    assert set(counts.values()) == {32}


@pytest.mark.parametrize(
    ("name", "size"), [("bert_base", "base"), ("bert_large", "large"), ("lambert", "large")]
)
def test_berts_share_nothing(name, size):
    config = load(name)
    assert shape_of(config) == PUBLISHED[size]
    assert config.num_hidden_groups == config.num_hidden_layers
    assert config.embedding_size == config.hidden_size
    assert (config.vocab_size, config.hidden_act) == (30522, "gelu")
    assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == (0.1, 0.1)
    names = parameter_shapes(config)
    assert not [name for name in names if "embedding_hidden_mapping_in" in name]
    found = [name for name in names if name.endswith("/query/kernel:0")]
    assert len(found) == config.num_hidden_layers


def test_small_equals_the_configuration_of_the_recorded_losses(shared):
    recorded = shared / "golden" / "runs" / "loss_parity" / "albert_small_config.json"
    assert load("albert_small") == encoder.AlbertConfig.from_json_file(recorded)
