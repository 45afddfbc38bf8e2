"""Command lines of scripts and of groups of settings, parsed in this process."""

import importlib

from absl import flags

from albert.cli import app, options
from albert.io import file_io


def define(command):
    """The flags of a script, a module or its name, or of a group of settings."""
    values = flags.FlagValues()
    if isinstance(command, type):
        options.define(command, values)
    else:
        _module(command).define_flags(values)
    return values


def parse(command, *arguments, **values):
    """The parsed flags of `define`, given by name and then as words."""
    parsed = define(command)
    parsed(["script", *(f"--{name}={value}" for name, value in values.items()), *arguments])
    return parsed


def read(command, *arguments, **values):
    """The settings of a script or a group."""
    kind = command if isinstance(command, type) else _module(command).Settings
    return options.read(kind, parse(command, *arguments, **values))


def run(command, *arguments, **values):
    """Runs a script's main in this process; messages name flags as `app.run` prints."""
    parsed = parse(command, *arguments, **values)
    try:
        return _module(command).main(parsed)
    except file_io.InputError as error:
        error.args = (app.with_flag_names(str(error), parsed),)
        raise


def _module(command):
    return importlib.import_module(f"albert.{command}") if isinstance(command, str) else command
