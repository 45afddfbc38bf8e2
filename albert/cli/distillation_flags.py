"""Flags of distillation: which teacher, what is learnt from it, and where the student starts."""

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

from albert.cli import common_flags
from albert.io import file_io


@dataclasses.dataclass(frozen=True)
class Lessons:
    """What --teacher means for a run; without it, nothing.

    Attributes:
      task: ``(contracts.Task) -> contracts.Task``, trained beside the teacher.
      checkpoint: what the student starts from with --init_from_teacher, else None.
      rename: see `checkpoints.restore`; None without --init_from_teacher.
    """

    task: Callable[[Any], Any] = lambda task: task
    checkpoint: str | None = None
    rename: Callable[[str], str] | None = None


def define_flags(flag_values):
    """Flags of the scripts that distil."""
    text, _, number, switch = common_flags.definers(flag_values)
    text(
        "teacher",
        None,
        "Train a student of this model beside it: folder of a training run, or in pre-training "
        "any checkpoint with its configuration beside it. It is neither trained nor saved.",
    )
    text(
        "distill_weights",
        "5,2,1",
        "Weights of the teacher's probabilities, of the student's own losses, and of the cosine "
        "between the last hidden states of both.",
    )
    number("distill_temperature", 2.0, "Both models' logits are divided by it to be compared.")
    switch(
        "init_from_teacher",
        False,
        "Start from the teacher's weights: of its layers every other one if the student has half "
        "as many; where they share their parameters, the same ones.",
    )


def check(values):
    """Refuses contradictions before any work.

    Raises:
      file_io.InputError: names the flags.
    """
    if not values.teacher:
        given = ("distill_weights", "distill_temperature", "init_from_teacher")
        given = [name for name in given if values[name].present]
        common_flags.refuse_given(values, "--teacher", *given)
        return
    if not values.do_train:
        raise file_io.InputError("--teacher: only for --do_train; a trained student needs none")
    if not values.albert_config_file:
        raise file_io.InputError(
            "--teacher needs the sizes of the student: --albert_config_file; its own are in the "
            "teacher's folder"
        )
    if values.estimate_memory:
        raise file_io.InputError("--estimate_memory does not count the --teacher; leave it out")
    if values.init_from_teacher:
        others = ("init_checkpoint", "albert_hub_module_handle", "from_scratch", "init_from_group0")
        others = [name for name in others if name in values]
        common_flags.refuse_given(values, "a run without --init_from_teacher", *others)


def weights(text):
    """The three numbers of --distill_weights."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise file_io.InputError(
            f"--distill_weights={text}: three numbers with commas between them were expected, "
            "such as 5,2,1"
        ) from None


def classifier_lessons(values, teacher, source, student):
    """`_lessons` over the classes."""
    return _lessons(values, teacher, source, student, "classification_loss", "logits")


def pretraining_lessons(values, teacher, source, student):
    """`_lessons` over the vocabulary, at the masked positions."""
    return _lessons(values, teacher, source, student, "masked_lm_loss", "masked_lm_logits")


def _lessons(values, teacher, source, student, *taught):
    """`Lessons` of the flags.

    Args:
      values: flag values.
      teacher: `sources.Source`, or None without one.
      source: `sources.Source` of the student; its vocabulary must be the teacher's.
      student: `encoder.AlbertConfig`.
      *taught: term and logits of `distillation.DistillationConfig`.

    Raises:
      file_io.InputError: teacher and student do not fit; names what differs.
    """
    if teacher is None:
        return Lessons()
    from albert.model import encoder
    from albert.training import distillation

    distillation.check_vocabulary(teacher.checkpoint, source)
    config = encoder.AlbertConfig.from_json_file(teacher.config_file)
    lesson = distillation.DistillationConfig(
        config,
        teacher.checkpoint,
        *taught,
        weights(values.distill_weights),
        values.distill_temperature,
    )
    lesson.check_student(student)

    def distilled(task):
        return distillation.with_teacher(task, lesson)

    if not values.init_from_teacher:
        return Lessons(distilled)
    rename = distillation.name_in_teacher(config, student)
    return Lessons(distilled, teacher.checkpoint, rename)


@contextlib.contextmanager
def _naming_teacher(values):
    """Errors inside name the flag."""
    try:
        yield
    except file_io.InputError as error:
        raise file_io.InputError(f"--teacher={values.teacher}: {error}") from error


def classifier_teacher(values, row):
    """`sources.Source` of the teacher of `run_classifier`; None without one.

    Args:
      values: flag values.
      row: `glue.GlueTask` or `custom.CustomTask`.

    Raises:
      file_io.InputError: no such folder, or one of another task; names what differs.
    """
    if not values.teacher:
        return None
    from albert.model import model_folder
    from albert.tasks import custom, glue

    if row.is_regression:
        raise file_io.InputError(
            f"--teacher: task {row.name} is a regression; only probabilities of classes are learnt"
        )
    with _naming_teacher(values):
        folder = model_folder.read(values.teacher, glue.KIND)
        labels = custom.labels_of(folder)
    if labels != tuple(row.labels):
        raise file_io.InputError(
            f"--teacher={values.teacher} has the labels {', '.join(labels) or 'of a regression'}; "
            f"those of task {row.name} are {', '.join(row.labels)}"
        )
    return folder.source


def pretraining_teacher(values):
    """`sources.Source` of the teacher of `run_pretraining`; None without one.

    Raises:
      file_io.InputError: no checkpoint there, or no configuration beside it.
    """
    if not values.teacher:
        return None
    from albert.model import sources

    with _naming_teacher(values):
        return sources.locate(checkpoint=values.teacher, needs_vocabulary=False)
