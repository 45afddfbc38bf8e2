"""Element-wise functions compiled into one pass over memory, with gradients written by hand.

As graph operations each of their steps reads and writes the whole tensor, which on a CPU costs
more than the matrix product before them. XLA compiles them anew for each shape.
"""

import math

import tensorflow as tf

_SCALE = math.sqrt(2.0 / math.pi)
_CUBIC = 0.044715


@tf.function(jit_compile=True, autograph=False)
def _gelu_forward(x):
    return tf.nn.gelu(x, approximate=True)


@tf.function(jit_compile=True, autograph=False)
def _gelu_backward(x, upstream):
    squared = x * x
    tanh = tf.tanh(_SCALE * x * (1.0 + _CUBIC * squared))
    inner = _SCALE * (1.0 + 3.0 * _CUBIC * squared)
    return upstream * 0.5 * (1.0 + tanh + x * (1.0 - tanh * tanh) * inner)


@tf.custom_gradient
def gelu(x):
    """Gaussian error linear unit, tanh approximation, of a tensor of any shape.

    Source: Gaussian Error Linear Units, Hendrycks & Gimpel, 2016, section 2.
    """
    return _gelu_forward(x), lambda upstream: _gelu_backward(x, upstream)


@tf.function(jit_compile=True, autograph=False)
def _log_sum_exp(logits):
    return tf.reduce_logsumexp(logits, axis=-1)


@tf.function(jit_compile=True, autograph=False)
def _cross_entropy_backward(labels, logits, log_sum_exp, upstream):
    probabilities = tf.exp(logits - log_sum_exp[:, tf.newaxis])
    true_class = tf.range(tf.shape(logits)[1]) == labels[:, tf.newaxis]
    return (probabilities - tf.cast(true_class, logits.dtype)) * upstream[:, tf.newaxis]


@tf.custom_gradient
def cross_entropy(labels, logits):
    """Cross entropy over many classes.

    Args:
      labels: integers with as many elements as there are rows, of any shape.
      logits: float32 [rows, classes].

    Returns:
      [rows] losses.
    """
    labels = tf.cast(tf.reshape(labels, [-1]), tf.int32)
    log_sum_exp = _log_sum_exp(logits)
    losses = log_sum_exp - tf.gather(logits, labels, batch_dims=1)

    def gradient(upstream):
        return None, _cross_entropy_backward(labels, logits, log_sum_exp, upstream)

    return losses, gradient
