"""The encoder's time-critical functions: matrix products, and fused kernels between them.

Products are computed in the model's compute type. A processor without hardware for a low-precision
type emulates its products, several times slower than float32. There the product is computed in
float32 and rounded. This matches the hardware, which also accumulates in float32. Activations stay
small in memory either way.

As separate graph operations, each step of an element-wise function reads and writes the whole
tensor. On a CPU this costs more than the matrix product before it. Here these functions are
compiled into one pass over memory, with handwritten gradients. XLA compiles them once per shape, in
about 0.1 s, which does not pay off for narrow tensors.

The kernels add the biases, not the products before them. TensorFlow would fuse the sum with the
product, which in bfloat16 is several times slower on a processor with matrix units (AMX):
[2048, 768] x [768, 3072] takes 8 ms alone and 42 ms with bias and gelu fused; bias and gelu as a
separate kernel take 4.4 ms.

If not stated otherwise, `x`, `residual` and `upstream`, the gradient of the result, are
[rows, width], and `bias`, `gamma` and `beta` [width].
"""

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import tensorflow as tf
from tensorflow.python.framework import ops  # only for `releasing_gradients`

from albert.io import file_io
from albert.model import configuration

# CPU flags, as listed by Linux, that indicate hardware for a type.
_UNITS = {"bfloat16": {"avx512_bf16", "amx_bf16", "bf16"}, "float16": {"avx512_fp16", "fphp"}}
_NORM_LANES, _SOFTMAX_LANES = 64, 16
_COLUMN_PARTS = 4
_COMPILED_WIDTH = 192  # minimum last axis of a tensor that is worth compiling for
_SCALE = math.sqrt(2.0 / math.pi)
_CUBIC = 0.044715


# --- products ----------------------------------------------------------------------------------


@functools.cache
def _processor_features(path: str) -> frozenset[str]:
    if not file_io.exists(path):
        return frozenset()
    with file_io.open_file(path) as file:
        lines = (line.partition(":") for line in file)
        return frozenset(
            word for name, _, words in lines if name.strip() in ("flags", "Features")
            for word in words.split()
        )  # fmt: skip


def has_units(dtype: tf.DType, processor_file: str = "/proc/cpuinfo") -> bool:
    """Returns whether the devices multiply matrices of this type as fast as float32 or faster.

    `processor_file` lists the features of the processor in the format of Linux.
    """
    if dtype == tf.float32:
        return True
    if any(device.device_type != "CPU" for device in tf.config.list_logical_devices()):
        return True
    return not _UNITS[dtype.name].isdisjoint(_processor_features(processor_file))


def has_matrix_units(dtype: tf.DType, processor_file: str = "/proc/cpuinfo") -> bool:
    """Returns whether a processor multiplies this type in units for whole tiles of matrices (AMX).

    For `processor_file` see `has_units`.
    """
    return dtype == tf.bfloat16 and "amx_bf16" in _processor_features(processor_file)


def _matmul_in_float32(a: tf.Tensor, b: tf.Tensor, **transposed: bool) -> tf.Tensor:
    product = tf.matmul(tf.cast(a, tf.float32), tf.cast(b, tf.float32), **transposed)
    return tf.cast(product, a.dtype)


def matmul(a: tf.Tensor, b: tf.Tensor, transpose_b: bool = False) -> tf.Tensor:
    """Computes ``a @ b`` or ``a @ b^T`` of tensors [..., rows, inner] of one type, in that type."""
    if has_units(a.dtype):
        return tf.matmul(a, b, transpose_b=transpose_b)

    @tf.custom_gradient
    def product(a: tf.Tensor, b: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        # Handwritten, because the derived gradient would keep the float32 copies until it runs.
        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            # Without this the copies would be made early, or the forward copies kept.
            with tf.control_dependencies([upstream]):
                left, right = tf.identity(a), tf.identity(b)
            if transpose_b:
                by_left = _matmul_in_float32(upstream, right)
                return by_left, _matmul_in_float32(upstream, left, transpose_a=True)
            by_left = _matmul_in_float32(upstream, right, transpose_b=True)
            return by_left, _matmul_in_float32(left, upstream, transpose_a=True)

        return _matmul_in_float32(a, b, transpose_b=transpose_b), gradient

    return product(a, b)


def transposed_for_matmul(kernel: tf.Tensor) -> tf.Tensor:
    """Returns a kernel [inputs, outputs] as `product` reads it fastest.

    Matrix units multiply up to a fifth faster by a transposed second factor. A kernel is transposed
    once for all layers, so the transposition costs little.
    """
    return tf.transpose(kernel) if has_matrix_units(kernel.dtype) else kernel


def product(x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    """Computes ``x @ kernel`` for x [rows, inputs] and a kernel after `transposed_for_matmul`."""
    return matmul(x, kernel, transpose_b=has_matrix_units(x.dtype))


def split_outputs(kernel: tf.Tensor, sizes: list[int]) -> list[tf.Tensor]:
    """Splits a kernel [inputs, outputs], after `transposed_for_matmul`, between its outputs."""
    return tf.split(kernel, sizes, 0 if has_matrix_units(kernel.dtype) else 1)


def column_sums(x: tf.Tensor) -> tf.Tensor:
    """Sums the rows: [rows, width] -> [width], in the type of x.

    The sum is a product with ones. On a CPU this takes half the time of a sum, and every type is
    accumulated in float32.
    """
    with tf.name_scope("column_sums"):
        return matmul(tf.ones([1, tf.shape(x)[0]], x.dtype), x)[0]


# --- functions of a block ------------------------------------------------------------------------


def _compiled(function: Callable) -> Callable:
    """Compiles a function of tensors for calls with a wide matrix or one of unknown width."""
    fast = tf.function(function, jit_compile=True, autograph=False)

    @functools.wraps(function)
    def choose(*tensors: tf.Tensor, **constants: int) -> tf.Tensor:
        widths = [x.shape[-1] for x in tensors if len(x.shape) > 1]
        wide = any(width is None or width >= _COMPILED_WIDTH for width in widths)
        return (fast if wide else function)(*tensors, **constants)

    return choose


def round_to(x: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Converts float32 `x` to `dtype`, rounding to nearest, ties to even.

    bfloat16 is rounded by bit operations: the compiler's own conversion takes as long as a tanh.
    """
    if dtype != tf.bfloat16:
        return tf.cast(x, dtype)
    bits = tf.bitcast(x, tf.uint32)
    odd = tf.bitwise.bitwise_and(tf.bitwise.right_shift(bits, tf.constant(16, bits.dtype)), 1)
    rounded = tf.bitwise.right_shift(bits + 0x7FFF + odd, tf.constant(16, bits.dtype))
    rounded = tf.where(tf.math.is_nan(x), tf.constant(0x7FC0, bits.dtype), rounded)
    return tf.bitcast(tf.cast(rounded, tf.uint16), tf.bfloat16)


def _sum(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    return tf.cast(x, tf.float32) + tf.cast(y, tf.float32)


@_compiled
def _add_narrow(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    return round_to(_sum(x, y), x.dtype)


@tf.custom_gradient
def fork(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns x twice, for two uses whose gradients are added up before those of other uses.

    TensorFlow's own sums of bfloat16 tensors take several times as long.
    """

    def gradient(one: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
        if x.dtype == tf.bfloat16:
            return _add_narrow(one, other)
        return graph_barrier(one + other)

    return (tf.identity(x), tf.identity(x)), gradient


@_compiled
def _add_bias_forward(x: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    return round_to(_sum(x, bias), x.dtype)


@tf.custom_gradient
def add_bias(x: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """Computes ``x + bias`` for x [rows, width] and bias [width] of one type."""

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return upstream, column_sums(upstream)

    return _add_bias_forward(x, bias), gradient


@_compiled
def _gelu_forward(x: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    return round_to(tf.nn.gelu(_sum(x, bias), approximate=True), x.dtype)


@_compiled
def _gelu_backward(x: tf.Tensor, bias: tf.Tensor, upstream: tf.Tensor) -> tf.Tensor:
    dtype, x, upstream = x.dtype, _sum(x, bias), tf.cast(upstream, tf.float32)
    squared = x * x
    tanh = tf.tanh(_SCALE * x * (1.0 + _CUBIC * squared))
    inner = _SCALE * (1.0 + 3.0 * _CUBIC * squared)
    slope = 0.5 * (1.0 + tanh + x * (1.0 - tanh * tanh) * inner)
    return round_to(upstream * slope, dtype)


@tf.custom_gradient
def gelu(x: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """Computes the Gaussian error linear unit, tanh approximation, of ``x + bias``.

    Source: Gaussian Error Linear Units, Hendrycks & Gimpel, 2016, section 2.

    Args:
      x: [rows, width].
      bias: [width] of the same type.
    """

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        by_sum = _gelu_backward(x, bias, upstream)
        return by_sum, column_sums(by_sum)

    return _gelu_forward(x, bias), gradient


@_compiled
def _gelu_erf_forward(x: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    return round_to(tf.nn.gelu(_sum(x, bias), approximate=False), x.dtype)


@_compiled
def _gelu_erf_backward(x: tf.Tensor, bias: tf.Tensor, upstream: tf.Tensor) -> tf.Tensor:
    dtype, x, upstream = x.dtype, _sum(x, bias), tf.cast(upstream, tf.float32)
    below = 0.5 * (1.0 + tf.math.erf(x * math.sqrt(0.5)))  # cumulative normal distribution
    density = math.sqrt(0.5 / math.pi) * tf.exp(-0.5 * x * x)
    return round_to(upstream * (below + x * density), dtype)


@tf.custom_gradient
def gelu_erf(x: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """Computes the exact Gaussian error linear unit of ``x + bias``; see `gelu`."""

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        by_sum = _gelu_erf_backward(x, bias, upstream)
        return by_sum, column_sums(by_sum)

    return _gelu_erf_forward(x, bias), gradient


def _row_means(x: tf.Tensor, lanes: int) -> tf.Tensor:
    """Averages each row: [rows, width] -> [rows, 1].

    In compiled code a sum along the last axis is one chain of scalar additions. Sums of every
    `lanes`-th element (a power of two) use vector instructions. The factor between the two sums
    keeps the compiler from merging them.
    """
    width = tf.shape(x)[1]  # a constant in compiled code
    lanes = tf.minimum(tf.bitwise.bitwise_and(width, -width), lanes)
    sums = tf.reduce_sum(tf.reshape(x, [-1, width // lanes, lanes]), 1)
    return tf.reduce_sum(sums / tf.cast(width, x.dtype), 1, keepdims=True)


def _column_sums(x: tf.Tensor) -> tf.Tensor:
    """Sums the rows: [rows, width] -> [width].

    The compiler sums long columns in tiles, which it writes to memory. Adding up a few parts of the
    rows first needs no tiles and leaves shorter columns.
    """
    rows = tf.shape(x)[0]  # a constant in compiled code
    padded = tf.pad(x, [[0, -rows % _COLUMN_PARTS], [0, 0]])
    parts = tf.unstack(tf.reshape(padded, [_COLUMN_PARTS, -1, tf.shape(x)[1]]), _COLUMN_PARTS)
    return tf.reduce_sum(functools.reduce(tf.add, parts), 0)


@_compiled
def _residual_norm_forward(
    x: tf.Tensor, bias: tf.Tensor, residual: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    total = _sum(x, bias) + tf.cast(residual, tf.float32)
    centered = total - _row_means(total, _NORM_LANES)
    variance = _row_means(tf.square(centered), _NORM_LANES)
    inverse = tf.math.rsqrt(variance + configuration.LAYER_NORM_EPSILON)  # [rows, 1]
    normal = centered * inverse
    return round_to(normal * gamma + beta, x.dtype), round_to(normal, x.dtype), inverse


@_compiled
def _residual_norm_backward(
    normal: tf.Tensor, inverse: tf.Tensor, gamma: tf.Tensor, upstream: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    dtype = normal.dtype
    normal, upstream = tf.cast(normal, tf.float32), tf.cast(upstream, tf.float32)
    scaled = upstream * gamma
    along = _row_means(scaled * normal, _NORM_LANES)
    total = inverse * (scaled - _row_means(scaled, _NORM_LANES) - normal * along)
    return (
        round_to(total, dtype),
        _column_sums(upstream * normal),
        _column_sums(upstream),
    )


@tf.custom_gradient
def residual_norm(
    x: tf.Tensor, bias: tf.Tensor, residual: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor
) -> tf.Tensor:
    """Computes the layer normalization of ``x + bias + residual`` with float32 statistics.

    Source: Layer Normalization, Ba et al., 2016, section 3.

    Args:
      x, residual: [rows, H] of one type.
      bias: [H] of that type.
      gamma, beta: float32 [H].

    Returns:
      [rows, H] in the type of x.
    """
    output, normal, inverse = _residual_norm_forward(x, bias, residual, gamma, beta)

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
        total, gamma_sum, beta_sum = _residual_norm_backward(normal, inverse, gamma, upstream)
        return total, column_sums(total), total, gamma_sum, beta_sum

    return output, gradient


@_compiled
def _softmax_backward(probabilities: tf.Tensor, upstream: tf.Tensor) -> tf.Tensor:
    dtype = probabilities.dtype
    probabilities, upstream = tf.cast(probabilities, tf.float32), tf.cast(upstream, tf.float32)
    shape = tf.shape(probabilities)
    means = _row_means(tf.reshape(probabilities * upstream, [-1, shape[-1]]), _SOFTMAX_LANES)
    sums = tf.reshape(means * tf.cast(shape[-1], means.dtype), tf.concat([shape[:-1], [1]], 0))
    return round_to(probabilities * (upstream - sums), dtype)


def masked_softmax(scores: tf.Tensor, bias: tf.Tensor | None) -> tf.Tensor:
    """Computes the softmax over the last axis in float32 and returns it in the type of the scores.

    The gradient is also computed in float32, but from probabilities in the scores' type: of all
    values kept for the backward pass, the probabilities take the most memory.

    Args:
      scores: [B, N, S, S].
      bias: float32 [B, 1, 1, S] added to the scores, or None.
    """

    @tf.custom_gradient
    def softmax(scores: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        wide = tf.cast(scores, tf.float32)
        wide = wide if bias is None else wide + bias
        probabilities = tf.cast(tf.nn.softmax(wide), scores.dtype)
        return probabilities, lambda upstream: _softmax_backward(probabilities, upstream)

    return softmax(scores)


# --- the same functions as graph operations -------------------------------------------------------


def normalize(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> tf.Tensor:
    """Normalizes the last axis with float32 `gamma` and `beta`; returns the type of x."""
    wide = tf.cast(x, tf.float32)
    centered = wide - tf.reduce_mean(wide, -1, keepdims=True)
    variance = tf.reduce_mean(tf.square(centered), -1, keepdims=True)
    normal = centered * tf.math.rsqrt(variance + configuration.LAYER_NORM_EPSILON)
    return tf.cast(normal * gamma + beta, x.dtype)


def _plain_gelu(x: tf.Tensor, bias: tf.Tensor, approximate: bool = True) -> tf.Tensor:
    total = tf.cast(tf.nn.bias_add(x, bias), tf.float32)
    return tf.cast(tf.nn.gelu(total, approximate=approximate), x.dtype)


def _plain_residual_norm(
    x: tf.Tensor, bias: tf.Tensor, residual: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor
) -> tf.Tensor:
    total = tf.cast(tf.nn.bias_add(x, bias), tf.float32) + tf.cast(residual, tf.float32)
    return tf.cast(normalize(total, gamma, beta), x.dtype)


class BlockKernels(NamedTuple):
    """The functions of a block between its products; `COMPILED` shows their signatures."""

    add_bias: Callable
    gelu: Callable
    gelu_erf: Callable
    residual_norm: Callable


COMPILED = BlockKernels(add_bias, gelu, gelu_erf, residual_norm)
_plain_gelu_erf = functools.partial(_plain_gelu, approximate=False)
# Graph operations, which TensorFlow fuses with the products.
PLAIN = BlockKernels(tf.nn.bias_add, _plain_gelu, _plain_gelu_erf, _plain_residual_norm)
# Operations that TensorFlow also fuses with bfloat16 products: it then rounds once, at the end.
FUSED = PLAIN._replace(gelu=lambda x, bias: tf.nn.gelu(tf.nn.bias_add(x, bias), approximate=True))


def _is_fused(dtype: tf.DType) -> bool:
    """Returns whether TensorFlow fuses products of this type with the following operations."""
    devices = {device.device_type for device in tf.config.list_logical_devices()}
    return dtype == tf.float32 or (dtype == tf.bfloat16 and devices == {"CPU"} and has_units(dtype))


def for_block(
    training: bool, dtype: tf.DType, few_rows: bool = False, large_batches: bool = False
) -> BlockKernels:
    """Returns `COMPILED`, or `PLAIN` or `FUSED` if one of these is faster.

    Inference gains from TensorFlow's own fusions, except on matrix units. There these are only
    taken where a request of a new length would otherwise wait for the compiler. For a few rows,
    compiling for every number of rows does not pay off.

    Args:
      training: whether there will be gradients.
      few_rows: whether the block's output is needed at only a few positions.
      large_batches: whether batches are large and many, so that compiling pays off in inference.
    """
    is_compiled = large_batches and has_matrix_units(dtype)
    if not training and _is_fused(dtype) and not is_compiled:
        return FUSED
    return PLAIN if few_rows else COMPILED


# --- losses ------------------------------------------------------------------------------------


@_compiled
def _log_sum_exp(logits: tf.Tensor) -> tf.Tensor:
    return tf.reduce_logsumexp(logits, axis=-1)


@_compiled
def _cross_entropy_backward(
    labels: tf.Tensor, logits: tf.Tensor, log_sum_exp: tf.Tensor, upstream: tf.Tensor
) -> tf.Tensor:
    probabilities = tf.exp(logits - log_sum_exp[:, tf.newaxis])
    true_class = tf.range(tf.shape(logits)[1]) == labels[:, tf.newaxis]
    return (probabilities - tf.cast(true_class, logits.dtype)) * upstream[:, tf.newaxis]


@tf.custom_gradient
def cross_entropy(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Computes the cross entropies [rows] over many classes.

    Args:
      labels: integers of any shape, one element per row.
      logits: float32 [rows, classes].
    """
    labels = tf.cast(tf.reshape(labels, [-1]), tf.int32)
    log_sum_exp = _log_sum_exp(logits)
    losses = log_sum_exp - tf.gather(logits, labels, batch_dims=1)

    def gradient(upstream: tf.Tensor) -> tuple[None, tf.Tensor]:
        return None, _cross_entropy_backward(labels, logits, log_sum_exp, upstream)

    return losses, gradient


@contextlib.contextmanager
def releasing_gradients() -> Iterator[None]:
    """Releases the custom gradients of a graph traced inside, which cannot be differentiated later.

    TensorFlow registers every custom gradient permanently. Each one keeps its graph, weights and
    slots alive, so a process that trains repeatedly would keep those of every training. There is no
    public way to unregister a gradient.
    """
    registry = getattr(getattr(ops, "gradient_registry", None), "_registry", {})
    before = set(registry)
    try:
        yield
    finally:
        for name in set(registry) - before:
            if name.startswith("CustomGradient-"):
                del registry[name]


def graph_barrier(x: tf.Tensor) -> tf.Tensor:
    """Returns x, and keeps the graph optimizer from making it part of a larger sum.

    The graph optimizer merges nested sums into one large sum, whose terms all stay in memory until
    the last is ready. It also adds up many large tensors in temporary variables, whose names
    collide inside loops. It does not touch a tensor whose value may be replaced, such as a
    placeholder. The gradient is TensorFlow's own, because custom gradients of custom gradients are
    not saved with a module.
    """
    return tf.raw_ops.PlaceholderWithDefault(input=x, shape=x.shape)
