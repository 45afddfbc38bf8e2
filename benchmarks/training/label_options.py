"""Training steps with class weights, and of several labels per text, against a plain classifier's.

    python -m benchmarks.training.label_options

Random tokens and labels, and random weights: no speed depends on them. Prints the time of the
plain step over that of each other side, which are measured in turns.
"""

import statistics
import time

import numpy as np
import tensorflow as tf
from absl import flags

from albert.io import tables
from albert.model import encoder, layers
from albert.tasks import custom, glue, label_sets, multi_label
from albert.training import optimizers, train_step
from benchmarks import harness

FLAGS = flags.FLAGS


def define_flags():
    config = harness.config_file("base_v2")
    flags.DEFINE_string("albert_config_file", config, "Sizes of the model.")
    flags.DEFINE_integer("batch_size", 8, "Examples of a step.")
    flags.DEFINE_integer("max_seq_length", 128, "Tokens of an example.")
    flags.DEFINE_integer("labels", 3, "Number of labels.")
    flags.DEFINE_integer("rounds", 20, "Times that each step is measured.")


def make_tasks():
    """Returns {side: its task}; texts have one label, or any number of them."""
    columns, labels = tables.Columns(), tuple(map(str, range(FLAGS.labels)))
    one, several = (
        kind({}, columns, labels) for kind in (custom.CustomTask, label_sets.LabelSetTask)
    )
    weights = [1.0 + label for label in range(FLAGS.labels)]
    return {
        "plain": glue.make_task(one),
        "weighted": glue.make_task(one, class_weights=weights),
        "multi_label": multi_label.make_task(several),
        "multi_label_weighted": multi_label.make_task(several, positive_weights=weights),
    }


def make_step(task, config, has_sets):
    """Returns a function that takes a step and returns its seconds.

    Args:
      has_sets: whether texts have any number of labels.
    """
    model = task.build_model(config, layers.Compute(), 1)
    optimizer = optimizers.create_optimizer(1e-5, 1000, 0)
    optimizer.build(model.trained_variables)
    shape, rng = (FLAGS.batch_size, FLAGS.max_seq_length), np.random.default_rng(1)
    labels = rng.integers(0, FLAGS.labels, shape[:1])
    if has_sets:
        labels = rng.integers(0, 2, (FLAGS.batch_size, FLAGS.labels))
    features = {
        "input_ids": tf.constant(rng.integers(5, config.vocab_size, shape), tf.int32),
        "input_mask": tf.ones(shape, tf.int32),
        "segment_ids": tf.zeros(shape, tf.int32),
        "label_ids": tf.constant(labels, tf.int32),
        "is_real_example": tf.ones(shape[:1], tf.int32),
    }

    @tf.function(autograph=False)
    def step():
        return train_step.run(task, model, optimizer, features, 1)["loss"]

    def run():
        started = time.perf_counter()
        step().numpy()
        return time.perf_counter() - started

    return run


def main():
    config = encoder.AlbertConfig.from_json_file(FLAGS.albert_config_file)
    sides = {
        name: make_step(task, config, name.startswith("multi_label"))
        for name, task in make_tasks().items()
    }
    seconds = harness.in_turns(sides, FLAGS.rounds)
    rates = {name: 1 / statistics.median(times) for name, times in seconds.items()}
    print(harness.machine(tf))
    print(harness.compare("training step", rates, "steps/s"))


if __name__ == "__main__":
    harness.run(main, define_flags)
