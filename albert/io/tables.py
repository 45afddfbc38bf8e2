"""Reads rows of csv, tsv and jsonl files with named columns.

Reads csv as Python's `csv` module does. In tsv, as in GLUE's files, quotation marks are plain
characters and every line is a row. csv and tsv begin with a line of column names. jsonl holds one
JSON object per line. Empty lines are skipped.

The `name` of a file and the `place` of a row, its file and line, are for messages.
"""

import collections
import csv
import dataclasses
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, TypeGuard, TypeVar

from albert.io import file_io

NAMES_SHOWN = 20  # most names in a message
_MAX_FIELD = 2**31 - 1  # characters of a csv field; by default Python reads 131,072
_PLAIN_NAME = re.compile(r"[^\s,'\"]([^,'\"\t\r\n]*[^\s,'\"])?")
NOT_IN_NAMES = r"[\t\r\n\ud800-\udfff]"  # tabs, line breaks, halves of surrogate pairs
# Python does not parse numbers with thousands of digits.
_WHOLE_WITH_POINT = re.compile(r"([-+]?(?:0|[1-9]\d{0,999}))\.0*")

_LONE_RETURN = (
    "it has a carriage return outside of quotation marks; end lines with LF or CRLF, and put texts "
    "with carriage returns in quotation marks"
)

Row = tuple[str, dict[str, Any]]  # (file and line for messages, values by column)
_Made = TypeVar("_Made")


class NoTextError(file_io.InputError):
    """A row has no text."""


@dataclasses.dataclass(frozen=True)
class Columns:
    """Names of the columns."""

    text: str = "text"
    text_pair: str | None = None
    label: str | None = "label"  # None: there is none to read
    guid: str | None = None  # id of a row; None: rows are numbered from 0


def are_columns(value: object) -> TypeGuard[dict[str, str | None]]:
    """Returns whether a value of JSON has the entries of `Columns`."""
    if not isinstance(value, dict) or not isinstance(value.get("text"), str):
        return False
    names = {field.name for field in dataclasses.fields(Columns)}
    return value.keys() <= names and all(isinstance(x, (str, type(None))) for x in value.values())


def format_of(path: str, formats: Sequence[str] = ("csv", "tsv", "jsonl")) -> str:
    """Returns which of the known formats a file has, by the ending of its name."""
    ending = os.path.splitext(path)[1].lower().removeprefix(".")
    if ending not in formats:
        raise file_io.InputError(
            f"{path}: expected a name that ends in {' or '.join('.' + name for name in formats)}"
        )
    return ending


def name_list(names: Iterable[str], maximum: int | None = NAMES_SHOWN) -> str:
    """Returns names of labels or columns for a message, as `text_list` does.

    Names that could be read as several, or overlooked, are in quotes.
    """
    texts = [name if _PLAIN_NAME.fullmatch(name) else repr(name) for name in names]
    return text_list(texts, maximum)


def text_list(texts: Sequence[str], maximum: int | None = NAMES_SHOWN) -> str:
    """Returns at most `maximum` texts (None: all) for a message, with commas between."""
    more = maximum is not None and len(texts) > maximum
    return ", ".join(texts[:maximum]) + (", …" if more else "")


def _csv_fields(lines: Iterable[bytes], name: str) -> Iterator[tuple[int, list[str]]]:
    """Yields (number of its first line, fields) of each row."""
    csv.field_size_limit(_MAX_FIELD)  # of the whole process
    reader = csv.reader((line for _, line in file_io.text_lines(lines, name)), strict=True)
    number = 1
    try:
        for fields in reader:
            yield number, fields
            number = reader.line_num + 1
    except csv.Error as error:
        is_return = "new-line character" in str(error)  # Python's advice is for programs.
        raise file_io.InputError(
            f"{name}: the row that begins in line {number} is not csv: "
            f"{_LONE_RETURN if is_return else error}"
        ) from error


def _tsv_fields(lines: Iterable[bytes], name: str) -> Iterator[tuple[int, list[str]]]:
    for number, line in file_io.text_lines(lines, name):
        line = line.rstrip("\r\n")
        yield number, line.split("\t") if line else []


def _rows_below_header(
    numbered_fields: Iterable[tuple[int, list[str]]], name: str
) -> Iterator[Row]:
    """Yields (place, {column: text}) of the rows below the header."""
    header: list[str] | None = None
    empty: list[str] = []  # places of rows without a text, if the texts are the only column
    for number, fields in numbered_fields:
        place = f"{name} line {number}"
        if not fields:
            empty += [place] if header and len(header) == 1 else []
            continue
        if header and empty:  # not at the end of the file
            yield from ((earlier, {header[0]: ""}) for earlier in empty)
            empty = []
        if header is None:
            header = fields
            counts = collections.Counter(header)
            repeated = sorted(column for column, count in counts.items() if count > 1)
            if repeated:
                raise file_io.InputError(f"{place}: the columns {repeated} appear twice")
        elif len(fields) != len(header):
            raise file_io.InputError(
                f"{place}: expected {len(header)} columns ({name_list(header)}), found "
                f"{len(fields)}"
            )
        else:
            yield place, dict(zip(header, fields, strict=True))


def _jsonl_rows(lines: Iterable[bytes], name: str) -> Iterator[Row]:
    for number, line in file_io.text_lines(lines, name):
        place = f"{name} line {number}"
        if not line.strip():
            continue
        try:
            row = file_io.parse_json(line)
        except file_io.InputError as error:
            raise file_io.InputError(f"{place}: expected a JSON object; {error}") from error
        if not isinstance(row, dict):
            raise file_io.InputError(
                f"{place}: expected a JSON object, found a {type(row).__name__}"
            )
        yield place, row


def _txt_rows(lines: Iterable[bytes], name: str, columns: Columns) -> Iterator[Row]:
    names = [name for name in (columns.text, columns.text_pair) if name]
    for number, line in file_io.text_lines(lines, name):
        place = f"{name} line {number}"
        line = line.rstrip("\r\n")
        texts = line.split("\t") if len(names) > 1 else [line]
        if not line.strip():
            texts = [""] * len(names)
        if len(texts) != len(names):
            raise file_io.InputError(
                f"{place}: expected two texts with a tab between, found {len(texts)}"
            )
        yield place, dict(zip(names, texts, strict=True))


FORMATS: dict[str, Callable[[Iterable[bytes], str, Any], Iterator[Row]]] = {
    "csv": lambda lines, name, columns: _rows_below_header(_csv_fields(lines, name), name),
    "tsv": lambda lines, name, columns: _rows_below_header(_tsv_fields(lines, name), name),
    "jsonl": lambda lines, name, columns: _jsonl_rows(lines, name),
    "txt": _txt_rows,
}


def read_rows(lines: Iterable[bytes], name: str, form: str, columns: Any = None) -> Iterator[Row]:
    """Yields the rows of a file, whose values are texts, in jsonl any values of JSON.

    Args:
      form: key of `FORMATS`; "txt" holds one text per line, or two with a tab between.
      columns: `Columns` of rows of "txt".
    """
    return FORMATS[form](lines, name, columns)


def read_file(path: str, flag: str) -> Iterator[Row]:
    """Reads the rows of a file that a flag names, in the format of its ending; see `read_rows`."""
    form = format_of(path)
    with file_io.open_input(path, flag, "rb") as file:
        yield from read_rows(file, path, form)


def each(
    rows: Iterable[tuple[str, Any]],
    make: Callable[[int, str, Any], _Made],
    skipped: list[str] | None = None,
) -> Iterator[_Made]:
    """Yields ``make(number, place, row)`` of each row, whose numbers count from 0.

    Args:
      make: raises `NoTextError` for a row without text.
      skipped: gets the places of such rows, which are skipped; None: they are an error.
    """
    for number, (place, row) in enumerate(rows):
        try:
            item = make(number, place, row)
        except NoTextError:
            if skipped is None:
                raise
            skipped.append(place)
            continue
        yield item


def read_checked(
    read: Callable[[], Iterator[_Made]],
    file: IO[bytes],
    check: Callable[[_Made], object] = lambda row: None,
) -> Iterator[_Made]:
    """Returns rows after all were read, so that a mistake is found before long work.

    Reads `file` twice, by two calls of `read`; the rows of a pipe are kept in memory.

    Args:
      check: raises an error for a row that cannot be used.
    """
    start = file.tell() if file.seekable() else None
    rows = list(read()) if start is None else read()
    for row in rows:
        check(row)
    if start is None:
        return iter(rows)
    file.seek(start)
    return read()


def value_of(row: Mapping[Any, Any], column: str | int, flag: str, place: str) -> Any:
    """Returns the value in a column of a row, as its file has it; see `text_of`."""
    if column not in row:
        raise file_io.InputError(
            f"{place}: there is no column {column!r} ({flag}); there are {name_list(map(str, row))}"
        )
    return row[column]


def text_of(row: Mapping[str, Any], column: str | int, flag: str, place: str) -> str:
    """Returns the text in a column of a row; if there is none, raises `NoTextError`.

    Args:
      row: values by column.
      flag: the flag that names the column.
      place: file and line, for messages.
    """
    value = value_of(row, column, flag, place)
    if is_blank(value):
        raise NoTextError(f"{place}: column {column!r} holds no text")
    if not isinstance(value, str):
        raise file_io.InputError(f"{place}: column {column!r} must be a text, found {value!r}")
    return value


def name_of(row: Mapping[str, Any], column: str | int, flag: str, place: str) -> str:
    """Returns the label or id in a column of a row as text, see `as_name` and `text_of`."""
    value = value_of(row, column, flag, place)
    name = as_name(value)
    if not is_name(name):
        raise file_io.InputError(
            f"{place}: column {column!r} must be a name without tabs and line breaks or a number; "
            f"found {value!r}"
        )
    return name


def as_name(value: Any) -> str:
    """Returns a value as text, numbers and booleans as in JSON; "" for other types."""
    if isinstance(value, str):
        return value.strip()
    return json.dumps(value) if isinstance(value, (bool, int, float)) else ""


def label_key(name: str) -> str:
    """Returns what all spellings of a label have in common: "1.0" and "1." stand for "1".

    Other programs write whole numbers with a point where a column has missing values.
    """
    match = _WHOLE_WITH_POINT.fullmatch(name)
    return str(int(match[1])) if match else name


def match_label(name: str, labels: Iterable[str]) -> str | None:
    """Returns the label that a name from `name_of` stands for; None if there is none."""
    names = {label_key(label): label for label in labels}
    return names.get(label_key(name))


def is_name(value: Any) -> bool:
    """Returns whether a value is text that `name_of` accepts."""
    return isinstance(value, str) and bool(value) and not re.search(NOT_IN_NAMES, value)


def is_blank(value: Any) -> bool:
    """Returns whether a cell, or a value of JSON, holds nothing."""
    return value is None or value == [] or (isinstance(value, str) and not value.strip())


def replace_lone_surrogates(text: str) -> str:
    """Replaces lone surrogates, which UTF-8 cannot encode, with U+FFFD."""
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


def json_line(value: Any) -> str:
    """Returns a line of jsonl; lone surrogates become U+FFFD."""
    return replace_lone_surrogates(json.dumps(value, ensure_ascii=False)) + "\n"
