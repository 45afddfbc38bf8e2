"""Finds texts of evaluation sets in a corpus: runs of 13 words that both have.

Each field of a table and each string of JSON is a text of an evaluation set. Texts of fewer words
than a run are only counted.

Source: Brown et al., "Language Models are Few-Shot Learners" (2020), appendix C, which also uses
runs of 13 words.
Shapes: N words of a document, T texts of all evaluation sets, G their runs.
"""

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from albert.io import file_io
from albert.text import corpus_cleaning, words

RUN_WORDS = 13
_START = 80  # characters of a text that identify it
# Files of the evaluation sets, below data_dir.
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
      hashes: [G] uint64, rising; see `words.runs`. A run is repeated for each text that has it.
      text_of: [G] int32, number of the text that has the run.
      set_of: [T] int16, place of each text's set in `names`.
      starts: T begins of the texts.
      counts: {name: {"files", "texts", "short_texts", "runs"}}.
    """

    hashes: np.ndarray
    text_of: np.ndarray
    set_of: np.ndarray
    starts: list[str]
    names: tuple[str, ...]
    counts: dict[str, dict[str, int]]

    def digest(self) -> str:
        """Returns a hash of all that `find` and the begins of texts depend on."""
        content = hashlib.sha256(json.dumps(self.starts).encode())
        for values in (self.hashes, self.text_of, self.set_of):
            content.update(values.tobytes())
        return content.hexdigest()

    def find(self, hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns (places [M], texts [*]): where runs begin in a document, and all texts with them.

        The texts of each different run follow those of the run before it. `hashes` are the
        `words.word_hashes` of the document.
        """
        runs = words.runs(hashes, RUN_WORDS)
        if not len(self.hashes) or not len(runs):
            return np.zeros(0, np.int64), np.zeros(0, np.int32)
        starts = np.minimum(np.searchsorted(self.hashes, runs), len(self.hashes) - 1)
        places = np.flatnonzero(self.hashes[starts] == runs)
        ends = np.searchsorted(self.hashes, runs[places], side="right")
        groups = dict.fromkeys(zip(starts[places].tolist(), ends.tolist(), strict=True))
        texts = [self.text_of[start:end] for start, end in groups]
        return places, np.concatenate([np.zeros(0, np.int32), *texts])


def build(names: Sequence[str], data_dir: str | None) -> Index:
    """Builds the `Index` of evaluation sets."""
    hash_chunks, text_chunks, starts = [], [], []
    set_of: list[int] = []
    counts: dict[str, Any] = {}
    for place, name in enumerate(names):
        if name not in SETS:
            raise file_io.InputError(
                f"contamination={name}: expected one or more of {', '.join(SETS)}"
            )
        set_counts = counts[name] = dict.fromkeys(("files", "texts", "short_texts", "runs"), 0)
        paths = _files(name, data_dir)
        set_counts["files"] = len(paths)
        for text in dict.fromkeys(text for path in paths for text in _texts(path)):
            text_words = words.split(corpus_cleaning.UNSEEN.sub("", text))
            set_counts["texts"] += 1
            if len(text_words) < RUN_WORDS:
                set_counts["short_texts"] += 1
                continue
            runs = words.runs(words.word_hashes(text_words), RUN_WORDS)
            set_counts["runs"] += len(runs)
            hash_chunks.append(np.unique(runs))
            text_chunks.append(np.full(len(hash_chunks[-1]), len(set_of), np.int32))
            set_of.append(place)
            starts.append(text[:_START])
    hashes = np.concatenate([np.zeros(0, np.uint64), *hash_chunks])
    order = np.argsort(hashes, kind="stable")
    text_of = np.concatenate([np.zeros(0, np.int32), *text_chunks])[order]
    return Index(hashes[order], text_of, np.array(set_of, np.int16), starts, tuple(names), counts)


def _files(name: str, data_dir: str | None) -> list[str]:
    patterns = [f"{str(data_dir).rstrip('/')}/{pattern}" for pattern in SETS[name]]
    paths = [path for pattern in patterns for path in file_io.glob(pattern)]
    if not paths:
        raise file_io.InputError(
            f"contamination={name}: data_dir={data_dir} has none of {', '.join(SETS[name])}"
        )
    return paths


def _texts(path: str) -> Iterator[str]:
    """Yields the texts of a file: fields of a table, strings of JSON (or JSON lines)."""
    is_table = path.endswith(".tsv")
    if not is_table and os.path.basename(path) != "all.txt":
        yield from _strings(file_io.read_json(path, "contamination", max_bytes=None))
        return
    with file_io.open_input(path, "contamination", "rb") as file:
        lines = file_io.text_lines(file, path)
        if is_table:
            for _, line in lines:
                yield from line.rstrip("\r\n").split("\t")
        else:  # the merged passages of RACE, one per line
            for _, value in corpus_cleaning.json_values(lines, f"contamination: {path}"):
                yield from _strings(value)


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _strings(part)
