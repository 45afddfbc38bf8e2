"""The layers of the encoder: dense, LayerNorm, dropout; the block of attention and feed-forward.

Letters in shapes: see the docstring of the package.
"""

import dataclasses
import hashlib
import secrets
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from albert.model import configuration, kernels, token_rows

# Blocks compute "gelu" and "gelu_erf" by `kernels`, fused with the bias.
ACTIVATIONS = {
    "gelu": lambda x: tf.nn.gelu(x, approximate=True),
    "gelu_erf": lambda x: tf.nn.gelu(x, approximate=False),
    "relu": tf.nn.relu,
    "tanh": tf.tanh,
    "linear": tf.identity,
}


@dataclasses.dataclass(frozen=True)
class Compute:
    """Settings of a model's computation, fixed when the model is built.

    All settings compute the same function of the same weights. They may change the rounding of
    results; the encoder's outputs at padded positions, which are 0 if padding is skipped; and the
    dropout masks, which are drawn for the computed rows, in the type of the activations and for
    each part separately. `recompute` changes none of these.

    Attributes:
      dtype: type of products and activations: "float32", "bfloat16" or "float16". Variables,
        normalization, softmax sums, losses and the optimizer stay float32.
      skip_padding: compute only the real tokens. The number of rows changes from batch to batch,
        which a TPU cannot do.
      recompute: keep only the input of each block for the backward pass and compute the rest
        again there (Training Deep Nets with Sublinear Memory Cost, Chen et al., 2016).
      parts: number of independent slices that a batch is computed in. While one slice runs a
        function that does not keep all cores busy, another uses the remaining cores.
      whole_sequence: compute the last layer at all positions even if the head reads only a few, and
        return it as sequence_output.
    """

    dtype: str = "float32"
    skip_padding: bool = False
    recompute: bool = False
    parts: int = 1
    whole_sequence: bool = False


def normal_variable(
    name: str, shape: list[int], config: configuration.AlbertConfig, seed: int | None
) -> tf.Variable:
    """Draws a weight from a truncated normal of standard deviation `config.initializer_range`.

    With an integer `seed` the values depend only on the seed and on the variable's name. With None
    they differ from run to run.
    """
    seed = secrets.randbits(64) if seed is None else seed
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    pair = np.frombuffer(digest[:16], np.int64)
    values = tf.random.stateless_truncated_normal(shape, pair, stddev=config.initializer_range)
    return tf.Variable(values, name=name)


class Dense(tf.Module):
    """``x @ kernel + bias`` for x [rows, inputs], in the type of x."""

    def __init__(
        self,
        name: str,
        inputs: int,
        outputs: int,
        config: configuration.AlbertConfig,
        seed: int | None,
        use_bias: bool = True,
    ) -> None:
        super().__init__()
        self.kernel = normal_variable(f"{name}/kernel", [inputs, outputs], config, seed)
        self.bias = tf.Variable(tf.zeros([outputs]), name=f"{name}/bias") if use_bias else None

    def weights(self, dtype: str) -> list:
        """Returns the kernel and, if there is one, the bias, in `dtype`."""
        return [tf.cast(x, dtype) for x in (self.kernel, self.bias) if x is not None]

    def __call__(self, x: tf.Tensor, weights: list | None = None) -> tf.Tensor:
        """Maps [rows, inputs] to [rows, outputs]; `weights` of x's type are made here if None."""
        kernel, *bias = weights or self.weights(x.dtype)
        y = kernels.matmul(x, kernel)
        return tf.nn.bias_add(y, *bias) if bias else y


class LayerNorm(tf.Module):
    """Normalizes the last axis (biased variance) in float32; returns the type of its input."""

    def __init__(self, name: str, size: int) -> None:
        super().__init__()
        self.gamma = tf.Variable(tf.ones([size]), name=f"{name}/gamma")
        self.beta = tf.Variable(tf.zeros([size]), name=f"{name}/beta")

    def weights(self) -> tuple:
        """Returns gamma and beta."""
        return tf.convert_to_tensor(self.gamma), tf.convert_to_tensor(self.beta)

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        return kernels.normalize(x, self.gamma, self.beta)


class Dropout:
    """Dropout whose masks depend only on a seed and on the name of a site in the network.

    Args:
      seed: int32 tensor [2]; None draws a fresh one.
      part: number of the part of the batch; each has its own masks.
    """

    def __init__(self, training: bool, seed: tf.Tensor | None = None, part: int = 0) -> None:
        self.training = training
        self._seed = seed if seed is None or part == 0 else tf.random.fold_in(seed, part)

    def seed(self, rate: float, site: str) -> tf.Tensor | None:
        """Returns the seed of the mask at a site of the network; None if nothing is dropped."""
        if not self.training or not rate:
            return None
        if self._seed is None:
            self._seed = tf.random.uniform([2], maxval=tf.int32.max, dtype=tf.int32)
        return tf.random.fold_in(self._seed, zlib.crc32(site.encode()) & 0x7FFFFFFF)

    def __call__(self, x: tf.Tensor, rate: float, site: str) -> tf.Tensor:
        """Drops elements of x at a site of the network, see `drop`."""
        return drop(x, rate, self.seed(rate, site))


def drop(x: tf.Tensor, rate: float, seed: tf.Tensor | None) -> tf.Tensor:
    """Sets elements of x to 0 at `rate` and scales the others up; returns x without a seed."""
    return x if seed is None else tf.nn.experimental.stateless_dropout(x, rate, seed)


# --- the block ---------------------------------------------------------------------------------


class BlockWeights(NamedTuple):
    """The parameters of a block in the form used by its computation, made once for all layers."""

    # from `SelfAttention`
    qkv_kernel: tf.Tensor  # [H, 3H] queries (scaled by 1 / sqrt(D)), keys, values
    qkv_bias: tf.Tensor
    attention_kernel: tf.Tensor  # [H, H]
    attention_bias: tf.Tensor
    attention_gamma: tf.Tensor
    attention_beta: tf.Tensor
    # from `FeedForward`
    inner_kernel: tf.Tensor  # [H, I]
    inner_bias: tf.Tensor
    output_kernel: tf.Tensor  # [I, H]
    output_bias: tf.Tensor
    output_gamma: tf.Tensor
    output_beta: tf.Tensor

    def scaled(self, scale: tf.Tensor, bias: tf.Tensor) -> "BlockWeights":
        """Returns weights with which the block's output is multiplied by a scale plus a bias.

        The output is that of a LayerNorm, so its gamma and beta absorb both.
        """
        beta = self.output_beta * scale + bias
        return self._replace(output_gamma=self.output_gamma * scale, output_beta=beta)


class BlockSeeds(NamedTuple):
    """Seeds of the dropout masks of one pass through a block; None if nothing is dropped."""

    probabilities: tf.Tensor | None
    attention_output: tf.Tensor | None
    output: tf.Tensor | None


def _prepared(dense: Sequence[tf.Variable], dtype: str) -> Iterator[tf.Tensor]:
    """Returns kernels (`kernels.transposed_for_matmul`) and biases in a type."""
    for x in (tf.cast(x, dtype) for x in dense):
        yield kernels.transposed_for_matmul(x) if len(x.shape) == 2 else x


class SelfAttention(tf.Module):
    """Parameters of multi-head self attention and of the LayerNorm after it."""

    def __init__(self, name: str, config: configuration.AlbertConfig, seed: int | None) -> None:
        super().__init__(name="self_attention")
        size = config.hidden_size
        self._scale = (size // config.num_attention_heads) ** -0.5
        self.query = Dense(f"{name}/attention_1/self/query", size, size, config, seed)
        self.key = Dense(f"{name}/attention_1/self/key", size, size, config, seed)
        self.value = Dense(f"{name}/attention_1/self/value", size, size, config, seed)
        self.output = Dense(f"{name}/attention_1/output/dense", size, size, config, seed)
        self.norm = LayerNorm(f"{name}/LayerNorm", size)

    def weights(self, dtype: str) -> tuple:
        """Returns this part of `BlockWeights`: products in `dtype`, normalization in float32."""
        # Scaling the kernel once costs less than scaling queries or scores in each layer.
        matrices = [self.query.kernel * self._scale, self.key.kernel, self.value.kernel]
        biases = [self.query.bias * self._scale, self.key.bias, self.value.bias]
        dense = (tf.concat(matrices, 1), tf.concat(biases, 0), self.output.kernel, self.output.bias)
        return *_prepared(dense, dtype), *self.norm.weights()


class FeedForward(tf.Module):
    """Parameters of the two dense layers after the attention and of the LayerNorm after them."""

    def __init__(self, name: str, config: configuration.AlbertConfig, seed: int | None) -> None:
        super().__init__(name="feed_forward")
        hidden, inner = config.hidden_size, config.intermediate_size
        prefix = f"{name}/ffn_1/intermediate"
        self.intermediate = Dense(f"{prefix}/dense", hidden, inner, config, seed)
        self.output = Dense(f"{prefix}/output/dense", inner, hidden, config, seed)
        self.norm = LayerNorm(f"{name}/LayerNorm_1", hidden)

    def weights(self, dtype: str) -> tuple:
        """Returns this part of `BlockWeights`: products in `dtype`, normalization in float32."""
        inner, output = self.intermediate, self.output
        dense = (inner.kernel, inner.bias, output.kernel, output.bias)
        return *_prepared(dense, dtype), *self.norm.weights()


class LayerScale(tf.Module):
    """A scale and a bias for the output of one layer, initially without effect.

    "layer_norm" in their names excludes them from weight decay, like gamma and beta.
    """

    def __init__(self, name: str, config: configuration.AlbertConfig) -> None:
        super().__init__(name="layer_scale")
        size = config.hidden_size
        self.scale = tf.Variable(tf.ones([size]), name=f"{name}/layer_norm/scale")
        self.bias = tf.Variable(tf.zeros([size]), name=f"{name}/layer_norm/bias")

    def weights(self, dtype: str) -> tuple:
        """Returns scale and bias, in float32 as all normalization."""
        del dtype
        return tf.convert_to_tensor(self.scale), tf.convert_to_tensor(self.bias)


class Block(tf.Module):
    """Multi-head self attention and feed-forward, each with dropout, residual and LayerNorm.

    Source: Attention Is All You Need, Vaswani et al., 2017, section 3.
    """

    def __init__(
        self,
        attention: SelfAttention,
        feed_forward: FeedForward,
        config: configuration.AlbertConfig,
    ) -> None:
        super().__init__(name="block")
        self._config = config
        self.attention = attention
        self.feed_forward = feed_forward

    @property
    def sublayers(self) -> tuple:
        """The parts that blocks may share, in the order of `BlockWeights`."""
        return self.attention, self.feed_forward

    def seeds(self, dropout: Dropout, site: str) -> BlockSeeds:
        """Returns the `BlockSeeds` of a `Dropout` at a site of the network."""
        rate = self._config.hidden_dropout_prob
        return BlockSeeds(
            dropout.seed(
                self._config.attention_probs_dropout_prob, f"{site}/attention/probabilities"
            ),
            dropout.seed(rate, f"{site}/attention_output"),
            dropout.seed(rate, f"{site}/output"),
        )

    def __call__(
        self,
        hidden: tf.Tensor,
        weights: BlockWeights,
        seeds: BlockSeeds,
        rows: token_rows.PaddedRows,
        functions: kernels.BlockKernels,
        positions: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Computes one pass: attention, then feed-forward.

        Args:
          hidden: [T, H].
          positions: [B, R], the only positions to compute; None computes all.

        Returns:
          [T, H], or [B * R, H] at `positions`, where R takes the place of the first S in
          the shapes below.
        """
        config = self._config
        if positions is None:
            hidden, residual = kernels.fork(hidden)
            query, key, value = self._project(hidden, weights, rows, functions)
        else:
            residual = tf.gather(hidden, rows.rows_at(positions))  # [B * R, H]
            query, key, value = self._project_at(residual, hidden, weights, rows, functions)
        scores = kernels.matmul(query, key, transpose_b=True)  # [B, N, S, S]
        probabilities = kernels.masked_softmax(scores, rows.attention_bias)
        rate = config.attention_probs_dropout_prob
        probabilities = drop(probabilities, rate, seeds.probabilities)
        context = kernels.matmul(probabilities, value)  # [B, N, S, D]
        merge = rows.merge_heads if positions is None else rows.merge_heads_at
        context = merge(context)  # [T, H]
        attended = kernels.product(context, weights.attention_kernel)
        rest = (weights.attention_bias, weights.attention_gamma, weights.attention_beta)
        hidden = self._add(attended, residual, rest, seeds.attention_output, functions)

        hidden, residual = kernels.fork(hidden)
        expanded = kernels.product(hidden, weights.inner_kernel)  # [T, I]
        fused = {"gelu": functions.gelu, "gelu_erf": functions.gelu_erf}
        if config.hidden_act in fused:
            expanded = fused[config.hidden_act](expanded, weights.inner_bias)
        else:
            expanded = functions.add_bias(expanded, weights.inner_bias)
            expanded = ACTIVATIONS[config.hidden_act](expanded)
        output = kernels.product(expanded, weights.output_kernel)  # [T, H]
        rest = (weights.output_bias, weights.output_gamma, weights.output_beta)
        return self._add(output, residual, rest, seeds.output, functions)

    def _project(
        self,
        hidden: tf.Tensor,
        weights: BlockWeights,
        rows: token_rows.PaddedRows,
        functions: kernels.BlockKernels,
    ) -> list[tf.Tensor]:
        """Returns queries, keys and values of all rows [T, H]: each [B, N, S, D]."""
        product = kernels.product(hidden, weights.qkv_kernel)  # [T, 3H]
        return rows.split_heads(functions.add_bias(product, weights.qkv_bias), 3)

    def _project_at(
        self,
        query_rows: tf.Tensor,
        hidden: tf.Tensor,
        weights: BlockWeights,
        rows: token_rows.PaddedRows,
        functions: kernels.BlockKernels,
    ) -> tuple[tf.Tensor, ...]:
        """Returns queries of `query_rows` [B, N, R, D], keys and values of all [B, N, S, D]."""
        size = self._config.hidden_size
        # The gradient of a split costs less than those of slices.
        query_kernel, kernel = kernels.split_outputs(weights.qkv_kernel, [size, 2 * size])
        query_bias, bias = tf.split(weights.qkv_bias, [size, 2 * size])
        query = functions.add_bias(kernels.product(query_rows, query_kernel), query_bias)
        query = tf.reshape(query, [rows.batch, -1, rows.heads, size // rows.heads])
        query = tf.transpose(query, [0, 2, 1, 3])
        product = kernels.product(hidden, kernel)  # [T, 2H]
        return query, *rows.split_heads(functions.add_bias(product, bias), 2)

    def _add(
        self,
        x: tf.Tensor,
        residual: tf.Tensor,
        rest: tuple[tf.Tensor, tf.Tensor, tf.Tensor],
        seed: tf.Tensor | None,
        functions: kernels.BlockKernels,
    ) -> tf.Tensor:
        """Returns LayerNorm(residual + dropout(x + bias)): [T, H].

        `rest` holds the bias and the LayerNorm's gamma and beta.
        """
        bias, gamma, beta = rest
        if seed is not None:
            x = drop(functions.add_bias(x, bias), self._config.hidden_dropout_prob, seed)
            bias = tf.zeros_like(bias)
        return functions.residual_norm(x, bias, residual, gamma, beta)
