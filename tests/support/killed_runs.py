"""Ends a run that makes shards at every one of its steps, each time for good, and resumes it.

    python -m tests.support.killed_runs text output spm_model_file stride

A step is a file that is opened, a part of it that is written (half of that part gets there), a
name that is changed or taken away. One of each `stride` steps is tried; prints how many
there are. No TensorFlow, so that processes may
be forked, each of which is killed by a signal that nothing can catch.
"""

import os
import signal
import sys

from albert.data import instance_files, instance_shards, instances, masking
from albert.io import file_io
from albert.text import corpus

NUM_SHARDS = 3
_real = {name: getattr(file_io, name) for name in ("open_file", "rename", "remove")}
_left = None  # steps until the end; None is never


def _kill():
    os.kill(os.getpid(), signal.SIGKILL)


def _step():
    """Takes note of a step; true for the last."""
    global _left
    if _left is None:
        return False
    _left -= 1
    return _left < 0


class _Torn:
    """A file for writing, of which the last part is half-written."""

    def __init__(self, file):
        self._file = file

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self._file.close()

    def __getattr__(self, name):
        return getattr(self._file, name)

    def write(self, data):
        if _step():
            self._file.write(data[: len(data) // 2])
            self._file.flush()
            _kill()
        return self._file.write(data)

    def writelines(self, lines):
        self.write(b"".join(lines))


def _open_file(path, mode="r"):
    if mode in ("r", "rb"):
        return _real["open_file"](path, mode)
    if _step():
        _kill()
    return _Torn(_real["open_file"](path, mode))


def _stepwise(name):
    def call(*arguments):
        if _step():
            _kill()
        return _real[name](*arguments)

    return call


def make_job(vocabulary):
    """Small instances, two passes."""
    settings = instances.Settings(max_seq_length=40, mask=masking.MaskingConfig(6))
    return instance_files.Job(settings, 2, spm_model_file=vocabulary)


def _in_child(steps, *arguments):
    """Status of a process that makes the shards and is killed after a number of steps."""
    global _left
    if not (child := os.fork()):
        _left = steps
        instance_shards.create(*arguments)
        os._exit(0)
    return os.waitpid(child, 0)[1]


def _content(folder):
    found = {}
    for name in file_io.listdir(folder):
        with open(os.path.join(folder, name), "rb") as file:
            found[name] = file.read()
    return found


def main(text, output, vocabulary, stride):
    os.fsync = lambda file: None  # What a process has written stays, however it ends.
    plan = corpus.plan_blocks
    corpus.plan_blocks = lambda paths: plan(paths, 1500, 10**6)
    file_io.open_file = _open_file
    file_io.rename, file_io.remove = _stepwise("rename"), _stepwise("remove")
    steps, expected = 0, None
    while True:
        folder = f"{output}-{steps}"
        arguments = ([text], f"{folder}/part", NUM_SHARDS, make_job(vocabulary))
        killed = _in_child(steps, *arguments)
        if killed:
            assert os.WTERMSIG(killed) == signal.SIGKILL, steps
            assert _in_child(None, *arguments) == 0, steps
        found = _content(folder)
        if expected is None:
            expected = found
            assert len(expected) == NUM_SHARDS + 1
        assert found == expected, (steps, sorted(found))
        _real["remove"](folder)
        if not killed:
            print(steps)
            return
        steps += int(stride)


if __name__ == "__main__":
    main(*sys.argv[1:])
