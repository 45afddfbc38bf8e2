"""The flags that measure pre-training on BLiMP; runs with them are in test_pseudo_likelihood.py."""

import pytest
from absl import flags

from albert import run_pretraining
from albert.cli import blimp_flags
from albert.io import file_io


def parse(*arguments):
    values = flags.FlagValues()
    run_pretraining.define_flags(values)
    values(["script", "--input_file=x", "--output_dir=y", *arguments])
    return values


def test_flags_without_effect_are_refused():
    with pytest.raises(file_io.InputError, match="--blimp_data_dir needs --do_eval"):
        run_pretraining.check_flags(parse("--blimp_data_dir=x"))
    with pytest.raises(file_io.InputError, match="--blimp_limit: only for --blimp_data_dir"):
        run_pretraining.check_flags(parse("--blimp_limit=2", "--do_eval"))
    run_pretraining.check_flags(parse("--blimp_limit=2", "--do_eval", "--blimp_data_dir=x"))


def test_without_data_the_task_stays_as_it_is():
    assert blimp_flags.measured(parse(), "task", None) == "task"
