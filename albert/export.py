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
    temporary = file_io.temporary_name(target)
    try:
        tf.saved_model.save(module, temporary, signatures=signatures)
        file_io.remove(target)
        file_io.rename(temporary, target)
    except (tf.errors.OpError, OSError) as error:
        raise file_io.InputError(f"cannot write the model to {target}: {error}") from error
    finally:
        file_io.remove(temporary)
    logging.info("Exported to %s", target)
    return target
