"""Settings that all fine-tuning commands share."""

import abc
import dataclasses
import math
import os
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self, TypeVar

from absl import flags, logging

from albert.cli import model_settings, options, path_flags, training
from albert.io import file_io
from albert.model import configuration, head_config, model_folder, pooling, sources
from albert.tasks import model_labels
from albert.training import stuck_runs, subsets

_OWN_EPOCHS, _OWN_STEPS, _OWN_WARMUP = 3, 200, 0.1  # of your own data, by default
_MAX_EVALUATIONS = 20  # by default
_LAYER_FLAGS = ("head_activation", "head_input_activation", "head_dropout_prob")
# Flags that decide which inputs a model sees, or which answers are found, as in its description.
_LENGTHS = (
    *("max_seq_length", "max_qa_length", "doc_stride", "max_query_length"),
    *("n_best_size", "max_answer_length", "start_n_top", "end_n_top"),
)


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
        if not (self.stuck_after and recipe):
            return None
        advice = (
            f"learning_rate={learning_rate} with {warmup_fraction:.0%} of the steps as warm-up: "
            f"try a lower rate, a longer warm-up, the settings in {recipe}, or another seed "
            "(num_restarts); load_report.json says whether the encoder was loaded"
        )
        return stuck_runs.Settings(self.stuck_after, warmup_fraction, advice, self.num_restarts)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FrozenEncoder(options.Group):
    """Flags for an encoder that is not trained, and for the cache of its outputs."""

    section = options.TRAINING

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

    def check(self) -> None:
        """Rejects flags that would have no effect."""
        if not self.freeze_encoder:
            self.refuse_given("--freeze_encoder", "cache_encoder_outputs")
        if not self.cache_encoder_outputs:
            self.refuse_given("--cache_encoder_outputs", "encoder_cache_dir")


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadLayer(options.Group):
    """Flags for the head, which may have a hidden layer."""

    section = options.MODEL
    sections = {options.TRAINING: "new_head"}

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
        False, "Start with a new head, even if the initial model has one for the same labels."
    )

    @property
    def head(self) -> head_config.Head:
        """Returns the head that the flags describe."""
        if not self.head_hidden_size:
            return head_config.NO_LAYER
        names = ("head_hidden_size", *_LAYER_FLAGS)
        return head_config.Head(**{name: getattr(self, name) for name in names})

    def pooling_or(self, default: Callable[[], str]) -> str:
        """Returns the pooling, of `pooling.KINDS`, that a flag gives, or the one of `default`."""
        return pooling.CLS

    def check(self) -> None:
        """Rejects flags that would have no effect."""
        if not self.head_hidden_size:
            names = [name for name in _LAYER_FLAGS if name in self.given]
            self.refuse_given("a layer of --head_hidden_size", *names)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PooledHead(HeadLayer):
    """Flags for a head that reads one vector of each text."""

    pooling: str | None = options.flag(
        None,
        "What the head reads of a text: the first token through the pooler (cls), or the mean of "
        "all tokens; by default as in the model to start from: mean if it is of "
        "sentence-transformers and says so, or was trained with it.",
        choices=pooling.KINDS,
    )

    def pooling_or(self, default: Callable[[], str]) -> str:
        return self.pooling or default()


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataFractions(options.Group):
    """Flags for parts of the data."""

    section = options.DATA

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


def keep_flag() -> Any:
    """Returns the flag for the number of checkpoints to keep; its name differs by command."""
    return options.flag(
        5,
        "Checkpoints kept in addition to the best; 0 keeps all, as training without evaluation "
        "does unless the flag is given.",
        check=options.not_negative,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(training.Settings, abc.ABC):
    """Settings of every fine-tuning command."""

    determined: ClassVar[tuple[str, ...]] = ()  # flags whose values the command may work out

    do_predict: bool = options.flag(False, "Predict the test data.")
    examples: bool = options.flag(
        True,
        "After an evaluation, keep up to three short dev examples in --output_dir; a server of the "
        "model offers them on its page, to everybody who reaches it.",
    )
    predict_batch_size: int = options.count(8, "Examples per prediction step, over all devices.")
    model: model_settings.ModelToUse = options.group(model_settings.ModelToUse)
    schedule: Schedule = options.group(Schedule)
    frozen: FrozenEncoder = options.group(FrozenEncoder)
    head_layer: HeadLayer = options.group(HeadLayer)
    fractions: DataFractions = options.group(DataFractions)

    @property
    def export_dir(self) -> str | None:
        """Returns the folder to export to; None for commands without a flag of this name."""
        return None

    @property
    def is_frozen(self) -> bool:
        return self.frozen.freeze_encoder

    @property
    def folder_to_follow(self) -> str | None:
        """Returns the folder of the model whose pooling a new run has; None without a model."""
        if not self.model.init_checkpoint:
            return None
        self.model.set_cache_dir()
        return os.path.dirname(sources.find_checkpoint(self.model.init_checkpoint))

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
        """Returns how many checkpoints to keep, unless training does not evaluate them; 0: all."""

    @property
    def record_dir(self) -> str:
        """Returns the folder of the records of features."""
        return self.output_dir

    @property
    def trained_folder(self) -> str:
        """Returns the folder that may describe the model of the run.

        Without training this is that of the weights to use, see `checkpoint_to_use`.
        """
        folder, path = self.output_dir, self.loop.checkpoint
        if path in ("best", "last", "all"):
            path = None
        elif path is None and not self.loop.eval_wait_secs and not has_checkpoints(folder):
            path = self.model.init_checkpoint
        if self.do_train or not path:
            return folder
        self.model.set_cache_dir()
        return os.path.dirname(sources.find_checkpoint(path))

    @property
    def described_folder(self) -> str:
        """Returns the folder that says what the outputs of the model are and how it reads texts.

        This is `trained_folder`, but the output folder where that has no description.
        """
        folder = self.trained_folder
        is_ours = file_io.exists(os.path.join(folder, sources.DESCRIPTION_NAME))
        return folder if is_ours or model_labels.read_folder(folder) else self.output_dir

    def described_values(self, description: Mapping[str, Any]) -> dict[str, Any]:
        """Returns {flag: value} of the training that a model's ``model.json`` describes."""
        values = {n: description[n] for n in _LENGTHS if hasattr(self, n) and n in description}
        for name, value in values.items():
            if type(value) is not int or value < 1:
                raise file_io.InputError(
                    f"{self.trained_folder}: the setting {name} of its description is {value!r}, "
                    "which training never writes: restore the file, or fine-tune again"
                )
        return values

    def check_work(self, *names: str) -> None:
        """Rejects a run without any of the stages; `names`: their flags, without dashes."""
        if not any(getattr(self, name) for name in names):
            stages = ", ".join(f"--{name}" for name in names)
            raise file_io.InputError(f"nothing to do: none of {stages} is given")

    def check(self) -> None:
        """Rejects contradictions before any work."""
        self.optimizer.check()
        self.schedule.check(self.do_train, self.evaluates)
        if self.schedule.num_seeds > 1 and self.export_dir:
            raise file_io.InputError(
                "--export_dir: only for one run, such as the best of --num_seeds"
            )
        self.frozen.check()
        self.head_layer.check()
        if self.frozen.freeze_encoder:
            self._check_frozen()
        if self.frozen.cache_encoder_outputs:
            self._check_cache()
        if self.head_layer.new_head and not self.do_train:
            raise file_io.InputError("--new_head needs --do_train: a new head has random weights")
        self._check_checkpoint()

    def _check_checkpoint(self) -> None:
        """Rejects training with a checkpoint of another folder, which may have other labels."""
        path = self.loop.checkpoint
        if not self.do_train or path in (None, "best", "last", "all"):
            return
        ours = os.path.abspath(self.output_dir)
        if ours not in (os.path.abspath(path), os.path.abspath(os.path.dirname(path))):
            raise file_io.InputError(
                f"--checkpoint={path} is not in --output_dir={self.output_dir}, where --do_train "
                "trains: use it in a run without --do_train, or start from it (--init_checkpoint)"
            )

    def _check_frozen(self) -> None:
        """Rejects flags that contradict --freeze_encoder."""
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

    def _check_cache(self) -> None:
        """Rejects flags that contradict --cache_encoder_outputs."""
        checkpoint = self.loop.checkpoint
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

    determined: ClassVar[tuple[str, ...]] = (
        "train_step", "warmup_step", "save_checkpoints_steps",
    )  # fmt: skip

    do_eval: bool = options.flag(
        False, "Evaluate: each checkpoint as it is saved, or all existing ones."
    )
    eval_batch_size: int = options.count(8, "Examples per evaluation step, over all devices.")
    train_step: int = options.count(
        1000,
        "Total number of steps.",
        shown_default="1000; for your own data 3 epochs, but at least 200 steps",
    )
    warmup_step: int = options.flag(
        0,
        "Steps over which the learning rate rises from 0.",
        shown_default="0; for your own data 10% of the steps",
    )
    save_checkpoints_steps: int = options.count(
        1000,
        "Steps between checkpoints.",
        shown_default="1000; for your own data with --do_eval each epoch, but at most 20 times",
    )
    num_train_epochs: float | None = options.flag(
        None,
        "Times that training goes through its data, instead of --train_step; by default 3 for your "
        "own data, and more if this would be fewer than 200 steps.",
        check=options.above_zero,
    )
    warmup_proportion: float | None = options.flag(
        None,
        "Fraction of the steps in which the learning rate rises from 0, instead of --warmup_step; "
        "by default 0.1 for your own data.",
        check=options.unit_interval,
    )

    @property
    def evaluates(self) -> bool:
        return self.do_eval

    @property
    def eval_batch(self) -> int:
        return self.eval_batch_size

    def check(self) -> None:
        self.loop.check_waiting(self.do_train, self.do_eval)
        for one, other in (
            ("num_train_epochs", "train_step"),
            ("warmup_proportion", "warmup_step"),
        ):
            if {one, other} <= self.given:
                raise file_io.InputError(f"give --{one} or --{other}, not both")
        super().check()

    def with_steps(self, count: Callable[[], int], is_own_data: bool) -> Self:
        """Returns the settings with the steps that follow from epochs and fractions of steps.

        Your own data has other defaults than the tasks of the reference: 3 epochs but at least 200
        steps, 10% of warm-up (On the Stability of Fine-tuning BERT, Mosbach et al., 2021), and an
        evaluation for each epoch, but not more than 20. `count` returns the number of training
        examples; it is called only if needed.
        """
        is_bound = {"train_step", "num_train_epochs"} & self.given
        if not (self.do_train and ("num_train_epochs" in self.given or is_own_data)):
            return self._with_warmup(self.train_step, is_own_data)
        examples = subsets.count_chosen(count(), self.fractions.train_fraction)
        epoch = examples / self.train_batch_size
        steps = self.train_step
        if self.num_train_epochs is not None:
            steps = int(epoch * self.num_train_epochs)
        elif not is_bound:
            steps = max(int(epoch * _OWN_EPOCHS), _OWN_STEPS)
        if steps < 1:
            raise file_io.InputError(
                f"{examples} training examples, --train_batch_size={self.train_batch_size} and "
                f"--num_train_epochs={self.num_train_epochs} give no training step"
            )
        lengthened = self._with_warmup(steps, is_own_data)
        if is_own_data and "save_checkpoints_steps" not in self.given and self.do_eval:
            every = max(math.ceil(epoch), math.ceil(steps / _MAX_EVALUATIONS))
            lengthened = dataclasses.replace(lengthened, save_checkpoints_steps=every)
        logging.info(
            "Training: %d steps of %d are %.3g epochs of %d examples, with %d steps of warm-up",
            steps,
            self.train_batch_size,
            steps / epoch if epoch else 0,
            examples,
            lengthened.warmup_step,
        )
        return lengthened

    def _with_warmup(self, steps: int, is_own_data: bool) -> Self:
        """Returns the settings with a number of steps, and the warm-up as a fraction of it."""
        fraction = self.warmup_proportion
        if fraction is None and is_own_data and "warmup_step" not in self.given:
            fraction = _OWN_WARMUP
        warmup = self.warmup_step if fraction is None else int(steps * fraction)
        return dataclasses.replace(self, train_step=steps, warmup_step=warmup)


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
        0.1, "Dropout of what the head reads of a text.", check=options.fraction
    )
    class_weights: str | None = options.flag(
        None,
        "Weights of the labels in the loss of training: balanced (each label counts the same, "
        "however many examples it has; of several labels per text, having it as much as not) or a "
        "JSON file {label: weight}; evaluation has none.",
        path=path_flags.INPUT,
    )
    keep_checkpoint_max: int = keep_flag()

    @property
    def output_dropout_prob(self) -> float:
        return self.classifier_dropout_prob

    @property
    def max_kept(self) -> int:
        return self.keep_checkpoint_max

    def check(self) -> None:
        self.check_work("do_train", "do_eval", "do_predict", "export_dir")
        if self.export_text and not self.export_dir:
            raise file_io.InputError("--export_text needs --export_dir")
        if self.class_weights and not self.do_train:
            raise file_io.InputError("--class_weights needs --do_train: only training has weights")
        super().check()


def has_checkpoints(folder: str) -> bool:
    """Returns whether a folder has a checkpoint of a run."""
    from albert.model import checkpoints

    return bool(checkpoints.numbered(folder) or checkpoints.find_best(folder))


_Settings = TypeVar("_Settings", bound=Settings)


def read(kind: type[_Settings], values: flags.FlagValues) -> _Settings:
    """Returns the settings of parsed flags; those of a trained model are read from its folder.

    A run that does not train sees the inputs that its model was trained on: lengths and columns
    whose flags are omitted become those of the folder, also in `values`.
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
