"""A fine-tuning command as a class, and `run`, which all such commands share."""

import abc
import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from absl import flags, logging

from albert.cli import command_flags, distillation, model_settings, next_steps, training
from albert.cli.fine_tuning_settings import ClassifierSettings, Settings, has_checkpoints
from albert.experiments import seed_runs
from albert.io import file_io
from albert.model import configuration, head_config, model_folder, pooling, sources, weight_names
from albert.tasks import class_weights, glue, model_labels
from albert.text import tokenization
from albert.training import contracts, run_record, run_session, subsets

if TYPE_CHECKING:
    import tensorflow as tf

    from albert.model.checkpoints import LoadReport
    from albert.training import stages
    from albert.training.engine import Engine

CACHE_FOLDER = "encoder_cache"
_PER_RUN = ("num_seeds", "seed", "output_dir")  # flags that differ between the runs of a study


@dataclasses.dataclass(frozen=True)
class Inputs:
    """The model and devices that a run starts from, before its data is read."""

    strategy: "tf.distribute.Strategy"
    source: sources.Source
    config: configuration.AlbertConfig
    tokenizer: tokenization.FullTokenizer
    head: head_config.Head
    checkpoint: str | None = None  # weights to start from; the teacher's with --init_from_teacher
    view: weight_names.View | None = None  # reads it as one of the model; None: names fit


@dataclasses.dataclass(frozen=True)
class Prepared:
    """The task, the data and the length of a run."""

    task: contracts.Task
    data: contracts.Data
    description: dict[str, Any]  # {name: JSON value}, settings of the model for its folder
    num_train_steps: int
    num_warmup_steps: int
    do_eval: bool
    draws_fractions: bool = True  # whether `apply_options` must draw the fractions of the data
    # Changes the initial weights to suit the model.
    adapt: Callable[[contracts.Model, "LoadReport"], None] = lambda model, report: None
    # ``({name: array} of dev outputs, prefix of their checkpoint)``, returns what replaces this;
    # None: the model is not calibrated.
    calibrate: "Callable[[contracts.Rows, str], Prepared] | None" = None


@dataclasses.dataclass(frozen=True)
class Command(abc.ABC):
    """A fine-tuning command: the parts of a run that differ between commands."""

    settings: Settings

    @property
    @abc.abstractmethod
    def kind(self) -> str:
        """Returns the kind of its models, a key of `kinds.KINDS`."""

    @property
    @abc.abstractmethod
    def best_metric(self) -> str:
        """Returns the result that picks the best checkpoint, unless --metric_for_best is given."""

    @property
    @abc.abstractmethod
    def recipe(self) -> str:
        """Returns the file or page with settings to try if a run does not learn."""

    @abc.abstractmethod
    def prepare(self, inputs: Inputs) -> Prepared:
        """Reads the data; returns it with the task."""

    @property
    def shared_data(self) -> Mapping[str, str]:
        """Returns {flag: name in --output_dir} of data that the runs of --num_seeds share.

        A flag that is given takes precedence.
        """
        return {}

    @property
    def num_choices(self) -> int:
        """Returns the number of texts per example."""
        return 1

    def find_teacher(self) -> sources.Source | None:
        """Returns the model of the teacher; None: the run has no teacher."""
        return None

    def distillation(
        self,
        teacher: sources.Source | None,
        source: sources.Source,
        config: configuration.AlbertConfig,
    ) -> distillation.Distillation:
        """Returns the changes that a teacher makes to a run; `source`, `config`: of the student."""
        return distillation.Distillation()

    def export(  # noqa: B027 (not every command exports)
        self, export_dir: str, inputs: Inputs, prepared: Prepared, engine: "Engine"
    ) -> None:
        """Writes SavedModels to new folders in `export_dir`; all workers call it.

        The `engine` has the trained model.
        """


def run(command: Command, values: flags.FlagValues, script: str) -> None:
    """Trains, evaluates, predicts and exports according to the checked settings of a command.

    Args:
      values: its parsed flags, for the run record and for runs with other seeds.
      script: name of its module in the package.
    """
    settings = command.settings
    command_line = command_flags.CommandLine.from_values(values, script)
    for name in settings.determined:
        command_line = command_line.with_value(name, getattr(settings, name))
    if settings.schedule.num_seeds > 1:
        _run_seeds(command, command_line)
        return
    from albert.training import distribution, stages

    # First: workers must know of each other.
    strategy = training.make_strategy(settings, command_line)
    teacher = command.find_teacher()
    source = settings.model.find_for_run(
        settings.do_train, settings.described_folder, command.kind, teacher
    )
    config = training.read_config(settings, source)
    distilled = command.distillation(teacher, source, config)
    model_settings.check_seq_length(settings.max_seq_length, config)
    training.end_with_estimate(settings, config, strategy, choices=command.num_choices)
    inputs = Inputs(
        strategy,
        source,
        config,
        model_folder.load_tokenizer(source, config),
        find_head(settings),
        distilled.checkpoint or source.checkpoint,
        distilled.view,
    )
    prepared = command.prepare(inputs)
    recorder = command_line.recorder(source, teacher.checkpoint if teacher else None)
    stages_run = make_run(command, inputs, prepared, recorder)
    task, data = apply_options(settings, prepared, stages_run)
    if calibrate := prepared.calibrate:

        def calibrated(rows: contracts.Rows, prefix: str) -> tuple[contracts.Task, contracts.Data]:
            nonlocal prepared
            if distribution.is_chief(strategy):  # the decision is kept in the description
                stages_run.complete_folder(False)
            prepared = calibrate(rows, prefix)
            task, data = apply_options(settings, prepared, stages_run)
            return distilled.with_teacher(task), data

        stages_run = dataclasses.replace(stages_run, calibrate=calibrated)
    engine = stages.run(distilled.with_teacher(task), data, stages_run)
    if settings.export_dir:
        command.export(settings.export_dir, inputs, prepared, engine)
        run_record.log_remarks(settings.output_dir, run_record.read_remarks(settings.output_dir))
    if not calibrate:  # which has completed it
        stages.complete_folder(stages_run)
    stages.leave_checkpoints(stages_run, settings.schedule.keep_only_best)
    if distribution.is_chief(strategy) and has_checkpoints(settings.output_dir):
        _keep_examples(settings, prepared)
        next_steps.show(*next_steps.after_fine_tuning(command.kind, settings.output_dir))


def _keep_examples(settings: Settings, prepared: Prepared) -> None:
    """Keeps dev examples with an evaluated model; removes them if they are not wanted."""
    from albert.serving import example_requests

    if not settings.examples:
        example_requests.write(settings.output_dir, ())
    elif prepared.do_eval:
        example_requests.write(settings.output_dir, prepared.data.dev_requests())


def _run_seeds(command: Command, command_line: command_flags.CommandLine) -> None:
    """Makes the runs of --num_seeds, each by the same command with its own seed."""
    settings = command.settings
    shared_arguments = [
        argument
        for argument in command_line.arguments
        if argument.removeprefix("--").partition("=")[0] not in _PER_RUN
    ]
    for name, file in command.shared_data.items():
        if not command_line.flags[name]["value"]:
            shared_arguments.append(f"--{name}={os.path.join(settings.output_dir, file)}")

    def arguments(seed: int, folder: str) -> list[str]:
        return [*shared_arguments, f"--seed={seed}", f"--output_dir={folder}"]

    metric = settings.schedule.metric_for_best or command.best_metric
    left_out = {*_PER_RUN, *command.shared_data}
    shared_flags = {
        name: run_record.plain(flag["value"])
        for name, flag in command_line.flags.items()
        if name not in left_out
    }
    study = seed_runs.Study(
        settings.output_dir, command_line.script, metric, arguments, shared_flags
    )
    print(seed_runs.run(study, settings.loop.seed, settings.schedule.num_seeds))
    next_steps.show(next_steps.line("report", runs=settings.output_dir))


def find_head(settings: Settings) -> head_config.Head:
    """Returns the head of the flags; a run without training reads omitted flags from its folder.

    Raises:
      file_io.InputError: the run resumes one with another head, or uses a model with other pooling.
    """
    from albert.model import checkpoints

    layer, folder = settings.head_layer, settings.trained_folder
    existing = model_folder.described_head(folder)

    def default_pooling() -> str:
        return existing.pooling if existing else _pooling_to_start_with(settings)

    ours = dataclasses.replace(layer.head, pooling=layer.pooling_or(default_pooling))
    if existing is None or is_same_head(existing, ours):
        return ours
    if not settings.do_train and ours.pooling == existing.pooling:
        return ours if "head_hidden_size" in layer.given else existing
    if not settings.do_train or checkpoints.numbered(folder):
        raise file_io.InputError(
            f"{folder} holds a run with {describe_head(existing)}, but this run would have "
            f"{describe_head(ours)}: give the same flags, or another --output_dir"
        )
    return ours


def _pooling_to_start_with(settings: Settings) -> str:
    """Returns the pooling, a member of `pooling.KINDS`, of the model that a new run starts from."""
    folder = settings.folder_to_follow
    found = (model_folder.described_pooling(folder) if folder else None) or pooling.CLS
    if found != pooling.CLS:
        logging.info("The head reads the %s of a text's tokens, as %s says", found, folder)
    return found


def is_same_head(one: head_config.Head, other: head_config.Head) -> bool:
    """Returns whether two heads compute the same, regardless of dropout."""
    return dataclasses.replace(one, head_dropout_prob=other.head_dropout_prob) == other


def describe_head(head: head_config.Head) -> str:
    """Returns the flags of a head for messages."""
    words = [] if head.head_hidden_size else ["no --head_hidden_size"]
    return ", ".join([*words, *(f"--{name}={value}" for name, value in head.settings.items())])


def check_teacher(settings: Settings, teacher: distillation.Teacher) -> None:
    """Rejects a teacher whose head differs from the student's, and flags without effect."""
    if not teacher.teacher:
        return
    ours, theirs = find_head(settings), model_folder.described_head(teacher.teacher)
    if theirs is not None and not is_same_head(theirs, ours):
        raise file_io.InputError(
            f"--teacher={teacher.teacher} has {describe_head(theirs)}, this run "
            f"{describe_head(ours)}: both must have the same head"
        )
    if settings.frozen.cache_encoder_outputs:
        raise file_io.InputError(
            "--cache_encoder_outputs: the --teacher reads each text at every step, so no time is "
            "saved; leave it out"
        )
    if settings.frozen.freeze_encoder and any(teacher.weights[2:]):
        raise file_io.InputError(
            f"--distill_weights={teacher.distill_weights}: with --freeze_encoder the hidden states "
            "do not change, so all weights from the third on must be 0"
        )


def find_class_weights(
    settings: ClassifierSettings, find: Callable[[str], dict[str, float]]
) -> dict[str, float]:
    """Returns {label: its weight in the training loss}; {} if all count the same.

    `find` returns them for --class_weights. A run that does not train keeps those of its folder.
    """
    folder, source = settings.trained_folder, settings.class_weights
    existing = class_weights.described(model_folder.described_settings(folder) or {})
    if not settings.do_train:
        return existing
    weights = find(source) if source else {}
    if weights != existing and has_checkpoints(folder):
        raise file_io.InputError(
            f"{folder} holds checkpoints of a run with "
            f"{f'the class weights {existing}' if existing else 'no class weights'}, but this run "
            f"would have {weights or 'none'}: give the same --class_weights and training data, or "
            "another --output_dir"
        )
    return weights


def check_text_export(settings: ClassifierSettings, tokenizer: tokenization.FullTokenizer) -> None:
    """Rejects --export_text with a tokenizer that a graph cannot compute."""
    if settings.export_text:
        from albert.export import graphs

        graphs.check_text(tokenizer)


def model_to_export(
    settings: Settings, inputs: Inputs, task: contracts.Task, engine: "Engine"
) -> contracts.Model | None:
    """Returns the model with the weights of the flags; None for workers that do not export."""
    from albert.export import saved_model_export
    from albert.training import distribution, stages

    prefix = stages.load(engine, checkpoint_to_use(settings, inputs))
    if not distribution.is_chief(inputs.strategy):
        return None
    described = model_folder.described_decision(os.path.dirname(prefix))
    model_folder.warn_of_decision(described, prefix)
    return saved_model_export.model_to_serve(task, inputs.config, prefix)


def needs_new_head(command: Command, inputs: Inputs, prepared: Prepared) -> bool | None:
    """Returns whether the run cannot use the head of the model that it starts from, and logs why.

    None means that only the sizes of the head can tell. Without training, such a model is rejected.
    """
    settings, description = command.settings, prepared.description
    if not settings.do_train:
        head = model_labels.read_folder(settings.described_folder)
    elif settings.head_layer.new_head or not inputs.checkpoint:
        return settings.head_layer.new_head or None
    else:
        resumes = has_checkpoints(settings.output_dir)
        head = None if resumes else model_labels.read(inputs.checkpoint)
    if head is None:
        return None
    labels, words = description.get("labels", ()), glue.words_of(description.get("task_name"))
    if head.means(command.kind, labels, words):
        return None
    difference = head.difference(command.kind, labels)
    if settings.do_train and head.is_of_other_task(description.get("task_name"), labels):
        logging.warning("%s. Training starts from that head, see --new_head", difference)
        return None
    if not settings.do_train:
        raise file_io.InputError(f"{difference}. Train first (--do_train), or use another model")
    logging.warning("%s. The head is new: only the encoder is taken", difference)
    return True


def make_run(
    command: Command,
    inputs: Inputs,
    prepared: Prepared,
    recorder: run_session.Recorder | None = None,
) -> "stages.Run":
    """Returns the run of a command; without a recorder its folder does not describe the run."""
    from albert.tasks import kinds
    from albert.training import stages

    settings, steps = command.settings, prepared.num_train_steps
    folder, description = settings.output_dir, prepared.description
    model = folder, command.kind, inputs.config, inputs.source, description
    return stages.Run(
        model_config=inputs.config,
        run_config=training.run_config(
            settings,
            steps,
            settings.eval_batch,
            settings.predict_batch_size,
            num_kept(settings, prepared.do_eval),
        ),
        strategy=inputs.strategy,
        init_checkpoint=inputs.checkpoint,
        from_scratch=settings.model.from_scratch,
        view=inputs.view,
        adapt=prepared.adapt,
        new_head=needs_new_head(command, inputs, prepared),
        new_rows=training.new_rows(settings, inputs.config, inputs.source),
        check_folder=lambda: model_folder.check_same_model(*model),
        complete_folder=lambda replace: kinds.write_folder(*model, replace),
        training=training.make_training(settings, steps, prepared.num_warmup_steps, command.recipe),
        do_eval=prepared.do_eval,
        do_predict=settings.do_predict,
        checkpoint=checkpoint_to_use(settings, inputs),
        eval_wait_secs=settings.loop.eval_wait_secs,
        record=recorder and dataclasses.replace(recorder, description=description),
    )


def checkpoint_to_use(settings: Settings, inputs: Inputs) -> str | None:
    """Returns --checkpoint; by default the initial weights if nothing trains or has trained."""
    folder = settings.output_dir
    waits = settings.do_train or settings.loop.eval_wait_secs
    if settings.loop.checkpoint or waits or has_checkpoints(folder):
        return settings.loop.checkpoint
    return inputs.checkpoint


def num_kept(settings: Settings, evaluates: bool) -> int:
    """Returns the number of numbered checkpoints that a run keeps; 0: all.

    By default, a run that does not evaluate its checkpoints keeps all of them for a later command.
    """
    limit_flags = settings.given & {"keep_checkpoint_max", "num_keep_checkpoint"}
    keeps_all = settings.do_train and not evaluates and not limit_flags
    return 0 if keeps_all else settings.max_kept


def _with_metric(settings: Settings, task: contracts.Task) -> contracts.Task:
    """Returns the task with the metric that picks the best checkpoint.

    Without training it is the one by which the folder's best was picked.
    """
    schedule, folder = settings.schedule, settings.output_dir
    if settings.do_train:
        return schedule.with_metric(task)
    recorded, of_training = run_record.metric_of_result(folder)
    if schedule.metric_for_best not in (None, recorded) and of_training:
        raise file_io.InputError(
            f"--metric_for_best={schedule.metric_for_best}: the best checkpoint in {folder} was "
            f"picked by {recorded} while it trained, and its results are those of that "
            "checkpoint; omit the flag"
        )
    if schedule.metric_for_best is None and recorded and recorded in task.metrics:
        return dataclasses.replace(task, best_metric=recorded)
    return schedule.with_metric(task)


def apply_options(
    settings: Settings, prepared: Prepared, run: "stages.Run"
) -> tuple[contracts.Task, contracts.Data]:
    """Returns task and data with the metric, frozen encoder, fractions and cache of the flags."""
    from albert.data import record_values
    from albert.training import frozen_encoder

    task, frozen = _with_metric(settings, prepared.task), settings.frozen
    data = prepared.data.with_limits(record_values.limits_of_model(run.model_config))
    if settings.do_train:
        frozen_encoder.check_resume(settings.output_dir, frozen.freeze_encoder)
    if frozen.freeze_encoder:
        task = frozen_encoder.freeze(task)
    if prepared.draws_fractions:
        fractions = {
            "train": ("train_fraction", settings.fractions.train_fraction),
            "dev": ("eval_fraction", settings.fractions.eval_fraction),
        }
        data = data.subset(subsets.Fractions(fractions, settings.loop.seed, run.strategy))
    if frozen.cache_encoder_outputs:
        folder = frozen.encoder_cache_dir or os.path.join(settings.record_dir, CACHE_FOLDER)
        data = frozen_encoder.cached_data(data, task, run, folder)
    return task, data
