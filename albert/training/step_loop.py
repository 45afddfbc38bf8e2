"""The compiled loop over training steps, which `engine.Engine.train` calls between checkpoints."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from albert.data.input_options import Tensors
from albert.model import kernels
from albert.training import distribution, train_step, training_log


class Totals(NamedTuple):
    """Sums of the results of `train_step.run` over some steps.

    Attributes:
      sums: {name: [sum, weight]} of losses and metrics.
      signals: {name: sum} of the task's learning signals.
      work: [6], see `flops.StepWork`; None: unknown.
    """

    steps: int
    sums: dict[str, np.ndarray]
    signals: dict[str, np.ndarray]
    work: np.ndarray | None


class StepLoop:
    """Runs steps in one call of a compiled function.

    Args:
      replica_step: ``(features) -> {name: sums}`` of `train_step.run`, called in each replica.

    Attributes:
      can_stop: whether `stop` has an effect: a worker may not end its loop alone.
      stop: bool variable that ends the running loop after the present step, if it is true.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        replica_step: Callable[[Tensors], dict[str, tf.Tensor]],
        iterator: Iterator,
    ) -> None:
        self._strategy, self._replica_step, self._iterator = strategy, replica_step, iterator
        self.can_stop = distribution.can_stop_alone(strategy)
        with tf.device("CPU:0"):
            self.stop = tf.Variable(False)
        outputs = self._step.get_concrete_function(iterator).structured_outputs
        self._shapes = {name: output.shape for name, output in outputs.items()}

    def __call__(self, count: int) -> Totals:
        """Takes up to `count` steps, at least one, and waits for their end.

        The loop ends early after a step whose loss or gradient is not finite, and by `stop`.
        """
        steps, totals = self._steps(self._iterator, tf.constant(count, tf.int32))
        steps = int(steps)  # waits
        sums: dict[str, np.ndarray] = {}
        signals: dict[str, np.ndarray] = {}
        for name, total in totals.items():
            is_signal = name.startswith(train_step.SIGNALS)
            group = signals if is_signal else sums
            group[name.removeprefix(train_step.SIGNALS)] = total.numpy()
        return Totals(steps, sums, signals, sums.pop(training_log.WORK, None))

    @tf.function(autograph=False)
    def _step(self, iterator: Iterator) -> dict[str, tf.Tensor]:
        """Returns the results of a step on the next batch, and `INPUT_SECONDS`: [seconds, 1.0]."""
        local = self._strategy.experimental_local_results
        start = tf.timestamp()
        with tf.control_dependencies([start]):
            features = next(iterator)
        with tf.control_dependencies(tf.nest.flatten(local(features))):
            waited = tf.cast(tf.timestamp() - start, tf.float32)
        # A single thread could otherwise take the whole step before it reads the clock again.
        with tf.control_dependencies([waited]), kernels.releasing_gradients():
            results = self._strategy.run(self._replica_step, (features,))
        results = {name: local(value)[0] for name, value in results.items()}
        return {**results, training_log.INPUT_SECONDS: tf.stack([waited, 1.0])}

    @tf.function(autograph=False)
    def _steps(
        self, iterator: Iterator, count: tf.Tensor
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Returns the number of steps taken, up to `count`, and {name: float64 sum} of results."""

        def body(
            steps: tf.Tensor, totals: dict[str, tf.Tensor], _: tf.Tensor
        ) -> tuple[tf.Tensor, dict[str, tf.Tensor], tf.Tensor]:
            """Takes a step; returns steps taken, {name: sum}, and whether to continue."""
            results = self._step(iterator)
            # Sums in float64 do not depend on the number of steps per call.
            totals = {name: totals[name] + tf.cast(results[name], tf.float64) for name in totals}
            check = results["loss"][0] + results["gradient_norm"][0]
            continues = tf.math.is_finite(check)
            if self.can_stop:
                with tf.control_dependencies([check]):
                    continues = tf.logical_and(continues, tf.logical_not(self.stop.read_value()))
            return steps + 1, totals, continues

        zeros = {name: tf.zeros(shape, tf.float64) for name, shape in self._shapes.items()}
        steps, totals, _ = tf.while_loop(
            lambda steps, _, continues: tf.logical_and(steps < count, continues),
            body,
            (tf.constant(0), zeros, tf.constant(True)),
            parallel_iterations=1,
        )
        return steps, totals
