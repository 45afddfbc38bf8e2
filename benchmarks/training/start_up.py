"""Time from the start of `run_classifier` to its first step, phase by phase.

    python -m benchmarks.training.start_up --data_dir=glue --spm_model_file=30k-clean.model \\
        [--trees=.,../before]
    python -m benchmarks.training.start_up --data_dir=glue --task_name=SST-2 \\
        --train_batch_size=32 --configs= --init_checkpoints=all-MiniLM-L6-v2 --second_run

Runs the whole command (train, evaluate, predict, export) in a process of its own, for each
configuration and for each source tree in turns, and prints the median seconds of each phase: import
of TensorFlow, records, weights and the first checkpoint, its evaluation (which comes before the
trace), trace, compile and first step, the whole run, and its processor time. Phases are read from
the times of the log. With --second_run each command runs a second time, into another output folder
with the records and the cache of the first, and the phases of both are printed.
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
# Patterns of the log lines that end the phases, in their order: the first such line after the phase
# before, of records the last.
_ENDS = {
    "import": r"Settings \(",
    "records": r"\.tf_record",
    "weights and checkpoint": "Evaluating model.ckpt-0|Training from step",
    "first evaluation": "Evaluated .* in|Training from step",
    "set-up": "Building the training graph",
    "trace": "Traced the training graph",
    "compile and first step": "First step after",
}
_FIRST_STEP = "first step after the start"


def define_flags():
    flags.DEFINE_string("data_dir", None, "Folder of the GLUE tasks.", required=True)
    flags.DEFINE_string("spm_model_file", None, "SentencePiece model of the --configs.")
    flags.DEFINE_string("task_name", "RTE", "GLUE task.")
    flags.DEFINE_list("configs", ["tiny", "base_v2"], "Names in configs/.")
    flags.DEFINE_list("init_checkpoints", [], "Folders of further models, to be fine-tuned.")
    flags.DEFINE_list("trees", [str(harness.ROOT)], "Source trees to compare.")
    flags.DEFINE_integer("max_seq_length", 128, "Longest input.")
    flags.DEFINE_integer("train_batch_size", 8, "Batch of training.")
    flags.DEFINE_integer("train_step", 40, "Steps of the tiny model; others take two.")
    flags.DEFINE_integer("rounds", 3, "Times that each tree is run, in turns.")
    flags.DEFINE_bool("do_eval", True, "Evaluate, predict and export too.")
    flags.DEFINE_bool("second_run", False, "Run each command twice, the second time with caches.")


def command(model, folder, records):
    """Returns the arguments of a run.

    Args:
      model: name in configs/, or folder of a model to fine-tune.
      records: folder of the records of features.
    """
    steps = FLAGS.train_step if model == "tiny" else 2
    stages = ["--do_train"]
    if FLAGS.do_eval:
        stages += ["--do_eval", "--do_predict", f"--export_dir={folder}/export"]
    if model in FLAGS.configs:
        stages += [
            "--from_scratch",
            f"--albert_config_file={harness.config_file(model)}",
            f"--spm_model_file={os.path.abspath(FLAGS.spm_model_file)}",
        ]
    else:
        stages.append(f"--init_checkpoint={os.path.abspath(model)}")
    return [
        *(sys.executable, "-m", "albert.run_classifier", *stages),
        f"--data_dir={os.path.abspath(FLAGS.data_dir)}",
        f"--task_name={FLAGS.task_name}",
        f"--output_dir={folder}",
        f"--cached_dir={records}",
        f"--max_seq_length={FLAGS.max_seq_length}",
        f"--train_batch_size={FLAGS.train_batch_size}",
        f"--train_step={steps}",
        f"--save_checkpoints_steps={steps}",
    ]


def run(tree, model):
    """Returns {phase: seconds} of a run, and of a second one with --second_run."""
    with tempfile.TemporaryDirectory() as cache:
        phases = _run(tree, model, cache)
        if FLAGS.second_run:
            second = _run(tree, model, cache)
            phases |= {f"second run: {phase}": seconds for phase, seconds in second.items()}
    return phases


def _run(tree, model, cache):
    """Returns {phase: seconds} of a run with the records and caches in a folder."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **harness.environment(tree), "PYTHONUNBUFFERED": "1", "TFHUB_CACHE_DIR": cache
        }  # fmt: skip
        started = time.time()
        process = subprocess.Popen(
            command(model, folder, cache),
            cwd=tree,
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        lines = [(time.time(), line) for line in process.stderr]
        if process.wait():
            sys.exit("".join(line for _, line in lines[-20:]))
        whole = time.time() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    phases, last = {}, started
    first_step = next(at for at, line in lines if re.search(_ENDS["compile and first step"], line))
    for phase, pattern in _ENDS.items():
        times = [at for at, line in lines if last <= at <= first_step and re.search(pattern, line)]
        end = max(times) if phase == "records" else min(times)
        phases[phase], last = end - last, end
    phases[_FIRST_STEP] = first_step - started
    phases["rest"] = whole - phases[_FIRST_STEP]
    phases["whole run"] = whole
    processor_seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    phases["processor time"] = processor_seconds
    return phases


def main():
    for model in [*FLAGS.configs, *FLAGS.init_checkpoints]:
        sides = {tree: functools.partial(run, os.path.abspath(tree), model) for tree in FLAGS.trees}
        phases_of_trees = harness.in_turns(sides, FLAGS.rounds, warm_up=False)
        print(f"{model}: {FLAGS.max_seq_length} tokens, batch {FLAGS.train_batch_size}")
        for phase in phases_of_trees[FLAGS.trees[0]][0]:
            medians = [
                statistics.median(phases[phase] for phases in phases_of_trees[tree])
                for tree in FLAGS.trees
            ]
            is_compared = len(medians) > 1 and medians[0] > 0
            ratio = f"   {medians[1] / medians[0]:.2f}" if is_compared else ""
            print(f"  {phase:38s}" + "".join(f"{value:8.2f} s" for value in medians) + ratio)


if __name__ == "__main__":
    harness.run(main, define_flags)
