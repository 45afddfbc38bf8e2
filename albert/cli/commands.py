"""The program `albert`: `albert run_classifier …` is `python -m albert.run_classifier …`."""

import ast
import difflib
import pkgutil
import runpy
import sys

import albert
from albert.io import signals

_ENDING = "app.run(main, define_flags)\n"
_USAGE = """\
usage: albert COMMAND [--flag=value …]
       albert COMMAND --help
       albert --version

Commands:"""


VERSION_FLAG = "--version"


def version() -> str:
    """Returns the name and the version of the package."""
    return f"albert {albert.__version__}"


def summaries() -> dict[str, str]:
    """Returns {name: first line of its description} of all commands, without importing them."""
    first_lines = {}
    for module in pkgutil.iter_modules(albert.__path__):
        if module.ispkg:
            continue
        source = pkgutil.get_data("albert", f"{module.name}.py") or b""
        if source.decode().endswith(_ENDING):
            description = ast.get_docstring(ast.parse(source)) or ""
            first_lines[module.name] = description.partition("\n")[0]
    return first_lines


@signals.end_with_reader()
def main() -> int:
    """Runs the command that the first argument names; returns 2 if there is no such command."""
    name, *arguments = sys.argv[1:] or ["--help"]
    commands = summaries()
    if name in commands:
        # The command's own module becomes the main one; processes that it starts find it.
        sys.argv = [name, *arguments]
        runpy.run_module(f"albert.{name}", run_name="__main__", alter_sys=True)
        return 0
    if name in ("--help", "-h", "help"):
        print(_USAGE, *(f"  {name:24}{text}" for name, text in commands.items()), sep="\n")
        return 0
    if name == VERSION_FLAG:
        print(version())
        return 0
    close = difflib.get_close_matches(name, commands, 1)
    hint = f"did you mean {close[0]}?" if close else "albert --help lists the commands"
    print(f"error: there is no command {name}; {hint}", file=sys.stderr)
    return 2
