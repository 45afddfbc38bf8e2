"""Settings of commands that use a fine-tuned model: how it computes."""

import dataclasses
from typing import Any

from albert.cli import common_flags, options


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inference(options.Group):
    """How a fine-tuned model computes."""

    precision: str | None = options.flag(
        None,
        "Type of products and activations; by default float32, of an exported model its own.",
        parser=common_flags.PrecisionParser(["float32", "bfloat16"]),
    )


def found_model(model_dir: str, settings: Inference, *kinds: str) -> Any:
    """Returns the `inference.FoundModel` of a folder, of one of these kinds.

    Raises:
      file_io.InputError: see `inference.find` and `inference.FoundModel.in_precision`.
    """
    from albert.serving import inference

    found = inference.find(model_dir, *kinds)
    return found.in_precision(settings.precision) if settings.precision else found
