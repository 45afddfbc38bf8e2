"""Processor time and memory of a server until its first answer, for several Python environments.

    python -m benchmarks.serving.first_answer --model_dir=onnx_model \\
        --pythons=light/bin/python,full/bin/python

Starts `python -m albert.serve` with each interpreter in turns, asks for one text as soon as it is
ready, and prints the medians of processor seconds and of peak memory. Linux only: both are
read from /proc.
"""

import json
import os
import pathlib
import re
import statistics
import urllib.request

from absl import flags

from benchmarks import harness
from benchmarks.serving import server_process

FLAGS = flags.FLAGS


def define_flags():
    flags.DEFINE_string("model_dir", None, "Folder of a classifier of single texts.", required=True)
    flags.DEFINE_list("pythons", None, "Interpreters to compare.", required=True)
    flags.DEFINE_string("text", "A charming journey.", "The text to ask for.")
    flags.DEFINE_integer("rounds", 5, "Starts of each, in turns.")


def measure(python):
    """Returns processor seconds and bytes of peak memory of a server that answered once."""
    server = server_process.Process(FLAGS.model_dir, python=python)
    try:
        body = json.dumps({"text": FLAGS.text}).encode()
        with urllib.request.urlopen(f"{server.url}/predict", body, timeout=60) as response:
            response.read()
        return usage(server.process.pid)
    finally:
        server.process.terminate()
        server.process.wait()


def usage(pid):
    """Returns the processor seconds and the peak memory of a process."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    (peak,) = re.findall(r"VmHWM:\s+(\d+) kB", status)
    return seconds, int(peak) * 1024


def main():
    print(harness.machine())
    sides = {python: lambda python=python: measure(python) for python in FLAGS.pythons}
    for python, rounds in harness.in_turns(sides, FLAGS.rounds).items():
        seconds, peaks = (statistics.median(numbers) for numbers in zip(*rounds, strict=True))
        print(f"{python}: {seconds:.2f} s of processor time, {peaks / 1e6:.0f} MB at the peak")


if __name__ == "__main__":
    harness.run(main, define_flags)
