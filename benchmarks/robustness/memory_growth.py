"""Measures whether the memory of a long run stays flat: pre-training a tiny model, evaluated often.

    python -m benchmarks.robustness.memory_growth
    python -m benchmarks.robustness.memory_growth --steps=400 --evaluations=20

Runs the command in a process of its own, and prints the resident set of that process at the end of
each evaluation, the growth from the first tenth of the evaluations (in which everything has been
compiled and every buffer made) to the last, and the number of its open files and threads.
"""

import os
import re
import sys
import tempfile

from absl import flags

from benchmarks import harness
from benchmarks.robustness import tiny_run

FLAGS = flags.FLAGS


def define_flags():
    flags.DEFINE_integer("steps", 10_000, "Steps of training.")
    flags.DEFINE_integer("evaluations", 50, "How often it is saved and evaluated in them.")


def measure(pid):
    """Resident MiB, open files and threads of a process."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        status = dict(line.split(":", 1) for line in file)
    resident = int(status["VmRSS"].split()[0]) / 1024
    return resident, len(os.listdir(f"/proc/{pid}/fd")), int(status["Threads"])


def main():
    states = []
    with tempfile.TemporaryDirectory() as folder:
        tiny_run.write_inputs(folder)
        arguments = tiny_run.command(
            folder,
            os.path.join(folder, "out"),
            num_train_steps=FLAGS.steps,
            save_checkpoints_steps=FLAGS.steps // FLAGS.evaluations,
        )
        process = tiny_run.start(arguments)
        log = []
        for line in process.stderr:
            log.append(line)
            if result := re.search(r"Results of model\.ckpt-(\d+):", line):
                step, (size, files, threads) = int(result[1]), measure(process.pid)
                states.append((size, files, threads))
                text = f"{size:7.1f} MiB  {files:3d} files  {threads:3d} threads"
                print(f"step {step:6d}  {text}", flush=True)
        if process.wait():
            sys.exit("".join(log)[-3000:])
    first = states[len(states) // 10]
    size, files, threads = (last - before for before, last in zip(first, states[-1], strict=True))
    print(f"growth: {size:.1f} MiB, {files} files, {threads} threads")


if __name__ == "__main__":
    harness.run(main, define_flags)
