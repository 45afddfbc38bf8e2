"""Blocks of the page that compares two sides: verdict, and examples that changed sides."""

from collections.abc import Iterator, Sequence

from albert.experiments import comparison, comparison_text
from albert.experiments.comparison import Change, Compared
from albert.io import file_io

_MAX_CHANGES = 50  # examples per direction: each has a text of up to some hundred characters


def verdict(compared: Compared) -> Iterator[dict]:
    """Yields the verdicts over seeds and over examples, with what they rest on."""
    (pair,) = compared.pairs
    header = [name for name in comparison_text.PAIRS if name not in ("pair", "p (Holm)")]
    places = [comparison_text.PAIRS.index(name) for name in header]
    rows = [[row[place] for place in places] for row in comparison_text.pair_rows(pair)]
    yield {"table": header, "rows": rows}
    lower = "lower" if compared.minimize else "higher"
    yield {
        "note": f"Differences are those of {pair.second} minus {pair.first}; {lower} is better. "
        f"The interval holds the true difference in {compared.level:.0%} of such experiments. p "
        "is the probability of a difference this large if there were none."
    }
    yield from ({"note": text} for text in _remarks(compared, pair))


def _remarks(compared, pair):
    """Yields sentences about methods, and about what restricts the comparison."""
    if pair.seeds is not None:
        yield _method(f"Over seeds ({compared.metric})", pair.seeds.comparison)
    if pair.with_stuck is not None:
        result = pair.with_stuck
        p = comparison_text.p_value(result.p)
        yield (
            f"With the runs that did not learn: {result.verdict} ({result.difference:+.4f}, p {p})."
        )
    if pair.examples is not None:
        examples = pair.examples
        over = f"Over the {examples.count:,} examples of {examples.data} ({examples.metric})"
        yield _method(over, examples.finding.comparison)
        if examples.note:
            yield f"{examples.note[0].upper()}{examples.note[1:]}."
    yield from compared.notes


def _method(over, result):
    pairs = "in pairs" if result.paired else "without pairs"
    note = f"; {result.note}" if result.note else ""
    return f"{over}: {result.method}, {pairs}{note}."


def changes(compared: Compared) -> Iterator[dict]:
    """Yields the examples that only one side has right, in both directions."""
    (pair,) = compared.pairs
    if pair.examples is None:
        yield {"note": f"Not known: {pair.why_not_examples}."}
        return
    examples = pair.examples
    if not examples.gained and not examples.lost:
        yield {"note": "No example changed sides."}
        return
    several = max(map(len, examples.seeds)) > 1
    for name, other, rows in (
        (pair.second, pair.first, examples.gained),
        (pair.first, pair.second, examples.lost),
    ):
        most = "most runs of " if several else ""
        count = "1 example" if len(rows) == 1 else f"{len(rows):,} examples"
        yield {"heading": f"{count} that {most}{name} and not {most}{other} have right"}
        yield {
            "table": ["example", "text", "right", pair.first, pair.second],
            "rows": [_row(r, several) for r in rows[:_MAX_CHANGES]],
        }
        if len(rows) > _MAX_CHANGES:
            yield {
                "note": f"The first {_MAX_CHANGES} of {len(rows):,}; the JSON of python -m "
                "albert.compare has all."
            }


def _row(change: Change, several: bool) -> list[str]:
    sides = ((change.first, change.first_right), (change.second, change.second_right))
    guesses = [
        f"{guess} ({share:.0%} of runs right)" if several else guess for guess, share in sides
    ]
    return [change.key, change.text, change.label, *guesses]


def compare(sides: Sequence[comparison.Side]) -> Compared:
    """Compares two sides.

    Raises:
      file_io.InputError: there are not two, or they cannot be compared.
    """
    if len(sides) != 2:
        names = ", ".join(side.name for side in sides)
        raise file_io.InputError(
            f"compare: expected two sides, found {len(sides)} ({names}); python -m "
            "albert.compare takes more"
        )
    return comparison.compare(sides)
