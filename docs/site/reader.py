"""An extension of griffe, which reads sources for the reference of the Python API."""

import re
from typing import Any

import griffe

# `name, other: description`, indented, with the deeper lines below it.
ENTRY = re.compile(r"^( +)(\w+(?:, \w+)+)(: .*(?:\n\1 +.*)*)$", re.M)


def separate_names(text: str) -> str:
    """Repeats the description of an entry for each of its names, so that each gets its type."""

    def entries(match: re.Match) -> str:
        indent, names, description = match.groups()
        return "\n".join(indent + name + description for name in names.split(", "))

    return ENTRY.sub(entries, text)


def is_private(base: str | griffe.Expr) -> bool:
    """Returns whether the last name of a base class begins with an underscore."""
    return str(base).partition("[")[0].rpartition(".")[2].startswith("_")


def _is_code(package: griffe.Module, path: str) -> bool:
    try:
        return package[path].is_class or package[path].is_function
    except KeyError:
        return False


def follow_assignments(module: griffe.Module, package: griffe.Module) -> None:
    """Shows `Name = module.Name`, where that is a class or function, as what it names."""
    for name, member in list(module.members.items()):
        if member.is_alias:
            continue
        if member.is_module:
            follow_assignments(member, package)
        elif member.is_attribute and isinstance(member.value, griffe.ExprAttribute):
            path = member.value.canonical_path
            target = path.removeprefix(f"{package.name}.")
            if path != target and _is_code(package, target):
                module.set_member(name, griffe.Alias(name, path))


class Reader(griffe.Extension):
    """Adapts what was read to the style of the project."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Separates the names in the docstring of an object; leaves out private bases."""
        if obj.docstring:
            obj.docstring.value = separate_names(obj.docstring.value)
        if isinstance(obj, griffe.Class):
            obj.bases = [base for base in obj.bases if not is_private(base)]

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        """Follows the assignments of all modules."""
        follow_assignments(pkg, pkg)
