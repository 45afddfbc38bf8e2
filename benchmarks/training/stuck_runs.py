r"""How soon runs that do not learn get a warning, and that runs that learn get none.

    python -m benchmarks.training.stuck_runs --trial=collapse --data_dir=glue \
        --spm_model_file=30k.model
    python -m benchmarks.training.stuck_runs --trial=good --data_dir=glue \
        --spm_model_file=30k.model --corpus_dir=corpus

Whole commands of `run_classifier` with a small model, from random weights unless --init_checkpoint
names others. Prints a line for each run: the score at its end and the share of the steps at which
the warning came. Trials:

    collapse  SST-2 at a rate at which it collapses, ten seeds.
    good      twenty runs of several tasks at rates at which they learn: of GLUE, and whether a
              sentence of --corpus_dir is from a book.
"""

import gzip
import json
import os
import random
import sys
import tempfile

from absl import flags

from benchmarks import harness

FLAGS = flags.FLAGS
# Task, steps, rate, and the number of seeds.
GOOD = (
    ("SST-2", 600, 2e-4, 4),
    ("SST-2", 300, 1e-4, 2),
    ("QQP", 600, 2e-4, 6),
    ("kind_of_text", 300, 2e-4, 8),
)
# Files whose sentences are to be distinguished.
_FILES = {"kind_of_text": ("books_00", "others_00")}
_SENTENCES = 8000  # of each file; one in eight is for evaluation


def define_flags():
    flags.DEFINE_enum("trial", None, ["collapse", "good"], "Which.", required=True)
    flags.DEFINE_string("data_dir", None, "Folder of the GLUE tasks.", required=True)
    flags.DEFINE_string("spm_model_file", None, "SentencePiece model.")
    flags.DEFINE_string("corpus_dir", None, "Folder of <name>.txt.gz, a sentence a line.")
    flags.DEFINE_string("init_checkpoint", None, "Weights to start from; by default random ones.")
    flags.DEFINE_string("albert_config_file", harness.config_file("small"), "Model's sizes.")
    flags.DEFINE_string("output_dir", None, "Folder to keep everything in; by default none.")
    flags.DEFINE_integer("steps", 1000, "Steps of the runs that collapse.")
    flags.DEFINE_float("rate", 5e-4, "Their rate.")
    flags.DEFINE_list("seeds", [str(seed) for seed in range(1, 11)], "Their seeds.")
    flags.DEFINE_float("stuck_after", 0.2, "Share of the steps of the first judgement.")


def task_flags(folder, task):
    """Flags that name a task; writes the files of one of sentences."""
    if task not in _FILES:
        return {"task_name": task, "data_dir": FLAGS.data_dir}
    rows = []
    for name in _FILES[task]:
        with gzip.open(os.path.join(FLAGS.corpus_dir, f"{name}.txt.gz"), "rt") as file:
            lines = [line.strip() for line in file if 8 <= len(line.split()) <= 40]
        rows += [{"text": line, "label": name} for line in lines[:_SENTENCES]]
    random.Random(1).shuffle(rows)
    parts = {"validation": rows[: len(rows) // 8], "train": rows[len(rows) // 8 :]}
    values = {"task_name": "custom", "text_column": "text", "label_column": "label"}
    for part, content in parts.items():
        path = values[f"{part}_file"] = os.path.join(folder, f"{task}_{part}.jsonl")
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in content)
    return values


def run(folder, task, steps, rate, seed):
    """Trains once; returns the score and what `stuck.json` holds."""
    output_dir = os.path.join(folder, f"{task}_{steps}_{rate:g}_{seed}")
    values = {
        **task_flags(folder, task), "output_dir": output_dir,
        "cached_dir": os.path.join(folder, "cache", task), "max_seq_length": 64, "seed": seed,
        "train_batch_size": 32, "eval_batch_size": 64, "learning_rate": rate, "train_step": steps,
        "warmup_step": steps // 10, "save_checkpoints_steps": steps, "eval_every": steps,
        "stuck_after": FLAGS.stuck_after, "spm_model_file": FLAGS.spm_model_file,
    }  # fmt: skip
    if FLAGS.init_checkpoint:
        values["init_checkpoint"] = FLAGS.init_checkpoint
    else:
        values |= {"albert_config_file": FLAGS.albert_config_file, "from_scratch": True}
    harness.check_output(harness.command("run_classifier", "do_train", "do_eval", **values))
    scores = harness.last_results(output_dir)
    with open(os.path.join(output_dir, "stuck.json"), encoding="utf-8") as file:
        return float(scores["eval_accuracy"]), json.load(file)


def report(folder, runs):
    """Prints a line for each run; returns the shares of the steps at which warnings came."""
    print("| task | steps | rate | seed | score | warned at | effect and deviations by window |")
    print("|---|---|---|---|---|---|---|")
    shares = []
    for task, steps, rate, seed in runs:
        score, state = run(folder, task, steps, rate, seed)
        warning = state["told"]
        shares.append(warning and warning["share"])
        warned = f"{warning['share']:.1%}" if warning else "never"
        windows = "; ".join(
            f"{judgement['effect']:.4f} {judgement['deviations']:.1f}"
            for judgement in state["judgements"][:5]
        )
        print(f"| {task} | {steps} | {rate:g} | {seed} | {score:.4f} | {warned} | {windows} |")
        sys.stdout.flush()
    return shares


def main():
    runs = [("SST-2", FLAGS.steps, FLAGS.rate, int(seed)) for seed in FLAGS.seeds]
    if FLAGS.trial == "good":
        if not FLAGS.corpus_dir:
            sys.exit("--trial=good needs --corpus_dir")
        runs = [
            (task, steps, rate, seed)
            for task, steps, rate, count in GOOD
            for seed in range(1, count + 1)
        ]
    with tempfile.TemporaryDirectory() as folder:
        if FLAGS.output_dir:
            os.makedirs(FLAGS.output_dir, exist_ok=True)
        shares = report(FLAGS.output_dir or folder, runs)
    warned = [share for share in shares if share is not None]
    early = sum(share < 0.3 for share in warned)
    print(f"\n{len(warned)} of {len(shares)} runs got a warning, {early} before 30% of the steps")


if __name__ == "__main__":
    harness.run(main, define_flags)
