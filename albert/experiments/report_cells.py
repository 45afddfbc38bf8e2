"""Parts of reports that are more than text: bars, intervals, links and marked texts in tables."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple, TypedDict

from albert.experiments import text_tables

Figure = tuple[str, str]  # caption and SVG


class Block(TypedDict, total=False):
    """A part of a page: a dict with one of these forms.

    - "paragraph", "note", "warning", "heading" or "program": a text
    - "marked": a text with marked parts
    - "pairs": names and values
    - "figures": captions and SVG
    - "table": names of columns; with "rows", whose cells may be those of this module, and "best",
      the index of the highlighted row
    - "matrix": (name, squares) of each row; with "columns", "corner", "caption", and "vertical",
      whether the names of columns are written upwards
    - "links": links to other parts of the page
    - "folded": a summary; with "blocks", and "id" if something links to it
    """

    paragraph: str
    note: str
    warning: str
    heading: str
    program: str
    marked: "Marked"
    pairs: Sequence[tuple[str, object]]
    figures: Sequence[Figure]
    table: Sequence[str]
    rows: Sequence[Sequence[object]]
    best: int | None
    matrix: Sequence[tuple[str, Sequence["Square | None"]]]
    columns: Sequence[str]
    corner: str
    caption: str
    vertical: bool
    links: Sequence["Link"]
    folded: str
    blocks: Sequence["Block"]
    id: str


@dataclasses.dataclass(frozen=True)
class Bar:
    """A number with a bar behind it, whose length is a fraction of the cell."""

    kind: ClassVar[str] = "bar"
    text: str
    fraction: float

    def __str__(self) -> str:
        return self.text


@dataclasses.dataclass(frozen=True)
class Interval:
    """An interval as text and as a line.

    Attributes:
      low, mean, high: its ends and its mark as fractions of the cell.
      zero: place of the number 0; None: not marked.
    """

    kind: ClassVar[str] = "interval"
    text: str
    low: float
    mean: float
    high: float
    zero: float | None = None

    def __str__(self) -> str:
        return self.text


@dataclasses.dataclass(frozen=True)
class Link:
    """A link to the part of the page with the id `target`."""

    kind: ClassVar[str] = "link"
    text: str
    target: str

    def __str__(self) -> str:
        return self.text


class Part(NamedTuple):
    """A part of a text.

    Attributes:
      mark: "right", "wrong" or, without a mark, "".
      note: what the mark means, such as a label; "" for nothing.
    """

    text: str
    mark: str = ""
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Marked:
    """A text with marked parts, which a separator joins."""

    kind: ClassVar[str] = "marked"
    parts: Sequence[Part]
    separator: str = ""

    def __str__(self) -> str:
        return self.separator.join(part.text for part in self.parts)


LEGEND = Marked([Part("right", "right"), Part("wrong", "wrong")], separator=" ")


class Square(NamedTuple):
    """A cell of a matrix: its color, 0 to 1, a title that says it in words, and a text below."""

    text: str
    fraction: float
    title: str
    small: str = ""


def bar(value: float | None, bounds: tuple[float, float], text: str = "") -> object:
    """Returns the cell of a number (None: unknown), with a bar from 0 if it has a largest value.

    Args:
      text: how the number is shown; "": as other numbers in tables.
      bounds: lowest and highest value that is possible.
    """
    if value is None or not (bounds[0] == 0 and math.isfinite(bounds[1])):
        return text or value
    return Bar(text or f"{value:.4g}", min(max(value / bounds[1], 0.0), 1.0))


def intervals(
    means: Sequence[tuple[float, float, float] | None], bounds: tuple[float, float]
) -> list[str | Interval]:
    """Returns cells with intervals of means on one scale; "-" for unknown ones.

    Args:
      means: (mean, low, high) of each; None: unknown.
      bounds: lowest and highest value that is possible; lines end there.
    """
    known = list(filter(None, means))
    if not known:
        return ["-"] * len(means)
    centers, lows, highs = zip(*known, strict=True)
    # Wide intervals, such as those of two runs, would leave no room for the others.
    margin = (max(centers) - min(centers)) or math.inf
    start = max(min(lows), min(centers) - margin, bounds[0])
    end = min(max(highs), max(centers) + margin, bounds[1])

    def place(value: float) -> float:
        return min(max((value - start) / (end - start), 0.0), 1.0) if end > start else 0.5

    cells: list[str | Interval] = []
    for estimate in means:
        if estimate is None:
            cells.append("-")
        else:
            mean, low, high = estimate
            cells.append(Interval(_text(low, high), place(low), place(mean), place(high)))
    return cells


def difference(estimate: float, low: float, high: float) -> Interval:
    """Returns a cell with the interval of a difference around 0, which is in the middle."""
    largest = max(map(abs, (low, estimate, high))) or 1.0
    start, middle, end = (0.5 + 0.5 * value / largest for value in (low, estimate, high))
    return Interval(_text(low, high), start, middle, end, zero=0.5)


def _text(low: float, high: float) -> str:
    """Returns the text of an interval, which does not break."""
    return text_tables.interval(low, high).replace(" to ", "\u00a0to\u00a0")


def mark_spans(text: str, spans: Mapping[str, str]) -> Marked:
    """Returns a text whose parts have marks: the first place of each span; later spans win.

    Args:
      spans: {span: "right" or "wrong"}; what is not in the text is not marked.
    """
    marks = [""] * len(text)
    for span, mark in spans.items():
        start = text.find(span)
        if span and start >= 0:
            marks[start : start + len(span)] = [mark] * len(span)
    parts: list[Part] = []
    for character, mark in zip(text, marks, strict=True):
        if parts and parts[-1].mark == mark:
            parts[-1] = parts[-1]._replace(text=parts[-1].text + character)
        else:
            parts.append(Part(character, mark))
    return Marked(parts)
