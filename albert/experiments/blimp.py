"""BLiMP: pairs of an acceptable and an unacceptable sentence (Warstadt et al., TACL 8, 2020).

A model that scores sentences gets a pair right if it gives the acceptable one the higher score.
Chance is a half. Published scores differ in how they count a tie, two equal scores: as wrong, as
in the paper, or as right. Every score is given by both rules.
"""

import dataclasses
import math
import os
from collections.abc import Callable, Iterator

import numpy as np

from albert.io import archives, file_io, tables

TEXT_NAME, JSON_NAME, PAIRS_NAME = "blimp.txt", "blimp.json", "blimp_pairs.jsonl"
_ENDING = ".jsonl"
_ENDINGS = (_ENDING, *(_ENDING + packed for packed in archives.ENDINGS))
_FLAG = "BLiMP"


@dataclasses.dataclass(frozen=True)
class Paradigm:
    """Pairs that differ in the same way.

    Attributes:
      field: "morphology", "semantics", "syntax" or "syntax_semantics".
      phenomenon: the `linguistics_term` of the data.
      pairs: (acceptable sentence, unacceptable sentence) of each pair.
    """

    name: str
    field: str
    phenomenon: str
    pairs: list[tuple[str, str]]


# --- reading ----------------------------------------------------------------------------------


def read(data_dir: str, limit: int | None = None) -> list[Paradigm]:
    """Reads the files ``<paradigm>.jsonl`` of a folder, or compressed ``<paradigm>.jsonl.gz``.

    Args:
      limit: maximum number of pairs of each paradigm, from the front; None: all.
    """
    if not file_io.is_dir(data_dir):
        raise file_io.InputError(f"BLiMP: the folder {data_dir} does not exist")
    paths: dict[str, str] = {}
    for name in sorted(file_io.listdir(data_dir)):
        if name.endswith(_ENDINGS):
            paradigm = name[: name.rindex(_ENDING)]
            if paradigm in paths:
                raise file_io.InputError(
                    f"BLiMP: {paths[paradigm]} and {os.path.join(data_dir, name)} are of one "
                    "paradigm; expected one file of each"
                )
            paths[paradigm] = os.path.join(data_dir, name)
    if not paths:
        raise file_io.InputError(
            f"BLiMP: {data_dir} holds no {_ENDING} file; expected one for each paradigm, such as "
            f"adjunct_island{_ENDING} or adjunct_island{_ENDING}.gz"
        )
    return [_read_paradigm(name, paths[name], limit) for name in sorted(paths)]


def _rows(path: str, limit: int | None) -> Iterator[tables.Row]:
    """Yields the first `limit` rows of a file; None: all rows."""
    with archives.open_input(path, _FLAG) as file:
        for count, row in enumerate(tables.read_rows(file, path, "jsonl")):
            if count == limit:
                return
            yield row


def _read_paradigm(name: str, path: str, limit: int | None) -> Paradigm:
    """Reads the pairs of one file, whose rows must all have the same field and term.

    `limit`: see `read`.
    """
    pairs: list[tuple[str, str]] = []
    kinds: dict[tuple[str, str], str] = {}
    for place, row in _rows(path, limit):
        good, bad = (
            tables.text_of(row, f"sentence_{kind}", _FLAG, place) for kind in ("good", "bad")
        )
        field, term = (
            tables.name_of(row, key, _FLAG, place) for key in ("field", "linguistics_term")
        )
        pairs.append((good, bad))
        # One file of the published data spells it with a slash, the others do not.
        kinds.setdefault((field.replace("/", "_"), term), place)
    if not pairs:
        raise file_io.InputError(f"{path}: there is no pair of sentences")
    if len(kinds) > 1:
        raise file_io.InputError(
            f"{path}: expected one field and linguistics_term in the whole file; found "
            + ", ".join(f"{' and '.join(kind)} ({place})" for kind, place in kinds.items())
        )
    ((field, term),) = kinds
    return Paradigm(name, field, term, pairs)


# --- scores -----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Tally:
    """The numbers of pairs in a group, of those that a model gets right, and of ties."""

    pairs: int
    right: int
    ties: int

    @property
    def accuracy(self) -> float:
        """Returns the fraction of the pairs that are right; a tie is wrong."""
        return self.right / self.pairs

    @property
    def accuracy_ties_right(self) -> float:
        """Returns the fraction of the pairs that are right or ties."""
        return (self.right + self.ties) / self.pairs

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(self.pairs + other.pairs, self.right + other.right, self.ties + other.ties)


@dataclasses.dataclass(frozen=True)
class Result:
    """The scores of a model.

    Attributes:
      scores: [N, 2] for each paradigm, the scores of its pairs, the acceptable sentence first.
    """

    paradigms: list[tuple[Paradigm, Tally]]
    scores: list[np.ndarray]

    @property
    def overall(self) -> Tally:
        """Returns the `Tally` of all pairs."""
        return sum((tally for _, tally in self.paradigms), Tally(0, 0, 0))

    def by(self, attribute: str) -> dict[str, Tally]:
        """Returns {value of an attribute ("field" or "phenomenon"): `Tally`}, sorted."""
        tallies: dict[str, Tally] = {}
        for paradigm, tally in self.paradigms:
            key = getattr(paradigm, attribute)
            tallies[key] = tallies.get(key, Tally(0, 0, 0)) + tally
        return dict(sorted(tallies.items()))

    def metrics(self) -> dict[str, float]:
        """Returns {name: fraction}: overall, with ties right, and ``blimp_<field>_accuracy``."""
        fields = {f"blimp_{name}_accuracy": s.accuracy for name, s in self.by("field").items()}
        overall = self.overall
        both = {
            "blimp_accuracy": overall.accuracy,
            "blimp_accuracy_ties_right": overall.accuracy_ties_right,
        }
        return {**both, **fields}

    def to_dict(self) -> dict:
        """Returns "overall" scores, and {name: scores} as "fields", "phenomena", "paradigms"."""

        def entry(tally: Tally) -> dict[str, float]:
            return {
                "accuracy": tally.accuracy,
                "accuracy_ties_right": tally.accuracy_ties_right,
                "pairs": tally.pairs,
                "ties": tally.ties,
            }

        groups = {
            title: {name: entry(tally) for name, tally in self.by(attribute).items()}
            for title, attribute in (("fields", "field"), ("phenomena", "phenomenon"))
        }
        paradigms = {
            paradigm.name: {
                **entry(tally), "field": paradigm.field, "phenomenon": paradigm.phenomenon
            }
            for paradigm, tally in self.paradigms
        }  # fmt: skip
        return {"overall": entry(self.overall), **groups, "paradigms": paradigms}

    def pairs(self) -> Iterator[dict[str, object]]:
        """Yields {"paradigm", "pair", "right", and "sentence" and "score" with "_good" and "_bad"}.

        "pair" counts the pairs of a paradigm from 0; a score that is not finite is None.
        """
        for (paradigm, _), scores in zip(self.paradigms, self.scores, strict=True):
            rows = zip(paradigm.pairs, scores.tolist(), strict=True)
            for number, ((good, bad), (good_score, bad_score)) in enumerate(rows):
                yield {
                    "paradigm": paradigm.name,
                    "pair": number,
                    "sentence_good": good,
                    "sentence_bad": bad,
                    "score_good": good_score if math.isfinite(good_score) else None,
                    "score_bad": bad_score if math.isfinite(bad_score) else None,
                    "right": good_score > bad_score,
                }

    def table(self) -> list[str]:
        """Returns all scores as lines of text."""
        groups = {
            "paradigm": {paradigm.name: tally for paradigm, tally in self.paradigms},
            "phenomenon": self.by("phenomenon"),
            "field": self.by("field"),
            "": {"overall": self.overall},
        }
        width = max(len(name) for tallies in groups.values() for name in tallies)
        lines = []
        for title, tallies in groups.items():
            columns = f"{'pairs':>6}  {'ties':>6}  {'accuracy':>8}  {'ties right':>10}"
            head = f"{title:{width}}  {columns}" if title else ""
            lines += [
                head,
                *(f"{name:{width}}  {_cells(tally)}" for name, tally in tallies.items()),
            ]
        return lines


def _cells(tally: Tally) -> str:
    """Returns the cells of a row of the table: accuracy and numbers of pairs."""
    return (
        f"{tally.pairs:6}  {tally.ties:6}  {tally.accuracy:8.3f}  {tally.accuracy_ties_right:10.3f}"
    )


def measure(paradigms: list[Paradigm], score: Callable[[list[str]], np.ndarray]) -> Result:
    """Counts the pairs that a model gets right, and the ties.

    Args:
      score: ``(sentences) -> [N]`` numbers, higher for more acceptable sentences; it is called
        once, with the sentences of all paradigms.
    """
    sentences = [sentence for p in paradigms for pair in p.pairs for sentence in pair]
    ends = np.cumsum([len(p.pairs) for p in paradigms])
    scores = np.split(np.reshape(score(sentences), [-1, 2]), ends[:-1])
    tallies = [
        Tally(len(good), int((good > bad).sum()), int((good == bad).sum()))
        for good, bad in (part.T for part in scores)
    ]
    return Result(list(zip(paradigms, tallies, strict=True)), scores)


def write(output_dir: str, result: Result) -> None:
    """Writes ``blimp.txt``, the table, ``blimp.json`` and the pairs.

    ``blimp_pairs.jsonl`` has one line per pair, see `Result.pairs`.
    """
    file_io.make_dirs(output_dir)
    text = "".join(f"{line}\n" for line in result.table())
    file_io.write_text(os.path.join(output_dir, TEXT_NAME), text)
    file_io.write_json(os.path.join(output_dir, JSON_NAME), result.to_dict())
    with file_io.atomic_writer(os.path.join(output_dir, PAIRS_NAME)) as file:
        file.writelines(map(tables.json_line, result.pairs()))
