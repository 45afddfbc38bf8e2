"""Flags that say who works: this machine, or Apache Beam, also on many."""

import shlex

from absl import flags

from albert.cli import common_flags
from albert.io import file_io


def define_flags(flag_values, runner_help):
    """`--runner` and `--beam_args`."""
    flags.DEFINE_enum("runner", "local", ["local", "beam"], runner_help, flag_values=flag_values)
    text, *_ = common_flags.definers(flag_values)
    text(
        "beam_args",
        "",
        "Options of Beam's pipeline, as on a command line; by default those of its DirectRunner "
        "with --num_workers processes.",
    )


def check(values):
    """Refuses options of Beam for another runner.

    Raises:
      file_io.InputError: there are some.
    """
    if values.beam_args and values.runner != "beam":
        raise file_io.InputError("--beam_args is for --runner=beam")


def beam_arguments(values):
    """List of Beam's options."""
    return shlex.split(values.beam_args)
