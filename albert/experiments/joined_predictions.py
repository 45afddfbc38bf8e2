"""Joins predictions with right answers by id; labels and ids are named as in training.

Each row has a place (file and line, or question), so that an error can name both sides.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TypeVar

from absl import logging

from albert.io import file_io, tables
from albert.tasks import glue

_COLUMNS = ("id", "prediction")
_PROBABILITY = "probability_"


@dataclasses.dataclass(frozen=True, slots=True)
class Truth:
    """An example: its place, its text and its right answer."""

    place: str
    text: str
    label: str


@dataclasses.dataclass(frozen=True, slots=True)
class Guess:
    """A prediction: its place, its label or number, and its probability (None for numbers)."""

    place: str
    prediction: str
    probability: float | None = None


@dataclasses.dataclass(frozen=True)
class Table:
    """A table of predictions.

    Attributes:
      labels: names of the labels of the model; empty for numbers.
      guesses: {id: prediction}.
    """

    labels: tuple[str, ...]
    guesses: Mapping[str, Guess]


_Row = TypeVar("_Row", Truth, Guess)


def by_id(rows: Iterable[tuple[str, _Row]]) -> dict[str, _Row]:
    """Returns {id: row} of pairs.

    Raises:
      file_io.InputError: an id is repeated; names it and both places.
    """
    result: dict[str, _Row] = {}
    for key, row in rows:
        if key in result:
            raise file_io.InputError(
                f"{row.place}: the id {key!r} is already that of {result[key].place}; ids must "
                "differ: name another column with id_column, or none, so that rows are numbered"
            )
        result[key] = row
    return result


def read_truths(path: str, flag: str, columns: tables.Columns) -> dict[str, Truth]:
    """Reads {id: example} of a file of labeled rows.

    Args:
      path: csv, tsv or jsonl.
      flag: the flag that names it.
      columns: its columns; those of the texts may be missing.

    Raises:
      file_io.InputError: a row has no label or id, or an id is repeated.
    """

    def rows():
        for number, (place, row) in enumerate(tables.read_file(path, flag)):
            label = tables.name_of(row, columns.label, "label_column", place)
            key = str(number)
            if columns.guid:
                key = tables.name_of(row, columns.guid, "id_column", place)
            names = filter(None, (columns.text, columns.text_pair))
            text = " / ".join(str(row[name]) for name in names if name in row)
            yield key, Truth(place, text, label)

    return by_id(rows())


def _probabilities_of(row):
    """Returns {label: probability} of a row; {} for numbers."""
    own = row.get("probabilities")
    if isinstance(own, dict):
        return own
    names = (name for name in row if name.startswith(_PROBABILITY))
    return {name.removeprefix(_PROBABILITY).strip(): row[name] for name in names}


def read_table(path: str) -> Table:
    """Reads a table with the columns id and prediction, and a probability of each label.

    Raises:
      file_io.InputError: a column is missing, an id is repeated, a prediction is none of the labels
        that the row has probabilities of, or these differ from those of other rows.
    """
    labels: tuple[str, ...] | None = None
    rows = []
    for place, row in tables.read_file(path, "predictions"):
        if not row.keys() >= set(_COLUMNS):
            raise file_io.InputError(
                f"{place}: expected the columns {' and '.join(_COLUMNS)}, found "
                f"{tables.name_list(row)}; predict again, or move the file away"
            )
        key, name = (tables.name_of(row, column, "predictions", place) for column in _COLUMNS)
        probabilities = _probabilities_of(row)
        labels = tuple(probabilities) if labels is None else labels
        if set(labels) != set(probabilities):
            raise file_io.InputError(
                f"{place}: the probabilities are those of {', '.join(probabilities)}, in the first "
                f"row those of {tables.name_list(labels)}"
            )
        if labels and name not in probabilities:
            raise file_io.InputError(
                f"{place}: the prediction {name!r} has no probability; only "
                f"{tables.name_list(labels)} have one"
            )
        probability = number_of(probabilities[name], place) if labels else None
        rows.append((key, Guess(place, name, probability)))
    return Table(labels or (), by_id(rows))


def number_of(value: str | float, place: str) -> float:
    """Returns the finite number in a text.

    Raises:
      file_io.InputError: it is none; names the place.
    """
    if not isinstance(value, (str, int, float)) or not glue.is_number(str(value)):
        raise file_io.InputError(
            f"{place}: expected a number, found {value!r}; predictions of labels need the column "
            f"{_PROBABILITY}NAME of each label"
        )
    return float(value)


def join(
    path: str, examples: Mapping[str, str], guesses: Mapping[str, str], is_part: bool = False
) -> list[str]:
    """Returns the ids of the predicted examples in the order of the data.

    Args:
      path: file of the predictions, for messages.
      examples, guesses: {id: place} of both sides.
      is_part: whether only a part of the examples was to be predicted.

    Raises:
      file_io.InputError: an example has no prediction, or a prediction no example; names the first.
    """
    missing = [] if is_part else [key for key in examples if key not in guesses]
    extra = [key for key in guesses if key not in examples]
    problems = [
        f"{len(keys)} of {len(places)} {what}, the first is {keys[0]!r} ({places[keys[0]]})"
        for keys, places, what in (
            (missing, examples, "examples have no prediction"),
            (extra, guesses, "predictions belong to no example"),
        )
        if keys
    ]
    if problems or not examples:
        raise file_io.InputError(
            f"{path} holds the predictions of other examples than the data: "
            f"{'; '.join(problems) or 'there is no example'}; predict again, or name the column of "
            "the ids with id_column"
        )
    return [key for key in examples if key in guesses]


def _names_of_model(spellings: Iterable[str], labels: tuple[str, ...]) -> dict[str, str | None]:
    """Returns {label of the data: name that the model gives it}; None without such a name."""
    words = glue.find_words(labels)
    names = {}
    for label in spellings:
        names[label] = tables.match_label(label, labels) or words.get(tables.label_key(label))
        if names[label] in words.values() and names[label] != label:
            logging.info("The label %s counts as %s, as in GLUE", label, names[label])
    return names


def join_table(
    truths: Mapping[str, Truth], path: str, table: Table, is_part: bool
) -> dict[str, tuple[Truth, Guess]]:
    """Returns {id: example and prediction} in the order of the data; see `join`.

    The labels of the examples get the names that the model gives them, as in training, and 0 and
    1 the words of a GLUE task.

    Raises:
      file_io.InputError: ids differ, or an example has a label that the model does not have.
    """
    places = ({key: row.place for key, row in rows.items()} for rows in (truths, table.guesses))
    keys = join(path, *places, is_part)
    spellings = {truth.label for truth in truths.values()}
    names = _names_of_model(spellings, table.labels)
    for truth in truths.values():
        if table.labels and names[truth.label] is None:
            raise file_io.InputError(
                f"{truth.place}: the label {truth.label!r} is none of the labels in {path}: "
                f"{tables.name_list(table.labels)}"
            )
    pairs = {}
    for key in keys:
        truth = truths[key]
        named = dataclasses.replace(truth, label=names[truth.label] or truth.label)
        pairs[key] = named, table.guesses[key]
    return pairs
