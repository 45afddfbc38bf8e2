"""The flags of commands: recorded for a run, compared with later defaults, checked for a trial."""

import dataclasses
import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import flags, logging
from absl.flags import FlagValues

from albert.cli import packaged_files
from albert.experiments import seed_runs, trial_processes
from albert.io import file_io
from albert.model import sources
from albert.training import run_facts, run_record, run_session

DEFAULT, COMMAND_LINE = "default", "command line"
CALLER, PROGRAM = "caller", "program"  # flags set by the caller of `main`, and flags changed later


@dataclasses.dataclass(frozen=True)
class CommandLine:
    """A training command and its flags."""

    script: str  # name of its module in the package
    words: Sequence[str]  # of the command line, after the script
    arguments: Sequence[str]  # the flags that were given, such as "--seed=1"
    flags: Mapping[str, Mapping[str, Any]]  # see `describe`

    @classmethod
    def from_values(cls, values: FlagValues, script: str) -> "CommandLine":
        """Returns the command of parsed flags; `script`: name of its module in the package."""
        arguments = [values[name].serialize() for name in values if values[name].present]
        return cls(
            script, _arguments(values), list(filter(None, arguments)), describe(values, script)
        )

    def with_value(self, name: str, value: Any) -> "CommandLine":
        """Returns the command with the value of flag `name` that the program has determined."""
        if value == self.flags[name]["value"]:
            return self
        changed = {**self.flags, name: {"value": value, "source": PROGRAM}}
        return dataclasses.replace(self, flags=changed)

    def recorder(self, source: sources.Source, teacher: str | None = None) -> run_session.Recorder:
        """Returns the recorder of the run from a model; `teacher`: its checkpoint or folder."""
        return run_session.Recorder(
            script=self.script,
            command=["python", "-m", f"albert.{self.script}", *self.words],
            flags=dict(self.flags),
            inputs=_inputs(source, teacher),
        )


def describe(values: FlagValues, script: str) -> dict[str, dict]:
    """Returns {name: {"value": …, "source": …}} of a script's own flags.

    A source is `DEFAULT`, `COMMAND_LINE`, "flag file <path>", `CALLER` or `PROGRAM`.
    """
    own = _defined(script)  # Libraries also define flags.
    if values is flags.FLAGS:
        source_of = find_sources(values, _arguments(values))
    else:
        source_of = {name: CALLER for name in values if values[name].present}
    description = {}
    for name in own:
        flag = values[name]
        is_default = flag.using_default_value or flag.value == flag.default
        source = source_of.get(name, DEFAULT if is_default else PROGRAM)
        description[name] = {"value": flag.value, "source": source}
    return description


def _defined(script: str) -> FlagValues:
    """Returns the flags of a script, a module of the package, all with their defaults."""
    defined = FlagValues()
    importlib.import_module(f"albert.{script}").define_flags(defined)
    return defined


def _arguments(values: FlagValues) -> list[str]:
    """Returns the words after the name of the script, such as "--seed=1"."""
    if values is flags.FLAGS:
        return sys.argv[1:]
    return [values[name].serialize() for name in sorted(values) if values[name].present]


def find_sources(values: FlagValues, arguments: Sequence[str]) -> dict[str, str]:
    """Returns {flag name: "command line" or "flag file …"} of the flags among words of a command.

    If a flag is repeated, the last one counts, as in absl.
    """
    source_of: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        name, is_given, path = word.lstrip("-").partition("=")
        if word.startswith("-") and name == "flagfile":
            path = path if is_given else rest.pop(0)
            lines = packaged_files.expand([f"--flagfile={path}"])
            source_of |= {_name(values, line): f"flag file {path}" for line in lines}
        elif word.startswith("-"):
            source_of[_name(values, word)] = COMMAND_LINE
    return source_of


def _name(values: FlagValues, word: str) -> str:
    """Returns the name of the flag that a word such as "--name=value" or "--noname" sets."""
    name = word.lstrip("-").partition("=")[0]
    return name if name in values else name.removeprefix("no")


def _inputs(source: sources.Source, teacher: str | None) -> dict[str, tuple[str, list[str]]]:
    """Returns {role: (path, its files)} of the initial model and of the teacher, if any.

    `teacher`: its checkpoint or folder.
    """
    paths = {"configuration": source.config_file, "vocabulary": source.vocabulary}
    files = {role: (path, [path]) for role, path in paths.items() if path}
    weights = {"init_checkpoint": source.checkpoint}
    if teacher:
        from albert.model import checkpoints

        weights["teacher"] = checkpoints.resolve(teacher)
    return files | {
        role: (prefix, run_facts.checkpoint_files(prefix))
        for role, prefix in weights.items()
        if prefix
    }


def changed_defaults(record: dict) -> dict[str, Any]:
    """Returns {flag: its default in the record, a ``run.json``} of defaults that have changed."""
    try:
        if not re.fullmatch(r"run_[a-z0-9_]+", record["script"]):
            raise ImportError("expected the name of a training script")
        today = _defined(record["script"])
    except (ImportError, AttributeError) as error:
        raise file_io.InputError(f"there is no script {record['script']}: {error}") from error
    gone = [name for name in record["flags"] if name not in today]
    if gone:
        raise file_io.InputError(f"{record['script']} no longer has the flags {gone}")
    changed = {}
    for name, flag in record["flags"].items():
        if flag["source"] == DEFAULT and flag["value"] != run_record.plain(today[name].value):
            logging.info("The default of --%s was %s", name, flag["value"])
            changed[name] = flag["value"]
    return changed


def _define_flags_of(script: str) -> Callable[[FlagValues], None]:
    """Returns the function that defines the flags of a script, a module of the package."""
    module = trial_processes.module_of(script)
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        spec = None
    define = spec and getattr(importlib.import_module(module), "define_flags", None)
    if not define:
        raise file_io.InputError(
            f"script={script!r}: there is no script {module}; give the name of one of this "
            "package, such as run_classifier"
        )
    return define


def read_trial_flags(script: str, arguments: list[str]) -> dict[str, str]:
    """Returns {flag: value as text} of the arguments of a script.

    Args:
      script: name of a script of this package, or of a dotted module that also has `define_flags`.
      arguments: those of its command line, without ``output_dir``.
    """
    values = _parse_trial(script, arguments)
    names = (name for name in values if values[name].present)
    return {
        name: str(values[name].value) for name in names if name not in ("output_dir", "flagfile")
    }


def changed_flags(
    script: str, arguments: Sequence[str], recorded: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """Returns the flags with which a trial cannot resume a run, see `seed_runs.differences`.

    Args:
      script, arguments: see `read_trial_flags`.
      recorded: flags of the run's record. What its program has determined only counts if the
        arguments set it.
    """
    values = _parse_trial(script, arguments)
    compared = {
        name: run_record.plain(values[name].value)
        for name, flag in recorded.items()
        if name in values and name != "output_dir"
        and (values[name].present or flag["source"] != PROGRAM)
    }  # fmt: skip
    return seed_runs.differences(recorded, compared)


def _parse_trial(script: str, arguments: Sequence[str]) -> FlagValues:
    """Returns the flags of a script after parsing arguments, see `read_trial_flags`."""
    values = FlagValues()
    _define_flags_of(script)(values)
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
    return values
