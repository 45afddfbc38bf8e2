"""LAMB: Adam whose rate is scaled for each variable by a trust ratio; and the Adam under it.

Source: Large Batch Optimization for Deep Learning: Training BERT in 76 minutes, You et al., ICLR
2020, algorithm 2. AdamW, which is the same with a ratio of 1, is in `optimization`.
"""

import abc
import re

import tensorflow as tf

from albert import kernels

# Normalisation parameters and biases are not decayed (searched for in the variable's name).
EXCLUDED_FROM_DECAY = ("LayerNorm", "layer_norm", "bias")


class AdamBase(tf.Module):
    """Adam without bias correction, with decoupled weight decay and a rate for each variable.

    Args:
      learning_rate: function of the step, such as `optimization.learning_rate_at`, or a number.
      weight_decay_rate: share of a weight added to its update.
      beta_1: decay of the mean gradient.
      beta_2: decay of the mean squared gradient.
      epsilon: added outside the square root.
      exclude_from_weight_decay: regular expressions searched for in variable names.
      clip_norm: largest global norm of the gradients; None does not clip.

    Attributes:
      global_step: int64 variable, updates made so far.
    """

    def __init__(
        self,
        learning_rate,
        weight_decay_rate=0.01,
        beta_1=0.9,
        beta_2=0.999,
        epsilon=1e-6,
        exclude_from_weight_decay=EXCLUDED_FROM_DECAY,
        clip_norm=1.0,
    ):
        super().__init__()
        self._learning_rate = learning_rate
        self._weight_decay_rate = weight_decay_rate
        self._beta_1 = beta_1
        self._beta_2 = beta_2
        self._epsilon = epsilon
        self._exclude_from_weight_decay = exclude_from_weight_decay
        self._clip_norm = clip_norm
        self._loss_scale = None
        self._slots = {}  # variable name -> (adam_m, adam_v)
        self.global_step = tf.Variable(0, dtype=tf.int64, name="global_step", trainable=False)

    def build(self, variables):
        """Makes the slots `adam_m` and `adam_v` of the variables that have none yet.

        Under a strategy to be called in its scope, so that each replica gets its copy.

        Raises:
          ValueError: two variables have the same name, or this is one replica of several.
        """
        named = [(_name(variable), variable) for variable in variables]
        names = [name for name, _ in named]
        if len(set(names)) < len(names):
            raise ValueError(f"variables must have names of their own; got {sorted(names)}")
        missing = [(name, variable) for name, variable in named if name not in self._slots]
        context = tf.distribute.get_replica_context()
        if missing and context is not None and context.num_replicas_in_sync > 1:
            raise ValueError(
                f"no slots for {missing[0][0]}: call build(variables) in the scope of the strategy "
                "before the first step"
            )
        for name, variable in missing:
            with tf.init_scope():
                self._slots[name] = tuple(
                    tf.Variable(tf.zeros(variable.shape), name=f"{name}/{slot}", trainable=False)
                    for slot in ("adam_m", "adam_v")
                )

    def variables_by_name(self):
        """{checkpoint name: variable} of the slots, the step and what scales the loss."""
        state = [variable for pair in self._slots.values() for variable in pair]
        state.append(self.global_step)
        if self._loss_scale is not None:
            state += self._loss_scale.variables
        return {_name(variable): variable for variable in state}

    def scale_loss(self):
        """From now on expects gradients of the loss times `gradient_scale()`, for float16.

        Under a strategy to be called in its scope.
        """
        self._loss_scale = LossScale()

    def gradient_scale(self):
        """Factor of the loss whose gradients `apply_gradients` takes; None is 1."""
        return None if self._loss_scale is None else self._loss_scale.scale

    def report(self):
        """{name: scalar} of further things to log at each step."""
        return {} if self._loss_scale is None else {"loss_scale": self._loss_scale.scale}

    def learning_rate(self):
        """The rate of the next update, a float32 scalar."""
        if callable(self._learning_rate):
            return self._learning_rate(self.global_step)
        return tf.constant(self._learning_rate, tf.float32)

    def apply_gradients(self, grads_and_vars):
        """Clips the gradients to the global norm, updates the variables and counts the step.

        In a replica the gradients must already be summed over all replicas: every replica then
        makes the same update to its own copies, and nothing needs to be exchanged here.

        Args:
          grads_and_vars: pairs. Variables whose gradient is None stay as they are, without decay,
            and get no slots.

        Returns:
          Global norm of the gradients before clipping, a scalar.

        Raises:
          ValueError: no variable has a gradient; see also `build`.
        """
        pairs = [(tf.convert_to_tensor(g), v) for g, v in grads_and_vars if g is not None]
        if not pairs:
            raise ValueError("none of the variables has a gradient")
        gradients, variables = zip(*pairs, strict=True)
        self.build(variables)
        rate = self.learning_rate()
        norm = tf.linalg.global_norm(gradients)
        factor, skipped = 1.0, None
        if self._loss_scale is not None:
            factor = 1.0 / self._loss_scale.scale
            norm *= factor
            skipped = self._loss_scale.update(tf.math.is_finite(norm))
            norm = tf.where(skipped, 0.0, norm)
        if self._clip_norm is not None:
            factor *= self._clip_norm / tf.maximum(norm, self._clip_norm)
        for variable, gradient in zip(variables, gradients, strict=True):
            self._update(variable, gradient, factor, rate, skipped)
        self.global_step.assign_add(1)
        return norm

    def _update(self, variable, gradient, factor, rate, skipped):
        """Updates one variable and its slots, unless `skipped` (a scalar, or None) is true."""
        slots = self._slots[_name(variable)]
        decayed = not matches(self._exclude_from_weight_decay, variable)
        mean, square, update = kernels.adam_update(
            *(tf.convert_to_tensor(x) for x in (variable, gradient, *slots, factor)),
            beta_1=self._beta_1,
            beta_2=self._beta_2,
            epsilon=self._epsilon,
            decay=self._weight_decay_rate if decayed else 0.0,
        )
        update *= rate * self._trust_ratio(variable, update)
        for target, value in zip(
            (*slots, variable), (mean, square, variable - update), strict=True
        ):
            target.assign(value if skipped is None else tf.where(skipped, target, value))

    @abc.abstractmethod
    def _trust_ratio(self, variable, update):
        """Factor of the rate for one variable."""


class LossScale(tf.Module):
    """Factor of a float16 loss that keeps small gradients above 0 and large ones finite.

    It is halved after a gradient that is not finite, whose update is left out, and doubled after
    2,000 good ones in a row (Mixed Precision Training, Micikevicius et al., 2018, section 3.2).
    """

    _FIRST, _LARGEST, _GOOD_UPDATES = 2.0**15, 2.0**24, 2000

    def __init__(self):
        super().__init__()
        self.scale = tf.Variable(self._FIRST, name="loss_scale/scale", trainable=False)
        self._good = tf.Variable(0, dtype=tf.int64, name="loss_scale/good_updates", trainable=False)

    def update(self, finite):
        """Takes in whether the gradient was finite; true if its update is to be left out.

        At a scale of 1 nothing is left out: the loss itself is then at fault.
        """
        scale = tf.convert_to_tensor(self.scale)
        good = tf.where(finite, self._good + 1, 0)
        grows = good >= self._GOOD_UPDATES
        larger = tf.where(grows, tf.minimum(scale * 2.0, self._LARGEST), scale)
        self.scale.assign(tf.where(finite, larger, tf.maximum(scale / 2.0, 1.0)))
        self._good.assign(tf.where(grows, tf.zeros_like(good), good))
        return tf.logical_and(tf.logical_not(finite), scale > 1.0)


def _name(variable):
    return variable.name.split(":")[0]


def matches(patterns, variable):
    """True if one of the regular expressions is found in the variable's name."""
    return any(re.search(pattern, _name(variable)) for pattern in patterns)


class LAMB(AdamBase):
    """Layer-wise adaptive moments; arguments are those of `AdamBase`.

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

    def _trust_ratio(self, variable, update):
        if matches(self._exclude_from_layer_adaptation, variable):
            return 1.0
        weight_norm, update_norm = tf.norm(variable), tf.norm(update)
        both = tf.logical_and(weight_norm > 0, update_norm > 0)
        return tf.where(both, tf.math.divide_no_nan(weight_norm, update_norm), 1.0)
