"""Chooses answers to questions about texts with a model fine-tuned on RACE.

Letters in shapes: C choices, R inputs (one per choice of some questions), S sequence.
"""

import dataclasses
import itertools
import string
from collections.abc import Iterable, Iterator
from typing import IO

import numpy as np

from albert.io import file_io, tables
from albert.model import batching, model_folder
from albert.serving import inference, requests
from albert.tasks import race
from albert.text import model_inputs

_INPUTS = ("input_ids", "input_mask", "segment_ids")
_KEYS = ("article", "question", "options")


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """A question about a text, with answers to choose from.

    Attributes:
      guid: its id.
      article: the text.
      question: the question; an option replaces the "_" in it, or is appended if there is none.
      options: tuple of C texts, 2 to 26.
    """

    guid: str
    article: str
    question: str
    options: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """The option chosen by a model.

    Attributes:
      question: `Question`.
      number: index of the option, from 0.
      probabilities: those of the options, [C].
      truncated: whether texts were longer than the model's input and were cut.
    """

    question: Question
    number: int
    probabilities: list
    truncated: bool = False

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
    lines: Iterable[bytes], name: str, skip_empty: bool = False
) -> Iterator[Question]:
    """Yields a `Question` per object of a jsonl file; the default of "id" counts from 0.

    Args:
      lines: iterable of bytes.
      name: name of the file, for messages.
      skip_empty: whether to skip questions without text; the others keep their numbers.

    Raises:
      file_io.InputError: a line is not an object, or lacks one of article, question (texts) and
        options (2 to 26 texts); names the line.
    """
    return tables.each(tables.read_rows(lines, name, "jsonl"), _question, skip_empty)


def _question(number, place, row):
    missing = [key for key in _KEYS if key not in row]
    if missing:
        raise file_io.InputError(
            f"{place}: expected the keys {', '.join(_KEYS)}; there is no {', '.join(missing)} "
            f"among {', '.join(row)}"
        )
    texts = [tables.text_of(row, key, "question", place) for key in _KEYS[:2]]
    options = row["options"]
    fits = isinstance(options, list) and all(isinstance(o, str) and o.strip() for o in options)
    if not fits or not 2 <= len(options) <= len(string.ascii_uppercase):
        raise file_io.InputError(
            f"{place}: options must be a list of 2 to {len(string.ascii_uppercase)} texts, "
            f"found {options!r}"
        )
    guid = tables.name_of(row, "id", "id", place) if "id" in row else str(number)
    return Question(guid, *texts, tuple(options))


class ChoicePredictor:
    """A fine-tuned model, loaded from the folder of its training run or from a serving folder.

    Args:
      model_dir: output folder of run_race (its best checkpoint is used, else its last), or a
        serving folder.
      runtime, threads: for serving folders; see `runtimes.load`.

    Attributes:
      max_seq_length: S of the training.

    Raises:
      file_io.InputError: the folder is missing, of another kind of model or without a checkpoint.
    """

    form = requests.CHOICE
    metric = "accuracy"
    input_forms = output_forms = ("jsonl",)
    batches_ahead = 64
    gives_numbers = False

    def __init__(
        self,
        model_dir: str | inference.FoundModel,
        runtime: str = "auto",
        threads: int | None = None,
    ) -> None:
        model = inference.find(model_dir, race.KIND)
        folder = model.folder
        max_qa_length = folder.length("max_qa_length", 1)
        self.max_seq_length = folder.length(minimum=max_qa_length + race.BESIDE_ENDING)
        self._lengths = self.max_seq_length, max_qa_length
        self._tokenizer = model_folder.load_tokenizer(folder.source, folder.config)
        self.infer = model.load(runtime, threads)

    def predict(
        self, questions: Iterable[Question], batch_size: int = 32, batches_ahead: int = 16
    ) -> Iterator[Choice]:
        """Yields a `Choice` for each `Question`, in order.

        Args:
          questions: iterable of `Question`.
          batch_size: R, maximum number of inputs per batch.
          batches_ahead: reads `batch_size` times this many questions at a time, to batch inputs of
            similar length.
        """
        questions = iter(questions)
        while window := list(itertools.islice(questions, batch_size * batches_ahead)):
            cuts = [model_inputs.Cuts() for _ in window]
            features = list(map(self._features, window, cuts))
            columns = {name: np.concatenate([f[name] for f in features]) for name in _INPUTS}
            logits = np.zeros(len(columns["input_ids"]), np.float32)
            for indices, batch in batching.trimmed_batches(columns, batch_size):
                logits[indices] = self.infer(batch)["logits"]
            ends = np.cumsum([len(question.options) for question in window])
            all_scores = np.split(logits, ends[:-1])
            for question, scores, count in zip(window, all_scores, cuts, strict=True):
                powers = np.exp(scores - np.max(scores))
                probabilities = (powers / np.sum(powers)).tolist()
                yield Choice(question, int(np.argmax(scores)), probabilities, bool(count.cut))

    def read_lines(
        self, lines: Iterable[bytes], name: str, form: str = "jsonl", skip_empty: bool = False
    ) -> Iterator[Question]:
        """Yields the questions of a jsonl file; see `read_questions`."""
        return read_questions(lines, name, skip_empty)

    def read(self, path: str, labeled: bool) -> tuple[list, list | None]:
        """Returns the questions of a file and the right options; see `predictors.Predictor`.

        Args:
          path: passages in RACE's form, or questions without answers as `read_questions` takes.
          labeled: see `predictors.Predictor`.
        """
        questions, gold = [], []
        if path.endswith(".jsonl"):
            with file_io.open_input(path, "check_file", "rb") as lines:
                questions, gold = list(read_questions(lines, path)), None
        else:
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

    def of_request(self, fields: dict) -> Question:
        """Returns the example of a request."""
        return Question("", fields["article"], fields["question"], tuple(fields["options"]))

    def batch_size(self, examples: list) -> int:
        """Returns the batch size for examples of requests that are computed together."""
        return sum(len(question.options) for question in examples)

    def to_json(self, result: Choice) -> dict:
        """Returns a JSON-ready `Choice`."""
        return result.to_dict()

    def write(self, file: IO[str], form: str, results: Iterable[Choice]) -> None:
        """Writes results as jsonl."""
        file.writelines(tables.json_line(self.to_json(result)) for result in results)

    def answers(self, results: Iterable[Choice]) -> list:
        """Returns the indices of the chosen options, to compare and score."""
        return [result.number for result in results]

    def score(self, gold: list, answers: list) -> float:
        """Returns the accuracy in percentage points."""
        return 100 * float(np.mean(np.array(answers) == gold))

    def _features(self, question: Question, cuts: model_inputs.Cuts) -> dict[str, np.ndarray]:
        """Returns the features of a question: int32 arrays [C, S] by name."""
        example = race.RaceExample(
            question.guid,
            question.guid,
            question.article,
            tuple(race.ending(question.question, option) for option in question.options),
            label=0,
            level=race.LEVELS[0],
        )
        features = race.convert_example(example, *self._lengths, self._tokenizer, cuts)
        rows = len(question.options)
        return {name: features[name].reshape(rows, -1).astype(np.int32) for name in _INPUTS}
