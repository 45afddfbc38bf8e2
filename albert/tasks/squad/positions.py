"""Positions of the gold answers in windows, and the scores of the predicted positions.

Letters in shapes: B batch, S sequence, W windows of all questions. Arguments: `names` are the two
outputs with the scores of starts and of ends, float32 [B, S].
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from albert.data.input_options import Tensors
from albert.tasks.squad import features as squad_features
from albert.tasks.squad.answers import Questions

if TYPE_CHECKING:
    import tensorflow as tf

# Training metrics that each evaluation also reports; see `contracts.Task.training_means`.
TRAINING_MEANS = ("loss", "start_accuracy", "end_accuracy")
_ROWS = ("start_is_right", "end_is_right", "per_example_loss", "place_is_known")


def targets(questions: Questions) -> dict[str, np.ndarray]:
    """Finds the gold answers in the windows of questions.

    Returns:
      Dict of int32 arrays [W]: start_positions and end_positions, 0 in windows without the whole
      answer; is_impossible, 1 in these windows; place_is_known, 0 if the file does not give the
      position of the answer.
    """
    examples = {example.qas_id: example for example in questions.examples}
    rows = np.zeros([len(questions.features), 4], np.int32)
    for row, window in zip(rows, questions.features, strict=True):
        example = examples[window.question]
        starts = example.answer_starts or [None]
        is_known = example.is_impossible or not example.answers or starts[0] is not None
        row[:] = *(window.answer or (0, 0)), window.answer is None, is_known
    names = ("start_positions", "end_positions", "is_impossible", "place_is_known")
    return dict(zip(names, rows.T, strict=True))


def make_target_adder(get_questions: Callable[[], Questions]) -> Callable[[Tensors], Tensors]:
    """Returns a function that adds `targets` to the features of a batch, if answers are known."""
    import tensorflow as tf

    def prepare(features: Tensors) -> Tensors:
        """Adds the targets of the windows of a batch to its features."""
        questions = get_questions()
        if not questions.answers_known:
            return features
        place = tf.reshape(features["unique_ids"], [-1]) - squad_features.FIRST_UNIQUE_ID
        # A window with another number is missed by the evaluator, which names it.
        place = tf.clip_by_value(place, 0, len(questions.features) - 1)
        rows = {name: tf.gather(values, place) for name, values in targets(questions).items()}
        return {**features, **rows}

    return prepare


def _compare(outputs: Tensors, features: Tensors, names: Sequence[str]) -> list["tf.Tensor"]:
    """Returns whether starts and ends are right, as two float32 tensors [B]."""
    import tensorflow as tf

    pairs = zip(names, ("start_positions", "end_positions"), strict=True)
    return [
        tf.cast(
            tf.argmax(outputs[name], -1, tf.int32)
            == tf.cast(tf.reshape(features[target], [-1]), tf.int32),
            tf.float32,
        )
        for name, target in pairs
    ]


def train_metrics(
    outputs: Tensors, features: Tensors, names: Sequence[str]
) -> dict[str, tuple["tf.Tensor", "tf.Tensor"]]:
    """Returns {"start_accuracy", "end_accuracy": (number right, number)}, float32 scalars."""
    import tensorflow as tf

    right = zip(("start_accuracy", "end_accuracy"), _compare(outputs, features, names), strict=True)
    return {name: (tf.reduce_sum(x), tf.cast(tf.size(x), tf.float32)) for name, x in right}


def eval_rows(outputs: Tensors, features: Tensors, names: Sequence[str]) -> dict[str, "tf.Tensor"]:
    """Returns what `Scores` takes of a batch, tensors [B] by name; {} if no answer is known.

    These are whether start and end are right, the loss, and whether the place is known.

    Args:
      features: its inputs by name; where an answer is known with start_positions, end_positions
        and place_is_known, integers [B].
    """
    if "start_positions" not in features:
        return {}
    rows = (*_compare(outputs, features, names), outputs["per_example_loss"])
    return dict(zip(_ROWS, (*rows, features["place_is_known"]), strict=True))


class Scores:
    """Accuracy of both positions and mean loss of all windows with a known answer position."""

    def __init__(self) -> None:
        self._batches: list[np.ndarray] = []

    def take(self, rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Adds a batch of rows, each window only once; returns those not from `eval_rows`."""
        if _ROWS[0] in rows:
            is_known = np.asarray(rows["place_is_known"]).astype(bool)
            self._batches.append(np.stack([rows[name] for name in _ROWS[:3]])[:, is_known])
        return {name: values for name, values in rows.items() if name not in _ROWS}

    def result(self) -> dict[str, float]:
        """Returns start_accuracy, end_accuracy and eval_loss; {} if no position is known."""
        columns = np.concatenate([np.zeros([3, 0]), *self._batches], axis=1)
        if not columns.shape[1]:
            return {}
        names = ("start_accuracy", "end_accuracy", "eval_loss")
        return dict(zip(names, map(float, columns.mean(axis=1)), strict=True))
