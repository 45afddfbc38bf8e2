"""Whether the memory of a long run stays flat: pre-training a tiny model, evaluated often.

    python benchmarks/memory_growth.py
    python benchmarks/memory_growth.py --steps=400 --evaluations=20

Runs the command in a process of its own, and prints the resident set of that process at the end of
each evaluation, the growth from the first tenth of the evaluations (in which everything has been
compiled and every buffer made) to the last, and the number of its open files and threads.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

from absl import app, flags

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from albert.data import record_files  # noqa: E402
from albert.io import file_io  # noqa: E402
from tests.support import builders  # noqa: E402

FLAGS = flags.FLAGS


def define_flags():
    flags.DEFINE_integer("steps", 10_000, "Steps of training.")
    flags.DEFINE_integer("evaluations", 50, "How often it is saved and evaluated in them.")


def write_inputs(folder):
    rows = builders.pretraining_rows(400)
    record_files.write(os.path.join(folder, "part0.tfrecord"), builders.PRETRAINING_SPECS, rows, {})
    config = builders.PRETRAINING_CONFIG.to_json_string()
    file_io.write_text(os.path.join(folder, "config.json"), config)


def command(folder):
    values = builders.pretraining_flags(
        pathlib.Path(folder), os.path.join(folder, "out"), num_train_steps=FLAGS.steps,
        save_checkpoints_steps=FLAGS.steps // FLAGS.evaluations, do_eval=True,
        keep_checkpoint_max=3,
    )  # fmt: skip
    arguments = [f"--{name}={value}" for name, value in values.items()]
    return [sys.executable, "-m", "albert.run_pretraining", *arguments]


def measure(pid):
    """Resident MiB, open files and threads of a process."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        status = dict(line.split(":", 1) for line in file)
    resident = int(status["VmRSS"].split()[0]) / 1024
    return resident, len(os.listdir(f"/proc/{pid}/fd")), int(status["Threads"])


def main(_):
    found = []
    with tempfile.TemporaryDirectory() as folder:
        write_inputs(folder)
        process = subprocess.Popen(
            command(folder), cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )
        log = []
        for line in process.stderr:
            log.append(line)
            if result := re.search(r"Results of model\.ckpt-(\d+):", line):
                step, (size, files, threads) = int(result[1]), measure(process.pid)
                found.append((size, files, threads))
                text = f"{size:7.1f} MiB  {files:3d} files  {threads:3d} threads"
                print(f"step {step:6d}  {text}", flush=True)
        if process.wait():
            sys.exit("".join(log)[-3000:])
    first = found[len(found) // 10]
    size, files, threads = (last - before for before, last in zip(first, found[-1], strict=True))
    print(f"growth: {size:.1f} MiB, {files} files, {threads} threads")


if __name__ == "__main__":
    define_flags()
    app.run(main)
