"""Evaluation and training of GLUE tasks on their real tokens against the padded run.

    python -m benchmarks.training.real_lengths --data_dir=glue --spm_model_file=30k-clean.model

For each task: examples per second of both, the ratio, and the largest difference of a logit. A
padded example costs the same whatever its length, so a few of them are enough for its speed.
Training takes shuffled batches of 32, padded ones in smaller batches, which fit in memory. Weights
are random: neither speed nor equality depends on them.
"""

import dataclasses
import functools
import os
import tempfile
import time

import numpy as np
import tensorflow as tf
from absl import flags

from albert.data import input_options, input_pipeline, record_files
from albert.model import encoder, layers
from albert.tasks import glue
from albert.text import tokenization
from albert.training import distribution, engine, optimizers, train_step
from benchmarks import harness

FLAGS = flags.FLAGS


def define_flags():
    config = harness.config_file("base_v2")
    flags.DEFINE_string("data_dir", None, "Folder of the GLUE tasks.", required=True)
    flags.DEFINE_string("spm_model_file", None, "SentencePiece model.", required=True)
    flags.DEFINE_list("tasks", ["RTE", "MNLI", "SST-2"], "GLUE tasks.")
    flags.DEFINE_string("albert_config_file", config, "Sizes of the model.")
    flags.DEFINE_integer("max_seq_length", 512, "Length to which the padded run pads.")
    flags.DEFINE_integer("eval_examples", 1000, "Examples evaluated at their real length.")
    flags.DEFINE_integer("rounds", 3, "Times that both are measured, in turn.")
    flags.DEFINE_integer("padded_examples", 16, "Examples evaluated with padding.")
    flags.DEFINE_integer("train_steps", 6, "Batches of 32 that are timed; 0 leaves training out.")


def make_engine(task, config, compute, folder):
    run_config = engine.RunConfig(
        output_dir=folder, num_train_steps=1, train_batch_size=1, eval_batch_size=8,
        predict_batch_size=8, save_checkpoints_steps=1, keep_checkpoint_max=1,
        iterations_per_loop=1, log_every_steps=1, seed=1, compute=compute,
    )  # fmt: skip
    return engine.Engine(task, config, run_config, distribution.create_strategy("one_device"))


def evaluation(runner, path, specs, count, trim):
    """Function that predicts `count` examples and returns how many, and their logits."""
    input_fn = input_pipeline.eval_input_fn(
        [path], specs, input_options.EvalInput(trim, max_examples=count)
    )

    def run():
        logits = runner.predict(input_fn)["logits"]
        return len(logits), logits

    return run


def training(task, config, path, specs, compute, batch_size, steps, trim):
    """Function that takes some training steps and returns how many examples that were."""
    model = task.build_model(config, compute, 1)
    optimizer = optimizers.create_optimizer(1e-5, 1000, 0)
    optimizer.build(model.trained_variables)
    dataset = input_pipeline.train_input_fn([path], specs, 1, input_options.TrainInput(trim))
    batches = list(dataset({"batch_size": batch_size}).take(steps))

    @tf.function(reduce_retracing=True)
    def step(features):
        return train_step.run(task, model, optimizer, features, 1)["loss"]

    def run():
        for batch in batches:
            step(batch).numpy()
        return steps * batch_size, None

    return run


def compare(what, fast, slow):
    """Runs both in turns and prints examples per second."""

    def timed(run):
        started = time.perf_counter()
        count, result = run()
        return count, time.perf_counter() - started, result

    sides = {"real": functools.partial(timed, fast), "padded": functools.partial(timed, slow)}
    rounds_of_sides, rates, results = harness.in_turns(sides, FLAGS.rounds), {}, {}
    for name, rounds in rounds_of_sides.items():
        counts, seconds, (*_, results[name]) = zip(*rounds, strict=True)
        rates[name] = sum(counts) / sum(seconds)
    line = harness.compare(f"{what:18s}", rates)
    if results["padded"] is not None:
        padded = results["padded"]
        difference = np.abs(results["real"][: len(padded)] - padded).max()
        line += f"   largest difference of a logit {difference:.1e}"
    print(line, flush=True)


def measure(name, tokenizer, config, folder):
    length = FLAGS.max_seq_length
    row = glue.get_task(name)
    task = dataclasses.replace(
        glue.make_task(row),
        eval_outputs=lambda outputs, features: {"logits": outputs["logits"]},
    )
    specs = glue.feature_specs(length)
    paths = {}
    for split in ("train", "dev"):
        paths[split] = os.path.join(folder, f"{split}.tf_record")
        examples = row.examples(FLAGS.data_dir, split)
        order = np.random.default_rng(1).permutation(len(examples))[:2000]
        rows = (glue.convert_example(examples[i], row, length, tokenizer) for i in order)
        record_files.write(paths[split], specs, rows, {})
    real, padded = layers.Compute(skip_padding=True), layers.Compute()
    shared = (task, config)
    compare(
        f"{name} evaluation",
        evaluation(
            make_engine(*shared, real, folder), paths["dev"], specs, FLAGS.eval_examples, True
        ),
        evaluation(
            make_engine(*shared, padded, folder), paths["dev"], specs, FLAGS.padded_examples, False
        ),
    )
    if not FLAGS.train_steps:
        return
    compare(
        f"{name} training",
        training(*shared, paths["train"], specs, real, 32, FLAGS.train_steps, True),
        training(*shared, paths["train"], specs, padded, 4, 2, False),
    )


def main():
    config = encoder.AlbertConfig.from_json_file(FLAGS.albert_config_file)
    tokenizer = tokenization.FullTokenizer(spm_model_file=FLAGS.spm_model_file)
    print(harness.machine(tf))
    for name in FLAGS.tasks:
        with tempfile.TemporaryDirectory() as folder:
            measure(name, tokenizer, config, folder)


if __name__ == "__main__":
    harness.run(main, define_flags)
