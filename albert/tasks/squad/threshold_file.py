"""Reads and writes the file of the null-odds threshold of SQuAD 2.0; `metrics` searches it."""

import math
import os
from typing import Any

from absl import logging

from albert.io import file_io, json_shapes

THRESHOLD = "null_score_diff_threshold"
FILE_NAME = f"{THRESHOLD}.json"


def write(folder: str, threshold: float, prefix: str, predict_file: str) -> None:
    """Writes the threshold next to the model.

    Args:
      folder: output folder.
      threshold: null odds from which a question is not answered.
      prefix: the checkpoint that computed the null odds.
      predict_file: the SQuAD file on which the threshold gives the best F1.
    """
    from albert.model import checkpoints

    content = {
        THRESHOLD: threshold,
        "step": checkpoints.read_step(prefix),
        "predict_file": os.path.basename(predict_file),
    }
    file_io.write_json(os.path.join(folder, FILE_NAME), content)


def read_file(folder: str) -> dict[str, Any] | None:
    """Reads the file that `write` made in a folder; returns None if it is missing.

    Raises:
      file_io.InputError: the file is damaged.
    """
    path = os.path.join(folder, FILE_NAME)
    if not file_io.exists(path):
        return None
    content = file_io.read_json(path, "threshold")
    json_shapes.check(content, {THRESHOLD: json_shapes.NUMBER, "step": int}, f"threshold: {path}")
    if not math.isfinite(content[THRESHOLD]):
        raise file_io.InputError(
            f"threshold: {path}: {THRESHOLD} is {content[THRESHOLD]}, not a number"
        )
    return content


def read(prefix: str) -> float:
    """Returns the threshold in the folder of a checkpoint; 0 if there is none.

    Raises:
      file_io.InputError: the file is damaged.
    """
    from albert.model import checkpoints

    folder = os.path.dirname(prefix)
    content, path = read_file(folder), os.path.join(folder, FILE_NAME)
    if content is None:
        logging.warning(
            "There is no %s: using the threshold 0. Predict a file with correct answers once to "
            "find a better one",
            path,
        )
        return 0.0
    threshold, step = float(content[THRESHOLD]), content["step"]
    if step != checkpoints.read_step(prefix):
        logging.warning(
            "The threshold of %s was found with the checkpoint of step %s, not with %s",
            path,
            step,
            prefix,
        )
    logging.info("Using the threshold %g of %s", threshold, path)
    return threshold
