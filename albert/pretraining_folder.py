"""What a pre-training run's folder holds beside its checkpoints.

Training writes ``albert_config.json`` and ``pretraining.json``: what the model was trained for that
its variables do not tell.
"""

import dataclasses
import os

from absl import logging

from albert import checkpoints, file_io, modeling, pretrained, pretraining_heads

VERSION = 1


def write(path, config, sentence_task):
    """Describes a run before its first checkpoint.

    Args:
      path: output folder, which is there.
      config: `modeling.AlbertConfig` that the run trains with, its rates of dropout included.
      sentence_task: key of `pretraining_heads.SENTENCE_TASKS`.

    Raises:
      file_io.InputError: a configuration that is there is damaged.
    """
    _write_config(os.path.join(path, pretrained.CONFIG_NAME), config)
    description = {"version": VERSION, "sentence_task": sentence_task}
    file_io.write_json(os.path.join(path, pretrained.PRETRAINING_NAME), description)


def _write_config(name, config):
    if file_io.exists(name):
        there = dataclasses.asdict(modeling.AlbertConfig.from_json_file(name))
        differing = {k: v for k, v in dataclasses.asdict(config).items() if v != there[k]}
        if not differing:
            return
        text = ", ".join(f"{key} {value} (was {there[key]})" for key, value in differing.items())
        logging.info("%s now says what this run trains with: %s", name, text)
    file_io.write_text(name, config.to_json_string())


def sentence_tasks(path, checkpoint=None):
    """What the model of a folder may have been trained for.

    Args:
      path: the folder; it need not be there.
      checkpoint: prefix; None: the best of the folder, else the last.

    Returns:
      List of keys of `pretraining_heads.SENTENCE_TASKS`: one if the folder's description says it;
      without a description those that fit the variables; all if there is no checkpoint.

    Raises:
      file_io.InputError: description or checkpoint are damaged.
    """
    checkpoint = checkpoint or checkpoints.find_best(path)
    checkpoint = checkpoint or next(reversed(checkpoints.numbered(path)), None)
    if checkpoint is None:
        return list(pretraining_heads.SENTENCE_TASKS)
    name = os.path.join(path, pretrained.PRETRAINING_NAME)
    if file_io.exists(name):
        found = file_io.read_json(name, "description of pre-training")
        task = found.get("sentence_task") if isinstance(found, dict) else None
        if task not in list(pretraining_heads.SENTENCE_TASKS) or found.get("version") != VERSION:
            raise file_io.InputError(
                f"{name} is not a description of pre-training of version {VERSION}"
            )
        return [task]
    head = f"{pretraining_heads.SENTENCE_HEAD}output_weights"
    has_head = head in checkpoints.reader(checkpoint).get_variable_to_shape_map()
    return [
        task for task, title in pretraining_heads.SENTENCE_TASKS.items() if has_head == bool(title)
    ]
