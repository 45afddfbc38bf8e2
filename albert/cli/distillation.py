"""Settings of distillation: which teacher, what is learned from it, where the student starts."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator

from albert.cli import options, path_flags, training
from albert.io import file_io
from albert.model import configuration, sources, student_weights, weight_names
from albert.training import contracts

WITHOUT_WEIGHTS = "a run without --init_from_teacher"


@dataclasses.dataclass(frozen=True)
class Distillation:
    """The changes that --teacher makes to a run; without it, there are none."""

    with_teacher: Callable[[contracts.Task], contracts.Task] = lambda task: task
    checkpoint: str | None = None  # what the student starts from with --init_from_teacher
    view: weight_names.View | None = None  # reads the checkpoint as one of the student


@dataclasses.dataclass(frozen=True, kw_only=True)
class Teacher(options.Group):
    """The teacher of a student, and what the student learns from it."""

    section = options.TRAINING

    teacher: str | None = options.flag(
        None,
        "Train a student of this model: folder of a training run; in pre-training, and where only "
        "hidden states are learned, any checkpoint with its configuration next to it. The teacher "
        "is neither trained nor saved.",
        path=path_flags.FOLDER,
    )
    distill_weights: str = options.flag(
        "5,2,1",
        "Weights of the teacher's probabilities, of the student's own losses, and of the cosine "
        "between the last hidden states of teacher and student; a fourth, of the relative squared "
        "error of the hidden states after each layer; a fifth, of the cosine between the mean "
        "vectors of texts.",
    )
    distill_temperature: float = options.flag(
        2.0,
        "Temperature: the logits of teacher and student are divided by it before they are "
        "compared.",
    )
    init_from_teacher: bool = options.flag(
        False,
        "Start from the teacher's weights: every other layer if the student has half as many; "
        "where only the student's layers share parameters, the mean of the teacher's; smaller "
        "embeddings from the directions in which the teacher's vary the most.",
    )

    @property
    def weights(self) -> tuple[float, ...]:
        """Returns the three to five numbers of --distill_weights, in its order."""
        try:
            return tuple(float(part) for part in self.distill_weights.split(","))
        except ValueError:
            raise file_io.InputError(
                f"--distill_weights={self.distill_weights}: three to five numbers with commas "
                "between them were expected, such as 5,2,1"
            ) from None

    def check(self, settings: training.Settings) -> None:
        """Rejects flags that contradict the settings of a command."""
        if not self.teacher:
            flags = ("distill_weights", "distill_temperature", "init_from_teacher")
            self.refuse_given("--teacher", *(name for name in flags if name in self.given))
            return
        if not settings.do_train:
            raise file_io.InputError("--teacher: only for --do_train; a trained student needs none")
        if not settings.model.albert_config_file:
            raise file_io.InputError(
                "--teacher needs the sizes of the student: --albert_config_file; its own are in "
                "the teacher's folder"
            )
        if settings.compute.estimate_memory:
            raise file_io.InputError("--estimate_memory does not count the --teacher; omit it")
        if self.init_from_teacher:
            names = ("init_checkpoint", "albert_hub_module_handle")
            settings.model.refuse_given(WITHOUT_WEIGHTS, *names)

    @contextlib.contextmanager
    def errors_named(self) -> Iterator[None]:
        """Adds the flag --teacher to the messages of errors inside the context."""
        try:
            yield
        except file_io.InputError as error:
            raise file_io.InputError(f"--teacher={self.teacher}: {error}") from error

    def distillation(
        self,
        teacher: sources.Source | None,
        source: sources.Source,
        student: configuration.AlbertConfig,
        term: str,
        logits: str,
    ) -> Distillation:
        """Returns the `Distillation` of the flags.

        Args:
          source: the student's model; its vocabulary must be the teacher's.
          student: sizes of the student.
          term: loss term of the student whose weights the compared examples have.
          logits: name of the output [rows, V] of both models to compare.
        """
        if teacher is None:
            return Distillation()
        from albert.model import encoder
        from albert.training import distillation

        assert teacher.checkpoint is not None  # a teacher has weights
        distillation.check_vocabulary(teacher, source)
        config = encoder.AlbertConfig.from_json_file(teacher.config_file)
        terms = distillation.DistillationConfig(
            config, teacher.checkpoint, term, logits, self.weights, self.distill_temperature
        )
        terms.check_student(student)
        with_teacher = functools.partial(distillation.with_teacher, settings=terms)
        if not self.init_from_teacher:
            return Distillation(with_teacher)
        view = student_weights.view(config, student)
        return Distillation(with_teacher, teacher.checkpoint, view)
