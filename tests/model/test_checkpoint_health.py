"""Which damage to a checkpoint is found, and from where a run resumes then."""

import errno
import json
import os
import shutil
import time

import numpy as np
import pytest
import tensorflow as tf

from albert.io import file_io
from albert.model import checkpoints

DATA = "data-00000-of-00001"


class Model(tf.Module):
    """One variable that an optimizer would train, and its names."""

    def __init__(self, value=0.0):
        super().__init__()
        self.kernel = tf.Variable(tf.fill([40], value), name="bert/kernel")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with the checkpoints 10, 20, 30 and the best; the values are the steps."""
    folder = tmp_path_factory.mktemp("saved")
    for step in (10, 20, 30):
        tensors = {"bert/kernel": tf.fill([40], float(step)), "global_step": tf.constant(step)}
        checkpoints.write_tensors(str(folder / f"model.ckpt-{step}"), tensors, with_meta=True)
    checkpoints.replace_best(str(folder), str(folder / "model.ckpt-20"))
    checkpoints.update_pointer(str(folder))
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    shutil.copytree(saved, tmp_path / "out")
    return tmp_path / "out"


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path, place=-1):
    content = bytearray(path.read_bytes())
    content[place] ^= 4
    path.write_bytes(content)


# What is done to model.ckpt-30, and the message about it.
DAMAGES = {
    "index cut": (lambda p: cut(p("index")), r"index has \d+ bytes, \d+ were written"),
    "index flipped": (lambda p: flip(p("index"), 9), r"index has the SHA-256 \w+…, \w+… was"),
    "index lost": (lambda p: p("index").unlink(), "index is missing"),
    "data cut": (lambda p: cut(p(DATA)), rf"{DATA} has \d+ bytes, \d+ were written"),
    "data empty": (lambda p: p(DATA).write_bytes(b""), f"{DATA} has 0 bytes"),
    "data flipped": (lambda p: flip(p(DATA)), f"{DATA} has the SHA-256"),
    "data lost": (lambda p: p(DATA).unlink(), f"{DATA} is missing"),
    "part too many": (lambda p: p("data-00001-of-00002").touch(), "does not list .*data-00001"),
    "manifest cut": (lambda p: cut(p("manifest.json")), "manifest.json is not valid JSON"),
    "manifest empty": (lambda p: p("manifest.json").write_text(""), "is not valid JSON"),
    "manifest bytes": (lambda p: p("manifest.json").write_bytes(b"\xff"), "is not UTF-8"),
    "manifest other": (
        lambda p: p("manifest.json").write_text("[1]"),
        "must hold an object",
    ),
    "manifest poor": (
        lambda p: p("manifest.json").write_text('{"version": 1, "files": {".index": {}}}'),
        "has no sizes and sums of files",
    ),
    "manifest of others": (
        lambda p: p("manifest.json").write_text('{"version": 1, "files": {}}'),
        "is not the manifest of a checkpoint",
    ),
}


def damage(folder, name, do):
    do(lambda ending: folder / f"{name}.{ending}")


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_run_goes_on_from_the_checkpoint_before_a_damaged_one(folder, caplog, kind):
    do, said = DAMAGES[kind]
    damage(folder, "model.ckpt-30", do)
    assert checkpoints.last_whole(str(folder)) == str(folder / "model.ckpt-20")
    (line,) = [r.getMessage() for r in caplog.records if r.levelname == "ERROR"]
    assert str(folder / "model.ckpt-30") in line and "steps 21 to 30 are repeated" in line
    with pytest.raises(AssertionError, match=said):
        raise AssertionError(line)
    # Nothing takes it for a checkpoint any longer, and none of its files is deleted.
    assert [checkpoints.step_of(p) for p in checkpoints.numbered(str(folder))] == [10, 20]
    assert tf.train.latest_checkpoint(str(folder)) == str(folder / "model.ckpt-20")
    left = [path.name for path in folder.glob("model.ckpt-30*") if path.suffix != ".meta"]
    assert left and all(name.endswith(".damaged") for name in left)
    caplog.clear()
    assert checkpoints.last_whole(str(folder)) == str(folder / "model.ckpt-20")
    assert not caplog.records


@pytest.mark.parametrize("kind", [k for k in DAMAGES if k not in ("index lost", "part too many")])
def test_a_damaged_best_is_a_named_error(folder, kind):
    do, said = DAMAGES[kind]
    damage(folder, "model.ckpt-best", do)
    model = Model()
    prefix = checkpoints.choose(str(folder), None)
    with pytest.raises(file_io.InputError, match=rf"ckpt-best is damaged: .*{said}") as raised:
        checkpoints.restore(model, prefix, allow_new_heads=False)
    assert str(raised.value).endswith(f"use another, such as {folder}/model.ckpt-30")
    np.testing.assert_array_equal(model.kernel, np.zeros(40))
    checkpoints.restore(model, checkpoints.choose(str(folder), "last"))
    np.testing.assert_array_equal(model.kernel, np.full(40, 30.0))


def test_a_step_in_data_that_was_cut_is_a_named_error(folder):
    path = folder / f"model.ckpt-best.{DATA}"
    path.write_bytes(path.read_bytes()[:8])
    with pytest.raises(file_io.InputError, match="model.ckpt-best is damaged: .*ckpt-30"):
        checkpoints.read_step(str(folder / "model.ckpt-best"))


@pytest.mark.parametrize("kind", ["index cut", "data cut", "data flipped", "data lost"])
def test_without_a_manifest_tensorflows_checksums_count(folder, caplog, kind):
    for path in folder.glob("*.manifest.json"):
        path.unlink()
    assert checkpoints.last_whole(str(folder)) == str(folder / "model.ckpt-30")
    damage(folder, "model.ckpt-30", DAMAGES[kind][0])
    assert checkpoints.last_whole(str(folder)) == str(folder / "model.ckpt-20")
    assert "steps 21 to 30 are repeated" in caplog.text


def test_values_are_read_though_the_manifest_fits(folder):
    """Files that were damaged before their sum was taken."""
    flip(folder / f"model.ckpt-30.{DATA}")
    prefix = str(folder / "model.ckpt-30")
    checkpoints.write(prefix, 30, ["bert/kernel", "global_step"])
    assert checkpoints.manifest_mismatch(prefix) is None
    assert checkpoints.last_whole(str(folder)) == str(folder / "model.ckpt-20")


def replace_by(folder, name, other, move=False):
    """Writes as another program does that has no manifests."""
    for ending in ("index", DATA, "meta"):
        source, target = folder / f"{other}.{ending}", folder / f"{name}.{ending}"
        (os.replace if move else shutil.copyfile)(source, target)


@pytest.mark.parametrize("move", [False, True])
def test_files_of_another_program_get_a_manifest_of_their_own(folder, caplog, move):
    """Ours, then the reference, then ours: the best is replaced, an older one renamed."""
    prefix, manifest = str(folder / "model.ckpt-best"), folder / "model.ckpt-best.manifest.json"
    time.sleep(0.02)  # more than the clock of a file system is wrong
    replace_by(folder, "model.ckpt-best", "model.ckpt-10", move)
    before = manifest.read_text()
    assert checkpoints.damage_of(prefix) is None and manifest.read_text() == before
    model = Model()
    with caplog.at_level("WARNING", logger="absl"):
        checkpoints.restore(model, prefix, allow_new_heads=False)
    np.testing.assert_array_equal(model.kernel, np.full(40, 10.0))
    (line,) = [record.getMessage() for record in caplog.records]
    assert str(manifest) in line and "another program has replaced them" in line
    caplog.clear()
    assert json.loads(manifest.read_text())["step"] == 10
    checkpoints.restore(model, prefix, allow_new_heads=False)
    assert checkpoints.manifest_mismatch(prefix) is None and not caplog.records


def test_a_run_goes_on_from_a_checkpoint_that_another_program_has_replaced(folder, caplog):
    time.sleep(0.02)
    replace_by(folder, "model.ckpt-30", "model.ckpt-10")
    assert checkpoints.last_whole(str(folder)) == str(folder / "model.ckpt-30")
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    assert checkpoints.manifest_mismatch(str(folder / "model.ckpt-30")) is None


@pytest.mark.parametrize("kind", ["manifest newer", "value wrong", "data alone"])
def test_other_files_than_the_manifest_names_are_damage(folder, kind):
    time.sleep(0.02)
    replace_by(folder, "model.ckpt-30", "model.ckpt-10")
    if kind == "manifest newer":
        os.utime(folder / "model.ckpt-30.manifest.json")
    elif kind == "value wrong":
        flip(folder / f"model.ckpt-30.{DATA}")
    else:
        shutil.copyfile(folder / f"model.ckpt-20.{DATA}", folder / f"model.ckpt-30.{DATA}")
    assert checkpoints.last_whole(str(folder)) == str(folder / "model.ckpt-20")


@pytest.mark.parametrize("with_manifest", [True, False])
@pytest.mark.parametrize("ending", ["index", DATA, "manifest.json"])
@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO])
def test_what_cannot_be_read_is_not_damaged(folder, monkeypatch, code, ending, with_manifest):
    """Neither a run nor a use of the checkpoint renames or blames its files."""
    path = folder / f"model.ckpt-30.{ending}"
    if not with_manifest:
        if ending == "manifest.json":
            return
        (folder / "model.ckpt-30.manifest.json").unlink()
        content = path.read_bytes()
        path.write_bytes(bytes(len(content)))  # TensorFlow also finds it unreadable
    open_file = file_io.open_file

    def refused(name, mode="r"):
        if str(name) == str(path):
            raise OSError(code, os.strerror(code), name)
        return open_file(name, mode)

    before = sorted(os.listdir(folder))
    monkeypatch.setattr(file_io, "open_file", refused)
    for use in (
        lambda: checkpoints.last_whole(str(folder)),
        lambda: checkpoints.restore(Model(), str(folder / "model.ckpt-30")),
    ):
        with pytest.raises(file_io.UnreadableError, match=os.strerror(code)) as raised:
            use()
        assert str(path) in str(raised.value) and "damaged" not in str(raised.value)
    assert sorted(os.listdir(folder)) == before


def test_a_path_that_tensorflow_cannot_read_is_refused_at_once(folder):
    """It takes a backslash for a sign of its patterns, and finds nothing."""
    bad = str(folder / "one\\two" / "model.ckpt-1")
    with pytest.raises(file_io.InputError, match="whose path has a backslash: .*one.two"):
        checkpoints.write_tensors(bad, {"a": tf.zeros([2])})
    assert not (folder / "one\\two").exists()
    (folder / "one\\two").mkdir()
    for ending in ("index", DATA):
        shutil.copyfile(folder / f"model.ckpt-10.{ending}", f"{bad}.{ending}")
    with pytest.raises(file_io.InputError, match="has a backslash"):
        checkpoints.restore(Model(), bad)


def test_several_damaged_checkpoints_are_passed_over(folder, caplog):
    for step in (20, 30):
        cut(folder / f"model.ckpt-{step}.{DATA}")
    assert checkpoints.last_whole(str(folder)) == str(folder / "model.ckpt-10")
    assert "steps 11 to 30" in caplog.text and "steps 11 to 20" in caplog.text


def test_a_folder_of_damaged_checkpoints_is_an_error_and_stays(folder):
    for step in (10, 20, 30):
        cut(folder / f"model.ckpt-{step}.{DATA}")
    before = sorted(path.name for path in folder.iterdir())
    with pytest.raises(file_io.InputError, match="no undamaged checkpoint to resume from: .*again"):
        checkpoints.last_whole(str(folder))
    assert sorted(path.name for path in folder.iterdir()) == before
    assert checkpoints.last_whole(str(folder / "none")) is None


def test_what_a_manifest_says(folder):
    manifest = json.loads((folder / "model.ckpt-30.manifest.json").read_text())
    index = folder / "model.ckpt-30.index"
    assert (manifest["step"], manifest["variables"]) == (30, ["bert/kernel", "global_step"])
    assert sorted(manifest["files"]) == [f".{DATA}", ".index"]
    assert manifest["files"][".index"] == {
        "bytes": os.path.getsize(index), "sha256": file_io.sha256(str(index)),
    }  # fmt: skip
    best = (folder / "model.ckpt-best.manifest.json").read_text()
    assert best == (folder / "model.ckpt-20.manifest.json").read_text()


def test_a_kill_never_leaves_a_manifest_of_other_files(folder, monkeypatch):
    """However far a save, a copy or a deletion came, no checkpoint stands next to a wrong one."""

    class Kill(BaseException):
        """Comes before the change of a file whose turn it is."""

    tensors = {"bert/kernel": tf.fill([40], 7.0), "global_step": tf.constant(7)}
    prefix, best = str(folder / "model.ckpt-30"), str(folder / "model.ckpt-best")
    works = [
        lambda: checkpoints.write_tensors(prefix, tensors, with_meta=True),
        lambda: checkpoints.replace_best(str(folder), str(folder / "model.ckpt-10")),
        lambda: checkpoints.delete(prefix),
        lambda: checkpoints.quarantine(prefix),
    ]
    changes = {name: getattr(file_io, name) for name in ("rename", "remove", "copy", "link")}

    def stop_at(turn):
        left = [turn]

        def watched(name):
            def change(*arguments):
                if left[0] == 0:
                    raise Kill
                left[0] -= 1
                changes[name](*arguments)

            return change

        for name in changes:
            monkeypatch.setattr(file_io, name, watched(name))

    original = {path: path.read_bytes() for path in folder.iterdir()}
    for work in works:
        killed = 0
        for turn in range(40):
            for path in folder.iterdir():
                path.unlink()
            for path, content in original.items():
                path.write_bytes(content)
            stop_at(turn)
            try:
                work()
            except Kill:
                killed += 1
            monkeypatch.undo()
            for found in (prefix, best, str(folder / "new-model.ckpt-best")):
                if checkpoints.prefix_exists(found):
                    assert checkpoints.damage_of(found) is None
            assert checkpoints.find_best(str(folder))
            if killed <= turn:
                break
        assert 3 <= killed < 40


def test_pruning_ends_what_a_kill_left_half_deleted(folder):
    (folder / "model.ckpt-10.index").unlink()
    checkpoints.prune(str(folder), keep=2)
    assert not list(folder.glob("model.ckpt-10*"))
    checkpoints.prune(str(folder), keep=1)
    names = {path.name for path in folder.glob("*.manifest.json")}
    assert names == {"model.ckpt-30.manifest.json", "model.ckpt-best.manifest.json"}
