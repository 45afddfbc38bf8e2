"""Trains, evaluates and predicts every task: the training loop and the compiled functions.

The engine knows tasks only through `contracts.Task` and devices only through `tf.distribute`, so
neither a new task nor a new strategy needs a branch here. Arguments: `flag` names the setting of a
batch size, for messages.
"""

import contextlib
import dataclasses
import errno
import functools
import itertools
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NoReturn

import numpy as np
import tensorflow as tf
from absl import logging

from albert.data.input_options import Tensors
from albert.data.input_pipeline import InputFn
from albert.io import file_io, progress, signals
from albert.model import batching, checkpoints, configuration, kernels, layers
from albert.training import (
    checkpoint_writer,
    contracts,
    cost,
    distribution,
    optimizer_base,
    optimizer_table,
    optimizers,
    results,
    step_loop,
    train_step,
    training_log,
)
from albert.training.evaluation_basis import Basis

# --- settings -------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """The settings of a run; `cli.training` builds them from flags, which have defaults.

    Attributes:
      num_train_steps: step at which training ends, counted from the first step of the first run.
      train_batch_size, eval_batch_size, predict_batch_size: examples per step over all replicas.
      save_checkpoints_secs: seconds between additional checkpoints, which limit the lost work if a
        run fails; 0 for none. They are not evaluated, so results do not depend on speed.
      keep_checkpoint_max: number of numbered checkpoints to keep; 0 keeps all.
      iterations_per_loop: maximum number of steps per call of the compiled train function.
      seed: seed of initial weights, data order and dropout.
      gradient_accumulation_steps: number of micro-batches into which a replica splits its batch.
      eval_every: steps between evaluations, each of which also saves a checkpoint; 0: each
        checkpoint is evaluated.
      early_stopping_patience: evaluations without improvement after which training ends; 0:
        disabled.
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
    gradient_accumulation_steps: int = 1
    save_checkpoints_secs: int = 0
    compute: layers.Compute = layers.Compute(skip_padding=True)
    eval_every: int = 0
    early_stopping_patience: int = 0

    def is_evaluated(self, step: int) -> bool:
        """Returns whether the checkpoint of a step is to be evaluated."""
        every = self.eval_every or 1
        return step % every == 0 or step == self.num_train_steps

    def steps_to_stop(self, step: int) -> int:
        """Counts the steps until there is something to report, to save or to evaluate."""
        stops = (self.log_every_steps, self.save_checkpoints_steps, self.eval_every)
        return min(self.num_train_steps - step, *(every - step % every for every in stops if every))

    def num_saved_after(self, step: int) -> int:
        """Counts the checkpoints after a step, without those of `save_checkpoints_secs`."""
        last = self.num_train_steps
        every = filter(None, (self.save_checkpoints_steps, self.eval_every))
        steps = {last}.union(*(range(0, last, interval) for interval in every))
        return sum(other > step for other in steps)

    def is_saved(self, step: int) -> bool:
        """Returns whether a step has a checkpoint."""
        is_due = step % self.save_checkpoints_steps == 0 or step == self.num_train_steps
        return is_due or bool(self.eval_every and self.is_evaluated(step))


# --- the engine -----------------------------------------------------------------------------------


# Maximum duration of a call of the compiled loop: several workers react to signals at its end.
MAX_CALL_SECONDS = 5.0
_TIMED_BATCHES = 3  # batches timed per evaluation
# A call that takes this many times longer than the last one is considered to hang.
_HANG_FACTOR = 3
_SAVE, _TERMINATE = 1, 2  # requests by a signal or the clock; the larger one wins
_SAVED = "saved step {}; rerun the same command to resume from it"
# Errors other than out-of-memory that TensorFlow also reports as ResourceExhausted.
_FILE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)


class NonFiniteLossError(file_io.InputError):
    """The loss or its gradient became NaN or infinite."""


class OutOfMemoryError(file_io.InputError):
    """A step needs more memory than the device has."""


def check_batches(run_config: RunConfig, strategy: tf.distribute.Strategy, *names: str) -> None:
    """Raises early if one of these batch sizes in `run_config` cannot be divided among replicas."""
    for name in names:
        distribution.per_replica_batch_size(strategy, getattr(run_config, name), name)


def training_batch(run_config: RunConfig, strategy: tf.distribute.Strategy) -> str:
    """Returns how the training batch is divided, such as "4 replicas x 8 = 32"."""
    batch_size, count = run_config.train_batch_size, run_config.gradient_accumulation_steps
    replicas = strategy.num_replicas_in_sync
    per_replica = distribution.per_replica_batch_size(strategy, batch_size, "train_batch_size")
    if per_replica % count:
        raise file_io.InputError(
            f"train_batch_size={batch_size} on {replicas} replicas cannot be split into "
            f"gradient_accumulation_steps={count} equal parts"
        )
    parts = f", in {count} parts of {per_replica // count} per replica" if count > 1 else ""
    return f"{replicas} replicas x {per_replica} = {batch_size}{parts}"


def compute_on(compute: layers.Compute, strategy: tf.distribute.Strategy) -> layers.Compute:
    """Disables the settings that a strategy does not support or does not gain from."""
    skip = compute.skip_padding and not distribution.needs_fixed_shapes(strategy)
    parts = compute.parts if distribution.gains_from_parts(strategy) else 1
    return dataclasses.replace(compute, skip_padding=skip, parts=parts)


def _announce_saved(step: int) -> None:
    """Sets the step that messages about an interruption name."""
    signals.REQUESTS.remedy = f"{signals.RESUMES}, of step {step}"


# Evaluates the checkpoint of a prefix and step; returns whether training must end.
OnCheckpoint = Callable[[str, int], bool]
# Loads the first weights of a model; returns a report unless they are random.
Initialize = Callable[[contracts.Model], checkpoints.LoadReport | None]


class Engine:
    """The engine that trains, evaluates and predicts one task with one model.

    Attributes:
      baseline: scores of the best constant answer, see `contracts.Task.evaluator`; None before the
        first evaluation.
      classes: examples of each class in the last evaluation, see `contracts.Evaluator`.
    """

    def __init__(
        self,
        task: contracts.Task,
        model_config: configuration.AlbertConfig,
        run_config: RunConfig,
        strategy: tf.distribute.Strategy,
    ) -> None:
        self._created, self._meter = time.time(), cost.Meter()
        self.task = task
        self.run_config = run_config
        self.strategy = strategy
        settings = {**model_config.to_dict(), **dataclasses.asdict(run_config)}
        settings.pop("output_dir")
        distribution.check_agreement(strategy, {"task": task.name, **settings})
        compute = compute_on(run_config.compute, strategy)
        with strategy.scope():
            self.model = task.build_model(model_config, compute, run_config.seed)
        self.baseline: dict[str, float] | None = None
        self.basis: Callable[[], Basis | None] = lambda: None  # of its evaluations
        self.classes: Sequence[results.ClassCount] = ()
        self.before_save: Callable[[], None] = lambda: None  # called by the chief; may raise
        self._training_means = training_log.RunningMeans(task.training_means)
        self._infer: Callable[[Iterator, list[tf.Tensor]], dict[str, tf.Tensor]] | None = None
        self._datasets: dict[tuple[InputFn, int], tf.distribute.DistributedDataset] = {}

    # --- training -----------------------------------------------------------------------------

    def train(
        self,
        input_fn: InputFn,
        settings: optimizer_table.Settings,
        initialize: Initialize,
        on_checkpoint: OnCheckpoint | None = None,
        hooks: Sequence[contracts.Hook] = (),
        words_per_token: float | None = None,
    ) -> str | None:
        """Trains up to `num_train_steps`, from the last checkpoint of `output_dir` if there is one.

        The input must be endless.

        Returns:
          The prefix of the checkpoint with the averaged weights; None if none are averaged.

        Raises:
          NonFiniteLossError: the loss or the gradient is not finite.
          OutOfMemoryError: a step does not fit in memory; the message suggests changes.
          stuck_runs.StuckError: see `stuck_runs.Watch`.
        """
        config = self.run_config
        batch_text = training_batch(config, self.strategy)
        file_io.make_dirs(config.output_dir)
        if distribution.is_chief(self.strategy):
            checkpoints.clean_up(config.output_dir)
        self._hooks = hooks
        optimizer = self._build_optimizer(settings)
        with checkpoint_writer.BackgroundWriter() as self._writer:
            step, ended = self._start(optimizer, initialize, on_checkpoint)
            if ended or step >= config.num_train_steps:
                logging.info("Nothing to train: already at step %d", step)
                return self._save_average(optimizer)
            for hook in hooks:
                self._end_at(hook.resume(step))
            if warning := settings.find_warning(step):
                logging.warning("%s", warning)
            dataset = self._training_data(input_fn, step)
            last = self._last_step()
            until = "" if last is None else f" to {last}"
            logging.info("Training from step %d%s; batch: %s", step, until, batch_text)
            is_chief = distribution.is_chief(self.strategy)
            if is_chief and last is not None and not config.keep_checkpoint_max:
                self._report_disk_space(step, optimizer)
            log = self._start_log(step, words_per_token)
            with log, _explaining_memory_errors("train_batch_size", config.train_batch_size):
                self._train_steps(step, iter(dataset), optimizer, log, on_checkpoint)
        return self._save_average(optimizer)

    def _training_data(self, input_fn: InputFn, step: int) -> tf.distribute.DistributedDataset:
        """Returns the distributed training batches of `input_fn` after a step, endless."""
        batch_size = self.run_config.train_batch_size
        return distribution.distribute(
            self.strategy, input_fn, batch_size, "train_batch_size", endless=True, first_step=step
        )

    def _start_log(self, step: int, words_per_token: float | None) -> training_log.TrainingLog:
        """Starts to measure the cost of training, and to report it."""
        config, is_chief = self.run_config, distribution.is_chief(self.strategy)
        folder = config.output_dir if is_chief else None
        self._meter.start(self.model, folder, words_per_token)
        size, last = config.train_batch_size, self._last_step()
        return training_log.TrainingLog(folder, step, last, size, self._created, self._meter)

    def _report_disk_space(self, step: int, optimizer: optimizer_base.Optimizer) -> None:
        """Logs the disk space for checkpoints if all are kept, and warns if it is too small."""
        folder, count = self.run_config.output_dir, self.run_config.num_saved_after(step)
        values = [*self.model.variables, *optimizer.variables_by_name().values()]
        size = sum(value.dtype.size * value.shape.num_elements() for value in values)
        free = None if file_io.is_remote(folder) else file_io.free_bytes(folder)
        log = logging.warning if free is not None and size * count > free else logging.info
        log(
            "All checkpoints are kept: %d more, %s in total%s",
            count,
            file_io.describe(size * count),
            "" if free is None else f"; {file_io.describe(free)} are free in {folder}",
        )

    def _build_optimizer(self, settings: optimizer_table.Settings) -> optimizer_base.Optimizer:
        pace = next((hook.pace for hook in self._hooks if hook.pace), None)
        with self.strategy.scope():
            optimizer = optimizers.build(settings, pace)
            optimizer.build(self.model.trained_variables)
            if self.run_config.compute.dtype == "float16":
                optimizer.scale_loss()
        return optimizer

    def _end_at(self, step: int | None) -> None:
        """Moves the last step, unless it is None."""
        if step is not None:
            self.run_config = dataclasses.replace(self.run_config, num_train_steps=step)

    def _last_step(self) -> int | None:
        """Returns the last step; None if it is not known yet."""
        is_known = all(hook.knows_end for hook in self._hooks)
        return self.run_config.num_train_steps if is_known else None

    def _start(
        self,
        optimizer: optimizer_base.Optimizer,
        initialize: Initialize,
        on_checkpoint: OnCheckpoint | None,
    ) -> tuple[int, bool]:
        """Restores the run's checkpoint, else initializes; returns step and whether to end."""
        folder = self.run_config.output_dir
        last = distribution.from_chief(self.strategy, lambda: checkpoints.last_whole(folder))
        if last:
            if not checkpoints.prefix_exists(last):
                raise file_io.InputError(
                    f"the chief resumes from {last}, which this worker cannot find: all workers "
                    "must see the same output_dir, under the same path"
                )
            checkpoints.restore_training_state(last, self.model, optimizer)
            distribution.check_same_weights(self.strategy, self.model.variables)
            step = int(optimizer.global_step.numpy())
            logging.info("Resuming from %s at step %d", last, step)
            _announce_saved(step)
            if not self.run_config.is_saved(step):  # made by the clock or a signal: not evaluated
                on_checkpoint = None
            return step, self._evaluate(on_checkpoint, last, step)
        report = initialize(self.model)
        distribution.check_same_weights(self.strategy, self.model.variables)
        if distribution.is_chief(self.strategy):
            if report is not None:
                logging.info("%s", report)
            checkpoints.write_report(folder, report)
        ended = self._save(0, optimizer, on_checkpoint)
        self._writer.wait()  # raises write errors before training
        return 0, ended

    def _train_steps(
        self,
        step: int,
        iterator: Iterator,
        optimizer: optimizer_base.Optimizer,
        log: training_log.TrainingLog,
        on_checkpoint: OnCheckpoint | None,
    ) -> None:
        """Trains on batches of `iterator` after a step; evaluates by `on_checkpoint`, if any."""
        config, started = self.run_config, time.monotonic()
        logging.info("Building the training graph; the first step follows")
        replica_step = functools.partial(
            train_step.run,
            self.task,
            self.model,
            optimizer,
            seed=config.seed,
            accumulation_steps=config.gradient_accumulation_steps,
        )
        with signals.deferred():  # C++ code of the tracing could lose what a handler raises.
            loop = step_loop.StepLoop(self.strategy, replica_step, iterator)
        logging.info("Traced the training graph in %.1f s", time.monotonic() - started)
        first_step, max_steps, save_time = step, 1, time.monotonic()
        with signals.deferred((lambda: loop.stop.assign(True)) if loop.can_stop else None):
            while step < config.num_train_steps:
                started = time.monotonic()
                stops = [hook.steps_to_stop(step) for hook in self._hooks]
                count = min(max_steps, config.steps_to_stop(step), *stops)
                totals = loop(count)
                signals.allow(_HANG_FACTOR * (time.monotonic() - started))
                self._writer.check()
                signals.raise_interrupt()
                if step == first_step + 1:  # The first step includes compilation.
                    max_steps = self._steps_per_call(time.monotonic() - started)
                step += totals.steps
                for hook in self._hooks:
                    self._end_at(hook.update(step))
                config, log.last_step = self.run_config, self._last_step()
                rate = float(optimizer.learning_rate())
                means = training_log.divide(totals.sums)
                if not np.isfinite(means["loss"] + means["gradient_norm"]):
                    self._stop_at_non_finite(step, rate, means)
                self._training_means.add(totals.sums)
                log.update(step, totals.sums, rate, step % config.log_every_steps == 0, totals.work)
                loop.stop.assign(False)  # Later signals end the next call early.
                for hook in self._hooks:
                    hook.observe(step, totals.signals)
                request, is_saved = self._pending_request(save_time), config.is_saved(step)
                if is_saved or request:
                    log.before_checkpoint()
                    # Where only one of several workers got a signal, none must begin to evaluate.
                    is_evaluated = is_saved and request != _TERMINATE
                    ended = self._save(step, optimizer, on_checkpoint if is_evaluated else None)
                    if request == _TERMINATE:
                        self._writer.wait()
                        raise signals.Terminated(_SAVED.format(step))
                    if ended:
                        return
                    save_time = time.monotonic()
                    log.after_checkpoint()

    def _pending_request(self, save_time: float) -> int:
        """Returns `_SAVE`, `_TERMINATE` or 0: the request of any worker, the same in all.

        `save_time` is the `time.monotonic()` of the last checkpoint.
        """
        requests, seconds = signals.REQUESTS, self.run_config.save_checkpoints_secs
        requests.answered = requests.terminate
        is_due = seconds and time.monotonic() - save_time >= seconds
        own = _TERMINATE if requests.terminate else _SAVE if requests.save or is_due else 0
        request = distribution.largest_of_workers(self.strategy, own)
        if request:
            if not is_due:
                logging.info("Signal received: saving a checkpoint")
            requests.save = False
        return request

    def _steps_per_call(self, seconds: float) -> int:
        """Returns the steps per call, the same in all workers; `seconds`: duration of a step."""
        fitting = distribution.from_chief(
            self.strategy, lambda: int(MAX_CALL_SECONDS / max(seconds, 1e-6))
        )
        return max(1, min(fitting, self.run_config.iterations_per_loop))

    def _save(
        self, step: int, optimizer: optimizer_base.Optimizer, on_checkpoint: OnCheckpoint | None
    ) -> bool:
        """Saves a checkpoint and evaluates it if due; returns whether training must end."""
        folder, keep = self.run_config.output_dir, self.run_config.keep_checkpoint_max
        prefix = os.path.join(folder, f"model.ckpt-{step}")
        if distribution.is_chief(self.strategy):
            self.before_save()
            for hook in self._hooks:
                hook.save(step)

            def written() -> None:
                _announce_saved(step)
                checkpoints.prune(folder, keep)

            self._writer.save(prefix, self.model, optimizer, written)
        return self._evaluate(on_checkpoint, prefix, step)

    def _save_average(self, optimizer: optimizer_base.Optimizer) -> str | None:
        """Saves the averaged weights; returns the prefix of the checkpoint; None without them."""
        if optimizer.average is None:
            return None
        if not optimizer.average.count.numpy():
            logging.warning("Training ended before its weights were averaged")
            return None
        prefix = os.path.join(self.run_config.output_dir, checkpoints.AVERAGE)

        def save() -> None:
            self.before_save()
            checkpoints.save_average(prefix, self.model, optimizer)

        distribution.from_chief(self.strategy, save)
        return prefix

    def _evaluate(self, on_checkpoint: OnCheckpoint | None, prefix: str, step: int) -> bool:
        """Evaluates a checkpoint if due; returns whether training must end."""
        if not on_checkpoint or not self.run_config.is_evaluated(step):
            return False
        self._writer.wait()
        # A signal may end the process now, as everything is saved.
        with signals.not_deferred(), self._meter.evaluating():
            return on_checkpoint(prefix, step)

    def _stop_at_non_finite(self, step: int, rate: float, means: Mapping[str, float]) -> NoReturn:
        """Raises the error of a loss that is not finite, once the last checkpoint is written.

        `rate` is the learning rate, `means` {name: mean} of the losses and of the gradient norm.
        """
        try:
            self._writer.wait()
        except file_io.InputError as error:
            logging.error("%s", error)
        prefixes = checkpoints.numbered(self.run_config.output_dir)
        raise NonFiniteLossError(
            f"the loss is not finite at step {step} (loss {means['loss']}, gradient norm "
            f"{means['gradient_norm']}, learning rate {rate:g}); stopped. The last good checkpoint "
            f"is {prefixes[-1] if prefixes else 'none'}. Try a lower learning_rate or a longer "
            "warm-up"
        )

    # --- inference ----------------------------------------------------------------------------

    def _batches(
        self, input_fn: InputFn, batch_size: int, flag: str
    ) -> Iterator[tuple[np.ndarray, dict[str, np.ndarray]]]:
        """Yields (example_index [N], {name: rows [N, ...]}) of each batch, without padding rows."""
        # All checkpoints are evaluated on the same data, so its pipeline is built once.
        key = (input_fn, batch_size)
        if key not in self._datasets:
            self._datasets[key] = distribution.distribute(self.strategy, input_fn, batch_size, flag)
        if self._infer is None:
            self._infer = self._make_infer()
        weights = self.model.prepare_weights()
        iterator = iter(self._datasets[key])
        while True:
            try:
                rows = self._infer(iterator, weights)
            except tf.errors.OutOfRangeError:
                return
            rows = {name: value.numpy() for name, value in rows.items()}
            batching.check_finite(rows)
            index = rows.pop("example_index")
            real = index >= 0
            yield index[real], {name: value[real] for name, value in rows.items()}

    def _make_infer(self) -> Callable[[Iterator, list[tf.Tensor]], dict[str, tf.Tensor]]:
        """Returns the compiled ``(batches, prepared weights) -> {name: rows [B, ...]}``."""

        def replica_infer(features: Tensors, weights: list[tf.Tensor]) -> dict[str, tf.Tensor]:
            """Returns {name: rows [B, ...]} of a batch, gathered from all replicas."""
            index = features["example_index"]
            features = {name: v for name, v in features.items() if name != "example_index"}
            with self.model.use_weights(weights):
                outputs = self.model(features, training=False)
            rows = self.task.eval_outputs(outputs, features)
            rows["example_index"] = index
            # Outside of the compiled function gathering would be compiled again for each batch. It
            # needs copies, because tensors from the input have no device.
            rows = {name: tf.identity(value) for name, value in rows.items()}
            return tf.distribute.get_replica_context().all_gather(rows, axis=0)

        @tf.function(autograph=False)
        def infer(iterator: Iterator, weights: list[tf.Tensor]) -> dict[str, tf.Tensor]:
            with kernels.releasing_gradients():
                rows = self.strategy.run(replica_infer, (next(iterator), weights))
            local = self.strategy.experimental_local_results
            return {name: local(value)[0] for name, value in rows.items()}

        return infer

    def evaluate(self, input_fn: InputFn) -> dict[str, float]:
        """Returns {name: score} of all examples, also `train_<name>` since the last call."""
        evaluator = self.task.evaluator()
        started, count = time.time(), 0
        batch_size = self.run_config.eval_batch_size
        with (
            progress.bar("evaluating") as show,
            _explaining_memory_errors("eval_batch_size", batch_size),
        ):
            for index, rows in self._batches(input_fn, batch_size, "eval_batch_size"):
                evaluator.update(rows)
                count += len(index)
                show(len(index))
        if not count:
            raise file_io.InputError("there are no examples to evaluate")
        seconds = time.time() - started
        logging.info("Evaluated %d examples in %.1f s", count, seconds)
        if self.baseline is None:
            self.baseline = evaluator.baseline()
        self.classes = evaluator.classes()
        extra = self.task.extra_metrics(self.model)
        means = {f"train_{name}": value for name, value in self._training_means.take().items()}
        return {**evaluator.result(), **extra, **means}

    def time_evaluation(self, input_fn: InputFn) -> float:
        """Estimates the seconds of `evaluate` from a few batches; the others are only counted."""
        batch_size = self.run_config.eval_batch_size
        batches = functools.partial(self._batches, input_fn, batch_size, "eval_batch_size")
        with _explaining_memory_errors("eval_batch_size", batch_size):
            next(iter(batches()), None)  # builds the graph
            started = time.monotonic()
            timed = sum(1 for _ in itertools.islice(batches(), _TIMED_BATCHES))
            seconds = time.monotonic() - started
        count = sum(1 for _ in self._datasets[input_fn, batch_size])
        seconds *= count / max(timed, 1)
        logging.info("An evaluation takes about %.1f s", seconds)
        return seconds

    def predict(self, input_fn: InputFn) -> dict[str, np.ndarray]:
        """Returns {name: [N, ...]}, the task's `eval_outputs` of all N examples, in input order."""
        parts, order = [], []
        size, flag = self.run_config.predict_batch_size, "predict_batch_size"
        with progress.bar("predicting") as show, _explaining_memory_errors(flag, size):
            for index, rows in self._batches(input_fn, size, flag):
                order.append(index)
                parts.append(rows)
                show(len(index))
        if not parts:
            raise file_io.InputError("there are no examples to predict")
        place = batching.places_in(order)
        return {name: np.concatenate([p[name] for p in parts])[place] for name in parts[0]}


@contextlib.contextmanager
def _explaining_memory_errors(flag: str, batch_size: int) -> Iterator[None]:
    """Turns a failed allocation in the block into an error that suggests changes."""
    try:
        yield
    except tf.errors.ResourceExhaustedError as error:
        if any(os.strerror(code) in error.message for code in _FILE_ERRORS):
            what = error.message.partition("\n")[0]
            raise file_io.InputError(f"a log file cannot be written: {what}") from error
        advice = f"lower {flag}={batch_size} (this does not change results) or max_seq_length"
        if flag == "train_batch_size":
            advice = (
                f"keep {flag}={batch_size} and split it with gradient_accumulation_steps (twice as "
                "many steps, half the memory), give recompute, lower max_seq_length, or lower "
                f"{flag}"
            )
        # The line with the size, from TensorFlow's long message.
        size = re.search("OOM [^\n]*|$", error.message)[0]  # type: ignore[index]
        raise OutOfMemoryError(f"out of memory: {advice}. {size}") from error
