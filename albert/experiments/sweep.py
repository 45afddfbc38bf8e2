"""Runs the trials of a sweep: one process and one folder each, so that a trial resumes by itself.

What is to be done next follows from the journal and the folders of the trials alone, never from
what this process remembers. So a sweep that is killed at any moment, with its trials or without,
goes on where it was. Trials end with the process that started them, and they hold the sweep's lock:
none runs on beside the next start of the sweep.
"""

import contextlib
import ctypes
import dataclasses
import fcntl
import os
import re
import signal
import subprocess
import sys
import time

from albert.experiments import sweep_journal, sweep_plan, sweep_results, sweep_search
from albert.io import file_io, signals

# What is kept of a trial that was ended early: what it was, and how far it came.
RECORDS = {
    *("run.json", "metrics.jsonl", "eval_results.txt", "best_trial.txt"),
    *("attempts.json", "stuck.json", "seeds.json"),
}
_LOCK = "sweep.lock"
_LOCK_SECONDS = 60  # how long trials of a killed sweep may take to end
_HOLDER_SECONDS = 1  # how long a process that was killed may still be seen
_PATIENCE_SECONDS = 10  # of a trial that was asked to end
_MOST_KILLS = 3  # starts of a trial that something outside has killed
_ERROR_LINES = 5
_PR_SET_PDEATHSIG = 1  # from linux/prctl.h


@dataclasses.dataclass
class _Process:
    """A trial that runs.

    Attributes:
      process: `subprocess.Popen`, the leader of a process group.
      log_start: bytes of the log that earlier starts have written.
      evaluations: how many of its were looked at.
    """

    process: subprocess.Popen
    log_start: int
    evaluations: int = 0


class Sweep:
    """Runs the trials of a plan in a folder.

    Args:
      plan: `sweep_plan.Plan`.
      settings: {flag: text} that all trials have, to tell this sweep from another.
      folder: of the sweep.
      python: program that runs modules with ``-m``.
      parallel: trials at the same time.
      say: takes a line about what happens.
      poll_seconds: time between two looks at the trials.

    Raises:
      file_io.InputError: the folder is not of this machine, or Optuna is needed and missing.
    """

    def __init__(self, plan, settings, folder, python, parallel=1, say=print, poll_seconds=0.2):
        if file_io.is_remote(folder):
            raise file_io.InputError(f"output_dir={folder}: a sweep needs a folder of this machine")
        if plan.needs_history:
            sweep_search.check_installed()
        self._plan, self._folder, self._python = plan, folder, python
        self._parallel, self._say, self._poll_seconds = parallel, say, poll_seconds
        self._running, self._kills = {}, {}
        self._points, self._curves = sweep_plan.points(plan), {}
        self._count = sweep_plan.count(plan)
        self._settings = settings
        self._journal = None  # of a folder that nobody else writes to

    @property
    def trials(self):
        """The `sweep_journal.Trial`s, once it runs."""
        return self._journal.trials

    def summary(self):
        """The table so far, see `sweep_results.summarize`."""
        return sweep_results.summarize(self._plan.describe(), self.trials)

    def run(self, retry_failed=False):
        """Runs what has not ended; the table is written after each trial.

        Args:
          retry_failed: also run the trials again that have failed.

        Raises:
          file_io.InputError: another process is at work in the folder, or it has another sweep.
          KeyboardInterrupt: after Ctrl-C; the trials have ended, too.
          signals.Terminated: after another signal to end, in the same way.
        """
        file_io.make_dirs(os.path.join(self._folder, "logs"))
        with _locked(self._folder) as lock, _signals_interrupt():
            self._lock = lock
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
                    self._look()
            except BaseException:
                self._stop()
                raise

    def _read_journal(self):
        description = {**self._plan.describe(), "settings": self._settings}
        free = ("seeds", "settings") if self._plan.trials else ()
        self._journal = sweep_journal.Journal(self._folder, description, free)
        if self._plan.trials:
            self._journal.trials = _given_trials(self._plan, self._journal.trials)

    def _write(self):
        self._journal.write()
        sweep_results.write(self._folder, self.summary())

    # --- what comes next ------------------------------------------------------------------------

    def _start_trials(self):
        """Fills free places; whether it started a trial."""
        started = False
        while len(self._running) < self._parallel:
            trial = self._next()
            if trial is None:
                break
            self._start(trial)
            started = True
        return started

    def _next(self):
        """The next trial to run; None if there is none, or it has to wait for others."""
        for trial in self.trials:
            if not trial.has_ended and trial.number not in self._running:
                return trial
        number = len(self.trials)
        if number >= self._count:
            return None
        # The trials that run beside it count for nothing, or chance would decide what is known.
        known = max(0, number - self._parallel + 1)
        if self._plan.needs_history and not all(t.has_ended for t in self.trials[:known]):
            return None
        points = sweep_journal.by_point(self.trials)
        planned = self._lacking(points) or self._new(points, number, known)
        if planned is None:
            self._count = number  # All points have been tried.
            return None
        self.trials.append(self._make_trial(number, *planned, known))
        return self.trials[-1]

    def _lacking(self, points):
        """(values, seed) of the first point that was not tried with all seeds; None without one."""
        for trials in points:
            tried = {trial.seed for trial in trials}
            for seed in self._plan.seeds:
                if seed not in tried:
                    return trials[0].parameters, seed
        return None

    def _new(self, points, number, known):
        """(values, seed) of a point that was not tried yet; None without one."""
        seed = next(iter(self._plan.seeds), None)
        if self._plan.method == "tpe":
            history = [
                trial if trial.number < known else dataclasses.replace(trial, state="running")
                for trial in self.trials
            ]
            return sweep_search.suggest(self._plan, number, history), seed
        tried = {sweep_journal.key_of(trials[0].parameters) for trials in points}
        for point in self._points:
            if sweep_journal.key_of(point) not in tried:
                return point, seed
        return None

    def _make_trial(self, number, point, seed, known):
        arguments = [sweep_plan.argument(name, value) for name, value in point.items()]
        if seed is not None:
            arguments.append(sweep_plan.argument("seed", seed))
        name = f"trial_{number:04d}"
        return sweep_journal.Trial(number, name, arguments, point, seed, known)

    # --- processes ------------------------------------------------------------------------------

    def _start(self, trial):
        trial.state = sweep_journal.RUNNING
        self._write()  # before there is a folder of it
        log = log_of(self._folder, trial.name)
        module = module_of(self._plan.script)
        command = [self._python, "-m", module, *self._plan.arguments, *trial.arguments]
        command.append(sweep_plan.argument("output_dir", os.path.join(self._folder, trial.name)))
        with file_io.open_file(log, "ab") as file:
            start = file.tell()
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=(self._lock,),
                preexec_fn=_die_with_parent(),
            )
        self._running[trial.number] = _Process(process, start)
        self._say(f"{trial.name}: {self._shown(trial)}log: {log}")

    def _shown(self, trial):
        names = [name for name in self._plan.parameters if name in trial.parameters]
        pairs = [f"{name}={sweep_plan.text_of(trial.parameters[name])}" for name in names]
        if trial.seed is not None:
            pairs.append(f"seed={trial.seed}")
        return " ".join(pairs) + "; " if pairs else ""

    def _look(self):
        """Takes in what has happened to the trials that run."""
        for number, running in list(self._running.items()):
            trial = self.trials[number]
            status = running.process.poll()
            if self._plan.prune and self._prune(trial, running):
                if status is None:
                    _signal(running.process, signal.SIGKILL)
                    running.process.wait()
                del self._running[number]
                self._end(trial)
                self._clean(trial)
            elif status is not None:
                del self._running[number]
                self._take_result(trial, status, running)

    def _prune(self, trial, running):
        """Whether a trial is to be ended; notes where."""
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

    def _curve(self, trial):
        folder = os.path.join(self._folder, trial.name)
        return sweep_results.read_curve(folder, self._plan.metric)

    def _take_result(self, trial, status, running):
        if status == 0:
            trial.state = sweep_journal.DONE
            folder = os.path.join(self._folder, trial.name)
            try:
                score = sweep_results.read_score(folder, self._plan.metric)
                trial.step, trial.value, trial.metrics = score
                learning = sweep_results.read_learning(folder, self._plan.metric, trial.step)
                for name, found in learning.items():
                    setattr(trial, name, found)
            except file_io.InputError as error:
                trial.state, trial.error = sweep_journal.FAILED, [str(error)]
        elif status < 0 or status == 130:
            kills = self._kills[trial.number] = self._kills.get(trial.number, 0) + 1
            if kills < _MOST_KILLS:
                # By whoever is about to kill this process, too, or for want of memory.
                self._say(f"{trial.name}: killed from outside; it goes on")
                time.sleep(1)
                return
            trial.state = sweep_journal.FAILED
            trial.error = [f"killed from outside {kills} times (status {status}); out of memory?"]
        else:
            trial.state = sweep_journal.FAILED
            trial.error = _last_lines(log_of(self._folder, trial.name), running.log_start)
        self._end(trial)

    def _end(self, trial):
        self._write()
        name = self._plan.metric or sweep_results.SCORE
        score = "" if trial.value is None else f", {name} {trial.value:.4f}"
        at = "" if trial.step is None else f" at step {trial.step}"
        said = "".join(f"; {text}" for text in sweep_results.remarks([trial], self._plan.minimize))
        self._say(f"{trial.name}: {trial.state}{score}{at}{said}")
        if trial.error:
            log = log_of(self._folder, trial.name)
            self._say("\n".join([f"  the end of {log}:", *(f"    {x}" for x in trial.error)]))

    def _clean(self, trial):
        """Deletes all but the records of a trial that was ended early."""
        folder = os.path.join(self._folder, trial.name)
        for name in file_io.listdir(folder) if file_io.is_dir(folder) else ():
            if name not in RECORDS:
                file_io.remove(os.path.join(folder, name))

    def _stop(self):
        """Ends the trials that run, and notes it."""
        for running in self._running.values():
            _signal(running.process, signal.SIGTERM)
        for number, running in self._running.items():
            try:
                running.process.wait(timeout=_PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                _signal(running.process, signal.SIGKILL)
                running.process.wait()
            if not self.trials[number].has_ended:
                self.trials[number].state = sweep_journal.INTERRUPTED
        self._write()


def _given_trials(plan, known):
    """The trials of `sweep_plan.Plan.trials`; those with the same arguments keep their state."""
    by_name = {trial.name: trial for trial in known}
    found = []
    for name, own in plan.trials.items():
        for seed in plan.seeds or (None,):
            arguments = [*plan.arguments, *own]
            if seed is not None:
                arguments.append(sweep_plan.argument("seed", seed))
            folder = name if seed is None else f"{name}/seed_{seed}"
            trial = sweep_journal.Trial(len(found), folder, arguments, seed=seed)
            earlier = by_name.get(folder)
            if earlier and earlier.arguments == arguments:
                trial = dataclasses.replace(earlier, number=trial.number)
            found.append(trial)
    return found


def module_of(script):
    """The module of a script: of this package, or with dots as it is."""
    return script if "." in script else f"albert.{script}"


def log_of(folder, name):
    """The file that a trial of a sweep prints to."""
    return os.path.join(folder, "logs", f"{name.replace('/', '-')}.log")


def _last_lines(log, start):
    """The message at the end of a log, at most `_ERROR_LINES`, from byte `start` on."""
    with file_io.open_file(log, "rb") as file:
        file.seek(max(start, file_io.size(log) - 10000))
        text = file.read().decode("utf-8", errors="replace")
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    # A message of a script is one line; of what comes after it nothing is lost.
    marked = [i for i, line in enumerate(lines) if re.match(r"error: |FATAL ", line)]
    return lines[marked[-1] :][:_ERROR_LINES] if marked else lines[-_ERROR_LINES:] or ["no output"]


def _die_with_parent():
    """Function for a new process: the kernel is to kill it as soon as this one ends."""
    if sys.platform != "linux":
        return None  # The lock keeps the next start waiting until it has ended by itself.
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def prepare():
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # It ended before.
            os._exit(1)

    return prepare


def _signal(process, number):
    """A signal to all processes of a trial that has not been waited for: its number is its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


@contextlib.contextmanager
def _locked(folder):
    """Holds the lock of a folder, as the trials do that inherit it; its file descriptor."""
    path = os.path.join(folder, _LOCK)
    with file_io.open_file(path, "a+") as file:
        _take_lock(file, folder)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield file.fileno()


def _take_lock(file, folder):
    started = time.monotonic()
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError:
            waited = time.monotonic() - started
        file.seek(0)
        holder = file.read().strip()
        if waited > _LOCK_SECONDS:
            raise file_io.InputError(
                f"trials of an earlier start of the sweep in {folder} still run; end them first"
            )
        if waited > _HOLDER_SECONDS and holder.isdigit() and _is_alive(int(holder)):
            raise file_io.InputError(
                f"another process ({holder}) runs the sweep in {folder} already"
            )
        time.sleep(0.05)


def _is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@contextlib.contextmanager
def _signals_interrupt():
    """Every signal that asks a process to end does so between two operations of Python."""

    def interrupt(number, frame):
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        signals.REQUESTS.by = signal.Signals(number).name
        raise signals.Terminated

    kinds = (signal.SIGINT, *signals.ending())
    before = {number: signal.signal(number, interrupt) for number in kinds}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
