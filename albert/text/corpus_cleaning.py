"""From the texts of any file to clean documents of one sentence a line.

Nothing here knows a language but the package that finds the ends of sentences: rules count letters,
words and repetitions. Documents are read and cleaned one at a time.
"""

import codecs
import collections
import contextlib
import dataclasses
import functools
import os
import re
import unicodedata
from collections.abc import Iterator, Sequence
from types import NoneType

from albert.io import archives, file_io
from albert.text import corpus, duplicates

LINES = ("paragraphs", "sentences", "wrapped")
# Control characters that are no white space, and marks that are not seen: soft hyphens, spaces
# without width, byte order marks, halves of surrogate pairs. What joins letters stays.
_UNSEEN = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u200b\u2060\ufeff\ud800-\udfff]")

READ_BYTES = 1 << 20  # at a time
# Values of JSON that are no text, for messages.
_KINDS = {
    int: "a number", float: "a number", bool: "true or false", NoneType: "null", list: "a list",
    dict: "an object",
}  # fmt: skip
_LAST_MARK = 0x1FFFF  # Behind it there are only selectors of variants of characters.


@dataclasses.dataclass(frozen=True)
class Cleaning:
    """How texts are read and cleaned.

    Attributes:
      text_field: name of the text in lines of JSON.
      whole_files: a text file is one document, and blank lines are between its paragraphs.
      lines: what a line of a text is; "paragraphs": one or more sentences; "sentences": one;
        "wrapped": a part, and what is between blank lines belongs together.
      language: code of the language (ISO 639-1) for splitting text into sentences.
      min_letter_share: least share of letters in a line, of all signs but spaces.
      min_words: least words in a document.
      encoding: of the files, a name that Python knows.
    """

    text_field: str = "text"
    whole_files: bool = False
    lines: str = "paragraphs"
    language: str = "en"
    min_letter_share: float = 0.5
    min_words: int = 20
    encoding: str = "utf-8"


class BadFile(file_io.InputError):
    """A file cannot be read to its end as what it should be."""


# --- reading --------------------------------------------------------------------------------------


def is_json_lines(path: str) -> bool:
    """True for the names of files with a JSON object a line, compressed or not."""
    name, ending = os.path.splitext(path.lower())
    return (name if ending in archives.ENDINGS else path.lower()).endswith(".jsonl")


def read_documents(
    path: str, cleaning: Cleaning, counts: collections.Counter[str]
) -> Iterator[str]:
    """Yields the documents of a file as texts.

    Args:
      path: text with a blank line between documents, or a JSON object a line; may be compressed.
      cleaning: `Cleaning`.
      counts: Counter that gets ``bytes`` and ``cut_documents``.

    Raises:
      BadFile: the file is cut off, damaged, of another encoding, has an endless line, or a line of
        it is not such a JSON object; names the file and the line.
      file_io.InputError: there is no package for it.
    """
    try:
        with archives.open_input(path, "input_file") as file:
            content = _as_utf8(file, path, cleaning.encoding)
            numbered = file_io.text_lines(_counted(_limited_lines(content, path), counts), path)
            if is_json_lines(path):
                yield from _json_texts(numbered, path, cleaning.text_field)
            else:
                yield from _texts(numbered, cleaning.whole_files, counts)
    except (file_io.InputError, OSError) as error:
        if isinstance(error.__cause__, ImportError):
            raise
        raise BadFile(f"{error} (`skip_bad_files` leaves such files out)") from error


def check_encoding(name: str) -> None:
    """Refuses what is not the name of an encoding of text.

    Raises:
      file_io.InputError: names it.
    """
    try:
        with contextlib.suppress(UnicodeError):
            b"a".decode(name)  # Nothing at all is decoded by anything.
    except LookupError as error:
        raise file_io.InputError(
            f"encoding={name}: expected an encoding that Python knows, such as latin-1, cp1252 or "
            f"utf-16 ({error})"
        ) from error


def _as_utf8(file, path, encoding):
    """Yields the content of a file in parts, in UTF-8, or as it is where it should be that."""
    is_utf8 = codecs.lookup(encoding).name == "utf-8"
    decoder, place = codecs.getincrementaldecoder(encoding)(), 0
    while content := file.read(READ_BYTES):
        if is_utf8:  # Who reads the lines checks it, and knows their numbers.
            yield content
            continue
        yield _recoded(decoder, content, path, encoding, place)
        place += len(content)
    if not is_utf8:
        yield _recoded(decoder, b"", path, encoding, place)


def _recoded(decoder, content, path, encoding, place):
    waiting = len(decoder.getstate()[0])
    try:
        return decoder.decode(content, final=not content).encode()
    except UnicodeError as error:
        start = getattr(error, "start", waiting)
        raise file_io.InputError(
            f"{path}: not text in {encoding}: {getattr(error, 'reason', error)} at byte "
            f"{place - waiting + start}; give its `encoding`"
        ) from error


def _limited_lines(content, path):
    """Yields the lines, with their ends, of content that comes in parts."""
    number, rest = 0, b""
    for part in content:
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            number += 1
            yield _of_limited_length(line + b"\n", number, path)
        _of_limited_length(rest, number + 1, path)
    if rest:
        yield rest


def _of_limited_length(line, number, path):
    limit = corpus.MAX_DOCUMENT_BYTES
    if len(line) > limit:
        raise file_io.InputError(f"{path} line {number} has more than {limit} bytes")
    return line


def _counted(lines, counts):
    for line in lines:
        counts["bytes"] += len(line)
        yield line


def _json_texts(numbered, path, field):
    for number, line in numbered:
        if not line.strip():
            continue
        try:
            value = file_io.parse_json(line)
        except file_io.InputError as error:
            raise file_io.InputError(f"{path} line {number} is not JSON: {error}") from error
        text = value.get(field) if isinstance(value, dict) else None
        if not isinstance(text, str):
            found = "the line is no object"
            if isinstance(value, dict):
                found = f"the line has the fields {sorted(value)}"
                if field in value:
                    found = f"it is {_KINDS[type(text)]}"
            raise file_io.InputError(
                f"{path} line {number}: expected a text in text_field={field}; {found}"
            )
        yield text


def _texts(numbered, whole_files, counts):
    lines, size = [], 0
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


# --- cleaning -------------------------------------------------------------------------------------


@functools.cache
def _signs():
    """What is neither a letter, nor a mark on one, nor a space."""
    marks = "".join(
        chr(code) for code in range(_LAST_MARK + 1) if unicodedata.category(chr(code))[0] == "M"
    )
    return re.compile(rf"[^\w\s{re.escape(marks)}]|[\d_]")


def letter_share(text: str) -> float:
    """Share of letters among all signs of a text but spaces; 0 if there are none."""
    signs = len(text) - sum(map(text.count, " \t"))
    return 1 - len(_signs().findall(text)) / signs if signs else 0


def _splitter(cleaning):
    """Function, paragraph -> its sentences."""
    if cleaning.lines == "sentences":
        return lambda line: [line]
    try:
        import sentencex
    except ImportError as error:
        raise file_io.InputError(
            f"finding sentences needs the package sentencex: pip install '.[corpus]' ({error}); or "
            "say that there is one a line (text_lines=sentences)"
        ) from error
    return functools.partial(sentencex.segment, cleaning.language)


class Cleaner:
    """Cleans documents.

    Raises:
      file_io.InputError: a package is missing.
    """

    def __init__(self, cleaning: Cleaning) -> None:
        self._cleaning = cleaning
        self._split = _splitter(cleaning)

    def clean(self, text: str, counts: collections.Counter[str]) -> list[str]:
        """List of the clean sentences of a document; empty if it is left out.

        Args:
          text: the document.
          counts: Counter that gets what is left out, and why.
        """
        sentences: list[str] = []
        for paragraph in self._paragraphs(text, counts):
            if letter_share(paragraph) < self._cleaning.min_letter_share:
                counts["lines_of_few_letters"] += 1
                continue
            found = (" ".join(sentence.split()) for sentence in self._split(paragraph))
            sentences += filter(None, found)
        return sentences if self.is_long_enough(sentences, counts) else []

    def is_long_enough(self, sentences: Sequence[str], counts: collections.Counter[str]) -> bool:
        """Whether sentences have enough words for a document."""
        if not sentences:
            counts["documents_without_text"] += 1
        elif sum(len(duplicates.words(text)) for text in sentences) < self._cleaning.min_words:
            counts["documents_too_short"] += 1
        else:
            return True
        return False

    def _paragraphs(self, text, counts):
        waiting = []
        text, unseen = _UNSEEN.subn("", text)
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
    """{"mean", "median", …} of a Counter of lengths.

    Args:
      lengths: Counter {length: how often}.
    """
    total = lengths.total()
    if not total:
        return {}
    found = {"mean": sum(length * count for length, count in lengths.items()) / total}
    seen, wanted = (
        0,
        collections.deque(
            [("least", 0), ("median", 0.5), ("90%", 0.9), ("99%", 0.99), ("most", 1)]
        ),
    )
    for length, count in sorted(lengths.items()):
        seen += count
        while wanted and seen >= max(1, wanted[0][1] * total):
            found[wanted.popleft()[0]] = length
    return found
