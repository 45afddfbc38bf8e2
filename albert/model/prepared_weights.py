"""Weights that are prepared once for many batches, and models compiled to take them.

Layers compute with their weights cast, scaled and joined. Preparing them takes a good part of a
call on a short text, so evaluation, predictors and servers do it once.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tensorflow as tf


class PreparedWeights:
    """Holds the prepared weights of layers while a function is traced with them.

    This is not a `tf.Module`, and the layers are variables' owners already, so a model that has one
    tracks nothing twice.

    Args:
      layers: the layers, each with ``weights(dtype)``; one that is shared counts once.
      dtype: type of products.
    """

    def __init__(self, layers: Iterable, dtype: str) -> None:
        self._layers = tuple(dict.fromkeys(layers))
        self._dtype = dtype
        self._by_layer = {}

    def prepare(self) -> list:
        """Prepares the present weights: lists of tensors, which a function may take."""
        found = [list(layer.weights(self._dtype)) for layer in self._layers]
        return tf.nest.map_structure(tf.convert_to_tensor, found)

    @contextlib.contextmanager
    def use(self, weights: list) -> Iterator[None]:
        """Has what is traced inside take these weights in place of the variables."""
        self._by_layer = dict(zip(self._layers, weights, strict=True))
        try:
            yield
        finally:
            self._by_layer = {}

    def get(self, layer: Any) -> Any:
        """Returns the weights of a layer that are in use, else None."""
        return self._by_layer.get(layer)

    def get_or_prepare(self, layers: Iterable) -> dict:
        """Returns {layer: weights}, prepared here unless others are in use."""
        return {
            layer: self.get(layer) or layer.weights(self._dtype) for layer in dict.fromkeys(layers)
        }


class CompiledModel:
    """``features -> outputs`` of a model, compiled, from arrays to arrays.

    Args:
      model: `heads.Model` or `AlbertModel`. The encoder's weights are taken as they are now;
        changes of them count from the next `refresh` on.
      outputs: ``features -> outputs`` as tensors, computed with the model.
      names: of the features, int32 matrices of any sizes.
    """

    def __init__(self, model: Any, outputs: Callable[[dict], Any], names: Iterable[str]) -> None:
        self._model, self._outputs = model, outputs
        self.refresh()
        features = {name: tf.TensorSpec([None, None], tf.int32) for name in names}
        weights = tf.nest.map_structure(tf.TensorSpec.from_tensor, self._weights)
        signature = [features, weights]
        self._compute = tf.function(self._traced, input_signature=signature, autograph=False)

    def refresh(self) -> None:
        """Takes the weights as they are now."""
        self._weights = self._model.prepare_weights()

    def _traced(self, features, weights):
        with self._model.use_weights(weights):
            return self._outputs(features)

    def __call__(self, features: dict) -> Any:
        """Computes the outputs, structured as `outputs` returns them, as numpy arrays.

        Args:
          features: dict of int32 arrays.
        """
        return tf.nest.map_structure(lambda x: x.numpy(), self._compute(features, self._weights))
