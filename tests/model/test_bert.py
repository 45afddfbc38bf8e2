"""Models of the BERT family: their configurations, and their checkpoints under all names."""

import json

import numpy as np
import pytest
import tensorflow as tf

from albert.io import file_io
from albert.model import checkpoints, encoder, pretraining_heads, sources, weight_names
from tests.support import huggingface_samples

GOOGLE = {
    "vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 12, "hidden_act": "gelu", "max_position_embeddings": 8,
    "type_vocab_size": 2, "hidden_dropout_prob": 0.3, "attention_probs_dropout_prob": 0.2,
    "initializer_range": 0.5,
}  # fmt: skip
HUGGING_FACE = {
    **GOOGLE, "model_type": "bert", "architectures": ["BertForPreTraining"], "is_decoder": False,
    "add_cross_attention": False, "classifier_dropout": None, "bos_token_id": None,
    "layer_norm_eps": 1e-12, "gradient_checkpointing": False,
}  # fmt: skip
CONFIG = encoder.AlbertConfig(**GOOGLE, embedding_size=8, num_hidden_groups=2)
ALBERT = encoder.AlbertConfig(**GOOGLE, embedding_size=4)
SHARED = encoder.AlbertConfig(**GOOGLE, embedding_size=8)


def write(path, values):
    path.write_text(json.dumps(values))
    return str(path)


# --- configurations -----------------------------------------------------------------------------


@pytest.mark.parametrize("read", ["from_bert_json_file", "from_json_file"])
def test_a_configuration_of_google(tmp_path, read):
    path = write(tmp_path / "bert_config.json", GOOGLE)
    assert getattr(encoder.AlbertConfig, read)(path) == CONFIG
    chinese = write(tmp_path / "zh.json", {**GOOGLE, "directionality": "bidi", "pooler_type": "x"})
    assert getattr(encoder.AlbertConfig, read)(chinese) == CONFIG


@pytest.mark.parametrize("read", ["from_bert_json_file", "from_json_file"])
def test_a_configuration_of_hugging_face(tmp_path, read, caplog):
    with caplog.at_level("WARNING", logger="absl"):
        config = getattr(encoder.AlbertConfig, read)(write(tmp_path / "c.json", HUGGING_FACE))
    assert config == encoder.AlbertConfig(**{**CONFIG.to_dict(), "hidden_act": "gelu_erf"})
    assert not caplog.text
    new = write(tmp_path / "c.json", {**HUGGING_FACE, "hidden_act": "gelu_new"})
    assert getattr(encoder.AlbertConfig, read)(new) == CONFIG


def test_our_own_file_of_such_a_model_is_read_either_way(tmp_path):
    path = write(tmp_path / "albert_config.json", CONFIG.to_dict())
    assert encoder.AlbertConfig.from_json_file(path) == CONFIG
    assert encoder.AlbertConfig.from_bert_json_file(path) == CONFIG


def test_rates_of_dropout_are_those_of_bert_where_the_file_does_not_say(tmp_path):
    values = {key: value for key, value in GOOGLE.items() if "dropout" not in key}
    config = encoder.AlbertConfig.from_bert_json_file(write(tmp_path / "c.json", values))
    assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == (0.1, 0.1)


def test_the_configuration_of_an_albert_stays_one(tmp_path):
    """Any key of its own, or too few keys for a BERT's file, make it ALBERT's."""
    for key, value in (("embedding_size", 4), ("num_hidden_groups", 1), ("inner_group_num", 1)):
        path = write(tmp_path / "c.json", {**GOOGLE, key: value})
        assert encoder.AlbertConfig.from_json_file(path).num_hidden_groups == 1
    path = write(tmp_path / "c.json", {**GOOGLE, "model_type": "albert"})
    assert encoder.AlbertConfig.from_json_file(path).embedding_size == 128
    path = write(tmp_path / "c.json", {"vocab_size": 20})
    assert encoder.AlbertConfig.from_json_file(path).hidden_size == 4096


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1], "must be a JSON object, got list"),
        ({"vocab_size": 3}, r"required keys \['hidden_size', .*'type_vocab_size'\] are missing"),
        ({**GOOGLE, "embedding_size": 4}, "embedding_size is 4; a BERT of this size has 8"),
        ({**GOOGLE, "num_hidden_groups": 1}, "groups is 1; .* has 2. Read an .* from_json_file"),
        ({**GOOGLE, "model_type": "albert"}, "model_type is 'albert'; a BERT .* has 'bert'"),
        ({**HUGGING_FACE, "is_decoder": True}, "is_decoder True is not supported"),
        ({**HUGGING_FACE, "layer_norm_eps": 1e-5}, "layer_norm_eps 1e-05 is not supported"),
        ({**GOOGLE, "hidden_act": "swish"}, "hidden_act must be one of gelu, gelu_erf, .*'swish'"),
    ],
)
def test_what_is_not_the_configuration_of_a_bert(tmp_path, values, message):
    path = write(tmp_path / "c.json", values)
    with pytest.raises(file_io.InputError, match=rf"BERT configuration .*c\.json: .*{message}"):
        encoder.AlbertConfig.from_bert_json_file(path)


def test_gelu_is_the_exact_one_in_files_of_hugging_face():
    values = {**GOOGLE, "embedding_size": 4}
    for key in ("model_type", "architectures", "transformers_version"):
        config = encoder.AlbertConfig.from_dict({**values, key: "albert"})
        assert config.hidden_act == "gelu_erf"
    assert encoder.AlbertConfig.from_dict(values).hidden_act == "gelu"


def test_other_architectures_are_refused(tmp_path):
    path = write(tmp_path / "c.json", {**HUGGING_FACE, "model_type": "roberta"})
    with pytest.raises(file_io.InputError, match=r"c\.json: model_type is 'roberta', expected"):
        encoder.AlbertConfig.from_json_file(path)
    with pytest.raises(file_io.InputError, match="from_bert_json_file"):
        encoder.AlbertConfig.from_dict(HUGGING_FACE)


# --- checkpoints --------------------------------------------------------------------------------


def randomized(config):
    return huggingface_samples.randomize(pretraining_heads.PretrainingModel(config, seed=1))


def google_name(name):
    """The inverse of `weight_names.from_google`, by search."""
    if "/group_" not in name:
        return name
    layer = name.split("/group_")[1].split("/")[0]
    found = [
        candidate
        for _, _, theirs in weight_names.BERT.block_modules
        for ending in ("kernel", "bias", "gamma", "beta")
        if weight_names.from_google(
            candidate := f"bert/encoder/layer_{layer}/{theirs.replace('.', '/')}/{ending}"
        )
        == name
    ]
    (found,) = found
    return found


def write_as_google(folder, model, config=GOOGLE, with_state=False):
    """A folder like those of google-research/bert."""
    folder.mkdir()
    tensors = {google_name(n): v.value() for n, v in checkpoints.variables_by_name(model).items()}
    state = {f"{name}/adam_m": value for name, value in tensors.items()} if with_state else {}
    checkpoints.write_tensors(str(folder / "bert_model.ckpt"), {**tensors, **state})
    write(folder / "bert_config.json", config)
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmno"]
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n")
    return folder


def assert_same(model, other):
    expected = checkpoints.variables_by_name(other)
    for name, variable in checkpoints.variables_by_name(model).items():
        np.testing.assert_array_equal(variable, expected[name], err_msg=name)


def test_a_folder_of_google_is_all_that_is_needed(tmp_path):
    model = randomized(CONFIG)
    folder = write_as_google(tmp_path / "uncased", model, with_state=True)
    source = sources.locate(checkpoint=str(folder))
    assert source.config_file == str(folder / "bert_config.json")
    assert source.vocab_file == str(folder / "vocab.txt")
    other = pretraining_heads.PretrainingModel(
        encoder.AlbertConfig.from_json_file(source.config_file), seed=2
    )
    report = checkpoints.restore(other, source.checkpoint, allow_new_heads=False)
    assert report.new == report.unused == []
    assert_same(other, model)
    assert set(checkpoints.read_tensors(str(folder))) == set(checkpoints.variables_by_name(model))


def test_the_reference_computes_the_same_from_weights_of_those_names(golden, tmp_path):
    """Its recorded BERT, stored as google-research/bert stores one."""
    recorded = golden / "model" / "bert"
    config = encoder.AlbertConfig.from_json_file(str(recorded / "albert_config.json"))
    model = pretraining_heads.PretrainingModel(config)
    checkpoints.restore(model, str(recorded / "model.ckpt-best"))
    values = {k: v for k, v in config.to_dict().items() if k in GOOGLE}
    folder = write_as_google(tmp_path / "google", model, values)
    bert = encoder.AlbertConfig.from_json_file(str(folder / "bert_config.json"))
    assert bert == config
    other = pretraining_heads.PretrainingModel(bert, seed=3)
    checkpoints.restore(other, str(folder), allow_new_heads=False)
    arrays = np.load(recorded / "forward.npz")
    names = {"sequence_output", "all_encoder_layers", "pooled_output", "masked_lm_loss"}
    names |= {"masked_lm_log_probs", "sentence_order_log_probs"}
    assert_outputs(other, arrays, names)


def assert_outputs(model, arrays, names, tolerance=2e-5):
    """Outputs are those recorded: of the sequence those at real positions."""
    features = {name[3:]: tf.constant(arrays[name]) for name in arrays if name.startswith("in/")}
    found = dict(model(features))
    losses = model.losses(found, features)
    found["masked_lm_loss"] = losses["masked_lm_loss"]
    found["next_sentence_loss"] = losses["sentence_order_loss"]
    found["next_sentence_log_probs"] = found["sentence_order_log_probs"]
    encoded = model.albert(*(features[n] for n in ("input_ids", "input_mask", "segment_ids")))
    found["all_encoder_layers"] = tf.stack(encoded.all_encoder_layers)
    real = arrays["in/input_mask"].astype(bool)
    for name in names:
        ours, expected = np.asarray(found[name]), arrays[f"out/{name}"]
        if name in ("sequence_output", "all_encoder_layers"):
            ours, expected = ours[..., real, :], expected[..., real, :]
        ours = ours.reshape(expected.shape)
        np.testing.assert_allclose(ours, expected, rtol=0, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("author", ["google", "hf"])
def test_recorded_outputs(shared, author):
    """Configurations of google-research/bert, and of Hugging Face with the exact gelu."""
    folder = shared / "golden" / "bert" / author
    source = sources.locate(checkpoint=str(folder), needs_vocabulary=False)
    config = encoder.AlbertConfig.from_json_file(source.config_file)
    assert config == encoder.AlbertConfig.from_bert_json_file(source.config_file)
    assert config.hidden_act == {"google": "gelu", "hf": "gelu_erf"}[author]
    model = pretraining_heads.PretrainingModel(config, seed=1)
    report = checkpoints.restore(model, source.checkpoint, allow_new_heads=False)
    assert report.new == report.unused == []
    arrays = np.load(folder / "expected.npz")
    names = {name[4:] for name in arrays if name.startswith("out/")}
    assert names >= {"sequence_output", "pooled_output", "next_sentence_log_probs"}
    assert_outputs(model, arrays, names)


@pytest.mark.parametrize(
    ("weights", "config", "message"),
    [
        (
            CONFIG,
            ALBERT,
            r"are of a BERT with embedding_size 8 \(4\), .*groups 2 \(1\).*bert_config",
        ),
        (
            ALBERT,
            CONFIG,
            r"are of an ALBERT with embedding_size 4 \(8\).*albert_config.json or con",
        ),
        (CONFIG, SHARED, r"has encoder variables that .*a BERT with num_hidden_groups 2 \(1\)"),
        (SHARED, CONFIG, r"lacks .*group_1.*are of an ALBERT with num_hidden_groups 1 \(2\)"),
    ],
    ids=["bert", "albert", "more", "fewer"],
)
def test_weights_of_the_one_with_the_configuration_of_the_other(tmp_path, weights, config, message):
    checkpoints.save(str(tmp_path / "model.ckpt-1"), encoder.AlbertModel(weights, seed=1))
    model = encoder.AlbertModel(config, seed=2)
    before = [variable.numpy() for variable in model.variables]
    with pytest.raises(file_io.InputError, match=message):
        checkpoints.restore(model, str(tmp_path))
    for variable, value in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(variable, value)


def test_a_missing_vocabulary_is_said(tmp_path):
    folder = write_as_google(tmp_path / "uncased", randomized(CONFIG))
    (folder / "vocab.txt").unlink()
    with pytest.raises(file_io.InputError, match="vocab_file must be given: there is none next"):
        sources.locate(checkpoint=str(folder))
