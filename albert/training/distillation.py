"""Trains a student model on the probabilities and hidden states of a teacher (distillation).

Sources: DistilBERT, Sanh et al., 2019, section 3; Distilling the Knowledge in a Neural Network,
Hinton et al., 2015, section 2, for the temperature.

Letters in shapes: see the docstring of the package.
"""

import contextlib
import dataclasses
import os
import re
from collections.abc import Callable, Sequence
from typing import cast

import tensorflow as tf
from absl import logging

from albert.data.input_options import Tensors
from albert.io import file_io
from albert.model import checkpoints, configuration, heads, layers, sources
from albert.training.contracts import Model, Task

_LAYER = re.compile(r"(.*/transformer/group_)(\d+)(/.*)")
_LAYER_SCALE = re.compile(r"(.*/transformer/layer_)(\d+)(/.*)")
_ATTENTION_PARTS = ("/attention_1/", "/LayerNorm/")
# Sizes in which a student may differ from the teacher whose weights it takes.
_DEPTH = ("num_hidden_layers", "num_hidden_groups", "share", "group_order")
_RATES = ("hidden_dropout_prob", "attention_probs_dropout_prob", *configuration.INITIAL_KEYS)


@dataclasses.dataclass(frozen=True)
class DistillationConfig:
    """The settings of distillation.

    Attributes:
      config: `configuration.AlbertConfig` of the teacher.
      checkpoint: the teacher's weights, any path that `checkpoints.resolve` accepts.
      term: loss term of the student that has the weights of the compared examples (or masked
        positions).
      logits: output [rows, V] of both models to compare.
      weights: weights of the loss against the teacher's probabilities, of the student's own losses,
        and of the cosine loss between both models' last hidden states; terms with weight 0 are
        not computed.
      temperature: divisor of the logits.
    """

    config: configuration.AlbertConfig
    checkpoint: str
    term: str
    logits: str
    weights: tuple[float, ...] = (5.0, 2.0, 1.0)
    temperature: float = 2.0

    def __post_init__(self) -> None:
        wrong = len(self.weights) != 3 or not all(0 <= w < float("inf") for w in self.weights)
        if wrong or not any(self.weights[::2]):
            raise file_io.InputError(
                "distill_weights must be three finite numbers of at least 0: for the teacher's "
                "probabilities, the student's own losses and the hidden states; the first or the "
                f"third must be above 0. Got {','.join(map(str, self.weights))}"
            )
        if not 0 < self.temperature < float("inf"):
            raise file_io.InputError(
                f"distill_temperature must be above 0 and finite; got {self.temperature}"
            )

    def check_student(self, config: configuration.AlbertConfig) -> None:
        """Checks that a student can be compared with the teacher.

        Args:
          config: `configuration.AlbertConfig` of the student.
        """
        names = ["vocab_size"] + ["hidden_size"] * bool(self.weights[2])
        _check_equal(self.config, config, names, "a student of this teacher", "distill_weights")
        if config.max_position_embeddings > self.config.max_position_embeddings:
            raise file_io.InputError(
                f"the student's max_position_embeddings={config.max_position_embeddings} must be "
                f"at most the teacher's, {self.config.max_position_embeddings}"
            )


def _check_equal(
    teacher: configuration.AlbertConfig,
    student: configuration.AlbertConfig,
    names: Sequence[str],
    purpose: str,
    hint: str,
) -> None:
    differing = [
        f"{name} {getattr(student, name)} (teacher: {getattr(teacher, name)})"
        for name in names
        if getattr(student, name) != getattr(teacher, name)
    ]
    if differing:
        note = " (or set the weight of the hidden states to 0)" if "hidden_size" in names else ""
        raise file_io.InputError(
            f"{purpose} must have the same sizes, but has {', '.join(differing)}{note}; see {hint}"
        )


def check_vocabulary(checkpoint: str, source: sources.Source) -> None:
    """Checks that a student has the same vocabulary as its teacher.

    Args:
      checkpoint: the teacher's prefix; its vocabulary is in the same folder.
      source: `sources.Source` of the student.
    """
    ours = source.vocabulary
    theirs = sources.vocabularies_in(os.path.dirname(checkpoint) or ".")
    if not (ours and theirs):
        logging.warning(
            "The vocabulary of the %s is unknown: only the numbers of entries are compared",
            "student" if theirs else "teacher",
        )
    elif file_io.sha256(ours) not in map(file_io.sha256, theirs):
        raise file_io.InputError(
            f"`teacher`: its vocabulary {' or '.join(theirs)} differs from the student's, {ours}; "
            "both models must use the same ids"
        )


def name_in_teacher(
    teacher: configuration.AlbertConfig, student: configuration.AlbertConfig
) -> Callable[[str], str]:
    """Makes the mapping of a student's variables to the teacher's, for `checkpoints.restore`.

    A student with half the layers takes every second layer. If the layers share parameters, it
    takes the shared parameters and applies them fewer times.

    Returns:
      ``name -> name``: the teacher's variable for a variable of the student.
    """
    fields = [field.name for field in dataclasses.fields(student)]
    names = [name for name in fields if name not in (*_DEPTH, *_RATES)]
    _check_equal(
        teacher, student, names, "a student with its teacher's weights", "init_from_teacher"
    )
    if student.num_hidden_layers > teacher.num_hidden_layers:
        raise file_io.InputError(
            f"the student's num_hidden_layers={student.num_hidden_layers} must be at most the "
            f"teacher's, {teacher.num_hidden_layers}, as it takes the teacher's weights"
        )
    first_layer: dict[tuple[int, int], int] = {}  # (part, group of the student) -> its first layer
    for layer in reversed(range(student.num_hidden_layers)):
        for part, group in enumerate(student.groups_of(layer)):
            first_layer[part, group] = layer

    def source_of(layer: int) -> int:
        return layer * teacher.num_hidden_layers // student.num_hidden_layers

    def rename(name: str) -> str:
        if match := _LAYER_SCALE.fullmatch(name):
            start, layer, end = match.groups()
            return f"{start}{source_of(int(layer))}{end}"
        match = _LAYER.fullmatch(name)
        if not match:
            return name
        start, group, end = match.groups()
        part = 0 if any(mark in end for mark in _ATTENTION_PARTS) else 1
        source = source_of(first_layer[part, int(group)])
        return f"{start}{teacher.groups_of(source)[part]}{end}"

    return rename


class DistilledModel(tf.Module):
    """A student with its teacher, which the engine trains like a model of `heads`.

    It calls the teacher, in inference mode, only during training. It does not own the teacher's
    variables: they are neither trained nor saved.

    Args:
      teacher: a model with its weights.
      settings: the terms of the loss.
    """

    def __init__(
        self, student: heads.Model, teacher: heads.Model, settings: DistillationConfig
    ) -> None:
        super().__init__()
        self.config = student.config
        self._student = student
        # As a value of a function the teacher is not a submodule.
        self._get_teacher = lambda: teacher
        self._settings = settings

    @property
    def student(self) -> heads.Model:
        """The model that is trained."""
        return self._student

    @property
    def teacher(self) -> heads.Model:
        """The model that the student learns from."""
        return self._get_teacher()

    @property
    def trained_variables(self) -> list[tf.Variable]:
        """The student's trained variables, see `heads.Model`."""
        return self._student.trained_variables

    @property
    def used_variables(self) -> list[tf.Variable]:
        """The student's used variables, see `heads.Model`."""
        return self._student.used_variables

    def prepare_weights(self) -> list:
        """Prepares the student's weights, see `heads.Model`."""
        return self._student.prepare_weights()

    def use_weights(self, weights: list) -> contextlib.AbstractContextManager:
        """Uses prepared weights of the student, see `heads.Model`."""
        return self._student.use_weights(weights)

    def __call__(
        self, features: Tensors, training: bool = False, seed: tf.Tensor | None = None
    ) -> dict[str, tf.Tensor]:
        """Returns the student's outputs; in training also the teacher's, as ``teacher_…``."""
        outputs = self._student(features, training, seed)
        if training:
            targets = self.teacher(features, training=False)
            names = (self._settings.logits, "sequence_output")
            outputs |= {f"teacher_{n}": tf.stop_gradient(targets[n]) for n in names if n in targets}
        return outputs

    def loss_weights(self, features: Tensors) -> dict[str, tf.Tensor]:
        """Returns the weights of `heads.Model` with distillation_loss and hidden_cosine_loss."""
        weights, settings = self._student.loss_weights(features), self._settings
        extra: dict[str, tf.Tensor] = {}
        if settings.weights[0]:
            extra["distillation_loss"] = weights[settings.term]
        if settings.weights[2]:
            extra["hidden_cosine_loss"] = tf.reduce_sum(_real_tokens(features))
        return weights | extra

    def losses(
        self, outputs: Tensors, features: Tensors, weights: Tensors | None = None
    ) -> dict[str, tf.Tensor]:
        """Returns the terms of `heads.Model`, not yet multiplied by the weights of the settings."""
        weights = self.loss_weights(features) if weights is None else weights
        settings, examples = self._settings, self._student.example_weights(features)
        terms = self._student.losses(outputs, features, weights)
        if settings.weights[0]:
            logits = (outputs[f"teacher_{settings.logits}"], outputs[settings.logits])
            divergence = settings.temperature**2 * soft_divergence(*logits, settings.temperature)
            total = tf.reduce_sum(divergence * examples[settings.term])
            terms["distillation_loss"] = tf.math.divide_no_nan(total, weights["distillation_loss"])
        if settings.weights[2]:
            hidden = (outputs["teacher_sequence_output"], outputs["sequence_output"])
            total = tf.reduce_sum((1.0 - cosine(*hidden)) * _real_tokens(features))
            terms["hidden_cosine_loss"] = tf.math.divide_no_nan(
                total, weights["hidden_cosine_loss"]
            )
        return terms

    def total(self, losses: Tensors) -> tf.Tensor:
        """Returns the loss to minimize: the sum of `losses` with the weights of the settings."""
        teacher, student, hidden = self._settings.weights
        factors = {"distillation_loss": teacher, "hidden_cosine_loss": hidden}
        return tf.add_n([factors.get(name, student) * value for name, value in losses.items()])


def _real_tokens(features: Tensors) -> tf.Tensor:
    """Returns [B, S]: 1 for the tokens of real examples, else 0."""
    ids = features["input_ids"]
    mask = tf.cast(features.get("input_mask", tf.ones_like(ids)), tf.float32)
    return mask * heads.real_examples(features)[:, tf.newaxis]


def soft_divergence(
    teacher_logits: tf.Tensor, student_logits: tf.Tensor, temperature: float
) -> tf.Tensor:
    """Returns [rows] Kullback-Leibler divergences of the student's distribution from the teacher's.

    Args:
      teacher_logits, student_logits: [rows, V].
      temperature: divisor of both logits.
    """
    teacher = tf.nn.log_softmax(tf.cast(teacher_logits, tf.float32) / temperature)
    student = tf.nn.log_softmax(tf.cast(student_logits, tf.float32) / temperature)
    return tf.reduce_sum(tf.exp(teacher) * (teacher - student), axis=-1)


def cosine(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """Returns [B, S] cosines of the angles between vectors [B, S, H]; 0 if a vector is 0."""
    a, b = (tf.math.l2_normalize(tf.cast(x, tf.float32), axis=-1) for x in (a, b))
    return tf.reduce_sum(a * b, axis=-1)


def with_teacher(task: Task, settings: DistillationConfig) -> Task:
    """Adds a teacher to a task.

    Args:
      task: a task whose model has the term and logits of the settings.
      settings: the teacher, and the terms of the loss.

    Returns:
      The task, trained with the teacher. Building its model loads the teacher and raises
      file_io.InputError if the teacher's checkpoint lacks a part, such as the head.
    """

    def build_model(
        config: configuration.AlbertConfig, compute: layers.Compute, seed: int
    ) -> Model:
        settings.check_student(config)
        if settings.weights[2]:
            compute = dataclasses.replace(compute, whole_sequence=True)
        student = cast(heads.Model, task.build_model(config, compute, seed))
        inference = dataclasses.replace(compute, recompute=False)
        teacher = cast(heads.Model, task.build_model(settings.config, inference, seed))
        checkpoints.restore(teacher, settings.checkpoint, allow_new_heads=False)
        return DistilledModel(student, teacher, settings)

    return dataclasses.replace(task, build_model=build_model)
