"""Writes a checkpoint as a folder that transformers loads: weights, configuration, tokenizer.

``tokenizer.json`` is that of `tokenizer_json`, except that a text that contains ``[CLS]`` or
another special piece gets the id of that piece. The class AlbertTokenizer also reads two backticks
or apostrophes as a quotation mark.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from albert.export import tokenizer_json
from albert.io import file_io, manifests, tables
from albert.model import (
    checkpoints,
    encoder,
    huggingface,
    label_scale,
    model_folder,
    pooling,
    sources,
    weight_names,
)
from albert.tasks import custom, kinds, model_labels
from albert.text import long_texts, text_rules, tokenization, wordpiece
from albert.training import run_record

_TOKEN_BIAS = f"{weight_names.TOKEN_HEAD}output_bias"
_SPM_NAME = "spiece.model"
_WITH_LABELS = ("classification", "multi_label", "token_classification")
_ON_TEXTS = ("classification", "multi_label", "regression")  # heads with a pooling
_WITHOUT_TASK = ("encoder", "masked_lm", "pretraining")
_DEFAULT_DROPOUT = 0.1  # for a classifier whose folder does not have the rate


def export(
    model_dir: str | None = None,
    checkpoint: str | None = None,
    *,
    output_dir: str,
    head: str | None = None,
    labels: Sequence[str] = (),
    architecture: str | None = None,
    given: sources.Given = sources.NOTHING,
    weights_type: str = "float32",
) -> str:
    """Writes ``model.safetensors``, the tokenizer's files and ``config.json``, or nothing.

    Args:
      model_dir: folder of a training run or of a released model.
      checkpoint: see `checkpoints.choose`; a path if there is no `model_dir`.
      head: key of `huggingface.HEADS`; None: found in the folder's description or the variables.
      labels: names of a classifier's labels by id; empty: taken from the description.
      architecture: key of `weight_names.ARCHITECTURES`; None: that of the weights.
      given: see `sources.locate`.
      weights_type: number type of the stored weights, "float32" or "float16"; transformers computes
        in float32.

    Returns:
      Name of the head, a key of `huggingface.HEADS`.
    """
    prefix = choose(model_dir, checkpoint)
    folder = os.path.dirname(prefix) or "."
    described_head, described_labels, dropout_prob = _read_description(folder, head)
    source = sources.locate(given, checkpoint=prefix)
    config = encoder.AlbertConfig.from_json_file(source.config_file)
    tokenizer = model_folder.load_tokenizer(source, config)
    tensors = checkpoints.read_tensors(prefix)
    _check_word_embeddings(prefix, tensors, config)
    names = _find_architecture(architecture, tensors)
    huggingface.check_architecture(config, names)
    _check_no_hidden_layer(prefix, tensors)
    head = head or described_head or huggingface.find_head(tensors)
    outputs = _count_outputs(tensors, head)
    head = _check_head(head, outputs)
    kind = _find_pooling(prefix, head)
    labels = _check_labels(labels, described_labels, head, outputs or 0)
    own = _with_folded_answers(tensors, prefix, head)
    weights = {
        name: _to_type(name, value, weights_type)
        for name, value in huggingface.convert_weights(own, config, head, names).items()
    }
    with file_io.atomic_folder(output_dir, last=huggingface.CONFIG_NAME) as new:
        huggingface.write_weights(new, weights)
        write_tokenizer(new, tokenizer, _longest_input(folder, config))
        if kind:
            pooling.write(new, kind, config.hidden_size, pooling.normalizes(folder))
        described = huggingface.convert_config(config, head, labels, tokenizer, names, dropout_prob)
        if weights_type != "float32":  # else transformers would compute in the type of the weights
            described["dtype"] = "float32"
        huggingface.write_config(new, described)
        manifests.write(new)
    if model_dir:
        run_record.log_remarks(model_dir, run_record.read_remarks(model_dir))
    return head


def _to_type(name: str, value: np.ndarray, weights_type: str) -> np.ndarray:
    with np.errstate(over="ignore"):
        converted = value.astype(weights_type)
    if not np.isfinite(converted).all():
        raise file_io.InputError(f"{name} has weights that {weights_type} cannot hold")
    return converted


def _check_labels(
    given: Sequence[str], described: Sequence[str], head: str, outputs: int
) -> list[str]:
    """Checks the names of labels and returns them; of other heads, none."""
    if head not in _WITH_LABELS:
        if given:
            raise file_io.InputError(
                f"`labels`: the head {head} has no labels, got {', '.join(given)}; leave them out"
            )
        return []
    labels = list(given or described) or [f"LABEL_{i}" for i in range(outputs)]
    if len(labels) != outputs:
        raise file_io.InputError(
            f"`labels`: the model has {outputs} labels, got {len(labels)}: {labels}"
        )
    if len(set(labels)) < len(labels) or not all(map(tables.is_name, labels)):
        raise file_io.InputError(f"`labels`: expected different names, got {labels}")
    return labels


def _find_architecture(
    name: str | None, tensors: Mapping[str, np.ndarray]
) -> weight_names.Architecture:
    if name is not None:
        return weight_names.ARCHITECTURES[name]
    return weight_names.architecture_of({name: x.shape for name, x in tensors.items()})


def choose(model_dir: str | None, checkpoint: str | None) -> str:
    """Returns the prefix of the checkpoint to export; for the arguments see `export`.

    If the folder has no numbered checkpoints of a run, any checkpoint in it is taken.
    """
    if not model_dir:
        return checkpoints.resolve(checkpoint or "")
    if checkpoint is None and not checkpoints.numbered(model_dir):
        return checkpoints.resolve(model_dir)
    return checkpoints.choose(model_dir, checkpoint)


def _longest_input(folder: str, config: encoder.AlbertConfig) -> int:
    """Returns the tokens that the model of a folder reads of a text."""
    length = (model_folder.described_settings(folder) or {}).get("max_seq_length")
    if isinstance(length, int):
        return length
    said = pooling.read_max_length(folder) or huggingface.read_max_length(folder)
    return min(said or config.max_position_embeddings, config.max_position_embeddings)


def _read_description(folder: str, head: str | None) -> tuple[str | None, list[str], float]:
    """Reads the description of a fine-tuned model's folder, or its ``config.json``.

    Returns head, labels, and the dropout rate before the output layer. `head`: the one to write;
    None: that of the description.
    """
    if head in _WITHOUT_TASK or model_labels.read_folder(folder) is None:
        return None, [], _DEFAULT_DROPOUT
    model = kinds.read_folder(folder)
    kind = kinds.KINDS.get(model.kind)
    if not (kind and kind.huggingface_head):
        names = [row.name for row in kinds.KINDS.values() if row.huggingface_head]
        raise file_io.InputError(
            f"{folder} holds a model of kind {model.kind}, for which transformers has no class; "
            f"expected {', '.join(names)} or a pre-trained model, or head=encoder"
        )
    if model.long_text_rule != long_texts.ALL_CUT:
        logging.warning(
            "%s: long_texts=%s, but transformers cuts texts that are longer than the input",
            folder,
            model.long_text_rule.mode,
        )
    if model.decision.thresholds or model.decision.may_abstain:
        logging.warning(
            "%s: transformers has no place for %s; the model card names them",
            folder,
            "the thresholds of its labels" if model.decision.thresholds else "its abstention",
        )
    labels = list(custom.names_of(model)) if kind.has_labels else []
    head = kind.huggingface_head
    if head == "classification" and not labels:
        head = "regression"
    rates = [model.settings.get(name) for name in ("classifier_dropout_prob", "dropout_prob")]
    rate = next((rate for rate in rates if isinstance(rate, (int, float))), _DEFAULT_DROPOUT)
    return head, labels, rate


def _check_head(head: str | None, outputs: int | None) -> str:
    """Checks the head and returns it; for one output the caller must give it."""
    if head is None and outputs == 1:
        raise file_io.InputError(
            "the model has one output, which may be of two heads: give head=regression or "
            "head=multiple_choice"
        )
    head = head or "classification"
    wants_one = head in ("regression", "multiple_choice")
    has_outputs = head in _WITH_LABELS or wants_one
    if has_outputs and (outputs is None or wants_one != (outputs == 1)):
        raise file_io.InputError(
            f"head={head} needs {'one output' if wants_one else 'at least two outputs'}; the "
            f"checkpoint has {outputs or 'no such head'}"
        )
    return head


def _with_folded_answers(
    tensors: dict[str, np.ndarray], prefix: str, head: str
) -> dict[str, np.ndarray]:
    """Converts the output layer so that answers need neither a scale nor a temperature."""
    folder = os.path.dirname(prefix)
    if head == "regression":
        scale = model_folder.described_scale(folder)
        return label_scale.convert_head(tensors, scale, label_scale.RAW)
    if head in ("classification", "multi_label"):
        decision = model_folder.described_decision(folder)
        model_folder.warn_of_decision(decision, prefix)
        return decision.fold(tensors)
    return tensors


def _check_no_hidden_layer(prefix: str, tensors: Mapping[str, np.ndarray]) -> None:
    if any(name.startswith("head_hidden/") for name in tensors):
        raise file_io.InputError(
            f"{prefix} has a hidden layer before its output layer (head_hidden_size); transformers "
            "has no class for such a head"
        )


def _count_outputs(tensors: Mapping[str, np.ndarray], head: str | None) -> int | None:
    """Returns the number of outputs of a classifier or regression; None for other models."""
    bias = _TOKEN_BIAS if head == "token_classification" else "output_bias"
    return len(tensors[bias]) if bias in tensors else None


def _find_pooling(prefix: str, head: str) -> str | None:
    """Returns the kind of pooling to write, one of `pooling.KINDS`; None for a usual classifier."""
    folder = os.path.dirname(prefix) or "."
    described = model_folder.described_head(folder)
    kind = described.pooling if described else pooling.read(folder)
    if not described:
        pooling.warn_of_prompts(folder)
    if head in _ON_TEXTS and kind not in (None, pooling.CLS):
        raise file_io.InputError(
            f"{prefix} has a head that reads the {kind} of all tokens; the classes of "
            "transformers for classification and regression read the first token through the "
            "pooler: train with pooling=cls, write another form with export_serving, or only the "
            "encoder (head=encoder)"
        )
    return None if described and kind == pooling.CLS else kind


def _check_word_embeddings(
    prefix: str, tensors: Mapping[str, np.ndarray], config: encoder.AlbertConfig
) -> None:
    words = tensors.get("bert/embeddings/word_embeddings")
    if words is not None and words.shape != (config.vocab_size, config.embedding_size):
        raise file_io.InputError(
            f"{prefix} has word embeddings of shape {list(words.shape)}; the configuration says "
            f"vocab_size {config.vocab_size} and embedding_size {config.embedding_size}"
        )


# --- tokenizer ----------------------------------------------------------------------------------


def write_tokenizer(folder: str, tokenizer: tokenization.FullTokenizer, max_length: int) -> None:
    """Writes the tokenizer's files, with which transformers computes the same ids."""
    config: dict[str, Any] = {
        f"{name}_token": tokenizer.inv_vocab[getattr(tokenizer, f"{name}_id")]
        for name in ("pad", "unk", "cls", "sep", "mask")
    }
    config |= {"do_lower_case": tokenizer.do_lower_case, "model_max_length": max_length}
    config["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
    extra = tokenizer.rules.extra_pieces
    if extra:
        config["added_tokens_decoder"] = {
            str(tokenizer.vocab[piece]): tokenizer_json.added_token(tokenizer, piece)
            for piece in extra
        }
    if tokenizer.sp_model is None:
        theirs = tokenizer.rules.changed(text_rules.OF_TRANSFORMERS)
        if lost := tokenizer.rules.differences(theirs, sentencepiece=False):
            logging.warning("BertTokenizer of transformers reads some texts otherwise: %s", lost)
        pieces = list(tokenizer.vocab)[: tokenizer.base_size]
        path = os.path.join(folder, sources.VOCAB_NAME)
        file_io.write_text(path, wordpiece.vocab_text(pieces))
        config |= {
            "tokenizer_class": "BertTokenizer",
            "strip_accents": not tokenizer.keep_accents,
            "tokenize_chinese_chars": tokenizer.rules.split_ideographs,
        }
    else:
        if not tokenizer.rules.as_huggingface:  # As the file itself is used by other rules.
            file_io.copy(tokenizer.vocabulary_file, os.path.join(folder, _SPM_NAME))
        tokenizer_json.write(folder, tokenizer, with_special_pieces=True)
        # AlbertTokenizer would replace the steps of tokenizer.json by its own.
        config["tokenizer_class"] = "PreTrainedTokenizerFast"
        config["keep_accents"] = tokenizer.keep_accents
        config |= {"bos_token": config["cls_token"], "eos_token": config["sep_token"]}
    file_io.write_json(os.path.join(folder, "tokenizer_config.json"), config)
