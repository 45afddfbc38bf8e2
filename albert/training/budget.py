"""How many steps fit into a number of minutes: measured, fixed and written down.

`budget.json` in the output folder holds the number of steps, on which the learning rate depends; a
run that goes on keeps it.
"""

import dataclasses
import itertools
import math
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from albert.io import file_io, json_shapes

BUDGET = "budget.json"
# When the program began, as the first import of this module is among the first things it does.
STARTED = time.monotonic()
# Steps are timed for this share of the budget, but no longer than so many seconds, and at least so
# many, after the first ones. Of short budgets half a minute goes to it, up to a larger share: texts
# of other lengths make other steps, and few of them tell little.
_TIMED_SHARE, _MOST_SECONDS = 0.05, 600.0
_SHORT_SHARE, _SHORT_SECONDS = 0.15, 30.0
_FIRST_STEPS, _LEAST_STEPS = 2, 10
# What takes so many times as long as most calls is warming up: fresh memory, and kernels that are
# chosen for a length that has not come before. A run in the same process does not do it again.
_WARMING_UP = 1.5


@dataclasses.dataclass(frozen=True)
class Settings:
    """What a run may take.

    Attributes:
      minutes: from the start of the program to the end of training and its evaluations.
      make_optimizer: ``(number of steps) -> optimizer``.
      most_steps: steps at most, however many fit; None: no bound.
      clock: function that returns seconds.
      started: its value when the program began.
    """

    minutes: float
    make_optimizer: Callable[[int], Any]
    most_steps: int | None = None
    clock: Callable[[], float] = time.monotonic
    started: float = STARTED


@dataclasses.dataclass(frozen=True)
class Measured:
    """Seconds that the parts of a run take.

    Attributes:
      start: until the first steps have been made, without evaluations: building, loading, tracing.
      step: a step of training.
      first_evaluation: the first one, in which its graph is built; 0 if nothing is evaluated.
      evaluation: each further one.
      saving: a checkpoint.
    """

    start: float
    step: float
    first_evaluation: float = 0.0
    evaluation: float = 0.0
    saving: float = 0.0

    def run(self, steps, save_every, eval_every):
        """Seconds of a whole run of so many steps.

        Args:
          steps: its steps.
          save_every: steps between checkpoints.
          eval_every: steps between evaluations, which save checkpoints, too; 0: each checkpoint is
            evaluated.
        """
        eval_every = eval_every or save_every
        evaluations = -(-steps // eval_every)
        # The last step has a checkpoint; before it those of both kinds, common ones once.
        before = [math.lcm(save_every, eval_every), save_every, eval_every]
        common, saves, further = (((steps - 1) // every) for every in before)
        saves += further - common + 1
        seconds = self.start + self.step * steps + self.saving * saves
        return seconds + self.first_evaluation + self.evaluation * evaluations


def most_steps_within(seconds, measured, save_every, eval_every):
    """The largest number of steps whose run takes at most so many seconds; 0 if one is too long.

    Args:
      seconds: what is left of the budget.
      measured: `Measured`.
      save_every, eval_every: see `Measured.run`.
    """
    fits, too_many = 0, 2 + int(max(seconds, 0.0) / max(measured.step, 1e-6))
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if measured.run(middle, save_every, eval_every) <= seconds:
            fits = middle
        else:
            too_many = middle
    return fits


class EnoughTimed(Exception):
    """Ends a trial run."""


class Stopwatch:
    """Times a trial run of `engine.Engine.train`, which takes it for a `stuck_runs.Watch`.

    Args:
      clock: function that returns seconds.
      seconds: of the budget.
      agree: ``(make) -> what make() returns in the chief``, so that all workers end together.
    """

    def __init__(self, clock, seconds, agree=lambda make: make()):
        self._clock = clock
        short = min(_SHORT_SHARE * seconds, _SHORT_SECONDS)
        self._timed = min(max(_TIMED_SHARE * seconds, short), _MOST_SECONDS)
        self._agree = agree
        self._began = clock()
        self._evaluations = []
        self._saving = self._save_began = 0.0
        self._first = None  # (step, time) after the first steps
        self._calls = []  # the same of the calls after them

    def evaluating(self, evaluate):
        """``on_checkpoint`` that times an evaluation, and a second one that builds no graph.

        Args:
          evaluate: function without arguments.
        """

        def on_checkpoint(prefix, step):
            del prefix, step
            self._saving = self._clock() - self._save_began
            for _ in range(2):
                began = self._clock()
                evaluate()
                self._evaluations.append(self._clock() - began)
            return False

        return on_checkpoint

    def steps_to_stop(self, step):
        # Then as many at a time as in the run: fewer would take longer each.
        return 1 if step < _FIRST_STEPS else sys.maxsize

    def resume(self, step):
        """Nothing: trials start at the first step."""

    def save(self, step):
        del step
        self._save_began = self._clock()

    def update(self, step, signs):
        """Raises `EnoughTimed` once enough steps have passed."""
        del signs
        now = self._clock()
        if step <= _FIRST_STEPS:
            self._first = (step, now)
            return
        self._calls.append((step, now))
        first_step, began = self._first
        taken, seconds = step - first_step, now - began
        is_enough = len(self._calls) > 1 and taken >= _LEAST_STEPS and seconds >= self._timed
        if not self._agree(lambda: is_enough):
            return
        evaluations = self._evaluations or [0.0, 0.0]
        self.measured = Measured(
            start=began - self._began - sum(evaluations),
            step=self._seconds_of_a_step(),
            first_evaluation=evaluations[0],
            evaluation=evaluations[1],
            saving=self._saving,
        )
        raise EnoughTimed

    def _seconds_of_a_step(self):
        times = [self._first, *self._calls]
        calls = [
            (step - before, now - earlier)
            for (before, earlier), (step, now) in itertools.pairwise(times)
        ]
        usual = statistics.median_low(seconds / steps for steps, seconds in calls)
        warm = [call for call in calls if call[1] <= _WARMING_UP * usual * call[0]]
        return sum(seconds for _, seconds in warm) / sum(steps for steps, _ in warm)


def read(folder, minutes):
    """The number of steps that was fixed for an output folder; None without one.

    Raises:
      file_io.InputError: it was fixed for another budget, or the file is damaged.
    """
    path = os.path.join(folder, BUDGET)
    if not file_io.exists(path):
        return None
    found = file_io.read_json(path, "budget")
    json_shapes.check(found, {"num_train_steps": int, "budget_minutes": json_shapes.NUMBER}, path)
    steps, budget = found["num_train_steps"], found["budget_minutes"]
    if steps < 1:
        raise file_io.InputError(f"{path}: num_train_steps must be above 0, found {steps}")
    if budget != minutes:
        raise file_io.InputError(
            f"budget_minutes={minutes:g}, but {path} has fixed {steps} steps for {budget:g} "
            "minutes: give those, or another output_dir"
        )
    return steps


def fix(folder, settings, measured, save_every, eval_every):
    """Fixes the number of steps for an output folder and writes it down.

    Args:
      folder: output folder.
      settings: `Settings`.
      measured: `Measured`.
      save_every, eval_every: see `Measured.run`.

    Returns:
      The number of steps.

    Raises:
      file_io.InputError: not even one step fits.
    """
    left = 60.0 * settings.minutes - (settings.clock() - settings.started)
    steps = most_steps_within(left, measured, save_every, eval_every)
    if settings.most_steps is not None:
        steps = min(steps, settings.most_steps)
    if steps < 1:
        raise file_io.InputError(
            f"budget_minutes={settings.minutes:g} is too little: {left:.0f} s are left for a start "
            f"of {measured.start:.0f} s, evaluations of {measured.evaluation:.0f} s and steps of "
            f"{measured.step:.2g} s"
        )
    content = {
        "budget_minutes": settings.minutes,
        "num_train_steps": steps,
        "seconds": dataclasses.asdict(measured),
    }
    file_io.write_json(os.path.join(folder, BUDGET), content)
    return steps
