"""Reads TFRecord files of `tf.train.Example` messages without TensorFlow, and checks every byte.

Sources: as in `tfrecord`, which writes them.
"""

import functools
import gzip
import struct
import zlib

import numpy as np

from albert import file_io, tfrecord

_RECORDS_AT_A_TIME, _BYTES_AT_A_TIME = 1024, 8 << 20
_SMALLEST = 4  # bytes of a record that a checksum can be made of at once
_LIMIT = 1 << 30  # bytes of a record; no file has larger ones
_DTYPES = {"int64_list": np.int64, "float_list": np.float32, "bytes_list": object}


# --- framing --------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1 << 16)
def _check_of_length(header):
    return tfrecord.masked_bytes(tfrecord.crc32c([header]))


def read_records(path):
    """Yields lists of the serialized records of a file, whose checksums are right.

    Args:
      path: TFRecord file, gzip or not.

    Raises:
      file_io.InputError: names the first record that is cut off or damaged, by its number from 0
        and the place of its first byte.
    """
    with file_io.open_input(path, "input_file", "rb") as file:
        if tfrecord.is_compressed(file):
            file = gzip.GzipFile(fileobj=file)
        number = offset = 0
        while True:
            records, checks, mistake = _read_some(file)
            found = tfrecord.masked_bytes(tfrecord.crc32c(records)) if records else b""
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
