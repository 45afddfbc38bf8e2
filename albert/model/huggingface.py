"""Reads and writes Hugging Face folders of ALBERT and BERT: weights and ``config.json``.

Names are those of `weight_names`. Hugging Face stores a dense layer's matrix as [outputs, inputs],
this package as [inputs, outputs].
"""

import dataclasses
import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from albert.io import file_io, manifests, tables
from albert.model import configuration, huggingface_entries, pooling, weight_names
from albert.text import tokenization

CONFIG_NAME = "config.json"
TOKENIZER_CONFIG_NAME = "tokenizer_config.json"
WEIGHTS_NAME = "model.safetensors"
_IDS = "_ids"  # ends the names of integer tensors that are no weights, such as position_ids
_INDEX_ENDING = ".safetensors.index.json"
_PART = re.compile(r"-\d+-of-(?!0*1\.)\d+\.safetensors$")  # ends the name of one of several files
# Files of safetensors that hold no model.
_ADAPTER_NAME = "adapter_model.safetensors"
_NOT_MODELS = (_ADAPTER_NAME, "optimizer.safetensors")
# Names and endings of files with weights of other programs -> how to convert them.
_WITH_TRANSFORMERS = (
    f"write {WEIGHTS_NAME} with transformers: CLASS.from_pretrained(folder{{}})"
    ".save_pretrained(new_folder), where CLASS is the one in config.json, such as "
    "AlbertForSequenceClassification"
)
_PYTORCH = (
    f"{_WITH_TRANSFORMERS.format('')}. A file of your own PyTorch program: load it into such a "
    "model with load_state_dict first"
)
_NOT_WEIGHTS = "it holds a computation, not weights to train: give the model that it was made from"
_OTHER_FORMATS = {
    "flax_model.msgpack": _WITH_TRANSFORMERS.format(", from_flax=True"),
    "tf_model.h5": _WITH_TRANSFORMERS.format(", from_tf=True"),
    ".bin": _PYTORCH,
    ".pt": _PYTORCH,
    ".pth": _PYTORCH,
    ".h5": "load it in the program that wrote it and save a TensorFlow checkpoint with the names "
    "of google-research/albert, or a Hugging Face folder",
    _ADAPTER_NAME: "it holds changes to another model: write that model with them, in PEFT by "
    "merge_and_unload().save_pretrained(new_folder)",
    ".onnx": _NOT_WEIGHTS,
    ".tflite": _NOT_WEIGHTS,
}
# head -> (suffix of its class in transformers, prefixes of its variables in this package)
HEADS = {
    "encoder": ("Model", ()),
    "pretraining": ("ForPreTraining", ("cls/predictions/", "cls/seq_relationship/")),
    "masked_lm": ("ForMaskedLM", ("cls/predictions/",)),
    "classification": ("ForSequenceClassification", ("output_",)),
    "multi_label": ("ForSequenceClassification", ("output_",)),
    "regression": ("ForSequenceClassification", ("output_",)),
    "token_classification": ("ForTokenClassification", (weight_names.TOKEN_HEAD,)),
    "multiple_choice": ("ForMultipleChoice", ("output_",)),
    "squad_v1": ("ForQuestionAnswering", ("cls/squad/",)),
}
_MAX_LABELS = 100_000
_MAPPING, _POOLER = weight_names.MAPPING, weight_names.POOLER
_WITHOUT_POOLER = ("masked_lm", "squad_v1", "token_classification")
_PROBLEM_TYPES = {
    "classification": "single_label_classification",
    "multi_label": "multi_label_classification",
}
# Activation in this package -> its name in transformers.
_HIDDEN_ACT = {"gelu": "gelu_new", "gelu_erf": "gelu"}
# Keys that the configuration of a BERT does not have.
_ONLY_ALBERT = ("embedding_size", "num_hidden_groups", "inner_group_num", "down_scale_factor")


# --- reading ------------------------------------------------------------------------------------


def is_weights_file(path: str) -> bool:
    """Returns whether a path is the name of weights that `Reader` can read."""
    return path.endswith((".safetensors", _INDEX_ENDING))


def find_weights(folder: str) -> str | None:
    """Returns the path of the weights in a Hugging Face folder; None if there are none.

    Raises:
      file_io.InputError: the folder holds weights only in an older format, only parts of weights,
        or several models.
    """
    names = file_io.listdir(folder)
    for name in (WEIGHTS_NAME, WEIGHTS_NAME + ".index.json"):
        if name in names:
            return os.path.join(folder, name)
    others = [name for name in names if is_weights_file(name) and name not in _NOT_MODELS]
    others = [name for name in others if name.endswith(_INDEX_ENDING)] or others
    if others:
        _check_whole(os.path.join(folder, others[0]))
        if len(others) > 1:
            raise file_io.InputError(
                f"{folder} holds several files of weights, {', '.join(others)}; expected "
                f"{WEIGHTS_NAME} or one of another name: name one of them as the checkpoint"
            )
        return os.path.join(folder, others[0])
    for name in ("pytorch_model.bin", "tf_model.h5", "flax_model.msgpack", _ADAPTER_NAME):
        if name in names:
            raise file_io.InputError(
                f"{folder} holds {name}, which cannot be read; {conversion_of(name)}"
            )
    place = pooling.model_place(folder)
    return find_weights(place) if place and file_io.is_dir(place) else None


def _check_whole(path: str) -> None:
    """Rejects the name of one of the files that weights are split into."""
    if _PART.search(path):
        raise file_io.InputError(
            f"{path} is one part of a model's weights; expected the index that lists all parts "
            f"({WEIGHTS_NAME}.index.json, next to them): fetch it and name the folder"
        )


def conversion_of(path: str) -> str | None:
    """Returns how to convert a file with weights of another program; None for other files."""
    name = os.path.basename(path).lower()
    return next((how for end, how in _OTHER_FORMATS.items() if name.endswith(end)), None)


def read_config(folder: str) -> dict[str, Any]:
    """Reads the ``config.json`` in a folder; returns an empty dict if there is none."""
    path = os.path.join(folder, CONFIG_NAME)
    if not file_io.exists(path):
        return {}
    config = file_io.read_json(path, "Hugging Face configuration", dict)
    model_type = config.get("model_type", weight_names.ALBERT.model_type)
    if model_type not in list(weight_names.ARCHITECTURES):  # a list: it may be unhashable
        raise file_io.InputError(
            f"{folder} holds a model of the architecture {model_type!r} ({path}); only "
            f"{' and '.join(map(repr, weight_names.ARCHITECTURES))} can be read"
        )
    return config


def class_ending(config: dict[str, Any]) -> str | None:
    """Returns the ending that names the head in the class of a ``config.json``, as in `HEADS`."""
    architectures = config.get("architectures")
    names = list(map(str, architectures)) if isinstance(architectures, list) else []
    endings = {ending for ending, _ in HEADS.values()}
    return next((end for name in names for end in endings if name.endswith(end)), None)


def read_max_length(folder: str) -> int | None:
    """Returns the most tokens that a folder's tokenizer makes of a text; None if it is not said."""
    path, config = _read_tokenizer(folder)
    length = config.get("model_max_length")
    if length is not None and not (isinstance(length, (int, float)) and length >= 3):
        raise file_io.InputError(
            f"{path}: model_max_length is {length!r}, expected a number of tokens from 3 on"
        )
    return None if length in (None, math.inf) else int(length)


def _read_tokenizer(folder: str) -> tuple[str, dict[str, Any]]:
    """Returns the path of ``tokenizer_config.json``, and its content or {}."""
    path = os.path.join(folder, TOKENIZER_CONFIG_NAME)
    return path, file_io.read_json(path, "tokenizer", dict) if file_io.exists(path) else {}


def length_files(folder: str) -> list[str]:
    """Lists the file that `read_max_length` reads, if it is in a folder."""
    is_there = file_io.exists(os.path.join(folder, TOKENIZER_CONFIG_NAME))
    return [TOKENIZER_CONFIG_NAME] if is_there else []


def default_labels(count: int) -> tuple[str, ...]:
    """Returns the names that transformers gives labels without names."""
    return tuple(f"LABEL_{i}" for i in range(count))


def read_labels(folder: str) -> tuple[str, ...]:
    """Reads the names of the labels, by id, of the model in a folder.

    Without names they have transformers' default names, as many as `num_labels` or 2.
    """
    config = read_config(folder)
    path = os.path.join(folder, CONFIG_NAME)
    if "id2label" not in config:
        count = config.get("num_labels", 2)
        if type(count) is not int or not 1 <= count <= _MAX_LABELS:
            raise file_io.InputError(
                f"{path}: num_labels is {count!r}, expected a number of labels"
            )
        return default_labels(count)
    labels = config["id2label"]
    by_number: dict[str, Any] = labels if isinstance(labels, dict) else {}
    names = tuple(by_number.get(str(number), "") for number in range(len(by_number)))
    if not names or len(set(names)) < len(names) or not all(map(tables.is_name, names)):
        raise file_io.InputError(
            f"{path}: expected id2label with different names of the labels 0, 1 and so on; found "
            f"{labels!r}"
        )
    return names


class Reader:
    """A reader of Hugging Face ALBERT or BERT weights by the names of checkpoints.

    It has the methods of `tf.train.CheckpointReader` that are used here. All values are float32.

    Args:
      path: ``.safetensors`` file, or the index of weights that are split into several files.

    Attributes:
      optional: prefixes of encoder variables that may be missing (models for masked words and for
        questions have no pooler).
      unknown: names of tensors that no model of this package has, sorted.
    """

    optional = (_POOLER,)

    def __init__(self, path: str) -> None:
        folder = os.path.dirname(path) or "."
        config = read_config(folder)
        file_tensors = _read_tensors(path)
        is_bert = any(map(weight_names.BERT.block_pattern.search, file_tensors))
        architecture = self._architecture = weight_names.BERT if is_bert else weight_names.ALBERT
        tensors = {
            weight_names.full_name(name, architecture): value
            for name, value in file_tensors.items()
        }
        try:
            groups, inner = weight_names.count_blocks(tensors, architecture)
        except file_io.InputError as error:
            raise file_io.InputError(f"{path}: {error}") from error
        labels_tokens = class_ending(config) == HEADS["token_classification"][0]
        table = weight_names.name_table(groups, inner, architecture, labels_tokens)
        self._tensors = {
            ours: tensors.pop(theirs) for ours, theirs in table.items() if theirs in tensors
        }
        self._check_tied(path, tensors)
        self._check_mapping(path)
        self._check_encoder(path, tensors)
        self._join_segments(folder)
        self.unknown = sorted(name for name in tensors if not name.endswith(_IDS))
        self._tensors.update(tensors)

    def _check_tied(self, path: str, rest: dict[str, np.ndarray]) -> None:
        """Removes the duplicate names of shared weights from `rest`, {Hugging Face name: array}."""
        words = self._architecture.words
        rest.pop(f"{self._architecture.model_type}.embeddings.position_ids", None)  # 0, 1, 2, …
        bias = rest.pop(f"{words}decoder.bias", None)
        if bias is not None:  # also if the other bias differs, as in transformers 5
            self._tensors["cls/predictions/output_bias"] = bias
        weights = rest.pop(f"{words}decoder.weight", None)
        table = self._tensors.get(weight_names.WORDS)
        if weights is not None and (table is None or not np.array_equal(weights, table)):
            raise file_io.InputError(
                f"{path}: {words}decoder.weight differs from the word embeddings; models with "
                "separate output weights are not supported"
            )

    def _check_mapping(self, path: str) -> None:
        """Drops the layer between embeddings and encoder if it exists but is the identity."""
        kernel = self._tensors.get(f"{_MAPPING}kernel")  # [H, E]
        if kernel is None or kernel.shape[0] != kernel.shape[1]:
            return
        bias = self._tensors[f"{_MAPPING}bias"]
        if np.any(bias) or not np.array_equal(kernel, np.eye(len(kernel), dtype=np.float32)):
            raise file_io.InputError(
                f"{path}: embedding_size and hidden_size are both {len(kernel)} and the weights "
                "of embedding_hidden_mapping_in are not the identity; such a layer is not supported"
            )
        del self._tensors[f"{_MAPPING}kernel"], self._tensors[f"{_MAPPING}bias"]

    def _check_encoder(self, path: str, rest: Mapping[str, np.ndarray]) -> None:
        """Rejects weights of the encoder that no model here has, such as those of adapters."""
        prefixes = tuple(f"{kind}.encoder." for kind in weight_names.ARCHITECTURES)
        surplus = sorted(name for name in rest if name.startswith(prefixes))
        if surplus:
            raise file_io.InputError(
                f"{path} has weights of the encoder that this package does not compute "
                f"({len(surplus)}, such as {surplus[0]}), so it is another network: merge them "
                "into the layers with the program that wrote them, or take the model without them"
            )

    def _join_segments(self, folder: str) -> None:
        """Gives both texts of a pair the embedding of segment 0 if transformers gives no segments.

        As this is in the weights, it holds wherever they are used, and in all that is made of them.
        """
        table = self._tensors.get(weight_names.TOKEN_TYPES)
        path, config = _read_tokenizer(folder)
        if table is None or huggingface_entries.gives_segments(path, config):
            return
        if np.any(table != table[:1]):
            logging.info(
                "%s: model_input_names lacks token_type_ids, so the second of two texts has the "
                "segment 0, as in transformers 5",
                path,
            )
            self._tensors[weight_names.TOKEN_TYPES] = np.repeat(table[:1], len(table), axis=0)

    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        return {name: list(self._orient(name).shape) for name in self._tensors}

    def has_tensor(self, name: str) -> bool:
        return name in self._tensors

    def get_tensor(self, name: str) -> np.ndarray:
        return np.ascontiguousarray(self._orient(name))

    def _orient(self, name: str) -> np.ndarray:
        return self._tensors[name].T if name.endswith("/kernel") else self._tensors[name]


def _read_tensors(path: str) -> dict[str, np.ndarray]:
    """Reads {Hugging Face name: float32 array} from a file or all files listed in an index."""
    if not path.endswith(_INDEX_ENDING):
        _check_whole(path)
        return _read_file(path)
    parts = _read_index(path)
    tensors = {}
    for part in sorted(set(parts.values())):
        tensors.update(_read_file(os.path.join(os.path.dirname(path), part)))
    if missing := sorted(parts.keys() - tensors.keys()):
        raise file_io.InputError(
            f"{path} says that {parts[missing[0]]} holds {missing[0]}, which no file holds (of "
            f"{len(parts)} tensors {len(missing)} are missing): fetch the files again, together"
        )
    return tensors


def _read_index(path: str) -> dict[str, str]:
    """Reads {name of a tensor: name of its file} from an index of weights."""
    parts = file_io.read_json(path, "index of weights", dict).get("weight_map")
    names = list(parts.values()) if isinstance(parts, dict) else []
    # The index may list only names of files in its own folder.
    if not names or not all(isinstance(p, str) and p == os.path.basename(p) for p in names):
        raise file_io.InputError(
            f"index of weights: {path} must have a weight_map of names of tensors to names of files"
        )
    return dict(parts)


def is_part(path: str) -> bool:
    """Returns whether a file of weights holds no whole model: an index next to it lists the file,
    or it holds an adapter or an optimizer.
    """
    folder, name = os.path.split(path)
    indices = [other for other in file_io.listdir(folder or ".") if other.endswith(_INDEX_ENDING)]
    listed = (_read_index(os.path.join(folder, index)).values() for index in indices)
    return name in _NOT_MODELS or any(name in names for names in listed)


def count_tensors(path: str) -> int:
    """Reads a file of weights, also one that holds no whole model; returns how many it has."""
    return len(_read_file(path))


def _read_file(path: str) -> dict[str, np.ndarray]:
    import safetensors

    content = file_io.read_bytes(path, "weights", max_bytes=None)
    try:
        tensors = safetensors.deserialize(content)
    except safetensors.SafetensorError as error:
        raise file_io.InputError(f"{path} is damaged or not a safetensors file: {error}") from error
    # The format has no checksums; a folder exported by this package has a manifest.
    folder, name = os.path.split(path)
    manifests.check_export(folder or ".", name)
    return {name: _to_float32(path, name, tensor) for name, tensor in tensors}


def _to_float32(path: str, name: str, tensor: Mapping[str, Any]) -> np.ndarray:
    """Converts a stored tensor to a float32 array; bfloat16 is the upper half of a float32."""
    data, kind = tensor["data"], tensor["dtype"]
    if kind == "BF16":
        values = (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
    elif kind in ("F16", "F32", "F64") or (kind in ("I64", "I32") and name.endswith(_IDS)):
        values = np.frombuffer(data, f"<{kind[0].lower()}{int(kind[1:]) // 8}").astype(
            np.float32, copy=False
        )
    else:
        raise file_io.InputError(
            f"{path}: {name} is of type {kind}; weights are expected as F32, F16 or BF16: save the "
            "model again in one of these types"
        )
    if not np.isfinite(values).all():
        raise file_io.InputError(
            f"{path}: {name} holds values that are not finite: the file is damaged, or the "
            "training diverged"
        )
    return values.reshape(tensor["shape"])


# --- writing ------------------------------------------------------------------------------------


def find_head(names: Iterable[str]) -> str | None:
    """Finds the key of `HEADS` from a checkpoint's variables; None if they fit several heads."""
    own = {name for name in names if not name.startswith("bert/")}

    def starts(prefix: str) -> bool:
        return any(name.startswith(prefix) for name in own)

    if starts("start_logits/") or starts("answer_class/"):
        raise file_io.InputError(
            "the checkpoint has the heads of SQuAD 2.0 (start_logits, end_logits, answer_class); "
            "transformers has no class with such heads"
        )
    if starts("cls/squad/"):
        return "squad_v1"
    if starts(weight_names.TOKEN_HEAD):
        return "token_classification"
    if starts("output_"):
        return None
    if starts("cls/predictions/"):
        return "pretraining" if starts("cls/seq_relationship/") else "masked_lm"
    return "encoder"


def check_architecture(
    config: configuration.AlbertConfig, architecture: weight_names.Architecture
) -> None:
    """Rejects a model that cannot be written as the given architecture."""
    groups = _num_groups(config)
    if architecture is not weight_names.BERT:
        return
    required = {
        "embedding_size": config.hidden_size,
        "num_hidden_groups": config.num_hidden_layers,
        "inner_group_num": 1,
    }
    values = {**config.to_dict(), "num_hidden_groups": groups}
    differing = [f"{k} {values[k]} (BERT: {v})" for k, v in required.items() if values[k] != v]
    if differing:
        raise file_io.InputError(
            f"architecture=bert: this model is not a BERT, it has {', '.join(differing)}; write it "
            "with architecture=albert"
        )


def convert_weights(
    tensors: dict[str, Any],
    config: configuration.AlbertConfig,
    head: str,
    architecture: weight_names.Architecture = weight_names.ALBERT,
) -> dict[str, np.ndarray]:
    """Converts tensors to the names and the layout of transformers.

    Args:
      tensors: {name in this package: array}; variables of other heads are skipped.
      head: key of `HEADS`.
    """
    sizes = (_num_groups(config), config.inner_group_num)
    table = weight_names.name_table(*sizes, architecture, head == "token_classification")
    prefixes = ("bert/", *HEADS[head][1])
    table = {ours: theirs for ours, theirs in table.items() if ours.startswith(prefixes)}
    if head in _WITHOUT_POOLER:
        table = {n: theirs for n, theirs in table.items() if not n.startswith(_POOLER)}
    if architecture is weight_names.ALBERT and config.embedding_size == config.hidden_size:
        # transformers always has this layer; with these sizes it is the identity.
        identity = {f"{_MAPPING}kernel": np.eye(config.hidden_size, dtype=np.float32)}
        tensors = {**tensors, **identity, f"{_MAPPING}bias": np.zeros(config.hidden_size, "f")}
    tensors = weight_names.repeat_token_type(tensors, config.segment_limit)
    missing = sorted(set(table) - set(tensors))
    if missing:
        raise file_io.InputError(f"cannot write the head {head}: the checkpoint lacks {missing}")
    converted = {}
    for ours, theirs in table.items():
        value = np.asarray(tensors[ours], np.float32)
        value = value.T if ours.endswith("/kernel") else value
        prefix = f"{architecture.model_type}." if head == "encoder" else ""
        name = theirs.removeprefix(prefix)
        converted[name] = np.ascontiguousarray(value)
    return converted


def convert_config(
    config: configuration.AlbertConfig,
    head: str,
    labels: Sequence[str],
    tokenizer: tokenization.FullTokenizer,
    architecture: weight_names.Architecture = weight_names.ALBERT,
    dropout_prob: float = 0.1,
) -> dict[str, Any]:
    """Builds the content of ``config.json``.

    Args:
      labels: names of the classes in the order of their ids; empty if there are none.
      dropout_prob: dropout before the output layer of a classifier.
    """
    values = {
        **dataclasses.replace(
            config,
            share="all",
            group_order="sequence",
            num_hidden_groups=_num_groups(config),
            position_initializer="normal",
            type_vocab_size=config.segment_limit,
        ).to_dict(),
        "architectures": [architecture.class_name + HEADS[head][0]],
        "model_type": architecture.model_type,
        "hidden_act": _HIDDEN_ACT.get(config.hidden_act, config.hidden_act),
        "layer_norm_eps": 1e-12,
        "position_embedding_type": "absolute",
        "pad_token_id": tokenizer.pad_id,
    }
    if architecture is weight_names.BERT:
        values = {key: value for key, value in values.items() if key not in _ONLY_ALBERT}
        values["classifier_dropout"] = dropout_prob
    else:
        values["classifier_dropout_prob"] = dropout_prob
        values |= {"bos_token_id": tokenizer.cls_id, "eos_token_id": tokenizer.sep_id}
    if head == "regression":
        values |= {"problem_type": "regression", "id2label": {"0": default_labels(1)[0]}}
    elif labels:
        values["id2label"] = {str(i): name for i, name in enumerate(labels)}
        if head in _PROBLEM_TYPES:
            values["problem_type"] = _PROBLEM_TYPES[head]
    if "id2label" in values:
        values["label2id"] = {name: int(i) for i, name in values["id2label"].items()}
    return values


def _num_groups(config: configuration.AlbertConfig) -> int:
    """Returns the `num_hidden_groups` that give the same network in transformers, if any does."""
    if config.layer_scales:
        raise file_io.InputError(
            "layer_scales=true: transformers has no ALBERT with a scale per layer"
        )
    groups = config.num_hidden_groups
    if config.group_order == "cycle" and 1 < groups < config.num_hidden_layers:
        raise file_io.InputError(
            f"group_order=cycle: in transformers the layers of a group follow one another, so "
            f"num_hidden_groups={groups} in this order cannot be written"
        )
    if config.num_attention_groups != config.num_ffn_groups:
        raise file_io.InputError(
            f"share={config.share}: transformers has no ALBERT whose layers share only their "
            'attention or only their feed-forward part; share "all" and "none" can be written'
        )
    return config.num_attention_groups


def write_weights(folder: str, tensors: dict[str, np.ndarray]) -> None:
    """Writes the tensors of `convert_weights` to ``model.safetensors`` in a folder."""
    from safetensors import numpy as safetensors_numpy

    content = safetensors_numpy.save(tensors, metadata={"format": "pt"})
    file_io.write_bytes(os.path.join(folder, WEIGHTS_NAME), content)


def write_config(folder: str, values: dict[str, Any]) -> None:
    """Writes ``config.json``; call this last, as it marks the folder as complete."""
    text = json.dumps(values, indent=2, ensure_ascii=False) + "\n"
    file_io.write_text(os.path.join(folder, CONFIG_NAME), text)
