"""Encodes `tf.train.Example` messages without TensorFlow.

Data workers make records by the hundred thousand; this is the protobuf wire format of the three
message types that an Example consists of, for integer and float lists.
Source: protobuf encoding guide; tensorflow/core/example/{example,feature}.proto field numbers.
"""

import dataclasses
import functools
import math
import struct

import numpy as np

FLOAT_LIST, INT64_LIST = 2, 3  # field numbers of Feature's oneof


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
      shape: shape per example, () for a scalar.
      sequence: the last axis is the padded sequence and may be cut to the batch's real length.
    """

    name: str
    dtype: str
    shape: tuple = ()
    sequence: bool = False

    @property
    def size(self):
        return math.prod(self.shape)


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


def read_record_lengths(file):
    """Yields the payload length of each record of an open TFRecord file, without reading payloads.

    Args:
      file: binary file with `seek` and `tell`.

    Raises:
      ValueError: the file ends inside a record; the message gives the offset of that record.
    """
    file.seek(0, 2)
    end = file.tell()
    offset = 0
    while offset < end:
        file.seek(offset)
        header = file.read(8)
        if len(header) < 8:
            raise ValueError(f"the file ends inside the record at byte {offset}")
        (length,) = struct.unpack("<Q", header)
        offset_next = offset + 8 + 4 + length + 4
        if offset_next > end:
            raise ValueError(f"the file ends inside the record at byte {offset}")
        yield length
        offset = offset_next
