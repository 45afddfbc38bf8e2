"""Fine-tuned models as functions of arrays, from the folder of a training or a serving folder.

Letters in shapes: B batch, S sequence.
"""

import dataclasses
from collections.abc import Callable

from albert.io import file_io
from albert.model import (
    checkpoints,
    head_config,
    heads,
    layers,
    model_folder,
    prepared_weights,
)
from albert.serving import runtimes, serving_folder
from albert.tasks import custom, glue, race, token_classification
from albert.tasks.squad import answers as squad_answers
from albert.tasks.squad import task as squad_task


def _classifier(folder, compute, head):
    labels = custom.labels_of(folder)
    if not labels:
        return heads.RegressionModel(folder.config, compute, 0, head=head)
    return heads.ClassifierModel(folder.config, len(labels), compute, 0, head=head)


def _scorer_of_choices(folder, compute, head):
    # A choice is scored by itself: with a single output there may be any number of them.
    return heads.RegressionModel(folder.config, compute, 0, head=head)


def _token_classifier(folder, compute, head):
    labels = custom.labels_of(folder)
    return heads.TokenClassifierModel(folder.config, len(labels), compute, 0, head=head)


def _squad(folder, compute, head):
    made = squad_task.make_task(folder.kind, folder.settings_as(squad_task.Settings))
    return made.build_model(folder.config, compute, 0)


_MODELS = {
    glue.KIND: _classifier,
    race.KIND: _scorer_of_choices,
    token_classification.KIND: _token_classifier,
    squad_task.V1: _squad,
    squad_task.V2: _squad,
}
# Whose models compute the real tokens alone.
_SKIP_PADDING = (race.KIND, token_classification.KIND)


def make_model(folder, compute=layers.Compute()):
    """The model of `heads` that a `model_folder.ModelFolder` describes, with random weights.

    Raises:
      file_io.InputError: the settings are not what training writes.
    """
    return _MODELS[folder.kind](folder, compute, folder.settings_as(head_config.Head))


def restored_model(folder, compute=layers.Compute()):
    """`make_model` with the weights of the folder's checkpoint.

    Raises:
      file_io.InputError: the settings are not what training writes, or the weights do not fit.
    """
    model = make_model(folder, compute)
    checkpoints.restore(model, folder.source.checkpoint, allow_new_heads=False)
    return model


def of_training(folder, precision="float32"):
    """The function of a `model_folder.ModelFolder` with a checkpoint; see `FoundModel.load`."""
    skip_padding = folder.kind in _SKIP_PADDING
    model = restored_model(folder, layers.Compute(precision, skip_padding))
    inputs, outputs = serving_folder.INPUTS[folder.kind], serving_folder.OUTPUTS[folder.kind]

    def compute(features):
        found = model(features, training=False)
        return {name: found[name] for name in outputs}

    ready = prepared_weights.CompiledModel(model, compute, inputs)
    return lambda features: ready({name: features[name] for name in inputs})


@dataclasses.dataclass(frozen=True)
class FoundModel:
    """A fine-tuned model that can be loaded.

    Attributes:
      folder: `model_folder.ModelFolder` of its settings and vocabulary.
      serving: `serving_folder.ServingFolder`; None for the folder of a training.
      function: what `load` returns, where that is there already.
      precision: type of products and activations, "float32" or "bfloat16"; of the folder of a
        training, as serving folders have their own.
    """

    folder: model_folder.ModelFolder
    serving: serving_folder.ServingFolder | None = None
    function: Callable | None = None
    precision: str = "float32"

    def load(self, runtime="auto", threads=None):
        """The model as a function.

        Args:
          runtime, threads: see `runtimes.load`; of serving folders alone.

        Returns:
          ``(features) -> outputs``: both dicts of arrays by name, see `serving_folder.INPUTS` and
          `serving_folder.OUTPUTS`. Other features are passed over. In scores of SQuAD 1.1 the
          folder of a training may have any number at padding.

        Raises:
          file_io.InputError: the model does not fit its settings, or see `runtimes.load`.
        """
        if self.function:
            return self.function
        if self.serving:
            return runtimes.load(self.serving, runtime, threads)
        return of_training(self.folder, self.precision)

    def in_precision(self, precision):
        """The same, to be computed in "float32" or "bfloat16".

        Raises:
          file_io.InputError: it is a serving folder of another precision.
        """
        if self.serving and precision != self.serving.precision:
            raise file_io.InputError(
                f"precision={precision}: {self.serving.path} was exported in "
                f"{self.serving.precision} and computes in nothing else"
            )
        return dataclasses.replace(self, precision=precision)

    def null_odds_threshold(self):
        """Null odds from which on a question is not answered; None but for SQuAD 2.0."""
        if self.serving:
            return self.serving.null_odds_threshold
        if self.folder.kind != squad_task.V2:
            return None
        return squad_answers.read(self.folder.source.checkpoint)


def find(path, *kinds):
    """The `FoundModel` of a training's folder or a serving folder.

    Args:
      path: the folder; of a training's the best checkpoint is used, else the last. Or what this
        function returns, which is returned again.
      kinds: the kinds that the caller can use; none means any.

    Raises:
      file_io.InputError: no such folder, or one of another kind of model or damaged.
    """
    if isinstance(path, FoundModel):
        return path
    if serving_folder.is_one(path):
        found = serving_folder.read(path, *kinds)
        return FoundModel(found.model, found)
    return FoundModel(model_folder.read(path, *kinds))
