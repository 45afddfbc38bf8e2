"""Reads tables of `benchmarks/RESULTS.md`, the one place of measured numbers."""

import pathlib

RESULTS = pathlib.Path(__file__).parents[2] / "benchmarks" / "RESULTS.md"


def read_table(section: str, first_cell: str = "") -> list[list[str]]:
    """Reads the first table of a section whose header begins with a cell.

    Returns:
      The rows below the header, each a list of the texts of its cells.
    """
    _, separator, text = RESULTS.read_text(encoding="utf-8").partition(f"\n## {section}\n")
    if not separator:
        raise ValueError(f"{RESULTS} has no section {section!r}: adapt the script of the drawing")
    lines = text.partition("\n## ")[0].split("\n")
    start = next(
        (n for n, line in enumerate(lines) if line.startswith(f"| {first_cell}".rstrip() + " |")),
        None,
    )
    if start is None:
        raise ValueError(f"{section!r} has no table with {first_cell!r}: adapt the script")
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows
