"""What the record of a run says of its flags, and the files that they name."""

import os
import sys

from absl import flags

from albert import file_io, run_record

DEFAULT, COMMAND_LINE = "default", "command line"
CALLER = "caller"  # of `main` in a program


def recorder(values, script, source):
    """`run_record.Recorder` of a training script.

    Args:
      values: its flag values.
      script: its name.
      source: `pretrained.Source` of what it starts from.
    """
    return run_record.Recorder(
        script=script,
        command=["python", "-m", f"albert.{script}", *_arguments(values)],
        flags=describe(values),
        inputs=_inputs(values, source),
    )


def describe(values):
    """{name: {"value": …, "source": …}} of a script's own flags."""
    if values is flags.FLAGS:
        said = sources(values, _arguments(values))
    else:
        said = {name: CALLER for name in values if values[name].present}
    found = {}
    for module, defined in values.flags_by_module_dict().items():
        for flag in () if module.startswith("absl.") else defined:
            is_default = flag.using_default_value or flag.value == flag.default
            source = said.get(flag.name, DEFAULT if is_default else "program")
            found[flag.name] = {"value": flag.value, "source": source}
    return found


def _arguments(values):
    """The words after the name of the script."""
    if values is flags.FLAGS:
        return sys.argv[1:]
    return [values[name].serialize() for name in sorted(values) if values[name].present]


def sources(values, arguments):
    """{name of a flag: "command line" or "flag file …"} of the flags that arguments give.

    Args:
      values: flag values, which know the names.
      arguments: words of a command; of several for one flag the last counts, as it does for absl.
    """
    found, rest = {}, list(arguments)
    while rest:
        word = rest.pop(0)
        name, is_given, path = word.lstrip("-").partition("=")
        if word.startswith("-") and name == "flagfile":
            path = path if is_given else rest.pop(0)
            lines = values.read_flags_from_files([f"--flagfile={path}"])
            found |= {_name(values, line): f"flag file {path}" for line in lines}
        elif word.startswith("-"):
            found[_name(values, word)] = COMMAND_LINE
    return found


def _name(values, word):
    """Name of the flag that a word such as "--name=value" or "--noname" sets."""
    name = word.lstrip("-").partition("=")[0]
    return name if name in values else name.removeprefix("no")


def _inputs(values, source):
    """Files of the model that a run starts from, and of its teacher; see `run_record.Recorder`."""
    found = {"configuration": source.config_file, "vocabulary": _vocabulary(source)}
    found = {role: (path, [path]) for role, path in found.items() if path}
    if source.checkpoint:
        found["init_checkpoint"] = (source.checkpoint, _checkpoint_files(source.checkpoint))
    if "teacher" in values and values.teacher:
        from albert import checkpoints

        prefix = checkpoints.resolve(values.teacher)
        found["teacher"] = (prefix, _checkpoint_files(prefix))
    return found


def _vocabulary(source):
    return source.spm_model_file or source.vocab_file


def _checkpoint_files(prefix):
    """The files of a checkpoint of TensorFlow or, where there is one of the name, that file."""
    if file_io.exists(prefix):
        return [prefix]
    folder, name = os.path.split(prefix)
    names = [
        other
        for other in file_io.listdir(folder or ".")
        if other == f"{name}.index" or other.startswith(f"{name}.data-")
    ]
    return [os.path.join(folder, other) for other in names]
