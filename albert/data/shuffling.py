"""Shuffles more records than fit in memory through files.

Each record goes to a bucket drawn at random. Later each bucket is shuffled in memory and the
buckets follow each other, which is a uniform shuffle of the whole. Several processes may write at
once: each appends to its own files, in segments with a key, and a bucket is read in the order of
the keys. So the result does not depend on timing.
"""

import collections
import contextlib
import dataclasses
import itertools
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO

import numpy as np

from albert.io import file_io

BUCKET_BYTES = 64 << 20  # expected size of a bucket
MAX_BUCKETS = 4096
FLUSH_BYTES = 16 << 20  # of records that are collected in memory before they are written
# A bucket longer than this is shuffled in parts, each a random choice of its records.
MEMORY_BYTES = 4 * BUCKET_BYTES
_SEGMENT_HEADER = struct.Struct("<QQQQ")  # block, pass, number of the segment, records
Chooser = Callable[[str, int, int], bool]  # (path, block, pass) -> whether to read these records


def num_buckets(expected_bytes: float) -> int:
    """Returns the number of buckets for about `expected_bytes` of records."""
    return min(MAX_BUCKETS, 1 + int(expected_bytes // BUCKET_BYTES))


def _bucket_path(folder: str, bucket: int, writer: str) -> str:
    return os.path.join(folder, f"bucket-{bucket:05d}.{writer}")


def bucket_files(folder: str) -> dict[int, dict[str, str]]:
    """Returns {number of a bucket: {name of a writer: path}} of a folder's bucket files."""
    files: dict[int, dict[str, str]] = collections.defaultdict(dict)
    for name in file_io.listdir(folder):
        bucket, _, writer = name.partition(".")
        if bucket.startswith("bucket-"):
            files[int(bucket.removeprefix("bucket-"))][writer] = os.path.join(folder, name)
    return files


class Buckets:
    """Collects records in memory, each in a bucket drawn at random."""

    def __init__(self, number: int) -> None:
        self._records: list[list[bytes]] = [[] for _ in range(number)]
        self._num_bytes = 0

    def add(self, records: Sequence[bytes], rng: np.random.Generator) -> bool:
        """Distributes byte strings to random buckets; returns whether it is time to take them."""
        drawn = rng.integers(len(self._records), size=len(records)).tolist()
        for record, bucket in zip(records, drawn, strict=True):
            self._records[bucket].append(record)
        self._num_bytes += sum(map(len, records))
        return self._num_bytes >= FLUSH_BYTES

    def take(self) -> Iterator[tuple[int, list[bytes]]]:
        """Removes all records; yields (bucket, its records)."""
        for bucket, records in enumerate(self._records):
            if records:
                self._records[bucket] = []
                yield bucket, records
        self._num_bytes = 0


class BucketWriter:
    """Appends records to the bucket files of one process, whose name is in theirs."""

    def __init__(self, folder: str, buckets: int, name: str) -> None:
        self._folder = folder
        self._name = name
        self._buckets = Buckets(buckets)
        self._key: list[int] = []

    @contextlib.contextmanager
    def group(self, block: int, pass_number: int) -> Iterator[None]:
        """Writes the records added in the block under one key, which no other writer uses."""
        self._key = [block, pass_number, 0]
        yield
        self._flush()

    def add(self, records: Sequence[bytes], rng: np.random.Generator) -> None:
        """Distributes byte strings to random buckets."""
        if self._buckets.add(records, rng):
            self._flush()

    def _flush(self) -> None:
        for bucket, records in self._buckets.take():
            path = _bucket_path(self._folder, bucket, self._name)
            with file_io.writing(self._folder), file_io.open_file(path, "ab") as file:
                write_segment(file, path, self._key, records)
        self._key[2] += 1


@dataclasses.dataclass(frozen=True, order=True)
class Segment:
    """Records that follow each other in a file.

    Attributes:
      key: (block, pass, number of the segment); decides the order within a bucket.
      offset: start of the records' lengths, which the records follow.
      num_bytes: length including the header before `offset`.
    """

    key: tuple[int, ...]
    path: str
    offset: int
    count: int
    num_bytes: int


def write_segment(
    file: IO[bytes], path: str, key: Sequence[int], records: Sequence[bytes]
) -> Segment:
    """Appends byte strings to the open file of a path; returns their `Segment` with the `key`."""
    start = file.tell()
    header = _SEGMENT_HEADER.pack(*key, len(records))
    lengths = np.fromiter(map(len, records), "<u4", len(records)).tobytes()
    file.writelines([header, lengths, *records])
    num_bytes = len(header) + len(lengths) + sum(map(len, records))
    return Segment(tuple(key), path, start + len(header), len(records), num_bytes)


def _segments(paths: Iterable[str], choose: Chooser | None) -> list[Segment]:
    """Returns the chosen segments of bucket files, in the order of their keys."""
    segments = []
    for path in paths:
        size = file_io.size(path)
        with file_io.open_file(path, "rb") as file:
            while len(header := file.read(_SEGMENT_HEADER.size)) == _SEGMENT_HEADER.size:
                *key, count = _SEGMENT_HEADER.unpack(header)
                offset = file.tell()
                lengths = _read_segment_lengths(file, min(count, (size - offset) // 4))
                end = file.tell() + int(lengths.sum())
                if len(lengths) < count or end > size:
                    break  # Its writer was killed; the segment is incomplete.
                if choose is None or choose(path, *key[:2]):
                    num_bytes = _SEGMENT_HEADER.size + end - offset
                    segments.append(Segment(tuple(key), path, offset, count, num_bytes))
                file.seek(end)
    return sorted(segments)


def _read_segment_lengths(file: IO[bytes], count: int) -> np.ndarray:
    return np.frombuffer(file.read(4 * count), "<u4").astype(np.int64)


def _read_segment(segment: Segment) -> list[bytes]:
    with file_io.open_file(segment.path, "rb") as file:
        file.seek(segment.offset)
        lengths = _read_segment_lengths(file, segment.count).tolist()
        return [file.read(length) for length in lengths]


def shuffled_bucket(
    paths: Iterable[str], rng: np.random.Generator, choose: Chooser | None = None
) -> Iterator[bytes]:
    """Yields the records of a bucket in random order."""
    yield from shuffled_segments(_segments(paths, choose), rng)


def shuffled_segments(segments: Sequence[Segment], rng: np.random.Generator) -> Iterator[bytes]:
    """Does the same as `shuffled_bucket` for `Segment`s in the order of their keys."""
    yield from _shuffled(
        [segment.count for segment in segments],
        sum(segment.num_bytes for segment in segments),
        lambda place: _read_segment(segments[place]),
        rng,
    )


def shuffled(segments: Sequence[Sequence[bytes]], rng: np.random.Generator) -> Iterator[bytes]:
    """Does the same as `shuffled_bucket` for lists of records in memory, in order of their keys."""
    lengths = [list(map(len, records)) for records in segments]
    num_bytes = sum(_SEGMENT_HEADER.size + 4 * len(sizes) + sum(sizes) for sizes in lengths)
    yield from _shuffled(list(map(len, segments)), num_bytes, segments.__getitem__, rng)


def _shuffled(
    counts: Sequence[int],
    num_bytes: int,
    read: Callable[[int], Sequence[bytes]],
    rng: np.random.Generator,
) -> Iterator[bytes]:
    """Yields the records of all segments; `read(place)` returns those of one."""
    parts = 1 + num_bytes // MEMORY_BYTES
    part_of = rng.integers(parts, size=sum(counts))
    for part in range(parts):
        records: list[bytes] = []
        start = 0
        for place, count in enumerate(counts):
            selection = part_of[start : start + count] == part
            start += count
            records.extend(itertools.compress(read(place), selection.tolist()))
        for index in rng.permutation(len(records)).tolist():
            yield records[index]


def shuffled_records(folder: str, seed: Sequence[int]) -> Iterator[bytes]:
    """Yields all records of a folder's buckets in random order; deletes the buckets.

    Args:
      folder: folder of the `BucketWriter`s, which must have ended.
      seed: non-negative integers; the same records and seed give the same order.
    """
    for number, (_, files) in enumerate(sorted(bucket_files(folder).items())):
        paths = list(files.values())
        yield from shuffled_bucket(paths, np.random.default_rng([*seed, number]))
        for path in paths:
            file_io.remove(path)
