"""Kernel time and page faults of a step with TensorFlow's allocator and with the C library's.

    python -m benchmarks.training.allocation
    python -m benchmarks.training.allocation --models=bert --work=training --rounds=1

For each model and kind of work, processes with different allocators take the same steps, in turns:
TensorFlow's own, which keeps the memory of a step for the next one (the default of commands); the
C library's, which gives it back to the system; and the C library's with thresholds so high that it
keeps all memory (in glibc), in one heap for all threads. Printed are medians over the processes:
the fraction of the processor time that is spent in the kernel, page faults, processor time and time
of a step, and the peak memory; then the ratios of the first allocator to the second, and whether
all results are equal. Texts have 8 to 20 random tokens, and weights are random: no cost depends on
their values.

oneDNN is off, as on processors without AVX512-VNNI: with oneDNN, TensorFlow chooses its own
allocator itself. --onednn leaves it as it is on this processor.
"""

import functools
import json
import os
import resource
import statistics
import sys
import tempfile
import time

import numpy as np
from absl import flags

from albert.io import tensorflow_start
from benchmarks import harness

FLAGS = flags.FLAGS
_BERT = {
    "vocab_size": 30522, "embedding_size": 384, "hidden_size": 384, "num_hidden_layers": 6,
    "num_hidden_groups": 6, "inner_group_num": 1, "num_attention_heads": 6,
    "intermediate_size": 1536, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1, "max_position_embeddings": 512, "type_vocab_size": 2,
    "initializer_range": 0.02,
}  # fmt: skip
_BATCH = {"training": 32, "evaluation": 64, "prediction": 8}
_BATCHES = 8
_SIDES = {
    "TensorFlow": {tensorflow_start.KEEP_MEMORY: "1"},
    "C library": {tensorflow_start.KEEP_MEMORY: "0"},
    "thresholds": {
        tensorflow_start.KEEP_MEMORY: "0",
        "MALLOC_ARENA_MAX": "1",
        "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
        "MALLOC_TRIM_THRESHOLD_": str(1 << 34),
        "MALLOC_TOP_PAD_": str(1 << 26),
    },
}


def define_flags():
    flags.DEFINE_list(
        "models", ["bert", "small", "base_v2"], "bert (6 x 384), or sizes in configs/."
    )
    flags.DEFINE_list("work", list(_BATCH), "What is measured.")
    flags.DEFINE_integer("steps", 40, "Steps of each process that are measured.")
    flags.DEFINE_integer("rounds", 3, "Processes of each side.")
    flags.DEFINE_bool("onednn", False, "Leave oneDNN as it is on this processor.")
    flags.DEFINE_string("side", None, "Model and work of a process that this script starts.")


def _config(model):
    from albert.model import encoder

    if model != "bert":
        return encoder.AlbertConfig.from_json_file(harness.config_file(model))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "config.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(_BERT, file)
        return encoder.AlbertConfig.from_json_file(path)


def _batches(size, vocab_size):
    """Returns batches of real lengths, as fine-tuning cuts them."""
    rng = np.random.default_rng(1)
    batches = []
    for _ in range(_BATCHES):
        lengths = rng.integers(8, 21, size)
        mask = np.arange(lengths.max()) < lengths[:, None]
        ids = np.where(mask, rng.integers(5, vocab_size, mask.shape), 0)
        batches.append({
            "input_ids": ids.astype(np.int32),
            "input_mask": mask.astype(np.int32),
            "segment_ids": np.zeros(mask.shape, np.int32),
            "label_ids": rng.integers(0, 2, size).astype(np.int32),
            "is_real_example": np.ones(size, np.int32),
        })  # fmt: skip
    return batches


def _work(model, work):
    """Returns a function that takes a step on a batch, and the batches."""
    import tensorflow as tf

    from albert.model import layers
    from albert.tasks import glue
    from albert.training import optimizers, train_step

    task, config = glue.make_task(glue.get_task("SST-2")), _config(model)
    network = task.build_model(config, layers.Compute(skip_padding=True), 1)
    batches = [
        {name: tf.constant(values) for name, values in batch.items()}
        for batch in _batches(_BATCH[work], config.vocab_size)
    ]
    if work == "training":
        optimizer = optimizers.create_optimizer(1e-5, 1000, 0)
        optimizer.build(network.trained_variables)

    def step(features):
        if work == "training":
            return train_step.run(task, network, optimizer, features, 1)["loss"]
        return network(features, training=False)["logits"]

    return tf.function(step, reduce_retracing=True, autograph=False), batches


def measure(model, work):
    """Prints the costs of a step in this process, as JSON."""
    tensorflow_start.install()
    step, batches = _work(model, work)
    for batch in batches * 2:  # compiled for all lengths, and the memory has grown
        step(batch)
    before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    for number in range(FLAGS.steps):
        result = np.asarray(step(batches[number % len(batches)]))
    seconds = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_SELF)
    kernel, user = after.ru_stime - before.ru_stime, after.ru_utime - before.ru_utime
    costs = {
        "kernel": kernel / (kernel + user),
        "processor": (kernel + user) / FLAGS.steps,
        "faults": (after.ru_minflt - before.ru_minflt) / FLAGS.steps,
        "seconds": seconds / FLAGS.steps,
        "GiB": after.ru_maxrss / 2**20,
        "result": float(result.sum(dtype=np.float64)),
    }
    print(json.dumps(costs))


def _run(model, work, variables):
    command = [sys.executable, "-m", "benchmarks.training.allocation", f"--side={model}:{work}"]
    variables = variables | ({} if FLAGS.onednn else {"TF_ENABLE_ONEDNN_OPTS": "0"})
    output = harness.check_output([*command, f"--steps={FLAGS.steps}"], variables=variables)
    return json.loads(output)


def _compare(model, work):
    """Prints a line for each allocator, and the ratios of the first to the second."""
    sides = {
        name: functools.partial(_run, model, work, variables) for name, variables in _SIDES.items()
    }
    runs = harness.in_turns(sides, FLAGS.rounds, warm_up=False)
    label, costs = f"{model:8s} {work:10s}", {}
    for name, found in runs.items():
        cost = {key: statistics.median(row[key] for row in found) for key in found[0]}
        costs[name] = cost
        print(
            f"{label} {name:10s}  kernel {cost['kernel']:6.1%}  faults {cost['faults']:8.1f}  "
            f"processor {1000 * cost['processor']:7.1f} ms  time {1000 * cost['seconds']:7.1f} ms  "
            f"memory {cost['GiB']:.2f} GiB"
        )
    first, second, *_ = costs.values()
    ratios = {key: first[key] / second[key] for key in ("processor", "seconds", "GiB")}
    results = {row["result"] for found in runs.values() for row in found}
    print(
        f"{label} ratios: processor {ratios['processor']:.2f}, time {ratios['seconds']:.2f}, "
        f"memory {ratios['GiB']:.2f}; results {'equal' if len(results) == 1 else 'differ'}",
        flush=True,
    )


def main():
    if FLAGS.side:
        return measure(*FLAGS.side.split(":"))
    print(harness.machine())
    for model in FLAGS.models:
        for work in FLAGS.work:
            _compare(model, work)


if __name__ == "__main__":
    harness.run(main, define_flags)
