"""Records are read as TensorFlow reads them, and the first bad one is named."""

import gzip
import itertools

import numpy as np
import pytest
import tensorflow as tf

from albert.data import tfrecord
from albert.io import file_io


def example(number):
    """Records as TensorFlow writes them: packed lists, floats, bytes, negative numbers."""
    feature = {
        "numbers": tf.train.Feature(int64_list=tf.train.Int64List(value=[number, -3, 2**40])),
        "shares": tf.train.Feature(float_list=tf.train.FloatList(value=[0.5] * (number % 3))),
        "name": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"\xff\x00", b""])),
    }
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


@pytest.fixture
def path(tmp_path):
    with tf.io.TFRecordWriter(str(tmp_path / "records")) as writer:
        for number in range(2500):
            writer.write(example(number))
    return tmp_path / "records"


def read(path):
    return list(itertools.chain.from_iterable(tfrecord.read_records(str(path))))


def test_records_of_tensorflow(path):
    records = read(path)
    assert len(records) == 2500
    found = tfrecord.parse_example(records[2])
    assert sorted(found) == ["name", "numbers", "shares"]
    assert found["numbers"].tolist() == [2, -3, 2**40] and found["numbers"].dtype == np.int64
    assert found["shares"].tolist() == [0.5, 0.5] and found["shares"].dtype == np.float32
    assert found["name"].tolist() == [b"\xff\x00", b""]
    packed = path.with_name("packed")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert read(packed) == records


def test_what_this_project_writes_is_read(tmp_path):
    entries = [tfrecord.feature_entry("a", np.array([1, 300])), tfrecord.feature_entry("b", [0.25])]
    record = tfrecord.example(entries)
    (tmp_path / "records").write_bytes(b"".join(tfrecord.frame([record])))
    (found,) = read(tmp_path / "records")
    parsed = tfrecord.parse_example(found)
    assert parsed["a"].tolist() == [1, 300] and parsed["b"].tolist() == [0.25]
    with pytest.raises(ValueError, match="it is not an Example"):
        tfrecord.parse_example(b"\x0a\xff\xff\xff\xff")


def place_of(path, number):
    return sum(len(record) + 16 for record in read(path)[:number])


@pytest.mark.parametrize(
    ("number", "offset", "message"),
    [
        (0, 0, "the checksum of its length is wrong"),
        (1700, 9, "the checksum of its length is wrong"),
        (1700, 12, "the checksum of its content is wrong"),
        (2499, 40, "the checksum of its content is wrong"),
    ],
)
def test_a_changed_byte_is_found(path, number, offset, message):
    start = place_of(path, number)
    content = bytearray(path.read_bytes())
    content[start + offset] ^= 1
    path.write_bytes(content)
    expected = (
        f"records: record {number + 1}, at byte {start}, is bad: {message}. The {number} records"
    )
    with pytest.raises(file_io.InputError, match=expected):
        read(path)
    # Those before it are given out.
    seen = 0
    with pytest.raises(file_io.InputError):
        for records in tfrecord.read_records(str(path)):
            seen += len(records)
    assert seen == number


@pytest.mark.parametrize("left", [5, 12, 20])
def test_a_file_that_is_cut_off(path, left):
    start = place_of(path, 1200)
    path.write_bytes(path.read_bytes()[: start + left])
    with pytest.raises(file_io.InputError, match="record 1201, .*the file ends inside it"):
        read(path)


def test_compressed_files_that_are_damaged(path):
    packed = gzip.compress(path.read_bytes())
    path.write_bytes(packed[:-30])
    with pytest.raises(file_io.InputError, match="its compressed data is cut off"):
        read(path)
    path.write_bytes(packed[:-7] + b"\x00" * 7)
    with pytest.raises(file_io.InputError, match="record 2501, .*its compressed data is damaged"):
        read(path)


def test_a_record_that_can_be_none(tmp_path):
    with tf.io.TFRecordWriter(str(tmp_path / "records")) as writer:
        writer.write(b"abc")
    with pytest.raises(file_io.InputError, match="it has 3 bytes, so it is not an Example"):
        read(tmp_path / "records")
