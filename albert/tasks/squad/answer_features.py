"""Reads and writes the features that are needed to find answers in the scores, as lines of JSON."""

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
from absl import logging

from albert.io import file_io, json_shapes
from albert.io.file_io import InputError
from albert.tasks.squad import features as squad_features
from albert.tasks.squad.features import SquadFeatures

_FILE_FORMAT = "albert-squad-features-left"
_FILE_VERSION = 3
_MAX_TOKENS = 1 << 20  # a damaged length must not take all memory


class StaleFeaturesError(InputError):
    """The features are damaged or were made with other settings; they can be made again."""


def write(path: str, features: Iterable[SquadFeatures], settings: dict[str, Any]) -> int:
    """Writes the features that decoding needs, as lines of JSON; returns their number.

    It omits the ids of tokens, which are in the records.

    Args:
      settings: JSON-ready dict of everything that the features depend on.
    """
    header = {"format": _FILE_FORMAT, "version": _FILE_VERSION, "settings": settings}
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
                item.answer,
            ]
            file.write(json.dumps(row, separators=(",", ":")) + "\n")
            count += 1
        file.write(json.dumps({"num_windows": count}) + "\n")
    return count


def read(path: str, settings: dict[str, Any]) -> list[SquadFeatures]:
    """Reads a file of `write`; the `real_ids` of its windows are zeros.

    Args:
      settings: settings that the features must have been made with.

    Raises:
      StaleFeaturesError: the file has other settings (the message names the first that differs) or
        another version, or is truncated.
      InputError: no such file, a pickle of the original toolkit, or another kind of file.
    """
    with file_io.open_input(path, "predict_feature_left_file", "rb") as file:
        lines = file.read().split(b"\n")
    if lines[0][:1] == b"\x80":
        raise InputError(
            f"predict_feature_left_file: {path} is a pickle, as the original toolkit wrote it. "
            "Pickles are not read, they can run any code; delete it or name another file, and it "
            "is made again"
        )
    _check_header(path, lines[0], settings)
    try:
        rows = [file_io.parse_json(line) for line in lines[1:] if line]
        if not rows or rows[-1] != {"num_windows": len(rows) - 1}:
            raise ValueError("its last line is missing")
        return [_features_of_row(row) for row in rows[:-1]]
    except (OverflowError, TypeError, ValueError) as error:
        raise StaleFeaturesError(f"{path} is damaged ({error})") from error


def read_if_current(path: str, settings: dict[str, Any]) -> list[SquadFeatures] | None:
    """Returns the features of `read`; None if the file is missing or stale and must be made."""
    if not file_io.exists(path):
        return None
    try:
        return read(path, settings)
    except StaleFeaturesError as error:
        logging.warning("Making the features again: %s", error)
        return None


def _check_header(path: str, line: bytes, settings: dict[str, Any]) -> None:
    """Rejects files that `read` cannot use, by their first line; see its errors."""
    try:
        header = file_io.parse_json(line)
    except ValueError:  # InputError is one
        header = None
    if not isinstance(header, dict) or header.get("format") != _FILE_FORMAT:
        raise InputError(
            f"predict_feature_left_file: {path} is not a file of SQuAD features; name another"
        )
    if header.get("version") != _FILE_VERSION:
        raise StaleFeaturesError(
            f"{path} has version {header.get('version')}, expected {_FILE_VERSION}"
        )
    actual, expected = header.get("settings"), json.loads(json.dumps(settings))
    if not isinstance(actual, dict):
        raise StaleFeaturesError(f"{path} does not say what it was made with")
    for key in sorted(set(actual) | set(expected)):
        if actual.get(key) != expected.get(key):
            raise StaleFeaturesError(
                f"{path} was made with {key} = {actual.get(key)!r}, now it is {expected.get(key)!r}"
            )


def _features_of_row(row: Any) -> SquadFeatures:
    """Returns the window of a row of JSON: the list of its values that `write` writes."""
    json_shapes.check(row, list, "a window")
    number, qas_id, example_index, span, length, num_tokens, begin, context, starts, ends = row[:-1]
    if (answer := row[-1]) is not None:
        first, last = map(int, answer)
        answer = first, last
    if not 0 <= num_tokens <= length <= _MAX_TOKENS:
        raise ValueError(f"a window has {num_tokens} of {length} tokens")
    return squad_features.SquadFeatures(
        unique_id=number,
        qas_id=qas_id,
        example_index=example_index,
        doc_span_index=span,
        max_seq_length=length,
        real_ids=[0] * num_tokens,
        text_begin=begin,
        max_context=tuple(context),
        piece_start=np.array(starts, np.int32),
        piece_end=np.array(ends, np.int32),
        answer=answer,
    )
