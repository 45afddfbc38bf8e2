"""Rows of csv, tsv, jsonl and plain text, with file and line in every message."""

import io
import re

import pytest

from albert.io import file_io, tables


def rows_of(content, form, columns=None):
    return list(tables.read_rows(io.BytesIO(content), "data", form, columns))


def test_csv_is_that_of_pythons_module():
    content = b'text,label\r\n"one, ""two""\r\nthree",1\r\n\r\nfour,2\r\n'
    assert rows_of(content, "csv") == [
        ("data line 2", {"text": 'one, "two"\r\nthree', "label": "1"}),
        ("data line 5", {"text": "four", "label": "2"}),
    ]


def test_quotation_marks_are_plain_in_tsv():
    assert rows_of(b'text\tlabel\n"a\t"b""\n\nc\t1', "tsv") == [
        ("data line 2", {"text": '"a', "label": '"b""'}),
        ("data line 4", {"text": "c", "label": "1"}),
    ]


def test_jsonl():
    assert rows_of(b'{"text": "a", "label": 1}\n \n{"label": true}\n', "jsonl") == [
        ("data line 1", {"text": "a", "label": 1}),
        ("data line 3", {"label": True}),
    ]


def test_plain_text():
    one, two = tables.Columns("t"), tables.Columns("t", "u")
    assert rows_of(b"a\tb\nc\n", "txt", one) == [
        ("data line 1", {"t": "a\tb"}),
        ("data line 2", {"t": "c"}),
    ]
    assert rows_of(b"a\tb\r\n", "txt", two) == [("data line 1", {"t": "a", "u": "b"})]
    for blank in (b"\n", b" \n", b"\t\t\n"):
        assert rows_of(blank, "txt", two) == [("data line 1", {"t": "", "u": ""})]
    with pytest.raises(file_io.InputError, match="data line 1: expected two texts with a tab"):
        rows_of(b"a b\n", "txt", two)


def test_long_fields_of_csv_are_read():
    text = "long " * 30_000
    assert rows_of(f'text,label\n"{text}",1\n'.encode(), "csv")[0][1]["text"] == text


@pytest.mark.parametrize("form", ["csv", "tsv"])
def test_a_byte_order_mark_is_no_part_of_the_first_name(form):
    assert rows_of(b"\xef\xbb\xbftext\nx\n", form) == [("data line 2", {"text": "x"})]


@pytest.mark.parametrize("form", ["csv", "tsv"])
def test_an_empty_line_is_a_row_without_a_text_where_texts_are_alone(form):
    found = rows_of(b"\ntext\na\n\n\nb\n\n\n", form)
    places = [f"data line {number}" for number in (3, 4, 5, 6)]
    assert found == [*zip(places, [{"text": text} for text in ("a", "", "", "b")], strict=True)]
    two = b"t,u\n\na,b\n\nc,d\n".replace(b",", b"," if form == "csv" else b"\t")
    assert [row for _, row in rows_of(two, form)] == [{"t": "a", "u": "b"}, {"t": "c", "u": "d"}]


@pytest.mark.parametrize(
    ("form", "content", "message"),
    [
        ("csv", b"a,b\n1\n", r"data line 2: expected 2 columns (a, b), found 1"),
        ("csv", b"a,b\n1,2\n1,2,3\n", "data line 3: expected 2 columns (a, b), found 3"),
        (
            "csv",
            b'a\nx\n"open\nand\n',
            "data: the row that begins in line 3 is not csv: unexpected",
        ),
        ("csv", b'a\n"x"y\n', "data: the row that begins in line 2 is not csv"),
        (
            "csv",
            b'a,b\n"x\ry",1\nfoo\rbar,1\n',
            "data: the row that begins in line 3 is not csv: it has a carriage return outside of "
            "quotation marks; end lines with LF or CRLF",
        ),
        ("csv", b"a,b,a\n", "data line 1: the columns ['a'] appear twice"),
        ("tsv", b"a\tb\n1\t2\t3\n", "data line 2: expected 2 columns (a, b), found 3"),
        ("tsv", b"a\n\xff\n", "data line 2: not UTF-8 text"),
        ("jsonl", b'{"a": 1}\n{"a": \n', "data line 2: expected a JSON object; Expecting value"),
        ("jsonl", b"[1]\n", "data line 1: expected a JSON object, found a list"),
        ("jsonl", b'{"a": "\xff"}\n', "data line 1: not UTF-8 text"),
    ],
)
def test_mistakes_are_named_with_their_line(form, content, message):
    with pytest.raises(file_io.InputError, match=re.escape(message)):
        rows_of(content, form)


def test_names_in_messages():
    names = ["a", "b c", "d, e", "", " f", "g'"]
    assert tables.name_list(names) == "a, b c, 'd, e', '', ' f', \"g'\""
    assert tables.name_list(names, 2) == "a, b c, …"
    many = [str(i) for i in range(21)]
    assert tables.name_list(many) == f"{', '.join(many[:20])}, …"
    assert tables.name_list(many[:20]) == ", ".join(many[:20])
    assert tables.name_list(many, None) == ", ".join(many)


def test_forms_are_told_from_names():
    assert [tables.format_of(f"x.y.{ending}") for ending in ("CSV", "tsv", "jsonl")] == [
        *("csv", "tsv", "jsonl"),
    ]
    with pytest.raises(file_io.InputError, match=r"x\.xlsx: .* ends in \.csv or \.tsv or \.jsonl"):
        tables.format_of("x.xlsx")


def test_rows_are_read_one_at_a_time(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("a\n1\n2,3\n")
    rows = tables.read_file(str(path), "train_file")
    assert next(rows) == (f"{path} line 2", {"a": "1"})
    with pytest.raises(file_io.InputError, match="line 3"):
        next(rows)
    with pytest.raises(file_io.InputError, match="train_file: the file .*no.csv does not exist"):
        next(tables.read_file(str(tmp_path / "no.csv"), "train_file"))


@pytest.mark.parametrize(
    ("value", "name"),
    [(" a b ", "a b"), (3, "3"), (2.5, "2.5"), (True, "true"), (False, "false"), (0, "0")],
)
def test_names(value, name):
    assert tables.name_of({"label": value}, "label", "label_column", "here") == name


@pytest.mark.parametrize("value", ["", "  ", None, [], "a\tb", "a\nb"])
def test_what_is_no_name(value):
    with pytest.raises(file_io.InputError, match="here: column 'label' must be a name without"):
        tables.name_of({"label": value}, "label", "label_column", "here")


def test_texts():
    assert tables.text_of({"text": " a "}, "text", "text_column", "here") == " a "
    for value in ("", " \t", None):
        with pytest.raises(tables.NoTextError, match="here: column 'text' holds no text"):
            tables.text_of({"text": value}, "text", "text_column", "here")
    with pytest.raises(file_io.InputError, match="here: column 'text' must be a text, found 3"):
        tables.text_of({"text": 3}, "text", "text_column", "here")
    with pytest.raises(file_io.InputError, match=r"here: .* 'x' \(text_column\); .* a, b"):
        tables.text_of({"a": 1, "b": 2}, "x", "text_column", "here")


def test_spellings_of_a_whole_number_are_one_label():
    keys = ["1", "1.0", "1.", "true", "1.5", "01", "01.0", "1" * 5000 + ".0"]
    assert [tables.label_key(key) for key in keys] == ["1", "1", "1", *keys[3:]]
    assert tables.match_label("0.0", ("1", "0")) == "0"
    assert tables.match_label("0", ("b", "0.0")) == "0.0"
    assert tables.match_label("2", ("1", "0")) is None


@pytest.mark.parametrize("is_seekable", [True, False])
def test_rows_are_checked_before_the_first_is_used(is_seekable):
    class File(io.BytesIO):
        def seekable(self):
            return is_seekable

    file, checked = File(b"no row\na\nb\n"), []
    file.readline()
    rows = tables.read_checked(lambda: (line.strip() for line in file), file, checked.append)
    assert checked == [b"a", b"b"] and list(rows) == [b"a", b"b"]
    file = File(b"{}\n[")
    with pytest.raises(file_io.InputError, match="data line 2"):
        tables.read_checked(lambda: tables.read_rows(file, "data", "jsonl"), file)
