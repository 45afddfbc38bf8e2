"""Finds the characters that readers see: letters with their marks, syllables, emoji (graphemes).

Follows the default extended grapheme clusters of Unicode (Standard Annex 29), except that control
characters and rare signs that stand before a letter (Prepend) are clusters of their own.
"""

import re
import unicodedata

import numpy as np
import numpy.typing as npt

from albert.text import wordpiece

# Letters that Unicode counts among the marks: Thai and Lao AM, halfwidth sound marks, joiners,
# skin tones and the characters of tags.
_EXTENDS = [
    (0x200C, 0x200C), (0xE33, 0xE33), (0xEB3, 0xEB3), (0xFF9E, 0xFF9F), (0x1F3FB, 0x1F3FF),
    (0xE0020, 0xE007F),
]  # fmt: skip
_JOINER, _HALF_FLAGS = 0x200D, (0x1F1E6, 0x1F1FF)
_SYLLABLES = 0xAC00, 0xD7A3, 28  # of Korean; every 28th has no last consonant
_LETTERS = [
    ("L", 0x1100, 0x115F), ("L", 0xA960, 0xA97C), ("V", 0x1160, 0x11A7), ("V", 0xD7B0, 0xD7C6),
    ("T", 0x11A8, 0x11FF), ("T", 0xD7CB, 0xD7FB),
]  # fmt: skip


def _kind(character: str) -> str:
    """Returns the letter of a character's kind in `_CLUSTER`."""
    code = ord(character)
    if code == _JOINER:
        return "z"
    if any(first <= code <= last for first, last in _EXTENDS):
        return "e"
    if _HALF_FLAGS[0] <= code <= _HALF_FLAGS[1]:
        return "f"
    first, last, step = _SYLLABLES
    if first <= code <= last:
        return "B" if (code - first) % step else "A"
    for letter, first, last in _LETTERS:
        if first <= code <= last:
            return letter
    category = unicodedata.category(character)
    return "e" if category.startswith("M") else "p" if category == "So" else "."


_KINDS = wordpiece.CharacterTable(_kind)
_CLUSTER = re.compile(r"(?:ff|L*(?:V+|AV*|B)T*|L+|T+|p(?:e*zp)*|.)[ez]*", re.DOTALL)


def begins(text: str) -> npt.NDArray[np.bool_]:
    """Returns bool [n]: whether a grapheme begins at each character."""
    if text.isascii():
        return np.ones(len(text), bool)
    result = np.zeros(len(text), bool)
    result[[match.start() for match in _CLUSTER.finditer(text.translate(_KINDS))]] = True
    return result
