"""Flags that commands share, and checks of their values."""

import functools

from absl import flags

from albert.cli import model_settings, options
from albert.io import file_io


def definers(flag_values):
    """Short forms for a script's table of flags.

    Returns:
      Functions ``(name, default, help)`` that define a text, an integer, a number and a switch.
    """
    kinds = (flags.DEFINE_string, flags.DEFINE_integer, flags.DEFINE_float, flags.DEFINE_bool)
    return tuple(functools.partial(define, flag_values=flag_values) for define in kinds)


def define_model_flags(flag_values):
    """Model, weights and tokenizer."""
    options.define(model_settings.ModelToUse, flag_values)


def source(flag_values):
    """`sources.Source` of the model flags."""
    return options.read(model_settings.ModelToUse, flag_values).find()


def check_seq_length(flag_values, config):
    """See `model_settings.check_seq_length`."""
    model_settings.check_seq_length(flag_values.max_seq_length, config)


def require_positive(flag_values, *names):
    """Refuses counts below one before any work.

    Raises:
      file_io.InputError: names the flag and its value.
    """
    for name in names:
        if flag_values[name].value < 1:
            raise file_io.InputError(f"--{name}={flag_values[name].value} must be at least 1")


def require_given(flag_values, *names):
    """Refuses a run without a needed flag.

    Raises:
      file_io.InputError: names the flags.
    """
    missing = [f"--{name}" for name in names if not flag_values[name].value]
    if missing:
        raise file_io.InputError(f"{', '.join(missing)} must be given")


def refuse_given(flag_values, purpose, *names):
    """Refuses flags that do nothing in this run.

    Raises:
      file_io.InputError: names the flags and what they are for.
    """
    given = [f"--{name}" for name in names if flag_values[name].value]
    if given:
        raise file_io.InputError(f"{', '.join(given)}: only for {purpose}")
