"""The encoder against recorded outputs of the reference, and its invariants."""

import collections
import dataclasses
import re

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from albert.io import file_io
from albert.model import encoder, layers

TOLERANCE = 2e-5
TINY = {
    "vocab_size": 50,
    "embedding_size": 8,
    "hidden_size": 12,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "max_position_embeddings": 16,
}


def tiny_config(**changes):
    return encoder.AlbertConfig(**(TINY | changes))


def restored(golden, name):
    folder = golden / "model" / name
    config = encoder.AlbertConfig.from_json_file(folder / "albert_config.json")
    model = encoder.AlbertModel(config)
    reader = tf.train.load_checkpoint(str(folder / "model.ckpt-best"))
    for variable in model.variables:
        variable.assign(reader.get_tensor(variable.name.removesuffix(":0")))
    return model, np.load(folder / "forward.npz"), reader


def test_arguments_of_the_reference_are_refused():
    with pytest.raises(TypeError, match="is_training"):
        encoder.AlbertModel(tiny_config(), is_training=True)


def random_ids(batch=4, length=10, seed=0):
    return np.random.RandomState(seed).randint(5, TINY["vocab_size"], (batch, length), np.int32)


# Recorded outputs


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "dynamic_shape_function"])
@pytest.mark.parametrize("name", ["shared", "groups", "bert"])
def test_forward_equals_reference(golden, name, compiled):
    model, recorded, _ = restored(golden, name)
    function = model
    if compiled:
        matrix = tf.TensorSpec([None, None], tf.int32)
        function = tf.function(lambda *x: model(*x), input_signature=[matrix] * 3, autograph=False)
    out = function(recorded["in/input_ids"], recorded["in/input_mask"], recorded["in/segment_ids"])
    for field in out._fields:
        got = np.array(getattr(out, field))
        want = recorded[f"out/{field}"]
        assert got.shape == want.shape, field
        np.testing.assert_allclose(got, want, rtol=0, atol=TOLERANCE, err_msg=field)


@pytest.mark.parametrize("name", ["shared", "groups", "bert"])
def test_variables_are_named_and_shaped_as_in_checkpoints(golden, name):
    model, _, reader = restored(golden, name)
    expected = {
        f"{key}:0": tuple(shape)
        for key, shape in reader.get_variable_to_shape_map().items()
        if key.startswith("bert/")
    }
    assert {v.name: tuple(v.shape) for v in model.variables} == expected
    assert all(v.trainable for v in model.variables)
    assert model.embedding_table.name == "bert/embeddings/word_embeddings:0"


def test_no_mapping_layer_when_embedding_and_hidden_size_agree():
    model = encoder.AlbertModel(tiny_config(embedding_size=12))
    assert not [v.name for v in model.variables if "embedding_hidden_mapping_in" in v.name]


# Sharing


@pytest.mark.parametrize("layers", [1, 3, 12])
def test_number_of_variables_does_not_depend_on_layers(layers):
    model = encoder.AlbertModel(tiny_config(num_hidden_layers=layers))
    assert len(model.variables) == 25
    assert len(model(random_ids()).all_encoder_layers) == layers


def test_layers_take_their_groups_in_order():
    config = tiny_config(num_hidden_layers=6, num_hidden_groups=3)
    model = encoder.AlbertModel(config, seed=1)
    before = model(random_ids()).all_encoder_layers
    variable = next(v for v in model.variables if "group_1/inner_group_0/LayerNorm/beta" in v.name)
    variable.assign_add(tf.ones_like(variable))
    after = model(random_ids()).all_encoder_layers
    changed = [not np.array_equal(a, b) for a, b in zip(before, after, strict=True)]
    assert changed == [False, False, True, True, True, True]


# Sharing


def names_of(part, config):
    """Names of the layers' variables of "attention" or of "ffn", LayerNorm included."""
    marks = {"attention": ("/attention_1/", "/LayerNorm/"), "ffn": ("/ffn_1/", "/LayerNorm_1/")}
    variables = encoder.AlbertModel(config, seed=1).variables
    inside = [v.name for v in variables if "/transformer/" in v.name]
    return [name for name in inside if any(mark in name for mark in marks[part])]


@pytest.mark.parametrize("inner", [1, 2])
@pytest.mark.parametrize(
    ("share", "own"),
    [("all", ()), ("attention", ("ffn",)), ("ffn", ("attention",)), ("none", ("attention", "ffn"))],
)
def test_each_layer_has_parameters_of_its_own_where_they_are_not_shared(share, own, inner):
    config = tiny_config(share=share, num_hidden_layers=3, inner_group_num=inner)
    usual = dataclasses.replace(config, share="all")
    for part in ("attention", "ffn"):
        names = names_of(part, usual)
        if part in own:
            names = [name.replace("group_0/", f"group_{g}/", 1) for g in range(3) for name in names]
        assert sorted(names_of(part, config)) == sorted(names)


@pytest.mark.parametrize("share", ["attention", "ffn", "none"])
def test_equal_parameters_compute_what_shared_ones_do(share):
    shared = encoder.AlbertModel(tiny_config(num_hidden_layers=3), seed=1)
    other = encoder.AlbertModel(tiny_config(num_hidden_layers=3, share=share), seed=2)
    values = {v.name: v for v in shared.variables}
    for variable in other.variables:
        variable.assign(values[re.sub("/group_[0-9]+/", "/group_0/", variable.name)])
    ids = random_ids()
    gradients = []
    for model in (shared, other):
        with tf.GradientTape() as tape:
            output = model(ids).sequence_output
            loss = tf.reduce_sum(output * output)
        found = tape.gradient(loss, model.trainable_variables, unconnected_gradients="zero")
        sums = collections.Counter()
        for variable, gradient in zip(model.trainable_variables, found, strict=True):
            name = re.sub("/group_[0-9]+/", "/group_0/", variable.name)
            sums[name] = sums[name] + tf.convert_to_tensor(gradient).numpy()
        gradients.append((output, sums))
    (want, want_sums), (got, got_sums) = gradients
    np.testing.assert_array_equal(got, want)
    assert got_sums.keys() == want_sums.keys()
    for name, value in want_sums.items():
        np.testing.assert_allclose(got_sums[name], value, rtol=1e-4, atol=1e-4)


def test_no_sharing_is_a_group_for_each_layer():
    config = tiny_config(num_hidden_layers=3, share="none")
    groups = dataclasses.replace(config, share="all", num_hidden_groups=3)
    names = [
        sorted(v.name for v in encoder.AlbertModel(c, seed=1).variables) for c in (config, groups)
    ]
    assert names[0] == names[1]


def test_layers_take_turns_in_a_cycle():
    config = tiny_config(num_hidden_layers=6, num_hidden_groups=2)
    cycle = dataclasses.replace(config, group_order="cycle")
    assert [config.groups_of(layer)[0] for layer in range(6)] == [0, 0, 0, 1, 1, 1]
    assert [cycle.groups_of(layer) for layer in range(6)] == [(0, 0), (1, 1)] * 3
    model = encoder.AlbertModel(cycle, seed=1)
    unshared = encoder.AlbertModel(dataclasses.replace(config, num_hidden_groups=6), seed=2)
    values = {v.name: v for v in model.variables}
    for variable in unshared.variables:
        name = re.sub("/group_([0-9]+)/", lambda m: f"/group_{int(m[1]) % 2}/", variable.name)
        variable.assign(values[name])
    ids = random_ids()
    np.testing.assert_array_equal(unshared(ids).sequence_output, model(ids).sequence_output)


def scaled_models(compute, inner=1):
    """A model with a scale per layer, and one with equal layers whose LayerNorms absorb these."""
    sizes = {"num_hidden_layers": 3, "inner_group_num": inner}
    model = encoder.AlbertModel(tiny_config(**sizes, layer_scales=True), 1, compute)
    rng = np.random.default_rng(5)
    for variable in model.variables:
        if "/layer_norm/" in variable.name or "LayerNorm" in variable.name:
            variable.assign(variable + rng.normal(0.0, 0.3, variable.shape))
    values = {v.name: v.numpy() for v in model.variables}
    plain = encoder.AlbertModel(tiny_config(**sizes, share="none"), 2, compute)
    last = f"/inner_group_{inner - 1}/LayerNorm_1/"
    for variable in plain.variables:
        value = values[re.sub("/group_[0-9]+/", "/group_0/", variable.name)]
        if last in variable.name:
            layer = re.search("/group_([0-9]+)/", variable.name)[1]
            name = f"bert/encoder/transformer/layer_{layer}/layer_norm"
            value = value * values[f"{name}/scale:0"]
            if "beta" in variable.name:
                value = value + values[f"{name}/bias:0"]
        variable.assign(value)
    return model, plain


def output_and_gradients(model, ids):
    @tf.function(autograph=False)
    def step():
        with tf.GradientTape() as tape:
            output = model(ids, tf.ones_like(ids), training=True).sequence_output
            loss = tf.reduce_sum(tf.cast(output, tf.float32) ** 2)
        return output, tape.gradient(loss, model.trainable_variables, unconnected_gradients="zero")

    output, gradients = step()
    names = [v.name for v in model.trainable_variables]
    gradients = dict(zip(names, (tf.convert_to_tensor(x).numpy() for x in gradients), strict=True))
    return tf.cast(output, tf.float32).numpy(), gradients


@pytest.mark.slow
@pytest.mark.parametrize(
    ("compute", "inner"),
    [
        (layers.Compute(), 1),
        (layers.Compute(), 2),
        (layers.Compute("bfloat16", skip_padding=True, parts=2), 1),
        (layers.Compute(recompute=True, skip_padding=True), 1),
    ],
)
def test_layer_scales_compute_what_norms_of_each_layer_do(compute, inner):
    model, plain = scaled_models(compute, inner)
    (found, scaled), (wanted, folded) = (
        output_and_gradients(one, random_ids()) for one in (model, plain)
    )
    is_exact = compute.dtype == "float32"
    np.testing.assert_allclose(found, wanted, atol=1e-5 if is_exact else 0.1)
    norm = "bert/encoder/transformer/group_{}/inner_group_{}/LayerNorm_1/{}:0".format
    values = {v.name: v.numpy() for v in model.variables}
    for layer in range(3):
        gamma, beta = (folded[norm(layer, inner - 1, part)] for part in ("gamma", "beta"))
        shared = [values[norm(0, inner - 1, part)] for part in ("gamma", "beta")]
        name = f"bert/encoder/transformer/layer_{layer}/layer_norm"
        for part, value in (("bias", beta), ("scale", gamma * shared[0] + beta * shared[1])):
            gap = np.abs(scaled[f"{name}/{part}:0"] - value).max()
            assert gap < (1e-4 if is_exact else 0.05) * np.abs(value).max(), (layer, part)


def test_sinusoidal_positions_are_a_rotation_apart():
    config = tiny_config(position_initializer="sinusoidal", initializer_range=0.1)
    name = "bert/embeddings/position_embeddings:0"
    plain, sinusoidal = (
        {v.name: v.numpy() for v in encoder.AlbertModel(c, seed=1).variables}
        for c in (tiny_config(initializer_range=0.1), config)
    )
    found = sinusoidal.pop(name)
    np.testing.assert_allclose(found[0], np.repeat([0, 0.1 * 2**0.5], found.shape[1] // 2), 1e-6)
    assert np.sqrt(np.mean(found**2)) == pytest.approx(0.1)
    products = found @ found.T  # depend only on the distance of two positions
    np.testing.assert_allclose(products[1:, 1:], products[:-1, :-1], atol=1e-6)
    del plain[name]
    for key, value in plain.items():
        np.testing.assert_array_equal(sinusoidal[key], value)


def test_layer_scales_begin_without_effect():
    plain, scaled = tiny_config(), tiny_config(layer_scales=True)
    plain, scaled = (encoder.AlbertModel(config, seed=1) for config in (plain, scaled))
    own = {v.name for v in scaled.variables} - {v.name for v in plain.variables}
    name = "bert/encoder/transformer/layer_{}/layer_norm/{}:0".format
    assert own == {name(layer, part) for layer in range(3) for part in ("scale", "bias")}
    ids = random_ids()
    np.testing.assert_array_equal(scaled(ids).sequence_output, plain(ids).sequence_output)


def test_layer_scales_are_applied_where_few_positions_are_read():
    model, _ = scaled_models(layers.Compute())
    ids = random_ids()
    positions = tf.constant([[2, 0]] * len(ids))
    found = tf.reshape(model.at_positions(ids, positions=positions), [len(ids), 2, -1])
    whole = model(ids).sequence_output.numpy()
    np.testing.assert_allclose(found, whole[:, [2, 0]], atol=1e-5)


# Inputs


def test_missing_mask_and_types_mean_ones_and_zeros():
    model = encoder.AlbertModel(tiny_config(), seed=1)
    ids = random_ids()
    explicit = model(ids, np.ones_like(ids), np.zeros_like(ids))
    np.testing.assert_allclose(model(ids).sequence_output, explicit.sequence_output, atol=1e-6)
    other_types = model(ids, token_type_ids=np.ones_like(ids))
    assert np.abs(other_types.sequence_output - explicit.sequence_output).max() > 1e-3


def test_with_one_token_type_all_segments_are_the_same():
    model = encoder.AlbertModel(tiny_config(type_vocab_size=1), seed=1)
    ids = random_ids()
    found = model(ids, token_type_ids=np.ones_like(ids)).sequence_output
    np.testing.assert_array_equal(found, model(ids).sequence_output)


def test_padding_contributes_nothing():
    model = encoder.AlbertModel(tiny_config(), seed=1)
    ids = random_ids(length=12)
    mask = np.zeros_like(ids)
    mask[:, :7] = 1
    padded, trimmed = model(ids, mask), model(ids[:, :7])
    np.testing.assert_allclose(
        padded.sequence_output[:, :7], trimmed.sequence_output, rtol=0, atol=1e-6
    )
    np.testing.assert_allclose(padded.pooled_output, trimmed.pooled_output, rtol=0, atol=1e-6)


def test_examples_of_a_batch_do_not_touch_each_other():
    model = encoder.AlbertModel(tiny_config(), seed=1)
    ids = random_ids()
    alone = model(ids[2:3]).sequence_output
    np.testing.assert_allclose(model(ids).sequence_output[2:3], alone, rtol=0, atol=1e-6)


def test_integer_types_and_lists_are_accepted():
    model = encoder.AlbertModel(tiny_config(), seed=1)
    ids = random_ids()
    want = model(ids).pooled_output
    np.testing.assert_array_equal(model(ids.astype(np.int64)).pooled_output, want)
    np.testing.assert_array_equal(model(ids.tolist()).pooled_output, want)


def test_longest_sequence_is_accepted_and_one_more_refused():
    model = encoder.AlbertModel(tiny_config())
    assert model(random_ids(length=16)).sequence_output.shape == [4, 16, 12]
    with pytest.raises(file_io.InputError, match=r"max_position_embeddings = 16 tokens; got 17"):
        model(random_ids(length=17))


def test_too_long_sequence_of_unknown_shape_is_refused_while_running():
    model = encoder.AlbertModel(tiny_config())
    run = tf.function(
        lambda ids: model(ids).pooled_output,
        input_signature=[tf.TensorSpec([None, None], tf.int32)],
        autograph=False,
    )
    run(random_ids(length=16))
    with pytest.raises(tf.errors.InvalidArgumentError, match="max_position_embeddings = 16"):
        run(random_ids(length=17))


def test_wrong_rank_is_refused():
    model = encoder.AlbertModel(tiny_config())
    with pytest.raises(file_io.InputError, match=r"input_ids must be .*; got \(5,\)"):
        model(np.arange(5))


def test_static_shapes_survive_where_known():
    model = encoder.AlbertModel(tiny_config())
    run = tf.function(model, input_signature=[tf.TensorSpec([None, 8], tf.int32)], autograph=False)
    out = run.get_concrete_function().structured_outputs
    assert out.sequence_output.shape.as_list() == [None, 8, 12]
    assert out.pooled_output.shape.as_list() == [None, 12]


# Dropout


def graph_ops(function, *args):
    graph = function.get_concrete_function(*args).graph
    return [op.type for op in graph.get_operations()]


def test_dropout_is_a_function_of_the_seed():
    config = tiny_config(hidden_dropout_prob=0.3, attention_probs_dropout_prob=0.2)
    model = encoder.AlbertModel(config, seed=1)
    ids = random_ids()

    def run(seed):
        return model(ids, training=True, seed=tf.constant(seed)).sequence_output

    np.testing.assert_array_equal(run([1, 2]), run([1, 2]))
    assert np.abs(run([1, 2]) - run([1, 3])).max() > 1e-2
    compiled = tf.function(run, autograph=False)
    np.testing.assert_allclose(compiled([1, 2]), run([1, 2]), rtol=0, atol=1e-5)


def test_dropout_without_seed_is_fresh_each_time():
    model = encoder.AlbertModel(tiny_config(hidden_dropout_prob=0.3), seed=1)
    ids = random_ids()
    run = tf.function(lambda: model(ids, training=True).pooled_output, autograph=False)
    assert np.abs(run() - run()).max() > 1e-3


def test_no_dropout_outside_training_and_no_random_op_at_rate_zero():
    ids = tf.constant(random_ids())
    dropping = encoder.AlbertModel(tiny_config(hidden_dropout_prob=0.3), seed=1)
    np.testing.assert_array_equal(dropping(ids).pooled_output, dropping(ids).pooled_output)
    plain = encoder.AlbertModel(tiny_config(), seed=1)
    run = tf.function(lambda x: plain(x, training=True), autograph=False)
    assert not [op for op in graph_ops(run, ids) if "Random" in op or "Dropout" in op]
    run = tf.function(lambda x: dropping(x, training=True), autograph=False)
    assert [op for op in graph_ops(run, ids) if "Random" in op]


def test_each_place_of_the_network_has_its_own_mask():
    dropout = layers.Dropout(True, tf.constant([1, 2]))
    ones = tf.ones([400])
    masks = [dropout(ones, 0.25, site).numpy() for site in ("a", "b", "a")]
    np.testing.assert_array_equal(masks[0], masks[2])
    agreement = np.mean(masks[0] == masks[1])
    assert 0.5 < agreement < 0.75  # 0.75**2 + 0.25**2 = 0.625 when independent
    kept = masks[0][masks[0] != 0]
    np.testing.assert_allclose(kept, 4 / 3, rtol=1e-6)
    assert 250 < len(kept) < 350


def test_layers_that_share_parameters_do_not_share_masks(monkeypatch):
    sites = []
    monkeypatch.setattr(tf.random, "fold_in", lambda seed, data: sites.append(data) or seed)
    config = tiny_config(
        hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1, inner_group_num=2
    )
    encoder.AlbertModel(config)(random_ids(), training=True)
    assert len(sites) == len(set(sites)) == 1 + 3 * 2 * 3


# Initial weights


def test_same_seed_gives_same_weights_in_any_order():
    config = tiny_config()
    first = {v.name: v.numpy() for v in encoder.AlbertModel(config, seed=7).variables}
    layers.Dense("elsewhere", 3, 4, config, seed=7)
    longer = dataclasses.replace(config, num_hidden_layers=6, num_hidden_groups=2)
    second = {v.name: v.numpy() for v in encoder.AlbertModel(longer, seed=7).variables}
    assert set(first) < set(second)
    for name, values in first.items():
        np.testing.assert_array_equal(values, second[name], err_msg=name)


@pytest.mark.parametrize("seeds", [(7, 8), (None, None)])
def test_other_seeds_give_other_weights(seeds):
    config = tiny_config()
    tables = [encoder.AlbertModel(config, seed=seed).embedding_table for seed in seeds]
    assert not np.array_equal(*tables)


def test_initial_values():
    config = tiny_config(vocab_size=5000, initializer_range=0.5)
    model = encoder.AlbertModel(config, seed=3)
    for variable in model.variables:
        name, values = variable.name, variable.numpy()
        if name.endswith(("bias:0", "beta:0")):
            assert not values.any(), name
        elif name.endswith("gamma:0"):
            assert (values == 1).all(), name
        else:
            assert 0.5 < np.abs(values).max() <= 1.0, name  # cut at two standard deviations
    # The standard deviation of a normal cut at two standard deviations is 0.8796 of the whole's.
    assert abs(model.embedding_table.numpy().std() - 0.5 * 0.8796) < 0.005


# Parts against plain numpy


def test_layer_norm_uses_biased_variance_and_tiny_epsilon():
    layer = layers.LayerNorm("norm", 4)
    layer.gamma.assign([1.0, 2.0, 3.0, 4.0])
    layer.beta.assign([0.5, 0.0, 0.0, -0.5])
    x = np.array([[1, 2, 3, 4], [1e-4, 2e-4, 3e-4, 4e-4], [5, 5, 5, 5]], np.float64)
    wide = x - x.mean(-1, keepdims=True)
    want = wide / np.sqrt(x.var(-1, keepdims=True) + 1e-12)
    want = want * layer.gamma.numpy() + layer.beta.numpy()
    np.testing.assert_allclose(layer(tf.constant(x, tf.float32)), want, rtol=2e-5, atol=1e-6)


def test_layer_norm_and_dense_keep_the_type_of_their_input():
    layer = layers.LayerNorm("norm", 4)
    dense = layers.Dense("dense", 4, 3, tiny_config(), seed=1)
    x = tf.random.stateless_normal([5, 4], [1, 2])
    for part in (layer, dense):
        low = part(tf.cast(x, tf.bfloat16))
        assert low.dtype == tf.bfloat16
        np.testing.assert_allclose(tf.cast(low, tf.float32), part(x), atol=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("hidden_act", ["gelu", "gelu_erf"])
def test_gradients_of_the_encoder_equal_numerical_ones(hidden_act):
    config = tiny_config(hidden_act=hidden_act, initializer_range=0.4)
    model = encoder.AlbertModel(config, seed=5)
    ids = random_ids(batch=2, length=5)
    weights = tf.random.stateless_normal([2, 5, 12], [3, 4])

    def loss():
        return tf.reduce_sum(model(ids).sequence_output * weights)

    with tf.GradientTape() as tape:
        value = loss()
    gradients = tape.gradient(value, model.variables, unconnected_gradients="zero")
    for variable, gradient in zip(model.variables, gradients, strict=True):
        gradient = tf.convert_to_tensor(gradient)
        direction = tf.random.stateless_normal(variable.shape, [5, 6])
        step = 1e-2 / float(tf.norm(direction))
        ends = []
        for sign in (1, -1):
            variable.assign_add(sign * step * direction)
            ends.append(float(loss()))
            variable.assign_sub(sign * step * direction)
        numerical = (ends[0] - ends[1]) / (2 * step)
        exact = float(tf.reduce_sum(gradient * direction))
        scale = float(tf.norm(gradient) * tf.norm(direction))
        assert abs(numerical - exact) <= 0.02 * abs(exact) + 0.003 * scale + 0.01, variable.name


@pytest.mark.parametrize(
    "name, function",
    [
        ("gelu", lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))),
        ("gelu_erf", lambda x: x * stats.norm.cdf(x)),
        ("relu", lambda x: np.maximum(x, 0)),
        ("tanh", np.tanh),
        ("linear", lambda x: x),
    ],
)
def test_activations(name, function):
    x = np.linspace(-6, 6, 101)
    got = layers.ACTIVATIONS[name](tf.constant(x, tf.float32))
    np.testing.assert_allclose(got, function(x), rtol=1e-5, atol=1e-6)
