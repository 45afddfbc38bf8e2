"""A model's answers, with its weights prepared once for many batches."""

import tensorflow as tf


class ReadyModel:
    """``features -> outputs`` of a model, compiled, from arrays to arrays.

    Args:
      model: `head_parts.Model` or `modeling.AlbertModel`. The encoder's weights are taken as they
        are now; changes of them count from the next `refresh` on.
      outputs: ``features -> outputs`` as tensors, computed with the model.
      names: of the features, int32 matrices of any sizes.
    """

    def __init__(self, model, outputs, names):
        self._model, self._outputs = model, outputs
        self.refresh()
        features = {name: tf.TensorSpec([None, None], tf.int32) for name in names}
        weights = tf.nest.map_structure(tf.TensorSpec.from_tensor, self._weights)
        signature = [features, weights]
        self._compute = tf.function(self._traced, input_signature=signature, autograph=False)

    def refresh(self):
        """Takes the weights as they are now."""
        self._weights = self._model.ready_weights()

    def _traced(self, features, weights):
        with self._model.using(weights):
            return self._outputs(features)

    def __call__(self, features):
        """Outputs, structured as `outputs` returns them, as numpy arrays.

        Args:
          features: dict of int32 arrays.
        """
        return tf.nest.map_structure(lambda x: x.numpy(), self._compute(features, self._weights))
