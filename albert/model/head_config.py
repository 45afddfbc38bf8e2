"""The dense layer that a fine-tuned model may have before its output layer, as settings."""

import dataclasses

from albert.io import file_io


@dataclasses.dataclass(frozen=True)
class Head:
    """A dense layer before the output layer of a fine-tuned model; without a size there is none.

    The names are those of the settings in a model's folder.

    Attributes:
      head_hidden_size: outputs of the layer; None: no layer, and the rest means nothing.
      head_activation: function of its output, of `layers.ACTIVATIONS`.
      head_input_activation: function of its input, what the encoder computes.
      head_dropout_prob: dropout of its output in training.

    Raises file_io.InputError for a size that is none, or a rate that is none.
    """

    head_hidden_size: int | None = None
    head_activation: str = "relu"
    head_input_activation: str = "linear"
    head_dropout_prob: float = 0.0

    def __post_init__(self):
        size, rate = self.head_hidden_size, self.head_dropout_prob
        if size is not None and (not isinstance(size, int) or size < 1):
            raise file_io.InputError(f"head_hidden_size={size!r} must be an integer of at least 1")
        if not isinstance(rate, (int, float)) or not 0 <= rate < 1:
            raise file_io.InputError(
                f"head_dropout_prob={rate!r} must be a share, from 0 to below 1"
            )

    @property
    def settings(self):
        """JSON-ready dict for a model's folder; empty without a layer."""
        return dataclasses.asdict(self) if self.head_hidden_size else {}

    @classmethod
    def of(cls, settings):
        """The head that a dict of settings describes, such as that of a model's folder."""
        names = [field.name for field in dataclasses.fields(cls)]
        return cls(**{name: settings[name] for name in names if name in settings})


NO_LAYER = Head()
