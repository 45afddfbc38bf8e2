"""The scale of the loss in float16."""

import tensorflow as tf

from albert.model import weight_names


class LossScale(tf.Module):
    """A factor of the float16 loss that keeps small gradients above 0 and large ones finite.

    It is halved after a gradient that is not finite, whose update is skipped, and doubled after
    2,000 finite ones in a row (Mixed Precision Training, Micikevicius et al., 2018, section 3.2).

    Attributes:
      scale: the factor.
      num_skipped: number of updates skipped so far.
    """

    GOOD_UPDATES = 2000  # in a row, after which the scale is doubled
    _FIRST, _LARGEST = 2.0**15, 2.0**24

    def __init__(self) -> None:
        super().__init__()
        self.scale = tf.Variable(
            self._FIRST, name=f"{weight_names.LOSS_SCALE}scale", trainable=False
        )
        self._good, self.num_skipped = (
            tf.Variable(0, dtype=tf.int64, name=f"{weight_names.LOSS_SCALE}{name}", trainable=False)
            for name in ("good_updates", "left_out")  # names in checkpoints
        )

    def update(self, finite: tf.Tensor) -> tf.Tensor:
        """Adjusts the scale and returns true if the update must be skipped.

        At a scale of 1 no update is skipped, because the loss itself is then at fault.

        Args:
          finite: bool scalar, whether the gradient was finite.
        """
        scale = tf.convert_to_tensor(self.scale)
        good = tf.where(finite, self._good + 1, 0)
        grows = good >= self.GOOD_UPDATES
        larger = tf.where(grows, tf.minimum(scale * 2.0, self._LARGEST), scale)
        self.scale.assign(tf.where(finite, larger, tf.maximum(scale / 2.0, 1.0)))
        self._good.assign(tf.where(grows, tf.zeros_like(good), good))
        is_skipped = tf.logical_and(tf.logical_not(finite), scale > 1.0)
        self.num_skipped.assign_add(tf.cast(is_skipped, tf.int64))
        return is_skipped
