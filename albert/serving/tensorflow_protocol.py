"""Paths and replies of TensorFlow Serving's RESTful API, except predictions.

`requests.read_tensorflow` reads requests for predictions. Source: TensorFlow Serving's RESTful API.
"""

from collections.abc import Iterable
from typing import Any

from albert.serving import hosted_models, tensors

MODELS = "/v1/models"
SIGNATURE = "serving_default"
_STATES = {
    hosted_models.LOADING: "LOADING",
    hosted_models.READY: "AVAILABLE",
    hosted_models.STOPPING: "UNLOADING",
}
_TYPES = {tensors.BYTES: "DT_STRING", tensors.INT32: "DT_INT32", tensors.FP32: "DT_FLOAT"}


def status(hosted: hosted_models.HostedModel) -> dict[str, Any]:
    """Returns the reply with the state of a model."""
    version = {
        "version": hosted_models.VERSION,
        "state": _STATES[hosted.state],
        "status": {"error_code": "OK", "error_message": ""},
    }
    return {"model_version_status": [version]}


def metadata(hosted: hosted_models.HostedModel) -> dict[str, Any]:
    """Returns the reply with the inputs and outputs of a model that is loaded.

    Inputs and outputs are those for texts; see `tensors`.
    """
    model = hosted.loaded()
    signature = {
        "inputs": _described(tensors.text_inputs(model.form)),
        "outputs": _described(model.outputs),
        "method_name": "tensorflow/serving/predict",
        "defaults": {},
    }
    return {
        "model_spec": {
            "name": hosted.name,
            "signature_name": "",
            "version": hosted_models.VERSION,
        },
        "metadata": {"signature_def": {"signature_def": {SIGNATURE: signature}}},
    }


def _described(specs: Iterable[tensors.Tensor]) -> dict[str, Any]:
    return {
        tensor.name: {
            "dtype": _TYPES[tensor.datatype],
            "tensor_shape": {
                "dim": [{"size": str(size), "name": ""} for size in tensor.shape],
                "unknown_rank": False,
            },
            "name": f"{tensor.name}:0",
        }
        for tensor in specs
        if tensor is not tensors.RESULT
    }
