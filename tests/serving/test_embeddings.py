"""Vectors for texts: values, order, files, the script."""

import io
import json
import re
import shutil
import sys

import numpy as np
import pytest

from albert import extract_features
from albert.export import huggingface_export
from albert.io import file_io
from albert.model import checkpoints, heads, model_folder, pretraining_heads, sources
from albert.serving import embeddings
from albert.tasks.squad import task as squad_task
from tests.support import builders
from tests.support.sources import ROOT

CONFIG = builders.tiny_config(
    num_hidden_layers=3, intermediate_size=24, max_position_embeddings=32, initializer_range=0.3
)
TEXTS = [
    "the old harbour",
    "a much longer line about the old harbour and the bread of the town",
    "first\tsecond text",
    "",
    "bread , bread and more",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    builders.write_model(path, pretraining_heads.PretrainingModel(CONFIG, seed=1), CONFIG)
    return path


@pytest.fixture(scope="module")
def expected(tokenizer):
    """[(tokens, all layers [T, L, H], pooled [H])] of each text, computed alone."""
    model = pretraining_heads.PretrainingModel(CONFIG, seed=1).albert
    found = []
    for text in TEXTS:
        parts = [tokenizer.tokenize(part) for part in text.split("\t")]
        tokens, segments = ["[CLS]", *parts[0], "[SEP]"], [0] * (len(parts[0]) + 2)
        if len(parts) == 2:
            tokens += [*parts[1], "[SEP]"]
            segments += [1] * (len(parts[1]) + 1)
        ids = tokenizer.convert_tokens_to_ids(tokens)
        out = model(np.int32([ids]), None, np.int32([segments]))
        layers = np.stack([layer[0] for layer in out.all_encoder_layers], 1)
        found.append((tokens, layers, out.pooled_output[0].numpy()))
    return found


def extractor(folder, layers=(-1,), kind="tokens", max_seq_length=32):
    source = sources.locate(checkpoint=str(folder))
    return embeddings.Extractor(source, layers, kind, max_seq_length)


@pytest.mark.slow
@pytest.mark.parametrize("kind", embeddings.KINDS)
def test_vectors_are_the_models_whatever_the_batch(folder, expected, kind):
    layers = [0, -1]
    for batch_size in (1, 2, 16):
        rows = list(extractor(folder, layers, kind).extract(TEXTS, batch_size))
        assert [row.tokens for row in rows] == [tokens for tokens, _, _ in expected]
        for row, (_, every, pooled) in zip(rows, expected, strict=True):
            chosen = every[:, [0, 2]]
            wanted = {
                "tokens": chosen, "mean": chosen.mean(0), "first": chosen[0], "pooled": pooled,
            }[kind]  # fmt: skip
            assert row.vectors.shape == wanted.shape
            np.testing.assert_allclose(row.vectors, wanted, atol=1e-5)


def test_long_texts_are_cut(folder, expected):
    (row,) = extractor(folder, max_seq_length=8).extract([TEXTS[1]], 4)
    assert row.tokens == [*expected[1][0][:7], "[SEP]"]
    (row,) = extractor(folder, max_seq_length=6).extract(["bread bread bread\tthe the"], 4)
    assert row.tokens.count("[SEP]") == 2 and len(row.tokens) == 6


def test_texts_are_streamed(folder):
    """The first vectors come before the last text is read."""
    read = []

    def texts():
        for number in range(100):
            read.append(number)
            yield "the old harbour"

    next(iter(extractor(folder).extract(texts(), 2)))
    assert len(read) == 32


def run(run_script, **flags):
    return run_script(extract_features, **flags)


@pytest.fixture
def texts_file(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(TEXTS) + "\n")
    return path


def test_npz_of_tokens(folder, expected, tokenizer, texts_file, tmp_path, run_script):
    run(
        run_script, input_file=texts_file, output_file=tmp_path / "out.npz", batch_size=2,
        init_checkpoint=folder, layers="-2,-1", max_seq_length=32,
    )  # fmt: skip
    found = np.load(tmp_path / "out.npz")
    assert sorted(found.files) == ["offsets", "token_ids", "vectors"]
    assert found["vectors"].dtype == np.float32
    for i, (tokens, layers, _) in enumerate(expected):
        place = slice(*found["offsets"][i : i + 2])
        assert tokenizer.convert_ids_to_tokens(found["token_ids"][place]) == tokens
        np.testing.assert_allclose(found["vectors"][place], layers[:, 1:], atol=1e-5)
    assert len(found["offsets"]) == len(TEXTS) + 1
    assert not [path for path in tmp_path.iterdir() if "tmp" in path.name]


def test_npz_of_single_vectors(folder, expected, texts_file, tmp_path, run_script):
    for kind in ("mean", "pooled"):
        run(
            run_script, input_file=texts_file, output_file=tmp_path / "out.npz", vectors=kind,
            init_checkpoint=folder, max_seq_length=32,
        )  # fmt: skip
        wanted = [layers[:, 2:].mean(0) if kind == "mean" else p for _, layers, p in expected]
        np.testing.assert_allclose(np.load(tmp_path / "out.npz")["vectors"], wanted, atol=1e-5)


@pytest.mark.slow
def test_a_model_says_the_vectors_of_its_texts(folder, texts_file, tmp_path, run_script):
    shutil.copytree(folder, tmp_path / "model")
    flags = {"init_checkpoint": tmp_path / "model", "input_file": texts_file, "max_seq_length": 32}

    def vectors(**further):
        run(run_script, **flags, output_file=tmp_path / "out.npz", **further)
        return np.load(tmp_path / "out.npz")["vectors"]

    tokens, mean, first = (vectors(vectors=kind) for kind in ("tokens", "mean", "first"))
    np.testing.assert_array_equal(vectors(), tokens)
    np.testing.assert_array_equal(vectors(pooling="mean"), mean)
    np.testing.assert_array_equal(vectors(pooling="cls"), first)
    for kind, expected in (("mean_tokens", mean), ("cls_token", first)):
        builders.write_pooling(tmp_path / "model", kind)
        np.testing.assert_array_equal(vectors(), expected)
    with pytest.raises(file_io.InputError, match="--pooling and --vectors both say"):
        vectors(vectors="tokens", pooling="cls")


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({}, 32),
        ({"sentence_bert_config.json": {"max_seq_length": 9}}, 9),
        ({"sentence_albert_config.json": {"max_seq_length": 9}}, 9),
        ({"tokenizer_config.json": {"model_max_length": float("inf")}}, 32),
        ({"tokenizer_config.json": {"model_max_length": 12}}, 12),
        # sentence-transformers also takes its own number then.
        (
            {
                "tokenizer_config.json": {"model_max_length": 12},
                "sentence_bert_config.json": {"max_seq_length": 14},
            },
            14,
        ),
        ({"sentence_bert_config.json": {"max_seq_length": None}}, 32),
    ],
)
def test_a_model_says_how_long_its_texts_are(folder, tmp_path, said, expected, run_script, caplog):
    shutil.copytree(folder, tmp_path / "model")
    for name, content in said.items():
        (tmp_path / "model" / name).write_text(json.dumps(content))
    (tmp_path / "texts.txt").write_text("bread " * 40)
    flags = {"init_checkpoint": tmp_path / "model", "input_file": tmp_path / "texts.txt"}
    with caplog.at_level("INFO", logger="absl"):
        run(run_script, **flags, output_file=tmp_path / "out.jsonl", vectors="first")
    (row,) = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    assert len(row["tokens"]) == expected
    assert f"Texts are cut to {expected} tokens (--max_seq_length)" in caplog.text


def test_a_wrong_length_of_a_model_is_named(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "model")
    (tmp_path / "model" / "sentence_bert_config.json").write_text('{"max_seq_length": "9"}')
    with pytest.raises(file_io.InputError, match="max_seq_length is '9', expected a number"):
        embeddings.length_for(sources.locate(checkpoint=str(tmp_path / "model")), 512)


def test_a_trained_head_says_the_vectors_of_its_texts(tmp_path):
    for trained, expected in (("mean", "mean"), ("cls", "tokens")):
        path = builders.write_classifier(tmp_path / trained, pooling=trained)
        assert embeddings.kind_for(sources.locate(checkpoint=path)) == expected


def test_jsonl_on_standard_output(folder, expected, run_script, monkeypatch, capsys):
    content = "\n".join(TEXTS).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    run(run_script, init_checkpoint=folder, vectors="first", max_seq_length=32)
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["index"] for row in rows] == list(range(len(TEXTS)))
    for row, (tokens, layers, _) in zip(rows, expected, strict=True):
        assert row["tokens"] == tokens
        np.testing.assert_allclose(row["vectors"], layers[0, 2:], atol=1e-5)


@pytest.mark.slow
def test_hub_modules_and_hugging_face_folders_give_the_same(
    folder, texts_file, tmp_path, run_script, golden
):
    module = golden / "hub_tf1"
    checkpoint = {
        "init_checkpoint": module / "variables" / "variables.index",
        "albert_config_file": module / "assets" / "albert_config.json",
        "spm_model_file": module / "assets" / "30k-clean.model",
    }
    huggingface_export.export(str(folder), output_dir=str(tmp_path / "hf"))
    for pair in (
        [checkpoint, {"albert_hub_module_handle": module}],
        [{"init_checkpoint": folder}, {"init_checkpoint": tmp_path / "hf"}],
    ):
        found = []
        for flags in pair:
            run(
                run_script, input_file=texts_file, output_file=tmp_path / "out.jsonl",
                max_seq_length=32, **flags,
            )  # fmt: skip
            found.append((tmp_path / "out.jsonl").read_text())
        assert found[0] == found[1]
        assert len(found[0].splitlines()) == len(TEXTS)


@pytest.mark.slow(2)
def test_a_random_pooler_makes_no_vectors(folder, texts_file, tmp_path, run_script):
    huggingface_export.export(str(folder), output_dir=str(tmp_path / "hf"), head="masked_lm")
    flags = {
        "init_checkpoint": tmp_path / "hf", "input_file": texts_file, "max_seq_length": 32,
        "output_file": tmp_path / "out.jsonl",
    }  # fmt: skip
    message = "lacks .*'bert/pooler/dense/kernel'.* no pooler.*or take .* --vectors=mean or first"
    with pytest.raises(file_io.InputError, match=message):
        run(run_script, **flags, vectors="pooled")
    assert not (tmp_path / "out.jsonl").exists()
    # A run that starts from it saves a pooler that its loss does not train.
    squad = squad_task.Settings(32, 8, 8, 3, 10).to_dict()
    model = heads.SquadV1Model(CONFIG, seed=2)
    report = checkpoints.restore(model, str(tmp_path / "hf"))
    started = sources.locate(checkpoint=str(folder))
    model_folder.write(str(tmp_path / "run"), squad_task.V1, CONFIG, started, squad)
    checkpoints.save(str(tmp_path / "run" / "model.ckpt-9"), model)
    (tmp_path / "run" / "load_report.json").write_text(json.dumps(report.to_dict()))
    own = {**flags, "init_checkpoint": tmp_path / "run"}
    with pytest.raises(file_io.InputError, match="the pooler .* began with random values and was"):
        run(run_script, **own, vectors="pooled")
    run(run_script, **own, vectors="mean")
    run(run_script, **flags, vectors="first")
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == len(TEXTS)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"layers": "3"}, r"^--layers: the model has 3 layers, 0 to 2 or -3 to -1; got \[3\]"),
        ({"layers": "last"}, "--layers=last: expected numbers such as -1,-2"),
        ({"layers": "0", "vectors": "pooled"}, "--layers contradicts --vectors=pooled"),
        ({"layers": "", "vectors": "mean"}, "--layers: expected numbers .*, found none"),
        ({"output_file": "x.txt"}, "--output_file=x.txt: expected a name in .jsonl or .npz"),
        ({"max_seq_length": 33}, "--max_seq_length=33 must be from 4 to .* of 32"),
        ({"input_file": "no.txt"}, "--input_file: the file no.txt does not exist"),
    ],
)
def test_mistakes_are_named(folder, run_script, flags, message):
    with pytest.raises(file_io.InputError, match=message):
        run(run_script, **{"init_checkpoint": folder, "max_seq_length": 32, **flags})


def test_weights_must_be_named(folder, run_script):
    flags = {
        "albert_config_file": folder / "albert_config.json",
        "spm_model_file": folder / "30k-clean.model",
    }
    with pytest.raises(file_io.InputError, match="no weights: give --init_checkpoint"):
        run(run_script, **flags)


def test_the_program_of_the_page_prints_similarities(tmp_path, monkeypatch, capsys):
    page = (ROOT / "docs" / "vectors.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"^```python\n(.*?)^```$", page, re.S | re.M)
    monkeypatch.chdir(tmp_path)
    vectors = np.float32([[[3, 4]], [[6, 8]], [[-4, 3]]])  # [texts, layers, hidden size]
    np.savez("vectors.npz", vectors=vectors)
    exec(program, {})
    found = np.loadtxt(io.StringIO(re.sub(r"[][]", "", capsys.readouterr().out)))
    np.testing.assert_allclose(found, [[1, 1, 0], [1, 1, 0], [0, 0, 1]], atol=1e-6)
