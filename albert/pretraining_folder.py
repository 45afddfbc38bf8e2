"""What pre-training writes into its output folder beside checkpoints."""

import os

from absl import logging

from albert import file_io, modeling, pretrained


def write(path, config):
    """Describes a run before its first checkpoint.

    Args:
      path: output folder, which is there.
      config: `modeling.AlbertConfig` that the run trains with, its rates of dropout included.

    Raises:
      file_io.InputError: a configuration that is there is damaged.
    """
    name = os.path.join(path, pretrained.CONFIG_NAME)
    if file_io.exists(name):
        there = modeling.AlbertConfig.from_json_file(name).to_dict()
        differing = {k: v for k, v in config.to_dict().items() if v != there[k]}
        if not differing:
            return
        text = ", ".join(f"{key} {value} (was {there[key]})" for key, value in differing.items())
        logging.info("%s now says what this run trains with: %s", name, text)
    file_io.write_text(name, config.to_json_string())
