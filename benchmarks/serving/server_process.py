"""Starts `python -m albert.serve` and waits until it is ready."""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

from benchmarks import harness


class Process:
    """A server; `url` and `seconds` to its readiness are there once it is ready.

    Args:
      model_dir: folder of the model.
      flags: further flags of the server.
      python: interpreter that runs it.
    """

    def __init__(
        self, model_dir: str, flags: Sequence[str] = (), python: str = sys.executable
    ) -> None:
        started = time.monotonic()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            [python, "-m", "albert.serve", f"--model_dir={model_dir}", "--port=0", *flags],
            env=harness.environment(),
            stderr=self._log,
        )
        while "Ready:" not in self.log():
            if self.process.poll() is not None:
                sys.exit(f"the server has ended:\n{self.log()}")
            time.sleep(0.02)
        self.seconds = time.monotonic() - started
        self.port = int(re.search(r"Listening at http://[^\n]*:(\d+)", self.log())[1])
        self.url = f"http://127.0.0.1:{self.port}"

    def log(self) -> str:
        return os.pread(self._log.fileno(), 1 << 20, 0).decode()  # the server keeps its place
