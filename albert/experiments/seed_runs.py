"""Runs the same training with `num_seeds` seeds, and summarizes the spread of the results.

Each run has its own process and folder. `seeds.json` holds the outcome of each. Finished runs are
not repeated; an interrupted one resumes from its last checkpoint.
"""

import dataclasses
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import NoneType
from typing import Any

from absl import logging

from albert.experiments import statistics, text_tables, trial_processes
from albert.io import file_io, json_shapes, locks, signals
from albert.training import results, run_record, stuck_runs

SEEDS = "seeds.json"
FINISHED, FAILED, UNDEFINED = "finished", "failed", results.UNDEFINED
_STATUSES = (FINISHED, *stuck_runs.LEARNED_NOTHING, FAILED, UNDEFINED)
# Flags that may differ from those of earlier runs of a study.
_MAY_CHANGE = {*run_record.MAY_CHANGE, "num_restarts"}
# Flags that add a stage to a run that has ended.
_STAGES = ("do_predict", "calibrate", "choose_thresholds", "max_error")
_NUMBER = (*json_shapes.NUMBER, NoneType)
_RUN = {
    "seed": int, "folder": str, "status": str, "exit_status?": (int, NoneType), "restarts": int,
    "result": _NUMBER, "step": (int, NoneType), "judged?": bool, "evaluated?": (int, NoneType),
    "baseline?": _NUMBER, "test?": _NUMBER,
}  # fmt: skip
_SHAPE = {"metric": str, "mean": _NUMBER, "deviation": _NUMBER, "runs": [_RUN]}

Entry = dict[str, Any]  # a run in `SEEDS`, as `_outcome` describes it


@dataclasses.dataclass(frozen=True)
class Study:
    """A run to repeat with several seeds.

    Attributes:
      folder: output folder; the run with seed `n` uses its subfolder ``seed_<n>``.
      metric: the result to compare; for losses, lower is better.
      arguments: ``(seed, folder)`` -> command line arguments of a run.
      flags: {name: JSON-ready value} of the flags that all runs have.
    """

    folder: str
    script: str
    metric: str
    arguments: Callable[[int, str], list[str]]
    flags: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def start(study: Study, seed: int, folder: str) -> int:
    """Runs one seed in an output folder and waits for its end; returns the exit status."""
    return signals.wait(trial_processes.start(study.script, study.arguments(seed, folder)))


def _outcome(metric: str, seed: int, name: str, folder: str, status: int) -> Entry:
    """Returns the entry in `seeds.json` of a run that has ended.

    Args:
      name, folder: name of its folder inside that of the study, and whole path.

    Returns:
      {"seed", "folder": `name`, "status": one of `_STATUSES`, "exit_status", "restarts": number of
      abandoned attempts, "result": best score, "step": its step, "judged": whether learning was
      judged, and `run_record.Context`: "evaluated", "baseline", "test": score}; None: unknown.
    """
    is_there = file_io.exists(folder)
    trial = results.read_trial(folder) if is_there else None
    given_up = stuck_runs.read(folder) if is_there else []
    context = run_record.read_context(folder, metric)
    outcome, verdict = FAILED, ""
    if trial and not status and math.isnan(trial.best_value):
        logging.warning("seed=%d: its %s is %s", seed, metric, UNDEFINED)
        outcome = UNDEFINED
    elif trial and not status:
        verdict = stuck_runs.verdict(folder, trial.best_step)
        outcome = verdict if verdict in stuck_runs.LEARNED_NOTHING else FINISHED
    scored = trial if outcome not in (FAILED, UNDEFINED) else None
    return {
        "seed": seed,
        "folder": name,
        "status": outcome,
        "exit_status": status,
        "restarts": len(given_up),
        "result": scored.best_value if scored else None,
        "step": scored.best_step if scored else None,
        "judged": verdict != stuck_runs.NOT_JUDGED,
        "evaluated": context.evaluated,
        "baseline": context.baseline,
        "test": context.test.get(metric),
    }


def _remark(metric: str, run: Entry) -> str:
    """Returns a warning about the score `metric` of a run; "" without one."""
    is_loss = results.is_loss(metric)
    return results.remark_on_baseline(run["result"], run.get("baseline"), is_loss)


def _counted(runs: Iterable[Entry], name: str) -> list[float]:
    """Returns the scores of the runs that have learned; `name`: "result" (dev data) or "test"."""
    good = [run for run in runs if run["status"] == FINISHED]
    return [run[name] for run in good if run.get(name) is not None]


def summarize(metric: str, runs: list[dict]) -> dict:
    """Returns the content of `seeds.json`: the runs, and statistics of those that have learned.

    Returns:
      dict: metric, runs, mean, deviation (of a sample; None for fewer than two), the same for the
      test data if it has labels, best (None if no run is better than a constant answer),
      best_folder, and failures (number of runs that failed or have learned nothing).
    """
    good = [run for run in runs if run["status"] == FINISHED]
    pick = min if results.is_loss(metric) else max
    better = [run for run in good if not _remark(metric, run)]
    best = pick(better, key=lambda run: run["result"], default={"result": None, "folder": None})
    scores, tested = _counted(runs, "result"), _counted(runs, "test")
    of_scores, of_tests = map(statistics.Summary.from_scores, (scores, tested))
    return {
        "metric": metric,
        "runs": runs,
        "mean": of_scores.mean,
        "deviation": of_scores.deviation,
        "test_mean": of_tests.mean,
        "test_deviation": of_tests.deviation,
        "best": best["result"],
        "best_folder": best["folder"],
        "failures": len(runs) - len(good),
    }


def to_text(summary: dict) -> str:
    """Returns a summary of `summarize` as a table in Markdown, with a line about all runs."""
    metric, runs = summary["metric"], summary["runs"]
    name = results.best_of(metric, [run.get("evaluated") for run in runs])
    is_tested = summary["test_mean"] is not None
    header = ["seed", name, *([f"{metric} (test)"] if is_tested else [])]
    header += ["best step", "restarts", "state"]
    rows = []
    for run in runs:
        scores = [run["result"], *([run.get("test")] if is_tested else [])]
        cells = [run["seed"], *(text_tables.number(score, "") for score in scores)]
        rows.append([*cells, run["step"], run["restarts"], "; ".join(_state(metric, run))])
    lines = [text_tables.write(header, rows)]
    good = len(runs) - summary["failures"]
    if good:
        spread, best = _spread_text(summary, ""), _best_text(summary)
        lines.append(f"{name}: {spread}, {best}, over {good} runs")
    else:
        missing = "a score" if any(run["status"] == UNDEFINED for run in runs) else "learned"
        lines.append(f"{name}: no run has {missing}: {_counts(runs)}")
    if is_tested:
        lines.append(f"{metric} (test): {_spread_text(summary, 'test_')}")
    return "\n".join([*lines, *_cautions(runs)])


def _cautions(runs: Sequence[Entry]) -> Iterator[str]:
    """Yields lines about runs that are omitted or restarted, and about missing intervals."""
    counts, restarts = _counts(runs), sum(run["restarts"] for run in runs)
    if counts and any(run["status"] == FINISHED for run in runs):
        yield (
            f"Left out of the mean: {counts}, of {len(runs)} runs. It is the mean of runs that "
            "learn; a new run may fail as these did."
        )
    if restarts:
        yield (
            f"{restarts} restarts with other seeds: the scores are those of the attempts that "
            "learned."
        )
    if len(runs) > 1 and not statistics.is_installed():
        yield statistics.NOT_INSTALLED


def _state(metric: str, run: Entry) -> Iterator[str]:
    """Yields the parts of the text about a run, of which `metric` is the score, in the table."""
    is_judged = run.get("judged", True) or run["status"] != FINISHED
    judged = "" if is_judged else stuck_runs.NOT_JUDGED
    return filter(None, [run["status"], judged, _remark(metric, run)])


def _spread_text(summary: dict[str, Any], prefix: str) -> str:
    """Returns mean, interval and deviation of a result of `summarize`.

    `prefix` of the keys: "" (dev data) or "test_".
    """
    deviation = text_tables.number(summary[f"{prefix}deviation"], "unknown")
    scores = _counted(summary["runs"], "test" if prefix else "result")
    interval = statistics.Summary.from_scores(scores).interval
    mean = text_tables.number(summary[f"{prefix}mean"])
    mean += f" (95% interval {text_tables.interval(*interval)})" if interval else ""
    return f"mean {mean}, standard deviation {deviation}"


def _best_text(summary: dict[str, Any]) -> str:
    """Returns the best score of a summary of `summarize`, as text."""
    if summary["best"] is None:
        return "none is better than a constant answer"
    return f"best {text_tables.number(summary['best'])} ({summary['best_folder']})"


def _counts(runs: Iterable[Entry]) -> str:
    """Returns the numbers of runs that are omitted from the mean, by outcome."""
    statuses = [run["status"] for run in runs if run["status"] != FINISHED]
    return ", ".join(f"{statuses.count(status)} {status}" for status in dict.fromkeys(statuses))


def read(path: str) -> dict:
    """Reads a `seeds.json`, see `summarize`."""
    summary = file_io.read_json(path, "seeds")
    json_shapes.check(summary, _SHAPE, path)
    json_shapes.check_text(summary, path)
    return summary


def describe(folder: str) -> str:
    """Describes runs over seeds in a sentence: mean, deviation, best, failures."""
    content = read(os.path.join(folder, SEEDS))
    summary, runs = summarize(content["metric"], content["runs"]), content["runs"]
    name = results.best_of(summary["metric"], [run.get("evaluated") for run in runs])
    text = (
        f"{name}: {_mean_text(summary, '')}, best {text_tables.number(summary['best'])}; "
        f"{summary['failures']} of {len(runs)} runs failed, did not learn or have an undefined "
        "score"
    )
    if summary["test_mean"] is None:
        return text
    return f"{text}; {summary['metric']} (test): {_mean_text(summary, 'test_')}"


def _mean_text(summary: dict[str, Any], prefix: str) -> str:
    """Returns mean and deviation of a summary as text, see `_spread_text`."""
    keys = ("mean", "deviation")
    return ", ".join(f"{key} {text_tables.number(summary[prefix + key])}" for key in keys)


def folders_of_runs(folder: str) -> list[str]:
    """Returns the folders that have a record of a run: a folder, or those of its seeds."""
    if not file_io.exists(folder):
        return []
    names = [name for name in sorted(file_io.listdir(folder)) if name.startswith("seed_")]
    paths = [folder, *(os.path.join(folder, name) for name in names)]
    return [path for path in paths if file_io.exists(os.path.join(path, run_record.RUN))]


def count_restarts(folder: str) -> int:
    """Returns the number of abandoned attempts of a run, or of all runs over seeds, in a folder."""
    path = os.path.join(folder, SEEDS)
    if file_io.exists(path):
        return sum(run["restarts"] for run in read(path)["runs"])
    return len(stuck_runs.read(folder)) if file_io.exists(folder) else 0


def _known(path: str, metric: str) -> dict[int, Entry]:
    """Returns {seed: its entry} of `seeds.json` at a path, {} if it is missing.

    Checks that it has the same metric.
    """
    if not file_io.exists(path):
        return {}
    summary = read(path)
    if summary["metric"] != metric:
        raise file_io.InputError(
            f"{path} compares runs by {summary['metric']}, not by {metric}: give another output_dir"
        )
    for run in summary["runs"]:
        if run["status"] not in _STATUSES or (run["status"] == FINISHED and run["result"] is None):
            raise file_io.InputError(
                f"{path}: seed {run['seed']}: expected a status of {', '.join(_STATUSES)}, the "
                f"first with a result; found {run['status']!r} and {run['result']!r}"
            )
    return {run["seed"]: run for run in summary["runs"]}


def differences(recorded: Mapping[str, Any], flags: Mapping[str, Any]) -> list[str]:
    """Returns the flags, as ``name=value (was value)``, with which a run cannot be resumed.

    Both arguments are {name: JSON-ready value}. Flags that its record lacks are not compared.
    """
    was = {name: recorded[name]["value"] for name in flags if name in recorded}
    return [
        f"{name}={flags[name]} (was {value})"
        for name, value in was.items()
        if value != flags[name] and name not in _MAY_CHANGE
    ]


def _check_same_study(study: Study, folders: Iterable[str]) -> None:
    """Rejects a study whose runs, in `folders`, have other settings."""
    for folder in folders:
        if different := differences(run_record.read(folder)["flags"], study.flags):
            raise file_io.InputError(
                f"output_dir={study.folder}: {folder} is a run with other settings: "
                f"{', '.join(different)}; give the same, or use another output_dir"
            )


def find_outdated(folders: Sequence[str]) -> list[str]:
    """Returns the folders of runs whose scores are of data that has changed since.

    Raises:
      file_io.InputError: the data that a run was trained on, or a model that it was trained with,
        has changed.
    """
    outdated = []
    for folder, roles in zip(folders, run_record.changed_inputs(folders), strict=True):
        for role in (run_record.TRAIN_DATA, *run_record.MODELS):
            if role in roles:
                path = run_record.read(folder)["inputs"][role]["path"]
                raise file_io.InputError(
                    f"{folder} was trained on {path}, and this {role} has changed since: its score "
                    "does not belong to the same study; restore the file, or use another output_dir"
                )
        if roles:
            logging.info("%s: %s has changed: it is evaluated again", folder, ", ".join(roles))
            outdated.append(folder)
    return outdated


def _has_new_stages(study: Study, folder: str) -> bool:
    """Returns whether the flags of a study have stages that its run in a folder did not have."""
    if not file_io.exists(os.path.join(folder, run_record.RUN)):
        return False
    recorded = run_record.read(folder)["flags"]
    new = [
        name
        for name in _STAGES
        if study.flags.get(name) not in (None, False)
        and recorded.get(name, {}).get("value") != study.flags[name]
    ]
    if new:
        logging.info("%s: it runs again for %s", folder, ", ".join(new))
    return bool(new)


def _check_can_resume(study: Study, unfinished: Sequence[str]) -> None:
    """Rejects a study with unfinished runs of which only the best checkpoint is left.

    `unfinished`: folders of these runs.
    """
    if unfinished and study.flags.get("keep_only_best"):
        raise file_io.InputError(
            f"output_dir={study.folder}: {unfinished[0]} must be evaluated or predict again, but "
            "keep_only_best has removed what resuming needs: do this in its folder by a command "
            "without do_train and num_seeds, or use another output_dir"
        )


def run(
    study: Study, first_seed: int, count: int, start_run: Callable[[Study, int, str], int] = start
) -> str:
    """Makes the missing runs, and writes `seeds.json` after each; returns a table of all runs.

    Args:
      first_seed: seed of the first run; each later run has the next seed.
      start_run: ``(study, seed, folder) -> exit status``; replaces `start`.
    """
    file_io.make_dirs(study.folder)
    with locks.written_by_one(study.folder):
        path = os.path.join(study.folder, SEEDS)
        runs, seeds = _known(path, study.metric), range(first_seed, first_seed + count)
        others = sorted({*runs} - {*seeds})
        paths = folders_of_runs(study.folder)
        _check_same_study(study, paths)
        outdated = find_outdated(paths)
        folders = {seed: os.path.join(study.folder, f"seed_{seed}") for seed in (*seeds, *others)}
        missing = [seed for seed in seeds if seed not in runs or runs[seed]["status"] == FAILED]
        again = [seed for seed, folder in folders.items() if folder in outdated and seed in runs]
        again += [seed for seed in seeds if _has_new_stages(study, folders[seed])]
        _check_can_resume(study, [folders[seed] for seed in again if seed not in missing])
        due = [seed for seed in folders if seed in (*missing, *again)]
        for number, seed in enumerate(due, 1):
            if runs.pop(seed, None):  # if this is interrupted, its run has no result
                _write(path, study.metric, runs)
            folder = folders[seed]
            logging.info("Run %d of %d: seed=%d in %s", number, len(due), seed, folder)
            status = start_run(study, seed, folder)
            runs[seed] = _outcome(study.metric, seed, f"seed_{seed}", folder, status)
            _write(path, study.metric, runs)
        if all(runs[seed]["status"] == FAILED for seed in seeds):
            raise file_io.InputError(f"all {len(seeds)} runs failed; see {path}")
        note = f"\nWith the runs of earlier commands: seed {', '.join(map(str, others))}"
        return to_text(_summary(study.metric, runs)) + (note if others else "")


def _summary(metric: str, runs: Mapping[int, Entry]) -> dict:
    """Returns `summarize` of {seed: run}, in the order of the seeds."""
    return summarize(metric, [runs[seed] for seed in sorted(runs)])


def _write(path: str, metric: str, runs: Mapping[int, Entry]) -> None:
    """Writes `seeds.json`, see `_summary`."""
    file_io.write_json(path, _summary(metric, runs))
