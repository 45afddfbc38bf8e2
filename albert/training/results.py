"""The files of scores in an output folder: ``eval_results.txt`` and ``best_trial.txt``.

``eval_results.txt`` holds a block for each evaluated checkpoint: lines ``key = value`` and a rule.
That of SQuAD ends with a summary, the scores of the best checkpoint and its step.
``best_trial.txt`` holds ``step:best_step:best_value``: the last evaluated step, and the best one.
"""

import os
from typing import NamedTuple

import numpy as np

from albert.io import file_io

RESULTS = "eval_results.txt"
BEST_TRIAL = "best_trial.txt"
_RULE = "=" * 50
_SUMMARY = "best perf happened at step:"
_NO_SCORE = 1e6  # in absolute value; percentages and losses are far below


class Block(NamedTuple):
    """What ``eval_results.txt`` holds of one checkpoint.

    Attributes:
      step: its step; None if the block does not say.
      values: {key: number} of its lines.
      text: its lines, without the rule.
    """

    step: int | None
    values: dict
    text: str

    @property
    def metrics(self):
        """The values without the step and the best so far."""
        return {key: value for key, value in self.values.items() if _is_metric(key)}

    @property
    def is_summary(self):
        """Whether it is the last block of SQuAD's results."""
        return _SUMMARY in self.text


class Form(NamedTuple):
    """What differs between the results of tasks, as the scripts of the reference write them.

    Attributes:
      number: type whose shortest text a number has.
      best: name of the line of the best value so far; {} is the metric.
      has_summary: whether the file ends with a summary.
    """

    number: type
    best: str
    has_summary: bool


SHORT = Form(np.float32, "best", has_summary=False)
SQUAD = Form(float, "best {}", has_summary=True)


class Trial(NamedTuple):
    """What ``best_trial.txt`` holds."""

    last_step: int
    best_step: int
    best_value: float


def is_loss(metric):
    """Whether a lower value of a metric is the better one, by its name."""
    return metric in ("loss", "MSE") or metric.endswith("_loss")


def best_of(metric, counts):
    """The name of a score for what it is: that of the best of so many evaluated checkpoints.

    Args:
      metric: its name among the results.
      counts: numbers of evaluated checkpoints of the runs; None where it is not known.
    """
    found = sorted({count for count in counts if count})
    if not found:
        return metric
    number = "one checkpoint" if found[-1] == 1 else f"best of {found[-1]} checkpoints"
    if found[0] < found[-1]:
        number = f"best of {found[0]} to {found[-1]} checkpoints"
    return f"{metric} (dev, {number})"


def remark_on_baseline(value, baseline, minimize):
    """Words on a score that one answer to everything gets, too; "" for a better one.

    Args:
      value: the score.
      baseline: that of the best constant answer, such as the majority's label, the mean of the
        numbers or no answer at all; None: not known, as the value may be.
      minimize: whether a low score is good.
    """
    if value is None or baseline is None:
        return ""
    # Scores are written as float32.
    value, bound = np.float32(value), np.float32(baseline)
    is_better = value < bound if minimize else value > bound
    return "" if is_better else f"no better than a constant answer ({baseline:.4f})"


def _is_metric(key):
    return key not in ("global_step", "best") and not key.startswith("best ")


def format_value(value, number=np.float32):
    """Shortest text of a number as one of a type, integers as they are."""
    return str(value) if isinstance(value, int) else str(number(value))


def lines(metrics, step, form=SHORT):
    """The lines ``key = value`` of a checkpoint."""
    values = {**metrics, "global_step": step}
    return [f"{key} = {format_value(value, form.number)}" for key, value in sorted(values.items())]


def make_block(metrics, step, best_value=None, form=SHORT, metric=None):
    """The `Block` of a checkpoint; with a line for the best value so far, if there is one.

    Args:
      metrics: its scores.
      step: its step.
      best_value: the best value so far, or None.
      form: `Form`.
      metric: the one that picks the best, where the form says so.
    """
    text = lines(metrics, step, form)
    if best_value is not None:
        text.append(f"{form.best.format(metric)} = {best_value}")
    return Block(step, dict(metrics), "\n".join(text))


def display(block):
    """The scores and the step of a block under a title, as an evaluation of the reference ends."""
    shown = [line for line in block.text.splitlines() if not line.startswith("best ")]
    return "\n".join(["***** Eval results *****", *(f"  {line}" for line in shown)])


def put(blocks, block):
    """The blocks with one more: in place of that of its step, else before those of later steps."""
    blocks = [other for other in blocks if other.step is None or other.step != block.step]
    later = (
        i for i, other in enumerate(blocks) if other.is_summary or (other.step or 0) > block.step
    )
    place = next(later, len(blocks))
    return [*blocks[:place], block, *blocks[place:]]


def read_blocks(folder):
    """The blocks of a folder's ``eval_results.txt``; [] without one.

    Arrays, which the reference writes for STS-B, are no values; they stay in the text. A summary
    that only repeats a block is left out.

    Raises:
      file_io.InputError: a value in it is not a number.
    """
    path = os.path.join(folder, RESULTS)
    if not file_io.exists(path):
        return []
    blocks = []
    for text in file_io.read_text(path, "results").split(_RULE):
        pairs = (line.split(" = ") for line in text.splitlines() if " = " in line)
        pairs = (pair for pair in pairs if not pair[1].startswith("["))
        try:
            values = {key: float(value) for key, value in pairs}
            step = int(values["global_step"]) if "global_step" in values else None
        except (ValueError, OverflowError) as error:  # a step that is infinite
            raise file_io.InputError(
                f"{path}: expected lines `key = number`: {error}; move it away"
            ) from error
        if text.strip():
            blocks.append(Block(step, values, text.strip()))
    steps = {f"{_SUMMARY} {block.step}" for block in blocks}
    return [b for b in blocks if not (b.is_summary and b.text.splitlines()[-1] in steps)]


def write_blocks(folder, blocks, best_step=None):
    """Writes ``eval_results.txt``.

    Args:
      folder: output folder.
      blocks: list of `Block`.
      best_step: of the best checkpoint, for a summary at the end; None: the one that is there.
    """
    summaries = [block.text for block in blocks if block.is_summary]
    for block in blocks:
        if best_step is not None and block.step == best_step:
            scores = [line for line in block.text.splitlines() if _is_metric(line.split(" = ")[0])]
            summaries = ["\n".join([*scores, f"{_SUMMARY} {best_step}"])]
    text = "".join(f"{block.text}\n{_RULE}\n" for block in blocks if not block.is_summary)
    text += "".join(f"{summary}\n" for summary in summaries)
    file_io.write_text(os.path.join(folder, RESULTS), text)


def read_trial(folder):
    """The `Trial` of a folder; None without one.

    Raises:
      file_io.InputError: the file is damaged.
    """
    path = os.path.join(folder, BEST_TRIAL)
    if not file_io.exists(path):
        return None
    text = file_io.read_text(path, "best trial").strip()
    try:
        last, best, value = text.split(":")
        trial = Trial(int(last), int(best), float(value))
        if not abs(trial.best_value) < _NO_SCORE:
            raise ValueError("no score")
        return trial
    except ValueError as error:
        raise file_io.InputError(
            f"{path}: expected step:best_step:best_value with a score that can be beaten, found "
            f"{text!r}; move it away, and the checkpoints are compared anew"
        ) from error


def write_trial(folder, trial):
    """Writes ``best_trial.txt``."""
    file_io.write_text(os.path.join(folder, BEST_TRIAL), ":".join(map(str, trial)))


def remove_trial(folder):
    """Deletes ``best_trial.txt``."""
    file_io.remove(os.path.join(folder, BEST_TRIAL))
