"""Writes a fine-tuned model in a form that runs fast, as a serving folder, and checks it."""

from absl import flags, logging

from albert.cli import app, common_flags


def define_flags(flag_values):
    text, _, number, _ = common_flags.definers(flag_values)
    text("model_dir", None, "Folder of a fine-tuned model: --output_dir of its training.")
    text("output_dir", None, "Folder to make.")
    flags.DEFINE_enum(
        "format",
        "onnx",
        ["saved_model", "litert", "onnx"],
        "What the model is written as: a SavedModel, a LiteRT (TensorFlow Lite) or an ONNX file.",
        flag_values=flag_values,
    )
    common_flags.define_precision(
        flag_values,
        "float32",
        ["float32", "bfloat16", "int8"],
        "What the large products are computed in.",
    )
    text(
        "calibration_file",
        None,
        "For --precision=int8: some hundred examples like those to come, whose activations give "
        "the scales. They need no labels.",
    )
    text(
        "check_file",
        None,
        "Examples with labels, which the float32 model in Python and the exported one answer; "
        "needed for other precisions than float32.",
    )
    number("min_agreement", 0.99, "Least share of equal answers; with fewer nothing is exported.")
    number("max_metric_drop", 1.0, "Most points (of 100) by which the score may fall.")
    for name in ("model_dir", "output_dir"):
        flags.mark_flag_as_required(name, flag_values=flag_values)


def main(values):
    from albert.export import serving_export

    folder = serving_export.export(
        model_dir=values.model_dir,
        output_dir=values.output_dir,
        format=values.format,
        precision=values.precision,
        calibration_file=values.calibration_file,
        check_file=values.check_file,
        min_agreement=values.min_agreement,
        max_metric_drop=values.max_metric_drop,
    )
    logging.info("Wrote %s (%s, %s)", folder.path, folder.format, folder.precision)


if __name__ == "__main__":
    app.run(main, define_flags)
