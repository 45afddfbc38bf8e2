"""BLiMP: pairs of an acceptable and an unacceptable sentence (Warstadt et al., TACL 8, 2020).

A model that scores sentences gets a pair right if it gives the acceptable one the higher score.
Chance is a half.
"""

import dataclasses
import os

import numpy as np

from albert import file_io, tables

TEXT_NAME, JSON_NAME = "blimp.txt", "blimp.json"
_ENDING = ".jsonl"
_FLAG = "BLiMP"


@dataclasses.dataclass(frozen=True)
class Paradigm:
    """Pairs that differ in the same way.

    Attributes:
      name: of the paradigm and of its file.
      field: "morphology", "semantics", "syntax" or "syntax_semantics".
      phenomenon: what the data call `linguistics_term`.
      pairs: list of (acceptable sentence, unacceptable sentence).
    """

    name: str
    field: str
    phenomenon: str
    pairs: list


# --- reading ----------------------------------------------------------------------------------


def read(data_dir, limit=None):
    """Reads the files ``<paradigm>.jsonl`` of a folder.

    Args:
      data_dir: the folder.
      limit: most pairs of a paradigm, from the front; None: all.

    Returns:
      List of `Paradigm`, by name.

    Raises:
      file_io.InputError: no such folder or file, or a row without one of the keys sentence_good,
        sentence_bad, field and linguistics_term; names file and line.
    """
    if not file_io.is_dir(data_dir):
        raise file_io.InputError(f"BLiMP: there is no folder {data_dir}")
    names = sorted(name for name in file_io.listdir(data_dir) if name.endswith(_ENDING))
    if not names:
        raise file_io.InputError(
            f"BLiMP: {data_dir} holds no {_ENDING} file; expected one for each paradigm, such as "
            f"adjunct_island{_ENDING}"
        )
    return [_read_paradigm(data_dir, name, limit) for name in names]


def _read_paradigm(data_dir, name, limit):
    path = os.path.join(data_dir, name)
    pairs, kinds = [], {}
    for place, row in tables.read_file(path, _FLAG):
        if limit is not None and len(pairs) == limit:
            break
        good, bad = (
            tables.text_of(row, f"sentence_{kind}", _FLAG, place) for kind in ("good", "bad")
        )
        field, term = (
            tables.name_of(row, key, _FLAG, place) for key in ("field", "linguistics_term")
        )
        pairs.append((good, bad))
        # One file of the published data spells it with a stroke, the others do not.
        kinds.setdefault((field.replace("/", "_"), term), place)
    if not pairs:
        raise file_io.InputError(f"{path}: there is no pair of sentences")
    if len(kinds) > 1:
        raise file_io.InputError(
            f"{path}: expected one field and linguistics_term in the whole file; found "
            + ", ".join(f"{' and '.join(kind)} ({place})" for kind, place in kinds.items())
        )
    ((field, term),) = kinds
    return Paradigm(name.removesuffix(_ENDING), field, term, pairs)


# --- scores -----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Share:
    """Pairs of a group and those that a model gets right."""

    pairs: int
    right: int

    @property
    def accuracy(self):
        """Share of the pairs that are right."""
        return self.right / self.pairs

    def __add__(self, other):
        return Share(self.pairs + other.pairs, self.right + other.right)


@dataclasses.dataclass(frozen=True)
class Result:
    """What a model reaches.

    Attributes:
      paradigms: list of (`Paradigm`, `Share`).
    """

    paradigms: list

    @property
    def overall(self):
        """`Share` of all pairs."""
        return sum((share for _, share in self.paradigms), Share(0, 0))

    def by(self, attribute):
        """{value: `Share`} of the paradigms' "field" or "phenomenon", sorted."""
        found = {}
        for paradigm, share in self.paradigms:
            key = getattr(paradigm, attribute)
            found[key] = found.get(key, Share(0, 0)) + share
        return dict(sorted(found.items()))

    def metrics(self):
        """``blimp_accuracy`` and ``blimp_<field>_accuracy``, for the results of an evaluation."""
        fields = {f"blimp_{name}_accuracy": s.accuracy for name, s in self.by("field").items()}
        return {"blimp_accuracy": self.overall.accuracy, **fields}

    def to_dict(self):
        """JSON-ready dict of all shares: overall, by field, by phenomenon and by paradigm."""

        def entry(share):
            return {"accuracy": share.accuracy, "pairs": share.pairs}

        groups = {
            title: {name: entry(share) for name, share in self.by(attribute).items()}
            for title, attribute in (("fields", "field"), ("phenomena", "phenomenon"))
        }
        paradigms = {
            paradigm.name: {
                **entry(share), "field": paradigm.field, "phenomenon": paradigm.phenomenon
            }
            for paradigm, share in self.paradigms
        }  # fmt: skip
        return {"overall": entry(self.overall), **groups, "paradigms": paradigms}

    def table(self):
        """The same as lines of text."""
        groups = {
            "paradigm": {paradigm.name: share for paradigm, share in self.paradigms},
            "phenomenon": self.by("phenomenon"),
            "field": self.by("field"),
            "": {"overall": self.overall},
        }
        width = max(len(name) for shares in groups.values() for name in shares)
        lines = []
        for title, shares in groups.items():
            head = f"{title:{width}}  {'pairs':>6}  {'accuracy':>8}" if title else ""
            lines += [head, *(f"{name:{width}}  {_cells(share)}" for name, share in shares.items())]
        return lines


def _cells(share):
    return f"{share.pairs:6}  {share.accuracy:8.3f}"


def measure(paradigms, score):
    """Which pairs a model gets right; a tie is wrong.

    Args:
      paradigms: list of `Paradigm`.
      score: ``(sentences) -> [N]`` numbers, higher for more acceptable sentences; it is called
        once, with those of all paradigms.

    Returns:
      `Result`.
    """
    sentences = [sentence for p in paradigms for pair in p.pairs for sentence in pair]
    good, bad = np.reshape(score(sentences), [-1, 2]).T
    ends = np.cumsum([len(p.pairs) for p in paradigms])
    right = np.split(good > bad, ends[:-1])
    shares = [Share(len(part), int(part.sum())) for part in right]
    return Result(list(zip(paradigms, shares, strict=True)))


def write(output_dir, result):
    """Writes ``blimp.txt``, the table, and ``blimp.json``, see `Result.to_dict`."""
    file_io.make_dirs(output_dir)
    text = "".join(f"{line}\n" for line in result.table())
    file_io.write_text(os.path.join(output_dir, TEXT_NAME), text)
    file_io.write_json(os.path.join(output_dir, JSON_NAME), result.to_dict())
