"""Chooses answers to questions about texts with a model fine-tuned on RACE.

Letters in shapes: C choices, R inputs (one per choice of some questions), S sequence.
"""

import dataclasses
import itertools
import string
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from albert.io import file_io, tables
from albert.model import model_folder
from albert.serving import requests, tensors
from albert.serving.predictor import Arrays, Predictor
from albert.tasks import race
from albert.text import model_inputs

_KEYS = ("article", "question", "options")


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """A question about a text, with answers to choose from."""

    guid: str
    article: str
    question: str  # an option replaces each run of "_" in it, or is appended if there is none
    options: tuple[str, ...]  # C texts, 2 to 26


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """The option chosen by a model."""

    question: Question
    number: int  # index of the option, from 0
    probabilities: list  # of the options, [C]
    truncated: bool = False  # whether texts were longer than the model's input and were cut

    def to_dict(self) -> dict:
        """Returns a JSON-ready dict: id, prediction (letter), answer (text), probabilities."""
        rounded = [round(float(p), 6) for p in self.probabilities]
        return {
            "id": self.question.guid,
            "prediction": string.ascii_uppercase[self.number],
            "answer": self.question.options[self.number],
            "probabilities": dict(zip(string.ascii_uppercase, rounded, strict=False)),
        } | ({"truncated": True} if self.truncated else {})


def read_questions(
    lines: Iterable[bytes], name: str, skipped: list[str] | None = None
) -> Iterator[Question]:
    """Yields a `Question` per object of a jsonl file, which has article, question and options.

    The default of "id" counts from 0. `skipped` gets the places of questions without text; None:
    they are an error.
    """
    return tables.each(tables.read_rows(lines, name, "jsonl"), _question, skipped)


def _question(number: int, place: str, row: dict[str, Any]) -> Question:
    missing = [key for key in _KEYS if key not in row]
    if missing:
        raise file_io.InputError(
            f"{place}: expected the keys {', '.join(_KEYS)}; there is no {', '.join(missing)} "
            f"among {', '.join(row)}"
        )
    article, question = (tables.text_of(row, key, "question", place) for key in _KEYS[:2])
    options = row["options"]
    fits = isinstance(options, list) and all(isinstance(o, str) and o.strip() for o in options)
    if not fits or not 2 <= len(options) <= len(string.ascii_uppercase):
        raise file_io.InputError(
            f"{place}: options must be a list of 2 to {len(string.ascii_uppercase)} texts, "
            f"found {options!r}"
        )
    guid = tables.name_of(row, "id", "id", place) if "id" in row else str(number)
    return Question(guid, article, question, tuple(options))


class ChoicePredictor(Predictor[Question, Sequence[model_inputs.Cuts], Choice]):
    """A model that chooses answers to questions; see `Predictor`."""

    kinds = (race.KIND,)
    form = requests.CHOICE
    metric = "accuracy"

    def _read_settings(self, folder: model_folder.ModelFolder) -> int:
        self._max_qa_length = folder.length("max_qa_length", 1)
        return self._max_qa_length + race.RESERVED_TOKENS

    def predict(
        self, questions: Iterable[Question], batch_size: int = 32, batches_ahead: int = 16
    ) -> Iterator[Choice]:
        """Yields a choice for each question, in order; B counts options. See `Predictor`."""
        return self._predict(questions, batch_size, batches_ahead)

    def _encode(self, examples: Sequence[Question]) -> tuple[Arrays, Sequence[model_inputs.Cuts]]:
        cuts = [model_inputs.Cuts() for _ in examples]
        features = list(map(self._features, examples, cuts))
        return {name: np.concatenate([f[name] for f in features]) for name in features[0]}, cuts

    def _decode(
        self,
        examples: Sequence[Question],
        notes: Sequence[model_inputs.Cuts],
        outputs: Sequence[Arrays],
    ) -> Iterator[Choice]:
        logits = iter(outputs)
        for question, count in zip(examples, notes, strict=True):
            options = itertools.islice(logits, len(question.options))
            scores = np.array([output["logits"] for output in options])
            powers = np.exp(scores - np.max(scores))
            probabilities = (powers / np.sum(powers)).tolist()
            yield Choice(question, int(np.argmax(scores)), probabilities, bool(count.cut))

    def read_lines(
        self,
        lines: Iterable[bytes],
        name: str,
        form: str = "jsonl",
        *,
        skipped: list[str] | None = None,
    ) -> Iterator[Question]:
        return read_questions(lines, name, skipped)

    def read(self, path: str, labeled: bool) -> tuple[list[Question], list | None]:
        """See `Predictor`; a file has passages in RACE's form, or is as `read_questions` takes."""
        questions: list[Question] = []
        gold: list[int] | None = None
        if path.endswith(".jsonl"):
            with file_io.open_input(path, "check_file", "rb") as lines:
                questions = list(read_questions(lines, path))
        else:
            gold = []
            for passage in race.read_passages(path):
                rows = zip(
                    passage["questions"], passage["options"], passage["answers"], strict=True
                )
                for number, (question, options, answer) in enumerate(rows, 1):
                    guid = f"{passage['id']}#{number}"
                    questions.append(Question(guid, passage["article"], question, tuple(options)))
                    gold.append(string.ascii_uppercase.index(answer))
        if not questions:
            raise file_io.InputError(f"{path}: there is no question")
        return questions, gold

    def read_request(self, fields: dict[str, Any]) -> Question:
        return Question("", fields["article"], fields["question"], tuple(fields["options"]))

    def batch_size(self, examples: Sequence[Question]) -> int:
        return sum(len(question.options) for question in examples)

    def to_json(self, result: Choice) -> dict[str, Any]:
        return result.to_dict()

    def tensors(self) -> tuple[tensors.Tensor, ...]:
        """Returns prediction and answer [B], and probabilities [B, C]."""
        return (tensors.PREDICTION, tensors.ANSWER, tensors.probabilities(tensors.ANY))

    def answers(self, results: Iterable[Choice]) -> list:
        """Returns the indices of the chosen options, to compare and score."""
        return [result.number for result in results]

    def score(self, gold: list, answers: list) -> float:
        return 100 * float(np.mean(np.array(answers) == gold))

    def _features(self, question: Question, cuts: model_inputs.Cuts) -> dict[str, np.ndarray]:
        """Returns the features of a question: int32 arrays [C, S] by name."""
        text = race.single_blanks(question.question)
        example = race.RaceExample(
            question.guid,
            question.guid,
            question.article,
            tuple(race.ending(text, option) for option in question.options),
            label=0,
            level=race.LEVELS[0],
        )
        lengths = self.max_seq_length, self._max_qa_length
        features = race.convert_example(example, *lengths, self.tokenizer, cuts)
        rows = len(question.options)
        return {
            name: features[name].reshape(rows, -1).astype(np.int32) for name in model_inputs.NAMES
        }
