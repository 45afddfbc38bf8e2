"""Muon against an independent computation, and the variables that it updates."""

import numpy as np
import pytest
import tensorflow as tf

from albert.model import encoder, pretraining_heads
from albert.training import muon, optimizers
from tests.support import builders

BLOCK = "bert/encoder/transformer/group_0/inner_group_0"
KERNEL = f"{BLOCK}/attention_1/self/query/kernel"


def orthogonal(matrix):
    """The five iterations on the singular values alone, in float64."""
    left, values, right = np.linalg.svd(np.asarray(matrix, np.float64), full_matrices=False)
    values = values / np.linalg.norm(values)
    for _ in range(5):
        values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
    return left @ np.diag(values) @ right


@pytest.mark.parametrize("shape", [(6, 6), (4, 9), (9, 4), (1, 5)])
def test_singular_values_move_to_one(shape):
    matrix = np.random.default_rng(2).normal(size=shape).astype(np.float32)
    found = muon.orthogonalize(tf.constant(matrix)).numpy()
    np.testing.assert_allclose(found, orthogonal(matrix), atol=2e-5)
    values = np.linalg.svd(found, compute_uv=False)
    assert values.min() > 0.6 and values.max() < 1.25
    scaled = muon.orthogonalize(tf.constant(matrix * 1e-3)).numpy()
    np.testing.assert_allclose(scaled, found, atol=1e-3)


@pytest.mark.parametrize("product_type", ["bfloat16", "float16"])
def test_products_of_half_precision_are_exact_enough(product_type):
    matrix = np.random.default_rng(2).normal(size=[64, 128]).astype(np.float32)
    found = muon.orthogonalize(tf.constant(matrix), product_type)
    assert found.dtype == tf.float32
    values = np.linalg.svd(found.numpy(), compute_uv=False)
    assert values.min() > 0.6 and values.max() < 1.3
    exact = muon.orthogonalize(tf.constant(matrix)).numpy()
    cosine = np.sum(exact * found.numpy()) / np.linalg.norm(exact) / np.linalg.norm(found.numpy())
    assert cosine > 0.99


def test_the_type_of_products_comes_from_the_precision(monkeypatch):
    types = []
    original = muon.orthogonalize
    monkeypatch.setattr(
        muon, "orthogonalize", lambda x, kind: types.append(kind) or original(x, kind)
    )
    variable = tf.Variable([[3.0, 4.0], [1.0, -2.0]], name=KERNEL)
    optimizer = optimizers.create_optimizer(0.1, 10, 0, "muon", product_type="bfloat16")
    optimizer.apply_gradients([(tf.ones([2, 2]), variable)])
    assert types == ["bfloat16"]


def test_a_gradient_of_zero_moves_nothing():
    np.testing.assert_array_equal(muon.orthogonalize(tf.zeros([3, 4])), np.zeros([3, 4]))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("shape", [(6, 6), (4, 9), (9, 4)])
def test_steps_equal_an_independent_computation(shape, compiled):
    rng = np.random.default_rng(4)
    start = rng.normal(size=shape).astype(np.float32)
    variable = tf.Variable(start, name=KERNEL)
    settings = {"momentum": 0.9, "weight_decay_rate": 0.3, "clip_norm": 2.0}
    optimizer = optimizers.create_optimizer(0.1, 10, 2, "muon", **settings)
    optimizer.build([variable])

    def apply(gradient):
        return optimizer.apply_gradients([(gradient, variable)])

    apply = tf.function(apply, autograph=False) if compiled else apply
    weights, mean = start.astype(np.float64), np.zeros(shape)
    for rate in (0.0, 0.05, 0.08, 0.07):  # warm-up over two steps, then decay over ten
        gradient = rng.normal(size=shape).astype(np.float32)
        apply(tf.constant(gradient))
        gradient = gradient * min(1.0, 2.0 / np.linalg.norm(gradient))
        mean = 0.9 * mean + 0.1 * gradient
        update = 0.2 * np.sqrt(max(shape)) * orthogonal(0.1 * gradient + 0.9 * mean)
        weights = weights - rate * (update + 0.3 * weights)
        np.testing.assert_allclose(variable.numpy(), weights, atol=2e-5)
    assert set(optimizer.variables_by_name()) == {f"{KERNEL}/momentum", "global_step"}
    np.testing.assert_allclose(
        optimizer.variables_by_name()[f"{KERNEL}/momentum"].numpy(), mean, atol=1e-6
    )


def test_updates_have_the_size_of_those_of_adamw():
    gradient = np.random.default_rng(1).normal(size=[48, 96]).astype(np.float32)
    variable = tf.Variable(tf.zeros([48, 96]), name=KERNEL)
    muon.Muon(1.0).apply_gradients([(tf.constant(gradient), variable)])
    assert np.sqrt(np.mean(variable.numpy() ** 2)) == pytest.approx(0.2, rel=0.2)


def moved(name, kind="muon", **settings):
    variable = tf.Variable([[3.0, 4.0], [1.0, -2.0]], name=name)
    optimizer = optimizers.create_optimizer(0.1, 10, 0, kind, **settings)
    for _ in range(2):
        optimizer.apply_gradients([(tf.constant([[0.3, 0.1], [-0.2, 0.5]]), variable)])
    return variable.numpy() - [[3.0, 4.0], [1.0, -2.0]]


@pytest.mark.parametrize(
    "name",
    [
        "bert/embeddings/word_embeddings",
        "bert/encoder/embedding_hidden_mapping_in/kernel",
        "bert/pooler/dense/kernel",
        "cls/predictions/transform/dense/kernel",
        "output_weights",
    ],
)
def test_other_matrices_belong_to_adamw(name):
    settings = {"beta_1": 0.8, "beta_2": 0.9, "epsilon": 0.1, "weight_decay_rate": 0.2}
    np.testing.assert_array_equal(moved(name, **settings), moved(name, "adamw", **settings))
    slower = moved(name, **settings, adamw_rate_ratio=0.5)
    assert (np.abs(slower) < np.abs(moved(name, **settings))).all()
    assert (moved(name, **settings, adamw_rate_ratio=0.0) == 0).all()


def test_the_ratio_is_not_for_block_matrices():
    np.testing.assert_array_equal(moved(KERNEL, adamw_rate_ratio=0.1), moved(KERNEL))


def test_decay_can_exclude_block_matrices():
    assert (moved(KERNEL, exclude_from_weight_decay=("kernel",)) != moved(KERNEL)).any()
    plain = moved(KERNEL, weight_decay_rate=0.0)
    np.testing.assert_array_equal(moved(KERNEL, exclude_from_weight_decay=("kernel",)), plain)


def test_every_kernel_of_a_block_has_one_slot_and_is_a_matrix_of_all_heads():
    config = encoder.AlbertConfig.from_dict(builders.GROUPED)
    model = pretraining_heads.PretrainingModel(config, seed=1)
    optimizer = optimizers.create_optimizer(0.1, 10, 0, "muon")
    optimizer.build(model.trained_variables)
    state = optimizer.variables_by_name()
    found = {
        name.removesuffix("/momentum"): value.shape
        for name, value in state.items()
        if name.endswith("/momentum")
    }
    hidden, inner = config.hidden_size, config.intermediate_size
    parts = {
        **{f"attention_1/self/{x}/kernel": (hidden, hidden) for x in ("query", "key", "value")},
        "attention_1/output/dense/kernel": (hidden, hidden),
        "ffn_1/intermediate/dense/kernel": (hidden, inner),
        "ffn_1/intermediate/output/dense/kernel": (inner, hidden),
    }
    blocks = [
        f"bert/encoder/transformer/group_{group}/inner_group_{inner}"
        for group in range(config.num_hidden_groups)
        for inner in range(config.inner_group_num)
    ]
    assert found == {f"{b}/{part}": shape for b in blocks for part, shape in parts.items()}
    others = {v.name.split(":")[0] for v in model.trained_variables} - set(found)
    slots = {f"{name}/{slot}" for name in others for slot in ("adam_m", "adam_v")}
    assert set(state) == slots | {f"{name}/momentum" for name in found} | {"global_step"}
