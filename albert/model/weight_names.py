"""Maps names of weights to those of other programs: Hugging Face's ALBERT and BERT, Google's BERT.

Only the tables of this module have both names. "here" is this package, "there" the other program.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from albert.io import file_io

# Endings of the names of a module's variables: (here, there).
_ENDINGS = {
    "table": (("", ".weight"),),
    "dense": (("/kernel", ".weight"), ("/bias", ".bias")),
    "norm": (("/gamma", ".weight"), ("/beta", ".bias")),
    "labels": (("output_weights", ".weight"), ("output_bias", ".bias")),
    "bias": (("", ".bias"),),
}
_BLOCK = "bert/encoder/transformer/group_{}/inner_group_{}/"
BLOCK_MATRICES = re.compile(r"^bert/encoder/transformer/.*/kernel$")
MAPPING = "bert/encoder/embedding_hidden_mapping_in/"
WORDS = "bert/embeddings/word_embeddings"
TOKEN_TYPES = "bert/embeddings/token_type_embeddings"
ENCODER_PREFIX = "bert/"  # also of the pooler
POOLER = "bert/pooler/"
TOKEN_HEAD = "cls/token/"  # for one label per word
BY_PIECE = (WORDS, "cls/predictions/output_bias")  # variables with a row for each piece
WORDS_HEAD = "cls/predictions/"  # for masked words


# Values that training adds to the weights in a checkpoint.
STEP = "global_step"
ADAM_SLOTS = ("adam_m", "adam_v")  # the mean gradient and the mean squared gradient
MOMENTUM = "momentum"  # the mean gradient of a matrix
AVERAGE = "average"  # the mean of a weight over the last steps; of the step: their number
LOSS_SCALE = "loss_scale/"  # prefix of the variables of loss scaling


class Architecture(NamedTuple):
    """The names that transformers gives the weights of an architecture.

    Rows are (key of `_ENDINGS`, name here, name there).

    Attributes:
      model_type: its name in ``config.json``; followed by a dot it is the prefix of the encoder's
        weights, except in a model without a head.
      class_name: prefix of its class names.
      modules: rows of all modules except the blocks.
      block: format of the prefix of a block's names there, from its group and its number in it.
      block_pattern: finds both numbers in a name.
      block_modules: rows of a block, without the prefix.
      words: prefix of the head for masked words.
    """

    model_type: str
    class_name: str
    modules: tuple
    block: str
    block_pattern: re.Pattern
    block_modules: tuple
    words: str


_SHARED_MODULES = (
    ("table", WORDS, "embeddings.word_embeddings"),
    ("table", "bert/embeddings/token_type_embeddings", "embeddings.token_type_embeddings"),
    ("table", "bert/embeddings/position_embeddings", "embeddings.position_embeddings"),
    ("norm", "bert/embeddings/LayerNorm", "embeddings.LayerNorm"),
    ("labels", "cls/squad/", "qa_outputs"),
)
ALBERT = Architecture(
    model_type="albert",
    class_name="Albert",
    modules=(
        *_SHARED_MODULES,
        ("dense", MAPPING[:-1], "encoder.embedding_hidden_mapping_in"),
        ("dense", "bert/pooler/dense", "pooler"),
        ("dense", "cls/predictions/transform/dense", "predictions.dense"),
        ("norm", "cls/predictions/transform/LayerNorm", "predictions.LayerNorm"),
        ("bias", "cls/predictions/output_bias", "predictions"),
        ("labels", "cls/seq_relationship/", "sop_classifier.classifier"),
    ),
    block="encoder.albert_layer_groups.{}.albert_layers.{}.",
    block_pattern=re.compile(
        r"\bencoder\.albert_layer_groups\.(\d{1,6})\.albert_layers\.(\d{1,6})\."
    ),
    block_modules=(
        ("dense", "attention_1/self/query", "attention.query"),
        ("dense", "attention_1/self/key", "attention.key"),
        ("dense", "attention_1/self/value", "attention.value"),
        ("dense", "attention_1/output/dense", "attention.dense"),
        ("norm", "LayerNorm", "attention.LayerNorm"),
        ("dense", "ffn_1/intermediate/dense", "ffn"),
        ("dense", "ffn_1/intermediate/output/dense", "ffn_output"),
        ("norm", "LayerNorm_1", "full_layer_layer_norm"),
    ),
    words="predictions.",
)
BERT = Architecture(
    model_type="bert",
    class_name="Bert",
    modules=(
        *_SHARED_MODULES,
        ("dense", "bert/pooler/dense", "pooler.dense"),
        ("dense", "cls/predictions/transform/dense", "cls.predictions.transform.dense"),
        ("norm", "cls/predictions/transform/LayerNorm", "cls.predictions.transform.LayerNorm"),
        ("bias", "cls/predictions/output_bias", "cls.predictions"),
        ("labels", "cls/seq_relationship/", "cls.seq_relationship"),
    ),
    block="encoder.layer.{}.",
    block_pattern=re.compile(r"\bencoder\.layer\.(\d{1,6})()\."),
    block_modules=(
        ("dense", "attention_1/self/query", "attention.self.query"),
        ("dense", "attention_1/self/key", "attention.self.key"),
        ("dense", "attention_1/self/value", "attention.self.value"),
        ("dense", "attention_1/output/dense", "attention.output.dense"),
        ("norm", "LayerNorm", "attention.output.LayerNorm"),
        ("dense", "ffn_1/intermediate/dense", "intermediate.dense"),
        ("dense", "ffn_1/intermediate/output/dense", "output.dense"),
        ("norm", "LayerNorm_1", "output.LayerNorm"),
    ),
    words="cls.predictions.",
)
ARCHITECTURES = {"albert": ALBERT, "bert": BERT}

_GOOGLE_LAYER = re.compile(r"bert/encoder/layer_(\d+)/")
_OUR_BLOCK = re.compile(r"bert/encoder/transformer/group_(\d+)/inner_group_(\d+)/")
# Names of LayerNorm variables in older files.
_OLD_ENDINGS = {".gamma": ".weight", ".beta": ".bias"}


def name_table(
    groups: int, inner_groups: int, architecture: Architecture = ALBERT, labels_tokens: bool = False
) -> dict[str, str]:
    """Builds {variable name here: tensor name there} of the encoder and of every head.

    Args:
      labels_tokens: whether the classifier labels words, not texts; there both have one name.
    """
    modules = [*architecture.modules, ("labels", TOKEN_HEAD if labels_tokens else "", "classifier")]
    for group in range(groups):
        for inner in range(inner_groups):
            ours, theirs = (block.format(group, inner) for block in (_BLOCK, architecture.block))
            modules += [(kind, ours + a, theirs + b) for kind, a, b in architecture.block_modules]
    return {
        ours + our_end: full_name(theirs + their_end, architecture)
        for kind, ours, theirs in modules
        for our_end, their_end in _ENDINGS[kind]
    }


def count_blocks(names: Iterable[str], architecture: Architecture) -> tuple[int, ...]:
    """Counts the groups, and the blocks per group, in names there; (0, 0) if there are none."""
    matches = filter(None, map(architecture.block_pattern.search, names))
    blocks = {tuple(int(number or 0) for number in match.groups()): match[0] for match in matches}
    for numbers, name in blocks.items():
        if max(numbers) >= len(blocks):
            raise file_io.InputError(
                f"there is a weight {name}… but only {len(blocks)} blocks in total"
            )
    return tuple(max(column) + 1 for column in zip(*blocks, strict=True)) or (0, 0)


def full_name(name: str, architecture: Architecture) -> str:
    """Returns the current name, with the prefix that names have in a model with a head."""
    for old, new in _OLD_ENDINGS.items():
        name = name.removesuffix(old) + new if name.endswith(old) else name
    is_bare = name.startswith(("embeddings.", "encoder.", "pooler."))
    return f"{architecture.model_type}.{name}" if is_bare else name


# --- google-research/bert -------------------------------------------------------------------------


def from_google(name: str) -> str:
    """Returns the name here of a google-research/bert variable or its optimizer slot.

    A layer there is a group of one block here; all other names are the same.
    """
    match = _GOOGLE_LAYER.match(name)
    if not match:
        return name
    rest = name[match.end() :]
    for _, ours, theirs in BERT.block_modules:
        theirs = theirs.replace(".", "/") + "/"
        if rest.startswith(theirs):
            return f"{_BLOCK.format(match[1], 0)}{ours}/{rest.removeprefix(theirs)}"
    return name


def repeat_token_type(tensors: Mapping[str, Any], count: int) -> dict[str, Any]:
    """Returns the tensors with `count` token types, for programs that look up each segment's.

    Copies the only row of a model with one token type; other models stay as they are. `count` is
    `AlbertConfig.segment_limit`.
    """
    table = tensors.get(TOKEN_TYPES)
    if table is None or len(table) >= count:
        return dict(tensors)
    return {**tensors, TOKEN_TYPES: np.repeat(np.asarray(table), count, axis=0)}


# --- sizes ----------------------------------------------------------------------------------------


def sizes(shapes: Mapping[str, Any]) -> dict[str, int]:
    """Derives sizes of a configuration from {name here: shape}; {} without an encoder."""
    numbers = [tuple(map(int, match.groups())) for match in map(_OUR_BLOCK.match, shapes) if match]
    norm = _BLOCK.format(0, 0) + "LayerNorm/beta"
    if norm not in shapes or WORDS not in shapes:
        return {}
    groups, inner = (max(column) + 1 for column in zip(*numbers, strict=True))
    vocabulary, embedding = shapes[WORDS]
    first_axes = {
        "max_position_embeddings": "bert/embeddings/position_embeddings",
        "type_vocab_size": TOKEN_TYPES,
        "intermediate_size": _BLOCK.format(0, 0) + "ffn_1/intermediate/dense/bias",
    }
    return {
        "vocab_size": vocabulary,
        "embedding_size": embedding,
        "hidden_size": shapes[norm][0],
        "num_hidden_groups": groups,
        "inner_group_num": inner,
        **{size: shapes[name][0] for size, name in first_axes.items() if name in shapes},
    }


def architecture_of(shapes: Mapping[str, Any]) -> Architecture:
    """Returns `BERT` if the embeddings have the hidden size and no layers share weights."""
    actual_sizes = sizes(shapes)
    is_bert = (
        bool(actual_sizes)
        and actual_sizes["num_hidden_groups"] > actual_sizes["inner_group_num"] == 1
        and actual_sizes["embedding_size"] == actual_sizes["hidden_size"]
    )
    return BERT if is_bert else ALBERT


def explain_mismatch(checkpoint: Mapping[str, Any], model: Mapping[str, Any]) -> str:
    """Explains which sizes of a checkpoint differ from the model's; "" if no difference is known.

    The arguments are shapes of variables by name here.
    """
    there, here = sizes(checkpoint), sizes(model)
    differing = [f"{k} {there[k]} ({here[k]})" for k in there if there[k] != here.get(k)]
    if not differing or not here:
        return ""
    is_bert = architecture_of(checkpoint) is BERT
    kind, file = ("a BERT", "bert_config.json") if is_bert else ("an ALBERT", "albert_config.json")
    return (
        f"its weights are of {kind} with {', '.join(differing)}; brackets have the values of the "
        f"configuration. Give the model's own {file} or config.json as albert_config_file"
    )


# --- reading --------------------------------------------------------------------------------------


class CheckpointReader(Protocol):
    """The methods of a `tf.train.CheckpointReader` that are used; readers of other formats too."""

    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        """Returns {name of a variable: shape as a list}."""

    def has_tensor(self, name: str) -> bool:
        """Returns whether there is a value for a variable."""

    def get_tensor(self, name: str) -> np.ndarray:
        """Returns the value of a variable."""


class RenamingReader:
    """A reader of a checkpoint's variables by their names here.

    Args:
      keys: {name here: key in the checkpoint}.
    """

    def __init__(self, checkpoint: CheckpointReader, keys: Mapping[str, str]) -> None:
        self._checkpoint = checkpoint
        self._keys = keys

    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        shapes = self._checkpoint.get_variable_to_shape_map()
        return {name: shapes[key] for name, key in self._keys.items()}

    def has_tensor(self, name: str) -> bool:
        return name in self._keys

    def get_tensor(self, name: str) -> np.ndarray:
        return self._checkpoint.get_tensor(self._keys[name])


# Reads a checkpoint as one of a model with these names of variables.
View = Callable[[CheckpointReader, Collection[str]], CheckpointReader]


def renamed(rename: Callable[[str], str]) -> View:
    """Returns the view in which a variable has the value of the one that `rename` names."""

    def read(checkpoint: CheckpointReader, names: Collection[str]) -> CheckpointReader:
        keys = {name: rename(name) for name in names if checkpoint.has_tensor(rename(name))}
        return RenamingReader(checkpoint, keys)

    return read


def training_state(names: Iterable[str]) -> set[str]:
    """Returns the names of a checkpoint that are not weights: step, slots and loss scale."""
    names = set(names)
    # A slot has the name of its variable with one more part.
    slots = {name for name in names if name.rpartition("/")[0] in names}
    return slots | {name for name in names if name == STEP or name.startswith(LOSS_SCALE)}
