"""The same run with several seeds: each in a process and a folder of its own, and their spread.

`seeds.json` says what became of each. Runs that have ended are not made again; one that was
interrupted goes on from its last checkpoint.
"""

import dataclasses
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from types import NoneType

from absl import logging

import albert
from albert.io import file_io, json_shapes, processes, signals
from albert.training import results, run_record, stuck_runs

SEEDS = "seeds.json"
FINISHED, FAILED = "finished", "failed"
_STATUSES = (FINISHED, *stuck_runs.LEARNT_NOTHING, FAILED)
_RUN = {
    "seed": int, "folder": str, "status": str, "exit_status?": (int, NoneType), "restarts": int,
    "result": (*json_shapes.NUMBER, NoneType), "step": (int, NoneType), "judged?": bool,
    "evaluated?": (int, NoneType), "baseline?": (*json_shapes.NUMBER, NoneType),
    "test?": (*json_shapes.NUMBER, NoneType),
}  # fmt: skip
_SHAPE = {"metric": str, "runs": [_RUN]}


@dataclasses.dataclass(frozen=True)
class Study:
    """What is run.

    Attributes:
      folder: output folder; run `n` gets ``seed_<n>`` in it.
      script: module of the package.
      metric: the result to compare; losses are the better the lower.
      arguments: ``(seed, folder) -> list`` of the command line arguments of a run.
    """

    folder: str
    script: str
    metric: str
    arguments: Callable[[int, str], list]


def start(study, seed, folder):
    """Makes one run; returns its exit status."""
    package = os.path.dirname(os.path.abspath(albert.__file__))
    command = [sys.executable, "-m", f"{os.path.basename(package)}.{study.script}"]
    command += study.arguments(seed, folder)
    paths = [os.path.dirname(package), os.environ.get("PYTHONPATH")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    start = processes.end_with_parent
    process = subprocess.Popen(command, env=environment, preexec_fn=start)
    return signals.wait(process)


def _outcome(metric, seed, name, folder, status):
    """What `seeds.json` holds of a run that has ended."""
    is_there = file_io.exists(folder)
    trial = results.read_trial(folder) if is_there else None
    given_up = stuck_runs.read(folder) if is_there else []
    context = run_record.read_context(folder, metric)
    outcome, verdict = FAILED, ""
    if trial and not status:
        verdict = stuck_runs.verdict(folder, trial.best_step)
        outcome = verdict if verdict in stuck_runs.LEARNT_NOTHING else FINISHED
    is_scored = outcome != FAILED
    return {
        "seed": seed,
        "folder": name,
        "status": outcome,
        "exit_status": status,
        "restarts": len(given_up),
        "result": trial.best_value if is_scored else None,
        "step": trial.best_step if is_scored else None,
        "judged": verdict != stuck_runs.NOT_JUDGED,
        "evaluated": context.evaluated,
        "baseline": context.baseline,
        "test": context.test.get(metric),
    }


def _spread(values):
    """Mean and standard deviation (of a sample) of numbers; None where there are too few."""
    mean = statistics.fmean(values) if values else None
    return mean, statistics.stdev(values) if len(values) > 1 else None


def _remark(metric, run):
    """What is wrong with the score of a run; "" if nothing is."""
    is_loss = results.is_loss(metric)
    return results.remark_on_baseline(run["result"], run.get("baseline"), is_loss)


def summarize(metric, runs):
    """The content of `seeds.json`: the runs, and what those that have learnt say together.

    Args:
      metric: name of the results.
      runs: list of dicts with seed, folder, status, restarts and result; also judged, evaluated,
        baseline and test, where they are known.

    Returns:
      dict: metric, runs, mean, deviation (of a sample; None for less than two), the same of the
      test data if it has labels, best (None without any that is better than a constant answer),
      best_folder, and failures (runs that failed or have learnt nothing).
    """
    good = [run for run in runs if run["status"] == FINISHED]
    pick = min if results.is_loss(metric) else max
    better = [run for run in good if not _remark(metric, run)]
    best = pick(better, key=lambda run: run["result"], default={"result": None, "folder": None})
    mean, deviation = _spread([run["result"] for run in good])
    tested = [run["test"] for run in good if run.get("test") is not None]
    test_mean, test_deviation = _spread(tested)
    return {
        "metric": metric,
        "runs": runs,
        "mean": mean,
        "deviation": deviation,
        "test_mean": test_mean,
        "test_deviation": test_deviation,
        "best": best["result"],
        "best_folder": best["folder"],
        "failures": len(runs) - len(good),
    }


def _number(value):
    return "" if value is None else f"{value:.4f}"


def to_text(summary):
    """A summary as a table in Markdown, with a line for all runs."""
    metric, runs = summary["metric"], summary["runs"]
    name = results.best_of(metric, [run.get("evaluated") for run in runs])
    is_tested = summary["test_mean"] is not None
    header = ["seed", name, *([f"{metric} (test)"] if is_tested else [])]
    header += ["best step", "restarts", "state"]
    lines = [f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
    for run in runs:
        step = "" if run["step"] is None else run["step"]
        cells = [run["seed"], _number(run["result"])]
        cells += [_number(run.get("test"))] if is_tested else []
        cells += [step, run["restarts"], "; ".join(_state(metric, run))]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    good = len(runs) - summary["failures"]
    if good:
        left_out = f"; left out: {_counts(runs)}" if good < len(runs) else ""
        said = f"{_said(summary, '')}, {_said_best(summary)}, over {good} runs{left_out}"
        lines.append(f"\n{name}: {said}")
    else:
        lines.append(f"\n{name}: no run has learnt: {_counts(runs)}")
    if is_tested:
        lines.append(f"{metric} (test): {_said(summary, 'test_')}")
    return "\n".join(lines)


def _state(metric, run):
    """The words on a run in the table."""
    is_judged = run.get("judged", True) or run["status"] != FINISHED
    judged = "" if is_judged else stuck_runs.NOT_JUDGED
    return filter(None, [run["status"], judged, _remark(metric, run)])


def _said(summary, of):
    deviation = _number(summary[f"{of}deviation"]) or "unknown"
    return f"mean {_number(summary[f'{of}mean'])}, standard deviation {deviation}"


def _said_best(summary):
    if summary["best"] is None:
        return "none is better than a constant answer"
    return f"best {_number(summary['best'])} ({summary['best_folder']})"


def _counts(runs):
    """How many runs were left out, by what became of them."""
    found = [run["status"] for run in runs if run["status"] != FINISHED]
    return ", ".join(f"{found.count(status)} {status}" for status in dict.fromkeys(found))


def read(path):
    """The content of a `seeds.json`, see `summarize`.

    Raises:
      file_io.InputError: the file is damaged.
    """
    found = file_io.read_json(path, "seeds")
    json_shapes.check(found, _SHAPE, path)
    json_shapes.check_text(found, path)
    return found


def _known(path, metric):
    """{seed: what became of it} of an earlier call."""
    if not file_io.exists(path):
        return {}
    found = read(path)
    if found["metric"] != metric:
        raise file_io.InputError(
            f"{path} compares runs by {found['metric']}, not by {metric}: give another output_dir"
        )
    for run in found["runs"]:
        if run["status"] not in _STATUSES or (run["status"] == FINISHED and run["result"] is None):
            raise file_io.InputError(
                f"{path}: seed {run['seed']}: expected a status of {', '.join(_STATUSES)}, the "
                f"first with a result; found {run['status']!r} and {run['result']!r}"
            )
    return {run["seed"]: run for run in found["runs"]}


def run(study, first_seed, count, start_run=start):
    """Makes the runs that are lacking, one after the other, and writes `seeds.json` after each.

    Args:
      study: `Study`.
      first_seed: seed of the first run; each further one has the next.
      count: number of runs.
      start_run: as `start`.

    Returns:
      The table of all runs, a text.

    Raises:
      file_io.InputError: no run has ended well, or the file of an earlier call is of another study.
    """
    file_io.make_dirs(study.folder)
    path = os.path.join(study.folder, SEEDS)
    known, runs = _known(path, study.metric), []
    for seed in range(first_seed, first_seed + count):
        name = f"seed_{seed}"
        folder = os.path.join(study.folder, name)
        former = known.get(seed)
        if former is None or former["status"] == FAILED:
            logging.info("Run %d of %d: seed=%d in %s", len(runs) + 1, count, seed, folder)
            former = _outcome(study.metric, seed, name, folder, start_run(study, seed, folder))
        runs.append(former)
        file_io.write_json(path, summarize(study.metric, runs))
    summary = summarize(study.metric, runs)
    if all(run["status"] == FAILED for run in runs):
        raise file_io.InputError(f"none of the {count} runs has ended well; see {path}")
    return to_text(summary)
