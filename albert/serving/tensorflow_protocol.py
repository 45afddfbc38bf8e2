"""Requests and replies of TensorFlow Serving's RESTful API, which is the source of their form.

A request for predictions holds rows under "instances" or columns under "inputs".
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from albert.io import json_shapes
from albert.serving import hosted_models, requests, tensors

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
    """Returns the reply with the inputs and outputs for texts of a model that is loaded."""
    model = hosted.loaded()
    signature = {
        "inputs": _described(tensors.text_inputs(model.form)),
        "outputs": _described(model.outputs),
        "method_name": "tensorflow/serving/predict",
        "defaults": {},
    }
    spec = {"name": hosted.name, "signature_name": "", "version": hosted_models.VERSION}
    return {
        "model_spec": spec,
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
        for tensor in (spec.row_field or spec for spec in specs)
        if tensor is not tensors.RESULT
    }


# --- predictions --------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Request:
    """A request in the format of TensorFlow Serving, with rows or columns."""

    examples: list[dict[str, Any]]
    has_columns: bool

    def encode(self, results: Sequence[requests.Result]) -> requests.Reply:
        """Returns the reply: rows or columns. Those with a single field have no name."""
        # All must have the outputs of the model's metadata.
        rows = [{k: v for k, v in result.items() if k != requests.TRUNCATED} for result in results]
        if not self.has_columns:
            return requests.json_reply({"predictions": [_unnamed(row) for row in rows]})
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        return requests.json_reply({"outputs": _unnamed(columns)})


def read(body: bytes, form: requests.RequestSchema, limits: requests.Limits) -> Request:
    """Reads a request in the format of TensorFlow Serving; see `requests.RequestSchema.read`.

    If an example has a single field, its values may come without a name.
    """
    value = requests.parse(body)
    json_shapes.check(value, dict, "the request")
    names = {"instances", "inputs"} & value.keys()
    unknown = value.keys() - {"instances", "inputs", "signature_name"}
    if len(names) != 1 or unknown:
        raise requests.unexpected(
            "the request",
            "instances or inputs and perhaps signature_name",
            ", ".join(value) or "nothing",
        )
    signature = value.get("signature_name", SIGNATURE)
    if signature != SIGNATURE:
        raise requests.unexpected("signature_name", repr(SIGNATURE), repr(signature))
    if "instances" in value:
        instances = value["instances"]
        if form.bare and isinstance(instances, list):
            instances = [_named(form, part) for part in instances]
        examples = requests.read_all(instances, "instances", form, limits)
        return Request(examples, has_columns=False)
    inputs, in_columns = value["inputs"], isinstance(value["inputs"], dict)
    examples = requests.read_all(_rows(inputs, form), "inputs", form, limits, in_columns)
    return Request(examples, has_columns=True)


def _named(form: requests.RequestSchema, value: object) -> dict[str, Any]:
    """Adds the name of the only field to an example without it."""
    if isinstance(value, dict) and value.keys() != {"b64"}:
        return value
    return {str(form.bare): value}


def _unnamed(result: dict[str, Any]) -> Any:
    return next(iter(result.values())) if len(result) == 1 else result


def _rows(inputs: object, form: requests.RequestSchema) -> list[dict]:
    """Converts columns to rows: {field: values}, or the values of the only field."""
    if form.bare and isinstance(inputs, list):
        return [_named(form, value) for value in inputs]
    json_shapes.check(inputs, {"*": [json_shapes.ANY]}, "inputs")
    assert isinstance(inputs, dict)
    sizes = {name: len(column) for name, column in inputs.items()}
    if len(set(sizes.values())) != 1:
        counts = ", ".join(f"{name} {size}" for name, size in sizes.items()) or "nothing"
        raise requests.unexpected("inputs", "fields with the same number of values", counts)
    return [dict(zip(inputs, values, strict=True)) for values in zip(*inputs.values(), strict=True)]
