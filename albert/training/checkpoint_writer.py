"""Saves checkpoints in the background while training continues."""

from collections.abc import Callable
from concurrent import futures

from absl import logging

from albert.model import checkpoints
from albert.training import contracts, optimizer_base


class BackgroundWriter:
    """A writer that saves checkpoints in sequence while training continues.

    As a context manager it finishes the last checkpoint, even after an error.
    """

    def __init__(self) -> None:
        self._pool = futures.ThreadPoolExecutor(1)
        self._last: futures.Future[None] | None = None

    def __enter__(self) -> "BackgroundWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Waits for the last checkpoint; logs its error if the block ended with another, `kind`."""
        if kind is None:
            self.wait()
        self._pool.shutdown()
        if self._last is not None and (error := self._last.exception()):
            logging.error("%s", error)  # in addition to the error that ends the block

    def save(
        self,
        prefix: str,
        model: contracts.Model,
        optimizer: optimizer_base.Optimizer,
        then: Callable[[], None],
    ) -> None:
        """Saves like `checkpoints.save`, but only waits until the values are copied.

        Args:
          prefix: path without ending, such as ``folder/model.ckpt-300``.
          then: function without arguments, called when the checkpoint is complete.
        """
        self.wait()
        values = checkpoints.values_of(model, optimizer)

        def write() -> None:
            checkpoints.write_tensors(prefix, values, with_meta=True)
            then()

        self._last = self._pool.submit(write)

    def wait(self) -> None:
        last, self._last = self._last, None
        if last is not None:
            last.result()

    def check(self) -> None:
        """Raises the error of `wait` if the last checkpoint has already failed; does not wait."""
        if self._last is not None and self._last.done():
            self.wait()
