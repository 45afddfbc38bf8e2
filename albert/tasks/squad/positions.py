"""Positions of the gold answers in windows, and the scores of the predicted positions.

Letters in shapes: B batch, S sequence, W windows of all questions.
"""

import numpy as np

from albert.tasks.squad import features as squad_features

# What of the training each evaluation reports, too; see `contracts.Task.training_means`.
TRAINING_MEANS = ("loss", "start_accuracy", "end_accuracy")
_ROWS = ("start_is_right", "end_is_right", "per_example_loss", "place_is_known")


def targets(questions):
    """Places of the answers in the windows of questions to answer.

    Args:
      questions: `Questions`.

    Returns:
      Dict of int32 arrays [W]: start_positions and end_positions, 0 without a whole answer;
      is_impossible, 1 there; place_is_known, 0 where the file does not say where the answer is.
    """
    examples = {example.qas_id: example for example in questions.examples}
    rows = np.zeros([len(questions.features), 4], np.int32)
    for row, window in zip(rows, questions.features, strict=True):
        example = examples[window.qas_id]
        row[:] = 0, 0, 1, 1
        if example.is_impossible or not example.answers:
            continue
        if example.answer_starts is None or example.answer_starts[0] is None:
            row[3] = 0
            continue
        first = example.answer_starts[0]
        last = first + len(example.answers[0]) - 1
        # The piece that a character belongs to is the last one that starts at or before it.
        start, end = np.searchsorted(window.piece_start, [first, last], side="right") - 1
        if start >= 0 and window.piece_end[-1] >= last:
            row[:3] = window.text_begin + start, window.text_begin + end, 0
    names = ("start_positions", "end_positions", "is_impossible", "place_is_known")
    return dict(zip(names, rows.T, strict=True))


def adding_targets(get_questions):
    """``prepare`` of `input_options.EvalInput`: adds `targets`, where the answers are known.

    Args:
      get_questions: function without arguments that returns `Questions`.
    """
    import tensorflow as tf

    def prepare(features):
        questions = get_questions()
        if not questions.answers_known:
            return features
        place = tf.reshape(features["unique_ids"], [-1]) - squad_features.FIRST_UNIQUE_ID
        found = {name: tf.gather(values, place) for name, values in targets(questions).items()}
        return {**features, **found}

    return prepare


def _right(outputs, features, names):
    """Whether starts and ends are right: two float tensors [B].

    `names` are those of the scores [B, S] in the outputs.
    """
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


def train_metrics(outputs, features, names):
    """`contracts.Task.train_metrics`: accuracy of both positions; for `names` see `eval_rows`."""
    import tensorflow as tf

    right = zip(("start_accuracy", "end_accuracy"), _right(outputs, features, names), strict=True)
    return {name: (tf.reduce_sum(x), tf.cast(tf.size(x), tf.float32)) for name, x in right}


def eval_rows(outputs, features, names):
    """What `Scores` needs of a batch: dict of tensors [B], empty where no answer is known.

    Args:
      outputs, features: of the model.
      names: of the scores of starts and ends [B, S] among the outputs.
    """
    if "start_positions" not in features:
        return {}
    rows = (*_right(outputs, features, names), outputs["per_example_loss"])
    return dict(zip(_ROWS, (*rows, features["place_is_known"]), strict=True))


class Scores:
    """Accuracy of both positions and the loss over all windows whose answer has a known place."""

    def __init__(self):
        self._batches = []

    def take(self, rows):
        """Adds a batch of rows, dict of arrays [B, …]; returns those that are not of `eval_rows`.

        A window must not be added twice.
        """
        if _ROWS[0] in rows:
            known = np.asarray(rows["place_is_known"]).astype(bool)
            self._batches.append(np.stack([rows[name] for name in _ROWS[:3]])[:, known])
        return {name: values for name, values in rows.items() if name not in _ROWS}

    def result(self):
        """start_accuracy, end_accuracy and eval_loss; nothing where no place is known."""
        columns = np.concatenate([np.zeros([3, 0]), *self._batches], axis=1)
        if not columns.shape[1]:
            return {}
        names = ("start_accuracy", "end_accuracy", "eval_loss")
        return dict(zip(names, map(float, columns.mean(axis=1)), strict=True))
