"""Flags that name files and folders: `~` is expanded, and no command replaces what it reads."""

import dataclasses
import os
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from absl import flags

from albert.io import file_io

_STANDARD_INPUT = "/dev/stdin"


@dataclasses.dataclass(frozen=True)
class Path:
    """The files that a flag stands for."""

    is_output: bool = False
    # Globs that follow the value: the files that the command reads or writes; or a function that
    # returns them for the settings of the command.
    files: tuple[str, ...] | Callable[[Any], tuple[str, ...]] = ("",)
    has_globs: bool = False  # the value is a list with commas whose parts may be globs
    or_stdin: bool = False  # without the flag the command reads standard input
    has_name: bool = False  # the path follows a name and a colon

    def parser(self, is_list: bool) -> flags.ArgumentParser:
        """Returns the parser of the flag; `is_list`: its value is several paths, a tuple."""
        return _ListParser() if is_list else _PathParser(self)

    def existing(self, value: str | tuple[str, ...] | None, settings: Any) -> Iterator[str]:
        """Yields the existing files that a value stands for; remote ones need not exist.

        The settings are those of the command, for `files`.
        """
        endings = self.files(settings) if callable(self.files) else self.files
        if not value:
            yield from (_STANDARD_INPUT,) if self.or_stdin else ()
            return
        parts = [value] if isinstance(value, str) else value
        if self.has_globs and isinstance(value, str):
            parts = [part.strip() for part in value.split(",") if part.strip()]
        for part in parts:
            for ending in endings:
                if file_io.is_remote(part) or file_io.exists(part + ending):
                    yield part + ending
                    continue
                start = part if self.has_globs else file_io.escape_glob(part)
                yield from file_io.glob(start + ending)


# Files of a model, next to which results may lie.
_OF_MODEL = (
    *("/*ckpt*", "/*.safetensors*", "/*.bin", "/*.onnx", "/*.tflite", "/*.pb"),
    *("/model.json", "/run.json", "/pretraining.json", "/serving.json", "/*config.json"),
    *("/labels.json", "/text_rules.json", "/tokenizer*.json"),
    *("/*.model", "/*.vocab", "/vocab*.txt"),
    *("/metrics.jsonl", "/eval_results.txt"),
)
# Files that training writes in its output folder, in which its initial model may also lie.
_RESULTS = (
    *("/predictions.*", "/nbest_predictions.json", "/null_odds.json", "/predict_results.txt"),
    *("/test_results.tsv", "/submit_results.tsv", "/examples.jsonl"),
)
_OF_STUDIES = ("/sweep.json", "/sweep_results.*", "/seeds.json")

INPUT = Path()
INPUT_OR_STDIN = Path(or_stdin=True)
INPUTS = Path(has_globs=True)
MODEL = Path(files=("", ".index", ".data-*", *_OF_MODEL))
RUNS = Path(files=("", *_OF_MODEL, *_RESULTS, *_OF_STUDIES), has_globs=True)
FOLDER = Path(files=())  # read or written, with its own rules
OUTPUT = Path(is_output=True)
RUN_FOLDER = Path(is_output=True, files=_RESULTS)


def outputs(*files: str) -> Path:
    """Returns the path of an output whose files are its value with these endings, also globs."""
    return Path(is_output=True, files=files)


class _PathParser(flags.ArgumentParser):
    """Parser of a path, or of a list with commas."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def parse(self, argument: str) -> str:
        """Returns the value of the flag with `~` in its paths expanded."""
        name, colon, rest = argument.partition(":") if self._path.has_name else ("", "", argument)
        if not self._path.has_globs:
            return name + colon + os.path.expanduser(rest)
        return ",".join(os.path.expanduser(part.strip()) for part in rest.split(","))


class _ListParser(flags.ListParser):
    """Parser of a list of paths."""

    def parse(self, argument: str | list[str]) -> list[str]:
        """Returns the paths, separated by commas in the value of the flag, with `~` expanded."""
        return [os.path.expanduser(part) for part in super().parse(argument)]


def check_outputs(values: Mapping[str, tuple[Path, Any]], settings: Any = None) -> None:
    """Rejects an output that is a file which the same command reads, before any work.

    Args:
      values: {name of a flag: (its files, its value)}.
      settings: settings of the command, on which its files may depend.
    """
    written: dict[Hashable, tuple[str, str]] = {}
    for name, (path, value) in values.items():
        for file in path.existing(value, settings) if path.is_output and value else ():
            if identity := file_io.identity(file):
                written[identity] = name, file
    if not written:
        return
    for name, (path, value) in values.items():
        for file in () if path.is_output else path.existing(value, settings):
            if output := written.get(file_io.identity(file)):
                _refuse(*output, f"--{name}={_text(value)}" if value else "standard input", file)


def _text(value: str | Sequence[str]) -> str:
    return value if isinstance(value, str) else ",".join(value)


def _refuse(output_flag: str, output: str, input_flag: str, input_file: str) -> NoReturn:
    """Raises the error of an output that is an input.

    Args:
      output_flag: its name, without dashes.
      output, input_file: paths of the same file.
      input_flag: flag and value that name the input, or "standard input".
    """
    same = "" if input_file in (output, _STANDARD_INPUT) else f", the same file as {input_file}"
    raise file_io.InputError(
        f"--{output_flag} would replace {output}{same}, which this command reads ({input_flag}): "
        f"give another --{output_flag}"
    )
