"""Records in random order: all of them, the same for any number of writers."""

import errno
import itertools

import numpy as np
import pytest
from scipy import stats

from albert.data import shuffling
from albert.io import file_io


def make_records(block, pass_number, count):
    return [f"{block}/{pass_number}/{i}".encode() * (1 + i % 3) for i in range(count)]


def write_all(folder, keys, buckets=5, count=40):
    for number, writers_keys in enumerate(keys):
        writer = shuffling.BucketWriter(str(folder), buckets, f"w{number}")
        for key in writers_keys:
            rng = np.random.default_rng(list(key))
            with writer.group(*key):
                for start in range(0, count, 7):
                    writer.add(make_records(*key, count)[start : start + 7], rng)


def shuffled(tmp_path, name, keys, seed=0, **kwargs):
    folder = tmp_path / name
    folder.mkdir()
    write_all(folder, keys, **kwargs)
    records = list(shuffling.shuffled_records(str(folder), [seed]))
    assert not list(folder.iterdir())
    return records


KEYS = [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_every_record_comes_once_and_the_seed_decides_the_order(tmp_path):
    everything = sorted(itertools.chain(*(make_records(*key, 40) for key in KEYS)))
    first = shuffled(tmp_path, "a", [KEYS])
    assert sorted(first) == everything
    assert first != everything
    other = shuffled(tmp_path, "b", [KEYS], seed=1)
    assert sorted(other) == everything and other != first


@pytest.mark.parametrize("flush_bytes", [1, 50, 1 << 20])
def test_order_does_not_depend_on_who_wrote_when(tmp_path, monkeypatch, flush_bytes):
    monkeypatch.setattr(shuffling, "FLUSH_BYTES", flush_bytes)
    first = shuffled(tmp_path, "a", [KEYS])
    assert shuffled(tmp_path, "b", [KEYS[::-1]]) == first
    assert shuffled(tmp_path, "c", [[KEYS[3], KEYS[0]], [KEYS[2]], [KEYS[1]]]) == first


def test_a_bucket_beyond_memory_is_shuffled_in_parts(tmp_path, monkeypatch):
    whole = shuffled(tmp_path, "a", [KEYS], buckets=1)
    monkeypatch.setattr(shuffling, "MEMORY_BYTES", 200)
    parts = shuffled(tmp_path, "b", [KEYS], buckets=1)
    assert sorted(parts) == sorted(whole)


@pytest.mark.parametrize("memory_bytes, buckets", [(1 << 20, 1), (1 << 20, 3), (100, 1)])
def test_the_shuffle_is_uniform(tmp_path, monkeypatch, memory_bytes, buckets):
    monkeypatch.setattr(shuffling, "MEMORY_BYTES", memory_bytes)
    places = []
    for trial in range(600):
        folder = tmp_path / str(trial)
        folder.mkdir()
        writer = shuffling.BucketWriter(str(folder), buckets, "w")
        with writer.group(0, 0):
            writer.add([b"0000", b"1111", b"2222", b"3333"], np.random.default_rng(trial))
        order = list(shuffling.shuffled_records(str(folder), [trial]))
        places.append(order.index(b"0000"))
    # p threshold 0.001, seeds fixed
    assert stats.chisquare(np.bincount(places, minlength=4)).pvalue > 1e-3


def test_number_of_buckets_grows_with_the_data_up_to_a_limit():
    assert shuffling.num_buckets(0) == 1
    assert shuffling.num_buckets(10 * shuffling.BUCKET_BYTES) == 11
    assert shuffling.num_buckets(1e15) == shuffling.MAX_BUCKETS


def test_no_room_on_the_disk_is_said_plainly(tmp_path, monkeypatch):
    def full(path, mode):
        raise OSError(errno.ENOSPC, "No space left on device")

    writer = shuffling.BucketWriter(str(tmp_path), 1, "w")
    monkeypatch.setattr(file_io, "open_file", full)
    with (
        pytest.raises(file_io.InputError, match="cannot write .*No space left.*Make room"),
        writer.group(0, 0),
    ):
        writer.add([b"0000"], np.random.default_rng(0))


@pytest.mark.parametrize("memory_bytes", [1 << 20, 300])
def test_what_killed_writers_left_changes_nothing(tmp_path, monkeypatch, memory_bytes):
    monkeypatch.setattr(shuffling, "MEMORY_BYTES", memory_bytes)
    monkeypatch.setattr(shuffling, "FLUSH_BYTES", 100)
    for name in ("whole", "torn"):
        (tmp_path / name).mkdir()
        write_all(tmp_path / name, [KEYS[:2], KEYS[2:]], buckets=1)
    # A whole attempt that does not count, and one that ended within a segment.
    writer = shuffling.BucketWriter(str(tmp_path / "torn"), 1, "dead")
    with writer.group(0, 0):
        writer.add(make_records(0, 0, 40), np.random.default_rng(0))
    path = tmp_path / "torn" / "bucket-00000.w1"
    size = path.stat().st_size
    path.write_bytes(path.read_bytes() + (tmp_path / "torn" / "bucket-00000.dead").read_bytes())

    def read(name, wanted):
        files = shuffling.bucket_files(str(tmp_path / name))[0]
        rng = np.random.default_rng(5)
        return list(shuffling.shuffled_bucket(list(files.values()), rng, wanted))

    def wanted(path, block, pass_number):
        return path.endswith("w1" if block else "w0")

    expected = read("whole", None)
    assert len(expected) == 160
    whole = path.read_bytes()
    for end in (len(whole), len(whole) - 1, size + 200, size + 40, size + 10):
        path.write_bytes(whole[:end])
        assert read("torn", wanted) == expected


@pytest.mark.parametrize("memory_bytes", [1 << 20, 300])
def test_in_memory_the_order_is_that_of_files(tmp_path, monkeypatch, memory_bytes):
    monkeypatch.setattr(shuffling, "MEMORY_BYTES", memory_bytes)
    monkeypatch.setattr(shuffling, "FLUSH_BYTES", 100)
    write_all(tmp_path, [KEYS], buckets=3)
    segments = {bucket: [] for bucket in range(3)}
    for key in KEYS:
        waiting, rng = shuffling.Buckets(3), np.random.default_rng(list(key))
        for start in range(0, 40, 7):
            if waiting.add(make_records(*key, 40)[start : start + 7], rng):
                for bucket, records in waiting.take():
                    segments[bucket].append(records)
        for bucket, records in waiting.take():
            segments[bucket].append(records)
    for bucket, files in shuffling.bucket_files(str(tmp_path)).items():
        from_files = shuffling.shuffled_bucket(files.values(), np.random.default_rng(2))
        in_memory = shuffling.shuffled(segments[bucket], np.random.default_rng(2))
        assert list(from_files) == list(in_memory)
