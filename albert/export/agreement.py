"""Compares the answers of two forms of a fine-tuned model, and scores them.

What an answer is depends on the kind of model: a label for each text (for regression a number,
equal within a hundredth of the range of the first model's answers), a label for each word, an
option for each question of RACE, a text for each question of SQuAD.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import numpy as np

from albert.io import file_io
from albert.model import model_folder
from albert.serving import inference, predictors

_TOLERANCE = 0.01  # of the range of the expected numbers


def _equal(expected: Sequence, found: Sequence) -> np.ndarray:
    """Returns which of two lists of answers are equal: an array of bools."""
    return np.array([one == other for one, other in zip(expected, found, strict=True)])


def _near(expected: Sequence, found: Sequence) -> np.ndarray:
    """Returns which numbers are close, by the range of the first ones: there may be no labels."""
    expected, found = np.array(expected), np.array(found)
    return np.abs(expected - found) <= _TOLERANCE * np.ptp(expected)


@dataclasses.dataclass(frozen=True)
class Examples:
    """Examples of a file that models can answer.

    Attributes:
      path: the file.
      answers: ``(inference.FoundModel) -> list``: an answer for each example, or for each word.
      metric: name of the score; None where the right answers are not known.
      score: ``(answers) -> points``, from 0 to 100.
      same: ``(expected, found) -> bools``: which of two lists of answers are equal.
    """

    path: str
    answers: Callable
    metric: str | None
    score: Callable
    same: Callable = _equal


@dataclasses.dataclass(frozen=True)
class Agreement:
    """How two models answer a file.

    Attributes:
      count: number of answers.
      rate: fraction of them that are equal.
      metric: name of the score.
      expected, found: points, from 0 to 100, of the first and of the second model.
    """

    count: int
    rate: float
    metric: str
    expected: float
    found: float

    def to_dict(self) -> dict:
        """Returns the agreement as a JSON-ready dict."""
        return {
            "answers": self.count,
            "agreement": round(self.rate, 6),
            "metric": self.metric,
            "points_of_float32": round(self.expected, 4),
            "points": round(self.found, 4),
        }


def _evenly_spaced(items: list, limit: int | None) -> list:
    """Returns `limit` items from all over a list; all if there are no more."""
    if limit is None or len(items) <= limit:
        return items
    return [items[place * len(items) // limit] for place in range(limit)]


def read(
    folder: model_folder.ModelFolder,
    path: str,
    flag: str,
    labelled: bool = True,
    max_examples: int | None = None,
) -> Examples:
    """Reads the `Examples` of a file.

    Args:
      folder: `model_folder.ModelFolder` of the model that is to answer them.
      path: a file with the columns of the training or a task's own ``dev.tsv`` (classifiers), of
        words with labels, of passages in RACE's form or of questions as `predict` takes them, or of
        SQuAD.
      flag: the parameter that names it, for messages.
      labelled: whether the right answers must be there.
      max_examples: maximum number of examples, taken from all over the file; None: all.

    Raises:
      file_io.InputError: there is no such file, it is of another task, or has no right answers.
    """
    if not file_io.exists(path):
        raise file_io.InputError(f"{flag}: there is no file {path}")
    reader = predictors.reader(folder)
    examples, gold = reader.read(path, labelled)
    if labelled and gold is None:
        raise file_io.InputError(f"{flag}: {path} does not say what the right answers are")
    examples = _evenly_spaced(examples, max_examples)
    gold = gold and _evenly_spaced(gold, max_examples)

    def answers(model):
        predictor = predictors.load(model)
        results = predictor.predict(examples, batches_ahead=predictor.batches_ahead)
        return predictor.answers(results)

    return Examples(
        path=path,
        answers=answers,
        metric=None if gold is None else reader.metric,
        score=functools.partial(reader.score, gold),
        same=_near if reader.gives_numbers else _equal,
    )


def measure(
    examples: Examples, expected: inference.FoundModel, found: inference.FoundModel
) -> Agreement:
    """Measures the `Agreement` of two models.

    Args:
      examples: `Examples` whose right answers are known.
      expected, found: `inference.FoundModel`s.
    """
    answers = examples.answers(expected), examples.answers(found)
    points = map(examples.score, answers)
    return Agreement(len(answers[0]), agreement_rate(examples, *answers), examples.metric, *points)


def agreement_rate(examples: Examples, expected: list, found: list) -> float:
    """Returns the fraction of the `Examples` with the same answer in two lists of answers."""
    return float(np.mean(examples.same(expected, found)))
