"""The base of predictors: encodes examples, computes batches, and decodes the outputs.

Letters in shapes: B batch, N inputs of some examples, S sequence.
"""

import abc
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any, ClassVar, Generic, TypeVar

import numpy as np

from albert.io import tables
from albert.model import batching, model_folder
from albert.serving import inference, requests, tensors
from albert.tasks import example_data
from albert.text import model_inputs

Arrays = batching.Arrays
Example = TypeVar("Example")
Notes = TypeVar("Notes")
Result = TypeVar("Result")


@dataclasses.dataclass(frozen=True)
class _Part(Generic[Example, Notes]):
    """Some examples with the results of `BatchedModel._encode`."""

    examples: list[Example]
    inputs: Arrays
    notes: Notes

    @property
    def num_inputs(self) -> int:
        return len(self.inputs["input_mask"])


class BatchedModel(abc.ABC, Generic[Example, Notes, Result]):
    """A function of arrays that is applied to examples, in batches of inputs of similar length."""

    infer: batching.Infer  # arrays [B, ...] by name of int32 arrays [B, S] by name
    min_length = 1  # minimum S of a batch

    @abc.abstractmethod
    def _encode(self, examples: Sequence[Example]) -> tuple[Arrays, Notes]:
        """Returns the inputs of examples, int32 [N, S] by name, and what `_decode` needs."""

    @abc.abstractmethod
    def _decode(
        self, examples: Sequence[Example], notes: Notes, outputs: Sequence[Arrays]
    ) -> Iterable[Result]:
        """Returns the results of examples from what `_encode` and `_compute` returned."""

    def _scores(self, outputs: Arrays, inputs: Arrays) -> Arrays:
        """Returns the outputs of a batch that `_decode` needs."""
        return outputs

    def _compute(self, inputs: Arrays, batch_size: int) -> list[Arrays]:
        """Computes the outputs of each of N inputs, whose S is that of their batch."""
        rows: list[Arrays] = [{}] * len(inputs["input_mask"])
        for indices, batch in batching.trimmed_batches(inputs, batch_size, self.min_length):
            outputs = self.infer(batch)
            batching.check_finite(outputs)
            arrays = self._scores(outputs, batch)
            for place, index in enumerate(indices):
                rows[index] = {name: values[place] for name, values in arrays.items()}
        return rows

    def _predict(
        self, examples: Iterable[Example], batch_size: int, batches_ahead: int
    ) -> Iterator[Result]:
        """Yields the result of each example, in order; reads only so many batches ahead."""
        for parts in self._parts(examples, batch_size, batch_size * batches_ahead):
            names = parts[0].inputs
            inputs = {name: np.concatenate([part.inputs[name] for part in parts]) for name in names}
            outputs = iter(self._compute(inputs, batch_size))
            for part in parts:
                own = list(itertools.islice(outputs, part.num_inputs))
                yield from self._decode(part.examples, part.notes, own)

    def _parts(
        self, examples: Iterable[Example], size: int, min_inputs: int
    ) -> Iterator[list[_Part[Example, Notes]]]:
        """Yields parts of `size` examples, as many at a time as have `min_inputs` inputs."""
        examples = iter(examples)
        parts: list[_Part[Example, Notes]] = []
        while some := list(itertools.islice(examples, size)):
            parts.append(_Part(some, *self._encode(some)))
            if sum(part.num_inputs for part in parts) >= min_inputs:
                yield parts
                parts = []
        if parts:
            yield parts


def stacked(features: Sequence[example_data.Features]) -> Arrays:
    """Returns the inputs [N, S] of N features [S]; others are left out."""
    return {
        name: np.stack([row[name] for row in features]).astype(np.int32)
        for name in model_inputs.NAMES
    }


class Predictor(BatchedModel[Example, Notes, Result]):
    """A fine-tuned model that answers examples.

    Args:
      model_dir: folder of a training run, whose best checkpoint is used, or else its last, or a
        serving folder.
      runtime: of a serving folder: key of `runtimes.RUNTIMES`, or "auto".
      threads: number of threads for a serving folder; None: one per core.
    """

    kinds: ClassVar[tuple[str, ...]]  # of models, see `kinds.KINDS`
    form: requests.RequestSchema
    metric: str  # name of the score
    gives_numbers = False  # whether its answers are numbers, which are equal if they are close
    # Formats of files without labels that it reads, and of files that it writes; the first one is
    # also used for standard input or output.
    input_forms: tuple[str, ...] = ("jsonl",)
    output_forms: tuple[str, ...] = ("jsonl",)
    batches_ahead = 64  # number of batches of a file that `predict` should read at a time

    def __init__(
        self,
        model_dir: str | inference.FoundModel,
        runtime: str = "auto",
        threads: int | None = None,
    ) -> None:
        model = inference.find(model_dir, *self.kinds)
        folder = model.folder
        # S of the training.
        self.max_seq_length = folder.length(minimum=self._read_settings(folder))
        self.tokenizer = model_folder.load_tokenizer(folder.source, folder.config)
        self.infer = model.load(runtime, threads)
        self._finish(model)

    @abc.abstractmethod
    def _read_settings(self, folder: model_folder.ModelFolder) -> int:
        """Reads the settings of the training; returns the minimum length of the model's input."""

    def _finish(self, model: inference.FoundModel) -> None:
        """Prepares what needs the tokenizer."""

    # --- examples ---

    @abc.abstractmethod
    def read_lines(
        self, lines: Iterable[bytes], name: str, form: str, *, skipped: list[str] | None = None
    ) -> Iterator[Example]:
        """Yields the examples of a file without labels.

        Args:
          form: one of `input_forms`.
          skipped: gets the places of examples without text, which are skipped, while the others
            keep their numbers; None: they raise `tables.NoTextError`.
        """

    @abc.abstractmethod
    def read(self, path: str, labeled: bool) -> tuple[list[Example], list | None]:
        """Returns the examples of a file and their gold answers, None if it has none.

        `labeled`: whether a file of texts or words must have labels.
        """

    @abc.abstractmethod
    def read_request(self, fields: dict[str, Any]) -> Any:
        """Returns what `predict` takes for fields that `form` has read from a request."""

    # --- predictions ---

    @abc.abstractmethod
    def predict(
        self, examples: Iterable[Any], batch_size: int = 32, batches_ahead: int = 1
    ) -> Iterator[Result]:
        """Yields a result for each example, in order; memory use does not depend on their number.

        It reads `batches_ahead` batches of inputs at a time, to batch those of similar length.
        """

    def batch_size(self, examples: Sequence[Any]) -> int:
        """Returns the batch size for examples of requests that are computed together."""
        return len(examples)

    @abc.abstractmethod
    def to_json(self, result: Result) -> dict[str, Any]:
        """Returns a JSON-ready result."""

    @abc.abstractmethod
    def tensors(self) -> tuple[tensors.Tensor, ...]:
        """Returns the fields of results of `to_json` that protocols with tensors have."""

    def write(self, file: IO[str], form: str, results: Iterable[Result]) -> None:
        """Writes results in one of `output_forms`."""
        file.writelines(tables.json_line(self.to_json(result)) for result in results)

    # --- scores ---

    @abc.abstractmethod
    def answers(self, results: Iterable[Result]) -> list:
        """Returns one answer per example or per word, to compare and score."""

    @abc.abstractmethod
    def score(self, gold: list, answers: list) -> float:
        """Returns the score of answers, from 0 to 100."""
