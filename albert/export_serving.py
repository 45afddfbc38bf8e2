r"""Writes a fine-tuned model in a fast format, as a serving folder, and checks it.

Example:

    albert export_serving --model_dir=out/sst2 --output_dir=out/sst2_onnx \
        --format=onnx
"""

import dataclasses

from absl import flags, logging

from albert.cli import app, next_steps, options, path_flags
from albert.io import file_io


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(options.Group):
    """Settings of the export and of its checks."""

    sections = {options.EVALUATION: "calibration_file check_file min_agreement max_metric_drop"}

    model_dir: str = options.flag(
        None,
        "Folder of a fine-tuned model: --output_dir of its training.",
        required=True,
        path=path_flags.MODEL,
    )
    output_dir: str = options.flag(None, "Folder to make.", required=True, path=path_flags.FOLDER)
    format: str = options.flag(
        "onnx",
        "What the model is written as: a SavedModel, a LiteRT (TensorFlow Lite) or an ONNX file.",
        choices=("saved_model", "litert", "onnx"),
    )
    precision: str = options.flag(
        "float32",
        "Number type of the large matrix products; int8_bfloat16: int8, and bfloat16 for the rest.",
        parser=options.PrecisionParser(["float32", "bfloat16", "int8", "int8_bfloat16"]),
    )
    weights: str = options.flag(
        "float32",
        "Number type in which an ONNX file of --precision=float32 or bfloat16 stores its weights: "
        "float16 takes half of the space and is converted when the file is loaded.",
        choices=("float32", "float16"),
    )
    calibration_file: str | None = options.flag(
        None,
        "For --precision=int8 and int8_bfloat16: a few hundred examples like those that will be "
        "predicted, whose activations give the scales. They need no labels.",
        path=path_flags.INPUT,
    )
    check_file: str | None = options.flag(
        None,
        "Examples with labels, for which the answers of the float32 model in Python and of the "
        "exported one are compared; needed for all number types but float32.",
        path=path_flags.INPUT,
    )
    examples: bool = options.flag(
        True, "Copy the dev examples that the training kept, which the server's page offers to try."
    )
    min_agreement: float = options.flag(
        0.99, "Minimum fraction of equal answers; with fewer nothing is exported."
    )
    max_metric_drop: float = options.flag(
        1.0, "Maximum percentage points by which the score may fall."
    )

    def check(self) -> None:
        """Rejects flags without effect."""
        useless = sorted({"min_agreement", "max_metric_drop"} & self.given)
        if useless and not self.check_file:
            raise file_io.InputError(
                f"--{useless[0]} is for the answers to --check_file: give both or leave it out"
            )


def define_flags(flag_values: flags.FlagValues) -> None:
    options.define(Settings, flag_values)


def main(values: flags.FlagValues) -> None:
    settings = options.read(Settings, values)
    settings.check()
    from albert.export import serving_export

    folder = serving_export.export(
        model_dir=settings.model_dir,
        output_dir=settings.output_dir,
        format=settings.format,
        precision=settings.precision,
        calibration_file=settings.calibration_file,
        check_file=settings.check_file,
        min_agreement=settings.min_agreement,
        max_metric_drop=settings.max_metric_drop,
        weights=settings.weights,
        examples=settings.examples,
    )
    logging.info("Wrote %s (%s, %s)", folder.path, folder.format, folder.precision)
    next_steps.show(next_steps.line("serve", model_dir=folder.path))


if __name__ == "__main__":
    app.run(main, define_flags)
