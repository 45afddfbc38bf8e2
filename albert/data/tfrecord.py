"""TFRecord files of `tf.train.Example` messages without TensorFlow: encoded and framed.

Importing TensorFlow to write a file costs 4-5 seconds and 600 MB, as much as making the data of a
small corpus; and worker processes could not share the work. Data workers make records by the
hundred thousand, so integer and float lists are encoded as arrays and records are framed many at a
time. A file may be compressed as a whole with gzip, whatever its name.
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

import numpy as np

from albert.io import file_io

FLOAT_LIST, INT64_LIST = 2, 3  # field numbers of Feature's oneof
_POLYNOMIAL = np.uint32(0x82F63B78)  # Castagnoli's, bits reversed
MANIFEST = ".manifest.json"  # what names of files end with that say what records were made of
# Two bytes of identification and the method, deflate. As the length of a first record they would
# stand for half a megabyte.
_GZIP = b"\x1f\x8b\x08"
BYTES_AT_A_TIME = 1 << 20  # bytes that are compressed or passed over


# --- messages ----------------------------------------------------------------------------------


def _length_delimited(field, payload):
    return varint(field << 3 | 2) + varint(len(payload)) + payload


# Token ids come again and again.
@functools.lru_cache(maxsize=1 << 16)
def varint(value):
    """Bytes of one integer that is not negative."""
    low, high = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + varint(high) if high else bytes([low])


@dataclasses.dataclass(frozen=True)
class FeatureSpec:
    """One feature of a task's records; declared once, it writes and parses it.

    Attributes:
      name: key in the Example and in the feature dict.
      dtype: "int64" or "float32"; int64 reaches the model as int32.
      shape: shape per example, () for a scalar, (None,) for a list of any length.
      sequence: the last axis is the padded sequence and may be cut to the batch's real length.
    """

    name: str
    dtype: str
    shape: tuple = ()
    sequence: bool = False

    @property
    def size(self):
        """Number of values; None if it may be any."""
        return None if None in self.shape else math.prod(self.shape)


def check_names(specs, names):
    """Refuses features that are not those of the specifications.

    Raises:
      ValueError: a feature is missing or unknown; names it.
    """
    declared = {spec.name for spec in specs}
    unknown, missing = sorted(set(names) - declared), sorted(declared - set(names))
    if unknown:
        raise ValueError(f"features {unknown} are not declared; declared: {sorted(declared)}")
    if missing:
        raise ValueError(f"features {missing} are missing")


def packed_varints(values):
    """Varint bytes of an integer array, one after another.

    Args:
      values: integer array of any shape; negative values take ten bytes, as protobuf wants.
    """
    values = np.asarray(values).ravel()
    if values.size == 0:
        return b""
    if values.min() >= 0 and values.max() < 0x80:
        return values.astype(np.uint8).tobytes()
    rest = values.astype(np.int64).view(np.uint64)
    groups = []  # [bytes per value][values]: seven bits each, the lowest first
    needed = []
    while True:
        groups.append((rest & np.uint64(0x7F)).astype(np.uint8))
        rest = rest >> np.uint64(7)
        more = rest != 0
        needed.append(more)
        if not more.any():
            break
    table = np.stack(groups, axis=1)
    continued = np.stack(needed, axis=1)
    table[continued] |= 0x80
    present = np.ones_like(continued)
    present[:, 1:] = continued[:, :-1]
    return table[present].tobytes()


def packed_rows(values, lengths=None):
    """List of the varint bytes of each row.

    Args:
      values: [B, N] integers from 0 to 2**31 - 1.
      lengths: [B] values of each row that count, from the front; by default all.
    """
    real = None if lengths is None else np.arange(values.shape[1]) < lengths[:, np.newaxis]
    counted = values if real is None else values[real]
    packed = packed_varints(counted)
    sizes = itertools.repeat(values.shape[1], len(values)) if real is None else lengths.tolist()
    if len(packed) > counted.size:
        of_each = np.ones(values.shape, np.int64)
        for bits in (7, 14, 21, 28):
            of_each += values >= 1 << bits
        sizes = of_each.sum(axis=1, where=True if real is None else real).tolist()
    return [
        packed[start:end] for start, end in itertools.pairwise((0, *itertools.accumulate(sizes)))
    ]


def feature_entry(name, values):
    """Bytes of one entry of an Example's feature map.

    Args:
      name: feature name.
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


def map_entry(name, kind, payload):
    """Feature-map entry from packed list bytes; see `INT64_LIST` and `FLOAT_LIST`."""
    packed = _length_delimited(1, payload)
    feature = _length_delimited(kind, packed)
    entry = _length_delimited(1, name.encode()) + _length_delimited(2, feature)
    return _length_delimited(1, entry)


@functools.lru_cache(maxsize=1 << 14)
def int64_header(name, num_bytes):
    """The bytes of an integer feature's entry before its packed varints, of which only the length
    matters.
    """
    entry = map_entry(name, INT64_LIST, bytes(num_bytes))
    return entry[: len(entry) - num_bytes]


def example(entries):
    """Serialized Example from the bytes of its feature-map entries."""
    return _length_delimited(1, b"".join(entries))


# --- framing -----------------------------------------------------------------------------------


@functools.cache
def _crc_table():
    """[65536] checksums of two bytes at a time."""
    table = np.arange(1 << 16, dtype=np.uint32)
    for _ in range(16):
        table = np.where(table & 1, table >> 1 ^ _POLYNOMIAL, table >> 1)
    return table


def crc32c(records):
    """[B] CRC-32C checksums of B byte strings of at least four bytes each.

    The bytes at one place are taken in for all records at once. Zeros before a record do not
    change a checksum that starts from zero, and starting from all ones, as the standard has it,
    is the same as inverting the first four bytes.
    """
    longest = max(map(len, records), default=0)
    longest += longest % 2
    padded = b"".join([record.rjust(longest, b"\0") for record in records])
    padded = np.frombuffer(padded, np.uint8).reshape(len(records), longest).copy()
    starts = longest - np.fromiter(map(len, records), np.int64, len(records))
    for place in range(4):
        padded[np.arange(len(records)), starts + place] ^= 0xFF
    table = _crc_table()
    checksums = np.zeros(len(records), np.uint32)
    for column in padded.view("<u2").T.copy():
        checksums = table[(checksums ^ column) & 0xFFFF] ^ (checksums >> 16)
    return ~checksums


def masked_bytes(checksums):
    """Little-endian bytes of the checksums in the form that TFRecord files hold."""
    rotated = checksums >> 15 | checksums << 17
    return (rotated + np.uint32(0xA282EAD8)).astype("<u4").tobytes()


def frame(records):
    """Bytes to write for each of a list of serialized records of at least four bytes."""
    lengths = np.fromiter(map(len, records), "<u8", len(records)).tobytes()
    lengths = [lengths[i : i + 8] for i in range(0, len(lengths), 8)]
    length_checks, record_checks = masked_bytes(crc32c(lengths)), masked_bytes(crc32c(records))
    return [
        length + length_checks[i : i + 4] + record + record_checks[i : i + 4]
        for i, length, record in zip(range(0, len(length_checks), 4), lengths, records, strict=True)
    ]


def named_files(patterns, what):
    """Record files named by comma-separated globs, as `file_io.expand_globs`; manifests are none.

    Raises:
      file_io.InputError: a pattern matches nothing, or there are only manifests.
    """
    found = file_io.expand_globs(patterns, what)
    paths = [path for path in found if not path.endswith(MANIFEST)]
    if not paths:
        raise file_io.InputError(f"{what}: no record file matches {patterns!r}, only {found[0]}")
    return paths


def is_compressed(file):
    """True if an open binary file is in gzip format; its place is then the start."""
    file.seek(0)
    start = file.read(len(_GZIP))
    file.seek(0)
    return start == _GZIP


@contextlib.contextmanager
def compressing(file):
    """A file whose content goes to an open binary file in gzip format.

    The same content gives the same bytes: neither name nor time are stored.
    """
    with (
        gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed,
        io.BufferedWriter(packed, BYTES_AT_A_TIME) as buffered,
    ):
        yield buffered


def read_record_lengths(file):
    """Yields the payload length of each record of an open TFRecord file.

    Payloads are passed over; only those of a compressed file have to be read.

    Args:
      file: binary file with `seek` and `tell`.

    Raises:
      ValueError: the file ends inside a record, and the message gives the offset of that record; or
        it is compressed, and what is compressed is cut off or damaged.
    """
    if is_compressed(file):
        file = gzip.GzipFile(fileobj=file)
        pass_over = functools.partial(_read_past, file)
    else:
        file.seek(0, 2)
        pass_over = functools.partial(_seek_past, file, file.tell())
        file.seek(0)
    offset = 0
    try:
        while header := file.read(8):
            length = struct.unpack("<Q", header)[0] if len(header) == 8 else None
            if length is None or not pass_over(4 + length + 4):
                raise ValueError(f"the file ends inside the record at byte {offset}")
            yield length
            offset += 8 + 4 + length + 4
    except EOFError as error:  # of `gzip`, as are the other two
        raise ValueError(f"its compressed data is cut off behind byte {offset}") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"its compressed data is wrong behind byte {offset}: {error}") from error


def _seek_past(file, end, count):
    """Goes on by so many bytes; whether the file has them."""
    place = file.tell() + count
    if place <= end:
        file.seek(place)
    return place <= end


def _read_past(file, count):
    """As `_seek_past`, where the end is not known."""
    while count:
        read = len(file.read(min(count, BYTES_AT_A_TIME)))
        count -= read
        if not read:
            return False
    return True


# --- Reads TFRecord files of `tf.train.Example` messages without TensorFlow, and checks every byte


_RECORDS_AT_A_TIME, _BYTES_AT_A_TIME = 1024, 8 << 20
_SMALLEST = 4  # bytes of a record that a checksum can be made of at once
_LIMIT = 1 << 30  # bytes of a record; no file has larger ones
_DTYPES = {"int64_list": np.int64, "float_list": np.float32, "bytes_list": object}


# --- framing --------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1 << 16)
def _check_of_length(header):
    return masked_bytes(crc32c([header]))


def read_records(path):
    """Yields lists of the serialized records of a file, whose checksums are right.

    Args:
      path: TFRecord file, gzip or not.

    Raises:
      file_io.InputError: names the first record that is cut off or damaged, by its number from 0
        and the place of its first byte.
    """
    with file_io.open_input(path, "input_file", "rb") as file:
        if is_compressed(file):
            file = gzip.GzipFile(fileobj=file)
        number = offset = 0
        while True:
            records, checks, mistake = _read_some(file)
            found = masked_bytes(crc32c(records)) if records else b""
            wrong = [i for i, check in enumerate(checks) if check != found[4 * i : 4 * i + 4]]
            if wrong:
                records, mistake = records[: wrong[0]], "the checksum of its content is wrong"
            if records:
                yield records
            number += len(records)
            offset += sum(map(len, records)) + 16 * len(records)
            if mistake:
                raise file_io.InputError(
                    f"{path}: record {number}, at byte {offset}, is bad: {mistake}. The {number} "
                    "records before it are whole; make the file again"
                )
            if not records:
                return


def _read_some(file):
    """(records, bytes of their checksums, what is wrong with the next one or None)."""
    records, checks, size = [], [], 0
    try:
        while len(records) < _RECORDS_AT_A_TIME and size < _BYTES_AT_A_TIME:
            header = file.read(12)
            if not header:
                break
            if len(header) < 12:
                return records, checks, "the file ends inside of it"
            if _check_of_length(header[:8]) != header[8:]:
                return records, checks, "the checksum of its length is wrong"
            (length,) = struct.unpack("<Q", header[:8])
            if not _SMALLEST <= length <= _LIMIT:
                return records, checks, f"it has {length} bytes, which is no Example"
            content = file.read(length + 4)
            if len(content) < length + 4:
                return records, checks, "the file ends inside of it"
            records.append(content[:-4])
            checks.append(content[-4:])
            size += length
    except EOFError:  # of `gzip`, as are the other two
        return records, checks, "its compressed data is cut off"
    except (gzip.BadGzipFile, zlib.error) as error:
        return records, checks, f"its compressed data is wrong ({error})"
    return records, checks, None


# --- messages -------------------------------------------------------------------------------------


@functools.cache
def _example_class():
    """Class of tf.train.Example; its map of features as a list of entries, which is the same."""
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
    pool = descriptor_pool.DescriptorPool()  # of its own: TensorFlow has the same names
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("example.Example"))


def parse_example(serialized):
    """{name: array of its values} of a serialized Example; integers, floats or byte strings.

    Raises:
      ValueError: it is no Example.
    """
    from google.protobuf import message

    try:
        example = _example_class().FromString(serialized)
    except message.DecodeError as error:
        raise ValueError(f"it is no Example: {error}") from error
    found = {}
    for entry in example.features.feature:
        for name, dtype in _DTYPES.items():
            if entry.value.HasField(name):
                found[entry.key] = np.array(getattr(entry.value, name).value, dtype)
    return found
