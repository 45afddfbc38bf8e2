"""The ALBERT encoder.

ALBERT: A Lite BERT for Self-supervised Learning of Language Representations, Lan et al., ICLR
2020, https://arxiv.org/abs/1909.11942. Section 3.1 gives its two changes to BERT (Devlin et al.,
2019): embeddings of size E that one dense layer maps to the hidden size H, and layers that share
their parameters. With E == H and as many groups as layers this is BERT itself.

This module has embeddings, mapping and N shared blocks; the block itself is in `layers`.
Code for speed is in other modules: `token_rows` (rows of real tokens, slices of a batch),
`block_runner` (recomputation, tracing, sums of gradients), `kernels` (fused functions) and
`prepared_weights`.

Letters in shapes: see the docstring of the package.
"""

import contextlib
import functools
import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from albert.io import file_io
from albert.model import block_runner, configuration, layers, prepared_weights, token_rows

AlbertConfig = configuration.AlbertConfig


class _Embeddings(tf.Module):
    """Sum of word, token type and position embeddings, normalized."""

    def __init__(self, name: str, config: AlbertConfig, seed: int | None) -> None:
        super().__init__(name="embeddings")
        self._dropout_rate = config.hidden_dropout_prob

        def table(key: str, rows: int) -> tf.Variable:
            shape = [rows, config.embedding_size]
            return layers.normal_variable(f"{name}/{key}", shape, config, seed)

        self.word_embeddings = table("word_embeddings", config.vocab_size)
        self.token_type_embeddings = table("token_type_embeddings", config.type_vocab_size)
        self.position_embeddings = table("position_embeddings", config.max_position_embeddings)
        if config.position_initializer == "sinusoidal":
            self.position_embeddings.assign(_sinusoids(config))
        self.layer_norm = layers.LayerNorm(f"{name}/LayerNorm", config.embedding_size)

    def __call__(
        self,
        input_ids: tf.Tensor,
        token_type_ids: tf.Tensor | None,
        rows: token_rows.PaddedRows,
        dropout: layers.Dropout,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Maps ids [B, S] to the word embeddings and the summed embeddings, both [T, E]."""
        words = tf.gather(self.word_embeddings, rows.flatten(input_ids))
        if token_type_ids is None or self.token_type_embeddings.shape[0] == 1:
            types = self.token_type_embeddings[0]
        else:
            types = tf.gather(self.token_type_embeddings, rows.flatten(token_type_ids))
        positions = rows.by_position(self.position_embeddings)
        embeddings = self.layer_norm(words + types + positions)
        return words, dropout(embeddings, self._dropout_rate, "embeddings")


def _sinusoids(config: AlbertConfig) -> np.ndarray:
    """Returns position embeddings that make neighbors a rotation apart, the same at any position.

    Sines and cosines of 10000^(-2i / E) per position (section 3.5 of Attention Is All You Need),
    with a root mean square of `config.initializer_range`.
    """
    count, size = config.max_position_embeddings, config.embedding_size
    rates = 10000.0 ** (-2 * np.arange((size + 1) // 2) / size)
    angles = np.arange(count)[:, None] * rates
    values = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)[:, :size]
    return (values * math.sqrt(2) * config.initializer_range).astype(np.float32)


def mean_of_tokens(sequence: tf.Tensor, mask: tf.Tensor | None = None) -> tf.Tensor:
    """Computes the mean [B, H] of the real tokens of a sequence [B, S, H], summed in float32.

    Args:
      mask: [B, S], 1 for tokens and 0 for padding; None means all ones. Without a token: zeros.
    """
    values = tf.cast(sequence, tf.float32)
    if mask is None:
        return tf.cast(tf.reduce_mean(values, 1), sequence.dtype)
    weights = tf.expand_dims(tf.cast(mask, tf.float32), -1)  # [B, S, 1]; LiteRT has no newaxis
    count = tf.maximum(tf.reduce_sum(weights, 1), 1.0)
    return tf.cast(tf.reduce_sum(values * weights, 1) / count, sequence.dtype)


def _make_shared_layers(config: AlbertConfig, seed: int | None) -> list[list[layers.Block]]:
    """Makes the blocks of each layer.

    The caches implement ALBERT's parameter sharing: layers of one group get the same objects, and
    therefore the same variables.
    """
    name = "bert/encoder/transformer/group_{}/inner_group_{}".format

    @functools.cache
    def attention(group: int, inner: int) -> layers.SelfAttention:
        return layers.SelfAttention(name(group, inner), config, seed)

    @functools.cache
    def feed_forward(group: int, inner: int) -> layers.FeedForward:
        return layers.FeedForward(name(group, inner), config, seed)

    @functools.cache
    def block(groups: tuple[int, int], inner: int) -> layers.Block:
        return layers.Block(attention(groups[0], inner), feed_forward(groups[1], inner), config)

    return [
        [block(config.groups_of(layer), inner) for inner in range(config.inner_group_num)]
        for layer in range(config.num_hidden_layers)
    ]


class AlbertOutput(NamedTuple):
    """The outputs of the encoder.

    Attributes:
      word_embedding_output: [B, S, E] rows of the word embedding table.
      embedding_output: [B, S, E] sum of all embeddings after LayerNorm and dropout.
      all_encoder_layers: tuple of L * inner_group_num tensors [B, S, H].
      sequence_output: [B, S, H], the last of them.
      pooled_output: [B, H] first position through the pooler.
    """

    word_embedding_output: tf.Tensor
    embedding_output: tf.Tensor
    all_encoder_layers: tuple
    sequence_output: tf.Tensor
    pooled_output: tf.Tensor


class AlbertModel(tf.Module):
    """The encoder; its variables exist after construction and are named as in checkpoints.

    Args:
      seed: integer from which the initial weights are drawn (same seed, same weights), or None.
    """

    def __init__(
        self,
        config: AlbertConfig,
        seed: int | None = None,
        compute: layers.Compute = layers.Compute(),
    ) -> None:
        super().__init__()
        self.config = config
        self._compute = compute
        size = config.hidden_size
        self._embeddings = _Embeddings("bert/embeddings", config, seed)
        self._mapping = None
        if config.embedding_size != size:
            name = "bert/encoder/embedding_hidden_mapping_in"
            self._mapping = layers.Dense(name, config.embedding_size, size, config, seed)
        self._layers = _make_shared_layers(config, seed)
        self._scales = []
        if config.layer_scales:
            self._scales = [
                layers.LayerScale(f"bert/encoder/transformer/layer_{layer}", config)
                for layer in range(config.num_hidden_layers)
            ]
        self._pooler = layers.Dense("bert/pooler/dense", size, size, config, seed)
        dense = [layer for layer in (self._mapping, self._pooler) if layer is not None]
        self._weights = prepared_weights.PreparedWeights(
            [*self._sublayers(), *dense], compute.dtype
        )

    def __call__(
        self,
        input_ids: npt.ArrayLike,
        input_mask: npt.ArrayLike | None = None,
        token_type_ids: npt.ArrayLike | None = None,
        training: bool = False,
        seed: tf.Tensor | None = None,
    ) -> AlbertOutput:
        """Encodes a batch.

        Args:
          input_ids: integers [B, S].
          input_mask: [B, S], 1 for tokens and 0 for padding; None means all ones.
          token_type_ids: integers [B, S]; None means all zeros, as does a type_vocab_size of 1.
          training: turns dropout on.
          seed: int32 tensor [2] that fixes the dropout masks; None draws a fresh one.

        Raises:
          InputError: `input_ids` is not a matrix or is longer than `max_position_embeddings`.
            (tf.errors.InvalidArgumentError when only known while the graph runs.)
        """
        parts = self._encode(input_ids, input_mask, token_type_ids, training, seed)
        unflattened = [[rows.unflatten(x) for x in tensors] for rows, *tensors in parts]
        joined = [token_rows.join_batch(x) for x in zip(*unflattened, strict=True)]
        words, embeddings, *all_layers = joined  # [B, S, E] twice, then [B, S, H]
        last = all_layers[-1]
        return AlbertOutput(words, embeddings, tuple(all_layers), last, self.pool(last[:, 0]))

    def at_positions(
        self,
        input_ids: npt.ArrayLike,
        input_mask: npt.ArrayLike | None = None,
        token_type_ids: npt.ArrayLike | None = None,
        training: bool = False,
        seed: tf.Tensor | None = None,
        positions: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Encodes a batch, but computes the last layer only at some positions, to save time.

        Arguments that are not listed are those of `__call__`.

        Args:
          positions: int32 [B, R]; None means the first position, which `pool` reads.

        Returns:
          [B, R, H].
        """
        dimension = token_rows.dimension
        if positions is None:
            positions = tf.zeros([dimension(tf.convert_to_tensor(input_ids), 0), 1], tf.int32)
        parts = self._encode(input_ids, input_mask, token_type_ids, training, seed, positions)
        shape = [dimension(positions, 0), dimension(positions, 1), self.config.hidden_size]
        return tf.reshape(token_rows.join_batch([tensors[-1] for tensors in parts]), shape)

    def pool(self, first: tf.Tensor) -> tf.Tensor:
        """Computes the pooler: first position of the last layer [B, H] -> [B, H]."""
        return tf.tanh(self._pooler(first, self._weights.get(self._pooler)))

    def _encode_part(
        self,
        input_ids: tf.Tensor,
        input_mask: tf.Tensor | None,
        token_type_ids: tf.Tensor | None,
        positions: tf.Tensor | None,
        dropout: layers.Dropout,
        block_weights: dict[tf.Module, list[tf.Tensor]],
    ) -> tuple:
        """Computes the embeddings, the mapping, and one block after another.

        Returns:
          The rows, the word embeddings and the summed embeddings [T, E], and the output of each
          block [T, H]; the last output is [B * R, H] if there are positions [B, R].
        """
        compute, heads = self.compute, self.config.num_attention_heads
        rows = token_rows.make_rows(input_ids, input_mask, heads, compute.skip_padding)

        words, embeddings = self._embeddings(input_ids, token_type_ids, rows, dropout)  # [T, E]
        hidden = tf.cast(embeddings, compute.dtype)
        if self._mapping is not None:
            hidden = self._mapping(hidden, self._weights.get(self._mapping))  # [T, H]

        sites, blocks = zip(*self._blocks(), strict=True)
        run = block_runner.BlockRunner(blocks, block_weights, rows, compute, dropout.training)
        outputs: list[tf.Tensor] = []
        for site, block in zip(sites, blocks, strict=True):
            selection = positions if site == sites[-1] else None  # only in the last layer
            scale = self._scale_after(len(outputs))
            hidden = run(block, hidden, block.seeds(dropout, site), selection, scale)  # [T, H]
            outputs.append(hidden)
        return rows, words, embeddings, *outputs

    def _encode(
        self,
        input_ids: npt.ArrayLike,
        input_mask: npt.ArrayLike | None,
        token_type_ids: npt.ArrayLike | None,
        training: bool,
        seed: tf.Tensor | None,
        positions: tf.Tensor | None = None,
    ) -> list[tuple]:
        """Computes each part of a batch: a list of the results of `_encode_part`."""
        input_ids = tf.convert_to_tensor(input_ids)
        self._check_length(input_ids)
        weights = self._weights.get_or_prepare(self._sublayers())  # once for all parts and layers
        inputs = (input_ids, input_mask, token_type_ids, positions)
        return [
            self._encode_part(
                ids, mask, types, places, layers.Dropout(training, seed, number), weights
            )
            for number, (ids, mask, types, places) in enumerate(
                token_rows.cut_batch(inputs, self.compute.parts)
            )
        ]

    def _blocks(self) -> list[tuple[str, layers.Block]]:
        """Returns [(name of the site, block)] in the order of computation."""
        return [
            (f"layer_{layer}/inner_{inner}", block)
            for layer, blocks in enumerate(self._layers)
            for inner, block in enumerate(blocks)
        ]

    def _scale_after(self, number: int) -> layers.LayerScale | None:
        """Returns the `layers.LayerScale` after the block of a number; None if it has none."""
        layer, inner = divmod(number, self.config.inner_group_num)
        is_last = inner == self.config.inner_group_num - 1
        return self._scales[layer] if self._scales and is_last else None

    def _sublayers(self) -> list:
        sublayers = [sublayer for _, block in self._blocks() for sublayer in block.sublayers]
        return [*sublayers, *self._scales]

    def _check_length(self, input_ids: tf.Tensor) -> None:
        if input_ids.shape.rank != 2:
            raise file_io.InputError(f"input_ids must be [batch, length]; got {input_ids.shape}")
        limit = self.config.max_position_embeddings
        message = f"a sequence may have at most max_position_embeddings = {limit} tokens"
        length = input_ids.shape[1]
        if length is None:
            tf.debugging.assert_less_equal(tf.shape(input_ids)[1], limit, message)
        elif length > limit:
            raise file_io.InputError(f"{message}; got {length}")

    @property
    def compute(self) -> layers.Compute:
        """The `layers.Compute` that the model was made with."""
        return self._compute

    @property
    def embedding_table(self) -> tf.Variable:
        """Variable [V, E]: the word embeddings, which the masked LM head reuses."""
        return self._embeddings.word_embeddings

    def prepare_weights(self) -> list:
        """Prepares the current weights, see `PreparedWeights.prepare`."""
        return self._weights.prepare()

    def use_weights(self, weights: list) -> contextlib.AbstractContextManager:
        """Makes functions traced inside use weights of `prepare_weights` instead of the variables.

        Embeddings need no preparation and are always read from the variables.
        """
        return self._weights.use(weights)
