"""Runs a study: data, pre-training, held-out losses, BLiMP and fine-tuning of each of its runs.

    python experiments/study.py experiments/sharing.json --data=DATA --work=WORK

A study is a JSON file, see `experiments/README.md`. Every step is a command of this package. A step
that is finished is skipped, so the same command continues a study that was stopped. What a run has
shown is a file in `experiments/results/<study>/`; on another machine, runs with such a file are
skipped too.
"""

import argparse
import contextlib
import csv
import dataclasses
import gzip
import json
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from albert.io import file_io, locks

HERE = pathlib.Path(__file__).resolve().parent
HALVES, HELDOUT = ("choose", "report"), ("books", "others")
AVERAGE = "model.ckpt-average"
_MAX_ROWS = 100  # rows of a recorded curve
# One way of masking for all held-out losses of a study, whatever a run was trained with.
_HELDOUT = {
    "max_seq_length": 128, "max_predictions_per_seq": 20, "masked_lm_prob": 0.15, "ngram": 1,
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Options:
    """The options of a command line.

    Attributes:
      data: folder with corpus_large, blimp, glue, squad and race.
      work: folder of data, weights and logs.
      results: folder of the recorded results.
      steps: number of steps in place of each run's own length, for a trial; None: its own.
      only: names of the runs to make; empty: all.
      dry_run: print the commands instead of running them.
    """

    data: pathlib.Path
    work: pathlib.Path
    results: pathlib.Path
    steps: int | None = None
    only: tuple[str, ...] = ()
    dry_run: bool = False


# --- commands -------------------------------------------------------------------------------------


def to_arguments(flags: dict[str, Any]) -> list[str]:
    """Returns ``--name=value`` of each flag; true and false as absl writes them."""
    return [f"--{name}={_text(value)}" for name, value in flags.items() if value is not None]


def _text(value):
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def read_flag_file(path: pathlib.Path) -> dict[str, str]:
    """Reads a flag file with one ``--name=value`` or ``--name`` per line."""
    lines = (line.strip() for line in path.read_text().splitlines())
    pairs = (line[2:].partition("=") for line in lines if line.startswith("--"))
    return {name: value if equals else "true" for name, equals, value in pairs}


class Commands:
    """Runs commands of the package, each once.

    Args:
      options: `Options`.
    """

    def __init__(self, options: Options) -> None:
        self._options = options

    def run(self, name: str, script: str, flags: dict[str, Any], done: pathlib.Path) -> None:
        """Runs a script unless the file or folder `done`, its last product, exists.

        A product that is the record of a run, ``run.json``, must also say that the run has ended:
        results of evaluations are there before.

        Raises:
          subprocess.CalledProcessError: the script fails; its output has the name of the log.
        """
        arguments = ["-m", f"albert.{script}", *to_arguments(flags)]
        if self._options.dry_run:
            print("python", *arguments)
            return
        if _is_finished(done):
            return
        log = self._options.work / "logs" / f"{name.replace('/', '-')}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with locks.locked(f"{log.with_suffix('.lock')}"):  # Processes of a study share its data.
            if not _is_finished(done):
                self._start(name, script, arguments, log)

    def _start(self, name, script, arguments, log):
        print(f"{name}: albert.{script}, log in {log}", flush=True)
        with open(log, "a") as file:
            status = _wait(subprocess.Popen([sys.executable, *arguments], stdout=file, stderr=file))
        if status:
            raise subprocess.CalledProcessError(status, f"albert.{script} ({log})")


def _is_finished(product: pathlib.Path) -> bool:
    if not product.exists():
        return False
    return product.name != "run.json" or json.loads(product.read_text())["status"] == "done"


def _wait(process):
    """Waits for a process; passes a request to end on to it."""
    try:
        return process.wait()
    except BaseException:
        process.terminate()
        process.wait()
        raise


# --- data -----------------------------------------------------------------------------------------


def read_documents(path: pathlib.Path) -> Iterator[str]:
    """Yields the documents of a text or .gz file, which blank lines separate."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        for document in file.read().split("\n\n"):
            if document.strip():
                yield document.strip("\n") + "\n"


def write_documents(path: pathlib.Path, documents: Iterable[str]) -> None:
    """Writes documents, with blank lines between them; the file exists only when it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    with open(partial, "w", encoding="utf-8") as file:
        file.writelines(f"{document.rstrip()}\n\n" for document in documents)
    partial.rename(path)


def divide(path: pathlib.Path, choose: pathlib.Path, report: pathlib.Path) -> None:
    """Writes every second document to `choose`, the others to `report`."""
    documents = list(read_documents(path))
    write_documents(choose, documents[::2])
    write_documents(report, documents[1::2])


def _found(folder, name):
    """Returns the text file of a name, compressed or not."""
    for ending in (".txt.gz", ".txt"):
        if (folder / f"{name}{ending}").exists():
            return folder / f"{name}{ending}"
    raise SystemExit(f"error: there is no {name}.txt or {name}.txt.gz in {folder}; see --data")


def _vocabulary_name(settings):
    kind = "wordpiece" if settings.get("wordpiece") else "sentencepiece"
    return f"{kind}_{settings['vocab_size']}"


class Data:
    """The corpus, vocabularies and records of studies, made once in the work folder.

    Args:
      options: `Options`.
      commands: `Commands`.
    """

    def __init__(self, options: Options, commands: Commands) -> None:
        self._folder, self._commands = options.work / "data", commands
        self._source, self._dry_run = options.data / "corpus_large", options.dry_run

    def _corpus(self):
        folder = self._folder / "corpus"
        flags = {
            "input_file": f"{self._source}/books_*,{self._source}/others_*",
            "output_dir": folder,
            "text_lines": "sentences",
        }
        self._commands.run("corpus", "prepare_corpus", flags, folder / "report.json")
        return f"{folder}/*.txt"

    def vocabulary(self, settings: dict[str, Any]) -> dict[str, pathlib.Path]:
        """Returns the flag that names the vocabulary, with its file.

        Args:
          settings: "vocab_size" and, for WordPiece instead of SentencePiece, "wordpiece".
        """
        size, wordpiece = settings["vocab_size"], settings.get("wordpiece", False)
        prefix = self._folder / _vocabulary_name(settings)
        flags = {"input_file": self._corpus(), "output_prefix": prefix, "vocab_size": size}
        done = prefix.with_suffix(".txt" if wordpiece else ".model")
        flags["wordpiece"] = wordpiece or None
        self._commands.run(prefix.name, "train_vocab", flags, done)
        return {"vocab_file" if wordpiece else "spm_model_file": done}

    def records(self, settings: dict[str, Any]) -> str:
        """Returns the glob of the records to train on.

        Args:
          settings: as of `vocabulary`, and flags of `create_pretraining_data`.
        """
        names = ("vocab_size", "wordpiece")
        rest = {name: value for name, value in settings.items() if name not in names}
        vocabulary = self.vocabulary(settings)
        slug = "-".join([_vocabulary_name(settings), *map(_text, rest.values())])
        folder = self._folder / "records" / slug
        flags = {
            "input_file": self._corpus(),
            "output_file": folder / "train",
            "num_shards": 4,
            **vocabulary,
            **rest,
        }
        done = folder / "train.manifest.json"
        self._commands.run(f"records-{slug}", "create_pretraining_data", flags, done)
        return f"{folder}/train-*-of-*"

    def heldout(
        self,
        settings: dict[str, Any],
        half: str,
        name: str,
        sentence_task: str,
        masks: dict[str, Any],
    ) -> pathlib.Path:
        """Returns the records of a half of a held-out file, with masks of their own.

        Args:
          settings: as of `vocabulary`.
          half: one of `HALVES`.
          name: one of `HELDOUT`.
          sentence_task: as of create_pretraining_data.
          masks: its flags of lengths and masks.
        """
        text = self._folder / "heldout" / half / f"{name}.txt"
        if not text.exists() and not self._dry_run:
            halves = [self._folder / "heldout" / part / f"{name}.txt" for part in HALVES]
            with locks.locked(str(self._folder / "heldout.lock")):
                divide(_found(self._source, f"heldout_{name}"), *halves)
        vocabulary = self.vocabulary(settings)
        is_plain = sentence_task == "none"
        file = f"{half}-{name}-{sentence_task}-{masks['max_seq_length']}.tf_record"
        target = self._folder / "heldout" / _vocabulary_name(settings) / file
        flags = {
            "input_file": text,
            "output_file": target,
            **vocabulary,
            "sentence_task": sentence_task,
            "sequence_format": "full_sentences" if is_plain else "segment_pair",
            "dupe_factor": 1,
            **masks,
        }
        name = f"{target.parent.name}-{file}"
        self._commands.run(name, "create_pretraining_data", flags, target)
        return target


# --- what a run has left --------------------------------------------------------------------------


def read_rows(folder: pathlib.Path) -> list[dict[str, Any]]:
    """Reads the complete lines of a folder's metrics.jsonl."""
    *lines, _ = (folder / "metrics.jsonl").read_text().split("\n")
    return [json.loads(line) for line in lines]


def describe(folder: pathlib.Path) -> dict[str, Any]:
    """Returns what `run.json` says of a training: sizes, cost, machine and commit."""
    record = json.loads((folder / "run.json").read_text())
    cost = record.get("cost") or {}
    session = record["sessions"][0]
    host = session.get("host") or record.get("host") or {}
    return {
        "steps": cost.get("steps"),
        "tokens": cost.get("tokens"),
        "words": cost.get("words"),
        "flop": cost.get("flop"),
        "seconds": cost.get("seconds"),
        "peak_memory": cost.get("peak_memory"),
        "parameters": record.get("parameters"),
        "machine": {"processor": host.get("processor"), "cores": host.get("cores")},
        "commit": record.get("git_commit"),
    }


def write_curve(folder: pathlib.Path, target: pathlib.Path) -> None:
    """Writes steps, tokens and losses of a training as csv, at most 100 rows of each kind."""
    rows = read_rows(folder)
    names = ("kind", "step", "tokens_seen", "loss", "masked_lm_loss", "learning_rate")
    selection = []
    for kind in ("train", "eval"):
        matches = [row for row in rows if row["kind"] == kind]
        selection += matches[:: -(-len(matches) // _MAX_ROWS) or 1]
    with open(target, "w", newline="") as file:
        writer = csv.DictWriter(file, names, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(selection)


def last_scores(folder: pathlib.Path) -> dict[str, Any]:
    """Returns the numbers of the last evaluation of a folder."""
    row = [row for row in read_rows(folder) if row["kind"] == "eval"][-1]
    return {key: value for key, value in row.items() if key not in ("kind", "checkpoint")}


def last_checkpoint(folder: pathlib.Path) -> pathlib.Path:
    """Returns the prefix of a training's last checkpoint; "model.ckpt-last" before there is one."""
    numbers = [path.stem.rpartition("-")[2] for path in folder.glob("model.ckpt-*.index")]
    steps = [int(number) for number in numbers if number.isdigit()]
    return folder / f"model.ckpt-{max(steps, default='last')}"


def read_seeds(folder: pathlib.Path) -> dict[str, Any]:
    """Returns the metric and the last scores of each seed of a fine-tuning with several seeds."""
    content = json.loads((folder / "seeds.json").read_text())
    scores = {}
    for run in content["runs"]:
        scores[str(run["seed"])] = {"status": run["status"]}
        if run["exit_status"] == 0:  # also a run that did not learn
            scores[str(run["seed"])] |= last_scores(folder / f"seed_{run['seed']}")
    return {"metric": content["metric"], "seeds": scores}


def read_only_seed(folder: pathlib.Path) -> dict[str, Any]:
    """Returns the same of a fine-tuning with seed 1 alone."""
    record = json.loads((folder / "run.json").read_text())
    scores = {"status": record["status"], **last_scores(folder)}
    return {"metric": record["best_metric"], "seeds": {"1": scores}}


# --- a run ----------------------------------------------------------------------------------------


class Run:
    """One run of a study with one seed.

    Args:
      study: content of the study's file, with its "name".
      name: key of "runs".
      seed: seed of pre-training.
      options: `Options`.
    """

    def __init__(self, study: dict[str, Any], name: str, seed: int, options: Options) -> None:
        self._study, self._options, self._seed = study, options, seed
        self._own = study["runs"][name]
        self.name = f"{name}-seed_{seed}"
        self._folder = options.work / study["name"] / self.name
        self.model = self._folder / "last_stage" / "model"
        self._file = options.results / study["name"] / f"{self.name}.json"
        self.record = self._read()
        self._commands = Commands(options)
        self._data = Data(options, self._commands)
        self._settings = {**study.get("data", {}), **self._own.get("data", {})}
        self._masks = {**_HELDOUT, **study.get("heldout", {})}

    def _read(self) -> dict[str, Any]:
        return json.loads(self._file.read_text()) if self._file.exists() else {}

    @property
    def _is_untrained(self) -> bool:
        return self._own.get("untrained", False)

    def parts(self) -> list[str]:
        """Returns the names of the parts that the record will have."""
        tasks = self._own.get("tasks", self._study.get("tasks", {}))
        parts = [f"task {name}" for name in tasks]
        if self._is_untrained:
            return parts
        blimp = ["blimp"] if "blimp" in self._study else []
        return ["pretraining", "heldout", *blimp, *parts]

    def missing(self) -> list[str]:
        """Returns the parts that are not recorded."""
        return [part for part in self.parts() if part not in self.record]

    def make(self) -> None:
        """Makes the missing parts and records each as soon as it is known.

        A step that fails is recorded as such, and ends the run. A run that another process makes
        is left to that process.
        """
        if self._options.dry_run:
            return self._make_missing()
        self._folder.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(locks.locked(str(self._folder / "run.lock"), "is being made"))
            except file_io.InputError:
                print(f"{self.name}: another process makes it", flush=True)
                return
            self.record = self._read()
            self._make_missing()

    def _make_missing(self) -> None:
        if "pretraining" in self.record and not self.model.exists() and not self._options.dry_run:
            print(
                f"{self.name}: {', '.join(self.missing())}: needs its weights, which are not here; "
                f"to train it again, remove {self._file}"
            )
            return
        for part in self.missing():
            kind, _, task = part.partition(" ")
            try:
                content = getattr(self, f"_make_{kind}")(*filter(None, [task]))
            except subprocess.CalledProcessError as error:
                print(f"{self.name}: {part} failed: {error}", flush=True)
                self._write("failed", {"part": part, "message": str(error)})
                return
            if not self._options.dry_run:
                self.record.pop("failed", None)
                self._write(part, content)

    def _write(self, part: str, content: Any) -> None:
        self.record = {"study": self._study["name"], "run": self.name, **self.record, part: content}
        self._file.parent.mkdir(parents=True, exist_ok=True)
        partial = self._file.with_suffix(".partial")
        partial.write_text(json.dumps(self.record, indent=1, sort_keys=True) + "\n")
        partial.rename(self._file)

    def _fill(self, value: Any) -> Any:
        """Replaces {data} and {work} in a flag's text."""
        if not isinstance(value, str):
            return value
        names = {"data": self._options.data, "work": self._options.work}
        for name, path in names.items():
            value = value.replace("{" + name + "}", str(path))
        return value

    def _config_file(self) -> pathlib.Path:
        config = {**self._study["config"], **self._own.get("config", {})}
        path = self._folder / "albert_config.json"
        if not self._options.dry_run:
            path.parent.mkdir(parents=True, exist_ok=True)
            content = {**config, "vocab_size": self._settings["vocab_size"]}
            path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")
        return path

    # --- parts ------------------------------------------------------------------------------

    def flags(self, stage: dict[str, Any] | None = None) -> dict[str, Any]:
        """Returns the flags of pre-training as the record has them: with {data} and {work}.

        Those that are null are removed.

        Args:
          stage: what differs in the first stage, see `experiments/README.md`; None: the last.
        """
        own = (stage or {}).get("flags", {})
        flags = {**self._study.get("flags", {}), **self._own.get("flags", {}), **own}
        if path := flags.pop("flagfile", None):
            flags = {**read_flag_file(HERE.parent / path), **flags}
        if self._options.steps:
            flags.pop("budget_minutes", None)
            steps = self._options.steps
            flags |= {"num_train_steps": steps, "num_warmup_steps": min(steps // 10, 10)}
        return {name: value for name, value in flags.items() if value is not None}

    def _make_pretraining(self) -> dict[str, Any]:
        stages = {}
        start = None
        if stage := {**self._study, **self._own}.get("first_stage"):
            stages["first_stage"] = self._train("first_stage", stage)
            first = self._folder / "first_stage" / "model"
            start = last_checkpoint(first)
        stages |= self._train("last_stage", {}, start)
        if self._options.dry_run:
            return {}
        if stage:
            write_curve(first, self._curve("-first_stage"))
        write_curve(self.model, self._curve())
        config = {**self._study["config"], **self._own.get("config", {})}
        return {"seed": self._seed, "config": config, **stages}

    def _train(
        self, name: str, stage: dict[str, Any], start: pathlib.Path | None = None
    ) -> dict[str, Any]:
        """Trains a stage as the only trial of a sweep, which repeats and resumes it."""
        settings = {**self._settings, **stage.get("data", {})}
        flags = {
            **{name: self._fill(value) for name, value in self.flags(stage).items()},
            "albert_config_file": self._config_file(),
            "init_checkpoint": start,
            "input_file": self._data.records(settings),
            **self._data.vocabulary(self._settings),
            "max_seq_length": settings["max_seq_length"],
        }
        if start:  # which has learned from the teacher's weights already
            flags["init_from_teacher"] = None
        flags |= self._evaluation(settings, flags.get("max_predictions_per_seq"))
        text = " ".join(to_arguments({**flags, "seed": self._seed}))
        folder = self._folder / name
        arguments = {
            "script": "run_pretraining",
            "output_dir": folder,
            "trials": f"model: {text}",
            "metric": "masked_lm_accuracy",
            "retry_failed": True,
        }
        done = folder / "finished"
        self._commands.run(f"{self.name}-{name}", "run_sweep", arguments, done)
        if self._options.dry_run:
            return {}
        done.touch()
        flags = {key: _text(value) for key, value in self.flags(stage).items()}
        return {"flags": flags, "data": settings, **describe(folder / "model")}

    def _evaluation(self, settings: dict[str, Any], slots: Any) -> dict[str, Any]:
        """Returns the flags of evaluations while training, on the half to choose by if possible.

        Records with stored masks have a fixed length and places for a fixed number of masks.
        """
        names = ("max_seq_length", "max_predictions_per_seq")
        lengths = (settings["max_seq_length"], slots)
        if [*map(str, lengths)] != [str(self._masks[name]) for name in names]:
            return {"do_eval": True, "max_eval_steps": 10}
        files = self._heldout_files("choose", HELDOUT, "none")
        return {"do_eval": True, "eval_input_file": [*map(str, files)]}

    def _heldout_files(self, half, names, sentence_task):
        return [
            self._data.heldout(self._settings, half, name, sentence_task, self._masks)
            for name in names
        ]

    def _curve(self, ending: str = "") -> pathlib.Path:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        return self._file.with_name(f"{self.name}{ending}.csv")

    def _checkpoints(self) -> list[str]:
        """Returns the prefixes of the last checkpoint and, if there is one, of the average."""
        checkpoints = [last_checkpoint(self.model)]
        if (self.model / f"{AVERAGE}.index").exists():
            checkpoints.append(self.model / AVERAGE)
        return [*map(str, checkpoints)]

    def _evaluate(
        self, checkpoint: str, half: str, names: Iterable[str], sentence_task: str = "none"
    ) -> dict[str, Any]:
        parts = [pathlib.Path(checkpoint).name, half, *names, sentence_task]
        target = self._folder / "-".join(parts)
        files = self._heldout_files(half, names, sentence_task)
        flags = {
            "do_train": False,
            "do_eval": True,
            "albert_config_file": self._config_file(),
            "checkpoint": checkpoint,
            "output_dir": target,
            "input_file": [*map(str, files)],
            "max_seq_length": self._masks["max_seq_length"],
            "max_predictions_per_seq": self._masks["max_predictions_per_seq"],
            "sentence_task": sentence_task,
            "max_eval_steps": 100_000,
            "eval_batch_size": 64,
        }
        done = target / "eval_results.txt"
        self._commands.run(f"{self.name}-{target.name}", "run_pretraining", flags, done)
        return {} if self._options.dry_run else last_scores(target)

    def _make_heldout(self) -> dict[str, Any]:
        """Chooses between the last weights and their average by one half; reports the other."""
        paths = self._checkpoints()
        choices = {
            pathlib.Path(path).name: self._evaluate(path, "choose", HELDOUT)
            for path in paths
            if len(paths) > 1
        }
        best = min(
            choices, key=lambda name: _loss(choices[name]), default=pathlib.Path(paths[0]).name
        )
        checkpoint = str(self.model / best)
        report = {name: self._evaluate(checkpoint, "report", [name]) for name in HELDOUT}
        tasks = {
            task: self._evaluate(checkpoint, "report", ["books"], task)
            for task in self._study.get("sentence_tasks", ())
            if self.flags().get("sentence_task") != "none"
        }
        return {
            "choose": choices, "checkpoint": best, "report": report, "sentence_tasks": tasks,
            "loss": sum(map(_loss, report.values())) / len(report),
        }  # fmt: skip

    def _chosen(self) -> str:
        name = self.record.get("heldout", {}).get("checkpoint", "model.ckpt-last")
        return str(self.model / name)

    def _make_blimp(self) -> dict[str, Any]:
        folder = self._folder / "blimp"
        flags = {
            "data_dir": self._options.data / "blimp",
            "init_checkpoint": self._chosen(),
            "output_dir": folder,
            **self._study["blimp"],
        }
        self._commands.run(f"{self.name}-blimp", "run_blimp", flags, folder / "blimp_pairs.jsonl")
        if self._options.dry_run:
            return {}
        result = json.loads((folder / "blimp.json").read_text())
        return {"overall": result["overall"], "fields": result["fields"]}

    def _make_task(self, name: str) -> dict[str, Any]:
        """Fine-tunes with several seeds."""
        own = self._study["tasks"][name]
        folder = self._folder / name
        count = self._study.get("task_seeds", 3)
        flags = {key: self._fill(value) for key, value in own["flags"].items()}
        flags |= {"output_dir": folder, "num_seeds": count, "seed": 1}
        if self._is_untrained:
            flags |= {"albert_config_file": self._config_file(), "from_scratch": True}
            flags |= self._data.vocabulary(self._settings)
        else:
            flags["init_checkpoint"] = self._chosen()
        done = folder / "finished"
        self._commands.run(f"{self.name}-{name}", own["script"], flags, done)
        if self._options.dry_run:
            return {}
        done.touch()
        return read_seeds(folder) if count > 1 else read_only_seed(folder)


def _loss(scores):
    return scores.get("masked_lm_loss", float("inf"))


# --- a study --------------------------------------------------------------------------------------


def read_study(path: pathlib.Path) -> dict[str, Any]:
    """Reads a study's file; its name is that of the study."""
    return {"name": path.stem, **json.loads(path.read_text())}


def list_runs(study: dict[str, Any], options: Options) -> Iterator[Run]:
    """Yields the runs of a study, all runs with the first seed before those with the next."""
    if unknown := set(options.only) - set(study["runs"]):
        raise SystemExit(f"error: --only: no run {', '.join(sorted(unknown))} in {study['name']}")
    for place in range(max(len(_seeds(study, name)) for name in study["runs"])):
        for name in study["runs"]:
            seeds = _seeds(study, name)
            if place < len(seeds) and (not options.only or name in options.only):
                yield Run(study, name, seeds[place], options)


def _seeds(study, name):
    return study["runs"][name].get("seeds", study["seeds"])


def main(arguments: Iterable[str] | None = None) -> int:
    """Runs a study; returns the exit status, 1 if a run has failed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("study", type=pathlib.Path, help="JSON file of the study")
    parser.add_argument("--data", type=pathlib.Path, default=HERE.parents[1] / "shared" / "data")
    parser.add_argument("--work", type=pathlib.Path, default=HERE.parents[1] / "experiments_work")
    parser.add_argument("--results", type=pathlib.Path, default=HERE / "results")
    parser.add_argument("--steps", type=int, help="steps of each run in place of its own, to try")
    parser.add_argument("--only", default="", help="names of runs, comma-separated")
    parser.add_argument("--dry_run", action="store_true", help="only print the commands")
    fields = vars(parser.parse_args(None if arguments is None else list(arguments)))
    study = read_study(fields.pop("study"))
    fields["only"] = tuple(filter(None, fields["only"].split(",")))
    folders = {name: fields.pop(name).resolve() for name in ("data", "work", "results")}
    options = Options(**folders, **fields)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(os.EX_TEMPFAIL))
    failed = []
    for run in list_runs(study, options):
        if not run.missing():
            print(f"{run.name}: recorded", flush=True)
            continue
        run.make()
        failed += [run.name] if "failed" in run.record else []
    if failed:
        print(f"failed: {', '.join(failed)}; the same command tries them again")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
