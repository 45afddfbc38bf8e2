"""SQuAD windows as files: serialized records, made in several processes, and the features left.

Imports no TensorFlow: this is what a worker process runs.
"""

import contextlib
import dataclasses
import functools
import json
import os
import pickle
import subprocess
import sys

import numpy as np
from absl import logging

from albert.data import tfrecord
from albert.io import file_io, json_shapes
from albert.io.file_io import InputError
from albert.tasks.squad import features as squad_features
from albert.training import subsets

V1, V2 = "squad_v1", "squad_v2"  # kinds of tasks, in the names of files
# A worker takes about half a second to start, the time of 4,000 questions.
MIN_EXAMPLES_PER_PROCESS = 4000
_WORKER = "from albert.tasks.squad import records; records.worker_main()"
_LEFT_FILE_FORMAT = "albert-squad-features-left"
_LEFT_FILE_VERSION = 1
_MOST_TOKENS = 1 << 20  # a damaged length must not take all memory


class StaleFeaturesError(InputError):
    """Features left that were made with other settings or are damaged; they can be made again."""


# --- records -----------------------------------------------------------------------------------


@functools.cache
def feature_specs(seq_length, is_training):
    """`tfrecord.FeatureSpec` of the records."""
    spec = tfrecord.FeatureSpec
    sequences = ("input_ids", "input_mask", "segment_ids", "p_mask")
    scalars = ("start_positions", "end_positions", "is_impossible") if is_training else ()
    return (
        spec("unique_ids", "int64"),
        *(spec(name, "int64", (seq_length,), sequence=True) for name in sequences),
        *(spec(name, "int64") for name in scalars),
    )


def fingerprint(data_file, tokenizer, window, split):
    """JSON-ready dict of everything that a file of features depends on.

    Args:
      data_file: SQuAD file.
      tokenizer: `tokenization.FullTokenizer`.
      window: dict of the lengths that features depend on.
      split: "train" or "predict".
    """
    return {
        **window,
        "do_lower_case": tokenizer.do_lower_case,
        "vocabulary_sha256": file_io.sha256(tokenizer.spm_model_file or tokenizer.vocab_file),
        "data_sha256": file_io.sha256(data_file),
        "split": split,
    }


def feature_entries(features, is_training):
    """Feature-map bytes of one window's `tf.train.Example`, all but ``unique_ids``."""
    padding = b"\0" * (features.max_seq_length - features.paragraph_len)
    # Bytes below 128 are their own varint encoding.
    columns = {
        "input_ids": b"".join(map(tfrecord.varint, features.real_ids)) + padding,
        "input_mask": features.input_mask_bytes,
        "segment_ids": features.segment_ids_bytes,
        "p_mask": features.p_mask_bytes,
    }
    if is_training:
        columns["start_positions"] = tfrecord.varint(features.start_position)
        columns["end_positions"] = tfrecord.varint(features.end_position)
        columns["is_impossible"] = b"\1" if features.is_impossible else b"\0"
    tfrecord.check_names(_specs_of_window(is_training), columns)
    return b"".join(
        tfrecord.int64_header(name, len(payload)) + payload for name, payload in columns.items()
    )


@functools.cache
def _specs_of_window(is_training):
    """Specifications of all but ``unique_ids``, which is known last."""
    return feature_specs(0, is_training)[1:]


def _to_record(item):
    number, (entries, features) = item
    if features is not None:
        features.unique_id = number
    unique_id = tfrecord.varint(number)
    header = tfrecord.int64_header("unique_ids", len(unique_id))
    return tfrecord.example([header, unique_id, entries]), features


def _to_rows(is_training, windows):
    return [
        (feature_entries(features, is_training), None if is_training else features)
        for features in windows
    ]


def convert_examples_to_records(
    examples,
    tokenizer,
    max_seq_length,
    doc_stride,
    max_query_length,
    is_training,
    do_lower_case,
    num_processes=1,
    report=None,
):
    """The windows of questions as serialized `tf.train.Example`, in order.

    Features of a record, all int64: ``unique_ids`` [1], ``input_ids, input_mask, segment_ids,
    p_mask`` [S], and for training ``start_positions, end_positions, is_impossible`` [1].

    Args:
      examples: list of `SquadExample`, already in the order wanted.
      num_processes: worker processes; paragraphs are dealt among them. With 1, or for few examples,
        the work is done in this process.
      For the rest see `squad_features.convert_examples_to_features`.

    Returns:
      Iterator of ``(record bytes, SquadFeatures)``; the features are None in training.

    Raises:
      InputError: as there.
      RuntimeError: a worker process ended before its work was done.
    """
    squad_features.check_lower_case(tokenizer, do_lower_case)
    settings = (tokenizer, max_seq_length, doc_stride, max_query_length, is_training)
    featurizer = squad_features.Featurizer(*settings)
    report = squad_features.FeatureReport() if report is None else report
    num_processes = min(num_processes, len(examples) // MIN_EXAMPLES_PER_PROCESS)
    if num_processes > 1:
        made = _batches_of_workers(examples, settings, num_processes)
    else:
        to_rows = functools.partial(_to_rows, is_training)
        made = squad_features.batches(enumerate(examples), featurizer, to_rows)
    return map(_to_record, squad_features.numbered(made, report, is_training))


# --- processes ---------------------------------------------------------------------------------


def _batches_of_workers(examples, settings, num_processes):
    """As `squad_features.batches`, from worker processes.

    A worker is a Python of its own that imports this module alone: a forked or spawned copy of the
    caller would carry or import TensorFlow. It reads all its work from a pipe before it writes, so
    the two pipes cannot block each other; a full pipe makes it wait.
    """
    owner = {}
    for example in examples:
        owner.setdefault(example.paragraph_text, len(owner) % num_processes)
    shares = [[] for _ in range(num_processes)]
    for index, example in enumerate(examples):
        shares[owner[example.paragraph_text]].append((index, example))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with contextlib.ExitStack() as stack:
        workers = []
        for _ in shares:
            process = subprocess.Popen(
                [sys.executable, "-c", _WORKER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
            )
            stack.callback(_stop, process)
            workers.append(process)
        for process, share in zip(workers, shares, strict=True):
            # A worker that is gone already is noticed when its results are read.
            with contextlib.suppress(BrokenPipeError), process.stdin as pipe:
                pickle.dump((settings, share), pipe, pickle.HIGHEST_PROTOCOL)
        results = [_results_of(process) for process in workers]
        for example in examples:
            yield [(example, next(results[owner[example.paragraph_text]]))]


def _stop(process):
    process.kill()
    process.stdout.close()
    process.wait()


def _results_of(process):
    while True:
        try:
            results = pickle.load(process.stdout)
        except (EOFError, pickle.UnpicklingError):
            raise RuntimeError(
                f"a process that makes SQuAD features ended early with code {process.wait()}; "
                "its own message is above"
            ) from None
        yield from results


def worker_main():
    """Work of one process: settings and questions from standard input, rows to standard output."""
    settings, share = pickle.load(sys.stdin.buffer)
    featurizer = squad_features.Featurizer(*settings)
    to_rows = functools.partial(_to_rows, settings[-1])
    for batch in squad_features.batches(share, featurizer, to_rows):
        rows = [rows for _, rows in batch]
        pickle.dump(rows, sys.stdout.buffer, pickle.HIGHEST_PROTOCOL)
        sys.stdout.buffer.flush()


# --- what decoding needs of the features ----------------------------------------------------------


def write_features_left(path, features, settings):
    """Writes what is needed to decode answers later, as lines of JSON; atomically.

    The ids are left out: they are in the records.

    Args:
      path: file to write.
      features: iterable of `SquadFeatures`.
      settings: JSON-ready dict of everything that the features depend on.

    Returns:
      Number of windows written.
    """
    header = {"format": _LEFT_FILE_FORMAT, "version": _LEFT_FILE_VERSION, "settings": settings}
    count = 0
    with file_io.atomic_writer(path) as file:
        file.write(json.dumps(header) + "\n")
        for item in features:
            row = [
                item.unique_id,
                item.qas_id,
                item.example_index,
                item.doc_span_index,
                item.max_seq_length,
                item.paragraph_len,
                item.text_begin,
                item.max_context,
                item.tok_start_to_orig_index,
                item.tok_end_to_orig_index,
            ]
            file.write(json.dumps(row, separators=(",", ":")) + "\n")
            count += 1
        file.write(json.dumps({"num_windows": count}) + "\n")
    return count


def read_features_left(path, settings):
    """Reads a file of `write_features_left`.

    Args:
      path: file to read.
      settings: what the features must have been made with.

    Returns:
      List of `SquadFeatures`; their `real_ids` are zeros.

    Raises:
      StaleFeaturesError: other settings (the first that differs is named) or version, or a file
        that is cut off.
      InputError: no such file, a pickle of the original toolkit, or another kind of file.
    """
    with file_io.open_input(path, "predict_feature_left_file", "rb") as file:
        lines = file.read().split(b"\n")
    if lines[0][:1] == b"\x80":
        raise InputError(
            f"predict_feature_left_file: {path} is a pickle, as the original toolkit wrote it. "
            "Pickles are not read, they can run any code; delete it or name another file, and it "
            "is made anew"
        )
    _check_header(path, lines[0], settings)
    try:
        rows = [file_io.parse_json(line) for line in lines[1:] if line]
        if not rows or rows[-1] != {"num_windows": len(rows) - 1}:
            raise ValueError("its last line is missing")
        return [_features_of_row(row) for row in rows[:-1]]
    except (OverflowError, TypeError, ValueError) as error:
        raise StaleFeaturesError(f"{path} is damaged ({error})") from error


def find_features_left(path, settings):
    """`read_features_left`, but None where the file has to be made, for the first time or again."""
    if not file_io.exists(path):
        return None
    try:
        return read_features_left(path, settings)
    except StaleFeaturesError as error:
        logging.warning("Making the features again: %s", error)
        return None


def _check_header(path, line, settings):
    try:
        header = file_io.parse_json(line)
    except ValueError:  # InputError is one
        header = None
    if not isinstance(header, dict) or header.get("format") != _LEFT_FILE_FORMAT:
        raise InputError(
            f"predict_feature_left_file: {path} is not a file of SQuAD features; name another"
        )
    if header.get("version") != _LEFT_FILE_VERSION:
        raise StaleFeaturesError(
            f"{path} has version {header.get('version')}, expected {_LEFT_FILE_VERSION}"
        )
    found, wanted = header.get("settings"), json.loads(json.dumps(settings))
    if not isinstance(found, dict):
        raise StaleFeaturesError(f"{path} does not say what it was made with")
    for key in sorted(set(found) | set(wanted)):
        if found.get(key) != wanted.get(key):
            raise StaleFeaturesError(
                f"{path} was made with {key} = {found.get(key)!r}, now it is {wanted.get(key)!r}"
            )


def _features_of_row(row):
    json_shapes.check(row, list, "a window")
    number, qas_id, example_index, span, length, used, begin, context, starts, ends = row
    if not 0 <= used <= length <= _MOST_TOKENS:
        raise ValueError(f"a window has {used} of {length} tokens")
    return squad_features.SquadFeatures(
        unique_id=number,
        qas_id=qas_id,
        example_index=example_index,
        doc_span_index=span,
        max_seq_length=length,
        real_ids=[0] * used,
        text_begin=begin,
        max_context=tuple(context),
        piece_start=np.array(starts, np.int32),
        piece_end=np.array(ends, np.int32),
    )


# --- Which questions of a SQuAD file a study works on: those with answers, those that fit, a share


_SPECIAL_PIECES = 3  # [CLS] and two [SEP]


@dataclasses.dataclass(frozen=True)
class Selection:
    """What is kept of the questions; the default keeps all.

    Attributes:
      answerable_only: only those with an answer.
      drop_longer_than: most tokens of question (cut as for the model) and text with [CLS] and both
        [SEP]; None for any number.
      share: share of what then is left, see `subsets.chosen`.
      share_name: what messages and settings call it.
      seed: see `subsets.chosen`.
    """

    answerable_only: bool = False
    drop_longer_than: int | None = None
    share: float = 1.0
    share_name: str = "train_fraction"
    seed: int = 0

    def __post_init__(self):
        subsets.check_share(self.share_name, self.share)

    @property
    def settings(self):
        """JSON-ready dict of what differs from keeping all, for the manifest of a record file."""
        settings = {}
        if self.answerable_only:
            settings["answerable_only"] = True
        if self.drop_longer_than is not None:
            settings["drop_longer_than"] = self.drop_longer_than
        if self.share < 1:
            settings |= {self.share_name: self.share, "seed": self.seed}
        return settings

    def choose(self, examples, tokenizer, max_query_length, path):
        """The questions that are kept, in order; says in the log how many.

        Args:
          examples: list of `squad_utils.SquadExample`.
          tokenizer: `tokenization.FullTokenizer`.
          max_query_length: most tokens of a question, more are cut off.
          path: their file, for messages.

        Raises:
          file_io.InputError: none is left, or it is not known which have an answer.
        """
        left = examples
        if self.answerable_only:
            left = [example for example in left if _is_answerable(example, path)]
            logging.info("%s: %d of %d questions have an answer", path, len(left), len(examples))
        if self.drop_longer_than is not None:
            fitting = self._fitting(left, tokenizer, max_query_length)
            logging.info(
                "%s: %d of %d questions fit in %d tokens with their text",
                path,
                len(fitting),
                len(left),
                self.drop_longer_than,
            )
            left = fitting
        if not left:
            raise file_io.InputError(
                f"{path}: none of the {len(examples)} questions is left by {self.settings}"
            )
        if self.share < 1:
            left = [left[place] for place in subsets.chosen(len(left), self.share, self.seed)]
            logging.info("%s: %d questions, %s=%g", path, len(left), self.share_name, self.share)
        return left

    def _fitting(self, examples, tokenizer, max_query_length):
        texts = list(dict.fromkeys(example.paragraph_text for example in examples))
        tokens = dict(zip(texts, map(len, tokenizer.encode_batch(texts)), strict=True))
        questions = tokenizer.encode_batch([example.question_text for example in examples])
        room = self.drop_longer_than - _SPECIAL_PIECES
        return [
            example
            for example, question in zip(examples, questions, strict=True)
            if min(len(question), max_query_length) + tokens[example.paragraph_text] <= room
        ]


ALL = Selection()


def _is_answerable(example, path):
    if example.answers is None and not example.is_impossible:
        raise file_io.InputError(
            f"answerable_only: {path} does not say whether question {example.qas_id!r} has answers"
        )
    return bool(example.answers) and not example.is_impossible
