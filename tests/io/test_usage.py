"""Time, processor time and memory of a process."""

import os
import subprocess
import sys

import pytest

from albert.io import usage


def test_processor_time_counts_ended_child_processes():
    before = usage.read()
    work = "import time\nwhile time.process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-S", "-c", work], check=True)
    after = usage.read()
    assert 0.25 < after.processor_seconds - before.processor_seconds < 10
    assert after.seconds - before.seconds > 0.25


@pytest.mark.slow
def test_peak_memory_is_that_of_this_process():
    before = usage.peak_memory()
    held = bytearray(os.urandom(1 << 20) * 200)
    assert usage.peak_memory() >= min(before + (50 << 20), len(held))
    del held
    assert usage.peak_memory() >= before  # a peak does not fall
