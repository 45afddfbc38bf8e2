"""The flags of a run and the files they name, for the run record."""

import dataclasses
import importlib
import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags, logging

from albert.cli import packaged_files
from albert.io import file_io
from albert.training import run_record

DEFAULT, COMMAND_LINE = "default", "command line"
CALLER, PROGRAM = "caller", "program"  # flags set by the caller of `main`, and flags changed later


@dataclasses.dataclass(frozen=True)
class Command:
    """A training command and its flags.

    Attributes:
      script: its name.
      words: the words after the name.
      arguments: the flags that were given, such as "--seed=1".
      flags: {name: {"value": …, "source": …}} of its flags.
    """

    script: str
    words: Sequence[str]
    arguments: Sequence[str]
    flags: Mapping[str, Mapping[str, Any]]

    @classmethod
    def of(cls, values: flags.FlagValues, script: str) -> "Command":
        """Returns the command of parsed flags."""
        given = [values[name].serialize() for name in values if values[name].present]
        return cls(script, _arguments(values), list(filter(None, given)), describe(values, script))

    def with_value(self, name: str, value: Any) -> "Command":
        """Returns the command with a flag value that the program has determined."""
        if value == self.flags[name]["value"]:
            return self
        changed = {**self.flags, name: {"value": value, "source": PROGRAM}}
        return dataclasses.replace(self, flags=changed)

    def recorder(self, source: Any, teacher: str | None = None) -> run_record.Recorder:
        """Returns the recorder of the run.

        Args:
          source: `sources.Source` of the initial model.
          teacher: checkpoint or folder of its teacher, if it has one.
        """
        return run_record.Recorder(
            script=self.script,
            command=["python", "-m", f"albert.{self.script}", *self.words],
            flags=self.flags,
            inputs=_inputs(source, teacher),
        )


def describe(values: flags.FlagValues, script: str) -> dict[str, dict]:
    """Returns {name: {"value": …, "source": …}} of a script's own flags."""
    own = _defined(script)  # libraries also define flags
    if values is flags.FLAGS:
        said = sources(values, _arguments(values))
    else:
        said = {name: CALLER for name in values if values[name].present}
    found = {}
    for name in own:
        flag = values[name]
        is_default = flag.using_default_value or flag.value == flag.default
        source = said.get(name, DEFAULT if is_default else PROGRAM)
        found[name] = {"value": flag.value, "source": source}
    return found


def _defined(script):
    """Returns the flag values of a script, all with their defaults."""
    defined = flags.FlagValues()
    importlib.import_module(f"albert.{script}").define_flags(defined)
    return defined


def _arguments(values):
    """Returns the words after the name of the script."""
    if values is flags.FLAGS:
        return sys.argv[1:]
    return [values[name].serialize() for name in sorted(values) if values[name].present]


def sources(values: flags.FlagValues, arguments: Sequence[str]) -> dict[str, str]:
    """Returns {flag name: "command line" or "flag file …"} of the flags in `arguments`.

    Args:
      values: flag values, which know the names.
      arguments: words of a command; if a flag is repeated the last one counts, as in absl.
    """
    found, rest = {}, list(arguments)
    while rest:
        word = rest.pop(0)
        name, is_given, path = word.lstrip("-").partition("=")
        if word.startswith("-") and name == "flagfile":
            path = path if is_given else rest.pop(0)
            lines = packaged_files.expand([f"--flagfile={path}"])
            found |= {_name(values, line): f"flag file {path}" for line in lines}
        elif word.startswith("-"):
            found[_name(values, word)] = COMMAND_LINE
    return found


def _name(values, word):
    """Returns the name of the flag that a word such as "--name=value" or "--noname" sets."""
    name = word.lstrip("-").partition("=")[0]
    return name if name in values else name.removeprefix("no")


def _inputs(source, teacher):
    """Returns the files of the initial model and of the teacher; see `run_record.Recorder`."""
    found = {"configuration": source.config_file, "vocabulary": _vocabulary(source)}
    found = {role: (path, [path]) for role, path in found.items() if path}
    if source.checkpoint:
        found["init_checkpoint"] = (source.checkpoint, _checkpoint_files(source.checkpoint))
    if teacher:
        from albert.model import checkpoints

        prefix = checkpoints.resolve(teacher)
        found["teacher"] = (prefix, _checkpoint_files(prefix))
    return found


def _vocabulary(source):
    return source.spm_model_file or source.vocab_file


def _checkpoint_files(prefix):
    """Returns the files of a TensorFlow checkpoint, or the file with exactly this name."""
    if file_io.exists(prefix):
        return [prefix]
    folder, name = os.path.split(prefix)
    names = [
        other
        for other in file_io.listdir(folder or ".")
        if other == f"{name}.index" or other.startswith(f"{name}.data-")
    ]
    return [os.path.join(folder, other) for other in names]


def changed_defaults(record: dict) -> dict[str, Any]:
    """Returns {name: value} of flags at a default in the record that has changed since.

    Args:
      record: dict of ``run.json``.

    Raises:
      file_io.InputError: the script or one of the flags no longer exists.
    """
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
