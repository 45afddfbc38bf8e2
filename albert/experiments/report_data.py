"""Reads the runs, sweeps and GLUE tables of a report from their folders, and compares them."""

import contextlib
import dataclasses
import functools
import os
from collections.abc import Iterable, Iterator, Sequence

from albert.experiments import glue_table, sweep_comparison, sweep_journal, sweep_results
from albert.io import file_io
from albert.tasks import entities
from albert.training import evaluation_basis, results, run_record, stuck_runs

RUN, SWEEP, GLUE, SEEDS = "run", "sweep", "GLUE sweep", "runs over seeds"
# Flags that locate files or control logging; they do not affect what is learned.
_PLACES = {"output_dir", "cached_dir", "export_dir", "log_every_steps", "log_format"}
_NOT_SCORES = {"kind", "step", "seconds", "checkpoint", "time", "global_step", "best"}


@dataclasses.dataclass(frozen=True)
class Run:
    """A run and its record.

    Attributes:
      name: its name in the report.
      folder: its output folder.
      record: content of its ``run.json``.
      rows: lines of its ``metrics.jsonl``.
    """

    name: str
    folder: str
    record: dict
    rows: list

    @property
    def task(self) -> tuple[str, str | None]:
        """Returns (script, task), which two runs must share to be compared."""
        return self.record["script"], self.record.get("task") or self.flag("task_name")

    @property
    def best_metric(self) -> str | None:
        """Returns the name of the score that picks its best checkpoint; None if not known yet."""
        return self.record.get("best_metric")

    @property
    def basis(self) -> evaluation_basis.Basis:
        """Returns what its score was measured on."""
        return run_record.basis_of_result(self.folder, self.record)

    @property
    def result(self) -> dict:
        """Returns step and scores of its best checkpoint; {} without one.

        If all attempts were abandoned, the recorded result belongs to one of them: also {}.
        """
        if self.given_up and not self.rows:
            return {}
        return self.record["result"] or {}

    @property
    def score(self) -> float | None:
        """Returns the score of its best checkpoint; None without an evaluation."""
        return self.result.get(self.best_metric)

    @functools.cached_property
    def given_up(self) -> list[dict]:
        """Returns the abandoned attempts, which did not learn; see `stuck_runs.read`."""
        return stuck_runs.read(self.folder)

    def attempts(self) -> list["Run"]:
        """Returns the abandoned attempts as runs, with their own lines."""
        runs = []
        for attempt in self.given_up:
            folder = os.path.join(self.folder, attempt["folder"])
            name = f"{attempt['folder']}, seed {attempt['seed']}"
            runs.append(Run(name, folder, self.record, run_record.read_metrics(folder)))
        return runs

    @property
    def score_name(self) -> str:
        """Returns the name of the score, with the number of checkpoints it is the best of."""
        return results.best_of(self.best_metric or "score", [self.record.get("evaluated")])

    @property
    def test_score(self) -> float | None:
        """Returns the same score on labeled test data; None without such data."""
        return (self.record.get("test") or {}).get(self.best_metric)

    @property
    def remarks(self) -> list[str]:
        """Returns warnings about the score."""
        return stuck_runs.remarks(self.folder, {**self.record, "result": self.result})

    def flag(self, name: str) -> object:
        """Returns the value of a flag; None if the script has no such flag."""
        return self.record["flags"].get(name, {}).get("value")

    def names(self, kind: str) -> list[str]:
        """Returns the names of the numbers in its lines of one kind ("train" or "eval")."""
        names = {}
        for row in self.rows:
            if row.get("kind") == kind:
                names.update({name: None for name, value in row.items() if _is_number(value)})
        return [name for name in names if name not in _NOT_SCORES]

    def curve(self, kind: str, name: str | None) -> tuple[list[int], list[float]]:
        """Returns (steps, values) of a number; two empty lists if it was not recorded."""
        pairs = {
            row["step"]: row[name]
            for row in self.rows
            if row.get("kind") == kind and _is_number(row.get(name))
        }
        return sorted(pairs), [pairs[step] for step in sorted(pairs)]

    @property
    def predicted(self) -> dict | None:
        """Returns the entry of the data of its prediction files; None if the record has none.

        A later session that only predicts has its own inputs.
        """
        for session in reversed(self.record["sessions"]):
            if run_record.PREDICT in session["stages"]:
                return session.get("inputs", self.record["inputs"]).get("predict_data")
        return None

    def find(self, path: str) -> str | None:
        """Finds a path of the run from any working directory; None if it is gone."""
        for candidate in (path, os.path.join(self.record["directory"], path)):
            if file_io.exists(candidate):
                return candidate
        return None


def _is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


@contextlib.contextmanager
def damage_named(path: str) -> Iterator[None]:
    """Turns errors caused by a file's unexpected content into a message that names the file.

    Raises:
      file_io.InputError: replaces the error.
    """
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        if isinstance(error, file_io.InputError):
            raise
        raise file_io.InputError(f"{path} does not hold what was expected: {error!r}") from error


def find_folders(patterns: Iterable[str]) -> list[str]:
    """Returns the folders that match paths and globs, in order, without repetition.

    Raises:
      file_io.InputError: a pattern matches no folder, or there is no pattern.
    """
    paths = []
    for pattern in filter(None, (pattern.strip() for pattern in patterns)):
        matches = [pattern] if file_io.exists(pattern) else file_io.glob(pattern)
        folders = [path.rstrip("/") for path in matches if file_io.is_dir(path)]
        if not folders:
            raise file_io.InputError(f"runs: no folder matches {pattern!r}")
        paths += folders
    if not paths:
        raise file_io.InputError("runs: name at least one folder")
    return list(dict.fromkeys(paths))


def kind_of(folder: str) -> str:
    """Returns the kind of a folder: RUN, SWEEP, GLUE or SEEDS.

    Raises:
      file_io.InputError: it is not the output folder of a run.
    """

    def has(name):
        return file_io.exists(os.path.join(folder, name))

    if sweep_journal.is_sweep(folder):
        return GLUE if has(glue_table.NAME) else SWEEP
    if has(sweep_results.SEEDS):
        return SEEDS
    if has(run_record.RUN):
        return RUN
    raise file_io.InputError(
        f"runs: {folder} is not the output folder of a run or a sweep: it has no {run_record.RUN} "
        f"and no {sweep_journal.NAME}"
    )


def read_run(folder: str, name: str) -> Run:
    """Reads the run of a folder."""
    return Run(name, folder, run_record.read(folder), run_record.read_metrics(folder))


def describe_seeds(folder: str) -> str:
    """Describes runs over seeds in a sentence: mean, deviation, best, failures."""
    path = os.path.join(folder, sweep_results.SEEDS)
    content = file_io.read_json(path, "runs over seeds")
    with damage_named(path):
        texts = {
            name: sweep_results.number(content[name]) for name in ("mean", "deviation", "best")
        }
        runs = content["runs"]
        metric = results.best_of(content["metric"], [run.get("evaluated") for run in runs])
        summary = (
            f"{metric}: mean {texts['mean']}, deviation {texts['deviation']}, best "
            f"{texts['best']}; {content['failures']} of {len(runs)} runs failed or did not learn"
        )
        if content.get("test_mean") is None:
            return summary
        mean, deviation = (
            sweep_results.number(content[f"test_{name}"]) for name in ("mean", "deviation")
        )
        return f"{summary}; {content['metric']} (test): mean {mean}, deviation {deviation}"


def check_same_evaluation(runs: Sequence[Run], *parts: str) -> None:
    """Checks that the scores of runs can be compared.

    Args:
      runs: the runs.
      *parts: see `evaluation_basis.Basis.differences`.

    Raises:
      file_io.InputError: two runs are of different tasks, or were evaluated on different data or
        labels; the message names them.
    """
    first = runs[0]
    for other in runs[1:]:
        if other.task != first.task:
            raise file_io.InputError(
                f"runs: {first.folder} is {_task_text(first)}, but {other.folder} is "
                f"{_task_text(other)}; "
                "a report compares runs of one task"
            )
    bases = [run.basis for run in runs]
    evaluation_basis.check_same([run.folder for run in runs], bases, *parts)


def _task_text(run):
    script, task = run.task
    return f"{script} of the task {task}" if task else script


def short_names(folders: Sequence[str]) -> list[str]:
    """Returns the paths of folders without their common leading part."""
    parts = [os.path.normpath(folder).split(os.sep) for folder in folders]
    if len(parts) == 1:
        return [parts[0][-1]]
    shared = 0
    while all(len(p) > shared + 1 and p[shared] == parts[0][shared] for p in parts):
        shared += 1
    return ["/".join(part[shared:]) for part in parts]


def settings_of(run: Run) -> list[str]:
    """Returns the names of the settings of a run, except those that only name places."""
    return [name for name in run.record["flags"] if name not in _PLACES]


def differing_flags(runs: Sequence[Run]) -> list[str]:
    """Returns the names of the settings in which runs differ."""
    names = dict.fromkeys(name for run in runs for name in settings_of(run))
    return [name for name in names if len({repr(run.flag(name)) for run in runs}) > 1]


def score_families(run: Run) -> list[tuple[str, dict[str, str]]]:
    """Returns the curves of a run: [(family, {kind: name})], losses first, then the best metric.

    A family is one quantity in training and evaluation, such as ``loss`` and ``eval_loss``.
    """
    omitted = {"learning_rate", "gradient_norm", "examples_per_second", "input_share"}
    omitted |= {"tokens_per_second", "tokens_seen"}
    omitted |= {"loss_scale", "threshold", "null_score_diff_threshold"}
    families = {}
    for kind in ("train", "eval"):
        for name in run.names(kind):
            if kind == "eval" and name.startswith("train_"):
                continue  # repeats the lines of training
            if name not in omitted and not name.endswith(("total", "_thresh")):
                family = name.removeprefix("eval_").removeprefix("train_")
                families.setdefault(family, {}).setdefault(kind, name)
    loss = run.curve("train", "loss")
    for family, kinds in list(families.items()):
        if (
            family != "loss"
            and "loss" in families
            and run.curve("train", kinds.get("train")) == loss
        ):
            del families[family]  # the only term of the loss
    best = (run.best_metric or "").removeprefix("eval_")

    def place(family):
        kinds = families[family]
        return (family != "loss", "loss" not in family, family != best, len(kinds) < 2)

    return [(family, families[family]) for family in sorted(families, key=place)]


def entity_scores(run: Run) -> dict[str, dict[str, str]]:
    """Returns the scores of types of entities: {"f1": {type: name}, …}; {} for other runs."""
    scores = {}
    if run.record["script"] != "run_token_classifier":
        return scores
    for name in run.names(run_record.EVAL):
        score, _, kind = name.partition("_")
        if score in entities.SCORES and kind:
            scores.setdefault(score, {})[kind] = name
    return scores


@dataclasses.dataclass(frozen=True)
class Sweep:
    """A sweep and its table.

    Attributes:
      folder: folder of the sweep.
      plan: its description, see `sweep_plan.Plan.describe`.
      summary: see `sweep_comparison.add`.
    """

    folder: str
    plan: dict
    summary: dict


def read_sweep(folder: str) -> Sweep:
    """Reads the sweep of a folder."""
    plan, trials = sweep_journal.read(folder)
    with damage_named(os.path.join(folder, sweep_journal.NAME)):
        summary = sweep_comparison.add(
            sweep_results.summarize(plan, trials),
            difference=sweep_results.find_difference(folder, trials),
        )
        settings = dict(plan["settings"])
    return Sweep(folder, {**plan, "settings": settings}, summary)


def axes_of(sweep: Sweep) -> list[str]:
    """Returns the parameters with more than one value in a sweep, most values first."""
    points = sweep.summary["points"]
    counts = {
        name: len({repr(point["parameters"].get(name)) for point in points})
        for name in sweep.summary["parameters"]
    }
    return [name for name in sorted(counts, key=lambda n: -counts[n]) if counts[name] > 1]


def scored_points(sweep: Sweep) -> list[dict]:
    """Returns the points of a sweep that have a mean score."""
    return [point for point in sweep.summary["points"] if point["mean"] is not None]


def grid_of(sweep: Sweep, names: Sequence[str]) -> tuple[list, list] | None:
    """Returns the mean scores over two parameters for a heat map.

    Args:
      sweep: the sweep.
      names: the parameters of the columns and of the rows.

    Returns:
      ((values of the columns, values of the rows), [rows, columns] of means over all other
      parameters, None without a score), or None if there are too many values for a grid, such
      as those of a random search.
    """
    if any(isinstance(sweep.plan["parameters"].get(name), dict) for name in names):
        return None  # drawn from a range
    points = scored_points(sweep)
    values = [_sorted({point["parameters"][name] for point in points}) for name in names]
    if len(values[0]) > 16 or len(values[1]) > 16 or _is_sparse(points, values):
        return None
    cells = {}
    for point in points:
        key = tuple(point["parameters"][name] for name in names)
        cells.setdefault(key, []).append(point["mean"])
    means = {key: sum(scores) / len(scores) for key, scores in cells.items()}
    return values, [[means.get((c, r)) for c in values[0]] for r in values[1]]


def _is_sparse(points, values):
    return len(points) < 0.5 * len(values[0]) * len(values[1])


def _sorted(values):
    return sorted(values, key=lambda value: (isinstance(value, str), value))
