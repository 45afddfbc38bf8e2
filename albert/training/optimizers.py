"""The optimizers AdamW, Adam, LAMB and Muon, and the choice of one.

`Optimizer` implements the common parts: clipping, loss scale and weight decay. Sources: Decoupled
Weight Decay Regularization, Loshchilov & Hutter, ICLR 2019, algorithm 2; for the others see their
classes.
"""

import abc
import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from albert.model import weight_names
from albert.training import optimizer_table, weight_average

# Normalization parameters and biases are not decayed (patterns searched in variable names).
EXCLUDED_FROM_DECAY = ("LayerNorm", "layer_norm", "bias")


# --- the learning rate and the scale of the loss --------------------------------------------------


def learning_rate_at(
    step: tf.Tensor | float,
    init_lr: float,
    num_train_steps: float,
    num_warmup_steps: float = 0,
    poly_power: float = 1.0,
    start_warmup_step: int = 0,
) -> tf.Tensor:
    """Returns the learning rate of a step: linear warm-up, then polynomial decay to 0.

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


# --- what all optimizers share --------------------------------------------------------------------

# Minimum elements of a variable whose update is worth compiling: as separate operations, each step
# of an update reads and writes the whole variable.
COMPILED_SIZE = 2**16


class Rule(NamedTuple):
    """How one variable is updated; variables of one rule and shape share compiled code.

    Attributes:
      decay: fraction of the weights that is added to their update.
      is_adapted: whether LAMB multiplies the rate by the trust ratio.
      is_orthogonal: whether Muon makes the update orthogonal.
    """

    decay: float
    is_adapted: bool = False
    is_orthogonal: bool = False


class Step(NamedTuple):
    """Scalars of an update that all variables share.

    Attributes:
      factor: that gradients are multiplied by.
      rate: the learning rate.
      number: updates made, with this one.
      skipped: whether nothing may change; None: false.
    """

    factor: tf.Tensor | float
    rate: tf.Tensor
    number: tf.Tensor
    skipped: tf.Tensor | None


class Optimizer(tf.Module):
    """Base class of the optimizers: learning rate, clipping, loss scale, slots and their names.

    Args:
      learning_rate: function of the step, such as `Schedule`, or a number.
      weight_decay_rate: fraction of a weight that is added to its update.
      exclude_from_weight_decay: regular expressions searched for in variable names.
      clip_norm: maximum global norm of the gradients; 0 or None disables clipping.

    Attributes:
      SLOTS: names of the slots of a variable. A slot is a float32 variable of the same shape
        that starts at 0 and is called ``<variable>/<slot>`` in checkpoints.
      global_step: int64 variable, steps taken so far.
      average: `weight_average.WeightAverage` of the weights; None: they are not averaged.
      product_type: type of the factors of matrix products in an update.
    """

    SLOTS: tuple[str, ...] = ()

    def __init__(
        self,
        learning_rate: Callable[[tf.Tensor], tf.Tensor] | float,
        weight_decay_rate: float = 0.01,
        exclude_from_weight_decay: Sequence[str] = EXCLUDED_FROM_DECAY,
        clip_norm: float | None = 1.0,
    ) -> None:
        super().__init__()
        self._learning_rate = learning_rate
        self._weight_decay_rate = weight_decay_rate
        self._exclude_from_weight_decay = exclude_from_weight_decay
        self._clip_norm = clip_norm or None
        self._loss_scale: LossScale | None = None
        self.average: weight_average.WeightAverage | None = None
        self.product_type = "float32"
        self._slots: dict[str, tuple[tf.Variable, ...]] = {}  # by variable, in the order of SLOTS
        self._ratios: list[tf.Tensor] = []  # trust ratios of the last update
        self.global_step = tf.Variable(0, dtype=tf.int64, name=weight_names.STEP, trainable=False)

    @classmethod
    def bytes_per_parameter(cls) -> int:
        """Returns the maximum bytes of slot memory per model parameter."""
        return 4 * len(cls.SLOTS)

    def build(self, variables: Iterable[tf.Variable]) -> None:
        """Creates slots for the variables that have none yet.

        Call it in the scope of the strategy, if there is one, so that each replica gets a copy.

        Raises:
          ValueError: two variables have the same name, or slots are missing in one of several
            replicas.
        """
        pairs = [(_name(variable), variable) for variable in variables]
        names = [name for name, _ in pairs]
        if len(set(names)) < len(names):
            raise ValueError(f"variables must have different names; got {sorted(names)}")
        missing = [(name, variable) for name, variable in pairs if name not in self._slots]
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
                    for slot in self._slot_names(variable)
                )
                if self.average is not None:
                    self.average.build(name, variable)

    def _slot_names(self, variable: tf.Variable) -> tuple[str, ...]:
        """Returns the names of the slots of one variable."""
        del variable
        return self.SLOTS

    def variables_by_name(self) -> dict[str, tf.Variable]:
        """Returns {checkpoint name: variable} of the slots, the step and the loss scale."""
        state = [slot for slots in self._slots.values() for slot in slots]
        state.append(self.global_step)
        if self._loss_scale is not None:
            state += self._loss_scale.variables
        if self.average is not None:
            state += self.average.variables
        return {_name(variable): variable for variable in state}

    def scale_loss(self) -> None:
        """Enables loss scaling for float16: gradients are of the loss times `gradient_scale()`.

        Call it in the scope of the strategy, if there is one.
        """
        self._loss_scale = LossScale()

    def gradient_scale(self) -> tf.Tensor | None:
        """Returns the scalar that the loss must be multiplied by; None means 1."""
        return None if self._loss_scale is None else self._loss_scale.scale

    def updates_made(self) -> tf.Tensor:
        """Returns the number of steps so far, without skipped updates, as an int64 scalar."""
        if self._loss_scale is None:
            return tf.convert_to_tensor(self.global_step)
        return self.global_step - self._loss_scale.num_skipped

    def report(self) -> dict[str, tf.Tensor]:
        """Returns {name: scalar} of additional values to log at each step.

        Describes the last update: call it after `apply_gradients`, in the same tf.function.
        """
        return {} if self._loss_scale is None else {"loss_scale": self._loss_scale.scale}

    def learning_rate(self) -> tf.Tensor:
        """Returns the learning rate of the next update, a float32 scalar."""
        if callable(self._learning_rate):
            return self._learning_rate(self.global_step)
        return tf.constant(self._learning_rate, tf.float32)

    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[tf.Tensor | None, tf.Variable]]
    ) -> tf.Tensor:
        """Clips the gradients to the global norm, updates the variables and counts the step.

        The gradients must already be summed over all replicas. Every replica then makes the same
        update to its own copies, and no communication is needed here.

        Args:
          grads_and_vars: (gradient, variable) pairs. Variables whose gradient is None are not
            changed, not even by weight decay, and get no slots.

        Returns:
          The global norm of the gradients before clipping, a scalar.

        Raises:
          ValueError: no variable has a gradient; see also `build`.
        """
        pairs = [(tf.convert_to_tensor(g), v) for g, v in grads_and_vars if g is not None]
        if not pairs:
            raise ValueError("none of the variables has a gradient")
        gradients, variables = zip(*pairs, strict=True)
        self.build(variables)
        with tf.name_scope("optimizer"):
            return self._apply(gradients, variables)

    def _apply(self, gradients: Sequence[tf.Tensor], variables: Sequence[tf.Variable]) -> tf.Tensor:
        """Updates the variables; returns the scalar norm of their gradients before clipping."""
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
        number = tf.cast(self.updates_made() + 1, tf.float32)
        step = Step(tf.convert_to_tensor(factor), rate, number, skipped)
        ratios = [self._update(v, g, step) for v, g in zip(variables, gradients, strict=True)]
        self._ratios = [ratio for ratio in ratios if ratio is not None]
        self.global_step.assign_add(1)
        if self.average is not None:
            self.average.update(self.global_step, {_name(v): v for v in variables})
        return norm

    def _update(self, variable: tf.Variable, gradient: tf.Tensor, step: Step) -> tf.Tensor | None:
        """Updates one variable and its slots; returns its trust ratio, a scalar, or None."""
        rule, targets = self._rule(variable), (*self._slots[_name(variable)], variable)
        # As arguments of a function, the copies of several replicas would get wrong updates.
        if isinstance(variable, tf.distribute.DistributedValues):
            return self._assign(rule, targets, gradient, step)
        # Products are faster outside compiled code.
        is_compiled = variable.shape.num_elements() >= COMPILED_SIZE and not rule.is_orthogonal
        assign = self._assign_compiled if is_compiled else self._assign_traced
        return assign(rule, targets, gradient, step)

    def _assign(
        self, rule: Rule, targets: Sequence[tf.Variable], gradient: tf.Tensor, step: Step
    ) -> tf.Tensor | None:
        """Assigns new values to `targets`, slots and weights; returns the trust ratio or None."""
        *slots, weights = map(tf.convert_to_tensor, targets)
        values, ratio = self._new_values(rule, weights, gradient, slots, step)
        for target, old, value in zip(targets, (*slots, weights), values, strict=True):
            target.assign(value if step.skipped is None else tf.where(step.skipped, old, value))
        return ratio

    # One pass over memory, which writes to the memory of the variables.
    _assign_compiled = tf.function(_assign, jit_compile=True, autograph=False)
    _assign_traced = tf.function(_assign, autograph=False)  # once per rule and shape

    def _rule(self, variable: tf.Variable) -> Rule:
        """Returns how a variable is updated."""
        is_excluded = matches(self._exclude_from_weight_decay, variable)
        return Rule(0.0 if is_excluded else self._weight_decay_rate)

    @abc.abstractmethod
    def _new_values(
        self,
        rule: Rule,
        weights: tf.Tensor,
        gradient: tf.Tensor,
        slots: Sequence[tf.Tensor],
        step: Step,
    ) -> tuple[Sequence[tf.Tensor], tf.Tensor | None]:
        """Computes an update; may be compiled, so it depends on its arguments and constants alone.

        Args:
          weights: the value of the variable.
          gradient: tensor of the variable's shape.
          slots: the values of the variable's slots, in order.

        Returns:
          The new values of the slots, in their order, and of the variable; the trust ratio, None
          without one.
        """


class AdamBase(Optimizer):
    """Adam with decoupled weight decay and a rate per variable.

    The slots mean the same in all subclasses, so each can resume from the slots of another.

    Args:
      learning_rate, weight_decay_rate: see `Optimizer`.
      beta_1: decay of the mean gradient.
      beta_2: decay of the mean squared gradient.
      epsilon: added outside the square root.
      bias_correction: whether the running means are divided by the total weight of what they are
        means of (Adam, Kingma & Ba, ICLR 2015, section 3), as the reference does not. Without it
        the first updates are about three times as large.
      **settings: see `Optimizer`.
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
        **settings: Any,
    ) -> None:
        super().__init__(learning_rate, weight_decay_rate, **settings)
        self._bias_correction = bias_correction
        self._beta_1 = beta_1
        self._beta_2 = beta_2
        self._epsilon = epsilon

    def _new_values(
        self,
        rule: Rule,
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

    def _trust_ratio(self, rule: Rule, weights: tf.Tensor, update: tf.Tensor) -> tf.Tensor | None:
        """Returns the scalar by which the rate of one variable is multiplied; None: 1.

        Args:
          weights: the value of the variable.
          update: tensor of the variable's shape, before the rate.
        """
        del rule, weights, update
        return None


class AdamWeightDecayOptimizer(AdamBase):
    """AdamW; it takes the arguments of `AdamBase`."""


def _name(variable: tf.Variable) -> str:
    """Returns the name of a variable in checkpoints."""
    return variable.name.split(":")[0]


def matches(patterns: Iterable[str], variable: tf.Variable) -> bool:
    """Returns whether one of the regular expressions matches anywhere in a variable's name."""
    return any(re.search(pattern, _name(variable)) for pattern in patterns)


# --- Adam -----------------------------------------------------------------------------------------


class Adam(AdamBase):
    """Adam as in the paper and with its constants.

    The only difference is that the gradients are first clipped by their global norm.

    Args:
      learning_rate: see `Optimizer`.
      beta_1, beta_2: see `AdamBase`.
      epsilon: added to the root of the corrected mean square.
      clip_norm: see `Optimizer`.
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
    """Returns 1 - beta^number, the total weight of a running mean; exact for small numbers.

    Args:
      beta: decay of the mean.
      number: updates so far, a float32 scalar.
    """
    return -tf.math.expm1(number * (math.log(beta) if beta else -math.inf))


# --- LAMB -----------------------------------------------------------------------------------------


class LAMB(AdamBase):
    """Layer-wise adaptive moments (LAMB).

    The trust ratio is the norm of the weights over the norm of the update, 1 where either is 0.

    Args:
      learning_rate: see `Optimizer`.
      exclude_from_layer_adaptation: regular expressions searched for in names of variables whose
        ratio is 1; None: those without weight decay.
      **settings: further arguments of `AdamBase`.
    """

    def __init__(
        self,
        learning_rate: Callable[[tf.Tensor], tf.Tensor] | float,
        exclude_from_layer_adaptation: Sequence[str] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(learning_rate, **settings)
        self._exclude_from_layer_adaptation = (
            self._exclude_from_weight_decay
            if exclude_from_layer_adaptation is None
            else exclude_from_layer_adaptation
        )

    def _rule(self, variable: tf.Variable) -> Rule:
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

    def _trust_ratio(self, rule: Rule, weights: tf.Tensor, update: tf.Tensor) -> tf.Tensor | None:
        """Returns the trust ratio of a variable's value and its update, a scalar; None: 1."""
        if not rule.is_adapted:
            return None
        weight_norm, update_norm = tf.norm(weights), tf.norm(update)
        both = tf.logical_and(weight_norm > 0, update_norm > 0)
        return tf.where(both, tf.math.divide_no_nan(weight_norm, update_norm), 1.0)


# --- Muon -----------------------------------------------------------------------------------------

# Coefficients of the polynomial by which `orthogonalize` changes singular values, and how often.
_QUINTIC, _ITERATIONS = (3.4445, -4.7750, 2.0315), 5
# The root mean square of the updates of a matrix, which is about that of AdamW's.
_UPDATE_SIZE = 0.2


class Muon(AdamWeightDecayOptimizer):
    """Momentum whose updates of matrices are made orthogonal; AdamW for all other variables.

    Sources: Muon: An optimizer for hidden layers in neural networks, Jordan et al., 2024; for the
    size of the updates and the weight decay Muon is Scalable for LLM Training, Liu et al., 2025,
    section 2.2. Updates have the size of AdamW's, so the learning rates of AdamW apply.

    Muon updates the kernels of attention and feed-forward, each [inputs, outputs] with the outputs
    of all heads side by side. Embeddings, the mapping of embeddings, heads, the pooler, biases and
    LayerNorm belong to AdamW.

    Args:
      learning_rate: see `Optimizer`.
      momentum: decay of the mean gradient of matrices.
      adamw_rate_ratio: learning rate of AdamW as a multiple of `learning_rate`.
      **settings: see `AdamBase`; the betas and epsilon are those of AdamW.
    """

    def __init__(
        self,
        learning_rate: Callable[[tf.Tensor], tf.Tensor] | float,
        momentum: float = 0.95,
        adamw_rate_ratio: float = 1.0,
        **settings: Any,
    ) -> None:
        super().__init__(learning_rate, **settings)
        self._momentum = momentum
        self._adamw_rate_ratio = adamw_rate_ratio

    def _slot_names(self, variable: tf.Variable) -> tuple[str, ...]:
        """Returns the names of the slots of one variable."""
        return (weight_names.MOMENTUM,) if _is_block_matrix(variable) else self.SLOTS

    def _rule(self, variable: tf.Variable) -> Rule:
        return super()._rule(variable)._replace(is_orthogonal=_is_block_matrix(variable))

    def _new_values(
        self,
        rule: Rule,
        weights: tf.Tensor,
        gradient: tf.Tensor,
        slots: Sequence[tf.Tensor],
        step: Step,
    ) -> tuple[Sequence[tf.Tensor], tf.Tensor | None]:
        """Returns ((momentum, weights), None) of a matrix, else as AdamW; see `Optimizer`."""
        if not rule.is_orthogonal:
            step = step._replace(rate=step.rate * self._adamw_rate_ratio)
            return super()._new_values(rule, weights, gradient, slots, step)
        gradient, beta = gradient * step.factor, self._momentum
        mean = beta * slots[0] + (1.0 - beta) * gradient
        # The mean as it would be after the same gradient once more (Nesterov).
        update = orthogonalize(beta * mean + (1.0 - beta) * gradient, self.product_type)
        update *= _UPDATE_SIZE * math.sqrt(max(weights.shape))
        update += rule.decay * weights
        return (mean, weights - step.rate * update), None


def _is_block_matrix(variable: tf.Variable) -> bool:
    """Returns whether a variable is a matrix of a block, not an embedding or a vector."""
    return bool(weight_names.BLOCK_MATRICES.match(_name(variable)))


def orthogonalize(matrix: tf.Tensor, product_type: str = "float32") -> tf.Tensor:
    """Moves the singular values of a matrix [M, N] close to 1, by Newton-Schulz iterations.

    They end between about 0.7 and 1.2; those that are tiny against the norm stay below. Products in
    bfloat16 are exact enough (Jordan et al., 2024).

    Args:
      product_type: type of the factors of products.
    """
    a, b, c = _QUINTIC
    is_tall = matrix.shape[0] > matrix.shape[1]
    x = tf.transpose(matrix) if is_tall else matrix  # products of the smaller size
    x = tf.cast(x / (tf.norm(x) + 1e-7), product_type)
    for _ in range(_ITERATIONS):
        square = tf.matmul(x, x, transpose_b=True)
        x = a * x + tf.matmul(b * square + c * tf.matmul(square, square), x)
    x = tf.cast(x, matrix.dtype)
    return tf.transpose(x) if is_tall else x


# --- selection ----------------------------------------------------------------------------------


# A new optimizer is also a row of `optimizer_table.OPTIMIZERS`.
CLASSES: dict[str, type[Optimizer]] = {
    "adamw": AdamWeightDecayOptimizer,
    "lamb": LAMB,
    "adam": Adam,
    "muon": Muon,
}


def optimizer_class(name: str) -> type[Optimizer]:
    """Returns the optimizer class for a name in `optimizer_table.OPTIMIZERS`."""
    optimizer_table.check(name)
    return CLASSES[name]


def build(settings: optimizer_table.Settings, pace: Pace | None = None) -> Optimizer:
    """Builds the optimizer of a training run.

    Args:
      pace: gives the completed fraction of training; the numbers of steps in the settings are then
        also fractions. None: they are steps.
    """
    settings.check()
    schedule = Schedule(settings, pace)
    instance = optimizer_class(settings.optimizer)(schedule, **settings.arguments)
    instance.product_type = settings.product_type
    if settings.average_last:
        instance.average = weight_average.WeightAverage(
            schedule.completed, settings.average_last, is_planned_again=pace is not None
        )
    return instance


def create_optimizer(
    init_lr: float,
    num_train_steps: int,
    num_warmup_steps: float,
    optimizer: str = "adamw",
    poly_power: float = 1.0,
    start_warmup_step: int = 0,
    pace: Pace | None = None,
    average_last: float = 0.0,
    product_type: str = "float32",
    **settings: Any,
) -> Optimizer:
    """Builds an optimizer from the arguments of the reference's function of this name.

    Args:
      init_lr: learning rate, see `learning_rate_at`.
      num_train_steps, num_warmup_steps: steps of training, and of its warm-up.
      optimizer: name in `optimizer_table.OPTIMIZERS`.
      poly_power, start_warmup_step: see `learning_rate_at`.
      average_last: last fraction of training over which the weights are averaged; 0: none.
      product_type: type of the factors of products in Muon.
      pace: gives the completed fraction of training; None: it is that of the steps.
      **settings: arguments of the optimizer's constructor.
    """
    values = optimizer_table.Settings(
        init_lr, num_train_steps, num_warmup_steps, optimizer, settings, poly_power,
        start_warmup_step, average_last, product_type,
    )  # fmt: skip
    return build(values, pace)
