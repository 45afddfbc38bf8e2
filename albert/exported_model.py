"""Fine-tuned models as the functions that serving folders hold in graphs of TensorFlow.

Letters in shapes: B batch, S sequence.
"""

import tensorflow as tf

from albert import (
    classifier_utils,
    custom_data,
    inference,
    layers,
    serving_folder,
    squad_task,
    squad_utils,
    token_classification,
)


class ExportedModel(tf.Module):
    """A function of the inputs of a serving folder, with the weights of a training's folder.

    Args:
      trained: `model_folder.ModelFolder` with a checkpoint.
      compute: `layers.Compute`.

    Attributes:
      kind: what the model does.
      model: model of `heads`.
      inputs, outputs: their names.
      labels: label names by id; empty for models that give none.
      max_seq_length: S of the training.

    Raises:
      file_io.InputError: the checkpoint is not that of such a model.
    """

    def __init__(self, trained, compute=layers.Compute()):
        super().__init__()
        self.kind = trained.kind
        self.inputs = serving_folder.INPUTS[self.kind]
        self.outputs = serving_folder.OUTPUTS[self.kind]
        has_labels = self.kind in (classifier_utils.KIND, token_classification.KIND)
        self.labels = custom_data.labels_of(trained) if has_labels else ()
        self.max_seq_length = trained.length()
        self.model = inference.restored_model(trained, compute)

    def __call__(self, *inputs):
        """int32 tensors [B, S] in the order of `inputs` -> {name: tensor} of `outputs`."""
        features = dict(zip(self.inputs, inputs, strict=True))
        found = self.model(features, training=False)
        if self.kind == squad_task.V1:
            is_real = features["input_mask"] > 0
            impossible = squad_utils.NO_LOGIT
            found = {name: tf.where(is_real, found[name], impossible) for name in self.outputs}
        return {name: found[name] for name in self.outputs}

    def function(self, batch_size=None, seq_length=None):
        """`tf.function` of it with named inputs; None takes any size."""
        shape = [batch_size, seq_length]
        specs = [tf.TensorSpec(shape, tf.int32, name=name) for name in self.inputs]
        return tf.function(self.__call__, input_signature=specs, autograph=False)
