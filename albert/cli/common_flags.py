"""Short forms for tables of flags, checks of their values, and the names of precisions."""

import functools

from absl import flags

from albert.io import file_io

_MIXED = "mixed_"


def definers(flag_values):
    """Short forms for a script's table of flags.

    Returns:
      Functions ``(name, default, help)`` that define a text, an integer, a number and a switch.
    """
    kinds = (flags.DEFINE_string, flags.DEFINE_integer, flags.DEFINE_float, flags.DEFINE_bool)
    return tuple(functools.partial(define, flag_values=flag_values) for define in kinds)


class PrecisionParser(flags.EnumParser):
    """Names of precisions; bfloat16 and mixed_bfloat16 are the same, and so for float16.

    Args:
      names: as the script has them; `parse` gives one of these.
    """

    def __init__(self, names):
        self._names = {PrecisionParser._other(name): name for name in names if "float16" in name}
        super().__init__([*names, *self._names])

    @staticmethod
    def _other(name):
        return name.removeprefix(_MIXED) if name.startswith(_MIXED) else _MIXED + name

    def parse(self, argument):
        name = super().parse(argument)
        return self._names.get(name, name)


def define_precision(flag_values, default, names, text):
    """--precision of a script.

    Args:
      flag_values: flag values.
      default: one of the names, or None.
      names: precisions; each of 16 bits is taken by its other name, too, see `PrecisionParser`.
      text: its help.
    """
    parser = PrecisionParser(names)
    flag = flags.EnumFlag("precision", default, text, parser.enum_values)
    flag.parser = parser
    flags.DEFINE_flag(flag, flag_values)


def require_positive(flag_values, *names):
    """Refuses counts below one before any work.

    Raises:
      file_io.InputError: names the flag and its value.
    """
    for name in names:
        if flag_values[name].value < 1:
            raise file_io.InputError(f"--{name}={flag_values[name].value} must be at least 1")


def refuse_given(flag_values, purpose, *names):
    """Refuses flags that do nothing in this run.

    Raises:
      file_io.InputError: names the flags and what they are for.
    """
    given = [f"--{name}" for name in names if flag_values[name].value]
    if given:
        raise file_io.InputError(f"{', '.join(given)}: only for {purpose}")
