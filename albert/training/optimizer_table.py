"""The available optimizers and their settings, readable without TensorFlow."""

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from albert.io import file_io


class Row(NamedTuple):
    """One optimizer of the table.

    Attributes:
      settings: constructor arguments in addition to the learning rate.
      rate: (learning rate, batch size) from which the rates of other batch sizes follow by the
        square root rule; None if no such rule is known.
    """

    settings: tuple[str, ...] = ("clip_norm",)
    rate: tuple[float, int] | None = None


_ADAM = ("beta_1", "beta_2", "epsilon", "clip_norm")
_CORRECTED_DECAY = ("weight_decay_rate", "exclude_from_weight_decay", "bias_correction")
# A new optimizer needs a row, and a class in `optimizers.CLASSES`.
OPTIMIZERS = {
    "adamw": Row((*_ADAM, *_CORRECTED_DECAY)),
    # The rate is that of ALBERT, Lan et al., ICLR 2020, section 4.1; the square root is the rule of
    # You et al., ICLR 2020, section 4.3.
    "lamb": Row((*_ADAM, *_CORRECTED_DECAY, "exclude_from_layer_adaptation"), (0.00176, 4096)),
    "adam": Row(_ADAM),
    "muon": Row((*_ADAM, *_CORRECTED_DECAY, "momentum", "adamw_rate_ratio")),
}


@dataclasses.dataclass(frozen=True)
class Settings:
    """The optimizer of a training run and the course of its learning rate.

    Attributes:
      learning_rate, num_train_steps, num_warmup_steps, poly_power, start_warmup_step: see
        `learning_rates.learning_rate_at`.
      optimizer: name in `OPTIMIZERS`.
      arguments: further arguments of the optimizer's constructor.
      average_last: last fraction of training over which the weights are averaged; 0: none.
      product_type: see `optimizer_base.Optimizer`; only Muon has such products.
    """

    learning_rate: float
    num_train_steps: float
    num_warmup_steps: float
    optimizer: str = "adamw"
    arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    poly_power: float = 1.0
    start_warmup_step: int = 0
    average_last: float = 0.0
    product_type: str = "float32"

    @property
    def warmup_fraction(self) -> float:
        """Fraction of the steps that are warm-up."""
        return self.num_warmup_steps / self.num_train_steps if self.num_train_steps else 0.0

    def in_fractions(self) -> "Settings":
        """Returns the settings with numbers of steps as fractions of training."""
        return dataclasses.replace(self, num_train_steps=1, num_warmup_steps=self.warmup_fraction)

    def find_warning(self, step: int) -> str | None:
        """Returns what is unusual about the rate of a run that begins at a step; None: nothing.

        Both settings can be meant, and the reference has them, so that they are no errors.
        """
        if step < self.start_warmup_step:
            return (
                f"start_warmup_step={self.start_warmup_step}, but training begins at step {step}: "
                "until then the learning rate is below 0, which makes the loss larger"
            )
        if self.warmup_fraction >= 1:
            return (
                "the warm-up takes all steps of the training or more, so that the learning rate "
                "only rises: give fewer num_warmup_steps (warmup_step) or more steps"
            )
        return None

    def check(self) -> None:
        """Checks the optimizer, its arguments and the numbers of steps."""
        check(self.optimizer, self.arguments)
        for name, value, lowest in (
            ("init_lr", self.learning_rate, 0),
            ("num_train_steps", self.num_train_steps, 1),
            ("num_warmup_steps", self.num_warmup_steps, 0),
        ):
            if not lowest <= value < math.inf:
                raise file_io.InputError(f"{name} must be at least {lowest}, got {value}")


def format_names(names: Iterable[str] = OPTIMIZERS) -> str:
    """Formats names for a message: "a, b or c"."""
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last


def check(name: str, settings: Mapping[str, Any] | None = None) -> None:
    """Checks that the optimizer exists and accepts the settings, {argument: value}."""
    if name not in OPTIMIZERS:
        raise file_io.InputError(f"optimizer={name}: expected {format_names()}")
    names, settings = OPTIMIZERS[name].settings, settings or {}
    extra = [setting for setting in settings if setting not in names]
    if extra:
        raise file_io.InputError(
            f"optimizer={name} does not accept {_quote(extra)}; it accepts {_quote(names)}"
        )
    for setting in settings:
        _check_value(setting, settings[setting])


def _quote(names: Iterable[str]) -> str:
    """Returns the names in backquotes, separated by commas."""
    return ", ".join(f"`{name}`" for name in names)


def _check_value(name: str, value: Any) -> None:
    """Checks the value of the constructor argument `name`."""
    if name in ("exclude_from_weight_decay", "exclude_from_layer_adaptation"):
        for pattern in value or ():
            _check_pattern(name, pattern)
    elif name in ("beta_1", "beta_2", "momentum"):
        if not 0 <= value < 1:
            raise file_io.InputError(f"{name}={value} must be a fraction, from 0 to below 1")
    elif name == "epsilon":
        if not 0 < value < math.inf:
            raise file_io.InputError(f"{name}={value} must be above 0")
    elif value is not None and not 0 <= value < math.inf:
        raise file_io.InputError(f"{name}={value} must be at least 0")


def _check_pattern(name: str, pattern: str) -> None:
    """Checks that an element of the argument `name`, a pattern, is a regular expression, not ""."""
    if not pattern:  # It would match every name.
        raise file_io.InputError(f"{name} has an empty regular expression")
    try:
        re.compile(pattern)
    except re.error as error:
        raise file_io.InputError(
            f"{name}: {pattern!r} is not a regular expression: {error}"
        ) from error


def scaled_rate(name: str, batch_size: int) -> float | None:
    """Returns the learning rate for a batch size, by the square root rule; None without a rule."""
    reference = OPTIMIZERS[name].rate
    if reference is None:
        return None
    rate, batch = reference
    return rate * math.sqrt(batch_size / batch)
