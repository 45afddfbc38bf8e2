"""How the scores of a classifier become probabilities and answers."""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from albert.io import file_io, json_shapes
from albert.model import label_scale

ABSTAINS = "abstains"  # in place of a label
THRESHOLD = 0.5  # by default, of several labels per text
SETTING = "decision"  # of a model's folder: an object with the fields that are not the default


def is_number(value: object) -> bool:
    """Returns whether a JSON value is a finite number."""
    return json_shapes.is_number(value) and math.isfinite(value)


def _scale_logit(probability: float, factor: float) -> float:
    """Returns the probability whose logit is `factor` times as large."""
    if factor == 1 or probability in (0, 1):
        return probability
    logit = math.log(probability) - math.log1p(-probability)
    return 1 / (1 + math.exp(min(-logit * factor, 700.0)))  # beyond, exp overflows


@dataclasses.dataclass(frozen=True)
class Decision:
    """A classifier whose logits are divided by a temperature before the softmax.

    The most probable label does not depend on the temperature (Guo et al., 2017, arXiv 1706.04599).

    Attributes:
      min_probability: the model abstains where its top probability is lower; 0: never.
      max_error: error rate of its answers that this promises; None: no promise.
      coverage: fraction of the dev examples that were answered; None: unknown.
      thresholds: of several labels per text, the lowest probability at which a text has each label;
        empty: `THRESHOLD` for all.
      step: of the checkpoint that all this was found with; None: unknown.

    Raises file_io.InputError if a value is invalid.
    """

    temperature: float = 1.0
    min_probability: float = 0.0
    max_error: float | None = None
    coverage: float | None = None
    thresholds: tuple[float, ...] = ()
    step: int | None = None

    def __post_init__(self) -> None:
        if not is_number(self.temperature) or self.temperature <= 0:
            raise file_io.InputError(
                f"temperature={self.temperature!r} must be a finite number above 0"
            )
        for number, threshold in enumerate(self.thresholds):
            if not is_number(threshold) or not 0 <= threshold <= 1:
                raise file_io.InputError(
                    f"thresholds: number {number} is {threshold!r}, expected one from 0 to 1"
                )
        for name in ("min_probability", "max_error", "coverage"):
            value = getattr(self, name)
            is_unknown = value is None and name != "min_probability"
            if not is_unknown and not (is_number(value) and 0 <= value <= 1):
                raise file_io.InputError(f"{name}={value!r} must be a number from 0 to 1")
        if self.step is not None and type(self.step) is not int:
            raise file_io.InputError(f"step={self.step!r} must be a whole number")

    @property
    def may_abstain(self) -> bool:
        """Tells whether the model leaves some examples without an answer."""
        return self.min_probability > 0

    def abstains(self, probabilities: Iterable[float]) -> bool:
        """Returns whether the model gives no answer to an example with these probabilities."""
        return self.may_abstain and max(probabilities) < self.min_probability

    def describe(self, answered: int, total: int) -> str:
        """Says how many of some texts the model has answered, and what that promises."""
        of_dev = "" if self.coverage is None else f"; {self.coverage:.1%} of the dev data"
        promise = ""
        if self.max_error is not None:
            promise = f", so that at most {self.max_error:.2%} of the answers are wrong"
        return (
            f"Answered {answered} of {total} texts ({answered / total:.1%}{of_dev}){promise}; the "
            f"model abstains below a probability of {self.min_probability:.4f}"
        )

    @property
    def settings(self) -> dict[str, Any]:
        """JSON-ready dict for a model's folder; empty for the decision of `PLAIN`."""
        values = dataclasses.asdict(self)
        changed = {name: value for name, value in values.items() if value != getattr(PLAIN, name)}
        return {SETTING: changed} if changed else {}

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> "Decision":
        """Builds the decision in the settings of a model's folder; without one, `PLAIN`."""
        values = settings.get(SETTING, {})
        names = [field.name for field in dataclasses.fields(cls)]
        if not isinstance(values, dict) or not {*values} <= {*names}:
            raise file_io.InputError(
                f"{SETTING}={values!r} must be an object with the keys {', '.join(names)}"
            )
        thresholds = values.get("thresholds", [])
        if not isinstance(thresholds, list | tuple):
            raise file_io.InputError(f"thresholds={thresholds!r} must be a list")
        return cls(**{**values, "thresholds": tuple(thresholds)})

    def thresholds_of(self, num_labels: int) -> np.ndarray:
        """Returns the thresholds of several labels per text: float32 [num_labels]."""
        if len(self.thresholds) not in (0, num_labels):
            raise file_io.InputError(
                f"there are {len(self.thresholds)} thresholds for {num_labels} labels"
            )
        return np.array(self.thresholds or [THRESHOLD] * num_labels, np.float32)

    def with_temperature(self, temperature: float) -> "Decision":
        """Returns a decision with another temperature, and the same labels of each text.

        Thresholds move with the probabilities. The model no longer abstains: what was promised
        of its answers was measured with the earlier temperature.
        """
        ratio = self.temperature / temperature
        moved = tuple(_scale_logit(threshold, ratio) for threshold in self.thresholds)
        return Decision(temperature, thresholds=moved)

    def fold(self, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns the variables of a model with the temperature in its output layer.

        They include the two of `label_scale.HEAD`, [K, H] and [K].
        """
        if self.temperature == 1:
            return dict(tensors)
        scaled = {
            name: (np.asarray(tensors[name], np.float64) / self.temperature).astype(np.float32)
            for name in label_scale.HEAD
        }
        return {**tensors, **scaled}


PLAIN = Decision()
