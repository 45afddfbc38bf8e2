"""Makes pre-training record files from text files of any size: processes, shuffle, report.

The corpus is divided into blocks. Each pass over a block has its own random stream, so the files do
not depend on the number of processes. Records are collected in random buckets next to the output
until all are made, and are then shuffled and distributed round-robin to the output files.
"""

import collections
import contextlib
import dataclasses
import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from absl import logging

from albert.data import instances, masking, sequence_formats, shuffling, tfrecord
from albert.data.inspection import fraction
from albert.io import file_io, processes, progress
from albert.text import corpus, text_rules, tokenization

_INSTANCE_STREAM, _BUCKET_STREAM, SHUFFLE_STREAM = 0, 1, 2


@dataclasses.dataclass(frozen=True)
class Job:
    """Everything that the records depend on, except the text.

    Attributes:
      dupe_factor: passes over the text, each with new pairs and new masks.
      vocab_file, spm_model_file, rules: see `tokenization.FullTokenizer`.
    """

    settings: instances.Settings
    dupe_factor: int
    vocab_file: str | None = None
    spm_model_file: str | None = None
    rules: text_rules.TextRules = text_rules.TextRules()
    compress: bool = False

    def load_tokenizer(self) -> tokenization.FullTokenizer:
        return tokenization.FullTokenizer(
            self.vocab_file, spm_model_file=self.spm_model_file, rules=self.rules
        )

    def check_vocabulary(self) -> None:
        """Rejects a wrong vocabulary before workers start; warns of pieces that no text gives."""
        tokenization.warn_of_unreachable_pieces(self.load_tokenizer())


@dataclasses.dataclass(frozen=True)
class Unit:
    """One task of a process: some passes over a block."""

    block: int
    segments: tuple[corpus.Segment, ...]
    passes: Sequence[int]

    @property
    def num_bytes(self) -> int:
        """Bytes of text in the block."""
        return sum(segment.end - segment.start for segment in self.segments)


def create(
    input_paths: Sequence[str], output_paths: Sequence[str], job: Job, num_workers: int = 1
) -> collections.Counter[str]:
    """Writes TFRecord files of pre-training instances.

    Args:
      input_paths: text files, one sentence per line and a blank line between documents.
      output_paths: files to write; replaced only when all of them are complete.
    """
    check_outputs(input_paths, output_paths)
    job.check_vocabulary()
    plan = corpus.plan_blocks(input_paths)
    num_bytes = expected_bytes(plan, job)
    counts = text_counts(input_paths, plan)
    with _working_folder(output_paths[0]) as folder:
        warn_if_disk_is_small(folder, num_bytes)
        maker = MakerArguments(job, folder, shuffling.num_buckets(num_bytes))
        units = divide(plan.blocks, job.dupe_factor, num_workers)
        for unit_counts in make_instances(maker, units, num_workers):
            counts.update(unit_counts)
        check_instances(counts, input_paths, job.settings)
        seed = [job.settings.random_seed, SHUFFLE_STREAM]
        records = shuffling.shuffled_records(folder, seed)
        with progress.Progress("writing", counts["instances"], "instances") as bar:
            _write_outputs(records, output_paths, job.compress, bar)
    return counts


def check_outputs(input_paths: Iterable[str], output_paths: Sequence[str]) -> None:
    """Checks that outputs can be written; makes their folders."""
    if not output_paths:
        raise file_io.InputError("output_file names no file")
    inputs = set(map(_absolute, input_paths))
    outputs = collections.Counter(map(_absolute, output_paths))
    for path, count in outputs.items():
        if count > 1:
            raise file_io.InputError(f"output_file names {path} more than once")
        if path in inputs:
            raise file_io.InputError(f"output_file names {path}, which is an input file")
        folder = path
        while (folder := os.path.dirname(folder)) != os.path.dirname(folder):
            if folder in outputs:
                raise file_io.InputError(
                    f"output_file names {folder} as a file and as a folder, with {path}"
                )
    for path in output_paths:
        if file_io.is_dir(path) or not os.path.basename(path):
            raise file_io.InputError(f"output_file: {path} is a folder, a file was expected")
        file_io.make_dirs(os.path.dirname(path) or ".")


def _absolute(path: str) -> str:
    return path if file_io.is_remote(path) else os.path.abspath(path)


def expected_bytes(plan: corpus.Plan, job: Job) -> float:
    """Estimates the size of all records, for an English vocabulary."""
    return plan.num_bytes * job.dupe_factor * _bytes_per_text_byte(job.settings)


def _bytes_per_text_byte(settings: instances.Settings) -> float:
    """Estimates the bytes of records per byte of text in one pass, for an English vocabulary."""
    if settings.mask is None:
        record = 2 * settings.max_seq_length + 150
    else:
        record = 5 * settings.max_seq_length + 7 * settings.mask.num_slots + 200
    text = 4 * 0.9 * sequence_formats.typical_tokens(settings)
    return record / text


def warn_if_disk_is_small(folder: str, num_bytes: float) -> None:
    """Warns if a folder seems to have less space than `num_bytes`."""
    if not hasattr(os, "statvfs"):  # not on Windows
        return
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize
    if num_bytes > free:
        logging.warning(
            "About %.1f GB will be written, but %s has only %.1f GB left",
            num_bytes / 1e9,
            folder,
            free / 1e9,
        )


def check_instances(
    counts: collections.Counter[str], input_paths: Sequence[str], settings: instances.Settings
) -> None:
    """Checks that the text gave any instance."""
    source = f"{len(input_paths)} input file(s) with {counts['bytes']} bytes"
    if not counts["sentences"]:
        raise file_io.InputError(f"no sentence found in {source}; expected one sentence per line")
    if not counts["instances"]:
        raise file_io.InputError(
            f"no instance could be made from {counts['sentences']} sentence(s) in "
            f"{counts['documents']} document(s): sentence task {settings.sentence_task!r} needs "
            "documents of two or more sentences"
        )


def text_counts(input_paths: Sequence[str], plan: corpus.Plan) -> collections.Counter[str]:
    """Returns the Counter of the text's files, bytes and cuts, from its plan."""
    return collections.Counter(
        files=len(input_paths), bytes=plan.num_bytes, cut_documents=plan.cut_documents
    )


def divide(
    blocks: Sequence[tuple[corpus.Segment, ...]], dupe_factor: int, num_workers: int
) -> list[Unit]:
    """Makes units of blocks, in order; divides few blocks by passes, to keep all workers busy."""
    groups = min(dupe_factor, -(-num_workers // max(1, len(blocks))))
    passes = np.array_split(np.arange(dupe_factor), groups)
    return [
        Unit(block, segments, range(int(group[0]), int(group[-1]) + 1))
        for block, segments in enumerate(blocks)
        for group in passes
    ]


@dataclasses.dataclass(frozen=True)
class MakerArguments:
    """Arguments of the processes that make instances.

    Attributes:
      folder: existing local folder of the buckets.
      run: number that distinguishes the files of this run from those of earlier ones in the folder.
        With it, each process also keeps a journal there, see `journal_path`.
    """

    job: Job
    folder: str
    buckets: int
    run: int | None = None


def journal_path(folder: str, writer: str) -> str:
    """Returns the file in which a writer of bucket files notes each pass that it has finished.

    A line is JSON: [block, pass, counts].
    """
    return os.path.join(folder, f"done.{writer}")


def make_instances(
    arguments: MakerArguments, units: list[Unit], num_workers: int
) -> Iterator[collections.Counter[str]]:
    """Writes the records of all units to buckets; yields a Counter of each unit, as they end."""
    num_workers = max(1, min(num_workers, len(units)))
    num_bytes = sum(unit.num_bytes * len(unit.passes) for unit in units)
    logging.info(
        "%d unit(s) of work, %.1f MB of text in all passes, %d worker(s)",
        len(units),
        num_bytes / 1e6,
        num_workers,
    )
    with progress.Progress("making instances", num_bytes, "B") as bar:
        yield from processes.run(Maker, arguments, units, num_workers, bar)


class InstanceMaker:
    """Makes the records of units, which depend on the job and the unit alone."""

    def __init__(self, job: Job) -> None:
        self._settings = job.settings
        self._tokenizer = job.load_tokenizer()
        self._vocabulary = instances.Vocabulary.from_tokenizer(self._tokenizer)

    def passes(
        self, unit: Unit
    ) -> Iterator[tuple[int, Iterator[instances.Batch], np.random.Generator]]:
        """Yields (number of a pass, its batches, generator for its buckets).

        A batch is (framed records, Counter of their content). Texts are counted in the first batch
        of the first pass.
        """
        documents, counts = instances.read_documents(unit.segments, self._tokenizer.encode_batch)
        seed = self._settings.random_seed
        for pass_number in unit.passes:
            stream = (unit.block, pass_number)
            batches = instances.make_records(
                documents, self._settings, self._vocabulary, (_INSTANCE_STREAM, *stream)
            )
            framed = ((tfrecord.frame(records), batch_counts) for records, batch_counts in batches)
            texts: list[instances.Batch] = [([], counts)] if pass_number == 0 else []
            rng = np.random.default_rng([seed, _BUCKET_STREAM, *stream])
            yield pass_number, itertools.chain(texts, framed), rng


class Maker:
    """Writes the records of units to buckets, in one process.

    Args:
      advance: called with numbers of processed bytes of text.
    """

    def __init__(self, arguments: MakerArguments, advance: Callable[[int], None]) -> None:
        writer = str(os.getpid())
        self._journal = None
        if arguments.run is not None:
            writer = f"{arguments.run}.{writer}"
            self._journal = journal_path(arguments.folder, writer)
        self._folder = arguments.folder
        self._maker = InstanceMaker(arguments.job)
        self._writer = shuffling.BucketWriter(arguments.folder, arguments.buckets, writer)
        self._advance = advance

    def run(self, unit: Unit) -> collections.Counter[str]:
        """Returns the Counter of the unit's content; texts are counted in the first pass only."""
        counts: collections.Counter[str] = collections.Counter()
        for pass_number, batches, rng in self._maker.passes(unit):
            pass_counts: collections.Counter[str] = collections.Counter()
            with self._writer.group(unit.block, pass_number):
                for records, batch_counts in batches:
                    self._writer.add(records, rng)
                    pass_counts.update(batch_counts)
            if self._journal:
                line = json.dumps([unit.block, pass_number, pass_counts]) + "\n"
                with file_io.writing(self._folder), file_io.open_file(self._journal, "a") as file:
                    file.write(line)
            counts.update(pass_counts)
            self._advance(unit.num_bytes)
        return counts


@contextlib.contextmanager
def _working_folder(output_path: str) -> Iterator[str]:
    """Makes a folder next to the output, or for temporary files if the output is remote."""
    folder, name = os.path.split(output_path)
    if file_io.is_remote(output_path):
        folder = os.environ.get("TMPDIR", "/tmp")
    path = os.path.join(folder, name)
    leftovers = [
        other for other in file_io.listdir(folder or ".") if other.startswith(f"{name}.tmp-")
    ]
    if leftovers:
        logging.warning(
            "%s holds unused files of a run that was killed or is still running: %s",
            folder or ".",
            ", ".join(leftovers),
        )
    path = f"{file_io.temporary_name(path)}.buckets"
    file_io.remove(path)
    file_io.make_dirs(path)
    try:
        yield path
    finally:
        file_io.remove(path)


def _write_outputs(
    records: Iterable[bytes], output_paths: Sequence[str], compress: bool, bar: progress.Progress
) -> None:
    """Distributes framed records round-robin to files, which are renamed when all are complete."""
    temporaries = [file_io.temporary_name(path) for path in output_paths]
    try:
        with file_io.writing(os.path.dirname(output_paths[0]) or "."):
            with contextlib.ExitStack() as stack:
                files = [stack.enter_context(file_io.open_file(path, "wb")) for path in temporaries]
                if compress:
                    files = [stack.enter_context(tfrecord.compressing(file)) for file in files]
                for index, record in enumerate(records):
                    files[index % len(files)].write(record)
                    if index % 1024 == 0:
                        bar.show(index)
            for temporary, path in zip(temporaries, output_paths, strict=True):
                file_io.rename(temporary, path)
    finally:
        for temporary in temporaries:
            file_io.remove(temporary)


def _masked_lines(
    counts: collections.Counter[str], mask: masking.MaskingConfig | None
) -> list[str]:
    if mask is None:
        text = "nothing; training draws the masks, so one pass is made, whatever dupe_factor"
        return [f"  masked: {text}"]
    lines = [
        f"  masked: {fraction(counts['masked'], counts['instance_tokens'])} of the instances' "
        f"tokens; asked for {mask.masked_lm_prob:.1%}, at most {mask.max_predictions_per_seq} each"
    ]
    if mask.do_permutation:
        lines.append(f"  permuted: {fraction(counts['permuted'], counts['instance_tokens'])}")
    return lines


def report(
    counts: collections.Counter[str], job: Job, output_paths: Sequence[str], seconds: float
) -> str:
    """Returns the text that describes what `create` read, made and skipped."""
    num_instances = counts["instances"]
    settings = job.settings
    positions = num_instances * settings.max_seq_length
    lines = [
        f"{num_instances} instances in {len(output_paths)} file(s), {seconds:.1f} s, "
        f"{num_instances / seconds:.0f} instances/s",
        f"  read: {counts['files']} file(s), {counts['bytes']} bytes, {counts['documents']} "
        f"documents, {counts['sentences']} sentences, {counts['tokens']} tokens",
        f"  skipped: {counts['empty_lines']} empty lines, {counts['sentences_without_tokens']} "
        f"sentences and {counts['documents_without_tokens']} documents without tokens, "
        f"{counts['single_sentences_skipped']} single sentences (in {job.dupe_factor} passes)",
        f"  tokens: {fraction(counts['instance_tokens'], positions)} of "
        "the instances' positions; the others are padding",
        f"  words: {counts['instance_words']} in the instances",
        *_masked_lines(counts, settings.mask),
    ]
    if sequence_formats.has_sentence_task(settings.sequence_format):
        lines.append(
            f"  label 1: {fraction(counts['labels_1'], num_instances)}; with a random next text: "
            f"{fraction(counts['random_next'], num_instances)}, of these "
            f"{counts['random_next_single_sentence']} because a sentence was left alone"
        )
    if counts["random_next_same_document"]:
        lines.append(
            f"  note: {counts['random_next_same_document']} random next texts come from the "
            "document itself, as there was no other near it"
        )
    if counts["single_sentences_without_b"]:
        lines.append(f"  without B: {counts['single_sentences_without_b']} (a sentence left alone)")
    if counts["long_sentences"]:
        lines.append(
            f"  pieces: {counts['long_sentences']} sentences of more than "
            f"{sequence_formats.longest_sentence(settings)} tokens were cut into "
            f"{counts['pieces']} (in {job.dupe_factor} passes)"
        )
    if counts["tokens"] > settings.max_seq_length * counts["sentences"]:
        lines.append(
            f"  warning: {counts['tokens'] / counts['sentences']:.0f} tokens per sentence, more "
            "than an instance holds; expected one sentence per line (prepare_corpus finds them)"
        )
    if counts["cut_documents"]:
        lines.append(
            f"  cut: {counts['cut_documents']} times inside a document of more than "
            f"{corpus.MAX_DOCUMENT_BYTES >> 20} MB; are blank lines between documents missing?"
        )
    return "\n".join(lines)
