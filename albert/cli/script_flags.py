"""The flags of another script, checked before it is started."""

import importlib
import importlib.util

from absl import flags

from albert.experiments import sweep_plan, trial_processes
from albert.io import file_io


def _definer(script):
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


def check(script, arguments):
    """The flags that arguments give to a script.

    Args:
      script: name of a script of this package, or a module with dots that defines flags as they do.
      arguments: list of text, ``output_dir`` excepted.

    Returns:
      {flag: value as text}.

    Raises:
      file_io.InputError: there is no such script, it takes no output_dir, or it does not take one
        of the arguments; names it.
    """
    values = flags.FlagValues()
    _definer(script)(values)
    if "output_dir" not in values:
        raise file_io.InputError(f"script={script!r} has no output folder, as trials need one")
    try:
        rest = values([script, "--output_dir=trial", *arguments])[1:]
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


def check_trials(plan):
    """Checks the arguments of all trials of a `sweep_plan.Plan` before the first one.

    Returns:
      {flag: value as text} of the flags that all trials have.

    Raises:
      file_io.InputError: as `check`; for parameters names the one and its value.
    """
    _check_given_once(plan)
    seeds = [sweep_plan.argument("seed", seed) for seed in plan.seeds]
    for own in plan.trials.values():
        check(plan.script, [*plan.arguments, *own, *seeds])
    for point in _points_that_name_all(plan):
        own = [sweep_plan.argument(name, value) for name, value in point.items()]
        check(plan.script, [*plan.arguments, *own, *seeds])
    return _fixed(plan)


def _check_given_once(plan):
    """Refuses a flag of all trials that a parameter would hide; one in a flag file may stay."""
    own = dict.fromkeys(plan.parameters, "parameter")
    if plan.seeds:
        own["seed"] = "seeds: the flag"
    for argument in plan.arguments:
        name = argument.lstrip("-").partition("=")[0]
        name = name if name in own else name.removeprefix("no")
        if argument.startswith("-") and name in own:
            raise file_io.InputError(
                f"{own[name]} {name!r} also stands among the flags of all trials: {argument!r}; "
                "leave it out of --script_flags or of the specification's flags"
            )


def _fixed(plan):
    """What all trials have, though a script may take it only with the parameters beside it."""
    first = next(_points_that_name_all(plan), {})
    own = [sweep_plan.argument(name, value) for name, value in first.items()]
    found = check(plan.script, [*plan.arguments, *own]) if not plan.trials else {}
    return {name: value for name, value in found.items() if name not in plan.parameters}


def _points_that_name_all(plan):
    """Yields points in which each value of each parameter is in one, and both ends of a range."""
    ends = {
        name: (values.low, values.high) if isinstance(values, sweep_plan.Range) else values
        for name, values in plan.parameters.items()
    }
    for place in range(max(map(len, ends.values()), default=0)):
        yield {name: values[min(place, len(values) - 1)] for name, values in ends.items()}
