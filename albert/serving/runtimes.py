"""Loads the models of serving folders in different runtimes, as functions with one interface.

Letters in shapes: B batch, S sequence.
"""

import dataclasses
import importlib
import os
from collections.abc import Callable, Iterable
from types import ModuleType

import numpy as np

from albert.io import file_io, manifests, requirements
from albert.model import batching
from albert.serving import serving_folder

# --- runtimes -----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Runtime:
    """A program that runs models."""

    module: str  # in Python
    package: str  # for pip
    format: str  # this and `precisions`: of the serving folders that it runs
    precisions: tuple
    load: Callable  # ``(module, folder, threads) -> function`` as `load` returns it


def _int32(features: dict[str, np.ndarray], names: Iterable[str]) -> dict[str, np.ndarray]:
    """Returns the named features as int32 arrays."""
    return {name: features[name].astype("int32", copy=False) for name in names}


def _load_onnxruntime(
    module: ModuleType, folder: serving_folder.ServingFolder, threads: int | None
) -> batching.Infer:
    options = module.SessionOptions()
    if threads is not None:
        options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = module.InferenceSession(
        folder.model_file, options, providers=["CPUExecutionProvider"]
    )
    names = list(folder.outputs)

    def score(features: batching.Arrays) -> batching.Arrays:
        arrays = session.run(names, _int32(features, folder.inputs))
        return dict(zip(names, arrays, strict=True))

    return score


def _load_openvino(
    module: ModuleType, folder: serving_folder.ServingFolder, threads: int | None
) -> batching.Infer:
    core = module.Core()
    settings: dict[str, str | int] = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    if folder.precision.endswith("bfloat16"):
        settings["INFERENCE_PRECISION_HINT"] = "bf16"
    if threads is not None:
        settings["INFERENCE_NUM_THREADS"] = threads
    compiled = core.compile_model(folder.model_file, "CPU", settings)
    request = compiled.create_infer_request()
    outputs = {name: compiled.output(name) for name in folder.outputs}

    def score(features: batching.Arrays) -> batching.Arrays:
        arrays = request.infer(_int32(features, folder.inputs))
        return {name: arrays[output] for name, output in outputs.items()}

    return score


def _load_litert(
    module: ModuleType, folder: serving_folder.ServingFolder, threads: int | None
) -> batching.Infer:
    threads = os.cpu_count() if threads is None else threads
    interpreter = module.Interpreter(folder.model_file, num_threads=threads)
    # The signature that takes any sizes.
    run = interpreter.get_signature_runner("serving_default")

    def score(features: batching.Arrays) -> batching.Arrays:
        return run(**_int32(features, folder.inputs))

    return score


def _load_tensorflow(
    module: ModuleType, folder: serving_folder.ServingFolder, threads: int | None
) -> batching.Infer:
    from albert.serving import saved_model_runtime

    return saved_model_runtime.load(folder, threads)


# By name; "auto" takes the first that runs a folder.
RUNTIMES = {
    "onnxruntime": Runtime(
        "onnxruntime", "onnxruntime", "onnx", ("float32", "int8"), _load_onnxruntime
    ),
    "openvino": Runtime("openvino", "openvino", "onnx", serving_folder.PRECISIONS, _load_openvino),
    "litert": Runtime(
        "ai_edge_litert.interpreter", "ai-edge-litert", "litert", ("float32", "int8"), _load_litert
    ),
    "tensorflow": Runtime(
        "tensorflow", "tensorflow", "saved_model", ("float32", "bfloat16"), _load_tensorflow
    ),
}


def supported_by(format: str, precision: str) -> list[str]:
    """Returns the names of the runtimes that run models of a format and precision."""
    return [
        name
        for name, runtime in RUNTIMES.items()
        if runtime.format == format and precision in runtime.precisions
    ]


def is_of_tensorflow(path: str) -> bool:
    """Returns whether TensorFlow computes the model of a folder: not if it has another format."""
    if not serving_folder.is_serving_folder(path):
        return True
    return serving_folder.read(path).format == RUNTIMES["tensorflow"].format


def load(
    folder: serving_folder.ServingFolder, runtime: str = "auto", threads: int | None = None
) -> batching.Infer:
    """Loads the model of a serving folder as a function.

    Args:
      runtime: key of `RUNTIMES`, or "auto" for the first that runs the format.
      threads: number of threads that compute; None: one per core.

    Returns:
      From int32 arrays [B, S] to arrays, both by name; see `kinds.Kind`. Other features are
      ignored. Only one thread may call it at a time.
    """
    fitting = supported_by(folder.format, folder.precision)
    name = fitting[0] if runtime == "auto" else runtime
    if name not in fitting:
        raise file_io.InputError(
            f"runtime={name}: {folder.path} holds a model of format {folder.format} in "
            f"{folder.precision}, which {' or '.join(fitting)} runs"
        )
    entry = RUNTIMES[name]
    module = module_of(name)
    # ONNX and LiteRT files have no checksums of their own.
    manifests.check_export(folder.path, serving_folder.MODEL_FILES[folder.format])
    try:
        score = entry.load(module, folder, threads)
    except Exception as error:  # each runtime raises its own types
        raise file_io.InputError(f"{name} cannot load {folder.model_file}: {error}") from error
    longest = folder.model.config.max_position_embeddings
    shortest = folder.model.min_length

    def checked(features: batching.Arrays) -> batching.Arrays:
        length = features["input_ids"].shape[1]
        if length > longest:
            raise file_io.InputError(
                f"a sequence may have at most max_position_embeddings = {longest} tokens; got "
                f"{length}"
            )
        if length < shortest:
            raise file_io.InputError(
                f"a sequence must have at least {shortest} tokens, as the beams have; got {length}"
            )
        return score(features)

    return checked


def check_tensorflow(runtime: str, path: str) -> None:
    """Refuses a choice of runtimes for a model that TensorFlow computes, in the folder `path`."""
    if runtime != "auto":
        raise file_io.InputError(
            f"runtime={runtime}: TensorFlow computes the model of {path}; only folders of "
            "export_serving have a choice"
        )


def module_of(name: str) -> ModuleType:
    """Imports the Python module of a runtime; `name`: key of `RUNTIMES`."""
    runtime = RUNTIMES[name]
    with requirements.needed(
        f"runtime={name} needs {runtime.package}: pip install {runtime.package} ({{error}})"
    ):
        return importlib.import_module(runtime.module)
