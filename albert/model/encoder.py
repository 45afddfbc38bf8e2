"""The ALBERT encoder.

ALBERT: A Lite BERT for Self-supervised Learning of Language Representations, Lan et al., ICLR
2020, https://arxiv.org/abs/1909.11942. Section 3.1 gives its two changes to BERT (Devlin et al.,
2019): embeddings of size E that one dense layer maps to the hidden size H, and layers that share
their parameters. With E == H and as many groups as layers this is BERT itself.

Letters in shapes: B batch, S sequence, T rows (tokens) computed, V vocabulary, E embedding,
H hidden, L layers.
"""

import contextlib
import functools
from typing import NamedTuple

import tensorflow as tf

from albert.io import file_io
from albert.model import configuration, kernels, layers

AlbertConfig = configuration.AlbertConfig


class _Embeddings(tf.Module):
    """Sum of word, token type and position embeddings, normalised."""

    def __init__(self, name, config, seed):
        super().__init__(name="embeddings")
        self._dropout_rate = config.hidden_dropout_prob

        def table(key, rows):
            shape = [rows, config.embedding_size]
            return layers.normal_variable(f"{name}/{key}", shape, config, seed)

        self.word_embeddings = table("word_embeddings", config.vocab_size)
        self.token_type_embeddings = table("token_type_embeddings", config.type_vocab_size)
        self.position_embeddings = table("position_embeddings", config.max_position_embeddings)
        self.layer_norm = layers.LayerNorm(f"{name}/LayerNorm", config.embedding_size)

    def __call__(self, input_ids, token_type_ids, rows, dropout):
        """[B, S] ids -> the words' embeddings and the whole embeddings, both [T, E]."""
        words = tf.gather(self.word_embeddings, rows.flatten(input_ids))
        if token_type_ids is None:
            types = self.token_type_embeddings[0]
        else:
            types = tf.gather(self.token_type_embeddings, rows.flatten(token_type_ids))
        positions = rows.by_position(self.position_embeddings)
        embeddings = self.layer_norm(words + types + positions)
        return words, dropout(embeddings, self._dropout_rate, "embeddings")


def _make_layers(config, seed):
    """The blocks of each layer; layers that share parameters have the same objects."""
    name = "bert/encoder/transformer/group_{}/inner_group_{}".format

    @functools.cache
    def attention(group, inner):
        return layers.SelfAttention(name(group, inner), config, seed)

    @functools.cache
    def feed_forward(group, inner):
        return layers.FeedForward(name(group, inner), config, seed)

    @functools.cache
    def block(groups, inner):
        parts = attention(groups[0], inner), feed_forward(groups[1], inner)
        return layers.Block(*parts, config)

    return [
        [block(config.groups_of(layer), inner) for inner in range(config.inner_group_num)]
        for layer in range(config.num_hidden_layers)
    ]


def _parts(block):
    """What may be shared of a block, in the order of `layers.BlockWeights`."""
    return block.attention, block.feed_forward


class _Given:
    """Weights made before, by their owners; no `dict`, which `tf.Module` would track."""

    def __init__(self, weights):
        self.of = weights


class AlbertOutput(NamedTuple):
    """What the encoder computed.

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
      config: AlbertConfig.
      seed: integer from which the initial weights are drawn (same seed, same weights), or None.
      compute: `layers.Compute`, how it computes.
    """

    def __init__(self, config, seed=None, compute=layers.Compute()):
        super().__init__()
        self.config = config
        self._compute = compute
        self._embeddings = _Embeddings("bert/embeddings", config, seed)
        size = config.hidden_size
        self._mapping = None
        if config.embedding_size != size:
            name = "bert/encoder/embedding_hidden_mapping_in"
            self._mapping = layers.Dense(name, config.embedding_size, size, config, seed)
        self._layers = _make_layers(config, seed)
        self._pooler = layers.Dense("bert/pooler/dense", size, size, config, seed)
        self._given = _Given({})

    @property
    def compute(self):
        """The `layers.Compute` that the model was made with."""
        return self._compute

    @property
    def embedding_table(self):
        """Variable [V, E]: the word embeddings, which the masked LM head uses again."""
        return self._embeddings.word_embeddings

    def ready_weights(self):
        """The present weights as the layers take them: cast, scaled and joined.

        That takes a good part of a call on a short text, so whoever computes many batches with the
        same weights does it once: see `using`.

        Returns:
          A list of lists of tensors, which a function may take as an argument.
        """
        made = [list(owner.weights(self.compute.dtype)) for owner in self._owners()]
        return tf.nest.map_structure(tf.convert_to_tensor, made)

    @contextlib.contextmanager
    def using(self, weights):
        """What is traced inside takes these `ready_weights` in place of the variables.

        Embeddings need no preparation and are read from the variables all the same.
        """
        self._given = _Given(dict(zip(self._owners(), weights, strict=True)))
        try:
            yield
        finally:
            self._given = _Given({})

    def _owners(self):
        """What has weights that need preparation, each once."""
        parts = [part for _, block in self._sequence() for part in _parts(block)]
        parts += [dense for dense in (self._mapping, self._pooler) if dense is not None]
        return list(dict.fromkeys(parts))

    def __call__(self, input_ids, input_mask=None, token_type_ids=None, training=False, seed=None):
        """Encodes a batch.

        Args:
          input_ids: integers [B, S].
          input_mask: [B, S], 1 for tokens and 0 for padding; None means all ones.
          token_type_ids: integers [B, S]; None means all zeros.
          training: Python bool, turns dropout on.
          seed: int32 tensor [2] that fixes the dropout masks; None draws a fresh one.

        Returns:
          AlbertOutput.

        Raises:
          InputError: `input_ids` is not a matrix or is longer than `max_position_embeddings`.
            (tf.errors.InvalidArgumentError when only known while the graph runs.)
        """
        parts = self._encode(input_ids, input_mask, token_type_ids, training, seed, None)
        unflattened = [
            [rows.unflatten(x) for x in (*embedded, *outputs)] for rows, embedded, outputs in parts
        ]
        words, embeddings, *all_layers = (_joined(x) for x in zip(*unflattened, strict=True))
        all_layers, last = tuple(all_layers), all_layers[-1]  # [B, S, H] each
        return AlbertOutput(words, embeddings, all_layers, last, self.pool(last[:, 0]))

    def at_positions(
        self,
        input_ids,
        input_mask=None,
        token_type_ids=None,
        training=False,
        seed=None,
        positions=None,
    ):
        """The last layer at some positions only, which spares the rest of its work.

        Args:
          positions: int32 [B, R]; None means the first position, what `pool` takes.
          For the rest see `__call__`.

        Returns:
          [B, R, H].
        """
        if positions is None:
            positions = tf.zeros([_dimension(tf.convert_to_tensor(input_ids), 0), 1], tf.int32)
        parts = self._encode(input_ids, input_mask, token_type_ids, training, seed, positions)
        shape = [_dimension(positions, 0), _dimension(positions, 1), self.config.hidden_size]
        return tf.reshape(_joined([outputs[-1] for _, _, outputs in parts]), shape)

    def pool(self, first):
        """The pooler: first position of the last layer [B, H] -> [B, H]."""
        return tf.tanh(self._pooler(first, self._given.of.get(self._pooler)))

    def _encode(self, input_ids, input_mask, token_type_ids, training, seed, asked):
        """Computes each part of a batch: a list of what `_encode_part` returns."""
        input_ids = tf.convert_to_tensor(input_ids)
        self._check_length(input_ids)
        # Made once, as all parts and layers use them.
        shared = [part for _, block in self._sequence() for part in _parts(block)]
        weights = {
            part: self._given.of.get(part) or part.weights(self.compute.dtype)
            for part in dict.fromkeys(shared)
        }
        inputs = (input_ids, input_mask, token_type_ids, asked)
        return [
            self._encode_part(*part, layers.Dropout(training, seed, number), weights)
            for number, part in enumerate(_cut(inputs, self.compute.parts))
        ]

    def _encode_part(self, input_ids, input_mask, token_type_ids, asked, dropout, weights):
        """Embeddings, and one block after another.

        Returns:
          Rows, the words' and the whole embeddings [T, E], and the blocks' outputs [T, H]; the last
          of these [B * R, H] where positions [B, R] are asked for.
        """
        rows = self._rows(input_ids, input_mask)
        words, embeddings = self._embeddings(input_ids, token_type_ids, rows, dropout)  # [T, E]
        hidden = tf.cast(embeddings, self.compute.dtype)
        if self._mapping is not None:
            hidden = self._mapping(hidden, self._given.of.get(self._mapping))  # [T, H]
        outputs, sequence = [], self._sequence()
        blocks = dict.fromkeys(block for _, block in sequence)
        passes = {block: self._pass(block, rows, dropout.training) for block in blocks}
        # Each part of the batch adds up gradients of its own.
        weights = {part: layers.carried(shared) for part, shared in weights.items()}
        for number, (site, block) in enumerate(sequence, 1):
            run = passes[block]
            if asked is not None and number == len(sequence):
                run = self._pass(block, rows, dropout.training, asked)
            both = [weight for part in _parts(block) for weight in weights[part]]
            seeds = block.seeds(dropout, site)
            hidden = run(hidden, layers.BlockWeights(*both), seeds)  # [T, H]
            outputs.append(hidden)
            weights |= {part: layers.carried(weights[part]) for part in _parts(block)}
        return rows, (words, embeddings), outputs

    def _rows(self, input_ids, input_mask):
        skip = self.compute.skip_padding and input_mask is not None
        kind = layers.TokenRows if skip else layers.PaddedRows
        batch, length = _dimension(input_ids, 0), _dimension(input_ids, 1)
        return kind(input_mask, batch, length, self.config.num_attention_heads)

    def _sequence(self):
        """[(name of the place, block)] in the order in which blocks run."""
        return [
            (f"layer_{layer}/inner_{inner}", block)
            for layer, blocks in enumerate(self._layers)
            for inner, block in enumerate(blocks)
        ]

    def _pass(self, block, rows, training, asked=None):
        """``(hidden, weights, seeds) -> hidden``: a pass through a block, as fast as can be."""
        few_rows = asked is not None and (not training or asked.shape[1] == 1)
        functions = kernels.for_block(training, tf.as_dtype(self.compute.dtype), few_rows)

        def run(hidden, weights, seeds):
            return block(hidden, weights, seeds, rows, functions, asked)

        if training and self.compute.recompute:
            run = layers.recomputed(run)
        is_shared = len({blocks[0] for blocks in self._layers}) < len(self._layers)
        return layers.traced_once(run) if is_shared and asked is None else run

    def _check_length(self, input_ids):
        if input_ids.shape.rank != 2:
            raise file_io.InputError(f"input_ids must be [batch, length]; got {input_ids.shape}")
        longest = self.config.max_position_embeddings
        message = f"a sequence may have at most max_position_embeddings = {longest} tokens"
        length = input_ids.shape[1]
        if length is None:
            tf.debugging.assert_less_equal(tf.shape(input_ids)[1], longest, message)
        elif length > longest:
            raise file_io.InputError(f"{message}; got {length}")


def _dimension(x, axis):
    """Length of an axis: an int where it is known, else a scalar tensor."""
    static = x.shape[axis]
    return tf.shape(x)[axis] if static is None else static


def _cut(inputs, count):
    """Tensors [B, ...] (or None) as `count` tuples of slices [about B / count, ...].

    On two cores a batch of 16 x 128 is 1 to 5% faster as two halves side by side.
    """
    if count == 1:
        return [inputs]
    batch = _dimension(inputs[0], 0)
    bounds = [batch * i // count for i in range(count + 1)]
    return [
        tuple(x if x is None else x[start:end] for x in inputs)
        for start, end in zip(bounds, bounds[1:], strict=False)
    ]


def _joined(parts):
    return parts[0] if len(parts) == 1 else tf.concat(parts, 0)


# --- A model's answers, with its weights prepared once for many batches --------------------------


class ReadyModel:
    """``features -> outputs`` of a model, compiled, from arrays to arrays.

    Args:
      model: `heads.Model` or `AlbertModel`. The encoder's weights are taken as they
        are now; changes of them count from the next `refresh` on.
      outputs: ``features -> outputs`` as tensors, computed with the model.
      names: of the features, int32 matrices of any sizes.
    """

    def __init__(self, model, outputs, names):
        self._model, self._outputs = model, outputs
        self.refresh()
        features = {name: tf.TensorSpec([None, None], tf.int32) for name in names}
        weights = tf.nest.map_structure(tf.TensorSpec.from_tensor, self._weights)
        signature = [features, weights]
        self._compute = tf.function(self._traced, input_signature=signature, autograph=False)

    def refresh(self):
        """Takes the weights as they are now."""
        self._weights = self._model.ready_weights()

    def _traced(self, features, weights):
        with self._model.using(weights):
            return self._outputs(features)

    def __call__(self, features):
        """Outputs, structured as `outputs` returns them, as numpy arrays.

        Args:
          features: dict of int32 arrays.
        """
        return tf.nest.map_structure(lambda x: x.numpy(), self._compute(features, self._weights))
