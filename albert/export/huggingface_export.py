"""Writes a checkpoint as a folder that transformers loads: weights, configuration, tokenizer.

``tokenizer.json`` is that of `tokenizer_json`, but ``[CLS]`` and the like in a text are the special
pieces there. The class AlbertTokenizer also takes two backticks or apostrophes for a quotation
mark.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from albert.export import tokenizer_json
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

_BIAS_OF_TOKENS = f"{weight_names.TOKEN_HEAD}output_bias"
_SPM_NAME = "spiece.model"
_DROPOUT = 0.1  # of a classifier whose folder does not say


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
      head: key of `huggingface.HEADS`; None: from the folder's description or the variables.
      labels: names of a classifier's labels by id; empty: those of the description.
      architecture: key of `weight_names.ARCHITECTURES`.
      **files: further arguments of `sources.locate`.

    Returns:
      The head that was written.

    Raises:
      file_io.InputError: the checkpoint is missing, transformers has no such head or architecture,
        or vocabulary, configuration and weights do not fit; nothing is written then.
    """
    prefix = choose(model_dir, checkpoint)
    described_head, described_labels, lower_case, dropout_prob = _described(model_dir)
    if files.get("do_lower_case") is None:
        files["do_lower_case"] = lower_case
    source = sources.locate(checkpoint=prefix, **files)
    config = encoder.AlbertConfig.from_json_file(source.config_file)
    architecture = weight_names.ARCHITECTURES[architecture]
    huggingface.check_architecture(config, architecture)
    tokenizer = model_folder.load_tokenizer(source, config)
    tensors = checkpoints.read_tensors(prefix)
    _check_words(prefix, tensors, config)
    _check_layers(prefix, tensors)
    head = head or described_head or huggingface.find_head(tensors)
    bias = _BIAS_OF_TOKENS if head == "token_classification" else "output_bias"
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
    """Returns the prefix of the checkpoint to export; `export` has the arguments.

    A folder that holds none by the names of a run is searched as any folder.
    """
    if not model_dir:
        return checkpoints.resolve(checkpoint)
    if checkpoint is None and not checkpoints.numbered(model_dir):
        return checkpoints.resolve(model_dir)
    return checkpoints.choose(model_dir, checkpoint)


def _described(model_dir: str | None) -> tuple[str | None, list[str], bool | None, float]:
    """What the description of a fine-tuned model's folder says, if there is any.

    Returns:
      Head, labels, do_lower_case, and the rate of dropout before the output layer.
    """
    if not model_dir or not file_io.exists(os.path.join(model_dir, sources.DESCRIPTION_NAME)):
        return None, [], None, _DROPOUT
    folder = model_folder.read(model_dir)
    kind = kinds.KINDS.get(folder.kind)
    if not (kind and kind.huggingface_head):
        known = [row.name for row in kinds.KINDS.values() if row.huggingface_head]
        raise file_io.InputError(
            f"{model_dir} holds a model of kind {folder.kind}; transformers has no class "
            f"for it. There are classes for {', '.join(known)} and pre-trained models"
        )
    labels = list(custom.labels_of(folder)) if kind.has_labels else []
    head = kind.huggingface_head
    if head == "classification" and not labels:
        head = "regression"
    rates = [folder.settings.get(name) for name in ("classifier_dropout_prob", "dropout_prob")]
    rate = next((rate for rate in rates if isinstance(rate, (int, float))), _DROPOUT)
    return head, labels, folder.source.do_lower_case, rate


def _check_head(head: str | None, outputs: int | None) -> str:
    """The head; what one output alone is has to be said."""
    if head is None and outputs == 1:
        raise file_io.InputError(
            "the model has one output: say what it is, head=regression or head=multiple_choice"
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


def _check_layers(prefix: str, tensors: Mapping[str, np.ndarray]) -> None:
    """Rejects a head with a layer before its output."""
    if any(name.startswith("head_hidden/") for name in tensors):
        raise file_io.InputError(
            f"{prefix} has a layer before its output (head_hidden_size); transformers has no class "
            "for such a head"
        )


def _check_words(
    prefix: str, tensors: Mapping[str, np.ndarray], config: encoder.AlbertConfig
) -> None:
    """Rejects weights for another vocabulary than the configuration's."""
    words = tensors.get("bert/embeddings/word_embeddings")
    if words is not None and words.shape != (config.vocab_size, config.embedding_size):
        raise file_io.InputError(
            f"{prefix} has word embeddings of shape {list(words.shape)}; the configuration says "
            f"vocab_size {config.vocab_size} and embedding_size {config.embedding_size}"
        )


# --- tokenizer ----------------------------------------------------------------------------------


def write_tokenizer(folder: str, tokenizer: tokenization.FullTokenizer, max_length: int) -> None:
    """Writes the files of the tokenizer: same text, same ids.

    Args:
      folder: folder that exists.
      tokenizer: `tokenization.FullTokenizer`.
      max_length: longest input that the model takes, in tokens.
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
        tokenizer_json.write(folder, tokenizer, with_special_pieces=True)
        # AlbertTokenizer would put steps of its own in the place of those of tokenizer.json.
        config |= {"tokenizer_class": "PreTrainedTokenizerFast", "keep_accents": False}
        config |= {"bos_token": config["cls_token"], "eos_token": config["sep_token"]}
    file_io.write_json(os.path.join(folder, "tokenizer_config.json"), config)
