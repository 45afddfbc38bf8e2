"""Flags that say who works."""

import pytest
from absl import flags

from albert import train_vocab
from albert.cli import runner_flags
from albert.io import file_io


def parsed(*arguments):
    values = flags.FlagValues()
    train_vocab.define_flags(values)
    values(["train_vocab", "--input_file=none", "--output_prefix=none", *arguments])
    return values


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
        train_vocab.recipe(parsed(*arguments))


def test_options_of_beam_are_read_as_a_shell_does():
    values = parsed("--runner=beam", "--beam_args=--runner=DirectRunner '--name=a b'")
    runner_flags.check(values)
    assert runner_flags.beam_arguments(values) == ["--runner=DirectRunner", "--name=a b"]
    assert not runner_flags.beam_arguments(parsed("--runner=beam"))
