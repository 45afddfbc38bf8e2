"""Exports fine-tuned models as serving folders, and rejects exports whose answers differ."""

from typing import Any

from absl import logging

from albert.export import (
    agreement,
    litert_export,
    onnx_export,
    onnx_int8,
    saved_model_export,
    tokenizer_json,
)
from albert.io import file_io
from albert.model import model_folder
from albert.serving import inference, runtimes, serving_folder
from albert.tasks import kinds


def _write_onnx(
    folder: serving_folder.ServingFolder,
    trained: model_folder.ModelFolder,
    calibration: agreement.Examples | None,
) -> dict[str, Any]:
    onnx_export.write(folder, onnx_export.Model(trained))
    return {}


def _write_litert(
    folder: serving_folder.ServingFolder,
    trained: model_folder.ModelFolder,
    calibration: agreement.Examples | None,
) -> dict[str, Any]:
    litert_export.write(folder, trained)
    return {}


def _write_saved_model(
    folder: serving_folder.ServingFolder,
    trained: model_folder.ModelFolder,
    calibration: agreement.Examples | None,
) -> dict[str, Any]:
    saved_model_export.write(folder, trained)
    return {}


# (format, precision): ``(folder, trained, calibration) -> what was measured``, which writes the
# model's file into a `serving_folder.ServingFolder`. trained is the `model_folder.ModelFolder`,
# calibration the `agreement.Examples` by which int8 finds its scales.
WRITERS = {
    ("onnx", "float32"): _write_onnx,
    # The same file: OpenVINO rounds what it computes.
    ("onnx", "bfloat16"): _write_onnx,
    ("onnx", "int8"): onnx_int8.write,
    ("litert", "float32"): _write_litert,
    ("litert", "int8"): _write_litert,
    ("saved_model", "float32"): _write_saved_model,
    ("saved_model", "bfloat16"): _write_saved_model,
}
# Why the other combinations are missing.
_MISSING = {
    ("litert", "bfloat16"): "LiteRT has no operations for that type",
    ("saved_model", "int8"): "TensorFlow has no products of that type that gain time",
}
# Those that take a calibration file, and need it.
CALIBRATED = {("onnx", "int8")}
_CALIBRATION_EXAMPLES = 512  # at most


def export(
    model_dir: str,
    output_dir: str,
    format: str,
    precision: str = "float32",
    calibration_file: str | None = None,
    check_file: str | None = None,
    min_agreement: float = 0.99,
    max_metric_drop: float = 1.0,
) -> serving_folder.ServingFolder:
    """Writes a serving folder: all or nothing.

    Args:
      model_dir: folder of a fine-tuned model, as training writes it.
      output_dir: folder to make.
      format, precision: a key of `WRITERS`.
      calibration_file: for those in `CALIBRATED`: see `agreement.read`; it needs no labels.
      check_file: examples with labels that both models answer; needed for other precisions than
        float32.
      min_agreement: minimum fraction of equal answers.
      max_metric_drop: maximum percentage points by which the score may fall.

    Returns:
      `serving_folder.ServingFolder`.

    Raises:
      file_io.InputError: a parameter is missing or does not fit, a package is not installed, the
        files are bad, or the exported model answers otherwise; nothing is written then.
    """
    _check_parameters(format, precision, calibration_file, check_file)
    _check_limits(min_agreement, max_metric_drop)
    if serving_folder.is_serving_folder(model_dir):
        raise file_io.InputError(
            f"model_dir={model_dir} is an exported model; give the folder of its training"
        )
    trained = kinds.read_folder(model_dir)

    def read(path, *args):
        return path and agreement.read(trained, path, *args)

    calibration = read(calibration_file, "calibration_file", False, _CALIBRATION_EXAMPLES)
    check = read(check_file, "check_file")
    with serving_folder.creating(output_dir, trained, format, precision) as folder:
        tokenizer = model_folder.load_tokenizer(trained.source, trained.config)
        tokenizer_json.write(folder.path, tokenizer)
        measured = WRITERS[format, precision](folder, trained, calibration)
        if check:
            measured = {
                **measured,
                **_checked(folder, trained, check, min_agreement, max_metric_drop),
            }
        serving_folder.describe(serving_folder.measured(folder, measured))
    logging.info("Exported to %s", output_dir)
    return serving_folder.read(output_dir)


def _check_parameters(
    format: str, precision: str, calibration_file: str | None, check_file: str | None
) -> None:
    """Rejects combinations that cannot be written, before any work."""
    if (format, precision) not in WRITERS:
        known = ", ".join(f"{one} in {other}" for one, other in WRITERS)
        why = _MISSING.get((format, precision))
        raise file_io.InputError(
            f"format={format} cannot be written with precision={precision}"
            f"{f', as {why}' if why else ''}; there are {known}"
        )
    is_calibrated = (format, precision) in CALIBRATED
    if is_calibrated and not calibration_file:
        raise file_io.InputError(f"precision={precision} needs calibration_file")
    if precision != "float32" and not check_file:
        raise file_io.InputError(f"precision={precision} needs check_file")
    if calibration_file and not is_calibrated:
        raise file_io.InputError(
            f"calibration_file is not for format={format} with precision={precision}"
        )
    if check_file:
        runtimes.module_of(runtimes.of(format, precision)[0])


def _check_limits(min_agreement: float, max_metric_drop: float) -> None:
    if not 0 <= min_agreement <= 1:
        raise file_io.InputError(f"min_agreement={min_agreement} must be a share, from 0 to 1")
    if not max_metric_drop >= 0:
        raise file_io.InputError(f"max_metric_drop={max_metric_drop:g} must be at least 0 points")


def _checked(
    folder: serving_folder.ServingFolder,
    trained: model_folder.ModelFolder,
    check: agreement.Examples,
    min_agreement: float,
    max_metric_drop: float,
) -> dict[str, Any]:
    """Measures the exported model.

    Raises:
      file_io.InputError: its answers differ; holds the figures.
    """
    found = agreement.measure(
        check, inference.FoundModel(trained), inference.FoundModel(folder.model, folder)
    )
    figures = (
        f"{found.rate:.2%} of {found.count} answers to check_file={check.path} are those of the "
        f"model in float32; {found.metric} {found.expected:.2f} there, {found.found:.2f} in "
        f"{folder.precision}"
    )
    if found.rate < min_agreement or found.expected - found.found > max_metric_drop:
        raise file_io.InputError(
            f"nothing was exported: {figures}. Wanted: min_agreement={min_agreement:g} and "
            f"max_metric_drop={max_metric_drop:g} points at most"
        )
    logging.info("%s", figures)
    return {"check": {"file_sha256": file_io.sha256(check.path), **found.to_dict()}}
