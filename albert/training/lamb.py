"""LAMB: AdamW with a rate per variable.

Source: Large Batch Optimization for Deep Learning, You et al., ICLR 2020, algorithm 2.
"""

from collections.abc import Callable, Sequence
from typing import Unpack

import tensorflow as tf

from albert.training import adam
from albert.training.optimizer_base import VariableRule, matches


class LAMB(adam.AdamBase):
    """Layer-wise adaptive moments (LAMB).

    The trust ratio is the norm of the weights over the norm of the update, 1 where either is 0.

    Args:
      learning_rate: a number, or a function of the step.
      exclude_from_layer_adaptation: regular expressions searched for in names of variables whose
        ratio is 1; None: those without weight decay.
    """

    def __init__(
        self,
        learning_rate: Callable[[tf.Tensor], tf.Tensor] | float,
        exclude_from_layer_adaptation: Sequence[str] | None = None,
        **settings: Unpack[adam.Settings],
    ) -> None:
        super().__init__(learning_rate, **settings)
        self._exclude_from_layer_adaptation = (
            self._exclude_from_weight_decay
            if exclude_from_layer_adaptation is None
            else exclude_from_layer_adaptation
        )

    def _rule(self, variable: tf.Variable) -> VariableRule:
        is_adapted = not matches(self._exclude_from_layer_adaptation, variable)
        return super()._rule(variable)._replace(is_adapted=is_adapted)

    def report(self) -> dict[str, tf.Tensor]:
        """Adds the scalars ``trust_ratio_lowest``, ``…_median`` and ``…_highest``."""
        if not self._ratios:
            return super().report()
        ratios = tf.sort(tf.stack(list(self._ratios)))
        count = len(self._ratios)
        return {
            **super().report(),
            "trust_ratio_lowest": ratios[0],
            "trust_ratio_median": (ratios[(count - 1) // 2] + ratios[count // 2]) / 2.0,
            "trust_ratio_highest": ratios[-1],
        }

    def _trust_ratio(
        self, rule: VariableRule, weights: tf.Tensor, update: tf.Tensor
    ) -> tf.Tensor | None:
        """Returns the trust ratio of a variable's value and its update, a scalar; None: 1."""
        if not rule.is_adapted:
            return None
        weight_norm, update_norm = tf.norm(weights), tf.norm(update)
        both = tf.logical_and(weight_norm > 0, update_norm > 0)
        return tf.where(both, tf.math.divide_no_nan(weight_norm, update_norm), 1.0)
