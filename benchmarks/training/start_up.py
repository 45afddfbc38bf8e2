"""Time from the start of `run_classifier` to its first step, phase by phase.

    python -m benchmarks.training.start_up --data_dir=glue --spm_model_file=30k-clean.model \\
        [--trees=.,../before]

Runs the whole command (train, evaluate, predict, export) in a process of its own, for each
configuration and for each source tree in turns, and prints the median seconds of each phase: import
of TensorFlow and data (records made again), trace, compile and first step, evaluation of the first
checkpoint (which comes before the trace), the whole run, and its processor time. Phases are read
from the times of the log.
"""

import functools
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time

from absl import flags

from benchmarks import harness

FLAGS = flags.FLAGS
# Marks in the log, in the order in which they come.
_MARKS = {
    "import and data": "Wrote .*_train.tf_record",
    "first evaluation": "Evaluated ",
    "set-up": "Building the training graph",
    "trace": "Traced the training graph",
    "compile and first step": "First step after",
    "rest": "Exported to",
}


def define_flags():
    flags.DEFINE_string("data_dir", None, "Folder of the GLUE tasks.", required=True)
    flags.DEFINE_string("spm_model_file", None, "SentencePiece model.", required=True)
    flags.DEFINE_string("task_name", "RTE", "GLUE task.")
    flags.DEFINE_list("configs", ["tiny", "base_v2"], "Names in configs/.")
    flags.DEFINE_list("trees", [str(harness.ROOT)], "Source trees to compare.")
    flags.DEFINE_integer("max_seq_length", 128, "Longest input.")
    flags.DEFINE_integer("train_batch_size", 8, "Batch of training.")
    flags.DEFINE_integer("train_step", 40, "Steps of the tiny model; others take two.")
    flags.DEFINE_integer("rounds", 3, "Times that each tree is run, in turns.")
    flags.DEFINE_bool("do_eval", True, "Evaluate, predict and export too.")


def command(config, folder):
    steps = FLAGS.train_step if config == "tiny" else 2
    stages = ["--do_train"]
    if FLAGS.do_eval:
        stages += ["--do_eval", "--do_predict", f"--export_dir={folder}/export"]
    return [
        *(sys.executable, "-m", "albert.run_classifier", *stages, "--from_scratch"),
        f"--albert_config_file={harness.config_file(config)}",
        f"--spm_model_file={os.path.abspath(FLAGS.spm_model_file)}",
        f"--data_dir={os.path.abspath(FLAGS.data_dir)}",
        f"--task_name={FLAGS.task_name}",
        f"--output_dir={folder}",
        f"--max_seq_length={FLAGS.max_seq_length}",
        f"--train_batch_size={FLAGS.train_batch_size}",
        f"--train_step={steps}",
        f"--save_checkpoints_steps={steps}",
    ]


def run(tree, config):
    """{phase: seconds} of one run."""
    phases = {}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        environment = {**harness.environment(tree), "PYTHONUNBUFFERED": "1"}
        started = last = time.time()
        process = subprocess.Popen(
            command(config, folder), cwd=tree, env=environment, stderr=subprocess.PIPE, text=True
        )
        lines = []
        for line in process.stderr:
            lines.append(line)
            for phase, mark in _MARKS.items():
                if phase not in phases and re.search(mark, line):
                    phases[phase], last = time.time() - last, time.time()
                    if phase == "compile and first step":
                        phases["first step after the start"] = time.time() - started
        if process.wait():
            sys.exit("".join(lines[-20:]))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    phases["whole run"] = time.time() - started
    processor_seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    phases["processor time"] = processor_seconds
    return phases


def main():
    for config in FLAGS.configs:
        sides = {
            tree: functools.partial(run, os.path.abspath(tree), config) for tree in FLAGS.trees
        }
        phases_of_trees = harness.in_turns(sides, FLAGS.rounds, warm_up=False)
        print(f"{config}: {FLAGS.max_seq_length} tokens, batch {FLAGS.train_batch_size}")
        for phase in phases_of_trees[FLAGS.trees[0]][0]:
            medians = [
                statistics.median(
                    phases.get(phase, float("nan")) for phases in phases_of_trees[tree]
                )
                for tree in FLAGS.trees
            ]
            ratio = f"   {medians[1] / medians[0]:.2f}" if len(medians) > 1 else ""
            print(f"  {phase:28s}" + "".join(f"{value:8.2f} s" for value in medians) + ratio)


if __name__ == "__main__":
    harness.run(main, define_flags)
