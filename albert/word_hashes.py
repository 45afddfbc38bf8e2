"""Words of a text in any script, and numbers that stand for runs of them.

The same text has the same numbers in every process. Words are runs of letters and digits, in lower
case; where a script has no spaces between words (Chinese, Japanese), every character is one.
"""

import functools
import hashlib
import re

import numpy as np

_WIDE = "\u2e80-\u9fff\uf900-\ufaff"  # from CJK radicals to ideographs, kana among them
_WORD = re.compile(rf"(?=\w)[{_WIDE}]|[^\W_{_WIDE}]+")
_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd, its bits as good as random: 2**64 / golden ratio


def words(text):
    """The words of a text, in order."""
    return _WORD.findall(text.lower())


def text_hash(text):
    """64 bits of the BLAKE2 hash of a text."""
    digest = hashlib.blake2b(text.encode("utf-8"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


_word_hash = functools.lru_cache(maxsize=1 << 17)(text_hash)


def word_hashes(found):
    """[N] uint64, a number for each of N words."""
    return np.fromiter(map(_word_hash, found), np.uint64, len(found))


def runs(hashes, length):
    """[N - length + 1] uint64, a number for each run of so many words; [0] of too few.

    Args:
      hashes: [N] what `word_hashes` gives.
      length: words in a run, at least 1.
    """
    count = max(0, len(hashes) - length + 1)
    total = np.zeros((count, *hashes.shape[1:]), np.uint64)
    for place in range(length):
        total = total * _FACTOR + hashes[place : place + count]
        total ^= total >> np.uint64(29)
    return total


def mixed(rows):
    """[N] uint64, a number for each row of [N, M] uint64."""
    return runs(rows.T, rows.shape[1])[0]
