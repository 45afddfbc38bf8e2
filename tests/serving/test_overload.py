"""A minute at twice the capacity, with slow, cut-off and hostile clients.

`benchmarks/robustness/overload.py` does the same with a real model, for any time.
"""

import asyncio
import json
import re
import signal
import subprocess
import sys

import pytest

from tests.support import overload, processes
from tests.support.sources import ROOT

pytest.importorskip("albert.serving.server")

SECONDS = 60
PER_TEXT = 0.02  # seconds that the model takes: 50 texts per second
MEMORY = 0.05  # allowed growth


def make_request(number):
    """One of many requests, each with its own text."""
    text = f"text {number} " + "word " * (number % 50)
    quoted = json.dumps(text)
    path, value, expected = [
        ("/predict", {"text": text}, f'"prediction": {quoted}'),
        ("/v1/models/model:predict", {"instances": [text]}, f'"predictions": [{quoted}]'),
        ("/v2/models/model/infer", {
            "inputs": [overload.tensor(data=[text])], "outputs": [{"name": "prediction"}],
        }, f'"data": [{quoted}]'),
    ][number % 3]  # fmt: skip
    return overload.Request(path, value, lambda reply: expected in reply)


@pytest.mark.slow(40)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_minute_at_twice_the_capacity(tmp_path):
    log = tmp_path / "log"
    program = [sys.executable, "-m", "tests.support.serving_stand_in"]
    command = [*program, "0", str(PER_TEXT), "patient"]
    with log.open("w") as file, processes.killed_at_the_end([]) as running:
        process = subprocess.Popen(command, cwd=ROOT, stderr=file, stdin=subprocess.DEVNULL)
        running.append(process)
        processes.wait_until(lambda: "Ready" in log.read_text(), process, say=log.read_text)
        port = int(re.search(r"Listening at http://127\.0\.0\.1:(\d+)", log.read_text())[1])
        run = overload.overload(process, port, SECONDS, 2 / PER_TEXT, make_request)
        seen = asyncio.run(run)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert not seen.wrong, (len(seen.wrong), seen.wrong[:5], seen.statuses)
    assert seen.statuses.keys() <= overload.STATUSES, seen.statuses
    # Nearly all of the capacity was used, and what was beyond it was refused.
    assert seen.statuses[200] > 0.5 * SECONDS / PER_TEXT, seen.statuses
    assert seen.statuses[503] > 0.1 * SECONDS / PER_TEXT, seen.statuses
    assert seen.growth() <= 1 + MEMORY, seen.memory
    text = log.read_text()
    assert "Traceback" not in text and len(text.splitlines()) < 10 + SECONDS / 10, text[-2000:]
