"""The lines of the first import of TensorFlow, with a stand-in for TensorFlow."""

import os
import signal
import subprocess
import sys

import pytest

from albert.io import tensorflow_start
from tests.support.sources import ROOT

NOTES = """\
WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
I0000 00:00:1795770322.391496    6958 port.cc:153] oneDNN custom operations are on. You may see
I0000 00:00:1795770322.391917    6958 cudart_stub.cc:31] Could not find cuda drivers on your machine
I0000 00:00:1795770322.524857    6958 cpu_feature_guard.cc:227] This TensorFlow binary is optimized
To enable the following instructions: AVX2 AVX512F, in other operations, rebuild TensorFlow
E0000 00:00:1795770332.921222    6958 cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA
2024-11-03 10:11:12.131415: I external/local_xla/xla/tsl/cuda/cudart_stub.cc:32] Could not find cuda
2024-11-03 10:11:12.131415: E external/local_xla/xla/stream_executor/cuda/cuda_fft.cc:477] Unable \
to register cuFFT factory: Attempting to register factory for plugin cuFFT
E0000 00:00:1730628672.516 77 cuda_blas.cc:1418] Unable to register cuBLAS factory: Attempting
W0000 00:00:1730628672.516 77 computation_placer.cc:177] computation placer already registered.
"""
REAL = """\
E0000 00:00:1795770332.921222    6958 env.cc:52] a real error
F0000 00:00:1795770332.921222    6958 core.cc:9] Check failed: \xff
I1127 09:04:52.123456 140 server.py:12] a line of our own log
terminate called after throwing an instance of 'std::bad_alloc'
ImportError: libcudart.so: I cannot open it
"""
STAND_IN = """
import os
class config:
    @staticmethod
    def list_physical_devices():
        os.write(2, b"E0000 00:00:1.2 1 cuda_platform.cc:52] failed call to cuInit: INTERNAL")
        return []
os.write(2, open(os.environ["LINES"], "rb").read())
{end}
"""
PROGRAM = """
import os, sys
from albert.io import tensorflow_start
tensorflow_start.install()
try:
    import tensorflow
finally:
    os.write(2, b"after\\n")
"""


def start(folder, lines, end="", level=None):
    """The status and standard error of a process that imports a stand-in for TensorFlow."""
    (folder / "tensorflow.py").write_text(STAND_IN.format(end=end))
    (folder / "lines").write_bytes(lines.encode("latin-1"))
    environment = {name: os.environ[name] for name in os.environ if name != tensorflow_start.LEVEL}
    environment |= {tensorflow_start.LEVEL: level} if level else {}
    environment |= {"PYTHONPATH": f"{folder}:{ROOT}", "LINES": str(folder / "lines")}
    environment |= {"CUDA_VISIBLE_DEVICES": ""}
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
    )
    return result.returncode, result.stderr.decode("latin-1")


def mixed():
    """Every note, each followed by one of the real lines, and the lines that must stay."""
    notes, real = NOTES.splitlines(True), REAL.splitlines(True)
    return "".join(note + real[i % len(real)] for i, note in enumerate(notes)), "".join(real * 2)


def test_notes_are_dropped_and_everything_else_is_printed_before_the_next_line(tmp_path):
    lines, expected = mixed()
    assert start(tmp_path, lines) == (0, expected + "after\n")


def test_a_crash_loses_no_line(tmp_path):
    """Not even the last one, which has no line end."""
    lines, expected = mixed()
    status, found = start(tmp_path, lines + "the last", "os.abort()")
    assert (status, found) == (-signal.SIGABRT, expected + "the last")


def test_a_failed_import_is_shown_whole(tmp_path):
    status, found = start(tmp_path, NOTES + REAL, "raise ImportError('no libcublas')")
    assert status == 1 and found.startswith(REAL + "after\nTraceback")
    assert found.endswith("ImportError: no libcublas\n")


def test_the_variable_of_tensorflow_shows_the_notes(tmp_path):
    status, found = start(tmp_path, NOTES, level="0")
    assert status == 0 and found.startswith(NOTES) and "cuInit" in found.splitlines()[-1]


@pytest.mark.parametrize(
    ("kinds", "visible", "message"),
    [
        ({"CPU"}, None, "This machine has 1 NVIDIA GPU that TensorFlow cannot use"),
        ({"CPU", "GPU"}, None, None),
        ({"CPU"}, "-1", None),
        ({"CPU"}, "", None),
        ({"CPU"}, "0", "This machine has 1 NVIDIA GPU that TensorFlow cannot use"),
    ],
)
def test_a_gpu_that_is_not_used_is_reported(tmp_path, monkeypatch, kinds, visible, message):
    devices = [("0x10de", "0x030200"), ("0x10de", "0x040300"), ("0x1af4", "0x030000")]
    for number, (vendor, kind) in enumerate(devices):
        folder = tmp_path / f"sys/bus/pci/devices/0000:00:0{number}.0"
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(f"{vendor}\n")
        (folder / "class").write_text(f"{kind}\n")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    found = tensorflow_start.unused_gpu(kinds, str(tmp_path))
    assert found == message or found.startswith(message) and "\n" not in found
    assert tensorflow_start.unused_gpu({"CPU"}, str(tmp_path / "missing")) is None
