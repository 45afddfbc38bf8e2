"""Flags that say how texts become pieces."""

import pytest
from absl import flags

from albert.cli import options, text_flags
from albert.io import file_io


def test_only_what_is_given_decides():
    for given, expected in (
        ([], {}),
        (["--nodo_lower_case"], {"do_lower_case": False}),
        (["--extra_pieces=NASA,<a>"], {"extra_pieces": ("NASA", "<a>")}),
        (["--do_lower_case", "--keep_accents"], {"do_lower_case": True, "keep_accents": True}),
    ):
        values = flags.FlagValues()
        options.define(text_flags.TextFlags, values)
        values(["script", *given])
        assert options.read(text_flags.TextFlags, values).text_rules() == expected
    values = flags.FlagValues()
    options.define(text_flags.TextFlags, values)
    values(["script", "--extra_pieces=a,"])
    with pytest.raises(file_io.InputError, match="--extra_pieces: '' is not a piece"):
        options.read(text_flags.TextFlags, values)
