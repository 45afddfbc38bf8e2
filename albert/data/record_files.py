"""Writes TFRecord files with manifests, makes them once for the same settings, and checks them."""

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging
from google.protobuf import message

from albert.data import instance_shards, tfrecord
from albert.io import file_io, locks

FeatureSpec = tfrecord.FeatureSpec
Stamp = tuple[int, float]  # size, time of the last change

MANIFEST_VERSION = 1
# In TensorFlow's messages on a record that cannot be parsed, and on a file with other records.
_NO_EXAMPLE = ("Name: <unknown>", "Could not parse example input", "ParseExample")
_MISCOUNTED = "Input dataset was expected to contain"
TOO_WIDE = "a number does not fit in 32 bits"  # in the message of `input_pipeline.parse`


def encode(specs: Sequence[FeatureSpec], features: Mapping[str, Any]) -> bytes:
    """Serializes one feature dict as a `tf.train.Example`.

    Raises:
      ValueError: a feature is missing, undeclared, or has another number of values than declared.
    """
    tfrecord.check_names(specs, features)
    entries = []
    for spec in specs:
        values = np.asarray(features[spec.name], dtype=spec.dtype)
        if spec.size is not None and values.size != spec.size:
            raise ValueError(f"feature {spec.name} has {values.size} values, expected {spec.size}")
        entries.append(tfrecord.feature_entry(spec.name, values))
    return tfrecord.example(entries)


def manifest_path(path: str) -> str:
    """Returns the path of the manifest of a file of records."""
    return path + tfrecord.MANIFEST


def write(
    path: str,
    specs: Sequence[FeatureSpec],
    rows: Iterable[Mapping[str, Any]],
    settings: Mapping[str, Any],
    ids: list[str] | None = None,
    facts: Callable[[], Mapping[str, Any]] = dict,
) -> int:
    """Writes feature dicts to a TFRecord file and, last, its manifest; returns their number.

    Args:
      path: file to write; an existing one is replaced only when all rows have been written.
      settings: JSON-ready dict of everything that the content depends on.
      ids: list[str] that holds the examples' ids once all rows are read; stored in the manifest.
      facts: returns what else the manifest stores, see `read_facts`, once all rows are read.
    """
    serialized = (encode(specs, row) for row in rows)
    return write_serialized(path, specs, serialized, settings, ids, facts)


def write_serialized(
    path: str,
    specs: Sequence[FeatureSpec],
    serialized: Iterable[bytes],
    settings: Mapping[str, Any],
    ids: list[str] | None = None,
    facts: Callable[[], Mapping[str, Any]] = dict,
) -> int:
    """Does the same as `write` for serialized `tf.train.Example`s that fit the specifications."""
    temporary = file_io.temporary_name(path)
    count = 0
    try:
        with file_io.room_for(path), _remove_on_failure(temporary):
            with tf.io.TFRecordWriter(temporary) as writer:
                for example in serialized:
                    writer.write(example)
                    count += 1
            num_bytes = file_io.size(temporary)
            # A record file without a manifest is not used, so a killed process does no harm.
            file_io.remove(manifest_path(path))
            file_io.rename(temporary, path)
    except tf.errors.OpError as error:
        raise file_io.InputError(f"cannot write {path}: {error.message}") from error
    manifest = {
        "version": MANIFEST_VERSION,
        "num_examples": count,
        "num_bytes": num_bytes,
        "specs": [dataclasses.asdict(spec) for spec in specs],
        "settings": settings,
    }
    if found := dict(facts()):
        manifest["facts"] = found
    if ids is not None:
        manifest["ids"] = ids
    file_io.write_json(manifest_path(path), manifest)
    return count


@contextlib.contextmanager
def _remove_on_failure(path: str) -> Iterator[None]:
    try:
        yield
    except BaseException:
        file_io.remove(path)
        raise


def _stale_reason(
    path: str, specs: Sequence[FeatureSpec], settings: Mapping[str, Any]
) -> str | None:
    """Returns why the records at `path` cannot be used with these settings; None if they can."""
    if not file_io.exists(path):
        return "does not exist"
    if not file_io.exists(manifest_path(path)):
        return "has no manifest (it is unfinished, or another program made it)"
    try:
        manifest = file_io.read_json(manifest_path(path), "manifest", dict, max_bytes=None)
    except file_io.InputError as error:
        return f"cannot be used: {error}"
    if manifest.get("version") != MANIFEST_VERSION:
        return f"has manifest version {manifest.get('version')}, expected {MANIFEST_VERSION}"
    expected = {"num_examples": int, "num_bytes": int, "specs": list, "settings": dict}
    if not all(isinstance(manifest.get(key), kind) for key, kind in expected.items()):
        return "has a manifest of another form"
    if manifest["num_bytes"] != file_io.size(path):
        return f"has {file_io.size(path)} bytes, its manifest says {manifest['num_bytes']}"
    declared = [{**dataclasses.asdict(spec), "shape": list(spec.shape)} for spec in specs]
    if manifest["specs"] != declared:
        return "holds other features or lengths"
    for key in sorted(set(settings) | set(manifest["settings"])):
        value = manifest["settings"].get(key)
        if value != settings.get(key):
            return f"was made with {key} = {value!r}, now it is {settings.get(key)!r}"
    return None


def shared_name(path: str, specs: Sequence[FeatureSpec], settings: Mapping[str, Any]) -> str:
    """Returns the path of records of these settings in a folder that runs of other settings share.

    That is `path` itself if it was made with the same settings, else a name with their hash.
    """
    if _stale_reason(path, specs, settings) is None:
        return path
    what = json.dumps([[dataclasses.asdict(spec) for spec in specs], settings], sort_keys=True)
    stem, ending = os.path.splitext(path)
    return f"{stem}-{hashlib.sha256(what.encode()).hexdigest()[:8]}{ending}"


def cached(
    path: str,
    specs: Sequence[FeatureSpec],
    settings: Mapping[str, Any],
    make_rows: Callable[[], Iterable[Any]],
    writer: Callable[..., int] = write,
) -> int:
    """Makes a record file unless one has the same settings; returns its number of examples.

    Args:
      settings: JSON-ready dict of everything that the content depends on.
      make_rows: ``()``, yields what `writer`, `write` or `write_serialized`, takes.
    """
    return _make_once(
        path,
        lambda: _stale_reason(path, specs, settings),
        lambda: writer(path, specs, make_rows(), settings),
    )


def cached_with_ids(
    path: str,
    specs: Sequence[FeatureSpec],
    settings: Mapping[str, Any],
    make_rows: Callable[[], Iterable[tuple[Any, Mapping[str, Any]]]],
    facts: Callable[[], Mapping[str, Any]] = dict,
) -> int:
    """Does the same as `cached` for ``(id, feature dict)`` pairs; `read_ids` reads the ids.

    A record without an id (None) belongs to the example of the record before.
    """
    ids: list[str] = []

    def find_reason() -> str | None:
        reason = _stale_reason(path, specs, settings)
        no_ids = reason is None and read_ids(path) is None
        return "has no ids of its examples" if no_ids else reason

    def rows() -> Iterator[Mapping[str, Any]]:
        for guid, features in make_rows():
            if guid is not None:
                ids.append(guid)
            yield features

    return _make_once(path, find_reason, lambda: write(path, specs, rows(), settings, ids, facts))


def _make_once(path: str, find_reason: Callable[[], str | None], make: Callable[[], int]) -> int:
    """Makes a file if there is a reason, in one process at a time; returns its examples' number."""
    if find_reason() is None:
        return _read_count(path)
    file_io.make_dirs(os.path.dirname(path) or ".")
    with locks.made_by_one(path):
        reason = find_reason()  # Another process may have made it meanwhile.
        if reason is None:
            return _read_count(path)
        if file_io.exists(path):
            logging.warning("Making %s again: it %s", path, reason)
        count = make()
    logging.info("Wrote %d examples to %s", count, path)
    return count


def read_ids(path: str) -> list[str] | None:
    """Reads the ids of the examples of a record file, in order; None if its manifest has none."""
    return file_io.read_json(manifest_path(path), "manifest", dict, max_bytes=None).get("ids")


def read_facts(path: str) -> dict[str, Any]:
    """Reads what the maker of a record file found, see `write`; {} if it stored nothing."""
    manifest = file_io.read_json(manifest_path(path), "manifest", dict, max_bytes=None)
    return manifest.get("facts", {})


def read_integers(paths: Sequence[str], name: str) -> Iterator[int]:
    """Yields the integer of a feature of each record."""
    for serialized in serialized_examples(paths).as_numpy_iterator():
        yield tf.train.Example.FromString(serialized).features.feature[name].int64_list.value[0]


def _read_count(path: str) -> int:
    count = file_io.read_json(manifest_path(path), "manifest", max_bytes=None)["num_examples"]
    logging.info("Using %s: %d examples made earlier", path, count)
    return count


def with_compression(paths: Iterable[str]) -> tuple[list[str], list[str]]:
    """Returns (paths, the `compression_type` of each for `tf.data.TFRecordDataset`)."""
    kinds = []
    for path in paths:
        with file_io.open_file(path, "rb") as file:
            kinds.append("GZIP" if tfrecord.is_compressed(file) else "")
    return list(paths), kinds


def serialized_examples(paths: Sequence[str]) -> tf.data.Dataset:
    """Reads the records, scalar strings, of files one after the other; any may be compressed."""
    count_records(paths)
    paths, kinds = with_compression(paths)
    if len(set(kinds)) == 1:
        return tf.data.TFRecordDataset(paths, kinds[0])
    files = tf.data.Dataset.from_tensor_slices((paths, kinds))
    return files.flat_map(tf.data.TFRecordDataset)


def with_counts(paths: Sequence[str]) -> tuple[list[str], list[str], np.ndarray]:
    """Returns (paths, compression types, int64 numbers of records) for `counted_records`."""
    numbers = counts(paths)
    if not any(numbers):
        raise file_io.InputError(f"no records in {', '.join(paths)}")
    return *with_compression(paths), np.array(numbers, np.int64)


def counted_records(path: tf.Tensor, kind: tf.Tensor, count: tf.Tensor) -> tf.data.Dataset:
    """Reads the records of a file, which must have `count` records; the arguments are scalars.

    A file that is emptied or replaced while a run reads it causes an error of TensorFlow, which
    `report_damage` explains. Without it, endless data would wait for a record forever.
    """
    records = tf.data.TFRecordDataset(path, kind)
    return records.apply(tf.data.experimental.assert_cardinality(count))


def count_records(paths: Iterable[str]) -> int:
    """Counts the records in TFRecord files by their framing alone."""
    return sum(counts(paths))


def counts(paths: Iterable[str]) -> list[int]:
    """Counts the records in each of several TFRecord files; see `count_records`."""
    return [_count(path, _stamp(path)) for path in paths]


def _stamp(path: str) -> Stamp | None:
    """Returns what changes when a file is written; None if it does not exist."""
    try:
        return file_io.size(path), file_io.modified(path)
    except (OSError, tf.errors.NotFoundError):
        return None


@functools.lru_cache(maxsize=1 << 16)  # Files may have terabytes, and several callers ask.
def _count(path: str, stamp: Stamp | None) -> int:
    with file_io.open_input(path, "records", "rb") as file:
        tfrecord.check_not_text(file, path)
        try:
            return sum(1 for _ in tfrecord.read_record_lengths(file))
        except ValueError as error:
            raise file_io.InputError(f"{path} is damaged: {error}; make it again") from error


def mismatch(path: str, count: int) -> str | None:
    """Returns how a file differs from its manifest; None if it does not, or has no manifest."""
    if not file_io.exists(manifest_path(path)):
        return None
    manifest = file_io.read_json(manifest_path(path), "manifest", dict, max_bytes=None)
    values = {"num_bytes": file_io.size(path), "num_examples": count}
    wrong = [
        f"{name} is {value}, by its manifest {manifest.get(name)}"
        for name, value in values.items()
        if manifest.get(name) != value
    ]
    return "; ".join(wrong) or None


def check_files(paths: Sequence[str], specs: Sequence[FeatureSpec], hint: str) -> None:
    """Checks that files are complete, as far as possible, and fit the specifications.

    Messages on features end with the `hint`.

    TensorFlow accepts a file that ends within a record's header. A cut between two records shows
    only in the manifest, so the number of records is logged.
    """
    of_file = dict(zip(paths, counts(paths), strict=True))
    logging.info("%d records in %d file(s)", sum(of_file.values()), len(of_file))
    instance_shards.check_complete(paths, of_file)
    for path, count in of_file.items():
        if damage := mismatch(path, count):
            raise file_io.InputError(f"{path} has changed: {damage}; restore it or make it again")
    if not any(of_file.values()):
        raise file_io.InputError(f"no records in {', '.join(paths)}")
    for path in paths:
        if (example := first_example(path)) is not None:
            check_example(example, path, specs, hint)


def first_example(path: str) -> tf.train.Example | None:
    """Reads the first record of a file; None if it has none."""
    with report_damage([path]):
        for serialized in serialized_examples([path]).take(1):
            try:
                return tf.train.Example.FromString(serialized.numpy())
            except message.DecodeError as error:
                raise file_io.InputError(
                    f"{path}: the first record is not a tf.train.Example: {error}"
                ) from error
    return None


def check_example(
    example: tf.train.Example, path: str, specs: Sequence[FeatureSpec], hint: str
) -> None:
    """Checks that a record has the features of the specifications; ignores others.

    The message ends with the `hint`.
    """
    for spec in specs:
        if spec.name not in example.features.feature:
            raise file_io.InputError(
                f"{path} has no feature {spec.name!r}; it has "
                f"{sorted(example.features.feature)}. {hint}"
            )
        feature = example.features.feature[spec.name]
        kind = feature.WhichOneof("kind")
        expected = {"int64": "int64_list", "float32": "float_list"}[spec.dtype]
        if kind != expected:
            raise file_io.InputError(
                f"{path}: {spec.name} is a {kind}, expected a {expected}. {hint}"
            )
        size = len(getattr(feature, kind).value)
        if spec.size is not None and size != spec.size:
            raise file_io.InputError(
                f"{path}: {spec.name} has {size} values, expected {spec.size}. {hint}"
            )


def _find_unlike_record(paths: Sequence[str]) -> str:
    """Returns which record is not a `tf.train.Example`, or has other features than the first."""
    first = None
    for path in paths:
        for number, serialized in enumerate(serialized_examples([path]), 1):
            try:
                features = tf.train.Example.FromString(serialized.numpy()).features.feature
            except message.DecodeError:
                return f"{path}, record {number} is not a tf.train.Example"
            kinds = {name: feature.WhichOneof("kind") for name, feature in features.items()}
            first = first or kinds
            if kinds != first:
                return f"{path}, record {number} has other features than the first: {kinds}"
    return f"a record in {', '.join(paths)} has other lengths than the first"


def _find_too_wide(paths: Sequence[str]) -> str:
    """Returns which record has a number that does not fit in 32 bits, as models need."""
    widest = np.iinfo(np.int32)
    for path in paths:
        for number, serialized in enumerate(serialized_examples([path]), 1):
            example = tf.train.Example.FromString(serialized.numpy())
            for name, feature in example.features.feature.items():
                for place, value in enumerate(feature.int64_list.value):
                    if not widest.min <= value <= widest.max:
                        return f"{path}, record {number}: {name}[{place}] = {value}: {TOO_WIDE}"
    return f"{TOO_WIDE}, in {', '.join(paths)}"


@contextlib.contextmanager
def _report_changes(stamps: Mapping[str, Stamp | None]) -> Iterator[None]:
    """Turns a failed read into an error that names a changed file."""
    try:
        yield
    except (tf.errors.OpError, UnicodeDecodeError) as error:
        for path, stamp in stamps.items():
            if stamp != (now := _stamp(path)):
                before, after = (f"{x[0]} bytes" if x else "missing" for x in (stamp, now))
                raise file_io.InputError(
                    f"{path} was changed while it was read ({before}, now {after}): restore it or "
                    "make it again, then the same command resumes from the last checkpoint"
                ) from error
        if isinstance(error, tf.errors.FailedPreconditionError) and _MISCOUNTED in error.message:
            raise file_io.InputError(
                f"one of {', '.join(stamps)} was changed while it was read: {error.message}"
            ) from error
        raise


@contextlib.contextmanager
def report_damage(paths: Sequence[str]) -> Iterator[None]:
    """Turns a failed read inside the block into an error that names the file and the record.

    Removes the manifest of a damaged cache, so that it is made again.
    """
    before = {path: _stamp(path) for path in paths}
    try:
        with _report_changes(before):
            yield
    except (tf.errors.InvalidArgumentError, UnicodeDecodeError) as error:
        # ParseExample's message on bytes that it cannot parse holds them: it may not be UTF-8.
        text = "ParseExample" if isinstance(error, UnicodeDecodeError) else error.message
        if TOO_WIDE in text:
            raise file_io.InputError(f"{_find_too_wide(paths)}; make the file again") from error
        if not any(part in text for part in _NO_EXAMPLE):
            raise
        raise file_io.InputError(f"{_find_unlike_record(paths)}; make the file again") from error
    except tf.errors.DataLossError as error:
        count_records(paths)  # names the file if it is cut off
        again = "make the file again"
        if cached := [path for path in paths if file_io.exists(manifest_path(path))]:
            for path in cached:
                file_io.remove(manifest_path(path))
            again = "the same command makes the file again"
        raise file_io.InputError(
            f"a record in {', '.join(paths)} is damaged; {again} ({error.message})"
        ) from error
