"""Trains a student model on the probabilities and hidden states of a teacher (distillation).

Sources: DistilBERT, Sanh et al., 2019, section 3; Distilling the Knowledge in a Neural Network,
Hinton et al., 2015, section 2, for the temperature.

Letters in shapes: see the docstring of the package. A `seed` of dropout is integers [2]; None: a
random one.
"""

import contextlib
import dataclasses
import os
from typing import cast

import tensorflow as tf
from absl import logging

from albert.data.input_options import Tensors
from albert.io import file_io
from albert.model import (
    checkpoints,
    configuration,
    heads,
    layers,
    model_folder,
    sources,
    student_weights,
)
from albert.training.contracts import Model, Task

# Loss terms that come from the teacher, in the order of their weights.
_TERMS = ("distillation_loss", "hidden_cosine_loss", "hidden_error_loss", "mean_cosine_loss")


@dataclasses.dataclass(frozen=True)
class DistillationConfig:
    """The settings of distillation.

    Attributes:
      config: that of the teacher.
      checkpoint: the teacher's weights, any path that `checkpoints.resolve` accepts.
      term: name of the student's loss term whose weights are those of the compared examples (or
        masked positions).
      logits: name of the output [rows, V] of both models to compare.
      weights: three to five weights, the missing ones 0: of the loss against the teacher's
        probabilities; of the student's own losses; of the cosine loss between both models' last
        hidden states; of the relative squared error of the hidden states after each layer; of the
        cosine loss between the means of the last hidden states. Terms with weight 0 are not
        computed.
    """

    config: configuration.AlbertConfig
    checkpoint: str
    term: str
    logits: str
    weights: tuple[float, ...] = (5.0, 2.0, 1.0)
    temperature: float = 2.0

    def __post_init__(self) -> None:
        valid = 3 <= len(self.weights) <= 5 and all(0 <= w < float("inf") for w in self.weights)
        if not (valid and any((self.weights[0], *self.weights[2:]))):
            raise file_io.InputError(
                "distill_weights must be three to five finite numbers of at least 0: for the "
                "teacher's probabilities, the student's own losses, the last hidden states, those "
                "after each layer, and their mean; one besides the second must be above 0. Got "
                f"{','.join(map(str, self.weights))}"
            )
        if not 0 < self.temperature < float("inf"):
            raise file_io.InputError(
                f"distill_temperature must be above 0 and finite; got {self.temperature}"
            )

    @property
    def factors(self) -> dict[str, float]:
        """{loss term that comes from the teacher: its weight}, without those of weight 0."""
        weights = (*self.weights[:1], *self.weights[2:])
        return {name: w for name, w in zip(_TERMS, weights, strict=False) if w}

    @property
    def reads_hidden_states(self) -> bool:
        """Whether hidden states of both models are compared."""
        return any(self.weights[2:])

    def teacher_layer(self, layer: int, layers: int) -> int:
        """Returns the teacher's layer for one of the student's `layers`, both numbered from 0."""
        return (layer + 1) * self.config.num_hidden_layers // layers - 1

    def check_student(self, config: configuration.AlbertConfig) -> None:
        """Checks that a student of these sizes can be compared with the teacher."""
        names = ["vocab_size"] + ["hidden_size"] * self.reads_hidden_states
        student_weights.check_equal(
            self.config, config, names, "a student of this teacher", "distill_weights"
        )
        depth, teacher_depth = config.num_hidden_layers, self.config.num_hidden_layers
        if "hidden_error_loss" in self.factors and depth > teacher_depth:
            raise file_io.InputError(
                f"the student's num_hidden_layers={depth} must be at most the teacher's, "
                f"{teacher_depth}, or the fourth of distill_weights 0"
            )
        if config.max_position_embeddings > self.config.max_position_embeddings:
            raise file_io.InputError(
                f"the student's max_position_embeddings={config.max_position_embeddings} must be "
                f"at most the teacher's, {self.config.max_position_embeddings}"
            )


def check_vocabulary(teacher: sources.Source, source: sources.Source) -> None:
    """Checks that a student reads texts as its teacher does, with the same vocabulary.

    Args:
      teacher: files of the teacher; its vocabulary is in the folder of its checkpoint.
      source: files of the student.
    """
    ours = source.vocabulary
    theirs = sources.vocabularies_in(os.path.dirname(teacher.checkpoint or "") or ".")
    if not (ours and theirs):
        logging.warning(
            "The vocabulary of the %s is unknown: only the numbers of entries are compared",
            "student" if theirs else "teacher",
        )
    elif not any(model_folder.are_same_vocabularies(ours, path) for path in theirs):
        raise file_io.InputError(
            f"`teacher`: its vocabulary {' or '.join(theirs)} differs from the student's, {ours}; "
            "both models must use the same ids"
        )
    elif differing := source.rules.differences(teacher.rules, bool(source.spm_model_file)):
        raise file_io.InputError(
            f"`teacher`: texts become pieces by other rules than the teacher's: {differing}; give "
            "the flags of texts that the teacher was trained with, or the vocabulary in its folder"
        )


class HeadlessTeacher(heads.Model):
    """An encoder that only teaches hidden states; the arguments are those of `heads.Model`."""

    @property
    def uses_pooler(self) -> bool:
        return False

    def __call__(
        self, features: Tensors, training: bool = False, seed: tf.Tensor | None = None
    ) -> dict[str, tf.Tensor]:
        """Returns {name: tensor}: sequence_output [B, S, H] and `heads.layer_outputs`."""
        encoded = self._encode(features, training, seed)
        layers = heads.layer_outputs(encoded, self.config.num_hidden_layers)
        return {"sequence_output": encoded.sequence_output, **layers}

    def example_weights(self, features: Tensors) -> dict[str, tf.Tensor]:
        """Returns {}: without a head no loss has weights, whatever the features."""
        return {}

    def example_losses(self, outputs: Tensors, features: Tensors) -> dict[str, tf.Tensor]:
        """Returns {}: without a head there are no losses of outputs and features."""
        return {}


class DistilledModel(tf.Module):
    """A student with its teacher, which the engine trains like a model of `heads`.

    It calls the teacher, in inference mode, only during training. It does not own the teacher's
    variables: they are neither trained nor saved.
    """

    def __init__(
        self, student: heads.Model, teacher: heads.Model, settings: DistillationConfig
    ) -> None:
        super().__init__()
        self.config = student.config
        self.student = student
        # As a value of a function the teacher is not a submodule.
        self._get_teacher = lambda: teacher
        self._settings = settings

    @property
    def teacher(self) -> heads.Model:
        """The model that the student learns from."""
        return self._get_teacher()

    @property
    def trained_variables(self) -> list[tf.Variable]:
        return self.student.trained_variables

    @property
    def used_variables(self) -> list[tf.Variable]:
        return self.student.used_variables

    def prepare_weights(self) -> list[tf.Tensor]:
        return self.student.prepare_weights()

    def use_weights(self, weights: list[tf.Tensor]) -> contextlib.AbstractContextManager:
        return self.student.use_weights(weights)

    def __call__(
        self, features: Tensors, training: bool = False, seed: tf.Tensor | None = None
    ) -> dict[str, tf.Tensor]:
        """Returns {name: tensor} of the student and in training, as ``teacher_…``, the teacher."""
        outputs = self.student(features, training, seed)
        if training:
            targets = self._targets(features)
            outputs |= {f"teacher_{n}": tf.stop_gradient(x) for n, x in targets.items()}
        return outputs

    def _targets(self, features: Tensors) -> dict[str, tf.Tensor]:
        """Returns {name: output} of the teacher for a batch of features, as the loss needs them."""
        settings, factors = self._settings, self._settings.factors
        targets = self.teacher(features, training=False)
        names = [settings.logits] * ("distillation_loss" in factors)
        if {"hidden_cosine_loss", "mean_cosine_loss"} & factors.keys():
            names.append("sequence_output")
        if "hidden_error_loss" in factors:
            names += [theirs for _, theirs in self._layer_pairs()]
        return {name: targets[name] for name in names}

    def _layer_pairs(self) -> list[tuple[str, str]]:
        """Returns the pairs of names of outputs to compare: a student's layer, the teacher's."""
        count, name = self.config.num_hidden_layers, "layer_{}_output".format
        teacher_layer = self._settings.teacher_layer
        return [(name(layer), name(teacher_layer(layer, count))) for layer in range(count)]

    def loss_weights(self, features: Tensors) -> dict[str, tf.Tensor]:
        """Returns {term: total weight in a batch of features}, also of the teacher's terms."""
        weights = self.student.loss_weights(features)
        tokens = tf.reduce_sum(_real_tokens(features))
        totals = {
            "distillation_loss": weights.get(self._settings.term),  # a regression has no such term
            "hidden_cosine_loss": tokens,
            "hidden_error_loss": tokens,
            "mean_cosine_loss": tf.reduce_sum(heads.real_examples(features)),
        }
        return weights | {name: totals[name] for name in self._settings.factors}

    def losses(
        self, outputs: Tensors, features: Tensors, weights: Tensors | None = None
    ) -> dict[str, tf.Tensor]:
        """Returns {name: scalar} of the terms, without the weights of the settings.

        Args:
          weights: {name: total weight}, by default `loss_weights` of the features.
        """
        weights = self.loss_weights(features) if weights is None else weights
        terms = self.student.losses(outputs, features, weights)
        for name in self._settings.factors:
            total = tf.reduce_sum(self._teaching_losses(name, outputs, features))
            terms[name] = tf.math.divide_no_nan(total, weights[name])
        return terms

    def _teaching_losses(self, term: str, outputs: Tensors, features: Tensors) -> tf.Tensor:
        """Returns weighted losses of a teacher's term, of [rows], tokens [B, S] or texts [B]."""
        settings, tokens = self._settings, _real_tokens(features)
        if term == "distillation_loss":
            logits = (outputs[f"teacher_{settings.logits}"], outputs[settings.logits])
            divergence = settings.temperature**2 * soft_divergence(*logits, settings.temperature)
            return divergence * self.student.example_weights(features)[settings.term]
        if term == "hidden_error_loss":
            errors = [
                relative_error(outputs[f"teacher_{theirs}"], outputs[ours])
                for ours, theirs in self._layer_pairs()
            ]
            return tf.add_n(errors) / len(errors) * tokens
        hidden = (outputs["teacher_sequence_output"], outputs["sequence_output"])
        if term == "hidden_cosine_loss":
            return (1.0 - cosine(*hidden)) * tokens
        means = [tf.reduce_sum(tf.cast(x, tf.float32) * tokens[..., None], 1) for x in hidden]
        return (1.0 - cosine(*means)) * heads.real_examples(features)

    def total(self, losses: Tensors) -> tf.Tensor:
        """Returns the scalar to minimize: the weighted sum of `losses`, {term: scalar}."""
        factors, own = self._settings.factors, self._settings.weights[1]
        return tf.add_n([factors.get(name, own) * value for name, value in losses.items()])


def _real_tokens(features: Tensors) -> tf.Tensor:
    """Returns [B, S] of a batch of features: 1 for the tokens of real examples, else 0."""
    ids = features["input_ids"]
    mask = tf.cast(features.get("input_mask", tf.ones_like(ids)), tf.float32)
    return mask * heads.real_examples(features)[:, tf.newaxis]


def soft_divergence(
    teacher_logits: tf.Tensor, student_logits: tf.Tensor, temperature: float
) -> tf.Tensor:
    """Returns [rows] Kullback-Leibler divergences of the student's distribution from the teacher's.

    Args:
      teacher_logits, student_logits: [rows, V].
    """
    teacher = tf.nn.log_softmax(tf.cast(teacher_logits, tf.float32) / temperature)
    student = tf.nn.log_softmax(tf.cast(student_logits, tf.float32) / temperature)
    return tf.reduce_sum(tf.exp(teacher) * (teacher - student), axis=-1)


def cosine(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """Returns [...] cosines of the angles between vectors [..., H]; 0 if a vector is 0."""
    a, b = (tf.math.l2_normalize(tf.cast(x, tf.float32), axis=-1) for x in (a, b))
    return tf.reduce_sum(a * b, axis=-1)


def relative_error(target: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """Returns [...] squared distances of vectors [..., H], divided by the targets' squared norms.

    The gradient of a target of 0 is 0.
    """
    target, x = tf.cast(target, tf.float32), tf.cast(x, tf.float32)
    error = tf.reduce_sum(tf.math.squared_difference(target, x), -1)
    return tf.math.divide_no_nan(error, tf.reduce_sum(tf.square(target), -1))


def with_teacher(task: Task, settings: DistillationConfig) -> Task:
    """Adds a teacher to a task.

    Args:
      task: a task whose model has the term and logits of the settings.

    Returns:
      The task, trained with the teacher. Building its model loads the teacher and raises
      file_io.InputError if the teacher's checkpoint lacks a part, such as the head where its
      probabilities are taught.
    """

    def build_model(
        config: configuration.AlbertConfig, compute: layers.Compute, seed: int
    ) -> Model:
        settings.check_student(config)
        if settings.reads_hidden_states:
            compute = dataclasses.replace(compute, whole_sequence=True)
        student = cast(heads.Model, task.build_model(config, compute, seed))
        inference = dataclasses.replace(compute, recompute=False)
        # Without probabilities to teach, it needs no head.
        build_teacher = task.build_model if settings.weights[0] else HeadlessTeacher
        teacher = cast(heads.Model, build_teacher(settings.config, inference, seed))
        checkpoints.restore(teacher, settings.checkpoint, allow_new_heads=False)
        return DistilledModel(student, teacher, settings)

    return dataclasses.replace(task, build_model=build_model)
