"""Makes a clean corpus of raw texts: sentences, rules, duplicates, evaluation sets, statistics.

Processes read, clean and sign each file. Then duplicates are found among all documents, lines that
many documents repeat are dropped, and the rest is written in the order of the input. Texts and
signatures are stored in files, so memory holds a few bytes per document. The result does not depend
on the number of processes, and appears complete or not at all. The parts of each finished file have
a note, so a run that was killed resumes with the other files.
"""

import array
import collections
import contextlib
import dataclasses
import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any

import numpy as np
from absl import logging

from albert.io import file_io, json_shapes, locks, processes, progress, tables
from albert.text import contamination, corpus_cleaning, duplicates, words

VERSION = 3
REPORT = "report.json"
# Not .txt: it is next to the corpus, which the next commands read as `*.txt`.
REPORT_TEXT = "report.log"
MAX_FILE_BYTES = 256 << 20
# Minimum characters of a boilerplate line: shorter lines are repeated by chance.
MIN_BOILERPLATE = 30
_UNFINISHED = ".unfinished"
_HASHES_AT_A_TIME = 1 << 18
_COPIED_BYTES = 1 << 20  # at a time
# Parts of a file: the first three are written while it is read, the others at its end.
_KINDS = ("text", "signatures", "found", "sizes", "keys")
# Reasons for which something is removed, in the order of the work.
REASONS = {
    "unseen_characters": "control characters and characters without width",
    "lines_of_few_letters": "lines with too few letters",
    "documents_without_text": "documents without text",
    "documents_too_short": "documents with too few words",
    "contaminated_sentences": "sentences that overlap with evaluation sets",
    "exact_duplicates": "documents equal to an earlier one",
    "near_duplicates": "documents nearly equal to an earlier one",
    "boilerplate_lines": "lines that many documents repeat",
}


@dataclasses.dataclass(frozen=True)
class Preparation:
    """Settings of `prepare`.

    Attributes:
      near_duplicate_threshold: minimum similarity of documents of which the later is removed, from
        0 to 1; 0 removes only equal ones.
      max_line_repeats: maximum number of documents that may have a line; 0 for any number.
      contamination: names of evaluation sets, see `contamination.SETS`.
      data_dir: folder of these sets.
      only_report_contamination: keep sentences that overlap with these sets.
    """

    cleaning: corpus_cleaning.Cleaning = corpus_cleaning.Cleaning()
    near_duplicate_threshold: float = 0.8
    max_line_repeats: int = 50
    contamination: tuple[str, ...] = ()
    data_dir: str | None = None
    only_report_contamination: bool = False
    skip_bad_files: bool = False


def prepare(
    input_paths: Sequence[str], output_dir: str, preparation: Preparation, num_workers: int = 1
) -> dict[str, Any]:
    """Writes ``corpus-00000.txt`` and so on, ``report.json`` and ``report.log``.

    With evaluation sets also ``contamination.jsonl``, a line for each of their texts that a
    document has.

    Args:
      output_dir: local folder, which must be empty or new.
      num_workers: processes; 1 works in this process.
    """
    if file_io.is_remote(output_dir):
        raise file_io.InputError(f"output_dir={output_dir}: expected a local folder")
    for path in input_paths:  # The notes and the report name it.
        json_shapes.check_text(path, f"input_file={path!r}")
    names = file_io.listdir(output_dir) if file_io.exists(output_dir) else []
    if others := [n for n in names if n != _UNFINISHED and not file_io.is_temporary(n)]:
        raise file_io.InputError(
            f"output_dir={output_dir} has {others[0]} and {len(others) - 1} other file(s); "
            "expected an empty or new folder"
        )
    index = None
    if preparation.contamination:
        index = contamination.build(preparation.contamination, preparation.data_dir)
    cleaner = corpus_cleaning.Cleaner(preparation.cleaning)  # Fails if a package is missing.
    with file_io.writing(output_dir), _unfinished(output_dir, preparation, index) as parts:
        counts, skipped = _read(input_paths, parts, preparation, index, num_workers)
        documents = _Documents(parts, len(input_paths))
        with file_io.atomic_folder(output_dir, REPORT) as folder:
            gone = _duplicates(documents, preparation.near_duplicate_threshold, counts)
            boilerplate = _boilerplate(documents, gone, preparation.max_line_repeats)
            statistics = _write(documents, gone, boilerplate, cleaner, folder, counts)
            if not statistics["documents"]:
                raise file_io.InputError(_describe_nothing(input_paths, counts, skipped))
            report = _report(counts, statistics, preparation, index, documents, folder)
            report["skipped_files"] = skipped
            file_io.write_text(os.path.join(folder, REPORT_TEXT), report_text(report) + "\n")
            file_io.write_json(os.path.join(folder, REPORT), report)
    return report


def _describe_nothing(
    input_paths: Sequence[str], counts: Mapping[str, int], skipped: Sequence[dict[str, str]]
) -> str:
    """Returns the message if nothing is left."""
    source = f"{len(input_paths)} file(s)"
    if skipped:
        source += f", of which {len(skipped)} were skipped ({skipped[0]['reason']})"
    if counts["documents"]:
        return (
            f"nothing is left of {counts['documents']} document(s) in {source}: {_reasons(counts)}"
        )
    return f"there is no text in {input_paths[0]}, the first of {source}: {counts['bytes']} bytes"


@contextlib.contextmanager
def _unfinished(
    output_dir: str, preparation: Preparation, index: contamination.Index | None
) -> Iterator[str]:
    """Makes the folder for the parts; it stays, for the next run, if this run is killed or ended.

    It also stays if a file cannot be read, which the user may repair or skip, or a worker was lost.
    """
    folder = f"{output_dir.rstrip('/')}{_UNFINISHED}"
    if file_io.exists(output_dir):  # It may be its own file system.
        folder = os.path.join(output_dir, _UNFINISHED)
    description = json.loads(
        json.dumps(
            {
                "version": VERSION,
                "settings": {**dataclasses.asdict(preparation), "skip_bad_files": None},
                "texts": index and index.digest(),
            }
        )
    )
    path = os.path.join(folder, "job.json")
    file_io.make_dirs(folder)
    lock = os.path.join(folder, "lock")
    with locks.locked(lock, f"another run is making {output_dir}"):
        try:
            if _read_note(path) != description:
                for name in file_io.listdir(folder):
                    if name != "lock":
                        file_io.remove(os.path.join(folder, name))
                file_io.write_json(path, description)
            yield folder
        except (corpus_cleaning.BadFile, processes.WorkerLost):
            raise
        except Exception:
            file_io.remove(folder)
            raise
        file_io.remove(folder)


def _read_note(path: str) -> dict[str, Any] | None:
    """Reads a JSON object; None if the file is missing or damaged."""
    try:
        return file_io.read_json(path, "note", dict) if file_io.exists(path) else None
    except file_io.InputError:
        return None


def _stamp(path: str) -> list[Any]:
    """Returns path, size and time of a file, as a JSON-ready list."""
    return [path, file_io.size(path), file_io.modified(path)]


def _part(folder: str, number: int, kind: str) -> str:
    return os.path.join(folder, f"{number:06d}.{kind}")


def _part_sizes(folder: str, number: int) -> list[int | None]:
    """Returns the bytes of each part of a file; None for those that are missing."""
    paths = [_part(folder, number, kind) for kind in _KINDS]
    return [file_io.size(path) if file_io.exists(path) else None for path in paths]


class _Reader:
    """Reads and cleans files in one process; a task is (number, path)."""

    def __init__(
        self,
        arguments: tuple[str, Preparation, contamination.Index | None],
        advance: Callable[[int], None],
    ) -> None:
        self._folder, self._preparation, self._index = arguments
        self._advance = advance
        self._cleaner = corpus_cleaning.Cleaner(self._preparation.cleaning)
        self._signer = None
        if self._preparation.near_duplicate_threshold:
            self._signer = duplicates.Signer()

    def run(self, task: tuple[int, str]) -> tuple[int, str | None]:
        """Writes the parts of a file, then their note; returns (number, reason to skip it)."""
        number, path = task
        before, reason = _stamp(path), None
        note_path = _part(self._folder, number, "json")
        file_io.remove(note_path)  # of another run, whose parts are replaced
        try:
            counts = self._write_parts(number, path)
            sizes = _part_sizes(self._folder, number)
            file_io.write_json(note_path, {"file": before, "counts": counts, "sizes": sizes})
        except corpus_cleaning.BadFile as error:
            if not self._preparation.skip_bad_files:
                raise
            reason = str(error.__cause__)
            for kind in _KINDS:
                file_io.write_bytes(_part(self._folder, number, kind), b"")
        self._advance(file_io.size(path))
        return number, reason

    def _write_parts(self, number: int, path: str) -> collections.Counter[str]:
        """Writes the parts; returns the Counter of the file's content and what was removed."""
        counts: collections.Counter[str] = collections.Counter()
        sizes, keys = array.array("Q"), array.array("Q")
        with contextlib.ExitStack() as stack:
            stack.enter_context(file_io.writing(self._folder))
            texts, signatures, matches = (
                stack.enter_context(file_io.open_file(_part(self._folder, number, kind), "wb"))
                for kind in _KINDS[:3]
            )
            cleaning = self._preparation.cleaning
            for place, text in enumerate(corpus_cleaning.read_documents(path, cleaning, counts)):
                counts["documents"] += 1
                pieces = self._pieces(
                    self._cleaner.clean(text, counts), (path, place), matches, counts
                )
                if not pieces:
                    continue
                content = "\n\n".join(map("\n".join, pieces)).encode()
                texts.write(content)
                sizes.append(len(content))
                keys.append(words.text_hash(content.decode()))
                if self._signer:
                    signature = self._signer.sign(words.word_hashes(words.split(content.decode())))
                    signatures.write(signature.tobytes())
            for kind, values in zip(_KINDS[3:], (sizes, keys), strict=True):
                with file_io.open_file(_part(self._folder, number, kind), "wb") as file:
                    file.write(values.tobytes())
        return counts

    def _pieces(
        self,
        sentences: list[str],
        source: tuple[str, int],
        file: IO[bytes],
        counts: collections.Counter[str],
    ) -> list[list[str]]:
        """Returns lists of sentences without evaluation sets; writes what is found to a file."""
        if self._index is None or not sentences:
            return [sentences] if sentences else []
        hashes = [words.word_hashes(words.split(text)) for text in sentences]
        places, texts = self._index.find(np.concatenate(hashes))
        if not len(places):
            return [sentences]
        path, place = source
        counts["contaminated_documents"] += 1
        for text in dict.fromkeys(texts.tolist()):
            name = self._index.names[self._index.set_of[text]]
            row = {"file": path, "document": place, "set": name, "text": text}
            row["begins"] = self._index.starts[text]
            file.write(json.dumps(row).encode() + b"\n")
        ends = np.cumsum([len(part) for part in hashes])
        first = np.searchsorted(ends, places, side="right")
        last = np.searchsorted(ends, places + contamination.RUN_WORDS - 1, side="right")
        changes = np.zeros(len(sentences) + 1, np.int64)
        np.add.at(changes, first, 1)
        np.add.at(changes, last + 1, -1)
        touched = np.cumsum(changes[:-1]) > 0
        counts["overlapping_sentences"] += int(touched.sum())
        if self._preparation.only_report_contamination:
            return [sentences]
        counts["contaminated_sentences"] += int(touched.sum())
        groups = itertools.groupby(zip(sentences, touched, strict=True), key=lambda pair: pair[1])
        pieces = [[text for text, _ in group] for is_touched, group in groups if not is_touched]
        return pieces if self._cleaner.is_long_enough(sum(pieces, []), counts) else []


def _read(
    input_paths: Sequence[str],
    folder: str,
    preparation: Preparation,
    index: contamination.Index | None,
    num_workers: int,
) -> tuple[collections.Counter[str], list[dict[str, str]]]:
    """Reads all files; returns (Counter of what they hold and what was removed, skipped files)."""
    notes: dict[int, dict[str, Any]] = {}

    def is_done(number: int, path: str) -> bool:
        notes[number] = note = _read_note(_part(folder, number, "json")) or {}
        expected = (_stamp(path), _part_sizes(folder, number))
        return (note.get("file"), note.get("sizes")) == expected

    every = list(enumerate(input_paths))
    tasks = [task for task in every if not is_done(*task)]
    if len(tasks) < len(every):
        logging.info("Resuming: %d file(s) were read earlier", len(every) - len(tasks))
    arguments, num_workers = (folder, preparation, index), min(num_workers, len(tasks))
    logging.info("Reading %d file(s) with %d worker(s)", len(tasks), max(1, num_workers))
    reasons = {}
    with progress.Progress("reading", sum(file_io.size(path) for _, path in tasks), "B") as bar:
        for number, reason in processes.run(_Reader, arguments, tasks, num_workers, bar):
            notes[number] = _read_note(_part(folder, number, "json")) or {}
            if reason:
                reasons[number] = reason
                logging.warning("Skipped: %s", reason)
    counts: collections.Counter[str] = collections.Counter()
    for number, path in every:
        if number not in reasons:
            counts.update(notes[number]["counts"])
            if not notes[number]["counts"].get("documents"):
                logging.warning("There is no text in %s", path)
    skipped = [{"file": input_paths[n], "reason": reasons[n]} for n in sorted(reasons)]
    return counts, skipped


class _Documents:
    """The parts of all files in order."""

    def __init__(self, folder: str, num_files: int) -> None:
        self._folder, self.num_files = folder, num_files
        self.sizes = [self._numbers(number, "sizes") for number in range(num_files)]
        self.total = sum(map(len, self.sizes))

    def _numbers(self, number: int, kind: str) -> np.ndarray:
        with file_io.open_file(_part(self._folder, number, kind), "rb") as file:
            return np.frombuffer(file.read(), np.uint64)

    def keys(self) -> Iterator[np.ndarray]:
        """Yields [*] uint64 hashes of the texts."""
        for number in range(self.num_files):
            yield self._numbers(number, "keys")

    def signatures(self) -> duplicates.Signatures:
        """Returns the signatures of all documents, in one file: open files are limited."""
        path = os.path.join(self._folder, "signatures")
        with file_io.open_file(path, "wb") as joined:
            for number in range(self.num_files):
                with file_io.open_file(_part(self._folder, number, "signatures"), "rb") as file:
                    while content := file.read(_COPIED_BYTES):
                        joined.write(content)
        return duplicates.Signatures(path)

    def texts(self, gone: np.ndarray) -> Iterator[str]:
        """Yields the texts of the documents that are not gone."""
        place = 0
        for number, sizes in enumerate(self.sizes):
            with file_io.open_file(_part(self._folder, number, "text"), "rb") as file:
                for size in sizes.tolist():
                    content = file.read(size)
                    if not gone[place]:
                        yield content.decode()
                    place += 1

    def overlaps(self) -> Iterator[dict[str, Any]]:
        """Yields the overlaps with evaluation sets, a dict each."""
        for number in range(self.num_files):
            with file_io.open_file(_part(self._folder, number, "found"), "rb") as file:
                yield from map(json.loads, file)

    def line_hashes(self, gone: np.ndarray) -> Callable[[], Iterator[np.ndarray]]:
        """Returns a function that yields [*] uint64 hashes of long lines, once per document."""
        path = os.path.join(self._folder, "lines")
        with file_io.open_file(path, "wb") as file:
            for text in self.texts(gone):
                lines = {line for line in text.split("\n") if len(line) >= MIN_BOILERPLATE}
                file.write(array.array("Q", map(words.text_hash, lines)).tobytes())
        if not file_io.size(path):
            return lambda: iter(())
        hashes = np.frombuffer(file_io.map_bytes(path), np.uint64)
        starts = range(0, len(hashes), _HASHES_AT_A_TIME)
        return lambda: (hashes[start : start + _HASHES_AT_A_TIME] for start in starts)


def _duplicates(
    documents: _Documents, threshold: float, counts: collections.Counter[str]
) -> np.ndarray:
    """Returns [D] booleans: the document equals an earlier one, or nearly."""
    gone = duplicates.exact_duplicates(documents.keys, documents.total)
    counts["exact_duplicates"] = int(gone.sum())
    if threshold:
        logging.info("Comparing %d documents", documents.total - counts["exact_duplicates"])
        near = duplicates.near_duplicates(documents.signatures(), threshold, gone)
        counts["near_duplicates"] = int(near.sum())
        gone = gone | near
    return gone


def _boilerplate(documents: _Documents, gone: np.ndarray, max_line_repeats: int) -> set[int]:
    """Returns the hashes of lines that more than `max_line_repeats` documents have."""
    if not max_line_repeats:
        return set()
    return {
        int(key)
        for key, places in duplicates.repeated(documents.line_hashes(gone))
        if len(places) > max_line_repeats
    }


class _Statistics:
    """Counts of what is written."""

    def __init__(self) -> None:
        self.totals: collections.Counter[str] = collections.Counter()
        self.sentence_words: collections.Counter[int] = collections.Counter()
        self.document_sentences: collections.Counter[int] = collections.Counter()

    def add(self, sentences: Sequence[str]) -> None:
        lengths = [len(words.split(sentence)) for sentence in sentences]
        self.sentence_words.update(lengths)
        self.document_sentences[len(sentences)] += 1
        self.totals.update(
            documents=1,
            sentences=len(sentences),
            words=sum(lengths),
            characters=sum(map(len, sentences)),
        )

    def result(self) -> dict[str, Any]:
        return {
            **_select(self.totals, "documents", "sentences", "words", "characters"),
            "words_in_a_sentence": corpus_cleaning.lengths_report(self.sentence_words),
            "sentences_in_a_document": corpus_cleaning.lengths_report(self.document_sentences),
        }


def _write(
    documents: _Documents,
    gone: np.ndarray,
    boilerplate: set[int],
    cleaner: corpus_cleaning.Cleaner,
    folder: str,
    counts: collections.Counter[str],
) -> dict[str, Any]:
    """Writes the documents that stay to files of limited size; returns their statistics."""
    statistics, file, num_files = _Statistics(), None, 0
    with contextlib.ExitStack() as stack:
        for text in documents.texts(gone):
            pieces = [piece.split("\n") for piece in text.split("\n\n")]
            clean_pieces = [
                [line for line in piece if not _is_boilerplate(line, boilerplate)]
                for piece in pieces
            ]
            dropped = sum(map(len, pieces)) - sum(map(len, clean_pieces))
            counts["boilerplate_lines"] += dropped
            if dropped and not cleaner.is_long_enough(sum(clean_pieces, []), counts):
                continue
            if file is None or file.tell() >= MAX_FILE_BYTES:
                stack.close()
                path = os.path.join(folder, f"corpus-{num_files:05d}.txt")
                file = stack.enter_context(file_io.open_file(path, "wb"))
                num_files += 1
            for piece in filter(None, clean_pieces):
                statistics.add(piece)
                file.write(("\n".join(piece) + "\n\n").encode())
    return {"files": num_files, **statistics.result()}


def _is_boilerplate(line: str, boilerplate: set[int]) -> bool:
    if not boilerplate or len(line) < MIN_BOILERPLATE:
        return False
    return words.text_hash(line) in boilerplate


def _report(
    counts: collections.Counter[str],
    statistics: dict[str, Any],
    preparation: Preparation,
    index: contamination.Index | None,
    documents: _Documents,
    folder: str,
) -> dict[str, Any]:
    report = {
        "read": {"files": documents.num_files, **_select(counts, "bytes", "documents")},
        "left_out": {name: counts[name] for name in REASONS},
        "cut_documents": counts["cut_documents"],
        "written": statistics,
        "settings": dataclasses.asdict(preparation),
    }
    if index is not None:
        report["contamination"] = _contamination_report(counts, index, documents, folder)
    return report


def _select(counts: Mapping[str, int], *names: str) -> dict[str, int]:
    return {name: counts[name] for name in names}


def _contamination_report(
    counts: collections.Counter[str], index: contamination.Index, documents: _Documents, folder: str
) -> dict[str, Any]:
    texts = collections.defaultdict(set)
    path = os.path.join(folder, "contamination.jsonl")
    with file_io.open_file(path, "w") as file:
        for row in documents.overlaps():
            texts[row["set"]].add(row["text"])
            file.write(tables.json_line(row))
    sets = {name: {**index.counts[name], "texts_found": len(texts[name])} for name in index.names}
    return {"sets": sets, **_select(counts, "contaminated_documents", "overlapping_sentences")}


def _reasons(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{counts[name]} {text}" for name, text in REASONS.items() if counts[name])


def _lengths(statistics: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in statistics.items())


def report_text(report: Mapping[str, Any]) -> str:
    """Returns the text of a report of `prepare`."""
    inputs, outputs = report["read"], report["written"]
    lines = [
        f"{outputs['documents']} documents, {outputs['sentences']} sentences, {outputs['words']} "
        f"words, {outputs['characters']} characters in {outputs['files']} file(s)",
        f"  read: {inputs['files']} file(s), {inputs['bytes']} bytes, {inputs['documents']} "
        "documents",
        "  removed:",
        *(f"    {report['left_out'][name]} {text}" for name, text in REASONS.items()),
        f"  words in a sentence: {_lengths(outputs['words_in_a_sentence'])}",
        f"  sentences in a document: {_lengths(outputs['sentences_in_a_document'])}",
    ]
    if report["skipped_files"]:
        lines.append(f"  skipped: {len(report['skipped_files'])} file(s) that cannot be read")
        lines += [f"    {skipped['reason']}" for skipped in report["skipped_files"]]
    if report["cut_documents"]:
        lines.append(f"  cut: {report['cut_documents']} times inside a document of too many bytes")
    if "contamination" in report:
        overlap = report["contamination"]
        lines.append(
            f"  evaluation sets: {overlap['contaminated_documents']} documents overlap in "
            f"{overlap['overlapping_sentences']} sentences"
        )
        for name, counts in overlap["sets"].items():
            long_texts = counts["texts"] - counts["short_texts"]
            lines.append(
                f"    {name}: {counts['texts_found']} of {long_texts} texts; "
                f"{counts['short_texts']} texts of fewer than {contamination.RUN_WORDS} words were "
                "not compared"
            )
    return "\n".join(lines)
