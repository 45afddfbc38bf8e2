"""A sweep that is killed again and again against one that is not: their tables must be the same.

    python -m benchmarks.robustness.killed_sweep --kills=10

Twelve trials of run_classifier on the demo's sentences, from a tiny hub module. The sweep and its
trials are killed (SIGKILL, in turns the sweep first and last) at random moments, each time after a
trial has saved a checkpoint or ended. Prints what was killed and whether the tables agree.
"""

import contextlib
import filecmp
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

from absl import flags

from benchmarks import harness

FLAGS = flags.FLAGS
_HUB = str(harness.ROOT / "tests" / "testdata" / "golden" / "hub_tf1")
_FILES = ("sweep_results.md", "sweep_results.csv", "sweep_results.json")


def define_flags():
    flags.DEFINE_string("albert_hub_module_handle", _HUB, "Model that the trials start from.")
    flags.DEFINE_string("output_dir", None, "Folder to keep everything in; by default none.")
    flags.DEFINE_integer("kills", 10, "How often.")
    flags.DEFINE_integer("parallel", 2, "Trials at the same time.")
    flags.DEFINE_integer("train_step", 30, "Steps of a trial; a checkpoint every fifth part.")
    flags.DEFINE_float("most_seconds", 8.0, "Maximum from a checkpoint to the kill.")
    flags.DEFINE_integer("seed", 1, "Source of the moments.")


def _command(folder, data):
    task = os.path.join(data, "glue", "SST-2")
    common = {
        "task_name": "custom",
        "train_file": os.path.join(task, "train.tsv"),
        "validation_file": os.path.join(task, "dev.tsv"),
        "text_column": "sentence",
        "albert_hub_module_handle": FLAGS.albert_hub_module_handle,
        "max_seq_length": 32,
        "train_step": FLAGS.train_step,
        "save_checkpoints_steps": max(1, FLAGS.train_step // 5),
        "eval_batch_size": 64,
    }
    words = " ".join(f"--{name}='{value}'" for name, value in common.items())
    return [
        *(sys.executable, "-m", "albert.run_sweep", "--script=run_classifier"),
        *(f"--output_dir={folder}", f"--parallel={FLAGS.parallel}"),
        "--grid=learning_rate=3e-4,1e-3,3e-3;train_batch_size=8,16;seed=1,2",
        f"--script_flags={words} --do_train --do_eval",
    ]


def _progress(folder):
    """Returns files that change when a trial saves a checkpoint or ends."""
    checkpoints = []
    for path, _, names in os.walk(folder):
        checkpoints += [os.path.join(path, name) for name in names if name.endswith(".index")]
    return len(checkpoints) + os.path.exists(os.path.join(folder, _FILES[0]))


def _children(pid):
    with contextlib.suppress(FileNotFoundError), open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(word) for word in file.read().split()]
    return []


def _kill_at_random(command, folder, kills, source):
    """Runs a command, killing it several times; returns the number of processes."""
    killed = 0
    for number in range(kills + 1):
        before = _progress(folder)
        process = subprocess.Popen(command, cwd=harness.ROOT, stdout=subprocess.DEVNULL)
        if number < kills:
            while process.poll() is None and _progress(folder) <= before:
                time.sleep(0.02)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(source.uniform(0, FLAGS.most_seconds))
                sys.exit(
                    f"the sweep ended before kill {number + 1}: take more steps or fewer kills"
                )
            victims = [process.pid, *_children(process.pid)]
            for pid in victims if number % 2 else reversed(victims):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
        process.wait()
    return killed


def main():
    source = random.Random(FLAGS.seed)
    with contextlib.ExitStack() as stack:
        top = FLAGS.output_dir or stack.enter_context(tempfile.TemporaryDirectory())
        data = os.path.join(top, "data")
        folders = {name: os.path.join(top, name) for name in ("whole", "broken")}
        harness.check_output(harness.command("make_demo_data", output_dir=data))
        times = []
        for name, kills in (("whole", 0), ("broken", FLAGS.kills)):
            started = time.perf_counter()
            command = _command(folders[name], data)
            killed = _kill_at_random(command, folders[name], kills, source)
            times.append(time.perf_counter() - started)
        same, different, missing = filecmp.cmpfiles(*folders.values(), _FILES, shallow=False)
        with open(os.path.join(folders["broken"], _FILES[0])) as file:
            print(file.read())
    print(f"{FLAGS.kills} kills of {killed} processes")
    print(f"{times[0]:.0f} s without them, {times[1]:.0f} s with them")
    print(f"the same: {', '.join(same) or 'nothing'}")
    if different or missing:
        sys.exit(f"not the same: {', '.join(different + missing)}")


if __name__ == "__main__":
    harness.run(main, define_flags)
