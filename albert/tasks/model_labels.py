"""The head of a model that a run starts from or uses: its kind, and the names of its labels.

The names come from the model's folder, in the order of the head's outputs: from ``model.json``, or
from the ``config.json`` of Hugging Face. A run takes this order, so that no output changes its
meaning. Arguments: `kind` is a key of `kinds.KINDS`; `labels` are empty for a regression.
"""

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence

from absl import logging

from albert.io import file_io, tables
from albert.model import huggingface, sources

# Ending of a class of transformers -> the kind of its models here, see `kinds.KINDS`.
_KINDS = {
    "ForSequenceClassification": "classifier",
    "ForTokenClassification": "token_classifier",
    "ForMultipleChoice": "multiple_choice",
    "ForQuestionAnswering": "squad_v1",
}
MULTI_LABEL = "multi_label_classifier"  # kind of models with several labels per text
_WITH_LABELS = ("classifier", "token_classifier")
_OWN_DATA = "custom"  # name of a task that may have any labels


@dataclasses.dataclass(frozen=True)
class ModelHead:
    """The head of a fine-tuned model.

    Attributes:
      path: file that describes the head.
      kind: what it computes; one of `kinds.KINDS`, or a name of what is not supported.
      labels: names by id; empty without labels, as in a regression.
      task_name: task of the training; None if it is not known.
    """

    path: str
    kind: str
    labels: tuple[str, ...] = ()
    task_name: str | None = None

    @property
    def is_unnamed(self) -> bool:
        """Returns whether the labels only have transformers' default names, such as LABEL_0."""
        return bool(self.labels) and self.labels == huggingface.default_labels(len(self.labels))

    def is_of_other_task(self, task_name: str | None, labels: Sequence[str]) -> bool:
        """Returns whether this is the head of another GLUE task with as many, but other labels.

        To start from it is transfer between tasks, not a mistake.

        Args:
          task_name: GLUE task of the run; None: the user's own data.
        """
        tasks = [name for name in (self.task_name, task_name) if name and name != _OWN_DATA]
        is_other = len(tasks) == 2 and tasks[0] != tasks[1]
        return is_other and len(labels) == len(self.labels) and {*labels} != {*self.labels}

    def order(
        self,
        kind: str,
        labels: Sequence[str],
        words: Mapping[str, str] | None = None,
        data: str = "the data",
    ) -> tuple[str, ...] | None:
        """Returns the labels of a run in the order of the outputs of this head.

        Labels without names are matched with numbers from 0 only: no other order is certain.

        Args:
          words: {label of the run: the name that the model may have for it}; None: no others.

        Returns:
          All labels of the model, under the names of the run; () for a regression. None if the run
          needs a new head: the model is of another kind, lacks some labels and has another number
          of them, or has no names for them.

        Raises:
          file_io.InputError: as many labels, but others; shows both.
        """
        if self.kind != kind or bool(self.labels) != bool(labels):
            return None
        if self.is_unnamed:
            by_number = {tables.label_key(label): label for label in labels}
            numbers = [str(i) for i in range(len(self.labels))]
            if set(by_number) == set(numbers):
                return tuple(by_number[number] for number in numbers)
            return self.labels if tuple(labels) == self.labels else None
        names = self._names(labels, words or {})
        ordered = tuple(names.get(label, label) for label in self.labels)
        foreign = [label for label in labels if label not in ordered]
        if foreign and len(labels) == len(self.labels):
            raise file_io.InputError(
                f"{data} has labels {tables.name_list(foreign)}, which the model to start from "
                f"does not have: it has {tables.name_list(self.labels)} ({self.path}). Name the "
                "labels as the model does, there or in the data, or start with a new head "
                "(new_head)"
            )
        return None if foreign else ordered

    def means(
        self, kind: str, labels: Sequence[str], words: Mapping[str, str] | None = None
    ) -> bool:
        """Returns whether the outputs of this head are the given labels.

        Args:
          words: {label: its meaning}, which may also name the head's labels; None: none.
        """
        if self.kind != kind or len(self.labels) != len(labels):
            return False
        if self.is_unnamed and tuple(labels) != self.labels:
            return [*map(tables.label_key, labels)] == [str(i) for i in range(len(labels))]
        names = self._names(labels, words or {})
        return [names.get(label) for label in self.labels] == list(labels)

    def _names(self, labels: Sequence[str], words: Mapping[str, str]) -> dict[str, str]:
        """Returns {label of the model: label of a run} for those that mean the same."""
        label_of_key = {_key(words[label]): label for label in labels if label in words}
        label_of_key |= {_key(label): label for label in labels}
        keys = {_key(label) for label in self.labels}
        if len(keys) < len(self.labels) or len(set(label_of_key.values())) < len(labels):
            return {label: label for label in labels}  # Some differ in case only.
        return {
            label: label_of_key[_key(label)] for label in self.labels if _key(label) in label_of_key
        }

    def difference(self, kind: str, labels: Sequence[str]) -> str:
        """Describes this head and the one that a run needs, for messages."""
        ours, theirs = _described(kind, labels), _described(self.kind, self.labels)
        if not self.is_unnamed or len(labels) != len(self.labels):
            return f"{self.path} describes a head of {theirs}; this run needs one of {ours}"
        return (
            f"{self.path} gives its {len(self.labels)} labels no names "
            f"({tables.name_list(self.labels)}), so which of them is which of "
            f"{tables.name_list(labels)} is unknown; id2label in config.json can name them"
        )


def read(checkpoint: str) -> ModelHead | None:
    """Reads the head of a checkpoint from the files in its folder; None without a description.

    Args:
      checkpoint: prefix, or file of Hugging Face weights.
    """
    return read_folder(os.path.dirname(checkpoint) or ".")


def read_folder(folder: str) -> ModelHead | None:
    """Reads the head of the model in a folder; None without a description."""
    path = os.path.join(folder, sources.DESCRIPTION_NAME)
    if not file_io.exists(path):
        return _read_huggingface(folder)
    description = file_io.read_json(path, "model description", dict)
    kind, settings = description.get("kind"), description.get("settings")
    if not isinstance(kind, str) or not isinstance(settings, dict):
        return None
    labels = settings.get("labels", [])
    if not (isinstance(labels, list) and all(map(tables.is_name, labels))):
        raise file_io.InputError(f"{path}: the labels are invalid: {labels!r}")
    return ModelHead(path, kind, tuple(labels), settings.get("task_name"))


def _read_huggingface(folder: str) -> ModelHead | None:
    """Reads the head from the ``config.json`` of a folder; None if it has none."""
    config = huggingface.read_config(folder)
    kind = _KINDS.get(huggingface.class_ending(config) or "")
    if kind is None:
        return None
    path = os.path.join(folder, huggingface.CONFIG_NAME)
    if kind not in _WITH_LABELS:
        return ModelHead(path, kind)
    labels, problem = huggingface.read_labels(folder), config.get("problem_type")
    if kind == "classifier" and problem == "multi_label_classification":
        return ModelHead(path, MULTI_LABEL, labels)
    if kind == "classifier" and (problem == "regression" or len(labels) == 1):
        return ModelHead(path, kind if len(labels) == 1 else "regression of several numbers")
    return ModelHead(path, kind, labels)


def report(head: ModelHead, labels: Sequence[str], sorted_labels: Sequence[str]) -> None:
    """Logs the order of labels that comes from a model, if it is not the usual, sorted one."""
    if head.is_unnamed:
        logging.info(
            "%s gives its labels no names: the labels %s are taken as their numbers",
            head.path,
            tables.name_list(labels),
        )
    elif tuple(labels) != tuple(sorted_labels):
        logging.info(
            "The labels and their order are those of %s: %s", head.path, tables.name_list(labels)
        )


def _key(name: str) -> str:
    """Returns what the spellings of a name have in common, such as NOT_ENTAILMENT."""
    return re.sub(r"[\s_-]+", "_", tables.label_key(name).casefold())


def _described(kind: str, labels: Sequence[str]) -> str:
    """Returns kind and labels of a model in words."""
    if labels:
        return f"the kind {kind} with {len(labels)} labels: {tables.name_list(labels)}"
    return f"the kind {kind}{' for numbers' if kind == 'classifier' else ''}"
