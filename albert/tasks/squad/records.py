"""Serializes the windows of SQuAD questions as records, in several processes.

Worker processes run this module, so it does not import TensorFlow.
"""

import contextlib
import functools
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from albert.data import tfrecord
from albert.io import file_io
from albert.tasks.squad import features as squad_features
from albert.tasks.squad.features import SquadExample, SquadFeatures
from albert.text import model_inputs, tokenization

V1, V2 = "squad_v1", "squad_v2"  # kinds of tasks, in the names of files
# A worker takes about half a second to start, the time of 4,000 questions.
MIN_EXAMPLES_PER_PROCESS = 4000
_WORKER = "from albert.tasks.squad import records; records.worker_main()"


@functools.cache
def feature_specs(seq_length: int, is_training: bool) -> tuple[tfrecord.FeatureSpec, ...]:
    """Returns the `tfrecord.FeatureSpec` of each feature of records, for training with answers."""
    spec = tfrecord.FeatureSpec
    sequences = (*model_inputs.NAMES, "p_mask")
    scalars = ("start_positions", "end_positions", "is_impossible") if is_training else ()
    return (
        spec("unique_ids", "int64"),
        *(spec(name, "int64", (seq_length,), sequence=True) for name in sequences),
        *(spec(name, "int64") for name in scalars),
    )


def fingerprint(
    data_file: str, tokenizer: tokenization.FullTokenizer, settings: Mapping[str, Any], split: str
) -> dict[str, Any]:
    """Returns a JSON-ready dict of everything that a file of features depends on.

    Args:
      settings: {name: value} of those that features depend on, such as max_seq_length.
      split: "train" or "predict".
    """
    return {
        **settings,
        "alignment": squad_features.ALIGNMENT,
        **tokenizer.rules.to_json(),
        "vocabulary_sha256": file_io.sha256(tokenizer.vocabulary_file),
        "data_sha256": file_io.sha256(data_file),
        "split": split,
    }


def feature_entries(features: SquadFeatures, is_training: bool) -> bytes:
    """Serializes all features of one window's `tf.train.Example` except ``unique_ids``."""
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
    tfrecord.check_names(feature_specs(0, is_training)[1:], columns)
    return b"".join(
        tfrecord.int64_header(name, len(payload)) + payload for name, payload in columns.items()
    )


def _to_record(
    item: tuple[int, tuple[bytes, SquadFeatures | None]],
) -> tuple[bytes, SquadFeatures | None]:
    """Returns the record and window of (unique id, (serialized features, window or None))."""
    number, (entries, features) = item
    if features is not None:
        features.unique_id = number
    unique_id = tfrecord.varint(number)
    header = tfrecord.int64_header("unique_ids", len(unique_id))
    return tfrecord.example([header, unique_id, entries]), features


def _to_rows(
    is_training: bool, windows: list[SquadFeatures]
) -> list[tuple[bytes, SquadFeatures | None]]:
    """Returns (serialized features, window) of each window; the windows are None in training."""
    return [
        (feature_entries(features, is_training), None if is_training else features)
        for features in windows
    ]


def convert_examples_to_records(
    examples: Sequence[SquadExample],
    tokenizer: tokenization.FullTokenizer,
    lengths: tuple[int, int, int],
    is_training: bool,
    num_processes: int = 1,
    report: squad_features.FeatureReport | None = None,
) -> Iterator[tuple[bytes, SquadFeatures | None]]:
    """Converts questions to windows, each a serialized `tf.train.Example`, in order.

    Features of a record, all int64: ``unique_ids`` [1], ``input_ids, input_mask, segment_ids,
    p_mask`` [S], and for training ``start_positions, end_positions, is_impossible`` [1].

    Args:
      lengths: (S, pieces between starts of windows, maximum pieces of a question).
      num_processes: worker processes, among which paragraphs are split. With 1, or for few
        examples, this process does the work.

    Returns:
      Iterator of ``(record bytes, SquadFeatures)``; the features are None in training.

    Raises:
      InputError: contradictory lengths, or too many questions dropped in training.
      RuntimeError: a worker process ended before its work was done.
    """
    settings = (tokenizer, *lengths, is_training)
    featurizer = squad_features.Featurizer(*settings)
    report = squad_features.FeatureReport() if report is None else report
    num_processes = min(num_processes, len(examples) // MIN_EXAMPLES_PER_PROCESS)
    if num_processes > 1:
        batches = _batches_of_workers(examples, settings, num_processes)
    else:
        to_rows = functools.partial(_to_rows, is_training)
        batches = squad_features.batches(enumerate(examples), featurizer, to_rows)
    return map(_to_record, squad_features.numbered(batches, report, is_training))


def _batches_of_workers(
    examples: Sequence[SquadExample], settings: tuple, num_processes: int
) -> Iterator[squad_features.Batch]:
    """Yields the batches of `squad_features.batches`, made in worker processes.

    A worker is a new Python process that imports only this module: a forked or spawned copy of the
    caller would carry or import TensorFlow. It reads all its work from a pipe before it writes, so
    the two pipes cannot block each other; a full pipe makes it wait.

    `settings` are the arguments of `squad_features.Featurizer`, the tokenizer first.
    """
    owner: dict[str, int] = {}
    for example in examples:
        owner.setdefault(example.paragraph_text, len(owner) % num_processes)
    parts: list[list[tuple[int, SquadExample]]] = [[] for _ in range(num_processes)]
    for index, example in enumerate(examples):
        parts[owner[example.paragraph_text]].append((index, example))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with contextlib.ExitStack() as stack:
        workers = []
        for _ in parts:
            process = subprocess.Popen(
                [sys.executable, "-c", _WORKER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
            )
            stack.callback(_stop, process)
            workers.append(process)
        for process, part in zip(workers, parts, strict=True):
            assert process.stdin
            # If the worker has already ended, reading its results reports it.
            with contextlib.suppress(BrokenPipeError), process.stdin as pipe:
                pickle.dump((settings, part), pipe, pickle.HIGHEST_PROTOCOL)
        results = [_results_of(process) for process in workers]
        for example in examples:
            yield [(example, next(results[owner[example.paragraph_text]]))]


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ends a worker process at once."""
    assert process.stdout
    process.kill()
    process.stdout.close()
    process.wait()


def _results_of(process: subprocess.Popen[bytes]) -> Iterator[list | str]:
    """Yields from a worker process the `_to_rows` of each question, or why it has no window."""
    assert process.stdout
    while True:
        try:
            results = pickle.load(process.stdout)
        except (EOFError, pickle.UnpicklingError):
            raise RuntimeError(
                f"a process that makes SQuAD features ended early with code {process.wait()}; "
                "its own message is above"
            ) from None
        yield from results


def worker_main() -> None:
    """Runs a worker: reads settings and questions from stdin, writes rows to stdout."""
    settings, part = pickle.load(sys.stdin.buffer)
    featurizer = squad_features.Featurizer(*settings)
    to_rows = functools.partial(_to_rows, settings[-1])
    for batch in squad_features.batches(part, featurizer, to_rows):
        rows = [rows for _, rows in batch]
        pickle.dump(rows, sys.stdout.buffer, pickle.HIGHEST_PROTOCOL)
        sys.stdout.buffer.flush()
