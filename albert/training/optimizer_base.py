"""The base of the optimizers: clipping, the scale of the loss, slots and their names.

Source of the weight decay: Decoupled Weight Decay Regularization, Loshchilov & Hutter, ICLR 2019,
algorithm 2.
"""

import abc
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypedDict

import tensorflow as tf

from albert.model import weight_names
from albert.training import weight_average

# Normalization parameters and biases are not decayed (patterns searched in variable names).
EXCLUDED_FROM_DECAY = ("LayerNorm", "layer_norm", "bias")
# Minimum elements of a variable whose update is worth compiling: as separate operations, each step
# of an update reads and writes the whole variable.
COMPILED_SIZE = 2**16


class LossScale(tf.Module):
    """A factor of the float16 loss that keeps small gradients above 0 and large ones finite.

    It is halved after a gradient that is not finite, whose update is skipped, and doubled after
    2,000 finite ones in a row (Mixed Precision Training, Micikevicius et al., 2018, section 3.2).
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


class VariableRule(NamedTuple):
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
      number: updates made, with this one.
      skipped: whether nothing may change; None: false.
    """

    factor: tf.Tensor | float
    rate: tf.Tensor
    number: tf.Tensor
    skipped: tf.Tensor | None


class Settings(TypedDict, total=False):
    """Arguments that every optimizer with weight decay takes, see `Optimizer`."""

    exclude_from_weight_decay: Sequence[str]
    clip_norm: float | None


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
        pairs = [(variable_name(variable), variable) for variable in variables]
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
        return {variable_name(variable): variable for variable in state}

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
            self.average.update(self.global_step, {variable_name(v): v for v in variables})
        return norm

    def _update(self, variable: tf.Variable, gradient: tf.Tensor, step: Step) -> tf.Tensor | None:
        """Updates one variable and its slots; returns its trust ratio, a scalar, or None."""
        rule, targets = self._rule(variable), (*self._slots[variable_name(variable)], variable)
        # As arguments of a function, the copies of several replicas would get wrong updates.
        if isinstance(variable, tf.distribute.DistributedValues):
            return self._assign(rule, targets, gradient, step)
        # Products are faster outside compiled code.
        is_compiled = variable.shape.num_elements() >= COMPILED_SIZE and not rule.is_orthogonal
        assign = self._assign_compiled if is_compiled else self._assign_traced
        return assign(rule, targets, gradient, step)

    def _assign(
        self, rule: VariableRule, targets: Sequence[tf.Variable], gradient: tf.Tensor, step: Step
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

    def _rule(self, variable: tf.Variable) -> VariableRule:
        is_excluded = matches(self._exclude_from_weight_decay, variable)
        return VariableRule(0.0 if is_excluded else self._weight_decay_rate)

    @abc.abstractmethod
    def _new_values(
        self,
        rule: VariableRule,
        weights: tf.Tensor,
        gradient: tf.Tensor,
        slots: Sequence[tf.Tensor],
        step: Step,
    ) -> tuple[Sequence[tf.Tensor], tf.Tensor | None]:
        """Computes an update; may be compiled, so it depends on its arguments and constants alone.

        Returns:
          The new values of the slots, in their order, and of the variable; the trust ratio, None
          without one.
        """


def variable_name(variable: tf.Variable) -> str:
    """Returns the name of a variable in checkpoints."""
    return variable.name.split(":")[0]


def matches(patterns: Iterable[str], variable: tf.Variable) -> bool:
    """Returns whether one of the regular expressions matches anywhere in a variable's name."""
    return any(re.search(pattern, variable_name(variable)) for pattern in patterns)
