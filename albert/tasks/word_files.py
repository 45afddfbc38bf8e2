"""Files of sentences whose words have labels: CoNLL's columns and jsonl, read and written.

In CoNLL's files a line is a word with its columns, separated by tabs (if the first line has one) or
by spaces. An empty line or a line ``-DOCSTART-`` ends a sentence. Before its first word, lines that
begin with ``#`` and have not the columns of a word are comments. In jsonl a line is an object
with a list of words and a list of their labels, or with a text that is split at white space. All
files except ``.jsonl`` are read as CoNLL's columns.

Letters in shapes: W words. Arguments for messages: `name` is the path of a file, `place` a path and
a line.
"""

import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, Any, TypeGuard

from albert.io import file_io, tables
from albert.tasks import entities

_WORDS_FLAG = "words_column"
# Comments of CoNLL-U and of CoNLL-2012.
_COMMENT = re.compile(r"#\s*\S+\s+=\s|#(begin|end) document|#\s*new(doc|par)\s*$")
_DOCUMENT = "-DOCSTART-"
_WORDS, _TEXT, _LABELS = "words", "text", "labels"


@dataclasses.dataclass(frozen=True)
class Columns:
    """The columns of words and labels.

    Attributes:
      words, label: in CoNLL's files the number of a column, from 1, or from -1 for the last; in
        jsonl a key. None: the first and the last column, or the keys "words" and "labels".
    """

    words: str | None = None
    label: str | None = None

    def fitting(self, form: str) -> "Columns":
        """Returns the columns that fit the format "conll", which are numbers, or "jsonl": keys."""
        columns = {}
        for name, value in dataclasses.asdict(self).items():
            is_number = re.fullmatch(r"-?\d+", value or "") is not None
            columns[name] = value if value and is_number == (form != "jsonl") else None
        return Columns(**columns)


def are_columns(value: object) -> TypeGuard[dict[str, str | None]]:
    """Returns whether a JSON value has the entries of `Columns`."""
    if not isinstance(value, dict):
        return False
    names = {field.name for field in dataclasses.fields(Columns)}
    return value.keys() <= names and all(isinstance(x, (str, type(None))) for x in value.values())


@dataclasses.dataclass(frozen=True, slots=True)
class Sentence:
    """The words of a sentence, and their labels if known.

    Attributes:
      guid: number of the sentence in its file, from 0, or its "id" in jsonl.
      words: W of them, at least one.
      labels: their labels [W]; None if unknown.
      place: file and line, for messages.
    """

    guid: str
    words: tuple[str, ...]
    labels: tuple[str, ...] | None
    place: str


def without_labels(sentence: Sentence) -> Sentence:
    """Returns a copy of a sentence without its labels."""
    return dataclasses.replace(sentence, labels=None)


def format_of(path: str) -> str:
    """Returns the format of a file, "jsonl" or "conll", from its name."""
    return "jsonl" if path.lower().endswith(".jsonl") else "conll"


def read(
    path: str, flag: str, columns: Columns = Columns(), labeled: bool | None = None
) -> Iterator[Sentence]:
    """Yields the sentences of a file, whose name gives the format.

    Args:
      flag: name of its parameter, for messages.
      labeled: True: each word must have a label. False: labels are not read. None: they are read
        if the first sentence has labels.
    """
    with file_io.open_input(path, flag, "rb") as lines:
        yield from read_lines(lines, path, format_of(path), columns, labeled)


def read_lines(
    lines: Iterable[bytes],
    name: str,
    form: str,
    columns: Columns = Columns(),
    labeled: bool | None = None,
    skipped: list[str] | None = None,
) -> Iterator[Sentence]:
    """Yields the sentences of the lines of a file.

    Args:
      form: "conll", "jsonl" or "txt", which has one text per line, split at white space.
      labeled: True: words must have labels; False: they are not read; None: as the first sentence.
      skipped: gets the places of texts without words ("txt", "jsonl"); None: not allowed.
    """
    if form == "txt":
        texts = ((f"{name} line {i}", line) for i, line in file_io.text_lines(lines, name))
        yield from tables.each(
            texts,
            lambda i, place, text: Sentence(str(i), words_of(text, place), None, place),
            skipped,
        )
    elif form == "jsonl":
        yield from _read_jsonl(lines, name, columns, labeled, skipped)
    else:
        yield from _read_conll(lines, name, columns, labeled)


def words_of(text: str, place: str) -> tuple[str, ...]:
    """Returns the words of a text, split at white space; raises `NoTextError` if it has none."""
    words = tuple(text.split())
    if not words:
        raise tables.NoTextError(f"{place}: there is no text")
    _check_names(words, "the words of the text", place)
    return words


def _check_names(texts: Iterable[str], what: str, place: str) -> None:
    """Rejects texts that files of predictions cannot hold; `what`: a noun for them."""
    if not all(map(tables.is_name, texts)):
        raise file_io.InputError(
            f"{place}: {what} must be without tabs, line breaks and halves of surrogate pairs; "
            f"found {texts!r}"
        )


def _read_jsonl(
    lines: Iterable[bytes],
    name: str,
    columns: Columns,
    labeled: bool | None,
    skipped: list[str] | None,
) -> Iterator[Sentence]:
    """Yields the sentences of lines of JSON objects, see `read_lines`."""
    words_key, label_key = columns.words or _WORDS, columns.label or _LABELS

    def make(number: int, place: str, row: dict[str, Any]) -> Sentence:
        """Returns the sentence of a row by key, with its number, and its place for messages."""
        nonlocal labeled
        if words_key not in row and _TEXT in row:
            words = words_of(tables.text_of(row, _TEXT, "text", place), place)
        else:
            words = _texts(row, words_key, _WORDS_FLAG, place)
        if labeled is None:
            labeled = label_key in row
        labels = _texts(row, label_key, "label_column", place) if labeled else None
        if labels is not None and len(labels) != len(words):
            raise file_io.InputError(
                f"{place}: expected as many {label_key} as {words_key}; found {len(labels)} and "
                f"{len(words)}"
            )
        guid = tables.name_of(row, "id", "id", place) if "id" in row else str(number)
        return Sentence(guid, words, labels, place)

    yield from tables.each(tables.read_rows(lines, name, "jsonl"), make, skipped)


def _texts(row: Mapping[str, Any], key: str, flag: str, place: str) -> tuple[str, ...]:
    """Returns the texts in the list of a row under a key, which `flag` names; none is empty."""
    if key not in row:
        raise file_io.InputError(
            f"{place}: there is no key {key!r} ({flag}); there are {', '.join(row)}"
        )
    texts = row[key]
    fits = isinstance(texts, list) and all(isinstance(x, str) and x.strip() for x in texts)
    if not fits or not texts:
        no_words = tables.is_blank(texts) and flag == _WORDS_FLAG
        kind = tables.NoTextError if no_words else file_io.InputError
        raise kind(f"{place}: {key!r} must be a list of texts, found {texts!r}")
    _check_names(texts, f"the texts of {key!r}", place)
    return tuple(texts)


def _read_conll(
    lines: Iterable[bytes], name: str, columns: Columns, labeled: bool | None
) -> Iterator[Sentence]:
    """Yields the sentences of lines with one word each, see `read_lines`."""
    rows: list[list[str]] = []
    first, count = 1, 0
    for number, fields in _fields(lines, name):
        if fields:
            first = first if rows else number
            rows.append(fields)
        if rows and not fields:
            sentence = _sentence(rows, name, first, count, columns, labeled)
            labeled = sentence.labels is not None
            yield sentence
            rows, count = [], count + 1


def _fields(lines: Iterable[bytes], name: str) -> Iterator[tuple[int, list[str]]]:
    """Yields (line number, columns) of each word, and (line number, []) after each sentence."""
    numbered, head, sample = file_io.text_lines(lines, name), [], ""
    for number, line in numbered:
        head.append((number, line))
        sample = sample if _ends_sentence(line) else line
        if sample and not sample.startswith("#"):
            break  # the first word for certain, which shows the columns
    separator = "\t" if "\t" in sample else None
    number, width, is_start = 0, len(_split(sample, separator)), True
    for number, line in itertools.chain(head, numbered):
        if _ends_sentence(line):
            is_start = True
            yield number, []
            continue
        fields = _split(line, separator)
        # A word "#" has as many columns as others.
        is_word = len(fields) == width and not _COMMENT.match(line)
        if is_start and line.startswith("#") and not is_word:
            continue
        if len(fields) != width or not all(field.strip() for field in fields):
            raise file_io.InputError(
                f"{name} line {number}: expected a word with its columns, {width} as in the first "
                f"line, or an empty line after a sentence; found {line.rstrip()!r}"
            )
        is_start = False
        yield number, fields
    yield number + 1, []


def _ends_sentence(line: str) -> bool:
    """Returns whether a line of a file in CoNLL's form ends a sentence."""
    return not line.strip() or line.startswith(_DOCUMENT)


def _split(line: str, separator: str | None) -> list[str]:
    """Returns the columns of a line, separated by blanks and tabs if `separator` is None.

    Other spaces, such as no-break spaces, are part of words.
    """
    line = line.rstrip("\r\n")
    return line.split(separator) if separator else re.split("[ \t]+", line.strip(" \t"))


def _sentence(
    rows: list[list[str]], name: str, first: int, count: int, columns: Columns, labeled: bool | None
) -> Sentence:
    """Returns the sentence of rows of columns, the first of which is line `first`.

    Args:
      rows: columns of each word.
      count: number of sentences before it, which is its id.
      labeled: True: words must have labels; False: they are not read; None: from two columns on.
    """
    place, width = f"{name} line {first}", len(rows[0])
    word = _column(columns.words, 0, width, "words_column", place)
    if labeled is None:
        labeled = width > 1
    labels = None
    if labeled:
        label = _column(columns.label, width - 1, width, "label_column", place)
        if label == word:
            raise file_io.InputError(
                f"{place}: expected a word and its label in two columns (words_column, "
                f"label_column); found {' '.join(rows[0])!r}"
            )
        labels = tuple(fields[label] for fields in rows)
    return Sentence(str(count), tuple(fields[word] for fields in rows), labels, place)


def _column(value: str | None, default: int, width: int, flag: str, place: str) -> int:
    """Returns the index of a column, from 0.

    Args:
      value: number of the column, from 1, or from -1 for the last; None: the default.
      default: index, from 0.
      width: number of columns.
      flag: parameter that gave the value, for messages.
    """
    if value is None:
        return default
    number = int(value) if value.removeprefix("-").isdecimal() else 0
    if not 1 <= abs(number) <= width:
        raise file_io.InputError(
            f"{place}: {flag}={value} must be the number of one of the {width} columns, from 1, or "
            "from -1 for the last"
        )
    return number - 1 if number > 0 else width + number


@dataclasses.dataclass(frozen=True, slots=True)
class Prediction:
    """The predicted labels of a sentence.

    Attributes:
      labels: the most probable label of each word [W].
      truncated: whether a word was longer than the model's input and was cut.
    """

    sentence: Sentence
    labels: list[str]
    probabilities: list[float]
    truncated: bool = False


def to_dict(prediction: Prediction, marks: bool) -> dict[str, Any]:
    """Returns id, words, labels, probabilities, entities and truncated, JSON-ready by name.

    Args:
      marks: whether labels mark entities, which are then added.
    """
    words = prediction.sentence.words
    row = {
        "id": prediction.sentence.guid,
        "words": words,
        "labels": prediction.labels,
        "probabilities": [round(float(p), 6) for p in prediction.probabilities],
    }
    if marks:
        row["entities"] = [
            {"type": kind, "start": start, "end": end, "text": " ".join(words[start:end])}
            for kind, start, end in entities.find(prediction.labels)
        ]
    return row | ({"truncated": True} if prediction.truncated else {})


def write_predictions(
    file: IO[str], form: str, labels: Iterable[str], rows: Iterable[Prediction]
) -> None:
    """Writes predictions to an open file, one at a time.

    Args:
      form: "conll": word, its label if known, and the predicted label, separated by tabs, with an
        empty line after each sentence; or "jsonl": `to_dict`.
    """
    marks = entities.mark_entities(labels)
    for row in rows:
        if form == "jsonl":
            file.write(tables.json_line(to_dict(row, marks)))
            continue
        columns = (row.sentence.words, row.sentence.labels, row.labels)
        words = zip(*(column for column in columns if column is not None), strict=True)
        file.writelines("\t".join(fields) + "\n" for fields in words)
        file.write("\n")
