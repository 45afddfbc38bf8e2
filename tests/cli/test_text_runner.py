"""Flags that choose who makes data."""

import pytest

from albert import train_vocab
from albert.cli.text_runner import Runner
from albert.io import file_io
from tests.support import command_lines


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--beam_args=--x"], "--beam_args is for --runner=beam"),
        (["--num_workers=2"], "--num_workers is for --runner=beam"),
        (["--num_workers=0", "--runner=beam"], "--num_workers=0 must be at least 1"),
    ],
)
def test_mistakes(arguments, message):
    with pytest.raises(file_io.InputError, match=message):
        command_lines.read(train_vocab, *arguments, input_file="none", output_prefix="none").check()


def test_options_of_beam_are_read_as_a_shell_does():
    given = Runner(runner="beam", beam_args="--runner=DirectRunner '--name=a b'")
    given.check()
    assert given.beam_arguments() == ["--runner=DirectRunner", "--name=a b"]
    assert not Runner(runner="beam").beam_arguments()
