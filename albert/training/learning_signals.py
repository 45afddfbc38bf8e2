"""Batch statistics that show whether the model's outputs follow the labels.

A collapsed model gives every example the same output, whatever its label. A model that has just
begun to learn may still predict one class for every example, but its probabilities already
correlate with the labels. The statistic therefore sums, over the examples of a batch, how much more
an example's output favors its own label than the labels of the other examples. If outputs and
labels are independent, the expected sum is 0 and its variance is known exactly: W. Hoeffding, A
Combinatorial Central Limit Theorem, 1951, theorem 1.

All functions return {name: tensor} that add up over batches, with at least "association" [4], see
`_association`. `stuck_runs` judges the sums. Letters in shapes: see the docstring of the package.
"""

import tensorflow as tf

from albert.data.input_options import Tensors

_MAX_WORDS = 256  # maximum number of words per batch that are compared pairwise


def _centered(matrix: tf.Tensor) -> tf.Tensor:
    """Subtracts the means of rows and columns from a matrix [B, B]."""
    return (
        matrix
        - tf.reduce_mean(matrix, axis=0, keepdims=True)
        - tf.reduce_mean(matrix, axis=1, keepdims=True)
        + tf.reduce_mean(matrix)
    )


def _association(scores: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    """Returns the statistics of one batch.

    Args:
      scores: [B, B], how much the output of example i favors the label of example j.
      kernel: [B, B], the same for outputs that equal the labels.

    Returns:
      float32 [4]: the sum of the scores of the own labels beyond chance, its variance if outputs
      and labels are independent, its maximum value, and B.
    """
    scores, kernel = (_centered(tf.cast(x, tf.float32)) for x in (scores, kernel))
    count = tf.cast(tf.shape(scores)[0], tf.float32)
    variance = tf.reduce_sum(tf.square(scores)) / tf.maximum(count - 1.0, 1.0)
    return tf.stack([tf.linalg.trace(scores), variance, tf.linalg.trace(kernel), count])


def _compare_pairs(labels: tf.Tensor) -> tf.Tensor:
    """Compares labels [B] pairwise; returns [B, B], 1 for equal labels."""
    return tf.cast(labels[:, tf.newaxis] == labels[tf.newaxis], tf.float32)


def class_signals(outputs: Tensors, features: Tensors) -> dict[str, tf.Tensor]:
    """Computes the learning signals of a classification.

    Args:
      outputs: dict with probabilities [B, C] and predictions [B].
      features: dict with label_ids, B integers.

    Returns:
      Dict of float32 tensors that add up over batches: association [4] (sum beyond chance, its
      variance, its maximum, B); labels and predictions [C], the count of each class; correct [],
      the number of correct predictions.
    """
    labels = tf.reshape(features["label_ids"], [-1])
    scores = tf.gather(outputs["probabilities"], labels, axis=1)
    classes = outputs["probabilities"].shape[-1]

    def count(ids: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.one_hot(ids, classes), axis=0)

    return {
        "association": _association(scores, _compare_pairs(labels)),
        "labels": count(labels),
        "predictions": count(outputs["predictions"]),
        "correct": tf.reduce_sum(
            tf.cast(tf.cast(outputs["predictions"], labels.dtype) == labels, tf.float32)
        ),
    }


def label_set_signals(outputs: Tensors, features: Tensors) -> dict[str, tf.Tensor]:
    """Computes the learning signals of several labels per text.

    Args:
      outputs: dict with probabilities [B, C].
      features: dict with label_ids [B, C], 1 for the labels of the text.
    """
    labels = tf.cast(features["label_ids"], tf.float32)
    scores = tf.matmul(outputs["probabilities"], labels, transpose_b=True)
    return {"association": _association(scores, tf.matmul(labels, labels, transpose_b=True))}


def word_signals(outputs: Tensors, features: Tensors) -> dict[str, tf.Tensor]:
    """Computes `class_signals` of the first words of a batch.

    Args:
      outputs: dict with probabilities [B, S, C] and predictions [B, S].
      features: dict with label_ids and first_pieces, [B, S] integers each.
    """
    words = tf.where(features["first_pieces"] > 0)[:_MAX_WORDS]
    word_outputs = {
        name: tf.gather_nd(outputs[name], words) for name in ("probabilities", "predictions")
    }
    return class_signals(word_outputs, {"label_ids": tf.gather_nd(features["label_ids"], words)})


def number_signals(outputs: Tensors, features: Tensors) -> dict[str, tf.Tensor]:
    """Computes the learning signals of a regression.

    Args:
      outputs: dict with predictions [B].
      features: dict with label_ids, B numbers.
    """
    labels = tf.cast(tf.reshape(features["label_ids"], [-1]), tf.float32)
    # Centered before the products, which lose digits if numbers are far from 0.
    labels, predictions = (x - tf.reduce_mean(x) for x in (labels, outputs["predictions"]))
    scores = predictions[:, tf.newaxis] * labels
    return {"association": _association(scores, labels[:, tf.newaxis] * labels)}


def label_signals(outputs: Tensors, features: Tensors) -> dict[str, tf.Tensor]:
    """Returns the result of `class_signals` for integer labels, else of `number_signals`."""
    by_kind = class_signals if features["label_ids"].dtype.is_integer else number_signals
    return by_kind(outputs, features)


def _start_association(probabilities: tf.Tensor, features: Tensors) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns scores and kernel, [B, B] each, of start positions with probabilities [B, S]."""
    starts = tf.reshape(features["start_positions"], [-1])
    return tf.gather(probabilities, starts, axis=1), _compare_pairs(starts)


def span_signals(outputs: Tensors, features: Tensors) -> dict[str, tf.Tensor]:
    """Computes the learning signals of SQuAD 1.1, from the start positions of answers.

    Args:
      outputs: dict with start_logits [B, S].
      features: dict with start_positions, B integers.
    """
    probabilities = tf.nn.softmax(outputs["start_logits"])
    return {"association": _association(*_start_association(probabilities, features))}


def span_or_none_signals(outputs: Tensors, features: Tensors) -> dict[str, tf.Tensor]:
    """Computes the learning signals of SQuAD 2.0, from start positions and answerability.

    Args:
      outputs: dict with start_log_probs [B, S] and cls_logits [B].
      features: dict with start_positions and is_impossible, B integers each.
    """
    scores, kernel = _start_association(tf.exp(outputs["start_log_probs"]), features)
    impossible = tf.reshape(features["is_impossible"], [-1])
    odds = tf.nn.sigmoid(outputs["cls_logits"])
    answerability = tf.gather(tf.stack([1.0 - odds, odds], axis=1), impossible, axis=1)
    return {
        "association": _association(scores + answerability, kernel + _compare_pairs(impossible))
    }
