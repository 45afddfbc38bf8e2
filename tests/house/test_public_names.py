"""The public names of the Python API keep their arguments, as docs/stability.md promises.

    python -m tests.house.test_public_names

adds names and arguments that are not recorded yet to `tests/testdata/public_names.json`.
"""

import importlib
import inspect
import json
import re

import pytest

from tests.support.sources import ROOT

RECORD = ROOT / "tests/testdata/public_names.json"


def documented():
    """Yields (module, name, description) of the table "The public names" in docs/python.md."""
    page = (ROOT / "docs/python.md").read_text(encoding="utf-8")
    section = page.split("## The public names")[1].split("\n## ")[0]
    for row in re.findall(r"^\| `.*", section, re.M):
        _, names, description, _ = row.split("|")
        for module, name in re.findall(r"`(\w+)\.(\w+)`", names):
            yield module, name, description


def text_of(default):
    """Returns the text of a default; of an object only its type, as it may get more fields."""
    is_plain = default is None or isinstance(default, bool | int | float | str | tuple)
    return repr(default) if is_plain else type(default).__name__


def arguments(function):
    """Returns {name: [kind, text of the default or None]} in order, without self."""
    empty = inspect.Parameter.empty
    return {
        name: [row.kind.name, None if row.default is empty else text_of(row.default)]
        for name, row in inspect.signature(function).parameters.items()
        if name != "self"
    }


def found():
    """Returns {function: its arguments} of the public names and of their described methods."""
    functions = {}
    for module, name, description in documented():
        value = getattr(importlib.import_module(f"albert.{module}"), name)
        functions[f"{module}.{name}"] = arguments(value)
        described = {"__call__", *re.findall(r"\w+", description)}
        methods = inspect.getmembers(value, callable) if inspect.isclass(value) else ()
        for method, member in methods:
            if method in described and (member.__module__ or "").startswith("albert."):
                functions[f"{module}.{name}.{method}"] = arguments(member)
    return functions


def changes(recorded, now):
    """Yields what a program that uses the recorded arguments would trip over."""
    kept = [name for name in now if name in recorded]
    for name, (kind, default) in recorded.items():
        if name not in now:
            yield f"{name} is gone"
        elif now[name] != [kind, default]:
            yield f"{name} was {kind}, default {default}; it is {now[name]}"
    if kept != [name for name in recorded if name in now] or list(now)[: len(kept)] != kept:
        yield f"the order was {', '.join(recorded)}; it is {', '.join(now)}"
    for name in now.keys() - recorded.keys():
        if now[name][1] is None and not now[name][0].startswith("VAR_"):
            yield f"{name} is new and has no default"


def test_public_names_keep_their_arguments():
    recorded, now = json.loads(RECORD.read_text(encoding="utf-8")), found()
    assert recorded.keys() <= now.keys(), recorded.keys() - now.keys()
    wrong = {name: list(changes(recorded[name], now[name])) for name in recorded}
    assert not any(wrong.values()), {name: texts for name, texts in wrong.items() if texts}
    unrecorded = now.keys() - recorded.keys()
    assert not unrecorded, f"python -m tests.house.test_public_names records {unrecorded}"


@pytest.mark.parametrize(
    ("now", "text"),
    [
        ({"a": ["POSITIONAL_OR_KEYWORD", None]}, "b is gone"),
        (
            {"a": ["POSITIONAL_OR_KEYWORD", None], "b": ["POSITIONAL_OR_KEYWORD", "2"]},
            r"b was POSITIONAL_OR_KEYWORD, default 1",
        ),
        (
            {"b": ["POSITIONAL_OR_KEYWORD", "1"], "a": ["POSITIONAL_OR_KEYWORD", None]},
            "the order was a, b; it is b, a",
        ),
        (
            {
                "a": ["POSITIONAL_OR_KEYWORD", None],
                "b": ["POSITIONAL_OR_KEYWORD", "1"],
                "c": ["KEYWORD_ONLY", None],
            },
            "c is new and has no default",
        ),
    ],
)
def test_changes_are_found(now, text):
    recorded = {"a": ["POSITIONAL_OR_KEYWORD", None], "b": ["POSITIONAL_OR_KEYWORD", "1"]}
    assert not list(changes(recorded, {**recorded, "c": ["KEYWORD_ONLY", "None"]}))
    (change,) = changes(recorded, now)
    assert re.match(text, change)


def main() -> None:
    """Adds what is not recorded yet."""
    recorded = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    for name, now in found().items():
        recorded[name] = {**now, **recorded.get(name, {})}
    lines = (f" {json.dumps(name)}: {json.dumps(row)}" for name, row in sorted(recorded.items()))
    RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
