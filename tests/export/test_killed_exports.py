"""Exports that are killed at each of their steps leave nothing that is taken for a model.

A killed process is played by this one: from a step on, none of its changes to files has an effect.
"""

import os

import numpy as np
import pytest
import tensorflow as tf

from albert import export_checkpoints, export_to_huggingface, export_to_tfhub
from albert.export import saved_model_export
from albert.io import file_io, manifests
from albert.model import checkpoints
from albert.serving import embeddings
from tests.support import builders

CONFIG = builders.tiny_config(hidden_size=8, embedding_size=4, intermediate_size=8)
_NO_PROCESS = 2**22 + 1  # above all numbers that are given


class Killed(BaseException):
    """The process has ended."""


class Steps:
    """Lets a number of changes to files happen, and none after them."""

    def __init__(self, monkeypatch, count):
        self.left = count
        for owner, name in (
            (file_io, "rename"), (file_io, "remove"), (file_io.shutil, "copyfile"),
            (file_io.os, "makedirs"), (file_io.os, "fsync"), (tf.raw_ops, "SaveV2"),
        ):  # fmt: skip
            monkeypatch.setattr(owner, name, self._step(getattr(owner, name)))
        save, open_file = tf.saved_model.save, file_io.open_file

        def save_model(module, path, **rest):
            os.mkdir(path)
            self._take()  # It is killed in there.
            os.rmdir(path)
            save(module, path, **rest)

        def open_or_end(path, mode="r"):
            if mode not in ("r", "rb"):
                self._take()
            return open_file(path, mode)

        monkeypatch.setattr(tf.saved_model, "save", save_model)
        monkeypatch.setattr(file_io, "open_file", open_or_end)
        monkeypatch.setattr(file_io.os, "getpid", lambda: _NO_PROCESS)

    def _take(self):
        self.left -= 1
        if self.left < 0:
            raise Killed

    def _step(self, act):
        def call(*arguments, **rest):
            self._take()
            return act(*arguments, **rest)

        return call


def killed_everywhere(act, check, stride=1, first=0):
    """Kills an act at its steps, each time checks what is there and does it again; their number."""
    steps, killed = first, True
    while killed:
        with pytest.MonkeyPatch.context() as monkeypatch:
            Steps(monkeypatch, steps)
            try:
                act()
                killed = False
            except Killed:
                pass
        check()
        steps += stride
    return steps


def visible(folder):
    return [path for path in folder.glob("*") if not path.name.startswith(".")]


def temporary(folder):
    return [path for path in folder.rglob("*") if ".tmp-" in path.name]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    builders.write_model(
        folder, builders.MODELS["pretraining"](CONFIG, builders.layers.Compute()), CONFIG
    )
    return folder


def test_saved_models(tmp_path):
    module = tf.Module()
    module.value = tf.Variable([1.0])
    parent = tmp_path / "export"

    def check():
        for path in visible(parent) if parent.exists() else ():
            assert manifests.export_mismatch(str(path)) is None
            assert (path / manifests.NAME).exists()

    assert (
        killed_everywhere(
            lambda: saved_model_export.save_model(module, {}, str(parent), "7"), check
        )
        > 4
    )
    assert [path.name for path in parent.iterdir()] == ["7"]


def test_checkpoints(model, tmp_path):
    target = tmp_path / "out" / "albert"

    def act():
        builders.run(export_checkpoints, albert_directory=model, export_path=target)

    def check():
        try:
            found = checkpoints.resolve(str(target.parent))
        except file_io.InputError:
            return
        assert found == str(target) and checkpoints.damage_of(found) is None

    assert killed_everywhere(act, check) > 10
    assert temporary(tmp_path) == []


def test_folders_for_transformers(model, tmp_path):
    target = tmp_path / "export" / "model"
    target.parent.mkdir()

    def act():
        builders.run(export_to_huggingface, model_dir=model, output_dir=target)

    def check():
        assert visible(target.parent) in ([], [target])
        if (target / "config.json").exists():
            assert manifests.export_mismatch(str(target)) is None

    assert killed_everywhere(act, check, stride=4) > 10
    assert temporary(tmp_path) == []


@pytest.mark.slow
def test_hub_modules(model, tmp_path):
    parent = tmp_path / "export"
    parent.mkdir()
    numbers = iter(range(100))

    def act():
        path = parent / f"module{next(numbers)}"
        builders.run(export_to_tfhub, albert_directory=model, export_path=path)

    def check():
        for path in visible(parent):
            assert manifests.export_mismatch(str(path)) is None
            assert (path / manifests.NAME).exists()

    killed_everywhere(act, check, stride=100, first=6)  # while it has its assets
    assert temporary(tmp_path) == []


@pytest.mark.parametrize("kind", ["npz", "jsonl"])
def test_vectors(tmp_path, kind):
    row = embeddings.Features(["a"] * 2, np.arange(2), np.ones([2, 1, 3]))
    path = tmp_path / f"vectors.{kind}"
    write = getattr(embeddings, f"write_{kind}")
    write(str(path), [row])
    expected = path.read_bytes()

    def check():
        return None if path.read_bytes() == expected else pytest.fail("half")

    assert killed_everywhere(lambda: write(str(path), [row]), check) > 2
    assert os.listdir(tmp_path) == [path.name]
