"""Beam pipelines: what becomes of mistakes in a step and of lost workers."""

import functools
import sys

import pytest

from albert.data import beam_runner
from albert.io import file_io, processes

IN_THIS_PROCESS = ["--runner=DirectRunner", "--direct_running_mode=in_memory"]


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    with pytest.raises(file_io.InputError, match="needs a package: pip install apache-beam"):
        beam_runner.run(None, [])


def fail(kind):
    raise file_io.InputError("no room left") if kind == "input" else ZeroDivisionError("a fault")


def add_failing_step(beam, pipeline, kind):
    _ = pipeline | beam.Create([kind]) | beam.Map(fail)


def failing(kind):
    return functools.partial(add_failing_step, kind=kind)


@pytest.mark.slow
def test_mistakes_in_a_step_are_told_as_such():
    pytest.importorskip("apache_beam")
    with pytest.raises(file_io.InputError, match="^no room left$"):
        beam_runner.run(failing("input"), IN_THIS_PROCESS)
    with pytest.raises(ZeroDivisionError, match="a fault"):
        beam_runner.run(failing("other"), IN_THIS_PROCESS)


@pytest.mark.slow
def test_mistakes_in_another_process_are_told_as_such():
    pytest.importorskip("apache_beam")
    with pytest.raises(file_io.InputError, match="^no room left$"):
        beam_runner.run(failing("input"), [])


def test_a_lost_worker_is_tried_again_a_few_times(monkeypatch):
    pytest.importorskip("apache_beam")
    attempts = []

    def lose(times):
        def run(start, arguments, tasks, *others, always_start):
            attempts.append((arguments, tasks))
            if len(attempts) <= times:
                raise processes.WorkerLost("killed")
            return tasks

        monkeypatch.setattr(processes, "run", run)

    lose(2)
    beam_runner.run("steps", [], 3)
    assert attempts == [(3, ["steps"])] * 3
    attempts.clear()
    lose(9)
    with pytest.raises(file_io.InputError, match="lost a worker 4 times.* num_workers than 3"):
        beam_runner.run("steps", [], 3)
    assert len(attempts) == 4


def test_a_file_that_several_write_is_whole(tmp_path):
    path = str(tmp_path / "file")
    beam_runner.write(path, lambda name: file_io.write_text(name, "whole"))
    with pytest.raises(ZeroDivisionError):
        beam_runner.write(path, lambda name: (file_io.write_text(name, "half"), 1 / 0))
    assert [file.read_text() for file in tmp_path.iterdir()] == ["whole"]
