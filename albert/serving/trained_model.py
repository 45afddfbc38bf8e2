"""Loads a fine-tuned model from the folder of its training and computes with TensorFlow."""

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


def from_training_folder(
    folder: model_folder.ModelFolder, precision: str = "float32"
) -> batching.Infer:
    """Returns the function of a training's folder; see `runtimes.load`.

    `precision` is that of products and activations: "float32" or "bfloat16".
    """
    kind = kinds.KINDS[folder.kind]
    model = restored_model(folder, layers.Compute(precision, kind.skip_padding))

    def compute(features: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        outputs = model(features, training=False)
        return {name: outputs[name] for name in kind.outputs}

    ready = prepared_weights.CompiledModel(model, compute, kind.inputs)
    return lambda features: ready({name: features[name] for name in kind.inputs})


def set_threads(threads: int) -> None:
    """Sets the number of threads of TensorFlow in this process, before its start."""
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
