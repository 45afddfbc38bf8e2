"""One update: micro-batches against the whole batch, scaled float16 losses."""

import functools
import time

import numpy as np
import pytest
import tensorflow as tf

from albert.model import kernels, layers
from albert.tasks import pretraining
from albert.training import contracts, flops, optimizers, train_step, training_log
from tests.support.builders import make_features, make_model, optimized_sums

TRAIN_METRICS = {
    "pretraining": pretraining.make_task().train_metrics,
    "classifier": lambda outputs, features: {
        "accuracy": (
            tf.reduce_sum(tf.cast(outputs["predictions"] == features["label_ids"], tf.int32)),
            tf.size(features["label_ids"]),
        )
    },
}
TRAIN_METRICS["weighted"] = TRAIN_METRICS["classifier"]
FLOAT16 = layers.Compute("float16")
LENGTHS = (9, 24, 3, 17, 8, 12, 3, 24)
SMALL = {"num_hidden_layers": 2, "num_hidden_groups": 1}


class FakeTask:
    learning_signals = staticmethod(contracts.no_metrics)

    def __init__(self, name):
        self.train_metrics = TRAIN_METRICS[name]


@functools.cache
def updated(name, steps, compute=None, count=1, prepare=None, compiled=False):
    """Weights and results after some updates of one batch, and the optimizer."""
    model = make_model(name, compute or layers.Compute(skip_padding=True), **SMALL)
    optimizer = optimizers.create_optimizer(1e-2, 100, 0, optimizer="lamb")
    optimizer.build(model.trained_variables)
    if prepare:
        prepare(optimizer)
    features = make_features(name, LENGTHS)
    features["is_real_example"] = tf.constant([1, 1, 1, 0, 1, 1, 1, 1])

    def run():
        return train_step.run(FakeTask(name), model, optimizer, features, 7, count)

    run = tf.function(run, autograph=False) if compiled else run
    results = [run() for _ in range(steps)]
    return {v.name: v.numpy() for v in model.variables}, results, optimizer


@pytest.mark.slow
@pytest.mark.parametrize(("name", "count"), [("pretraining", 2), ("weighted", 8)])
def test_micro_batches_make_the_update_of_the_whole_batch(name, count):
    expected, wanted_results, _ = updated(name, 3)
    found, results, _ = updated(name, 3, count=count, compiled=True)
    for variable, value in expected.items():
        np.testing.assert_allclose(found[variable], value, atol=2e-5, err_msg=variable)
    for ours, whole in zip(results, wanted_results, strict=True):
        assert set(ours) == set(whole)
        for key, pair in whole.items():
            if key == training_log.WORK:  # Each micro-batch rounds up its own number of rows.
                ours, pair = (
                    flops.StepWork(*x.numpy())._replace(rows=0) for x in (ours[key], pair)
                )
                assert ours == pair
            else:
                np.testing.assert_allclose(ours[key], pair, rtol=1e-5, err_msg=key)


@pytest.mark.slow
def test_gradients_of_micro_batches_are_added_up_two_by_two(monkeypatch):
    model = make_model("classifier", **SMALL)
    features = make_features("classifier", LENGTHS)
    optimizer = optimizers.create_optimizer(1e-2, 100, 0)
    optimizer.build(model.trained_variables)
    longest = []
    for barrier in (kernels.graph_barrier, tf.identity):
        monkeypatch.setattr("albert.training.train_step.kernels.graph_barrier", barrier)

        @tf.function(autograph=False)
        def run():
            return train_step.run(FakeTask("classifier"), model, optimizer, features, 7, 4)

        sums = optimized_sums(run)
        assert any("while" in name for name in sums)
        merged = [terms for name, terms in sums.items() if "AddOpsRewrite" in name]
        longest.append(max(merged, default=0))
    assert longest[0] <= 2 < longest[1]


class Watched(tf.Module):
    """A line that notes when it is computed, forward and slowly backward."""

    def __init__(self):
        super().__init__()
        self.kernel = tf.Variable(1.0, name="kernel")
        self.trained_variables = [self.kernel]
        self.events = []

    def _note(self, event, x):
        def note(x):
            time.sleep(0.2 if event == "backward" else 0.0)
            self.events.append(event)
            return x

        return tf.ensure_shape(tf.numpy_function(note, [x], tf.float32), x.shape)

    def __call__(self, features, training, seed):
        @tf.custom_gradient
        def watched(x):
            return self._note("forward", x), lambda upstream: self._note("backward", upstream)

        return watched(features["x"] * self.kernel)

    def loss_weights(self, features):
        return tf.cast(tf.size(features["x"]), tf.float32)

    def losses(self, outputs, features, weights):
        return {"sum": tf.reduce_sum(outputs) / weights}

    def total(self, losses):
        return losses["sum"]


def test_micro_batches_are_computed_one_after_another():
    model, task = Watched(), FakeTask("classifier")
    task.train_metrics = lambda outputs, features: {}
    optimizer = optimizers.create_optimizer(1e-2, 100, 0)
    optimizer.build(model.trained_variables)
    tf.function(train_step.run, autograph=False)(task, model, optimizer, {"x": tf.ones([8])}, 7, 4)
    assert model.events == ["forward", "backward"] * 4


@pytest.mark.slow
def test_micro_batches_draw_dropout_of_their_own(monkeypatch):
    seeds = []
    model = make_model("classifier")
    optimizer = optimizers.create_optimizer(1e-2, 100, 0)
    optimizer.build(model.trained_variables)
    call = type(model).__call__

    def spied(self, features, training=False, seed=None):
        seeds.append(seed.numpy().tolist())
        return call(self, features, training, seed)

    monkeypatch.setattr(type(model), "__call__", spied)
    features = make_features("classifier", LENGTHS)
    train_step.run(FakeTask("classifier"), model, optimizer, features, 7, 4)
    assert len(set(map(tuple, seeds))) == 4


@pytest.mark.slow
def test_a_scaled_loss_makes_the_same_update():
    expected, _, _ = updated("classifier", 3)
    found, results, optimizer = updated("classifier", 3, prepare=lambda o: o.scale_loss())
    for variable, value in expected.items():
        np.testing.assert_allclose(found[variable], value, atol=1e-6, err_msg=variable)
    assert results[-1]["loss_scale"][0] == optimizer.gradient_scale().numpy() == 2.0**15
    ratios = [results[-1][f"trust_ratio_{name}"][0] for name in ("lowest", "median", "highest")]
    assert 0 < ratios[0] < ratios[1] < ratios[2]


@pytest.mark.slow
def test_an_overflow_leaves_the_update_out_and_halves_the_scale():
    def far_too_large(optimizer):
        optimizer.scale_loss()
        optimizer.gradient_scale().assign(2.0**127)

    before, _, _ = updated("classifier", 0)
    after, results, optimizer = updated(
        "classifier", 1, layers.Compute("float16"), 1, far_too_large
    )
    for variable, value in before.items():
        np.testing.assert_array_equal(after[variable], value)
    slots = [v for name, v in optimizer.variables_by_name().items() if "adam" in name]
    assert slots and not any(slot.numpy().any() for slot in slots)
    assert optimizer.global_step.numpy() == 1
    assert optimizer.gradient_scale().numpy() == 2.0**126
    assert np.isfinite(results[0]["loss"][0]) and results[0]["gradient_norm"][0] == 0


@pytest.mark.slow
def test_training_recovers_from_overflows():
    def too_large(optimizer):
        optimizer.scale_loss()
        optimizer.gradient_scale().assign(2.0**30)

    _, results, optimizer = updated("classifier", 40, FLOAT16, 1, too_large, compiled=True)
    losses = [float(result["loss"][0]) for result in results]
    assert optimizer.gradient_scale().numpy() < 2.0**30
    assert losses[-1] < losses[0] - 0.05


@pytest.mark.slow
def test_the_scale_grows_after_many_good_updates(monkeypatch):
    monkeypatch.setattr("albert.training.optimizer_base.LossScale.GOOD_UPDATES", 3)
    scales = []
    _, results, _ = updated("classifier", 7, prepare=lambda o: o.scale_loss())
    scales = [float(result["loss_scale"][0]) for result in results]
    assert scales == [2.0**15] * 2 + [2.0**16] * 3 + [2.0**17] * 2


@pytest.mark.slow
def test_a_loss_that_is_not_finite_shows_at_the_smallest_scale():
    def broken(optimizer):
        optimizer.scale_loss()
        optimizer.gradient_scale().assign(1.0)

    real = optimizers.create_optimizer

    def with_largest_rate(*arguments, **settings):
        return real(3e38, *arguments[1:], **settings)

    optimizers.create_optimizer, undo = with_largest_rate, real
    try:
        _, results, _ = updated("classifier", 2, prepare=broken)
    finally:
        optimizers.create_optimizer = undo
    assert not np.isfinite(results[1]["gradient_norm"][0])
