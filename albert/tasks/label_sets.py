"""Several labels per text, read as a list, as names with a separator, or as a column for each.

For arguments see also `custom`. `form` is how rows name labels.
"""

import ast
import collections
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from absl import logging

from albert.io import file_io, tables
from albert.model import decision as decisions
from albert.model import model_folder
from albert.tasks import custom, glue, model_labels
from albert.text import long_texts

KIND = model_labels.MULTI_LABEL  # kind of model folders
LABEL_TYPE = "multi_label"  # its name in flags and settings
SEPARATOR = ","
_BITS = {"0": False, "1": True, "false": False, "true": True}


@dataclasses.dataclass(frozen=True)
class LabelFormat:
    """How a row names its labels: in the column of the labels unless `columns` are given.

    Attributes:
      separator: text between names in a column of .csv or .tsv, and in predictions; .jsonl has
        lists.
      columns: columns with 1 for texts that have the label of this name, and else 0.

    Raises file_io.InputError if the separator is empty or the columns repeat.
    """

    separator: str = SEPARATOR
    columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not tables.is_name(self.separator):
            raise file_io.InputError(
                "label_separator must be a text without tabs and line breaks, which divide files "
                f"of predictions; found {self.separator!r}"
            )
        are_names = all(map(tables.is_name, self.columns))
        if not are_names or len(set(map(tables.label_key, self.columns))) < len(self.columns):
            raise file_io.InputError(
                f"label_columns must be different names, found {tables.name_list(self.columns)} "
                "(1 and 1.0 are one label)"
            )

    @property
    def settings(self) -> dict[str, Any]:
        """JSON-ready {"label_separator", "label_columns": value} for a model's folder."""
        return {"label_separator": self.separator, "label_columns": list(self.columns)}

    @classmethod
    def from_folder(cls, folder: model_folder.ModelFolder) -> "LabelFormat":
        """Builds the format in the description of a model."""
        separator = folder.setting("label_separator", lambda x: isinstance(x, str) and x != "")
        columns = folder.setting("label_columns", lambda value: isinstance(value, list))
        return cls(separator, tuple(columns))

    def check_separates(self, labels: Sequence[str], place: str) -> None:
        """Rejects labels with the separator in them; `place`: their origin, for messages."""
        for name in labels:
            if self.separator in name:
                raise file_io.InputError(
                    f"{place}: the label {name!r} has {self.separator!r} in it, which separates "
                    "the labels of predictions: give another label_separator"
                )

    def is_in(self, row: Mapping[str, Any], column: str | None) -> bool:
        """Returns whether a row, {column: value}, has labels; `column`: column of lists of them."""
        if self.columns:
            is_blank = all(tables.is_blank(row.get(name)) for name in self.columns)
            return not is_blank and all(name in row for name in self.columns)
        return not tables.is_blank(row.get(column or ""))

    def read(self, row: Mapping[str, Any], column: str | None, place: str) -> list[str]:
        """Returns the names of the labels of a row, as it spells them; [] if it has none.

        Args:
          column: column of the labels; None: `columns` have them.
        """
        if self.columns:
            return [name for name in self.columns if _read_bit(row, name, place)]
        assert column is not None
        value = tables.value_of(row, column, "label_column", place)
        names = [""]
        if isinstance(value, list):
            names = [tables.as_name(item) for item in value]
        elif isinstance(value, str):
            names = [name.strip() for name in value.split(self.separator)] if value.strip() else []
            if _is_list(value):
                raise file_io.InputError(
                    f"{place}: column {column!r} looks like a list, {value.strip()!r}; write the "
                    f"names with {self.separator!r} between (label_separator), or use a .jsonl file"
                )
        if not all(map(tables.is_name, names)):
            raise file_io.InputError(
                f"{place}: column {column!r} must be a list of names of labels, or names with "
                f"{self.separator!r} between (label_separator), or empty; found {value!r}"
            )
        return list(dict.fromkeys(names))


def _is_list(value: str) -> bool:
    """Returns whether a cell is a list in Python or JSON, as pandas writes it."""
    text = value.strip()
    try:
        return text.startswith("[") and isinstance(ast.literal_eval(text), list)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False


def _read_bit(row: Mapping[str, Any], column: str, place: str) -> bool:
    """Returns whether a column of a row is 1, not 0; `place`: file and line, for messages."""
    value = tables.value_of(row, column, "label_columns", place)
    bit = _BITS.get(tables.label_key(tables.as_name(value)).lower())
    if bit is None:
        raise file_io.InputError(
            f"{place}: column {column!r} (label_columns) must be 1 or 0, found {value!r}"
        )
    return bit


# --- the labels of a train file -------------------------------------------------------------------


def _count_labels(
    path: str, column: str | None, form: LabelFormat
) -> tuple[collections.Counter[str], collections.Counter[frozenset[str]]]:
    """Returns {label: number of its rows} and {set of labels: number of its rows} of a file.

    `column` is None if the form names columns.
    """
    spellings: dict[str, str] = {}
    counts: collections.Counter[str] = collections.Counter()
    sets: collections.Counter[frozenset[str]] = collections.Counter()
    for place, row in tables.read_file(path, custom.SPLIT_FLAGS["train"]):
        names = form.read(row, column, place)
        form.check_separates(names, place)
        keys = {tables.label_key(name): name for name in names}
        counts.update(spellings.setdefault(*item) for item in keys.items())
        sets[frozenset(keys)] += 1
    if not sets:
        raise file_io.InputError(f"{path}: there is no row")
    return counts, sets


def _check_counts(
    path: str,
    counts: Mapping[str, int],
    sets: Mapping[frozenset[str], int],
    form: LabelFormat,
    is_given: bool,
) -> None:
    """Rejects labels that cannot be learned, or that another separator would split."""
    total = sum(sets.values())
    if missing := [name for name in form.columns if not counts.get(name)]:
        raise file_io.InputError(
            f"{path}: no row has the labels {tables.name_list(missing)} (label_columns): "
            "they cannot be learned, leave them out"
        )
    if len(sets) == 1:
        (names,) = sets
        raise file_io.InputError(
            f"{path}: all {total} rows have the same labels "
            f"({tables.name_list(sorted(names)) or 'none'}): nothing can be learned; add "
            "texts with others, or name another column of labels"
        )
    if len(counts) < 2:
        raise file_io.InputError(
            f"{path}: several labels per text need two labels or more, found "
            f"{tables.name_list(counts)}; for a text that has a label or not, name both classes "
            "and give label_type=classification"
        )
    sizes = {len(names) for names in sets}
    if not form.columns and (sizes == {1} or (is_given and max(sizes) < 2)):
        raise file_io.InputError(
            f"{path}: the label_separator {form.separator!r} occurs in no row, no text has several "
            f"labels, and the first are {tables.name_list(counts, 5)}: give another "
            "label_separator, or label_type=classification"
        )


def find_labels(
    output_dir: str,
    files: Mapping[str, str],
    column: str | None,
    form: LabelFormat,
    is_given: bool = False,
    head: model_labels.ModelHead | None = None,
) -> tuple[str, ...]:
    """Finds the label names: those saved in the output folder, else those of the train file.

    The model to start from gives their order, and without a train file also the names.

    Args:
      column: column of the labels; None: the form names columns.
      is_given: whether the user gave the separator, which must then occur.

    Raises:
      file_io.InputError: there are no names, the labels cannot be learned, or they contradict
        those of the model.
    """
    labels = custom.read_labels_of(output_dir, LABEL_TYPE)
    if labels is not None:
        return labels
    if "train" not in files:
        if head is None or head.kind != KIND:
            raise custom.no_labels(output_dir)
        form.check_separates(head.labels, head.path)
        return head.labels
    path = files["train"]
    counts, sets = _count_labels(path, column, form)
    _check_counts(path, counts, sets, form, is_given)
    labels = form.columns or custom.label_order(counts)
    total, most = sum(sets.values()), max(map(len, sets))
    texts = [f"{tables.name_list([label])} ({counts[label]})" for label in labels]
    logging.info(
        "%d labels: %s; %d of %d texts have none, and a text has at most %d", len(labels),
        tables.text_list(texts), sets[frozenset()], total, most,
    )  # fmt: skip
    if everywhere := [label for label in labels if counts[label] == total]:
        logging.warning(
            "All texts of %s have the labels %s: these cannot be learned", path,
            tables.name_list(everywhere),
        )  # fmt: skip
    if head is not None:
        labels = custom.in_order_of(head, labels, data=path, kind=KIND)
        form.check_separates(labels, head.path)
    return labels


def answers_of(labels: Sequence[str], decision: decisions.Decision) -> long_texts.LabelSets:
    """Returns how a model with these label names, in the order of their ids, answers long texts."""
    return long_texts.LabelSets(decision.thresholds_of(len(labels)), decision.temperature)


# --- the task -------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class LabelSetTask(custom.CustomTask):
    """A task on the user's own files with several labels per text, see `custom.CustomTask`."""

    form: LabelFormat = LabelFormat()

    @property
    def best_metric(self) -> str:
        """Returns the metric that picks the best checkpoint."""
        return "micro_f1"

    @property
    def no_label(self) -> glue.Label:
        """Returns the labels of examples without any."""
        return ()

    def fingerprint(self, data_dir: str, split: str) -> dict[str, Any]:
        """Returns a JSON-ready dict that also has the format of labels; `data_dir` is not used."""
        return super().fingerprint(data_dir, split) | self.form.settings

    def has_labels(self, row: Mapping[str, Any]) -> bool:
        """Returns whether a row, {column: value}, has labels: of `columns` also if all are 0."""
        return self.form.is_in(row, self.columns.label)

    def label_of(self, row: Mapping[str, Any], place: str) -> glue.Label:
        """Returns the names of a row's labels, a tuple in the order of their ids."""
        names = {tables.label_key(label): label for label in self.labels}
        found = set()
        for name in self.form.read(row, self.columns.label, place):
            key = tables.label_key(name)
            if key not in names:
                raise file_io.InputError(
                    f"{place}: label {name!r}, expected labels of the training: "
                    f"{tables.name_list(self.labels)}; {custom.UNKNOWN}"
                )
            found.add(names[key])
        return tuple(label for label in self.labels if label in found)


def find_task(
    files: Mapping[str, str | None],
    columns: tables.Columns,
    output_dir: str,
    form: LabelFormat,
    is_given: bool = False,
    head: model_labels.ModelHead | None = None,
) -> LabelSetTask:
    """Returns the task of the user's own files; for the arguments see `find_labels`."""
    if form.columns:
        columns = dataclasses.replace(columns, label=None)
    given = {split: path for split, path in files.items() if path}
    custom.check_files(given, columns, *form.columns)
    labels = find_labels(output_dir, given, columns.label, form, is_given, head)
    return LabelSetTask(given, columns, labels, form=form)
