"""The layers of the encoder, the rows they work on, and what makes them small or fast.

Letters in shapes: B batch, S sequence, T rows (tokens) that are computed, R rows that are asked
for, H hidden, N attention heads, D head size (H / N), I intermediate.
"""

import dataclasses
import hashlib
import secrets
import zlib
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from albert.model import batching, kernels

ACTIVATIONS = {
    "gelu": lambda x: tf.nn.gelu(x, approximate=True),
    "gelu_erf": lambda x: tf.nn.gelu(x, approximate=False),
    "relu": tf.nn.relu,
    "tanh": tf.tanh,
    "linear": tf.identity,
}


@dataclasses.dataclass(frozen=True)
class Compute:
    """How a model computes: given when it is made, and never changed.

    All ways compute the same function of the same weights. What may differ: the rounding of
    results; the encoder's outputs at padded positions, which are 0 where padding is skipped; and
    the masks of dropout, which are drawn for the rows that are computed, in the type of the
    activations, for each part by itself. `recompute` changes none of these.

    Attributes:
      dtype: type of products and activations: "float32", "bfloat16" or "float16". Variables,
        normalisation, softmax sums, losses and the optimizer stay float32.
      skip_padding: compute the real tokens alone. The number of rows changes from batch to batch,
        which a TPU cannot do.
      recompute: keep only the input of each block for the backward pass and compute the rest
        again there (Training Deep Nets with Sublinear Memory Cost, Chen et al., 2016).
      parts: a batch is computed as so many, which do not wait for each other: while one is in a
        function that does not keep all cores busy, another takes the rest.
      whole_sequence: heads that need a few positions have the last layer computed at all, too, and
        return it as sequence_output.
    """

    dtype: str = "float32"
    skip_padding: bool = False
    recompute: bool = False
    parts: int = 1
    whole_sequence: bool = False


def normal_variable(name, shape, config, seed):
    """A weight drawn from a truncated normal of standard deviation `config.initializer_range`.

    With an integer `seed` the values are a function of it and of the variable's name, whatever
    else was made before. With None they differ from run to run.
    """
    seed = secrets.randbits(64) if seed is None else seed
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    pair = np.frombuffer(digest[:16], np.int64)
    values = tf.random.stateless_truncated_normal(shape, pair, stddev=config.initializer_range)
    return tf.Variable(values, name=name)


class Dense(tf.Module):
    """``x @ kernel + bias`` for x [rows, inputs], in the type of x."""

    def __init__(self, name, inputs, outputs, config, seed, use_bias=True):
        super().__init__()
        self.kernel = normal_variable(f"{name}/kernel", [inputs, outputs], config, seed)
        self.bias = tf.Variable(tf.zeros([outputs]), name=f"{name}/bias") if use_bias else None

    def weights(self, dtype):
        """Kernel and, if there is one, bias, in `dtype`."""
        return [tf.cast(x, dtype) for x in (self.kernel, self.bias) if x is not None]

    def __call__(self, x, weights=None):
        """`weights` are what `weights` returned for the type of x, by default made here."""
        kernel, *bias = weights or self.weights(x.dtype)
        y = kernels.matmul(x, kernel)
        return tf.nn.bias_add(y, *bias) if bias else y


class LayerNorm(tf.Module):
    """Normalises the last axis (biased variance) in float32; returns the type of its input."""

    def __init__(self, name, size):
        super().__init__()
        self.gamma = tf.Variable(tf.ones([size]), name=f"{name}/gamma")
        self.beta = tf.Variable(tf.zeros([size]), name=f"{name}/beta")

    def weights(self):
        """Gamma and beta."""
        return tf.convert_to_tensor(self.gamma), tf.convert_to_tensor(self.beta)

    def __call__(self, x):
        return kernels.normalize(x, self.gamma, self.beta)


class Dropout:
    """Dropout whose masks are a function of a seed and of the name of the place in the network.

    Args:
      training: whether anything is dropped at all.
      seed: int32 tensor [2]; None draws a fresh one.
      part: number of the part of the batch that is computed; each has its own masks.
    """

    def __init__(self, training, seed=None, part=0):
        self.training = training
        self._seed = seed if seed is None or part == 0 else tf.random.fold_in(seed, part)

    def seed(self, rate, site):
        """Seed of the mask at a place of the network; None where nothing is dropped.

        Args:
          rate: share of the elements that are dropped.
          site: name of the place.
        """
        if not self.training or not rate:
            return None
        if self._seed is None:
            self._seed = tf.random.uniform([2], maxval=tf.int32.max, dtype=tf.int32)
        return tf.random.fold_in(self._seed, zlib.crc32(site.encode()) & 0x7FFFFFFF)

    def __call__(self, x, rate, site):
        """`drop` at a place of the network."""
        return drop(x, rate, self.seed(rate, site))


def drop(x, rate, seed):
    """x with elements set to 0 at `rate` and the others scaled up; x itself without a seed."""
    return x if seed is None else tf.nn.experimental.stateless_dropout(x, rate, seed)


# --- rows --------------------------------------------------------------------------------------


@tf.custom_gradient
def _take(x, index, inverse):
    """``tf.gather(x, index)`` whose gradient gathers back by `inverse` instead of adding up.

    Only right where rows that are read twice, or not at all, get no gradient.
    """
    return tf.gather(x, index), lambda upstream: (tf.gather(upstream, inverse), None, None)


def _merge_heads(x):
    """[B, N, R, D] -> [B * R, N * D]."""
    return tf.reshape(tf.transpose(x, [0, 2, 1, 3]), [-1, x.shape[1] * x.shape[3]])


class PaddedRows:
    """Every position of the batch has its row: b * S + s of a [T, width] matrix, T = B * S.

    Only attention needs to know where rows sit; all else in the encoder works on rows alone.
    """

    def __init__(self, input_mask, batch, length, heads):
        self.batch = batch
        self.length = length
        self.heads = heads
        self.attention_bias = None  # [B, 1, 1, S], added to attention scores
        if input_mask is not None:
            # TensorFlow Lite has no slices that add two axes at once.
            mask = tf.reshape(tf.cast(input_mask, tf.float32), [batch, 1, 1, length])
            self.attention_bias = (1.0 - mask) * -10000.0

    def flatten(self, x):
        """[B, S] -> [T]."""
        return tf.reshape(x, [-1])

    def by_position(self, table):
        """The first S rows of a table [positions, E] for each row: [T, E]."""
        shape = [self.batch, self.length, table.shape[1]]
        return tf.reshape(tf.broadcast_to(table[: self.length], shape), [-1, table.shape[1]])

    def unflatten(self, x):
        """[T, width] -> [B, S, width]."""
        return tf.reshape(x, [self.batch, self.length, x.shape[-1]])

    def rows_at(self, positions):
        """Positions [B, R] -> the numbers of their rows [B * R]."""
        return tf.reshape(tf.range(self.batch)[:, tf.newaxis] * self.length + positions, [-1])

    def split_heads(self, x, parts):
        """[T, parts * H] -> `parts` tensors [B, N, S, D]."""
        size = x.shape[-1] // parts // self.heads
        x = tf.reshape(x, [self.batch, self.length, parts, self.heads, size])
        return tf.unstack(tf.transpose(x, [2, 0, 3, 1, 4]), parts)

    def merge_heads(self, x):
        """[B, N, S, D] -> [T, H]."""
        return _merge_heads(x)


class TokenRows(PaddedRows):
    """Only real tokens have rows, and a few padded positions so that T is a round number.

    Functions compiled for one number of rows then meet few numbers of them. Positions without a
    row read the last one. There is always a padded position behind that, or every position has
    its own; as nothing that counts reads padded positions, their gradients are 0.
    """

    def __init__(self, input_mask, batch, length, heads):
        super().__init__(input_mask, batch, length, heads)
        self._real = tf.reshape(tf.cast(input_mask, tf.bool), [-1])  # [B * S]
        tokens_first = tf.concat([tf.where(self._real), tf.where(~self._real)], 0)[:, 0]
        positions = tf.size(self._real)
        tokens = tf.reduce_sum(tf.cast(self._real, tf.int32))
        count = tf.minimum(batching.round_up(tokens + 1), positions)
        self._position = tf.cast(tokens_first[:count], tf.int32)  # [T] row -> b * S + s
        self._row = tf.tensor_scatter_nd_update(  # [B * S] b * S + s -> row
            tf.fill([positions], count - 1), self._position[:, tf.newaxis], tf.range(count)
        )
        # Made before any block, as all of them use these. A graph leaves out what is not used.
        self._indices = {parts: self._head_indices(parts) for parts in (1, 2, 3)}

    def flatten(self, x):
        return tf.gather(tf.reshape(x, [-1]), self._position)

    def by_position(self, table):
        return tf.gather(table, self._position % self.length)

    def unflatten(self, x):
        x = _take(x, self._row, self._position)
        x = tf.where(self._real[:, tf.newaxis], x, tf.zeros([], x.dtype))
        return tf.reshape(x, [self.batch, self.length, x.shape[-1]])

    def rows_at(self, positions):
        return tf.gather(self._row, super().rows_at(positions))

    def _head_indices(self, parts):
        """Where slices [parts, B, N, S] lie among slices [T, parts, N], and the other way."""
        heads = self.heads
        part = np.arange(parts, dtype=np.int32)[:, np.newaxis]
        head = np.arange(heads, dtype=np.int32)
        row = tf.reshape(self._row, [self.batch, 1, self.length])
        to_heads = row * (parts * heads) + (part * heads + head)[:, np.newaxis, :, np.newaxis]
        # Of part 0 and head 0; a head is S slices further, a part B N S.
        first = self._position // self.length * (heads * self.length) + self._position % self.length
        further = part * (self.batch * heads * self.length) + head * self.length
        to_rows = first[:, tf.newaxis, tf.newaxis] + further
        return tf.reshape(to_heads, [-1]), tf.reshape(to_rows, [-1])

    def split_heads(self, x, parts):
        size = x.shape[-1] // parts // self.heads
        to_heads, to_rows = self._indices[parts]
        # Padding and transposition are one pass over slices of D.
        x = _take(tf.reshape(x, [-1, size]), to_heads, to_rows)
        return tf.unstack(tf.reshape(x, [parts, self.batch, self.heads, self.length, size]), parts)

    def merge_heads(self, x):
        size = x.shape[3]
        to_heads, to_rows = self._indices[1]
        return tf.reshape(
            _take(tf.reshape(x, [-1, size]), to_rows, to_heads), [-1, self.heads * size]
        )


# --- the block ---------------------------------------------------------------------------------


class BlockWeights(NamedTuple):
    """The parameters of a block as its computation takes them, made once for all layers."""

    # of `SelfAttention`
    qkv_kernel: Any  # [H, 3H] queries (scaled by 1 / sqrt(D)), keys, values
    qkv_bias: Any
    attention_kernel: Any  # [H, H]
    attention_bias: Any
    attention_gamma: Any
    attention_beta: Any
    # of `FeedForward`
    inner_kernel: Any  # [H, I]
    inner_bias: Any
    output_kernel: Any  # [I, H]
    output_bias: Any
    output_gamma: Any
    output_beta: Any


class BlockSeeds(NamedTuple):
    """Seeds of the dropout masks of one pass through a block; None where nothing is dropped."""

    probabilities: Any
    attention_output: Any
    output: Any


class SelfAttention(tf.Module):
    """Parameters of multi-head self attention and of the LayerNorm after it."""

    def __init__(self, name, config, seed):
        super().__init__(name="self_attention")
        size = config.hidden_size
        self._scale = (size // config.num_attention_heads) ** -0.5
        self.query = Dense(f"{name}/attention_1/self/query", size, size, config, seed)
        self.key = Dense(f"{name}/attention_1/self/key", size, size, config, seed)
        self.value = Dense(f"{name}/attention_1/self/value", size, size, config, seed)
        self.output = Dense(f"{name}/attention_1/output/dense", size, size, config, seed)
        self.norm = LayerNorm(f"{name}/LayerNorm", size)

    def weights(self, dtype):
        """Its part of `BlockWeights`, with products in `dtype`; normalisation stays float32."""
        # Scaling the kernel once costs less than scaling queries or scores in each layer.
        kernels = [self.query.kernel * self._scale, self.key.kernel, self.value.kernel]
        biases = [self.query.bias * self._scale, self.key.bias, self.value.bias]
        dense = (tf.concat(kernels, 1), tf.concat(biases, 0), self.output.kernel, self.output.bias)
        return *(tf.cast(x, dtype) for x in dense), *self.norm.weights()


class FeedForward(tf.Module):
    """Parameters of the two dense layers after the attention and of the LayerNorm after them."""

    def __init__(self, name, config, seed):
        super().__init__(name="feed_forward")
        hidden, inner = config.hidden_size, config.intermediate_size
        name_of_layers = f"{name}/ffn_1/intermediate"
        self.intermediate = Dense(f"{name_of_layers}/dense", hidden, inner, config, seed)
        self.output = Dense(f"{name_of_layers}/output/dense", inner, hidden, config, seed)
        self.norm = LayerNorm(f"{name}/LayerNorm_1", hidden)

    def weights(self, dtype):
        """Its part of `BlockWeights`, with products in `dtype`; normalisation stays float32."""
        inner, output = self.intermediate, self.output
        dense = (inner.kernel, inner.bias, output.kernel, output.bias)
        return *(tf.cast(x, dtype) for x in dense), *self.norm.weights()


class Block(tf.Module):
    """Multi-head self attention and feed-forward, each with dropout, residual and LayerNorm.

    Source: Attention Is All You Need, Vaswani et al., 2017, section 3.

    Args:
      attention: `SelfAttention`, which other blocks may share.
      feed_forward: `FeedForward`, likewise.
      config: AlbertConfig.
    """

    def __init__(self, attention, feed_forward, config):
        super().__init__(name="block")
        self._config = config
        self.attention = attention
        self.feed_forward = feed_forward

    def seeds(self, dropout, site):
        """`BlockSeeds` of `Dropout` at a place of the network."""
        rate = self._config.hidden_dropout_prob
        return BlockSeeds(
            dropout.seed(
                self._config.attention_probs_dropout_prob, f"{site}/attention/probabilities"
            ),
            dropout.seed(rate, f"{site}/attention_output"),
            dropout.seed(rate, f"{site}/output"),
        )

    def __call__(self, hidden, weights, seeds, rows, functions, asked=None):
        """One pass.

        Args:
          hidden: [T, H].
          weights: `BlockWeights` of this block.
          seeds: `BlockSeeds`.
          rows: `PaddedRows` or `TokenRows`.
          functions: `kernels.BlockKernels`.
          asked: positions [B, R] whose outputs are wanted; None wants all.

        Returns:
          [T, H], or [B * R, H] for the positions asked for. What follows names the shapes of the
          first; of the others attention, too, has R in place of the first S.
        """
        config = self._config
        if asked is None:
            residual = hidden
            query, key, value = self._project(hidden, weights, rows, functions)
        else:
            residual = tf.gather(hidden, rows.rows_at(asked))  # [B * R, H]
            query, key, value = self._project_at(residual, hidden, weights, rows, functions)
        scores = kernels.matmul(query, key, transpose_b=True)  # [B, N, S, S]
        probabilities = kernels.masked_softmax(scores, rows.attention_bias)
        rate = config.attention_probs_dropout_prob
        probabilities = drop(probabilities, rate, seeds.probabilities)
        context = kernels.matmul(probabilities, value)  # [B, N, S, D]
        context = rows.merge_heads(context) if asked is None else _merge_heads(context)  # [T, H]
        attended = kernels.matmul(context, weights.attention_kernel)
        rest = (weights.attention_bias, weights.attention_gamma, weights.attention_beta)
        hidden = self._add(attended, residual, rest, seeds.attention_output, functions)

        expanded = kernels.matmul(hidden, weights.inner_kernel)  # [T, I]
        fused = {"gelu": functions.gelu, "gelu_erf": functions.gelu_erf}
        if config.hidden_act in fused:
            expanded = fused[config.hidden_act](expanded, weights.inner_bias)
        else:
            expanded = functions.add_bias(expanded, weights.inner_bias)
            expanded = ACTIVATIONS[config.hidden_act](expanded)
        output = kernels.matmul(expanded, weights.output_kernel)  # [T, H]
        rest = (weights.output_bias, weights.output_gamma, weights.output_beta)
        return self._add(output, hidden, rest, seeds.output, functions)

    def _project(self, hidden, weights, rows, functions):
        """Queries, keys and values of all rows [T, H]: each [B, N, S, D]."""
        product = kernels.matmul(hidden, weights.qkv_kernel)  # [T, 3H]
        return rows.split_heads(functions.add_bias(product, weights.qkv_bias), 3)

    def _project_at(self, chosen, hidden, weights, rows, functions):
        """Queries of the rows chosen [B, N, R, D], keys and values of all: each [B, N, S, D]."""
        size = self._config.hidden_size
        # The gradient of a split costs less than those of slices.
        query_kernel, kernel = tf.split(weights.qkv_kernel, [size, 2 * size], 1)
        query_bias, bias = tf.split(weights.qkv_bias, [size, 2 * size])
        query = functions.add_bias(kernels.matmul(chosen, query_kernel), query_bias)
        query = tf.reshape(query, [rows.batch, -1, rows.heads, size // rows.heads])
        query = tf.transpose(query, [0, 2, 1, 3])
        product = kernels.matmul(hidden, kernel)  # [T, 2H]
        return query, *rows.split_heads(functions.add_bias(product, bias), 2)

    def _add(self, x, residual, rest, seed, functions):
        """LayerNorm of `residual` and, after dropout, x with its bias: [T, H].

        `rest` is the bias and the gamma and beta of the LayerNorm.
        """
        bias, gamma, beta = rest
        if seed is not None:
            x = drop(functions.add_bias(x, bias), self._config.hidden_dropout_prob, seed)
            bias = tf.zeros_like(bias)
        return functions.residual_norm(x, bias, residual, gamma, beta)


# --- what makes blocks small, and quick to trace -------------------------------------------------


def carried(weights):
    """The same weights, for the layers that follow or for a part of the batch.

    Gradients of shared weights are added up when those of all uses are there. What goes through
    here is one use: the gradients of the layers after it are added up before, so that two of them
    are in memory instead of one for each layer.
    """
    return tuple(_carry(x) for x in weights)


@tf.custom_gradient
def _carry(x):
    return tf.identity(x), kernels.apart


def recomputed(run):
    """``run(hidden, weights, seeds)``, of which only the inputs are kept until backward.

    Base, 32 x 512 tokens, trains in 3.8 GiB so, less than 8 x 512 without (5.1); a step takes a
    third longer.
    """

    def run_and_forget(hidden, weights, seeds):
        @tf.custom_gradient
        def function(hidden, *weights):
            def gradient(upstream):
                # Fresh names for the inputs keep the graph optimizer from taking the first
                # results, and their wait for the gradient keeps memory low.
                with tf.control_dependencies([upstream]):
                    inputs = [tf.identity(x) for x in (hidden, *weights)]
                with tf.GradientTape() as tape:
                    tape.watch(inputs)
                    output = run(inputs[0], BlockWeights(*inputs[1:]), seeds)
                return tape.gradient(output, inputs, upstream)

            return run(hidden, BlockWeights(*weights), seeds), gradient

        return function(hidden, *weights)

    return run_and_forget


def traced_once(run):
    """``run(hidden, weights, seeds)`` as a function of the graph that is being built.

    Layers that share their weights then share what is traced, too.
    """
    return tf.function(run, autograph=False) if tf.inside_function() else run
