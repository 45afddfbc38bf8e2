"""Checks of flags of commands that have no settings."""

import pytest
from absl import flags

from albert.cli import common_flags, pretraining_flags
from albert.data import masking
from albert.io import file_io


@pytest.fixture
def values():
    found = flags.FlagValues()
    common_flags.define_model_flags(found)
    pretraining_flags.define_mask_flags(found)
    flags.DEFINE_integer("max_seq_length", 128, "Tokens.", flag_values=found)
    return lambda *arguments: found(["script", *arguments]) and found


def test_counts_and_presence_are_checked(values):
    common_flags.require_positive(values(), "max_seq_length")
    with pytest.raises(file_io.InputError, match="--max_seq_length=0 must be at least 1"):
        common_flags.require_positive(values("--max_seq_length=0"), "max_seq_length")
    with pytest.raises(file_io.InputError, match="^--init_checkpoint, --vocab_file must be given$"):
        common_flags.require_given(
            values("--max_seq_length=5"), "init_checkpoint", "max_seq_length", "vocab_file"
        )


def test_groups_are_read(values):
    assert pretraining_flags.mask_config(values()) == masking.MaskingConfig()
    assert pretraining_flags.given_mask_flags(values("--ngram=2")) == ["--ngram"]
