"""The same run with several seeds: each in a process and a folder of its own, and their spread.

`seeds.json` says what became of each. Runs that have ended are not made again; one that was
interrupted goes on from its last checkpoint.
"""

import ctypes
import dataclasses
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable
from types import NoneType

from absl import logging

from albert import file_io, json_shapes, restarts, results, stuck

SEEDS = "seeds.json"
FINISHED, STUCK, FAILED = "finished", "stuck", "failed"
_PR_SET_PDEATHSIG = 1
_RUN = {
    "seed": int, "folder": str, "status": str, "exit_status?": (int, NoneType), "restarts": int,
    "result": (*json_shapes.NUMBER, NoneType), "step": (int, NoneType),
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


def _end_with_parent():
    """Has Linux end this process when the one that started it is gone, even by a kill."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def start(study, seed, folder):
    """Makes one run; returns its exit status."""
    package = os.path.dirname(os.path.abspath(__file__))
    command = [sys.executable, "-m", f"{os.path.basename(package)}.{study.script}"]
    command += study.arguments(seed, folder)
    paths = [os.path.dirname(package), os.environ.get("PYTHONPATH")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    process = subprocess.Popen(command, env=environment, preexec_fn=_end_with_parent)
    try:
        return process.wait()
    except KeyboardInterrupt:  # The process has received it, too.
        process.wait()
        raise


def _outcome(seed, name, folder, status):
    """What `seeds.json` holds of a run that has ended."""
    trial = results.read_trial(folder) if file_io.exists(folder) else None
    given_up = restarts.read(folder) if file_io.exists(folder) else []
    outcome = FINISHED
    if status or trial is None:
        outcome = FAILED
    elif stuck.was_warned(folder):
        outcome = STUCK
    return {
        "seed": seed,
        "folder": name,
        "status": outcome,
        "exit_status": status,
        "restarts": len(given_up),
        "result": trial.best_value if trial and not status else None,
        "step": trial.best_step if trial and not status else None,
    }


def summarize(metric, runs):
    """The content of `seeds.json`: the runs, and what those that have learnt say together.

    Args:
      metric: name of the results.
      runs: list of dicts with seed, folder, status, restarts and result.

    Returns:
      dict: metric, runs, mean, deviation (of a sample; None for less than two), best (None
      without any), best_folder, and failures (runs that failed or are stuck).
    """
    good = [run for run in runs if run["status"] == FINISHED]
    values = [run["result"] for run in good]
    pick = min if results.is_loss(metric) else max
    best = pick(good, key=lambda run: run["result"]) if good else {"result": None, "folder": None}
    return {
        "metric": metric,
        "runs": runs,
        "mean": statistics.fmean(values) if values else None,
        "deviation": statistics.stdev(values) if len(values) > 1 else None,
        "best": best["result"],
        "best_folder": best["folder"],
        "failures": len(runs) - len(good),
    }


def _number(value):
    return "" if value is None else f"{value:.4f}"


def to_text(summary):
    """A summary as a table in Markdown, with a line for all runs."""
    metric = summary["metric"]
    lines = [f"| seed | {metric} | best step | restarts | state |", "|---|---|---|---|---|"]
    for run in summary["runs"]:
        step = "" if run["step"] is None else run["step"]
        cells = (run["seed"], _number(run["result"]), step, run["restarts"], run["status"])
        lines.append(f"| {' | '.join(map(str, cells))} |")
    good = len(summary["runs"]) - summary["failures"]
    if good:
        deviation = _number(summary["deviation"]) or "unknown"
        lines.append(
            f"\n{metric}: mean {_number(summary['mean'])}, standard deviation {deviation}, best "
            f"{_number(summary['best'])} ({summary['best_folder']}), over {good} runs; "
            f"{summary['failures']} failed or stuck, left out"
        )
    return "\n".join(lines)


def _known(path, metric):
    """{seed: what became of it} of an earlier call."""
    if not file_io.exists(path):
        return {}
    found = file_io.read_json(path, "seeds")
    json_shapes.check(found, _SHAPE, path)
    json_shapes.check_text(found, path)
    if found["metric"] != metric:
        raise file_io.InputError(
            f"{path} compares runs by {found['metric']}, not by {metric}: give another output_dir"
        )
    for run in found["runs"]:
        known = (FINISHED, STUCK, FAILED)
        if run["status"] not in known or (run["status"] == FINISHED and run["result"] is None):
            raise file_io.InputError(
                f"{path}: seed {run['seed']}: expected a status of {', '.join(known)}, the first "
                f"with a result; found {run['status']!r} and {run['result']!r}"
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
            former = _outcome(seed, name, folder, start_run(study, seed, folder))
        runs.append(former)
        file_io.write_json(path, summarize(study.metric, runs))
    summary = summarize(study.metric, runs)
    if all(run["status"] == FAILED for run in runs):
        raise file_io.InputError(f"none of the {count} runs has ended well; see {path}")
    return to_text(summary)
