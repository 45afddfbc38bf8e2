"""Operations by formula, against a count by hand and against the products that TensorFlow runs."""

import contextlib
import math

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import op_callbacks

from albert.model import encoder, head_config, heads, layers
from albert.training import distillation, flops
from tests.support.builders import make_features, make_model

LENGTHS = (9, 24, 3, 17, 8, 12, 3, 24)
PADDED, SKIPPING = layers.Compute(), layers.Compute(skip_padding=True)
NAMES = ["classifier", "regression", "choices", "pretraining", "squad_v1", "squad_v2"]


@contextlib.contextmanager
def products():
    """Collects the operations of each matrix product that runs."""
    found = []

    def note(op_type, inputs, attrs, outputs, op_name=None, graph=None):
        if op_type not in ("MatMul", "BatchMatMulV2", "BatchMatMulV3"):
            return
        values = dict(zip(attrs[::2], attrs[1::2], strict=True))
        transposed = values.get("transpose_a", values.get("adj_x"))
        rows, inner = inputs[0].shape[-2:][::-1] if transposed else inputs[0].shape[-2:]
        # Sums of columns are products with a row of ones, see `kernels.column_sums`.
        if rows > 1 or not np.all(inputs[0] == 1):
            found.append(2 * inner * math.prod(outputs[0].shape))

    op_callbacks.add_op_callback(note)
    try:
        yield found
    finally:
        op_callbacks.remove_op_callback(note)


def run(model, features):
    """Runs a forward and a backward pass; the operations of both."""
    tape = tf.GradientTape(watch_accessed_variables=False)
    with products() as found, tape:
        tape.watch(model.trained_variables)
        loss = model.total(model.losses(model(features, True, seed=tf.constant([1, 2])), features))
    with products() as backward:
        tape.gradient(loss, model.trained_variables)
    # Only outside of a graph a pooler is computed that nothing reads.
    pooler = "bert/pooler/dense/kernel:0"
    unused = {v.name for v in model.variables} - {v.name for v in model.used_variables}
    is_computed = pooler in unused and heads.ENCODER_OUTPUT not in features
    return sum(found) + sum(backward) - (2 * 8 * 12 * 12 if is_computed else 0)


def work_of(model, features, micro_batches=1):
    values = flops.count_work(model, features, micro_batches).numpy()
    return flops.StepWork(*map(int, values))


def test_a_tiny_model_counted_by_hand():
    # V 50, E 8, H 12, I 16, 4 layers, 3 heads; two texts of 24 positions, none of them padding.
    model = make_model("pretraining")
    features = make_features("pretraining", (24, 24))
    work = work_of(model, features)
    assert work == (2, 48, 1152, 48, 8, 192)
    mapping = 48 * 8 * 12
    projections = 48 * 12 * 12  # each of queries, keys, values and the attention's output
    attention = 2 * 24 * 24 * 12  # each of scores, and sums of values, over all heads
    feed_forward = 48 * 12 * 16  # each of two layers
    layer = 4 * projections + 2 * attention + 2 * feed_forward
    # The last layer is computed at four masked positions and the first one of each text, but for
    # keys and values.
    last = 2 * projections + 2 * (10 * 12 * 12) + 2 * (10 * 24 * 12) + 2 * (10 * 12 * 16)
    pooler = 2 * 12 * 12
    head = 8 * 12 * 8 + 8 * 8 * 50 + 2 * 12 * 2
    # A multiply-add is two operations; the backward pass is two forward passes.
    expected = 3 * 2 * (mapping + 3 * layer + last + pooler + head)
    assert flops.training_flops(model, work) == expected == 1_538_400


@pytest.mark.parametrize(
    ("name", "compute"),
    [*((name, SKIPPING) for name in NAMES), ("pretraining", PADDED), ("squad_v2", PADDED)],
    ids=[*NAMES, "pretraining-padded", "squad_v2-padded"],
)
def test_products_that_run_are_those_of_the_formula(name, compute):
    model = make_model(name, compute)
    features = make_features(name, LENGTHS)
    work = work_of(model, features)
    assert work.texts == 8 and work.positions == 8 * 24
    assert (work.rows < work.positions) == compute.skip_padding
    assert flops.training_flops(model, work) == run(model, features)
    assert flops.num_examples(model, work) == len(features["input_ids"])


def test_layers_are_counted_as_often_as_they_are_computed():
    sharing = {"num_hidden_layers": 4, "inner_group_num": 2, "embedding_size": 12}
    found = {}
    for groups in (1, 4):
        model = make_model("classifier", SKIPPING, num_hidden_groups=groups, **sharing)
        features = make_features("classifier", LENGTHS)
        found[groups] = flops.training_flops(model, work_of(model, features))
        assert found[groups] == run(model, features)
    assert found[1] == found[4]


@pytest.mark.parametrize("size", [None, 10])
@pytest.mark.parametrize("kind", ["label", "mean", "tokens", "answers"])
def test_heads_with_a_layer_and_frozen_encoders(kind, size):
    config = encoder.AlbertConfig.from_dict(
        {"vocab_size": 50, "embedding_size": 8, "hidden_size": 12, "num_hidden_layers": 2,
         "num_attention_heads": 3, "intermediate_size": 16, "max_position_embeddings": 24}
    )  # fmt: skip
    head = head_config.Head(head_hidden_size=size, pooling="mean" if kind == "mean" else "cls")
    if kind in ("label", "mean"):
        name, model = "classifier", heads.ClassifierModel(config, 3, SKIPPING, 1, 0.0, head)
    elif kind == "tokens":
        name, model = "classifier", heads.TokenClassifierModel(config, 3, SKIPPING, 1, 0.0, head)
    else:
        name, model = "squad_v2", heads.SquadV2Model(config, 2, 2, 0.0, SKIPPING, 1, head)
    features = make_features(name, LENGTHS)
    if kind == "tokens":
        features["label_ids"] = features["first_pieces"] = features["input_mask"]
    work = work_of(model, features)
    whole = flops.training_flops(model, work)
    assert whole == run(model, features)
    model.freeze_encoder()
    frozen = flops.training_flops(model, work)
    # A graph leaves out the gradient for the encoder of the mean that the answer's head reads.
    unused = 2 * work.positions * 12 if kind == "answers" and not size else 0
    assert whole > frozen == run(model, features) - unused
    if kind in ("label", "mean"):  # with the outputs of the encoder from a cache
        features[heads.ENCODER_OUTPUT] = tf.ones([8, 12])
        work = work_of(model, features)
        assert work.rows == 0 and frozen > flops.training_flops(model, work) == run(model, features)


@pytest.mark.parametrize("weights", [(1.0, 1.0, 0.0), (1.0, 1.0, 1.0), (0.0, 1.0, 0.0, 1.0)])
def test_a_teacher_costs_its_forward_pass(weights):
    compute = layers.Compute(skip_padding=True, whole_sequence=any(weights[2:]))
    student, teacher = (make_model("classifier", compute, num_hidden_layers=n) for n in (2, 4))
    if not weights[0]:
        teacher = distillation.HeadlessTeacher(teacher.config, compute, 1)
    settings = distillation.DistillationConfig(
        teacher.config, "", "classification_loss", "logits", weights
    )
    model = distillation.DistilledModel(student, teacher, settings)
    features = make_features("classifier", LENGTHS)
    work = work_of(model, features)
    unused = 0 if weights[0] else 2 * 8 * 12 * 12  # the teacher's pooler, see `run`
    assert flops.training_flops(model, work) == run(model, features) - unused
    assert flops.training_flops(model, work) > flops.training_flops(student, work)


def test_rows_of_micro_batches_and_parts():
    features = make_features("classifier", LENGTHS)
    model = make_model("classifier", layers.Compute(skip_padding=True, parts=2))
    # Tokens and one more, rounded up to 8 in each half of each micro-batch, of 24 positions a text.
    sums = np.add.reduceat(LENGTHS, [0, 2, 4, 6])  # 33, 20, 20, 27
    assert work_of(model, features, 2).rows == sum(min(-(-(n + 1) // 8) * 8, 48) for n in sums)
    assert flops.training_flops(model, work_of(model, features)) == run(model, features)


def test_other_models_are_not_known():
    assert flops.count_work(tf.Module(), {}) is None
