"""Options that must not change results: skipping padding, recomputation, precision."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from albert.model import block_runner, encoder, kernels, layers
from tests.support.builders import (
    GROUPED,
    LENGTHS,
    make_features,
    make_model,
    optimized_nodes,
    optimized_sums,
)

BLOCKS = GROUPED["num_hidden_layers"] * GROUPED["inner_group_num"]
# Layers that share their weights, and the last, which may compute single positions.
SHARED = {"num_hidden_layers": 3, "num_hidden_groups": 1}


def make_encoder(compute=layers.Compute(), **changes):
    return encoder.AlbertModel(encoder.AlbertConfig.from_dict(GROUPED | changes), 1, compute)


def gradient_function(model, signature=None):
    """Compiled ``features -> (loss, list of gradients)`` of a model in training."""

    @tf.function(autograph=False, input_signature=signature)
    def run(features):
        with tf.GradientTape() as tape:
            outputs = model(features, training=True, seed=tf.constant([1, 2]))
            loss = model.loss(outputs, features)
        found = tape.gradient(loss, model.trained_variables)
        return loss, [tf.convert_to_tensor(g) for g in found]

    return run


def gradients(model, features, run=None):
    """(loss, {name of a variable: gradient}), computed in a graph unless `run` is plain Python."""
    loss, found = (run or gradient_function(model))(features)
    named = zip(model.trained_variables, found, strict=True)
    return float(loss), {variable.name: gradient.numpy() for variable, gradient in named}


@pytest.fixture(scope="module")
def usual_gradients():
    """Function of a name and ways to compute: `gradients` of the usual batch.

    A graph takes ten times as long, most of it for being built: those that are `compiled` are one
    of each way and of each kind of model.
    """

    @functools.cache
    def compute(name, ways, compiled=False):
        # The classifier has several groups.
        model = make_model(name, ways, **({} if name == "classifier" else SHARED))
        run = gradient_function(model)
        return gradients(model, make_features(name), run if compiled else run.python_function)

    return compute


def training_graph(model, features):
    """A `tf.function` without inputs that computes the loss and the gradients."""

    @tf.function(autograph=False)
    def run(_=None):
        with tf.GradientTape() as tape:
            loss = model.loss(model(features, training=True), features)
        found = tape.gradient(loss, model.trained_variables)
        return loss, [tf.convert_to_tensor(g) for g in found]

    return run


def assert_same_gradients(found, expected, tolerance=1e-6):
    assert found[0] == pytest.approx(expected[0], rel=tolerance)
    for name, gradient in expected[1].items():
        scale = max(np.abs(gradient).max(), 0.05)
        np.testing.assert_allclose(found[1][name], gradient, atol=5 * tolerance * scale, rtol=0)


# Every kind of model meets every way, and every way each other one.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "compute", "compiled"),
    [
        ("classifier", {"skip_padding": True}, False),
        ("classifier", {"recompute": True}, False),
        ("classifier", {"parts": 3, "skip_padding": True, "recompute": True}, True),
        ("regression", {"parts": 2, "skip_padding": True, "recompute": True}, False),
        ("choices", {"parts": 2, "skip_padding": True}, True),
        ("choices", {"recompute": True}, False),
        ("pretraining", {"skip_padding": True, "recompute": True}, True),
        ("pretraining", {"parts": 2}, False),
        ("squad_v2", {"skip_padding": True}, False),
        ("squad_v2", {"parts": 2, "recompute": True}, True),
    ],
)
def test_gradients_do_not_depend_on_how_they_are_computed(name, compute, compiled, usual_gradients):
    found = usual_gradients(name, layers.Compute(**compute), compiled)
    assert_same_gradients(found, usual_gradients(name, layers.Compute()))


@pytest.fixture(scope="module")
def any_batch():
    """Function of ways to compute: a classifier and its gradients of batches of any size."""
    types = {key: x.dtype for key, x in make_features("classifier").items()}
    ranks = {key: x.shape.rank for key, x in make_features("classifier").items()}
    rows = {key: tf.TensorSpec([None] * ranks[key], types[key]) for key in types}

    @functools.cache
    def make(ways):
        model = make_model("classifier", ways, **SHARED)
        return model, gradient_function(model, [rows])

    def compute(features, **ways):
        model, run = make(layers.Compute(**ways))
        return gradients(model, features, run)

    return compute


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 2])
def test_a_batch_may_have_fewer_examples_than_parts(batch, any_batch):
    features = make_features("classifier", LENGTHS[:batch])
    found = any_batch(features, skip_padding=True, parts=3)
    assert_same_gradients(found, any_batch(features))


def test_parts_have_dropout_of_their_own():
    model = make_encoder(layers.Compute(parts=4), hidden_dropout_prob=0.2)
    ids = tf.tile(tf.range(5, 17)[tf.newaxis], [4, 1])  # the same text four times
    for seed in (None, tf.constant([1, 2])):
        vectors = model(ids, training=True, seed=seed).pooled_output.numpy()
        assert len(np.unique(vectors, axis=0)) == 4


@pytest.mark.slow(2)
def test_padding_leaves_the_loss_of_squad_v1_where_it_is_skipped():
    model = make_model("squad_v1", **SHARED)
    features = make_features("squad_v1", lengths=[9, 9])
    skipping = make_model("squad_v1", layers.Compute(skip_padding=True), **SHARED)
    unpadded = {
        key: x[:, :9] if x.shape.rank == 2 else x for key, x in features.items()
    }  # the same examples, not padded at all
    run = gradient_function(model).python_function
    expected = gradients(model, unpadded, run)
    assert_same_gradients(gradients(skipping, features), expected)
    padded = gradients(model, features, run)
    assert padded[0] > expected[0] + 0.1  # the reference's softmax takes padding in


@pytest.mark.parametrize("compiled", [False, True])
def test_outputs_are_the_same_and_zero_at_padding(compiled):
    features = make_features("classifier")
    model = make_encoder(layers.Compute(skip_padding=True))
    call = tf.function(model, autograph=False) if compiled else model
    arguments = [features[name] for name in ("input_ids", "input_mask", "segment_ids")]
    expected = make_encoder()(*arguments)
    found = call(*arguments)
    mask = features["input_mask"].numpy().astype(bool)
    assert len(found.all_encoder_layers) == len(expected.all_encoder_layers) == BLOCKS
    for ours, plain in zip(tf.nest.flatten(found), tf.nest.flatten(expected), strict=True):
        assert ours.shape == plain.shape
        if ours.shape.rank == 3:
            assert not ours.numpy()[~mask].any()
            ours, plain = ours.numpy()[mask], plain.numpy()[mask]
        np.testing.assert_allclose(ours, plain, atol=2e-6)


@pytest.mark.parametrize("skip_padding", [False, True])
def test_single_positions_equal_the_whole_sequence(skip_padding):
    model = make_encoder(layers.Compute(skip_padding=skip_padding))
    features = make_features("classifier")
    arguments = [features[name] for name in ("input_ids", "input_mask", "segment_ids")]
    positions = tf.constant([[0, 8, 8], [23, 1, 5], [2, 2, 0], [16, 0, 3]])
    whole = model(*arguments)
    some = model.at_positions(*arguments, positions=positions)
    expected = tf.gather(whole.sequence_output, positions, batch_dims=1)
    np.testing.assert_allclose(some, expected, atol=2e-6)
    first = model.at_positions(*arguments)
    np.testing.assert_allclose(model.pool(first[:, 0]), whole.pooled_output, atol=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize("lengths", [(1, 1), (24, 24), (24, 1), (7, 8), (15, 9), (1, 24)])
def test_every_share_of_padding_works(lengths, any_batch):
    features = make_features("classifier", lengths)
    assert_same_gradients(any_batch(features, skip_padding=True), any_batch(features))


@pytest.mark.slow
def test_recomputation_draws_the_same_dropout():
    rates = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.2}
    features = make_features("pretraining")
    plain, recomputing = (
        make_model("pretraining", layers.Compute(recompute=recompute), **rates, **SHARED)
        for recompute in (False, True)
    )
    expected = gradients(plain, features, gradient_function(plain).python_function)
    assert_same_gradients(gradients(recomputing, features), expected)


@pytest.mark.slow
def test_recomputation_keeps_only_the_inputs_of_blocks():
    features = make_features("classifier")

    def count_products(recompute):
        model = make_model("classifier", layers.Compute(recompute=recompute))

        run = training_graph(model, features)
        nodes = optimized_nodes(run.get_concrete_function())
        return sum(node.op in ("MatMul", "_FusedMatMul") for node in nodes)

    # Queries of the last are apart.
    assert count_products(True) == count_products(False) + 4 * BLOCKS + 1


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_only_inference_has_what_follows_fused_with_products(dtype, training):
    if not kernels.has_units(tf.as_dtype(dtype)):
        pytest.skip(f"this processor does not multiply {dtype} matrices")
    wide = {"hidden_size": 240, "intermediate_size": 480, "hidden_dropout_prob": 0.1}
    model = make_encoder(layers.Compute(dtype), **wide)
    ids = make_features("classifier")["input_ids"]

    @tf.function(autograph=False)
    def run():
        with tf.device("CPU:0"):  # the optimizer fuses only what it knows the device of
            return model(ids, training=training).sequence_output

    kinds = [node.op for node in optimized_nodes(run.get_concrete_function())]
    found = [kinds.count("MatMul"), kinds.count("_FusedMatMul")]
    pooler = 1
    assert found == ([4 * BLOCKS, pooler] if training else [0, 4 * BLOCKS + pooler])


@pytest.mark.slow
@pytest.mark.parametrize("compute", [{}, {"recompute": True}, {"parts": 2}])
def test_gradients_of_shared_weights_are_added_up_on_the_way(monkeypatch, compute):
    shared = {"num_hidden_layers": 5, "num_hidden_groups": 1, "inner_group_num": 1}
    model = make_model("classifier", layers.Compute(**compute), **shared)
    features = make_features("classifier")
    found, longest = [], []
    for fork in (block_runner.fork_weights, lambda weights: (weights, weights)):
        monkeypatch.setattr(block_runner, "fork_weights", fork)
        run = training_graph(model, features)
        found.append(gradients(model, None, run))
        longest.append(max(optimized_sums(run).values()))
    assert longest[0] <= 3 and longest[1] >= 5
    assert_same_gradients(*found)


@pytest.mark.slow
@pytest.mark.parametrize("groups", [1, 3])  # of ALBERT; of BERT, whose layers share no weights
@pytest.mark.parametrize("compute", [{}, {"recompute": True}, {"parts": 2}])
def test_a_block_is_traced_once_for_all_layers(monkeypatch, compute, groups):
    passes = []
    call = layers.Block.__call__
    monkeypatch.setattr(layers.Block, "__call__", lambda *x: passes.append(x[0]) or call(*x))
    sizes = {
        "num_hidden_layers": 3, "num_hidden_groups": groups, "inner_group_num": 1,
        "hidden_dropout_prob": 0.1,
    }  # fmt: skip
    model = make_model("pretraining", layers.Compute(**compute), **sizes)
    features = make_features("pretraining")
    training_graph(model, features).get_concrete_function()
    # And the last layer by itself; a block that is computed again is traced again.
    parts, times = compute.get("parts", 1), 2 if "recompute" in compute else 1
    assert len(passes) == (1 + 1) * parts * times
    passes.clear()
    model(features)  # outside of a function there is nothing to trace
    assert len(passes) == 3 * parts


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "dtype", "compiled"),
    [
        ("classifier", "bfloat16", False),
        ("regression", "float16", True),
        ("choices", "bfloat16", False),
        ("pretraining", "bfloat16", True),
        ("pretraining", "float16", False),
        ("squad_v1", "float16", True),  # answers are masked with large numbers
        ("squad_v2", "bfloat16", False),
        ("squad_v2", "float16", False),
    ],
)
def test_low_precision_stays_near(name, dtype, compiled, usual_gradients):
    # The loss of squad_v1 takes padding in.
    expected = usual_gradients(name, layers.Compute(skip_padding=name == "squad_v1"))
    found = usual_gradients(name, layers.Compute(dtype, skip_padding=True), compiled)
    assert found[0] == pytest.approx(expected[0], rel=0.02)
    assert any((found[1][key] != expected[1][key]).any() for key in expected[1])
    assert {gradient.dtype for gradient in found[1].values()} == {np.dtype(np.float32)}
    ours, plain = (
        np.concatenate([gradient.ravel() for gradient in result[1].values()])
        for result in (found, expected)
    )
    assert ours @ plain / np.linalg.norm(ours) / np.linalg.norm(plain) > 0.995


def test_variables_and_outputs_stay_float32_in_low_precision():
    model = make_model("classifier", layers.Compute("bfloat16"))
    assert {variable.dtype for variable in model.variables} == {tf.float32}
    outputs = model(make_features("classifier"))
    assert outputs["logits"].dtype == outputs["probabilities"].dtype == tf.float32
