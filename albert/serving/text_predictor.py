"""Predicts labels or numbers of texts with a fine-tuned classifier.

Letters in shapes: B batch, K labels, S sequence.
"""

import dataclasses
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any, NamedTuple

import numpy as np

from albert.io import file_io, tables
from albert.model import decision as decisions
from albert.model import label_scale, model_folder
from albert.serving import requests, tensors
from albert.serving.predictor import Arrays, Predictor, stacked
from albert.tasks import custom, example_data, glue, prediction_files
from albert.text import long_texts, model_inputs

_WINDOWS = 8  # computed together, of texts in few requests


class _Inputs(NamedTuple):
    """The cuts of each text; and for each of the N inputs its text and its tokens."""

    cuts: Sequence[model_inputs.Cuts]
    texts: np.ndarray
    tokens: np.ndarray


class TextPredictor(Predictor[glue.InputExample, _Inputs, prediction_files.Prediction]):
    """A classifier of texts, or a regression; see `Predictor`.

    Attributes:
      labels: K label names by id; empty for regression.
      names: the same for people to read, see `custom.names_of`.
      columns: columns of the training.
      decision: tells where the model abstains: its answer is then `decision.ABSTAINS`.
      max_seq_length: S of the training; longer texts are truncated.
    """

    kinds = (glue.KIND,)
    input_forms = ("txt", "csv", "tsv", "jsonl")
    output_forms = ("tsv", "jsonl")
    _separator = prediction_files.SEPARATOR
    _answers: long_texts.Answers

    def _read_settings(self, folder: model_folder.ModelFolder) -> int:
        self.columns = tables.Columns(**folder.setting("columns", tables.are_columns))
        self._task = self._make_task(folder)
        self.labels, self.names = self._task.labels, custom.names_of(folder)
        plain = dataclasses.replace(self.columns, guid=None)
        self._plain_task = dataclasses.replace(self._task, columns=plain)
        self.gives_numbers, self.decision = not self.labels, folder.decision
        self.metric = "accuracy" if self.labels else glue.REGRESSION_SCORES[0][0]
        self.form = requests.ONE_TEXT if self.columns.text_pair is None else requests.TWO_TEXTS
        self._answers = glue.answers_of(self._task, label_scale.RAW, self.decision)
        self._rule = folder.long_text_rule
        if self._rule.has_windows:
            self.form = dataclasses.replace(self.form, is_split=True)
        return glue.min_length(self._task)

    def _make_task(self, folder: model_folder.ModelFolder) -> custom.CustomTask:
        """Returns a task without files that reads texts as the training did."""
        name = folder.setting("task_name", str)
        return custom.CustomTask({}, self.columns, custom.labels_of(folder), name)

    # --- examples ---

    def read_lines(
        self,
        lines: Iterable[bytes],
        name: str,
        form: str,
        *,
        skipped: list[str] | None = None,
        **columns: str | None,
    ) -> Iterator[glue.InputExample]:
        """Yields an example for each row; see `Predictor`.

        Args:
          columns: text, text_pair or guid, to replace the columns of the training; None: keep it,
            "": no such column.
        """
        changes: dict[str, Any] = {
            name: column or None for name, column in columns.items() if column is not None
        }
        used = dataclasses.replace(self.columns, label=None, **changes)
        if form == "txt":
            used = tables.Columns(self.columns.text, self.columns.text_pair, None, None)
        return self.examples_of(tables.read_rows(lines, name, form, used), used, skipped)

    def examples_of(
        self,
        rows: Iterable[tuple[str, dict[str, Any]]],
        columns: tables.Columns,
        skipped: list[str] | None = None,
    ) -> Iterator[glue.InputExample]:
        """Yields a `glue.InputExample` for each (place for messages, dict by column).

        Without a column of ids, ids count from 0. `skipped`: see `read_lines`.
        """
        if (columns.text_pair is None) != (self.columns.text_pair is None):
            expected = (
                "one text, not two" if self.columns.text_pair is None else "two texts, not one"
            )
            raise file_io.InputError(f"this model takes {expected}: see text_pair_column")
        row_task = dataclasses.replace(self._task, columns=columns)
        return tables.each(
            rows, lambda number, place, row: _example_of(row_task, row, place, number), skipped
        )

    def read(self, path: str, labeled: bool) -> tuple[list[glue.InputExample], list | None]:
        """See `Predictor`; a file has the columns of the training, or is ``dev.tsv`` of GLUE."""
        task = self._task_of(path, labeled)
        split = "dev" if labeled else "test"
        examples = list(task.iter_examples(os.path.dirname(path), split, False, False))
        rows = ((f"{path}: {e.guid}", self._row_of((e.text_a, e.text_b))) for e in examples)
        return list(self.examples_of(rows, self._plain_task.columns)), [
            example.label for example in examples
        ]

    def _task_of(self, path: str, labeled: bool) -> glue.GlueTask | custom.CustomTask:
        """Returns a task that reads a file as its split "dev", or without labels as "test"."""
        tasks = [task for task in glue.TASKS if task.name == self._task.name.lower()]
        if tasks and path.endswith(".tsv"):
            row, name = tasks[0], os.path.basename(path)
            changes: dict[str, Any] = {"folder": "", "dev_file": name, "test_file": name}
            if name != row.test_file:  # its labels are ignored
                changes["test_columns"] = (row.id_column or 0, *row.text_columns)
                changes["id_name"] = None if row.id_column is None else row.id_name
                changes["headerless"] = ("dev", "test") if "dev" in row.headerless else ()
            return dataclasses.replace(row, **changes)
        return dataclasses.replace(self._task, files={"dev" if labeled else "test": path})

    def read_request(self, fields: dict[str, Any]) -> str | tuple[str, str]:
        is_pair = self.columns.text_pair is not None
        return (fields["text"], fields["text_pair"]) if is_pair else fields["text"]

    def _row_of(self, texts: Iterable[str | None]) -> dict[str, str | None]:
        names = (self.columns.text, self.columns.text_pair)
        return {name: text for name, text in zip(names, texts, strict=False) if name}

    def _example(
        self, number: int, text: str | Sequence[str] | glue.InputExample
    ) -> glue.InputExample:
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
        """Yields a prediction for each text, in order; ids count from 0. See `Predictor`.

        It takes texts, or pairs of them for a model of two texts, or examples, which keep their
        ids.
        """
        if isinstance(texts, str):
            raise TypeError("expected a list of texts, found a single str")
        examples = map(self._example, itertools.count(), texts)
        return self._predict(examples, batch_size, batches_ahead)

    def _encode(self, examples: Sequence[glue.InputExample]) -> tuple[Arrays, _Inputs]:
        cuts = [model_inputs.Cuts() for _ in examples]
        settings = (self._task, self._rule, self.max_seq_length, self.tokenizer)
        features: list[example_data.Features] = []
        for number, example in enumerate(examples):
            features += glue.convert_long_example(example, *settings, cuts[number], number)
        texts, tokens = (
            np.array([row.get(name, place) for place, row in enumerate(features)])
            for name in long_texts.FEATURES
        )
        return stacked(features), _Inputs(cuts, texts, tokens)

    def _decode(
        self,
        examples: Sequence[glue.InputExample],
        notes: _Inputs,
        outputs: Sequence[Arrays],
    ) -> Iterator[prediction_files.Prediction]:
        answers = np.stack([output["probabilities"] for output in outputs])
        joined, firsts = long_texts.join(answers, notes.texts, notes.tokens, self._answers)
        several = np.diff(np.append(firsts, len(outputs))) > 1
        chosen = self._answers.choose(joined)
        found = prediction_files.predictions(
            self.labels,
            (example.guid for example in examples),
            (
                choice if is_joined else outputs[first]["predictions"]
                for choice, is_joined, first in zip(chosen, several, firsts, strict=True)
            ),
            joined,
            (bool(count.cut) for count in notes.cuts),
            self._separator,
        )
        return map(self._decide, found) if self.decision.may_abstain else found

    def _decide(self, result: prediction_files.Prediction) -> prediction_files.Prediction:
        if not self.decision.abstains(result.probabilities.values()):
            return result
        return dataclasses.replace(result, prediction=decisions.ABSTAINS)

    def batch_size(self, examples: Sequence[Any]) -> int:
        return max(len(examples), _WINDOWS) if self._rule.has_windows else len(examples)

    def to_json(self, result: prediction_files.Prediction) -> dict[str, Any]:
        """Returns a JSON-ready prediction, with the names of labels."""
        return prediction_files.to_dict(self.names, self._named(result))

    def tensors(self) -> tuple[tensors.Tensor, ...]:
        """Returns prediction [B], a text or a number, and of texts probabilities [B, K]."""
        if not self.labels:
            return (tensors.NUMBER,)
        return (tensors.PREDICTION, tensors.probabilities(len(self.labels)))

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
        extra = None
        if examples is not None:
            names = ("text", "text_pair")[: 1 + (self.columns.text_pair is not None)]
            extra = names, ((e.text_a, e.text_b or "")[: len(names)] for e in examples)
        rows = map(self._named, results)
        prediction_files.write_predictions(file, form, self.names, rows, extra)

    def _named(self, result: prediction_files.Prediction) -> prediction_files.Prediction:
        if self.names == self.labels:
            return result
        names = dict(zip(self.labels, self.names, strict=True))
        return dataclasses.replace(
            result,
            prediction=names.get(result.chosen, result.chosen),
            probabilities={names[k]: value for k, value in result.probabilities.items()},
        )

    # --- scores ---

    def answers(self, results: Iterable[prediction_files.Prediction]) -> list:
        return [result.prediction for result in results]

    def score(self, gold: list, answers: list) -> float:
        """Returns percentage points: accuracy of what is answered, or correlation of numbers."""
        if self.labels:
            pairs = zip(gold, answers, strict=True)
            right = [a == b for a, b in pairs if b != decisions.ABSTAINS]
            return 100 * float(np.mean(right)) if right else 0.0
        return 100 * glue.REGRESSION_SCORES[0][1](np.array(gold), np.array(answers))


def _example_of(
    task: custom.CustomTask, row: dict[str, Any], place: str, number: int
) -> glue.InputExample:
    """Returns the `glue.InputExample` of a row; the tokenizer cleans its texts, once."""
    return task.example(row, place, str(number), task.no_label, use_spm=False, do_lower_case=False)
