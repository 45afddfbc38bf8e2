"""Detects training runs that do not learn, and restarts them with another seed.

The outputs of such a run do not depend on the labels: it predicts one class for everything, or is
no better than that. `Watch` judges a run by statistics of its training batches
(`learning_signals`). A run that still predicts one class, but whose probabilities already follow
the labels, passes. `attempts` restarts with another seed and counts the attempts.

Arguments: `on_chief` is ``(make) -> result of make() in the chief``; all workers must make each
call.
"""

import dataclasses
import functools
import math
import os
import re
from collections.abc import Iterator, Mapping
from types import NoneType
from typing import Any

import numpy as np
from absl import logging

from albert.io import file_io, json_shapes
from albert.training import contracts, results

STATE = "stuck.json"
# Verdicts on a run that has ended. With the first two, the run has learned nothing.
STUCK, UNTRAINED, NOT_JUDGED = "stuck", "best at step 0", "not judged"
LEARNED_NOTHING = (STUCK, UNTRAINED)
# Minimum for learning: standard deviations above chance, and fraction of the maximum effect, that
# of outputs equal to the labels. The second excludes outputs that hardly differ, for which many
# examples can make even a tiny effect significant.
_MIN_DEVIATIONS = 2.0
_MIN_EFFECT = 0.005
# A judgement covers this fraction of the run's steps, and at least this many examples: with fewer
# examples, good runs may need an epoch before they begin to learn.
_WINDOW = 0.08
_MIN_EXAMPLES = 4096
# A judgement needs at least this many examples of other labels than the most frequent one.
_MIN_OTHERS = 50
_MAX_SAVED = 20  # number of saved states that a run can resume from
_SUMS = {
    "association?": [json_shapes.NUMBER], "labels?": [json_shapes.NUMBER],
    "predictions?": [json_shapes.NUMBER], "correct?": json_shapes.NUMBER, "*": NoneType,
}  # fmt: skip
_SHAPE = {
    "warning": (dict, NoneType), "judgements": [{"step": int}], "signs": {"*": [_SUMS]},
}  # fmt: skip


class StuckError(file_io.InputError):
    """A run that does not learn was stopped."""

    def __init__(self, message: str, judgement: "Judgement") -> None:
        super().__init__(message)
        self.judgement = judgement


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of judging a training run.

    Attributes:
      stuck_after: fraction of the steps at which the first judgement is made; after the warm-up.
      warmup_fraction: fraction of the steps that are warm-up.
      advice: a sentence for the warning, which says what to try.
      num_restarts: maximum number of restarts with another seed; 0: a run that does not learn
        continues.
      min_examples: minimum number of examples per judgement.
    """

    stuck_after: float
    warmup_fraction: float
    advice: str
    num_restarts: int = 0
    min_examples: int = _MIN_EXAMPLES


@dataclasses.dataclass(frozen=True)
class Judgement:
    """The judgement of a window of training steps.

    Attributes:
      step: last step of the window.
      fraction: `step` as a fraction of all steps.
      effect: correlation of outputs with labels, as a fraction of the maximum.
      deviations: the effect in standard deviations of chance.
      can_tell: whether the window has enough data to distinguish learning from chance.
      accuracy: fraction of correct predictions; None without classes, like the next two.
      most_predicted: fraction of the predictions that are the most frequent class.
      majority: fraction of the most frequent label, the accuracy of always predicting it.
    """

    step: int
    fraction: float
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
            f"{text}: the accuracy is {self.accuracy:.3f}, always predicting the most frequent "
            f"label gives {self.majority:.3f}, and {self.most_predicted:.0%} of the predictions "
            "are the same class"
        )


def judge(signals: Mapping[str, np.ndarray], step: int, num_train_steps: int) -> Judgement:
    """Judges by {name: sum} of the `learning_signals` of some steps whether a run learns."""
    own, variance, highest, _ = (float(x) for x in signals["association"])
    effect = own / highest if highest > 0 else 0.0
    deviations = own / math.sqrt(variance) if variance > 0 else 0.0
    # With a single label, or one example per micro-batch, there is nothing to compare.
    fractions, can_tell = {}, highest > 0
    if "labels" in signals:
        count = np.sum(signals["labels"])
        keys = {"accuracy": "correct", "most_predicted": "predictions", "majority": "labels"}
        fractions = {name: float(np.max(signals[key]) / count) for name, key in keys.items()}
        can_tell &= bool(count - np.max(signals["labels"]) >= _MIN_OTHERS)
    learns = deviations > _MIN_DEVIATIONS and effect > _MIN_EFFECT
    is_stuck = can_tell and not learns
    fraction = step / num_train_steps
    return Judgement(step, fraction, effect, deviations, is_stuck, can_tell, **fractions)


def verdict(folder: str, best_step: int | None) -> str:
    """Returns the verdict on a run that has ended.

    A run is stuck if it got a warning and its last judgement still finds no learning. A run that
    began to learn after the warning is not stuck.

    Returns:
      `STUCK`, `UNTRAINED` or `NOT_JUDGED`; "" for a run that learns or was not watched.
    """
    path = os.path.join(folder, STATE)
    if file_io.exists(path):
        state = _read(path)
        judgements = state["judgements"]
        if state["warning"] and all(
            judgement.get("is_stuck", True) for judgement in judgements[-1:]
        ):
            return STUCK
        if best_step != 0 and not any(judgement.get("can_tell", True) for judgement in judgements):
            return NOT_JUDGED
    return UNTRAINED if best_step == 0 else ""


def remarks(folder: str, record: dict[str, Any]) -> list[str]:
    """Returns warnings about the score of a run: the verdict, and what is as good or better."""
    result, metric = record["result"] or {}, record.get("best_metric") or ""
    # Otherwise the run did not train what it evaluates.
    has_trained = any("train" in session["stages"] for session in record["sessions"])
    texts = [verdict(folder, result.get("step") if has_trained else None)]
    texts += _compare_with_constant(result, record.get("baseline") or {}, metric)
    blocks = results.read_blocks(folder)
    start = results.find_better_start(blocks, result.get(metric), metric)
    if start is not None:
        texts.append(f"worse than before training ({start:.4f} at step 0)")
    calibration = record.get("calibration") or {}
    if "thresholds" not in calibration:  # else labels were counted without them
        counts = (results.ClassCount(**row) for row in record.get("classes", ()))
        texts.append(results.remark_on_classes(counts))
    if metric in result and result[metric] is None:
        texts.append(f"its {metric} is {results.UNDEFINED}: any answers score the same")
    abstention = calibration.get("abstention") or {}
    if abstention and abstention["threshold"] is None:
        texts.append(f"no threshold keeps its errors within {abstention['max_error']:.2%}")
    return list(filter(None, texts))


def _compare_with_constant(
    result: Mapping[str, float | None], baseline: Mapping[str, float | None], metric: str
) -> list[str]:
    """Returns remarks on scores that are no better than a constant answer's, also on macro F1.

    A model that finds rare classes may have a lower accuracy than a constant answer.
    """
    remark, macro_remark = (
        results.remark_on_baseline(result.get(name), baseline.get(name), results.is_loss(name))
        for name in (metric, results.MACRO_F1)
    )
    macro = result.get(results.MACRO_F1), baseline.get(results.MACRO_F1)
    if metric == results.MACRO_F1 or None in macro:
        return [remark]
    if remark and not macro_remark:
        return [
            f"its {metric} is {remark}, its macro F1 is better ({macro[0]:.4f} and {macro[1]:.4f})"
        ]
    return [remark, "" if remark or not macro_remark else f"its macro F1 is {macro_remark}"]


def _read(path: str) -> dict[str, Any]:
    """Reads the state of `Watch`: "warning" and "judgements", dicts of `Judgement`, and "signs".

    The signs are {step: [{name: sum} of half a window, of the next half]}; no warning is None.
    """
    state = file_io.read_json(path, "learning signals")
    if isinstance(state, dict) and "told" in state:  # its name up to version 1.0
        state["warning"] = state.pop("told")
    json_shapes.check(state, _SHAPE, path)
    json_shapes.check_text(state, path)
    for step, halves in state["signs"].items():
        if not re.fullmatch("[0-9]{1,18}", step) or len(halves) != 2:
            raise file_io.InputError(
                f"{path}: signs: expected two sums for each step, found {len(halves)} for {step!r}"
            )
    return state


class Watch(contracts.Hook):
    """Judges a run by its last steps, once a fraction of its steps is done.

    A judgement covers a window of steps after the warm-up; the next follows half a window later.
    The state is written at each checkpoint, so that a resumed run is judged like an uninterrupted
    one.

    Args:
      num_train_steps: the run's number of steps; None: nothing is judged before `expect`.
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
        self._steps: int | None = None
        if num_train_steps is not None:
            self.expect(num_train_steps)
        self._signals: dict[str, np.ndarray] = {}  # sums of half a window
        self._previous: dict[str, np.ndarray] = {}  # of the half before
        self._saved: dict[str, list[dict[str, Any]]] = {}  # both by step
        self._warned: dict[str, Any] | None = None
        self._judgements: list[dict[str, Any]] = []

    def expect(self, num_train_steps: int, step: int = 0) -> None:
        """Sets the planned number of steps; called at a step, and again when the plan changes."""
        is_first, self._steps = self._steps is None, num_train_steps
        if not is_first:  # Judgements stay where they are.
            return
        examples = math.ceil(self._settings.min_examples / self._batch_size)
        self._half = math.ceil(max(_WINDOW * num_train_steps, examples) / 2)
        before = math.ceil(self._settings.stuck_after * num_train_steps) - 2 * self._half
        warmup = math.ceil(self._settings.warmup_fraction * num_train_steps)
        self._first = max(before, warmup, step)

    def steps_to_stop(self, step: int) -> int:
        """Returns the maximum number of steps from a step on before the next judgement."""
        if self._steps is None:
            return super().steps_to_stop(step)
        if step < self._first:
            return self._first - step
        return self._half - (step - self._first) % self._half

    def resume(self, step: int) -> None:
        """Reads the state that was saved at or before a step."""
        if not file_io.exists(self._path):
            return
        state = _read(self._path)
        self._warned, self._saved = state["warning"], state["signs"]
        # Judgements of later steps, made before the interruption, will be made again.
        self._judgements = [
            judgement for judgement in state["judgements"] if judgement["step"] <= step
        ]
        self._previous, self._signals = (
            {name: np.array(sums, np.float64) for name, sums in half.items()}
            for half in self._saved.get(str(step), ({}, {}))
        )

    def save(self, step: int) -> None:
        """Writes the state at a step whose checkpoint is about to be saved."""
        halves = [
            {name: sums.tolist() for name, sums in half.items()}
            for half in (self._previous, self._signals)
        ]
        earlier = sorted((number for number in self._saved if int(number) < step), key=int)
        signals_by_step = {number: self._saved[number] for number in earlier[1 - _MAX_SAVED :]}
        self._saved = {**signals_by_step, str(step): halves}
        self._write()

    def _write(self) -> None:
        if self._writes:
            state = {"warning": self._warned, "judgements": self._judgements, "signs": self._saved}
            file_io.write_json(self._path, state)

    def observe(self, step: int, signals: Mapping[str, np.ndarray]) -> None:
        """Adds the signals, {name: sum}, of the steps up to this one; judges the run when due."""
        if self._steps is None or step <= self._first or not signals:
            return
        for name, sums in signals.items():
            self._signals[name] = self._signals.get(name, 0.0) + sums.astype(np.float64)
        if (step - self._first) % self._half:
            return
        previous, self._previous, self._signals = self._previous, self._signals, {}
        if not previous:
            return
        window = {name: previous[name] + sums for name, sums in self._previous.items()}
        judgement = judge(window, step, self._steps)
        self._judgements.append(dataclasses.asdict(judgement))
        if judgement.is_stuck and self._warned is None:
            self._warn(judgement)

    def _warn(self, judgement: Judgement) -> None:
        message = (
            f"this run does not learn: in the last {2 * self._half} of {judgement.step} steps, "
            f"{judgement}. {self._settings.advice}"
        )
        if self._settings.num_restarts:
            raise StuckError(message, judgement)
        self._warned = dataclasses.asdict(judgement)
        self._write()
        logging.warning("At %.0f%% of the steps: %s", 100 * judgement.fraction, message)


# --- attempts with other seeds ------------------------------------------------------------------


ATTEMPTS = "attempts.json"
# Names of the files of one attempt; data, vocabulary and descriptions are for all attempts.
_ATTEMPT_FILES = re.compile(
    r"(new-)?model\.ckpt-.*|checkpoint|eval|events\.out\..*|load_report\.json|metrics\.jsonl|"
    + "|".join(map(re.escape, (results.RESULTS, results.BEST_TRIAL, STATE)))
    + r"|(eval_results|average_results|best_trial)\.earlier\d+\.txt"
)
# Seeds of restarts begin here, with room for so many of each first seed.
_RESTARTS, _PER_SEED = 2**30, 1000
_ATTEMPT = {
    "seed": int, "step": int, "share": json_shapes.NUMBER, "message": str, "folder": str,
}  # fmt: skip
_ATTEMPTS_SHAPE = {"given_up": [_ATTEMPT], "moving?": bool}


def _attempt_folder(number: int) -> str:
    """Returns the name of the folder of the attempt with this number, from 1."""
    return f"attempt_{number}"


def read(folder: str) -> list[dict[str, Any]]:
    """Returns {"seed", "step", "share", "message", "folder"} of each attempt that was given up."""
    return _read_attempts(folder)["given_up"]


def _read_attempts(folder: str) -> dict[str, Any]:
    """Returns {"given_up": see `read`, "moving": whether to move files} of an output folder."""
    path = os.path.join(folder, ATTEMPTS)
    if not file_io.exists(path):
        return {"given_up": [], "moving": False}
    state = file_io.read_json(path, "attempts")
    json_shapes.check(state, _ATTEMPTS_SHAPE, path)
    json_shapes.check_text(state, path)
    for number, attempt in enumerate(state["given_up"], 1):
        if attempt["folder"] != _attempt_folder(number):
            raise file_io.InputError(
                f"{path}: attempt {number}: expected the folder {_attempt_folder(number)!r}, found "
                f"{attempt['folder']!r}"
            )
    if state.get("moving") and not state["given_up"]:
        raise file_io.InputError(
            f"{path}: expected an attempt that was given up, found none to move"
        )
    return state


def _finish_moving(folder: str) -> list[dict[str, Any]]:
    """Moves the files of an attempt that was just given up; returns the result of `read`."""
    state = _read_attempts(folder)
    if state.get("moving"):
        target = os.path.join(folder, state["given_up"][-1]["folder"])
        file_io.make_dirs(target)
        for name in file_io.listdir(folder):
            if _ATTEMPT_FILES.fullmatch(name):
                file_io.rename(os.path.join(folder, name), os.path.join(target, name))
        file_io.write_json(os.path.join(folder, ATTEMPTS), {**state, "moving": False})
    return state["given_up"]


def give_up(folder: str, seed: int, error: StuckError, on_chief: contracts.OnChief) -> None:
    """Records that an attempt was given up, and moves its files."""
    # As text, because the error keeps its traceback alive, and with it the model.
    logging.warning("seed=%d: %s", seed, str(error))
    on_chief(functools.partial(_give_up, folder, seed, error))


def _give_up(folder: str, seed: int, error: StuckError) -> None:
    """Records a given-up attempt and moves its files, see `give_up`; the chief calls it."""
    given_up = read(folder)
    judgement = error.judgement
    given_up.append(
        {
            "seed": seed,
            "step": judgement.step,
            "share": judgement.fraction,
            "message": str(error),
            "folder": _attempt_folder(len(given_up) + 1),
        }
    )
    file_io.write_json(os.path.join(folder, ATTEMPTS), {"given_up": given_up, "moving": True})
    _finish_moving(folder)


def seed_of(first_seed: int, num_restarts: int) -> int:
    """Returns the seed of the attempt after `num_restarts` others; no other run or attempt has it.

    Those of restarts begin at 2**30, above seeds that anybody gives to a run.
    """
    if not num_restarts:
        return first_seed
    return _RESTARTS + (first_seed * _PER_SEED + num_restarts) % _RESTARTS


def attempts(
    folder: str, seed: int, num_restarts: int, on_chief: contracts.OnChief
) -> Iterator[tuple[int, int]]:
    """Yields the seed of each attempt, and the number of attempts given up before it.

    The caller ends the loop when an attempt has learned, and calls `give_up` when it is stuck.

    Args:
      num_restarts: maximum number of attempts after the first; 0: none is given up, and the last
        one continues.

    Raises:
      file_io.InputError: all attempts are stuck.
    """
    given_up = on_chief(lambda: _finish_moving(folder))
    while not num_restarts or len(given_up) <= num_restarts:
        own = seed_of(seed, len(given_up))
        if given_up:
            logging.info("Restart %d of %d, with seed=%d", len(given_up), num_restarts, own)
        yield own, len(given_up)
        given_up = on_chief(lambda: read(folder))
    seeds = ", ".join(str(attempt["seed"]) for attempt in given_up)
    raise file_io.InputError(
        f"none of {len(given_up)} attempts (seeds {seeds}) learns: "
        f"{given_up[-1]['message']} Raise num_restarts to try more seeds"
    )
