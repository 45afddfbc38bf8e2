"""Writes fine-tuned models in forms that other programs load."""

import math
import os
import time

import tensorflow as tf
from absl import logging

from albert import batching, file_io, records

MODEL_INPUTS = ("input_ids", "input_mask", "segment_ids")


class _ExampleServer(tf.Module):
    """Answers serialized tf.Examples with a classifier's probabilities and predictions."""

    def __init__(self, model, specs, threshold):
        super().__init__()
        self._model = model
        self._specs = tuple(spec for spec in specs if spec.name in MODEL_INPUTS)
        self._threshold = threshold

    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.string, name="examples")], autograph=False
    )
    def serve(self, examples):
        features = batching.trim(records.parse(self._specs, examples), MODEL_INPUTS)
        outputs = self._model(features, training=False)
        answer = {name: outputs[name] for name in ("probabilities", "predictions")}
        if self._threshold is not None:
            answer["threshold"] = tf.constant(self._threshold, tf.float32)
        return answer


def export_classifier(model, specs, export_dir, threshold=None):
    """Writes a SavedModel whose signature takes serialized tf.Examples.

    Args:
      model: classifier or regression model of `heads`.
      specs: feature specifications of its task.
      export_dir: the model goes to a new folder here, named by the time in seconds, as model
        servers expect.
      threshold: constant output ``threshold``; None or NaN leaves it out.

    Returns:
      The new folder.

    Raises:
      file_io.InputError: the folder cannot be written.
    """
    if threshold is not None and math.isnan(threshold):
        threshold = None
    server = _ExampleServer(model, specs, threshold)
    return save_model(server, {"serving_default": server.serve}, export_dir, str(int(time.time())))


def save_model(module, signatures, parent, name):
    """Writes a SavedModel under `parent` that appears whole or not at all; returns its folder.

    An older one of that name is replaced.
    """
    file_io.make_dirs(parent)
    target = os.path.join(parent, name)
    temporary = file_io.temporary_name(target)
    try:
        tf.saved_model.save(module, temporary, signatures=signatures)
        file_io.remove(target)
        file_io.rename(temporary, target)
    except (tf.errors.OpError, OSError) as error:
        file_io.remove(temporary)
        raise file_io.InputError(f"cannot write the model to {target}: {error}") from error
    logging.info("Exported to %s", target)
    return target
