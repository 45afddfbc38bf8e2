"""One step of training or inference of a classifier against others on the same batches.

    python -m benchmarks.training.training_step --transformers_python=peer/bin/python \\
        --keras_hub_python=keras/bin/python
    python -m benchmarks.training.training_step --task_name=RTE --data_dir=glue \\
        --spm_model_file=30k-clean.model
    python -m benchmarks.training.training_step --task_name=SST-2 --data_dir=glue \\
        --model_dir=all-MiniLM-L6-v2 --transformers_python=peer/bin/python

Without a task: random tokens at full length, 16 x 128. With one: its training examples in batches
of 32 as they come, padded by both sides to the longest of each batch (ours then computes the real
tokens alone). `--model_dir` is a folder of transformers whose sizes and vocabulary are taken, such
as a BERT. `--transformers_python` and `--keras_hub_python` are the Pythons of environments that
have them; without one that peer is skipped. Weights are random: speed does not depend on them.

With `--trees=.,../before` source trees are compared instead: each runs its own copy of this file,
in turns, one process per mode and turn.
"""

import functools
import itertools
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import tensorflow as tf
from absl import flags

from albert.model import encoder, heads, layers, model_folder, sources
from albert.tasks import glue
from albert.training import distribution, optimizers
from benchmarks import harness

FLAGS = flags.FLAGS
_HERE = os.path.dirname(os.path.abspath(__file__))
_FEATURES = ("input_ids", "input_mask", "segment_ids", "label_ids")


def define_flags():
    config = harness.config_file("base_v2")
    flags.DEFINE_string("albert_config_file", config, "Sizes of the model.")
    flags.DEFINE_string("task_name", None, "GLUE task whose training examples are taken.")
    flags.DEFINE_string("data_dir", None, "Folder of the GLUE tasks.")
    flags.DEFINE_string("spm_model_file", None, "SentencePiece model.")
    flags.DEFINE_string("model_dir", None, "Folder of transformers with sizes and vocabulary.")
    flags.DEFINE_string("transformers_python", None, "Python that has torch and transformers.")
    flags.DEFINE_string("keras_hub_python", None, "Python that has keras-hub and tensorflow.")
    flags.DEFINE_list("modes", ["train", "infer"], "What is timed.")
    flags.DEFINE_list("dtypes", ["float32", "bfloat16"], "Types of products and activations.")
    flags.DEFINE_list("transformers", ["eager", "compile"], "How transformers runs.")
    flags.DEFINE_list("keras_hub", ["graph"], "How keras-hub runs: graph, xla.")
    flags.DEFINE_list("trees", [], "Source trees to compare with each other; without peers.")
    flags.DEFINE_integer("batches", 4, "Batches.")
    flags.DEFINE_integer("rounds", 3, "Times that each side computes all batches, in turn.")


def _own_copy(tree):
    """The file of this benchmark in another source tree, which may be one with a flat folder."""
    for name in ("training/training_step.py", "training_step.py"):
        path = os.path.join(os.path.abspath(tree), "benchmarks", name)
        if os.path.exists(path):
            return path
    raise SystemExit(f"--trees: {tree} has no benchmarks/training_step.py, in no folder")


def _rate_of_tree(tree, mode, dtype):
    """Examples per second that a tree's own copy prints, in a process of its own."""
    options = [f"--batches={FLAGS.batches}"]
    if FLAGS.task_name:
        options.append(f"--task_name={FLAGS.task_name}")
    for name in ("data_dir", "spm_model_file", "albert_config_file"):
        if path := FLAGS[name].value:
            options.append(f"--{name}={os.path.abspath(path)}")
    arguments = [sys.executable, _own_copy(tree), f"--modes={mode}", f"--dtypes={dtype}"]
    text = harness.check_output([*arguments, "--rounds=1", *options], os.path.abspath(tree))
    return float(re.search(r"ours +([\d.]+) examples/s", text)[1])


def compare_trees():
    """Prints medians of source trees, which run in turns."""
    for mode in FLAGS.modes:
        for dtype in FLAGS.dtypes:
            sides = {
                tree: functools.partial(_rate_of_tree, tree, mode, dtype) for tree in FLAGS.trees
            }
            rates_of_rounds = harness.in_turns(sides, FLAGS.rounds, warm_up=False)
            rates = {tree: statistics.median(values) for tree, values in rates_of_rounds.items()}
            harness.show(f"{mode:6s} {dtype:9s}", rates)


def full_batches():
    rng = np.random.default_rng(1)
    for _ in range(FLAGS.batches):
        yield {
            "input_ids": rng.integers(5, 30000, (16, 128)),
            "input_mask": np.ones((16, 128)),
            "segment_ids": np.zeros((16, 128)),
            "label_ids": rng.integers(0, 2, 16),
        }


def _source(needs_vocabulary=False):
    """Finds the files of the model that gives sizes and vocabulary."""
    given = sources.Given()
    if not FLAGS.model_dir:
        given = sources.Given(FLAGS.albert_config_file, FLAGS.spm_model_file)
    return sources.locate(given, FLAGS.model_dir, needs_vocabulary=needs_vocabulary)


def task_batches():
    source = _source(needs_vocabulary=True)
    config = encoder.AlbertConfig.from_json_file(source.config_file)
    tokenizer = model_folder.load_tokenizer(source, config)
    glue_task = glue.get_task(FLAGS.task_name)
    examples = glue_task.examples(FLAGS.data_dir, "train")
    order = np.random.default_rng(1).permutation(len(examples))[: 32 * FLAGS.batches]
    rows = [glue.convert_example(examples[i], glue_task, 512, tokenizer) for i in order]
    for start in range(0, len(rows), 32):
        batch = {
            name: np.stack([row[name] for row in rows[start : start + 32]]) for name in _FEATURES
        }
        longest = int(batch["input_mask"].sum(1).max())
        yield {name: x[:, :longest] if x.ndim == 2 else x for name, x in batch.items()}


class Ours:
    """Our side; `run` computes all batches once and returns the seconds that took."""

    def __init__(self, batches, mode, dtype):
        config = encoder.AlbertConfig.from_json_file(_source().config_file)
        compute = layers.Compute(dtype, skip_padding=True, parts=2)
        distribution.use_one_core_per_part(compute)
        model = heads.ClassifierModel(config, 2, compute, seed=1)
        optimizer = optimizers.create_optimizer(1e-5, 1000, 0)
        optimizer.build(model.trained_variables)
        signature = [
            {name: tf.TensorSpec([None] * x.ndim, tf.int32) for name, x in batches[0].items()}
        ]

        prepared = model.prepare_weights()

        @tf.function(input_signature=signature)
        def step(features):
            if mode == "infer":  # as in evaluation, with weights that were prepared once
                with model.use_weights(prepared):
                    return tf.reduce_sum(model(features)["logits"])
            with tf.GradientTape() as tape:
                loss = model.loss(model(features, training=True), features)
            gradients = tape.gradient(loss, model.trained_variables)
            optimizer.apply_gradients(zip(gradients, model.trained_variables, strict=True))
            return loss

        self._step = step
        self._batches = [
            {name: tf.constant(x, tf.int32) for name, x in batch.items()} for batch in batches
        ]

    def run(self):
        started = time.perf_counter()
        for batch in self._batches:
            self._step(batch).numpy()
        return time.perf_counter() - started


class Peer:
    """Another side, in a process that waits for a line before each run."""

    def __init__(self, name, python, how, mode, dtype, batches_file):
        command = [python, os.path.join(_HERE, f"peer_{name}.py"), batches_file]
        command += [FLAGS.model_dir or FLAGS.albert_config_file, mode, dtype, how]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=harness.environment(),
        )

    def run(self):
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self._process.args} ended with {self._process.wait()}")
        return float(line)

    def end(self):
        self._process.kill()
        self._process.wait()


def peers(mode, dtype, batches_file):
    """{name and way of running: side} of the peers that there is a Python for."""
    return {
        f"{name} {how}": Peer(name, FLAGS[f"{name}_python"].value, how, mode, dtype, batches_file)
        for name in ("transformers", "keras_hub")
        for how in FLAGS[name].value
        if FLAGS[f"{name}_python"].value
    }


def measure(batches, mode, dtype, batches_file):
    """Examples per second of every side, which run in turn: a machine's speed may change."""
    sides = {"ours": Ours(batches, mode, dtype), **peers(mode, dtype, batches_file)}
    times = harness.in_turns({name: side.run for name, side in sides.items()}, FLAGS.rounds)
    for side in list(sides.values())[1:]:
        side.end()
    examples = FLAGS.rounds * sum(len(batch["label_ids"]) for batch in batches)
    return {name: examples / sum(seconds) for name, seconds in times.items()}


def main():
    if FLAGS.trees:
        print(harness.machine())
        compare_trees()
        return
    if len(FLAGS.modes) * len(FLAGS.dtypes) > 1:
        for mode, dtype in itertools.product(FLAGS.modes, FLAGS.dtypes):
            # A process has one setting of threads, which depends on the type.
            arguments = [*sys.argv, f"--modes={mode}", f"--dtypes={dtype}"]
            print(harness.check_output([sys.executable, *arguments]), end="", flush=True)
        return
    batches = list(task_batches() if FLAGS.task_name else full_batches())
    examples = sum(len(batch["label_ids"]) for batch in batches)
    lengths = np.concatenate([batch["input_mask"].sum(1) for batch in batches])
    print(harness.machine(tf))
    print(f"{FLAGS.task_name or 'random tokens'}, {len(batches)} batches, {examples} examples, "
          f"{lengths.mean():.0f} tokens each")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "batches.npz")
        arrays = {
            f"{name}_{i}": x.astype(np.int32)
            for i, batch in enumerate(batches)
            for name, x in batch.items()
        }
        np.savez(path, **arrays)
        for mode in FLAGS.modes:
            for dtype in FLAGS.dtypes:
                rates = measure(batches, mode, dtype, path)
                harness.show(f"{mode:6s} {dtype:9s}", rates)


if __name__ == "__main__":
    harness.run(main, define_flags)
