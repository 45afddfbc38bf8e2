"""The readers of the fuzzer: their samples, what once failed, and a few new cases of each."""

import multiprocessing
import os
import random
import subprocess
import sys
import threading
import time

import pytest

from albert.io import file_io
from tests.fuzz import mutations, readers, rounds, runner
from tests.support.processes import killed_at_the_end

CASES = 5  # of each reader; python -m tests.fuzz runs as many as there is time for
FORGERIES = 16


@pytest.fixture(scope="module")
def all_readers(tmp_path_factory):
    return readers.all_readers(str(tmp_path_factory.mktemp("work")))


@pytest.mark.slow
def test_samples_are_read_without_an_error(all_readers, tmp_path):
    for reader in all_readers.values():
        for content in reader.samples:
            reader.read(runner.write_case(str(tmp_path), reader, content))


def test_what_once_failed_and_new_damage_are_named_or_read(all_readers, tmp_path):
    findings = []
    for reader in all_readers.values():
        cases = [runner.make_case(reader, 1, number, all_readers) for number in range(CASES)]
        for path in runner.kept(reader):
            with open(path, "rb") as file:
                cases.append(runner.Case(file.read(), reader.siblings))
        for case in cases:
            if finding := runner.run_case(str(tmp_path), reader, case):
                findings.append(f"{reader.name}: {case.content[:200]}\n{finding}")
    assert not findings, "\n\n".join(findings)


@pytest.mark.parametrize("name", rounds.ALL)
def test_rounds_have_the_result_that_is_known(name):
    """See `rounds`; the packages that made the vocabularies are the witnesses."""
    findings = [rounds.find(name, 1, number) for number in range(CASES)]
    assert not any(findings), "\n\n".join(filter(None, findings))


def test_everything_kept_has_its_reader(all_readers):
    names = {name.replace("/", "__") for name in all_readers}
    assert set(file_io.listdir(runner.CORPUS)) <= names


def _raise(error):
    def read(path):
        raise error(path)

    return read


@pytest.mark.parametrize(
    ("read", "finding"),
    [
        (_raise(file_io.InputError), None),
        (lambda path: None, None),
        (_raise(KeyError), "KeyError"),
        (_raise(lambda path: file_io.InputError("damaged")), "the message names no file: damaged"),
    ],
)
def test_only_named_errors_are_right(tmp_path, read, finding):
    found = runner.run_case(
        str(tmp_path), readers.Reader("x.bin", [b""], read), runner.Case(b"content", {})
    )
    assert found == finding if finding is None else finding in found


@pytest.mark.parametrize(
    ("read", "finding"),
    [
        (lambda path: time.sleep(0.4), None),  # as where other programs have the processors
        (lambda path: _compute(0.4), "of a processor"),
    ],
    ids=["waits", "computes"],
)
def test_time_of_a_case_is_that_of_a_processor(tmp_path, monkeypatch, read, finding):
    monkeypatch.setattr(runner, "SECONDS", 0.2)
    found = runner.run_case(
        str(tmp_path), readers.Reader("x.bin", [b""], read), runner.Case(b"content", {})
    )
    assert found == finding if finding is None else finding in found


def _compute(seconds):
    started = time.process_time()
    while time.process_time() - started < seconds:
        pass


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "seconds", "hangs"),
    [
        ("import time; time.sleep(60)", 60, True),
        ("while True: pass", 0.1, True),
        ("while True: pass", 60, False),  # slow, but it answers
    ],
    ids=["waits", "computes too long", "computes"],
)
def test_a_process_that_hangs(monkeypatch, program, seconds, hangs):
    monkeypatch.setattr(runner, "SECONDS", seconds)
    monkeypatch.setattr(runner, "WAIT", 0.7)
    monkeypatch.setattr(runner, "IDLE", 0.0001 if "pass" in program else 0.5)
    ours, theirs = multiprocessing.Pipe()
    process = subprocess.Popen([sys.executable, "-S", "-c", program])
    answer = threading.Timer(2.0, theirs.send, ["an answer"])
    with killed_at_the_end([process]):
        if not hangs:
            answer.start()
        assert runner.hangs(ours, process.pid) == hangs


def test_a_new_worker_starts_without_the_files_of_a_killed_one(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", os.fsync)  # a worker replaces it
    monkeypatch.setattr(readers, "all_readers", lambda work: os.mkdir(os.path.join(work, "made")))
    pipe, theirs = multiprocessing.Pipe()
    for _ in range(2):
        pipe.send(None)
        runner._work(theirs, [], 1, str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == ["case", "work"]


def test_a_case_is_a_function_of_its_number():
    reader = readers.Reader("x.bin", [b"some content", b"other"], None, {"siblings": b""})

    def make(seed):
        return [runner.make_case(reader, seed, number, {"x": reader}) for number in range(200)]

    cases = make(1)
    assert cases == make(1) != make(2)
    assert len({case.content for case in cases}) > 150
    assert {case.change != () for case in cases} == {True, False}
    assert {case.siblings != reader.siblings for case in cases} == {True, False}


@pytest.mark.parametrize(("content", "left"), [(None, False), (b"new", True)])
def test_a_file_changes_while_it_is_read(tmp_path, content, left):
    path, found = str(tmp_path / "x.bin"), []

    def read(path):
        for _ in range(2):
            with file_io.open_input(path, "file", "rb") as file:
                found.append(file.read())

    case = runner.Case(b"old", {}, (1, content))
    assert runner.run_case(str(tmp_path), readers.Reader("x.bin", [], read), case) is None
    assert found == [b"old", content][: 1 + left] and file_io.exists(path) == left


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["module.tar.gz", "rows.tf_record", "rows.gz", "compact.tf_record"]
)
def test_forged_values_have_right_checksums(all_readers, tmp_path, name):
    """Some are read to their end, others are refused for what they hold."""
    reader, messages = all_readers[name], []
    for number in range(FORGERIES):
        content = reader.forge(random.Random(number), reader.samples[0])
        path = runner.write_case(str(tmp_path), reader, content)
        try:
            reader.read(path)
        except file_io.InputError as error:
            messages.append(str(error))
    assert len(set(messages)) > 3 and len(messages) < FORGERIES


@pytest.mark.parametrize("change", mutations.ALL, ids=lambda change: change.__name__)
def test_every_change_takes_any_content(change):
    rng = random.Random(1)
    for content in (b"", b"1", b'{"a": 12}', bytes(range(256))):
        results = [change(rng, content, [content, b"other"]) for _ in range(30)]
        assert all(isinstance(result, bytes) for result in results)
    content = b'{"a": 12, "word": "value"}'
    assert any(change(rng, content, [content, b"other"]) != content for _ in range(30))
