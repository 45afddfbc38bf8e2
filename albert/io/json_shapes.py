"""Checks that a value of JSON has the expected shape.

A shape is a type or a tuple of types (`NUMBER`, `NoneType`), ``[shape]`` for lists, or a dict of
shapes by key: a key that ends in "?" may be missing, "*" stands for all other keys.
"""

import json
import sys
from types import NoneType
from typing import Any, TypeGuard

from albert.io import file_io

NUMBER = (int, float)
ANY = object
_NAMES = {
    str: "text", int: "whole number", float: "number", bool: "true or false", list: "list",
    dict: "object", NoneType: "null",
}  # fmt: skip


def is_number(value: object) -> TypeGuard[int | float]:
    """Returns whether a value of JSON is a number, which may be infinite or not a number."""
    return isinstance(value, NUMBER) and not isinstance(value, bool)


def check(value: Any, shape: Any, place: str) -> None:
    """Checks that a value has a shape, see the module; `place` names the value in messages."""
    if isinstance(shape, list):
        _check_type(value, (list,), place)
        for number, part in enumerate(value):
            check(part, shape[0], f"{place}[{number}]")
    elif isinstance(shape, dict):
        _check_type(value, (dict,), place)
        shapes = {key.rstrip("?"): part for key, part in shape.items() if key != "*"}
        missing = [key for key in shape if key not in value and key[-1] not in "?*"]
        if missing:
            raise file_io.InputError(f"{place}: there is no {missing[0]!r}")
        for key, part in value.items():
            if expected := shapes.get(key, shape.get("*", ANY)):
                check(part, expected, f"{place}.{key}")
    else:
        _check_type(value, shape if isinstance(shape, tuple) else (shape,), place)


def _check_type(value: object, types: tuple[type, ...], place: str) -> None:
    is_right = isinstance(value, types)
    if isinstance(value, bool):  # For Python, booleans are also integers.
        is_right = bool in types or ANY in types
    if not is_right:
        expected = " or ".join(_NAMES[kind] for kind in types)
        raise file_io.InputError(f"{place}: expected {expected}, found {_NAMES[type(value)]}")
    if isinstance(value, int) and abs(value) > sys.float_info.max:
        raise file_io.InputError(f"{place}: the number has {len(str(value))} digits: too large")


def check_text(value: object, place: str) -> None:
    """Checks that the texts in a value can be written to a file."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise file_io.InputError(f"{place} holds invalid text: {error}") from error
