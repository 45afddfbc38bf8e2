"""The unit of a regression's labels: what the model computes is not what the user measures."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from albert.io import file_io, json_shapes

_KEYS = {"label_mean": "mean", "label_deviation": "deviation"}  # setting -> attribute
HEAD = ("output_weights", "output_bias")  # variables of the output layer


@dataclasses.dataclass(frozen=True)
class LabelScale:
    """A regression whose output layer computes x answers ``mean + deviation * x``.

    Attributes:
      mean, deviation: those of the labels of the training, in the user's unit.

    Raises file_io.InputError if a value is not finite or the deviation is not positive.
    """

    mean: float = 0.0
    deviation: float = 1.0

    def __post_init__(self) -> None:
        for name, attribute in _KEYS.items():
            value = getattr(self, attribute)
            if not json_shapes.is_number(value) or not math.isfinite(value):
                raise file_io.InputError(f"{name}={value!r} must be a finite number")
        if self.deviation <= 0:
            raise file_io.InputError(f"label_deviation={self.deviation!r} must be above 0")

    @property
    def is_raw(self) -> bool:
        """Tells whether the model computes in the user's unit."""
        return self == RAW

    @property
    def settings(self) -> dict[str, float]:
        """JSON-ready dict for a model's folder; empty if the model computes in the user's unit."""
        values = {name: getattr(self, attribute) for name, attribute in _KEYS.items()}
        return {} if self.is_raw else values

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> "LabelScale":
        """Builds the scale in the settings of a model's folder; without one, that of `RAW`."""
        if not any(name in settings for name in _KEYS):
            return RAW
        # One without the other belongs to a damaged file.
        values: dict[str, Any] = {_KEYS[name]: settings.get(name) for name in _KEYS}
        return cls(**values)

    @classmethod
    def from_labels(cls, labels: np.ndarray) -> "LabelScale":
        """Measures labels [N]; labels that are all equal get the deviation 1."""
        labels = np.asarray(labels, np.float64)
        # By rounding, the deviation of equal labels may be above 0.
        return cls(float(np.mean(labels)), float(np.std(labels)) if np.ptp(labels) else 1.0)


RAW = LabelScale()


def convert_head(
    tensors: Mapping[str, np.ndarray], source: LabelScale, target: LabelScale
) -> dict[str, np.ndarray]:
    """Converts an output layer from one scale to another; the answers stay the same.

    Args:
      tensors: {variable: array}, of a regression with the two variables of `HEAD`, [1, H] and [1].

    Returns:
      The arrays, with a new output layer in float32 if the scales differ.
    """
    if source == target:
        return dict(tensors)
    weights, bias = (np.asarray(tensors[name], np.float64) for name in HEAD)
    weights = weights * source.deviation / target.deviation
    bias = (bias * source.deviation + source.mean - target.mean) / target.deviation
    converted = (array.astype(np.float32) for array in (weights, bias))
    return {**tensors, **dict(zip(HEAD, converted, strict=True))}
