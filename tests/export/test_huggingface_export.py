"""Reading a SentencePiece model, and exports that fail; the rest is in test_huggingface.py,
ids are compared in test_huggingface_peer.py.
"""

import base64
import json
import shutil
import sys

import numpy as np
import pytest

from albert.export import huggingface_export
from albert.io import file_io, manifests
from albert.model import (
    checkpoints,
    encoder,
    huggingface,
    model_folder,
    pooling,
    pretraining_heads,
)
from albert.text import text_rules, tokenization
from tests.support import builders
from tests.support.builders import SPM, write_model

CONFIG = encoder.AlbertConfig(
    vocab_size=400, embedding_size=4, hidden_size=4, num_hidden_layers=1, num_attention_heads=1,
    intermediate_size=4, max_position_embeddings=8,
)  # fmt: skip


@pytest.fixture
def without_generated_module(monkeypatch):
    """As with a protobuf that is older than the one that sentencepiece's own module is made for."""
    monkeypatch.setitem(sys.modules, "sentencepiece.sentencepiece_model_pb2", None)


def test_the_model_is_read_with_any_protobuf(tmp_path, tokenizer, without_generated_module):
    huggingface_export.write_tokenizer(str(tmp_path), tokenizer, 8)
    written = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    sp_model = tokenizer.sp_model
    ids = list(range(len(sp_model)))
    vocab = written["model"]["vocab"]
    assert [piece for piece, _ in vocab] == sp_model.id_to_piece(ids)
    plain = [i for i in ids if vocab[i][1] == sp_model.get_score(i)]
    # The rest are pieces that are kept whole, and numbers before a comma.
    assert len(plain) > 370
    for i in set(ids) - set(plain):
        assert sp_model.get_score(i) == 0 or tokenization.is_digit_comma(vocab[i][0])
    charsmap, *rest = written["normalizer"]["normalizers"][-3:]
    data = base64.b64decode(charsmap["precompiled_charsmap"])
    assert len(data) > 200_000 and data in SPM.read_bytes()
    assert rest[0]["pattern"]["Regex"] == " {2,}"


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    write_model(folder, pretraining_heads.PretrainingModel(CONFIG, seed=1), CONFIG, "spiece.model")
    return folder


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("step", ["write_weights", "write_tokenizer", "write_config"])
def test_an_export_that_fails_changes_nothing(tmp_path, model_dir, monkeypatch, step):
    old = tmp_path / "old"
    huggingface_export.export(model_dir=str(model_dir), output_dir=str(old))
    (old / "notes.txt").write_text("mine")
    before = contents(old)
    assert {"config.json", "model.safetensors", "tokenizer.json", "spiece.model"} < set(before)

    def fail(*_):
        raise OSError("No space left on device")

    module = huggingface_export if step == "write_tokenizer" else huggingface
    monkeypatch.setattr(module, step, fail)
    for name in ("old", "new"):
        with pytest.raises(OSError, match="No space left"):
            huggingface_export.export(model_dir=str(model_dir), output_dir=str(tmp_path / name))
    assert contents(old) == before
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


def test_float16_takes_half_the_space_and_computes_in_float32(tmp_path, model_dir):
    sizes = {}
    for kind in ("float32", "float16"):
        out = tmp_path / kind
        huggingface_export.export(model_dir=str(model_dir), output_dir=str(out), weights_type=kind)
        sizes[kind] = (out / "model.safetensors").stat().st_size
    assert json.loads((out / "config.json").read_text())["dtype"] == "float32"
    assert "dtype" not in json.loads((tmp_path / "float32" / "config.json").read_text())
    whole, half = (checkpoints.read_tensors(str(tmp_path / kind)) for kind in sizes)
    saved = sizes["float32"] - sizes["float16"]
    assert 0 <= saved - 2 * sum(x.size for x in whole.values()) < 100  # and a shorter header
    for name, value in whole.items():
        assert half[name].dtype == np.float32
        np.testing.assert_array_equal(half[name], value.astype(np.float16).astype(np.float32))
    model = pretraining_heads.PretrainingModel(CONFIG, seed=1)
    model.masked_lm.bias.assign(model.masked_lm.bias + 1e5)
    write_model(tmp_path / "large", model, CONFIG, "spiece.model")
    with pytest.raises(file_io.InputError, match="bias has weights that float16 cannot hold"):
        huggingface_export.export(
            model_dir=str(tmp_path / "large"), output_dir=str(out), weights_type="float16"
        )


def test_a_head_that_reads_the_mean_is_refused(tmp_path):
    folder = builders.write_classifier(tmp_path / "run", pooling="mean")
    for flags in ({"model_dir": folder}, {"checkpoint": f"{folder}/model.ckpt-best"}):
        with pytest.raises(file_io.InputError, match="reads the mean of all tokens.*pooling=cls"):
            huggingface_export.export(**flags, output_dir=str(tmp_path / "out"))
    out = str(tmp_path / "out")
    assert huggingface_export.export(folder, output_dir=out, head="encoder") == "encoder"
    assert pooling.read(out) == model_folder.described_pooling(out) == "mean"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"sentence_bert_config": {"max_seq_length": 5}}, 5),
        ({"tokenizer_config": {"model_max_length": 6}}, 6),
        ({"tokenizer_config": {"model_max_length": 512}}, 8),
    ],
)
@pytest.mark.parametrize(("entry", "kind"), [("mean_tokens", "mean"), ("cls_token", "cls")])
def test_lengths_and_vectors_of_other_programs_are_kept(
    tmp_path, model_dir, said, expected, entry, kind
):
    folder, out = tmp_path / "model", str(tmp_path / "out")
    shutil.copytree(model_dir, folder)
    builders.write_pooling(folder, entry, ["Normalize"])
    for name, content in said.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    huggingface_export.export(str(folder), output_dir=out, head="encoder")
    assert huggingface.read_max_length(out) == expected
    assert pooling.read(out) == kind and pooling.normalizes(out)


def test_rules_of_words_that_are_lost_are_named(tmp_path, caplog):
    path = str(SPM.parent / "tiny_vocab.txt")
    theirs = {"longest_word": 100, "drop_private": True, "lower_alone": True}
    for rules, count in ((theirs, 0), ({**theirs, "longest_word": 7}, 1), ({}, 1)):
        caplog.clear()
        made = tokenization.load(path, text_rules.TextRules(True, **rules))
        huggingface_export.write_tokenizer(str(tmp_path), made, 8)
        assert len(caplog.messages) == count
    assert "otherwise: longest_word is 200 (there 100), drop_private is False" in caplog.text


def test_files_of_another_model_stay(tmp_path, model_dir):
    folder = tmp_path / "other"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    with pytest.raises(file_io.InputError, match="already has .* config.json, .*name a new folder"):
        huggingface_export.export(model_dir=str(model_dir), output_dir=str(folder))
    assert contents(folder) == {"config.json": b"{}"}


def test_a_model_folder_may_take_its_own_export(tmp_path, model_dir):
    folder = tmp_path / "model"
    folder.mkdir()
    for name, content in contents(model_dir).items():
        (folder / name).write_bytes(content)
    huggingface_export.export(model_dir=str(folder), output_dir=str(folder))
    before = contents(model_dir)
    after = contents(folder)
    assert before.items() <= after.items()
    new = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    new.add(manifests.NAME)
    assert set(after) - set(before) == new
    assert file_io.read_json(folder / "config.json", "configuration")["vocab_size"] == 400
