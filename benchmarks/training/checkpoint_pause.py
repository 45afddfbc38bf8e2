"""Measures how long saving a checkpoint pauses training, and how long it takes to write.

    python -m benchmarks.training.checkpoint_pause \\
        --albert_config_file=configs/albert_xlarge_v2.json

Weights and both slots of the optimizer are saved to a temporary folder, a few times; medians.
"""

import os
import statistics
import tempfile
import time

from absl import flags

from albert.model import encoder, pretraining_heads
from albert.training import checkpoint_writer, optimizers
from benchmarks import harness

FLAGS = flags.FLAGS


def define_flags():
    config = harness.config_file("base_v2")
    flags.DEFINE_string("albert_config_file", config, "Sizes of the model.")
    flags.DEFINE_integer("times", 5, "Checkpoints that are saved.")


def main():
    config = encoder.AlbertConfig.from_json_file(FLAGS.albert_config_file)
    model = pretraining_heads.PretrainingModel(config, seed=1)
    optimizer = optimizers.create_optimizer(1e-3, 1, 0)
    optimizer.build(model.trained_variables)
    pauses, totals = [], []
    with tempfile.TemporaryDirectory() as folder, checkpoint_writer.BackgroundWriter() as writer:
        prefix = os.path.join(folder, "model.ckpt-1")
        for _ in range(FLAGS.times):
            started = time.perf_counter()
            writer.save(prefix, model, optimizer, lambda: None)
            pauses.append(time.perf_counter() - started)
            writer.wait()
            totals.append(time.perf_counter() - started)
        size = os.path.getsize(f"{prefix}.data-00000-of-00001") / 2**20
    print(f"{size:.0f} MiB: training waits {statistics.median(pauses) * 1e3:.0f} ms, "
          f"written after {statistics.median(totals) * 1e3:.0f} ms")  # fmt: skip


if __name__ == "__main__":
    harness.run(main, define_flags)
