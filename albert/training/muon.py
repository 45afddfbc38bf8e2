"""Muon: momentum with orthogonal updates of matrices."""

import math
from collections.abc import Callable, Sequence
from typing import Unpack

import tensorflow as tf

from albert.model import weight_names
from albert.training import adam
from albert.training.optimizer_base import Step, VariableRule, variable_name

# Coefficients of the polynomial by which `orthogonalize` changes singular values, and how often.
_QUINTIC, _ITERATIONS = (3.4445, -4.7750, 2.0315), 5
# The root mean square of the updates of a matrix, which is about that of AdamW's.
_UPDATE_SIZE = 0.2


class Muon(adam.AdamWeightDecayOptimizer):
    """Momentum whose updates of matrices are made orthogonal; AdamW for all other variables.

    Sources: Muon: An optimizer for hidden layers in neural networks, Jordan et al., 2024; for the
    size of the updates and the weight decay Muon is Scalable for LLM Training, Liu et al., 2025,
    section 2.2. Updates have the size of AdamW's, so the learning rates of AdamW apply.

    Muon updates the kernels of attention and feed-forward, each [inputs, outputs] with the outputs
    of all heads side by side. Embeddings, the mapping of embeddings, heads, the pooler, biases and
    LayerNorm belong to AdamW.

    Args:
      learning_rate: a number, or a function of the step.
      momentum: decay of the mean gradient of matrices.
      adamw_rate_ratio: learning rate of AdamW as a multiple of `learning_rate`.
      **settings: see `adam.AdamBase`; the betas and epsilon are those of AdamW.
    """

    def __init__(
        self,
        learning_rate: Callable[[tf.Tensor], tf.Tensor] | float,
        momentum: float = 0.95,
        adamw_rate_ratio: float = 1.0,
        **settings: Unpack[adam.Settings],
    ) -> None:
        super().__init__(learning_rate, **settings)
        self._momentum = momentum
        self._adamw_rate_ratio = adamw_rate_ratio

    def _slot_names(self, variable: tf.Variable) -> tuple[str, ...]:
        return (weight_names.MOMENTUM,) if _is_block_matrix(variable) else self.SLOTS

    def _rule(self, variable: tf.Variable) -> VariableRule:
        return super()._rule(variable)._replace(is_orthogonal=_is_block_matrix(variable))

    def _new_values(
        self,
        rule: VariableRule,
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
    return bool(weight_names.BLOCK_MATRICES.match(variable_name(variable)))


def orthogonalize(matrix: tf.Tensor, product_type: str = "float32") -> tf.Tensor:
    """Moves the singular values of a matrix [M, N] close to 1, by Newton-Schulz iterations.

    They end between about 0.7 and 1.2; those that are tiny against the norm stay below. Products in
    bfloat16 are exact enough (Jordan et al., 2024).
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
