"""The models of one server: each with its name, its state and its queue."""

import concurrent.futures
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from albert.model import decision as decisions
from albert.serving import batcher, requests

if TYPE_CHECKING:
    from albert.serving.served_model import ServedModel

LOADING, READY, STOPPING = "loading", "ready", "stopping"
VERSION = "1"  # the only version of every model


class Loading(Exception):
    """The model does not answer requests yet."""


class HostedModel:
    """A model of a server.

    Args:
      is_only: whether the server has no other model, so that paths need not name it.
      on_batch: ``(rows, seconds)``, called after each batch.
      **options: `batcher.Batcher`'s max_batch_size, delay, capacity, max_batch_length and
        max_wait.

    Attributes:
      name: its name in paths.
      model: None while it is being loaded.
      state: `LOADING`, `READY` or `STOPPING`.
    """

    def __init__(
        self, name: str, is_only: bool, on_batch: Callable[[int, float], None], **options: Any
    ) -> None:
        self.name = name
        self.model: ServedModel | None = None
        self.state = LOADING
        self._is_only = is_only
        self._options = options | {"on_batch": on_batch}
        self._batcher: batcher.Batcher | None = None
        self._texts = self._answered = 0

    def __len__(self) -> int:
        """Returns the number of waiting rows."""
        return len(self._batcher) if self._batcher is not None else 0

    def start(self, model: "ServedModel") -> None:
        """Starts answering requests."""
        self.model = model
        answer = self._answer_counted if model.abstention() else model.answer
        self._batcher = batcher.Batcher(answer, **self._options)
        if self.state == LOADING:
            self.state = READY

    def _answer_counted(self, examples: Sequence[requests.Example]) -> list[requests.Result]:
        """Answers examples with a model that may abstain; counts the texts and its answers."""
        assert self.model is not None
        results = self.model.answer(examples)
        for example, result in zip(examples, results, strict=True):
            if not isinstance(example, requests.Ids):
                self._texts += 1
                self._answered += result["prediction"] != decisions.ABSTAINS
        return results

    def stop(self) -> None:
        """Rejects new requests; those that were accepted are still answered."""
        self.state = STOPPING

    def close(self) -> None:
        """Answers the accepted requests and ends the thread that computes."""
        if self._batcher is not None:
            self._batcher.close()

    def loaded(self) -> "ServedModel":
        """Returns the model; raises `Loading` or `batcher.Closed` unless requests are accepted."""
        if self.state == STOPPING:
            raise batcher.Closed("the server is stopping")
        if self.state == LOADING or self.model is None:
            raise Loading("the model is still being loaded")
        return self.model

    def submit(self, rows: list[batcher.Row]) -> concurrent.futures.Future:
        """Queues the rows of a request; see `batcher.Batcher.submit`."""
        assert self._batcher is not None
        return self._batcher.submit(rows)

    @property
    def path(self) -> str:
        """Path of requests in the toolkit's own format, of a model that is loaded."""
        assert self.model is not None
        entry: str = self.model.form.entry
        return entry if self._is_only else f"/models/{self.name}{entry}"

    def described(self) -> dict[str, Any]:
        """Returns a JSON-ready description.

        It holds name, version and state; of a loaded model also its kind, labels (null for kinds
        without labels), maximum number of tokens, the path of requests in the toolkit's own
        format, and the JSON Schema of an example; and if it may abstain, when and how often.
        """
        description = {"name": self.name, "version": VERSION, "state": self.state}
        if self.model is None:
            return description
        counts = {"texts": self._texts, "answered": self._answered}
        abstention = self.model.abstention()
        return (
            description
            | ({"abstention": abstention | counts} if abstention else {})
            | {
                "kind": self.model.kind,
                "labels": list(self.model.labels) or None,
                "max_seq_length": self.model.max_seq_length,
                "path": self.path,
                "example": self.model.form.schema,
            }
        )
