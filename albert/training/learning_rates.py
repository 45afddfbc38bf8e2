"""The learning rate of each step: linear warm-up, then polynomial decay."""

import tensorflow as tf

from albert.training import optimizer_table


def learning_rate_at(
    step: tf.Tensor | float,
    init_lr: float,
    num_train_steps: float,
    num_warmup_steps: float = 0,
    poly_power: float = 1.0,
    start_warmup_step: int = 0,
) -> tf.Tensor:
    """Returns the rate of a step, a float32 scalar: linear warm-up, then polynomial decay to 0.

    Source: BERT, Devlin et al., 2019, appendix A.2.

    Args:
      step: integer tensor or number, steps taken before this one (0 for the first step).
      init_lr: rate at which the decay starts at step 0.
      num_train_steps: step at which the rate reaches 0.
      num_warmup_steps: while fewer steps than these have passed since `start_warmup_step`, the
        rate is instead `init_lr` times the fraction of the warm-up that has passed.
      poly_power: power of the decay.
      start_warmup_step: step at which the warm-up starts. Before this step the rate is negative, as
        in the reference; meant for runs that resume from a checkpoint of that step.
    """
    step = tf.cast(step, tf.float32)
    remaining = 1.0 - tf.minimum(step, float(num_train_steps)) / float(num_train_steps)
    rate = init_lr * tf.pow(remaining, poly_power)
    if num_warmup_steps:
        warm = step - float(start_warmup_step)
        rate = tf.where(warm < num_warmup_steps, init_lr * warm / num_warmup_steps, rate)
    return tf.cast(rate, tf.float32)


class Pace:
    """The planned fraction of training completed at a step; see `budget.Pacer`.

    Create it in the scope of the strategy, if there is one.
    """

    def __init__(self) -> None:
        self._plan = tf.Variable([0.0, 0.0, 1e9], trainable=False)

    def set(self, step: int, fraction: float, num_train_steps: int) -> None:
        """Plans a fraction that rises from `fraction` at `step` to 1 at `num_train_steps`."""
        self._plan.assign([float(step), fraction, float(num_train_steps)])

    def __call__(self, step: tf.Tensor | float) -> tf.Tensor:
        """Returns the completed fraction of training after this many steps, a float32 scalar."""
        start, fraction, last = tf.unstack(tf.convert_to_tensor(self._plan))
        passed = (tf.cast(step, tf.float32) - start) / tf.maximum(last - start, 1.0)
        return fraction + (1.0 - fraction) * tf.minimum(passed, 1.0)


class Schedule:
    """The learning rate of a training run as a function of the steps taken.

    Args:
      pace: gives the completed fraction of training; None: the settings count steps.
    """

    def __init__(self, settings: optimizer_table.Settings, pace: Pace | None = None) -> None:
        self._settings, self._pace = settings, pace

    def _passed(self, step: tf.Tensor) -> tf.Tensor:
        """Returns the scalar on which the rate depends: steps, or the fraction of training."""
        return self._pace(step) if self._pace else step

    def completed(self, step: tf.Tensor) -> tf.Tensor:
        """Returns the completed fraction of training after this many steps, a float32 scalar."""
        return tf.cast(self._passed(step), tf.float32) / float(self._settings.num_train_steps)

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        """Returns the learning rate after this many steps, a float32 scalar."""
        settings = self._settings
        return learning_rate_at(
            self._passed(step),
            settings.learning_rate,
            settings.num_train_steps,
            settings.num_warmup_steps,
            settings.poly_power,
            settings.start_warmup_step,
        )
