"""One protocol for fine-tuned models of every kind, from files to results.

`predict`, `ask`, the server and the check of exports use nothing else of a task.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any, Protocol

from albert.io import file_io
from albert.model import model_folder
from albert.serving import inference, requests
from albert.serving.choice_predictor import ChoicePredictor
from albert.serving.question_predictor import Answerer
from albert.serving.text_predictor import TextPredictor
from albert.serving.token_predictor import TokenPredictor
from albert.tasks import glue, race, token_classification
from albert.tasks.squad import task as squad_task


class Predictor(Protocol):
    """A fine-tuned model that answers examples.

    Attributes:
      max_seq_length: S of the training.
      form: `requests.Form` of its examples in requests.
      metric: name of the score.
      gives_numbers: whether its answers are numbers, which count as equal if they are close.
      input_forms, output_forms: formats of files without labels that it reads, and of files that it
        writes; the first one is also used for standard input or output.
      batches_ahead: number of batches of a file that `predict` should read at a time.
      infer: the model as a function of arrays; see `inference.FoundModel.load`.
    """

    max_seq_length: int
    form: requests.Form
    metric: str
    gives_numbers: bool
    input_forms: tuple[str, ...]
    output_forms: tuple[str, ...]
    batches_ahead: int
    infer: Callable[[dict], dict]

    def read_lines(
        self, lines: Iterable[bytes], name: str, form: str, skip_empty: bool = ...
    ) -> Iterator[Any]:
        """Yields the examples of a file without labels; `name` is for messages.

        Raises:
          tables.NoTextError: a row has no text, and such rows are not to be skipped.
        """

    def read(self, path: str, labeled: bool) -> tuple[list, list | None]:
        """Returns the examples of a file and their gold answers, None if it has none.

        Raises:
          file_io.InputError: the file is of another task, or `labeled` and without labels.
        """

    def of_request(self, fields: dict) -> Any:
        """Returns the example for fields that `form` has read from a request."""

    def predict(
        self, examples: Iterable[Any], batch_size: int = ..., batches_ahead: int = ...
    ) -> Iterator[Any]:
        """Yields a result for each example, in order."""

    def batch_size(self, examples: list) -> int:
        """Returns the batch size for examples of requests that are computed together."""

    def to_json(self, result: Any) -> dict:
        """Returns a JSON-ready result."""

    def write(self, file: IO[str], form: str, results: Iterable[Any]) -> None:
        """Writes results in one of `output_forms`."""

    def answers(self, results: Iterable[Any]) -> list:
        """Returns one answer per example or per word, to compare and score."""

    def score(self, gold: list, answers: list) -> float:
        """Returns the score of answers, from 0 to 100."""


PREDICTORS = {
    glue.KIND: TextPredictor,
    token_classification.KIND: TokenPredictor,
    race.KIND: ChoicePredictor,
    squad_task.V1: Answerer,
    squad_task.V2: Answerer,
}


def load(
    model: str | inference.FoundModel, runtime: str = "auto", threads: int | None = None
) -> Predictor:
    """Returns the predictor of a model.

    Args:
      model: folder of a training or serving folder, or what `inference.find` returns.
      runtime, threads: for serving folders; see `runtimes.load`.

    Raises:
      file_io.InputError: the folder is missing or holds no fine-tuned model.
    """
    found_model = inference.find(model)
    return PREDICTORS[found_model.folder.kind](found_model, runtime, threads)


def reader(folder: model_folder.ModelFolder) -> Predictor:
    """Returns a predictor without weights, which reads and scores but cannot predict."""

    def no_weights(features):
        raise file_io.InputError(f"the weights of {folder.path} are not loaded")

    return load(inference.FoundModel(folder, function=no_weights))
