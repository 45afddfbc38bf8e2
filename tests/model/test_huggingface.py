"""Hugging Face folders, both ways: names, values, errors.

The outputs and ids of transformers are compared in test_huggingface_peer.py.
"""

import dataclasses
import json
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf

from albert import export_to_huggingface
from albert.export import huggingface_export, verification
from albert.io import file_io, manifests
from albert.model import (
    checkpoints,
    encoder,
    heads,
    huggingface,
    pretraining_heads,
    sources,
    weight_names,
)
from albert.text import tokenization
from tests.support.builders import model_weights
from tests.support.huggingface_samples import (
    BERT,
    CLASSES,
    CONFIG,
    LABELS,
    MODELS,
    ONLY_ALBERT,
    SQUARE,
    exported,
    write_model,
)


def read_safetensors(path):
    from safetensors import numpy as safetensors_numpy

    return safetensors_numpy.load(pathlib.Path(path).read_bytes())


def write_safetensors(path, tensors):
    from safetensors import numpy as safetensors_numpy

    pathlib.Path(path).write_bytes(safetensors_numpy.save(tensors))
    # As another program does, which knows of no manifest.
    (path.parent / manifests.NAME).unlink(missing_ok=True)


# --- names and shapes, as transformers 5 writes them --------------------------------------------

BLOCK = {
    "attention.query.weight": [12, 12], "attention.query.bias": [12],
    "attention.key.weight": [12, 12], "attention.key.bias": [12],
    "attention.value.weight": [12, 12], "attention.value.bias": [12],
    "attention.dense.weight": [12, 12], "attention.dense.bias": [12],
    "attention.LayerNorm.weight": [12], "attention.LayerNorm.bias": [12],
    "ffn.weight": [20, 12], "ffn.bias": [20],
    "ffn_output.weight": [12, 20], "ffn_output.bias": [12],
    "full_layer_layer_norm.weight": [12], "full_layer_layer_norm.bias": [12],
}  # fmt: skip
ENCODER = {
    "embeddings.word_embeddings.weight": [400, 8],
    "embeddings.token_type_embeddings.weight": [2, 8],
    "embeddings.position_embeddings.weight": [24, 8],
    "embeddings.LayerNorm.weight": [8], "embeddings.LayerNorm.bias": [8],
    "encoder.embedding_hidden_mapping_in.weight": [12, 8],
    "encoder.embedding_hidden_mapping_in.bias": [12],
    **{
        f"encoder.albert_layer_groups.{group}.albert_layers.{inner}.{name}": shape
        for group in (0, 1) for inner in (0, 1) for name, shape in BLOCK.items()
    },
}  # fmt: skip
POOLER = {"pooler.weight": [12, 12], "pooler.bias": [12]}
HEADS = {
    "encoder": {},
    "pretraining": {
        "predictions.dense.weight": [8, 12], "predictions.dense.bias": [8],
        "predictions.LayerNorm.weight": [8], "predictions.LayerNorm.bias": [8],
        "predictions.bias": [400],
        "sop_classifier.classifier.weight": [2, 12], "sop_classifier.classifier.bias": [2],
    },
    "classification": {"classifier.weight": [3, 12], "classifier.bias": [3]},
    "regression": {"classifier.weight": [1, 12], "classifier.bias": [1]},
    "token_classification": {"classifier.weight": [3, 12], "classifier.bias": [3]},
    "multiple_choice": {"classifier.weight": [1, 12], "classifier.bias": [1]},
    "squad_v1": {"qa_outputs.weight": [2, 12], "qa_outputs.bias": [2]},
}  # fmt: skip


WITHOUT_POOLER = ("squad_v1", "token_classification")


def expected_shapes(head):
    encoder = {**ENCODER, **({} if head in WITHOUT_POOLER else POOLER)}
    prefix = "" if head == "encoder" else "albert."
    return {**{prefix + name: shape for name, shape in encoder.items()}, **HEADS[head]}


@pytest.mark.parametrize("head", MODELS)
def test_names_and_shapes_are_those_of_transformers(tmp_path, head):
    _, folder = exported(tmp_path, head)
    found = read_safetensors(folder / "model.safetensors")
    assert {name: list(value.shape) for name, value in found.items()} == expected_shapes(head)
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == [CLASSES[head]]
    assert config["model_type"] == "albert"
    assert config["hidden_act"] == "gelu_new"
    if "classification" in head:
        assert config["id2label"] == {"0": "no", "1": "maybe", "2": "yes"}
        assert config["label2id"] == {"no": 0, "maybe": 1, "yes": 2}
    if head == "regression":
        assert config["problem_type"] == "regression"


def test_matrices_are_stored_the_other_way_round(tmp_path):
    model, folder = exported(tmp_path, "encoder")
    found = read_safetensors(folder / "model.safetensors")
    name = "bert/encoder/transformer/group_1/inner_group_0/ffn_1/intermediate/dense/kernel"
    theirs = found["encoder.albert_layer_groups.1.albert_layers.0.ffn.weight"]
    np.testing.assert_array_equal(theirs, model_weights(model)[name].T)


# The names of a head depend on the architecture, those of an encoder on the configuration as well.
ROUND_TRIPS = {f"{head}-mapped": (head, CONFIG, "albert") for head in MODELS}
ROUND_TRIPS |= {f"{head}-bert": (head, BERT, "bert") for head in MODELS}
ROUND_TRIPS["pretraining-square"] = ("pretraining", SQUARE, "albert")
ROUND_TRIPS["pretraining-unshared"] = ("pretraining", BERT, "albert")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("head", "config", "architecture"), ROUND_TRIPS.values(), ids=ROUND_TRIPS.keys()
)
def test_a_round_trip_changes_no_bit(tmp_path, head, config, architecture, caplog):
    model, folder = exported(tmp_path, head, config, architecture)
    source = sources.locate(checkpoint=str(folder))
    with caplog.at_level("WARNING", logger="absl"):
        assert encoder.AlbertConfig.from_json_file(source.config_file) == config
    assert not caplog.text
    other = MODELS[head](config)
    report = checkpoints.restore(other, source.checkpoint, allow_new_heads=False)
    assert report.unused == []
    pooler = ["bert/pooler/dense/bias", "bert/pooler/dense/kernel"]
    assert report.new == (pooler if head in WITHOUT_POOLER else [])
    expected = model_weights(model)
    for name, value in model_weights(other).items():
        if name not in report.new:
            np.testing.assert_array_equal(value, expected[name], err_msg=name)
    tokenizer = tokenization.FullTokenizer(spm_model_file=source.spm_model_file)
    assert tokenizer.vocab_size == 400


BERT_LAYER = {
    "attention.self.query.weight": [12, 12], "attention.self.query.bias": [12],
    "attention.self.key.weight": [12, 12], "attention.self.key.bias": [12],
    "attention.self.value.weight": [12, 12], "attention.self.value.bias": [12],
    "attention.output.dense.weight": [12, 12], "attention.output.dense.bias": [12],
    "attention.output.LayerNorm.weight": [12], "attention.output.LayerNorm.bias": [12],
    "intermediate.dense.weight": [20, 12], "intermediate.dense.bias": [20],
    "output.dense.weight": [12, 20], "output.dense.bias": [12],
    "output.LayerNorm.weight": [12], "output.LayerNorm.bias": [12],
}  # fmt: skip
BERT_PRETRAINING = {
    "bert.embeddings.word_embeddings.weight": [400, 12],
    "bert.embeddings.token_type_embeddings.weight": [2, 12],
    "bert.embeddings.position_embeddings.weight": [24, 12],
    "bert.embeddings.LayerNorm.weight": [12], "bert.embeddings.LayerNorm.bias": [12],
    "bert.pooler.dense.weight": [12, 12], "bert.pooler.dense.bias": [12],
    "cls.predictions.transform.dense.weight": [12, 12],
    "cls.predictions.transform.dense.bias": [12],
    "cls.predictions.transform.LayerNorm.weight": [12],
    "cls.predictions.transform.LayerNorm.bias": [12],
    "cls.predictions.bias": [400],
    "cls.seq_relationship.weight": [2, 12], "cls.seq_relationship.bias": [2],
    **{
        f"bert.encoder.layer.{layer}.{name}": shape
        for layer in range(4) for name, shape in BERT_LAYER.items()
    },
}  # fmt: skip


def test_a_bert_is_written_as_one(tmp_path):
    _, folder = exported(tmp_path, "pretraining", BERT, "bert")
    found = read_safetensors(folder / "model.safetensors")
    assert {name: list(value.shape) for name, value in found.items()} == BERT_PRETRAINING
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["BertForPreTraining"]
    assert (config["model_type"], config["hidden_act"]) == ("bert", "gelu")
    assert not config.keys() & set(ONLY_ALBERT)


def test_what_is_no_bert_is_not_written_as_one(tmp_path, run_script):
    write_model(tmp_path / "ours", "encoder")
    message = (
        r"--architecture=bert: .* embedding_size 8 \(BERT: 12\), num_hidden_groups 2 \("
        r"BERT: 4\), inner_group_num 2 \(BERT: 1\); write it with --architecture=albert"
    )
    flags = {"model_dir": tmp_path / "ours", "output_dir": tmp_path / "out"}
    with pytest.raises(file_io.InputError, match=message):
        run_script(export_to_huggingface, architecture="bert", **flags)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("model", "architecture", "expected"),
    [(BERT, None, "bert"), (BERT, "albert", "albert"), (CONFIG, None, "albert"),
     (SQUARE, None, "albert")],
)  # fmt: skip
def test_a_model_is_written_as_what_it_is(tmp_path, run_script, model, architecture, expected):
    write_model(tmp_path / "ours", "encoder", model)
    given = {"architecture": architecture} if architecture else {}
    run_script(
        export_to_huggingface, model_dir=tmp_path / "ours", output_dir=tmp_path / "out", **given
    )
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["model_type"] == expected
    card = (tmp_path / "out" / "README.md").read_text()
    article = {"bert": "A", "albert": "An"}[expected]
    assert f'- "{expected}"\n' in card and f"{article} {expected.upper()} model." in card


@pytest.mark.slow
def test_older_names_and_second_names_of_a_bert_are_understood(tmp_path):
    model, folder = exported(tmp_path, "pretraining", BERT, "bert")
    tensors = read_safetensors(folder / "model.safetensors")
    older = {}
    for name, value in tensors.items():
        if "LayerNorm" in name:
            name = name.replace("weight", "gamma").replace("bias", "beta")
        older[name] = value
    older["cls.predictions.decoder.bias"] = older.pop("cls.predictions.bias")
    words = older["bert.embeddings.word_embeddings.weight"]
    older["cls.predictions.decoder.weight"] = words
    older["bert.embeddings.position_ids"] = np.arange(24)[np.newaxis]
    write_safetensors(folder / "model.safetensors", older)
    other = pretraining_heads.PretrainingModel(BERT, seed=2)
    report = checkpoints.restore(other, str(folder), allow_new_heads=False)
    assert report.new == report.unused == []
    for name, value in model_weights(other).items():
        np.testing.assert_array_equal(value, model_weights(model)[name], err_msg=name)
    older["cls.predictions.decoder.weight"] = words + 1
    write_safetensors(folder / "model.safetensors", older)
    with pytest.raises(file_io.InputError, match="cls.predictions.decoder.weight differs from the"):
        checkpoints.restore(other, str(folder))


# --- what else such files can look like --------------------------------------------------------


def test_every_form_of_a_path_is_read(tmp_path):
    model, folder = exported(tmp_path, "encoder")
    for path in (folder, folder / "model.safetensors", f"{folder}/"):
        other = encoder.AlbertModel(CONFIG, 2)
        checkpoints.restore(other, str(path))
        np.testing.assert_array_equal(other.embedding_table, model.embedding_table)


def test_split_files_are_read(tmp_path):
    model, folder = exported(tmp_path, "encoder")
    tensors = read_safetensors(folder / "model.safetensors")
    names = sorted(tensors)
    parts = {"model-1-of-2.safetensors": names[::2], "model-2-of-2.safetensors": names[1::2]}
    for part, chosen in parts.items():
        write_safetensors(folder / part, {name: tensors[name] for name in chosen})
    (folder / "model.safetensors").unlink()
    index = {"weight_map": {name: part for part, chosen in parts.items() for name in chosen}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    other = encoder.AlbertModel(CONFIG, 2)
    assert checkpoints.restore(other, str(folder)).new == []
    np.testing.assert_array_equal(other.embedding_table, model.embedding_table)
    assert [item.damage for item in verification.check(str(folder))] == [None] * 3
    without = {name: tensors[name] for name in names[::2] if not name.startswith("pooler")}
    write_safetensors(folder / "model-1-of-2.safetensors", without)
    words = "says that model-1-of-2.safetensors holds pooler.weight, which no file holds .*1 are"
    with pytest.raises(file_io.InputError, match=words):
        checkpoints.reader(str(folder))
    (folder / "model.safetensors.index.json").unlink()
    for path in (folder, folder / "model-2-of-2.safetensors"):
        with pytest.raises(file_io.InputError, match="is one part of a model's weights; expected"):
            checkpoints.reader(str(path))


def test_weights_of_any_name_are_read_if_they_are_the_only_ones(tmp_path):
    _, folder = exported(tmp_path, "encoder")
    for name in ("adapter_model.safetensors", "optimizer.safetensors"):
        write_safetensors(folder / name, {"other": np.zeros(2, np.float32)})
    assert [item.damage for item in verification.check(str(folder))] == [None] * 3
    (folder / "model.safetensors").rename(folder / "other-1-of-1.safetensors")
    assert checkpoints.resolve(str(folder)) == str(folder / "other-1-of-1.safetensors")
    shutil.copyfile(folder / "other-1-of-1.safetensors", folder / "third.safetensors")
    with pytest.raises(file_io.InputError, match="several files of weights, other-1.*, third.safe"):
        checkpoints.resolve(str(folder))
    for name in ("other-1-of-1.safetensors", "third.safetensors"):
        (folder / name).unlink()
    with pytest.raises(file_io.InputError, match="adapter_model.*merge_and_unload"):
        checkpoints.resolve(str(folder))
    (folder / "pytorch_model.bin").write_text("")
    with pytest.raises(file_io.InputError, match="pytorch_model.bin, which cannot be read; write"):
        checkpoints.resolve(str(folder))


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_half_precision_becomes_float32(tmp_path, kind):
    model, folder = exported(tmp_path, "encoder")
    dtype = tf.as_dtype(kind).as_numpy_dtype
    tensors = read_safetensors(folder / "model.safetensors")
    halves = {name: value.astype(dtype) for name, value in tensors.items()}
    write_safetensors(folder / "model.safetensors", halves)
    other = encoder.AlbertModel(CONFIG, 2)
    checkpoints.restore(other, str(folder))
    expected = model.embedding_table.numpy().astype(dtype).astype(np.float32)
    np.testing.assert_array_equal(other.embedding_table, expected)


@pytest.mark.parametrize("kind", ["int64", "int32"])
def test_integers_in_place_of_weights_are_refused(tmp_path, kind):
    _, folder = exported(tmp_path, "encoder")
    tensors = read_safetensors(folder / "model.safetensors")
    name = "albert.pooler.weight" if "albert.pooler.weight" in tensors else "pooler.weight"
    tensors[name] = np.rint(tensors[name]).astype(kind)
    write_safetensors(folder / "model.safetensors", tensors)
    with pytest.raises(file_io.InputError, match=f"pooler.weight is of type I{kind[3:]}; weights"):
        checkpoints.reader(str(folder))


def test_second_names_of_shared_weights_are_understood(tmp_path):
    model, folder = exported(tmp_path, "pretraining")
    tensors = read_safetensors(folder / "model.safetensors")
    tensors["predictions.decoder.bias"] = tensors.pop("predictions.bias")
    tensors["predictions.decoder.weight"] = tensors["albert.embeddings.word_embeddings.weight"]
    tensors["albert.embeddings.position_ids"] = np.arange(24)[np.newaxis]
    write_safetensors(folder / "model.safetensors", tensors)
    other = pretraining_heads.PretrainingModel(CONFIG, seed=2)
    report = checkpoints.restore(other, str(folder), allow_new_heads=False)
    assert report.new == report.unused == []
    np.testing.assert_array_equal(other.masked_lm.bias, model.masked_lm.bias)
    tensors["predictions.decoder.weight"] = tensors["predictions.decoder.weight"] + 1
    write_safetensors(folder / "model.safetensors", tensors)
    with pytest.raises(file_io.InputError, match="decoder.weight differs from the word embed"):
        checkpoints.restore(other, str(folder))


def test_the_bias_of_the_decoder_comes_first(tmp_path):
    """As in transformers 5, see test_huggingface_peer.py."""
    model, folder = exported(tmp_path, "pretraining")
    tensors = read_safetensors(folder / "model.safetensors")
    tensors["predictions.decoder.bias"] = tensors["predictions.bias"] + 1
    write_safetensors(folder / "model.safetensors", tensors)
    other = pretraining_heads.PretrainingModel(CONFIG, seed=2)
    checkpoints.restore(other, str(folder), allow_new_heads=False)
    np.testing.assert_array_equal(other.masked_lm.bias, model.masked_lm.bias + 1)


def test_without_segments_both_texts_have_the_first(tmp_path, caplog):
    model, folder = exported(tmp_path, "encoder")
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text())
    config["model_input_names"] = ["input_ids", "attention_mask"]
    path.write_text(json.dumps(config))
    other = encoder.AlbertModel(CONFIG, 2)
    with caplog.at_level("INFO", "absl"):
        checkpoints.restore(other, str(folder))
    assert f"{path}: model_input_names lacks token_type_ids" in caplog.text
    ids, mask = np.array([[2, 9, 3, 10, 3]], np.int32), np.ones([1, 5], np.int32)
    segments = np.array([[0, 0, 0, 1, 1]], np.int32)
    expected = model(ids, mask, np.zeros_like(segments)).sequence_output
    np.testing.assert_allclose(other(ids, mask, segments).sequence_output, expected, atol=1e-6)
    assert np.abs(model(ids, mask, segments).sequence_output - expected).max() > 0.01


@pytest.mark.parametrize(("config", "architecture"), [(CONFIG, "albert"), (BERT, "bert")])
def test_unknown_weights_of_the_encoder_are_refused(tmp_path, config, architecture):
    _, folder = exported(tmp_path, "encoder", config, architecture)
    tensors = read_safetensors(folder / "model.safetensors")
    block = "layer.0" if architecture == "bert" else "albert_layer_groups.0.albert_layers.0"
    for prefix in ("", f"{architecture}."):
        name = f"{prefix}encoder.{block}.output.adapters.x.weight"
        write_safetensors(folder / "model.safetensors", {**tensors, name: np.ones(3, np.float32)})
        words = f"model.safetensors has weights of the encoder .*1, such as {architecture}.encoder"
        with pytest.raises(file_io.InputError, match=words):
            checkpoints.read_tensors(str(folder))


@pytest.mark.parametrize(
    ("name", "head", "warns"),
    [
        ("extra.weight", "encoder", True),
        ("classifier.0.weight", "encoder", False),
        ("cls.predictions.other", "encoder", False),
        ("embeddings.token_type_ids", "encoder", False),
        ("classifier.0.weight", "classification", True),
    ],
)
def test_other_unknown_weights_get_a_warning(tmp_path, name, head, warns, caplog):
    _, folder = exported(tmp_path, head)
    tensors = read_safetensors(folder / "model.safetensors")
    write_safetensors(folder / "model.safetensors", {**tensors, name: np.ones(3, np.float32)})
    caplog.clear()
    checkpoints.restore(MODELS[head](CONFIG), str(folder), allow_new_heads=False)
    assert (
        f"has tensors that this package does not use (1, such as {name})" in caplog.text
    ) == warns


def test_a_frozen_encoder_keeps_no_random_pooler(tmp_path):
    _, folder = exported(tmp_path, "squad_v1")
    model = heads.ClassifierModel(CONFIG, 2, seed=2)
    assert "bert/pooler/dense/bias" in checkpoints.restore(model, str(folder)).new
    model.freeze_encoder()
    with pytest.raises(file_io.InputError, match=r"lacks \['bert/pooler/dense/bias', 'bert/pooler"):
        checkpoints.restore(model, str(folder))
    checkpoints.restore(heads.SquadV1Model(CONFIG, seed=2), str(folder), allow_new_heads=False)


def test_the_head_of_a_token_classifier_is_not_taken_for_another(tmp_path):
    _, folder = exported(tmp_path, "classification")
    config = json.loads((folder / "config.json").read_text())
    config["architectures"] = ["AlbertForTokenClassification"]
    (folder / "config.json").write_text(json.dumps(config))
    report = checkpoints.restore(heads.ClassifierModel(CONFIG, 3, seed=2), str(folder))
    assert report.new == ["output_bias", "output_weights"]
    assert report.unused == ["cls/token/output_bias", "cls/token/output_weights"]
    other = heads.TokenClassifierModel(CONFIG, 3, seed=2)
    assert "cls/token/output_bias" in checkpoints.restore(other, str(folder)).loaded


def test_the_folder_says_whether_text_is_lower_cased(tmp_path):
    _, folder = exported(tmp_path, "encoder")
    assert sources.locate(checkpoint=str(folder)).rules.do_lower_case
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["do_lower_case"] = False
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    assert not sources.locate(checkpoint=str(folder)).rules.do_lower_case
    assert sources.locate(sources.Given(rules={"do_lower_case": True}), str(folder)).rules.lower


@pytest.mark.parametrize(("here", "there"), [("gelu", "gelu_new"), ("gelu_erf", "gelu")])
def test_either_gelu_keeps_its_meaning(tmp_path, here, there):
    config = encoder.AlbertConfig(**{**CONFIG.to_dict(), "hidden_act": here})
    _, folder = exported(tmp_path, "encoder", config)
    assert json.loads((folder / "config.json").read_text())["hidden_act"] == there
    assert encoder.AlbertConfig.from_json_file(str(folder / "config.json")) == config


def test_the_description_of_a_model_folder_is_used(tmp_path):
    from albert.model import model_folder

    for kind, settings, expected in (
        ("classifier", {"labels": LABELS}, "classification"),
        ("squad_v1", {}, "squad_v1"),
        ("multiple_choice", {}, "multiple_choice"),
    ):
        folder = tmp_path / kind
        write_model(folder, expected)
        source = sources.locate(sources.Given(rules={"do_lower_case": False}), str(folder))
        model_folder.write(str(folder), kind, CONFIG, source, settings)
        out = tmp_path / f"{kind}_out"
        assert huggingface_export.export(str(folder), output_dir=str(out)) == expected
        config = json.loads((out / "config.json").read_text())
        assert config.get("id2label") == ({"0": "no", "1": "maybe", "2": "yes"} if "labels" in
                                          settings else None)  # fmt: skip
        assert not json.loads((out / "tokenizer_config.json").read_text())["do_lower_case"]


# --- mistakes -----------------------------------------------------------------------------------


def change_config(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))


def test_another_architecture_is_refused(tmp_path):
    _, folder = exported(tmp_path, "encoder")
    change_config(folder, model_type="roberta")
    message = "architecture 'roberta' .*config.json.*only 'albert' and 'bert' can be read"
    with pytest.raises(file_io.InputError, match=message):
        sources.locate(checkpoint=str(folder))
    with pytest.raises(file_io.InputError, match=message):
        checkpoints.restore(encoder.AlbertModel(CONFIG), str(folder / "model.safetensors"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layer_scales": True}, "layer_scales=true: transformers has no ALBERT"),
        (
            {"num_hidden_layers": 4, "num_hidden_groups": 2, "group_order": "cycle"},
            "group_order=cycle: in transformers .* num_hidden_groups=2 in this order cannot be",
        ),
    ],
)
def test_sharing_that_transformers_lacks_is_refused(changes, message):
    config = dataclasses.replace(CONFIG, **changes)
    with pytest.raises(file_io.InputError, match=message):
        huggingface.check_architecture(config, weight_names.ALBERT)


def test_a_cycle_of_one_group_can_be_written(tokenizer):
    config = dataclasses.replace(CONFIG, num_hidden_groups=1, group_order="cycle")
    huggingface.check_architecture(config, weight_names.ALBERT)
    assert "group_order" not in huggingface.convert_config(config, "encoder", [], tokenizer)
    positions = dataclasses.replace(config, position_initializer="sinusoidal")
    written = huggingface.convert_config(positions, "encoder", [], tokenizer)
    assert written == huggingface.convert_config(config, "encoder", [], tokenizer)


def test_a_vocabulary_of_another_size_is_refused(tmp_path):
    _, folder = exported(tmp_path, "encoder")
    change_config(folder, vocab_size=300)
    config = encoder.AlbertConfig.from_json_file(str(folder / "config.json"))
    with pytest.raises(file_io.InputError, match=r"word_embeddings is \[400, 8\] .* \[300, 8\]"):
        checkpoints.restore(encoder.AlbertModel(config), str(folder))
    (tmp_path / "ours" / "albert_config.json").write_text(config.to_json_string())
    with pytest.raises(file_io.InputError, match="400 pieces, .* only 300"):
        huggingface_export.export(str(tmp_path / "ours"), output_dir=str(tmp_path / "x"))
    large = encoder.AlbertConfig(**{**CONFIG.to_dict(), "vocab_size": 500})
    (tmp_path / "ours" / "albert_config.json").write_text(large.to_json_string())
    with pytest.raises(file_io.InputError, match=r"\[400, 8\]; the configuration says vocab_size"):
        huggingface_export.export(str(tmp_path / "ours"), output_dir=str(tmp_path / "x"))
    assert not (tmp_path / "x").exists()


def test_damaged_and_older_files_are_named(tmp_path):
    _, folder = exported(tmp_path, "encoder")
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(file_io.InputError, match="model.safetensors is damaged or not a safeten"):
        checkpoints.restore(encoder.AlbertModel(CONFIG), str(folder))
    weights.unlink()
    (folder / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(file_io.InputError, match="pytorch_model.bin, .* write model.safeten"):
        checkpoints.restore(encoder.AlbertModel(CONFIG), str(folder))


def test_a_folder_without_its_sentencepiece_model_is_named(tmp_path):
    _, folder = exported(tmp_path, "encoder")
    (folder / "spiece.model").unlink()
    # The file that is exported has steps of its own, for the rules of google-research/albert.
    with pytest.raises(file_io.InputError, match="normalizer has the steps .* spm_model_file") as e:
        sources.locate(checkpoint=str(folder))
    assert len(str(e.value)) < 700
    (folder / "tokenizer.json").unlink()
    with pytest.raises(file_io.InputError, match="vocab_file must be given: there is none next"):
        sources.locate(checkpoint=str(folder))


def test_a_mapping_that_should_not_be_there_is_refused(tmp_path):
    _, folder = exported(tmp_path, "encoder", SQUARE)
    tensors = read_safetensors(folder / "model.safetensors")
    tensors["encoder.embedding_hidden_mapping_in.bias"] += 1
    write_safetensors(folder / "model.safetensors", tensors)
    with pytest.raises(file_io.InputError, match="both 12 and the weights of embedding_hidden_map"):
        checkpoints.restore(encoder.AlbertModel(SQUARE), str(folder))


def test_heads_that_do_not_exist_there_are_refused(tmp_path):
    folder = tmp_path / "ours"
    write_model(folder, "regression")

    def export(**flags):
        return huggingface_export.export(str(folder), output_dir=str(tmp_path / "out"), **flags)

    with pytest.raises(file_io.InputError, match="one output, .* give head=regression or head"):
        export()
    with pytest.raises(file_io.InputError, match="head=classification needs at least two .*has 1"):
        export(head="classification")
    with pytest.raises(file_io.InputError, match="cannot write the head pretraining: .* lacks"):
        export(head="pretraining")
    write_model(folder, "classification")
    with pytest.raises(file_io.InputError, match="`labels`: the model has 3 labels, got 2"):
        export(labels=["a", "b"])
    with pytest.raises(file_io.InputError, match="`labels`: expected different names, got .'a', "):
        export(labels=["a", "b", "a"])
    with pytest.raises(file_io.InputError, match="`labels`: the head encoder has no labels, got a"):
        export(labels=["a"], head="encoder")
    model = heads.SquadV2Model(CONFIG, 2, 2, seed=1)
    checkpoints.save(str(folder / "model.ckpt-best"), model)
    with pytest.raises(file_io.InputError, match="heads of SQuAD 2.0 .* has no class"):
        export()
    assert not (tmp_path / "out").exists()


def test_the_script(tmp_path, run_script):
    write_model(tmp_path / "ours", "classification")
    run_script(
        export_to_huggingface, model_dir=tmp_path / "ours", output_dir=tmp_path / "out",
        labels="no,maybe,yes", license="mit",
    )  # fmt: skip
    card = (tmp_path / "out" / "README.md").read_text()
    assert card.startswith('---\nlicense: "mit"\nlibrary_name: "transformers"\n')
    assert 'pipeline_tag: "text-classification"\n' in card
    assert json.loads((tmp_path / "out" / "config.json").read_text())["label2id"]["yes"] == 2
    prefix = tmp_path / "ours" / "model.ckpt-best.index"
    run_script(export_to_huggingface, checkpoint=prefix, output_dir=tmp_path / "unnamed")
    written = json.loads((tmp_path / "unnamed" / "config.json").read_text())
    assert written["label2id"]["LABEL_2"] == 2
    with pytest.raises(file_io.InputError, match="give --model_dir or --checkpoint"):
        run_script(export_to_huggingface, output_dir=tmp_path / "out")
