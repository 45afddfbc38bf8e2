"""Texts of evaluation sets that stand in a corpus: runs of 13 words that both have.

Every text of an evaluation set counts: of a table each field, of JSON each string. Texts of fewer
words than a run are not looked for; they are counted.

Source: Brown et al., "Language Models are Few-Shot Learners" (2020), appendix C, which also takes
runs of 13 words.
Shapes: N words of a document, G runs of all evaluation sets, T their texts.
"""

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from albert.io import file_io
from albert.text import duplicates

RUN_WORDS = 13
_START = 80  # signs of a text that tell which it is
# What is held out, below data_dir.
SETS = {
    "glue": (
        *(f"glue/*/{split}*.tsv" for split in ("dev", "test")),
        "glue/diagnostic/diagnostic.tsv",
    ),
    "squad": ("squad/dev*.json", "squad/test*.json"),
    "race": (
        *(f"race/RACE/{split}/*/*.txt" for split in ("dev", "test")),
        *(f"race/{split}/*/*.txt" for split in ("dev", "test")),
    ),
}


@dataclasses.dataclass(frozen=True)
class Index:
    """Runs of words of evaluation sets.

    Attributes:
      hashes: [G] uint64, rising; see `duplicates.runs`.
      text_of: [G] int32, a text that has the run.
      set_of: [T] int16, place of each text's set in `names`.
      starts: list of T, what each text begins with.
      names: of the sets.
      counts: {name: {"files", "texts", "short_texts", "runs"}}.
    """

    hashes: np.ndarray
    text_of: np.ndarray
    set_of: np.ndarray
    starts: list
    names: tuple
    counts: dict

    def find(self, hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(places [M], texts [M]): where in a document runs begin, and a text that has each.

        Args:
          hashes: [N] uint64, see `duplicates.word_hashes`.
        """
        runs = duplicates.runs(hashes, RUN_WORDS)
        if not len(self.hashes) or not len(runs):
            return np.zeros(0, np.int64), np.zeros(0, np.int32)
        nearest = np.minimum(np.searchsorted(self.hashes, runs), len(self.hashes) - 1)
        places = np.flatnonzero(self.hashes[nearest] == runs)
        return places, self.text_of[nearest[places]]


def build(names: Sequence[str], data_dir: str | None) -> Index:
    """`Index` of evaluation sets.

    Args:
      names: keys of `SETS`.
      data_dir: folder that has them.

    Raises:
      file_io.InputError: an unknown set, one that is not there, or a file of it that is damaged.
    """
    hash_chunks, text_chunks, starts = [], [], []
    set_of: list[int] = []
    counts: dict[str, Any] = {}
    for place, name in enumerate(names):
        if name not in SETS:
            raise file_io.InputError(f"contamination={name}: expected some of {', '.join(SETS)}")
        found = counts[name] = dict.fromkeys(("files", "texts", "short_texts", "runs"), 0)
        for path in _files(name, data_dir):
            found["files"] += 1
            for text in dict.fromkeys(_texts(path)):
                words = duplicates.words(text)
                found["texts"] += 1
                if len(words) < RUN_WORDS:
                    found["short_texts"] += 1
                    continue
                runs = duplicates.runs(duplicates.word_hashes(words), RUN_WORDS)
                found["runs"] += len(runs)
                hash_chunks.append(runs)
                text_chunks.append(np.full(len(runs), len(set_of), np.int32))
                set_of.append(place)
                starts.append(text[:_START])
    hashes = np.concatenate([np.zeros(0, np.uint64), *hash_chunks])
    hashes, first = np.unique(hashes, return_index=True)
    text_of = np.concatenate([np.zeros(0, np.int32), *text_chunks])[first]
    return Index(hashes, text_of, np.array(set_of, np.int16), starts, tuple(names), counts)


def _files(name, data_dir):
    patterns = [f"{str(data_dir).rstrip('/')}/{pattern}" for pattern in SETS[name]]
    found = [path for pattern in patterns for path in file_io.glob(pattern)]
    if not found:
        raise file_io.InputError(
            f"contamination={name}: data_dir={data_dir} has none of {', '.join(SETS[name])}"
        )
    return found


def _texts(path):
    """Yields the texts of a file: fields of a table, strings of JSON (one value, or one a line)."""
    if path.endswith(".tsv"):
        with file_io.open_input(path, "contamination", "rb") as file:
            for _, line in file_io.text_lines(file, path):
                yield from line.rstrip("\r\n").split("\t")
        return
    content = file_io.read_text(path, "contamination", most=None).removeprefix("\ufeff")
    try:
        yield from _strings(json.loads(content))
    except json.JSONDecodeError:
        for number, line in enumerate(content.split("\n"), 1):
            if line.strip():
                try:
                    yield from _strings(json.loads(line))
                except json.JSONDecodeError as error:
                    raise file_io.InputError(
                        f"contamination: {path} line {number} is not JSON: {error.msg}"
                    ) from error


def _strings(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _strings(part)
    elif isinstance(value, list):
        for part in value:
            yield from _strings(part)
