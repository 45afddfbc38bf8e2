"""Flags of the optimizer: what they set, what they refuse, and the rate by the batch."""

import functools
import importlib
import re

import pytest
import tensorflow as tf
from absl import flags, logging

from albert.cli import app, options, pretraining, training
from albert.io import file_io
from albert.training import optimizer_table, optimizers
from tests.support import command_lines

SCRIPTS = ("run_pretraining", "run_classifier", "run_squad_v1", "run_squad_v2", "run_race")


def settings_of(**given):
    values = command_lines.parse("run_pretraining", input_file="x", output_dir="x", **given)
    return options.read(pretraining.Settings, values)


def chosen(num_train_steps, num_warmup_steps, **given):
    """The `optimizer_table.Settings` of checked flags."""
    settings = settings_of(do_train=True, **given)
    settings.optimizer.check()
    return training.make_training(settings, num_train_steps, num_warmup_steps).optimizer


def refused(**given):
    """The message of the refusal, as a script prints it."""
    with pytest.raises(file_io.InputError) as error:
        settings_of(**given).optimizer.check()
    values = command_lines.parse("run_pretraining", input_file="x", output_dir="x")
    return app.with_flag_names(str(error.value), values)


def test_by_default_nothing_is_said_to_the_optimizer():
    assert chosen(10, 2, optimizer="adamw") == optimizer_table.Settings(0.00176, 10, 2, "adamw")


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("beta_1", "0.8", 0.8),
        ("beta_2", "0", 0.0),
        ("epsilon", "1e-4", 1e-4),
        ("weight_decay_rate", "0", 0.0),
        ("clip_norm", "0", 0.0),
        ("exclude_from_weight_decay", "bias, ^cls/", ("bias", "^cls/")),
        ("exclude_from_weight_decay", "", ()),
        ("exclude_from_layer_adaptation", '"b{1,2}",c', ("b{1,2}", "c")),
    ],
)
def test_each_flag_reaches_the_optimizer(name, text, value):
    expected = optimizer_table.Settings(0.00176, 10, 2, "lamb", {name: value})
    assert chosen(10, 2, **{name: text}) == expected


def test_flags_change_the_update():
    def moved(**given):
        optimizer = optimizers.build(chosen(10, 0, learning_rate=0.1, **given))
        variable = tf.Variable([3.0, 4.0], name="kernel")
        optimizer.apply_gradients([(tf.constant([3.0, 4.0]), variable)])
        return ([3.0, 4.0] - variable).numpy()

    plain = {"optimizer": "adamw", "beta_1": 0.5, "beta_2": 0.75, "epsilon": 1.0}
    # mean and root are both half of the gradient, which is clipped to the norm
    clipped = [0.1 * 0.3 / 1.3, 0.1 * 0.4 / 1.4]
    assert moved(**plain, exclude_from_weight_decay="^ker") == pytest.approx(clipped, rel=1e-5)
    whole = [0.1 * 1.5 / 2.5, 0.1 * 2 / 3]
    assert moved(**plain, weight_decay_rate=0, clip_norm=0) == pytest.approx(whole, rel=1e-5)
    decayed = [value + 0.1 * 0.5 * weight for value, weight in zip(whole, (3, 4), strict=True)]
    assert moved(**plain, weight_decay_rate=0.5, clip_norm=0) == pytest.approx(decayed, rel=1e-5)
    free = moved(**plain | {"optimizer": "lamb"}, exclude_from_layer_adaptation="kernel")
    assert free == pytest.approx(moved(**plain), rel=1e-6)
    assert moved(**plain | {"optimizer": "lamb"}) @ [3.0, 4.0] > 2.4  # a step of 0.1 |w|


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"optimizer": "adam", "weight_decay_rate": 0},
            "^--optimizer=adam does not accept --weight_decay_rate; it accepts --beta_1, --beta_2, "
            "--epsilon, --clip_norm$",
        ),
        (
            {"optimizer": "adamw", "exclude_from_layer_adaptation": "a"},
            "adamw does not accept --exclude_",
        ),
        (
            {"optimizer": "adam", "exclude_from_weight_decay": ""},
            "does not accept --exclude_from_weight_",
        ),
        ({"beta_1": 1}, "^--beta_1=1.0 must be a fraction, from 0 to below 1$"),
        ({"beta_2": "nan"}, "^--beta_2=nan must be a fraction"),
        ({"momentum": 0.9}, "^--optimizer=lamb does not accept --momentum; it accepts "),
        ({"optimizer": "muon", "momentum": 1}, "^--momentum=1.0 must be a fraction"),
        (
            {"optimizer": "muon", "adamw_rate_ratio": -1},
            "^--adamw_rate_ratio=-1.0 must be at least",
        ),
        ({"epsilon": 0}, "^--epsilon=0.0 must be above 0$"),
        ({"weight_decay_rate": -1}, "^--weight_decay_rate=-1.0 must be at least 0$"),
        ({"clip_norm": "inf"}, "^--clip_norm=inf must be at least 0$"),
        (
            {"exclude_from_weight_decay": "a,b("},
            r"^--exclude_from_weight_decay: 'b\(' is not a reg",
        ),
        ({"exclude_from_layer_adaptation": "a,,b"}, "layer_adaptation has an empty regular expr"),
        (
            {"optimizer": "adam", "learning_rate": "auto"},
            "^--learning_rate=auto is for --optimizer=lamb: no rule is known for adam$",
        ),
    ],
)
def test_mistakes_are_named(given, message):
    assert re.search(message, refused(**given))


def test_what_is_no_number_is_refused():
    for name, value in (("learning_rate", "nan"), ("learning_rate", "inf"), ("poly_power", "nan")):
        with pytest.raises(file_io.InputError, match=f"--{name}={value} must be a finite number"):
            settings_of(**{name: value})
    with pytest.raises(flags.IllegalFlagValueError, match="learning_rate=fast"):
        settings_of(learning_rate="fast")


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_training_script_has_the_flags_and_checks_them(script):
    given = {
        "run_pretraining": {"input_file": "x", "do_train": True},
        "run_classifier": {"task_name": "sst-2", "data_dir": "x", "do_train": True},
        "run_race": {"data_dir": "x"},
    }.get(script, {"do_train": True, "train_file": "x"})
    given |= {"output_dir": "x", "optimizer": "adam", "weight_decay_rate": 0.1}
    values = command_lines.parse(script, **given)
    main = functools.partial(importlib.import_module(f"albert.{script}").main, values)
    with pytest.raises(file_io.InputError, match="optimizer=adam .*`weight_decay_rate`"):
        main()


@pytest.mark.parametrize("name", optimizer_table.OPTIMIZERS)
def test_settings_of_the_table_are_those_of_the_class(name):
    possible = {
        "beta_1": 0.5, "beta_2": 0.5, "epsilon": 0.1, "weight_decay_rate": 0.1, "clip_norm": 2.0,
        "exclude_from_weight_decay": ["a"], "exclude_from_layer_adaptation": ["a"],
        "momentum": 0.5, "adamw_rate_ratio": 0.5, "bias_correction": True,
    }  # fmt: skip
    made = optimizers.optimizer_class(name)
    taken = set(optimizer_table.OPTIMIZERS[name].settings)
    made(0.1, **{setting: possible[setting] for setting in taken})
    for setting in set(possible) - taken:
        with pytest.raises(TypeError, match=setting):
            made(0.1, **{setting: possible[setting]})


# --- the rate by the batch ------------------------------------------------------------------------


@pytest.fixture
def told(monkeypatch):
    found = []
    for level in ("info", "warning"):
        monkeypatch.setattr(
            logging, level, lambda text, *rest, level=level: found.append((level, text % rest))
        )
    return found


@pytest.mark.parametrize(("batch", "rate"), [(4096, 0.00176), (64, 2.2e-4), (16384, 0.00352)])
def test_the_rate_of_lamb_follows_from_the_batch(told, batch, rate):
    settings = chosen(10, 2, learning_rate="auto", train_batch_size=batch)
    assert settings.learning_rate == pytest.approx(rate)
    line = f"--learning_rate=auto: {rate:g} = 0.00176 * sqrt(--train_batch_size={batch} / 4096)"
    assert told == [("info", line)]


@pytest.mark.parametrize(
    ("optimizer", "rate", "times"),
    [("lamb", 6.5e-4, None), ("lamb", 6.7e-4, "3.05"), ("adamw", 1, None)],
)
def test_a_rate_far_above_the_rule_gets_one_warning(told, optimizer, rate, times):
    settings = chosen(10, 2, optimizer=optimizer, learning_rate=rate, train_batch_size=64)
    assert settings.learning_rate == rate
    line = f"--learning_rate={rate} is {times} times as high as is usual for lamb: 0.00022 = "
    assert len(told) == (times is not None)
    assert not told or (told[0][0] == "warning" and told[0][1].startswith(line))
