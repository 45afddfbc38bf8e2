"""Writing checkpoints beside training, in a thread of their own."""

from concurrent import futures

from absl import logging

from albert import checkpoints


class BackgroundWriter:
    """Writes checkpoints, one after another, while training goes on.

    As a context it lets the last one be finished, whatever ends the block.
    """

    def __init__(self):
        self._pool = futures.ThreadPoolExecutor(1)
        self._last = None

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self.wait()
        self._pool.shutdown()
        if self._last is not None and (error := self._last.exception()):
            logging.error("%s", error)  # beside what ends the block

    def save(self, prefix, model, optimizer, then):
        """As `checkpoints.save`, but only the copying of the values is waited for.

        Args:
          then: function without arguments, called once the checkpoint is whole.
        """
        self.wait()
        values = checkpoints.values_of(model, optimizer)

        def write():
            checkpoints.write_tensors(prefix, values, with_meta=True)
            then()

        self._last = self._pool.submit(write)

    def wait(self):
        """Waits for the last checkpoint.

        Raises:
          file_io.InputError: it could not be written.
        """
        last, self._last = self._last, None
        if last is not None:
            last.result()

    def check(self):
        """Raises what `wait` does if the last checkpoint has failed already; waits for nothing."""
        if self._last is not None and self._last.done():
            self.wait()
