"""The dense layer that a fine-tuned model may have before its output layer, as settings."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from albert.io import file_io


@dataclasses.dataclass(frozen=True)
class Head:
    """Settings of a dense layer before the output layer of a fine-tuned model.

    The names are those of the settings in a model's folder.

    Attributes:
      head_hidden_size: outputs of the layer; None: no layer, and the other settings are unused.
      head_activation: activation of the layer, a key of `layers.ACTIVATIONS`.
      head_input_activation: activation applied to the layer's input, the encoder's output.
      head_dropout_prob: dropout rate of the layer's output in training.

    Raises file_io.InputError if the size or the rate is invalid.
    """

    head_hidden_size: int | None = None
    head_activation: str = "relu"
    head_input_activation: str = "linear"
    head_dropout_prob: float = 0.0

    def __post_init__(self) -> None:
        size, rate = self.head_hidden_size, self.head_dropout_prob
        if size is not None and (not isinstance(size, int) or size < 1):
            raise file_io.InputError(f"head_hidden_size={size!r} must be an integer of at least 1")
        if not isinstance(rate, (int, float)) or not 0 <= rate < 1:
            raise file_io.InputError(
                f"head_dropout_prob={rate!r} must be a fraction, from 0 to below 1"
            )

    @property
    def settings(self) -> dict[str, Any]:
        """JSON-ready dict for a model's folder; empty without a layer."""
        return dataclasses.asdict(self) if self.head_hidden_size else {}

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> "Head":
        """Builds the head described by a dict of settings, such as those of a model's folder."""
        names = [field.name for field in dataclasses.fields(cls)]
        return cls(**{name: settings[name] for name in names if name in settings})


NO_LAYER = Head()
