"""From files of any form to clean sentences."""

import bz2
import collections
import gzip
import json
import sys

import pytest

from albert.io import archives, file_io
from albert.text import corpus, corpus_cleaning
from albert.text.corpus_cleaning import Cleaning

ONE_A_LINE = Cleaning(lines="sentences", min_words=1)


def read(path, counts=None, **settings):
    counts = collections.Counter() if counts is None else counts
    return list(corpus_cleaning.read_documents(str(path), Cleaning(**settings), counts))


def clean(text, cleaning=ONE_A_LINE):
    counts = collections.Counter()
    return corpus_cleaning.Cleaner(cleaning).clean(text, counts), +counts


# --- reading --------------------------------------------------------------------------------------


def zstd(content):
    return pytest.importorskip("zstandard").ZstdCompressor().compress(content)


PACKERS = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".zst": zstd}


@pytest.mark.parametrize("ending", PACKERS)
def test_documents_of_text(tmp_path, ending):
    path = tmp_path / f"a.txt{ending}"
    text = "\ufeff\n\none\ntwo é\n \t\n\nthree\r\n\r\nfour"
    path.write_bytes(PACKERS[ending](text.encode()))
    counts = collections.Counter()
    assert read(path, counts) == ["one\ntwo é\n", "three\r\n", "four"]
    assert counts == {"bytes": len(text.encode())}
    (whole,) = read(path, whole_files=True)
    assert whole == text.lstrip("\ufeff\n")


@pytest.mark.parametrize("ending", PACKERS)
@pytest.mark.parametrize("kind", ["JSONL", "ndjson"])
def test_documents_of_json_lines(tmp_path, ending, kind):
    path = tmp_path / f"a.{kind}{ending}"
    rows = [{"text": "one\n\ntwo", "id": 1}, {"text": "é"}]
    lines = "\n\n".join(json.dumps(row) for row in rows)
    path.write_bytes(PACKERS[ending](lines.encode()))
    assert read(path) == ["one\n\ntwo", "é"]


@pytest.mark.parametrize("ending", [".gz", ".bz2", ".zst"])
def test_several_streams_in_a_file_and_damage(tmp_path, ending):
    path = tmp_path / f"a.txt{ending}"
    packed = PACKERS[ending](b"some words\n" * 50_000), PACKERS[ending](b"\nlast")
    path.write_bytes(b"".join(packed))
    assert [len(text) for text in read(path)] == [550_000, 4]
    path.write_bytes(packed[0][:-5])
    with pytest.raises(file_io.InputError, match=f"input_file: .*a.txt{ending} is cut off or dam"):
        read(path)
    path.write_bytes(packed[0][:30] + b"\xff\x00\xff" * 9 + packed[0][57:])
    with pytest.raises(file_io.InputError, match=f"a.txt{ending} is cut off or damaged"):
        read(path)
    path.write_bytes(b"plain text")
    with pytest.raises(file_io.InputError, match=f"a.txt{ending} is cut off or damaged"):
        read(path)


def test_a_failure_of_who_reads_is_no_damage(tmp_path):
    path = tmp_path / "a.bz2"
    path.write_bytes(bz2.compress(b"text"))
    with pytest.raises(OSError, match="full"), archives.open_input(str(path), "") as file:
        file.read()
        raise OSError("full")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"good\n\nb\xe9d\n", "a.txt line 3: not UTF-8"),
        ("a.jsonl", b'{"text": "a"}\n{"text"\n', "a.jsonl line 2 is not JSON"),
        (
            "a.jsonl",
            b'{"body": "a"}\n',
            "line 1: .*text_field=text; the line has the fields .'body",
        ),
        ("a.jsonl", b'{"text": 3}\n', "expected a text in text_field=text; it is a number"),
        ("a.jsonl", b'{"text": null}\n', "expected a text in text_field=text; it is null"),
        ("a.jsonl", b'{"text": true}\n', "in text_field=text; it is true or false"),
        ("a.jsonl", b'{"text": ["a"]}\n', "in text_field=text; it is a list"),
        ("a.jsonl", b"[1]\n", "the line is not an object"),
    ],
)
def test_mistakes_name_file_and_line(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(file_io.InputError, match=message):
        read(tmp_path / name)


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf-16-le", "gb18030"])
def test_other_encodings(tmp_path, encoding, monkeypatch):
    monkeypatch.setattr(corpus_cleaning, "READ_BYTES", 7)  # also in the middle of characters
    text = "\n\none\ntwo é\n\nthrée\n"
    (tmp_path / "a.txt").write_bytes(text.encode(encoding))
    counts = collections.Counter()
    found = read(tmp_path / "a.txt", counts, encoding=encoding)
    assert found == ["one\ntwo é\n", "thrée\n"]
    assert counts == {"bytes": len(text.encode())}
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress('{"text": "é"}\n'.encode(encoding)))
    assert read(tmp_path / "a.jsonl.gz", encoding=encoding) == ["é"]


@pytest.mark.parametrize(
    ("encoding", "content", "message"),
    [
        ("ascii", b"fine\nb\xe9d", "a.txt: not text in ascii: ordinal not in .* at byte 6; give"),
        ("utf-16-le", b"a\x00b", "a.txt: not text in utf-16-le: truncated data at byte 2; give"),
        ("utf-16", b"\xff\xfea\x00\x00\xd8a\x00", "illegal UTF-16 surrogate at byte 4"),
    ],
)
def test_text_in_another_encoding_is_named(tmp_path, encoding, content, message):
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(corpus_cleaning.BadFile, match=message):
        read(tmp_path / "a.txt", encoding=encoding)


@pytest.mark.parametrize("name", ["nonsense", "rot13", "hex"])
def test_what_is_no_encoding_is_refused(name):
    with pytest.raises(file_io.InputError, match=f"encoding={name}: expected an encoding that"):
        corpus_cleaning.check_encoding(name)
    corpus_cleaning.check_encoding("latin-1")


def test_a_language_without_rules_of_its_own_gets_a_warning(caplog):
    for code in ("en", "de"):
        corpus_cleaning.check_language(code)
    assert not caplog.records
    corpus_cleaning.check_language("sv")
    assert "language=sv: sentences are found by the rules of a related" in caplog.text


def test_another_field(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"body": "a"}\n')
    assert read(tmp_path / "a.jsonl", text_field="body") == ["a"]


def test_endless_lines_and_documents(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "MAX_DOCUMENT_BYTES", 100)
    (tmp_path / "a.txt").write_text("a" * 40 + "\n" + "b" * 40 + "\n" + "c" * 40 + "\n\nd\n")
    counts = collections.Counter()
    assert [len(text) for text in read(tmp_path / "a.txt", counts)] == [82, 41, 2]
    assert counts["cut_documents"] == 1
    (tmp_path / "a.txt").write_text("a\n" + "b" * 101)
    with pytest.raises(file_io.InputError, match="a.txt line 2 has more than 100 bytes"):
        read(tmp_path / "a.txt")


# --- cleaning -------------------------------------------------------------------------------------


def test_white_space_and_what_is_not_seen():
    text = "  one\u00a0\u3000two\t\x85 three\x00\x07 \n\n\r\nso\u00adft\u200b \ufeff\u2028 end"
    sentences, counts = clean(text)
    assert sentences == ["one two three", "soft end"]
    assert counts == {"unseen_characters": 5}
    # What joins letters of a script stays.
    assert clean("می\u200cخواهم")[0] == ["می\u200cخواهم"]


def test_lines_of_few_letters():
    sentences, counts = clean("| 1.5 | 2.7 |\nin 1999 it rained\n=====\n2 + 2 = x")
    assert sentences == ["in 1999 it rained"]
    assert counts == {"lines_of_few_letters": 3}


@pytest.mark.parametrize(
    "text", ["हिन्दी में लिखा", "ภาษาไทยที่นี่", "我来了！", "ça été", "e\u0301te\u0301"]
)
def test_letters_of_all_scripts_are_letters(text):
    assert corpus_cleaning.letter_fraction(text) > 0.7
    assert corpus_cleaning.letter_fraction("") == corpus_cleaning.letter_fraction("12 _ + …") == 0


def test_short_and_empty_documents():
    cleaning = Cleaning(lines="sentences", min_words=4)
    assert clean("one two\nthree four", cleaning) == (["one two", "three four"], {})
    assert clean("one two three", cleaning) == ([], {"documents_too_short": 1})
    found = clean("12345", cleaning)
    assert found == ([], {"documents_without_text": 1, "lines_of_few_letters": 1})


def test_sentences_are_found():
    pytest.importorskip("sentencex")
    text = "Dr. Smith came. He left at\n3 p.m. today! Why?\n\nNobody  knew."
    cleaning = Cleaning(min_words=1)
    assert clean(text, cleaning)[0] == [
        *("Dr. Smith came.", "He left at", "3 p.m. today!", "Why?", "Nobody knew.")
    ]
    wrapped = Cleaning(min_words=1, lines="wrapped")
    expected = ["Dr. Smith came.", "He left at 3 p.m. today!", "Why?", "Nobody knew."]
    assert clean(text, wrapped)[0] == expected
    german = Cleaning(min_words=1, language="de")
    assert clean("Er kam am 3. Mai. Ende.", german)[0] == ["Er kam am 3. Mai.", "Ende."]


def test_without_the_package_lines_can_be_sentences(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencex", None)
    with pytest.raises(file_io.InputError, match="sentencex: .*text_lines=sentences"):
        corpus_cleaning.Cleaner(Cleaning())
    assert clean("One. Two.")[0] == ["One. Two."]


def test_lengths():
    lengths = collections.Counter({1: 50, 2: 40, 10: 9, 100: 1})
    assert corpus_cleaning.lengths_report(lengths) == {
        **{"mean": 3.2, "min": 1, "median": 1, "90%": 2, "99%": 10, "max": 100}
    }
    assert corpus_cleaning.lengths_report(collections.Counter()) == {}
