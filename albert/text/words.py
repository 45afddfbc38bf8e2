"""Words of a text in any script, and hashes of words and of their runs.

Hashes are the same in every process, and for all forms that Unicode has for the same characters.
Shapes: N words of a text.
"""

import functools
import hashlib
import re
import unicodedata
from collections.abc import Sequence

import numpy as np

_WIDE = "\u2e80-\u9fff\uf900-\ufaff"  # from CJK radicals to ideographs, kana among them
_WORD = re.compile(rf"(?=\w)[{_WIDE}]|[^\W_{_WIDE}]+")
_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd, with random-like bits: 2**64 / golden ratio


def split(text: str) -> list[str]:
    """Returns the words of a text, in order, in the form NFKC and lower case."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).lower())


def text_hash(text: str) -> int:
    """Returns 64 bits of the BLAKE2 hash of a text in the form NFC."""
    content = unicodedata.normalize("NFC", text).encode("utf-8")
    digest = hashlib.blake2b(content, digest_size=8).digest()
    return int.from_bytes(digest, "little")


_word_hash = functools.lru_cache(maxsize=1 << 17)(text_hash)


def word_hashes(word_list: Sequence[str]) -> np.ndarray:
    """Returns a [N] uint64 hash of each of N words."""
    return np.fromiter(map(_word_hash, word_list), np.uint64, len(word_list))


def runs(hashes: np.ndarray, length: int) -> np.ndarray:
    """Returns a [N - length + 1] uint64 hash of each run of words; [0] if there are too few.

    `hashes` are [N] `word_hashes`, `length` is at least 1.
    """
    count = max(0, len(hashes) - length + 1)
    total = np.zeros((count, *hashes.shape[1:]), np.uint64)
    for place in range(length):
        total = total * _FACTOR + hashes[place : place + count]
        total ^= total >> np.uint64(29)
    return total


def row_hashes(rows: np.ndarray) -> np.ndarray:
    """Returns a [N] uint64 hash of each row of [N, M] uint64."""
    return runs(rows.T, rows.shape[1])[0]
