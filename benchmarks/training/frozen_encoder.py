"""Steps of SQuAD 1.1: of the whole model, of a head on a frozen encoder, and on its cached outputs.

    python -m benchmarks.training.frozen_encoder --train_file=train.json \\
        --spm_model_file=30k-clean.model
    python -m benchmarks.training.frozen_encoder

Prints seconds a step of each, how they compare, and what the pass that fills the cache takes. A
step waits for its batch, so that reading is part of it. Without a file: random tokens in windows of
40 to 384 tokens, 165 on average. Weights are random: speed does not depend on them.
"""

import functools
import os
import tempfile
import time

import numpy as np
import tensorflow as tf
from absl import flags

from albert.data import input_pipeline, record_files
from albert.model import encoder, layers
from albert.tasks.squad import answers as squad_answers
from albert.tasks.squad import features as squad_features
from albert.tasks.squad import records as squad_records
from albert.tasks.squad import task as squad_task
from albert.text import tokenization
from albert.training import engine, frozen_encoder, optimizers, stages, train_step
from benchmarks import harness
from tests.support import data_samples

FLAGS = flags.FLAGS


def define_flags():
    config = harness.config_file("base_v2")
    flags.DEFINE_string("albert_config_file", config, "Sizes of the model.")
    flags.DEFINE_string("train_file", None, "SQuAD file whose questions are taken.")
    flags.DEFINE_string("spm_model_file", None, "SentencePiece model, for --train_file.")
    flags.DEFINE_integer("max_seq_length", 384, "S.")
    flags.DEFINE_integer("batch_size", 32, "Windows a step.")
    flags.DEFINE_integer("questions", 320, "Questions, all of which the cache is filled with.")
    flags.DEFINE_integer("steps", 3, "Steps of the whole model and of the frozen one in a round.")
    flags.DEFINE_integer("cached_steps", 100, "Steps on cached outputs in a round.")
    flags.DEFINE_integer("rounds", 3, "Times that all are measured, in turn.")
    flags.DEFINE_integer("head_hidden_size", 128, "Outputs of the layer before the output.")


def random_rows(specs):
    rng = np.random.default_rng(1)
    length = FLAGS.max_seq_length
    for number in range(FLAGS.questions):
        tokens = int(np.clip(rng.normal(165, 60), 40, length))
        mask = np.arange(length) < tokens
        yield {
            "unique_ids": squad_features.FIRST_UNIQUE_ID + number,
            "input_ids": rng.integers(5, 30000, length) * mask,
            "input_mask": mask,
            "segment_ids": mask * (np.arange(length) > 12),
            "p_mask": ~mask,
            "start_positions": rng.integers(12, tokens),
            "end_positions": rng.integers(12, tokens),
            "is_impossible": 0,
        }


def write_records(folder, settings):
    path = os.path.join(folder, "train.tf_record")
    specs = squad_records.feature_specs(FLAGS.max_seq_length, is_training=True)
    if not FLAGS.train_file:
        record_files.write(path, specs, random_rows(specs), {})
        return path, specs
    tokenizer = tokenization.FullTokenizer(spm_model_file=FLAGS.spm_model_file)
    examples = squad_answers.read_squad_examples(FLAGS.train_file, is_training=True)
    examples = squad_answers.shuffle_examples(examples)[: FLAGS.questions]
    records = squad_records.convert_examples_to_records(
        examples, tokenizer, tuple(settings.window.values()), is_training=True
    )
    record_files.write_serialized(path, specs, (record for record, _ in records), {})
    return path, specs


def make_run(config, folder):
    run_config = engine.RunConfig(
        output_dir=folder, num_train_steps=1, train_batch_size=FLAGS.batch_size, eval_batch_size=8,
        predict_batch_size=8, save_checkpoints_steps=1, keep_checkpoint_max=1,
        iterations_per_loop=1, log_every_steps=1, seed=1,
        compute=layers.Compute(skip_padding=True, parts=2),
    )  # fmt: skip
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    return stages.Run(config, run_config, strategy)


def stepping(kind, config, compute, data):
    """Function that takes a number of steps; returns seconds per step, with its reading."""
    model = kind.build_model(config, compute, 1)
    optimizer = optimizers.create_optimizer(1e-5, 1000, 0)
    optimizer.build(model.trained_variables)
    input_fn = input_pipeline.train_input_fn(
        data.records("train"), data.specs("train"), 1, data.train_input
    )
    dataset = input_fn({"batch_size": FLAGS.batch_size})

    @tf.function(autograph=False)
    def step(iterator):
        return train_step.run(kind, model, optimizer, next(iterator), 1)["loss"]

    def run(count):
        iterator = iter(dataset)  # each time the same batches: their shapes are compiled once
        next(iterator)  # the pipeline runs
        started = time.perf_counter()
        for _ in range(count):
            step(iterator).numpy()
        return (time.perf_counter() - started) / count

    return run


def main():
    print(harness.machine(tf))
    config = encoder.AlbertConfig.from_json_file(FLAGS.albert_config_file)
    settings = squad_task.Settings(
        FLAGS.max_seq_length, 128, 64, 20, 30, head_hidden_size=FLAGS.head_hidden_size
    )
    whole = squad_task.make_task(squad_task.V1, settings)
    frozen = frozen_encoder.freeze(whole)
    with tempfile.TemporaryDirectory() as folder:
        path, specs = write_records(folder, settings)
        data = data_samples.RecordData(paths=[path], features=specs)
        run = make_run(config, folder)
        cached = frozen_encoder.cached_data(data, frozen, run, os.path.join(folder, "cache"))
        started = time.perf_counter()
        cached.records("train")
        texts = record_files.count_records([path])
        seconds = time.perf_counter() - started
        print(f"filling the cache: {texts} windows in {seconds:.1f} s", flush=True)
        sides = {
            "whole model": (whole, data, FLAGS.steps),
            "frozen encoder": (frozen, data, FLAGS.steps),
            "cached outputs": (frozen, cached, FLAGS.cached_steps),
        }
        compute = run.run_config.compute
        runs = {name: stepping(kind, config, compute, of) for name, (kind, of, _) in sides.items()}
        counts = {name: count for name, (_, _, count) in sides.items()}
        turns = {name: functools.partial(runs[name], count) for name, count in counts.items()}
        times = harness.in_turns(turns, FLAGS.rounds)
        best = {name: min(seconds) for name, seconds in times.items()}
    for name, seconds in best.items():
        ratio = best["whole model"] / seconds
        print(f"{name:15s} {seconds:9.4f} s a step   {ratio:7.2f} times as fast", flush=True)


if __name__ == "__main__":
    harness.run(main, define_flags)
