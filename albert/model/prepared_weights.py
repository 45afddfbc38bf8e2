"""Prepares weights once for many batches, and compiles models that use them.

Layers compute with cast, scaled and joined weights. Preparing these takes a large part of a call
on a short text, so evaluation, predictors and servers do it once.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import tensorflow as tf


class Weighted(Protocol):
    """A layer whose weights can be prepared."""

    def weights(self, dtype: str) -> Sequence[tf.Tensor]:
        """Returns the weights in the form that the layer computes with."""


class PreparableModel(Protocol):
    """A model whose weights can be prepared: `heads.Model` and `encoder.AlbertModel`."""

    def prepare_weights(self) -> list:
        """Prepares the current weights; see `PreparedWeights.prepare`."""

    def use_weights(self, weights: list) -> contextlib.AbstractContextManager[None]:
        """Computes with prepared weights; see `PreparedWeights.use`."""


class PreparedWeights:
    """The prepared weights of layers, in use while a function is traced with them.

    This is not a `tf.Module`, so a model that has one does not track its layers twice.

    Args:
      layers: a shared layer counts once.
      dtype: type of products.
    """

    def __init__(self, layers: Iterable[Weighted], dtype: str) -> None:
        self._layers = tuple(dict.fromkeys(layers))
        self._dtype = dtype
        self._by_layer: dict[tf.Module, list[tf.Tensor]] = {}

    def prepare(self) -> list:
        """Prepares the current weights: lists of tensors, which a function can take."""
        weights = [list(layer.weights(self._dtype)) for layer in self._layers]
        return tf.nest.map_structure(tf.convert_to_tensor, weights)

    @contextlib.contextmanager
    def use(self, weights: list) -> Iterator[None]:
        """Makes functions traced inside use these weights instead of the variables."""
        self._by_layer = dict(zip(self._layers, weights, strict=True))
        try:
            yield
        finally:
            self._by_layer = {}

    def get(self, layer: tf.Module) -> list[tf.Tensor] | None:
        """Returns the weights of a layer, if they are in use."""
        return self._by_layer.get(layer)

    def get_or_prepare(self, layers: Iterable[Weighted]) -> dict:
        """Returns {layer: weights}, prepared here unless others are in use."""
        return {
            layer: self.get(layer) or layer.weights(self._dtype) for layer in dict.fromkeys(layers)
        }


class CompiledModel:
    """A model compiled as ``features -> outputs``, from arrays to arrays.

    Args:
      model: later changes of its weights have an effect after the next `refresh`.
      outputs: ``features -> outputs`` as tensors, computed with the model.
      names: names of the features, int32 matrices of any size.
    """

    def __init__(
        self, model: PreparableModel, outputs: Callable[[dict], Any], names: Iterable[str]
    ) -> None:
        self._model, self._outputs = model, outputs
        self.refresh()
        features = {name: tf.TensorSpec([None, None], tf.int32) for name in names}
        weights = tf.nest.map_structure(tf.TensorSpec.from_tensor, self._weights)
        self._compute = tf.function(
            self._compute_outputs, input_signature=[features, weights], autograph=False
        )

    def refresh(self) -> None:
        """Prepares the model's current weights for the next calls."""
        self._weights = self._model.prepare_weights()

    def _compute_outputs(self, features: dict[str, tf.Tensor], weights: list) -> Any:
        with self._model.use_weights(weights):
            return self._outputs(features)

    def __call__(self, features: dict) -> Any:
        """Computes the outputs of int32 arrays: numpy arrays, structured as `outputs` returns."""
        return tf.nest.map_structure(lambda x: x.numpy(), self._compute(features, self._weights))
