"""Prints `--help`: what a command does, an example, and its flags in sections."""

import sys
from typing import Any

from absl import app, flags

from albert.cli import options


def text(description: str, flag_values: flags.FlagValues) -> str:
    """Returns the help of a command's flags after the `description`: its module's docstring."""
    modules = flag_values.flags_by_module_dict()
    first = [section for section in options.SECTIONS if section in modules]
    others = [name for name in modules if name not in first and _is_section(name)]
    # absl starts each with an empty line.
    return "\n".join([description.strip(), *map(flag_values.module_help, [*first, *others])])


def _is_section(name: str) -> bool:
    """Returns whether a name that absl lists as a module is one of our sections."""
    return name[:1].isupper()


class Help(app.HelpFlag):
    """The flag `--help`, which replaces absl's."""

    def __init__(self) -> None:
        super().__init__()
        self.allow_override = True

    def parse(self, arg: Any) -> None:
        """Prints the help and exits if the value of --help, a text or bool, is true."""
        if self._parse(arg):
            print(text(sys.modules["__main__"].__doc__ or "", flags.FLAGS))
            print("\n--helpfull also shows the flags of libraries.")
            sys.exit(1)


def define() -> None:
    """Defines `--help` on the flags of the process."""
    app.define_help_flags()
    flags.DEFINE_flag(Help(), module_name="absl.app")
