"""Finds the sizes and published settings that come with the package by name, from any folder.

`configs/albert_base_v2.json` and `--flagfile=recipes/glue_RTE.flags` mean the files of the package,
unless the current folder has files of these names.
"""

import itertools
import os
import re
from collections.abc import Iterator, Sequence

from albert.io import file_io

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_NAME = re.compile(r"(configs|recipes)/[\w-][\w.-]*")
_MAX_FLAG_FILES = 100  # in one command; files that include others twice would never end
_FLAG_FILE = re.compile(r"--?flagfile=(.*)", re.S)


def find(name: str) -> str:
    """Returns the path of a file of the package, such as "configs/albert_base_v2.json".

    Returns other names as they are, and those of files in the current folder.
    """
    if not _NAME.fullmatch(name) or file_io.exists(name):
        return name
    path = os.path.join(_PACKAGE, name)
    return path if file_io.exists(path) else name


def expand(arguments: Sequence[str]) -> list[str]:
    """Replaces flag files by their flags, as absl does, and names of the package's files by paths.

    Missing flag files and one that includes itself remain: absl reports them.
    """
    return _expand(list(arguments), (), itertools.count(1))


def _expand(words: list[str], above: tuple[str, ...], numbers: Iterator[int]) -> list[str]:
    """Does the work of `expand` for words in flag files.

    Args:
      above: paths of the flag files that include these words.
      numbers: counts the flag files read so far.
    """
    arguments: list[str] = []
    while words:
        word = words.pop(0)
        if word == "--":
            return [*arguments, word, *words]
        if word in ("--flagfile", "-flagfile") and words:
            word = f"--flagfile={words.pop(0)}"
        if match := _FLAG_FILE.fullmatch(word):
            arguments += _flags_of(match[1].strip(), above, numbers) or [word]
        else:
            name, is_given, value = word.partition("=")
            arguments.append(f"{name}={find(value)}" if is_given else find(word))
    return arguments


def _flags_of(name: str, above: tuple[str, ...], numbers: Iterator[int]) -> list[str]:
    """Returns the flags of a flag file and of those that it includes; none if it is missing.

    For `above` and `numbers` see `_expand`.
    """
    path = find(os.path.expanduser(name))
    if path in above or not file_io.exists(path):
        return []
    if next(numbers) > _MAX_FLAG_FILES:
        raise file_io.InputError(
            f"flagfile={name}: more than {_MAX_FLAG_FILES} flag files are included; "
            f"{above[0] if above else name} and others include each other too often"
        )
    lines = map(str.strip, file_io.read_text(path, "flagfile").splitlines())
    words = [line for line in lines if line and not line.startswith(("#", "//"))]
    return _expand(words, (*above, path), numbers)
