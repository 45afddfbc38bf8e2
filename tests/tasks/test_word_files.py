"""Files of sentences with labels: both forms, and what is refused with file and line."""

import io
import json
import re

import pytest

from albert.io import file_io
from albert.tasks import word_files

CONLL = b"""\xef\xbb\xbf-DOCSTART- -X- -X- O

EU NNP B-NP I-ORG
rejects VBZ B-VP O

-DOCSTART- -X- -X- O

Peter NNP B-NP I-PER
Blackburn NNP I-NP I-PER
"""


ALL = word_files.Columns()


def read(content, form="conll", columns=ALL, labeled=None):
    lines = io.BytesIO(content).readlines()
    return [
        (s.guid, s.words, s.labels, s.place)
        for s in word_files.read_lines(lines, "f", form, columns, labeled)
    ]


def test_columns_of_one_format_do_not_fit_the_other():
    columns = word_files.Columns("2", "tags")
    assert columns.fitting("conll") == word_files.Columns("2", None)
    assert columns.fitting("jsonl") == word_files.Columns(None, "tags")


def test_columns_of_conll():
    expected = [
        ("0", ("EU", "rejects"), ("I-ORG", "O"), "f line 3"),
        ("1", ("Peter", "Blackburn"), ("I-PER", "I-PER"), "f line 8"),
    ]
    assert read(CONLL) == expected
    assert read(CONLL.replace(b"\n", b"\r\n")) == expected
    found = read(CONLL, columns=word_files.Columns("-4", "3"))
    assert found[0][1:3] == (("EU", "rejects"), ("B-NP", "B-VP"))
    # With tabs a word may hold white space; without labels one column is enough.
    assert read("a b\tO\nc\u3000\tX\n".encode()) == [
        ("0", ("a b", "c\u3000"), ("O", "X"), "f line 1")
    ]
    assert read(b"\n\none\ntwo\n\nthree") == [
        ("0", ("one", "two"), None, "f line 3"), ("1", ("three",), None, "f line 6")
    ]  # fmt: skip
    assert read(CONLL, labeled=False)[0][2] is None


@pytest.mark.parametrize("tab", [" ", "\t", "  "])
def test_comments_and_no_break_spaces_of_conll(tab):
    content = """#begin document (a); part 000
# newdoc id = d

# newpar
# sent_id = 1
# text = Paris 10\u00a0000 # x

Paris B-LOC
10\u00a0000 O
# O

# sent_id = 2
# a comment of its own
# O
x\u2009y O

#end document
"""
    found = read(re.sub("(?m)(?<=\\S) (?=O$|B-LOC$)", tab, content).encode())
    assert [row[1:3] for row in found] == [
        (("Paris", "10\u00a0000", "#"), ("B-LOC", "O", "O")),
        (("#", "x\u2009y"), ("O", "O")),
    ]
    assert read(b"# O\n\n# O\n")[1][1:3] == (("#",), ("O",))  # nothing but such words


def test_objects_of_jsonl():
    rows = [{"words": ["a", "b"], "labels": ["O", "X"]}, {"id": 7, "words": ["c"], "labels": ["O"]}]
    content = "".join(json.dumps(row) + "\n" for row in rows).encode()
    assert read(content, "jsonl") == [
        ("0", ("a", "b"), ("O", "X"), "f line 1"), ("7", ("c",), ("O",), "f line 2")
    ]  # fmt: skip
    other = content.replace(b"words", b"tokens").replace(b"labels", b"tags")
    columns = word_files.Columns("tokens", "tags")
    assert read(other, "jsonl", columns) == read(content, "jsonl")
    assert read(b'{"text": " two  words\\n"}\n', "jsonl")[0][1:3] == (("two", "words"), None)
    assert read("two\u00a0 words\n".encode(), "txt") == [("0", ("two", "words"), None, "f line 1")]


@pytest.mark.parametrize(
    ("content", "form", "message"),
    [
        (b"a O\nb\n", "conll", "f line 2: expected a word with its columns, 2 as in the first l"),
        (b"a\t\nb\tO\n", "conll", "f line 1: expected a word with its columns"),
        (b"a\n", "conll", "f line 1: expected a word and its label in two columns"),
        (b"\xff O\n", "conll", "f line 1: not UTF-8"),
        (b'{"words": ["a"], "labels": []}', "jsonl", "f line 1: 'labels' must be a list of texts"),
        (
            b'{"words": ["a"], "labels": ["O", "O"]}',
            "jsonl",
            "f line 1: expected as many labels as words; found 2 and 1",
        ),
        (b'{"words": ["a"], "labels": [1]}', "jsonl", r"must be a list of texts, found \[1\]"),
        (b'{"words": ["a"], "labels": ["a\\tb"]}', "jsonl", "'labels' must be without tabs, line"),
        (b'{"text": "a \\ud800"}', "jsonl", "the words of the text must be without tabs, line br"),
        (b'{"tokens": ["a"]}', "jsonl", r"no key 'words' \(words_column\); there are tokens"),
        (b'{"words": ["a", " "]}', "jsonl", r"'words' must be a list of texts, found \['a', ' '\]"),
        (b"a\n \n", "txt", "f line 2: there is no text"),
    ],
)
def test_mistakes_are_named(content, form, message):
    with pytest.raises(file_io.InputError, match=message):
        read(content, form, labeled=True)


def test_objects_without_words_can_be_skipped():
    rows = [
        {"words": ["a"]},
        *({"words": w} for w in (None, [], "")),
        {"text": None},
        {"text": " "},
    ]
    lines, skipped = [json.dumps(row).encode() for row in rows], []
    found = list(word_files.read_lines(lines, "f", "jsonl", ALL, False, skipped=skipped))
    assert [sentence.words for sentence in found] == [("a",)]
    assert skipped == [f"f line {number}" for number in (2, 3, 4, 5, 6)]


@pytest.mark.parametrize("number", ["0", "5", "-5", "x"])
def test_numbers_of_columns_are_checked(number):
    with pytest.raises(file_io.InputError, match=f"f line 3: label_column={number} must be the nu"):
        read(CONLL, columns=word_files.Columns(None, number))
