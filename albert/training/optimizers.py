"""The choice of an optimizer."""

from typing import Any

from albert.training import optimizer_table, weight_average
from albert.training.adam import Adam, AdamWeightDecayOptimizer
from albert.training.lamb import LAMB
from albert.training.learning_rates import Pace, Schedule
from albert.training.muon import Muon
from albert.training.optimizer_base import Optimizer

# A new optimizer is also a row of `optimizer_table.OPTIMIZERS`.
CLASSES: dict[str, type[Optimizer]] = {
    "adamw": AdamWeightDecayOptimizer,
    "lamb": LAMB,
    "adam": Adam,
    "muon": Muon,
}


def optimizer_class(name: str) -> type[Optimizer]:
    """Returns the optimizer class for a name in `optimizer_table.OPTIMIZERS`."""
    optimizer_table.check(name)
    return CLASSES[name]


def build(settings: optimizer_table.Settings, pace: Pace | None = None) -> Optimizer:
    """Builds the optimizer of a training run.

    Args:
      pace: gives the completed fraction of training; the numbers of steps in the settings are then
        also fractions. None: they are steps.
    """
    settings.check()
    schedule = Schedule(settings, pace)
    instance = optimizer_class(settings.optimizer)(schedule, **settings.arguments)
    instance.product_type = settings.product_type
    if settings.average_last:
        instance.average = weight_average.WeightAverage(
            schedule.completed, settings.average_last, is_planned_again=pace is not None
        )
    return instance


def create_optimizer(
    init_lr: float,
    num_train_steps: int,
    num_warmup_steps: float,
    optimizer: str = "adamw",
    poly_power: float = 1.0,
    start_warmup_step: int = 0,
    pace: Pace | None = None,
    average_last: float = 0.0,
    product_type: str = "float32",
    **settings: Any,
) -> Optimizer:
    """Builds an optimizer from the arguments of the reference's function of this name.

    Args:
      init_lr: learning rate, see `learning_rate_at`.
      num_train_steps, num_warmup_steps: steps of training, and of its warm-up.
      optimizer: name in `optimizer_table.OPTIMIZERS`.
      poly_power, start_warmup_step: see `learning_rate_at`.
      average_last: last fraction of training over which the weights are averaged; 0: none.
      product_type: type of the factors of products in Muon.
      pace: gives the completed fraction of training; None: it is that of the steps.
      **settings: arguments of the optimizer's constructor.
    """
    values = optimizer_table.Settings(
        init_lr, num_train_steps, num_warmup_steps, optimizer, settings, poly_power,
        start_warmup_step, average_last, product_type,
    )  # fmt: skip
    return build(values, pace)
