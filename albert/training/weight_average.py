"""Averages the weights over the last fraction of training.

Averaging Weights Leads to Wider Optima and Better Generalization, Izmailov et al., UAI 2018; Stop
Wasting My Time! Saving Days of ImageNet and BERT Training with Latest Weight Averaging, Kaddour,
2022. Here the weights after every step of the last fraction count equally.
"""

from collections.abc import Callable

import tensorflow as tf

from albert.model import weight_names


class WeightAverage(tf.Module):
    """The mean of the weights after each step of the last fraction of training.

    Create it in the scope of the strategy, if there is one. Each replica averages its own copies.

    Args:
      completed: function of the number of steps taken; returns the completed fraction of training.
      fraction: the last fraction of training, above 0 and at most 1.
      is_planned_again: whether the end of training may move, as with `budget.Pacer`. Otherwise an
        average with steps before the last fraction, as of a run that was prolonged, starts again.

    Attributes:
      count: int64 variable, number of averaged steps.
    """

    def __init__(
        self,
        completed: Callable[[tf.Tensor], tf.Tensor],
        fraction: float,
        is_planned_again: bool = False,
    ) -> None:
        super().__init__()
        self._completed, self._start = completed, 1.0 - fraction
        self._is_planned_again = is_planned_again
        self._means: dict[str, tf.Variable] = {}  # variable name -> its mean
        name = f"{weight_names.STEP}/{weight_names.AVERAGE}"
        self.count = tf.Variable(0, dtype=tf.int64, name=name, trainable=False)

    def build(self, name: str, variable: tf.Variable) -> None:
        """Creates the mean of a variable of this name in checkpoints; call it as for slots."""
        self._means[name] = tf.Variable(
            tf.zeros(variable.shape), name=f"{name}/{weight_names.AVERAGE}", trainable=False
        )

    def _is_due(self, step: tf.Tensor) -> tf.Tensor:
        """Returns a bool scalar, whether the weights after this many steps are averaged."""
        return self._completed(step) > self._start

    def update(self, step: tf.Tensor, variables: dict[str, tf.Variable]) -> None:
        """Adds the weights after a step to their means if the step is among the last ones."""
        is_due, count = self._is_due(step), tf.convert_to_tensor(self.count)
        if not self._is_planned_again:
            count = tf.where(self._is_due(step - count), count, 0)
        self.count.assign(tf.where(is_due, count + 1, 0))

        def add() -> bool:
            weight = 1.0 / tf.cast(self.count, tf.float32)
            for name, variable in variables.items():
                mean = self._means[name]
                # With a weight of 1 this is exactly the variable.
                mean.assign(mean * (1.0 - weight) + variable * weight)
            return True

        tf.cond(is_due, add, lambda: False)
