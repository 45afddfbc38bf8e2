"""Settings that all training commands share, and the parts of a run that follow from them."""

import dataclasses
import sys
from typing import TYPE_CHECKING, Any

from absl import flags, logging

from albert.cli import command_flags, model_settings, options, path_flags
from albert.io import file_io, log_format
from albert.model import configuration, model_folder, sources
from albert.training import budget, contracts, optimizer_table, stuck_runs

if TYPE_CHECKING:
    import tensorflow as tf

    from albert.model import layers
    from albert.training import engine, stages

PRECISIONS = {"float32": "float32", "mixed_bfloat16": "bfloat16", "mixed_float16": "float16"}
AUTO = "auto"
# Minimum positions of a batch that gain from two parts: fewer take little time, but compile longer.
_ROWS_OF_PARTS = 2048
_CONSTRUCTOR = (  # flags that are arguments of the optimizer's constructor
    *("beta_1", "beta_2", "epsilon", "weight_decay_rate", "clip_norm"),
    *("exclude_from_weight_decay", "exclude_from_layer_adaptation"),
    *("momentum", "adamw_rate_ratio", "bias_correction"),
)
_FAR_ABOVE = 3  # multiple of the square-root-rule rate that triggers a warning
_ENCODER_RATES = ("hidden_dropout_prob", "attention_probs_dropout_prob")


def _check_rate(name: str, value: float | str) -> None:
    """Checks that the value of flag `name`, a learning rate, is at least 0 or "auto"."""
    if value != AUTO:
        options.not_negative(name, float(value))


class _RateParser(flags.FloatParser):
    """Parser of numbers, and of the word that derives the rate from the batch."""

    syntactic_help = f'a number or "{AUTO}"'

    def parse(self, argument: str) -> float | str:  # type: ignore[override]
        return AUTO if argument == AUTO else super().parse(argument)


# --- groups of flags ------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class Devices(options.Group):
    """Flags for the devices of a command."""

    section = options.DEVICES

    use_tpu: bool = options.flag(False, "Run on a TPU.")
    tpu_name: str | None = options.flag(None, "Name or address of the TPU.")
    tpu_zone: str | None = options.flag(None, "Google Cloud zone of the TPU, if not the default.")
    gcp_project: str | None = options.flag(
        None, "Google Cloud project of the TPU, if not the default."
    )
    master: str | None = options.flag(
        None, "Address of the TPU (grpc://…), used when --tpu_name is not given."
    )
    num_tpu_cores: int = options.flag(8, "TPU cores that the run expects; only read with a TPU.")
    iterations_per_loop: int = options.flag(
        1000,
        "Maximum steps in one call of the compiled train function; fewer where a call would take "
        "long, as Ctrl-C waits for its end.",
        minimum=1,
    )
    distribution_strategy: str = options.flag(
        "auto",
        "Devices to compute on; auto: the TPU with --use_tpu, else all workers that TF_CONFIG "
        "names, else all GPUs of this machine, else its CPU.",
        choices=("auto", "one_device", "mirrored", "multi_worker", "tpu"),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compute(options.Group):
    """Flags for precision, memory and speed."""

    section = options.DEVICES

    precision: str = options.flag(
        "float32",
        "Type of products and activations; variables, normalization, losses and the state of the "
        "optimizer stay float32. mixed_float16 scales the loss.",
        parser=options.PrecisionParser(list(PRECISIONS)),
    )
    gradient_accumulation_steps: int = options.flag(
        1,
        "Parts that each device computes its batch in, one after another: less memory, the same "
        "update.",
        minimum=1,
    )
    recompute: bool = options.flag(
        False,
        "Compute activations again in the backward pass instead of keeping them: much less memory, "
        "about a third more time, the same update.",
    )
    use_xla: bool = options.flag(False, "Let XLA compile clusters of the graph; for GPUs.")
    estimate_memory: bool = options.flag(
        False, "Print what training with these flags needs and what would fit, and end."
    )

    def for_batch(self, positions: int) -> "layers.Compute":
        """Returns the computation for a batch with this many positions: examples times length."""
        from albert.model import layers

        # Each part has its own gradients of shared weights, so saving memory needs a single part.
        saving = self.recompute or self.gradient_accumulation_steps > 1
        return layers.Compute(
            PRECISIONS[self.precision],
            skip_padding=True,
            recompute=self.recompute,
            parts=1 if saving or positions < _ROWS_OF_PARTS else 2,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingLoop(options.Group):
    """Flags for the stages, the checkpoints and the log of a training run."""

    section = options.TRAINING
    sections = {options.EVALUATION: "eval_wait_secs checkpoint"}

    seed: int = options.flag(
        12345,
        "Source of first weights, data order and dropout: same seed, same run.",
        minimum=0,
        maximum=2**31 - 1,
    )
    log_every_steps: int = options.flag(20, "Steps between lines of the log.", minimum=1)
    log_format: str = options.flag(
        log_format.AUTO,
        "Form of the log: short - the time of day, and few numbers of a step. full - also date, "
        "thread, file and line, and all numbers. auto - short on a terminal, else full.",
        choices=log_format.FORMATS,
    )
    save_checkpoints_secs: int = options.flag(
        0,
        "Also save a checkpoint when this many seconds have passed since the last one; it is not "
        "evaluated. 0: only those of --save_checkpoints_steps.",
        minimum=0,
    )
    eval_wait_secs: int = options.flag(
        0,
        "With --do_eval alone: wait for checkpoints of a trainer that is still running, until none "
        "has come for this many seconds. 0: evaluate the existing ones and end.",
        minimum=0,
    )
    checkpoint: str | None = options.flag(
        None,
        'Checkpoint to evaluate or predict with: "best", "last" or a path; --do_eval alone also '
        'takes "all". By default --do_eval takes all and prediction the best, else the last.',
        path=path_flags.FOLDER,
    )

    def check_waiting(self, do_train: bool, do_eval: bool) -> None:
        """Rejects --eval_wait_secs in a run that would not wait, as one that trains does not."""
        if do_train or not do_eval:
            self.refuse_given("--do_eval alone", "eval_wait_secs")


def _optimizers_with_rate() -> str:
    """Names the optimizers, in words, whose learning rate can be derived from the batch size."""
    rows = optimizer_table.OPTIMIZERS.items()
    return optimizer_table.format_names([name for name, row in rows if row.rate])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Optimizer(options.Group):
    """Flags for the optimizer, which has defaults for flags that are not given."""

    section = options.TRAINING

    optimizer: str = options.flag(
        "adamw",
        f"How weights are updated: by {optimizer_table.format_names()}.",
        choices=tuple(optimizer_table.OPTIMIZERS),
    )
    learning_rate: float | str = options.flag(
        5e-5,
        f'Highest learning rate; for {_optimizers_with_rate()} also "{AUTO}", by the batch size.',
        parser=_RateParser(),
        check=_check_rate,
    )
    beta_1: float | None = options.flag(None, "Decay of the mean gradient; by default 0.9.")
    beta_2: float | None = options.flag(
        None, "Decay of the mean squared gradient; by default 0.999."
    )
    epsilon: float | None = options.flag(
        None, "Added to the root of the mean squared gradient; by default 1e-6, for adam 1e-8."
    )
    weight_decay_rate: float | None = options.flag(
        None, "Fraction of a weight added to its update; by default 0.01."
    )
    clip_norm: float | None = options.flag(
        None, "Largest global norm of the gradients; by default 1. 0 does not clip."
    )
    exclude_from_weight_decay: tuple[str, ...] | None = options.flag(
        None,
        "Variables that do not decay: regular expressions, comma-separated, searched for in "
        "their names; by default those of normalization and biases.",
    )
    exclude_from_layer_adaptation: tuple[str, ...] | None = options.flag(
        None,
        "Variables without a trust ratio (lamb): regular expressions, comma-separated, searched "
        "for in their names; by default those that do not decay.",
    )
    bias_correction: bool | None = options.flag(
        None,
        "Correct the first means of adamw, lamb and muon, as adam does; the reference does not. "
        "Without it the first steps are about three times as long, so real weights need a warm-up.",
    )
    momentum: float | None = options.flag(
        None, "Decay of the mean gradient of matrices (muon); by default 0.95."
    )
    adamw_rate_ratio: float | None = options.flag(
        None,
        "Learning rate of the variables that muon leaves to AdamW, as a multiple of "
        "--learning_rate; by default 1.",
    )

    @property
    def arguments(self) -> dict[str, Any]:
        """Returns the given arguments of the optimizer's constructor, by name."""
        values = {name: getattr(self, name) for name in _CONSTRUCTOR}
        return {name: value for name, value in values.items() if value is not None}

    def check(self) -> None:
        """Rejects arguments that the optimizer does not accept."""
        optimizer_table.check(self.optimizer, self.arguments)
        if self.learning_rate == AUTO and not optimizer_table.OPTIMIZERS[self.optimizer].rate:
            raise file_io.InputError(
                f"--learning_rate={AUTO} is for --optimizer={_optimizers_with_rate()}: no rule is "
                f"known for {self.optimizer}"
            )

    def rate(self, train_batch_size: int) -> float:
        """Returns the peak rate for this many examples per step; logs it, or that it is high."""
        name, learning_rate = self.optimizer, self.learning_rate
        reference = optimizer_table.OPTIMIZERS[name].rate
        by_rule = optimizer_table.scaled_rate(name, train_batch_size)
        if reference is None or by_rule is None:
            return float(learning_rate)
        rate, batch = reference
        rule = f"{rate:g} * sqrt(--train_batch_size={train_batch_size} / {batch})"
        if learning_rate == AUTO:
            logging.info("--learning_rate=%s: %.4g = %s", AUTO, by_rule, rule)
            return by_rule
        learning_rate = float(learning_rate)
        if learning_rate > _FAR_ABOVE * by_rule:
            logging.warning(
                "--learning_rate=%g is %.3g times as high as is usual for %s: %.4g = %s",
                learning_rate,
                learning_rate / by_rule,
                name,
                by_rule,
                rule,
            )
        return learning_rate


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerByText(Optimizer):
    """The flags of `Optimizer` for `run_classifier`, whose --optimizer is a string."""

    optimizer: str = options.flag(
        "adamw", f"How weights are updated: by {optimizer_table.format_names()}."
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dropout(options.Group):
    """Flags for the encoder's dropout; heads with dropout have their own flag."""

    section = options.TRAINING

    hidden_dropout_prob: float | None = options.flag(
        None,
        "Dropout of embeddings and of the outputs of each block; by default the configuration's.",
        check=options.fraction,
    )
    attention_probs_dropout_prob: float | None = options.flag(
        None,
        "Dropout of attention probabilities; by default the configuration's.",
        check=options.fraction,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schedule(options.Group):
    """Flags for evaluation and the end of a run."""

    section = options.EVALUATION
    sections = {options.TRAINING: "budget_minutes stuck_after num_restarts num_seeds"}

    eval_every: int = options.flag(
        0,
        "Steps between evaluations, each of a checkpoint; 0: at each that is saved.",
        check=options.not_negative,
    )
    metric_for_best: str | None = options.flag(
        None, "Result that picks the best checkpoint; by default the one of the task."
    )
    early_stopping_patience: int = options.flag(
        0,
        "Stop after this many consecutive evaluations without improvement; 0: never.",
        check=options.not_negative,
    )
    keep_only_best: bool = options.flag(
        False,
        "After training with evaluations keep the weights of the best checkpoint alone: much less "
        "space, but the run cannot be resumed.",
    )
    budget_minutes: float = options.flag(
        0.0,
        "Above 0: train until this many minutes have passed, with the evaluations; the learning "
        "rate follows the clock.",
        check=options.not_negative,
    )

    def check(self, do_train: bool, evaluates: bool) -> None:
        """Rejects flags that would have no effect; a run `evaluates` in training or alone."""
        if not (do_train and evaluates):
            names = ("eval_every", "early_stopping_patience", "keep_only_best")
            self.refuse_given("training with evaluations", *names)
        if not evaluates:
            self.refuse_given("evaluations, which pick the best checkpoint", "metric_for_best")
        if not do_train:
            self.refuse_given("training", "budget_minutes")

    def with_metric(self, task: contracts.Task) -> contracts.Task:
        """Returns the task with the metric that picks the best checkpoint."""
        metric = self.metric_for_best
        if metric is None:
            return task
        if metric not in task.metrics:
            raise file_io.InputError(
                f"--metric_for_best={metric}: {task.name} has {', '.join(sorted(task.metrics))}"
            )
        return dataclasses.replace(task, best_metric=metric)

    def judgement(
        self, learning_rate: float | str, warmup_fraction: float, recipe: str | None
    ) -> stuck_runs.Settings | None:
        """Returns how the run is judged; None: no check for learning.

        Args:
          learning_rate: number or "auto", for the advice.
          warmup_fraction: fraction of the steps that are warm-up.
          recipe: file or page with settings to try; None: no check.
        """
        return None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(options.Group):
    """Settings of all training commands, which replace fields whose help or default differs."""

    section = options.DATA
    sections = {
        options.RUN: (
            "output_dir do_train do_eval do_predict predict_on export_dir export_text "
            "threshold_to_export"
        ),
        options.TRAINING: (
            "train_batch_size train_batch_tokens train_step num_train_steps num_train_epochs "
            "warmup_step num_warmup_steps start_warmup_step warmup_proportion poly_power "
            "average_last save_checkpoints_steps keep_checkpoint_max num_keep_checkpoint "
            "dropout_prob classifier_dropout_prob"
        ),
        options.EVALUATION: (
            "eval_batch_size predict_batch_size max_eval_steps n_best_size max_answer_length "
            "start_n_top end_n_top"
        ),
        options.MODEL: "init_from_group0 use_einsum",
    }

    output_dir: str = options.flag(
        None, "Folder of checkpoints and results.", required=True, path=path_flags.RUN_FOLDER
    )
    do_train: bool = options.flag(False, "Train.")
    max_seq_length: int = options.count(512, "Longest input in tokens; longer ones are cut.")
    train_batch_size: int = options.count(32, "Examples per step, over all devices.")
    save_checkpoints_steps: int = options.count(1000, "Steps between checkpoints.")
    devices: Devices = options.group(Devices)
    compute: Compute = options.group(Compute)
    loop: TrainingLoop = options.group(TrainingLoop)
    model: model_settings.ModelFiles = options.group(model_settings.ModelFiles)
    optimizer: Optimizer = options.group(Optimizer)
    dropout: Dropout = options.group(Dropout)
    schedule: Schedule = options.group(Schedule)

    @property
    def is_frozen(self) -> bool:
        """Returns whether the encoder is frozen."""
        return False

    @property
    def output_dropout_prob(self) -> float | None:
        """Returns the dropout of the head's input; None: the command has no flag for it."""
        return None


# --- parts of a run -------------------------------------------------------------------------------


def make_strategy(
    settings: Settings, command: command_flags.CommandLine
) -> "tf.distribute.Strategy":
    """Returns the devices of the flags, which all workers must share."""
    from albert.training import distribution

    devices = settings.devices
    name = devices.distribution_strategy
    if devices.use_tpu and name not in ("auto", "tpu"):
        raise file_io.InputError(f"--use_tpu contradicts --distribution_strategy={name}")
    name = "tpu" if devices.use_tpu else name
    if name != "tpu":
        _warn_of_tpu_flags(devices)
    strategy = distribution.create_strategy(
        name,
        tpu_name=devices.tpu_name,
        tpu_zone=devices.tpu_zone,
        gcp_project=devices.gcp_project,
        master=devices.master,
        compute=settings.compute.for_batch(settings.train_batch_size * settings.max_seq_length),
    )
    if name == "tpu" and strategy.num_replicas_in_sync != devices.num_tpu_cores:
        raise file_io.InputError(
            f"--num_tpu_cores={devices.num_tpu_cores}, but the TPU has "
            f"{strategy.num_replicas_in_sync}"
        )
    if settings.compute.use_xla:
        distribution.use_xla()
    values = {name: flag["value"] for name, flag in command.flags.items()}
    distribution.check_agreement(strategy, values)
    return strategy


def _warn_of_tpu_flags(devices: Devices) -> None:
    """Warns of flags that a run without a TPU does not read; the reference is silent there."""
    names = ("tpu_name", "tpu_zone", "gcp_project", "master")
    given = [f"--{name}" for name in names if getattr(devices, name)]
    if given:
        logging.warning("%s: not read without --use_tpu; this run uses no TPU", ", ".join(given))


def run_config(
    settings: Settings,
    num_train_steps: int,
    eval_batch_size: int,
    predict_batch_size: int,
    keep_checkpoint_max: int,
) -> "engine.RunConfig":
    """Returns the settings of the engine; commands pass arguments that differ.

    Args:
      eval_batch_size, predict_batch_size: examples per step, over all devices.
      keep_checkpoint_max: number of numbered checkpoints to keep; 0: all.
    """
    from albert.training import engine

    loop, schedule = settings.loop, settings.schedule
    return engine.RunConfig(
        output_dir=settings.output_dir,
        num_train_steps=num_train_steps,
        train_batch_size=settings.train_batch_size,
        eval_batch_size=eval_batch_size,
        predict_batch_size=predict_batch_size,
        save_checkpoints_steps=settings.save_checkpoints_steps,
        save_checkpoints_secs=loop.save_checkpoints_secs,
        keep_checkpoint_max=keep_checkpoint_max,
        iterations_per_loop=settings.devices.iterations_per_loop,
        log_every_steps=loop.log_every_steps,
        seed=loop.seed,
        gradient_accumulation_steps=settings.compute.gradient_accumulation_steps,
        compute=settings.compute.for_batch(settings.train_batch_size * settings.max_seq_length),
        eval_every=schedule.eval_every,
        early_stopping_patience=schedule.early_stopping_patience,
    )


def end_with_estimate(
    settings: Settings,
    config: configuration.AlbertConfig,
    strategy: "tf.distribute.Strategy",
    predictions: int = 0,
    choices: int = 1,
    averages: bool = False,
) -> None:
    """Prints the memory that training needs and exits, if --estimate_memory is given.

    Args:
      predictions: masked positions per example; 0 for fine-tuning.
      choices: texts per example.
      averages: whether the weights are averaged.
    """
    compute = settings.compute
    if not compute.estimate_memory:
        return
    from albert.training import distribution, engine, memory

    engine.training_batch(run_config(settings, 0, 0, 0, 0), strategy)
    batch_size = settings.train_batch_size

    def compute_with(accumulation_steps: int, recompute: bool) -> "layers.Compute":
        changed = dataclasses.replace(
            compute, gradient_accumulation_steps=accumulation_steps, recompute=recompute
        )
        return engine.compute_on(changed.for_batch(batch_size * settings.max_seq_length), strategy)

    shapes = memory.Shapes(
        config,
        distribution.per_replica_batch_size(strategy, batch_size, "train_batch_size"),
        settings.max_seq_length,
        predictions,
        choices,
        settings.optimizer.optimizer,
        averages,
    )
    steps = compute.gradient_accumulation_steps
    print(memory.report(shapes, compute_with, steps, compute.recompute))
    sys.exit(0)


def _with_extra_rows(
    settings: Settings, config: configuration.AlbertConfig, source: sources.Source
) -> configuration.AlbertConfig:
    """Returns the configuration in the files of `source` with a row for each extra piece."""
    grown = model_folder.with_extra_rows(config, source)
    if grown != config and settings.is_frozen:
        raise file_io.InputError(
            f"--extra_pieces={','.join(source.rules.extra_pieces)}: the model has no rows for "
            "them, and those of a frozen encoder are not trained"
        )
    if grown != config and settings.do_train:
        added = grown.vocab_size - config.vocab_size
        logging.info("%d extra pieces get new rows, which begin at random", added)
    return grown


def new_rows(settings: Settings, config: configuration.AlbertConfig, source: sources.Source) -> int:
    """Returns the number of rows that training may add: those that `read_config` has added.

    The `config` is from `read_config`.
    """
    if not (settings.do_train and source.rules.extra_pieces):
        return 0
    own = configuration.AlbertConfig.from_json_file(source.config_file)
    return config.vocab_size - own.vocab_size


def read_config(settings: Settings, source: sources.Source) -> configuration.AlbertConfig:
    """Returns the configuration with the flags' dropout and rows of extra pieces; logs dropout.

    The `source` is the initial model, or the one to use.
    """
    config = configuration.AlbertConfig.from_json_file(source.config_file)
    flag_rates = {name: getattr(settings.dropout, name) for name in _ENCODER_RATES}
    flag_rates = {name: rate for name, rate in flag_rates.items() if rate is not None}
    new_config = _with_extra_rows(settings, config, source)
    new_config = dataclasses.replace(new_config, **flag_rates)
    if settings.do_train:
        frozen = settings.is_frozen
        rates = {name: 0.0 if frozen else getattr(new_config, name) for name in _ENCODER_RATES}
        if settings.output_dropout_prob is not None:
            rates["classifier_dropout_prob"] = settings.output_dropout_prob
        text = ", ".join(f"{name} {rate:g}" for name, rate in rates.items())
        raised = [name for name in flag_rates if flag_rates[name] and not getattr(config, name)]
        if raised:
            text += f"; {source.config_file} says 0 for {', '.join(raised)}"
        logging.info("Dropout: %s", text)
    return new_config


def make_training(
    settings: Settings,
    steps: int,
    warmup_steps: int,
    recipe: str | None = None,
    poly_power: float = 1.0,
    start_warmup_step: int = 0,
    average_last: float = 0.0,
) -> "stages.Training | None":
    """Returns how a run trains; None without --do_train.

    Args:
      steps, warmup_steps: steps of training; with a time budget only their ratio counts.
      recipe: file or page with settings to try; None: no check for learning.
      poly_power: power of the learning rate's decay.
      average_last: fraction of the steps, at the end, whose weights are averaged; 0: none.
    """
    from albert.training import stages

    if not settings.do_train:
        return None
    flags, schedule = settings.optimizer, settings.schedule
    optimizer = optimizer_table.Settings(
        flags.rate(settings.train_batch_size),
        steps,
        warmup_steps,
        flags.optimizer,
        flags.arguments,
        poly_power=poly_power,
        start_warmup_step=start_warmup_step,
        average_last=average_last,
        product_type=PRECISIONS[settings.compute.precision],
    )
    warmup_fraction = warmup_steps / steps if steps else 0.0
    stuck = schedule.judgement(flags.learning_rate, warmup_fraction, recipe)
    if not schedule.budget_minutes:
        return stages.Training(optimizer, stuck)
    is_bound = settings.given & {"train_step", "num_train_steps", "num_train_epochs"}
    limits = budget.Settings(
        schedule.budget_minutes, steps if is_bound else None, averages=bool(average_last)
    )
    return stages.Training(optimizer, stuck, limits)
