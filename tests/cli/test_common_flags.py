"""Checks of flags of commands that have no settings."""

import pytest
from absl import flags

from albert.cli import common_flags
from albert.io import file_io


def test_counts_and_flags_without_effect_are_checked():
    values = flags.FlagValues()
    flags.DEFINE_integer("length", 128, "Tokens.", flag_values=values)
    common_flags.require_positive(values(["script"]) and values, "length")
    with pytest.raises(file_io.InputError, match="^--length: only for texts$"):
        common_flags.refuse_given(values, "texts", "length")
    values(["script", "--length=0"])
    with pytest.raises(file_io.InputError, match="--length=0 must be at least 1"):
        common_flags.require_positive(values, "length")
