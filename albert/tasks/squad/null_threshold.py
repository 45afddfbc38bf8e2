"""Searches, applies and stores the null-odds threshold of SQuAD 2.0.

Arguments: `null_odds` are ``{id: score}``, high for unanswerable questions; `predictions` are
``{id: text}``, the best text of each question; `prefix` is the path, without ending, of the
checkpoint that computed the null odds.
"""

import math
import os
from collections.abc import Mapping
from types import NoneType
from typing import Any

from absl import logging

from albert.io import file_io, json_shapes
from albert.model import sources

THRESHOLD = "null_score_diff_threshold"
FILE_NAME = sources.THRESHOLD_NAME
_SHAPE = {
    THRESHOLD: json_shapes.NUMBER, "step": (int, NoneType), "predict_file?": str,
    "sha256?": str, "num_questions?": int,
}  # fmt: skip


def apply(
    predictions: Mapping[str, str], null_odds: Mapping[str, float], threshold: float
) -> dict[str, str]:
    """Replaces answers whose null odds reach the threshold by the empty text.

    Args:
      threshold: questions with ``null_odds >= threshold`` are answered with "".

    Returns:
      ``{id: text}`` after the threshold.
    """
    return {key: "" if null_odds[key] >= threshold else text for key, text in predictions.items()}


def find_best(
    predictions: Mapping[str, str],
    scores: Mapping[str, float],
    null_odds: Mapping[str, float],
    has_answer: Mapping[str, bool],
) -> tuple[float, float]:
    """Finds the best threshold of the null odds in the same way as the official script.

    Starting from "never answer", questions are answered one after another by rising odds. The
    threshold is the odds of the question after which the sum of scores is highest; it is 0.0 if
    answering never raises the sum.

    Args:
      scores: ``{id: score}`` of these texts, from `metrics.raw_scores_v2`.

    Returns:
      ``(best score in percent, threshold)``.
    """
    current = best = float(sum(not answerable for answerable in has_answer.values()))
    threshold = 0.0
    for key in sorted(null_odds, key=null_odds.__getitem__):
        if key not in scores:
            continue
        if has_answer[key]:
            current += scores[key]
        elif predictions[key]:
            current -= 1
        if current > best:
            best = current
            threshold = null_odds[key]
    return 100.0 * best / len(scores), threshold


def write(
    folder: str,
    threshold: float,
    prefix: str,
    predict_file: str,
    source: Mapping[str, Any] | None = None,
) -> None:
    """Writes the threshold next to the model.

    Args:
      threshold: null odds from which a question is not answered.
      predict_file: the SQuAD file on which the threshold gives the best F1.
      source: what else identifies the questions, see `update`.
    """
    from albert.model import checkpoints

    content = {
        THRESHOLD: threshold,
        "step": checkpoints.read_step(prefix),
        "predict_file": os.path.basename(predict_file),
        **(source or {}),
    }
    file_io.write_json(os.path.join(folder, FILE_NAME), content)


def update(
    folder: str, threshold: float, prefix: str, predict_file: str, num_questions: int
) -> None:
    """Does the same as `write`, but keeps a threshold of the same checkpoint found on other data.

    Data with more questions, or at least as many of the same file, replaces it.
    """
    from albert.model import checkpoints

    path = os.path.join(folder, FILE_NAME)
    source = {"sha256": file_io.sha256(predict_file), "num_questions": num_questions}
    try:
        kept = read_file(folder)
    except file_io.InputError as error:
        logging.warning("%s; it is replaced", error)
        kept = None
    if kept and checkpoints.may_be_of_step(prefix, kept["step"]):
        if "sha256" in kept:
            is_same = kept["sha256"] == source["sha256"]
        else:  # of an older version
            is_same = kept.get("predict_file") == os.path.basename(predict_file)
        before = kept.get("num_questions")
        # Without their number, those of the same file are replaced and no others.
        gained = num_questions - before if before is not None else 0
        if gained < 0 or (gained == 0 and not is_same):
            logging.warning(
                "Kept the threshold %g of %s, found on %s questions of %s; here %g is the best of "
                "%d questions of %s. To replace it, delete %s before",
                kept[THRESHOLD], path, "an unknown number of" if before is None else before,
                kept.get("predict_file"), threshold, num_questions, predict_file, path,
            )  # fmt: skip
            return
    write(folder, threshold, prefix, predict_file, source)


def read_file(folder: str) -> dict[str, Any] | None:
    """Reads what `write` has written to a folder; None if it is missing.

    Returns:
      {`THRESHOLD`: number, "step": int, None if unknown, …}.
    """
    path = os.path.join(folder, FILE_NAME)
    if not file_io.exists(path):
        return None
    content = file_io.read_json(path, "threshold")
    json_shapes.check(content, _SHAPE, f"threshold: {path}")
    if not math.isfinite(content[THRESHOLD]):
        raise file_io.InputError(
            f"threshold: {path}: {THRESHOLD} is {content[THRESHOLD]}, not a number"
        )
    return content


def read(prefix: str) -> float:
    """Returns the threshold in the folder of the checkpoint `prefix`; 0 if there is none."""
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
    threshold = float(content[THRESHOLD])
    if not checkpoints.may_be_of_step(prefix, content["step"]):
        logging.warning(
            "The threshold of %s was found with the checkpoint of step %s, not with %s",
            path,
            content["step"],
            prefix,
        )
    logging.info("Using the threshold %g of %s", threshold, path)
    return threshold
