"""The part of a fine-tuned model between the encoder and its output layer, as settings."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from albert.io import file_io
from albert.model import pooling as pooling_kinds


@dataclasses.dataclass(frozen=True)
class Head:
    """Settings of the part before the output layer of a fine-tuned model.

    The names are those of the settings in a model's folder.

    Attributes:
      head_hidden_size: outputs of the layer; None: no layer, and the other settings are unused.
      head_activation: a key of `layers.ACTIVATIONS`.
      head_input_activation: applied to the layer's input, the encoder's output.
      head_dropout_prob: dropout rate of the layer's output in training.
      pooling: what a classifier or regression reads of the encoder, one of `pooling.KINDS`.

    Raises file_io.InputError if the size, the rate or the pooling is invalid.
    """

    head_hidden_size: int | None = None
    head_activation: str = "relu"
    head_input_activation: str = "linear"
    head_dropout_prob: float = 0.0
    pooling: str = pooling_kinds.CLS

    def __post_init__(self) -> None:
        size, rate = self.head_hidden_size, self.head_dropout_prob
        if size is not None and (not isinstance(size, int) or size < 1):
            raise file_io.InputError(f"head_hidden_size={size!r} must be an integer of at least 1")
        if not isinstance(rate, (int, float)) or not 0 <= rate < 1:
            raise file_io.InputError(
                f"head_dropout_prob={rate!r} must be a fraction, from 0 to below 1"
            )
        if self.pooling not in pooling_kinds.KINDS:
            raise file_io.InputError(
                f"pooling={self.pooling!r}: expected one of {', '.join(pooling_kinds.KINDS)}"
            )

    @property
    def settings(self) -> dict[str, Any]:
        """JSON-ready dict for a model's folder; without what is as in the reference."""
        layer = dataclasses.asdict(self)
        pooling = layer.pop("pooling")
        values = layer if self.head_hidden_size else {}
        return values | ({} if pooling == pooling_kinds.CLS else {"pooling": pooling})

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> "Head":
        """Builds the head described by a dict of settings, such as those of a model's folder."""
        names = [field.name for field in dataclasses.fields(cls)]
        return cls(**{name: settings[name] for name in names if name in settings})


NO_LAYER = Head()
