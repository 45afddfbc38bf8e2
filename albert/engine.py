"""One engine for every task: compiled training, evaluation and prediction.

The engine knows tasks only through `task.Task` and devices only through `tf.distribute`, so
neither a new task nor a new strategy needs a branch here.
"""

import dataclasses
import os
import time

import numpy as np
import tensorflow as tf
from absl import logging

from albert import checkpoints, distribution, file_io, progress

LOAD_REPORT = "load_report.json"


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """How a run proceeds; `common_flags` builds it from flags, which hold the defaults.

    Attributes:
      output_dir: folder of checkpoints and results.
      num_train_steps: step at which training ends, counted from the very first one.
      train_batch_size: examples per step over all replicas.
      eval_batch_size: examples per evaluation step over all replicas.
      predict_batch_size: examples per prediction step over all replicas.
      save_checkpoints_steps: steps between checkpoints.
      keep_checkpoint_max: numbered checkpoints kept; 0 keeps all.
      iterations_per_loop: most steps that one call of the compiled train function runs.
      log_every_steps: steps between log lines.
      seed: source of initial weights, data order and dropout.
    """

    output_dir: str
    num_train_steps: int
    train_batch_size: int
    eval_batch_size: int
    predict_batch_size: int
    save_checkpoints_steps: int
    keep_checkpoint_max: int
    iterations_per_loop: int
    log_every_steps: int
    seed: int


class NonFiniteLossError(file_io.InputError):
    """The loss or its gradient became NaN or infinite."""


class Engine:
    """Trains, evaluates and predicts one task with one model.

    Args:
      task: `task.Task`.
      model_config: `modeling.AlbertConfig`.
      run_config: `RunConfig`.
      strategy: `tf.distribute.Strategy` of `distribution.create_strategy`.
    """

    def __init__(self, task, model_config, run_config, strategy):
        self.task = task
        self.run_config = run_config
        self.strategy = strategy
        with strategy.scope():
            self.model = task.build_model(model_config, run_config.seed)
        self._infer = None

    # --- training -----------------------------------------------------------------------------

    def train(self, input_fn, make_optimizer, initialize, on_checkpoint=None):
        """Trains up to `num_train_steps`, from the last checkpoint of `output_dir` if there is one.

        Args:
          input_fn: ``input_fn(params) -> tf.data.Dataset`` of endless training batches.
          make_optimizer: function without arguments that makes the optimizer.
          initialize: ``(model)`` -> `LoadReport` or None; gives a fresh run its first weights.
          on_checkpoint: ``(prefix, step)`` called for each checkpoint once it is written.

        Raises:
          NonFiniteLossError: training stopped at a loss that is not a number.
          file_io.InputError: the output folder cannot be written, or its checkpoint does not fit.
        """
        config = self.run_config
        file_io.make_dirs(config.output_dir)
        if distribution.is_chief(self.strategy):
            checkpoints.clean_up(config.output_dir)
        with self.strategy.scope():
            optimizer = make_optimizer()
            optimizer.build(self.model.trained_variables)
        step = self._start(optimizer, initialize, on_checkpoint)
        if step >= config.num_train_steps:
            logging.info("Training has ended already at step %d", step)
            return
        dataset = distribution.distribute(
            self.strategy, input_fn, config.train_batch_size, "train_batch_size", first_step=step
        )
        replicas = self.strategy.num_replicas_in_sync
        logging.info(
            "Training from step %d to %d; batch: %d replicas x %d = %d",
            *(step, config.num_train_steps, replicas),
            *(config.train_batch_size // replicas, config.train_batch_size),
        )
        with progress.TrainingLog(
            config.output_dir, step, config.num_train_steps, config.train_batch_size
        ) as log:
            self._train_steps(step, iter(dataset), optimizer, log, on_checkpoint)

    def _start(self, optimizer, initialize, on_checkpoint):
        """Own checkpoint, else the given weights; returns the step to go on from."""
        folder = self.run_config.output_dir
        own = checkpoints.numbered(folder)
        if own:
            checkpoints.restore_training_state(own[-1], self.model, optimizer)
            step = int(optimizer.global_step.numpy())
            logging.info("Resuming from %s at step %d", own[-1], step)
            if on_checkpoint:
                on_checkpoint(own[-1], step)
            return step
        report = initialize(self.model)
        if report is not None:
            logging.info("%s", report)
            file_io.write_json(os.path.join(folder, LOAD_REPORT), report.to_dict())
        self._save(0, optimizer, on_checkpoint)
        return 0

    def _train_steps(self, step, iterator, optimizer, log, on_checkpoint):
        config = self.run_config
        logging.info("Building the training graph; the first step follows")
        run_steps = self._make_train_loop(optimizer, iterator)
        while step < config.num_train_steps:
            count = min(
                config.iterations_per_loop,
                config.log_every_steps - step % config.log_every_steps,
                config.save_checkpoints_steps - step % config.save_checkpoints_steps,
                config.num_train_steps - step,
            )
            taken, totals = run_steps(iterator, tf.constant(count, tf.int32))
            step += int(taken)
            rate = float(optimizer.learning_rate())
            means = _divide({name: total.numpy() for name, total in totals.items()})
            if not np.isfinite(means["loss"] + means["gradient_norm"]):
                self._stop_at_non_finite(step, rate, means)
            log.update(step, {**means, "learning_rate": rate}, step % config.log_every_steps == 0)
            if step % config.save_checkpoints_steps == 0 or step == config.num_train_steps:
                self._save(step, optimizer, on_checkpoint)
                log.restart_clock()

    def _save(self, step, optimizer, on_checkpoint):
        folder = self.run_config.output_dir
        prefix = os.path.join(folder, f"model.ckpt-{step}")
        if distribution.is_chief(self.strategy):
            checkpoints.save(prefix, self.model, optimizer)
            checkpoints.update_pointer(folder)
        if on_checkpoint:
            on_checkpoint(prefix, step)
        if distribution.is_chief(self.strategy):
            checkpoints.prune(folder, self.run_config.keep_checkpoint_max)

    def _stop_at_non_finite(self, step, rate, means):
        saved = checkpoints.numbered(self.run_config.output_dir)
        raise NonFiniteLossError(
            f"the loss is not finite at step {step} (loss {means['loss']}, gradient norm "
            f"{means['gradient_norm']}, learning rate {rate:g}); stopped. The last good checkpoint "
            f"is {saved[-1] if saved else 'none'}. Try a lower --learning_rate or a longer warm-up"
        )

    def _replica_step(self, features, optimizer):
        """Forward, backward, one all-reduce, clip, update; runs on each replica.

        Denominators of the losses come from the inputs, so they are summed over replicas before
        the backward pass; losses and gradients of replicas then simply add up.
        """
        context = tf.distribute.get_replica_context()
        add_up = lambda values: context.all_reduce(tf.distribute.ReduceOp.SUM, values)  # noqa: E731
        weights = add_up(self.model.loss_weights(features))
        seed = tf.stack([self.run_config.seed, tf.cast(optimizer.global_step, tf.int32)])
        if self.strategy.num_replicas_in_sync > 1:
            replica = context.replica_id_in_sync_group
            seed = tf.random.experimental.stateless_fold_in(seed, replica)
        variables = self.model.trained_variables
        with tf.GradientTape() as tape:
            outputs = self.model(features, training=True, seed=seed)
            losses = self.model.losses(outputs, features, weights)
            loss = tf.add_n(list(losses.values()))
        gradients = [tf.convert_to_tensor(g) for g in tape.gradient(loss, variables)]
        metrics = {name: tf.stack(pair) for name, pair in _pairs(self.task, outputs, features)}
        losses = {**losses, "loss": loss}
        gradients, losses, metrics = add_up((gradients, losses, metrics))
        norm = optimizer.apply_gradients(zip(gradients, variables, strict=True))
        per_step = {**losses, "gradient_norm": norm}
        return {**{name: tf.stack([value, 1.0]) for name, value in per_step.items()}, **metrics}

    def _make_train_loop(self, optimizer, iterator):
        """Compiled ``(iterator, count) -> (steps taken, {name: [sum, weight]})``.

        It stops early after a step whose loss or gradient is not finite.
        """

        @tf.function
        def one_step(iterator):
            results = self.strategy.run(
                lambda features: self._replica_step(features, optimizer), (next(iterator),)
            )
            return {
                name: self.strategy.experimental_local_results(value)[0]
                for name, value in results.items()
            }

        names = list(one_step.get_concrete_function(iterator).structured_outputs)

        @tf.function
        def run_steps(iterator, count):
            def body(taken, totals, _):
                results = one_step(iterator)
                totals = {name: totals[name] + results[name] for name in names}
                check = results["loss"][0] + results["gradient_norm"][0]
                return taken + 1, totals, tf.math.is_finite(check)

            taken, totals, _ = tf.while_loop(
                lambda taken, _, finite: tf.logical_and(taken < count, finite),
                body,
                (tf.constant(0), {name: tf.zeros([2]) for name in names}, tf.constant(True)),
                parallel_iterations=1,
            )
            return taken, totals

        return run_steps

    # --- inference ----------------------------------------------------------------------------

    def _batches(self, input_fn, batch_size, flag):
        """Yields (example_index, rows) of numpy arrays, without the rows that only fill batches."""
        dataset = distribution.distribute(self.strategy, input_fn, batch_size, flag)
        if self._infer is None:
            self._infer = self._make_infer()
        iterator = iter(dataset)
        while True:
            try:
                rows = self._infer(iterator)
            except tf.errors.OutOfRangeError:
                return
            rows = {
                name: self.strategy.gather(value, axis=0).numpy() for name, value in rows.items()
            }
            index = rows.pop("example_index")
            real = index >= 0
            yield index[real], {name: value[real] for name, value in rows.items()}

    def _make_infer(self):
        def replica_infer(features):
            index = features["example_index"]
            features = {name: v for name, v in features.items() if name != "example_index"}
            outputs = self.model(features, training=False)
            rows = self.task.eval_outputs(self.model, outputs, features)
            return {**rows, "example_index": index}

        @tf.function
        def infer(iterator):
            return self.strategy.run(replica_infer, (next(iterator),))

        return infer

    def evaluate(self, input_fn):
        """Metrics of the model's present weights over every example of the input, once each.

        Returns:
          dict of the task's evaluator.
        """
        evaluator = self.task.evaluator()
        started, count = time.time(), 0
        with progress.bar("evaluating") as show:
            for index, rows in self._batches(
                input_fn, self.run_config.eval_batch_size, "eval_batch_size"
            ):
                evaluator.update(rows)
                count += len(index)
                show(len(index))
        if not count:
            raise file_io.InputError("there is no example to evaluate")
        seconds = time.time() - started
        logging.info("Evaluated %d examples in %.1f s", count, seconds)
        return evaluator.result()

    def predict(self, input_fn):
        """The task's `eval_outputs` for every example, in input order.

        Returns:
          dict of numpy arrays, first axis the examples.
        """
        parts, order = [], []
        with progress.bar("predicting") as show:
            for index, rows in self._batches(
                input_fn, self.run_config.predict_batch_size, "predict_batch_size"
            ):
                order.append(index)
                parts.append(rows)
                show(len(index))
        if not parts:
            raise file_io.InputError("there is no example to predict")
        place = np.argsort(np.concatenate(order))
        return {name: np.concatenate([p[name] for p in parts])[place] for name in parts[0]}


def _pairs(task, outputs, features):
    for name, (total, weight) in task.train_metrics(outputs, features).items():
        yield name, (tf.cast(total, tf.float32), tf.cast(weight, tf.float32))


def _divide(totals):
    """{name: [sum, weight]} -> {name: mean}; 0 where nothing was weighed."""
    return {name: float(s / w) if w else 0.0 for name, (s, w) in totals.items()}
