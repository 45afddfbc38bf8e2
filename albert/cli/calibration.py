"""Flags for probabilities that can be trusted, and the stage that fits them to the dev data."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from absl import logging

from albert.cli import options
from albert.cli.fine_tuning_settings import Settings, has_checkpoints
from albert.io import file_io
from albert.model import decision as decisions
from albert.model import model_folder
from albert.training import contracts, results, run_record

if TYPE_CHECKING:
    import tensorflow as tf

_BEST = (None, "best", "all")  # values of --checkpoint with which the best one is used


def _is_rate(name: str, value: float) -> None:
    if not 0 < value < 1:
        raise file_io.InputError(f"--{name}={value} must be above 0 and below 1, such as 0.05")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Calibration(options.Group):
    """Flags for a temperature, thresholds of labels, and abstention with a promised error."""

    section = options.EVALUATION

    calibrate: bool = options.flag(
        False,
        "After the evaluation, fit a temperature to the dev data that makes the probabilities of "
        "the best checkpoint as certain as they are right; keep it with the model.",
    )
    max_error: float | None = options.flag(
        None,
        "Highest error rate of answers, such as 0.05: after the evaluation, find the probability "
        "below which the model must abstain, so that the rate holds with a confidence of 95%.",
        check=_is_rate,
    )

    choose_thresholds: bool = options.flag(
        False,
        "With --label_type=multi_label: after the evaluation, choose for each label the "
        "probability from which on a text has it, by F1 on the dev data; keep it with the model.",
    )

    @property
    def wanted(self) -> list[str]:
        """Returns the flags with a value, with dashes."""
        names = ("calibrate", "choose_thresholds", "max_error")
        return [f"--{name}" for name in names if getattr(self, name)]

    def check(
        self, settings: Settings, labels: Sequence[str], has_label_sets: bool = False
    ) -> None:
        """Rejects flags without dev data, a model or classes.

        Args:
          labels: label names by id; empty for a regression.
          has_label_sets: whether a text has any number of labels.
        """
        if not self.wanted:
            return
        name = self.wanted[0]
        if not labels:
            raise file_io.InputError(f"{name}: only for classes; this task predicts a number")
        if not settings.evaluates:
            raise file_io.InputError(f"{name} needs the dev data: give --do_eval")
        if settings.loop.checkpoint not in _BEST:
            raise file_io.InputError(
                f"{name} is for the best checkpoint, which a model's folder answers with; leave "
                f"out --checkpoint={settings.loop.checkpoint}"
            )
        if self.max_error is not None and has_label_sets:
            raise file_io.InputError("--max_error: only for one label per text")
        if self.choose_thresholds and not has_label_sets:
            raise file_io.InputError("--choose_thresholds: only for --label_type=multi_label")
        if self.max_error is not None and decisions.ABSTAINS in labels:
            raise file_io.InputError(
                f"--max_error: the label {decisions.ABSTAINS!r} would be taken for no answer; give "
                "it another name"
            )
        if not settings.do_train and not has_checkpoints(settings.output_dir):
            raise file_io.InputError(
                f"{name} is kept with a trained model, and {settings.output_dir} has none: train "
                "it, or give its folder as --output_dir"
            )


def run(
    flags: Calibration,
    folder: str,
    strategy: "tf.distribute.Strategy",
    decision: decisions.Decision,
    labels: Sequence[str],
    rows: contracts.Rows,
    prefix: str,
) -> decisions.Decision:
    """Fits the decision of the model in a folder to dev predictions; keeps and returns it.

    Args:
      decision: the decision with which the checkpoint predicted.
      labels: K label names by id.
      rows: {name: array}: probabilities [N, K]; label_ids [N], or [N, K] of several per text.
      prefix: path of the checkpoint that predicted, without ending.
    """
    from albert.model import checkpoints
    from albert.tasks import calibration
    from albert.training import distribution

    def fit_and_keep() -> dict[str, Any]:
        step = checkpoints.read_step(prefix) or 0
        found, scores, record = _fit(flags, decision, labels, rows)
        if decision.may_abstain and not (found.may_abstain or flags.max_error):
            logging.warning("The temperature of %s changes: its threshold is dropped", folder)
        if found != decisions.PLAIN:
            keeps_thresholds = decision.thresholds and not flags.choose_thresholds
            found_with = decision.step if keeps_thresholds else checkpoints.read_step(prefix)
            found = dataclasses.replace(found, step=found_with)
        model_folder.write_decision(folder, found)
        results.add_lines(folder, step, scores, calibration.ABSTENTION)
        run_record.set_calibration(folder, {"step": step, **record})
        return found.settings

    return decisions.Decision.from_settings(distribution.from_chief(strategy, fit_and_keep))


def _fit(
    flags: Calibration, decision: decisions.Decision, names: Sequence[str], rows: contracts.Rows
) -> tuple[decisions.Decision, dict[str, float], dict[str, Any]]:
    """Returns the new decision, {name: score}, and {"thresholds", …: JSON} for ``run.json``.

    `names` are K label names by id; `decision` and `rows` are those of `run`.
    """
    from albert.tasks import calibration, label_thresholds

    probabilities, labels = rows["probabilities"], rows["label_ids"]
    scores: dict[str, float] = {}
    record: dict[str, Any] = {}
    choice = None
    if flags.choose_thresholds:
        choice = label_thresholds.choose(names, probabilities, labels)
        decision = dataclasses.replace(decision, thresholds=choice.thresholds)
        scores = choice.results()
    per_text = labels.shape[1] if labels.ndim > 1 else 1
    if labels.ndim > 1:
        probabilities, labels = calibration.as_choices(probabilities, labels)
    temperature = decision.temperature
    logits = calibration.to_logits(probabilities, temperature)
    if flags.calibrate:
        measured = calibration.measure(logits, labels, per_text)
        temperature, record["temperature"] = measured.temperature, measured.to_json()
        scores |= measured.results()
        logging.info("%s", measured.describe())
    plain = decision.with_temperature(temperature)
    if choice:
        choice = choice.with_thresholds(plain.thresholds)
        record["thresholds"] = choice.to_json()
        logging.info("%s\n%s", choice.describe(), choice.table())
    scores |= label_thresholds.lines(names, plain)
    if flags.max_error is None:
        return plain, scores, record
    probabilities = calibration.softmax(logits / temperature)
    promise = calibration.find_abstention(probabilities, labels, flags.max_error, temperature)
    record["abstention"] = promise.to_json()
    scores |= promise.results()
    if promise.threshold is None:
        logging.warning("%s", promise.describe())
        return plain, scores, record
    logging.info("%s", promise.describe())
    found = dataclasses.replace(
        plain,
        min_probability=promise.threshold,
        max_error=promise.max_error,
        coverage=promise.coverage,
    )
    return found, scores, record
