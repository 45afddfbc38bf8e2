"""Reads text files of several formats and makes clean documents of one sentence per line.

Only the splitting into sentences depends on the language: the rules count letters, words and
repetitions. Documents are read and cleaned one at a time.
"""

import bisect
import codecs
import collections
import contextlib
import dataclasses
import functools
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import NoneType
from typing import IO

from absl import logging

from albert.io import archives, file_io, requirements
from albert.text import corpus, words

LINES = ("paragraphs", "sentences", "wrapped")
# Control characters other than white space, and invisible characters: soft hyphens, spaces without
# width, byte order marks, halves of surrogate pairs. Joiners of letters stay.
UNSEEN = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u200b\u2060\ufeff\ud800-\udfff]")

READ_BYTES = 1 << 20  # at a time
# Values of JSON other than text, for messages.
_KINDS = {
    int: "a number", float: "a number", bool: "true or false", NoneType: "null", list: "a list",
    dict: "an object",
}  # fmt: skip
# Languages for which sentencex 1.0 has rules of its own.
_WITH_RULES = frozenset(
    "am ar bg bn ca da de el en es fi fr gu hi hy it ja kk kn ml mr my nl pa pl pt ru sk ta te uk"
    .split()
)  # fmt: skip
_LANGUAGE_CODE = re.compile("[a-z]{2,3}")


@dataclasses.dataclass(frozen=True)
class Cleaning:
    """Settings for reading and cleaning texts.

    Attributes:
      text_field: name of the text in lines of JSON.
      whole_files: a text file is one document, with blank lines between its paragraphs.
      lines: content of a line of text; "paragraphs": one or more sentences; "sentences": one
        sentence; "wrapped": a part of a paragraph, which ends at a blank line.
      language: code of the language (ISO 639-1) for splitting text into sentences.
      min_letter_share: minimum fraction of letters in a line, of all characters except spaces.
      min_words: minimum number of words in a document.
      encoding: encoding of the files, a name that Python knows.
    """

    text_field: str = "text"
    whole_files: bool = False
    lines: str = "paragraphs"
    language: str = "en"
    min_letter_share: float = 0.5
    min_words: int = 20
    encoding: str = "utf-8"


class BadFile(file_io.InputError):
    """A file cannot be read to its end in the expected format."""


def is_json_lines(path: str) -> bool:
    """Returns whether a name is that of a file with a JSON object per line, compressed or not.

    Raises:
      file_io.InputError: the name is that of JSON of any form.
    """
    name, ending = os.path.splitext(path.lower())
    name = name if ending in archives.ENDINGS else path.lower()
    if name.endswith(".json"):
        raise file_io.InputError(
            f"{path}: expected text, or .jsonl with an object per line; if it is such a file "
            "rename it, else convert it to .jsonl"
        )
    return name.endswith((".jsonl", ".ndjson"))


def read_documents(
    path: str, cleaning: Cleaning, counts: collections.Counter[str]
) -> Iterator[str]:
    """Yields the documents of a file as texts.

    Args:
      path: text with a blank line between documents, or a JSON object per line; may be compressed.
      counts: gets ``bytes`` and ``cut_documents``.

    Raises:
      BadFile: the file is cut off, damaged or in another encoding, or has an endless line or a line
        that is not such a JSON object; names the file and the line.
      file_io.InputError: the package for its compression is missing.
    """
    try:
        with archives.open_input(path, "input_file") as file:
            content = _read_as_utf8(file, path, cleaning.encoding)
            numbered = file_io.text_lines(_count_lines(_limited_lines(content, path), counts), path)
            if is_json_lines(path):
                yield from _json_texts(numbered, path, cleaning.text_field)
            else:
                yield from _texts(numbered, cleaning.whole_files, counts)
    except (file_io.InputError, OSError) as error:
        if isinstance(error.__cause__, ImportError):
            raise
        raise BadFile(f"{error} (`skip_bad_files` skips such files)") from error


def check_encoding(name: str) -> None:
    """Checks that Python knows an encoding of text by this name."""
    try:
        with contextlib.suppress(UnicodeError):
            b"a".decode(name)  # Not empty, which any name would decode.
    except LookupError as error:
        raise file_io.InputError(
            f"encoding={name}: expected an encoding that Python knows, such as latin-1, cp1252 or "
            f"utf-16 ({error})"
        ) from error


def check_language(code: str) -> None:
    """Checks the form of a code; warns if other rules than those of its language are used.

    The package takes any text as a code, and those that it does not know for English.
    """
    if not _LANGUAGE_CODE.fullmatch(code):
        raise file_io.InputError(
            f"language={code}: expected a code of two or three lower-case letters (ISO 639), such "
            "as de for German of any region"
        )
    if code not in _WITH_RULES:
        logging.warning(
            "language=%s: sentences are found by the rules of a related language or of English, "
            "as sentencex has none of its own for it",
            code,
        )


def _read_as_utf8(file: IO[bytes], path: str, encoding: str) -> Iterator[bytes]:
    """Yields the content of a file in parts, converted to UTF-8; as it is if it should be UTF-8."""
    is_utf8 = codecs.lookup(encoding).name == "utf-8"
    decoder, place = codecs.getincrementaldecoder(encoding)(), 0
    while content := file.read(READ_BYTES):
        if is_utf8:  # The reader of the lines checks it, and knows their numbers.
            yield content
            continue
        yield _recode(decoder, content, path, encoding, place)
        place += len(content)
    if not is_utf8:
        yield _recode(decoder, b"", path, encoding, place)


def _recode(
    decoder: codecs.IncrementalDecoder, content: bytes, path: str, encoding: str, place: int
) -> bytes:
    waiting = len(decoder.getstate()[0])
    try:
        return decoder.decode(content, final=not content).encode()
    except UnicodeError as error:
        start = getattr(error, "start", waiting)
        raise file_io.InputError(
            f"{path}: not text in {encoding}: {getattr(error, 'reason', error)} at byte "
            f"{place - waiting + start}; give its `encoding`"
        ) from error


def _limited_lines(content: Iterable[bytes], path: str) -> Iterator[bytes]:
    """Yields the lines, with their ends, of content in parts."""
    number, rest = 0, b""
    for part in content:
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            number += 1
            yield _check_length(line + b"\n", number, path)
        _check_length(rest, number + 1, path)
    if rest:
        yield rest


def _check_length(line: bytes, number: int, path: str) -> bytes:
    limit = corpus.MAX_DOCUMENT_BYTES
    if len(line) > limit:
        raise file_io.InputError(f"{path} line {number} has more than {limit} bytes")
    return line


def _count_lines(lines: Iterable[bytes], counts: collections.Counter[str]) -> Iterator[bytes]:
    for line in lines:
        counts["bytes"] += len(line)
        yield line


def json_values(numbered: Iterable[tuple[int, str]], path: str) -> Iterator[tuple[int, object]]:
    """Yields (number, value) of the lines of JSON in a file; skips blank lines."""
    for number, line in numbered:
        if not line.strip():
            continue
        try:
            yield number, file_io.parse_json(line)
        except file_io.InputError as error:
            raise file_io.InputError(f"{path} line {number} is not JSON: {error}") from error


def _json_texts(numbered: Iterable[tuple[int, str]], path: str, field: str) -> Iterator[str]:
    for number, value in json_values(numbered, path):
        text = value.get(field) if isinstance(value, dict) else None
        if not isinstance(text, str):
            problem = "the line is not an object"
            if isinstance(value, dict):
                problem = f"the line has the fields {sorted(value)}"
                if field in value:
                    problem = f"it is {_KINDS[type(text)]}"
            raise file_io.InputError(
                f"{path} line {number}: expected a text in text_field={field}; {problem}"
            )
        yield text


def _texts(
    numbered: Iterable[tuple[int, str]], whole_files: bool, counts: collections.Counter[str]
) -> Iterator[str]:
    lines: list[str] = []
    size = 0
    for _, line in numbered:
        ends = not whole_files and not line.strip()
        if size + len(line) > corpus.MAX_DOCUMENT_BYTES:
            counts["cut_documents"] += 1
            ends = True
        if ends and lines:
            yield "".join(lines)
            lines, size = [], 0
        if line.strip() or lines:
            lines.append(line)
            size += len(line)
    if lines:
        yield "".join(lines)


@functools.cache
def _non_letters() -> re.Pattern[str]:
    """Matches a character that is neither a letter, nor a mark on one, nor a space."""
    return re.compile(rf"[^\w\s{words.marks()}]|[\d_]")


def letter_fraction(text: str) -> float:
    """Returns the fraction of letters among the characters of a text, without spaces."""
    size = len(text) - sum(map(text.count, " \t"))
    return 1 - len(_non_letters().findall(text)) / size if size else 0


def _splitter(cleaning: Cleaning) -> Callable[[str], Iterable[str]]:
    """Returns a function, paragraph -> its sentences."""
    if cleaning.lines == "sentences":
        return lambda line: [line]
    with requirements.needed(
        "finding sentences needs the package sentencex: pip install sentencex ({error}); or say "
        "that each line is one (text_lines=sentences)"
    ):
        import sentencex
    return functools.partial(sentencex.segment, cleaning.language)


class Cleaner:
    """Cleans documents."""

    def __init__(self, cleaning: Cleaning) -> None:
        self._cleaning = cleaning
        self._split = _splitter(cleaning)

    def clean(self, text: str, counts: collections.Counter[str]) -> list[str]:
        """Returns the clean sentences of a document; none if it is skipped.

        Adds what is removed to `counts`, by reason.
        """
        sentences: list[str] = []
        for paragraph in self._paragraphs(text, counts):
            if letter_fraction(paragraph) < self._cleaning.min_letter_share:
                counts["lines_of_few_letters"] += 1
                continue
            texts = (" ".join(sentence.split()) for sentence in self._split(paragraph))
            sentences += filter(None, texts)
        return sentences if self.is_long_enough(sentences, counts) else []

    def is_long_enough(self, sentences: Sequence[str], counts: collections.Counter[str]) -> bool:
        """Returns whether sentences have enough words for a document."""
        if not sentences:
            counts["documents_without_text"] += 1
        elif sum(len(words.split(text)) for text in sentences) < self._cleaning.min_words:
            counts["documents_too_short"] += 1
        else:
            return True
        return False

    def _paragraphs(self, text: str, counts: collections.Counter[str]) -> Iterator[str]:
        waiting = []
        text, unseen = UNSEEN.subn("", text)
        counts["unseen_characters"] += unseen
        for line in text.split("\n"):
            line = " ".join(line.split())
            if self._cleaning.lines == "wrapped":
                if line:
                    waiting.append(line)
                elif waiting:
                    yield " ".join(waiting)
                    waiting = []
            elif line:
                yield line
        if waiting:
            yield " ".join(waiting)


def lengths_report(lengths: collections.Counter[int]) -> dict[str, float]:
    """Returns {"mean", "median", …} of a Counter {length: how often}."""
    total = lengths.total()
    if not total:
        return {}
    statistics = {"mean": sum(length * count for length, count in lengths.items()) / total}
    ordered = sorted(lengths.items())
    ranks = list(itertools.accumulate(count for _, count in ordered))
    fractions = {"min": 0, "median": 0.5, "90%": 0.9, "99%": 0.99, "max": 1}
    for name, fraction in fractions.items():
        statistics[name] = ordered[bisect.bisect_left(ranks, max(1, fraction * total))][0]
    return statistics
