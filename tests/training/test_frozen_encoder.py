"""A head on a frozen encoder: what is trained and computed, and runs that do not fit together."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from albert.io import file_io
from albert.model import checkpoints, encoder, head_config, heads, layers
from albert.tasks import glue, race
from albert.tasks.squad import task as squad_task
from albert.training import flops, frozen_encoder, optimizers, train_step, training_log
from tests.support import builders

# Far from nothing dropped, if the encoder did.
CONFIG = encoder.AlbertConfig.from_dict(
    builders.GROUPED | {"hidden_dropout_prob": 0.5, "attention_probs_dropout_prob": 0.5}
)
HEAD = head_config.Head(head_hidden_size=7, head_activation="tanh", head_input_activation="relu")
MEAN = dataclasses.replace(HEAD, pooling="mean")
SKIPPING = layers.Compute(skip_padding=True)
SQUAD = squad_task.Settings(
    24, 8, 6, 5, 9, start_n_top=2, end_n_top=2, dropout_prob=0.0, head=HEAD
)  # fmt: skip
MNLI = glue.get_task("MNLI")
TASKS = {
    "classifier": lambda: glue.make_task(MNLI, 0.0, HEAD),
    "classifier by mean": lambda: glue.make_task(MNLI, 0.0, MEAN),
    "choices": lambda: race.make_task(0.0, HEAD),
    "squad_v1": lambda: squad_task.make_task(squad_task.V1, SQUAD),
    "squad_v2": lambda: squad_task.make_task(squad_task.V2, SQUAD),
}


def features_of(name):
    """A batch, whose choices are as many as RACE has."""
    features = builders.make_features(name.removesuffix(" by mean"))
    if name == "choices":
        names = ("input_ids", "input_mask", "segment_ids")
        folded = {key: tf.reshape(features[key], [1, 4, -1]) for key in names}
        features = {**folded, "label_ids": tf.constant([2])}
    return {**features, "is_real_example": tf.ones_like(features["input_ids"][:, 0])}


def cached_outputs(model, name, features):
    """Outputs of the encoder for each text, as the cache adds them to a batch."""
    texts = {
        key: tf.reshape(features[key], [-1, features[key].shape[-1]])
        for key in ("input_ids", "input_mask", "segment_ids")
    }
    outputs = model.encoder_output(texts)
    if name == "choices":
        return tf.reshape(outputs, [1, 4, -1])
    if name.startswith("squad"):  # to the end of the longest text, here with a place behind it
        return outputs[:, : max(builders.LENGTHS) - 1]
    return outputs


@pytest.mark.parametrize("name", TASKS)
def test_the_head_alone_is_trained(name):
    """One update, from the text and from cached outputs: the same, and only of the head."""
    made = frozen_encoder.freeze(TASKS[name]())
    features = features_of(name)
    if name.startswith("squad"):  # the longest text leaves a place
        features["input_mask"] *= tf.cast(tf.range(builders.LENGTH) < builders.LENGTH - 1, tf.int32)
    found = []
    for is_cached in (False, True):
        model = made.build_model(CONFIG, SKIPPING, 1)
        before = builders.model_weights(model)
        optimizer = optimizers.create_optimizer(1e-2, 100, 0)
        optimizer.build(model.trained_variables)
        batch = dict(features)
        if is_cached:
            batch[heads.ENCODER_OUTPUT] = cached_outputs(model, name, features)
        results = train_step.run(made, model, optimizer, batch, 7)
        rows = results.pop(training_log.WORK)[flops.StepWork._fields.index("rows")]
        assert (rows == 0) == is_cached  # The encoder computes nothing.
        after = builders.model_weights(model)
        changed = {key for key in after if not np.array_equal(before[key], after[key])}
        expected = {key for key in after if not key.startswith("bert/")}
        # What is added to all choices alike changes nothing.
        assert expected - ({"output_bias"} if name == "choices" else set()) == changed
        slots = {key.rpartition("/")[0] for key in optimizer.variables_by_name()} - {""}
        assert slots == expected
        found.append((after, results))
    for key, value in found[0][0].items():
        np.testing.assert_allclose(found[1][0][key], value, atol=1e-5, err_msg=key)
    assert set(found[0][1]) == set(found[1][1])
    for key, pair in found[0][1].items():
        np.testing.assert_allclose(found[1][1][key], pair, rtol=1e-4, err_msg=key)


@pytest.mark.slow(2)
def test_nothing_below_the_head_is_dropped_or_differentiated():
    """The encoder's dropout of 0.5 changes nothing, and there is no backward pass through it."""
    features = features_of("classifier")
    config = dataclasses.replace(CONFIG, num_hidden_layers=1, num_hidden_groups=1)
    products = {}
    for freeze in (frozen_encoder.freeze, lambda made: made):
        made = freeze(TASKS["classifier"]())
        model = made.build_model(config, SKIPPING, 1)
        optimizer = optimizers.create_optimizer(1e-2, 100, 0)
        optimizer.build(model.trained_variables)

        @tf.function(autograph=False)
        def step(model=model, optimizer=optimizer, made=made):
            return train_step.run(made, model, optimizer, features, 7)

        graph = step.get_concrete_function().graph
        backward = [op.type for op in graph.get_operations() if op.name.startswith("gradient_tape")]
        products[freeze] = len([kind for kind in backward if "MatMul" in kind or "Call" in kind])
        trained = model(features, training=True, seed=tf.constant([1, 2]))["logits"]
        same = np.allclose(trained, model(features)["logits"], atol=1e-6)
        assert same == (freeze is frozen_encoder.freeze)
    frozen, whole = products.values()
    # Of the output layer two, of the layer before it the one of its kernel.
    assert frozen <= 3 < whole


def test_missing_weights_of_a_frozen_encoder_are_an_error(tmp_path):
    whole = TASKS["squad_v1"]().build_model(CONFIG, SKIPPING, 1)
    weights = builders.model_weights(whole)
    prefix = str(tmp_path / "model.ckpt-1")
    del weights["bert/embeddings/word_embeddings"]
    checkpoints.write_tensors(prefix, weights)
    model = frozen_encoder.freeze(TASKS["squad_v1"]()).build_model(CONFIG, SKIPPING, 1)
    with pytest.raises(file_io.InputError, match="lacks .*word_embeddings"):
        checkpoints.restore(model, prefix)


@pytest.mark.parametrize("was_frozen", [True, False])
def test_a_run_goes_on_as_it_began(tmp_path, was_frozen):
    made = TASKS["classifier"]()
    made = frozen_encoder.freeze(made) if was_frozen else made
    model = made.build_model(CONFIG, SKIPPING, 1)
    optimizer = optimizers.create_optimizer(1e-2, 100, 0)
    folder = str(tmp_path)
    frozen_encoder.check_resume(folder, True)
    checkpoints.save(f"{folder}/model.ckpt-1", model)  # another program's has no slots
    frozen_encoder.check_resume(folder, True)
    optimizer.build(model.trained_variables)
    optimizer.scale_loss()
    checkpoints.save(f"{folder}/model.ckpt-2", model, optimizer)
    frozen_encoder.check_resume(folder, was_frozen)
    (tmp_path / "model.ckpt-3.index").write_bytes(b"damaged")  # The run resumes from 2.
    message = "encoder was frozen, .* trained" if was_frozen else "encoder was trained, .* frozen"
    with pytest.raises(file_io.InputError, match=rf"model\.ckpt-2: its {message} \(freeze_encoder"):
        frozen_encoder.check_resume(folder, not was_frozen)


def test_without_a_layer_heads_are_as_before():
    for name in ("classifier", "squad_v1", "squad_v2"):
        names = set(builders.model_weights(builders.make_model(name)))
        assert not [found for found in names if found.startswith("head_hidden")]


def test_parameters_of_the_published_study():
    config = encoder.AlbertConfig(
        vocab_size=9, hidden_size=768, num_attention_heads=12, intermediate_size=8,
        num_hidden_layers=1,
    )  # fmt: skip
    model = heads.SquadV1Model(config, seed=1, head=head_config.Head(128, "relu", "relu"))
    model.freeze_encoder()
    assert sum(np.prod(v.shape) for v in model.trained_variables) == 98690


def test_the_layer_is_that_of_numpy():
    model = heads.ClassifierModel(CONFIG, 3, seed=1, dropout_prob=0.0, head=HEAD)
    weights = builders.model_weights(model)
    features = features_of("classifier")
    pooled = np.maximum(model.encoder_output(features), 0)
    hidden = np.tanh(pooled @ weights["head_hidden/kernel"] + weights["head_hidden/bias"])
    logits = hidden @ weights["output_weights"].T + weights["output_bias"]
    np.testing.assert_allclose(model(features)["logits"], logits, atol=1e-6)
    dropping = head_config.Head(7, head_dropout_prob=0.5)
    model = heads.ClassifierModel(CONFIG, 3, seed=1, dropout_prob=0.0, head=dropping)
    model.freeze_encoder()
    outputs = [model(features, True, tf.constant([1, i]))["logits"] for i in (1, 1, 2)]
    assert np.array_equal(outputs[0], outputs[1]) and not np.array_equal(outputs[0], outputs[2])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"head_hidden_size": -1}, "head_hidden_size=-1 must be an integer of at least 1"),
        ({"head_hidden_size": "3"}, "head_hidden_size='3' must be an integer of at least 1"),
        ({"head_dropout_prob": 1.0}, "head_dropout_prob=1.0 must be a fraction"),
    ],
)
def test_heads_that_cannot_be(values, message):
    with pytest.raises(file_io.InputError, match=message):
        head_config.Head(**values)
    with pytest.raises(file_io.InputError, match="head_activation='sine': expected one of gelu, "):
        heads.SquadV1Model(CONFIG, head=head_config.Head(3, "sine"))
    assert head_config.Head.from_settings(
        {"head_hidden_size": 3, "max_seq_length": 9}
    ) == head_config.Head(3)


def test_folders_of_heads_without_a_layer_are_described_as_before():
    assert head_config.NO_LAYER.settings == {}
    plain = squad_task.Settings(24, 8, 6, 5, 9)
    assert not [name for name in plain.to_dict() if name.startswith("head_")]
    for settings in (plain, SQUAD):
        assert head_config.Head.from_settings(settings.to_dict()) == settings.head
