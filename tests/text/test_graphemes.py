"""Letters with their marks, syllables and emoji are found as Unicode's rules have them."""

import itertools

import pytest

from albert.text import graphemes


@pytest.mark.parametrize(
    "clusters",
    [
        ["a", "b", " ", "c"],
        ["e\u0301", "\u1ec7", "o\u0308\u0323", "x"],
        ["\u05d1\u05bc\u05b0", "\u05e8\u05b5"],  # Hebrew letters with points
        ["\u0915\u093f", "\u0915\u094d", "\u0937"],  # consonants with vowel signs, of Devanagari
        ["\u0e19\u0e49\u0e33", "\u0e17\u0e35\u0e48"],  # Thai
        ["\u1112\u1161\u11ab", "\u1100\u116e", "\ud55c", "\uac00\u11a8", "\uad6d"],  # Korean
        ["\u30ab\u3099", "\uff76\uff9e", "\u30e9"],  # Japanese, also halfwidth
        ["\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f44d\U0001f3fd", "\u2764\ufe0f"],
        ["\U0001f1e9\U0001f1ea", "\U0001f1eb\U0001f1f7", "1\ufe0f\u20e3"],  # flags, a key
        ["\u0301", "a", "\u00e9"],  # a mark without a letter
        ["\u00e9", "\r", "\n", "x"],
    ],
)
def test_where_graphemes_begin(clusters):
    starts = [0, *itertools.accumulate(map(len, clusters))][:-1]
    assert graphemes.begins("".join(clusters)).nonzero()[0].tolist() == starts


def test_no_text():
    assert graphemes.begins("").tolist() == []
