"""Runs the encoder's blocks fast and in little memory, with the results of plain calls.

In addition to calling ``block(hidden, …)`` it chooses kernels, recomputes activations in the
backward pass, traces a block once for all layers, and sums the gradients of shared weights early.
"""

import collections
from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from albert.model import kernels, layers, token_rows


class BlockRunner:
    """Runs blocks on the rows of one part of a batch.

    Args:
      blocks: in the order of the layers.
      weights: of sublayers, prepared once for all layers and parts of the batch.
      training: whether there will be gradients.
    """

    def __init__(
        self,
        blocks: Sequence[layers.Block],
        weights: Mapping[tf.Module, Sequence[tf.Tensor]],
        rows: token_rows.PaddedRows,
        compute: layers.Compute,
        training: bool,
    ) -> None:
        self._rows, self._compute, self._training = rows, compute, training
        # Blocks differ in their weights, which are arguments: one trace serves all of them.
        self._run = self._make_pass(blocks[0])
        if len(blocks) > 1 and tf.inside_function():
            self._run = tf.function(self._run, autograph=False)
        self._uses = collections.Counter(x for block in blocks for x in block.sublayers)
        # Each part of the batch adds up its own gradients: TensorFlow adds up those of shared
        # weights once it has the gradient of every use, and all uses behind a barrier count as one.
        self._weights = {
            sublayer: tuple(map(_barrier, shared)) for sublayer, shared in weights.items()
        }

    def __call__(
        self,
        block: layers.Block,
        hidden: tf.Tensor,
        seeds: layers.BlockSeeds,
        positions: tf.Tensor | None = None,
        scale: layers.LayerScale | None = None,
    ) -> tf.Tensor:
        """Runs a block, then a scale: [T, H] -> [T, H], or [B * R, H] at positions [B, R]."""
        run = self._run if positions is None else self._make_pass(block, positions)
        weights: list[tf.Tensor] = []
        for sublayer in block.sublayers:
            here = self._weights[sublayer]
            self._uses[sublayer] -= 1
            if self._uses[sublayer]:  # by next layers
                here, self._weights[sublayer] = fork_weights(here)
            weights += here
        block_weights = layers.BlockWeights(*weights)
        if scale is not None:
            block_weights = block_weights.scaled(*self._weights[scale])
        return run(hidden, block_weights, seeds)

    def _make_pass(self, block: layers.Block, positions: tf.Tensor | None = None) -> Callable:
        """Makes ``(hidden, weights, seeds) -> hidden`` of a block."""
        few_rows = positions is not None and (not self._training or positions.shape[1] == 1)
        dtype = tf.as_dtype(self._compute.dtype)
        functions = kernels.for_block(self._training, dtype, few_rows, self._compute.parts > 1)

        def run(
            hidden: tf.Tensor, weights: layers.BlockWeights, seeds: layers.BlockSeeds
        ) -> tf.Tensor:
            return block(hidden, weights, seeds, self._rows, functions, positions)

        if self._training and self._compute.recompute:
            run = recompute_in_backward(run)
        return run


@tf.custom_gradient
def _barrier(x: tf.Tensor) -> tuple[tf.Tensor, Callable]:
    return tf.identity(x), kernels.graph_barrier


def fork_weights(weights: tuple) -> tuple[tuple, tuple]:
    """Returns the same weights twice: for a layer, and for the next layers.

    The gradients of the next layers are added up first, so that only two gradients are in memory,
    not one per layer.
    """
    here, following = zip(*(kernels.fork(x) for x in weights), strict=True)
    return here, following


def recompute_in_backward(run: Callable) -> Callable:
    """Makes ``run(hidden, weights, seeds)`` keep only its inputs until the backward pass.

    Training the base model with 32 x 512 tokens then takes 3.8 GiB, less than 8 x 512 tokens
    without it (5.1 GiB); a step takes a third longer.
    """

    def run_without_activations(
        hidden: tf.Tensor, weights: layers.BlockWeights, seeds: layers.BlockSeeds
    ) -> tf.Tensor:
        @tf.custom_gradient
        def function(hidden: tf.Tensor, *weights: tf.Tensor) -> tuple[tf.Tensor, Callable]:
            def gradient(upstream: tf.Tensor) -> list[tf.Tensor]:
                # Fresh names for the inputs keep the graph optimizer from taking the first
                # results, and their wait for the gradient keeps memory low.
                with tf.control_dependencies([upstream]):
                    inputs = [tf.identity(x) for x in (hidden, *weights)]
                with tf.GradientTape() as tape:
                    tape.watch(inputs)
                    output = run(inputs[0], layers.BlockWeights(*inputs[1:]), seeds)
                return tape.gradient(output, inputs, upstream)

            return run(hidden, layers.BlockWeights(*weights), seeds), gradient

        return function(hidden, *weights)

    return run_without_activations
