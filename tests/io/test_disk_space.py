"""A full disk at each write: what was there stays, and the message says how much was needed.

The size of files is limited, which needs no rights and also reaches what TensorFlow writes.
"""

import contextlib
import errno
import os
import re
import resource
import subprocess
import tarfile

import numpy as np
import pytest
import tensorflow as tf

from albert.data import input_pipeline, record_files
from albert.export import saved_model_export
from albert.io import archives, file_io, locks
from albert.model import checkpoints
from albert.serving import embeddings
from albert.training import best_checkpoint, run_record, training_log


@contextlib.contextmanager
def files_of_at_most(count):
    """Writing more than a number of bytes to any file fails."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (count, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def refusal(path, act, most=0):
    """The message of an act for which there is no room; it is to name the path."""
    before = sorted(os.listdir(os.path.dirname(path)))
    with files_of_at_most(most), pytest.raises(file_io.NoRoomError) as caught:
        act()
    message = str(caught.value)
    assert message.startswith(f"cannot write {path}: {os.strerror(errno.EFBIG)}; "), message
    assert re.search(r"are free there.*\. Make room there, or name a folder on another", message)
    assert sorted(os.listdir(os.path.dirname(path))) == before
    return message


# --- messages -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("needed", "free", "text"),
    [
        (3 << 20, 5000, "; it needs 3.0 MiB; 4.9 KiB are free there. Make"),
        (None, 700, "; it needs more than the 700 bytes that are free there. Make"),
        (7 << 30, None, "; it needs 7.0 GiB. Make"),  # on a remote disk
        (None, None, ": No space left on device. Make"),
        (10, 2048, "10 bytes; 2.0 KiB are free there, so a limit (such as a quota) or"),
    ],
)
def test_what_is_said(needed, free, text):
    message = file_io.message("a/b", os.strerror(errno.ENOSPC), needed, free)
    assert message.startswith("cannot write a/b: No space left on device") and text in message
    quota = file_io.message("a/b", os.strerror(errno.EDQUOT), None, 700)
    assert "exceeded; 700 bytes are free there, so a limit (such as a quota)" in quota


def test_which_errors_are_of_too_little_room():
    assert file_io.disk_full_reason(OSError(errno.EDQUOT, "x")) == "Disk quota exceeded"
    assert file_io.disk_full_reason(OSError(errno.EROFS, "No space left on device")) is None
    error = tf.errors.ResourceExhaustedError(None, None, "a/b; No space left on device\n\tmore")
    assert file_io.disk_full_reason(error) == "No space left on device"
    assert file_io.disk_full_reason(tf.errors.ResourceExhaustedError(None, None, "OOM")) is None


def test_free_room_of_a_folder_that_is_not_there_yet(tmp_path):
    assert file_io.free_bytes(tmp_path / "a" / "b") > 0


# --- writes -------------------------------------------------------------------------------------


def test_small_files(tmp_path):
    path, other = str(tmp_path / "a"), str(tmp_path / "b")
    file_io.write_text(path, "old")
    (tmp_path / "b").write_bytes(b"x" * 5000)
    assert "needs 7 bytes" in refusal(path, lambda: file_io.write_text(path, "g\u00f6\u00dfer"))
    assert "needs 4.9 KiB" in refusal(path, lambda: file_io.copy(other, path), 4000)
    assert file_io.read_text(path, "a") == "old"
    new = str(tmp_path / "lock")
    refusal(new, lambda: file_io.create(new, "x"))

    message = f"cannot write {tmp_path}: .*, then start again .no output file was changed"
    with (
        pytest.raises(file_io.InputError, match=message),
        files_of_at_most(0),
        file_io.writing(str(tmp_path)),
        open(other, "ab") as file,
    ):
        file.write(b"x")


def test_a_checkpoint_and_the_best(tmp_path):
    prefix = str(tmp_path / "model.ckpt-5")
    old = {"a": tf.ones([3, 700]), "b": tf.constant(2, tf.int64)}
    checkpoints.write_tensors(prefix, old)
    checkpoints.replace_best(str(tmp_path), prefix)
    new = {"a": tf.zeros([3, 700]), "b": tf.constant(3, tf.int64)}

    def save():
        return checkpoints.write_tensors(prefix, new)

    assert "it needs 8.2 KiB" in refusal(prefix, save, 5000)
    best = str(tmp_path / checkpoints.NEW_BEST)
    refusal(f"{best}.data-00000-of-00001",
            lambda: checkpoints.replace_best(str(tmp_path), prefix), 5000)  # fmt: skip
    for path in (prefix, checkpoints.find_best(str(tmp_path))):
        assert checkpoints.damage_of(path) is None
        np.testing.assert_array_equal(checkpoints.read_tensors(path)["a"], 1)


SPECS = (input_pipeline.FeatureSpec("x", "float32", (300,)),)


def test_records(tmp_path):
    path = str(tmp_path / "rows")

    def make(count, version):
        return record_files.cached(
            path, SPECS, {"version": version}, lambda: [{"x": np.zeros(300)}] * count
        )

    assert make(2, 1) == 2
    refusal(path, lambda: make(90, 2), 5000)
    assert make(0, 1) == 2  # those from before


def test_events_and_metrics(tmp_path):
    folder = str(tmp_path / "run")
    file_io.make_dirs(f"{folder}/eval")

    def log():
        return training_log.TrainingLog(folder, 0, 9, 1, 0.0)

    def make_tracker():
        return best_checkpoint.BestTracker(folder, "score", True)

    for path, act in ((folder, log), (f"{folder}/eval", make_tracker)):
        with files_of_at_most(0), pytest.raises(file_io.NoRoomError, match=f"write {path}: "):
            act()
    with log() as opened:
        size = os.path.getsize(tmp_path / "run" / os.listdir(folder)[-1])

        def update():
            for step in range(1, 40):  # until the buffer of events is full
                totals = {"loss": (1.0, 1), training_log.INPUT_SECONDS: (0.0, 1)}
                opened.update(step, totals, 0.1, report=True)

        with files_of_at_most(size + 100), pytest.raises(file_io.NoRoomError):
            update()
    metrics = os.path.join(folder, run_record.METRICS)
    run_record.append_training(folder, 50, 1.0, {"loss": 1.0})
    rows, most = run_record.read_metrics(folder), os.path.getsize(metrics) + 20

    def add():
        return run_record.append_training(folder, 51, 1.0, {"loss": 1.0})

    refusal(metrics, add, most)
    assert run_record.read_metrics(folder) == rows
    run_record.start_training(folder, 50)  # the half line is dropped
    add()
    assert [row["step"] for row in run_record.read_metrics(folder)[-2:]] == [50, 51]


def test_an_archive(tmp_path):
    (tmp_path / "a.bin").write_bytes(bytes(5000))
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "a.bin", "a.bin")
    cache = tmp_path / "cache"
    cache.mkdir()
    path = str(cache / file_io.sha256(tmp_path / "a.tar.gz")[:32])
    refusal(path, lambda: archives.unpack_archive(str(tmp_path / "a.tar.gz"), str(cache)))


def test_exported_models_and_vectors(tmp_path):
    module = tf.Module()
    module.value = tf.Variable(tf.ones([5000]))
    target = saved_model_export.save_model(module, {}, str(tmp_path / "export"), "7")
    module.value.assign(tf.zeros([5000]))

    def save():
        return saved_model_export.save_model(module, {}, str(tmp_path / "export"), "7")

    assert "it needs 19.5 KiB" in refusal(target, save, 10_000)
    assert checkpoints.reader(target).get_tensor("Variable")[0] == 1
    vectors = embeddings.Features(["a"] * 9, np.arange(9), np.ones([9, 1, 100]))
    for name, write in (("v.npz", embeddings.write_npz),
                        ("v.jsonl", embeddings.write_jsonl)):  # fmt: skip
        path = str(tmp_path / name)
        file_io.write_text(path, "old")
        refusal(path, lambda: write(path, [vectors] * 3), 2000)  # noqa: B023
        assert file_io.read_text(path, "old") == "old"


# --- what may not be written --------------------------------------------------------------------


@pytest.fixture
def read_only(tmp_path):
    """A function that makes a folder read-only until the test ends."""
    mounted = []

    def protect(folder):
        if os.geteuid():
            folder.chmod(0o500)
            return
        for options in (["--bind"], ["-o", "remount,bind,ro"]):  # Root may write to any folder.
            command = ["mount", *options, str(folder), str(folder)]
            if subprocess.run(command, stderr=subprocess.DEVNULL).returncode:
                pytest.skip("may not mount")
            mounted.append(folder)

    yield protect
    for folder in set(mounted):
        subprocess.run(["umount", str(folder)], check=True)


def test_a_read_only_folder_is_named_and_can_be_read(tmp_path, read_only):
    folder = tmp_path / "folder"
    folder.mkdir()
    path, other = str(folder / "rows"), str(folder / "other")

    def make(version):
        return record_files.cached(
            path, SPECS, {"version": version}, lambda: [{"x": np.zeros(300)}] * 2
        )

    make(1)
    (folder / f"rows.tmp-{2**22 + 1}-{file_io.machine()}").write_text("of a killed process")
    read_only(folder)
    assert make(1) == 2
    vectors = embeddings.Features(["a"] * 9, np.arange(9), np.ones([9, 1, 100]))
    for path_of_act, act in (
        (other, lambda: file_io.write_text(other, "x")),
        (other, lambda: file_io.copy(path, other)),
        (other, lambda: file_io.link(path, other)),
        (other, lambda: embeddings.write_npz(other, [vectors])),
        (other, lambda: embeddings.write_jsonl(other, [vectors])),
        (f"{folder}/.lock", lambda: locks.written_by_one(str(folder)).__enter__()),
    ):
        with pytest.raises(file_io.InputError, match=f"cannot write {path_of_act}: .*; name a fol"):
            act()
    for act in (
        lambda: make(2),
        lambda: file_io.atomic_folder(other, "x").__enter__(),
        lambda: saved_model_export.save_model(tf.Module(), {}, str(folder), "7"),
    ):
        with pytest.raises(file_io.InputError, match=f"cannot write to the folder {folder}: "):
            act()
    with locks.made_by_one(other):  # Nobody else can make it either.
        pass
