"""The flags of another script, checked before it is started."""

import importlib
import importlib.util
from collections.abc import Callable

from absl import flags

from albert.cli import packaged_files
from albert.experiments import trial_processes
from albert.io import file_io


def _definer(script: str) -> Callable[[flags.FlagValues], None]:
    module = trial_processes.module_of(script)
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        found = None
    define = found and getattr(importlib.import_module(module), "define_flags", None)
    if not define:
        raise file_io.InputError(
            f"script={script!r}: there is no script {module}; give the name of one of this "
            "package, such as run_classifier"
        )
    return define


def check(script: str, arguments: list[str]) -> dict[str, str]:
    """Returns the flags that arguments give to a script.

    Args:
      script: name of a script of this package, or of a dotted module that defines flags alike.
      arguments: command line arguments without ``output_dir``.

    Returns:
      {flag: value as text}.

    Raises:
      file_io.InputError: the script does not exist, has no output_dir, or rejects one of the
        arguments, which the message names.
    """
    values = flags.FlagValues()
    _definer(script)(values)
    if "output_dir" not in values:
        raise file_io.InputError(f"script={script!r} has no output folder, as trials need one")
    try:
        rest = values([script, "--output_dir=trial", *packaged_files.expand(arguments)])[1:]
    except (flags.Error, OSError) as error:  # OSError: a flag file that cannot be read
        raise file_io.InputError(f"{script}: {error}") from error
    if rest:
        raise file_io.InputError(f"{script}: not a flag: {rest}; flags look like --name=value")
    if values.output_dir != "trial":
        raise file_io.InputError("output_dir of a trial is a folder in that of the sweep; drop it")
    given = (name for name in values if values[name].present)
    return {
        name: str(values[name].value) for name in given if name not in ("output_dir", "flagfile")
    }
