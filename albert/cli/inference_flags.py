"""Settings of computation for commands that use a fine-tuned model."""

import dataclasses
from typing import Any

from albert.cli import common_flags, options


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inference(options.Group):
    """Flags for the computation of a fine-tuned model."""

    precision: str | None = options.flag(
        None,
        "Type of products and activations; by default float32, of an exported model its own.",
        parser=common_flags.PrecisionParser(["float32", "bfloat16"]),
    )


def found_model(model_dir: str, settings: Inference, *kinds: str) -> Any:
    """Returns the `inference.FoundModel` of a folder; it must be of one of the given kinds.

    Raises:
      file_io.InputError: see `inference.find` and `inference.FoundModel.in_precision`.
    """
    from albert.serving import inference

    found = inference.find(model_dir, *kinds)
    return found.in_precision(settings.precision) if settings.precision else found
