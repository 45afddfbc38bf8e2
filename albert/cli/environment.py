"""Values of flags from environment variables, for commands that are started by other programs.

`ALBERT_PORT=80` means `--port=80` if the command line has no `--port`.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping

from absl import flags

from albert.io import file_io

PREFIX = "ALBERT_"
_LIKENESS = 0.7  # of a misspelled name and the right one, from 0 to 1


def variable_of(name: str) -> str:
    """Returns the environment variable that sets the flag `name`."""
    return PREFIX + name.upper()


def set_defaults(
    flag_values: flags.FlagValues, names: Iterable[str], variables: Mapping[str, str]
) -> None:
    """Replaces the defaults of flags with values of environment variables.

    A flag that may be given several times takes values separated by commas. Empty values count as
    missing.

    Args:
      flag_values: the flags, not parsed yet.
      names: names of the flags that variables may set.
      variables: {name: text} of the environment.
    """
    for name in names:
        text = variables.get(variable_of(name))
        if not text:
            continue
        is_repeated = isinstance(flag_values[name], flags.MultiFlag)
        try:
            flag_values.set_default(name, text.split(",") if is_repeated else text)
        except flags.Error as error:
            reason = str(error).removeprefix("flag ").replace("\n", " ")
            linked = "; Kubernetes sets such values for a Service named albert (enableServiceLinks)"
            raise file_io.InputError(
                f"{variable_of(name)}={text} in the environment: {reason}"
                f"{linked if text.startswith('tcp://') else ''}"
            ) from error


def misspelled(names: Iterable[str], variables: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yields (variable, the one probably meant) for variables that resemble those of flags."""
    upper_names = {name.upper() for name in names}
    for variable in sorted(variables):
        name = variable.removeprefix(PREFIX)
        if name == variable or name in upper_names:
            continue
        if close := difflib.get_close_matches(name, upper_names, 1, _LIKENESS):
            yield variable, PREFIX + close[0]
