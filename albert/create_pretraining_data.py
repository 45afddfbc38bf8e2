"""Makes masked-language-model pre-training data (TFRecord files) from plain text.

Input: UTF-8 text, one sentence a line, a blank line between documents.
"""

import functools
import time

from absl import flags

from albert.cli import app, pretraining_data_flags, runner_flags
from albert.data import beam_runner, instance_files, instance_shards
from albert.io import file_io, processes, signals


def define_flags(flag_values=flags.FLAGS):
    """Flags of this script."""
    pretraining_data_flags.define_flags(flag_values)


def create(values, todo, inputs, num_workers):
    """Makes the files; what was counted, and their names."""
    outputs = [path.strip() for path in values.output_file.split(",") if path.strip()]
    if not values.num_shards:
        return instance_files.create(inputs, outputs, todo, num_workers), outputs
    if len(outputs) != 1:
        raise file_io.InputError(
            f"--output_file={values.output_file}: with --num_shards one name was expected, with "
            "which those of the shards begin"
        )
    make_shards = None
    if values.runner == "beam":
        make_shards = functools.partial(
            beam_runner.make_shards,
            arguments=runner_flags.beam_arguments(values),
            num_workers=num_workers,
        )
    counts = instance_shards.create(
        inputs,
        outputs[0],
        values.num_shards,
        todo,
        num_workers,
        values.overwrite_shards,
        make_shards,
    )
    return counts, instance_shards.shard_paths(outputs[0], values.num_shards)


def main(values):
    """Runs the script with parsed flag values."""
    todo = pretraining_data_flags.job(values)
    pretraining_data_flags.warn(values, todo)
    inputs = file_io.expand_globs(values.input_file, "--input_file")
    started = time.monotonic()
    num_workers = values.num_workers or processes.num_cores()
    left = "the output files are as they were"
    if values.num_shards:
        left = "the same command goes on from here"
    try:
        counts, outputs = create(values, todo, inputs, num_workers)
    except signals.Terminated:
        raise signals.Terminated(left) from None
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"interrupted; {left}") from None
    seconds = time.monotonic() - started
    print(instance_files.report(counts, todo, outputs, seconds))


if __name__ == "__main__":
    app.run(main, define_flags)
