"""Helpers that define flags and check their values, and the names of precisions."""

import functools
from collections.abc import Callable, Iterable
from typing import Any

from absl import flags

from albert.io import file_io

_MIXED = "mixed_"


def definers(flag_values: flags.FlagValues) -> tuple[Callable[..., Any], ...]:
    """Returns short functions that define a script's flags.

    Returns:
      Functions ``(name, default, help)`` that define a string, an integer, a float and a boolean.
    """
    kinds = (flags.DEFINE_string, flags.DEFINE_integer, flags.DEFINE_float, flags.DEFINE_bool)
    return tuple(functools.partial(define, flag_values=flag_values) for define in kinds)


class PrecisionParser(flags.EnumParser):
    """Parser of precision names; bfloat16 means mixed_bfloat16, and float16 mixed_float16.

    Args:
      names: names that the script uses; `parse` returns one of them.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = {PrecisionParser._other(name): name for name in names if "float16" in name}
        super().__init__([*names, *self._names])

    @staticmethod
    def _other(name):
        return name.removeprefix(_MIXED) if name.startswith(_MIXED) else _MIXED + name

    def parse(self, argument: str) -> str:
        name = super().parse(argument)
        return self._names.get(name, name)


def define_precision(
    flag_values: flags.FlagValues, default: str | None, names: Iterable[str], text: str
) -> None:
    """Defines --precision of a script.

    Args:
      flag_values: flag values.
      default: one of the names, or None.
      names: precisions; 16-bit ones are also accepted by their other name, see `PrecisionParser`.
      text: help text.
    """
    parser = PrecisionParser(names)
    flag = flags.EnumFlag("precision", default, text, parser.enum_values)
    flag.parser = parser
    flags.DEFINE_flag(flag, flag_values)


def require_positive(flag_values: flags.FlagValues, *names: str) -> None:
    """Rejects counts below one, before any work.

    Raises:
      file_io.InputError: a count is too small; the message names the flag and its value.
    """
    for name in names:
        if flag_values[name].value < 1:
            raise file_io.InputError(f"--{name}={flag_values[name].value} must be at least 1")


def refuse_given(flag_values: flags.FlagValues, purpose: str, *names: str) -> None:
    """Rejects flags that have no effect in this run.

    Raises:
      file_io.InputError: such flags were given; the message names them and their purpose.
    """
    given = [f"--{name}" for name in names if flag_values[name].value]
    if given:
        raise file_io.InputError(f"{', '.join(given)}: only for {purpose}")
