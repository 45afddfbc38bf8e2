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

# Scripts without blanks between words, of which each character is a word: Thai and Lao, Burmese,
# Khmer, and from CJK radicals to ideographs, kana among them.
_WITHOUT_BLANKS = (
    "\u0e00-\u0eff\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f\u1780-\u17ff\u2e80-\u9fff\uf900-\ufaff"
)
_LAST_MARK = 0x1FFFF  # Later marks only select variants of characters.
_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd, with random-like bits: 2**64 / golden ratio


@functools.cache
def marks() -> str:
    """Returns the combining marks, such as vowel signs, which `re` does not take for letters."""
    codes = range(_LAST_MARK + 1)
    return "".join(chr(code) for code in codes if unicodedata.category(chr(code))[0] == "M")


@functools.cache
def _word() -> re.Pattern[str]:
    # The first mark is U+0300. The search among all marks is slow, so most characters do without.
    letters, mark = rf"[^\W_{_WITHOUT_BLANKS}]", rf"(?![\0-\u02ff])[{marks()}]"
    return re.compile(rf"{letters}+(?:{mark}{letters}*)*|(?=\w)[{_WITHOUT_BLANKS}](?:{mark})*")


def split(text: str) -> list[str]:
    """Returns the words of a text, in order, in lower case and the form NFKC."""
    lower = unicodedata.normalize("NFKC", text).lower()  # which may lose that form
    return _word().findall(unicodedata.normalize("NFKC", lower))


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
