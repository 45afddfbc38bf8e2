"""Tokens per second of pre-training, with batches of similar lengths and with mixed ones.

    python -m benchmarks.training.group_by_length --input_file='records/*' --vocab_file=vocab.txt

The records are those of `create_pretraining_data --mask_in_training`, best with texts of unequal
lengths. Both kinds take as many steps in turns, on the same records. Weights are random: speed does
not depend on them.
"""

import time

import tensorflow as tf
from absl import flags

from albert.data import dynamic_masking, input_pipeline, instances, masking, tfrecord
from albert.model import encoder, layers
from albert.tasks import pretraining
from albert.text import tokenization
from albert.training import optimizers, train_step
from benchmarks import harness

FLAGS = flags.FLAGS
KINDS = {"mixed": False, "grouped": True}


def define_flags():
    flags.DEFINE_string("input_file", None, "Records: comma-separated globs.", required=True)
    flags.DEFINE_string("vocab_file", None, "WordPiece vocabulary.", required=True)
    flags.DEFINE_string("albert_config_file", "configs/albert_mini.json", "Sizes of the model.")
    flags.DEFINE_integer("max_seq_length", 128, "Most tokens of a record.")
    flags.DEFINE_integer("max_predictions_per_seq", 20, "Most masked tokens of a record.")
    flags.DEFINE_integer("train_batch_tokens", 2048, "Tokens per step.")
    flags.DEFINE_integer("steps", 48, "Steps of a round.")
    flags.DEFINE_integer("rounds", 3, "Times that both kinds are timed, in turn.")
    flags.DEFINE_enum("precision", "float32", ["float32", "bfloat16"], "Of the computation.")


def batches(paths, masker, is_grouped):
    """Iterator of training batches."""
    files = dynamic_masking.inspect(paths)
    lengths = (FLAGS.max_seq_length, FLAGS.max_predictions_per_seq)
    reading = pretraining.Reading(lengths, masker, sentence_labels=False)
    data = pretraining.make_data(
        {"train": files, "dev": files}, reading, 1, equal_tokens=True, group_by_length=is_grouped
    )
    mean = dynamic_masking.mean_length(input_pipeline.parse_mixture(FLAGS.input_file, ""))
    input_fn = input_pipeline.train_input_fn(paths, data.specs("train"), 1, data.train_input)
    return iter(input_fn({"batch_size": max(1, round(FLAGS.train_batch_tokens / mean))}))


def steps(config, iterator):
    """Function that takes some training steps: (seconds, real tokens, all positions)."""
    task = pretraining.make_task(sentence_task="none")
    model = task.build_model(config, layers.Compute(FLAGS.precision, skip_padding=True, parts=2), 1)
    optimizer = optimizers.create_optimizer(1e-4, 1000, 0)
    optimizer.build(model.trained_variables)

    @tf.function(reduce_retracing=True, autograph=False)
    def step(features):
        return train_step.run(task, model, optimizer, features, 1)["loss"]

    def run():
        started, tokens, positions = time.perf_counter(), 0, 0
        for features in (next(iterator) for _ in range(FLAGS.steps)):
            step(features).numpy()
            tokens += int(tf.reduce_sum(features["input_mask"]))
            positions += int(tf.size(features["input_mask"]))
        return time.perf_counter() - started, tokens, positions

    return run


def main():
    config = encoder.AlbertConfig.from_json_file(FLAGS.albert_config_file)
    tokenizer = tokenization.FullTokenizer(vocab_file=FLAGS.vocab_file)
    mask = masking.MaskingConfig(FLAGS.max_predictions_per_seq)
    masker = dynamic_masking.Masker(mask, instances.Vocabulary.from_tokenizer(tokenizer), 1)
    paths = tfrecord.named_files(FLAGS.input_file, "--input_file")
    print(harness.machine(tf))
    runs = {
        kind: steps(config, batches(paths, masker, is_grouped))
        for kind, is_grouped in KINDS.items()
    }
    speeds = {}
    for kind, rounds in harness.in_turns(runs, FLAGS.rounds).items():
        seconds, tokens, positions = (sum(column) for column in zip(*rounds, strict=True))
        speeds[kind] = tokens / seconds
        print(f"{kind}: {speeds[kind]:.0f} tokens/s; {1 - tokens / positions:.1%} of the "
              "positions are padding")  # fmt: skip
    print(f"grouped: {speeds['grouped'] / speeds['mixed']:.2f} times as many tokens a second")


if __name__ == "__main__":
    harness.run(main, define_flags)
