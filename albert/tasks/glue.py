"""The GLUE tasks, one row of a table each: files, features, scores and files of predictions.

`text.model_inputs` adds [CLS] and [SEP]. Only functions that build graphs import TensorFlow, so
that readers start quickly.
"""

import dataclasses
import difflib
import functools
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
import numpy.typing as npt
from absl import logging

from albert.data import tfrecord
from albert.data.input_options import Tensors
from albert.io import file_io, tables
from albert.model import decision as decisions
from albert.model import head_config, label_scale
from albert.model.configuration import AlbertConfig
from albert.tasks import (
    calibration,
    class_scores,
    example_data,
    metrics,
    outcomes,
    prediction_files,
)
from albert.text import long_texts, model_inputs, tokenization
from albert.training import contracts, results

if TYPE_CHECKING:
    import tensorflow as tf

    from albert.model.layers import Compute

KIND = "classifier"  # kind of model folders
_MNLI_LABELS = ("contradiction", "entailment", "neutral")
_ENTAILMENT_LABELS = ("entailment", "not_entailment")
POSITIVE = "1"
_BINARY_LABELS = ("0", POSITIVE)
_MAX_NUMBER = float(np.finfo(np.float32).max)
_LARGEST_STEP = 0.01  # between numbers of float32 as large as labels, in deviations of the labels
_LAST = -1  # the label is in the last column, whatever the number of columns
# Skipped short lines are an error if they exceed both this number and this fraction.
_MAX_SKIPPED = 10
_MAX_SKIPPED_FRACTION = 0.01

Label = (
    str | float | tuple[str, ...]
)  # a class, a number, or the classes of several labels per text


@dataclasses.dataclass(frozen=True, slots=True)
class InputExample:
    """One line of a task's file.

    Attributes:
      guid: id column of the line or ``<split>-<line number>``.
      text_a, text_b: the texts; `text_b` is None for tasks on single texts.
      label: one of the task's labels, a float for regression, or some of the labels.
    """

    guid: str
    text_a: str
    text_b: str | None
    label: Label

    @property
    def text(self) -> str:
        """Both texts, for people to read."""
        return self.text_a if self.text_b is None else f"{self.text_a} / {self.text_b}"


class ClassifierTask(Protocol):
    """The members of a task that are used: of a `GlueTask` or of a task on the user's files.

    `data_dir` is the folder that holds the folders of the tasks; a split is "train", "dev"
    or "test".

    Attributes:
      labels: label names in the order of their ids; empty for regression.
      best_metric: score that picks the best checkpoint.
      scores: (key, function of labels [B] and predictions [B]) of the evaluation.
      positive: id of the class, of two, whose F1 and ranking are scores.
      columns: names of the columns of the texts and the label.
    """

    @property
    def name(self) -> str: ...
    @property
    def labels(self) -> tuple[str, ...]: ...
    @property
    def is_pair(self) -> bool: ...
    @property
    def is_regression(self) -> bool: ...
    @property
    def best_metric(self) -> str: ...
    @property
    def scores(self) -> Sequence[metrics.NamedScore]: ...
    @property
    def positive(self) -> int: ...
    @property
    def columns(self) -> tables.Columns: ...

    def check_splits(self, splits: Iterable[str]) -> None:
        """Rejects splits that the task does not have."""

    def in_order(self, labels: tuple[str, ...]) -> "ClassifierTask":
        """Returns the task with the same labels in another order."""

    def path(self, data_dir: str, split: str) -> str:
        """Returns the path of the file of a split."""

    def fingerprint(self, data_dir: str, split: str) -> dict[str, Any]:
        """Returns a JSON-ready dict that identifies the data of a split, such as its SHA-256."""

    def is_labeled(self, split: str) -> bool:
        """Returns whether the labels of a split are known."""

    def iter_examples(
        self, data_dir: str, split: str, use_spm: bool = True, do_lower_case: bool = True
    ) -> Iterator[InputExample]:
        """Yields the examples of a split; for the last arguments see `make_example`."""


def make_example(
    guid: str, texts: Sequence[str], label: Label, use_spm: bool, do_lower_case: bool
) -> InputExample:
    """Returns the example of one or two texts.

    Args:
      use_spm: whether to normalize texts for SentencePiece.
      do_lower_case: whether this also lower-cases them.
    """
    if use_spm:
        texts = [tokenization.preprocess_text(text, lower=do_lower_case) for text in texts]
    return InputExample(guid, texts[0], (*texts, None)[1], label)


@dataclasses.dataclass(frozen=True)
class GlueTask:
    """A GLUE task: its files, columns, labels and scores; see also `ClassifierTask`.

    Columns count from 0.

    Attributes:
      name: lower-case name, see `get_task`.
      folder: folder in the data folder.
      labels: label names in the order of their ids, as the files have them; empty for regression.
      text_columns: columns of the texts in the train and dev files.
      label_column: column of the label in these files; -1 is the last.
      test_columns: columns of id and texts in the test file.
      id_column: column of the id in the train and dev files; None: lines are numbered.
      train_file, dev_file, test_file: file names; None if the task has no such file.
      headerless: splits whose file has no header line.
      skips_short_lines: whether short train and dev lines are skipped (and counted), not an error.
      words: {label: its meaning in words}, for labels that are numbers.
      text_names, label_name, id_name: names of the columns in the published files, in lower case;
        None for the id: it is not known which column has it.
    """

    name: str
    folder: str
    labels: tuple[str, ...]
    text_columns: tuple[int, ...]
    label_column: int | None
    test_columns: tuple[int, ...]
    id_column: int | None = None
    train_file: str | None = "train.tsv"
    dev_file: str | None = "dev.tsv"
    test_file: str | None = "test.tsv"
    headerless: tuple[str, ...] = ()
    skips_short_lines: bool = False
    best_metric: str = "eval_accuracy"
    scores: tuple = (("eval_accuracy", metrics.accuracy),)
    words: Mapping[str, str] = dataclasses.field(default_factory=dict, hash=False)
    text_names: tuple[str, ...] = ("sentence1", "sentence2")
    label_name: str = "label"
    id_name: str | None = "index"

    def in_order(self, labels: tuple[str, ...]) -> "GlueTask":
        """Returns the task with the same labels in another order; F1 stays that of the label 1."""
        if labels == self.labels:
            return self
        scores = tuple(
            (key, functools.partial(metrics.f1, positive=labels.index(POSITIVE)))
            if key == "f1"
            else (key, score)
            for key, score in self.scores
        )
        return dataclasses.replace(self, labels=labels, scores=scores)

    @property
    def positive(self) -> int:
        """Returns the id of the class, of two, whose ranking is a score: in any order the same."""
        if len(self.labels) != 2:
            return 1
        return self.labels.index(POSITIVE if POSITIVE in self.labels else max(self.labels))

    @property
    def is_regression(self) -> bool:
        """Returns whether labels are numbers."""
        return not self.labels

    @property
    def is_pair(self) -> bool:
        """Returns whether examples have two texts."""
        return len(self.test_columns) > 2

    @property
    def columns(self) -> tables.Columns:
        """Returns the names of the columns in requests to a model of this task."""
        return tables.Columns(text_pair="text_pair" if self.is_pair else None)

    @property
    def _files(self) -> dict[str, str]:
        """Returns {split: file name} of the files that the task has."""
        files = {"train": self.train_file, "dev": self.dev_file, "test": self.test_file}
        return {split: file for split, file in files.items() if file}

    def check_splits(self, splits: Iterable[str]) -> None:
        """Rejects splits that the task does not have."""
        for split in splits:
            if split not in self._files:
                raise file_io.InputError(
                    f"task {self.name} has no {split} data, only {', '.join(self._files)}"
                )

    def path(self, data_dir: str, split: str) -> str:
        """Returns the path of the file of a split."""
        self.check_splits([split])
        name = self._files[split]
        path = os.path.join(data_dir, self.folder, name)
        if not file_io.exists(path):
            hint = ""
            if file_io.exists(os.path.join(data_dir, name)):
                hint = f" ({name} is in {data_dir} itself: give the folder above)"
            layout = ", ".join(self._files.values())
            raise file_io.InputError(
                f"task {self.name}: the file {path} does not exist; expected data_dir to hold "
                f"a folder {self.folder} with {layout}{hint}"
            )
        return path

    def fingerprint(self, data_dir: str, split: str) -> dict[str, Any]:
        """Returns the data_sha256 of a split and, in another order than usual, the labels."""
        digest = {"data_sha256": file_io.sha256(self.path(data_dir, split))}
        is_usual = self.labels == get_task(self.name).labels
        return digest if is_usual else {**digest, "labels": list(self.labels)}

    def is_labeled(self, split: str) -> bool:
        """Returns whether the labels of a split are known: not those of the test data."""
        return split != "test"

    def iter_examples(
        self, data_dir: str, split: str, use_spm: bool = True, do_lower_case: bool = True
    ) -> Iterator[InputExample]:
        """Yields the examples of a split; those of test data have the first label, or 0.0.

        For the last arguments see `make_example`.
        """
        reader = _Reader(self, self.path(data_dir, split), split)
        for number, columns in reader:
            texts = [columns[column] for column in reader.text_columns]
            guid = f"{split}-{number}" if reader.id_column is None else columns[reader.id_column]
            yield make_example(guid, texts, reader.label(columns), use_spm, do_lower_case)

    def examples(
        self, data_dir: str, split: str, use_spm: bool = True, do_lower_case: bool = True
    ) -> list[InputExample]:
        """Reads the examples of a split, see `iter_examples`."""
        return list(self.iter_examples(data_dir, split, use_spm, do_lower_case))


class _Reader:
    """Iterates over (row number, texts of columns) of a tab-separated file; checks each line."""

    def __init__(self, glue_task: GlueTask, path: str, split: str) -> None:
        self._task, self._path, self._line = glue_task, path, 0
        self._has_header = split not in glue_task.headerless
        self._has_labels = split != "test"
        self.id_column, self.text_columns = glue_task.id_column, glue_task.text_columns
        if self._has_labels:
            assert glue_task.label_column is not None  # the task has train or dev data
            self._label_column = glue_task.label_column
            columns = (self.id_column or 0, *self.text_columns, self._label_column)
            self._num_columns = max(columns) + 1 + (self._label_column == _LAST)
        else:
            self.id_column, *text_columns = glue_task.test_columns
            self.text_columns = tuple(text_columns)
            self._num_columns = max(glue_task.test_columns) + 1

    def _error(self, problem: str) -> file_io.InputError:
        """Returns the error of the line that was read last; `problem` says what is wrong."""
        return file_io.InputError(f"{self._path} line {self._line}: {problem}")

    def _lines(self) -> Iterator[list[str]]:
        """Yields the columns' texts of each line, without blank lines at the end of the file."""
        blank = 0
        with file_io.open_input(self._path, f"data of task {self._task.name}", "rb") as file:
            for number, line in file_io.text_lines(file, self._path):
                line = line.rstrip("\r\n")
                if not line:
                    blank += 1
                    continue
                for place in range(number - blank, number):
                    self._line = place
                    yield [""]
                self._line, blank = number, 0
                yield line.split("\t")

    def __iter__(self) -> Iterator[tuple[int, list[str]]]:
        examples, skipped = 0, []
        for columns in self._lines():
            if self._line == 1 and self._has_header:
                self._check_header(columns)
                continue
            if len(columns) < self._num_columns:
                if not (self._task.skips_short_lines and self._has_labels):
                    raise self._error(
                        f"expected at least {self._num_columns} tab-separated columns, found "
                        f"{len(columns)}"
                    )
                skipped.append(self._line)
                continue
            examples += 1
            yield self._line - 1, columns
        if skipped:
            self._report_skipped(skipped, examples)
        if not examples:
            raise file_io.InputError(f"{self._path}: there is no example in {self._line} lines")

    def _check_header(self, header: list[str]) -> None:
        """Rejects a first line, as columns, that is an example and would be lost, or of other data.

        Its texts would be read from the wrong columns. Names of columns that the published files do
        not have are accepted.
        """
        if len(header) < self._num_columns:
            return
        if example := self._example_in(header):
            raise self._error(
                f"expected a header line with column names, found an example ({example})"
            )
        places = self._places(len(header))
        names = [name.strip().lower() for name in header]
        known = {*self._task.text_names, self._task.label_name, self._task.id_name}
        for name, place in places.items():
            if names[place] != name and (name in names or names[place] in known):
                raise self._error(
                    f"expected {name!r} as the name of column {place + 1}, found "
                    f"{header[place]!r} among {', '.join(header)}: is it the file of another split?"
                )

    def _example_in(self, header: list[str]) -> str | None:
        """Describes what shows that the first line, as columns, is an example; None: nothing."""
        task = self._task
        if self._has_labels:
            label = header[self._label_column]
            is_label = label in task.labels or (task.is_regression and is_number(label))
            return f"label {label!r}" if is_label else None
        if task.id_name and self.id_column is not None and header[self.id_column].isdecimal():
            return f"id {header[self.id_column]!r}"
        # Labeled data without a header has its label there.
        label_cells = [
            header[column] for column in self.text_columns if header[column] in task.labels
        ]
        return f"label {label_cells[0]!r}, as in data with labels" if label_cells else None

    def _places(self, count: int) -> dict[str, int]:
        """Returns {name of a column: its place among `count`} of the columns that are read."""
        task = self._task
        places = dict(zip(task.text_names, self.text_columns, strict=True))
        if self._has_labels:
            places[task.label_name] = self._label_column % count
        if self.id_column is not None and task.id_name:
            places[task.id_name] = self.id_column
        return places

    def _report_skipped(self, skipped: list[int], examples: int) -> None:
        """Logs the numbers of lines that were skipped; raises InputError if they are too many."""
        fraction = len(skipped) / (len(skipped) + examples)
        message = (
            f"{self._path}: {len(skipped)} lines ({fraction:.2%}) with fewer than "
            f"{self._num_columns} columns were skipped; the first are "
            f"{', '.join(map(str, skipped[:5]))}"
        )
        if len(skipped) > _MAX_SKIPPED and fraction > _MAX_SKIPPED_FRACTION:
            raise file_io.InputError(
                f"{message}. More than {_MAX_SKIPPED_FRACTION:.0%} is too much: is the file "
                "damaged?"
            )
        logging.warning("%s", message)

    def label(self, columns: list[str]) -> str | float:
        """Returns the label in the columns of the last line read; of test data the first, or 0."""
        labels = self._task.labels
        if not self._has_labels:
            return labels[0] if labels else 0.0
        label = columns[self._label_column]
        if labels:
            if label not in labels:
                raise self._error(f"label {label!r}, expected one of {tables.name_list(labels)}")
            return label
        if problem := number_problem(label):
            raise self._error(problem)
        return float(label)


def is_number(text: str) -> bool:
    """Returns whether a text is a finite number."""
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def number_problem(label: str) -> str:
    """Describes what is wrong with the label of a regression; "" if it is a number in float32."""
    if not is_number(label):
        return f"label {label!r}, expected a number"
    if abs(float(label)) > _MAX_NUMBER:
        return f"label {label!r}, expected a number of at most {_MAX_NUMBER:.3g} (float32)"
    return ""


# --- the table --------------------------------------------------------------------------------

_PAIR_WITH_ID: dict[str, Any] = {"label_column": _LAST, "test_columns": (0, 1, 2), "id_column": 0}
_MNLI: dict[str, Any] = {
    "label_column": _LAST, "test_columns": (0, 8, 9), "id_column": 0, "label_name": "gold_label",
}  # fmt: skip
_ONE_TEXT = ("sentence",)
_MATCHED: dict[str, Any] = {"dev_file": "dev_matched.tsv", "test_file": "test_matched.tsv"}
_MISMATCHED: dict[str, Any] = {"dev_file": "dev_mismatched.tsv", "test_file": "test_mismatched.tsv"}
_ONLY_TEST: dict[str, Any] = {"train_file": None, "dev_file": None, "test_file": "diagnostic.tsv"}
_ACCURACY = ("eval_accuracy", metrics.accuracy)
_F1 = ("f1", metrics.f1)
_MATTHEWS = ("matthew_corr", metrics.matthews_correlation)
REGRESSION_SCORES = (
    ("pearson", metrics.pearson),
    ("spearman", metrics.spearman),
    ("MSE", metrics.mean_squared_error),
)


def _words(*meanings: str) -> dict[str, str]:
    """Returns {label: its meaning in words} of the labels 0 and 1."""
    return dict(zip(_BINARY_LABELS, meanings, strict=True))


# Name, folder, labels, text columns; then label column and test columns, id column.
TASKS = (
    GlueTask(
        "cola", "CoLA", _BINARY_LABELS, (3,), 1, (0, 1),
        headerless=("train", "dev"), best_metric="matthew_corr", scores=(_ACCURACY, _MATTHEWS),
        words=_words("unacceptable", "acceptable"), text_names=_ONE_TEXT,
    ),
    GlueTask("mnli", "MNLI", _MNLI_LABELS, (8, 9), **_MNLI, **_MATCHED),
    GlueTask("mismnli", "MNLI", _MNLI_LABELS, (8, 9), **_MNLI, **_MISMATCHED),
    GlueTask(
        "mrpc", "MRPC", _BINARY_LABELS, (3, 4), 0, (0, 3, 4), scores=(_ACCURACY, _F1),
        words=_words("not_equivalent", "equivalent"),
        text_names=("#1 string", "#2 string"), label_name="quality",
    ),
    GlueTask("rte", "RTE", _ENTAILMENT_LABELS, (1, 2), **_PAIR_WITH_ID),
    GlueTask(
        "sst-2", "SST-2", _BINARY_LABELS, (0,), 1, (0, 1),
        words=_words("negative", "positive"), text_names=_ONE_TEXT,
    ),
    GlueTask(
        "sts-b", "STS-B", (), (7, 8), _LAST, (0, 7, 8), 0,
        best_metric="pearson", scores=REGRESSION_SCORES, label_name="score",
    ),
    GlueTask(
        "qqp", "QQP", _BINARY_LABELS, (3, 4), 5, (0, 1, 2), 0,
        skips_short_lines=True, scores=(_ACCURACY, _F1),
        words=_words("not_duplicate", "duplicate"),
        text_names=("question1", "question2"), label_name="is_duplicate", id_name="id",
    ),
    GlueTask(
        "qnli", "QNLI", _ENTAILMENT_LABELS, (1, 2), **_PAIR_WITH_ID,
        text_names=("question", "sentence"),
    ),
    GlueTask(
        "wnli", "WNLI", _BINARY_LABELS, (1, 2), **_PAIR_WITH_ID,
        words=_words("not_entailment", "entailment"),
    ),
    GlueTask("ax", "diagnostic", _MNLI_LABELS, (), None, (0, 1, 2), **_ONLY_TEST),
)  # fmt: skip


def words_of(task_name: str | None) -> Mapping[str, str]:
    """Returns {label: its meaning in words} of the GLUE task of this name; empty for others."""
    return next((row.words for row in TASKS if row.name == (task_name or "").lower()), {})


def find_words(names: Iterable[str]) -> Mapping[str, str]:
    """Returns {label: its meaning in words} of a GLUE task with these meanings; {} for others."""
    given = set(names)
    return next((row.words for row in TASKS if row.words and {*row.words.values()} == given), {})


def find_labels(names: Iterable[str]) -> GlueTask | None:
    """Returns the first task whose labels have these names."""
    given = {*names}
    return next((row for row in TASKS if given == {*row.labels}), None)


def get_task(name: str) -> GlueTask:
    """Returns the `GlueTask` of a name; case does not matter."""
    by_name = {row.name: row for row in TASKS}
    row = by_name.get(name.lower())
    if row is None:
        near = difflib.get_close_matches(name.lower(), by_name, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise file_io.InputError(f"task_name={name}: expected one of {', '.join(by_name)}{hint}")
    return row


# --- features ---------------------------------------------------------------------------------


def convert_example(
    example: InputExample,
    task: ClassifierTask,
    max_seq_length: int,
    tokenizer: tokenization.FullTokenizer,
    cuts: model_inputs.Cuts | None = None,
) -> example_data.Features:
    """Converts an example to features.

    Args:
      max_seq_length: S; `model_inputs.truncate_to_fit` cuts longer texts.
      cuts: counts texts that are cut; None: they are not counted.

    Returns:
      Dict of arrays: input_ids, input_mask, segment_ids int64 [S]; label_ids int64 [] (float32
      for regression; of several labels int64 [K], 1 for those of the text); is_real_example
      int64 [].
    """
    settings = (long_texts.ALL_CUT, max_seq_length, tokenizer, cuts)
    return convert_long_example(example, task, *settings)[0]


def convert_long_example(
    example: InputExample,
    task: ClassifierTask,
    rule: long_texts.LongTexts,
    max_seq_length: int,
    tokenizer: tokenization.FullTokenizer,
    cuts: model_inputs.Cuts | None = None,
    number: int = 0,
) -> list[example_data.Features]:
    """Converts an example to the features of one input or, if it is long, of several windows.

    Args:
      number: number of the example in its split, which its windows have.

    Returns:
      The features of `convert_example` of each input; with windows also `long_texts.FEATURES`,
      int64 [].
    """
    inputs: list[example_data.Features] = []
    labels: example_data.Features = {
        "label_ids": _label_id(example, task), "is_real_example": np.int64(1)
    }  # fmt: skip
    for window in encode_long(example, rule, max_seq_length, tokenizer, cuts):
        ids = window.ids_a, window.ids_b, tokenizer.cls_id, tokenizer.sep_id
        arrays = model_inputs.pack(*ids, max_seq_length, tokenizer.pad_id)
        numbers = (np.int64(number), np.int64(window.tokens)) if rule.has_windows else ()
        further = dict(zip(long_texts.FEATURES, numbers, strict=False))
        inputs.append({**dict(zip(model_inputs.NAMES, arrays, strict=True)), **labels, **further})
    return inputs


def encode_long(
    example: InputExample,
    rule: long_texts.LongTexts,
    max_seq_length: int,
    tokenizer: tokenization.FullTokenizer,
    cuts: model_inputs.Cuts | None = None,
) -> list[long_texts.Window]:
    """Returns the ids of each input of an example: of one, or of several windows of a long text."""
    ids_b = None if example.text_b is None else tokenizer.encode(example.text_b)
    return rule.read(tokenizer.encode(example.text_a), ids_b, max_seq_length, cuts)


def _label_id(
    example: InputExample, task: ClassifierTask
) -> np.float32 | np.int64 | npt.NDArray[np.int64]:
    """Returns the label of an example as a number: its id, or its value for regression.

    Of several labels per text it is [K], 1 for those of the text.
    """
    if isinstance(example.label, tuple):
        return np.array([label in example.label for label in task.labels], np.int64)
    if task.is_regression:
        return np.float32(example.label)
    if example.label not in task.labels:
        raise file_io.InputError(
            f"example {example.guid} of task {task.name}: label {example.label!r}, expected one "
            f"of {tables.name_list(task.labels)}"
        )
    return np.int64(task.labels.index(example.label))


def feature_specs(
    seq_length: int, is_regression: bool = False, has_windows: bool = False
) -> tuple[tfrecord.FeatureSpec, ...]:
    """Returns the `tfrecord.FeatureSpec` of each feature of `convert_long_example`."""
    spec = tfrecord.FeatureSpec
    further = long_texts.FEATURES if has_windows else ()
    return (
        *(spec(name, "int64", (seq_length,), sequence=True) for name in model_inputs.NAMES),
        spec("label_ids", "float32" if is_regression else "int64"),
        *(spec(name, "int64") for name in ("is_real_example", *further)),
    )


# --- evaluation and prediction ----------------------------------------------------------------


def eval_outputs(outputs: Tensors, features: Tensors) -> dict[str, "tf.Tensor"]:
    """Returns rows for `metrics.Evaluator` by name: label_ids, predictions, per_example_loss and
    is_real_example [B], probabilities [B, K], and of windows `long_texts.FEATURES` [B].
    """
    return {
        **{name: features[name] for name in long_texts.FEATURES if name in features},
        "probabilities": outputs["probabilities"],
        "predictions": outputs["predictions"],
        "per_example_loss": outputs["per_example_loss"],
        "label_ids": features["label_ids"],
        "is_real_example": features["is_real_example"],
    }


def batch_accuracy(
    outputs: Tensors, features: Tensors
) -> dict[str, tuple["tf.Tensor", "tf.Tensor"]]:
    """Returns {"accuracy": (number of correct, number of all)} of predictions and label_ids [B]."""
    import tensorflow as tf

    real = tf.cast(features["is_real_example"], tf.float32)
    correct = tf.cast(outputs["predictions"] == features["label_ids"], tf.float32)
    return {"accuracy": (tf.reduce_sum(correct * real), tf.reduce_sum(real))}


def learning_signals(outputs: Tensors, features: Tensors) -> dict[str, "tf.Tensor"]:
    """Returns {name: statistic} of a batch of class ids or numbers: whether a model learns."""
    from albert.training import learning_signals as signals

    return signals.label_signals(outputs, features)


def measure_labels(glue_task: ClassifierTask, data_dir: str | None) -> label_scale.LabelScale:
    """Measures the train labels of a regression, and logs their range, mean and deviation.

    Args:
      data_dir: folder that holds the folders of the tasks; None: the task has its own files.

    Raises:
      file_io.InputError: they are so close together that float32 cannot tell them apart.
    """
    examples = glue_task.iter_examples(data_dir or "", "train", use_spm=False)
    labels = np.fromiter((cast(float, example.label) for example in examples), np.float64)
    scale = label_scale.LabelScale.from_labels(labels)
    extent = f"{labels.min():g} to {labels.max():g}"
    moments = f"mean {labels.mean():g}, deviation {labels.std():g}"
    logging.info("%d labels of the train data: %s, %s", len(labels), extent, moments)
    step = float(np.spacing(np.float32(np.abs(labels).max())))
    if not np.ptp(labels):
        logging.warning("All labels of the train data are %g: nothing can be learned", labels[0])
    elif step > _LARGEST_STEP * scale.deviation:
        raise file_io.InputError(
            f"labels of the train data: they have a deviation of {scale.deviation:g}, but float32, "
            f"in which the model computes, has steps of {step:g} there: subtract a constant from "
            f"all labels, such as their mean {labels.mean():.12g}"
        )
    return scale


def answers_of(
    glue_task: ClassifierTask, scale: label_scale.LabelScale, decision: decisions.Decision
) -> long_texts.Answers:
    """Returns the kind of answers of the model of a task: numbers or classes."""
    if glue_task.is_regression:
        return long_texts.Numbers(scale.deviation)
    return long_texts.Classes(decision.temperature)


def _make_evaluator(task: ClassifierTask, deviation: float = 1.0) -> metrics.Evaluator:
    """Returns an evaluator of one row per text; `deviation`: that of a regression's labels."""
    return metrics.Evaluator(task.scores, deviation, task.labels, True, task.positive)


def make_task(
    glue_task: ClassifierTask,
    dropout_prob: float = 0.1,
    head: head_config.Head = head_config.NO_LAYER,
    scale: label_scale.LabelScale = label_scale.RAW,
    decision: decisions.Decision = decisions.PLAIN,
    class_weights: Sequence[float] = (),
) -> contracts.Task:
    """Returns the `contracts.Task` of a GLUE task.

    Args:
      scale: unit in which a regression is trained.
      class_weights: weights of the labels in the loss by id; empty: all count the same.
    """
    from albert.model import heads

    partial, labels = functools.partial, glue_task.labels
    class_names = (*class_scores.average_names(labels), *class_scores.names_by_class(labels))
    form, is_own = results.SHORT, not isinstance(glue_task, GlueTask)

    def build_model(config: AlbertConfig, compute: "Compute", seed: int) -> heads.Model:
        """Builds the model; `seed` is that of the new variables."""
        settings = (compute, seed, dropout_prob, head)
        if labels:
            return heads.ClassifierModel(config, len(labels), *settings, decision, class_weights)
        return heads.RegressionModel(config, *settings, scale)

    return contracts.Task(
        name=glue_task.name,
        build_model=build_model,
        eval_outputs=eval_outputs,
        evaluator=partial(
            metrics.TextEvaluator,
            partial(_make_evaluator, glue_task, scale.deviation),
            answers_of(glue_task, scale, decision),
        ),
        train_metrics=contracts.no_metrics if glue_task.is_regression else batch_accuracy,
        best_metric=glue_task.best_metric,
        metrics=(*dict(glue_task.scores), "eval_loss", "loss", *(class_names if labels else ())),
        learning_signals=learning_signals,
        results_form=class_scores.add_to_form(form, labels, is_own) if labels else form,
    )


def make_data(
    glue_task: ClassifierTask,
    tokenizer: tokenization.FullTokenizer,
    max_seq_length: int,
    data_dir: str | None,
    cache: example_data.FeatureCache,
    predicted: str = "test",
    rule: long_texts.LongTexts = long_texts.ALL_CUT,
    scale: label_scale.LabelScale = label_scale.RAW,
    decision: decisions.Decision = decisions.PLAIN,
) -> "ClassifierData":
    """Returns the `contracts.Data` of a GLUE task.

    Args:
      data_dir: folder of the tasks' folders; None: the task has its own files.
      predicted: split whose examples are predicted, "test" or "dev".
    """
    return ClassifierData(
        name=glue_task.name,
        cache=cache,
        task=glue_task,
        tokenizer=tokenizer,
        max_seq_length=max_seq_length,
        data_dir=data_dir or "",
        predicted=predicted,
        rule=rule,
        scale=scale,
        decision=decision,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifierData(example_data.ExampleData[InputExample]):
    """The data of a classifier.

    Attributes:
      data_dir: folder of the tasks' folders; "" for the user's own data.
      predicted: split whose examples are predicted: "test", or "dev", whose predictions are not
        scored once more.
    """

    task: ClassifierTask
    tokenizer: tokenization.FullTokenizer
    max_seq_length: int
    data_dir: str
    predicted: str
    rule: long_texts.LongTexts = long_texts.ALL_CUT
    scale: label_scale.LabelScale = label_scale.RAW
    decision: decisions.Decision = decisions.PLAIN

    def __post_init__(self) -> None:
        check_length(self.task, self.max_seq_length)

    @property
    def answers(self) -> long_texts.Answers:
        """The kind of answers of the model: numbers or classes."""
        return answers_of(self.task, self.scale, self.decision)

    @property
    def remedy(self) -> str:
        """Returns what ends the log's sentence on texts that were cut."""
        return "" if self.rule.has_windows else "; long_texts=windows reads all of them"

    @property
    def limits(self) -> dict[str, int]:
        """Returns {feature: number below which its integers must be}."""
        return {"label_ids": len(self.task.labels), "is_real_example": 2}

    def source(self, split: str) -> str:
        """Returns the split whose file has the examples of the split "train", "dev" or "test"."""
        return self.predicted if split == "test" else split

    def specs(self, split: str) -> Sequence[tfrecord.FeatureSpec]:
        """Returns the features in records of the split "train", "dev" or "test"."""
        return feature_specs(self.max_seq_length, self.task.is_regression, self.rule.has_windows)

    def files(self, split: str) -> list[str]:
        """Returns the paths of the source files of the split "train", "dev" or "test"."""
        return [self.task.path(self.data_dir, self.source(split))]

    def fingerprint(self, split: str) -> dict[str, Any]:
        """Returns a JSON-ready dict that identifies the data of a split, such as its SHA-256."""
        return self.task.fingerprint(self.data_dir, self.source(split))

    def examples(self, split: str) -> Iterator[InputExample]:
        """Yields the examples of a split; the tokenizer normalizes texts."""
        return self.task.iter_examples(self.data_dir, self.source(split), use_spm=False)

    def dev_requests(self) -> Iterator[dict[str, str]]:
        """Yields {"text": …}, with "text_pair" if there are two, of each dev example."""
        for example in self.examples("dev"):
            pair = {} if example.text_b is None else {"text_pair": example.text_b}
            yield {"text": example.text_a, **pair}

    def inputs(
        self, number: int, example: InputExample, cuts: model_inputs.Cuts
    ) -> list[example_data.Features]:
        """Returns the features of each input of an example; see `ExampleData.inputs`."""
        settings = (self.rule, self.max_seq_length, self.tokenizer, cuts, number)
        return convert_long_example(example, self.task, *settings)

    def write_predictions(
        self, output_dir: str, rows: contracts.Rows, ids: list[str], prefix: str
    ) -> dict[str, float] | None:
        """Does what `ExampleData.write_predictions` says, with one row per text also of windows."""
        joined = long_texts.join_rows(rows, self.answers)
        return super().write_predictions(output_dir, joined, ids, prefix)

    def write_files(
        self, output_dir: str, rows: contracts.Rows, ids: list[str]
    ) -> dict[str, float] | None:
        """Does what `ExampleData.write_files` says; scores test data, not dev data again.

        The scores of a model that may abstain end with what it answers.
        """
        prediction_files.write_classifier_files(output_dir, rows, ids, self.task.labels)
        if self.predicted != "test":
            return None
        is_labeled, further = self.task.is_labeled("test"), {}
        if self.decision.may_abstain:
            labels = rows["label_ids"] if is_labeled else None
            further = calibration.score_answers(self.decision, rows["probabilities"], labels)
        if is_labeled:
            evaluator = _make_evaluator(self.task)
            return prediction_files.write_scores(output_dir, evaluator, rows, further)
        if further:
            prediction_files.write_score_lines(output_dir, further)
        return None

    def outcomes(self, rows: contracts.Rows, ids: list[str]) -> Iterator[outcomes.Outcome] | None:
        """Yields outcomes from {name: array} of `eval_outputs` and ids [B]; None without labels."""
        if not self.task.is_labeled(self.predicted):
            return None
        texts = outcomes.texts_of(ids, ((row.guid, row.text) for row in self.examples("test")))
        return outcomes.class_outcomes(self.task.labels, ids, texts, rows)


def check_length(glue_task: ClassifierTask, max_seq_length: int) -> None:
    """Rejects lengths without space for a token of each text; `max_seq_length`: S, in tokens."""
    minimum = min_length(glue_task)
    if max_seq_length < minimum:
        raise file_io.InputError(
            f"max_seq_length={max_seq_length}: task {glue_task.name} needs at least {minimum} "
            "for its texts, [CLS] and [SEP]"
        )


def min_length(glue_task: ClassifierTask) -> int:
    """Returns the minimum length of inputs with a token of each text."""
    return 5 if glue_task.is_pair else 3
