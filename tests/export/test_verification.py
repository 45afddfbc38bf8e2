"""Damage in folders of checkpoints, records and exported models."""

import errno
import os
import re
import shutil
import time

import numpy as np
import pytest
import tensorflow as tf

from albert import verify
from albert.data import input_pipeline, record_files
from albert.export import saved_model_export, verification
from albert.io import file_io, manifests
from albert.model import checkpoints

SPECS = (input_pipeline.FeatureSpec("x", "int64", (3,)),)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with one of everything."""
    folder = tmp_path_factory.mktemp("made")
    for name in ("model.ckpt-7", "model.ckpt-best"):
        tensors = {"bert/kernel": tf.ones([40]), "global_step": tf.constant(7)}
        checkpoints.write_tensors(str(folder / name), tensors)
    rows = [{"x": [i, i, i]} for i in range(50)]
    record_files.write(str(folder / "eval.tf_record"), SPECS, rows, {})
    module = tf.Module()
    module.kernel = tf.Variable(tf.ones([40]))
    (folder / "words.txt").write_text("one\ntwo\n")
    module.asset = tf.saved_model.Asset(str(folder / "words.txt"))
    module.serve = tf.function(
        lambda x: x + module.kernel, input_signature=[tf.TensorSpec([40])], autograph=False
    )
    os.makedirs(folder / "export" / "text")
    saved_model_export.save_model(module, None, str(folder / "export" / "text"), "1")
    return folder


@pytest.fixture
def folder(made, tmp_path):
    shutil.copytree(made, tmp_path / "out")
    return tmp_path / "out"


def damaged(path):
    """{name: damage} of what is damaged in a folder."""
    return {
        os.path.relpath(item.path, path): item.damage
        for item in verification.check(str(path))
        if item.damage
    }


def test_what_is_whole_gets_a_line_each(folder, run_script, capsys):
    run_script(verify, path=folder)
    assert capsys.readouterr().out.replace(f"{folder}/", "") == (
        "eval.tf_record (50 records): ok\n"
        "export/text/1 (SavedModel): ok\n"
        "model.ckpt-7 (checkpoint of step 7, 2 variables): ok\n"
        "model.ckpt-best (checkpoint of step 7, 2 variables): ok\n"
        "4 checked, none is damaged\n"
    )
    for path in folder.rglob("*.manifest.json"):
        path.unlink()
    run_script(verify, path=folder)
    assert capsys.readouterr().out.count("without a manifest") == 4


def test_findings_end_the_script_with_an_error(folder, run_script, capsys):
    (folder / "model.ckpt-7.index").unlink()
    with pytest.raises(file_io.InputError, match="^1 of 4 are damaged$"):
        run_script(verify, path=folder)
    assert "model.ckpt-7 (checkpoint): DAMAGED: " in capsys.readouterr().out
    for name in ("model.ckpt-7", "model.ckpt-7.manifest.json", "model.ckpt-7.data-00000-of-00001"):
        with pytest.raises(file_io.InputError, match="1 of 1 are damaged"):
            run_script(verify, path=folder / name)
    run_script(verify, path=folder / "model.ckpt-best")
    run_script(verify, path=folder / "eval.tf_record")


def test_what_another_program_has_left_is_no_damage(folder, run_script, capsys):
    """It deletes and replaces checkpoints, and knows of no manifests."""
    for ending in ("index", "data-00000-of-00001"):
        (folder / f"model.ckpt-7.{ending}").unlink()
    assert damaged(folder) == {}
    time.sleep(0.02)
    tensors = {"bert/kernel": tf.zeros([40]), "global_step": tf.constant(9)}
    (folder / "other").mkdir()
    checkpoints.write_tensors(str(folder / "other" / "model.ckpt-9"), tensors)
    for ending in ("index", "data-00000-of-00001"):
        shutil.move(folder / f"other/model.ckpt-9.{ending}", folder / f"model.ckpt-best.{ending}")
    before = (folder / "model.ckpt-best.manifest.json").read_text()
    run_script(verify, path=folder)
    assert "(checkpoint of step 9, 2 variables, replaced by another" in capsys.readouterr().out
    assert (folder / "model.ckpt-best.manifest.json").read_text() == before


def test_what_cannot_be_read_is_not_called_damaged(folder, run_script, capsys, monkeypatch):
    sha256 = file_io.sha256

    def refused(path):
        if path.endswith(("best.index", "saved_model.pb")):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return sha256(path)

    monkeypatch.setattr(file_io, "sha256", refused)
    with pytest.raises(file_io.InputError, match="^0 of 4 are damaged, 2 cannot be read$"):
        run_script(verify, path=folder)
    out = capsys.readouterr().out
    assert "best (checkpoint): NOT READ: cannot read" in out
    assert "1 (SavedModel): NOT READ: cannot read" in out


@pytest.mark.parametrize("name", [
    "eval.tf_record", "model.ckpt-7.index", "model.ckpt-7.data-00000-of-00001",
    "export/text/1/saved_model.pb", "export/text/1/variables/variables.index",
    "export/text/1/variables/variables.data-00000-of-00001", "export/text/1/assets/words.txt",
])  # fmt: skip
@pytest.mark.parametrize("kind", ["flipped", "cut", "lost", "empty", "manifest cut"])
def test_each_damage_of_each_file_is_found(folder, name, kind):
    path = folder / name
    manifest = folder / f"{name.split('.index')[0].split('.data')[0]}.manifest.json"
    if name.startswith("export"):
        manifest = folder / "export/text/1" / manifests.NAME
    content = bytearray((manifest if kind == "manifest cut" else path).read_bytes())
    if kind == "manifest cut":
        manifest.write_bytes(content[: len(content) // 2])
    elif kind == "lost":
        path.unlink()
    else:
        content[len(content) // 2] ^= 1
        kinds = {"flipped": content, "cut": content[:-3], "empty": b""}
        path.write_bytes(kinds[kind])
    found = damaged(folder)
    whole = "export/text/1" if name.startswith("export") else name.split(".index")[0]
    assert list(found) == [whole.split(".data")[0]], found


def test_without_manifests_a_saved_model_is_parsed_and_its_values_are_read(folder):
    exported = folder / "export/text/1"
    (exported / manifests.NAME).unlink()
    for name, said in (
        ("saved_model.pb", "is damaged"),
        ("variables/variables.data-00000-of-00001", "damaged|corrupt|checksum|match"),
        ("assets/words.txt", "words.txt is missing"),
    ):
        content = (exported / name).read_bytes()
        (exported / name).unlink()
        if not name.startswith("assets"):
            (exported / name).write_bytes(bytes(255 - byte for byte in content))
        (damage,) = damaged(folder).values()
        assert re.search(said, damage), damage
        (exported / name).write_bytes(content)
    assert damaged(folder) == {}
    (exported / "variables/variables.index").unlink()
    assert "variables.index is missing" in damaged(folder)["export/text/1"]


def test_weights_of_hugging_face_and_temporary_files(tmp_path):
    with pytest.raises(file_io.InputError, match="holds nothing that can be checked"):
        list(verification.check(str(tmp_path)))
    (tmp_path / "model.ckpt-3.tmp-12-0123abcd.index").write_bytes(b"being written")
    with pytest.raises(file_io.InputError, match="holds nothing that can be checked"):
        list(verification.check(str(tmp_path)))
    (tmp_path / "model.safetensors").write_bytes(np.arange(90, dtype=np.uint8).tobytes())
    (tmp_path / "model.tflite").write_bytes(b"none")
    assert list(damaged(tmp_path)) == ["model.safetensors", "model.tflite"]
    with pytest.raises(file_io.InputError, match="there is no checkpoint .*nowhere"):
        list(verification.check(str(tmp_path / "nowhere")))
