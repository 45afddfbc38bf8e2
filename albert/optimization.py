"""AdamW, the learning-rate schedule, and the choice of the optimizer of a run.

Sources: Decoupled Weight Decay Regularization, Loshchilov & Hutter, ICLR 2019, algorithm 2; BERT,
Devlin et al., 2019, appendix A.2, for the schedule.
"""

import tensorflow as tf

from albert import file_io, lamb_optimizer


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
      start_warmup_step: step at which the warm-up starts. Before it the rate is below 0, as in
        the reference: meant for runs that go on from a checkpoint of that step.

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


class AdamWeightDecayOptimizer(lamb_optimizer.AdamBase):
    """AdamW without bias correction; arguments are those of `lamb_optimizer.AdamBase`."""

    def _trust_ratio(self, variable, update):
        del variable, update
        return 1.0


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
