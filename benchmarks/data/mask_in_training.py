"""Masks drawn while training: instances per second, and how long a step waits for its batch.

    python -m benchmarks.data.mask_in_training --input_file='corpus/*.txt' \\
        --spm_model_file=30k-clean.model

Makes records of the text in one pass with and without masks, and ten times with them for the sizes
alone. Prints what masking alone and the whole input pipeline (reading, shuffling, parsing, masking)
do per second of processor time, and the time that training steps of the small model wait for their
batches, for both kinds of records in turns. Weights are random: speed does not depend on them.
"""

import os
import tempfile
import time

import numpy as np
import tensorflow as tf
from absl import flags

from albert.data import (
    dynamic_masking,
    input_pipeline,
    instance_files,
    instances,
    masking,
    record_files,
)
from albert.io import file_io, processes
from albert.model import encoder, layers
from albert.tasks import pretraining
from albert.text import tokenization
from albert.training import optimizers, train_step
from benchmarks import harness

FLAGS = flags.FLAGS


def define_flags():
    config = harness.config_file("small")
    flags.DEFINE_string("input_file", None, "Text files: comma-separated globs.", required=True)
    flags.DEFINE_string("spm_model_file", None, "SentencePiece model.", required=True)
    flags.DEFINE_string("albert_config_file", config, "Sizes of the model.")
    flags.DEFINE_integer("max_seq_length", 128, "Tokens in an instance.")
    flags.DEFINE_integer("max_predictions_per_seq", 20, "Most masked tokens in an instance.")
    flags.DEFINE_integer("batch_size", 64, "Instances per step.")
    flags.DEFINE_integer("batches", 100, "Batches that are masked, and that are read.")
    flags.DEFINE_integer("steps", 20, "Training steps of each kind that are timed.")
    flags.DEFINE_integer("rounds", 2, "Times that both kinds are timed, in turn.")


def make(folder, name, mask, passes):
    """Path of the records of the text, of which there are `counts["instances"]`."""
    path = os.path.join(folder, name)
    job = instance_files.Job(
        instances.Settings(max_seq_length=FLAGS.max_seq_length, mask=mask),
        passes,
        spm_model_file=FLAGS.spm_model_file,
    )
    inputs = file_io.expand_globs(FLAGS.input_file, "--input_file")
    instance_files.create(inputs, [path], job, processes.num_cores())
    return path


def masking_rate(masker, path):
    """Instances per second of processor time of masking alone."""
    dataset = record_files.serialized_examples([path]).batch(FLAGS.batch_size, drop_remainder=True)
    batches = []
    for serialized in dataset.take(FLAGS.batches):
        features = masker.read(serialized, FLAGS.max_seq_length)
        ids, mask = features["input_ids"].numpy(), features["input_mask"].numpy()
        special = (ids == masker.vocabulary.cls_id) | (ids == masker.vocabulary.sep_id)
        batches.append((ids, mask.sum(axis=1), (mask > 0) & ~special))
    started = time.process_time()
    for number, (ids, lengths, maskable) in enumerate(batches):
        masking.mask_batch(
            ids,
            lengths,
            masker.vocabulary.word_starts[ids],
            maskable,
            masker.config,
            len(masker.vocabulary.word_starts),
            masker.vocabulary.mask_id,
            np.random.default_rng(number),
        )
    return len(batches) * FLAGS.batch_size / (time.process_time() - started)


def input_of(path, masker):
    """Dataset of training batches."""
    lengths = (FLAGS.max_seq_length, FLAGS.max_predictions_per_seq)
    source = dynamic_masking.inspect([path])
    reading = pretraining.Reading(lengths, masker)
    data = pretraining.make_data({"train": source, "dev": source}, reading, 1)
    input_fn = input_pipeline.train_input_fn([path], data.specs("train"), 1, data.train_input)
    return input_fn({"batch_size": FLAGS.batch_size})


def input_rate(dataset):
    """Instances per second of processor time of the whole input pipeline."""
    iterator = iter(dataset)
    next(iterator)  # with the start: files are counted, the buffer is filled
    started = time.process_time()
    for _ in range(FLAGS.batches):
        next(iterator)
    return FLAGS.batches * FLAGS.batch_size / (time.process_time() - started)


def waiting(config, dataset):
    """Function that takes some training steps: (seconds, of which spent waiting for batches)."""
    task = pretraining.make_task()
    model = task.build_model(config, layers.Compute(skip_padding=True), 1)
    optimizer = optimizers.create_optimizer(1e-4, 1000, 0)
    optimizer.build(model.trained_variables)
    iterator = iter(dataset)

    @tf.function(reduce_retracing=True, autograph=False)
    def step(features):
        return train_step.run(task, model, optimizer, features, 1)["loss"]

    def run():
        started, waited = time.perf_counter(), 0.0
        for _ in range(FLAGS.steps):
            before = time.perf_counter()
            batch = next(iterator)
            waited += time.perf_counter() - before
            step(batch).numpy()
        return time.perf_counter() - started, waited

    step(next(iterator)).numpy()
    return run


def main():
    config = encoder.AlbertConfig.from_json_file(FLAGS.albert_config_file)
    tokenizer = tokenization.FullTokenizer(spm_model_file=FLAGS.spm_model_file)
    mask = masking.MaskingConfig(FLAGS.max_predictions_per_seq)
    masker = dynamic_masking.Masker(mask, instances.Vocabulary.from_tokenizer(tokenizer), 1)
    print(harness.machine(tf))
    with tempfile.TemporaryDirectory() as folder:
        compact = make(folder, "compact", None, 1)
        ten = os.path.getsize(make(folder, "ten", mask, 10))
        size = os.path.getsize(compact)
        count = record_files.count_records([compact])
        print(f"{size / 1e6:.1f} MB, {count} instances; ten passes with "
              f"masks {ten / 1e6:.1f} MB, {ten / size:.1f} times as much")  # fmt: skip
        print(f"masking alone {masking_rate(masker, compact):.0f} instances/s of one core")
        paths = {"drawn": compact, "stored": make(folder, "static", mask, 1)}
        runs = {}
        for kind, path in paths.items():
            rate = input_rate(input_of(path, masker))
            print(f"masks {kind}: the whole input {rate:.0f} instances/s of one core", flush=True)
            runs[kind] = waiting(config, input_of(path, masker))
        for kind, rounds in harness.in_turns(runs, FLAGS.rounds, warm_up=False).items():
            for seconds, waited in rounds:
                print(f"masks {kind}: {seconds / FLAGS.steps * 1e3:.1f} ms a step, of which "
                      f"{waited / FLAGS.steps * 1e3:.2f} ms ({waited / seconds:.2%}) waiting for "
                      "the batch", flush=True)  # fmt: skip


if __name__ == "__main__":
    harness.run(main, define_flags)
