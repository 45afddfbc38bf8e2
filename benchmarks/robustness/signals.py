"""Checks that signals at any moment of a run lose no finished step and do not change its end.

    python -m benchmarks.robustness.signals --signals=50

Trains a tiny model that is evaluated often, sends SIGTERM and SIGUSR1 to it at random moments of
start, training and evaluation, and starts it again whenever it has ended, until all signals are
sent and it has come to its end. Then compares its weights and results with those of a run that got
none. After each SIGTERM the last line of the log that names a step must not be past the last
checkpoint.
"""

import collections
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import threading
import time

from absl import flags

from albert.io import file_io
from albert.model import checkpoints
from benchmarks import harness
from benchmarks.robustness import tiny_run
from tests.support import builders

FLAGS = flags.FLAGS
_STATUS = 75


def define_flags():
    flags.DEFINE_integer("signals", 50, "How many are sent.")
    flags.DEFINE_integer("steps", 3000, "Steps of the run; more are taken until all are sent.")
    flags.DEFINE_integer("seed", 1, "Of the moments.")
    flags.DEFINE_float("usr1", 0.3, "Share of SIGUSR1.")


def command(inputs, output_dir):
    return tiny_run.command(
        inputs,
        output_dir,
        num_train_steps=FLAGS.steps,
        save_checkpoints_steps=FLAGS.steps // 30,
        log_every_steps=7,
    )


class Run:
    """A process of the training, whose log is read while it runs."""

    def __init__(self, arguments):
        self.started = time.monotonic()
        self.process = tiny_run.start(arguments)
        self.lines = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line)

    def phase(self):
        """Returns its present work, by its log."""
        name = "start"
        for line in list(self.lines):
            if "First step after" in line or re.search(r"\] step \d+/", line):
                name = "training"
            elif "Results of model" in line:
                name = "after evaluation"
        return name

    def last_step(self):
        """The last step that its log names."""
        steps = [re.search(r"\] step (\d+)/", line) for line in list(self.lines)]
        return max((int(match.group(1)) for match in steps if match), default=0)

    def wait(self):
        status = self.process.wait()
        self._reader.join()
        return status


def check(run, folder, status, kind):
    """Returns the fault of a run that has ended; None if there is none."""
    text = "".join(run.lines)
    if "Traceback" in text:
        return f"traceback: {text[-2000:]}"
    saved = max(map(checkpoints.step_of, checkpoints.numbered(folder)), default=0)
    if kind and status not in (_STATUS, 0):
        return f"status {status}: {text[-2000:]}"
    if run.last_step() > saved:
        return f"step {run.last_step()} was finished, {saved} is saved"
    return None


def main():
    rng, findings, counts = random.Random(FLAGS.seed), [], collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        tiny_run.write_inputs(folder)
        whole, broken = (os.path.join(folder, name) for name in ("whole", "broken"))
        started = time.monotonic()
        status = Run(command(folder, whole)).wait()
        seconds = time.monotonic() - started
        assert status == 0, status
        sent, finished = 0, False
        while sent < FLAGS.signals or not finished:
            if finished:  # before all signals were sent: from the start again
                findings += compare(whole, broken)
                shutil.rmtree(broken)
            run = Run(command(folder, broken))
            terminated = None
            while sent < FLAGS.signals and not terminated:
                in_training = rng.random() < 2 / 3
                while in_training and run.phase() == "start" and run.process.poll() is None:
                    time.sleep(0.01)
                time.sleep(rng.random() * seconds / 4)
                if run.process.poll() is not None:
                    break
                use_usr1 = rng.random() < FLAGS.usr1
                kind = signal.SIGUSR1 if use_usr1 else signal.SIGTERM
                counts[kind.name, run.phase()] += 1
                run.process.send_signal(kind)
                sent += 1
                terminated = None if use_usr1 else time.monotonic()
            status = run.wait()
            if terminated:
                counts["seconds to the end"] = max(
                    counts["seconds to the end"], round(time.monotonic() - terminated, 1)
                )
            if status < 0 and not run.lines:
                counts["ended before Python could handle signals"] += 1
            elif problem := check(run, broken, status, terminated):
                findings.append(problem)
            finished = status == 0
            if findings:
                break
        findings += compare(whole, broken) if finished else []
        print(f"{sent} signals: {dict(counts)}")
        print("\n".join(findings) or "no step lost, the same weights and results")
    sys.exit(bool(findings))


def compare(whole, broken):
    """Differences between two folders, as texts."""
    weights = [
        builders.weights(os.path.join(x, f"model.ckpt-{FLAGS.steps}")) for x in (whole, broken)
    ]
    findings = []
    try:
        builders.assert_same(*weights)
    except AssertionError as error:
        findings.append(f"other weights: {error}")
    for name in ("eval_results.txt", "best_trial.txt"):
        texts = [file_io.read_text(os.path.join(x, name), name) for x in (whole, broken)]
        if texts[0] != texts[1]:
            findings.append(f"{name} differs")
    return findings


if __name__ == "__main__":
    harness.run(main, define_flags)
