"""Hugging Face's ALBERT folders: names of weights, ``config.json``, both ways.

`name_table` is the one place that knows both names of a weight. A dense layer's matrix is stored
there as [outputs, inputs] and here as [inputs, outputs].

Letters in shapes: V vocabulary, E embedding, H hidden.
"""

import json
import os
import re

import numpy as np
from absl import logging

from albert import file_io

CONFIG_NAME = "config.json"
WEIGHTS_NAME = "model.safetensors"
MODEL_TYPE = "albert"
_INDEX_ENDING = ".safetensors.index.json"
_OLD_WEIGHTS = ("pytorch_model.bin", "tf_model.h5", "flax_model.msgpack")
_ENCODER = "albert."
# What the names of a module's variables end in: here, there.
_ENDINGS = {
    "table": (("", ".weight"),),
    "dense": (("/kernel", ".weight"), ("/bias", ".bias")),
    "norm": (("/gamma", ".weight"), ("/beta", ".bias")),
    "labels": (("output_weights", ".weight"), ("output_bias", ".bias")),
    "bias": (("", ".bias"),),
}
_MODULES = (
    ("table", "bert/embeddings/word_embeddings", "albert.embeddings.word_embeddings"),
    ("table", "bert/embeddings/token_type_embeddings", "albert.embeddings.token_type_embeddings"),
    ("table", "bert/embeddings/position_embeddings", "albert.embeddings.position_embeddings"),
    ("norm", "bert/embeddings/LayerNorm", "albert.embeddings.LayerNorm"),
    (
        "dense",
        "bert/encoder/embedding_hidden_mapping_in",
        "albert.encoder.embedding_hidden_mapping_in",
    ),
    ("dense", "bert/pooler/dense", "albert.pooler"),
    ("dense", "cls/predictions/transform/dense", "predictions.dense"),
    ("norm", "cls/predictions/transform/LayerNorm", "predictions.LayerNorm"),
    ("bias", "cls/predictions/output_bias", "predictions"),
    ("labels", "cls/seq_relationship/", "sop_classifier.classifier"),
    ("labels", "", "classifier"),
    ("labels", "cls/squad/", "qa_outputs"),
)
_BLOCK = (
    "bert/encoder/transformer/group_{}/inner_group_{}/",
    "albert.encoder.albert_layer_groups.{}.albert_layers.{}.",
)
_BLOCK_MODULES = (
    ("dense", "attention_1/self/query", "attention.query"),
    ("dense", "attention_1/self/key", "attention.key"),
    ("dense", "attention_1/self/value", "attention.value"),
    ("dense", "attention_1/output/dense", "attention.dense"),
    ("norm", "LayerNorm", "attention.LayerNorm"),
    ("dense", "ffn_1/intermediate/dense", "ffn"),
    ("dense", "ffn_1/intermediate/output/dense", "ffn_output"),
    ("norm", "LayerNorm_1", "full_layer_layer_norm"),
)
_BLOCK_PATTERN = re.compile(r"\.albert_layer_groups\.(\d+)\.albert_layers\.(\d+)\.")
_MAPPING = "bert/encoder/embedding_hidden_mapping_in/"
_WORDS = "bert/embeddings/word_embeddings"
_POOLER = "bert/pooler/"
# head -> (class of transformers, the prefixes of its own variables here)
HEADS = {
    "encoder": ("AlbertModel", ()),
    "pretraining": ("AlbertForPreTraining", ("cls/predictions/", "cls/seq_relationship/")),
    "masked_lm": ("AlbertForMaskedLM", ("cls/predictions/",)),
    "classification": ("AlbertForSequenceClassification", ("output_",)),
    "regression": ("AlbertForSequenceClassification", ("output_",)),
    "multiple_choice": ("AlbertForMultipleChoice", ("output_",)),
    "squad_v1": ("AlbertForQuestionAnswering", ("cls/squad/",)),
}
_WITHOUT_POOLER = ("masked_lm", "squad_v1")
_HIDDEN_ACT = {"gelu": "gelu_new"}  # the tanh approximation, which has this name there


def name_table(groups, inner_groups):
    """{variable name here: tensor name there} of the encoder and of every head.

    Args:
      groups: `num_hidden_groups`.
      inner_groups: `inner_group_num`.
    """
    modules = list(_MODULES)
    for group in range(groups):
        for inner in range(inner_groups):
            ours, theirs = (prefix.format(group, inner) for prefix in _BLOCK)
            modules += [(kind, ours + a, theirs + b) for kind, a, b in _BLOCK_MODULES]
    return {
        ours + our_end: theirs + their_end
        for kind, ours, theirs in modules
        for our_end, their_end in _ENDINGS[kind]
    }


# --- reading ------------------------------------------------------------------------------------


def is_weights_file(path):
    """True for the names of weights that `Reader` reads."""
    return path.endswith((".safetensors", _INDEX_ENDING))


def find_weights(folder):
    """Path of the weights in a Hugging Face folder; None if there are none.

    Raises:
      file_io.InputError: the folder holds weights of an older form only.
    """
    names = file_io.listdir(folder)
    found = [name for name in names if is_weights_file(name)]
    for name in (WEIGHTS_NAME, WEIGHTS_NAME + ".index.json", *found):
        if name in names:
            return os.path.join(folder, name)
    old = [name for name in _OLD_WEIGHTS if name in names]
    if old:
        raise file_io.InputError(
            f"{folder} holds {old[0]}, but no {WEIGHTS_NAME}, which is what can be read; write it "
            "with transformers: AutoModel.from_pretrained(folder).save_pretrained(folder)"
        )
    return None


def read_config(folder):
    """Dict of the ``config.json`` in a folder; empty if there is none.

    Raises:
      file_io.InputError: it is the configuration of another architecture.
    """
    path = os.path.join(folder, CONFIG_NAME)
    if not file_io.exists(path):
        return {}
    config = file_io.read_json(path, "Hugging Face configuration")
    found = config.get("model_type", MODEL_TYPE)
    if found != MODEL_TYPE:
        raise file_io.InputError(
            f"{folder} holds a model of the architecture {found!r} ({path}); only "
            f"{MODEL_TYPE!r} can be read"
        )
    if config.get("hidden_act") == "gelu":
        logging.warning(
            "%s asks for the exact gelu; its tanh approximation is computed, as in the original "
            "ALBERT. Outputs can differ from those of transformers by about 1e-3",
            path,
        )
    return config


def read_lower_case(folder):
    """Whether the tokenizer of a folder lower-cases; None if the folder does not say."""
    path = os.path.join(folder, "tokenizer_config.json")
    if not file_io.exists(path):
        return None
    return file_io.read_json(path, "Hugging Face tokenizer").get("do_lower_case")


class Reader:
    """Weights of a Hugging Face ALBERT model under the names of checkpoints.

    Offers what is used of `tf.train.CheckpointReader`. All values are float32.

    Args:
      path: ``.safetensors`` file, or the index of one that is split into several.

    Attributes:
      optional: prefixes of encoder variables that such a model may lack (models for masked words
        and for questions have no pooler).

    Raises:
      file_io.InputError: not such a file, a damaged one, another architecture, or a network that
        is not computed here.
    """

    optional = (_POOLER,)

    def __init__(self, path):
        folder = os.path.dirname(path) or "."
        config = read_config(folder)
        tensors = {_full_name(name): tensor for name, tensor in _read_tensors(path).items()}
        blocks = [tuple(map(int, m.groups())) for m in map(_BLOCK_PATTERN.search, tensors) if m]
        groups, inner = (
            (max(sizes) + 1 for sizes in zip(*blocks, strict=True)) if blocks else (0, 0)
        )
        table = name_table(groups, inner)
        if config.get("architectures") == ["AlbertForTokenClassification"]:
            # Its head bears the name of the one for whole texts.
            table = {n: t for n, t in table.items() if not t.startswith("classifier.")}
        self._tensors = {
            ours: tensors.pop(theirs) for ours, theirs in table.items() if theirs in tensors
        }
        self._check_tied(path, tensors)
        self._check_mapping(path)
        self._tensors.update(tensors)

    def _check_tied(self, path, rest):
        """Takes the second names of shared weights out of `rest`."""
        rest.pop("albert.embeddings.position_ids", None)  # 0, 1, 2, …
        bias = rest.pop("predictions.decoder.bias", None)
        if bias is not None:
            self._tensors.setdefault("cls/predictions/output_bias", bias)
        weights = rest.pop("predictions.decoder.weight", None)
        if weights is not None and not np.array_equal(weights, self._tensors.get(_WORDS)):
            raise file_io.InputError(
                f"{path}: predictions.decoder.weight is not the table of word embeddings; an "
                "ALBERT with output weights of its own is not computed here"
            )

    def _check_mapping(self, path):
        """Drops the layer between embeddings and encoder where it is there, but maps nothing."""
        kernel = self._tensors.get(f"{_MAPPING}kernel")  # [H, E]
        if kernel is None or kernel.shape[0] != kernel.shape[1]:
            return
        bias = self._tensors[f"{_MAPPING}bias"]
        if np.any(bias) or not np.array_equal(kernel, np.eye(len(kernel), dtype=np.float32)):
            raise file_io.InputError(
                f"{path}: embedding_size and hidden_size are both {len(kernel)} and the weights "
                "of embedding_hidden_mapping_in do something; no such layer is computed here"
            )
        del self._tensors[f"{_MAPPING}kernel"], self._tensors[f"{_MAPPING}bias"]

    def get_variable_to_shape_map(self):
        """{name: shape as a list}."""
        return {name: list(self._oriented(name).shape) for name in self._tensors}

    def has_tensor(self, name):
        """Whether there is a value for the variable."""
        return name in self._tensors

    def get_tensor(self, name):
        """Float32 array of the variable's shape."""
        return np.ascontiguousarray(self._oriented(name))

    def _oriented(self, name):
        return self._tensors[name].T if name.endswith("/kernel") else self._tensors[name]


def _full_name(name):
    """Names of a bare encoder lack the prefix that they have in a model with a head."""
    return _ENCODER + name if name.startswith(("embeddings.", "encoder.", "pooler.")) else name


def _read_tensors(path):
    """{name there: float32 array} of a file, or of all parts that an index names."""
    if not path.endswith(_INDEX_ENDING):
        return _read_file(path)
    index = file_io.read_json(path, "index of weights")
    parts = sorted(set(index["weight_map"].values()))
    tensors = {}
    for part in parts:
        tensors.update(_read_file(os.path.join(os.path.dirname(path), part)))
    return tensors


def _read_file(path):
    import safetensors

    with file_io.open_input(path, "weights", "rb") as file:
        content = file.read()
    try:
        tensors = safetensors.deserialize(content)
    except safetensors.SafetensorError as error:
        raise file_io.InputError(f"{path} is damaged or not a safetensors file: {error}") from error
    return {name: _to_float32(path, name, tensor) for name, tensor in tensors}


def _to_float32(path, name, tensor):
    """Float32 array of a stored tensor; bfloat16 is the upper half of a float32."""
    data, kind = tensor["data"], tensor["dtype"]
    if kind == "BF16":
        values = (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
    elif kind in ("F16", "F32", "F64", "I64", "I32"):
        values = np.frombuffer(data, f"<{kind[0].lower()}{int(kind[1:]) // 8}").astype(
            np.float32, copy=False
        )
    else:
        raise file_io.InputError(f"{path}: {name} is of type {kind}; expected F32, F16 or BF16")
    return values.reshape(tensor["shape"])


# --- writing ------------------------------------------------------------------------------------


def find_head(names):
    """The key of `HEADS` that a checkpoint's variables tell; None if its weights fit several.

    Args:
      names: names of variables here.

    Raises:
      file_io.InputError: a head that transformers has no class for.
    """
    own = {name for name in names if not name.startswith("bert/")}
    starts = lambda prefix: any(name.startswith(prefix) for name in own)  # noqa: E731
    if starts("start_logits/") or starts("answer_class/"):
        raise file_io.InputError(
            "the checkpoint has the heads of SQuAD 2.0 (start_logits, end_logits, answer_class); "
            "transformers has no ALBERT class with such heads"
        )
    if starts("cls/squad/"):
        return "squad_v1"
    if starts("output_"):
        return None
    if starts("cls/predictions/"):
        return "pretraining" if starts("cls/seq_relationship/") else "masked_lm"
    return "encoder"


def convert_weights(tensors, config, head):
    """Tensors as transformers stores them.

    Args:
      tensors: {variable name here: array}; other variables than those of the head are left out.
      config: `modeling.AlbertConfig`.
      head: key of `HEADS`.

    Returns:
      {name there: float32 array}.

    Raises:
      file_io.InputError: variables are missing; names them.
    """
    table = name_table(config.num_hidden_groups, config.inner_group_num)
    wanted = ("bert/", *HEADS[head][1])
    table = {ours: theirs for ours, theirs in table.items() if ours.startswith(wanted)}
    if head in _WITHOUT_POOLER:
        table = {n: theirs for n, theirs in table.items() if not n.startswith(_POOLER)}
    if config.embedding_size == config.hidden_size:
        # There the layer always exists; ours would map nothing.
        identity = {f"{_MAPPING}kernel": np.eye(config.hidden_size, dtype=np.float32)}
        tensors = {**tensors, **identity, f"{_MAPPING}bias": np.zeros(config.hidden_size, "f")}
    missing = sorted(set(table) - set(tensors))
    if missing:
        raise file_io.InputError(f"cannot write the head {head}: the checkpoint lacks {missing}")
    converted = {}
    for ours, theirs in table.items():
        value = np.asarray(tensors[ours], np.float32)
        value = value.T if ours.endswith("/kernel") else value
        name = theirs.removeprefix(_ENCODER) if head == "encoder" else theirs
        converted[name] = np.ascontiguousarray(value)
    return converted


def convert_config(config, head, labels, tokenizer):
    """Dict of ``config.json``.

    Args:
      config: `modeling.AlbertConfig`.
      head: key of `HEADS`.
      labels: names of the classes in the order of their ids; empty where there are none.
      tokenizer: `tokenization.FullTokenizer`.
    """
    values = {
        **config.to_dict(),
        "architectures": [HEADS[head][0]],
        "model_type": MODEL_TYPE,
        "hidden_act": _HIDDEN_ACT.get(config.hidden_act, config.hidden_act),
        "layer_norm_eps": 1e-12,
        "classifier_dropout_prob": 0.1,
        "position_embedding_type": "absolute",
        "pad_token_id": tokenizer.pad_id,
        "bos_token_id": tokenizer.cls_id,
        "eos_token_id": tokenizer.sep_id,
    }
    if head == "regression":
        values |= {"problem_type": "regression", "id2label": {"0": "LABEL_0"}}
    elif labels:
        values |= {
            "problem_type": "single_label_classification",
            "id2label": {str(i): name for i, name in enumerate(labels)},
        }
    if "id2label" in values:
        values["label2id"] = {name: int(i) for i, name in values["id2label"].items()}
    return values


def write_weights(folder, tensors):
    """Writes ``model.safetensors`` into a folder; `tensors` as of `convert_weights`."""
    from safetensors import numpy as safetensors_numpy

    content = safetensors_numpy.save(tensors, metadata={"format": "pt"})
    with file_io.atomic_writer(os.path.join(folder, WEIGHTS_NAME), "wb") as file:
        file.write(content)


def write_config(folder, values):
    """Writes ``config.json``: last of all, since without it there is no model in the folder."""
    text = json.dumps(values, indent=2, ensure_ascii=False) + "\n"
    file_io.write_text(os.path.join(folder, CONFIG_NAME), text)
