"""The table of optimizers: one class and one row are all that a new one needs."""

import importlib.util
import re

import pytest
import tensorflow as tf

from albert.cli import options
from albert.io import file_io
from albert.model import encoder, layers, weight_names
from albert.training import memory, optimizer_base, optimizer_table, optimizers
from tests.support import command_lines


class Momentum(optimizer_base.Optimizer):
    """The plainest optimizer with a slot."""

    SLOTS = ("momentum",)

    def _new_values(self, rule, weights, gradient, slots, step):
        mean = 0.5 * slots[0] + gradient * step.factor
        return (mean, weights - step.rate * mean), None


@pytest.mark.parametrize(
    ("warmup", "start", "step", "words"),
    [
        (3125, 0, 0, "the warm-up takes all steps"),
        (100, 0, 0, "the warm-up takes all steps"),
        (99, 0, 0, None),
        (10, 50, 49, "training begins at step 49: .* below 0"),
        (10, 50, 50, None),
    ],
)
def test_unusual_rates_are_told(warmup, start, step, words):
    settings = optimizer_table.Settings(1e-3, 100, warmup, start_warmup_step=start)
    for given in (settings, settings.in_fractions()):
        warning = given.find_warning(step)
        assert re.search(words, warning) if words else warning is None


@pytest.fixture
def momentum(monkeypatch):
    monkeypatch.setitem(optimizers.CLASSES, "momentum", Momentum)
    monkeypatch.setitem(optimizer_table.OPTIMIZERS, "momentum", optimizer_table.Row())


@pytest.mark.parametrize("name", optimizer_table.OPTIMIZERS)
def test_every_row_names_a_class(name):
    found = optimizers.optimizer_class(name)
    assert issubclass(found, optimizer_base.Optimizer) and found.SLOTS
    assert found.bytes_per_parameter() == 4 * len(found.SLOTS)
    assert type(optimizers.create_optimizer(0.1, 10, 0, optimizer=name)) is found


def test_other_names_are_refused():
    with pytest.raises(file_io.InputError, match="optimizer=sgd: .* adamw, lamb, adam or muon$"):
        optimizer_table.check("sgd")


def test_a_row_is_all_that_a_run_needs(momentum):
    optimizer = optimizers.create_optimizer(0.1, 10, 0, optimizer="momentum", clip_norm=None)
    variable = tf.Variable([1.0, -2.0], name="a")
    for _ in range(2):
        optimizer.global_step.assign(0)
        optimizer.apply_gradients([(tf.constant([1.0, 2.0]), variable)])
    assert optimizer.variables_by_name()["a/momentum"].numpy().tolist() == [1.5, 3.0]
    assert variable.numpy() == pytest.approx([0.75, -2.5])


def test_a_row_is_all_that_flags_estimates_and_checkpoints_need(momentum):
    spec = importlib.util.find_spec("albert.cli.training")  # as with a row in the source
    training = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(training)
    for as_text in (False, True):
        kind = training.OptimizerByText if as_text else training.Optimizer
        values = command_lines.parse(kind, optimizer="momentum", clip_norm=2)
        options.read(kind, values).check()
        assert values.optimizer == "momentum" and "momentum" in values["optimizer"].help
    config = encoder.AlbertConfig(vocab_size=50)
    shapes = memory.Shapes(config, 8, 128, optimizer="momentum")
    found = memory.estimate(shapes, layers.Compute())
    assert found.optimizer == found.parameters
    assert weight_names.training_state(["a", "a/momentum", "momentum"]) == {"a/momentum"}


def test_state_is_told_from_weights():
    state = ("bert/pooler/bias/adam_m", "a/adam_v", "global_step", "loss_scale/scale")
    weights = ("bert/pooler/bias", "adam_m", "b/adam_m/kernel", "b/global_step", "b/momentum")
    assert weight_names.training_state([*state, *weights, "a"]) == {*state}
