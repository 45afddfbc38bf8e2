"""Flags that say how texts become pieces."""

import pytest

from albert.cli import text_flags
from albert.io import file_io
from tests.support import command_lines


def test_only_what_is_given_decides():
    for given, expected in (
        ([], {}),
        (["--nodo_lower_case"], {"do_lower_case": False}),
        (["--extra_pieces=NASA,<a>"], {"extra_pieces": ("NASA", "<a>")}),
        (["--do_lower_case", "--keep_accents"], {"do_lower_case": True, "keep_accents": True}),
    ):
        assert command_lines.read(text_flags.TextFlags, *given).text_rules() == expected
    with pytest.raises(file_io.InputError, match="--extra_pieces: '' is not a piece"):
        command_lines.read(text_flags.TextFlags, "--extra_pieces=a,")
