"""Evaluation of a GLUE task with batches cut to their real length against the padded run.

    python benchmarks/real_lengths.py --data_dir=glue --spm_model_file=30k-clean.model

Prints seconds and examples per second of both, the ratio, and the largest difference of a logit.
Weights are random: neither speed nor equality depends on them.
"""

import dataclasses
import os
import platform
import tempfile
import time

import numpy as np
import tensorflow as tf
from absl import app, flags

from albert import (
    classifier_utils,
    distribution,
    engine,
    modeling,
    records,
    tokenization,
)

FLAGS = flags.FLAGS
_HERE = os.path.dirname(os.path.abspath(__file__))


def define_flags():
    flags.DEFINE_string("data_dir", None, "Folder of the GLUE tasks.", required=True)
    flags.DEFINE_string("spm_model_file", None, "SentencePiece model.", required=True)
    flags.DEFINE_string("task_name", "RTE", "GLUE task; its dev split is evaluated.")
    flags.DEFINE_string(
        "albert_config_file",
        os.path.join(_HERE, "..", "configs", "albert_base_v2.json"),
        "Sizes of the model.",
    )
    flags.DEFINE_integer("max_seq_length", 512, "Length to which the padded run pads.")
    flags.DEFINE_integer("batch_size", 8, "Examples per batch.")
    flags.DEFINE_integer("max_examples", None, "Use only the first examples.")


def measure(runner, path, specs, trim):
    """(seconds, rows) of predicting all examples after one untimed pass over a few."""
    input_fn = records.eval_input_fn([path], specs, FLAGS.max_examples, trim_batches=trim)
    runner.predict(records.eval_input_fn([path], specs, FLAGS.batch_size, trim_batches=trim))
    started = time.perf_counter()
    rows = runner.predict(input_fn)
    return time.perf_counter() - started, rows


def main(_):
    config = modeling.AlbertConfig.from_json_file(FLAGS.albert_config_file)
    tokenizer = tokenization.FullTokenizer(spm_model_file=FLAGS.spm_model_file)
    glue = classifier_utils.get_task(FLAGS.task_name)
    task = dataclasses.replace(
        classifier_utils.make_task(glue, tokenizer, FLAGS.max_seq_length),
        eval_outputs=lambda model, outputs, features: {"logits": outputs["logits"]},
    )
    specs = task.feature_specs(FLAGS.max_seq_length)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "dev.tf_record")
        examples = task.examples(FLAGS.data_dir, "dev")
        records.write(path, specs, (row for e in examples for row in task.featurize(e)), {})
        run_config = engine.RunConfig(
            output_dir=folder, num_train_steps=1, train_batch_size=1,
            eval_batch_size=FLAGS.batch_size, predict_batch_size=FLAGS.batch_size,
            save_checkpoints_steps=1, keep_checkpoint_max=1, iterations_per_loop=1,
            log_every_steps=1, seed=1,
        )  # fmt: skip
        strategy = distribution.create_strategy("one_device")
        runner = engine.Engine(task, config, run_config, strategy)
        trimmed_seconds, trimmed = measure(runner, path, specs, True)
        padded_seconds, padded = measure(runner, path, specs, False)
    count = len(padded["logits"])
    difference = np.abs(trimmed["logits"] - padded["logits"]).max()
    print(f"machine: {platform.processor() or platform.machine()}, {os.cpu_count()} cores; "
          f"TensorFlow {tf.__version__}")  # fmt: skip
    print(f"{FLAGS.task_name} dev, {count} examples, max_seq_length {FLAGS.max_seq_length}, "
          f"batch {FLAGS.batch_size}, {os.path.basename(FLAGS.albert_config_file)}")  # fmt: skip
    for name, seconds in (("padded", padded_seconds), ("real length", trimmed_seconds)):
        print(f"{name:12s} {seconds:8.1f} s  {count / seconds:8.2f} examples/s")
    print(f"ratio        {padded_seconds / trimmed_seconds:8.2f}")
    print(f"largest difference of a logit {difference:.1e}")


if __name__ == "__main__":
    define_flags()
    app.run(main)
