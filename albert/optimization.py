"""AdamW, the learning-rate schedule, and what all optimizers share.

Sources: Decoupled Weight Decay Regularization, Loshchilov & Hutter, ICLR 2019, algorithm 2; BERT,
Devlin et al., 2019, appendix A.2, for the schedule.
"""

import re

import tensorflow as tf

from albert import file_io

# Normalisation parameters and biases are not decayed (searched for in the variable's name).
EXCLUDED_FROM_DECAY = ("LayerNorm", "layer_norm", "bias")


def learning_rate_at(
    step, init_lr, num_train_steps, num_warmup_steps=0, poly_power=1.0, start_warmup_step=0
):
    """Learning rate of a step: linear warm-up, then polynomial decay to 0.

    Args:
      step: integer tensor or number, steps taken before this one (the first step has 0).
      init_lr: rate that the decay starts from at step 0.
      num_train_steps: step from which the rate is 0.
      num_warmup_steps: while fewer steps than these have passed since `start_warmup_step`, the
        rate is `init_lr` times their share instead.
      poly_power: power of the decay.
      start_warmup_step: step at which the warm-up starts.

    Returns:
      float32 scalar.
    """
    step = tf.cast(step, tf.float32)
    remaining = 1.0 - tf.minimum(step, float(num_train_steps)) / float(num_train_steps)
    rate = init_lr * tf.pow(remaining, poly_power)
    if num_warmup_steps:
        warm = step - float(start_warmup_step)
        rate = tf.where(warm < num_warmup_steps, init_lr * warm / num_warmup_steps, rate)
    return tf.cast(rate, tf.float32)


class AdamWeightDecayOptimizer(tf.Module):
    """Adam without bias correction, with decoupled weight decay.

    Args:
      learning_rate: function of the step, such as `learning_rate_at`, or a number.
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
        self._slots = {}  # variable name -> (adam_m, adam_v)
        self.global_step = tf.Variable(0, dtype=tf.int64, name="global_step", trainable=False)

    def build(self, variables):
        """Makes the slots `adam_m` and `adam_v` of the variables that have none yet.

        Under a strategy to be called in its scope, so that each replica gets its copy.

        Raises:
          ValueError: two variables have the same name, or this is one replica of several.
        """
        names = [_name(variable) for variable in variables]
        if len(set(names)) < len(names):
            raise ValueError(f"variables must have names of their own; got {sorted(names)}")
        missing = [
            pair for pair in zip(names, variables, strict=True) if pair[0] not in self._slots
        ]
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
        """{checkpoint name: variable} of the slots and the step."""
        slots = [variable for pair in self._slots.values() for variable in pair]
        return {_name(variable): variable for variable in [*slots, self.global_step]}

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
        if self._clip_norm is not None:
            gradients, _ = tf.clip_by_global_norm(gradients, self._clip_norm, norm)
        for variable, gradient in zip(variables, gradients, strict=True):
            self._update(variable, gradient, rate, *self._slots[_name(variable)])
        self.global_step.assign_add(1)
        return norm

    def _update(self, variable, gradient, rate, mean, square):
        new_mean = self._beta_1 * mean + (1.0 - self._beta_1) * gradient
        new_square = self._beta_2 * square + (1.0 - self._beta_2) * tf.square(gradient)
        update = new_mean / (tf.sqrt(new_square) + self._epsilon)
        if not matches(self._exclude_from_weight_decay, variable):
            update += self._weight_decay_rate * variable
        mean.assign(new_mean)
        square.assign(new_square)
        variable.assign_sub(rate * self._trust_ratio(variable, update) * update)

    def _trust_ratio(self, variable, update):
        """Factor of the rate for one variable."""
        del variable, update
        return 1.0


def _name(variable):
    return variable.name.split(":")[0]


def matches(patterns, variable):
    """True if one of the regular expressions is found in the variable's name."""
    return any(re.search(pattern, _name(variable)) for pattern in patterns)


def create_optimizer(
    init_lr,
    num_train_steps,
    num_warmup_steps,
    optimizer="adamw",
    poly_power=1.0,
    start_warmup_step=0,
    **settings,
):
    """The optimizer of a training run.

    Args:
      init_lr, num_train_steps, num_warmup_steps, poly_power, start_warmup_step: see
        `learning_rate_at`.
      optimizer: "adamw" or "lamb".
      **settings: passed to the optimizer's constructor.

    Raises:
      file_io.InputError: unknown optimizer, or a value out of range.
    """
    from albert import lamb_optimizer

    classes = {"adamw": AdamWeightDecayOptimizer, "lamb": lamb_optimizer.LAMB}
    if optimizer not in classes:
        raise file_io.InputError(f"optimizer {optimizer!r} is not known; known: adamw, lamb")
    for name, value, lowest in (
        ("init_lr", init_lr, 0),
        ("num_train_steps", num_train_steps, 1),
        ("num_warmup_steps", num_warmup_steps, 0),
    ):
        if value < lowest:
            raise file_io.InputError(f"{name} must be at least {lowest}, got {value}")
    return classes[optimizer](
        lambda step: learning_rate_at(
            step, init_lr, num_train_steps, num_warmup_steps, poly_power, start_warmup_step
        ),
        **settings,
    )
