"""Reads and writes the scores of an output folder: ``eval_results.txt`` and ``best_trial.txt``.

``eval_results.txt`` has a block per evaluated checkpoint: lines ``key = value`` and a separator.
For SQuAD it ends with a summary: the scores of the best checkpoint and its step. ``best_trial.txt``
has ``step:best_step:best_value``: the last evaluated step, the best step and its score.
``average_results.txt`` has a block with the scores of the averaged weights.
"""

import math
import os
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from albert.io import file_io

RESULTS = "eval_results.txt"
AVERAGE_RESULTS = "average_results.txt"
BEST_TRIAL = "best_trial.txt"
NOT_BETTER = "no better than a constant answer"  # how such a remark begins
MACRO_F1 = "macro_f1"  # the mean F1 of the classes
NEVER = "never predicted"  # how a remark on classes begins
_MAX_CLASSES = 8  # classes that a remark names
_MAX_TABLE, _MAX_NAME = 20, 30  # rows of the log's table of classes, characters of a name
UNDEFINED = "undefined"  # a score that is the same for any answers
_RULE = "=" * 50
_SUMMARY = "best perf happened at step:"
_OF_LOSSES = ("_loss", "_brier", "_ece")  # ends of names of scores that are better if lower
_OF_CLASSES = ("f1_", "precision_", "recall_", "average_precision_", "support_")  # their begins
_FRACTIONS = ("accuracy", "f1", "precision", "recall", "exact")  # parts of names of scores
_NEVER_NEGATIVE = ("learning_rate", "gradient_norm", "examples_per_second")
_MAX_SCORE = 1e40  # maximum absolute value; squares of float32 labels are losses too

Scores = dict[str, float]  # {name: number}; counts are integers


class Block(NamedTuple):
    """The block of one checkpoint in ``eval_results.txt``.

    Attributes:
      step: step of the checkpoint; None if the block does not have it.
      values: {key: number} of the lines.
      text: the lines, without the separator.
    """

    step: int | None
    values: dict
    text: str

    @property
    def metrics(self) -> dict[str, float]:
        """{name: score}: the values without the step and the best value so far."""
        return {key: value for key, value in self.values.items() if _is_metric(key)}

    @property
    def is_summary(self) -> bool:
        """Tells whether this is the summary at the end of SQuAD's results."""
        return _SUMMARY in self.text


class ResultsFormat(NamedTuple):
    """The format of a task's results, which differs between the scripts of the reference.

    Attributes:
      number: type whose shortest decimal text represents a number.
      best: name of the line with the best value so far; {} is the metric.
      has_summary: whether the file ends with a summary.
      added: names of scores that the reference does not have; their lines follow its lines.
      by_class: names of the scores of single classes, the last lines; the log has `class_table`.
      writes_added: whether the file has these lines; if not, it has that of the metric by which
        the best is chosen.
    """

    number: type
    best: str
    has_summary: bool
    added: tuple[str, ...] = ()
    by_class: tuple[str, ...] = ()
    writes_added: bool = True


SHORT = ResultsFormat(np.float32, "best", has_summary=False)
SQUAD = ResultsFormat(float, "best {}", has_summary=True)


class Trial(NamedTuple):
    """The content of ``best_trial.txt``."""

    last_step: int
    best_step: int
    best_value: float


def is_loss(metric: str) -> bool:
    """Returns whether lower values of a metric are better, judged by its name."""
    if metric.startswith(_OF_CLASSES):  # the name of a label follows
        return False
    return metric in ("loss", "MSE", "MAE") or metric.endswith(_OF_LOSSES)


def bounds(metric: str, in_percent: bool = False) -> tuple[float, float]:
    """Returns the lowest and highest value that a metric can have, judged by its name.

    Args:
      in_percent: whether F1 and exact matches are percent, as those of questions.
    """
    if metric == "R2":
        return -math.inf, 1.0
    if metric.startswith(_OF_CLASSES) and not metric.startswith("support"):
        return 0.0, 1.0
    if is_loss(metric) or metric in _NEVER_NEGATIVE:
        return 0.0, math.inf
    if any(word in metric for word in ("pearson", "spearman", "corr")):
        return -1.0, 1.0
    if in_percent and any(word in metric for word in ("f1", "exact")):
        return 0.0, 100.0
    is_fraction = any(word in metric for word in _FRACTIONS)
    return (0.0, 1.0) if is_fraction else (-math.inf, math.inf)


def best_of(metric: str, counts: Iterable[int | None]) -> str:
    """Returns the label of a score that is the best of several checkpoints.

    Args:
      counts: number of evaluated checkpoints of each run; None if unknown.
    """
    values = sorted({count for count in counts if count})
    if not values:
        return metric
    number = "one checkpoint" if values[-1] == 1 else f"best of {values[-1]} checkpoints"
    if values[0] < values[-1]:
        number = f"best of {values[0]} to {values[-1]} checkpoints"
    return f"{metric} (dev, {number})"


def remark_on_baseline(value: float | None, baseline: float | None, minimize: bool) -> str:
    """Returns a remark on a score that is no better than a constant answer's; else "".

    Args:
      baseline: score of the best constant answer, such as the majority label, the mean of the
        numbers or no answer at all; None if unknown.
    """
    if value is None or baseline is None or np.isnan(value) or np.isnan(baseline):
        return ""
    # Scores are written as float32.
    score, bound = np.float32(value), np.float32(baseline)
    is_better = score < bound if minimize else score > bound
    return "" if is_better else f"{NOT_BETTER} ({baseline:.4f})"


def find_better_start(blocks: Iterable[Block], value: float | None, metric: str) -> float | None:
    """Returns the score of step 0, before training, if it is better than a score; else None."""
    start = next((block.values.get(metric) for block in blocks if block.step == 0), None)
    if start is None or value is None:
        return None
    # The file has the digits of float32: an equal score would differ in further ones.
    one, other = np.float32(start), np.float32(value)
    return start if (one < other if is_loss(metric) else one > other) else None


class ClassCount(NamedTuple):
    """The examples of a class in an evaluation.

    Attributes:
      name: the label; for entities their type.
      labels, predictions, right: examples with this label, with this prediction, and with both.
    """

    name: str
    labels: int
    predictions: int
    right: int

    @property
    def precision(self) -> float:
        """The fraction of its predictions that are right; 0 without predictions."""
        return self.right / self.predictions if self.predictions else 0.0

    @property
    def recall(self) -> float:
        """The fraction of its labels that are found; 0 without labels."""
        return self.right / self.labels if self.labels else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall; 0 without labels and predictions."""
        total = self.labels + self.predictions
        return 2 * self.right / total if total else 0.0

    @property
    def note(self) -> str:
        """Why its scores are 0: it never occurs, or it is never predicted; else ""."""
        if not self.labels:
            return "never occurs"
        return "" if self.predictions else NEVER


def count_classes(
    names: Sequence[str], labels: np.ndarray, predictions: np.ndarray
) -> tuple[ClassCount, ...]:
    """Counts the examples of each class.

    Args:
      names: the label names by id.
      labels, predictions: ids [B].
    """
    sides = (labels, predictions, labels[labels == predictions])
    counts = [np.bincount(ids, minlength=len(names)).tolist() for ids in sides]
    return tuple(ClassCount(*row) for row in zip(names, *counts, strict=True))


def remark_on_classes(classes: Iterable[ClassCount]) -> str:
    """Returns a remark on classes that occur and are never predicted; else ""."""
    missed = [
        f"{row.name} (0 of {row.labels})" for row in classes if row.labels > row.predictions == 0
    ]
    more = f" and {len(missed) - _MAX_CLASSES} more" if len(missed) > _MAX_CLASSES else ""
    return f"{NEVER}: {', '.join(missed[:_MAX_CLASSES])}{more}" if missed else ""


def worst_first(classes: Iterable[ClassCount]) -> list[ClassCount]:
    """Returns the classes that occur in labels or predictions, those with the lowest F1 first."""
    rows = [row for row in classes if row.labels or row.predictions]
    return sorted(rows, key=lambda row: (row.f1, -row.labels))


def class_table(classes: Iterable[ClassCount]) -> str:
    """Formats the scores of classes as a table, the worst F1 first; "" if there are none."""
    rows = worst_first(classes)
    if not rows:
        return ""
    cells = [("class", "precision", "recall", "f1", "support", "")]
    for row in rows[:_MAX_TABLE]:
        precision, recall, f1 = (f"{score:.3f}" for score in (row.precision, row.recall, row.f1))
        name = row.name if len(row.name) <= _MAX_NAME else f"{row.name[: _MAX_NAME - 1]}…"
        cells.append((name, precision, recall, f1, str(row.labels), row.note))
    width = max(len(name) for name, *_ in cells)
    lines = [
        f"  {name:{width}}  {precision:>9}  {recall:>6}  {f1:>5}  {support:>7}  {note}".rstrip()
        for name, precision, recall, f1, support, note in cells
    ]
    if len(rows) > _MAX_TABLE:
        lines.append(f"  … and {len(rows) - _MAX_TABLE} more classes with a higher F1")
    return "\n".join(lines)


def _is_metric(key: str) -> bool:
    """Returns whether a key of `eval_results.txt` is the name of a score."""
    return key not in ("global_step", "best") and not key.startswith("best ")


def format_value(value: float, number: type = np.float32) -> str:
    """Formats a number as the shortest text of the given type; integers stay integers."""
    return str(value) if isinstance(value, int) else str(number(value))


def lines(metrics: Scores, step: int, form: ResultsFormat = SHORT) -> list[str]:
    """Returns the lines ``key = value`` of a checkpoint, without the scores of single classes."""
    return [*_known_lines(metrics, step, form), *_lines(_pick(form.added, metrics), form)]


def short_line(metrics: Scores, form: ResultsFormat, best: str | None = None) -> str:
    """Returns the scores the reference writes, and that named `best`: each loss once, 4 digits."""
    hidden = _added_names(form) - {best}
    if metrics.get("loss") == metrics.get("eval_loss"):
        hidden.add("loss" if best == "eval_loss" else "eval_loss")
    shown = {name: value for name, value in sorted(metrics.items()) if name not in hidden}
    return "  ".join(f"{name} {short(value)}" for name, value in shown.items())


def short(value: float) -> str:
    """Formats a score with four digits, and a count whole."""
    if isinstance(value, int):
        return str(value)
    return UNDEFINED if np.isnan(value) else f"{value:.4g}"


def _known_lines(metrics: Scores, step: int, form: ResultsFormat) -> list[str]:
    """Returns the lines that the reference also writes."""
    added = _added_names(form)
    known = {key: value for key, value in metrics.items() if key not in added}
    return _lines({**known, "global_step": step}, form)


def _added_names(form: ResultsFormat) -> set[str]:
    """Returns the names of the scores that the reference does not have."""
    return {*form.added, *form.by_class}


def _pick(names: Iterable[str], metrics: Scores) -> Scores:
    return {name: metrics[name] for name in names if name in metrics}


def _lines(scores: Scores, form: ResultsFormat) -> list[str]:
    """Returns a line ``key = value`` for each score, sorted by key."""
    return [f"{key} = {format_value(value, form.number)}" for key, value in sorted(scores.items())]


def make_block(
    metrics: Scores,
    step: int,
    best_value: float | None = None,
    form: ResultsFormat = SHORT,
    metric: str | None = None,
) -> Block:
    """Builds the `Block` of a checkpoint, with a line for the best value so far if known.

    Args:
      metric: the metric by which the best is chosen; needed if the form has its name or does not
        write all scores.
    """
    if not form.writes_added:
        left_out = _added_names(form) - {metric}
        metrics = {key: value for key, value in metrics.items() if key not in left_out}
    text = _known_lines(metrics, step, form)
    if best_value is not None:
        text.append(f"{form.best.format(metric)} = {best_value}")
    for names in (form.added, form.by_class):
        text += _lines(_pick(names, metrics), form)
    return Block(step, dict(metrics), "\n".join(text))


def display(block: Block, form: ResultsFormat = SHORT) -> str:
    """Formats the scores and the step of a block under a title, like the reference.

    The scores of single classes are left to `class_table`.
    """
    lines = [
        line
        for line in block.text.split("\n")
        if not line.startswith("best ") and line.rpartition(" = ")[0] not in form.by_class
    ]
    return "\n".join(["***** Eval results *****", *(f"  {in_words(line)}" for line in lines)])


def in_words(line: str) -> str:
    """Returns a line ``key = value`` with `UNDEFINED` for a value that is not a number."""
    return re.sub("= nan$", f"= {UNDEFINED}", line)


def put(blocks: list[Block], block: Block) -> list[Block]:
    """Returns the blocks, sorted by step, with a new one, which replaces a block of its step."""
    step = block.step or 0
    blocks = [other for other in blocks if other.step is None or other.step != block.step]
    later_blocks = (
        i for i, other in enumerate(blocks) if other.is_summary or (other.step or 0) > step
    )
    index = next(later_blocks, len(blocks))
    return [*blocks[:index], block, *blocks[index:]]


def keep_lines(blocks: Iterable[Block], block: Block) -> Block:
    """Returns a block with those lines of the block of its step, among `blocks`, that it lacks."""
    lines = [
        line for other in blocks if other.step == block.step for line in other.text.split("\n")
    ]
    names = {line.rpartition(" = ")[0] for line in block.text.split("\n")}
    pairs = [(line.rpartition(" = ")[0], line) for line in lines]
    kept = [line for name, line in pairs if name and _is_metric(name) and name not in names]
    return block._replace(text="\n".join([block.text, *kept]))


def read_blocks(folder: str, name: str = RESULTS) -> list[Block]:
    """Reads the blocks of a folder's ``eval_results.txt``; returns [] if it is missing.

    Arrays, which the reference writes for STS-B, stay in the text but are not among the values. A
    summary that only repeats a block is omitted.
    """
    path = os.path.join(folder, name)
    if not file_io.exists(path):
        return []
    blocks = []
    for text in file_io.read_text(path, "results").split(_RULE):
        # Names of classes may contain an equals sign.
        pairs = (line.rpartition(" = ")[::2] for line in text.split("\n") if " = " in line)
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
    return [b for b in blocks if not (b.is_summary and b.text.split("\n")[-1] in steps)]


def add_lines(folder: str, step: int, scores: Scores, replaced: str) -> None:
    """Adds lines to the end of a step's block.

    Args:
      scores: the content of the lines; they replace scores of the same name.
      replaced: prefix of the names of further lines to remove.
    """
    blocks = read_blocks(folder)
    for place, block in enumerate(blocks):
        if block.step == step and not block.is_summary:
            lines = block.text.split("\n")
            names = [line.rpartition(" = ")[0] for line in lines]
            kept = [
                line
                for name, line in zip(names, lines, strict=True)
                if name not in scores and not name.startswith(replaced)
            ]
            blocks[place] = block._replace(text="\n".join([*kept, *_lines(scores, SHORT)]))
    write_blocks(folder, blocks)


def write_blocks(folder: str, blocks: list[Block], best_step: int | None = None) -> None:
    """Writes ``eval_results.txt``, with a new summary of `best_step`; None keeps the old one."""
    summaries = [block.text for block in blocks if block.is_summary]
    for block in blocks:
        if best_step is not None and block.step == best_step:
            scores = [line for line in block.text.split("\n") if _is_metric(line.split(" = ")[0])]
            summaries = ["\n".join([*scores, f"{_SUMMARY} {best_step}"])]
    text = "".join(f"{block.text}\n{_RULE}\n" for block in blocks if not block.is_summary)
    text += "".join(f"{summary}\n" for summary in summaries)
    file_io.write_text(os.path.join(folder, RESULTS), text)


def write_average(folder: str, block: Block) -> None:
    """Writes ``average_results.txt`` to an output folder."""
    file_io.write_text(os.path.join(folder, AVERAGE_RESULTS), f"{block.text}\n{_RULE}\n")


def read_trial(folder: str) -> Trial | None:
    """Reads the `Trial` of a folder; returns None if its file is missing."""
    path = os.path.join(folder, BEST_TRIAL)
    if not file_io.exists(path):
        return None
    text = file_io.read_text(path, "best trial").strip()
    try:
        last, best, value = text.split(":")
        trial = Trial(int(last), int(best), float(value))
        if abs(trial.best_value) >= _MAX_SCORE:
            raise ValueError("invalid score")
        return trial
    except ValueError as error:
        raise file_io.InputError(
            f"{path}: expected step:best_step:best_value with a score below {_MAX_SCORE:g}, found "
            f"{text!r}; move the file away, then the checkpoints are compared again"
        ) from error


def write_trial(folder: str, trial: Trial) -> None:
    """Writes ``best_trial.txt`` to an output folder."""
    file_io.write_text(os.path.join(folder, BEST_TRIAL), ":".join(map(str, trial)))


def quarantine(folder: str) -> None:
    """Renames the files of results, which were measured on other data or settings."""
    for name in (RESULTS, AVERAGE_RESULTS, BEST_TRIAL):
        path = os.path.join(folder, name)
        if file_io.exists(path):
            root, ending = os.path.splitext(path)
            count = 1
            while file_io.exists(target := f"{root}.earlier{count}{ending}"):
                count += 1
            file_io.rename(path, target)


def remove_trial(folder: str) -> None:
    """Deletes ``best_trial.txt``."""
    file_io.remove(os.path.join(folder, BEST_TRIAL))
