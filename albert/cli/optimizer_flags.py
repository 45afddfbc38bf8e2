"""Flags that say how weights are updated, and the optimizer that is built from them."""

from absl import flags, logging

from albert.cli import common_flags
from albert.io import file_io
from albert.training import optimizer_table

AUTO = "auto"
# Times the rate of the square root rule from which a run is warned.
_FAR_ABOVE = 3


class _RateParser(flags.FloatParser):
    """Numbers, and the word that leaves the choice to the batch."""

    syntactic_help = f'a number or "{AUTO}"'

    def parse(self, argument):
        return AUTO if argument == AUTO else super().parse(argument)


def define_optimizer_flags(flag_values, optimizer, learning_rate, as_text=False):
    """How weights are updated. What is not given is up to the optimizer.

    Args:
      flag_values: flag values.
      optimizer: the default, a name in `optimizer_table.OPTIMIZERS`.
      learning_rate: the default.
      as_text: --optimizer is a plain text, which `check_optimizer` checks; in `run_classifier` it
        has always been one.
    """
    names = list(optimizer_table.OPTIMIZERS)
    text = f"How weights are updated: by {optimizer_table.listed()}."
    if as_text:
        flags.DEFINE_string("optimizer", optimizer, text, flag_values=flag_values)
    else:
        flags.DEFINE_enum("optimizer", optimizer, names, text, flag_values=flag_values)
    flags.DEFINE(
        _RateParser(),
        "learning_rate",
        learning_rate,
        f'Highest learning rate; for {_with_rate()} also "{AUTO}", by the batch size.',
        flag_values=flag_values,
        serializer=flags.ArgumentSerializer(),
    )
    _, _, number, _ = common_flags.definers(flag_values)
    number("beta_1", None, "Decay of the mean gradient; by default 0.9.")
    number("beta_2", None, "Decay of the mean squared gradient; by default 0.999.")
    number("epsilon", None, "Added to the root of that mean; by default 1e-6, for adam 1e-8.")
    number("weight_decay_rate", None, "Share of a weight added to its update; by default 0.01.")
    number(
        "clip_norm", None, "Largest global norm of the gradients; by default 1. 0 does not clip."
    )
    for name, text in (
        (
            "exclude_from_weight_decay",
            "Variables that do not decay: regular expressions, comma-separated, searched for in "
            "their names; by default those of normalisation and biases.",
        ),
        (
            "exclude_from_layer_adaptation",
            "Variables without a trust ratio (lamb), in the same way; by default those that do not "
            "decay.",
        ),
    ):
        flags.DEFINE_list(name, None, text, flag_values=flag_values)


def _with_rate():
    """The optimizers whose rate follows from the batch."""
    rows = optimizer_table.OPTIMIZERS.items()
    return optimizer_table.listed([name for name, row in rows if row.rate])


def _given(values):
    """{name: value} of what was given for the optimizer's constructor."""
    names = ("beta_1", "beta_2", "epsilon", "weight_decay_rate", "clip_norm")
    names += ("exclude_from_weight_decay", "exclude_from_layer_adaptation")
    return {name: values[name].value for name in names if values[name].value is not None}


def check_optimizer(values):
    """Refuses before any work what the optimizer does not take.

    Raises:
      file_io.InputError: names the flag, its value and what is possible.
    """
    optimizer_table.check(values.optimizer, _given(values))
    if values.learning_rate == AUTO and not optimizer_table.OPTIMIZERS[values.optimizer].rate:
        raise file_io.InputError(
            f"--learning_rate={AUTO} is for --optimizer={_with_rate()}: no rule is known for "
            f"{values.optimizer}"
        )


def make_optimizer(values, num_train_steps, num_warmup_steps, **schedule):
    """The optimizer of the flags.

    Args:
      values: flag values.
      num_train_steps, num_warmup_steps, **schedule: see `optimizers.create_optimizer`.
    """
    from albert.training import optimizers

    return optimizers.create_optimizer(
        _learning_rate(values),
        num_train_steps,
        num_warmup_steps,
        optimizer=values.optimizer,
        **_given(values),
        **schedule,
    )


def _learning_rate(values):
    """The highest rate; says in the log which one was chosen, or that it is far above the rule."""
    name, given = values.optimizer, values.learning_rate
    if not optimizer_table.OPTIMIZERS[name].rate:
        return given
    by_rule = optimizer_table.scaled_rate(name, values.train_batch_size)
    rule = "%g * sqrt(--train_batch_size=%d / %d)"
    rate, batch = optimizer_table.OPTIMIZERS[name].rate
    rule %= (rate, values.train_batch_size, batch)
    if given == AUTO:
        logging.info("--learning_rate=%s: %.4g = %s", AUTO, by_rule, rule)
        return by_rule
    if given > _FAR_ABOVE * by_rule:
        logging.warning(
            "--learning_rate=%g is %.3g times as high as is usual for %s: %.4g = %s",
            given,
            given / by_rule,
            name,
            by_rule,
            rule,
        )
    return given
