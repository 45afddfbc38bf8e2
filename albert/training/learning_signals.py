"""Batch statistics that show whether the model's outputs follow the labels.

A model that has collapsed gives every example the same output, whatever its label. One that has
just begun to learn may still name one class for every example, but its probabilities already go
with the labels. The signal is therefore how much more an example's output favors its own label than
the labels of the other examples of its batch do. By chance that sum is 0 with a variance that is
known exactly: W. Hoeffding, A Combinatorial Central Limit Theorem, 1951, theorem 1.

`stuck_runs` judges the sums. Letters in shapes: see the docstring of the package.
"""

import tensorflow as tf

_WORDS = 256  # words per batch that are compared pairwise


def _centred(matrix):
    """Subtracts the means of rows and columns from a matrix [B, B]."""
    return (
        matrix
        - tf.reduce_mean(matrix, axis=0, keepdims=True)
        - tf.reduce_mean(matrix, axis=1, keepdims=True)
        + tf.reduce_mean(matrix)
    )


def _association(scores, kernel):
    """Returns the statistics of one batch.

    Args:
      scores: [B, B], how much the output of example i favors the label of example j.
      kernel: [B, B], the same for outputs that are the labels themselves.

    Returns:
      float32 [4]: the sum of the own labels' scores beyond chance, its variance if outputs and
      labels had nothing to do with each other, its highest possible value, and B.
    """
    scores, kernel = (_centred(tf.cast(x, tf.float32)) for x in (scores, kernel))
    count = tf.cast(tf.shape(scores)[0], tf.float32)
    variance = tf.reduce_sum(tf.square(scores)) / tf.maximum(count - 1.0, 1.0)
    return tf.stack([tf.linalg.trace(scores), variance, tf.linalg.trace(kernel), count])


def _equal(labels):
    """Compares labels [B] pairwise; returns [B, B], 1 for equal labels."""
    return tf.cast(labels[:, tf.newaxis] == labels[tf.newaxis], tf.float32)


def of_classes(
    outputs: dict[str, tf.Tensor], features: dict[str, tf.Tensor]
) -> dict[str, tf.Tensor]:
    """Computes the signals of a classification.

    Args:
      outputs: dict with probabilities [B, C] and predictions [B].
      features: dict with label_ids, B integers.

    Returns:
      Dict of float32 tensors that add up over batches: association [4], see `_association`;
      labels and predictions [C], how often each class occurs in them; correct [], how often both
      are the same.
    """
    labels = tf.reshape(features["label_ids"], [-1])
    scores = tf.gather(outputs["probabilities"], labels, axis=1)
    classes = outputs["probabilities"].shape[-1]

    def count(found):
        return tf.reduce_sum(tf.one_hot(found, classes), axis=0)

    return {
        "association": _association(scores, _equal(labels)),
        "labels": count(labels),
        "predictions": count(outputs["predictions"]),
        "correct": tf.reduce_sum(
            tf.cast(tf.cast(outputs["predictions"], labels.dtype) == labels, tf.float32)
        ),
    }


def of_words(outputs: dict[str, tf.Tensor], features: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Computes the signals of word labels, from the first words of a batch.

    Args:
      outputs: dict with probabilities [B, S, C] and predictions [B, S].
      features: dict with label_ids and first_pieces, [B, S] integers each.

    Returns:
      As `of_classes`.
    """
    words = tf.where(features["first_pieces"] > 0)[:_WORDS]
    found = {name: tf.gather_nd(outputs[name], words) for name in ("probabilities", "predictions")}
    return of_classes(found, {"label_ids": tf.gather_nd(features["label_ids"], words)})


def of_numbers(
    outputs: dict[str, tf.Tensor], features: dict[str, tf.Tensor]
) -> dict[str, tf.Tensor]:
    """Computes the signals of a regression.

    Args:
      outputs: dict with predictions [B].
      features: dict with label_ids, B numbers.

    Returns:
      Dict with association [4], see `_association`.
    """
    labels = tf.cast(tf.reshape(features["label_ids"], [-1]), tf.float32)
    scores = outputs["predictions"][:, tf.newaxis] * labels
    return {"association": _association(scores, labels[:, tf.newaxis] * labels)}


def of_labels(
    outputs: dict[str, tf.Tensor], features: dict[str, tf.Tensor]
) -> dict[str, tf.Tensor]:
    """Calls `of_classes` for integer labels, else `of_numbers`."""
    by_kind = of_classes if features["label_ids"].dtype.is_integer else of_numbers
    return by_kind(outputs, features)


def _of_starts(probabilities, features):
    """Returns scores [B, B] and kernel [B, B] of the positions where answers start."""
    starts = tf.reshape(features["start_positions"], [-1])
    return tf.gather(probabilities, starts, axis=1), _equal(starts)


def of_spans(outputs: dict[str, tf.Tensor], features: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Computes the signals of SQuAD 1.1, from the positions where answers start.

    Args:
      outputs: dict with start_logits [B, S].
      features: dict with start_positions, B integers.

    Returns:
      Dict with association [4], see `_association`.
    """
    probabilities = tf.nn.softmax(outputs["start_logits"])
    return {"association": _association(*_of_starts(probabilities, features))}


def of_spans_or_none(
    outputs: dict[str, tf.Tensor], features: dict[str, tf.Tensor]
) -> dict[str, tf.Tensor]:
    """Computes the signals of SQuAD 2.0, from answer start positions and answerability.

    Args:
      outputs: dict with start_log_probs [B, S] and cls_logits [B].
      features: dict with start_positions and is_impossible, B integers each.

    Returns:
      Dict with association [4], see `_association`.
    """
    scores, kernel = _of_starts(tf.exp(outputs["start_log_probs"]), features)
    impossible = tf.reshape(features["is_impossible"], [-1])
    odds = tf.nn.sigmoid(outputs["cls_logits"])
    answerability = tf.gather(tf.stack([1.0 - odds, odds], axis=1), impossible, axis=1)
    return {"association": _association(scores + answerability, kernel + _equal(impossible))}
