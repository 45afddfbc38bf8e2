"""Writes and reads TFRecord files of `tf.train.Example` messages without TensorFlow.

Importing TensorFlow in a worker costs 4-5 seconds and 600 MB, as much as making the data of a small
corpus. Data workers make records by the hundred thousand, so integer and float lists are encoded as
arrays and many records are framed at once. Readers check every byte. A whole file may be compressed
with gzip, whatever its name.

Sources: the protobuf encoding guide and tensorflow/core/example/{example,feature}.proto, field
numbers; TensorFlow's guide "TFRecord and tf.train.Example"; CRC-32C of RFC 3720, appendix B.4;
RFC 1952, section 2.3.1, the first bytes of a gzip file.
"""

import contextlib
import dataclasses
import functools
import gzip
import io
import itertools
import math
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any, cast

import numpy as np
import numpy.typing as npt

from albert.io import file_io

FLOAT_LIST, INT64_LIST = 2, 3  # field numbers of Feature's oneof
_POLYNOMIAL = np.uint32(0x82F63B78)  # Castagnoli's, bits reversed
MANIFEST = ".manifest.json"  # end of the names of files that describe record files
# Two bytes of identification and the method, deflate. No first record has the length that they
# would stand for.
_GZIP = b"\x1f\x8b\x08"
BYTES_AT_A_TIME = 1 << 20  # compressed or skipped at a time
_BATCH_RECORDS, _BATCH_BYTES = 1024, 8 << 20  # read before their checksums are compared
_PADDED_BYTES = 16 << 20  # of records whose checksums are computed together
_MIN_BYTES, _MAX_BYTES = 4, 1 << 30  # of a record; `crc32c` needs the minimum
_DTYPES = {"int64_list": np.int64, "float_list": np.float32, "bytes_list": object}


def _length_delimited(field: int, payload: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(payload)) + payload


# Cached, as the same token ids occur again and again.
@functools.lru_cache(maxsize=1 << 16)
def varint(value: int) -> bytes:
    """Returns the bytes of one integer that is not negative."""
    low, high = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + varint(high) if high else bytes([low])


@dataclasses.dataclass(frozen=True)
class FeatureSpec:
    """One feature of a task's records: one declaration for writing and parsing it.

    Attributes:
      dtype: "int64" or "float32"; int64 reaches the model as int32.
      shape: shape per example, () for a scalar, (None,) for a list of any length.
      sequence: the last axis is the padded sequence and may be cut to the batch's real length.
    """

    name: str
    dtype: str
    shape: tuple[Any, ...] = ()  # int or None
    sequence: bool = False

    @property
    def size(self) -> int | None:
        """Number of values; None for any number."""
        return None if None in self.shape else math.prod(self.shape)


def check_names(specs: Iterable[FeatureSpec], names: Iterable[str]) -> None:
    """Checks names of features; the ValueError names those that are missing or unknown."""
    declared = {spec.name for spec in specs}
    unknown, missing = sorted(set(names) - declared), sorted(declared - set(names))
    if unknown:
        raise ValueError(f"features {unknown} are not declared; declared: {sorted(declared)}")
    if missing:
        raise ValueError(f"features {missing} are missing")


def packed_varints(values: npt.ArrayLike) -> bytes:
    """Returns the varint bytes of integers, one after another; negative ones take ten bytes."""
    values = np.asarray(values).ravel()
    if values.size == 0:
        return b""
    if values.min() >= 0 and values.max() < 0x80:
        return values.astype(np.uint8).tobytes()
    rest = values.astype(np.int64).view(np.uint64)
    groups = []  # [bytes per value][values]: seven bits each, the lowest first
    continuation_bits = []
    while True:
        groups.append((rest & np.uint64(0x7F)).astype(np.uint8))
        rest = rest >> np.uint64(7)
        more = rest != 0
        continuation_bits.append(more)
        if not more.any():
            break
    table = np.stack(groups, axis=1)
    continued = np.stack(continuation_bits, axis=1)
    table[continued] |= 0x80
    present = np.ones_like(continued)
    present[:, 1:] = continued[:, :-1]
    return table[present].tobytes()


def packed_rows(values: np.ndarray, lengths: np.ndarray | None = None) -> list[bytes]:
    """Returns a list of the varint bytes of each row.

    Args:
      values: [B, N] integers from 0 to 2**31 - 1.
      lengths: [B] number of values of each row to use, from the front; by default all.
    """
    real = None if lengths is None else np.arange(values.shape[1]) < lengths[:, np.newaxis]
    counted = values if real is None else values[real]
    packed = packed_varints(counted)
    sizes = [values.shape[1]] * len(values) if lengths is None else lengths.tolist()
    if len(packed) > counted.size:
        num_bytes = np.ones(values.shape, np.int64)
        for bits in (7, 14, 21, 28):
            num_bytes += values >= 1 << bits
        sizes = num_bytes.sum(axis=1, where=True if real is None else real).tolist()
    return [
        packed[start:end] for start, end in itertools.pairwise((0, *itertools.accumulate(sizes)))
    ]


def feature_entry(name: str, values: npt.ArrayLike) -> bytes:
    """Returns the bytes of one entry of an Example's feature map.

    Args:
      values: integer or float array of any shape; float values are stored as float32.

    Raises:
      TypeError: the array is neither of integers nor of floats.
    """
    values = np.asarray(values)
    if values.dtype.kind in "iub":
        kind, payload = INT64_LIST, packed_varints(values)
    elif values.dtype.kind == "f":
        kind, payload = FLOAT_LIST, values.astype("<f4").tobytes()
    else:
        raise TypeError(f"feature {name}: cannot store an array of type {values.dtype}")
    return map_entry(name, kind, payload)


def map_entry(name: str, kind: int, payload: bytes) -> bytes:
    """Returns a feature-map entry of packed list bytes; see `INT64_LIST` and `FLOAT_LIST`."""
    packed = _length_delimited(1, payload)
    feature = _length_delimited(kind, packed)
    entry = _length_delimited(1, name.encode()) + _length_delimited(2, feature)
    return _length_delimited(1, entry)


@functools.lru_cache(maxsize=1 << 14)
def int64_header(name: str, num_bytes: int) -> bytes:
    """Returns the bytes of an integer feature's entry before its packed varints."""
    entry = map_entry(name, INT64_LIST, bytes(num_bytes))
    return entry[: len(entry) - num_bytes]


def example(entries: Iterable[bytes]) -> bytes:
    """Returns the serialized Example of the bytes of its feature-map entries."""
    return _length_delimited(1, b"".join(entries))


@functools.cache
def _crc_table() -> np.ndarray:
    """Returns the [65536] checksums of two bytes at a time."""
    table = np.arange(1 << 16, dtype=np.uint32)
    for _ in range(16):
        table = np.where(table & 1, table >> 1 ^ _POLYNOMIAL, table >> 1)
    return table


def crc32c(records: Sequence[bytes]) -> np.ndarray:
    """Returns the [B] uint32 CRC-32C checksums of B byte strings of at least four bytes each.

    Records of similar length are computed together, so that one long record does not pad the
    others to many times their size.
    """
    longest = max(map(len, records), default=0)
    if len(records) * longest <= _PADDED_BYTES:
        return _crc32c_together(records)
    lengths = np.fromiter(map(len, records), np.int64, len(records))
    order = np.argsort(-lengths)
    checksums = np.zeros(len(records), np.uint32)
    while order.size:
        count = max(1, _PADDED_BYTES // int(lengths[order[0]]))
        group, order = order[:count], order[count:]
        checksums[group] = _crc32c_together([records[number] for number in group])
    return checksums


def _crc32c_together(records: Sequence[bytes]) -> np.ndarray:
    """Does the same as `crc32c`, in memory of a few times B times the longest record.

    The bytes at one place are added for all records at once. Zeros before a record do not change a
    checksum that starts from zero. Starting from all ones, as the standard does, is the same as
    inverting the first four bytes.
    """
    longest = max(map(len, records), default=0)
    longest += longest % 2
    joined = b"".join([record.rjust(longest, b"\0") for record in records])
    padded = np.frombuffer(joined, np.uint8).reshape(len(records), longest).copy()
    starts = longest - np.fromiter(map(len, records), np.int64, len(records))
    for place in range(4):
        padded[np.arange(len(records)), starts + place] ^= 0xFF
    table = _crc_table()
    checksums = np.zeros(len(records), np.uint32)
    for column in padded.view("<u2").T.copy():
        checksums = table[(checksums ^ column) & 0xFFFF] ^ (checksums >> 16)
    return ~checksums


def masked_bytes(checksums: np.ndarray) -> bytes:
    """Returns the little-endian bytes of checksums, masked as in TFRecord files."""
    rotated = checksums >> 15 | checksums << 17
    return (rotated + np.uint32(0xA282EAD8)).astype("<u4").tobytes()


def frame(records: Sequence[bytes]) -> list[bytes]:
    """Returns the bytes to write for each serialized record, of at least four bytes."""
    packed = np.fromiter(map(len, records), "<u8", len(records)).tobytes()
    lengths = [packed[i : i + 8] for i in range(0, len(packed), 8)]
    length_checks, record_checks = masked_bytes(crc32c(lengths)), masked_bytes(crc32c(records))
    return [
        length + length_checks[i : i + 4] + record + record_checks[i : i + 4]
        for i, length, record in zip(range(0, len(length_checks), 4), lengths, records, strict=True)
    ]


def named_files(patterns: str, what: str) -> list[str]:
    """Expands comma-separated globs as `file_io.expand_globs`, without manifests."""
    matches = file_io.expand_globs(patterns, what)
    paths = [path for path in matches if not path.endswith(MANIFEST)]
    if not paths:
        raise file_io.InputError(f"{what}: no record file matches {patterns!r}, only {matches[0]}")
    return paths


def is_compressed(file: IO[bytes]) -> bool:
    """Returns whether an open binary file is in gzip format; seeks to its start."""
    file.seek(0)
    start = file.read(len(_GZIP))
    file.seek(0)
    return start == _GZIP


@contextlib.contextmanager
def compressing(file: IO[bytes]) -> Iterator[IO[bytes]]:
    """Yields a file whose content goes to an open binary file in gzip format.

    The same content gives the same bytes: neither name nor time is stored.
    """
    with (
        gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed,
        io.BufferedWriter(packed, BYTES_AT_A_TIME) as buffered,
    ):
        yield buffered


def read_record_lengths(file: IO[bytes]) -> Iterator[int]:
    """Yields the payload length of each record of an open TFRecord file.

    Skips payloads; only those of a compressed file have to be read.

    Raises:
      ValueError: the file ends inside a record, or its compressed data is cut off or damaged; the
        message gives the offset of the record.
    """
    if is_compressed(file):
        file = cast(IO[bytes], gzip.GzipFile(fileobj=file))
        skip = functools.partial(_skip_by_reading, file)
    else:
        file.seek(0, 2)
        skip = functools.partial(_skip_by_seeking, file, file.tell())
        file.seek(0)
    offset = 0
    try:
        while header := file.read(8):
            length = struct.unpack("<Q", header)[0] if len(header) == 8 else None
            if length is None or not skip(4 + length + 4):
                raise ValueError(f"the file ends inside the record at byte {offset}")
            yield length
            offset += 8 + 4 + length + 4
    except EOFError as error:  # raised by `gzip`, as the other two
        raise ValueError(f"its compressed data is cut off after byte {offset}") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"its compressed data is damaged after byte {offset}: {error}") from error


def _skip_by_seeking(file: IO[bytes], end: int, count: int) -> bool:
    """Seeks `count` bytes forward; returns whether the file has them."""
    place = file.tell() + count
    if place <= end:
        file.seek(place)
    return place <= end


def _skip_by_reading(file: IO[bytes], count: int) -> bool:
    """Does the same as `_skip_by_seeking` if the end is not known."""
    while count:
        size = len(file.read(min(count, BYTES_AT_A_TIME)))
        count -= size
        if not size:
            return False
    return True


@functools.lru_cache(maxsize=1 << 16)
def _length_checksum(header: bytes) -> bytes:
    return masked_bytes(crc32c([header]))


def check_not_text(file: IO[bytes], path: str) -> None:
    """Rejects a text, compressed or not, as lengths of records have zeros; seeks to the start."""
    start = b""
    if is_compressed(file):
        with contextlib.suppress(EOFError, gzip.BadGzipFile, zlib.error):
            start = gzip.GzipFile(fileobj=file).read(8)
    else:
        start = file.read(8)
    file.seek(0)
    if len(start) == 8 and b"\0" not in start:
        raise file_io.InputError(
            f"{path} is not a file of records (TFRecord) but a text: create_pretraining_data makes "
            "records of texts"
        )


def read_records(path: str) -> Iterator[list[bytes]]:
    """Yields lists of the serialized records of a file, gzip or not; checks their checksums."""
    with file_io.open_input(path, "input_file", "rb") as file:
        check_not_text(file, path)
        if is_compressed(file):
            file = cast(IO[bytes], gzip.GzipFile(fileobj=file))
        number = offset = 0
        while True:
            records, checks, mistake = _read_batch(file)
            checksums = masked_bytes(crc32c(records)) if records else b""
            wrong = [i for i, check in enumerate(checks) if check != checksums[4 * i : 4 * i + 4]]
            if wrong:
                records, mistake = records[: wrong[0]], "the checksum of its content is wrong"
            if records:
                yield records
            number += len(records)
            offset += sum(map(len, records)) + 16 * len(records)
            if mistake:
                raise file_io.InputError(
                    f"{path}: record {number + 1}, at byte {offset}, is bad: {mistake}. The "
                    f"{number} records before it are intact; make the file again"
                )
            if not records:
                return


def _read_batch(file: IO[bytes]) -> tuple[list[bytes], list[bytes], str | None]:
    """Returns (records, bytes of their checksums, what is wrong with the next record or None)."""
    records: list[bytes] = []
    checks: list[bytes] = []
    size = 0
    try:
        while len(records) < _BATCH_RECORDS and size < _BATCH_BYTES:
            header = file.read(12)
            if not header:
                break
            if len(header) < 12:
                return records, checks, "the file ends inside it"
            if _length_checksum(header[:8]) != header[8:]:
                return records, checks, "the checksum of its length is wrong"
            (length,) = struct.unpack("<Q", header[:8])
            if not _MIN_BYTES <= length <= _MAX_BYTES:
                return records, checks, f"it has {length} bytes, so it is not an Example"
            content = file.read(length + 4)
            if len(content) < length + 4:
                return records, checks, "the file ends inside it"
            records.append(content[:-4])
            checks.append(content[-4:])
            size += length
    except EOFError:  # raised by `gzip`, as the other two
        return records, checks, "its compressed data is cut off"
    except (gzip.BadGzipFile, zlib.error) as error:
        return records, checks, f"its compressed data is damaged ({error})"
    return records, checks, None


@functools.cache
def _example_class() -> Any:
    """Returns the class of tf.train.Example, with its map of features as a list of entries."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kind = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="example.proto", package="example", syntax="proto3"
    )
    fields = {
        "BytesList": [("value", 1, kind.TYPE_BYTES, True)],
        "FloatList": [("value", 1, kind.TYPE_FLOAT, True)],
        "Int64List": [("value", 1, kind.TYPE_INT64, True)],
        "Feature": [
            ("bytes_list", 1, "BytesList", False),
            ("float_list", 2, "FloatList", False),
            ("int64_list", 3, "Int64List", False),
        ],
        "Entry": [("key", 1, kind.TYPE_STRING, False), ("value", 2, "Feature", False)],
        "Features": [("feature", 1, "Entry", True)],
        "Example": [("features", 1, "Features", False)],
    }
    for message, members in fields.items():
        added = file.message_type.add(name=message)
        for name, number, type_, repeated in members:
            label = kind.LABEL_REPEATED if repeated else kind.LABEL_OPTIONAL
            field = added.field.add(name=name, number=number, label=label)
            if isinstance(type_, str):
                field.type, field.type_name = kind.TYPE_MESSAGE, f".example.{type_}"
            else:
                field.type = type_
    pool = descriptor_pool.DescriptorPool()  # its own: TensorFlow has the same names
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("example.Example"))


def parse_example(serialized: bytes) -> dict[str, np.ndarray]:
    """Returns {name: array of its values} of a serialized Example.

    Values are int64, float32 or byte strings (dtype object).

    Raises:
      ValueError: the bytes are not an Example.
    """
    from google.protobuf import message

    try:
        example = _example_class().FromString(serialized)
    except message.DecodeError as error:
        raise ValueError(f"it is not an Example: {error}") from error
    arrays = {}
    for entry in example.features.feature:
        for name, dtype in _DTYPES.items():
            if entry.value.HasField(name):
                arrays[entry.key] = np.array(getattr(entry.value, name).value, dtype)
    return arrays
