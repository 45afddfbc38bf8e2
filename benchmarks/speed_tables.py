"""The tables of speed in RESULTS.md, one for each kind of processor, and the README's rows of them.

A table is written between two markers; the tables of other kinds are not touched. The README's rows
are derived from all tables.
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping

from albert.io import file_io

# Kinds of processors, and the flag of Linux that each has; the first that matches counts.
KINDS = {"AMX": "amx_bf16", "AVX512-BF16": "avx512_bf16", "AVX512": "avx512f", "AVX2": "avx2"}
# Kinds with units for products in bfloat16; the others emulate them, which takes minutes.
WITH_BFLOAT16 = ("AMX", "AVX512-BF16")
# Titles of the rows that the README names.
SST2, SST2_BERT = "training on SST-2, base, float32", "training on SST-2, BERT 6 x 384, float32"
ONE_TEXT, ONE_TEXT_INT8 = (f"32 tokens, base, {precision}" for precision in ("float32", "int8"))
PADDED = "training 16 x 128, base, float32"
_DYNAMIC_PADDING, _COMPILED = "transformers", "`torch.compile`"
_LINK = "benchmarks/RESULTS.md#on-every-kind-of-processor"
_HEAD = "| | unit | here | others (times as fast as they are) | date |\n|---|---|---|---|---|\n"
_CELL = re.compile(r"([\d.,]+)(?: \(([^)]*)\))?")
_OTHER = re.compile(r"(.+) ([\d.,]+) \([\d.]+\)")


def processor_kind(cpuinfo: str) -> str:
    """Returns which of `KINDS` a processor is.

    Args:
      cpuinfo: contents of Linux's ``/proc/cpuinfo``.

    Raises:
      InputError: it is none of them.
    """
    match = re.search(r"^flags\s*:(.*)$", cpuinfo, re.M)
    features = set(match[1].split()) if match else set()
    for kind, feature in KINDS.items():
        if feature in features:
            return kind
    raise file_io.InputError(
        f"the processor has none of {', '.join(KINDS.values())}: RESULTS.md has no table for it"
    )


def _figure(value: float) -> str:
    return f"{value:,.{2 if value < 10 else 1 if value < 100 else 0}f}"


def _number(text: str) -> float:
    return float(text.replace(",", ""))


@dataclasses.dataclass(frozen=True)
class Row:
    """The figures of one measurement.

    Attributes:
      unit: of all figures: examples/s, or ms, of which fewer are better.
      here: the figure of this project.
      how: how this project ran, if there was a choice.
      others: {peer: figure}.
      date: of the measurement.
    """

    title: str
    unit: str
    here: float
    how: str
    others: Mapping[str, float]
    date: str

    def ratio(self, other: str) -> float:
        """Returns how many times as fast as a peer this project is."""
        theirs = self.others[other]
        return theirs / self.here if self.unit == "ms" else self.here / theirs

    def line(self) -> str:
        """Writes the row in Markdown."""
        here = _figure(self.here) + (f" ({self.how})" if self.how else "")
        others = "; ".join(
            f"{name} {_figure(value)} ({self.ratio(name):.2f})"
            for name, value in self.others.items()
        )
        return f"| {self.title} | {self.unit} | {here} | {others} | {self.date} |"


def _parse(line: str) -> Row:
    title, unit, here, others, date = (cell.strip() for cell in line.strip("|\n ").split(" | "))
    figure, how = _CELL.fullmatch(here).groups()
    pairs = (_OTHER.fullmatch(part).groups() for part in others.split("; ") if part)
    theirs = {name: _number(value) for name, value in pairs}
    return Row(title, unit, _number(figure), how or "", theirs, date)


@dataclasses.dataclass(frozen=True)
class Table:
    """The rows of one kind of processor.

    Attributes:
      machine: the processor, and after a semicolon the versions of programs.
      rows: {title: row}.
    """

    machine: str = ""
    rows: Mapping[str, Row] = dataclasses.field(default_factory=dict)

    @property
    def processor(self) -> str:
        return self.machine.partition(";")[0]

    def text(self) -> str:
        """Writes the table in Markdown."""
        lines = "".join(f"{row.line()}\n" for row in self.rows.values())
        return f"{self.machine}\n\n{_HEAD}{lines}"

    def updated(self, machine: str, rows: Iterable[Row]) -> "Table":
        """Returns the table with new rows in the place of those of the same titles.

        Rows of another processor are left out.
        """
        new = Table(machine)
        kept = self.rows if self.processor == new.processor else {}
        return Table(machine, {**kept, **{row.title: row for row in rows}})


def _section(kind: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- {kind} -->\n)(.*?)(<!-- end of {kind} -->)", re.S)


def read(page: str) -> dict[str, Table]:
    """Reads the tables of a page, {kind: table}, of the kinds that were measured."""
    tables = {}
    for kind in KINDS:
        match = _section(kind).search(page)
        machine, _, rest = match[2].strip().partition("\n\n") if match else ("", "", "")
        rows = [_parse(line) for line in rest.splitlines()[2:]]
        if rows:
            tables[kind] = Table(machine, {row.title: row for row in rows})
    return tables


def replaced(page: str, kind: str, table: Table) -> str:
    """Returns a page with this table of a kind of processor.

    Raises:
      InputError: the page has no markers for this kind.
    """
    new, count = _section(kind).subn(lambda match: f"{match[1]}{table.text()}{match[3]}", page)
    if count != 1:
        raise file_io.InputError(f"the page has {count} places <!-- {kind} --> for a table")
    return new


# --- the README -----------------------------------------------------------------------------------


def _of_kinds(tables: Mapping[str, Table], title: str, show: str, other: str = "") -> str:
    """Lists a figure of all kinds that have it, such as "3.8 (AMX), 4.0 (AVX2)"."""
    found = []
    for kind, table in tables.items():
        row = table.rows.get(title)
        if row is None or (other and other not in row.others):
            continue
        if show == "ratio":
            figure = f"{row.ratio(other):.1f}"
        else:
            figure = f"{row.others[other] if other else row.here:.0f}"
        found.append(f"{figure} ({kind})")
    return ", ".join(found)


def readme_rows(tables: Mapping[str, Table]) -> dict[str, str]:
    """Returns {first cell: second cell} of the README's rows that the tables give."""
    rows = {}
    padded = _of_kinds(tables, PADDED, "ratio", _COMPILED)
    base = _of_kinds(tables, SST2, "ratio", _DYNAMIC_PADDING)
    bert = _of_kinds(tables, SST2_BERT, "ratio", _DYNAMIC_PADDING)
    if padded and base and bert:
        rows["Fast training"] = (
            f"times as fast as transformers: base model [{padded}]({_LINK}) for the same padded "
            f"step (with `torch.compile`), {base} on the texts of SST-2, because padding is not "
            f"computed; BERT of 6 x 384 there {bert}"
        )
    ours, theirs = (_of_kinds(tables, ONE_TEXT, "figure", name) for name in ("", _COMPILED))
    int8 = _of_kinds(tables, ONE_TEXT_INT8, "figure")
    if ours and theirs and int8:
        rows["Fast answers"] = (
            f"base model, one text of 32 tokens, in milliseconds: [{ours}]({_LINK}), transformers "
            f"with `torch.compile` {theirs}; in int8 {int8}"
        )
    return rows


def with_readme_rows(readme: str, tables: Mapping[str, Table]) -> str:
    """Returns a README whose rows are those of `readme_rows`."""
    for name, cell in readme_rows(tables).items():
        line = f"| **{name}** | {cell} |"
        readme = re.sub(rf"^\| \*\*{name}\*\* \|.*$", lambda _, line=line: line, readme, flags=re.M)
    return readme
