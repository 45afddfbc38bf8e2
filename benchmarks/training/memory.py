"""Peak memory of pre-training, as the command runs it, against what --estimate_memory says.

    python -m benchmarks.training.memory
    python -m benchmarks.training.memory --cases=xxlarge:8:8 --steps=3

A case is size:batch:accumulation steps, with ":recompute" or a precision behind it where wanted.
Records are random tokens of full length. A checkpoint is written after each step, while the next
one runs. Memory is the largest resident set of the process, from its start to its end.
"""

import os
import re
import subprocess
import sys
import tempfile
import time

import numpy as np
from absl import flags

from albert.cli import training
from albert.data import instances, record_files
from albert.model import encoder
from albert.training import memory
from benchmarks import harness

FLAGS = flags.FLAGS
_PREDICTIONS = 20  # the default of the scripts


def define_flags():
    flags.DEFINE_list(
        "cases",
        ["base:8:1", "base:8:8", "base:32:1:recompute", "large:8:1", "large:8:1:recompute",
         "large:8:8", "xlarge:8:1:recompute", "xlarge:8:8", "xxlarge:8:8",
         "xxlarge:8:8:recompute"],
        "size:batch:accumulation steps[:recompute][:mixed_bfloat16] to measure.",
    )  # fmt: skip
    flags.DEFINE_integer("max_seq_length", 512, "Tokens of each example.")
    flags.DEFINE_integer("steps", 3, "Steps of each case.")


def write_records(path, count):
    rng = np.random.default_rng(1)
    length = FLAGS.max_seq_length
    specs = instances.feature_specs(length, _PREDICTIONS, with_boundaries=False)
    rows = (
        {
            "input_ids": rng.integers(5, 30000, length),
            "input_mask": np.ones(length),
            "segment_ids": np.zeros(length),
            "masked_lm_positions": np.arange(_PREDICTIONS) + 1,
            "masked_lm_ids": rng.integers(5, 30000, _PREDICTIONS),
            "masked_lm_weights": np.ones(_PREDICTIONS),
            "next_sentence_labels": [0],
        }
        for _ in range(count)
    )
    record_files.write(path, specs, rows, {})


def run(config_file, batch_size, path, folder, extra):
    """Trains a few steps; returns peak GiB and seconds a step after the first."""
    command = [
        *(sys.executable, "-m", "albert.run_pretraining", f"--albert_config_file={config_file}"),
        *(f"--input_file={path}", f"--output_dir={folder}", f"--train_batch_size={batch_size}"),
        *(f"--max_seq_length={FLAGS.max_seq_length}", f"--num_train_steps={FLAGS.steps}"),
        *("--num_warmup_steps=0", "--optimizer=lamb", "--save_checkpoints_steps=1", *extra),
    ]
    log = os.path.join(folder, "log")
    with open(log, "w", encoding="utf-8") as file:
        process = subprocess.Popen(command, cwd=harness.ROOT, stdout=file, stderr=file)
        _, status, usage = os.wait4(process.pid, 0)
    with open(log, encoding="utf-8") as file:
        text = file.read()
    if status:
        raise SystemExit(f"{' '.join(command)} failed:\n{text[-2000:]}")
    rate = re.findall(r"([\d.]+) examples/s", text)
    return usage.ru_maxrss / 2**20, batch_size / float(rate[-1]) if rate else float("nan")


def main():
    print(f"{FLAGS.max_seq_length} tokens, {FLAGS.steps} steps; estimate and peak in GiB")
    for case in FLAGS.cases:
        size, batch_size, accumulation, *options = case.split(":")
        config_file = harness.config_file(f"{size}_v2")
        config = encoder.AlbertConfig.from_json_file(config_file)
        precision = next((option for option in options if option != "recompute"), "float32")
        settings = training.Compute(
            precision=precision,
            recompute="recompute" in options,
            gradient_accumulation_steps=int(accumulation),
        )
        compute = settings.for_batch(int(batch_size) * FLAGS.max_seq_length)
        shapes = memory.Shapes(config, int(batch_size), FLAGS.max_seq_length, _PREDICTIONS)
        estimate = memory.estimate(shapes, compute, int(accumulation)).total / 2**30
        extra = [f"--gradient_accumulation_steps={accumulation}", f"--precision={precision}"]
        extra += ["--recompute"] * compute.recompute
        started = time.time()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "records")
            write_records(path, int(batch_size))
            peak, seconds = run(config_file, int(batch_size), path, folder, extra)
        print(f"{case:24s} estimate {estimate:6.2f}   peak {peak:6.2f}   {seconds:6.1f} s a step   "
              f"{time.time() - started:.0f} s in all", flush=True)  # fmt: skip


if __name__ == "__main__":
    harness.run(main, define_flags)
