"""The ALBERT encoder and its configuration.

ALBERT: A Lite BERT for Self-supervised Learning of Language Representations, Lan et al., ICLR
2020, https://arxiv.org/abs/1909.11942. Section 3.1 gives its two changes to BERT (Devlin et al.,
2019): embeddings of size E that one dense layer maps to the hidden size H, and layers that share
their parameters. With E == H and as many groups as layers this is BERT itself.

Letters in shapes: B batch, S sequence, T tokens of the batch (B * S), V vocabulary, E embedding,
H hidden, N attention heads, D head size (H / N), I intermediate, L layers.
"""

import dataclasses
import difflib
import hashlib
import json
import math
import secrets
import zlib
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from albert import file_io, fused

LAYER_NORM_EPSILON = 1e-12

_ACTIVATIONS = {
    "gelu": lambda x: tf.nn.gelu(x, approximate=True),
    "relu": tf.nn.relu,
    "tanh": tf.tanh,
    "linear": tf.identity,
}
# Hugging Face's names for the tanh approximation of gelu.
_TANH_GELU_ALIASES = ("gelu_new", "gelu_pytorch_tanh")

# Keys of released configurations that change nothing in the computation.
_LEGACY_KEYS = frozenset(
    "_name_or_path architectures bos_token_id classifier_dropout_prob directionality dtype "
    "eos_token_id gap_size id2label label2id layer_norm_eps layers_to_keep ln_type model_type "
    "net_structure_type net_type num_memory_blocks output_past pad_token_id pooler_fc_size "
    "pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head pooler_type "
    "position_embedding_type torch_dtype transformers_version use_cache".split()  # noqa: SIM905
)
# Keys whose other values mean a network that is not the one computed here.
_REQUIRED_VALUES = {
    "ln_type": "postln",
    "layer_norm_eps": LAYER_NORM_EPSILON,
    "position_embedding_type": "absolute",
}


@dataclasses.dataclass(frozen=True)
class AlbertConfig:
    """Sizes and rates of a model; checks itself when made.

    Attributes:
      vocab_size, embedding_size, hidden_size: V, E, H.
      num_attention_heads, intermediate_size: N, I.
      num_hidden_layers: how many layers run one after another (L).
      num_hidden_groups: how many sets of parameters they share; layer i uses i * groups // L.
      inner_group_num: blocks, each with its own parameters, that one layer runs.
      down_scale_factor: kept for old files, unused.
      hidden_act: "gelu" (tanh approximation), "relu", "tanh" or "linear".
      hidden_dropout_prob: dropout rate of embeddings and of both outputs of a block.
      attention_probs_dropout_prob: dropout rate of attention probabilities.
      max_position_embeddings: longest sequence.
      type_vocab_size: token types (segments).
      initializer_range: standard deviation of the truncated normal of initial weights.

    Raises InputError for a value of the wrong kind, out of range or not divisible as it must be.
    """

    vocab_size: int
    embedding_size: int = 128
    hidden_size: int = 4096
    num_hidden_layers: int = 12
    num_hidden_groups: int = 1
    num_attention_heads: int = 64
    intermediate_size: int = 16384
    inner_group_num: int = 1
    down_scale_factor: int = 1
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.0
    attention_probs_dropout_prob: float = 0.0
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02

    def __post_init__(self):
        for field in dataclasses.fields(self):
            _check_value(field.name, field.type, getattr(self, field.name))
        parts = {"hidden_size": "num_attention_heads", "num_hidden_layers": "num_hidden_groups"}
        for whole, part in parts.items():
            if getattr(self, whole) % getattr(self, part):
                raise file_io.InputError(
                    f"{whole} must be a multiple of {part}; "
                    f"got {getattr(self, whole)} and {getattr(self, part)}"
                )

    @classmethod
    def from_dict(cls, values):
        """Makes a configuration from a dict such as a parsed ``albert_config.json``.

        Keys of released files that have no effect are ignored, other unknown keys are ignored with
        one warning that lists them.

        Raises:
          InputError: `vocab_size` is missing, a key looks like a misspelt one, a value is wrong,
            or the file describes another network (pre-norm layers, another epsilon).
        """
        if not isinstance(values, dict):
            raise file_io.InputError(f"must be a JSON object, got {type(values).__name__}")
        names = [field.name for field in dataclasses.fields(cls)]
        unknown = [key for key in values if key not in names and key not in _LEGACY_KEYS]
        for key in unknown:
            close = difflib.get_close_matches(key.lower(), names, 1, 0.85)
            if close:
                raise file_io.InputError(f"unknown key {key!r}; did you mean {close[0]!r}?")
        for key, required in _REQUIRED_VALUES.items():
            if values.get(key, required) != required:
                raise file_io.InputError(
                    f"{key} {values[key]!r} is not supported: this toolkit computes {required!r}"
                )
        if "vocab_size" not in values:
            raise file_io.InputError("the required key 'vocab_size' is missing")
        if unknown:
            logging.warning("Unknown keys of the configuration ignored: %s", ", ".join(unknown))
        known = {name: values[name] for name in names if name in values}
        if known.get("hidden_act") in _TANH_GELU_ALIASES:
            known["hidden_act"] = "gelu"
        return cls(**known)

    @classmethod
    def from_json_file(cls, path):
        """Reads ``albert_config.json``; the errors of `from_dict` then name the file."""
        values = file_io.read_json(path, "ALBERT configuration")
        try:
            return cls.from_dict(values)
        except file_io.InputError as error:
            raise file_io.InputError(f"ALBERT configuration {path}: {error}") from error

    def to_dict(self):
        """All values as a dict that `from_dict` reads."""
        return dataclasses.asdict(self)

    def to_json_string(self):
        """All values as indented JSON with a final line end."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n"


def _check_value(name, kind, value):
    """Raises InputError unless `value` is of the kind and in the range that `name` demands."""
    if kind is str:
        wanted = f"one of {', '.join(_ACTIVATIONS)}"
        right = isinstance(value, str) and value in _ACTIVATIONS
    elif not isinstance(value, (int, float)) or isinstance(value, bool):
        wanted, right = "a number", False
    elif kind is int:
        wanted, right = "an integer of at least 1", isinstance(value, int) and value >= 1
    elif name.endswith("dropout_prob"):
        wanted, right = "at least 0 and below 1", 0 <= value < 1
    else:
        wanted, right = "above 0 and finite", 0 < value < math.inf
    if not right:
        raise file_io.InputError(f"{name} must be {wanted}; got {value!r}")


def activation(name):
    """The function that `AlbertConfig.hidden_act` names."""
    return _ACTIVATIONS[name]


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

    def __call__(self, x):
        y = tf.matmul(x, tf.cast(self.kernel, x.dtype))
        return y if self.bias is None else tf.nn.bias_add(y, tf.cast(self.bias, x.dtype))


class LayerNorm(tf.Module):
    """Normalises the last axis (biased variance) in float32; returns the type of its input."""

    def __init__(self, name, size):
        super().__init__()
        self.gamma = tf.Variable(tf.ones([size]), name=f"{name}/gamma")
        self.beta = tf.Variable(tf.zeros([size]), name=f"{name}/beta")

    def __call__(self, x):
        wide = tf.cast(x, tf.float32)
        centered = wide - tf.reduce_mean(wide, -1, keepdims=True)
        variance = tf.reduce_mean(tf.square(centered), -1, keepdims=True)
        normal = centered * tf.math.rsqrt(variance + LAYER_NORM_EPSILON)
        return tf.cast(normal * self.gamma + self.beta, x.dtype)


class Dropout:
    """Dropout whose masks are a function of a seed and of the name of the place in the network.

    Args:
      training: whether anything is dropped at all.
      seed: int32 tensor [2]; None draws a fresh one.
    """

    def __init__(self, training, seed=None):
        self.training = training
        self._seed = seed

    def __call__(self, x, rate, site):
        """x with elements set to 0 at `rate` and the others scaled up; x itself at rate 0."""
        if not self.training or not rate:
            return x
        if self._seed is None:
            self._seed = tf.random.uniform([2], maxval=tf.int32.max, dtype=tf.int32)
        seed = tf.random.fold_in(self._seed, zlib.crc32(site.encode()) & 0x7FFFFFFF)
        return tf.nn.experimental.stateless_dropout(x, rate, seed)


class _PaddedLayout:
    """Says where the rows of a [T, width] matrix sit in the batch: row b * S + s.

    Only attention needs to know. Everything else in the encoder works on rows, so a layout that
    holds the real tokens alone can take the place of this one.
    """

    def __init__(self, batch, length, input_mask):
        self._batch = batch
        self._length = length
        self.attention_bias = None  # [B, 1, 1, S], added to attention scores
        if input_mask is not None:
            mask = tf.cast(input_mask, tf.float32)[:, tf.newaxis, tf.newaxis, :]
            self.attention_bias = (1.0 - mask) * -10000.0

    def unflatten(self, x):
        """[T, width] -> [B, S, width]."""
        return tf.reshape(x, [self._batch, self._length, x.shape[-1]])

    def split_heads(self, x, heads):
        """[T, H] -> [B, N, S, D]."""
        x = tf.reshape(x, [self._batch, self._length, heads, x.shape[-1] // heads])
        return tf.transpose(x, [0, 2, 1, 3])

    def merge_heads(self, x):
        """[B, N, S, D] -> [T, H]."""
        return tf.reshape(tf.transpose(x, [0, 2, 1, 3]), [-1, x.shape[1] * x.shape[3]])


class _SelfAttention(tf.Module):
    """Multi-head scaled dot-product self attention with its output projection."""

    def __init__(self, name, config, seed):
        super().__init__(name="self_attention")
        size = config.hidden_size
        self._heads = config.num_attention_heads
        self._dropout_rate = config.attention_probs_dropout_prob
        self.query = Dense(f"{name}/self/query", size, size, config, seed)
        self.key = Dense(f"{name}/self/key", size, size, config, seed)
        self.value = Dense(f"{name}/self/value", size, size, config, seed)
        self.output = Dense(f"{name}/output/dense", size, size, config, seed)

    def __call__(self, hidden, layout, dropout, site):
        scale = (hidden.shape[-1] // self._heads) ** -0.5
        # Scaling the queries costs S / D times less than scaling the scores.
        query = layout.split_heads(self.query(hidden) * scale, self._heads)  # [B, N, S, D]
        key = layout.split_heads(self.key(hidden), self._heads)
        value = layout.split_heads(self.value(hidden), self._heads)
        scores = tf.cast(tf.matmul(query, key, transpose_b=True), tf.float32)  # [B, N, S, S]
        if layout.attention_bias is not None:
            scores += layout.attention_bias
        probabilities = tf.cast(tf.nn.softmax(scores), hidden.dtype)
        probabilities = dropout(probabilities, self._dropout_rate, f"{site}/probabilities")
        return self.output(layout.merge_heads(tf.matmul(probabilities, value)))  # [T, H]


class _Block(tf.Module):
    """Attention and feed-forward, each followed by dropout, residual sum and LayerNorm."""

    def __init__(self, name, config, seed):
        super().__init__(name="block")
        hidden, inner = config.hidden_size, config.intermediate_size
        self._dropout_rate = config.hidden_dropout_prob
        self._activation = activation(config.hidden_act)
        feed_forward = f"{name}/ffn_1/intermediate"
        self.attention = _SelfAttention(f"{name}/attention_1", config, seed)
        self.attention_norm = LayerNorm(f"{name}/LayerNorm", hidden)
        self.intermediate = Dense(f"{feed_forward}/dense", hidden, inner, config, seed)
        self.output = Dense(f"{feed_forward}/output/dense", inner, hidden, config, seed)
        self.output_norm = LayerNorm(f"{name}/LayerNorm_1", hidden)

    def __call__(self, hidden, layout, dropout, site):
        attended = self.attention(hidden, layout, dropout, f"{site}/attention")  # [T, H]
        attended = dropout(attended, self._dropout_rate, f"{site}/attention_output")
        hidden = self.attention_norm(hidden + attended)
        # For inference TensorFlow fuses the plain gelu with the matrix product itself.
        fuse = dropout.training and self._activation is _ACTIVATIONS["gelu"]
        expanded = self.intermediate(hidden)  # [T, I]
        expanded = fused.gelu(expanded) if fuse else self._activation(expanded)
        output = dropout(self.output(expanded), self._dropout_rate, f"{site}/output")  # [T, H]
        return self.output_norm(hidden + output)


class _Embeddings(tf.Module):
    """Sum of word, token type and position embeddings, normalised."""

    def __init__(self, name, config, seed):
        super().__init__(name="embeddings")
        self._dropout_rate = config.hidden_dropout_prob

        def table(key, rows):
            return normal_variable(f"{name}/{key}", [rows, config.embedding_size], config, seed)

        self.word_embeddings = table("word_embeddings", config.vocab_size)
        self.token_type_embeddings = table("token_type_embeddings", config.type_vocab_size)
        self.position_embeddings = table("position_embeddings", config.max_position_embeddings)
        self.layer_norm = LayerNorm(f"{name}/LayerNorm", config.embedding_size)

    def __call__(self, input_ids, token_type_ids, dropout):
        """[B, S] ids -> the words' embeddings and the whole embeddings, both [B, S, E]."""
        words = tf.gather(self.word_embeddings, input_ids)
        if token_type_ids is None:
            types = self.token_type_embeddings[0]
        else:
            types = tf.gather(self.token_type_embeddings, token_type_ids)
        positions = self.position_embeddings[: _dimension(input_ids, 1)]  # [S, E]
        embeddings = self.layer_norm(words + types + positions)
        return words, dropout(embeddings, self._dropout_rate, "embeddings")


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
    """

    def __init__(self, config, seed=None):
        super().__init__()
        self.config = config
        self._embeddings = _Embeddings("bert/embeddings", config, seed)
        size = config.hidden_size
        self._mapping = None
        if config.embedding_size != size:
            name = "bert/encoder/embedding_hidden_mapping_in"
            self._mapping = Dense(name, config.embedding_size, size, config, seed)
        self._groups = [
            [
                _Block(f"bert/encoder/transformer/group_{g}/inner_group_{i}", config, seed)
                for i in range(config.inner_group_num)
            ]
            for g in range(config.num_hidden_groups)
        ]
        self._pooler = Dense("bert/pooler/dense", size, size, config, seed)

    @property
    def embedding_table(self):
        """Variable [V, E]: the word embeddings, which the masked LM head uses again."""
        return self._embeddings.word_embeddings

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
        input_ids = tf.convert_to_tensor(input_ids)
        self._check_length(input_ids)
        dropout = Dropout(training, seed)
        layout = _PaddedLayout(_dimension(input_ids, 0), _dimension(input_ids, 1), input_mask)
        words, embeddings = self._embeddings(input_ids, token_type_ids, dropout)

        hidden = tf.reshape(embeddings, [-1, embeddings.shape[-1]])  # [T, E]
        if self._mapping is not None:
            hidden = self._mapping(hidden)  # [T, H]
        layers = []
        count = self.config.num_hidden_layers
        for layer in range(count):
            # Layers of one group run the same objects: this is the sharing of parameters.
            group = self._groups[layer * len(self._groups) // count]
            for inner, block in enumerate(group):
                hidden = block(hidden, layout, dropout, f"layer_{layer}/inner_{inner}")
                layers.append(layout.unflatten(hidden))  # [B, S, H]
        pooled = tf.tanh(self._pooler(layers[-1][:, 0]))  # [B, H]
        return AlbertOutput(words, embeddings, tuple(layers), layers[-1], pooled)

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
