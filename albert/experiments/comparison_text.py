"""Writes a comparison as text, Markdown, LaTeX, CSV or JSON, and as blocks of a page."""

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from albert.experiments import report_cells, statistics, text_tables
from albert.experiments.comparison import Change, Compared, Examples, Finding, Pair, SideScore
from albert.training import results

COSTS = {
    "seconds": "seconds",
    "processor_seconds": "processor seconds",
    "flop": "FLOP",
    "tokens": "tokens",
    "peak_memory": "peak GB",
}
SIDES = ("side", "mean", "interval", "runs", "each run", "remarks")
PAIRS = ("pair", "over", "difference", "interval", "p", "p (Holm)", "verdict")
_CHANGES = ("pair", "gains or loses", "example", "text", "right", "first", "second")
_MAX_CHANGES = 50  # examples per direction: each has a text of up to some hundred characters


def p_value(p: float | None) -> str:
    """Returns a p-value as tables show it; "-" for None."""
    if p is None:
        return "-"
    return "below 0.001" if p < 0.001 else f"{p:.3f}"


# --- rows -----------------------------------------------------------------------------------------


def side_row(row: SideScore) -> list[str]:
    """Returns the row of a side in a table with the header `SIDES`."""
    mean, total = row.mean, len(row.side.runs)
    counted = f"{len(row.scores)} of {total}" if len(row.scores) < total else str(total)
    each = ", ".join(map(text_tables.number, row.scores.values()))
    notes = "; ".join(filter(None, [row.remark, mean.note if mean else ""]))
    interval_text = text_tables.interval(mean.low, mean.high) if mean else "-"
    return [row.side.name, score_text(row), interval_text, counted, each, notes]


def score_text(row: SideScore) -> str:
    """Returns the mean score of a side as tables show it."""
    if row.mean is None:
        return results.UNDEFINED if row.is_undefined else text_tables.number(None)
    return text_tables.number(row.mean.estimate)


def _finding_cells(finding: Finding) -> list[str]:
    """Returns the cells of a finding below the columns of `PAIRS` from "difference" on."""
    comparison = finding.comparison
    return [
        f"{comparison.difference:+.4f}",
        text_tables.interval(comparison.low, comparison.high),
        p_value(comparison.p),
        p_value(finding.p_holm),
        finding.verdict,
    ]


def pair_rows(pair: Pair) -> list[list[str]]:
    """Returns the rows of a pair over seeds and over examples, for the header `PAIRS`."""
    name = f"{pair.second} minus {pair.first}"
    rows = []
    for over, finding, why_not in _findings(pair):
        cells = _finding_cells(finding) if finding else ["-"] * 4 + [f"not known: {why_not}"]
        rows.append([name, over, *cells])
    return rows


def _findings(pair: Pair) -> list[tuple[str, Finding | None, str]]:
    """Returns ("seeds" or "examples", the finding over them, why there is none)."""
    over_examples = pair.examples.finding if pair.examples else None
    return [
        ("seeds", pair.seeds, pair.why_not_seeds),
        ("examples", over_examples, pair.why_not_examples),
    ]


def _cost_rows(compared: Compared) -> tuple[list[str], list[list[str]]]:
    """Returns header and rows of the mean cost of a run; no rows if it is not recorded."""
    names = cost_names(side.cost for side in compared.sides)
    rows = [
        [side.side.name, score_text(side)] + [cost(name, side.cost.get(name)) for name in names]
        for side in compared.sides
    ]
    return ["side", compared.metric, *(COSTS[name] for name in names)], rows if names else []


def cost_names(costs: Iterable[Mapping[str, float]]) -> list[str]:
    """Returns the keys of `COSTS` that at least one of the costs, {key: mean}, has."""
    costs = list(costs)
    return [n for n in COSTS if any(cost.get(n) is not None for cost in costs)]


def cost(name: str, value: float | None) -> str:
    """Returns a value of a field of `run_record.Cost` as tables show it; "-" for None."""
    if value is None:
        return "-"
    if name == "flop":
        return f"{value:.2e}"
    return f"{value / 1e9:.2f}" if name == "peak_memory" else f"{value:,.0f}"


# --- text and Markdown ----------------------------------------------------------------------------


def _title(compared: Compared) -> str:
    names = dict.fromkeys(side.name for side in compared.sides)
    better = "lower" if compared.minimize else "higher"
    return f"{' / '.join(names)}; {better} is better; intervals of {compared.level:.0%}"


def _finding_sentence(finding: Finding, over: str) -> str:
    """Returns a line about a finding and its method; it begins with `over`: "over seeds …"."""
    comparison = finding.comparison
    parts = [f"{comparison.difference:+.4f}"]
    if comparison.low is not None:
        parts.append(f"interval {text_tables.interval(comparison.low, comparison.high)}")
    equality = finding.equality
    if equality and equality.low is not None:
        interval = text_tables.interval(equality.low, equality.high)
        parts.append(f"for equality within {equality.margin:g} {interval}")
    if comparison.p is not None:
        after = "" if finding.p_holm == comparison.p else f" (after Holm {p_value(finding.p_holm)})"
        parts.append(f"p {p_value(comparison.p)}{after}")
    note = f"; {comparison.note}" if comparison.note else ""
    if comparison.errors:
        sources = " and ".join(f"{x:.4f} of {name}" for name, x in comparison.errors.items())
        parts.append(f"standard error {sources}")
    return f"{over}: {finding.verdict}\n    {', '.join(parts)} ({comparison.method}{note})"


def _short_text(result: statistics.Comparison) -> str:
    """Returns verdict, difference and p of a comparison."""
    return f"{result.verdict} ({result.difference:+.4f}, p {p_value(result.p)})"


def _pair_text(pair: Pair, num_examples: int) -> Iterable[str]:
    """Yields the lines about a pair, with up to `num_examples` gained and lost ones."""
    yield f"{pair.second} against {pair.first}"
    if pair.seeds is None:
        yield f"  over seeds: not known: {pair.why_not_seeds}"
    else:
        comparison = pair.seeds.comparison
        paired = "paired by seed" if comparison.paired else "not paired: the seeds differ"
        yield "  " + _finding_sentence(
            pair.seeds, f"over {comparison.n_a} and {comparison.n_b} seeds, {paired}"
        )
    if pair.with_stuck is not None:
        yield f"    with the runs that did not learn: {_short_text(pair.with_stuck)}"
    if pair.examples is None:
        yield f"  over examples: not known: {pair.why_not_examples}"
        return
    yield from _examples_text(pair, pair.examples, num_examples)


def _examples_text(pair: Pair, examples: Examples, num_examples: int) -> Iterable[str]:
    """Yields the lines about a pair's predictions for the same examples, see `_pair_text`."""
    over = f"over {examples.count} examples of {examples.data}, {examples.metric}"
    yield "  " + _finding_sentence(examples.finding, over)
    if examples.note:
        yield f"    {examples.note}"
    if not examples.gained and not examples.lost:
        return
    for verb, rows in (("gains", examples.gained), ("loses", examples.lost)):
        yield f"    {pair.second} {verb} {len(rows)} examples"
        for row in rows[:num_examples]:
            yield f"      {row.key}: {row.text}"
            *_, first, second = _change_cells(row, max(map(len, examples.seeds)) > 1)
            yield f"        right: {row.label}; {pair.first}: {first}; {pair.second}: {second}"


def to_text(compared: Compared, num_examples: int = 0) -> str:
    """Returns a comparison as text, with up to `num_examples` gained and lost ones of a pair."""
    lines = [_title(compared), "", text_tables.write(SIDES, map(side_row, compared.sides))]
    for pair in compared.pairs:
        lines += [*_pair_text(pair, num_examples), ""]
    header, rows = _cost_rows(compared)
    if rows:
        lines += ["Cost of training, mean of all recorded runs:", ""]
        lines.append(text_tables.write(header, rows))
    return "\n".join([*lines, *compared.notes]).rstrip() + "\n"


def _to_tables(form: str, comment: str, compared: Compared, num_examples: int) -> str:
    """Returns a comparison as tables, with up to `num_examples` gained and lost ones of a pair.

    Args:
      comment: beginning of the lines that belong to no table; "": these are paragraphs.
      form: a form of `text_tables`.
    """
    title = _title(compared)
    lines = [comment + " ".join(title.split())] if comment else [title, ""]
    pairs = [row for pair in compared.pairs for row in pair_rows(pair)]
    changed = [
        [f"{pair.second} minus {pair.first}", verb, row.key, row.text, row.label]
        + [row.first, row.second]
        for pair in compared.pairs
        if pair.examples is not None
        for verb, rows in (("gains", pair.examples.gained), ("loses", pair.examples.lost))
        for row in rows[:num_examples]
    ]
    sides = list(map(side_row, compared.sides))
    tables = [(SIDES, sides), (PAIRS, pairs), (_CHANGES, changed), _cost_rows(compared)]
    lines += [text_tables.write(header, rows, form) for header, rows in tables if rows]
    return "\n".join([*lines, *(comment + note for note in compared.notes)]).rstrip() + "\n"


# --- other formats --------------------------------------------------------------------------------


def to_csv(compared: Compared, num_examples: int = 0) -> str:
    """Returns a row for each pair and each way to compare it, with numbers in full; no examples."""
    rows: list[list[object]] = []
    names = ["difference", "low", "high", "p"]
    header = ["first", "second", "over", "metric", *names, "p_holm", "n_first", "n_second"]
    header += ["paired", "better", "verdict", "method", "note"]
    for pair in compared.pairs:
        metrics = [compared.metric, pair.examples.metric if pair.examples else None]
        for metric, (over, finding, why) in zip(metrics, _findings(pair), strict=True):
            row: list[object] = [pair.first, pair.second, over, metric]
            if finding is None:
                row += [None] * 9 + ["not known", None, why]
            else:
                one = finding.comparison
                row += [getattr(one, name) for name in names]
                row += [finding.p_holm, one.n_a, one.n_b, one.paired, finding.better]
                row += [finding.verdict, one.method, one.note]
            rows.append(row)
    return text_tables.write(header, rows, text_tables.CSV)


def to_dict(compared: Compared) -> dict[str, Any]:
    """Returns JSON-ready fields of `Compared`: metric, minimize, level, sides, pairs, notes."""
    return {
        "metric": compared.metric,
        "minimize": compared.minimize,
        "level": compared.level,
        "sides": [_side_dict(side) for side in compared.sides],
        "pairs": [_pair_dict(pair) for pair in compared.pairs],
        "notes": list(compared.notes),
    }


def _side_dict(row: SideScore) -> dict[str, Any]:
    """Returns the JSON-ready fields of a side, its score, its runs and their cost."""
    side = row.side
    return {
        "name": side.name,
        "folder": side.folder,
        "score": row.name,
        "mean": row.mean and dataclasses.asdict(row.mean),
        "scores": {str(seed): value for seed, value in row.scores.items()},
        "counts": side.counts,
        "restarts": side.restarts,
        "runs": [
            {"folder": run.folder, "seed": run.seed, "status": run.status} for run in side.runs
        ],
        "remark": row.remark,
        "cost": dict(row.cost),
    }


def _pair_dict(pair: Pair) -> dict[str, Any]:
    """Returns the JSON-ready fields of a `Pair`."""
    stuck = pair.with_stuck
    return {
        "first": pair.first,
        "second": pair.second,
        "seeds": _finding_dict(pair.seeds),
        "why_not_seeds": pair.why_not_seeds,
        "with_stuck": stuck and dataclasses.asdict(stuck),
        "examples": pair.examples and _examples_dict(pair.examples),
        "why_not_examples": pair.why_not_examples,
    }


def _finding_dict(finding: Finding | None) -> dict[str, Any] | None:
    """Returns the JSON-ready fields of a `Finding` and its comparison; None for None."""
    if finding is None:
        return None
    own = {name: getattr(finding, name) for name in ("p_holm", "better", "verdict")}
    if finding.equality:
        own["equivalence"] = dataclasses.asdict(finding.equality)
    return {**dataclasses.asdict(finding.comparison), **own}


def _examples_dict(examples: Examples) -> dict[str, Any]:
    """Returns the JSON-ready fields of `Examples`, with the note as "restriction"."""
    return {
        "metric": examples.metric,
        "data": examples.data,
        "count": examples.count,
        "seeds": [list(seeds) for seeds in examples.seeds],
        **(_finding_dict(examples.finding) or {}),
        "restriction": examples.note,
        "gained": [dataclasses.asdict(row) for row in examples.gained],
        "lost": [dataclasses.asdict(row) for row in examples.lost],
    }


def to_json(compared: Compared, num_examples: int = 0) -> str:
    """Returns `to_dict` as JSON, with all changed examples, whatever `num_examples`."""
    return json.dumps(to_dict(compared), indent=2, ensure_ascii=False) + "\n"


FORMATS: dict[str, Callable[[Compared, int], str]] = {
    "text": to_text,
    "markdown": partial(_to_tables, text_tables.MARKDOWN, ""),
    "latex": lambda compared, _: _to_tables(text_tables.LATEX, "% ", compared, 0),
    "csv": to_csv,
    "json": to_json,
}


def format_comparison(compared: Compared, form: str, num_examples: int = 0) -> str:
    """Formats a comparison in one of `FORMATS`; it lists examples as `to_text` does."""
    return FORMATS[form](compared, num_examples)


# --- blocks of a page -----------------------------------------------------------------------------


def verdict_blocks(compared: Compared) -> Iterator[report_cells.Block]:
    """Yields the verdicts over seeds and over examples in sentences, and what they rest on."""
    (pair,) = compared.pairs
    rows: list[list[object]] = []
    for over, finding, why_not in _findings(pair):
        verdict = f"not known: {why_not}" if finding is None else finding.verdict
        yield {"paragraph": f"Over {over}, {_clause(pair, verdict)}."}
        if finding is not None:
            rows.append([over, *_finding_row(finding.comparison)])
    yield {"table": ["over", "difference", "interval", "p"], "rows": rows}
    lower = "lower" if compared.minimize else "higher"
    yield {
        "note": f"Differences are those of {pair.second} minus {pair.first}; {lower} is better. "
        f"The interval holds the true difference in {compared.level:.0%} of such experiments. p "
        "is the probability of a difference this large if there were none."
    }
    yield from (report_cells.Block(note=text) for text in _remark_texts(compared, pair))


def _clause(pair: Pair, verdict: str) -> str:
    """Returns a verdict on a pair as a clause with subject and verb."""
    if verdict.startswith("not known"):
        return f"the result is {verdict}"
    if verdict.startswith("cannot"):
        return f"it {verdict}"
    if verdict.startswith((statistics.NOT_DISTINGUISHABLE, "equal")):
        return f"{pair.second} and {pair.first} are {verdict}"
    return verdict


def _finding_row(result: statistics.Comparison) -> list[object]:
    """Returns difference, interval and p as cells; "-" for an unknown interval."""
    interval: object = "-"
    if result.low is not None and result.high is not None:
        interval = report_cells.difference(result.difference, result.low, result.high)
    return [f"{result.difference:+.4f}", interval, p_value(result.p)]


def _remark_texts(compared: Compared, pair: Pair) -> Iterator[str]:
    """Yields sentences about methods, and about what restricts the comparison."""
    if pair.seeds is not None:
        yield _method(f"Over seeds ({compared.metric})", pair.seeds.comparison)
    if pair.with_stuck is not None:
        yield f"With the runs that did not learn: {_short_text(pair.with_stuck)}."
    if pair.examples is not None:
        examples = pair.examples
        over = f"Over the {examples.count:,} examples of {examples.data} ({examples.metric})"
        yield _method(over, examples.finding.comparison)
        if examples.note:
            yield f"{examples.note[0].upper()}{examples.note[1:]}."
    yield from compared.notes


def _method(over: str, result: statistics.Comparison) -> str:
    """Returns the sentence on how a result was computed; it begins with `over`, see its callers."""
    pairs = "in pairs" if result.paired else "without pairs"
    note = f"; {result.note}" if result.note else ""
    return f"{over}: {result.method}, {pairs}{note}."


def change_blocks(compared: Compared) -> Iterator[report_cells.Block]:
    """Yields the examples that only one side has right, in both directions."""
    (pair,) = compared.pairs
    if pair.examples is None:
        yield {"note": f"Not known: {pair.why_not_examples}."}
        return
    examples = pair.examples
    if not examples.gained and not examples.lost:
        yield {"note": "No example changed sides."}
        return
    has_seeds = max(map(len, examples.seeds)) > 1
    for name, other, rows in (
        (pair.second, pair.first, examples.gained),
        (pair.first, pair.second, examples.lost),
    ):
        most = "most runs of " if has_seeds else ""
        end = f"got right and {'most of ' if has_seeds else ''}{other} wrong"
        count = "1 text" if len(rows) == 1 else f"{len(rows):,} texts"
        yield {"heading": f"{count} that {most}{name} {end}"}
        yield {
            "table": ["example", "text", "right", pair.first, pair.second],
            "rows": [_change_cells(r, has_seeds) for r in rows[:_MAX_CHANGES]],
        }
        if len(rows) > _MAX_CHANGES:
            yield {
                "note": f"The first {_MAX_CHANGES} of {len(rows):,}; the JSON of python -m "
                "albert.compare has all."
            }


def _change_cells(change: Change, has_seeds: bool) -> list[str]:
    """Returns a changed example as table cells; with `has_seeds`, also how many runs are right."""
    sides = ((change.first, change.first_right), (change.second, change.second_right))
    guesses = [
        f"{guess} ({share:.0%} of runs right)" if has_seeds else guess for guess, share in sides
    ]
    return [change.key, change.text, change.label, *guesses]
