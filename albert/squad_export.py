"""SQuAD models in forms that other programs load: SavedModel and TensorFlow Lite."""

import os

import tensorflow as tf
from absl import logging

from albert import checkpoint_walk, checkpoints, export, file_io, layers, squad_task

SAVED_MODEL = "saved_model"
TFLITE_NAME = "albert_model.tflite"
# What the original calls the logits of SQuAD 1.1 in its SavedModel.
_OTHER_NAMES = {"start_log_prob": "start_logits", "end_log_prob": "end_logits"}


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


class _Server(tf.Module):
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
    specs = [tf.TensorSpec(shape, tf.int32, name=name) for name in export.MODEL_INPUTS]
    return tf.function(method, input_signature=specs, autograph=False)


def _lite_model(server, max_seq_length):
    """Bytes of the TensorFlow Lite model."""
    from tensorflow.lite.tools import flatbuffer_utils  # needed for this alone

    function = _function(server.__call__, 1, max_seq_length).get_concrete_function()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function], server)
    model = flatbuffer_utils.read_model_from_bytearray(bytearray(converter.convert()))
    # The converter leaves names and order to chance; many programs go by the order.
    (signature,) = model.signatureDefs
    graph = model.subgraphs[signature.subgraphIndex]
    inputs = {item.name.decode(): item.tensorIndex for item in signature.inputs}
    outputs = {item.name.decode(): item.tensorIndex for item in signature.outputs}
    graph.inputs = [inputs[name] for name in export.MODEL_INPUTS]
    graph.outputs = [outputs[name] for name in _OTHER_NAMES.values()]
    for name, index in (inputs | outputs).items():
        graph.tensors[index].name = name.encode()
    return bytes(flatbuffer_utils.convert_object_to_bytearray(model))


def export_checkpoint(runner, checkpoint, max_seq_length, export_dir):
    """Writes a new folder of ``saved_model/`` and, for SQuAD 1.1, ``albert_model.tflite``.

    The SavedModel takes int32 ``input_ids``, ``input_mask`` and ``segment_ids`` [B, S] of any sizes
    and returns what the model returns: ``start_logits`` and ``end_logits`` [B, S], also under the
    names ``start_log_prob`` and ``end_log_prob``; under SQuAD 2.0 the beams and ``cls_logits``. The
    TensorFlow Lite model takes [1, `max_seq_length`], has its inputs and the two logits in that
    order, and replaces an older one.

    Args:
      runner: `engine.Engine` of a SQuAD task.
      checkpoint: which one, see `checkpoint_walk.choose`.
      max_seq_length: S of the TensorFlow Lite model.
      export_dir: folder, made if it is not there.

    Raises:
      file_io.InputError: no checkpoint, or the files cannot be written.
    """
    # A model of its own: that of a run may compute in another precision, and leaves out padding,
    # for which TensorFlow Lite has no operations.
    model = runner.task.build_model(runner.model.config, layers.Compute(), 0)
    prefix = checkpoint_walk.choose(runner.run_config.output_dir, checkpoint)
    checkpoints.restore(model, prefix, allow_new_heads=False)
    server = _Server(model)
    server.serve = _function(server.under_all_names, None, None)
    signatures = {"serving_default": server.serve}
    export.save_version(server, signatures, os.path.join(export_dir, SAVED_MODEL))
    if runner.task.name == squad_task.V1:
        path = os.path.join(export_dir, TFLITE_NAME)
        with file_io.atomic_writer(path, "wb") as file:
            file.write(_lite_model(server, max_seq_length))
        logging.info("Exported to %s", path)
