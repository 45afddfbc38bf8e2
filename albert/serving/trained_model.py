"""Loads a fine-tuned model from the folder of its training and computes with TensorFlow."""

from collections.abc import Mapping

import tensorflow as tf

from albert.model import (
    batching,
    checkpoints,
    head_config,
    heads,
    layers,
    model_folder,
    prepared_weights,
)
from albert.tasks import kinds
from albert.tasks.squad import answers as squad_answers
from albert.tasks.squad import task as squad_task


def make_model(
    folder: model_folder.ModelFolder, compute: layers.Compute = layers.Compute()
) -> heads.Model:
    """Builds the model of `heads` that a model folder describes, with random weights."""
    return kinds.KINDS[folder.kind].build(folder, compute, folder.settings_as(head_config.Head))


def restored_model(
    folder: model_folder.ModelFolder, compute: layers.Compute = layers.Compute()
) -> heads.Model:
    """Builds the model as `make_model` does, with the weights of the folder's checkpoint."""
    assert folder.source.checkpoint is not None
    model = make_model(folder, compute)
    checkpoints.restore(model, folder.source.checkpoint, allow_new_heads=False)
    return model


def compute_outputs(
    model: heads.Model, kind: str, features: Mapping[str, tf.Tensor]
) -> dict[str, tf.Tensor]:
    """Computes the outputs of a kind of model, see `kinds.Kind`, from tensors [B, S] by name.

    Logits of SQuAD 1.1 are `squad_answers.NO_LOGIT` at padding.
    """
    outputs = model(features, training=False)
    outputs = {name: outputs[name] for name in kinds.KINDS[kind].outputs}
    if kind != squad_task.V1:
        return outputs
    is_real, impossible = features["input_mask"] > 0, squad_answers.NO_LOGIT
    return {name: tf.where(is_real, x, impossible) for name, x in outputs.items()}


def from_training_folder(
    folder: model_folder.ModelFolder, precision: str = "float32"
) -> batching.Infer:
    """Returns the function of a training's folder; see `runtimes.load`.

    `precision` is that of products and activations: "float32" or "bfloat16".
    """
    kind = kinds.KINDS[folder.kind]
    model = restored_model(folder, layers.Compute(precision, kind.skip_padding))

    def compute(features: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return compute_outputs(model, folder.kind, features)

    ready = prepared_weights.CompiledModel(model, compute, kind.inputs)
    return lambda features: ready({name: features[name] for name in kind.inputs})


def set_threads(threads: int) -> None:
    """Sets the number of threads of TensorFlow in this process, before its start."""
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
