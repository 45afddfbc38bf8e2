"""Trains within a time budget: the last step is planned repeatedly while the model trains.

The learning rate follows the plan: the completed fraction of training rises to 1 at the planned
last step. ``budget.json`` in the output folder has all plans, so that a resumed run knows the time
left, and a repeated run takes the same steps at the same learning rates.
"""

import dataclasses
import math
import os
import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from absl import logging

from albert.io import file_io, json_shapes
from albert.training import contracts

if TYPE_CHECKING:
    from albert.training import learning_rates

BUDGET = "budget.json"
# Start of the program: this module is imported early.
STARTED = time.monotonic()
UNKNOWN = contracts.NO_LIMIT  # number of steps as long as no step was timed
# The last step is planned again after this fraction of the budget. A new plan is ignored if it
# moves the last step by less than this fraction of the remaining steps.
_REPLAN_FRACTION, _MIN_MOVE = 0.005, 0.01
_MIN_CALLS = 3  # without the first call, in which functions are compiled
_FEW_STEPS = 4  # number of last steps before each of which the end is planned again
# Steps are timed over the last calls: at least _MIN_STEPS steps and this fraction of the budget,
# up to _MAX_WINDOW seconds.
_MIN_STEPS, _WINDOW_FRACTION, _MAX_WINDOW = 10, 0.025, 60.0
# Calls this many times slower than usual are warm-up (new memory, or kernels selected for a new
# length) and are not timed.
_WARM_UP_FACTOR = 2.0
# The number of steps counts as known, for judgements that depend on it, once steps have been timed
# for this fraction of the budget, up to _MAX_SECONDS. Short budgets need _SHORT_SECONDS, up to a
# larger fraction.
_KNOWN_FRACTION, _MAX_SECONDS = 0.05, 600.0
_SHORT_FRACTION, _SHORT_SECONDS = 0.15, 30.0
_MAX_SAVED = 20  # number of checkpoints whose times are kept
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

_NO_ATTEMPTS: dict[str, Any] = {"is_repeated": False, "attempts": []}


@dataclasses.dataclass(frozen=True)
class Settings:
    """The time budget of a run.

    Attributes:
      minutes: minutes from the start of the program to the end of training and its evaluations.
      max_steps: maximum number of steps, even if more fit; None: no limit.
      started: value of the clock, in seconds, at the start of the program.
      averages: see `Durations`.
    """

    minutes: float
    max_steps: int | None = None
    clock: Callable[[], float] = time.monotonic
    started: float = STARTED
    averages: bool = False


@dataclasses.dataclass(frozen=True)
class Durations:
    """The measured durations of parts of a run, in seconds.

    Attributes:
      averages: whether averaged weights are saved and evaluated at the end.
    """

    step: float
    evaluation: float = 0.0
    saving: float = 0.0
    averages: bool = False

    def seconds_left(self, step: int, last: int, save_every: int, eval_every: int) -> float:
        """Estimates the seconds from a step to the end of the last step's evaluation.

        Args:
          step: current step, whose checkpoint is not saved yet.
          eval_every: steps between evaluations, which also save checkpoints; 0: each checkpoint is
            evaluated.
        """
        eval_every = eval_every or save_every
        both = math.lcm(save_every, eval_every)

        def count(*intervals: int) -> int:
            """Counts the multiples of some intervals from the current to the last step."""
            return sum(last // every - (step - 1) // every for every in intervals)

        evaluations = count(eval_every) + (last % eval_every > 0) + self.averages
        is_between = last % eval_every > 0 and last % save_every > 0
        saves = count(eval_every, save_every) - count(both) + is_between + self.averages
        seconds = self.step * (last - step) + self.saving * saves
        return seconds + self.evaluation * evaluations


def last_step_within(
    seconds: float, step: int, durations: Durations, save_every: int, eval_every: int
) -> int:
    """Returns the last step of a run that ends within `seconds`; `step` if no more steps fit.

    For the other arguments see `Durations.seconds_left`.
    """
    fits, too_many = step, step + 2 + int(max(seconds, 0.0) / max(durations.step, 1e-6))
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if durations.seconds_left(step, middle, save_every, eval_every) <= seconds:
            fits = middle
        else:
            too_many = middle
    return min(fits, UNKNOWN)


class Pacer(contracts.Hook):
    """A planner of the last training step, for `engine.Engine.train`.

    Args:
      attempt: number of earlier attempts; each attempt has the whole budget.
      save_every, eval_every: see `Durations.seconds_left`.
      agree: ``(make) -> result of make() in the chief``, so that all workers have the same plan.
      writes: False in the workers that must not write.
      pace: gets each plan; the learning rate follows it. None: it does not depend on the plan.
      on_known: called with the number of steps and the present step, once the number of steps is
        known well enough for judgements, and whenever it changes after that.

    Attributes:
      num_train_steps: currently planned number of steps, or `UNKNOWN`.
      is_new: whether the folder has no earlier run.
    """

    def __init__(
        self, settings: Settings, folder: str, attempt: int, save_every: int, eval_every: int,
        agree: contracts.OnChief = lambda make: make(), writes: bool = True,
        pace: "learning_rates.Pace | None" = None,
        on_known: Callable[[int, int], None] = lambda *_: None,
    ) -> None:  # fmt: skip
        self._settings, self._folder, self._number = settings, folder, attempt
        self._intervals = save_every, eval_every
        self._agree, self._writes, self._on_known = agree, writes, on_known
        self._total = 60.0 * settings.minutes
        self._began = settings.started if attempt == 0 else settings.clock()
        self.pace = pace
        budget: dict[str, Any] = agree(lambda: read(folder, settings.minutes)) or _NO_ATTEMPTS
        self._earlier, self._is_repeated = budget["attempts"][:attempt], budget["is_repeated"]
        own = (budget["attempts"][attempt:] or [_no_attempt()])[0]
        self._plans: list[dict[str, Any]] = own["plans"]
        self._saved: dict[str, float] = own["saved"]
        self._seconds: dict[str, float] = own["seconds"]
        self.is_new = not budget["attempts"]
        self._used = dict(self._saved)  # seconds used up to each checkpoint of earlier sessions
        # An attempt that has ended, or repeats another run, takes the planned steps.
        self._follows = bool(self._plans) and bool(self._is_repeated or _has_ended(own))
        self.num_train_steps = self._plans[-1]["num_train_steps"] if self._plans else UNKNOWN
        self._call_began = (0, 0.0)  # step and time
        self._save_began: float | None = None
        self._calls: list[tuple[int, float]] = []  # (steps, seconds), without the first one
        self._has_compiled = False  # whether the first call has ended

    # --- what the engine calls --------------------------------------------------------------

    @property
    def knows_end(self) -> bool:
        return self._follows or any(plan["step"] for plan in self._plans)

    def resume(self, step: int) -> int | None:
        """Resumes the plan at a step; returns the planned last step of training."""
        plans = [plan for plan in self._plans if plan["step"] <= step]
        if self._follows:
            logging.info(
                "budget_minutes=%g: repeating the %d steps planned in %s", self._settings.minutes,
                self.num_train_steps, os.path.join(self._folder, BUDGET),
            )  # fmt: skip
        else:
            self._plans, self.num_train_steps = plans, UNKNOWN
            self._saved = {key: at for key, at in self._saved.items() if int(key) <= step}
            self._began -= self._used.get(str(step), plans[-1]["seconds"] if plans else 0.0)
            if step == 0:
                self._note_saving()
                self._check_time_left()
            if not plans and (most := self._settings.max_steps):
                self._adopt(self._agree(lambda: self._plan(step, most, False)))
                return self.num_train_steps
        for plan in plans:
            self._apply(plan)
        return self.num_train_steps

    def steps_to_stop(self, step: int) -> int:
        """Returns the maximum number of steps from a step on before the next plan."""
        # Training continues while the file is written, so saving takes longer than until now.
        self._save_began = None
        self._call_began = step, self._settings.clock()
        if self._follows:
            return min((p["step"] - step for p in self._plans if p["step"] > step), default=UNKNOWN)
        if len(self._calls) < _MIN_CALLS:
            return 1
        # Half of the remaining steps, so that the end is planned again before it is reached.
        return max(1, (self.num_train_steps - step) // 2)

    def save(self, step: int) -> None:
        """Writes the plan with the time of a step whose checkpoint is about to be saved."""
        now = self._settings.clock()
        self._save_began = now
        if self._follows or not self._writes:
            return
        steps = sorted((key for key in self._saved if int(key) < step), key=int)[1 - _MAX_SAVED :]
        self._saved = {**{key: self._saved[key] for key in steps}, str(step): now - self._began}
        self._write()

    def update(self, step: int) -> int | None:
        """Records the time of the steps up to this one; returns the planned last step."""
        if self._follows:
            for plan in (plan for plan in self._plans if plan["step"] == step):
                self._apply(plan)
            return self.num_train_steps
        first, began = self._call_began
        if self._has_compiled:
            self._calls.append((step - first, self._settings.clock() - began))
        self._has_compiled = True
        plan = self._agree(lambda: self._replan(step))
        if plan:
            self._adopt(plan)
        return self.num_train_steps

    def timing(
        self, on_checkpoint: Callable[[str, int], bool], time_evaluation: Callable[[], float]
    ) -> Callable[[str, int], bool]:
        """Wraps ``on_checkpoint`` to time its evaluations; the untrained model is not evaluated.

        Args:
          on_checkpoint: ``(prefix, step)`` evaluates a checkpoint; returns whether training ends.
          time_evaluation: function that returns about how many seconds an evaluation takes.
        """
        # The first call builds the graph of a resumed session, or evaluates nothing.
        is_first = True

        def timed(prefix: str, step: int) -> bool:
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

    def _note_saving(self) -> None:
        """Records the time since a save began as the duration of saving."""
        if self._save_began is not None:
            self._seconds["saving"] = self._settings.clock() - self._save_began
            self._save_began = None

    def _seconds_left(self) -> float:
        return self._total - (self._settings.clock() - self._began)

    def _check_time_left(self) -> None:
        count = 1 + self._settings.averages
        reserve = count * sum(self._seconds.values())
        rest, reserve = self._agree(lambda: [self._seconds_left(), reserve])
        if rest <= reserve:
            raise file_io.InputError(
                f"budget_minutes={self._settings.minutes:g} is too small: {max(rest, 0):.0f} s are "
                f"left before the first step, but {reserve:.0f} s are needed after the last step"
            )

    def _replan(self, step: int) -> dict[str, Any] | None:
        """Returns the next plan, see `_plan`; None if the current plan is kept."""
        rest, is_over = self._seconds_left(), step >= self.num_train_steps
        averages = self._settings.averages
        durations = Durations(self._seconds_per_step(), **self._seconds, averages=averages)
        is_late = durations.seconds_left(step, step, *self._intervals) >= rest
        if len(self._calls) < _MIN_CALLS and not is_late and not is_over:
            return None
        steps_left = self.num_train_steps - step
        interval = _REPLAN_FRACTION * self._total
        passed = self._total - rest - (self._plans[-1]["seconds"] if self._plans else -interval)
        if passed < interval and rest > 4 * interval and steps_left > _FEW_STEPS and not is_late:
            return None
        last = step if is_over else last_step_within(rest, step, durations, *self._intervals)
        last = max(step, min(last, self._settings.max_steps or last))
        is_known = self._is_known() and not any(plan["is_known"] for plan in self._plans)
        moves = abs(last - self.num_train_steps) > _MIN_MOVE * (last - step)
        return self._plan(step, last, is_known) if moves or is_known or last == step else None

    def _plan(self, step: int, last: int, is_known: bool) -> dict[str, Any]:
        """Returns {"step", "share", "num_train_steps", "seconds", "is_known"}, made at a step.

        "share" is the completed fraction of training, "seconds" the used part of the budget,
        "is_known" whether the last step is known well enough for judgements.
        """
        return {
            "step": step,
            "share": 1.0 if last == step else self._completed_fraction(step),
            "num_train_steps": last,
            "seconds": self._total - self._seconds_left(),
            "is_known": is_known,
        }

    def _completed_fraction(self, step: int) -> float:
        if not self._plans:
            return 0.0
        plan = self._plans[-1]
        fraction, start, last = plan["share"], plan["step"], plan["num_train_steps"]
        return fraction + (1.0 - fraction) * min((step - start) / max(last - start, 1), 1.0)

    def _seconds_per_step(self) -> float:
        """Returns the mean seconds per step of the last calls; 0 before the first timed call."""
        window = min(_WINDOW_FRACTION * self._total, _MAX_WINDOW)
        recent: list[tuple[int, float]] = []
        steps, seconds = 0, 0.0
        for call in reversed(self._calls):
            if steps >= _MIN_STEPS and seconds >= window:
                break
            recent.append(call)
            steps, seconds = steps + call[0], seconds + call[1]
        if not recent:
            return 0.0
        usual = statistics.median_low(seconds / steps for steps, seconds in recent)
        warm = [call for call in recent if call[1] <= _WARM_UP_FACTOR * usual * call[0]]
        return sum(seconds for _, seconds in warm) / sum(steps for steps, _ in warm)

    def _is_known(self) -> bool:
        short = min(_SHORT_FRACTION * self._total, _SHORT_SECONDS)
        threshold = min(max(_KNOWN_FRACTION * self._total, short), _MAX_SECONDS)
        steps, seconds = (sum(call[place] for call in self._calls) for place in (0, 1))
        return steps >= _MIN_STEPS and seconds >= threshold

    def _adopt(self, plan: dict[str, Any]) -> None:
        """Applies a new plan, see `_plan`, and writes it to the file."""
        if plan["is_known"]:
            logging.info(
                "budget_minutes=%g: about %d steps fit", self._settings.minutes,
                plan["num_train_steps"],
            )  # fmt: skip
        self._plans.append(plan)
        self._apply(plan)
        if self._writes:
            self._write()

    def _apply(self, plan: dict[str, Any]) -> None:
        """Sets the last step and the pace of a plan, see `_plan`."""
        if not self._follows:  # else the number of steps is the one of the last plan
            self.num_train_steps = plan["num_train_steps"]
        if self.pace:
            self.pace.set(plan["step"], plan["share"], plan["num_train_steps"])
        if any(other["is_known"] and other["step"] <= plan["step"] for other in self._plans):
            self._on_known(plan["num_train_steps"], plan["step"])

    def _write(self) -> None:
        own = {"plans": self._plans, "saved": self._saved, "seconds": self._seconds}
        content = {
            "budget_minutes": self._settings.minutes,
            "is_repeated": self._is_repeated,
            "attempts": [*self._earlier, own],
        }
        file_io.write_json(os.path.join(self._folder, BUDGET), content)


# --- the file -----------------------------------------------------------------------------------


def _no_attempt() -> dict[str, Any]:
    """Returns the entry of an attempt without steps in ``budget.json``, see `read`."""
    return {"plans": [], "saved": {}, "seconds": {"evaluation": 0.0, "saving": 0.0}}


def _has_ended(attempt: dict[str, Any]) -> bool:
    """Returns whether an attempt, an entry of ``budget.json``, has completed its last step."""
    plans = attempt["plans"]
    return bool(plans) and plans[-1]["step"] == plans[-1]["num_train_steps"]


def read(folder: str, minutes: float) -> dict[str, Any] | None:
    """Reads ``budget.json`` of a run of these minutes in an output folder; None if there is none.

    Returns:
      {"budget_minutes", "is_repeated", "attempts"}. An attempt has "plans" (see `Pacer`), "saved",
      {step: seconds used}, and "seconds", the durations {"evaluation", "saving"}.
    """
    path = os.path.join(folder, BUDGET)
    if not file_io.exists(path):
        return None
    budget = _read(path)
    if budget["budget_minutes"] != minutes:
        raise file_io.InputError(
            f"budget_minutes={minutes:g}, but {path} is of a run with "
            f"{budget['budget_minutes']:g} minutes: give the same value, or another output_dir"
        )
    return budget


def _read(path: str) -> dict[str, Any]:
    """Reads and checks the file ``budget.json``; the result is that of `read`."""
    budget = file_io.read_json(path, "budget")
    json_shapes.check(budget, _SHAPE, path)
    for attempt in budget["attempts"]:
        if not all(key.isdecimal() and len(key) < 19 for key in attempt["saved"]):
            raise file_io.InputError(f"{path}: saved: expected steps, found {[*attempt['saved']]}")
        before = 0
        for plan in attempt["plans"]:
            step, share, last = (plan[name] for name in ("step", "share", "num_train_steps"))
            if not (before <= step <= last <= UNKNOWN and 0 <= share <= 1):
                raise file_io.InputError(
                    f"{path}: plans: expected increasing steps up to num_train_steps, and shares "
                    f"from 0 to 1; found {plan}"
                )
            before = step
    return budget


def repeat(folder: str, other: str) -> None:
    """Copies the plans of a run to the folder `other`, whose run repeats its steps."""
    budget = _read(os.path.join(folder, BUDGET))
    file_io.make_dirs(other)
    file_io.write_json(os.path.join(other, BUDGET), {**budget, "is_repeated": True})
