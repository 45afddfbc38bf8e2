"""Flags of masks, for the making of records."""

from albert.cli import options, pretraining


def define_mask_flags(flag_values):
    """How many tokens are masked and how they are chosen."""
    options.define(pretraining.Masks, flag_values)


def given_mask_flags(flag_values):
    """Names, with dashes, of those flags on the command line that only say how masks are drawn."""
    return options.read(pretraining.Masks, flag_values).given_rules()


def mask_config(flag_values):
    """`masking.MaskingConfig` of the flags."""
    return options.read(pretraining.Masks, flag_values).config()
