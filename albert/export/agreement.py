"""Compares the answers of two formats of a fine-tuned model, and scores them.

An answer depends on the kind of model: a label per text, a label per word, an option per question
of RACE, or a text per question of SQuAD. The answers of regression are numbers, which are equal if
they differ by at most a hundredth of the range of the first model's answers.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import numpy as np

from albert.io import file_io
from albert.model import model_folder
from albert.serving import inference, predictors

_TOLERANCE = 0.01  # fraction of the range of the expected numbers


def _compare_answers(expected: Sequence, actual: Sequence) -> np.ndarray:
    return np.array([one == other for one, other in zip(expected, actual, strict=True)])


def _compare_numbers(expected: Sequence, actual: Sequence) -> np.ndarray:
    """Compares numbers with a tolerance from the range of `expected`, as labels may be missing."""
    numbers = np.array(expected)
    return np.abs(numbers - np.array(actual)) <= _TOLERANCE * np.ptp(numbers)


@dataclasses.dataclass(frozen=True)
class Examples:
    """The examples of a file, with functions that answer and score them."""

    path: str
    answers: Callable[[inference.FoundModel], list]  # one answer per example, or per word
    metric: str | None  # name of the score; None if the correct answers are unknown
    score: Callable[[list], float]  # of answers, from 0 to 100
    # ``(expected, actual) -> bools``: compares two lists of answers one by one.
    same: Callable[[list, list], np.ndarray] = _compare_answers


@dataclasses.dataclass(frozen=True)
class Agreement:
    """The agreement of two models on a file, and the score of each."""

    count: int  # number of answers
    rate: float  # fraction of equal answers
    metric: str | None
    expected: float  # score of the first model, from 0 to 100
    actual: float  # of the second

    def to_dict(self) -> dict:
        return {
            "answers": self.count,
            "agreement": round(self.rate, 6),
            "metric": self.metric,
            "points_of_float32": round(self.expected, 4),
            "points": round(self.actual, 4),
        }


def _evenly_spaced(items: list, limit: int | None) -> list:
    """Returns `limit` evenly spaced items of a list; all items if there are no more than that."""
    if limit is None or len(items) <= limit:
        return items
    return [items[number * len(items) // limit] for number in range(limit)]


def read(
    folder: model_folder.ModelFolder,
    path: str,
    flag: str,
    needs_labels: bool = True,
    max_examples: int | None = None,
) -> Examples:
    """Reads the `Examples` of a file.

    Args:
      path: for classifiers a file with the columns of the training data, or the ``dev.tsv`` of a
        task; else words with labels, passages in RACE's format, questions in the format of
        `predict`, or a SQuAD file.
      flag: name of the parameter that gives the path, for messages.
      max_examples: maximum number of examples, evenly spaced in the file; None: all.
    """
    if not file_io.exists(path):
        raise file_io.InputError(f"{flag}: the file {path} does not exist")
    reader = predictors.reader(folder)
    examples, gold = reader.read(path, needs_labels)
    if needs_labels and gold is None:
        raise file_io.InputError(f"{flag}: {path} has no correct answers; give a file with labels")
    examples = _evenly_spaced(examples, max_examples)
    gold = gold and _evenly_spaced(gold, max_examples)

    def answers(model: inference.FoundModel) -> list:
        predictor = predictors.load(model)
        results = predictor.predict(examples, batches_ahead=predictor.batches_ahead)
        return predictor.answers(results)

    return Examples(
        path=path,
        answers=answers,
        metric=None if gold is None else reader.metric,
        score=functools.partial(reader.score, gold or []),
        same=_compare_numbers if reader.gives_numbers else _compare_answers,
    )


def measure(
    examples: Examples, expected: inference.FoundModel, actual: inference.FoundModel
) -> Agreement:
    """Measures the `Agreement` of two models; `examples`: with known correct answers."""
    answers = examples.answers(expected), examples.answers(actual)
    points = map(examples.score, answers)
    return Agreement(len(answers[0]), agreement_rate(examples, *answers), examples.metric, *points)


def agreement_rate(examples: Examples, expected: list, actual: list) -> float:
    """Returns the fraction of the `Examples` with the same answer in two lists of answers."""
    return float(np.mean(examples.same(expected, actual)))
