"""Runs the trials of a sweep: one process and one folder each, so that each trial can resume.

The next step follows only from the journal and the folders of the trials, never from the memory of
this process. So a sweep that is killed at any moment, with or without its trials, resumes where it
stopped. Trials end with the process that started them, and they hold the sweep's lock: none of them
can run at the same time as the next start of the sweep.
"""

import contextlib
import dataclasses
import itertools
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FrameType
from typing import Any

from albert.experiments import (
    seed_runs,
    sweep_comparison,
    sweep_journal,
    sweep_plan,
    sweep_results,
    sweep_search,
    trial_processes,
)
from albert.io import file_io, locks, signals
from albert.training import run_record

# Files to keep of a pruned trial: its settings and results.
RECORDS = {
    *("run.json", "metrics.jsonl", "eval_results.txt", "best_trial.txt"),
    *("attempts.json", "stuck.json", "seeds.json"),
}
_LOCK = "sweep.lock"
_MAX_KILLS = 3  # times that one trial may be killed from outside


@dataclasses.dataclass
class _Process:
    """The process of a trial.

    Attributes:
      log_start: bytes of the log that earlier starts have written.
      evaluations: number of evaluations that were checked for pruning.
    """

    process: subprocess.Popen
    log_start: int
    evaluations: int = 0


class Sweep:
    """Runs the trials of a plan in a folder.

    Args:
      settings: {flag: text} of all trials, to distinguish this sweep from others.
      python: program that runs modules with ``-m``.
      parallel: number of trials that run at the same time.
      say: function that prints a line about an event.
      poll_seconds: time between two checks of the trials.
      baseline: the point to compare the others with, see `sweep_journal.find_point`; None: the
        best one.
      equivalence_margin: largest difference that does not matter; None: not tested.
      changed_flags: ``(arguments, flags of a record) -> differences`` with which the arguments of a
        trial cannot resume a run; by default they never can.
    """

    def __init__(
        self,
        plan: sweep_plan.Plan,
        settings: dict[str, str],
        folder: str,
        python: str,
        parallel: int = 1,
        say: Callable[[str], object] = print,
        poll_seconds: float = 0.2,
        baseline: str | None = None,
        equivalence_margin: float | None = None,
        changed_flags: Callable[[list[str], dict], list[str]] = lambda arguments, flags: ["flags"],
    ) -> None:
        if file_io.is_remote(folder):
            raise file_io.InputError(f"output_dir={folder}: a sweep needs a folder of this machine")
        if plan.needs_history:
            sweep_search.check_installed()
        self._plan, self._folder, self._python = plan, folder, python
        self._parallel, self._say, self._poll_seconds = parallel, say, poll_seconds
        self._running: dict[int, _Process] = {}
        self._kills: dict[int, int] = {}
        self._curves: dict[int, dict[int, float]] = {}
        self._points = sweep_plan.points(plan)
        self._count = sweep_plan.count(plan)
        self._settings, self._baseline = settings, baseline
        self._equivalence_margin, self._changed_flags = equivalence_margin, changed_flags
        # Set once this process holds the lock of the folder.
        self._journal: sweep_journal.Journal | None = None

    @property
    def trials(self) -> list[sweep_journal.Trial]:
        """Returns the trials, once the sweep runs."""
        return self._journal.trials if self._journal else []

    def summary(self) -> dict:
        """Returns the current table with its comparison, see `sweep_comparison.add`."""
        baseline = None
        if self._baseline is not None:
            points = sweep_journal.points_of(self.trials)
            baseline = points.index(sweep_journal.find_point(points, self._baseline))
        folders = (os.path.join(self._folder, trial.name) for trial in self.trials)
        restarts = sum(map(seed_runs.count_restarts, folders))
        difference = sweep_results.find_difference(self._folder, self.trials)
        return sweep_comparison.add(
            self._table(),
            baseline,
            restarts=restarts,
            difference=difference,
            equivalence_margin=self._equivalence_margin,
        )

    def _table(self) -> dict[str, Any]:
        """Returns the current `sweep_results.summarize`."""
        return sweep_results.summarize(self._plan.describe(), self.trials)

    def run(self, retry_failed: bool = False) -> None:
        """Runs all trials that have not ended; writes the table after each, at the end compared.

        Raises:
          file_io.InputError: another process runs the sweep, or the folder has another sweep.
          KeyboardInterrupt: after Ctrl-C; the trials have also ended.
          signals.Terminated: after another signal to end, likewise.
        """
        file_io.make_dirs(os.path.join(self._folder, "logs"))
        lock = locks.inherited(
            os.path.join(self._folder, _LOCK),
            f"runs the sweep in {self._folder} already",
            f"trials of an earlier start of the sweep in {self._folder} still run; end them first",
        )
        with lock as self._lock, _signals_interrupt():
            self._read_journal()
            for trial in self.trials:
                if trial.state == sweep_journal.PRUNED:
                    self._clean(trial)
                if retry_failed and trial.state == sweep_journal.FAILED:
                    trial.reset()
            try:
                self._write()
                while self._start_trials() or self._running:
                    time.sleep(self._poll_seconds)
                    self._check_trials()
                sweep_results.write(self._folder, self.summary())
            except BaseException:
                self._stop()
                raise

    def _read_journal(self) -> None:
        description = {**self._plan.describe(), "settings": self._settings}
        free = ("seeds", "settings") if self._plan.trials else ()
        self._journal = sweep_journal.Journal(self._folder, description, free)
        if self._plan.trials:
            old = {trial.name: trial.arguments for trial in self._journal.trials}
            self._journal.trials = _given_trials(self._plan, self._journal.trials)
            for trial in self._journal.trials:
                if trial.arguments != old.get(trial.name):
                    self._move_other_run(trial)
        self._reset_outdated()

    def _move_other_run(self, trial: sweep_journal.Trial) -> None:
        """Renames the folder of a trial if it has a run that the trial cannot resume."""
        folder = os.path.join(self._folder, trial.name)
        if not file_io.exists(folder):
            return
        runs = seed_runs.folders_of_runs(folder)
        if reason := self._reason_to_move(trial, folder, runs):
            target = _free_folder(self._folder, trial.name)
            file_io.make_dirs(os.path.dirname(target))
            file_io.rename(folder, target)
            self._say(f"{trial.name}: it is trained again; {target} has the run with {reason}")
        else:
            seed_runs.find_outdated(runs)  # an error if its training data or models have changed

    def _reason_to_move(self, trial: sweep_journal.Trial, folder: str, runs: Sequence[str]) -> str:
        """Returns why a trial cannot resume the runs in its folder; "" if it can.

        `runs`: folders of these runs.
        """
        if folder in runs:
            changed = self._changed_flags(trial.arguments, run_record.read(folder)["flags"])
            return f"other settings: {', '.join(changed)}" if changed else ""
        if file_io.exists(os.path.join(folder, seed_runs.SEEDS)):
            one_seed = {"num_seeds": {"value": 1, "source": ""}}
            is_study = self._changed_flags(trial.arguments, one_seed)
            return "" if is_study else "several seeds"  # a study compares its runs itself
        return "" if runs else "other flags and no record"

    def _reset_outdated(self) -> None:
        """Lets trials run again whose scores are of data that has changed since."""
        folders: dict[str, sweep_journal.Trial] = {}
        for trial in self.trials:
            if trial.state in (sweep_journal.DONE, sweep_journal.PRUNED):
                folder = os.path.join(self._folder, trial.name)
                folders |= dict.fromkeys(seed_runs.folders_of_runs(folder), trial)
        for folder in seed_runs.find_outdated(list(folders)):
            folders[folder].reset()

    def _write(self) -> None:
        assert self._journal
        self._journal.write()
        sweep_results.write(self._folder, self._table())

    # --- what comes next ------------------------------------------------------------------------

    def _start_trials(self) -> bool:
        """Starts trials while there is capacity; returns whether it started one."""
        has_started = False
        while len(self._running) < self._parallel and (trial := self._next()):
            self._start(trial)
            has_started = True
        return has_started

    def _next(self) -> sweep_journal.Trial | None:
        """Returns the next trial to run; None if there is none, or if it must wait for others."""
        for trial in self.trials:
            if not trial.has_ended and trial.number not in self._running:
                return trial
        number = len(self.trials)
        if self._count is not None and number >= self._count:
            return None
        # Trials that run at the same time do not count: their timing would affect the suggestions.
        num_known = max(0, number - self._parallel + 1)
        if self._plan.needs_history and not all(t.has_ended for t in self.trials[:num_known]):
            return None
        points = sweep_journal.by_point(self.trials)
        planned = self._lacking(points) or self._new(points, number, num_known)
        if planned is None:
            self._count = number  # All points have been tried.
            return None
        point, seed = planned
        arguments = [sweep_plan.argument(name, value) for name, value in point.items()]
        if seed is not None:
            arguments.append(sweep_plan.argument("seed", seed))
        name = f"trial_{number:04d}"
        trial = sweep_journal.Trial(number, name, arguments, point, seed, num_known)
        self.trials.append(trial)
        return trial

    def _lacking(
        self, points: Iterable[Sequence[sweep_journal.Trial]]
    ) -> tuple[dict[str, Any], int] | None:
        """Returns ({parameter: value}, seed) that a point lacks; None if all are complete."""
        for trials in points:
            tried = {trial.seed for trial in trials}
            for seed in self._plan.seeds:
                if seed not in tried:
                    return trials[0].parameters, seed
        return None

    def _new(
        self, points: Sequence[Sequence[sweep_journal.Trial]], number: int, num_known: int
    ) -> tuple[dict[str, Any], int | None] | None:
        """Returns ({parameter: value}, seed or None) of a new point; None if all were tried.

        Trials from `num_known` on have no results that may be used.
        """
        seed = next(iter(self._plan.seeds), None)
        if self._plan.method == "tpe":
            history = [
                trial if trial.number < num_known else dataclasses.replace(trial, state="running")
                for trial in self.trials
            ]
            return sweep_search.suggest(self._plan, number, history), seed
        tried = {sweep_journal.key_of(trials[0].parameters) for trials in points}
        for point in self._points:
            if sweep_journal.key_of(point) not in tried:
                return point, seed
        return None

    # --- processes ------------------------------------------------------------------------------

    def _start(self, trial: sweep_journal.Trial) -> None:
        trial.state = sweep_journal.RUNNING
        self._write()  # before its folder exists
        log = log_of(self._folder, trial.name)
        folder = os.path.join(self._folder, trial.name)
        arguments = [*self._plan.arguments, *trial.arguments]
        arguments.append(sweep_plan.argument("output_dir", folder))
        log_start = file_io.size(log) if file_io.exists(log) else 0
        process = trial_processes.start(
            self._plan.script, arguments, self._python, log, (self._lock,)
        )
        self._running[trial.number] = _Process(process, log_start)
        self._say(f"{trial.name}: {self._shown(trial)}log: {log}")

    def _shown(self, trial: sweep_journal.Trial) -> str:
        """Returns the point of a trial and "; ", for messages; "" if it has no parameters."""
        names = [name for name in self._plan.parameters if name in trial.parameters]
        pairs = [f"{name}={sweep_plan.text_of(trial.parameters[name])}" for name in names]
        if trial.seed is not None:
            pairs.append(f"seed={trial.seed}")
        return " ".join(pairs) + "; " if pairs else ""

    def _check_trials(self) -> None:
        """Handles the events of running trials."""
        for number, running in list(self._running.items()):
            trial = self.trials[number]
            status = running.process.poll()
            if self._plan.prune and self._prune(trial, running):
                if status is None:
                    trial_processes.kill(running.process)
                del self._running[number]
                self._end(trial)
                self._clean(trial)
            elif status is not None:
                del self._running[number]
                self._take_result(trial, status, running)

    def _prune(self, trial: sweep_journal.Trial, running: _Process) -> bool:
        """Returns whether to prune a trial, whose process is running; records the step."""
        curve = self._curve(trial)
        if len(curve) == running.evaluations:
            return False
        running.evaluations = len(curve)
        earlier = [other for other in self.trials[: trial.known] if other.state == "done"]
        for other in earlier:
            if other.number not in self._curves:
                self._curves[other.number] = self._curve(other)
        curves = [self._curves[other.number] for other in earlier]
        step = sweep_search.step_to_end_at(self._plan, curve, curves)
        if step is None:
            return False
        trial.state, trial.step, trial.value = sweep_journal.PRUNED, step, curve[step]
        return True

    def _curve(self, trial: sweep_journal.Trial) -> dict[int, float]:
        """Returns {step: score} of the evaluations of a trial so far."""
        folder = os.path.join(self._folder, trial.name)
        return sweep_results.read_curve(folder, self._plan.metric)

    def _take_result(self, trial: sweep_journal.Trial, status: int, running: _Process) -> None:
        """Records how a trial has ended: done, failed, or killed, after which it may resume.

        `status`: that of its process at its end; negative: the number of a signal.
        """
        if status == 0:
            trial.state = sweep_journal.DONE
            folder = os.path.join(self._folder, trial.name)
            try:
                score = sweep_results.read_score(folder, self._plan.metric)
                trial.step, trial.value, trial.metrics = score
                learning = sweep_results.read_learning(folder, self._plan.metric, trial.step)
                for name, value in learning.items():
                    setattr(trial, name, value)
            except file_io.InputError as error:
                trial.state, trial.error = sweep_journal.FAILED, [str(error)]
        elif status < 0 or status in (130, signals.STATUS):
            kills = self._kills[trial.number] = self._kills.get(trial.number, 0) + 1
            if kills < _MAX_KILLS:
                # Perhaps memory is short, or this process is the next to be killed.
                self._say(f"{trial.name}: killed from outside; it resumes")
                time.sleep(1)
                return
            trial.state = sweep_journal.FAILED
            trial.error = [f"killed from outside {kills} times (status {status}); out of memory?"]
        else:
            trial.state = sweep_journal.FAILED
            trial.error = trial_processes.error_lines(
                log_of(self._folder, trial.name), running.log_start
            )
        self._end(trial)

    def _end(self, trial: sweep_journal.Trial) -> None:
        self._write()
        name = self._plan.metric or sweep_results.SCORE
        score = "" if trial.value is None else f", {name} {trial.value:.4f}"
        at = "" if trial.step is None else f" at step {trial.step}"
        warnings = sweep_results.remarks([trial], bool(self._plan.minimize))
        self._say("; ".join([f"{trial.name}: {trial.state}{score}{at}", *warnings]))
        if trial.error:
            log = log_of(self._folder, trial.name)
            self._say("\n".join([f"  the end of {log}:", *(f"    {x}" for x in trial.error)]))

    def _clean(self, trial: sweep_journal.Trial) -> None:
        """Deletes the files of a pruned trial, except its records."""
        folder = os.path.join(self._folder, trial.name)
        for name in file_io.listdir(folder) if file_io.is_dir(folder) else ():
            if name not in RECORDS:
                file_io.remove(os.path.join(folder, name))

    def _stop(self) -> None:
        """Ends all running trials, and records that they were interrupted."""
        trial_processes.stop([running.process for running in self._running.values()])
        for number in self._running:
            if not self.trials[number].has_ended:
                self.trials[number].state = sweep_journal.INTERRUPTED
        self._write()


def planned_trials(plan: sweep_plan.Plan) -> list[sweep_journal.Trial]:
    """Returns the trials of a new sweep of a plan whose points do not depend on results."""
    if plan.trials:
        return _given_trials(plan, [])
    trials: list[sweep_journal.Trial] = []
    limit = sweep_plan.count(plan) or 0
    for point in sweep_plan.points(plan):
        for seed in plan.seeds or (None,):
            if len(trials) < limit:
                name = f"trial_{len(trials):04d}"
                trials.append(sweep_journal.Trial(len(trials), name, [], point, seed))
    return trials


def _given_trials(
    plan: sweep_plan.Plan, old_trials: Sequence[sweep_journal.Trial]
) -> list[sweep_journal.Trial]:
    """Returns the trials of `sweep_plan.Plan.trials`; equal arguments keep their state."""
    by_name = {trial.name: trial for trial in old_trials}
    trials: list[sweep_journal.Trial] = []
    for name, own in plan.trials.items():
        for seed in plan.seeds or (None,):
            arguments = [*plan.arguments, *own]
            if seed is not None:
                arguments.append(sweep_plan.argument("seed", seed))
            folder = name if seed is None else f"{name}/seed_{seed}"
            trial = sweep_journal.Trial(len(trials), folder, arguments, seed=seed)
            earlier = by_name.get(folder)
            if earlier and earlier.arguments == arguments:
                trial = dataclasses.replace(earlier, number=trial.number)
            trials.append(trial)
    return trials


def _free_folder(folder: str, name: str) -> str:
    """Returns the first path that does not exist for the earlier run of the trial `name`."""
    point, slash, seed = name.partition("/")
    paths = (
        os.path.join(folder, f"{point}.earlier{count}{slash}{seed}") for count in itertools.count(1)
    )
    return next(path for path in paths if not file_io.exists(path))


def log_of(folder: str, name: str) -> str:
    """Returns the log file of the trial `name` in the folder of a sweep."""
    return os.path.join(folder, "logs", f"{name.replace('/', '-')}.log")


@contextlib.contextmanager
def _signals_interrupt() -> Iterator[None]:
    """Makes every terminating signal raise an exception, as Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        signals.REQUESTS.by = signal.Signals(number).name
        raise signals.Terminated

    kinds = (signal.SIGINT, *signals.end_signals())
    before = {number: signal.signal(number, interrupt) for number in kinds}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
