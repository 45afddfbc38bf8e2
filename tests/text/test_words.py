"""Words of any script, and numbers of their runs."""

import unicodedata

import numpy as np
import pytest

from albert.text import words


def test_words_of_several_scripts():
    assert words.split("The cat's 2 MATS, naïve_x!") == "the cat s 2 mats naïve x".split()
    assert words.split("我来了 ok、カメラ") == ["我", "来", "了", "ok", "カ", "メ", "ラ"]
    assert words.split(" … ") == []


def test_marks_belong_to_their_words():
    for text in (
        "हिन्दी में लिखा हुआ दस्तावेज़",
        "தமிழ் மொழி எழுத்து",
        "বাংলা ভাষা",
        "كِتَابٌ جَدِيدٌ",
        "ọ̀rọ̀ yorùbá ṣẹ́",
    ):
        assert words.split(f"«{text}!»") == unicodedata.normalize("NFKC", text).split()
    assert words.split("a \u0301 b") == ["a", "b"]  # a mark without a letter


def test_lower_case_is_normal():
    assert words.split("İstanbul İzmir İnsan İyi İş İki") == [
        f"i\u0307{rest}" for rest in ("stanbul", "zmir", "nsan", "yi", "ş", "ki")
    ]
    assert words.split("J\u030c") == words.split("\u01f0") == ["\u01f0"]


def test_characters_are_words_in_scripts_without_blanks():
    assert words.split("ภาษาที่ดี") == ["ภ", "า", "ษ", "า", "ที่", "ดี"]
    assert words.split("ພາສາ") == ["ພ", "າ", "ສ", "າ"]
    assert words.split("ខ្មែរ") == ["ខ្", "មែ", "រ"]
    assert words.split("မြန်မာ") == ["မြ", "န်", "မာ"]
    assert words.split("བོད་སྐད") == ["བོད", "སྐད"]  # Tibetan has points between syllables.


@pytest.mark.parametrize("form", ["NFC", "NFD", "NFKC", "NFKD"])
def test_all_forms_of_unicode_are_the_same_words(form):
    text = "Beyoncé, Irène İpek 각하 ガ हिन्दी"
    other = unicodedata.normalize(form, text)
    assert words.split(other) == words.split(text)
    assert words.split(other)[:2] == ["beyoncé", "irène"]
    assert words.text_hash(other) == words.text_hash(text)


def test_runs_are_equal_where_words_are_and_depend_on_their_order():
    one = words.word_hashes("a b c d e".split())
    other = words.word_hashes("x b c d b c d".split())
    assert one.dtype == np.uint64 and len(set(one.tolist())) == 5
    runs, others = words.runs(one, 3), words.runs(other, 3)
    assert len(runs) == 3 and len(others) == 5
    assert runs[1] == others[1] == others[4]
    assert len({*runs.tolist(), *others.tolist()}) == 3 + 5 - 2
    assert not len(words.runs(one, 6))


def test_numbers_are_the_same_in_every_process():
    assert words.text_hash("schön") == 16027104507019958084
    assert words.word_hashes(["schön"]).tolist() == [16027104507019958084]


def test_rows():
    rows = np.array([[1, 2], [2, 1], [1, 2]], np.uint64)
    mixed = words.row_hashes(rows)
    assert mixed[0] == mixed[2] != mixed[1]
    assert mixed[0] == words.runs(rows[0], 2)[0]
