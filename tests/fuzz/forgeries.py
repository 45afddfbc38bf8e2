"""Values of binary files that are changed inside their form, so that their checksums are right."""

import gzip
import io
import os
import struct
import tarfile
import tempfile

import tensorflow as tf

_BLOCK = 512
_INTEGERS = [0, -1, 1, 2, 5, 7, 160, 9999, 2**31 - 1, 2**31, 2**40 + 5, 2**63 - 1, -(2**63)]
_FLOATS = [0.0, -5.0, 1e308, float("nan"), float("inf"), -float("inf"), 1e-40]
_NAMES = [
    b"", b"/", b".", b"..", b"../x", b"/etc/x", b"a/../..", b"a//b", b"a\0b", b"\xff", b"a/" * 40,
    b"a/" * 2000, b"x" * 300, b"\xed\xa0\x80", b"module", b"module/a.txt",
]  # fmt: skip
_KINDS = b"01234567\0LKxgXSDVMN"
_SIZES = [0, 1, 100, 511, 512, 513, 1 << 16, (1 << 16) + 1, 8**11 - 1, 2**31, 2**62, -1, -512]
_KEYWORDS = [
    b"path", b"size", b"linkpath", b"hdrcharset", b"GNU.sparse.major", b"GNU.sparse.map",
    b"GNU.sparse.size", b"GNU.sparse.realsize", b"mtime", b"comment", b"",
]  # fmt: skip
_VALUES = [b"1" * 3000, b"-1", b"1e9", b"9" * 30, b"BINARY", b"1,2,3", b"\xff", b"0"]


# --- archives -----------------------------------------------------------------------------------


def _sum(block):
    """A header with the right checksum."""
    total = sum(block[:148]) + 8 * 32 + sum(block[156:])
    return block[:148] + b"%06o\0 " % (total % 8**6) + block[156:]


def _number(value):
    if 0 <= value < 8**11:
        return b"%011o\0" % value
    return struct.pack(">BxxxQ", 0xFF if value < 0 else 0x80, value % 2**64)


def _header(rng, name=b"name", kind=None, size=None):
    info = tarfile.TarInfo("x").tobuf(tarfile.GNU_FORMAT)
    kind = rng.choice(_KINDS) if kind is None else kind
    size = rng.choice(_SIZES) if size is None else size
    block = name[:100].ljust(100, b"\0") + info[100:124] + _number(size) + info[136:156]
    return _sum(block + bytes([kind]) + info[157:])


def _extended(rng):
    """An extended header with its content."""
    kind = rng.choice(b"LKxgX")
    content = rng.choice(_NAMES) + rng.choice([b"", b"\0"])
    if kind in b"xgX":
        content = b""
        for _ in range(rng.choice([0, 1, 1, 3, 50])):
            line = b" %s=%s\n" % (rng.choice(_KEYWORDS), rng.choice(_NAMES + _VALUES))
            number = b"%d" % (len(line) + len(b"%d" % (len(line) + 3)))
            content += (number if rng.random() < 0.8 else rng.choice(_VALUES)) + line
    size = len(content) if rng.random() < 0.9 else None
    return _header(rng, kind=kind, size=size) + content + bytes(-len(content) % _BLOCK)


def archive(rng, sample):
    """A .tar.gz whose headers are changed, repeated, or have others before them."""
    content = gzip.decompress(sample)
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        starts = [member.offset for member in tar]
    for _ in range(rng.choice([1, 1, 2, 4])):
        start = rng.choice([start for start in starts if start < len(content)])
        block, more = content[start : start + _BLOCK], b""
        how = rng.randrange(5)
        if how == 0:
            block = _sum(block[:156] + bytes([rng.choice(_KINDS)]) + block[157:])
        elif how == 1:
            block = _sum(block[:124] + _number(rng.choice(_SIZES)) + block[136:])
        elif how == 2:
            block = _sum(rng.choice(_NAMES)[:100].ljust(100, b"\0") + block[100:])
        elif how == 3:
            times = rng.choice([1, 1, 2, 16, 17, 2000])
            more = _extended(rng) * times
        else:
            more = _header(rng, rng.choice(_NAMES)) * rng.choice([1, 3, 100])
        content = content[:start] + more + block + content[start + _BLOCK :]
    return gzip.compress(content, 1, mtime=0)


# --- records ------------------------------------------------------------------------------------


def _forge_feature(rng, feature):
    how = rng.randrange(6)
    kind = feature.WhichOneof("kind")
    values = getattr(feature, kind).value if kind else []
    if how == 0:
        feature.bytes_list.value[:] = [rng.randbytes(rng.choice([0, 3, 40]))]
    elif how == 1:
        feature.float_list.value[:] = rng.choices(_FLOATS, k=max(1, len(values)))
    elif how == 2:
        feature.Clear()
    elif how == 3:
        feature.int64_list.value[:] = rng.choices(_INTEGERS, k=rng.choice([0, 1, 3, 5, 4000]))
    elif kind == "int64_list" and values:
        values[rng.randrange(len(values))] = rng.choice(_INTEGERS)
    elif kind == "float_list" and values:
        values[rng.randrange(len(values))] = rng.choice(_FLOATS)


def records(rng, sample):
    """A file of tf.Examples of which some values, lengths, kinds and names are others."""
    kind = "GZIP" if sample[:2] == b"\x1f\x8b" else ""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "sample")
        with open(path, "wb") as file:
            file.write(sample)
        rows = [row.numpy() for row in tf.data.TFRecordDataset(path, kind)]
        examples = [tf.train.Example.FromString(row) for row in rows]
        for example in rng.sample(examples, rng.choice([1, 1, len(examples)])):
            features = example.features.feature
            name = rng.choice(sorted(features))
            if rng.random() < 0.1:
                features["other"].CopyFrom(features.pop(name))
            else:
                _forge_feature(rng, features[name])
        with tf.io.TFRecordWriter(path, kind) as writer:
            for example in examples:
                writer.write(example.SerializeToString())
        with open(path, "rb") as file:
            return file.read()
