"""Writes a checkpoint as a folder that transformers loads."""

import os

from albert import (
    checkpoint_walk,
    checkpoints,
    file_io,
    huggingface,
    huggingface_tokenizer,
    model_folder,
    modeling,
    pretrained,
)

# Kind of a model folder -> key of `huggingface.HEADS`.
_HEAD_OF_KIND = {
    "classifier": "classification",
    "multiple_choice": "multiple_choice",
    "squad_v1": "squad_v1",
}


def export(model_dir=None, checkpoint=None, output_dir=None, head=None, labels=(), **files):
    """Writes ``model.safetensors``, the tokenizer's files and ``config.json``: all or nothing.

    Args:
      model_dir: folder of a training run or of a released model.
      checkpoint: see `checkpoint_walk.choose`; a path if there is no `model_dir`.
      output_dir: folder to write to.
      head: key of `huggingface.HEADS`; None: what the folder's description or the variables tell.
      labels: names of a classifier's labels by id; none: those of the description.
      **files: what `pretrained.locate` takes beside the checkpoint.

    Returns:
      The head that was written.

    Raises:
      file_io.InputError: there is no such checkpoint, a head that transformers does not have, or
        vocabulary, configuration and weights do not fit; nothing is written then.
    """
    prefix = _choose(model_dir, checkpoint) if model_dir else checkpoints.resolve(checkpoint)
    described_head, described_labels, lower_case = _described(model_dir)
    if files.get("do_lower_case") is None:
        files["do_lower_case"] = lower_case
    source = pretrained.locate(checkpoint=prefix, **files)
    config = modeling.AlbertConfig.from_json_file(source.config_file)
    tokenizer = model_folder.load_tokenizer(source, config)
    tensors = checkpoints.read_tensors(prefix)
    _check_words(prefix, tensors, config)
    head = head or described_head or huggingface.find_head(tensors)
    outputs = len(tensors["output_bias"]) if "output_bias" in tensors else None
    head = _check_head(head, outputs)
    labels = list(labels or described_labels) if head == "classification" else []
    if head == "classification":
        labels = labels or [f"LABEL_{i}" for i in range(outputs)]
        if len(labels) != outputs:
            raise file_io.InputError(
                f"labels: the model has {outputs} labels, got {len(labels)}: {labels}"
            )
    weights = huggingface.convert_weights(tensors, config, head)
    described = huggingface.convert_config(config, head, labels, tokenizer)
    with file_io.atomic_folder(output_dir, last=huggingface.CONFIG_NAME) as folder:
        huggingface.write_weights(folder, weights)
        huggingface_tokenizer.write(folder, tokenizer, config.max_position_embeddings)
        huggingface.write_config(folder, described)
    return head


def _choose(model_dir, checkpoint):
    """Prefix in a folder; one that holds none by the names of a run is searched as any folder."""
    if checkpoint is None and not checkpoints.numbered(model_dir):
        return checkpoints.resolve(model_dir)
    return checkpoint_walk.choose(model_dir, checkpoint)


def _described(model_dir):
    """Head, labels, do_lower_case by the description of a fine-tuned model's folder, if any."""
    if not model_dir or not file_io.exists(os.path.join(model_dir, pretrained.DESCRIPTION_NAME)):
        return None, [], None
    folder = model_folder.read(model_dir)
    if folder.kind not in _HEAD_OF_KIND:
        raise file_io.InputError(
            f"{model_dir} holds a model of kind {folder.kind}; transformers has no ALBERT class "
            f"for it. There are classes for {', '.join(_HEAD_OF_KIND)} and pre-trained models"
        )
    labels = folder.settings.get("labels", [])
    head = _HEAD_OF_KIND[folder.kind]
    if head == "classification" and not labels:
        head = "regression"
    return head, labels, folder.source.do_lower_case


def _check_head(head, outputs):
    """The head; what one output alone is has to be said."""
    if head is None and outputs == 1:
        raise file_io.InputError(
            "the model has one output: say what it is, head=regression or head=multiple_choice"
        )
    head = head or "classification"
    wants_one = head in ("regression", "multiple_choice")
    if (head == "classification" or wants_one) and (outputs is None or wants_one != (outputs == 1)):
        raise file_io.InputError(
            f"head={head} needs {'one output' if wants_one else 'at least two outputs'}; the "
            f"checkpoint has {outputs or 'no such head'}"
        )
    return head


def _check_words(prefix, tensors, config):
    """Refuses weights for another vocabulary than the configuration's."""
    words = tensors.get("bert/embeddings/word_embeddings")
    if words is not None and words.shape != (config.vocab_size, config.embedding_size):
        raise file_io.InputError(
            f"{prefix} has word embeddings of shape {list(words.shape)}; the configuration says "
            f"vocab_size {config.vocab_size} and embedding_size {config.embedding_size}"
        )
