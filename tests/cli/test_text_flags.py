"""Flags that say how texts become pieces."""

from absl import flags

from albert.cli import options, text_flags


def test_only_what_is_given_decides():
    for given, expected in (
        ([], {}),
        (["--nodo_lower_case"], {"do_lower_case": False}),
        (["--do_lower_case", "--keep_accents"], {"do_lower_case": True, "keep_accents": True}),
    ):
        values = flags.FlagValues()
        options.define(text_flags.TextFlags, values)
        values(["script", *given])
        assert options.read(text_flags.TextFlags, values).text_rules() == expected
