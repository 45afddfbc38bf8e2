"""Writes a checkpoint as a folder that transformers loads: weights, configuration, tokenizer.

``tokenizer.json`` describes the steps of `tokenization`: white space, decomposition, combining
marks, lower case, the vocabulary's own normalization, SentencePiece's unigram model, ``[CLS] a
[SEP] b [SEP]``. There are two differences: a text that contains ``[CLS]`` or another special piece
gets the id of that piece, and a number before a comma is sometimes split at another place, as
pieces such as "9," are left out instead of split. The class AlbertTokenizer also reads two
backticks or apostrophes as a quotation mark.
"""

import base64
import functools
import json
import os
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from albert.io import file_io, manifests
from albert.model import (
    checkpoints,
    encoder,
    huggingface,
    model_folder,
    sources,
    weight_names,
)
from albert.tasks import custom, kinds
from albert.text import tokenization

_TOKEN_BIAS = f"{weight_names.TOKEN_HEAD}output_bias"
_SPM_NAME = "spiece.model"
_DEFAULT_DROPOUT = 0.1  # for a classifier whose folder does not have the rate
_USER_DEFINED = 4  # type of SentencePiece pieces that are never split
_NORMAL = 1  # type of ordinary pieces
# The required fields of a SentencePiece model, as in sentencepiece_model.proto. The module of the
# package sentencepiece needs the newest protobuf, which TensorFlow or apache-beam may not support.
_SCHEMA = """
    name: "albert/sentencepiece_model.proto" package: "albert" syntax: "proto2"
    message_type {
      name: "Piece"
      field { name: "piece" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
      field { name: "score" number: 2 label: LABEL_OPTIONAL type: TYPE_FLOAT }
      field { name: "type" number: 3 label: LABEL_OPTIONAL type: TYPE_INT32 default_value: "1" }
    }
    message_type {
      name: "Normalizer"
      field { name: "precompiled_charsmap" number: 2 label: LABEL_OPTIONAL type: TYPE_BYTES }
      field { name: "remove_extra_whitespaces" number: 4 label: LABEL_OPTIONAL type: TYPE_BOOL
              default_value: "true" }
    }
    message_type {
      name: "Model"
      field { name: "pieces" number: 1 label: LABEL_REPEATED type: TYPE_MESSAGE
              type_name: ".albert.Piece" }
      field { name: "normalizer_spec" number: 3 label: LABEL_OPTIONAL type: TYPE_MESSAGE
              type_name: ".albert.Normalizer" }
    }
"""
# Score of pieces such as "9,", which are always split in two (see `tokenization.encode_pieces`):
# the unigram model never chooses a piece with this score.
_NEVER_CHOSEN = -1e4
_METASPACE = {
    "type": "Metaspace",
    "replacement": tokenization.WORD_START,
    "prepend_scheme": "always",
    "split": True,
}


def export(
    model_dir: str | None = None,
    checkpoint: str | None = None,
    *,
    output_dir: str,
    head: str | None = None,
    labels: Sequence[str] = (),
    architecture: str = "albert",
    **files: Any,
) -> str:
    """Writes ``model.safetensors``, the tokenizer's files and ``config.json``, or nothing.

    Args:
      model_dir: folder of a training run or of a released model.
      checkpoint: see `checkpoints.choose`; a path if there is no `model_dir`.
      output_dir: folder to write to.
      head: key of `huggingface.HEADS`; None: found in the folder's description or the variables.
      labels: names of a classifier's labels by id; empty: taken from the description.
      architecture: key of `weight_names.ARCHITECTURES`.
      **files: further arguments of `sources.locate`.

    Returns:
      Name of the head, a key of `huggingface.HEADS`.

    Raises:
      file_io.InputError: the checkpoint is missing, transformers has no such head or architecture,
        or vocabulary, configuration and weights do not match; then nothing is written.
    """
    prefix = choose(model_dir, checkpoint)
    described_head, described_labels, lower_case, dropout_prob = _read_description(model_dir)
    if files.get("do_lower_case") is None:
        files["do_lower_case"] = lower_case
    source = sources.locate(checkpoint=prefix, **files)
    config = encoder.AlbertConfig.from_json_file(source.config_file)
    architecture = weight_names.ARCHITECTURES[architecture]
    huggingface.check_architecture(config, architecture)
    tokenizer = model_folder.load_tokenizer(source, config)
    tensors = checkpoints.read_tensors(prefix)
    _check_word_embeddings(prefix, tensors, config)
    _check_no_hidden_layer(prefix, tensors)
    head = head or described_head or huggingface.find_head(tensors)
    bias = _TOKEN_BIAS if head == "token_classification" else "output_bias"
    outputs = len(tensors[bias]) if bias in tensors else None
    head = _check_head(head, outputs)
    if head not in ("classification", "token_classification"):
        labels = []
    else:
        labels = list(labels or described_labels) or [f"LABEL_{i}" for i in range(outputs)]
        if len(labels) != outputs:
            raise file_io.InputError(
                f"`labels`: the model has {outputs} labels, got {len(labels)}: {labels}"
            )
    weights = huggingface.convert_weights(tensors, config, head, architecture)
    with file_io.atomic_folder(output_dir, last=huggingface.CONFIG_NAME) as folder:
        huggingface.write_weights(folder, weights)
        write_tokenizer(folder, tokenizer, config.max_position_embeddings)
        about = (config, head, labels, tokenizer, architecture, dropout_prob)
        huggingface.write_config(folder, huggingface.convert_config(*about))
        manifests.write(folder)
    return head


def choose(model_dir: str | None, checkpoint: str | None) -> str:
    """Returns the prefix of the checkpoint to export; for the arguments see `export`.

    If the folder has no numbered checkpoints of a run, any checkpoint in it is taken.
    """
    if not model_dir:
        return checkpoints.resolve(checkpoint)
    if checkpoint is None and not checkpoints.numbered(model_dir):
        return checkpoints.resolve(model_dir)
    return checkpoints.choose(model_dir, checkpoint)


def _read_description(model_dir: str | None) -> tuple[str | None, list[str], bool | None, float]:
    """Reads the description of a fine-tuned model's folder, if there is one.

    Returns:
      Head, labels, do_lower_case, and the dropout rate before the output layer.
    """
    if not model_dir or not file_io.exists(os.path.join(model_dir, sources.DESCRIPTION_NAME)):
        return None, [], None, _DEFAULT_DROPOUT
    folder = model_folder.read(model_dir)
    kind = kinds.KINDS.get(folder.kind)
    if not (kind and kind.huggingface_head):
        known = [row.name for row in kinds.KINDS.values() if row.huggingface_head]
        raise file_io.InputError(
            f"{model_dir} holds a model of kind {folder.kind}, for which transformers has no "
            f"class; expected {', '.join(known)} or a pre-trained model"
        )
    labels = list(custom.labels_of(folder)) if kind.has_labels else []
    head = kind.huggingface_head
    if head == "classification" and not labels:
        head = "regression"
    rates = [folder.settings.get(name) for name in ("classifier_dropout_prob", "dropout_prob")]
    rate = next((rate for rate in rates if isinstance(rate, (int, float))), _DEFAULT_DROPOUT)
    return head, labels, folder.source.do_lower_case, rate


def _check_head(head: str | None, outputs: int | None) -> str:
    """Checks the head and returns it; for one output the caller must give it."""
    if head is None and outputs == 1:
        raise file_io.InputError(
            "the model has one output, which may be of two heads: give head=regression or "
            "head=multiple_choice"
        )
    head = head or "classification"
    wants_one = head in ("regression", "multiple_choice")
    has_outputs = head in ("classification", "token_classification") or wants_one
    if has_outputs and (outputs is None or wants_one != (outputs == 1)):
        raise file_io.InputError(
            f"head={head} needs {'one output' if wants_one else 'at least two outputs'}; the "
            f"checkpoint has {outputs or 'no such head'}"
        )
    return head


def _check_no_hidden_layer(prefix: str, tensors: Mapping[str, np.ndarray]) -> None:
    """Rejects a head with a hidden layer before its output layer."""
    if any(name.startswith("head_hidden/") for name in tensors):
        raise file_io.InputError(
            f"{prefix} has a hidden layer before its output layer (head_hidden_size); transformers "
            "has no class for such a head"
        )


def _check_word_embeddings(
    prefix: str, tensors: Mapping[str, np.ndarray], config: encoder.AlbertConfig
) -> None:
    """Rejects word embeddings that do not fit the sizes of the configuration."""
    words = tensors.get("bert/embeddings/word_embeddings")
    if words is not None and words.shape != (config.vocab_size, config.embedding_size):
        raise file_io.InputError(
            f"{prefix} has word embeddings of shape {list(words.shape)}; the configuration says "
            f"vocab_size {config.vocab_size} and embedding_size {config.embedding_size}"
        )


# --- tokenizer ----------------------------------------------------------------------------------


def write_tokenizer(folder: str, tokenizer: tokenization.FullTokenizer, max_length: int) -> None:
    """Writes the tokenizer's files, with which transformers computes the same ids.

    Args:
      folder: existing folder.
      tokenizer: `tokenization.FullTokenizer`.
      max_length: maximum length of the model's input, in tokens.
    """
    special = {
        "pad_token": tokenizer.pad_id,
        "unk_token": tokenizer.unk_id,
        "cls_token": tokenizer.cls_id,
        "sep_token": tokenizer.sep_id,
        "mask_token": tokenizer.mask_id,
    }
    config = {name: tokenizer.inv_vocab[i] for name, i in special.items()}
    config |= {"do_lower_case": tokenizer.do_lower_case, "model_max_length": max_length}
    config["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
    if tokenizer.sp_model is None:
        file_io.copy(tokenizer.vocab_file, os.path.join(folder, sources.VOCAB_NAME))
        config["tokenizer_class"] = "BertTokenizer"
    else:
        file_io.copy(tokenizer.spm_model_file, os.path.join(folder, _SPM_NAME))
        text = json.dumps(_describe_tokenizer(tokenizer), ensure_ascii=False)
        file_io.write_text(os.path.join(folder, "tokenizer.json"), text)
        # AlbertTokenizer would replace the steps of tokenizer.json by its own.
        config |= {"tokenizer_class": "PreTrainedTokenizerFast", "keep_accents": False}
        config |= {"bos_token": config["cls_token"], "eos_token": config["sep_token"]}
    file_io.write_json(os.path.join(folder, "tokenizer_config.json"), config)


@functools.cache
def _spm_class() -> Any:
    """Returns the message class of SentencePiece models."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

    pool = descriptor_pool.DescriptorPool()
    pool.Add(text_format.Parse(_SCHEMA, descriptor_pb2.FileDescriptorProto()))
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("albert.Model"))


def _describe_tokenizer(tokenizer: tokenization.FullTokenizer) -> dict[str, Any]:
    """Builds the content of ``tokenizer.json`` for a SentencePiece model."""
    model = _spm_class().FromString(tokenizer.sp_model.serialized_model_proto())
    special = (
        tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id,
    )  # fmt: skip
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added_token(tokenizer, i) for i in sorted(special)],
        "normalizer": {"type": "Sequence", "normalizers": list(_normalizers(tokenizer, model))},
        "pre_tokenizer": _METASPACE,
        "post_processor": _template(tokenizer),
        "decoder": _METASPACE,
        "model": {
            "type": "Unigram",
            "unk_id": tokenizer.unk_id,
            "vocab": [[piece.piece, score] for piece, score in _scores(model)],
            "byte_fallback": False,
        },
    }


def _added_token(tokenizer: tokenization.FullTokenizer, i: int) -> dict[str, Any]:
    return {
        "id": i,
        "content": tokenizer.inv_vocab[i],
        "single_word": False,
        "lstrip": i == tokenizer.mask_id,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }


def _replace(pattern: str, content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}


def _normalizers(tokenizer: tokenization.FullTokenizer, model: Any) -> Iterator[dict[str, Any]]:
    """Yields the steps of `tokenization.preprocess_text`, then those of the SentencePiece model."""
    yield _replace(tokenization.character_class(str.isspace) + "+", " ")
    yield {"type": "Strip", "strip_left": True, "strip_right": True}
    yield {"type": "NFKD"}
    yield _replace(tokenization.character_class(unicodedata.combining), "")
    if tokenizer.do_lower_case:
        yield {"type": "Lowercase"}
    charsmap = model.normalizer_spec.precompiled_charsmap
    if charsmap:
        encoded = base64.b64encode(charsmap).decode("ascii")
        yield {"type": "Precompiled", "precompiled_charsmap": encoded}
    if model.normalizer_spec.remove_extra_whitespaces:
        yield _replace(" {2,}", " ")
        yield {"type": "Strip", "strip_left": True, "strip_right": True}


def _scores(model: Any) -> Iterator[tuple[Any, float]]:
    """Yields (piece, score) of every piece, with the score that SentencePiece actually uses."""
    highest = max(piece.score for piece in model.pieces if piece.type == _NORMAL)
    for piece in model.pieces:
        if piece.type == _USER_DEFINED:
            yield piece, len(piece.piece.encode()) * highest - 0.1
        elif tokenization.is_digit_comma(piece.piece):
            yield piece, _NEVER_CHOSEN
        else:
            yield piece, piece.score


def _template(tokenizer: tokenization.FullTokenizer) -> dict[str, Any]:
    """Builds the template of ``[CLS] a [SEP]`` and ``[CLS] a [SEP] b [SEP]`` with token types."""
    cls, sep = tokenizer.inv_vocab[tokenizer.cls_id], tokenizer.inv_vocab[tokenizer.sep_id]

    def piece(name, kind):
        return {"SpecialToken": {"id": name, "type_id": kind}}

    def text(name, kind):
        return {"Sequence": {"id": name, "type_id": kind}}

    single = [piece(cls, 0), text("A", 0), piece(sep, 0)]
    ids = {cls: tokenizer.cls_id, sep: tokenizer.sep_id}
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, text("B", 1), piece(sep, 1)],
        "special_tokens": {
            name: {"id": name, "ids": [i], "tokens": [name]} for name, i in ids.items()
        },
    }
