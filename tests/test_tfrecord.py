"""TFRecord framing: the standard's check values, and TensorFlow reads what we write."""

import random

import hypothesis
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from albert import tfrecord


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


@hypothesis.given(st.lists(st.binary(min_size=4, max_size=60), min_size=1, max_size=8))
def test_checksums_do_not_depend_on_the_other_records(records):
    alone = [int(tfrecord.crc32c([record])[0]) for record in records]
    assert tfrecord.crc32c(records).tolist() == alone


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
