"""Exports fine-tuned models as serving folders, and rejects exports whose answers differ."""

import math
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
from albert.serving import example_requests, inference, runtimes, serving_folder
from albert.tasks import kinds
from albert.training import run_record


def _write_onnx(
    folder: serving_folder.ServingFolder, trained: model_folder.ModelFolder, half: bool = False
) -> None:
    """Writes the model file of a folder; `half`: with its weights in float16."""
    arithmetic = onnx_export.Arithmetic(half=half)
    onnx_export.write(folder, onnx_export.Model(trained), arithmetic)


# (format, precision): ``(folder, trained)``, which writes the model file of a serving folder.
WRITERS = {
    ("onnx", "float32"): _write_onnx,
    # The same file as float32: OpenVINO rounds while it computes.
    ("onnx", "bfloat16"): _write_onnx,
    ("litert", "float32"): litert_export.write,
    ("litert", "int8"): litert_export.write,
    ("saved_model", "float32"): saved_model_export.write,
    ("saved_model", "bfloat16"): saved_model_export.write,
}
# The same with scales that are computed from a calibration file; they return measurements.
CALIBRATED = {
    ("onnx", "int8"): onnx_int8.write,
    ("onnx", "int8_bfloat16"): onnx_int8.write,  # the same file as int8, likewise
}
_COMBINATIONS = (*WRITERS, *CALIBRATED)
# Those that can store weights in float16; int8 files do so for all that is not in int8.
_HALF = (("onnx", "float32"), ("onnx", "bfloat16"))
# Combinations that are not supported, with the reason.
_UNSUPPORTED = {
    ("litert", "bfloat16"): "LiteRT has no operations for bfloat16",
    ("litert", "int8_bfloat16"): "LiteRT has no operations for bfloat16",
    ("saved_model", "int8"): "TensorFlow's int8 products are not faster",
    ("saved_model", "int8_bfloat16"): "TensorFlow's int8 products are not faster",
}
_MAX_CALIBRATION_EXAMPLES = 512


def export(
    model_dir: str,
    output_dir: str,
    format: str,
    precision: str = "float32",
    calibration_file: str | None = None,
    check_file: str | None = None,
    min_agreement: float = 0.99,
    max_metric_drop: float = 1.0,
    weights: str = "float32",
    examples: bool = True,
) -> serving_folder.ServingFolder:
    """Writes a serving folder, completely or not at all.

    Args:
      model_dir: output folder of a fine-tuning run.
      format, precision: a key of `WRITERS` or `CALIBRATED`.
      calibration_file: needed by the combinations in `CALIBRATED`, see `agreement.read`; may lack
        labels.
      check_file: labeled examples that both models answer; needed unless the precision is
        float32.
      min_agreement: minimum fraction of equal answers.
      max_metric_drop: maximum loss of the score, in percentage points.
      weights: "float16" stores the weights in half of the space, for combinations of
        `_HALF`; they are computed with as before.
      examples: whether to copy the dev examples of `example_requests`.
    """
    _check_parameters(format, precision, calibration_file, check_file, weights)
    _check_limits(min_agreement, max_metric_drop)
    if serving_folder.is_serving_folder(model_dir):
        raise file_io.InputError(
            f"model_dir={model_dir} is an exported model; give the output_dir of its training"
        )
    trained = model_folder.without_broken_promise(kinds.read_folder(model_dir))

    calibration = check = None
    if calibration_file:
        calibration = agreement.read(
            trained, calibration_file, "calibration_file", False, _MAX_CALIBRATION_EXAMPLES
        )
    if check_file:
        check = agreement.read(trained, check_file, "check_file")
    with serving_folder.creating(output_dir, trained, format, precision) as folder:
        _write_tokenizer(folder, trained)
        if examples:
            example_requests.copy(model_dir, folder.path)
        measured = _write_model(folder, trained, calibration, weights)
        if check:
            limits = (min_agreement, max_metric_drop)
            measured |= _check_answers(folder, trained, check, *limits)
        serving_folder.describe(serving_folder.measured(folder, measured))
    logging.info("Exported to %s", output_dir)
    exported = serving_folder.read(output_dir)
    run_record.log_remarks(model_dir, exported.remarks)
    return exported


def _write_model(
    folder: serving_folder.ServingFolder,
    trained: model_folder.ModelFolder,
    calibration: agreement.Examples | None,
    weights: str,
) -> dict[str, Any]:
    """Writes the model file of a serving folder; returns measurements for its description.

    Args:
      calibration: examples from which int8 computes its scales; None: not needed.
      weights: type in which the weights are stored, "float32" or "float16".
    """
    key = folder.format, folder.precision
    if calibration:
        return CALIBRATED[key](folder, trained, calibration)
    if weights == "float16":
        _write_onnx(folder, trained, half=True)
        return {"weights": weights}
    WRITERS[key](folder, trained)
    return {}


def _write_tokenizer(
    folder: serving_folder.ServingFolder, trained: model_folder.ModelFolder
) -> None:
    """Writes ``tokenizer.json``, for other programs, if the vocabulary has that form."""
    tokenizer = model_folder.load_tokenizer(trained.source, trained.config)
    try:
        tokenizer_json.write(folder.path, tokenizer)
    except file_io.InputError as error:
        logging.warning("The folder gets no %s: %s", tokenizer_json.NAME, error)


def _check_parameters(
    format: str,
    precision: str,
    calibration_file: str | None,
    check_file: str | None,
    weights: str,
) -> None:
    """Rejects unsupported combinations of parameters, before any work."""
    if (format, precision) not in _COMBINATIONS:
        combinations = ", ".join(f"{name} in {kind}" for name, kind in _COMBINATIONS)
        reason = _UNSUPPORTED.get((format, precision))
        raise file_io.InputError(
            f"format={format} cannot be written with precision={precision}"
            f"{f', as {reason}' if reason else ''}; expected one of {combinations}"
        )
    is_calibrated = (format, precision) in CALIBRATED
    if is_calibrated and not calibration_file:
        raise file_io.InputError(f"precision={precision} needs calibration_file")
    if weights == "float16" and (format, precision) not in _HALF:
        combinations = ", ".join(f"{name} in {kind}" for name, kind in _HALF)
        raise file_io.InputError(
            f"weights=float16 is for {combinations}, not for {format} in {precision}"
        )
    for name, value in (("precision", precision), ("weights", weights)):
        if value != "float32" and not check_file:
            raise file_io.InputError(f"{name}={value} needs check_file")
    if calibration_file and not is_calibrated:
        raise file_io.InputError(
            f"format={format} with precision={precision} takes no calibration_file; leave it out"
        )
    if check_file:
        runtimes.module_of(runtimes.supported_by(format, precision)[0])


def _check_limits(min_agreement: float, max_metric_drop: float) -> None:
    if not 0 <= min_agreement <= 1:
        raise file_io.InputError(f"min_agreement={min_agreement} must be a fraction, from 0 to 1")
    if not max_metric_drop >= 0:
        raise file_io.InputError(f"max_metric_drop={max_metric_drop:g} must be at least 0")


def _check_answers(
    folder: serving_folder.ServingFolder,
    trained: model_folder.ModelFolder,
    check: agreement.Examples,
    min_agreement: float,
    max_metric_drop: float,
) -> dict[str, Any]:
    """Compares the answers of the exported model; returns the measurements.

    The limits are a fraction of equal answers, and a loss in percentage points.
    """
    comparison = agreement.measure(
        check, inference.FoundModel(trained), inference.FoundModel(folder.model, folder)
    )
    figures = (
        f"{comparison.rate:.2%} of {comparison.count} answers to check_file={check.path} are those "
        f"of the model in float32; {comparison.metric} {comparison.expected:.2f} there, "
        f"{comparison.actual:.2f} in {folder.precision}"
    )
    if math.isnan(comparison.expected):
        raise file_io.InputError(
            f"check_file={check.path}: its {comparison.metric} is undefined, because all of its "
            "correct answers are equal; give other examples"
        )
    # NaN, the score where all answers are equal, must not pass the limit.
    is_as_good = comparison.expected - comparison.actual <= max_metric_drop
    if comparison.rate < min_agreement or not is_as_good:
        raise file_io.InputError(
            f"nothing was exported: {figures}. Required: min_agreement={min_agreement:g} and "
            f"max_metric_drop={max_metric_drop:g} percentage points at most"
        )
    logging.info("%s", figures)
    return {"check": {"file_sha256": file_io.sha256(check.path), **comparison.to_dict()}}
