"""Pre-training of a tiny model as a process, for benchmarks that watch or disturb it."""

import os
import pathlib
import subprocess
from typing import Any

from albert.data import record_files
from albert.io import file_io
from benchmarks import harness
from tests.support import builders


def write_inputs(folder: str) -> None:
    """Writes records and the sizes of the model."""
    rows = builders.pretraining_rows(400)
    record_files.write(os.path.join(folder, "part0.tfrecord"), builders.PRETRAINING_SPECS, rows, {})
    config = builders.PRETRAINING_CONFIG.to_json_string()
    file_io.write_text(os.path.join(folder, "config.json"), config)


def command(inputs: str, output_dir: str, **flags: Any) -> list[str]:
    """Returns the arguments of a run that evaluates its checkpoints."""
    values = builders.pretraining_flags(
        pathlib.Path(inputs), output_dir, do_eval=True, keep_checkpoint_max=3, **flags
    )
    return harness.command("run_pretraining", **values)


def start(arguments: list[str]) -> subprocess.Popen:
    """Starts a run whose log is read from `stderr`."""
    return subprocess.Popen(
        arguments,
        cwd=harness.ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
