"""AdamW and Adam."""

import math
from collections.abc import Callable, Sequence
from typing import Unpack

import tensorflow as tf

from albert.model import weight_names
from albert.training import optimizer_base
from albert.training.optimizer_base import Optimizer, Step, VariableRule


class Settings(optimizer_base.Settings, total=False):
    """Arguments of `AdamBase` in addition to the learning rate."""

    weight_decay_rate: float
    beta_1: float
    beta_2: float
    epsilon: float
    bias_correction: bool


class AdamBase(Optimizer):
    """Adam with decoupled weight decay and a rate per variable.

    The slots mean the same in all subclasses, so each can resume from the slots of another.

    Args:
      learning_rate: a number, or a function of the step.
      beta_1: decay of the mean gradient.
      beta_2: decay of the mean squared gradient.
      epsilon: added outside the square root.
      bias_correction: whether the running means are divided by the total weight of what they are
        means of (Adam, Kingma & Ba, ICLR 2015, section 3), as the reference does not. Without it
        the first updates are about three times as large.
    """

    SLOTS = weight_names.ADAM_SLOTS

    def __init__(
        self,
        learning_rate: Callable[[tf.Tensor], tf.Tensor] | float,
        weight_decay_rate: float = 0.01,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        bias_correction: bool = False,
        **settings: Unpack[optimizer_base.Settings],
    ) -> None:
        super().__init__(learning_rate, weight_decay_rate, **settings)
        self._bias_correction = bias_correction
        self._beta_1 = beta_1
        self._beta_2 = beta_2
        self._epsilon = epsilon

    def _new_values(
        self,
        rule: VariableRule,
        weights: tf.Tensor,
        gradient: tf.Tensor,
        slots: Sequence[tf.Tensor],
        step: Step,
    ) -> tuple[Sequence[tf.Tensor], tf.Tensor | None]:
        """Returns ((mean, mean square, weights), trust ratio or None), see `Optimizer`."""
        gradient = gradient * step.factor
        mean = self._beta_1 * slots[0] + (1.0 - self._beta_1) * gradient
        square = self._beta_2 * slots[1] + (1.0 - self._beta_2) * tf.square(gradient)
        if self._bias_correction:
            mean_weight = _total_weight(self._beta_1, step.number)
            root_weight = tf.sqrt(_total_weight(self._beta_2, step.number))
            # m / s_1 / (sqrt(v / s_2) + e) = m / (sqrt(v) + e sqrt(s_2)) * sqrt(s_2) / s_1
            update = mean / (tf.sqrt(square) + self._epsilon * root_weight)
            update *= root_weight / mean_weight
        else:
            update = mean / (tf.sqrt(square) + self._epsilon)
        update = update + rule.decay * weights if rule.decay else update
        ratio = self._trust_ratio(rule, weights, update)
        rate = step.rate if ratio is None else step.rate * ratio
        return (mean, square, weights - update * rate), ratio

    def _trust_ratio(
        self, rule: VariableRule, weights: tf.Tensor, update: tf.Tensor
    ) -> tf.Tensor | None:
        """Returns the scalar by which the rate of one variable is multiplied; None: 1.

        The update is without the rate; it and the weights have the shape of the variable.
        """
        del rule, weights, update
        return None


class AdamWeightDecayOptimizer(AdamBase):
    """AdamW; it takes the arguments of `AdamBase`."""


class Adam(AdamBase):
    """Adam as in the paper and with its constants.

    The only difference: gradients are first clipped to the global norm `clip_norm` (0, None: not).
    The learning rate is a number or a function of the step.
    """

    def __init__(
        self,
        learning_rate: Callable[[tf.Tensor], tf.Tensor] | float,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-8,
        clip_norm: float | None = 1.0,
    ) -> None:
        super().__init__(learning_rate, 0.0, beta_1, beta_2, epsilon, True, clip_norm=clip_norm)


def _total_weight(beta: float, number: tf.Tensor) -> tf.Tensor:
    """Returns 1 - beta^number, the total weight of a running mean; exact for small numbers."""
    return -tf.math.expm1(number * (math.log(beta) if beta else -math.inf))
