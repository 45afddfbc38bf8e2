"""Counts the floating-point operations (FLOP) of training, by formula.

As in Scaling Laws for Neural Language Models, Kaplan et al., 2020, section 2.1, a multiply-add
counts as two operations, only matrix products count, and the backward pass has twice the products
of the forward pass: one for the gradient of each factor. Unlike there, every product is counted,
also in attention and in the heads, and a shared layer counts as often as it is computed. The second
forward pass of `Compute.recompute` is not counted, as in PaLM, Chowdhery et al., 2022, appendix B.

Letters: see the docstring of `albert.model`.
"""

import functools
from typing import NamedTuple

import tensorflow as tf

from albert.data.input_options import Tensors
from albert.model import encoder, heads, pretraining_heads, tensor_batching, token_rows
from albert.training import contracts, distillation


class StepWork(NamedTuple):
    """The sizes of a batch that its products depend on, or their sums over batches.

    Attributes:
      texts: B, number of sequences.
      positions: B * S.
      pairs: B * S * S.
      rows: T, the rows that the encoder computes: real tokens and a few more, or all positions if
        padding is not skipped; 0 if the encoder's outputs come from a cache.
      masked: B * P of pre-training, else 0.
      masked_pairs: B * P * S.
    """

    texts: int
    positions: int
    pairs: int
    rows: int
    masked: int
    masked_pairs: int


class _Head(NamedTuple):
    """The FLOP of a head's forward pass.

    Attributes:
      first: FLOP of products with the encoder's output, whose gradient a frozen encoder does not
        need.
      other: FLOP of the other products.
    """

    first: int
    other: int = 0


# --- sizes of a batch -----------------------------------------------------------------------------


def count_work(
    model: contracts.Model, features: Tensors, micro_batches: int = 1
) -> tf.Tensor | None:
    """Counts the `StepWork` of a batch, float32 [6], None for other models; call in a replica."""
    model = _student(model)
    if not isinstance(model, heads.Model):
        return None
    ids, mask, _ = heads.encoder_inputs(features)
    mask = tf.ones_like(ids) if mask is None else mask
    if isinstance(model, heads.MultipleChoiceModel):
        mask = tf.reshape(mask, [tf.shape(mask)[0] * model.choices, -1])
    texts, length = token_rows.dimension(mask, 0), token_rows.dimension(mask, 1)
    rows = tf.constant(0)
    if heads.ENCODER_OUTPUT not in features:
        compute = model.albert.compute
        rows = _count_rows(mask, compute.parts, compute.skip_padding, micro_batches)
    masked = tf.constant(0)
    if isinstance(model, pretraining_heads.PretrainingModel):
        masked = tf.size(features["masked_lm_positions"])
    texts, length, rows, masked = (tf.cast(x, tf.float32) for x in (texts, length, rows, masked))
    positions = texts * length
    return tf.stack(StepWork(texts, positions, positions * length, rows, masked, masked * length))


def _count_rows(mask: tf.Tensor, parts: int, skip_padding: bool, micro_batches: int) -> tf.Tensor:
    """Counts the rows that the encoder computes for a mask [B, S], see `token_rows`.

    `parts` of a batch are computed one after the other.
    """
    if not skip_padding:
        return tf.size(mask)
    batch = token_rows.dimension(mask, 0)
    total = tf.constant(0)
    for number in range(micro_batches):
        start, end = batch * number // micro_batches, batch * (number + 1) // micro_batches
        for (part,) in token_rows.cut_batch((mask[start:end],), parts):
            tokens = tf.reduce_sum(tf.cast(part, tf.int32))
            total += tf.minimum(tensor_batching.round_up(tokens + 1), tf.size(part))
    return total


# --- formulas -------------------------------------------------------------------------------------


def training_flops(model: contracts.Model, work: StepWork) -> int | None:
    """Returns the FLOP of forward and backward pass; None for an unknown model."""
    if isinstance(model, distillation.DistilledModel):
        teacher = model.teacher
        student = training_flops(model.student, work)
        assert student is not None, "students are `heads.Model`s"
        return (
            student
            + _encoder_operations(teacher, work, False)
            + sum(_head_operations(teacher, work))
        )
    if not isinstance(model, heads.Model):
        return None
    body, head = _encoder_operations(model, work, True), _head_operations(model, work)
    if model.is_frozen:
        return body + 2 * head.first + 3 * head.other
    return 3 * (body + head.first + head.other)


def num_examples(model: contracts.Model, work: StepWork) -> int:
    """Returns the number of examples, each of which has several texts in multiple choice."""
    model = _student(model)
    choices = model.choices if isinstance(model, heads.MultipleChoiceModel) else 1
    return work.texts // choices


def _student(model: contracts.Model) -> contracts.Model:
    """Returns the student of a model that has a teacher, else the model."""
    return model.student if isinstance(model, distillation.DistilledModel) else model


def _encoder_operations(model: heads.Model, work: StepWork, training: bool) -> int:
    """Returns the FLOP of the forward pass of a model's encoder and pooler.

    Args:
      training: whether it trains; then pre-training computes the last layer only where it is read.
    """
    if not work.rows:
        return 0
    whole = model.albert.compute.whole_sequence
    if isinstance(model, pretraining_heads.PretrainingModel):
        if training and not whole:
            last_layer = (work.masked, work.masked_pairs)
            if model.uses_pooler:  # It reads the first position of each text.
                last_layer = (work.masked + work.texts, work.masked_pairs + work.positions)
            return encoder_operations(model.config, work, last_layer, model.uses_pooler)
        # A teacher's pooler is not read.
        return encoder_operations(model.config, work, None, training and model.uses_pooler)
    if not model.uses_pooler:  # The head, or the mean that it reads, takes all positions.
        return encoder_operations(model.config, work, None, False)
    first = None if whole else (work.texts, work.positions)
    return encoder_operations(model.config, work, first, True)


def encoder_operations(
    config: encoder.AlbertConfig, work: StepWork, last_layer: tuple[int, int] | None, pooler: bool
) -> int:
    """Returns the FLOP of the forward pass of the encoder.

    Args:
      last_layer: B * R and B * R * S of the R positions at which the last layer is computed; None:
        all positions.
    """
    hidden, inner = config.hidden_size, config.intermediate_size
    mapping = 2 * work.rows * config.embedding_size * hidden
    total = mapping if config.embedding_size != hidden else 0
    blocks = config.num_hidden_layers * config.inner_group_num
    rows, pairs = (work.rows, work.pairs) if last_layer is None else last_layer
    for count, computed, attended in ((blocks - 1, work.rows, work.pairs), (1, rows, pairs)):
        # Queries and the attention's output at the computed rows; keys and values of all rows.
        projections = 4 * computed * hidden**2 + 4 * work.rows * hidden**2
        attention = 4 * attended * hidden  # scores, and sums of values
        feed_forward = 4 * computed * hidden * inner
        total += count * (projections + attention + feed_forward)
    return total + (2 * work.texts * hidden**2 if pooler else 0)


@functools.singledispatch
def _head_operations(model: heads.Model, work: StepWork) -> _Head:
    """Returns the `_Head` of a model's forward pass."""
    raise TypeError(f"the products of {type(model).__name__} are unknown")


@_head_operations.register
def _(model: distillation.HeadlessTeacher, work: StepWork) -> _Head:
    return _Head(0, 0)


@_head_operations.register
def _(model: pretraining_heads.PretrainingModel, work: StepWork) -> _Head:
    config = model.config
    transform = 2 * work.masked * config.hidden_size * config.embedding_size
    words = 2 * work.masked * config.embedding_size * config.vocab_size
    sentence = 2 * work.texts * config.hidden_size * 2 if model.sentence_head else 0
    return _Head(transform + sentence, words)


@_head_operations.register(heads.ClassifierModel)
@_head_operations.register(heads.MultiLabelModel)
@_head_operations.register(heads.RegressionModel)
@_head_operations.register(heads.MultipleChoiceModel)
@_head_operations.register(heads.TokenClassifierModel)
@_head_operations.register(heads.SquadV1Model)
def _label_weight_operations(model: heads.Model, work: StepWork) -> _Head:
    """Returns the `_Head` of the hidden layer, if any, and of the output layer."""
    by_token = isinstance(model, (heads.TokenClassifierModel, heads.SquadV1Model))
    rows = work.positions if by_token else work.texts
    outputs = 2 * rows * model.hidden.size * model.output.weights.shape[0]
    return _after_hidden_layer(model, rows, outputs, 0)


@_head_operations.register
def _(model: heads.SquadV2Model, work: StepWork) -> _Head:
    size = model.hidden.size
    start = 2 * work.positions * size
    tokens, starts = 2 * work.positions * size**2, 2 * work.texts * size**2
    expected = 2 * work.positions * size  # mean token under the probabilities of the start
    ends, answer_hidden = 2 * work.positions * size, 4 * work.texts * size**2
    answer = 2 * work.texts * size
    first, other = start + tokens + starts + expected, ends + answer_hidden + answer
    return _after_hidden_layer(model, work.positions, first, other)


def _after_hidden_layer(model: heads.Model, rows: int, first: int, other: int) -> _Head:
    """Returns the `_Head` of products that read the hidden layer of a head if there is one.

    Args:
      first, other: FLOP without the hidden layer, as in `_Head`.
    """
    if not model.hidden.has_layer:
        return _Head(first, other)
    return _Head(2 * rows * model.config.hidden_size * model.hidden.size, first + other)
