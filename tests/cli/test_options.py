"""Flags as fields of settings: definition, parsing, checks, defaults that commands change."""

import dataclasses

import pytest
from absl import flags

from albert.cli import options
from albert.io import file_io
from tests.support import command_lines


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inner(options.Group):
    """A group."""

    rate: float = options.flag(0.1, "A rate.", check=options.fraction)
    names: tuple[str, ...] | None = options.flag(None, "Names.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outer(options.Group):
    """Settings of a command."""

    inner: Inner = options.group(Inner, rate=0.2)
    folder: str | None = options.flag(None, "A folder.", required=True)
    steps: int = options.flag(5, "Steps.", check=options.positive, alias="num_steps")
    form: str = options.flag("a", "A form.", choices=("a", "b"))
    fast: bool = options.flag(False, "Be fast.")
    level: int = options.flag(1, "A level.", minimum=0, maximum=3)


def parsed(*arguments):
    return command_lines.read(Outer, "--folder=f", *arguments)


def test_values_and_what_was_given():
    found = parsed("--fast", "--num_steps=7", "--names=x,y")
    assert (found.folder, found.steps, found.form, found.fast) == ("f", 7, "a", True)
    assert (found.inner.rate, found.inner.names) == (0.2, ("x", "y"))
    assert {"folder", "fast"} <= found.given and "form" not in found.given
    assert found.inner.given == {"names"}


def test_programs_make_the_same_settings_without_flags():
    made = Outer(folder="f")
    assert made == dataclasses.replace(parsed(), given=frozenset(), inner=made.inner)
    assert made.inner == Inner(rate=0.2) and Inner().rate == 0.1


def test_groups_list_their_flags():
    assert set(options.names(Outer)) == {
        "rate",
        "names",
        "folder",
        "steps",
        "form",
        "fast",
        "level",
    }


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--steps=0", "--steps=0 must be at least 1"),
        ("--rate=1", "--rate=1.0 must be a fraction"),
    ],
)
def test_values_are_checked_by_themselves(argument, message):
    with pytest.raises(file_io.InputError, match=message):
        parsed(argument)


def test_values_that_absl_refuses():
    for argument in ("--form=c", "--level=4", "--steps=x"):
        with pytest.raises(flags.IllegalFlagValueError):
            parsed(argument)


def test_flags_that_are_needed_or_have_no_effect():
    with pytest.raises(file_io.InputError, match="--names: only for lists"):
        parsed("--names=x").inner.refuse_given("lists", "names")
    with pytest.raises(file_io.InputError, match="--names must be given"):
        parsed().inner.require("rate", "names")


def test_defaults_of_unknown_flags_are_errors():
    with pytest.raises(ValueError, match="Inner has no flags"):
        options.group(Inner, speed=1)
