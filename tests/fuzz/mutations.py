"""Changes to the content of a file, drawn from a random generator."""

import re

# What programs of all kinds trip over, put in the place of numbers and between bytes.
_NUMBERS = [
    b"0", b"-1", b"1e999", b"-1e999", b"NaN", b"Infinity", b"1e-400", b"9" * 5000, b"4294967296",
    b"9223372036854775808", b"1000000000", b"0.5", b"007", b"-0",
]  # fmt: skip
_TOKENS = [
    b"null", b"true", b"{}", b"[]", b'""', b'"', b"{", b"[", b"]", b"}", b",", b":", b"\\", b"\t",
    b"\r", b"\n", b"\r\n", b"\x00", b"\xff", b"\xef\xbb\xbf", b"\xed\xa0\x80", b'"\\ud83d"', b"../",
    b"/etc/passwd", b"%s", b"\xe2\x80\xa8", b"\x1f\x8b", b"-" * 300, b"[" * 3000, b'{"a":' * 2000,
]  # fmt: skip
_INTEGERS = [0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 2**63 - 1, 2**64 - 1]
_NUMBER = re.compile(rb"-?\d+(\.\d+)?")
_WORD = re.compile(rb'"[^"]{0,40}"|[a-zA-Z_]{2,}')


def _place(rng, content):
    return rng.randrange(len(content) + 1)


def _span(rng, content):
    """Start and end of a piece, mostly short."""
    start = _place(rng, content)
    most = len(content) - start
    return start, start + min(
        most, int(rng.expovariate(1 / 16)) + 1 if rng.random() < 0.8 else most
    )


def flip_bit(rng, content, _):
    if not content:
        return b"\x01"
    changed = bytearray(content)
    changed[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def set_byte(rng, content, _):
    place = _place(rng, content)
    return content[:place] + bytes([rng.randrange(256)]) + content[place + 1 :]


def cut(rng, content, _):
    return content[: _place(rng, content)]


def delete(rng, content, _):
    start, end = _span(rng, content)
    return content[:start] + content[end:]


def repeat(rng, content, _):
    start, end = _span(rng, content)
    times = rng.choice([1, 1, 2, 50])
    return content[:end] + content[start:end] * times + content[end:]


def insert_token(rng, content, _):
    place = _place(rng, content)
    return content[:place] + rng.choice(_TOKENS) + content[place:]


def insert_noise(rng, content, _):
    place = _place(rng, content)
    return content[:place] + rng.randbytes(rng.choice([1, 4, 64])) + content[place:]


def set_integer(rng, content, _):
    """A binary integer in the place of bytes, as in lengths and offsets."""
    place, size = _place(rng, content), rng.choice([1, 2, 4, 8])
    value = rng.choice(_INTEGERS) % 256**size
    order = rng.choice(["little", "big"])
    return content[:place] + value.to_bytes(size, order) + content[place + size :]


def _replace(rng, content, pattern, new):
    found = list(pattern.finditer(content, 0, 100_000))
    if not found:
        return content + new
    match = rng.choice(found)
    return content[: match.start()] + new + content[match.end() :]


def replace_number(rng, content, _):
    return _replace(rng, content, _NUMBER, rng.choice(_NUMBERS))


def replace_word(rng, content, _):
    return _replace(rng, content, _WORD, rng.choice(_TOKENS + _NUMBERS))


def swap_words(rng, content, _):
    found = [match.group() for match in _WORD.finditer(content, 0, 100_000)]
    return _replace(rng, content, _WORD, rng.choice(found)) if found else content[::-1]


def splice(rng, content, others):
    """The front of one file and the end of another."""
    other = rng.choice(others)
    return content[: _place(rng, content)] + other[_place(rng, other) :]


def empty(rng, content, _):
    return b""


ALL = [
    *(flip_bit, set_byte, cut, delete, repeat, insert_token, insert_noise, set_integer),
    *(replace_number, replace_word, swap_words, splice),
]


def mutate(rng, samples):
    """A changed copy of one of the samples.

    Args:
      rng: `random.Random`.
      samples: list of bytes.
    """
    content = rng.choice(samples)
    if rng.random() < 0.002:
        return empty(rng, content, samples)
    for _ in range(rng.choice([1, 1, 1, 2, 2, 4, 8])):
        content = rng.choice(ALL)(rng, content, samples)
    return content
