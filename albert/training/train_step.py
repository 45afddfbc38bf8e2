"""Computes one weight update in each replica: gradients, their sum and the optimizer step.

The denominators of the losses come from the inputs, so they are summed over replicas and
micro-batches before the backward pass. The losses and gradients of all parts then add up.
Clipping and the scale of float16 losses are in `optimizers`.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from albert.data.input_options import Tensors
from albert.model import kernels
from albert.training import flops, training_log
from albert.training.contracts import Model, Task
from albert.training.optimizer_base import Optimizer

# Of a micro-batch: gradients, losses, and metrics with learning signals.
Part = tuple[list[tf.Tensor], dict[str, tf.Tensor], dict[str, tf.Tensor]]
# Prefix of the task's learning signals in the results of a step.
SIGNALS = "signals/"


def run(
    task: Task,
    model: Model,
    optimizer: Optimizer,
    features: Tensors,
    seed: int,
    accumulation_steps: int = 1,
) -> dict[str, tf.Tensor]:
    """Computes gradients, sums them over all replicas and updates the weights; call in a replica.

    Args:
      optimizer: has slots for the model's trained variables.
      features: tensors [B, ...], the batch of this replica.
      seed: dropout is a function of it, of the step, the replica and the micro-batch.
      accumulation_steps: number of micro-batches into which B is split, computed in sequence.

    Returns:
      ``{name: [sum, weight]}`` of the losses, the gradient's norm, the tokens and the task's
      metrics, the task's learning signals under names that start with `SIGNALS`, and the
      `flops.StepWork` of all replicas under `training_log.WORK` if `flops` knows the model.
    """
    context = tf.distribute.get_replica_context()

    def add_up(values: Any) -> Any:
        """Returns the sum over replicas of each tensor in a nest."""
        return context.all_reduce(tf.distribute.ReduceOp.SUM, values)

    tokens = {}
    if (mask := features.get("input_mask")) is not None:
        tokens = {training_log.TOKENS: tf.reduce_sum(tf.cast(mask, tf.float32))}
    work = flops.count_work(model, features, accumulation_steps)
    work = {} if work is None else {training_log.WORK: work}
    weights, tokens, work = add_up((model.loss_weights(features), tokens, work))
    step_seed = tf.stack([seed, tf.cast(optimizer.global_step, tf.int32)])
    if context.num_replicas_in_sync > 1:
        replica = context.replica_id_in_sync_group
        step_seed = tf.random.experimental.stateless_fold_in(step_seed, replica)

    def compute(features: Tensors, seed: tf.Tensor) -> Part:
        """Returns the sums of a micro-batch of features; `seed` [2] determines the dropout."""
        return _gradients(task, model, features, seed, weights, optimizer.gradient_scale())

    if accumulation_steps == 1:
        parts = compute(features, step_seed)
    else:
        parts = _accumulate(compute, features, step_seed, accumulation_steps)
    gradients, losses, metrics = add_up(parts)
    norm = optimizer.apply_gradients(zip(gradients, model.trained_variables, strict=True))
    per_step = {**losses, "gradient_norm": norm, **tokens, **optimizer.report()}
    return {**{name: tf.stack([value, 1.0]) for name, value in per_step.items()}, **metrics, **work}


def _gradients(
    task: Task,
    model: Model,
    features: Tensors,
    seed: tf.Tensor,
    weights: Tensors,
    scale: tf.Tensor | None,
) -> Part:
    """Returns the gradients, losses and metrics of one micro-batch.

    Args:
      features: tensors [b, ...], the micro-batch.
      seed: integers [2] that determine the dropout.
      weights: {name: total weight of the loss term} in the whole batch of all replicas.
      scale: scalar by which the gradients are multiplied; None: 1.
    """
    variables = model.trained_variables
    # Only trained variables are watched: frozen parts run as in inference and keep no activations.
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(variables)
        outputs = model(features, training=True, seed=seed)
        losses = model.losses(outputs, features, weights)
        loss = model.total(losses)
        scaled = loss if scale is None else loss * scale
    gradients = [tf.convert_to_tensor(g) for g in tape.gradient(scaled, variables)]
    metrics = {
        name: tf.stack([tf.cast(total, tf.float32), tf.cast(weight, tf.float32)])
        for name, (total, weight) in task.train_metrics(outputs, features).items()
    }
    metrics |= {
        SIGNALS + name: sums for name, sums in task.learning_signals(outputs, features).items()
    }
    return gradients, {**losses, "loss": loss}, metrics


def _accumulate(
    compute: Callable[[Tensors, tf.Tensor], Part], features: Tensors, seed: tf.Tensor, count: int
) -> Part:
    """Returns the sum of ``compute(features, seed)`` over `count` micro-batches.

    Args:
      features: tensors [B, ...], the batch of this replica.
      seed: integers [2], from which each micro-batch gets its own.
    """
    split = {
        name: tf.reshape(x, tf.concat([[count, -1], tf.shape(x)[1:]], 0))
        for name, x in features.items()
    }

    def part(number: tf.Tensor) -> Part:
        batch = {
            name: tf.ensure_shape(x[number], [None, *features[name].shape[1:]])
            for name, x in split.items()
        }
        return compute(batch, tf.random.experimental.stateless_fold_in(seed, number))

    def body(number: tf.Tensor, sums: Part) -> tuple[tf.Tensor, Part]:
        terms = tf.nest.map_structure(kernels.graph_barrier, part(number))
        return number + 1, tf.nest.map_structure(tf.add, sums, terms)

    first = part(tf.constant(0))
    # Without this the second part could be computed at the same time as the first.
    with tf.control_dependencies(tf.nest.flatten(first)):
        second = tf.constant(1)
    # Compiled once, so that the graph does not grow with the number of micro-batches.
    _, sums = tf.while_loop(
        lambda number, _: number < count, body, (second, first), parallel_iterations=1
    )
    return sums
