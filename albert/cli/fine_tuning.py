"""The shared `main` of all fine-tuning commands, and the settings that they share."""

import abc
import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from absl import flags, logging

from albert.cli import (
    command_flags,
    distillation,
    model_settings,
    next_steps,
    options,
    path_flags,
    training,
)
from albert.experiments import seeds
from albert.io import file_io
from albert.model import configuration, head_config, model_folder, sources
from albert.tasks import glue, model_labels
from albert.text import tokenization
from albert.training import contracts, run_record, stuck_runs, subsets

if TYPE_CHECKING:
    import tensorflow as tf

    from albert.model.checkpoints import LoadReport
    from albert.model.heads import Model
    from albert.training import stages
    from albert.training.engine import Engine

CACHE_FOLDER = "encoder_cache"
_LAYER_FLAGS = ("head_activation", "head_input_activation", "head_dropout_prob")
# Flags that decide which inputs a model sees, or which answers are found, as in its description.
_LENGTHS = (
    *("max_seq_length", "max_qa_length", "doc_stride", "max_query_length"),
    *("n_best_size", "max_answer_length", "start_n_top", "end_n_top"),
)
_PER_RUN = ("num_seeds", "seed", "output_dir")  # flags that differ between the runs of a study


# --- groups of flags ------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schedule(training.Schedule):
    """Flags for evaluation, early stopping, the check for learning, and seeds."""

    stuck_after: float = options.flag(
        0.2,
        "Fraction of the steps after which a run that does not learn logs a warning; 0: never.",
        check=options.fraction,
    )
    num_restarts: int = options.flag(
        0,
        "Times that a run that does not learn is restarted, with seeds that no other run has.",
        check=options.not_negative,
    )
    num_seeds: int = options.count(
        1, "Runs to make, the first with --seed, each in a folder seed_<n>."
    )

    def check(self, do_train: bool, evaluates: bool) -> None:
        """Rejects contradictions; see `training.Schedule.check`.

        Raises:
          file_io.InputError: names the flags and what is possible.
        """
        super().check(do_train, evaluates)
        if self.num_restarts and not (do_train and self.stuck_after):
            raise file_io.InputError("--num_restarts needs --do_train and --stuck_after above 0")
        if self.num_seeds == 1:
            return
        if not (do_train and evaluates):
            raise file_io.InputError(
                "--num_seeds needs training with evaluations, to compare the runs"
            )
        if "TF_CONFIG" in os.environ:
            raise file_io.InputError("--num_seeds is for one worker, but TF_CONFIG is set")

    def judgement(
        self, learning_rate: float | str, warmup_fraction: float, recipe: str | None
    ) -> stuck_runs.Settings | None:
        """Returns how the run is judged; None: no check for learning."""
        if not (self.stuck_after and recipe):
            return None
        advice = (
            f"learning_rate={learning_rate} with {warmup_fraction:.0%} of the steps as warm-up: "
            f"try a lower rate, a longer warm-up, the settings in {recipe}, or another seed "
            "(num_restarts); load_report.json says whether the encoder was loaded"
        )
        return stuck_runs.Settings(self.stuck_after, warmup_fraction, advice, self.num_restarts)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study(options.Group):
    """Flags for a frozen encoder and its cache, a hidden layer, and fractions of the data."""

    section = options.TRAINING
    sections = {
        options.DATA: "train_fraction eval_fraction",
        options.MODEL: "head_hidden_size head_activation head_input_activation head_dropout_prob",
    }

    freeze_encoder: bool = options.flag(
        False, "Train only the head; the encoder does not change and has no dropout."
    )
    cache_encoder_outputs: bool = options.flag(
        False,
        "With --freeze_encoder: run the encoder over the data once and keep its outputs in files, "
        "which all steps then read.",
    )
    encoder_cache_dir: str | None = options.flag(
        None,
        "Folder of the files of --cache_encoder_outputs, which runs can share; by default "
        "encoder_cache next to the feature records.",
        path=path_flags.FOLDER,
    )
    head_hidden_size: int | None = options.flag(
        None,
        "Size of a dense layer between the encoder and the output layer; by default, and with 0, "
        "there is none. Later runs in the same folder use the recorded size.",
    )
    head_activation: str = options.flag(
        "relu",
        "Activation of the output of the layer of --head_hidden_size.",
        choices=configuration.ACTIVATIONS,
    )
    head_input_activation: str = options.flag(
        "linear",
        "Activation of the encoder's output, before the layer of --head_hidden_size.",
        choices=configuration.ACTIVATIONS,
    )
    head_dropout_prob: float = options.flag(
        0.0, "Dropout of the output of the layer of --head_hidden_size, in training."
    )
    new_head: bool = options.flag(
        False,
        "Start with a new head, even if the initial model has one for the same labels.",
    )
    train_fraction: float = options.flag(
        1.0,
        "Fraction of the training examples to train on, drawn by --seed; a smaller fraction is "
        "part of a larger one.",
        check=subsets.check_fraction,
    )
    eval_fraction: float = options.flag(
        1.0,
        "Fraction of the dev examples to evaluate on, drawn by --seed.",
        check=subsets.check_fraction,
    )

    @property
    def head(self) -> head_config.Head:
        """Returns the head that the flags describe."""
        if not self.head_hidden_size:
            return head_config.NO_LAYER
        names = ("head_hidden_size", *_LAYER_FLAGS)
        return head_config.Head(**{name: getattr(self, name) for name in names})

    def check(self) -> None:
        """Rejects flags that would have no effect.

        Raises:
          file_io.InputError: names the flags.
        """
        if not self.head_hidden_size:
            names = [name for name in _LAYER_FLAGS if name in self.given]
            self.refuse_given("a layer of --head_hidden_size", *names)
        if not self.freeze_encoder:
            self.refuse_given("--freeze_encoder", "cache_encoder_outputs")
        if not self.cache_encoder_outputs:
            self.refuse_given("--cache_encoder_outputs", "encoder_cache_dir")


def keep_flag() -> Any:
    """Returns the flag for the number of checkpoints to keep; its name differs by command."""
    return options.flag(
        5,
        "Checkpoints kept in addition to the best; 0 keeps all, as training without evaluation "
        "does unless the flag is given.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(training.Settings, abc.ABC):
    """Settings of every fine-tuning command."""

    do_predict: bool = options.flag(False, "Predict the test data.")
    predict_batch_size: int = options.count(8, "Examples per prediction step, over all devices.")
    model: model_settings.ModelToUse = options.group(model_settings.ModelToUse)
    schedule: Schedule = options.group(Schedule)
    study: Study = options.group(Study)

    @property
    def export_dir(self) -> str | None:
        """Returns the folder to export to; None for commands without a flag of this name."""
        return None

    @property
    def is_frozen(self) -> bool:
        """Returns whether the encoder is frozen."""
        return self.study.freeze_encoder

    @property
    @abc.abstractmethod
    def evaluates(self) -> bool:
        """Returns whether training evaluates each checkpoint."""

    @property
    @abc.abstractmethod
    def eval_batch(self) -> int:
        """Returns the number of examples per evaluation step."""

    @property
    @abc.abstractmethod
    def max_kept(self) -> int:
        """Returns how many checkpoints to keep, unless training does not evaluate them."""

    @property
    def record_dir(self) -> str:
        """Returns the folder of the records of features."""
        return self.output_dir

    @property
    def trained_folder(self) -> str:
        """Returns the folder that may describe the model of the run.

        Without training this is that of the weights to use, see `checkpoint_to_use`.
        """
        folder, path = self.output_dir, self.course.checkpoint
        if path in ("best", "last", "all"):
            path = None
        elif path is None and not self.course.eval_wait_secs and not has_checkpoints(folder):
            path = self.model.init_checkpoint
        if self.do_train or not path:
            return folder
        self.model.set_cache_dir()
        return os.path.dirname(sources.find_checkpoint(path))

    def described_values(self, description: Mapping[str, Any]) -> dict[str, Any]:
        """Returns {flag: value} of the training that the settings of a model's folder describe.

        Raises:
          file_io.InputError: a length is no number above 0.
        """
        values = {n: description[n] for n in _LENGTHS if hasattr(self, n) and n in description}
        for name, value in values.items():
            if type(value) is not int or value < 1:
                raise file_io.InputError(
                    f"{self.trained_folder}: the setting {name} of its description is {value!r}, "
                    "which training never writes: restore the file, or fine-tune again"
                )
        return values

    def check_work(self, *names: str) -> None:
        """Rejects a run without any of the stages; raises `file_io.InputError`.

        Args:
          names: flags of the stages.
        """
        if not any(getattr(self, name) for name in names):
            stages = ", ".join(f"--{name}" for name in names)
            raise file_io.InputError(f"nothing to do: none of {stages} is given")

    def check(self) -> None:
        """Rejects contradictions before any work.

        Raises:
          file_io.InputError: names the flags.
        """
        self.optimizer.check()
        self.schedule.check(self.do_train, self.evaluates)
        if self.schedule.num_seeds > 1 and self.export_dir:
            raise file_io.InputError(
                "--export_dir: only for one run, such as the best of --num_seeds"
            )
        self.study.check()
        if self.study.freeze_encoder:
            self._check_frozen()
        if self.study.cache_encoder_outputs:
            self._check_cache()
        if self.study.new_head and not self.do_train:
            raise file_io.InputError("--new_head needs --do_train: a new head has random weights")

    def _check_frozen(self):
        if not self.do_train:
            raise file_io.InputError(
                "--freeze_encoder needs --do_train: only training changes weights"
            )
        purpose = "an encoder that is trained (--freeze_encoder)"
        self.compute.refuse_given(purpose, "recompute")
        self.dropout.refuse_given(purpose, "hidden_dropout_prob", "attention_probs_dropout_prob")
        if self.compute.estimate_memory:
            raise file_io.InputError(
                "--estimate_memory counts the training of the whole model; leave out "
                "--freeze_encoder"
            )

    def _check_cache(self):
        checkpoint = self.course.checkpoint
        if checkpoint not in (None, "best", "last"):
            raise file_io.InputError(
                f"--cache_encoder_outputs: --checkpoint={checkpoint} may have another encoder "
                "than the cache; give best or last"
            )
        if self.model.from_scratch and self.schedule.num_restarts:
            raise file_io.InputError(
                "--cache_encoder_outputs: with --from_scratch another seed means another encoder; "
                "leave out --num_restarts"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepSettings(Settings):
    """Settings of commands that evaluate dev data and train for a number of steps."""

    do_eval: bool = options.flag(
        False, "Evaluate: each checkpoint as it is saved, or all existing ones."
    )
    eval_batch_size: int = options.count(8, "Examples per evaluation step, over all devices.")
    train_step: int = options.count(1000, "Total number of steps.")
    warmup_step: int = options.flag(0, "Steps over which the learning rate rises from 0.")

    @property
    def evaluates(self) -> bool:
        """Returns whether training evaluates each checkpoint."""
        return self.do_eval

    @property
    def eval_batch(self) -> int:
        """Returns the number of examples per evaluation step."""
        return self.eval_batch_size

    def check(self) -> None:
        """Rejects contradictions; see `Settings.check`."""
        self.course.check_waiting(self.do_train, self.do_eval)
        super().check()


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifierSettings(StepSettings):
    """Settings of the commands that classify texts or words and export their models."""

    export_dir: str | None = options.flag(
        None,
        "Write a SavedModel of the best checkpoint to a new folder in here.",
        path=path_flags.FOLDER,
    )
    export_text: bool = options.flag(
        False, "With --export_dir: also write a SavedModel that takes strings."
    )
    classifier_dropout_prob: float = options.flag(
        0.1, "Dropout of the pooled output.", check=options.fraction
    )
    keep_checkpoint_max: int = keep_flag()

    @property
    def output_dropout_prob(self) -> float:
        """Returns the dropout of the head's input."""
        return self.classifier_dropout_prob

    @property
    def max_kept(self) -> int:
        """Returns how many checkpoints to keep, unless training does not evaluate them."""
        return self.keep_checkpoint_max

    def check(self) -> None:
        """Rejects contradictions; see `Settings.check`."""
        self.check_work("do_train", "do_eval", "do_predict", "export_dir")
        if self.export_text and not self.export_dir:
            raise file_io.InputError("--export_text needs --export_dir")
        super().check()


_Settings = TypeVar("_Settings", bound=Settings)


def read(kind: type[_Settings], values: flags.FlagValues) -> _Settings:
    """Returns the settings of parsed flags; those of a trained model are read from its folder.

    A run that does not train sees the inputs that its model was trained on: lengths and columns
    whose flags are omitted become those of the folder.

    Raises:
      file_io.InputError: a value is invalid; the message names the flag or the folder.
    """
    settings = options.read(kind, values)
    folder = settings.trained_folder
    description = None if settings.do_train else model_folder.described_settings(folder)
    if description is None:
        return settings
    trained = settings.described_values(description)
    differing = {name: value for name, value in trained.items() if values[name].value != value}
    for name, value in differing.items():
        if values[name].present:
            logging.info(
                "--%s=%s: the model in %s was trained with %s",
                name,
                values[name].value,
                folder,
                value,
            )
        else:
            setattr(values, name, value)
    if omitted := [f"{n}={v}" for n, v in differing.items() if not values[n].present]:
        logging.info("As in the training of %s: %s", folder, ", ".join(omitted))
    return options.read(kind, values)


# --- the shared main ------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Inputs:
    """The model and devices that a run starts from, before its data is read.

    Attributes:
      checkpoint: weights to start from; of the teacher with --init_from_teacher.
      rename: see `checkpoints.restore`.
    """

    strategy: "tf.distribute.Strategy"
    source: sources.Source
    config: configuration.AlbertConfig
    tokenizer: tokenization.FullTokenizer
    head: head_config.Head
    checkpoint: str | None = None
    rename: Callable[[str], str] | None = None


@dataclasses.dataclass(frozen=True)
class Prepared:
    """The task, the data and the length of a run.

    Attributes:
      description: settings of the model for its folder; see `model_folder.write`.
      do_eval: whether checkpoints are evaluated.
      draws_fractions: whether `apply_options` must draw the fractions of the data.
      adapt: see `stages.Run`.
    """

    task: contracts.Task
    data: contracts.Data
    description: dict[str, Any]
    num_train_steps: int
    num_warmup_steps: int
    do_eval: bool
    draws_fractions: bool = True
    adapt: Callable[[contracts.Model, "LoadReport"], None] = lambda model, report: None


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
        """Returns the model of the teacher, if there is one."""
        return None

    def distillation(
        self,
        teacher: sources.Source | None,
        source: sources.Source,
        config: configuration.AlbertConfig,
    ) -> distillation.Distillation:
        """Returns the changes that the teacher makes to a run of a student with `config`."""
        return distillation.Distillation()

    def export(  # noqa: B027 (not every command exports)
        self, export_dir: str, inputs: Inputs, prepared: Prepared, engine: "Engine"
    ) -> None:
        """Writes SavedModels to a folder; all workers call it."""


def run(command: Command, command_line: command_flags.CommandLine) -> None:
    """Trains, evaluates, predicts and exports according to the checked settings of a command.

    Args:
      command: the command.
      command_line: its words, for the run record and for runs with other seeds.
    """
    settings = command.settings
    if settings.schedule.num_seeds > 1:
        _run_seeds(command, command_line)
        return
    from albert.training import distribution, stages

    # First: workers must know of each other.
    strategy = training.make_strategy(settings, command_line)
    teacher = command.find_teacher()
    source = settings.model.find_for_run(
        settings.do_train, settings.output_dir, command.kind, teacher
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
        distilled.rename,
    )
    prepared = command.prepare(inputs)
    recorder = command_line.recorder(source, teacher.checkpoint if teacher else None)
    stages_run = make_run(command, inputs, prepared, recorder)
    task, data = apply_options(settings, prepared, stages_run)
    engine = stages.run(distilled.with_teacher(task), data, stages_run)
    if settings.export_dir:
        command.export(settings.export_dir, inputs, prepared, engine)
        remarks = run_record.read_remarks(settings.output_dir)
        run_record.log_remarks(settings.output_dir, remarks)
    stages.complete_folder(stages_run)
    stages.leave_checkpoints(stages_run, settings.schedule.keep_only_best)
    if distribution.is_chief(strategy):
        next_steps.show(*next_steps.after_fine_tuning(command.kind, settings.output_dir))


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

    def arguments(seed, folder):
        return [*shared_arguments, f"--seed={seed}", f"--output_dir={folder}"]

    metric = settings.schedule.metric_for_best or command.best_metric
    left_out = {*_PER_RUN, *command.shared_data}
    shared_flags = {
        name: run_record.plain(flag["value"])
        for name, flag in command_line.flags.items()
        if name not in left_out
    }
    study = seeds.Study(settings.output_dir, command_line.script, metric, arguments, shared_flags)
    print(seeds.run(study, settings.course.seed, settings.schedule.num_seeds))
    next_steps.show(next_steps.line("report", runs=settings.output_dir))


def find_head(settings: Settings) -> head_config.Head:
    """Returns the head of the flags; a run without training reads omitted flags from its folder.

    Raises:
      file_io.InputError: a value is out of range; or the run resumes one with another head.
    """
    from albert.model import checkpoints

    ours, folder = settings.study.head, settings.output_dir
    existing = model_folder.described_head(folder)
    if existing is None or is_same_head(existing, ours):
        return ours
    if not settings.do_train:
        return ours if "head_hidden_size" in settings.study.given else existing
    if checkpoints.numbered(folder):
        raise file_io.InputError(
            f"{folder} holds a run with {describe_head(existing)}, but this run would have "
            f"{describe_head(ours)}: give the same flags, or another --output_dir"
        )
    return ours


def is_same_head(one: head_config.Head, other: head_config.Head) -> bool:
    """Returns whether two heads compute the same, regardless of dropout."""
    return dataclasses.replace(one, head_dropout_prob=other.head_dropout_prob) == other


def describe_head(head: head_config.Head) -> str:
    """Returns the flags of a head."""
    if not head.head_hidden_size:
        return "no --head_hidden_size"
    return ", ".join(f"--{name}={value}" for name, value in dataclasses.asdict(head).items())


def check_teacher(settings: Settings, teacher: distillation.Teacher) -> None:
    """Rejects a teacher whose head differs from the student's, and flags without effect.

    Raises:
      file_io.InputError: names the flags.
    """
    if not teacher.teacher:
        return
    ours, theirs = find_head(settings), model_folder.described_head(teacher.teacher)
    if theirs is not None and not is_same_head(theirs, ours):
        raise file_io.InputError(
            f"--teacher={teacher.teacher} has {describe_head(theirs)}, this run "
            f"{describe_head(ours)}: both must have the same head"
        )
    if settings.study.cache_encoder_outputs:
        raise file_io.InputError(
            "--cache_encoder_outputs: the --teacher reads each text at every step, so no time is "
            "saved; leave it out"
        )
    if settings.study.freeze_encoder and any(teacher.weights[2:]):
        raise file_io.InputError(
            f"--distill_weights={teacher.distill_weights}: with --freeze_encoder the hidden states "
            "do not change, so the third weight must be 0"
        )


def check_text_export(settings: ClassifierSettings, tokenizer: tokenization.FullTokenizer) -> None:
    """Rejects --export_text with a tokenizer that a graph cannot compute."""
    if settings.export_text:
        from albert.export import graphs

        graphs.check_text(tokenizer)


def model_to_export(
    settings: Settings, inputs: Inputs, task: contracts.Task, engine: "Engine"
) -> "Model | None":
    """Returns the model to export, with the checkpoint of the flags; None for other workers."""
    from albert.export import saved_model_export
    from albert.training import distribution, stages

    prefix = stages.load(engine, checkpoint_to_use(settings, inputs))
    if not distribution.is_chief(inputs.strategy):
        return None
    return saved_model_export.model_to_serve(task, inputs.config, prefix)


def has_checkpoints(folder: str) -> bool:
    """Returns whether a folder has a checkpoint of a run."""
    from albert.model import checkpoints

    return bool(checkpoints.numbered(folder) or checkpoints.find_best(folder))


def needs_new_head(command: Command, inputs: Inputs, prepared: Prepared) -> bool | None:
    """Returns whether the run cannot use the head of the model that it starts from, and logs why.

    None means that only the sizes of the head can tell.

    Raises:
      file_io.InputError: this is so, and the run does not train.
    """
    settings = command.settings
    folder, description = settings.output_dir, prepared.description
    resumes = has_checkpoints(folder)
    if settings.study.new_head or not inputs.checkpoint or (settings.do_train and resumes):
        return settings.study.new_head or None
    head = model_labels.read_folder(folder) if resumes else model_labels.read(inputs.checkpoint)
    labels, words = description.get("labels", ()), glue.words_of(description.get("task_name"))
    if head is None or head.means(command.kind, labels, words):
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
    recorder: run_record.Recorder | None = None,
) -> "stages.Run":
    """Returns the run of a command."""
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
        rename=inputs.rename,
        adapt=prepared.adapt,
        new_head=needs_new_head(command, inputs, prepared),
        new_rows=training.new_rows(settings, inputs.config, inputs.source),
        check_folder=lambda: model_folder.check_same_model(*model),
        complete_folder=lambda replace: kinds.write_folder(*model, replace),
        do_eval=prepared.do_eval,
        do_predict=settings.do_predict,
        record=recorder and dataclasses.replace(recorder, description=description),
        **{
            **training.run_arguments(settings, steps, prepared.num_warmup_steps, command.recipe),
            "checkpoint": checkpoint_to_use(settings, inputs),
        },
    )


def checkpoint_to_use(settings: Settings, inputs: Inputs) -> str | None:
    """Returns --checkpoint; by default the initial model if nothing trains or has trained."""
    folder = settings.output_dir
    waits = settings.do_train or settings.course.eval_wait_secs
    if settings.course.checkpoint or waits or has_checkpoints(folder):
        return settings.course.checkpoint
    return inputs.checkpoint


def num_kept(settings: Settings, evaluates: bool) -> int:
    """Returns the number of numbered checkpoints that a run keeps; 0: all.

    By default, a run that does not evaluate its checkpoints keeps all of them for a later command.
    """
    limit_flags = settings.given & {"keep_checkpoint_max", "num_keep_checkpoint"}
    keeps_all = settings.do_train and not evaluates and not limit_flags
    return 0 if keeps_all else settings.max_kept


def apply_options(
    settings: Settings, prepared: Prepared, run: "stages.Run"
) -> tuple[contracts.Task, contracts.Data]:
    """Returns task and data with the metric, frozen encoder, fractions and cache of the flags.

    Raises:
      file_io.InputError: the run resumes one whose encoder was trained, and this one's is frozen,
        or the other way round.
    """
    from albert.data import record_values
    from albert.training import frozen_encoder

    task, study = settings.schedule.with_metric(prepared.task), settings.study
    data = prepared.data.checked(record_values.limits_of_model(run.model_config))
    if settings.do_train:
        frozen_encoder.check_resume(settings.output_dir, study.freeze_encoder)
    if study.freeze_encoder:
        task = frozen_encoder.freeze(task)
    if prepared.draws_fractions:
        fractions = {
            "train": ("train_fraction", study.train_fraction),
            "dev": ("eval_fraction", study.eval_fraction),
        }
        data = subsets.subset(data, fractions, settings.course.seed, run.strategy)
    if study.cache_encoder_outputs:
        folder = study.encoder_cache_dir or os.path.join(settings.record_dir, CACHE_FOLDER)
        data = frozen_encoder.cached_data(data, task, run, folder)
    return task, data
