"""Predicts labels or numbers of texts with a fine-tuned classifier.

Letters in shapes: B batch, K labels, S sequence.
"""

import dataclasses
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any

import numpy as np

from albert.io import file_io, tables
from albert.model import batching, model_folder
from albert.serving import inference, requests
from albert.tasks import custom, glue, prediction_files
from albert.text import model_inputs

_INPUTS = ("input_ids", "input_mask", "segment_ids")


class TextPredictor:
    """A fine-tuned model, loaded from the folder of its training run or from a serving folder.

    Args:
      model_dir: the folder; a training run's best checkpoint is used, or else its last.
      runtime, threads: for serving folders; see `runtimes.load`.

    Attributes:
      labels: K label names by id; empty for regression.
      names: the same for people to read, see `custom.names_of`.
      columns: `tables.Columns` of the training.
      max_seq_length: S of the training; longer texts are truncated.
      tokenizer: `tokenization.FullTokenizer`.
      form, metric, gives_numbers: see `predictors.Predictor`.

    Raises:
      file_io.InputError: the folder is missing, of another kind of model or without a checkpoint.
    """

    input_forms = ("txt", "csv", "tsv", "jsonl")
    output_forms = ("tsv", "jsonl")
    batches_ahead = 64

    def __init__(
        self,
        model_dir: str | inference.FoundModel,
        runtime: str = "auto",
        threads: int | None = None,
    ) -> None:
        model = inference.find(model_dir, glue.KIND)
        folder = model.folder
        self.columns = tables.Columns(**folder.setting("columns", tables.are_columns))
        labels, name = custom.labels_of(folder), folder.setting("task_name", str)
        self._row = custom.CustomTask({}, self.columns, labels, name)
        self.labels, self.names = self._row.labels, custom.names_of(folder)
        self.tokenizer = model_folder.load_tokenizer(folder.source, folder.config)
        self.max_seq_length = folder.length(minimum=glue.min_length(self._row))
        plain = dataclasses.replace(self.columns, guid=None)
        self._plain_task = dataclasses.replace(self._row, columns=plain)
        self._number_score = None if self.labels else glue.REGRESSION_SCORES[0]
        self.gives_numbers = not self.labels
        self.metric = "accuracy" if self.labels else self._number_score[0]
        self.form = requests.ONE_TEXT if self.columns.text_pair is None else requests.TWO_TEXTS
        self.infer = model.load(runtime, threads)

    # --- examples ---

    def columns_of(self, form: str, **columns: str | None) -> tables.Columns:
        """Returns the `tables.Columns` of a file without labels.

        Args:
          form: one of `input_forms`.
          columns: text, text_pair or guid, to replace the columns of the training; None: keep it,
            "": no such column.
        """
        if form == "txt":
            return tables.Columns(self.columns.text, self.columns.text_pair, None, None)
        names = {
            name: (getattr(self.columns, name) if columns.get(name) is None else columns[name])
            or None
            for name in ("text", "text_pair", "guid")
        }
        return tables.Columns(**names, label=None)

    def read_lines(
        self,
        lines: Iterable[bytes],
        name: str,
        form: str,
        skip_empty: bool = False,
        **columns: str | None,
    ) -> Iterator[glue.InputExample]:
        """Yields a `glue.InputExample` for each row of a file without labels.

        Args:
          lines: iterable of bytes.
          name: name of the file, for messages.
          form: one of `input_forms`.
          skip_empty: whether to skip rows without text; the others keep their numbers.
          columns: see `columns_of`.

        Raises:
          file_io.InputError: the model takes another number of texts, or a row lacks a column.
        """
        columns = self.columns_of(form, **columns)
        rows = tables.read_rows(lines, name, form, columns)
        return self.examples_of(rows, columns, skip_empty)

    def examples_of(
        self,
        rows: Iterable[tuple[str, dict[str, Any]]],
        columns: tables.Columns,
        skip_empty: bool = False,
    ) -> Iterator[glue.InputExample]:
        """Yields a `glue.InputExample` for each (place for messages, dict by column).

        Without a column of ids, ids count from 0. `skip_empty`: see `read_lines`.
        """
        if (columns.text_pair is None) != (self.columns.text_pair is None):
            expected = (
                "one text, not two" if self.columns.text_pair is None else "two texts, not one"
            )
            raise file_io.InputError(f"this model takes {expected}: see text_pair_column")
        row_task = dataclasses.replace(self._row, columns=columns)
        return tables.each(
            rows, lambda number, place, row: _example_of(row_task, row, place, number), skip_empty
        )

    def read(self, path: str, labeled: bool) -> tuple[list, list | None]:
        """Returns the examples of a file and their labels; see `predictors.Predictor`.

        Args:
          path: a file with the columns of the training, or ``dev.tsv`` of a task of GLUE.
          labeled: whether labels are needed.
        """
        task = self._task_of(path, labeled)
        split = "dev" if labeled else "test"
        examples = list(task.iter_examples(os.path.dirname(path), split, False, False))
        rows = ((f"{path}: {e.guid}", self._row_of((e.text_a, e.text_b))) for e in examples)
        return list(self.examples_of(rows, self._plain_task.columns)), [
            example.label for example in examples
        ]

    def _task_of(self, path: str, labeled: bool) -> glue.GlueTask | custom.CustomTask:
        """Returns a task that reads a file as its split "dev", or without labels as "test"."""
        tasks = [row for row in glue.TASKS if row.name == self._row.name.lower()]
        if tasks and path.endswith(".tsv"):
            row, name = tasks[0], os.path.basename(path)
            changes = {"folder": "", "dev_file": name, "test_file": name}
            if name != row.test_file:  # its labels are ignored
                changes["test_columns"] = (row.id_column or 0, *row.text_columns)
                changes["id_name"] = None if row.id_column is None else row.id_name
                changes["headerless"] = ("dev", "test") if "dev" in row.headerless else ()
            return dataclasses.replace(row, **changes)
        return dataclasses.replace(self._row, files={"dev" if labeled else "test": path})

    def of_request(self, fields: dict) -> str | tuple[str, str]:
        """Returns the example of a request."""
        is_pair = self.columns.text_pair is not None
        return (fields["text"], fields["text_pair"]) if is_pair else fields["text"]

    def _row_of(self, texts: Iterable[str | None]) -> dict[str, str]:
        names = (self.columns.text, self.columns.text_pair)
        return {name: text for name, text in zip(names, texts, strict=False) if name}

    def _example(
        self, number: int, text: str | Sequence[str] | glue.InputExample
    ) -> glue.InputExample:
        """Returns the `glue.InputExample` of an item of `predict`."""
        if isinstance(text, glue.InputExample):
            return text
        parts = (text,) if isinstance(text, str) else tuple(text)
        expected = 1 if self.columns.text_pair is None else 2
        if len(parts) != expected:
            raise file_io.InputError(
                f"text {number}: the model takes {expected}, found {len(parts)}"
            )
        return _example_of(self._plain_task, self._row_of(parts), f"text {number}", number)

    # --- predictions ---

    def predict(
        self,
        texts: Iterable[str | Sequence[str] | glue.InputExample],
        batch_size: int = 32,
        batches_ahead: int = 1,
    ) -> Iterator[prediction_files.Prediction]:
        """Yields a `prediction_files.Prediction` for each text, in order; ids count from 0.

        Args:
          texts: iterable of str, of pairs of str for a model of two texts, or of examples, which
            keep their ids.
          batch_size: B.
          batches_ahead: number of batches to read at a time, to batch texts of similar length;
            memory use does not depend on the number of texts.

        Raises:
          TypeError: `texts` is a single text, not a list.
          file_io.InputError: a text is empty, or the model takes another number of texts.
        """
        if isinstance(texts, str):
            raise TypeError("expected a list of texts, found a single str")
        examples = map(self._example, itertools.count(), texts)
        while window := list(itertools.islice(examples, batch_size * batches_ahead)):
            yield from self._predict_window(window, batch_size)

    def batch_size(self, examples: list) -> int:
        """Returns the batch size for examples of requests that are computed together."""
        return len(examples)

    def to_json(self, result: prediction_files.Prediction) -> dict:
        """Returns a JSON-ready `prediction_files.Prediction`, with the names of labels."""
        return prediction_files.to_dict(self.names, self._named(result))

    def write(
        self,
        file: IO[str],
        form: str,
        results: Iterable[prediction_files.Prediction],
        examples: Iterable[glue.InputExample] | None = None,
    ) -> None:
        """Writes results in one of `output_forms`, with the names of labels.

        With examples, which are read after their results, it writes their texts as text and
        text_pair.
        """
        further = None
        if examples is not None:
            names = ("text", "text_pair")[: 1 + (self.columns.text_pair is not None)]
            further = names, ((e.text_a, e.text_b or "")[: len(names)] for e in examples)
        rows = map(self._named, results)
        prediction_files.write_predictions(file, form, self.names, rows, further)

    def _named(self, result: prediction_files.Prediction) -> prediction_files.Prediction:
        """Returns a prediction whose labels are those of `names`."""
        if self.names == self.labels:
            return result
        names = dict(zip(self.labels, self.names, strict=True))
        return dataclasses.replace(
            result,
            prediction=names[result.chosen],
            probabilities={names[k]: value for k, value in result.probabilities.items()},
        )

    # --- scores ---

    def answers(self, results: Iterable[prediction_files.Prediction]) -> list:
        """Returns the labels, or numbers, to compare and score."""
        return [result.prediction for result in results]

    def score(self, gold: list, answers: list) -> float:
        """Returns percentage points: accuracy, or correlation of numbers."""
        if self.labels:
            return 100 * float(np.mean([a == b for a, b in zip(gold, answers, strict=True)]))
        return 100 * self._number_score[1](np.array(gold), np.array(answers))

    def _predict_window(
        self, examples: Sequence[glue.InputExample], batch_size: int
    ) -> Iterator[prediction_files.Prediction]:
        cuts = [model_inputs.Cuts() for _ in examples]
        features = [
            glue.convert_example(example, self._row, self.max_seq_length, self.tokenizer, count)
            for example, count in zip(examples, cuts, strict=True)
        ]
        columns = {name: np.stack([f[name] for f in features]).astype(np.int32) for name in _INPUTS}
        batches, results = [], []
        for rows, batch in batching.trimmed_batches(columns, batch_size):
            batches.append(rows)
            results.append(self.infer(batch))
        places = batching.places_in(batches)
        indices, probabilities = (
            np.concatenate([outputs[name] for outputs in results])[places]
            for name in ("predictions", "probabilities")
        )
        guids = [example.guid for example in examples]
        truncated = [bool(count.cut) for count in cuts]
        return prediction_files.predictions(self.labels, guids, indices, probabilities, truncated)


def _example_of(
    task: custom.CustomTask, row: dict[str, Any], place: str, number: int
) -> glue.InputExample:
    """Returns the `glue.InputExample` of a row; the tokenizer cleans its texts, once."""
    return task.example(row, place, str(number), task.no_label, use_spm=False, do_lower_case=False)
