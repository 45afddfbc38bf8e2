"""Flags of what uses a fine-tuned model: how it computes."""

from albert.cli import common_flags


def define(flag_values):
    """The flags of `found_model`, but --model_dir."""
    common_flags.define_precision(
        flag_values,
        None,
        ["float32", "bfloat16"],
        "Type of products and activations; by default float32, of an exported model its own.",
    )


def found_model(values, *kinds):
    """The `inference.FoundModel` of --model_dir, of one of these kinds, computing in --precision.

    Raises:
      file_io.InputError: see `inference.find` and `inference.FoundModel.in_precision`.
    """
    from albert.serving import inference

    found = inference.find(values.model_dir, *kinds)
    return found.in_precision(values.precision) if values.precision else found
