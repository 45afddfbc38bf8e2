"""Keeps a few dev examples with a model, which the server's page offers to try.

Training writes them to ``example_requests.json`` in its folder after an evaluation, and an export
copies them. Everybody who reaches a server of the model can read them.
"""

import os
import re
from collections.abc import Iterable
from typing import Any

from albert.io import file_io, json_shapes
from albert.serving import requests

NAME = "example_requests.json"
MAX_EXAMPLES = 3
_MAX_CHARACTERS = 2000  # of the texts of an example: it is read on a page
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")  # of a cut text; files cannot hold it


def write(folder: str, examples: Iterable[dict[str, Any]]) -> None:
    """Writes up to `MAX_EXAMPLES` short examples, from all parts of the data.

    Examples are {field: value} as in requests. Without any it removes those that are there.
    """
    short = [example for example in examples if _is_short(example)]
    step = max(len(short) / MAX_EXAMPLES, 1)
    chosen = [short[int(i * step)] for i in range(min(MAX_EXAMPLES, len(short)))]
    path = os.path.join(folder, NAME)
    if chosen:
        file_io.write_json(path, chosen)
    else:
        file_io.remove(path)


def _is_short(example: dict[str, Any]) -> bool:
    """Returns whether a person can read the texts of an example, and none is empty."""
    texts = list(requests.texts_of(example))
    is_whole = not any(_HALF_CHARACTER.search(text) for text in texts)
    return is_whole and all(map(str.strip, texts)) and sum(map(len, texts)) <= _MAX_CHARACTERS


def read(folder: str, form: requests.RequestSchema) -> tuple[dict[str, Any], ...]:
    """Returns the examples in the folder of a model; none if it has no such file."""
    path = os.path.join(folder, NAME)
    if not file_io.exists(path):
        return ()
    examples = file_io.read_json(path, "examples of a model")
    json_shapes.check(examples, [dict], path)
    for number, example in enumerate(examples):
        form.read(example, f"{path}[{number}]", requests.Limits())
    return tuple(examples)


def copy(source: str, folder: str) -> None:
    """Copies the examples of a model, if it has any, to another folder."""
    path = os.path.join(source, NAME)
    if file_io.exists(path):
        file_io.copy(path, os.path.join(folder, NAME))
