"""Flags as fields of frozen settings: each flag is defined once, and settings are passed as one.

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Device(options.Group):
        "Where a command computes."

        use_tpu: bool = options.flag(False, "Run on a TPU.")
        num_tpu_cores: int = options.count(8, "TPU cores.")

A command's settings are a group that holds other groups:
``device: Device = options.group(Device)``. `define` defines the absl flags of a group, `read`
builds the group from parsed flags. Programs can build groups directly, without any flag.

``--help`` shows the flags in sections. absl groups flags by the module that defines them, so the
section of a flag is that module's name.
"""

import dataclasses
import functools
import math
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from absl import flags

from albert.cli import path_flags
from albert.io import file_io

# Sections of ``--help``, in this order; others follow.
RUN, OWN, DATA, MODEL = "Run", "Flags", "Data", "Model"
TRAINING, EVALUATION, DEVICES = "Training", "Evaluation", "Devices"
SECTIONS = (RUN, OWN, DATA, MODEL, TRAINING, EVALUATION, DEVICES)

_FLAG, _GROUP = "flag", "group"  # keys of a field's metadata
_MIXED = "mixed_"
_HALF = re.compile(rf"({_MIXED})?b?float16")  # names with another name
_DEFINERS: dict[type, Any] = {
    str: flags.DEFINE_string,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    bool: flags.DEFINE_bool,
    tuple: flags.DEFINE_list,
}


@dataclasses.dataclass(frozen=True)
class Flag:
    """The definition of a flag, except its name and type, which are those of the field."""

    default: Any
    help: str
    shown_default: str = ""  # what happens without the flag, for ``--help``; "": `default`
    choices: tuple[str, ...] = ()  # empty: any value is allowed
    minimum: float | None = None  # absl checks the bounds of numbers as it parses
    maximum: float | None = None
    # ``(name, value)`` that raises `file_io.InputError`; called for values other than None.
    check: Callable[[str, Any], None] | None = None
    parser: flags.ArgumentParser | None = None  # of values other than plain strings and numbers
    required: bool = False
    alias: str | None = None
    allow_override: bool = False  # whether a library may define the same flag, a path, later
    repeated: bool = False  # may be given several times, each with one value of a tuple
    path: path_flags.Path | None = None  # what the value names
    section: str = ""  # of ``--help``; see `Group.sections`


_Kind = TypeVar("_Kind", bound="Group")
_Count = TypeVar("_Count", int, None)


def flag(default: Any, help: str, **rest: Any) -> Any:
    """Returns the field of a flag; `rest` are other attributes of `Flag`, such as its `check`."""
    row = Flag(default, help, **rest)
    return dataclasses.field(default=default, metadata={_FLAG: row})


def count(default: _Count, help: str, shown_default: str = "") -> _Count:
    """Returns the field of a flag for a whole number that must be at least 1; see `Flag`."""
    field: _Count = flag(default, help, check=positive, shown_default=shown_default)
    return field


def group(kind: type, **defaults: Any) -> Any:
    """Returns a field with a group of class `kind`; `defaults` replace those of flags, by name."""
    flag_names = {name for name, _, _ in _rows(kind)}
    if unknown := defaults.keys() - flag_names:
        raise ValueError(f"{kind.__name__} has no flags {sorted(unknown)}")
    return dataclasses.field(
        default_factory=lambda: _with_defaults(kind, defaults), metadata={_GROUP: (kind, defaults)}
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Group:
    """Settings of one concern.

    Attributes:
      sections: {other section: names of its flags, with blanks between}. Groups that are derived
        from this one may define these flags.
    """

    section: ClassVar[str] = OWN  # of ``--help``
    sections: ClassVar[Mapping[str, str]] = {}
    given: frozenset[str] = frozenset()  # flags among the fields that the user gave

    def refuse_given(self, purpose: str, *names: str) -> None:
        """Rejects flags, named without dashes, that have a value: they are only for `purpose`."""
        flag_names = [f"--{name}" for name in names if getattr(self, name)]
        if flag_names:
            raise file_io.InputError(f"{', '.join(flag_names)}: only for {purpose}")

    def require(self, *names: str) -> None:
        """Rejects a run without a value of these flags, named without dashes."""
        missing = [f"--{name}" for name in names if not getattr(self, name)]
        if missing:
            raise file_io.InputError(f"{', '.join(missing)} must be given")


# --- values of flags ----------------------------------------------------------------------


class PrecisionParser(flags.EnumParser):
    """Parser of names of precisions, with and without "mixed_"; returns the names of the script."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = {self._other(name): name for name in names if _HALF.fullmatch(name)}
        super().__init__([*names, *self._names])

    @staticmethod
    def _other(name: str) -> str:
        """Returns the other name of a precision, such as "bfloat16" for "mixed_bfloat16"."""
        return name.removeprefix(_MIXED) if name.startswith(_MIXED) else _MIXED + name

    def parse(self, argument: str) -> str:
        """Returns the script's name of the precision that a command line names."""
        name = super().parse(argument)
        return self._names.get(name, name)


def positive(name: str, value: float) -> None:
    """Checks that the value of flag `name`, a count, is at least 1."""
    if value < 1:
        raise file_io.InputError(f"--{name}={value} must be at least 1")


def not_negative(name: str, value: float) -> None:
    """Checks that the value of flag `name` is finite and at least 0."""
    if not 0 <= value < math.inf:
        limit = "at least 0" if value < 0 else "a finite number"
        raise file_io.InputError(f"--{name}={value} must be {limit}")


def above_zero(name: str, value: float) -> None:
    """Checks that the value of flag `name` is finite and above 0."""
    if not 0 < value < math.inf:
        limit = "above 0" if value <= 0 else "a finite number"
        raise file_io.InputError(f"--{name}={value} must be {limit}")


def fraction(name: str, value: float) -> None:
    """Checks that the value of flag `name`, such as a dropout, is from 0 to below 1."""
    if not 0 <= value < 1:
        raise file_io.InputError(f"--{name}={value} must be a fraction, from 0 to below 1")


def unit_interval(name: str, value: float) -> None:
    """Checks that the value of flag `name` is from 0 to 1."""
    if not 0 <= value <= 1:
        raise file_io.InputError(f"--{name}={value} must be between 0 and 1")


# --- from fields to flags and back ----------------------------------------------------------------


def _type_of(annotation: Any) -> type:
    """Returns the base type of a field: int for ``int | None``, tuple for ``tuple[str, ...]``."""
    if isinstance(annotation, types.UnionType):
        annotation = next(part for part in annotation.__args__ if part is not types.NoneType)
    return typing.get_origin(annotation) or annotation


@functools.cache
def _rows(kind: type) -> tuple[tuple[str, type, Flag], ...]:
    """Returns name, type and `Flag` of each flag of a group, including nested groups."""
    return tuple(_iter_rows(kind, {}))


def _iter_rows(kind: type, defaults: dict) -> Iterator[tuple[str, type, Flag]]:
    """Yields the rows of `_rows`; `defaults` replace those of flags, by name."""
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        if _GROUP in field.metadata:
            inner, changed = field.metadata[_GROUP]
            yield from _iter_rows(inner, {**changed, **defaults})
        elif _FLAG in field.metadata:
            row = field.metadata[_FLAG]
            default = defaults.get(field.name, row.default)
            row = dataclasses.replace(row, default=default, section=_section(kind, field.name))
            yield field.name, _type_of(hints[field.name]), row


def _section(kind: type[Group], name: str) -> str:
    """Returns the section of ``--help`` that shows flag `name` of a group of class `kind`."""
    sections = (section for section, names in kind.sections.items() if name in names.split())
    return next(sections, kind.section)


def _with_defaults(kind: type, defaults: dict) -> Any:
    """Returns a group of class `kind`; `defaults` replace those of flags, by name."""
    own = {f.name for f in dataclasses.fields(kind) if _FLAG in f.metadata} & defaults.keys()
    values = {name: defaults[name] for name in own}
    for field in dataclasses.fields(kind):
        if _GROUP in field.metadata:
            inner, changed = field.metadata[_GROUP]
            values[field.name] = _with_defaults(inner, {**changed, **defaults})
    return kind(**values)


def define(kind: type, flag_values: flags.FlagValues) -> None:
    """Defines the flags of `kind`, a group's class, including those of nested groups."""
    for name, value_type, row in _rows(kind):
        place: dict[str, Any] = {"flag_values": flag_values, "module_name": row.section}
        is_list = value_type is tuple
        default = list(row.default) if is_list and row.default is not None else row.default
        parser = row.path.parser(is_list and not row.repeated) if row.path else row.parser
        serializer = flags.ArgumentSerializer[object]()
        if isinstance(parser, flags.EnumParser):
            enum_flag = flags.EnumFlag(name, row.default, row.help, parser.enum_values)
            enum_flag.parser = parser
            flags.DEFINE_flag(enum_flag, **place)
        elif row.repeated:
            parser = parser or flags.ArgumentParser()
            flags.DEFINE_multi(parser, serializer, name, default, row.help, **place)
        elif parser:
            place["serializer"] = flags.CsvListSerializer(",") if is_list else serializer
            place["allow_override"] = row.allow_override
            flags.DEFINE(parser, name, default, row.help, **place)
        elif row.choices:
            flags.DEFINE_enum(name, row.default, row.choices, row.help, **place)
        else:
            extra = {"lower_bound": row.minimum, "upper_bound": row.maximum}
            extra = {key: bound for key, bound in extra.items() if bound is not None}
            _DEFINERS[value_type](name, default, row.help, **place, **extra)
        if row.shown_default:
            flag_values[name].default_as_str = row.shown_default
        if row.alias:
            flags.DEFINE_alias(row.alias, name, flag_values, module_name=row.section)
    required = [name for name, _, row in _rows(kind) if row.required]
    flags.mark_flags_as_required(required, flag_values)


def read(kind: type[_Kind], flag_values: flags.FlagValues) -> _Kind:
    """Returns the group of parsed flags; checks each value alone, and outputs against inputs."""
    settings = _read(kind, flag_values)
    named = {name: (path, flag_values[name].value) for name, path in _paths(kind)}
    path_flags.check_outputs(named, settings)
    return settings


def _paths(kind: type) -> Iterator[tuple[str, path_flags.Path]]:
    """Yields the name of each flag of a group that names a path, and what that path is."""
    return ((name, row.path) for name, _, row in _rows(kind) if row.path)


def _read(kind: type[_Kind], flag_values: flags.FlagValues) -> _Kind:
    """Returns the group of parsed flags; checks each value alone."""
    values, flag_names = {}, set()
    for field in dataclasses.fields(kind):
        if _GROUP in field.metadata:
            values[field.name] = _read(field.metadata[_GROUP][0], flag_values)
        elif _FLAG in field.metadata:
            absl_flag, row = flag_values[field.name], field.metadata[_FLAG]
            value = tuple(absl_flag.value) if isinstance(absl_flag.value, list) else absl_flag.value
            if row.check and value is not None:
                row.check(field.name, value)
            values[field.name] = value
            if absl_flag.present:
                flag_names.add(field.name)
    return kind(**values, given=frozenset(flag_names))


def names(kind: type) -> Sequence[str]:
    """Returns the names of all flags of `kind`, a group's class, including nested groups."""
    return [name for name, _, _ in _rows(kind)]
