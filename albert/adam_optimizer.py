"""Adam with bias correction and without weight decay.

Source: Adam: A Method for Stochastic Optimization, Kingma & Ba, ICLR 2015, algorithm 1.
"""

import math

import tensorflow as tf

from albert import kernels, optimization


class Adam(optimization.AdamBase):
    """The algorithm of the paper, and with its constants.

    Only the gradients are clipped to their global norm first, which the paper does not do.

    Args:
      learning_rate: see `optimization.Optimizer`.
      beta_1, beta_2: see `optimization.AdamBase`.
      epsilon: added to the root of the corrected mean square.
      clip_norm: see `optimization.Optimizer`.
    """

    def __init__(self, learning_rate, beta_1=0.9, beta_2=0.999, epsilon=1e-8, clip_norm=1.0):
        super().__init__(learning_rate, 0.0, beta_1, beta_2, epsilon, clip_norm=clip_norm)

    def _new_values(self, variable, gradient, slots, factor, rate):
        number = tf.cast(self.updates_made() + 1, tf.float32)
        mean_share = _share(self._beta_1, number)
        root_share = tf.sqrt(_share(self._beta_2, number))
        # m / s_1 / (sqrt(v / s_2) + e) = m / (sqrt(v) + e sqrt(s_2)) * sqrt(s_2) / s_1
        mean, square, update = kernels.adam_update(
            *(tf.convert_to_tensor(x) for x in (variable, gradient, *slots, factor)),
            beta_1=self._beta_1,
            beta_2=self._beta_2,
            epsilon=self._epsilon * root_share,
            decay=0.0,
        )
        return mean, square, variable - update * (rate * root_share / mean_share)

    def _trust_ratio(self, variable, update):
        del variable, update
        return 1.0


def _share(beta, number):
    """1 - beta^number, the sum of the weights in a running mean; exact for small numbers too."""
    return -tf.math.expm1(number * (math.log(beta) if beta else -math.inf))
