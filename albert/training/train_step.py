"""Computes one weight update in each replica: gradients, their sum and the optimizer step.

The denominators of the losses come from the inputs, so they are summed over replicas and
micro-batches before the backward pass. The losses and gradients of all parts then add up.
Clipping is in `optimizers`, the scale of float16 losses in `loss_scale`.
"""

from typing import Any

import tensorflow as tf

from albert.model import kernels
from albert.training import flops, training_log

# Prefix of the task's learning signals in the results of a step.
SIGNS = "signs/"


def run(
    task: Any,
    model: Any,
    optimizer: Any,
    features: dict[str, tf.Tensor],
    seed: Any,
    accumulation_steps: int = 1,
) -> dict[str, tf.Tensor]:
    """Computes gradients, sums them over all replicas and updates the weights; call in a replica.

    Args:
      task: `contracts.Task`.
      model: model of `heads`.
      optimizer: `optimizers.Optimizer` with slots for the model's trained variables.
      features: dict of tensors [B, ...], the batch of this replica.
      seed: integer; dropout is a function of it, of the step, the replica and the micro-batch.
      accumulation_steps: number of micro-batches into which B is split, computed in sequence.

    Returns:
      ``{name: [sum, weight]}`` of the losses, the gradient's norm, the tokens and the task's
      metrics, the task's learning signals under names that start with `SIGNS`, and the
      `flops.Work` of all replicas under `training_log.WORK` if `flops` knows the model.
    """
    context = tf.distribute.get_replica_context()

    def add_up(values):
        return context.all_reduce(tf.distribute.ReduceOp.SUM, values)

    tokens = {}
    if (mask := features.get("input_mask")) is not None:
        tokens = {training_log.TOKENS: tf.reduce_sum(tf.cast(mask, tf.float32))}
    work = flops.count_work(model, features, accumulation_steps)
    work = {} if work is None else {training_log.WORK: work}
    weights, tokens, work = add_up((model.loss_weights(features), tokens, work))
    seed = tf.stack([seed, tf.cast(optimizer.global_step, tf.int32)])
    if context.num_replicas_in_sync > 1:
        seed = tf.random.experimental.stateless_fold_in(seed, context.replica_id_in_sync_group)

    def compute(features, seed):
        return _gradients(task, model, features, seed, weights, optimizer.gradient_scale())

    if accumulation_steps == 1:
        parts = compute(features, seed)
    else:
        parts = _accumulate(compute, features, seed, accumulation_steps)
    gradients, losses, metrics = add_up(parts)
    norm = optimizer.apply_gradients(zip(gradients, model.trained_variables, strict=True))
    per_step = {**losses, "gradient_norm": norm, **tokens, **optimizer.report()}
    return {**{name: tf.stack([value, 1.0]) for name, value in per_step.items()}, **metrics, **work}


def _gradients(task, model, features, seed, weights, scale):
    """Returns the gradients (times `scale`), losses and metrics of one micro-batch."""
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
    metrics |= {SIGNS + name: sums for name, sums in task.signs(outputs, features).items()}
    return gradients, {**losses, "loss": loss}, metrics


def _accumulate(compute, features, seed, count):
    """Returns the sum of ``compute(features, seed)`` over `count` micro-batches."""
    split = {
        name: tf.reshape(x, tf.concat([[count, -1], tf.shape(x)[1:]], 0))
        for name, x in features.items()
    }

    def part(number):
        batch = {
            name: tf.ensure_shape(x[number], [None, *features[name].shape[1:]])
            for name, x in split.items()
        }
        return compute(batch, tf.random.experimental.stateless_fold_in(seed, number))

    def body(number, sums):
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
