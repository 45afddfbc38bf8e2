"""Training that ends when a number of minutes is up: its end is planned again while it trains.

The learning rate follows the plan: the share of the training that has passed runs from 0 to 1, from
each plan to the step at which that one ends. `budget.json` in the output folder holds all plans, so
that a run that goes on knows what is left, and a repetition takes the same steps at the same rates.
"""

import dataclasses
import math
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

from absl import logging

from albert.io import file_io, json_shapes

BUDGET = "budget.json"
# When the program began, as the first import of this module is among the first things it does.
STARTED = time.monotonic()
UNKNOWN = 2**31 - 1  # the number of steps before one was timed
# The end is planned again after this share of the budget, unless it moves by less than that share
# of the steps that are left.
_SHARE_BETWEEN, _SHARE_OF_STEPS = 0.005, 0.01
_LEAST_CALLS = 3  # after the first one, in which functions are compiled
_FEW_STEPS = 4  # before the end, of which each is planned
# Steps are timed over the last calls: at least so many steps, and this share of the budget, but no
# longer than so many seconds.
_LEAST_STEPS, _WINDOW_SHARE, _MOST_WINDOW = 10, 0.025, 60.0
# What takes so many times as long as most calls is warming up: fresh memory, and kernels that are
# chosen for a length that has not come before.
_WARMING_UP = 2.0
# The number of steps counts as known, for judgements that depend on it, once steps have been timed
# for this share of the budget; of short ones half a minute, up to a larger share.
_KNOWN_SHARE, _MOST_SECONDS = 0.05, 600.0
_SHORT_SHARE, _SHORT_SECONDS = 0.15, 30.0
_KEPT = 20  # checkpoints whose times are kept
_PLAN = {
    "step": int, "share": json_shapes.NUMBER, "num_train_steps": int,
    "seconds": json_shapes.NUMBER, "is_known": bool,
}  # fmt: skip
_SHAPE = {
    "budget_minutes": json_shapes.NUMBER,
    "is_repeated": bool,
    "attempts": [
        {
            "plans": [_PLAN],
            "saved": {"*": json_shapes.NUMBER},
            "seconds": {"evaluation": json_shapes.NUMBER, "saving": json_shapes.NUMBER},
        }
    ],
}

_NOTHING = {"is_repeated": False, "attempts": []}


@dataclasses.dataclass(frozen=True)
class Settings:
    """What a run may take.

    Attributes:
      minutes: from the start of the program to the end of training and its evaluations.
      make_optimizer: ``(pace) -> optimizer``, whose rate follows `optimizers.Pace`.
      most_steps: steps at most, however many fit; None: no bound.
      clock: function that returns seconds.
      started: its value when the program began.
    """

    minutes: float
    make_optimizer: Callable[[Any], Any]
    most_steps: int | None = None
    clock: Callable[[], float] = time.monotonic
    started: float = STARTED


@dataclasses.dataclass(frozen=True)
class Measured:
    """Seconds that the parts of a run take.

    Attributes:
      step: a step of training.
      evaluation: an evaluation.
      saving: a checkpoint.
    """

    step: float
    evaluation: float = 0.0
    saving: float = 0.0

    def rest(self, step, last, save_every, eval_every):
        """Seconds from a step, whose checkpoint is not saved yet, to the end of the last one's.

        Args:
          step, last: steps.
          save_every: steps between checkpoints.
          eval_every: steps between evaluations, which save checkpoints, too; 0: each checkpoint is
            evaluated.
        """
        eval_every = eval_every or save_every
        both = math.lcm(save_every, eval_every)

        def count(*intervals):
            return sum(last // every - (step - 1) // every for every in intervals)

        evaluations = count(eval_every) + (last % eval_every > 0)
        is_between = last % eval_every > 0 and last % save_every > 0
        saves = count(eval_every, save_every) - count(both) + is_between
        seconds = self.step * (last - step) + self.saving * saves
        return seconds + self.evaluation * evaluations


def last_step_within(seconds, step, measured, save_every, eval_every):
    """The last step of a run that ends within so many seconds; `step` if no further one fits.

    Args:
      seconds: what is left of the budget.
      step, measured, save_every, eval_every: see `Measured.rest`.
    """
    fits, too_many = step, step + 2 + int(max(seconds, 0.0) / max(measured.step, 1e-6))
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if measured.rest(step, middle, save_every, eval_every) <= seconds:
            fits = middle
        else:
            too_many = middle
    return min(fits, UNKNOWN)


class Unpaced:
    """A run whose number of steps is fixed.

    Attributes:
      knows_end: whether the last step is more than the most that there may be.
    """

    knows_end = True

    def resume(self, step):
        """Goes on from a step; returns the number of steps if that has changed, else None."""

    def steps_to_stop(self, step):
        """Steps after which `update` must be called at the latest; they begin now."""
        del step
        return UNKNOWN

    def save(self, step):
        """Takes note of a checkpoint that is about to be saved."""

    def timing(self, on_checkpoint, time_evaluation):
        """``on_checkpoint`` of which the evaluations are timed.

        Args:
          on_checkpoint: see `engine.Engine.train`.
          time_evaluation: function that returns about how many seconds an evaluation takes.
        """
        del time_evaluation
        return on_checkpoint

    def update(self, step):
        """Takes note of the end of a call; returns the number of steps if it changes, else None."""


UNPACED = Unpaced()


class Pacer(Unpaced):
    """Plans the end of a training, for `engine.Engine.train`.

    Args:
      settings: `Settings`.
      folder: output folder.
      attempt: its number; further ones have the minutes for themselves.
      save_every, eval_every: see `Measured.rest`.
      agree: ``(make) -> what make() returns in the chief``, so that all workers have one plan.
      writes: False in the workers that must not write.
      on_known: called with the number of steps and the present one, once the first is known well
        enough to judge by.

    Attributes:
      set_pace: function of step, share and number of steps, which the learning rate follows.
      num_train_steps: as it is planned now, or `UNKNOWN`.
      is_new: whether nothing is known of a run in this folder.

    Raises:
      file_io.InputError: see `read`.
    """

    def __init__(
        self, settings, folder, attempt, save_every, eval_every,
        agree=lambda make: make(), writes=True, on_known=lambda *_: None,
    ):  # fmt: skip
        self._settings, self._folder, self._number = settings, folder, attempt
        self._intervals = save_every, eval_every
        self._agree, self._writes, self._on_known = agree, writes, on_known
        self._total = 60.0 * settings.minutes
        self._began = settings.started if attempt == 0 else settings.clock()
        self.set_pace = lambda *plan: None
        found = agree(lambda: read(folder, settings.minutes)) or _NOTHING
        self._earlier, self._is_repeated = found["attempts"][:attempt], found["is_repeated"]
        own = (found["attempts"][attempt:] or [_no_attempt()])[0]
        self._plans, self._saved, self._seconds = own["plans"], own["saved"], own["seconds"]
        self.is_new = not found["attempts"]
        self._used = dict(self._saved)  # by earlier sessions, at their checkpoints
        # An attempt that has ended, or is repeated, takes the same steps again.
        self._follows = bool(self._plans) and (self._is_repeated or _has_ended(own))
        self.num_train_steps = self._plans[-1]["num_train_steps"] if self._plans else UNKNOWN
        self._call_began = self._save_began = None
        self._calls = None  # (steps, seconds) of the calls after the first one

    # --- what the engine calls --------------------------------------------------------------

    @property
    def knows_end(self):
        return self._follows or any(plan["step"] for plan in self._plans)

    def resume(self, step):
        plans = [plan for plan in self._plans if plan["step"] <= step]
        if self._follows:
            logging.info(
                "budget_minutes=%g: %d steps, as %s has them", self._settings.minutes,
                self.num_train_steps, os.path.join(self._folder, BUDGET),
            )  # fmt: skip
        else:
            self._plans, self.num_train_steps = plans, UNKNOWN
            self._saved = {key: at for key, at in self._saved.items() if int(key) <= step}
            self._began -= self._used.get(str(step), plans[-1]["seconds"] if plans else 0.0)
            if step == 0:
                self._note_saving()
                self._refuse_too_little()
            if not plans and self._settings.most_steps:
                plan = self._agree(lambda: self._plan(step, self._settings.most_steps, False))
                self._take(plan)
                return self.num_train_steps
        for plan in plans:
            self._apply(plan)
        return self.num_train_steps

    def steps_to_stop(self, step):
        self._save_began = None  # Training goes on beside the writing: this is not all of its time.
        self._call_began = step, self._settings.clock()
        if self._follows:
            return min((p["step"] - step for p in self._plans if p["step"] > step), default=UNKNOWN)
        if self._calls is None or len(self._calls) < _LEAST_CALLS:
            return 1
        # Half of what is left, so that the end is planned again before it has come.
        return max(1, (self.num_train_steps - step) // 2)

    def save(self, step):
        now = self._settings.clock()
        self._save_began = now
        if self._follows or not self._writes:
            return
        kept = sorted((key for key in self._saved if int(key) < step), key=int)[1 - _KEPT :]
        self._saved = {**{key: self._saved[key] for key in kept}, str(step): now - self._began}
        self._write()

    def update(self, step):
        if self._follows:
            for plan in (plan for plan in self._plans if plan["step"] == step):
                self._apply(plan)
            return self.num_train_steps
        first, began = self._call_began
        call = step - first, self._settings.clock() - began
        self._calls = [] if self._calls is None else [*self._calls, call]
        plan = self._agree(lambda: self._plan_again(step))
        if plan:
            self._take(plan)
        return self.num_train_steps

    def timing(self, on_checkpoint, time_evaluation):
        """See `Unpaced.timing`; the untrained model is not evaluated."""
        is_first = True  # which builds the graph of a session that goes on, or finds all evaluated

        def timed(prefix, step):
            nonlocal is_first
            self._note_saving()
            if step == 0:
                is_first = False
                if not self._follows:
                    self._seconds["evaluation"] = time_evaluation()
                return False
            began = self._settings.clock()
            ended = on_checkpoint(prefix, step)
            if not is_first or not self._seconds["evaluation"]:
                self._seconds["evaluation"] = self._settings.clock() - began
            is_first = False
            return ended

        return timed

    # --- plans ------------------------------------------------------------------------------

    def _note_saving(self):
        """Takes the time since a checkpoint began to be saved for that of saving it."""
        if self._save_began is not None:
            self._seconds["saving"] = self._settings.clock() - self._save_began
            self._save_began = None

    def _left(self):
        return self._total - (self._settings.clock() - self._began)

    def _refuse_too_little(self):
        left, needed = self._agree(lambda: [self._left(), sum(self._seconds.values())])
        if left <= needed:
            raise file_io.InputError(
                f"budget_minutes={self._settings.minutes:g} is too little: {max(left, 0):.0f} s "
                f"are left before the first step, and {needed:.0f} s are needed after the last one"
            )

    def _plan_again(self, step):
        """The next plan as a dict; None if the one that there is stays."""
        left, is_over = self._left(), step >= self.num_train_steps
        measured = Measured(self._seconds_of_a_step(), **self._seconds)
        is_late = measured.rest(step, step, *self._intervals) >= left
        if len(self._calls) < _LEAST_CALLS and not is_late and not is_over:
            return None
        steps_left = self.num_train_steps - step
        between = _SHARE_BETWEEN * self._total
        passed = self._total - left - (self._plans[-1]["seconds"] if self._plans else -between)
        if passed < between and left > 4 * between and steps_left > _FEW_STEPS and not is_late:
            return None
        last = step if is_over else last_step_within(left, step, measured, *self._intervals)
        last = max(step, min(last, self._settings.most_steps or last))
        is_known = self._is_known() and not any(plan["is_known"] for plan in self._plans)
        moves = abs(last - self.num_train_steps) > _SHARE_OF_STEPS * (last - step)
        return self._plan(step, last, is_known) if moves or is_known or last == step else None

    def _plan(self, step, last, is_known):
        return {
            "step": step,
            "share": 1.0 if last == step else self._share(step),
            "num_train_steps": last,
            "seconds": self._total - self._left(),
            "is_known": is_known,
        }

    def _share(self, step):
        """Share of the training that has passed at a step."""
        if not self._plans:
            return 0.0
        plan = self._plans[-1]
        share, start, last = plan["share"], plan["step"], plan["num_train_steps"]
        return share + (1.0 - share) * min((step - start) / max(last - start, 1), 1.0)

    def _seconds_of_a_step(self):
        """Mean of the last calls; 0 before the first one that tells."""
        window = min(_WINDOW_SHARE * self._total, _MOST_WINDOW)
        recent, steps, seconds = [], 0, 0.0
        for call in reversed(self._calls):
            if steps >= _LEAST_STEPS and seconds >= window:
                break
            recent.append(call)
            steps, seconds = steps + call[0], seconds + call[1]
        if not recent:
            return 0.0
        usual = statistics.median_low(seconds / steps for steps, seconds in recent)
        warm = [call for call in recent if call[1] <= _WARMING_UP * usual * call[0]]
        return sum(seconds for _, seconds in warm) / sum(steps for steps, _ in warm)

    def _is_known(self):
        short = min(_SHORT_SHARE * self._total, _SHORT_SECONDS)
        needed = min(max(_KNOWN_SHARE * self._total, short), _MOST_SECONDS)
        steps, seconds = (sum(call[place] for call in self._calls) for place in (0, 1))
        return steps >= _LEAST_STEPS and seconds >= needed

    def _take(self, plan):
        """Makes a new plan the present one, and writes it down."""
        if plan["is_known"]:
            logging.info(
                "budget_minutes=%g: about %d steps fit", self._settings.minutes,
                plan["num_train_steps"],
            )  # fmt: skip
        self._plans.append(plan)
        self._apply(plan)
        if self._writes:
            self._write()

    def _apply(self, plan):
        if not self._follows:  # else the number of steps is that of the last plan
            self.num_train_steps = plan["num_train_steps"]
        self.set_pace(plan["step"], plan["share"], plan["num_train_steps"])
        if plan["is_known"]:
            self._on_known(plan["num_train_steps"], plan["step"])

    def _write(self):
        own = {"plans": self._plans, "saved": self._saved, "seconds": self._seconds}
        content = {
            "budget_minutes": self._settings.minutes,
            "is_repeated": self._is_repeated,
            "attempts": [*self._earlier, own],
        }
        file_io.write_json(os.path.join(self._folder, BUDGET), content)


# --- the file -----------------------------------------------------------------------------------


def _no_attempt():
    return {"plans": [], "saved": {}, "seconds": {"evaluation": 0.0, "saving": 0.0}}


def _has_ended(attempt):
    """Whether an attempt has taken its last step."""
    plans = attempt["plans"]
    return bool(plans) and plans[-1]["step"] == plans[-1]["num_train_steps"]


def read(folder, minutes):
    """What is written down of the budget of an output folder; None if nothing is.

    Raises:
      file_io.InputError: it is that of another budget, or the file is damaged.
    """
    path = os.path.join(folder, BUDGET)
    if not file_io.exists(path):
        return None
    found = _read(path)
    if found["budget_minutes"] != minutes:
        raise file_io.InputError(
            f"budget_minutes={minutes:g}, but {path} is of a run that has "
            f"{found['budget_minutes']:g} minutes: give those, or another output_dir"
        )
    return found


def _read(path):
    found = file_io.read_json(path, "budget")
    json_shapes.check(found, _SHAPE, path)
    for attempt in found["attempts"]:
        if not all(key.isdecimal() and len(key) < 19 for key in attempt["saved"]):
            raise file_io.InputError(f"{path}: saved: expected steps, found {[*attempt['saved']]}")
        before = 0
        for plan in attempt["plans"]:
            step, share, last = (plan[name] for name in ("step", "share", "num_train_steps"))
            if not (before <= step <= last <= UNKNOWN and 0 <= share <= 1):
                raise file_io.InputError(
                    f"{path}: plans: expected steps that rise, up to num_train_steps, and shares "
                    f"from 0 to 1; found {plan}"
                )
            before = step
    return found


def repeat(folder, other):
    """Lets a run in another folder take the steps of the run of a folder, at the same rates.

    Raises:
      file_io.InputError: what was planned is not written down, or the file is damaged.
    """
    found = _read(os.path.join(folder, BUDGET))
    file_io.make_dirs(other)
    file_io.write_json(os.path.join(other, BUDGET), {**found, "is_repeated": True})
