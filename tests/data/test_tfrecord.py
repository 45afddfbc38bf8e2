"""Messages and framing: the standard's check values, and the bytes of TensorFlow's own.
Shuffling: nothing lost, uniform, the same for any division of the work.
"""

import gzip
import io
import random
import struct
import tracemalloc

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from albert.data import record_files, tfrecord
from albert.io import file_io


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20))
def test_integers_parse_as_written(values):
    serialized = tfrecord.example([tfrecord.feature_entry("x", np.array(values, np.int64))])
    parsed = tf.train.Example.FromString(serialized)
    assert list(parsed.features.feature["x"].int64_list.value) == values


@pytest.mark.parametrize("largest", [1, 127, 128, 16383, 16384, 2**21, 2**35])
def test_bytes_equal_those_of_tensorflow(largest):
    values = np.array([0, largest, 1, largest // 2], np.int64)
    ours = tfrecord.example([tfrecord.feature_entry("ids", values)])
    theirs = tf.train.Example(
        features=tf.train.Features(
            feature={"ids": tf.train.Feature(int64_list=tf.train.Int64List(value=values))}
        )
    )
    assert ours == theirs.SerializeToString()


def test_floats_parse_as_written():
    values = np.array([[0.5, -1.25], [3e10, 0.1]], np.float32)
    serialized = tfrecord.example([tfrecord.feature_entry("w", values)])
    parsed = tf.train.Example.FromString(serialized).features.feature["w"].float_list.value
    np.testing.assert_array_equal(np.float32(parsed), values.ravel())


def test_other_types_are_refused():
    with pytest.raises(TypeError, match="feature t: cannot store"):
        tfrecord.feature_entry("t", np.array(["text"]))


def test_record_lengths_of_a_file(tmp_path):
    path = str(tmp_path / "records")
    with tf.io.TFRecordWriter(path) as writer:
        for length in (5, 0, 300):
            writer.write(b"x" * length)
    with open(path, "rb") as file:
        assert list(tfrecord.read_record_lengths(file)) == [5, 0, 300]


@pytest.mark.parametrize("cut", [1, 17, 25])
def test_a_cut_file_is_reported_with_the_place(cut):
    record = struct.pack("<Q", 4) + b"crc_" + b"data" + b"crc_"
    file = io.BytesIO((record * 2)[:-cut])
    start = len(record) if cut < len(record) else 0
    with pytest.raises(ValueError, match=f"inside the record at byte {start}"):
        list(tfrecord.read_record_lengths(file))


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_text_is_no_file_of_records(tmp_path, pack):
    path = tmp_path / "corpus"
    path.write_bytes(pack(b"the film was good\na bad plot\n"))
    for read in (lambda p: list(tfrecord.read_records(p)), lambda p: record_files.counts([p])):
        with pytest.raises(file_io.InputError, match="but a text: create_pretraining_data makes"):
            read(str(path))


def compressed(content):
    file = io.BytesIO()
    with tfrecord.compressing(file) as packed:
        packed.write(content)
    return file.getvalue()


def test_compressed_files_are_those_of_tensorflow(tmp_path, monkeypatch):
    monkeypatch.setattr(tfrecord, "BYTES_AT_A_TIME", 1000)
    content = tfrecord.frame([b"first", bytes(3000), b"last"])
    path = tmp_path / "records"
    path.write_bytes(compressed(b"".join(content)))
    found = [x.numpy() for x in tf.data.TFRecordDataset(str(path), "GZIP")]
    assert found == [b"first", bytes(3000), b"last"]
    with open(path, "rb") as file:
        assert tfrecord.is_compressed(file) and file.tell() == 0
        assert list(tfrecord.read_record_lengths(file)) == [5, 3000, 4]
    with tf.io.TFRecordWriter(str(path), "GZIP") as writer:
        writer.write(b"theirs")
    with open(path, "rb") as file:
        assert list(tfrecord.read_record_lengths(file)) == [6]
    assert compressed(b"text") == compressed(b"text")


@pytest.mark.parametrize("length", [0, 5, 0x8B1F])
def test_other_files_are_not_compressed(length):
    """Even where the first two bytes are those of gzip."""
    file = io.BytesIO(struct.pack("<Q", length) + bytes(length + 8))
    assert not tfrecord.is_compressed(file)
    assert list(tfrecord.read_record_lengths(file)) == [length]
    assert not tfrecord.is_compressed(io.BytesIO())


def test_damage_of_a_compressed_file_is_reported():
    content = b"".join(tfrecord.frame([bytes(range(256)) * 4] * 50))
    whole = compressed(content)
    changed = bytearray(whole)
    changed[-6] ^= 1  # its checksum
    cases = {
        "compressed data is cut off after byte": whole[:-20],
        "compressed data is damaged after byte .*CRC": bytes(changed),
        "ends inside the record at byte 50960": compressed(content[:-3]),
        "compressed data is damaged": whole[:20] + b"rubbish" + whole[27:],
    }
    for message, data in cases.items():
        with pytest.raises(ValueError, match=message):
            list(tfrecord.read_record_lengths(io.BytesIO(data)))


@given(st.lists(st.lists(st.integers(0, 2**31 - 1), max_size=5), min_size=1, max_size=5))
def test_packed_rows(rows):
    lengths = np.array([len(row) for row in rows])
    values = np.full((len(rows), 5), 2**31 - 1, np.int64)
    for row, content in zip(values, rows, strict=True):
        row[: len(content)] = content
    found = tfrecord.packed_rows(values, lengths)
    assert found == [b"".join(map(tfrecord.varint, row)) for row in rows]
    assert tfrecord.packed_rows(values) == [
        b"".join(map(tfrecord.varint, row)) for row in values.tolist()
    ]


@pytest.mark.parametrize(
    "data, expected",
    [
        # RFC 3720, appendix B.4, and the usual check string.
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
        (b"123456789", 0xE3069283),
    ],
)
def test_crc32c_of_the_standard(data, expected):
    assert tfrecord.crc32c([data]).tolist() == [expected]


@given(st.lists(st.binary(min_size=4, max_size=60), min_size=1, max_size=8))
def test_checksums_do_not_depend_on_the_other_records(records):
    alone = [int(tfrecord.crc32c([record])[0]) for record in records]
    assert tfrecord.crc32c(records).tolist() == alone


@pytest.mark.slow
def test_a_long_record_among_short_ones_takes_little_memory():
    rng = random.Random(0)
    short = [rng.randbytes(rng.randrange(4, 90)) for _ in range(3000)]
    long = rng.randbytes(40_000)
    records = [*short[:150], long, *short[150:]]
    expected = tfrecord.crc32c(short).tolist()
    expected.insert(150, int(tfrecord.crc32c([long])[0]))
    tracemalloc.start()
    try:
        found = tfrecord.crc32c(records)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.tolist() == expected
    assert peak < 100 << 20  # All padded to the longest need 120 MB, and that several times.


def test_bytes_are_those_of_tensorflow(tmp_path):
    rng = random.Random(0)
    records = [rng.randbytes(rng.randrange(4, 2000)) for _ in range(200)]
    path = str(tmp_path / "theirs")
    with tf.io.TFRecordWriter(path) as writer:
        for record in records:
            writer.write(record)
    assert b"".join(tfrecord.frame(records)) == (tmp_path / "theirs").read_bytes()


def test_no_records():
    assert tfrecord.frame([]) == []
