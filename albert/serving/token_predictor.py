"""Predicts the labels of words with a fine-tuned token classifier.

Letters in shapes: B batch, S sequence.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any, NamedTuple

import numpy as np

from albert.io import file_io, tables
from albert.model import model_folder
from albert.serving import requests, tensors
from albert.serving.predictor import Arrays, Predictor, stacked
from albert.tasks import custom, entities, token_classification, word_files


class Notes(NamedTuple):
    """The features of the N parts of sentences, and the numbers of sentences that were cut."""

    rows: Arrays
    cut: set[int]


class TokenPredictor(Predictor[word_files.Sentence, Notes, word_files.Prediction]):
    """A classifier of words; see `Predictor`. `columns` are those of the training."""

    kinds = (token_classification.KIND,)
    form = requests.WORDS
    input_forms = ("txt", "jsonl", "conll")
    output_forms = ("conll", "jsonl")

    def _read_settings(self, folder: model_folder.ModelFolder) -> int:
        self.labels = custom.labels_of(folder)
        self.columns = word_files.Columns(**folder.setting("columns", word_files.are_columns))
        self._marks = entities.mark_entities(self.labels)
        self.metric = "f1" if self._marks else "accuracy"
        return model_folder.MIN_LENGTH

    # --- examples ---

    def read_lines(
        self, lines: Iterable[bytes], name: str, form: str, *, skipped: list[str] | None = None
    ) -> Iterator[word_files.Sentence]:
        """Yields the sentences of a file, whose labels are optional; see `Predictor`."""
        columns = self.columns.fitting(form)
        return word_files.read_lines(lines, name, form, columns, skipped=skipped)

    def read(self, path: str, labeled: bool) -> tuple[list[word_files.Sentence], list | None]:
        columns = self.columns.fitting(word_files.format_of(path))
        sentences = list(word_files.read(path, "check_file", columns, labeled or None))
        if not sentences:
            raise file_io.InputError(f"{path}: there is no sentence")
        unknown = {name for s in sentences for name in s.labels or ()} - set(self.labels)
        if labeled and unknown:
            raise file_io.InputError(
                f"{path} has the label {min(unknown)!r}; this model has "
                f"{tables.name_list(self.labels)}"
            )
        gold = [sentence.labels for sentence in sentences] if labeled else None
        return [word_files.without_labels(sentence) for sentence in sentences], gold

    def read_request(self, fields: dict[str, Any]) -> list[str]:
        return fields["words"]

    # --- predictions ---

    def predict(
        self,
        texts: Iterable[str | Sequence[str] | word_files.Sentence],
        batch_size: int = 32,
        batches_ahead: int = 1,
    ) -> Iterator[word_files.Prediction]:
        """See `Predictor`; texts are lists of words, or split at white space, or sentences."""
        sentences = map(_sentence, itertools.count(), texts)
        return self._predict(sentences, batch_size, batches_ahead)

    def _encode(self, examples: Sequence[word_files.Sentence]) -> tuple[Arrays, Notes]:
        sizes = (self.max_seq_length, self.tokenizer)
        parts = [
            part
            for number, sentence in enumerate(examples)
            for part in token_classification.parts_of(
                word_files.without_labels(sentence), number, self.labels, *sizes
            )
        ]
        features = [token_classification.convert_part(part, *sizes) for part in parts]
        rows = {name: np.stack([row[name] for row in features]) for name in features[0]}
        return stacked(features), Notes(rows, {part.sentence for part in parts if part.num_lost})

    def _scores(self, outputs: Arrays, inputs: Arrays) -> Arrays:
        return outputs | {"probabilities": outputs["probabilities"].max(axis=-1)}

    def _decode(
        self, examples: Sequence[word_files.Sentence], notes: Notes, outputs: Sequence[Arrays]
    ) -> Iterator[word_files.Prediction]:
        rows = dict(notes.rows)
        for name, kind in (("predictions", int), ("probabilities", np.float32)):
            rows[name] = np.zeros(rows["input_ids"].shape, kind)
            for row, output in zip(rows[name], outputs, strict=True):
                row[: len(output[name])] = output[name]
        return token_classification.predictions(examples, self.labels, rows, notes.cut)

    def to_json(self, result: word_files.Prediction) -> dict[str, Any]:
        return word_files.to_dict(result, self._marks)

    def tensors(self) -> tuple[tensors.Tensor, ...]:
        """Returns nothing: sentences have any number of words."""
        return ()

    def write(self, file: IO[str], form: str, results: Iterable[word_files.Prediction]) -> None:
        word_files.write_predictions(file, form, self.labels, results)

    # --- scores ---

    def answers(self, results: Iterable[word_files.Prediction]) -> list:
        """Returns the labels of all words, to compare and score."""
        return [label for result in results for label in result.labels]

    def score(self, gold: list, answers: list) -> float:
        """Returns the F1 of entities, or without entities the accuracy, in percentage points."""
        rest = iter(answers)
        answers = [list(itertools.islice(rest, len(labels))) for labels in gold]
        if self._marks:
            return 100 * entities.scores(gold, answers)["f1"]
        return 100 * entities.accuracy(gold, answers)


def _sentence(number: int, text: str | Sequence[str] | word_files.Sentence) -> word_files.Sentence:
    if isinstance(text, word_files.Sentence):
        return text
    place = f"text {number}"
    words = word_files.words_of(text, place) if isinstance(text, str) else tuple(text)
    return word_files.Sentence(str(number), words, None, place)
