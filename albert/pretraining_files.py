"""Makes pre-training record files from text files of any size: processes, shuffle, report.

The corpus is divided into blocks; (block, pass) is made with a random stream of its own, so the
files do not depend on the number of processes. Records wait in random buckets beside the output
until all are made, and are then shuffled and dealt round-robin to the output files.
"""

import collections
import concurrent.futures
import contextlib
import dataclasses
import multiprocessing
import os
import signal
import threading
from concurrent.futures.process import BrokenProcessPool

import numpy as np
from absl import logging

from albert import (
    corpus,
    file_io,
    pretraining_data,
    progress,
    sequence_formats,
    tfrecord,
    tokenization,
)

_INSTANCE_STREAM, _BUCKET_STREAM, _SHUFFLE_STREAM = 0, 1, 2


@dataclasses.dataclass(frozen=True)
class Job:
    """Everything that the records depend on, beside the text.

    Attributes:
      settings: `pretraining_data.Settings`.
      dupe_factor: passes over the text, each with new pairs and new masks.
      vocab_file, do_lower_case, spm_model_file: see `tokenization.FullTokenizer`.
      compress: write gzip files.
    """

    settings: pretraining_data.Settings
    dupe_factor: int
    vocab_file: str | None = None
    do_lower_case: bool = True
    spm_model_file: str | None = None
    compress: bool = False


@dataclasses.dataclass(frozen=True)
class _Unit:
    """What a process does in one go: some passes over a block."""

    block: int
    segments: tuple
    passes: range


def num_cores():
    """Cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        return os.cpu_count() or 1


def create(input_paths, output_paths, job, num_workers=1):
    """Writes TFRecord files of pre-training instances.

    Args:
      input_paths: text files, one sentence a line and a blank line between documents.
      output_paths: files to write; replaced only when all of them are complete.
      job: `Job`.
      num_workers: processes that make instances; 1 works in this process.

    Returns:
      Counter of everything read, made and left out.

    Raises:
      file_io.InputError: unreadable text, no sentence in it, no room, no right to write.
    """
    _check_outputs(input_paths, output_paths)
    # Loaded first: a wrong vocabulary must not be found out by every worker.
    tokenization.FullTokenizer(job.vocab_file, job.do_lower_case, job.spm_model_file)
    plan = corpus.plan_blocks(input_paths)
    expected_bytes = plan.num_bytes * job.dupe_factor * _bytes_per_text_byte(job.settings)
    counts = collections.Counter(
        files=len(input_paths), bytes=plan.num_bytes, cut_documents=plan.cut_documents
    )
    with _working_folder(output_paths[0]) as folder:
        _warn_if_disk_is_small(folder, expected_bytes)
        maker = _MakerArguments(job, folder, tfrecord.num_buckets(expected_bytes))
        units = _divide(plan.blocks, job.dupe_factor, num_workers)
        num_workers = min(num_workers, len(units))
        logging.info(
            "%d file(s), %.1f MB of text: %d block(s), %d pass(es), %d worker(s)",
            len(input_paths),
            plan.num_bytes / 1e6,
            len(plan.blocks),
            job.dupe_factor,
            max(1, num_workers),
        )
        with progress.Progress("making instances", plan.num_bytes * job.dupe_factor, "B") as shown:
            make = _make_here if num_workers <= 1 else _make_in_processes
            for unit_counts in make(maker, units, num_workers, shown):
                counts.update(unit_counts)
        _check_instances(counts, input_paths, job.settings)
        records = tfrecord.shuffled_records(folder, [job.settings.random_seed, _SHUFFLE_STREAM])
        with progress.Progress("writing", counts["instances"], "instances") as shown:
            _write_outputs(records, output_paths, job.compress, shown)
    return counts


# --- checks -----------------------------------------------------------------------------------


def _check_outputs(input_paths, output_paths):
    if not output_paths:
        raise file_io.InputError("output_file names no file")
    inputs = set(map(_absolute, input_paths))
    for path, count in collections.Counter(map(_absolute, output_paths)).items():
        if count > 1:
            raise file_io.InputError(f"output_file names {path} more than once")
        if path in inputs:
            raise file_io.InputError(f"output_file names {path}, which is an input file")
    for path in output_paths:
        if file_io.is_dir(path):
            raise file_io.InputError(f"output_file: {path} is a folder, a file was expected")
        file_io.make_dirs(os.path.dirname(path) or ".")


def _absolute(path):
    return path if file_io.is_remote(path) else os.path.abspath(path)


def _bytes_per_text_byte(settings):
    """Rough size of the records of one pass relative to the text, for an English vocabulary."""
    if settings.mask is None:
        record = 2 * settings.max_seq_length + 150
    else:
        record = 5 * settings.max_seq_length + 7 * settings.mask.num_slots + 200
    text = 4 * 0.9 * sequence_formats.typical_tokens(settings)
    return record / text


def _warn_if_disk_is_small(folder, expected_bytes):
    if not hasattr(os, "statvfs"):  # not on Windows
        return
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize
    if expected_bytes > free:
        logging.warning(
            "About %.1f GB will be written, but %s has only %.1f GB left",
            expected_bytes / 1e9,
            folder,
            free / 1e9,
        )


def _check_instances(counts, input_paths, settings):
    found = f"{len(input_paths)} input file(s) with {counts['bytes']} bytes"
    if not counts["sentences"]:
        raise file_io.InputError(f"no sentence found in {found}; expected one sentence a line")
    if not counts["instances"]:
        raise file_io.InputError(
            f"no instance could be made from {counts['sentences']} sentence(s) in "
            f"{counts['documents']} document(s): sentence task {settings.sentence_task!r} needs "
            "documents of two or more sentences"
        )


# --- making instances -------------------------------------------------------------------------


def _divide(blocks, dupe_factor, num_workers):
    """Units in the order of blocks; few blocks are divided by passes, to employ all workers."""
    groups = min(dupe_factor, -(-num_workers // max(1, len(blocks))))
    passes = np.array_split(np.arange(dupe_factor), groups)
    return [
        _Unit(block, segments, range(int(group[0]), int(group[-1]) + 1))
        for block, segments in enumerate(blocks)
        for group in passes
    ]


@dataclasses.dataclass(frozen=True)
class _MakerArguments:
    job: Job
    folder: str
    buckets: int


class _Maker:
    """Makes the records of units in one process.

    Args:
      arguments: `_MakerArguments`.
      advance: function that is told the number of bytes of text dealt with.
    """

    def __init__(self, arguments, advance):
        job = arguments.job
        self._settings = job.settings
        self._tokenizer = tokenization.FullTokenizer(
            job.vocab_file, job.do_lower_case, job.spm_model_file
        )
        self._vocabulary = pretraining_data.Vocabulary.of(self._tokenizer)
        self._writer = tfrecord.BucketWriter(arguments.folder, arguments.buckets, os.getpid())
        self._advance = advance

    def run(self, unit):
        """Counter of what the unit holds; texts are counted with the first pass only."""
        documents, text_counts = pretraining_data.read_documents(
            unit.segments, self._tokenizer.encode_batch
        )
        counts = collections.Counter(text_counts if unit.passes.start == 0 else {})
        num_bytes = sum(segment.end - segment.start for segment in unit.segments)
        for pass_number in unit.passes:
            stream = (unit.block, pass_number)
            buckets_rng = np.random.default_rng(
                [self._settings.random_seed, _BUCKET_STREAM, *stream]
            )
            with self._writer.keyed(*stream):
                for records, batch_counts in pretraining_data.make_records(
                    documents, self._settings, self._vocabulary, (_INSTANCE_STREAM, *stream)
                ):
                    self._writer.add(tfrecord.frame(records), buckets_rng)
                    counts.update(batch_counts)
            self._advance(num_bytes)
        return counts


def _make_here(arguments, units, num_workers, shown):
    del num_workers
    maker = _Maker(arguments, shown.advance)
    for unit in units:
        yield maker.run(unit)


_worker_maker = None  # the `_Maker` of a worker process


def _start_worker(arguments, num_done, parent_lives):
    global _worker_maker
    threading.Thread(target=_exit_with_parent, args=(parent_lives,), daemon=True).start()

    def advance(num_bytes):
        with num_done.get_lock():
            num_done.value += num_bytes

    _worker_maker = _Maker(arguments, advance)


def _exit_with_parent(parent_lives):
    with contextlib.suppress(EOFError, OSError):
        parent_lives.recv()
    os._exit(1)


def _run_unit(unit):
    return _worker_maker.run(unit)


@contextlib.contextmanager
def _starting_workers():
    """Processes started inside start whole, and Ctrl-C never reaches them.

    The parent alone answers it, and ends them: a worker that ignored it by itself would be open to
    it until its imports are done. A signal that reaches the parent waits until they are started.
    """
    is_main_thread = threading.current_thread() is threading.main_thread()
    kinds = (signal.SIGINT, signal.SIGTERM) if is_main_thread else ()
    arrived = []
    handlers = {kind: signal.signal(kind, lambda kind, _: arrived.append(kind)) for kind in kinds}
    # Inherited by the workers. Here, other threads may still take the signal.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for kind, handler in handlers.items():
            signal.signal(kind, handler)
        for kind in arrived:
            signal.raise_signal(kind)


def _make_in_processes(arguments, units, num_workers, shown):
    # Spawned, not forked: the parent may have threads, and a fork would copy them half-alive.
    context = multiprocessing.get_context("spawn")
    num_done = context.Value("q", 0)
    # Nothing is ever sent: the workers see this pipe close, even if the parent is killed.
    parent_lives, keep_open = context.Pipe(duplex=False)
    executor = concurrent.futures.ProcessPoolExecutor(
        num_workers, context, _start_worker, (arguments, num_done, parent_lives)
    )
    try:
        with _starting_workers():
            waiting = {executor.submit(_run_unit, unit) for unit in units}
        while waiting:
            done, waiting = concurrent.futures.wait(
                waiting, timeout=0.5, return_when=concurrent.futures.FIRST_EXCEPTION
            )
            shown.show(num_done.value)
            for future in done:
                yield future.result()
        executor.shutdown()
    except BrokenProcessPool as error:
        raise file_io.InputError(
            "a worker process was killed, most likely because memory ran out; try again with a "
            f"smaller num_workers than {num_workers}"
        ) from error
    finally:
        keep_open.close()
        executor.shutdown(cancel_futures=True)
        parent_lives.close()


# --- files ------------------------------------------------------------------------------------


@contextlib.contextmanager
def _working_folder(output_path):
    """A new folder beside the output (or among the system's temporary files if that is remote)."""
    folder, name = os.path.split(output_path)
    if file_io.is_remote(output_path):
        folder = os.environ.get("TMPDIR", "/tmp")
    path = os.path.join(folder, name)
    leftovers = [
        other for other in file_io.listdir(folder or ".") if other.startswith(f"{name}.tmp-")
    ]
    if leftovers:
        logging.warning(
            "In %s there are unused files of a run that was killed or still goes on: %s",
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


def _write_outputs(records, output_paths, compress, shown):
    """Deals framed records round-robin to files that take their names when all are complete."""
    temporaries = [file_io.temporary_name(path) for path in output_paths]
    try:
        with tfrecord.writing(os.path.dirname(output_paths[0]) or "."):
            with contextlib.ExitStack() as stack:
                files = [stack.enter_context(file_io.open_file(path, "wb")) for path in temporaries]
                if compress:
                    files = [stack.enter_context(tfrecord.compressing(file)) for file in files]
                for index, record in enumerate(records):
                    files[index % len(files)].write(record)
                    if index % 1024 == 0:
                        shown.show(index)
            for temporary, path in zip(temporaries, output_paths, strict=True):
                file_io.rename(temporary, path)
    finally:
        for temporary in temporaries:
            file_io.remove(temporary)


# --- report -----------------------------------------------------------------------------------


def _share(part, whole):
    return f"{part} ({part / max(1, whole):.1%})"


def _masked_lines(counts, mask):
    if mask is None:
        text = "nothing; training draws the masks, so one pass is made, whatever dupe_factor"
        return [f"  masked: {text}"]
    lines = [
        f"  masked: {_share(counts['masked'], counts['instance_tokens'])} of the instances' "
        f"tokens; asked for {mask.masked_lm_prob:.1%}, at most {mask.max_predictions_per_seq} each"
    ]
    if mask.do_permutation:
        lines.append(f"  permuted: {_share(counts['permuted'], counts['instance_tokens'])}")
    return lines


def report(counts, job, output_paths, seconds):
    """Text that tells what `create` read, made and left out.

    Args:
      counts: what `create` returned.
      job: its `Job`.
      output_paths: its files.
      seconds: how long it took.
    """
    instances = counts["instances"]
    settings = job.settings
    lines = [
        f"{instances} instances in {len(output_paths)} file(s), {seconds:.1f} s, "
        f"{instances / seconds:.0f} instances/s",
        f"  read: {counts['files']} file(s), {counts['bytes']} bytes, {counts['documents']} "
        f"documents, {counts['sentences']} sentences, {counts['tokens']} tokens",
        f"  skipped: {counts['empty_lines']} empty lines, {counts['sentences_without_tokens']} "
        f"sentences and {counts['documents_without_tokens']} documents without tokens, "
        f"{counts['single_sentences_skipped']} sentences left alone (in {job.dupe_factor} passes)",
        f"  tokens: {_share(counts['instance_tokens'], instances * settings.max_seq_length)} of "
        "the instances' positions; the others are padding",
        *_masked_lines(counts, settings.mask),
    ]
    if sequence_formats.has_sentence_task(settings.sequence_format):
        lines.append(
            f"  label 1: {_share(counts['labels_1'], instances)}; with a random next text: "
            f"{_share(counts['random_next'], instances)}, of these "
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
    if counts["cut_documents"]:
        lines.append(
            f"  cut: {counts['cut_documents']} times inside a document of more than "
            f"{corpus.MAX_DOCUMENT_BYTES >> 20} MB; are blank lines between documents missing?"
        )
    return "\n".join(lines)
