"""Shuffles more records than fit in memory, with a result that does not depend on timing.

Each record goes to a bucket drawn at random; later each bucket is shuffled in memory and the
buckets follow each other. That is a uniform shuffle of the whole. Several processes may write at
once: every one appends to files of its own, in segments with a key, and a bucket is read in the
order of the keys.
"""

import collections
import contextlib
import dataclasses
import itertools
import os
import struct

import numpy as np

from albert import file_io

BUCKET_BYTES = 64 << 20  # what a bucket should hold
MAX_BUCKETS = 4096
_FLUSH_BYTES = 16 << 20
# A bucket longer than this is shuffled in parts, each a random choice of its records.
_MEMORY_BYTES = 4 * BUCKET_BYTES
_HEADER = struct.Struct("<QQQQ")  # block, pass, number of the segment, records


def num_buckets(expected_bytes):
    """Buckets for about so many bytes of records."""
    return min(MAX_BUCKETS, 1 + int(expected_bytes // BUCKET_BYTES))


def _bucket_path(folder, bucket, writer):
    return os.path.join(folder, f"bucket-{bucket:05d}.{writer}")


class BucketWriter:
    """Appends records to the bucket files of one process.

    Args:
      folder: existing local folder.
      buckets: number of buckets.
      name: what tells this process's files from those of others.
    """

    def __init__(self, folder, buckets, name):
        self._folder = folder
        self._name = name
        self._records = [[] for _ in range(buckets)]
        self._num_bytes = 0
        self._key = None

    @contextlib.contextmanager
    def keyed(self, block, pass_number):
        """Records added inside belong together; nobody else writes under this key."""
        self._key = [block, pass_number, 0]
        yield
        self._flush()

    def add(self, records, rng):
        """Deals a list of byte strings out to random buckets."""
        buckets = self._records
        drawn = rng.integers(len(buckets), size=len(records)).tolist()
        for record, bucket in zip(records, drawn, strict=True):
            buckets[bucket].append(record)
        self._num_bytes += sum(map(len, records))
        if self._num_bytes >= _FLUSH_BYTES:
            self._flush()

    def _flush(self):
        for bucket, records in enumerate(self._records):
            if records:
                header = _HEADER.pack(*self._key, len(records))
                lengths = np.fromiter(map(len, records), "<u4", len(records)).tobytes()
                path = _bucket_path(self._folder, bucket, self._name)
                with writing(self._folder), file_io.open_file(path, "ab") as file:
                    file.writelines([header, lengths, *records])
                records.clear()
        self._key[2] += 1
        self._num_bytes = 0


@contextlib.contextmanager
def writing(folder):
    """Turns failures to write into `InputError`s that name the folder."""
    try:
        yield
    except OSError as error:
        raise file_io.InputError(
            f"cannot write in {folder}: {error.strerror}; make room there or choose another folder "
            "for the output, then start again (no output file was changed)"
        ) from error


@dataclasses.dataclass(frozen=True, order=True)
class _Segment:
    key: tuple
    path: str
    offset: int  # of the records' lengths
    count: int


def _segments(paths):
    """All segments of bucket files in the order of their keys."""
    segments = []
    for path in paths:
        with file_io.open_file(path, "rb") as file:
            while header := file.read(_HEADER.size):
                *key, count = _HEADER.unpack(header)
                segments.append(_Segment(tuple(key), path, file.tell(), count))
                file.seek(int(_read_lengths(file, count).sum()), os.SEEK_CUR)
    return sorted(segments)


def _read_lengths(file, count):
    return np.frombuffer(file.read(4 * count), "<u4").astype(np.int64)


def _read_records(segment):
    with file_io.open_file(segment.path, "rb") as file:
        file.seek(segment.offset)
        lengths = _read_lengths(file, segment.count).tolist()
        return [file.read(length) for length in lengths]


def _shuffled_bucket(paths, rng):
    segments = _segments(paths)
    total = sum(segment.count for segment in segments)
    parts = 1 + sum(map(file_io.size, paths)) // _MEMORY_BYTES
    part_of = rng.integers(parts, size=total)
    for part in range(parts):
        records, seen = [], 0
        for segment in segments:
            wanted = part_of[seen : seen + segment.count] == part
            seen += segment.count
            records.extend(itertools.compress(_read_records(segment), wanted.tolist()))
        for index in rng.permutation(len(records)).tolist():
            yield records[index]


def shuffled_records(folder, seed):
    """Yields all records of a folder's buckets in random order, and deletes the buckets.

    Args:
      folder: what the `BucketWriter`s were given; they have ended.
      seed: list of integers; the same records and seed give the same order.
    """
    buckets = collections.defaultdict(list)
    for name in file_io.listdir(folder):
        bucket = name.split(".")[0]
        buckets[bucket].append(os.path.join(folder, name))
    for number, bucket in enumerate(sorted(buckets)):
        yield from _shuffled_bucket(buckets[bucket], np.random.default_rng([*seed, number]))
        for path in buckets[bucket]:
            file_io.remove(path)
