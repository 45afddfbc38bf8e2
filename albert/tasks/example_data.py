"""Data that is read from files as examples, whose features are kept in record files."""

import abc
import dataclasses
import functools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import numpy as np
from absl import logging

from albert.io import file_io
from albert.tasks import outcomes, prediction_files
from albert.text import model_inputs
from albert.training import contracts

if TYPE_CHECKING:
    import tensorflow as tf


Features = Mapping[str, np.ndarray | np.generic]  # of one example by name


@dataclasses.dataclass(frozen=True)
class FeatureCache:
    """The files that keep the features of a task.

    Attributes:
      paths: {split: path of its TFRecord file}.
      settings: JSON-ready dict of everything that the features depend on, except the data.
      shared: splits whose folder may also have records made with other settings, see
        `record_files.shared_name`.
    """

    paths: Mapping[str, str]
    settings: Mapping[str, Any]
    strategy: "tf.distribute.Strategy"
    shared: Sequence[str] = ()


class Example(Protocol):
    """An example of a task; `guid` identifies it in its split."""

    @property
    def guid(self) -> Any:
        """The id, which JSON can store."""


E = TypeVar("E", bound=Example)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExampleData(contracts.Data, Generic[E]):
    """The data of a task that reads examples."""

    name: str
    cache: FeatureCache

    @property
    def remedy(self) -> str:
        """Returns what ends the log's sentence on texts that were cut."""
        return ""

    @abc.abstractmethod
    def examples(self, split: str) -> Iterable[E]:
        """Reads the examples of the split "train", "dev" or "test"."""

    @abc.abstractmethod
    def inputs(self, number: int, example: E, cuts: model_inputs.Cuts) -> Iterable[Features]:
        """Returns the features of each record of an example: arrays by name.

        Args:
          number: number of the example in its split.
          cuts: counts what is cut, for the log.
        """

    @abc.abstractmethod
    def fingerprint(self, split: str) -> Mapping[str, Any]:
        """Returns a JSON-ready dict that identifies the data of a split, such as its SHA-256."""

    @abc.abstractmethod
    def write_files(
        self, output_dir: str, rows: contracts.Rows, ids: list[str]
    ) -> dict[str, float] | None:
        """Writes the files of predictions that only this task has.

        Args:
          rows: {name: array [B, …]}, outputs of `contracts.Task.eval_outputs`.
          ids: those of the B examples.

        Returns:
          The scores by name; None if the labels are not known.
        """

    @abc.abstractmethod
    def outcomes(self, rows: contracts.Rows, ids: list[str]) -> Iterator[outcomes.Outcome] | None:
        """Yields label and prediction of each example; None if the labels are not known."""

    def make_records(self, split: str) -> list[str]:
        """Returns [path of the TFRecord file] of a split; makes it if it is missing or outdated."""
        from albert.data import record_files
        from albert.training import distribution

        cache, specs, cuts = self.cache, self.specs(split), model_inputs.Cuts()
        path = cache.paths[split]
        made_with = {
            **cache.settings, "task": self.name, "split": split, **self.fingerprint(split)
        }  # fmt: skip
        # Workers on the chief's file system use its file; others make an identical one.
        with distribution.chief_first(cache.strategy):
            if split in cache.shared:
                path = record_files.shared_name(path, specs, made_with)
            rows = self._rows(split, cuts)
            describe = functools.partial(dataclasses.asdict, cuts)
            if split == "test":
                count = record_files.cached_with_ids(path, specs, made_with, lambda: rows, describe)
            else:
                write = functools.partial(record_files.write, facts=describe)
                features = (row for _, row in rows)
                count = record_files.cached(path, specs, made_with, lambda: features, write)
        # Records that were made earlier know what was cut then.
        facts = record_files.read_facts(path)
        if facts.keys() == dataclasses.asdict(cuts).keys():
            cuts = model_inputs.Cuts(**facts)
            log = logging.warning if cuts.cut else logging.info
            log("%s: %s%s", path, cuts.describe(), self.remedy if cuts.cut else "")
        if not count:
            raise file_io.InputError(f"the {split} data of {self.name} has no examples")
        return [path]

    def _rows(self, split: str, cuts: model_inputs.Cuts) -> Iterator[tuple[Any, Features]]:
        """Yields (id, features) of each record; None as the id of others of the same example."""
        for number, example in enumerate(self.examples(split)):
            for place, features in enumerate(self.inputs(number, example, cuts)):
                yield None if place else example.guid, features

    def read_ids(self) -> list[str]:
        """Returns the ids of all examples to predict, in the order of the records."""
        from albert.data import record_files

        ids = record_files.read_ids(self.cache.paths["test"])
        assert ids is not None, "make_records writes them"
        return ids

    def write_predictions(
        self, output_dir: str, rows: contracts.Rows, ids: list[str], prefix: str
    ) -> dict[str, float] | None:
        """Writes predictions; with labels also `outcomes`, and returns {score: number}.

        Args:
          rows: outputs of `contracts.Task.eval_outputs` for each record.
          ids: ids of the examples, in the order of the records, see `read_ids`.
          prefix: path of the checkpoint that computed the rows.
        """
        outcomes.remove(output_dir)
        file_io.remove(os.path.join(output_dir, prediction_files.SCORES))
        scores = self.write_files(output_dir, rows, ids)
        known = self.outcomes(rows, ids)
        if known is not None:
            outcomes.write(output_dir, known)
        return scores
