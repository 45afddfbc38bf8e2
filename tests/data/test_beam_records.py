"""Apache Beam makes the shards that a local run makes, with any number of workers."""

import dataclasses
import json
import os
import sys

import numpy as np
import pytest

from albert.data import beam_runner, instance_files, instance_shards, shuffling
from albert.io import file_io
from tests.support import lost_worker, processes
from tests.support.instance_samples import content_of, make_job, use_small_blocks
from tests.support.sources import ROOT

IN_THIS_PROCESS = ["--runner=DirectRunner", "--direct_running_mode=in_memory"]
TEXT = "".join(
    "\n".join(f"the boats leave before the sun is up {n} {i}" for i in range(2 + n % 7)) + "\n\n"
    for n in range(40)
)


@pytest.fixture
def text(tmp_path):
    (tmp_path / "text").write_text(TEXT)
    return str(tmp_path / "text")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    use_small_blocks(monkeypatch)


def on_beam(work):
    return beam_runner.make_shards(work, IN_THIS_PROCESS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "keeps"),
    [
        ({}, True),
        pytest.param({"mask": None, "compress": True}, False, marks=pytest.mark.slow),
        pytest.param(
            {"sequence_format": "full_sentences", "sentence_task": "none"},
            True,
            marks=pytest.mark.slow,
        ),
    ],
)
def test_files_are_those_of_a_local_run(text, tmp_path, settings, keeps, monkeypatch):
    pytest.importorskip("apache_beam")
    monkeypatch.setattr(shuffling, "BUCKET_BYTES", 5000)
    monkeypatch.setattr(beam_runner, "uses_files", lambda folder: keeps)
    job = make_job(**settings)
    counts = instance_shards.create([text], str(tmp_path / "local" / "part"), 3, job, 2)
    arguments = ([text], str(tmp_path / "beam" / "part"), 3, job)
    assert instance_shards.create(*arguments, make_shards=on_beam) == counts
    assert content_of(tmp_path / "beam") == content_of(tmp_path / "local")
    # Finished shards are those of any runner.
    monkeypatch.setattr(instance_files, "make_instances", None)
    assert instance_shards.create(*arguments) == counts


def parts_of_a_bucket(path=None):
    """Three parts of five records, in another order than that of their keys; or their places."""
    parts = [((1, 0, 0), [b"aa", b"bb"]), ((0, 1, 1), [b"cc"]), ((0, 1, 0), [b"dd", b"ee"])]
    if path is None:
        return parts
    with open(path, "wb") as file:
        segments = [shuffling.write_segment(file, str(path), *part) for part in parts]
    return list(map(dataclasses.astuple, segments))


@pytest.mark.parametrize("keeps", [True, False])
def test_work_that_is_done_twice_leaves_one_result(tmp_path, keeps, monkeypatch):
    """As runners do it that have lost a worker, or that do not want to wait for a slow one."""
    monkeypatch.setattr(beam_runner, "uses_files", lambda folder: keeps)
    parts = parts_of_a_bucket(tmp_path / "unit" if keeps else None)
    (tmp_path / "work").mkdir()
    job, tmp_path = make_job(), tmp_path / "work"
    folder = str(tmp_path)
    first = beam_runner.shuffle_bucket((5, parts), job, folder, 2)
    assert first == (2, (5, f"{folder}/shuffled-00005", 5))
    expected = content_of(tmp_path)
    assert sorted(expected["shuffled-00005"]) == sorted(b"aabbccddee")
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(file_io, "rename", lambda *_: 1 / 0)
        beam_runner.shuffle_bucket((5, parts), job, folder, 2)
    assert content_of(tmp_path) == expected
    # The runner gives the parts in any order.
    assert beam_runner.shuffle_bucket((5, iter(parts[::-1])), job, folder, 2) == first
    assert content_of(tmp_path) == expected
    monkeypatch.setattr(beam_runner, "BYTES_AT_A_TIME", 4)
    for _ in range(2):
        beam_runner.join_shard((2, iter([None, first[1]])), job, folder)
        found = content_of(tmp_path)
        assert found["shard-00002"] == expected["shuffled-00005"]
        assert json.loads(found["shard-00002.json"])["instances"] == 5
        assert len(found) == 3
    beam_runner.join_shard((0, [None]), job, folder)
    assert (tmp_path / "shard-00000").read_bytes() == b""


def test_a_unit_that_is_made_again_counts_once(tmp_path):
    counts = {"instances": 3}
    made = [(7, ((4, 0, 0), [b"aa", b"bb"])), (1, ((4, 1, 0), [b"cc"])), (None, counts)]
    unit, folder = instance_files.Unit(4, (), range(2)), str(tmp_path)

    def ended(unit):
        yield made[0]
        raise OSError(28, "No space left on device")

    with pytest.raises(file_io.InputError, match="cannot write .*No space left"):
        list(beam_runner.store_records(unit, ended, folder))
    assert not content_of(tmp_path)
    found = list(beam_runner.store_records(unit, lambda unit: iter(made), folder))
    before = content_of(tmp_path)
    assert [name.split(".")[0] for name in before] == ["unit-00004-0-1"] * 2
    # Neither a part of an earlier attempt nor another attempt changes what is found.
    (tmp_path / "unit-00004-0-1.half").write_bytes(b"rubbish")
    assert list(beam_runner.store_records(unit, lambda unit: 1 / 0, folder)) == found
    assert [bucket for bucket, _ in found] == [7, 1, None] and found[-1][1] == counts
    for (_, place), (_, (key, records)) in zip(found[:-1], made[:-1], strict=True):
        segment = shuffling.Segment(*place)
        assert segment.key == key
        rng = np.random.default_rng(1)
        assert sorted(shuffling.shuffled_segments([segment], rng)) == records


@pytest.mark.slow
def test_a_full_disk_loses_nothing(text, tmp_path, monkeypatch):
    """Neither older shards, which were to be made again, nor units that are finished."""
    pytest.importorskip("apache_beam")
    prefix, open_file = str(tmp_path / "out" / "part"), file_io.open_file
    instance_shards.create([text], prefix, 3, make_job(max_seq_length=30))
    before = content_of(tmp_path / "out")

    def full(path, mode="r"):
        if "shuffled-" in str(path) and "w" in mode:
            raise OSError(28, "No space left on device")
        return open_file(path, mode)

    def create():
        return instance_shards.create(
            [text], prefix, 3, make_job(), overwrite_shards=True, make_shards=on_beam
        )

    with monkeypatch.context() as patch:
        patch.setattr(file_io, "open_file", full)
        with pytest.raises(file_io.InputError, match="^cannot write .*No space left .*changed.$"):
            create()
    assert {name: (tmp_path / "out" / name).read_bytes() for name in before} == before
    monkeypatch.setattr(beam_runner, "make_records", lambda *_, **__: 1 / 0)  # They are all there.
    counts = create()
    local = [text], str(tmp_path / "local" / "part"), 3, make_job()
    assert instance_shards.create(*local) == counts
    assert content_of(tmp_path / "out") == content_of(tmp_path / "local")


@pytest.mark.slow
def test_workers_that_are_lost(text, tmp_path, monkeypatch, caplog):
    """In every step a worker is killed once; what it had made is neither lost nor doubled."""
    pytest.importorskip("apache_beam")
    job = make_job()
    counts = instance_shards.create([text], str(tmp_path / "local" / "part"), 3, job)
    (tmp_path / "lost").mkdir()
    monkeypatch.setenv("LOST_WORKER", str(tmp_path / "lost"))
    for name in lost_worker.STEPS:
        monkeypatch.setattr(beam_runner, name, getattr(lost_worker, name))
    found = instance_shards.create(
        [text],
        str(tmp_path / "beam" / "part"),
        3,
        job,
        make_shards=lambda work: beam_runner.make_shards(work, [], 2),
    )
    assert found == counts
    assert content_of(tmp_path / "beam") == content_of(tmp_path / "local")
    assert sorted(os.listdir(tmp_path / "lost")) == sorted(lost_worker.STEPS)
    assert caplog.text.count("Beam has lost a worker") == 3


@pytest.mark.slow
def test_the_script_with_several_workers(text, tmp_path):
    """The DirectRunner with two processes, as the script starts it."""
    pytest.importorskip("apache_beam")
    for runner in ("beam", "local"):
        result = processes.run(
            [
                *(sys.executable, "-m", "albert.create_pretraining_data", f"--runner={runner}"),
                *(f"--input_file={text}", f"--output_file={tmp_path}/{runner}/part"),
                *("--num_shards=3", "--num_workers=2", "--max_seq_length=40"),
                *("--max_predictions_per_seq=6", "--dupe_factor=4"),
                "--spm_model_file=tests/testdata/tiny.model",
            ],
            cwd=ROOT,
        )
        assert result.returncode == 0, result.stderr
        assert " instances in 3 file(s)" in result.stdout
    assert content_of(tmp_path / "beam") == content_of(tmp_path / "local")
    assert len(os.listdir(tmp_path / "beam")) == 4
