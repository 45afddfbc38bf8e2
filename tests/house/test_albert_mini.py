"""How the model in the package is made: its commands, and the pairs that it learns from."""

import csv
import importlib
import sys

import numpy as np
import pytest

from albert.model import checkpoints, heads, pretraining_heads
from tests.support import builders, command_lines
from tests.support.sources import ROOT

sys.path.insert(0, str(ROOT))
albert_mini, sentence_pairs = (
    importlib.import_module(f"experiments.{name}") for name in ("albert_mini", "sentence_pairs")
)
WORDS = "the old house near river was sold to a man who came from town last year".split()


def test_its_commands_are_accepted(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    folders = {name: tmp_path / name for name in ("teacher", "data", "work")}
    (tmp_path / "data" / "corpus_large").mkdir(parents=True)
    (tmp_path / "data" / "corpus_large" / "books_00.txt").write_text("")
    albert_mini.main([*(f"--{name}={path}" for name, path in folders.items()), "--dry_run"])
    scripts = []
    for line in capsys.readouterr().out.splitlines():
        if line.startswith("python -m albert."):
            script, *arguments = line.removeprefix("python -m albert.").split(" ")
            scripts.append(script)
            command_lines.read(script, *arguments).check()
    trained = [script for script in scripts if script in ("run_pretraining", "run_classifier")]
    rounds = ["run_pretraining", *["run_classifier", "run_pretraining"] * 2]
    assert trained[: len(rounds)] == rounds
    assert scripts[:2] == ["create_pretraining_data"] * 2 and "export_to_huggingface" in scripts


def test_pairs_are_from_alike_to_unlike():
    rng = np.random.default_rng(1)
    centres = rng.normal(size=(20, 8))
    vectors = np.repeat(centres, 30, axis=0) + 0.3 * rng.normal(size=(600, 8))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    pairs = list(sentence_pairs.mine(vectors, rng))
    assert 2300 < len(pairs) < 2800  # 600 times three neighbors, one nearby, half of a random one
    for one, other, cosine in pairs:
        assert one != other and cosine == pytest.approx(vectors[one] @ vectors[other], abs=1e-5)
    flat = sentence_pairs.flatten(pairs, rng)
    assert set(flat) < set(pairs)
    kept = [np.histogram([x for *_, x in some], 10, (0, 1))[0] for some in (pairs, flat)]
    assert kept[1].max() / np.median(kept[1]) < kept[0].max() / np.median(kept[0])
    assert any(cosine > 0.9 for *_, cosine in flat) and any(cosine < 0.1 for *_, cosine in flat)


def test_altered_copies_have_words_of_both():
    rng = np.random.default_rng(1)
    text, other = "a b c d e f g h", "x y z"
    copies = [sentence_pairs.alter(text, other, rng).split(" ") for _ in range(200)]
    assert all({*copy} <= {*text.split(), *other.split()} for copy in copies)
    assert any(len(copy) < 8 for copy in copies) and any("y" in copy for copy in copies)
    assert any(copy[0] != "a" and sorted(copy) == text.split() for copy in copies)


def test_files_of_pairs_have_the_cosines_of_the_teacher(tmp_path):
    folder = builders.write_classifier(tmp_path / "teacher", pooling="mean")
    rng = np.random.default_rng(0)
    lines = [" ".join(rng.choice(WORDS, 6)) for _ in range(60)]
    (tmp_path / "text").write_text("\n".join([*lines[:30], "", *lines[30:]]) + "\n")
    files = (tmp_path / "train.csv", tmp_path / "dev.csv")
    sentence_pairs.write([tmp_path / "text"], folder, *files, count=40, held_out=10)
    train, dev = ([*csv.DictReader(file.read_text().splitlines())] for file in files)
    assert len(dev) == 10 and len(train) > 40
    vectors = [sentence_pairs.unit_vectors(folder, [row[x] for row in train]) for x in "ab"]
    expected = (vectors[0] * vectors[1]).sum(axis=1)
    found = [float(row["score"]) for row in train]
    np.testing.assert_allclose(found, expected, atol=1e-3)
    assert not [path for path in tmp_path.iterdir() if path.suffix == ".partial"]


def test_a_joined_model_has_one_head_and_the_other_encoder(tmp_path):
    config = builders.PRETRAINING_CONFIG
    first = pretraining_heads.PretrainingModel(config, seed=1)
    builders.write_model(tmp_path / "first", first, config)
    second = heads.RegressionModel(config, seed=2)
    checkpoints.save(str(tmp_path / "second"), second)
    head, encoder = tmp_path / "first" / "model.ckpt-best", tmp_path / "second"
    for _ in range(2):  # the second time it is there
        target = albert_mini.join(head, encoder, tmp_path / "joined")
    found, *parts = (checkpoints.read_tensors(str(path)) for path in (target, head, encoder))
    assert found.keys() == parts[0].keys()
    for name, value in found.items():
        np.testing.assert_array_equal(value, parts[name.startswith("bert/")][name])
    assert (tmp_path / "joined" / "albert_config.json").exists()
