"""Every head and loss against recorded outputs of the reference, and the model contract."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from albert.io import file_io
from albert.model import encoder, head_config, heads, layers, pretraining_heads
from tests.support import builders

TOLERANCE = 2e-5
CONFIGS = ["shared", "groups", "bert"]
BUILDERS = {
    "classifier_mnli": lambda config: heads.ClassifierModel(config, 3),
    "classifier_stsb": heads.RegressionModel,
    "race": lambda config: heads.MultipleChoiceModel(config, 4, 0.0),
    "squad_v1": heads.SquadV1Model,
    "squad_v2_infer": lambda config: heads.SquadV2Model(config, 4, 3, 0.0),
    "squad_v2_train": lambda config: heads.SquadV2Model(config, 4, 3, 0.0),
}
TINY = encoder.AlbertConfig(
    vocab_size=50,
    embedding_size=8,
    hidden_size=12,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=20,
    max_position_embeddings=16,
)


def load(model, prefix):
    """Restores every variable and checks that the checkpoint holds nothing else."""
    reader = tf.train.load_checkpoint(str(prefix))
    shapes = reader.get_variable_to_shape_map()
    names = {variable.name.removesuffix(":0") for variable in model.variables}
    assert names == set(shapes) - {"global_step"}
    for variable in model.variables:
        variable.assign(reader.get_tensor(variable.name.removesuffix(":0")))
    return model


def config_of(golden, name):
    return encoder.AlbertConfig.from_json_file(golden / "model" / name / "albert_config.json")


def inputs_of(recorded):
    return {
        key.removeprefix("in/"): tf.constant(recorded[key])
        for key in recorded.files
        if key.startswith("in/") and not key.endswith("n_top")
    }


def assert_equals_recorded(got, recorded, key, tolerance=TOLERANCE):
    want = recorded[f"out/{key}"]
    got = np.asarray(got)
    assert (got.shape, got.dtype) == (want.shape, want.dtype), key
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance, err_msg=key)


# Recorded outputs


@pytest.mark.parametrize("head", BUILDERS)
@pytest.mark.parametrize(
    "name, compiled",
    [("shared", False), ("groups", False), ("bert", False), ("groups", True)],
    ids=["shared", "groups", "bert", "groups-function"],
)
def test_head_equals_reference(golden, name, head, compiled):
    folder = golden / "model" / name / head
    model = load(BUILDERS[head](config_of(golden, name)), folder / "model.ckpt-best")
    recorded = np.load(folder / "head.npz")
    features = inputs_of(recorded)
    function = tf.function(model, autograph=False) if compiled else model
    outputs = function(features, training=head == "squad_v2_train")
    keys = {key.removeprefix("out/") for key in recorded.files if key.startswith("out/")}
    for key in keys - {"loss"}:
        assert_equals_recorded(outputs[key], recorded, key)
    if "loss" in keys:
        assert_equals_recorded(model.loss(outputs, features), recorded, "loss")


@pytest.mark.parametrize("name", CONFIGS)
def test_pretraining_equals_reference(golden, name):
    folder = golden / "model" / name
    model = load(
        pretraining_heads.PretrainingModel(config_of(golden, name)), folder / "model.ckpt-best"
    )
    recorded = np.load(folder / "forward.npz")
    features = inputs_of(recorded)
    outputs = model(features)
    for key in (
        "sequence_output",
        "pooled_output",
        "masked_lm_log_probs",
        "masked_lm_example_loss",
        "sentence_order_log_probs",
    ):
        assert_equals_recorded(outputs[key], recorded, key)
    losses = model.losses(outputs, features)
    assert list(losses) == ["masked_lm_loss", "sentence_order_loss"]
    for key, value in losses.items():
        assert_equals_recorded(value, recorded, key)
    total = recorded["out/masked_lm_loss"] + recorded["out/sentence_order_loss"]
    np.testing.assert_allclose(model.loss(outputs, features), total, rtol=0, atol=TOLERANCE)


def fill_with_recorded_weights(model):
    """The weights of the recordings at published sizes; the rule is part of the recording."""
    for variable in model.variables:
        name = variable.name.removesuffix(":0")
        seed = sum(ord(c) * (i + 1) for i, c in enumerate(name)) % 2**31
        values = np.random.RandomState(seed).standard_normal(variable.shape)
        variable.assign(values.astype(np.float32) * 0.04 + name.endswith("gamma"))


@pytest.mark.slow
@pytest.mark.parametrize("size", ["base", "large"])
def test_published_sizes_equal_reference(golden, size):
    folder = golden / "full_size"
    recorded = np.load(folder / f"{size}.npz")
    config = encoder.AlbertConfig.from_json_file(folder / f"albert_{size}_config.json")
    model = pretraining_heads.PretrainingModel(config, seed=1)
    fill_with_recorded_weights(model)
    count = sum(int(tf.size(v)) for v in model.variables)
    recorded_encoder = sum(int(tf.size(v)) for v in model.albert.variables)
    assert (count, recorded_encoder) == (
        recorded["num_parameters"],
        recorded["num_encoder_parameters"],
    )

    features = inputs_of(recorded)
    features["masked_lm_weights"] = tf.ones(features["masked_lm_ids"].shape)
    features["next_sentence_labels"] = tf.zeros([2, 1], tf.int32)
    outputs = (tf.function(model, autograph=False) if size == "base" else model)(features)
    sampled = outputs["sequence_output"][:, ::37, ::29]
    assert_equals_recorded(sampled, recorded, "sequence_output", 5e-4)
    for key in ("pooled_output", "masked_lm_example_loss", "sentence_order_log_probs"):
        assert_equals_recorded(outputs[key], recorded, key, 5e-4)


# Losses


def example_features(batch=4, length=8, seed=0):
    random = np.random.RandomState(seed)
    return {
        "input_ids": tf.constant(random.randint(5, 50, (batch, length)), tf.int32),
        "input_mask": tf.ones([batch, length], tf.int32),
        "segment_ids": tf.constant(random.randint(0, 2, (batch, length)), tf.int32),
        "label_ids": tf.constant(random.randint(0, 2, batch), tf.int32),
        "masked_lm_positions": tf.constant(random.randint(1, length, (batch, 3)), tf.int32),
        "masked_lm_ids": tf.constant(random.randint(5, 50, (batch, 3)), tf.int32),
        "masked_lm_weights": tf.constant(random.randint(0, 2, (batch, 3)), tf.float32),
        "next_sentence_labels": tf.constant(random.randint(0, 2, (batch, 1)), tf.int32),
        "p_mask": tf.constant([[0] + [1] * 2 + [0] * (length - 3)] * batch, tf.int32),
        "start_positions": tf.constant(random.randint(3, length, batch), tf.int32),
        "end_positions": tf.constant(random.randint(3, length, batch), tf.int32),
        "is_impossible": tf.constant(random.randint(0, 2, batch), tf.int32),
    }


MODELS = {
    "pretraining": lambda **k: pretraining_heads.PretrainingModel(TINY, **k),
    "classifier": lambda **k: heads.ClassifierModel(TINY, 2, **k),
    "weighted": lambda **k: heads.ClassifierModel(TINY, 2, class_weights=(0.25, 3.0), **k),
    "regression": lambda **k: heads.RegressionModel(TINY, **k),
    "choice": lambda **k: heads.MultipleChoiceModel(TINY, 2, 0.0, **k),
    "squad_v1": lambda **k: heads.SquadV1Model(TINY, **k),
    "squad_v2": lambda **k: heads.SquadV2Model(TINY, 3, 2, 0.0, **k),
}
TERMS = {
    "pretraining": ["masked_lm_loss", "sentence_order_loss"],
    "classifier": ["classification_loss"],
    "weighted": ["classification_loss"],
    "regression": ["regression_loss"],
    "choice": ["choice_loss"],
    "squad_v1": ["span_loss"],
    "squad_v2": ["span_loss", "answerability_loss"],
}


def run(model, features, **kwargs):
    """Outputs that the loss can be made of; the classifiers' own dropout is off."""
    training = isinstance(model, heads.SquadV2Model)
    return model(features, training=training, **kwargs)


@pytest.mark.parametrize("name", MODELS)
def test_loss_is_the_sum_of_its_terms(name):
    model, features = MODELS[name](seed=1), example_features()
    outputs = run(model, features)
    losses = model.losses(outputs, features)
    assert list(losses) == list(model.loss_weights(features)) == TERMS[name]
    np.testing.assert_allclose(model.loss(outputs, features), sum(losses.values()), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_losses_of_parts_add_up_to_the_loss_of_the_whole(name):
    model, features = MODELS[name](seed=1), example_features(batch=5)
    variables = list(model.trainable_variables)
    with tf.GradientTape() as tape:
        whole = model.loss(run(model, features), features)
    whole_gradients = tape.gradient(whole, variables, unconnected_gradients="zero")

    weights = model.loss_weights(features)
    total, totals = 0.0, [tf.zeros(v.shape) for v in variables]
    for part in (slice(0, 2), slice(2, 5)):
        some = {key: value[part] for key, value in features.items()}
        with tf.GradientTape() as tape:
            loss = model.loss(run(model, some), some, weights)
        gradients = tape.gradient(loss, variables, unconnected_gradients="zero")
        total += loss
        totals = [a + tf.convert_to_tensor(b) for a, b in zip(totals, gradients, strict=True)]
    np.testing.assert_allclose(total, whole, rtol=1e-5)
    for variable, got, want in zip(variables, totals, whole_gradients, strict=True):
        np.testing.assert_allclose(
            got, tf.convert_to_tensor(want), rtol=1e-4, atol=1e-6, err_msg=variable.name
        )


@pytest.mark.parametrize("name", MODELS)
def test_examples_that_fill_up_the_batch_do_not_count(name):
    model, features = MODELS[name](seed=1), example_features(batch=5)
    real = {key: value[:3] for key, value in features.items()}
    features["is_real_example"] = tf.constant([1, 1, 1, 0, 0])
    np.testing.assert_allclose(
        model.loss(run(model, features), features), model.loss(run(model, real), real), rtol=1e-5
    )
    features["is_real_example"] = tf.zeros([5], tf.int32)
    assert float(model.loss(run(model, features), features)) == 0.0


def test_the_loss_of_weighted_classes_is_their_weighted_mean():
    features, class_weights = example_features(batch=6), (0.25, 3.0)
    model = MODELS["weighted"](seed=1)
    outputs = run(model, features)
    weights = np.take(class_weights, features["label_ids"])
    losses = outputs["per_example_loss"].numpy()  # unweighted, as evaluations need them
    expected = (weights * losses).sum() / weights.sum()
    np.testing.assert_allclose(model.loss(outputs, features), expected, rtol=1e-6)
    plain = MODELS["classifier"](seed=1)
    np.testing.assert_array_equal(run(plain, features)["per_example_loss"], losses)

    words = heads.TokenClassifierModel(TINY, 2, seed=1, class_weights=class_weights)
    features["label_ids"] = tf.constant(np.arange(48).reshape(6, 8) % 5 // 4, tf.int32)
    features["first_pieces"] = tf.constant(np.arange(48).reshape(6, 8) % 3 != 1, tf.int32)
    features["is_real_example"] = tf.constant([1, 1, 0, 1, 1, 1])
    outputs = run(words, features)
    losses = heads.cross_entropy(features["label_ids"], tf.reshape(outputs["logits"], [-1, 2]))
    weights = np.take(class_weights, features["label_ids"]) * features["first_pieces"].numpy()
    weights = weights * features["is_real_example"].numpy()[:, None]
    expected = (weights * losses.numpy().reshape(6, 8)).sum() / weights.sum()
    np.testing.assert_allclose(words.loss(outputs, features), expected, rtol=1e-6)


def test_loss_weights_count_masked_words_and_examples():
    features = example_features()
    weights = MODELS["pretraining"]().loss_weights(features)
    assert float(weights["masked_lm_loss"]) == features["masked_lm_weights"].numpy().sum()
    assert float(weights["sentence_order_loss"]) == 4.0


def test_masked_lm_denominator_has_its_epsilon():
    model, features = MODELS["pretraining"](seed=1), example_features()
    outputs = model(features)
    weights = {"masked_lm_loss": tf.constant(1e-5), "sentence_order_loss": tf.constant(1.0)}
    flat = features["masked_lm_weights"].numpy().reshape(-1)
    total = (outputs["masked_lm_example_loss"].numpy() * flat).sum()
    got = model.losses(outputs, features, weights)
    np.testing.assert_allclose(got["masked_lm_loss"], total / 2e-5, rtol=1e-5)
    assert float(weights["masked_lm_loss"]) == np.float32(1e-5)  # the caller's dict is untouched


def test_loss_of_prediction_outputs_is_refused():
    model, features = MODELS["squad_v2"](), example_features()
    unlabeled = {name: x for name, x in features.items() if not name.endswith("_positions")}
    with pytest.raises(ValueError, match="needs the outputs of training=True"):
        model.loss(model(unlabeled), features)


@pytest.mark.parametrize("name", MODELS)
def test_prediction_needs_no_labels(name):
    model, features = MODELS[name](seed=1), example_features()
    inputs = ("input_ids", "input_mask", "segment_ids", "p_mask", "masked_lm_positions")
    outputs = model({key: features[key] for key in inputs})
    with_labels = model(features)
    assert not [key for key in outputs if "example_loss" in key]
    for key, value in outputs.items():
        np.testing.assert_array_equal(value, with_labels[key], err_msg=key)


@pytest.mark.parametrize("name", MODELS)
def test_one_step_downhill_lowers_the_loss_as_the_gradient_says(name):
    model, features = MODELS[name](seed=1), example_features()
    with tf.GradientTape() as tape:
        before = model.loss(run(model, features), features)
    expected = 0.0
    for variable, gradient in zip(
        model.variables, tape.gradient(before, model.variables), strict=True
    ):
        if gradient is not None:
            gradient = tf.convert_to_tensor(gradient)
            variable.assign_sub(0.01 * gradient)
            expected += 0.01 * float(tf.reduce_sum(tf.square(gradient)))
    drop = float(before - model.loss(run(model, features), features))
    assert 0.8 < drop / expected < 1.1


@pytest.mark.parametrize(
    "name, unused",
    [
        ("pretraining", []),
        ("classifier", []),
        ("regression", []),
        ("choice", []),
        ("squad_v1", ["bert/pooler/dense/bias:0", "bert/pooler/dense/kernel:0"]),
        ("squad_v2", ["bert/pooler/dense/bias:0", "bert/pooler/dense/kernel:0"]),
    ],
)
def test_variables_without_gradient(name, unused):
    model, features = MODELS[name](seed=1), example_features()
    with tf.GradientTape() as tape:
        loss = model.loss(run(model, features), features)
    gradients = tape.gradient(loss, model.trainable_variables)
    pairs = list(zip(model.trainable_variables, gradients, strict=True))
    assert sorted(v.name for v, g in pairs if g is None) == unused
    trained = {v.name for v in model.trained_variables}
    assert trained == {v.name for v, g in pairs if g is not None}


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("bfloat16", 2e-2)])
def test_the_mean_of_the_tokens_is_read(dtype, tolerance):
    """That of real tokens alone, with and without computing all else."""
    features, means = builders.make_features("classifier", length=16), []
    head = head_config.Head(pooling="mean")
    for compute in ({}, {"skip_padding": True}, {"whole_sequence": True}):
        compute = layers.Compute(dtype, **compute)
        model = heads.ClassifierModel(TINY, 3, compute, 1, head=head)
        sequence = model.albert(*heads.encoder_inputs(features)).sequence_output
        sequence, mask = np.float32(sequence), features["input_mask"].numpy()[:, :, None]
        expected = (sequence * mask).sum(1) / mask.sum(1)
        found = model.encoder_output(features)
        assert found.dtype == dtype and not model.uses_pooler
        np.testing.assert_allclose(np.float32(found), expected, atol=tolerance)
        means.append(model(features)["logits"])
        wanted = expected @ model.output.weights.numpy().T
        np.testing.assert_allclose(means[-1], wanted, atol=3 * tolerance)
    np.testing.assert_allclose(means[1:], [means[0]] * 2, atol=3 * tolerance)
    nothing = {name: 0 * value for name, value in features.items()}  # fills up a batch
    assert np.all(np.isfinite(model(nothing)["logits"]))


# Dropout and initial weights


@pytest.mark.parametrize("build", [MODELS["classifier"], MODELS["regression"]])
def test_classifiers_drop_a_tenth_whatever_the_configuration(build):
    model, features = build(seed=1), example_features()
    model.albert(features["input_ids"])
    first = model(features, training=True, seed=tf.constant([1, 2]))["logits"]
    again = model(features, training=True, seed=tf.constant([1, 2]))["logits"]
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - model(features)["logits"]).max() > 1e-5
    others = [model(features, training=True)["logits"].numpy() for _ in range(2)]
    assert np.abs(others[0] - others[1]).max() > 1e-5


def test_dropout_rates_of_race_and_squad():
    features, seed = example_features(), tf.constant([1, 2])
    for rate in (0.0, 0.5):
        race = heads.MultipleChoiceModel(TINY, 2, rate, seed=1)
        squad = heads.SquadV2Model(TINY, 3, 2, rate, seed=1)
        race_moved = race(features, True, seed)["logits"] - race(features)["logits"]
        squad_moved = squad(features, True, seed)["cls_logits"] - squad(features)["cls_logits"]
        for moved in (race_moved, squad_moved):
            assert (np.abs(moved).max() > 1e-5) == (rate > 0)


@pytest.mark.parametrize("name", MODELS)
def test_seed_fixes_the_initial_weights(name):
    first, second, other = (MODELS[name](seed=seed) for seed in (3, 3, 4))
    for a, b in zip(first.variables, second.variables, strict=True):
        np.testing.assert_array_equal(a, b, err_msg=a.name)
    different = [
        a.name
        for a, b in zip(first.variables, other.variables, strict=True)
        if not np.array_equal(a, b)
    ]
    random = [
        v.name for v in first.variables if not v.name.endswith(("bias:0", "beta:0", "gamma:0"))
    ]
    assert different == random


# Shapes


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_dynamic_shapes(name):
    model, features = MODELS[name](seed=1), example_features()
    signature = {
        key: tf.TensorSpec([None] * len(value.shape), value.dtype)
        for key, value in features.items()
    }
    function = tf.function(lambda x: run(model, x), input_signature=[signature], autograph=False)
    for batch in (2, 4):
        some = {key: value[:batch] for key, value in features.items()}
        want = run(model, some)
        for key, value in function(some).items():
            np.testing.assert_allclose(value, want[key], rtol=0, atol=1e-4, err_msg=key)


def test_choices_may_be_folded_or_not():
    model, features = heads.MultipleChoiceModel(TINY, 4, seed=1), example_features(8)
    folded = {k: tf.reshape(features[k], [2, 32]) for k in ("input_ids", "input_mask")}
    apart = {k: tf.reshape(features[k], [2, 4, 8]) for k in ("input_ids", "input_mask")}
    np.testing.assert_array_equal(model(folded)["logits"], model(apart)["logits"])
    assert model(folded)["logits"].shape == [2, 4]


@pytest.mark.parametrize("shape", [(2, 31), (2, 3, 8)])
def test_choices_that_do_not_fit_are_refused(shape):
    model = heads.MultipleChoiceModel(TINY, 4)
    message = r"input_ids must be \[batch, 4, length\] or \[batch, 4 \* length\]; got \(2, 3"
    with pytest.raises(file_io.InputError, match=message):
        model({"input_ids": np.ones(shape, np.int32)})


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda: heads.ClassifierModel(TINY, 1), "at least 2 labels; got 1"),
        (lambda: heads.MultipleChoiceModel(TINY, 1), "at least 2 choices; got 1"),
        (lambda: heads.SquadV2Model(TINY, 0, 5), "start_n_top .* at least 1; got 0 and 5"),
        (lambda: heads.SquadV2Model(TINY, 5, 0), "end_n_top .* at least 1; got 5 and 0"),
    ],
)
def test_senseless_sizes_are_refused(build, message):
    with pytest.raises(file_io.InputError, match=message):
        build()


def test_beam_wider_than_the_sequence_is_refused():
    model = heads.SquadV2Model(TINY, 9, 2)
    with pytest.raises(file_io.InputError, match="start_n_top and end_n_top = 9 and 2 .* got 8"):
        model(example_features())


def test_impossible_positions_are_never_on_the_beam_before_possible_ones():
    model, features = heads.SquadV2Model(TINY, 6, 6, seed=1), example_features()
    outputs = model(features)
    impossible = np.flatnonzero(features["p_mask"][0])
    assert not np.isin(outputs["start_top_index"], impossible).any()
    assert not np.isin(outputs["end_top_index"], impossible).any()
    probabilities = np.exp(outputs["start_top_log_probs"]).sum(-1)
    np.testing.assert_allclose(probabilities, 1.0, rtol=1e-5)  # all 6 possible starts


# What all models share


def test_examples_that_fill_up_a_batch_have_no_weight():
    features = {"input_ids": tf.zeros([3, 4], tf.int32)}
    np.testing.assert_array_equal(heads.real_examples(features), [1, 1, 1])
    features["is_real_example"] = tf.constant([[1], [0], [1]])
    np.testing.assert_array_equal(heads.real_examples(features), [1, 0, 1])


@pytest.mark.parametrize("name", builders.MODELS)
def test_losses_of_parts_add_up_under_common_weights(name):
    model, features = builders.make_model(name), builders.make_features(name)
    outputs = model(features, training=True, seed=tf.constant([1, 2]))
    weights = model.loss_weights(features)
    whole = model.losses(outputs, features, weights)
    half = {key: 2.0 * weight for key, weight in weights.items()}
    for key, value in model.losses(outputs, features, half).items():
        assert float(value) == pytest.approx(float(whole[key]) / 2, rel=1e-4)
    assert float(model.loss(outputs, features)) == pytest.approx(float(sum(whole.values())))


@pytest.mark.parametrize("name", builders.MODELS)
def test_the_way_of_computing_is_given_to_the_encoder(name):
    compute = layers.Compute("bfloat16", recompute=True)
    assert builders.make_model(name, compute).albert.compute == compute


def test_the_way_of_computing_cannot_be_changed():
    recorded_encoder = MODELS["classifier"]().albert
    with pytest.raises(AttributeError):
        recorded_encoder.compute = layers.Compute("bfloat16")
    with pytest.raises(dataclasses.FrozenInstanceError):
        recorded_encoder.compute.dtype = "bfloat16"
    assert recorded_encoder.compute == layers.Compute()


def test_the_output_layer_is_stored_transposed():
    layer = heads.LabelWeights("cls/", 5, TINY, seed=1)
    assert layer.weights.shape == (5, 12) and layer.weights.name == "cls/output_weights:0"
    layer.bias.assign(tf.range(5.0))
    x = tf.random.stateless_normal([2, 12], [1, 2])
    expected = x.numpy() @ layer.weights.numpy().T + np.arange(5)
    np.testing.assert_allclose(layer(x), expected, atol=1e-6)
    assert layer(tf.cast(x, tf.bfloat16)).dtype == tf.float32
