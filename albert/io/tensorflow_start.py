"""Makes the first import of TensorFlow in a process faster, and keeps its notes off the screen.

Also chooses TensorFlow's own allocator, which keeps the memory of a step for the next one. Without
it the C library gives large tensors back to the system and takes them again, page by page: a
quarter of the processor time of training a small BERT. TensorFlow makes this choice itself on
processors for which it turns oneDNN on (AVX512-VNNI and newer).

At its start, the C++ side of TensorFlow prints several lines about its build and about missing
CUDA drivers. It does so before it reads any setting. So standard error is a pipe meanwhile: a small
process passes on all lines except these notes. It outlives a crash, so that no message gets lost.
"""

import contextlib
import gc
import importlib.util
import os
import subprocess
import sys
from collections.abc import Collection, Iterator
from typing import Any

from absl import logging

from albert.io import file_io

# 0: TensorFlow prints all its notes, 1: no information, 2: no warnings, 3: no errors.
LEVEL = "TF_CPP_MIN_LOG_LEVEL"
_QUIET = "2"
KEEP_MEMORY = "TF_CPU_ALLOCATOR_USE_BFC"  # 0: the C library's allocator
_MEMORY_LIMIT = "TF_CPU_BFC_MEM_LIMIT_IN_MB"  # by default 64 GiB, whatever the machine has
_STDERR = 2
_FILE = r"[\w./-]+\.(?:cc|h|cpp|cu):\d+\] "
# The forms of lines since TensorFlow 2.20 and before: severity, time, file and line.
_PREFIX = rf"(?:{{0}}\d{{{{4}}}} [\d:. ]+ {_FILE}|\d{{{{4}}}}-[\d:. -]+: {{0}} {_FILE})"
# Errors that only mean that there is no GPU, or that a plugin registers itself twice.
_ERRORS = (
    "failed call to cuInit",
    r"Unable to register cu\w+ factory",
    "computation placer already registered",
)
NOTES = "|".join(
    [
        "WARNING: All log messages before absl::InitializeLog",
        "To enable the following instructions:",
        _PREFIX.format("[IW]"),
        rf"{_PREFIX.format('[EIW]')}(?:{'|'.join(_ERRORS)})",
    ]
)
# Reads bytes: a line of C++ may be in any encoding. Unbuffered, so a crash loses nothing.
_FILTER = """
import re, sys
is_note = re.compile(sys.argv[1].encode()).match
with open(0, "rb") as lines, open(2, "wb", 0) as out:
    for line in lines:
        if not is_note(line):
            out.write(line)
"""
_SECONDS_TO_END = 5  # wait for the last lines
_OPTIMIZERS = "keras.src.optimizers"


def install() -> None:
    """Prepares the first import of TensorFlow in this process, whenever it comes.

    Environment variables that the user has set are kept: `LEVEL` to see TensorFlow's notes, and
    `KEEP_MEMORY` to choose the allocator.
    """
    os.environ.setdefault(LEVEL, _QUIET)
    os.environ.setdefault(KEEP_MEMORY, "1")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    os.environ.setdefault(_MEMORY_LIMIT, str(memory >> 20))
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder:
    """Finder for ``sys.meta_path`` that wraps the first import of TensorFlow.

    TensorFlow imports Keras's optimizers at the end of its start: an eighth of the start time, or a
    third if matplotlib and scikit-learn are installed, which Keras imports. No script needs them.
    TensorFlow continues if this import fails, and ``tf.keras`` is imported when it is used.

    The garbage collector is off meanwhile and never looks at TensorFlow's modules again: they stay
    to the end, and walking over their 400,000 objects took a sixteenth of a short run.
    """

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "tensorflow":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec:
            loader: Any = spec.loader
            run_module = loader.exec_module

            def run(module: Any) -> None:
                with _without_notes(), _without_keras(), _without_garbage_collection():
                    run_module(module)
                    # Prints whether a GPU can be used; later it would be in the middle of our log.
                    devices = module.config.list_physical_devices()
                kinds = {device.device_type for device in devices}
                if message := unused_gpu(kinds):
                    logging.warning("%s", message)

            loader.exec_module = run
        return spec


@contextlib.contextmanager
def _without_keras() -> Iterator[None]:
    if _OPTIMIZERS in sys.modules:
        yield
        return
    modules: dict[str, Any] = sys.modules
    modules[_OPTIMIZERS] = None  # makes the import fail
    try:
        yield
    finally:
        del modules[_OPTIMIZERS]


@contextlib.contextmanager
def _without_garbage_collection() -> Iterator[None]:
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()


@contextlib.contextmanager
def _without_notes() -> Iterator[None]:
    """Keeps lines that match `NOTES` from standard error."""
    if os.environ.get(LEVEL, _QUIET) < _QUIET or not sys.executable:
        yield
        return
    try:
        kept = os.dup(_STDERR)
    except OSError:  # It is closed.
        yield
        return
    # In its own session, so that Ctrl-C does not end it.
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _FILTER, NOTES],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert process.stdin
    os.dup2(process.stdin.fileno(), _STDERR)
    process.stdin.close()
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, _STDERR)  # closes the pipe
        os.close(kept)
        # Another process, started meanwhile, may still hold the pipe.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_SECONDS_TO_END)


def unused_gpu(kinds: Collection[str], root: str = "/") -> str | None:
    """Returns a line about NVIDIA's GPUs that TensorFlow cannot use; None if there are none.

    Args:
      kinds: kinds of devices that TensorFlow has found, such as "CPU".
      root: folder of the system's own folders.
    """
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if "GPU" in kinds or hidden in ("", "-1") or not (count := _nvidia_gpus(root)):
        return None
    return (
        f"This machine has {count} NVIDIA GPU{'s' if count > 1 else ''} that TensorFlow cannot "
        f"use, so the processor computes: {LEVEL}=0 shows why, pip install 'tensorflow[and-cuda]' "
        "brings CUDA, and CUDA_VISIBLE_DEVICES=-1 hides this line"
    )


def _nvidia_gpus(root: str) -> int:
    """Counts the NVIDIA GPUs that Linux lists; 0 on other systems."""
    count = 0
    for folder in file_io.glob(os.path.join(root, "sys/bus/pci/devices/*")):
        # The vendor's number, and the class of devices with graphics.
        if _text(folder, "vendor") == "0x10de" and _text(folder, "class").startswith("0x03"):
            count += 1
    return count


def _text(folder: str, name: str) -> str:
    """Returns the content of a small file of the system; "" if it cannot be read."""
    try:
        with file_io.open_file(os.path.join(folder, name)) as file:
            return str(file.read()).strip()
    except OSError:
        return ""
