"""Reads plain-text corpora: one sentence per line and a blank line between documents.

A corpus of any size is handled as blocks of whole documents, so that memory stays bounded.
"""

import codecs
import dataclasses
import re
from collections.abc import Iterable, Iterator

from absl import logging

from albert.io import archives, file_io

BLOCK_BYTES = 16 << 20
# A document longer than this is handled as several; a longer line is an error.
MAX_DOCUMENT_BYTES = 2 * BLOCK_BYTES
_BLANK_LINE = re.compile(rb"\n[ \t\r\f\v]*\n")
PIECE_BYTES = 1 << 20  # text decoded at a time


@dataclasses.dataclass(frozen=True)
class Segment:
    """Whole lines of a file: bytes `start` to `end` of `path`, or of its unpacked content."""

    path: str
    start: int
    end: int


@dataclasses.dataclass(frozen=True)
class Plan:
    """A division of a corpus.

    Attributes:
      blocks: the end of a segment ends a document.
      cut_documents: number of places where a document was too long and was cut.
    """

    blocks: tuple[tuple[Segment, ...], ...]
    num_bytes: int
    cut_documents: int


def plan_blocks(
    paths: Iterable[str],
    block_bytes: int = BLOCK_BYTES,
    max_document_bytes: int = MAX_DOCUMENT_BYTES,
) -> Plan:
    """Divides text files into blocks of whole documents of about `block_bytes`.

    Reads everything once, so that unreadable text is reported before hours of work.
    """
    blocks: list[tuple[Segment, ...]] = []
    current: list[Segment] = []
    filled = total = cuts = 0
    for path in paths:
        before = total
        for start, end, cut in _scan_file(path, block_bytes, max_document_bytes):
            current.append(Segment(path, start, end))
            filled += end - start
            total += end - start
            cuts += cut
            if filled >= block_bytes:
                blocks.append(tuple(current))
                current, filled = [], 0
        if total == before:
            logging.warning("There is no text in %s", path)
    if current:
        blocks.append(tuple(current))
    return Plan(tuple(blocks), total, cuts)


def _scan_file(
    path: str, block_bytes: int, max_document_bytes: int
) -> Iterator[tuple[int, int, bool]]:
    """Yields (start, end, whether the end is inside a document) of a file's segments."""
    start, data, first_line = 0, b"", 1
    with archives.open_input(path, "input text") as file:
        while chunk := file.read(block_bytes):
            if not start and not data:
                file_io.check_line_ends(chunk, path)
            data += chunk
            end, cut = _last_document_end(data), False
            if not end and len(data) >= max_document_bytes:
                end, cut = data.rfind(b"\n") + 1, True
                if not end:
                    raise file_io.InputError(
                        f"{path}, line {first_line} has more than {max_document_bytes} bytes; "
                        "expected one sentence per line and a blank line between documents"
                    )
            if end:
                _check_utf8(data[:end], path, first_line)
                yield start, start + end, cut
                start += end
                first_line += data.count(b"\n", 0, end)
                data = data[end:]
    if data:
        _check_utf8(data, path, first_line)
        yield start, start + len(data), False


def _last_document_end(data: bytes) -> int:
    """Returns the length of `data` up to and including its last blank line, 0 if it has none."""
    # The last blank line is nearly always empty and near the end; only else search everything.
    end = data.rfind(b"\n\n")
    if end >= 0:
        return end + 2
    return max((match.end() for match in _BLANK_LINE.finditer(data)), default=0)


def _check_utf8(data: bytes, path: str, first_line: int) -> None:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = first_line + data.count(b"\n", 0, error.start)
        column = error.start - data.rfind(b"\n", 0, error.start)
        raise file_io.InputError(
            f"{path}, line {line}, byte {column}: not UTF-8 text ({error.reason}: "
            f"0x{data[error.start]:02x}); {file_io.encoding_advice(data)}"
        ) from error


def read_lines(segment: Segment) -> Iterator[list[str]]:
    """Yields the lines of a segment in lists of moderate length, without line ends.

    Only "\\n" ends a line. A byte order mark at the start of the file is dropped.
    """
    with archives.open_at(segment.path, "input text", segment.start) as file:
        bytes_left = segment.end - segment.start
        rest = b""
        while bytes_left:
            data = file.read(min(PIECE_BYTES, bytes_left))
            if not data:
                raise file_io.InputError(f"{segment.path} was cut off while it was being read")
            at_file_start = bytes_left == segment.end
            bytes_left -= len(data)
            if at_file_start:
                data = data.removeprefix(codecs.BOM_UTF8)
            complete, newline, rest = (rest + data).rpartition(b"\n")
            if newline:
                yield complete.decode("utf-8").split("\n")
    if rest:
        yield [rest.decode("utf-8")]


def nonblank_lines(segment: Segment) -> Iterator[list[str]]:
    """Yields the lines of a segment that are not blank, in lists."""
    for lines in read_lines(segment):
        yield list(filter(str.strip, lines))


def count_lines(segments: Iterable[Segment]) -> list[int]:
    """Counts the lines that are not blank in each segment of a block."""
    return [sum(map(len, nonblank_lines(segment))) for segment in segments]
