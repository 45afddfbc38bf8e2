"""Loads fine-tuned models as functions of arrays, from training folders or serving folders."""

import dataclasses

import numpy as np

from albert.io import file_io, requirements
from albert.model import batching, model_folder
from albert.serving import runtimes, serving_folder
from albert.tasks import kinds
from albert.tasks.squad import null_threshold
from albert.tasks.squad import task as squad_task
from albert.training import run_record


@dataclasses.dataclass(frozen=True)
class FoundModel:
    """A fine-tuned model that is not loaded yet."""

    folder: model_folder.ModelFolder
    serving: serving_folder.ServingFolder | None = None  # None for a training folder
    function: batching.Infer | None = None  # that `load` returns, if it exists already
    # Type of products and activations, "float32" or "bfloat16", for training folders; serving
    # folders have their own.
    precision: str = "float32"
    max_batch_tokens: int | None = None  # tokens to compute at once, see `in_parts`

    def load(self, runtime: str = "auto", threads: int | None = None) -> batching.Infer:
        """Loads the model as a function; `runtime` and `threads` are for serving folders.

        For the function see `runtimes.load`.

        Args:
          runtime: key of `runtimes.RUNTIMES`, or "auto" for the first that runs the format.
          threads: number of threads that compute; None: one per core.
        """
        return in_parts(self._load(runtime, threads), self.max_batch_tokens)

    def _load(self, runtime: str, threads: int | None) -> batching.Infer:
        if self.function:
            return self.function
        if self.serving:
            return runtimes.load(self.serving, runtime, threads)
        runtimes.check_tensorflow(runtime, self.folder.path)
        # It imports TensorFlow, which serving folders may not need.
        from albert.serving import trained_model

        return trained_model.from_training_folder(self.folder, self.precision)

    def in_precision(self, precision: str) -> "FoundModel":
        """Returns the same model, computed in "float32" or "bfloat16"."""
        if self.serving and precision != self.serving.precision:
            raise file_io.InputError(
                f"precision={precision}: {self.serving.path} was exported in "
                f"{self.serving.precision} and computes in nothing else"
            )
        return dataclasses.replace(self, precision=precision)

    def null_odds_threshold(self) -> float | None:
        """Returns the null odds from which no answer is given; None except for SQuAD 2.0."""
        if self.serving:
            return self.serving.null_odds_threshold
        if self.folder.kind != squad_task.V2:
            return None
        assert self.folder.source.checkpoint is not None
        return null_threshold.read(self.folder.source.checkpoint)


def in_parts(infer: batching.Infer, max_tokens: int | None) -> batching.Infer:
    """Returns a function of arrays [B, S] that computes at most `max_tokens` of B * S at once.

    A single longer sequence is computed all the same. None: any number.
    """
    if max_tokens is None:
        return infer

    def score(features: batching.Arrays) -> batching.Arrays:
        rows, length = features["input_ids"].shape
        step = max(max_tokens // length, 1)
        if rows <= step:
            return infer(features)
        parts = [
            infer({name: values[start : start + step] for name, values in features.items()})
            for start in range(0, rows, step)
        ]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    return score


def find(path: str | FoundModel, *names: str) -> FoundModel:
    """Finds the `FoundModel` of a training folder or a serving folder.

    Args:
      path: the folder; a training folder's best checkpoint is used, or else its last. A
        `FoundModel` is returned unchanged.
      names: the kinds that the caller can use; none means any.
    """
    if isinstance(path, FoundModel):
        return path
    if serving_folder.is_serving_folder(path):
        folder = serving_folder.read(path, *names)
        run_record.log_remarks(path, folder.remarks)
        return FoundModel(folder.model, folder)
    with requirements.explained():
        model = FoundModel(model_folder.without_broken_promise(kinds.read_folder(path, *names)))
    run_record.log_remarks(path, run_record.read_remarks(path))
    return model
