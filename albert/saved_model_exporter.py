"""Writes the SavedModels of serving folders: for ids, and for texts.

What takes texts has operations of tensorflow-text, without which TensorFlow cannot load it. So it
is a SavedModel of its own. Questions and choices have none: their texts go through `predictors`,
which use the same folder.

Letters in shapes: B batch, S sequence, K labels.
"""

import os

import tensorflow as tf
from absl import logging

from albert import (
    choice_exporter,
    export,
    exported_model,
    file_io,
    graph_tokenizer,
    layers,
    model_folder,
    race_utils,
    squad_task,
    tables,
    token_classification,
    token_exporter,
)

TEXT_MODEL = "saved_model_text"  # beside the model of ids
DESCRIPTION = "description"  # name of the signature that says what the model is


def write(folder, trained, with_texts=True):
    """Writes the models of a serving folder.

    The model of ids has the signature ``serving_default``, int32 [B, S] of any sizes, with the
    inputs and outputs that `serving_folder` names, and the signature `DESCRIPTION` without inputs:
    ``kind`` string, ``labels`` strings [K], ``max_seq_length`` int32. Where tensorflow-text is
    installed, and for all but SQuAD, `TEXT_MODEL` has the signatures of `export.TextServer`,
    `token_exporter.WordServer` or `choice_exporter.ChoiceServer`, and `DESCRIPTION`.

    Args:
      folder: `serving_folder.ServingFolder` to write to, in float32 or bfloat16.
      trained: `model_folder.ModelFolder` of the model, with its checkpoint.
      with_texts: whether `TEXT_MODEL` is written.

    Raises:
      file_io.InputError: the folder cannot be written.
    """
    # Each number of rows of tokens may be compiled for, and there are fewer of those than sizes.
    compute = layers.Compute(dtype=folder.precision, skip_padding=True)
    exported = exported_model.ExportedModel(trained, compute)
    exported.serve, exported.describe = exported.function(), _description(exported)
    about = {DESCRIPTION: exported.describe}
    _save(exported, {"serving_default": exported.serve, **about}, folder.model_file)
    if not with_texts:
        return
    try:
        server, signatures = _text_server(exported, trained)
    except file_io.InputError as error:
        logging.warning("There is no model of texts in the folder: %s", error)
        return
    if server:
        server.describe = exported.describe
        _save(server, signatures | about, os.path.join(folder.path, TEXT_MODEL))


def _description(exported):
    def describe():
        return {
            "kind": tf.constant(exported.kind),
            "labels": tf.constant(exported.labels, tf.string, [len(exported.labels)]),
            "max_seq_length": tf.constant(exported.max_seq_length, tf.int32),
        }

    return tf.function(describe, input_signature=[], autograph=False)


def _text_server(exported, trained):
    """The module that takes texts and its signatures; None for models without one."""
    if exported.kind in squad_task.KINDS:
        return None, {}
    tokenizer = model_folder.load_tokenizer(trained.source, trained.config)
    graph_tokenizer.check_text(tokenizer, "a model of texts")
    values = exported.model, tokenizer, exported.max_seq_length
    if exported.kind == race_utils.KIND:
        length = trained.length("max_qa_length", 1)
        server = choice_exporter.ChoiceServer(*values, length)
        return server, {"serving_default": server.serve}
    values = *values, exported.labels
    if exported.kind == token_classification.KIND:
        server = token_exporter.WordServer(*values)
        return server, {"serving_default": server.serve, "words": server.serve_words}
    is_pair = trained.setting("columns", tables.are_columns)["text_pair"] is not None
    server = export.TextServer(*values, is_pair)
    return server, {"serving_default": server.serve}


def _save(module, signatures, path):
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    try:
        tf.saved_model.save(module, path, signatures=signatures, options=options)
    except tf.errors.OpError as error:
        raise file_io.InputError(f"cannot write {path}: {error}") from error
