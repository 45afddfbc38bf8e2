r"""Which book is a part of a chapter from? Cut texts against head and tail and windows.

    python experiments/long_texts.py --data=../shared/data --work=work

Parts of 25 sentences of six books, a third of the chapters for evaluation; a small model from
random weights reads 64 tokens at a time. All modes train for the same number of steps, and so on
about as many tokens. Each run is `run_classifier` with its own folder in --work: a stopped study
continues, and finished runs are skipped. Writes results/long_texts.json and prints a table.
"""

import argparse
import csv
import json
import os
import pathlib
import subprocess
import sys

from albert.experiments import statistics

ROOT = pathlib.Path(__file__).resolve().parent
# How the first sentence of each book begins.
BOOKS = {
    "pride": "It is a truth universally",
    "holmes": "To Sherlock Holmes she is",
    "cities": "It was the best of times",
    "walden": "When I wrote the following pages",
    "machine": "The Time Traveller (for so",
    "alice": "Alice was beginning to get very tired",
}
MODES = ("cut", "head_tail", "windows")
SENTENCES, FOLD = 25, 3  # of a part; every third chapter is for evaluation
SIZES = {
    "vocab_size": 30000, "embedding_size": 32, "hidden_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 2, "intermediate_size": 128, "max_position_embeddings": 64,
    "hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0, "initializer_range": 0.05,
}  # fmt: skip
FLAGS = {
    "task_name": "custom", "do_lower_case": True, "from_scratch": True, "do_train": True,
    "do_eval": True, "max_seq_length": 64, "train_batch_size": 32, "eval_batch_size": 64,
    "train_step": 1000, "save_checkpoints_steps": 1000, "learning_rate": 2e-3,
    "pooling": "mean", "stuck_after": 0,
}  # fmt: skip


def write_data(corpus, work):
    """Writes train.csv and dev.csv; returns the number of parts of each."""
    rows, book = {"train": [], "dev": []}, None
    for path in sorted(corpus.glob("book_*.txt")):
        for number, chapter in enumerate(path.read_text("utf-8").split("\n\n")):
            lines = chapter.split("\n")
            for line in lines:
                book = next((name for name, start in BOOKS.items() if line.startswith(start)), book)
            split = rows["dev" if number % FOLD == 0 else "train"]
            for start in range(0, len(lines), SENTENCES):
                if len(part := lines[start : start + SENTENCES]) == SENTENCES:
                    split.append((" ".join(part), book))
    for name, parts in rows.items():
        with open(work / f"{name}.csv", "w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([("text", "label"), *parts])
    return {name: len(parts) for name, parts in rows.items()}


def run(mode, seed, data, work):
    """Makes a run, or finds it; returns its scores."""
    folder = work / f"{mode}_{seed}"
    if not (folder / "done").exists():
        flags = FLAGS | {
            "long_texts": mode, "seed": seed, "output_dir": folder,
            "train_file": work / "train.csv", "validation_file": work / "dev.csv",
            "albert_config_file": work / "config.json",
            "spm_model_file": data / "spm" / "30k-clean.model",
        }  # fmt: skip
        words = [f"--{name}={value}" for name, value in flags.items()]
        subprocess.run([sys.executable, "-m", "albert.run_classifier", *words], check=True)
        (folder / "done").touch()
    result = json.loads((folder / "run.json").read_text("utf-8"))["result"]
    return {name: result[name] for name in ("eval_accuracy", "macro_f1")}


def table(runs, counts):
    """Returns the lines of a table with the means and the differences from `cut`."""
    yield f"{counts['train']} parts for training, {counts['dev']} for evaluation"
    yield "| long_texts | accuracy of each seed | macro F1 | accuracy, less that of cut |"
    yield "|---|---|---|---|"
    cut = {seed: scores["eval_accuracy"] for seed, scores in runs["cut"].items()}
    for mode, by_seed in runs.items():
        scores = {seed: row["eval_accuracy"] for seed, row in by_seed.items()}
        macro = sum(row["macro_f1"] for row in by_seed.values()) / len(by_seed)
        difference = ""
        if mode != "cut" and len(scores) > 1:
            found = statistics.compare_seeds(cut, scores)
            difference = f"{found.difference:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"
        values = ", ".join(f"{score:.3f}" for score in scores.values())
        yield f"| {mode} | {values} | {macro:.3f} | {difference} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument(
        "--results", type=pathlib.Path, default=ROOT / "results" / "long_texts.json"
    )
    arguments = parser.parse_args()
    os.makedirs(arguments.work, exist_ok=True)
    counts = write_data(arguments.data / "corpus", arguments.work)
    (arguments.work / "config.json").write_text(json.dumps(SIZES))
    runs = {mode: {} for mode in MODES}
    for seed in arguments.seeds:
        for mode in MODES:
            runs[mode][seed] = run(mode, seed, arguments.data, arguments.work)
    record = {"parts": counts, "flags": FLAGS, "sizes": SIZES, "runs": runs}
    text = json.dumps(record, indent=1) + "\n"
    arguments.results.write_text(text, encoding="utf-8")
    print("\n".join(table(runs, counts)))


if __name__ == "__main__":
    main()
