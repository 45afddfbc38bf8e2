"""Programs that run the models of serving folders, each behind the same function.

Letters in shapes: B batch, S sequence.
"""

import dataclasses
import importlib
import os
from collections.abc import Callable

from albert.io import file_io


@dataclasses.dataclass(frozen=True)
class Runtime:
    """A program that runs models.

    Attributes:
      module: name of its module in Python.
      package: what pip calls it.
      format: format of the serving folders that it runs.
      precisions: their precisions.
      load: ``(module, folder, threads) -> function`` as `load` returns it.
    """

    module: str
    package: str
    format: str
    precisions: tuple
    load: Callable


def _int32(features, names):
    """The features of these names as int32 arrays."""
    return {name: features[name].astype("int32", copy=False) for name in names}


def _load_onnxruntime(module, folder, threads):
    options = module.SessionOptions()
    if threads is not None:
        options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = module.InferenceSession(
        folder.model_file, options, providers=["CPUExecutionProvider"]
    )
    names = list(folder.outputs)

    def score(features):
        found = session.run(names, _int32(features, folder.inputs))
        return dict(zip(names, found, strict=True))

    return score


def _load_openvino(module, folder, threads):
    core = module.Core()
    settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    if folder.precision == "bfloat16":
        settings["INFERENCE_PRECISION_HINT"] = "bf16"
    if threads is not None:
        settings["INFERENCE_NUM_THREADS"] = threads
    compiled = core.compile_model(folder.model_file, "CPU", settings)
    request = compiled.create_infer_request()
    outputs = {name: compiled.output(name) for name in folder.outputs}

    def score(features):
        found = request.infer(_int32(features, folder.inputs))
        return {name: found[output] for name, output in outputs.items()}

    return score


def _load_litert(module, folder, threads):
    threads = os.cpu_count() if threads is None else threads
    interpreter = module.Interpreter(folder.model_file, num_threads=threads)
    # Of the signatures the one that takes any sizes.
    run = interpreter.get_signature_runner("serving_default")

    def score(features):
        return run(**_int32(features, folder.inputs))

    return score


def _load_tensorflow(module, folder, threads):
    from albert.serving import saved_model_runtime

    return saved_model_runtime.load(folder, threads)


# By name; of those that run a folder, the first is its own.
RUNTIMES = {
    "onnxruntime": Runtime(
        "onnxruntime", "onnxruntime", "onnx", ("float32", "int8"), _load_onnxruntime
    ),
    "openvino": Runtime(
        "openvino", "openvino", "onnx", ("float32", "bfloat16", "int8"), _load_openvino
    ),
    "litert": Runtime(
        "ai_edge_litert.interpreter",
        "ai-edge-litert",
        "litert",
        ("float32", "int8"),
        _load_litert,
    ),
    "tensorflow": Runtime(
        "tensorflow", "tensorflow", "saved_model", ("float32", "bfloat16"), _load_tensorflow
    ),
}


def of(format: str, precision: str) -> list[str]:
    """Returns the names of the runtimes that run models of a format and precision."""
    return [
        name
        for name, runtime in RUNTIMES.items()
        if runtime.format == format and precision in runtime.precisions
    ]


def load(folder, runtime="auto", threads=None):
    """Loads the model of a serving folder as a function.

    Args:
      folder: `serving_folder.ServingFolder`.
      runtime: key of `RUNTIMES`, or "auto" for the format's own.
      threads: number of threads that compute; None: one per core.

    Returns:
      ``(features) -> outputs``: int32 arrays [B, S] by name in, arrays by name out, as
      `kinds.Kind` says. Other features are ignored. It is for one thread at a time.

    Raises:
      file_io.InputError: the runtime does not run such models, is not installed, or cannot read the
        model; says what to do.
    """
    fitting = of(folder.format, folder.precision)
    name = fitting[0] if runtime == "auto" else runtime
    if name not in fitting:
        raise file_io.InputError(
            f"runtime={name}: {folder.path} holds a model of format {folder.format} in "
            f"{folder.precision}, which {' or '.join(fitting)} runs"
        )
    found = RUNTIMES[name]
    module = module_of(name)
    try:
        score = found.load(module, folder, threads)
    except Exception as error:  # each runtime has its own kinds
        raise file_io.InputError(f"{name} cannot load {folder.model_file}: {error}") from error
    longest = folder.model.config.max_position_embeddings
    settings = folder.model.settings
    shortest = max(settings.get("start_n_top") or 1, settings.get("end_n_top") or 1)

    def checked(features):
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


def module_of(name):
    """Imports the Python module of a runtime.

    Args:
      name: key of `RUNTIMES`.

    Raises:
      file_io.InputError: it is not installed; says how to install it.
    """
    found = RUNTIMES[name]
    try:
        return importlib.import_module(found.module)
    except ImportError as error:
        raise file_io.InputError(
            f"runtime={name} needs {found.package}: pip install {found.package} ({error})"
        ) from error
