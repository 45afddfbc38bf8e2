"""However a run ends, no thread, process or temporary file of it is left, and no graph."""

import errno
import gc
import os
import threading

import pytest
import tensorflow as tf

from albert import run_pretraining
from albert.data import record_files
from albert.io import file_io, signals
from albert.training import training_log
from tests.support import builders
from tests.support.processes import wait_until


def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def interrupted(*_):
    raise KeyboardInterrupt


def terminated(*_):
    signals.REQUESTS.terminate = True  # as the handler of SIGTERM does


def children():
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return file.read().split()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "error"),
    [
        (lambda *_: None, None),
        (full, file_io.NoRoomError),
        (interrupted, KeyboardInterrupt),
        (terminated, signals.Terminated),
    ],
)
def test_nothing_is_left(tmp_path, monkeypatch, end, error):
    rows = builders.pretraining_rows(40)
    record_files.write(str(tmp_path / "part0.tfrecord"), builders.PRETRAINING_SPECS, rows, {})
    config = builders.PRETRAINING_CONFIG.to_json_string()
    file_io.write_text(str(tmp_path / "config.json"), config)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(file_io.tempfile, "tempdir", str(temporary))
    update, write_files = training_log.TrainingLog.update, file_io.open_file

    def update_and_end(log, step, *rest):
        update(log, step, *rest)
        if step == 12:
            if end is full:  # from now on for every file
                monkeypatch.setattr(
                    file_io, "open_file",
                    lambda path, mode="r": (full if mode[0] != "r" else write_files)(path, mode),
                )  # fmt: skip
            else:
                end()

    monkeypatch.setattr(training_log.TrainingLog, "update", update_and_end)
    monkeypatch.setattr(signals.REQUESTS, "terminate", False)
    before, running = set(threading.enumerate()), children()
    flags = builders.pretraining_flags(
        tmp_path, tmp_path / "out", num_train_steps=20, do_eval=True, log_every_steps=1
    )
    if error is None:
        builders.run(run_pretraining, **flags)
        gc.collect()  # With a graph its weights would stay.
        graph_type = type(tf.function(lambda: 1, autograph=False).get_concrete_function().graph)
        graphs = {x.name for x in gc.get_objects() if isinstance(x, graph_type)}
        assert not graphs & {"one_step", "run_steps", "infer"}
    else:
        with pytest.raises(error):
            builders.run(run_pretraining, **flags)
    # The background description of the inputs need not be waited for, but it ends.
    wait_until(lambda: set(threading.enumerate()) <= before, seconds=20, say=threading.enumerate)
    assert children() == running
    assert os.listdir(temporary) == []
    left = [path.name for path in (tmp_path / "out").rglob("*")]
    assert not [name for name in left if ".tmp-" in name or name.startswith(".")]
