"""Finds training runs that do not learn, and trains again with another seed instead.

The outputs of such a run have nothing to do with the labels: it predicts one class for everything,
or does no better than that would. `Watch` judges it by statistics of its training batches
(`learning_signals`), so that a run that still predicts one class, but whose probabilities already
follow the labels, passes. `attempts` starts again with the next seed and keeps count.
"""

import dataclasses
import functools
import math
import os
import re
from collections.abc import Callable, Iterator
from types import NoneType
from typing import Any

import numpy as np
from absl import logging

from albert.io import file_io, json_shapes
from albert.training import results

STATE = "stuck.json"
# Verdicts on a run that has ended. The first two are of runs that have learnt nothing.
STUCK, UNTRAINED, NOT_JUDGED = "stuck", "best at step 0", "not judged"
LEARNT_NOTHING = (STUCK, UNTRAINED)
# Minimum for learning: standard deviations above chance, and fraction of the effect that outputs
# equal to the labels would have. The second keeps traces of learning in outputs that hardly differ,
# which many examples can make significant, from being taken for learning.
_MIN_DEVIATIONS = 2.0
_MIN_EFFECT = 0.005
# A judgement takes in this fraction of the run's steps, and at least this many examples: with few
# examples, runs that end well may take an epoch to begin.
_WINDOW = 0.08
_MIN_EXAMPLES = 4096
# With fewer examples of other labels than the most frequent one, a judgement cannot tell.
_MIN_OTHERS = 50
_KEPT = 20  # states of steps that a run can resume from
_SUMS = {
    "association?": [json_shapes.NUMBER], "labels?": [json_shapes.NUMBER],
    "predictions?": [json_shapes.NUMBER], "correct?": json_shapes.NUMBER, "*": NoneType,
}  # fmt: skip
_SHAPE = {
    "told": (dict, NoneType), "judgements": [{"step": int}], "signs": {"*": [_SUMS]},
}  # fmt: skip


class StuckError(file_io.InputError):
    """A run that does not learn was stopped.

    Attributes:
      judgement: `Judgement`.
    """

    def __init__(self, message: str, judgement: "Judgement") -> None:
        super().__init__(message)
        self.judgement = judgement


@dataclasses.dataclass(frozen=True)
class Settings:
    """How training is judged, and what follows from it.

    Attributes:
      stuck_after: fraction of the steps at which the first judgement is made; after the warm-up.
      warmup_share: fraction of the steps that are warm-up.
      advice: what to try, a sentence.
      num_restarts: times to start again with another seed; 0: a run that is stuck continues.
      min_examples: minimum number of examples per judgement.
    """

    stuck_after: float
    warmup_share: float
    advice: str
    num_restarts: int = 0
    min_examples: int = _MIN_EXAMPLES


@dataclasses.dataclass(frozen=True)
class Judgement:
    """The judgement of a window of training steps.

    Attributes:
      step: last step of the window.
      share: `step` as a fraction of all steps.
      effect: how far outputs follow the labels, as a fraction of the maximum.
      deviations: the effect in standard deviations of chance.
      is_stuck: whether the run does not learn.
      can_tell: whether the window can tell learning from chance.
      accuracy: fraction of correct predictions; None, like the next two, if there are no classes.
      most_predicted: fraction of the predictions that are the most frequent class.
      majority: fraction of the most frequent label, the accuracy of always predicting it.
    """

    step: int
    share: float
    effect: float
    deviations: float
    is_stuck: bool
    can_tell: bool = True
    accuracy: float | None = None
    most_predicted: float | None = None
    majority: float | None = None

    def __str__(self) -> str:
        text = f"the outputs do not follow the labels ({self.deviations:.1f} standard deviations)"
        if self.majority is None:
            return text
        return (
            f"{text}: the accuracy is {self.accuracy:.3f}, that of always naming the most frequent "
            f"label {self.majority:.3f}, and {self.most_predicted:.0%} of the predictions are one "
            "class"
        )


def judge(signs: dict[str, Any], step: int, num_train_steps: int) -> Judgement:
    """Judges the accumulated `learning_signals` at `step` of `num_train_steps`."""
    own, variance, highest, _ = (float(x) for x in signs["association"])
    effect = own / highest if highest > 0 else 0.0
    deviations = own / math.sqrt(variance) if variance > 0 else 0.0
    # One label alone, or one example alone in each micro-batch, has nothing to be compared with.
    shares, can_tell = {}, highest > 0
    if "labels" in signs:
        count = np.sum(signs["labels"])
        keys = {"accuracy": "correct", "most_predicted": "predictions", "majority": "labels"}
        shares = {name: float(np.max(signs[key]) / count) for name, key in keys.items()}
        can_tell &= bool(count - np.max(signs["labels"]) >= _MIN_OTHERS)
    learns = deviations > _MIN_DEVIATIONS and effect > _MIN_EFFECT
    is_stuck = can_tell and not learns
    share = step / num_train_steps
    return Judgement(step, share, effect, deviations, is_stuck, can_tell, **shares)


def was_warned(folder: str) -> bool:
    """Returns whether the run of an output folder got a warning."""
    path = os.path.join(folder, STATE)
    return file_io.exists(path) and bool(_read(path)["told"])


def verdict(folder: str, best_step: int | None) -> str:
    """Returns the verdict on a run that has ended.

    A run is stuck if it got a warning and its last judgement says the same: a run that began to
    learn after the warning is not.

    Args:
      folder: output folder.
      best_step: step of its best checkpoint, or None.

    Returns:
      One of the words above; "" for a run that learns or was not watched.
    """
    path = os.path.join(folder, STATE)
    if file_io.exists(path):
        state = _read(path)
        judgements = state["judgements"]
        if state["told"] and all(found.get("is_stuck", True) for found in judgements[-1:]):
            return STUCK
        if best_step != 0 and not any(found.get("can_tell", True) for found in judgements):
            return NOT_JUDGED
    return UNTRAINED if best_step == 0 else ""


def _read(path):
    """Reads the state saved by `Watch`: judgements, the warning (if any), and sums by step."""
    state = file_io.read_json(path, "signs of learning")
    json_shapes.check(state, _SHAPE, path)
    json_shapes.check_text(state, path)
    for step, halves in state["signs"].items():
        if not re.fullmatch("[0-9]{1,18}", step) or len(halves) != 2:
            raise file_io.InputError(
                f"{path}: signs: expected two sums for each step, found {len(halves)} for {step!r}"
            )
    return state


class Unwatched:
    """A run that is not judged."""

    def expect(self, num_train_steps: int, step: int = 0) -> None:
        """Sets the planned number of steps; called at a step."""

    def steps_to_stop(self, step: int) -> int:
        """Returns the maximum number of steps before the next `update`."""
        del step
        return 2**31 - 1

    def resume(self, step: int) -> None:
        """Resumes from the state saved at a step."""

    def save(self, step: int) -> None:
        """Saves the state at a step, to resume from."""

    def update(self, step: int, signs: dict[str, Any]) -> None:
        """Adds the sums of the learning signals since the last call, {name: array}."""


UNWATCHED = Unwatched()


class Watch(Unwatched):
    """Judges a run by its last steps, from a fraction of its steps on.

    A judgement takes in a window of steps after the warm-up; the next follows half a window later.
    What it knows is written at each checkpoint, so that a resumed run is judged like one that
    was never interrupted.

    Args:
      settings: `Settings`.
      folder: output folder.
      num_train_steps: the run's number of steps; None: nothing is judged before `expect`.
      batch_size: the run's batch size.
      writes: False in the workers that must not write.
    """

    def __init__(
        self,
        settings: Settings,
        folder: str,
        num_train_steps: int | None,
        batch_size: int,
        writes: bool = True,
    ) -> None:
        self._settings = settings
        self._path = os.path.join(folder, STATE)
        self._batch_size = batch_size
        self._writes = writes
        self._steps = None
        if num_train_steps is not None:
            self.expect(num_train_steps)
        self._signs, self._previous, self._saved = {}, {}, {}  # sums of half a window each
        self._warned, self._judgements = None, []

    def expect(self, num_train_steps: int, step: int = 0) -> None:
        self._steps = num_train_steps
        examples = math.ceil(self._settings.min_examples / self._batch_size)
        self._half = math.ceil(max(_WINDOW * num_train_steps, examples) / 2)
        before = math.ceil(self._settings.stuck_after * num_train_steps) - 2 * self._half
        warmup = math.ceil(self._settings.warmup_share * num_train_steps)
        self._first = max(before, warmup, step)

    def steps_to_stop(self, step: int) -> int:
        if self._steps is None:
            return super().steps_to_stop(step)
        if step < self._first:
            return self._first - step
        return self._half - (step - self._first) % self._half

    def resume(self, step: int) -> None:
        if not file_io.exists(self._path):
            return
        state = _read(self._path)
        self._warned, self._saved = state["told"], state["signs"]
        # What was written of later steps, before this run was interrupted, comes again.
        self._judgements = [found for found in state["judgements"] if found["step"] <= step]
        self._previous, self._signs = (
            {name: np.array(sums, np.float64) for name, sums in found.items()}
            for found in self._saved.get(str(step), ({}, {}))
        )

    def save(self, step: int) -> None:
        signs = [
            {name: sums.tolist() for name, sums in half.items()}
            for half in (self._previous, self._signs)
        ]
        earlier = sorted((number for number in self._saved if int(number) < step), key=int)
        kept = {number: self._saved[number] for number in earlier[1 - _KEPT :]}
        self._saved = {**kept, str(step): signs}
        self._write()

    def _write(self):
        if self._writes:
            state = {"told": self._warned, "judgements": self._judgements, "signs": self._saved}
            file_io.write_json(self._path, state)

    def update(self, step: int, signs: dict[str, Any]) -> None:
        if self._steps is None or step <= self._first or not signs:
            return
        for name, sums in signs.items():
            self._signs[name] = self._signs.get(name, 0.0) + sums.astype(np.float64)
        if (step - self._first) % self._half:
            return
        previous, self._previous, self._signs = self._previous, self._signs, {}
        if not previous:
            return
        window = {name: previous[name] + sums for name, sums in self._previous.items()}
        judgement = judge(window, step, self._steps)
        self._judgements.append(dataclasses.asdict(judgement))
        if judgement.is_stuck and self._warned is None:
            self._warn(judgement)

    def _warn(self, judgement):
        message = (
            f"this run does not learn: over the last {2 * self._half} of {judgement.step} steps, "
            f"{judgement}. {self._settings.advice}"
        )
        if self._settings.num_restarts:
            raise StuckError(message, judgement)
        self._warned = dataclasses.asdict(judgement)
        self._write()
        logging.warning("At %.0f%% of the steps: %s", 100 * judgement.share, message)


# --- attempts with other seeds ------------------------------------------------------------------


ATTEMPTS = "attempts.json"
# What belongs to one attempt; data, vocabulary and descriptions serve all of them.
_OF_AN_ATTEMPT = re.compile(
    r"(new-)?model\.ckpt-.*|checkpoint|eval|events\.out\..*|load_report\.json|metrics\.jsonl|"
    + "|".join(map(re.escape, (results.RESULTS, results.BEST_TRIAL, STATE)))
)
_ATTEMPT = {
    "seed": int, "step": int, "share": json_shapes.NUMBER, "message": str, "folder": str,
}  # fmt: skip
_ATTEMPTS_SHAPE = {"given_up": [_ATTEMPT], "moving?": bool}


def _folder(number):
    return f"attempt_{number}"


def read(folder: str) -> list[dict[str, Any]]:
    """Reads which attempts were given up in an output folder.

    Returns:
      List of dicts: seed, step, share, message and folder (its name in the output folder).

    Raises:
      file_io.InputError: the file is damaged.
    """
    return _read_attempts(folder)["given_up"]


def _read_attempts(folder):
    path = os.path.join(folder, ATTEMPTS)
    if not file_io.exists(path):
        return {"given_up": [], "moving": False}
    state = file_io.read_json(path, "attempts")
    json_shapes.check(state, _ATTEMPTS_SHAPE, path)
    json_shapes.check_text(state, path)
    for number, attempt in enumerate(state["given_up"], 1):
        if attempt["folder"] != _folder(number):
            raise file_io.InputError(
                f"{path}: attempt {number}: expected the folder {_folder(number)!r}, found "
                f"{attempt['folder']!r}"
            )
    if state.get("moving") and not state["given_up"]:
        raise file_io.InputError(f"{path}: nothing was given up, so nothing can be moved")
    return state


def _finish_moving(folder):
    """Moves what belongs to an attempt that was just given up; returns the attempts."""
    state = _read_attempts(folder)
    if state.get("moving"):
        target = os.path.join(folder, state["given_up"][-1]["folder"])
        file_io.make_dirs(target)
        for name in file_io.listdir(folder):
            if _OF_AN_ATTEMPT.fullmatch(name):
                file_io.rename(os.path.join(folder, name), os.path.join(target, name))
        file_io.write_json(os.path.join(folder, ATTEMPTS), {**state, "moving": False})
    return state["given_up"]


def give_up(
    folder: str, seed: int, error: StuckError, on_chief: Callable[[Callable[[], Any]], Any]
) -> None:
    """Records that an attempt was given up, and moves its files.

    Args:
      folder: output folder.
      seed: seed of the attempt.
      error: `StuckError` that ended it.
      on_chief: see `attempts`.
    """
    # As text: who keeps the error keeps its traceback, and with it the model.
    logging.warning("seed=%d: %s", seed, str(error))
    on_chief(functools.partial(_give_up, folder, seed, error))


def _give_up(folder, seed, error):
    given_up = read(folder)
    judgement = error.judgement
    given_up.append(
        {
            "seed": seed,
            "step": judgement.step,
            "share": judgement.share,
            "message": str(error),
            "folder": _folder(len(given_up) + 1),
        }
    )
    file_io.write_json(os.path.join(folder, ATTEMPTS), {"given_up": given_up, "moving": True})
    _finish_moving(folder)


def attempts(
    folder: str, seed: int, num_restarts: int, on_chief: Callable[[Callable[[], Any]], Any]
) -> Iterator[tuple[int, int]]:
    """Yields the seed of each attempt to make, and how many were given up before it.

    The caller ends the loop when an attempt has learned, and calls `give_up` when it is stuck.

    Args:
      folder: output folder.
      seed: seed of the first attempt; each later attempt has the next seed.
      num_restarts: attempts after the first, at most; 0: none is given up, and the last one
        continues.
      on_chief: ``(make) -> what make() returns in the chief``; all workers come to each call.

    Raises:
      file_io.InputError: all attempts are stuck.
    """
    given_up = on_chief(lambda: _finish_moving(folder))
    while not num_restarts or len(given_up) <= num_restarts:
        own = seed + len(given_up)
        if given_up:
            logging.info("Restart %d of %d, with seed=%d", len(given_up), num_restarts, own)
        yield own, len(given_up)
        given_up = on_chief(lambda: read(folder))
    raise file_io.InputError(
        f"all {len(given_up)} attempts (seeds {seed} to {given_up[-1]['seed']}) are stuck: "
        f"{given_up[-1]['message']} Raise num_restarts to try more seeds"
    )
