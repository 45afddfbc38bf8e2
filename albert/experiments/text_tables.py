"""Writes tables as Markdown, CSV and LaTeX; a table is its header and rows of cells."""

import csv
import io
from collections.abc import Iterable, Sequence

Cells = Sequence[object]  # None: unknown
_LATEX = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
}
MARKDOWN, CSV, LATEX = "markdown", "csv", "latex"


def number(value: float | None, unknown: str = "-") -> str:
    """Returns a score as tables show it; None as `unknown`."""
    return unknown if value is None else f"{round(value, 4) + 0:.4f}"  # + 0: no "-0.0000"


def interval(low: float | None, high: float | None) -> str:
    """Returns an interval, its lowest and highest value, as tables show it; "-" for None."""
    return "-" if low is None or high is None else f"{number(low)} to {number(high)}"


def write(header: Cells, rows: Iterable[Cells], form: str = MARKDOWN) -> str:
    """Returns a table in a form: `MARKDOWN`, which is aligned for terminals, `CSV` or `LATEX`.

    LaTeX uses the rules of the package booktabs.
    """
    lines = [["" if cell is None else str(cell) for cell in line] for line in (header, *rows)]
    if form == CSV:
        file = io.StringIO()
        csv.writer(file, lineterminator="\n").writerows(lines)
        return file.getvalue()
    return _latex(lines) if form == LATEX else _markdown(lines)


def _markdown(lines: list[list[str]]) -> str:
    """Returns lines of cells as a table in Markdown; the first is the header."""
    lines = [[" ".join(cell.replace("|", "\\|").split()) for cell in line] for line in lines]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * width for width in widths])
    return "".join(
        "| " + " | ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) + " |\n"
        for line in lines
    )


def _latex(lines: list[list[str]]) -> str:
    """Returns lines of cells as a table in LaTeX; the first is the header."""
    header, *rows = (
        " & ".join("".join(_LATEX.get(c, c) for c in cell) for cell in line) + r" \\"
        for line in lines
    )
    columns = r"\begin{tabular}{" + "l" * len(lines[0]) + "}"
    rules = [columns, r"\toprule", header, r"\midrule", *rows, r"\bottomrule", r"\end{tabular}"]
    return "\n".join([*rules, ""])
