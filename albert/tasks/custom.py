"""Classification and regression of the user's own data: files with named columns, see `tables`.

Arguments: `files` is {split: path}, `row` {column: text or value of JSON}, `place` file and line of
a row, for messages, and `head` that of the model to start from, None if it has none.
"""

import dataclasses
import decimal
import functools
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from absl import logging

from albert.io import file_io, tables
from albert.model import decision as decisions
from albert.model import head_config, label_scale, model_folder, sources
from albert.tasks import glue, metrics, model_labels

NAME = "custom"

LABELS_NAME = sources.LABELS_NAME
KINDS = ("classification", "regression")
_REGRESSION_SCORES = (
    *glue.REGRESSION_SCORES,
    ("MAE", metrics.mean_absolute_error),
    ("R2", metrics.r_squared),
)
# The remedy for a label that the training did not have.
UNKNOWN = (
    "correct the row, or train with examples of this label in an empty folder, as "
    f"{LABELS_NAME} keeps the names of a folder's first training"
)
SPLIT_FLAGS = {"train": "train_file", "dev": "validation_file", "test": "test_file"}
_NOT_FINITE = {sign + name for sign in ("", "-", "+") for name in ("nan", "inf", "infinity")}
_WITH_POINT = re.compile(r"[-+]?(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][-+]?\d+)?")
_RARE = 10  # names among measured numbers are a mistake if at most one row of this many has one
_MAX_NUMBERED_CLASSES = 20  # more whole numbers with a decimal point are measurements


# --- labels -----------------------------------------------------------------------------------


def label_order(names: Collection[str]) -> tuple[str, ...]:
    """Sorts label names by id: numbers by value, everything else alphabetically."""
    numbers = all(re.fullmatch(r"[-+]?\d{1,1000}(\.\d{0,1000})?", name) for name in names)
    by_value = functools.partial(sorted, key=lambda name: (decimal.Decimal(name), name))
    return tuple(by_value(names) if numbers else sorted(names))


def find_positive(names: Iterable[str]) -> str:
    """Returns the label, of two in any order, whose F1 and ranking are scores."""
    names = tuple(names)
    if (task := glue.find_labels(names)) is not None:
        return task.labels[task.positive]
    return glue.find_words(names).get(glue.POSITIVE) or label_order(names)[-1]


def _read_label(row: Mapping[str, Any], column: str | None, place: str) -> str:
    """Returns the only label of a row as text."""
    if isinstance(row.get(column or ""), list):
        raise file_io.InputError(
            f"{place}: column {column!r} must be one label, found a list; for several labels per "
            "text give label_type=multi_label"
        )
    return tables.name_of(row, column or "", "label_column", place)


@dataclasses.dataclass(frozen=True)
class _Counts:
    """The labels of a train file.

    Attributes:
      rows: {label: number of its rows}.
      places: {label: file and line of its first row}.
    """

    path: str
    rows: dict[str, int]
    places: dict[str, str]

    @classmethod
    def read(cls, path: str, column: str) -> "_Counts":
        """Counts the labels in a column, or under a key, of a file."""
        rows: dict[str, int] = {}
        places: dict[str, str] = {}
        for place, row in tables.read_file(path, SPLIT_FLAGS["train"]):
            name = _read_label(row, column, place)
            rows[name] = rows.get(name, 0) + 1
            places.setdefault(name, place)
        if not rows:
            raise file_io.InputError(f"{path}: there is no row")
        return cls(path, rows, places)

    @property
    def are_numbers(self) -> bool:
        """Whether all labels are numbers."""
        return all(map(glue.is_number, self.rows))

    @property
    def total(self) -> int:
        """The number of rows."""
        return sum(self.rows.values())

    def check_finite(self) -> None:
        """Rejects missing numbers: "nan" and, among numbers, infinities."""
        others = [name for name in self.rows if not glue.is_number(name)]
        names = [name for name in others if name.lower() in _NOT_FINITE]
        has_words = len(names) < len(others)
        if has_words:
            names = [name for name in names if name.lower() == "nan"]
        if names:
            raise file_io.InputError(
                f"{self.path}: {sum(self.rows[name] for name in names)} labels are {names[0]!r}, "
                f"the others {'names' if has_words else 'numbers'}; the first is in "
                f"{self.places[names[0]]}: remove these rows, or give label_type=classification"
            )

    def guess_kind(self) -> str:
        """Guesses the kind of labels, and logs why: measurements are a regression."""
        numbers = {name: float(name) for name in self.rows if glue.is_number(name)}
        broken = [name for name, value in numbers.items() if not value.is_integer()]
        is_measured = bool(numbers) and (bool(broken) or self._measures(set(numbers.values())))
        others = [name for name in self.rows if name not in numbers]
        if is_measured and others:
            self._check_mostly_names(others)
        is_regression = is_measured and not others
        reason = ""
        if is_regression and broken:
            count = sum(self.rows[name] for name in broken)
            reason = (
                f"{self.places[broken[0]]}: the label {broken[0]!r} is not a whole number, as in "
                f"{count} of {self.total} rows. "
            )
        change = f"; if that is wrong, give label_type={KINDS[not is_regression]}"
        logging.info(
            "%sThe labels of %s suggest %s%s",
            reason,
            self.path,
            KINDS[is_regression],
            change if len(numbers) == len(self.rows) else "",
        )
        return KINDS[is_regression]

    def _check_mostly_names(self, others: Sequence[str]) -> None:
        """Rejects some names among measured numbers; `others`: the labels that are names."""
        count = sum(self.rows[name] for name in others)
        if _RARE * count > self.total:
            return
        raise file_io.InputError(
            f"{self.places[others[0]]}: the label {others[0]!r} is not a number, as in {count} of "
            f"{self.total} rows; the others are. Correct or remove these rows, or give "
            "label_type=classification if the numbers are names"
        )

    def _measures(self, values: set[float]) -> bool:
        """Returns whether these values of labels, whole numbers, are measurements, not classes."""
        pointed = sum(count for name, count in self.rows.items() if _WITH_POINT.fullmatch(name))
        if 2 * pointed < self.total:
            return False  # The point is only another spelling in a few rows.
        repeats = self.total >= 2 * len(values)
        counts_up = max(values) - min(values) == len(values) - 1
        return len(values) > _MAX_NUMBERED_CLASSES or not (repeats or counts_up)

    def classes(self) -> dict[str, int]:
        """Returns {label: rows}, with the most frequent spelling of each label."""
        spellings: dict[str, list[str]] = {}
        for name in self.rows:
            spellings.setdefault(tables.label_key(name), []).append(name)
        return {
            max(names, key=lambda name: self.rows[name]): sum(self.rows[name] for name in names)
            for names in spellings.values()
        }


def _labels_of_counts(counts: _Counts, kind: str | None) -> tuple[str, ...]:
    """Returns the labels of a train file from its `_Counts`; () for regression."""
    if kind is None:
        counts.check_finite()
    if (kind or counts.guess_kind()) == "regression":
        return ()
    classes = counts.classes()
    if len(classes) < 2:
        raise file_io.InputError(
            f"{counts.path}: classification needs two labels or more; all {counts.total} rows "
            f"have {next(iter(classes))!r}: add rows with others, or name another label_column"
        )
    labels = label_order(classes)
    texts = [f"{tables.name_list([label])} ({classes[label]})" for label in labels]
    logging.info("%d labels: %s", len(labels), tables.text_list(texts))
    return labels


def find_labels(
    output_dir: str,
    files: Mapping[str, str],
    columns: tables.Columns,
    kind: str | None = None,
    head: model_labels.ModelHead | None = None,
) -> tuple[str, ...]:
    """Finds the label names: those saved in the output folder, else those of the train file.

    The model to start from gives their order, and without a train file also the names.

    Args:
      kind: "classification" or "regression"; None: regression if all labels are numbers that
        measure something, because one is not whole, or most have a decimal point and they are more
        than a few values, or the model to start from is a regression.

    Returns:
      Names in the order of their ids; empty for regression.

    Raises:
      file_io.InputError: both are missing, the saved labels are of the other kind, there is only
        one label, or the labels contradict those of the model.
    """
    labels = read_labels_of(output_dir, kind)
    if labels is not None:
        return labels
    classifier = head if head and head.kind == glue.KIND else None
    if "train" not in files and classifier:
        return _labels_of_head(classifier, files, columns, kind)
    if "train" not in files:
        raise no_labels(output_dir)
    counts = _Counts.read(files["train"], columns.label or "")
    if kind is None and classifier and not classifier.labels and counts.are_numbers:
        logging.info("%s is a regression of numbers, so this run is one", classifier.path)
        kind = "regression"
    labels = _labels_of_counts(counts, kind)
    return in_order_of(head, labels, data=files["train"]) if head else labels


def read_labels_of(output_dir: str, label_type: str | None) -> tuple[str, ...] | None:
    """Returns the label names saved in the folder of a run; None if it has none.

    Args:
      label_type: "multi_label", or a member of `KINDS`; None: whichever of `KINDS` was saved.
    """
    labels = read_labels(output_dir)
    if labels is None:
        return None
    wanted = label_type or KINDS[not labels]
    # Names without a description may be those of one label per text or of several.
    saved = wanted if labels and wanted != KINDS[1] else KINDS[not labels]
    settings = model_folder.described_settings(output_dir)
    if settings is not None:
        saved = settings.get("label_type") or KINDS[not labels]
    if saved != wanted:
        raise file_io.InputError(
            f"label_type={wanted}, but {os.path.join(output_dir, LABELS_NAME)} is that of a run "
            f"with label_type={saved}: give that label_type, or another output_dir"
        )
    return labels


def no_labels(output_dir: str) -> file_io.InputError:
    """Returns the error of a run that finds no names of labels."""
    return file_io.InputError(
        f"there is no {os.path.join(output_dir, LABELS_NAME)} with the names of the labels: "
        "expected output_dir to be that of a training run, or train_file"
    )


def in_order_of(
    head: model_labels.ModelHead,
    labels: tuple[str, ...],
    words: Mapping[str, str] | None = None,
    data: str = "the data",
    kind: str = glue.KIND,
) -> tuple[str, ...]:
    """Returns the labels in the order of a classifier's head, as they are if it must be new.

    For the errors see `model_labels.ModelHead.order`.

    Args:
      words: {label: its meaning}, which may also name the head's labels; None: none.
    """
    ordered = head.order(kind, labels, words, data)
    if ordered:
        model_labels.report(head, ordered, labels)
    return ordered or labels


def _labels_of_head(
    head: model_labels.ModelHead,
    files: Mapping[str, str],
    columns: tables.Columns,
    kind: str | None,
) -> tuple[str, ...]:
    """Returns the labels of a model, of which there is no train file; () for regression."""
    own_kind = KINDS[not head.labels]
    if kind not in (None, own_kind):
        raise file_io.InputError(f"label_type={kind}, but {head.path} is that of a {own_kind}")
    labeled = next((s for s in ("dev", "test") if columns.label in _first_row(files, s)), None)
    if head.is_unnamed and labeled:
        names = _Counts.read(files[labeled], columns.label or "").classes()
        numbers = tuple(map(str, range(len(head.labels))))
        if set(map(tables.label_key, names)) <= set(numbers):
            return in_order_of(head, numbers)
        raise file_io.InputError(head.difference(glue.KIND, label_order(names)))
    return head.labels


def _first_row(files: Mapping[str, str], split: str) -> Mapping[str, Any]:
    """Returns the first row, {column: value}, of the file of a split; empty if there is none."""
    if split not in files:
        return {}
    return next((row for _, row in tables.read_file(files[split], SPLIT_FLAGS[split])), {})


def save_labels(output_dir: str, labels: Iterable[str]) -> None:
    """Writes ``labels.json``: the list of names in the order of their ids."""
    file_io.write_json(os.path.join(output_dir, LABELS_NAME), list(labels))


def labels_of(folder: model_folder.ModelFolder) -> tuple[str, ...]:
    """Returns the label names of a fine-tuned classifier in the order of their ids."""
    labels = folder.setting("labels", _are_labels)
    file_labels = read_labels(folder.path)
    if file_labels is not None and list(file_labels) != labels:
        raise file_io.InputError(
            f"{folder.path}: {LABELS_NAME} holds {list(file_labels)}, the description of the model "
            f"{labels}; put back the one that the training wrote"
        )
    return tuple(labels)


def names_of(folder: model_folder.ModelFolder) -> tuple[str, ...]:
    """Returns the label names by id for people to read: in words, if `glue.words_of` has them."""
    words = glue.words_of(folder.settings.get("task_name"))
    return tuple(words.get(label, label) for label in labels_of(folder))


def _are_labels(value: object) -> bool:
    """Returns whether a value of JSON is a list of names of labels."""
    return (
        isinstance(value, list)
        and all(map(tables.is_name, value))
        and len(set(value)) == len(value)
    )


def read_labels(folder: str) -> tuple[str, ...] | None:
    """Returns the names in the ``labels.json`` of a folder; None if it does not exist."""
    path = os.path.join(folder, LABELS_NAME)
    if not file_io.exists(path):
        return None
    labels = file_io.read_json(path, "labels")
    if not _are_labels(labels):
        raise file_io.InputError(
            f"{path} must hold a list of different label names, found {labels!r}"
        )
    return tuple(labels)


# --- task -------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class CustomTask:
    """A task on the user's own files, with the attributes of `glue.GlueTask`.

    In all methods, `use_spm` is whether to normalize texts for SentencePiece, `do_lower_case`
    whether this also lower-cases them. `data_dir` is not used.

    Attributes:
      files: {split: path} of the given splits among "train", "dev" and "test".
      name: short name, part of the names of cached files.
    """

    files: dict[str, str]
    columns: tables.Columns
    labels: tuple[str, ...]
    name: str = NAME

    def in_order(self, labels: tuple[str, ...]) -> "CustomTask":
        """Returns the task with the same labels in another order."""
        return dataclasses.replace(self, labels=labels)

    @property
    def is_regression(self) -> bool:
        """Returns whether labels are numbers."""
        return not self.labels

    @property
    def is_pair(self) -> bool:
        """Returns whether examples have two texts."""
        return self.columns.text_pair is not None

    @property
    def best_metric(self) -> str:
        """Returns the metric that picks the best checkpoint."""
        return "pearson" if self.is_regression else "eval_accuracy"

    @property
    def scores(self) -> Sequence[metrics.NamedScore]:
        """Returns the scores of the evaluation; with two labels also an F1, see `find_positive`."""
        if self.is_regression:
            return _REGRESSION_SCORES
        scores = (("eval_accuracy", metrics.accuracy),)
        if len(self.labels) != 2:
            return scores
        return (*scores, ("f1", functools.partial(metrics.f1, positive=self.positive)))

    @property
    def positive(self) -> int:
        """Returns the id of the class, of two, whose F1 and ranking are scores."""
        return self.labels.index(find_positive(self.labels)) if len(self.labels) == 2 else 1

    def check_splits(self, splits: Iterable[str]) -> None:
        """Rejects splits without a file."""
        check_splits(self.files, splits)

    def path(self, data_dir: str, split: str) -> str:
        """Returns the path of the file of a split."""
        return self.files[split]

    def fingerprint(self, data_dir: str, split: str) -> dict[str, Any]:
        """Returns a JSON-ready dict of SHA-256, format, columns, labels; `data_dir` is not used."""
        return {
            "data_sha256": file_io.sha256(self.files[split]),
            "format": tables.format_of(self.files[split]),
            "columns": dataclasses.asdict(self.columns),
            "labels": list(self.labels),
        }

    def is_labeled(self, split: str) -> bool:
        """Returns whether a split has labels; test data has them if one of its rows does."""
        if split != "test":
            return True
        path = self.files[split]
        if any(self.has_labels(row) for _, row in tables.read_file(path, SPLIT_FLAGS[split])):
            return True
        logging.info("%s has no labels: there are predictions, but no scores", path)
        return False

    def has_labels(self, row: Mapping[str, Any]) -> bool:
        """Returns whether a row, {column: text or value of JSON}, has a label."""
        return not tables.is_blank(row.get(self.columns.label or ""))

    def iter_examples(
        self, data_dir: str, split: str, use_spm: bool = True, do_lower_case: bool = True
    ) -> Iterator[glue.InputExample]:
        """Yields the examples of a split; test data without labels gets the first label."""
        self.check_splits([split])
        labeled = self.is_labeled(split)
        path = self.files[split]
        count = 0
        for place, row in tables.read_file(path, SPLIT_FLAGS[split]):
            label = self.label_of(row, place) if labeled else self.no_label
            yield self.example(row, place, str(count), label, use_spm, do_lower_case)
            count += 1
        if not count:
            raise file_io.InputError(f"{path}: there is no row")

    def example(
        self,
        row: dict[str, Any],
        place: str,
        number: str,
        label: glue.Label,
        use_spm: bool,
        do_lower_case: bool,
    ) -> glue.InputExample:
        """Returns the example of a row.

        Args:
          number, label: id of the example unless the row has one, and its label.
        """
        columns = (
            (self.columns.text, "text_column"),
            (self.columns.text_pair, "text_pair_column"),
        )
        texts = [tables.text_of(row, name, flag, place) for name, flag in columns if name]
        guid = number
        if self.columns.guid is not None:
            guid = tables.name_of(row, self.columns.guid, "id_column", place)
        return glue.make_example(guid, texts, label, use_spm, do_lower_case)

    @property
    def no_label(self) -> glue.Label:
        """Returns the label of examples without one."""
        return self.labels[0] if self.labels else 0.0

    def label_of(self, row: Mapping[str, Any], place: str) -> glue.Label:
        """Returns the label of a row.

        Raises:
          file_io.InputError: the label did not occur in training or, for a regression, it is not a
            number.
        """
        label = _read_label(row, self.columns.label, place)
        if self.is_regression:
            if problem := glue.number_problem(label):
                raise file_io.InputError(f"{place}: {problem}")
            return float(label)
        known = tables.match_label(label, self.labels)
        if known is None:
            choices = tables.name_list(self.labels)
            hint = ", or, to predict numbers, give label_type=regression"
            is_number = all(map(glue.is_number, (label, *self.labels)))
            raise file_io.InputError(
                f"{place}: label {label!r}, expected a label of the training: {choices}; "
                f"{UNKNOWN}{hint if is_number else ''}"
            )
        return known


def check_splits(files: Mapping[str, str | None], splits: Iterable[str]) -> None:
    """Rejects splits without a file; `files`: {split: path or None}."""
    for split in splits:
        if not files.get(split):
            raise file_io.InputError(f"{SPLIT_FLAGS[split]} must be given")


def check_files(files: Mapping[str, str], columns: tables.Columns, *further: str) -> None:
    """Rejects files of different formats, and columns with the same name.

    Args:
      further: names of columns of labels.
    """
    if len({tables.format_of(path) for path in files.values()}) > 1:
        arguments = ", ".join(f"{SPLIT_FLAGS[split]}={path}" for split, path in files.items())
        raise file_io.InputError(f"the files must have one ending; found {arguments}")
    names = [name for name in (*dataclasses.astuple(columns), *further) if name]
    if len(set(names)) < len(names):
        raise file_io.InputError(
            f"text_column, text_pair_column, {'label_columns' if further else 'label_column'} and "
            f"id_column must be different; found {tables.name_list(names)}"
        )


def find_task(
    files: Mapping[str, str | None],
    columns: tables.Columns,
    output_dir: str,
    kind: str | None = None,
    head: model_labels.ModelHead | None = None,
) -> CustomTask:
    """Returns the task of the user's own files.

    Args:
      output_dir: folder of the run, which may have the labels.
      kind: "classification" or "regression"; None: decided by the labels.
    """
    paths = {split: path for split, path in files.items() if path}
    check_files(paths, columns)
    return CustomTask(paths, columns, find_labels(output_dir, paths, columns, kind, head))


def settings_of(
    task: glue.ClassifierTask,
    max_seq_length: int,
    dropout_prob: float,
    head: head_config.Head = head_config.NO_LAYER,
    scale: label_scale.LabelScale = label_scale.RAW,
    decision: decisions.Decision = decisions.PLAIN,
) -> dict[str, Any]:
    """Returns JSON-ready settings that describe a classifier, by name, for `model_folder.write`.

    Args:
      scale: unit in which a regression was trained.
    """
    return {
        "task_name": task.name,
        **label_settings(task.labels, task.columns, max_seq_length, dropout_prob, head),
        **scale.settings,
        **decision.settings,
    }


def label_settings(
    labels: Iterable[str],
    columns: Any,
    max_seq_length: int,
    dropout_prob: float,
    head: head_config.Head,
) -> dict[str, Any]:
    """Returns JSON-ready settings, by name, of any model with labels; `columns` is a dataclass."""
    return {
        "labels": list(labels),
        "max_seq_length": max_seq_length,
        "classifier_dropout_prob": dropout_prob,
        "columns": dataclasses.asdict(columns),
        **head.settings,
    }
