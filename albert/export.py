"""Writes fine-tuned models in forms that other programs load.

Classifiers for serialized tf.Examples and for strings, SQuAD models for ids, as SavedModels; SQuAD
1.1 also for TensorFlow Lite. In a model that takes strings the tokenizer is part of the graph, see
`graph_tokenizer`; programs that load it must import ``tensorflow_text`` first.

Letters in shapes: B batch, K labels, S sequence.
"""

import math
import os
import time

import tensorflow as tf
from absl import logging

from albert import (
    batching,
    checkpoint_walk,
    checkpoints,
    export_manifest,
    file_io,
    graph_tokenizer,
    layers,
    litert_exporter,
    records,
    squad_task,
)

MODEL_INPUTS = ("input_ids", "input_mask", "segment_ids")
SAVED_MODEL = "saved_model"
TFLITE_NAME = "albert_model.tflite"
# What the original calls the logits of SQuAD 1.1 in its SavedModel.
_OTHER_NAMES = {"start_log_prob": "start_logits", "end_log_prob": "end_logits"}
# In the order of the original's TensorFlow Lite model, whose converter sorts the names.
_LITE_OUTPUTS = ("end_logits", "start_logits")


def model_to_serve(task, config, prefix, skip_padding=True):
    """The model of a task with the weights of a checkpoint, to be loaded anywhere.

    It computes in float32, as how low precision is computed depends on the machine.

    Args:
      task: `task.Task`.
      config: `modeling.AlbertConfig`.
      prefix: the checkpoint.
      skip_padding: see `layers.Compute`.
    """
    compute = layers.Compute(skip_padding=skip_padding)
    model = task.build_model(config, compute, 0)
    checkpoints.restore(model, prefix, allow_new_heads=False)
    return model


# --- classifiers ----------------------------------------------------------------------------------


class _ExampleServer(tf.Module):
    """Answers serialized tf.Examples with a classifier's probabilities and predictions."""

    def __init__(self, model, specs, threshold):
        super().__init__()
        self._model = model
        self._specs = tuple(spec for spec in specs if spec.name in MODEL_INPUTS)
        self._threshold = threshold

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="input")], autograph=False)
    def serve(self, examples):
        features = batching.trim(records.parse(self._specs, examples), MODEL_INPUTS)
        outputs = self._model(features, training=False)
        answer = {name: outputs[name] for name in ("probabilities", "predictions")}
        if self._threshold is not None:
            answer["threshold"] = tf.constant(self._threshold, tf.float32)
        return answer

    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.string, name="examples")], autograph=False
    )
    def serve_examples(self, examples):
        return self.serve(examples)


def export_classifier(model, specs, export_dir, threshold=None):
    """Writes a SavedModel whose signatures take serialized tf.Examples.

    The signature ``serving_default`` calls them ``input``, as the original does, the signature
    ``examples`` calls them ``examples``.

    Args:
      model: classifier or regression model of `heads`.
      specs: feature specifications of its task.
      export_dir: the model goes to a new folder here, see `save_version`.
      threshold: constant output ``threshold``; None or NaN leaves it out.

    Returns:
      The new folder.

    Raises:
      file_io.InputError: the folder cannot be written.
    """
    if threshold is not None and math.isnan(threshold):
        threshold = None
    server = _ExampleServer(model, specs, threshold)
    signatures = {"serving_default": server.serve, "examples": server.serve_examples}
    return save_version(server, signatures, export_dir)


def save_version(module, signatures, parent):
    """Writes a SavedModel to a new folder of `parent`; returns that folder.

    Its name is the time in seconds, so that model servers take the newest.
    """
    version = int(time.time())
    while file_io.exists(os.path.join(parent, str(version))):
        version += 1
    return save_model(module, signatures, parent, str(version))


def save_model(module, signatures, parent, name):
    """Writes a SavedModel under `parent` that appears whole or not at all; returns its folder.

    An older one of that name is replaced.
    """
    file_io.make_dirs(parent)
    target = os.path.join(parent, name)
    # Hidden, so that no server takes it for a model, whenever the process ends.
    temporary = file_io.temporary_name(os.path.join(parent, ".model"))
    try:
        with file_io.room_for(target, _size_of(module)):
            try:
                tf.saved_model.save(module, temporary, signatures=signatures)
                export_manifest.write(temporary)
                file_io.remove(target)
                file_io.rename(temporary, target)
            finally:
                file_io.remove(temporary)
    except (tf.errors.OpError, OSError) as error:
        raise file_io.InputError(f"cannot write the model to {target}: {error}") from error
    logging.info("Exported to %s", target)
    return target


def _size_of(module):
    """Bytes of its variables, nearly all of a model's; None of an object that does not list any."""
    if not isinstance(module, tf.Module):
        return None
    shapes = [(variable.dtype.size, variable.shape.num_elements()) for variable in module.variables]
    return sum(size * count for size, count in shapes)


# --- SQuAD --------------------------------------------------------------------------------------


def answer_mask(input_mask, segment_ids):
    """The feature ``p_mask`` of inputs that come without it.

    Args:
      input_mask: [B, S] integers, 1 for the places before the padding.
      segment_ids: [B, S] integers, 1 for the text and the [SEP] behind it.

    Returns:
      [B, S] int32: 0 at [CLS] and the text, where an answer may be, else 1.
    """
    text = segment_ids * input_mask
    # The last place of the text's segment is its [SEP].
    before_end = tf.cumsum(text, axis=-1, reverse=True) > 1
    first = tf.range(tf.shape(text)[-1]) == 0
    return tf.cast(~(((text > 0) & before_end) | first), tf.int32)


class _SquadServer(tf.Module):
    """A model behind the three inputs that all programs have."""

    def __init__(self, model):
        super().__init__()
        self._model = model

    def __call__(self, input_ids, input_mask, segment_ids):
        """What the model returns."""
        features = {
            "input_ids": input_ids,
            "input_mask": input_mask,
            "segment_ids": segment_ids,
            "p_mask": answer_mask(input_mask, segment_ids),
        }
        return self._model(features, training=False)

    def under_all_names(self, input_ids, input_mask, segment_ids):
        """The same, logits of SQuAD 1.1 under both of their names."""
        outputs = self(input_ids, input_mask, segment_ids)
        others = {name: ours for name, ours in _OTHER_NAMES.items() if ours in outputs}
        return outputs | {name: tf.identity(outputs[ours]) for name, ours in others.items()}


def _function(method, batch_size, seq_length):
    """`tf.function` of a server's method with named int32 inputs [batch_size, seq_length]."""
    shape = [batch_size, seq_length]
    specs = [tf.TensorSpec(shape, tf.int32, name=name) for name in MODEL_INPUTS]
    return tf.function(method, input_signature=specs, autograph=False)


def _lite_model(server, max_seq_length, path):
    """Bytes of the TensorFlow Lite model that is to go to a path."""
    function = _function(server.__call__, 1, max_seq_length)
    about = {"inputs": MODEL_INPUTS, "outputs": _LITE_OUTPUTS}
    return litert_exporter.convert(server, {"serving_default": function}, about, path)


def export_squad(runner, checkpoint, max_seq_length, export_dir):
    """Writes a new folder of ``saved_model/`` and, for SQuAD 1.1, ``albert_model.tflite``.

    The SavedModel takes int32 ``input_ids``, ``input_mask`` and ``segment_ids`` [B, S] of any sizes
    and returns what the model returns: ``start_logits`` and ``end_logits`` [B, S], also under the
    names ``start_log_prob`` and ``end_log_prob``; under SQuAD 2.0 the beams and ``cls_logits``. The
    TensorFlow Lite model takes [1, `max_seq_length`], has its inputs in that order and as outputs
    ``end_logits`` and ``start_logits``, and replaces an older one.

    Args:
      runner: `engine.Engine` of a SQuAD task.
      checkpoint: which one, see `checkpoint_walk.choose`.
      max_seq_length: S of the TensorFlow Lite model.
      export_dir: folder, made if it is not there.

    Raises:
      file_io.InputError: no checkpoint, or the files cannot be written.
    """
    prefix = checkpoint_walk.choose(runner.run_config.output_dir, checkpoint)
    logging.info("Exporting %s", prefix)
    # TensorFlow Lite has no operations for leaving padding out.
    model = model_to_serve(runner.task, runner.model.config, prefix, skip_padding=False)
    server = _SquadServer(model)
    server.serve = _function(server.under_all_names, None, None)
    signatures = {"serving_default": server.serve}
    save_version(server, signatures, os.path.join(export_dir, SAVED_MODEL))
    if runner.task.name == squad_task.V1:
        path = os.path.join(export_dir, TFLITE_NAME)
        file_io.write_bytes(path, _lite_model(server, max_seq_length, path))
        logging.info("Exported to %s", path)


# --- strings ------------------------------------------------------------------------------------


def kept_lengths(lengths_a, lengths_b, max_length):
    """Lengths [B] of two texts after `packing.truncate_pair`, whose rule this is in a graph."""
    excess = tf.maximum(lengths_a + lengths_b - max_length, 0)
    until_equal = tf.minimum(excess, tf.abs(lengths_a - lengths_b))
    in_turns = excess - until_equal
    drop_a = in_turns // 2 + tf.where(lengths_a > lengths_b, until_equal, 0)
    return lengths_a - drop_a, lengths_b - (excess - drop_a)


def _cut(ids, lengths):
    """The first `lengths` [B] ids of each row of a ragged tensor."""
    return tf.RaggedTensor.from_tensor(ids.to_tensor(), lengths=lengths)


class TextPacker(tf.Module):
    """Makes a model's inputs of strings.

    Args:
      tokenizer: `tokenization.FullTokenizer`.
      max_seq_length: S; longer texts are cut as `classifier_utils.convert_example` does.

    Attributes:
      tokenizer: what `graph_tokenizer.make` makes.
    """

    def __init__(self, tokenizer, max_seq_length):
        super().__init__()
        self.tokenizer = graph_tokenizer.make(tokenizer)
        self._max_seq_length = max_seq_length
        self._cls_id, self._sep_id = tokenizer.cls_id, tokenizer.sep_id
        self._pad_id = tokenizer.pad_id

    def features(self, text, text_pair=None):
        """`packing.pack` of strings [B]: dict of int32 tensors [B, S'], S' the longest of them."""
        first = self.tokenizer.encode(text)
        if text_pair is None:
            return self.pack(first[:, : self._max_seq_length - 2])
        second = self.tokenizer.encode(text_pair)
        lengths = kept_lengths(
            *(tf.cast(ids.row_lengths(), tf.int32) for ids in (first, second)),
            self._max_seq_length - 3,
        )
        return self.pack(*(_cut(*pair) for pair in zip((first, second), lengths, strict=True)))

    def pack(self, first, second=None):
        """`packing.pack` of ragged ids [B, (tokens)] that fit: as `features`."""
        rows = first.nrows(tf.int32)

        def mark(piece):
            return tf.fill([rows, 1], piece)

        second = [] if second is None else [second, mark(self._sep_id)]
        whole = tf.concat([mark(self._cls_id), first, mark(self._sep_id), *second], axis=1)
        boundary = tf.cast(first.row_lengths(), tf.int32)[:, tf.newaxis] + 2
        input_ids = whole.to_tensor(self._pad_id)
        input_mask = tf.sequence_mask(whole.row_lengths(), dtype=tf.int32)
        place = tf.range(tf.shape(input_ids)[1])[tf.newaxis, :]
        segment_ids = input_mask * tf.cast(place >= boundary, tf.int32)
        return {"input_ids": input_ids, "input_mask": input_mask, "segment_ids": segment_ids}


class TextServer(TextPacker):
    """Answers strings with a classifier or regression model.

    Args:
      model: model of `heads`.
      tokenizer: `tokenization.FullTokenizer`.
      max_seq_length: S; longer texts are cut as `classifier_utils.convert_example` does.
      labels: K label names by id; empty for regression.
      is_pair: the model takes two texts.

    Attributes:
      serve: the function of its signature: text [B], and text_pair [B] if `is_pair`, to prediction
        [B] (label names; for regression numbers) and, for labels, probabilities and labels [B, K].
    """

    def __init__(self, model, tokenizer, max_seq_length, labels, is_pair):
        super().__init__(tokenizer, max_seq_length)
        self._model = model
        self._labels = tuple(labels)
        names = ("text", "text_pair") if is_pair else ("text",)
        signature = [tf.TensorSpec([None], tf.string, name=name) for name in names]
        self.serve = tf.function(self._answer, input_signature=signature, autograph=False)

    def _answer(self, text, text_pair=None):
        outputs = self._model(self.features(text, text_pair), training=False)
        if not self._labels:
            return {"prediction": outputs["predictions"]}
        labels = tf.constant(self._labels)
        return {
            "prediction": tf.gather(labels, outputs["predictions"]),
            "probabilities": outputs["probabilities"],
            "labels": tf.tile(labels[tf.newaxis], [tf.shape(text)[0], 1]),
        }


def export_text_classifier(model, tokenizer, max_seq_length, labels, is_pair, export_dir):
    """Writes a SavedModel with the signature of `TextServer.serve`.

    Args: as `TextServer`; the model goes to a new folder of ``<export_dir>/text``, see
      `save_version`.

    Returns:
      The new folder.

    Raises:
      file_io.InputError: see `graph_tokenizer.make`, or the folder cannot be written.
    """
    server = TextServer(model, tokenizer, max_seq_length, labels, is_pair)
    parent = os.path.join(export_dir, "text")
    return save_version(server, {"serving_default": server.serve}, parent)
