"""The configuration of a model: its sizes and rates, read from the files of ALBERT and of BERT.

Letters: V vocabulary, E embedding, H hidden, I intermediate, N heads, L layers.
"""

import contextlib
import dataclasses
import difflib
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from absl import logging

from albert.io import file_io

# Limits far above every published model: larger values would exhaust memory before any check.
_MAX_VALUES = {"num_hidden_layers": 10_000, "num_hidden_groups": 10_000, "inner_group_num": 1_000}
_MAX_PARAMETERS = 10**12
SHARING = ("all", "attention", "ffn", "none")  # values of `AlbertConfig.share`
GROUP_ORDERS = ("sequence", "cycle")  # values of `AlbertConfig.group_order`
POSITION_INITIALIZERS = ("normal", "sinusoidal")  # of `AlbertConfig.position_initializer`
ACTIVATIONS = ("gelu", "gelu_erf", "relu", "tanh", "linear")  # `layers.ACTIVATIONS` computes them
LAYER_NORM_EPSILON = 1e-12

# Other names of the tanh approximation of gelu.
_TANH_GELU_ALIASES = ("gelu_new", "gelu_pytorch_tanh", "gelu_fast")
# Keys that only Hugging Face files have; in these "gelu" is the exact function.
_HUGGINGFACE_KEYS = {"model_type", "architectures", "transformers_version"}
_EXACT_GELU = ("gelu", "gelu_python")
# Keys that only this package knows, with the values that other programs compute.
OWN_KEYS = {
    "share": "all",
    "group_order": "sequence",
    "layer_scales": False,
    "position_initializer": "normal",
}
INITIAL_KEYS = ("initializer_range", "position_initializer")  # only choose the initial weights
# Keys of ALBERT's configuration that BERT's does not have.
_ALBERT_KEYS = {"embedding_size", "num_hidden_groups", "inner_group_num"}
# Required keys of BERT's configuration; every bert_config.json has them.
_BERT_KEYS = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads"),
    *("intermediate_size", "hidden_act", "max_position_embeddings", "type_vocab_size"),
)

# Keys of released configurations that do not affect the computation.
_LEGACY_KEYS = frozenset(
    "_name_or_path add_cross_attention architectures bos_token_id classifier_dropout "
    "classifier_dropout_prob directionality dtype eos_token_id gap_size gradient_checkpointing "
    "id2label is_decoder label2id layer_norm_eps layers_to_keep ln_type model_type "
    "net_structure_type net_type num_memory_blocks output_past pad_token_id pooler_fc_size "
    "pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head pooler_type "
    "position_embedding_type problem_type tie_word_embeddings torch_dtype "
    "transformers_version use_cache".split()  # noqa: SIM905
)
# Keys whose other values describe a network that is not implemented here.
_REQUIRED_VALUES = {
    "ln_type": "postln",
    "layer_norm_eps": LAYER_NORM_EPSILON,
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
}


@dataclasses.dataclass(frozen=True)
class AlbertConfig:
    """Sizes and rates of a model, validated on construction.

    Attributes:
      vocab_size, embedding_size, hidden_size: V, E, H.
      num_attention_heads, intermediate_size, num_hidden_layers: N, I, L.
      num_hidden_groups: number of parameter sets that they share; see `group_order`.
      share: the parameters that all layers share: "all" (see `num_hidden_groups`), "attention"
        (each layer has its own feed-forward part), "ffn" (each layer has its own attention) or
        "none" (section 4.5 of ALBERT). The LayerNorm after a part belongs to it.
      group_order: the group of layer i: "sequence" (i * groups // L, so that neighbors share) or
        "cycle" (i % groups, so that with two groups every second layer shares).
      layer_scales: whether each layer has a scale and a bias for its output, initially 1 and 0.
      inner_group_num: number of blocks in a layer, each with its own parameters.
      down_scale_factor: kept for old files, unused.
      hidden_act: "gelu" (tanh approximation), "gelu_erf" (exact), "relu", "tanh" or "linear".
      hidden_dropout_prob: dropout rate of embeddings and of both outputs of a block.
      attention_probs_dropout_prob: dropout rate of attention probabilities.
      max_position_embeddings: longest sequence.
      type_vocab_size: token types (segments); with 1, all segments have the same type (as in
        RoBERTa, Liu et al., 2019, whose pre-training has no second text), see `segment_limit`.
      initializer_range: standard deviation of the truncated normal of initial weights.
      position_initializer: initial position embeddings: "normal" as other weights, or "sinusoidal"
        (section 3.5 of Attention Is All You Need, Vaswani et al., 2017) of the same size; both are
        trained.

    Raises InputError if a value has the wrong type, is out of range or not divisible as required.
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
    share: str = "all"
    group_order: str = "sequence"
    layer_scales: bool = False
    position_initializer: str = "normal"

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            _check_value(field.name, field.type, getattr(self, field.name))
        parts = {"hidden_size": "num_attention_heads", "num_hidden_layers": "num_hidden_groups"}
        for whole, part in parts.items():
            if getattr(self, whole) % getattr(self, part):
                raise file_io.InputError(
                    f"{whole} must be a multiple of {part}; "
                    f"got {getattr(self, whole)} and {getattr(self, part)}"
                )
        self._check_memory()
        if self.share != "all" and self.num_hidden_groups != 1:
            raise file_io.InputError(
                f"share={self.share} needs num_hidden_groups=1, as it says which parameters layers "
                f"share; got {self.num_hidden_groups}"
            )

    def _check_memory(self) -> None:
        """Rejects sizes that are valid individually but too large together."""
        block = self.hidden_size * (4 * self.hidden_size + 2 * self.intermediate_size)
        blocks = max(self.num_attention_groups, self.num_ffn_groups) * self.inner_group_num
        positions = self.vocab_size + self.max_position_embeddings + self.type_vocab_size
        count = blocks * block + self.embedding_size * (positions + self.hidden_size)
        if count > _MAX_PARAMETERS:
            raise file_io.InputError(
                f"hidden_size {self.hidden_size}, intermediate_size {self.intermediate_size}, "
                f"vocab_size {self.vocab_size}, embedding_size {self.embedding_size}, "
                f"max_position_embeddings {self.max_position_embeddings}, type_vocab_size "
                f"{self.type_vocab_size} and {blocks} blocks make up to {count:.1e} parameters, "
                f"more than {_MAX_PARAMETERS:.0e}"
            )

    @property
    def num_attention_groups(self) -> int:
        """Number of groups with their own attention parameters, each of inner_group_num blocks."""
        return self.num_hidden_layers if self.share in ("ffn", "none") else self.num_hidden_groups

    @property
    def num_ffn_groups(self) -> int:
        """Number of groups with their own feed-forward part, each of inner_group_num blocks."""
        own = self.share in ("attention", "none")
        return self.num_hidden_layers if own else self.num_hidden_groups

    @property
    def segment_limit(self) -> int:
        """Number below which segment ids must be, at least 2, as every model accepts two texts."""
        return max(self.type_vocab_size, 2)

    def is_length(self, value: object) -> bool:
        """Returns whether a value is a number of tokens that the model accepts."""
        return type(value) is int and 0 < value <= self.max_position_embeddings  # no bool

    def groups_of(self, layer: int) -> tuple[int, ...]:
        """Returns the indices of the attention and the feed-forward part that a layer uses."""
        groups = self.num_attention_groups, self.num_ffn_groups
        if self.group_order == "cycle":
            return tuple(layer % count for count in groups)
        return tuple(layer * count // self.num_hidden_layers for count in groups)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "AlbertConfig":
        """Builds a configuration from a dict such as a parsed ``albert_config.json``.

        Ignores keys of released files that have no effect. Ignores other unknown keys with one
        warning that lists them, but rejects keys that look misspelled.
        """
        if not isinstance(values, dict):
            raise file_io.InputError(f"must be a JSON object, got {type(values).__name__}")
        kind = values.get("model_type", "albert")
        if kind != "albert":
            hint = "; read a BERT configuration with from_bert_json_file" if kind == "bert" else ""
            raise file_io.InputError(f"model_type is {kind!r}, expected 'albert'{hint}")
        names = [field.name for field in dataclasses.fields(cls)]
        _check_keys(values, names)
        arguments = {name: values[name] for name in names if name in values}
        is_exact = _HUGGINGFACE_KEYS & values.keys() and values.get("hidden_act") in _EXACT_GELU
        if is_exact or arguments.get("hidden_act") in _TANH_GELU_ALIASES:
            arguments["hidden_act"] = "gelu_erf" if is_exact else "gelu"
        return cls(**arguments)

    @classmethod
    def from_json_file(cls, path: str) -> "AlbertConfig":
        """Reads ``albert_config.json``; the errors of `from_dict` then name the file.

        A BERT configuration is read as by `from_bert_json_file`. It is recognized by its
        `model_type` "bert" or, without a `model_type`, by having all keys of google-research/bert's
        ``bert_config.json`` and none of ALBERT's own.
        """
        values = file_io.read_json(path, "ALBERT configuration")
        with _naming(f"ALBERT configuration {path}"):
            if not _is_bert(values):
                return cls.from_dict(values)
            logging.info("%s is a BERT configuration: E = H, one group per layer", path)
            return cls._from_bert_dict(values)

    @classmethod
    def from_bert_json_file(cls, path: str) -> "AlbertConfig":
        """Reads a BERT configuration: E = H, and as many groups as layers.

        It is ``bert_config.json`` of google-research/bert, whose "gelu" is the tanh approximation,
        or ``config.json`` of Hugging Face's BertModel, whose "gelu" is exact.
        """
        values = file_io.read_json(path, "BERT configuration")
        with _naming(f"BERT configuration {path}"):
            return cls._from_bert_dict(values)

    @classmethod
    def _from_bert_dict(cls, values: object) -> "AlbertConfig":
        if not isinstance(values, dict):
            raise file_io.InputError(f"must be a JSON object, got {type(values).__name__}")
        missing = [key for key in _BERT_KEYS if key not in values]
        if missing:
            raise file_io.InputError(f"the required keys {missing} are missing")
        implied = {
            "embedding_size": values["hidden_size"],
            "num_hidden_groups": values["num_hidden_layers"],
            "inner_group_num": 1,
        }
        for key, value in (*implied.items(), ("model_type", "bert")):
            if key in values and values[key] != value:
                raise file_io.InputError(
                    f"{key} is {values[key]!r}; a BERT of this size has {value!r}. Read an ALBERT "
                    "configuration with from_json_file"
                )
        if "model_type" in values:
            implied["model_type"] = "albert"
        rates = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.1)
        return cls.from_dict({**rates, **values, **implied})

    def to_dict(self) -> dict[str, Any]:
        """Returns all values as a dict for `from_dict`; omits usual values of keys of this package.

        Other programs that read these files only know the usual sharing.
        """
        values = dataclasses.asdict(self)
        return {key: value for key, value in values.items() if OWN_KEYS.get(key) != value}

    def to_json_string(self) -> str:
        """Returns all values as indented JSON with a final newline."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n"


def _check_keys(values: Mapping[str, Any], names: list[str]) -> None:
    """Rejects misspelled and missing keys, and values of other networks; warns of unknown keys."""
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


def _is_bert(values: object) -> bool:
    """Returns whether the content of a file is a BERT configuration."""
    if not isinstance(values, dict) or "model_type" in values:
        return isinstance(values, dict) and values["model_type"] == "bert"
    return set(_BERT_KEYS) <= values.keys() and not _ALBERT_KEYS & values.keys()


@contextlib.contextmanager
def _naming(file: str) -> Iterator[None]:
    """Puts the file's name in front of the message of an InputError."""
    try:
        yield
    except file_io.InputError as error:
        raise file_io.InputError(f"{file}: {error}") from error


def _check_value(name: str, kind: object, value: Any) -> None:
    """Raises InputError unless `value` has the type and range that `name` requires."""
    if kind is str:
        own = {
            "share": SHARING,
            "group_order": GROUP_ORDERS,
            "position_initializer": POSITION_INITIALIZERS,
        }
        choices = own.get(name, ACTIVATIONS)
        expected = f"one of {', '.join(choices)}"
        is_valid = isinstance(value, str) and value in choices
    elif kind is bool:
        expected, is_valid = "true or false", isinstance(value, bool)
    elif not isinstance(value, (int, float)) or isinstance(value, bool):
        expected, is_valid = "a number", False
    elif kind is int:
        limit = _MAX_VALUES.get(name, 10**8)
        expected = f"at most {limit}" if value > limit else "an integer of at least 1"
        is_valid = isinstance(value, int) and 1 <= value <= limit
    elif name.endswith("dropout_prob"):
        expected, is_valid = "at least 0 and below 1", 0 <= value < 1
    else:
        expected, is_valid = "above 0 and finite", 0 < value < math.inf
    if not is_valid:
        raise file_io.InputError(f"{name} must be {expected}; got {value!r}")
