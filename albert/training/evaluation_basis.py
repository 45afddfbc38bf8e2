"""Describes what a score was measured on: files, labels, settings and metric.

A score belongs to its basis: scores of another basis do not compete with it, are not averaged with
it and are not compared with it. ``run.json`` keeps the basis of the results of a folder.
"""

import dataclasses
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from albert.io import file_io
from albert.model import decision as decisions
from albert.model import sources

# Flags that choose the examples of an evaluation. Its files, labels and columns also do.
_EXAMPLES = (
    *("eval_fraction", "answerable_only", "drop_longer_than", "high_only", "middle_only"),
    "max_eval_steps",
)
# Flags that choose the files of an evaluation, and its labels.
_FILES = (
    *("task_name", "data_dir", "validation_file", "eval_file", "predict_file", "eval_input_file"),
    *("label_column", "label_type"),
)
# Flags that change how a model reads or answers these examples. Runs that are compared may differ
# in them, the evaluations of one run may not.
_READING = (
    *("max_seq_length", "max_query_length", "doc_stride", "max_qa_length", "long_texts"),
    *("n_best_size", "max_answer_length", "start_n_top", "end_n_top"),
    *("max_predictions_per_seq", "masked_lm_prob", "ngram"),
    *("favor_shorter_ngram", "do_whole_word_mask", "do_permutation"),
    *("blimp_data_dir", "blimp_limit"),
)
READING, METRIC = "reading", "metric"  # parts of a basis
_MAX_SHOWN = 60  # characters of a value in messages


class DifferenceError(file_io.InputError):
    """Scores that were not measured on the same are to be compared."""


@dataclasses.dataclass(frozen=True)
class Basis:
    """The files, labels, settings and metric of a score; what is unknown has no entry.

    Attributes:
      path: file or folder, for messages.
      examples: {setting: value} of the choice of examples and of their right answers.
      reading: {setting: value} of how the model reads and answers them.
      metric: score that picks the best checkpoint; None if unknown.
    """

    sha256: str | None = None
    path: str = ""
    examples: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    reading: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    metric: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Returns the JSON-ready {attribute: value}."""
        return json.loads(json.dumps(dataclasses.asdict(self)))

    def differences(self, other: "Basis", *parts: str) -> list[str]:
        """Returns the differences of two bases, such as "eval_fraction 0.1 and 1.0".

        What is unknown in one of them is not compared.

        Args:
          *parts: what to compare in addition to data and examples: `READING`, `METRIC`.
        """
        texts = []
        if None not in (self.sha256, other.sha256) and self.sha256 != other.sha256:
            ends = [f"{basis.path} (SHA-256 {basis.sha256:.16}…)" for basis in (self, other)]
            texts.append(f"data {ends[0]} and {ends[1]}")
        pairs = [(self.examples, other.examples)]
        pairs += [(self.reading, other.reading)] if READING in parts else []
        pairs += [(self._metrics, other._metrics)] if METRIC in parts else []
        for ours, theirs in pairs:
            for name in ours:
                if name in theirs and ours[name] != theirs[name]:
                    texts.append(f"{name} {_shown(ours[name])} and {_shown(theirs[name])}")
        return texts

    @property
    def _metrics(self) -> dict[str, str]:
        """{`METRIC`: name of the score}; {} if it is unknown."""
        return {METRIC: self.metric} if self.metric else {}


def choose_examples(flags: Iterable[str]) -> list[str]:
    """Returns those names of flags that change which examples or labels are evaluated."""
    return [name for name in flags if name in (*_EXAMPLES, *_FILES)]


def _shown(value: Any) -> str:
    """Returns a value of JSON as text, cut off if it is long."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


def from_values(
    flags: Mapping[str, Mapping[str, Any]],
    task: str | None,
    metric: str | None,
    data: Mapping[str, Any] | None,
    description: Mapping[str, Any] | None,
) -> Basis:
    """Returns the basis of a run's evaluations.

    Args:
      flags: {name: {"value": …}} of its script.
      data: entry of the evaluated data in ``run.json``, with "sha256" and "path"; None if unknown.
      description: settings in ``model.json``, with "labels", "columns" and thresholds; None if
        unknown.
    """
    values = {name: flag["value"] for name, flag in flags.items()}
    examples = {"task": task} if task else {}
    examples |= _from_description(description or {})
    examples |= {name: values[name] for name in _EXAMPLES if name in values}
    if "max_eval_steps" in values and "eval_batch_size" in values:
        examples["max_eval_steps"] *= values["eval_batch_size"]
        examples["max_eval_examples"] = examples.pop("max_eval_steps")
    reading = {name: values[name] for name in _READING if name in values}
    if values.get("eval_fraction", 1) != 1 and "seed" in values:
        reading["seed"] = values["seed"]  # draws the fraction
    if description is not None:
        reading["thresholds at temperature 1"] = _thresholds(description)
    data = data or {"sha256": None, "path": ""}
    basis = Basis(data["sha256"], data["path"], examples, reading, metric)
    return Basis(**basis.to_dict())  # as it is read from JSON


def _from_description(description: Mapping[str, Any]) -> dict[str, Any]:
    """Returns {"labels", "<name> column"} of the data from the settings in ``model.json``."""
    parts: dict[str, Any] = {}
    labels = description.get("labels")
    if isinstance(labels, list):
        parts["labels"] = sorted(map(str, labels))  # Their order changes no score.
    columns = description.get("columns")
    for name, column in columns.items() if isinstance(columns, dict) else ():
        if name != "guid":  # Ids change no score.
            parts[f"{name} column"] = column or ""
    return parts


def _thresholds(description: Mapping[str, Any]) -> list[float]:
    """Returns the thresholds of labels in the settings in ``model.json``; [] without any.

    They are those at temperature 1, as another temperature changes no answer.
    """
    try:
        decision = decisions.Decision.from_settings(description)
    except file_io.InputError:
        return []  # Programs that use the model say what is wrong with it.
    return [round(threshold, 6) for threshold in decision.with_temperature(1.0).thresholds]


def from_record(folder: str, record: Mapping[str, Any]) -> Basis:
    """Returns the basis of a folder's run from the content of a ``run.json`` without it."""
    inputs = record["inputs"]
    data = inputs.get("eval_data") or inputs.get("predict_data")
    task = record.get("task")
    return from_values(
        record["flags"], task, record.get("best_metric"), data, _read_description(folder)
    )


def _read_description(folder: str) -> dict[str, Any] | None:
    """Returns the settings in the ``model.json`` of a run's folder; None without them."""
    path = os.path.join(folder, sources.DESCRIPTION_NAME)
    try:
        content = file_io.read_json(path, "description") if file_io.exists(path) else {}
    except file_io.InputError:
        return None  # Programs that use the model say what is wrong with it.
    settings = content.get("settings") if isinstance(content, dict) else None
    return settings if isinstance(settings, dict) else None


def check_same(names: Sequence[str], bases: Sequence[Basis], *parts: str) -> None:
    """Checks that scores of several runs were measured on the same.

    Args:
      names: a name for each run, for messages.
      *parts: what to compare in addition to data and examples: `READING`, `METRIC`.

    Raises:
      DifferenceError: two differ; names them and what differs.
    """
    for name, basis in zip(names[1:], bases[1:], strict=True):
        if texts := bases[0].differences(basis, *parts):
            raise DifferenceError(
                f"runs: {names[0]} and {name} were not evaluated on the same, so their scores "
                f"cannot be compared: {'; '.join(texts)}"
            )
