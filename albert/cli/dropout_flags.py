"""Flags that say how much is dropped in training, and the configuration that follows from them."""

import dataclasses

from absl import logging

from albert.cli import common_flags
from albert.io import file_io


def define_dropout_flags(flag_values):
    """Dropout of the encoder; scripts whose head drops something too define that themselves."""
    _, _, number, _ = common_flags.definers(flag_values)
    number(
        "hidden_dropout_prob",
        None,
        "Dropout of embeddings and of the outputs of each block; by default the configuration's.",
    )
    number(
        "attention_probs_dropout_prob",
        None,
        "Dropout of attention probabilities; by default the configuration's.",
    )


def check_dropout(values):
    """Refuses what is no share before any work.

    Raises:
      file_io.InputError: names the flag and its value.
    """
    names = ("hidden_dropout_prob", "attention_probs_dropout_prob")
    for name in (*names, "dropout_prob", "classifier_dropout_prob"):
        value = values[name].value if name in values else None
        if value is not None and not 0 <= value < 1:
            raise file_io.InputError(f"--{name}={value} must be a share, from 0 to below 1")


def read_config(values, source):
    """The model's configuration with the rates of the flags; training says them in the log.

    Args:
      values: flag values.
      source: `sources.Source`.

    Returns:
      `encoder.AlbertConfig`.
    """
    from albert.model import encoder

    config = encoder.AlbertConfig.from_json_file(source.config_file)
    names = ("hidden_dropout_prob", "attention_probs_dropout_prob")
    given = {name: values[name].value for name in names if values[name].value is not None}
    used = dataclasses.replace(config, **given)
    if values.do_train:
        is_frozen = "freeze_encoder" in values and values["freeze_encoder"].value
        rates = {name: 0.0 if is_frozen else getattr(used, name) for name in names}
        if "classifier_dropout_prob" in values:
            rates["classifier_dropout_prob"] = values["classifier_dropout_prob"].value
        text = ", ".join(f"{name} {rate:g}" for name, rate in rates.items())
        raised = [name for name in given if given[name] and not getattr(config, name)]
        if raised:
            text += f"; {source.config_file} says 0 for {', '.join(raised)}"
        logging.info("Dropout: %s", text)
    return used
