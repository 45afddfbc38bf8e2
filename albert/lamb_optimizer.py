"""LAMB: Adam whose rate is scaled for each variable by a trust ratio.

Source: Large Batch Optimization for Deep Learning: Training BERT in 76 minutes, You et al., ICLR
2020, algorithm 2.
"""

import tensorflow as tf

from albert import optimization


class LAMB(optimization.AdamBase):
    """Layer-wise adaptive moments; arguments are those of `optimization.AdamBase`.

    The ratio is the norm of the weights over the norm of the update, 1 where either is 0. Variables
    excluded from weight decay are excluded from the ratio too, unless
    `exclude_from_layer_adaptation` lists others.
    """

    def __init__(self, learning_rate, exclude_from_layer_adaptation=None, **settings):
        super().__init__(learning_rate, **settings)
        self._exclude_from_layer_adaptation = (
            self._exclude_from_weight_decay
            if exclude_from_layer_adaptation is None
            else exclude_from_layer_adaptation
        )
        self._ratios = []  # of the variables that have one, at the last update

    def apply_gradients(self, grads_and_vars):
        self._ratios = []
        return super().apply_gradients(grads_and_vars)

    def report(self):
        """Adds the lowest, the median and the highest of the trust ratios."""
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

    def _trust_ratio(self, variable, update):
        if optimization.matches(self._exclude_from_layer_adaptation, variable):
            return 1.0
        weight_norm, update_norm = tf.norm(variable), tf.norm(update)
        both = tf.logical_and(weight_norm > 0, update_norm > 0)
        ratio = tf.where(both, tf.math.divide_no_nan(weight_norm, update_norm), 1.0)
        self._ratios.append(ratio)
        return ratio
