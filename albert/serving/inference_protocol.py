"""The Open Inference Protocol, version 2, over HTTP, as KServe, Triton and others speak it.

Tensors are JSON, or bytes after the JSON (the protocol's extension for binary tensors, which the
clients of Triton use unless configured otherwise). Source: the protocol's description of REST
and of binary tensor data.

The `place` of a tensor or value in the request is for messages.
"""

import dataclasses
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from albert.io import file_io, json_shapes
from albert.serving import hosted_models, requests, tensors

ROOT = "/v2"
LIVE, READY = f"{ROOT}/health/live", f"{ROOT}/health/ready"
HEAD_SIZE = "Inference-Header-Content-Length"
_EXTENSIONS = ["binary_tensor_data"]
_INTEGERS = {"INT32": "<i4", "INT64": "<i8", "UINT32": "<u4", "UINT64": "<u8"}
_LONGEST_ID = 256
_PREFIX = 4  # bytes before each text of a binary tensor: its length, little endian
# JSON Schema of requests; the messages of `read` are more exact.
SCHEMAS = "#/components/schemas"
_PARAMETERS = {"type": "object", "additionalProperties": True}
TENSOR_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["name", "shape", "datatype"],
    "properties": {
        "name": {"type": "string"},
        "shape": {
            "type": "array",
            "items": {"type": "integer", "minimum": 1},
            "minItems": 1,
            "maxItems": 2,
        },
        "datatype": {"type": "string", "enum": [tensors.BYTES, *_INTEGERS]},
        "data": {"type": "array"},
        "parameters": _PARAMETERS,
    },
    "additionalProperties": False,
}
_OUTPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string"}, "parameters": _PARAMETERS},
    "additionalProperties": False,
}
REQUEST_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["inputs"],
    "properties": {
        "id": {"type": "string", "maxLength": _LONGEST_ID},
        # KServe's clients add it.
        "model_name": {"description": "Ignored: the path has the name."},
        "inputs": {"type": "array", "items": {"$ref": f"{SCHEMAS}/Tensor"}, "minItems": 1},
        "outputs": {"type": ["array", "null"], "items": _OUTPUT_SCHEMA},
        "parameters": _PARAMETERS,
    },
    "additionalProperties": False,
}


# --- descriptions -------------------------------------------------------------------------------


def server_metadata(version: str) -> dict[str, Any]:
    """Returns the description of a server with the version of its program."""
    return {"name": "albert", "version": version, "extensions": _EXTENSIONS}


def metadata(hosted: hosted_models.HostedModel) -> dict[str, Any]:
    """Returns the description of a model that is loaded.

    The parameter "form" of each tensor tells which belong together: "texts" or "ids".
    """
    model = hosted.loaded()
    forms = {"texts": (tensors.text_inputs(model.form), model.outputs)}
    if model.ids:
        forms["ids"] = (model.ids.inputs, model.ids.outputs)
    inputs, outputs = (
        [_described(tensor, form) for form, pair in forms.items() for tensor in pair[side]]
        for side in (0, 1)
    )
    return {
        "name": hosted.name,
        "versions": [hosted_models.VERSION],
        "platform": f"albert_{model.kind}",
        "inputs": inputs,
        "outputs": outputs,
        "parameters": {"labels": ",".join(model.labels)} if model.labels else {},
    }


def _described(tensor: tensors.Tensor, form: str) -> dict[str, Any]:
    return {
        "name": tensor.name,
        "datatype": tensor.datatype,
        "shape": list(tensor.shape),
        "parameters": {"form": form},
    }


# --- requests -----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Output:
    """An output that a client wants."""

    tensor: tensors.Tensor
    is_binary: bool  # whether its values come as bytes


@dataclasses.dataclass(frozen=True)
class InferenceRequest:
    """A request of this protocol."""

    examples: list[requests.Example]
    model: str
    request_id: str  # the client's name of the request; "" without one
    outputs: Sequence[Output]

    def encode(self, results: Sequence[requests.Result]) -> requests.Reply:
        """Returns the reply, with binary tensors after the JSON."""
        described, tail = [], []
        for output in self.outputs:
            values = self._values(output.tensor, results)
            row: dict[str, Any] = {
                "name": output.tensor.name,
                "datatype": output.tensor.datatype,
                "shape": list(values.shape),
            }
            if output.is_binary:
                tail.append(_packed(values, output.tensor.datatype))
                row["parameters"] = {"binary_data_size": len(tail[-1])}
            else:
                row["data"] = values.ravel().tolist()
            described.append(row)
        reply = {
            "model_name": self.model,
            "model_version": hosted_models.VERSION,
            "outputs": described,
        }
        if self.request_id:
            reply["id"] = self.request_id
        head = json.dumps(reply, allow_nan=False).encode()
        if not tail:
            return requests.Reply(head, {"Content-Type": "application/json"})
        headers = {"Content-Type": "application/octet-stream", HEAD_SIZE: str(len(head))}
        return requests.Reply(head + b"".join(tail), headers)

    def _values(self, tensor: tensors.Tensor, results: Sequence[requests.Result]) -> np.ndarray:
        """Returns an output of all examples, or of the ids."""
        if isinstance(self.examples[0], requests.Ids):
            return np.asarray(results[0][tensor.name])
        kind = object if tensor.datatype == tensors.BYTES else None
        return np.array([tensor.value_of(result) for result in results], kind)


@dataclasses.dataclass(frozen=True)
class _Array:
    """An input tensor of a request: its datatype, shape and values in a flat list."""

    datatype: str
    shape: tuple[int, ...]
    values: list


def read(
    body: bytes, head_size: str | None, hosted: hosted_models.HostedModel, limits: requests.Limits
) -> InferenceRequest:
    """Reads a request: JSON and perhaps the bytes of binary tensors.

    `head_size` is the header `HEAD_SIZE`, the number of bytes of the JSON; None: all of them.
    """
    size = _head_size(head_size, len(body))
    value = requests.parse(body[:size])
    json_shapes.check(value, dict, "the request")
    _check_names(value, REQUEST_SCHEMA, "the request")
    name = value.get("id", "")
    json_shapes.check(name, str, "id")
    if len(name) > _LONGEST_ID:
        raise requests.unexpected("id", f"at most {_LONGEST_ID} characters", len(name))
    parameters = _parameters(value, "", {"binary_data_output": bool})
    inputs = _inputs(value.get("inputs"), body[size:], limits)
    model = hosted.model
    assert model is not None
    examples: list[requests.Example]
    if model.ids and inputs.keys() & {tensor.name for tensor in model.ids.inputs}:
        examples, output_tensors = [_ids(inputs, model.ids)], model.ids.outputs
    else:
        rows = _rows(inputs, model.form)
        examples = [*requests.read_all(rows, "inputs", model.form, limits, in_columns=True)]
        output_tensors = model.outputs
    is_binary = parameters.get("binary_data_output", False)
    outputs = _outputs(value.get("outputs"), output_tensors, is_binary)
    return InferenceRequest(examples, hosted.name, name, outputs)


def _check_names(value: dict[str, Any], schema: dict[str, Any], place: str) -> None:
    """Rejects fields that a schema does not have."""
    names = schema["properties"].keys()
    if unknown := value.keys() - names:
        raise requests.unexpected(place, f"only {', '.join(sorted(names))}", repr(min(unknown)))


def _head_size(text: str | None, limit: int) -> int:
    if text is None:
        return limit
    size = int(text) if text.isascii() and text.isdigit() and len(text) < 16 else -1
    if not 0 <= size <= limit:
        raise requests.unexpected(HEAD_SIZE, f"the bytes of the JSON, 0 to {limit}", repr(text))
    return size


def _parameters(owner: dict, place: str, types: dict[str, Any]) -> dict[str, Any]:
    """Returns the parameters of a request or tensor; `types` are their names and types."""
    place = f"{place}.parameters" if place else "parameters"
    parameters = owner.get("parameters", {})
    json_shapes.check(parameters, dict, place)
    for name, value in parameters.items():
        if name not in types:
            expected = " or ".join(types)
            raise requests.unexpected(place, expected, repr(name))
        json_shapes.check(value, types[name], f"{place}.{name}")
    return parameters


def _inputs(value: Any, tail: bytes, limits: requests.Limits) -> dict[str, _Array]:
    """Returns the input tensors by name from the entry "inputs" of a request.

    `tail` holds the binary ones in their order.
    """
    json_shapes.check(value, [dict], "inputs")
    inputs: dict[str, _Array] = {}
    start = 0
    for number, tensor in enumerate(value):
        place = f"inputs[{number}]"
        datatype, shape = _type_of(tensor, place, limits)
        size = _binary_size(tensor, datatype, place)
        if (size is None) == ("data" not in tensor):
            raise file_io.InputError(f"{place}: expected either data or binary_data_size")
        if size is None:
            values = _flat(tensor["data"], datatype, f"{place}.data")
        else:
            end = start + max(size, 0)
            if size < 0 or end > len(tail):
                raise requests.unexpected(place, f"{size} bytes after the JSON", len(tail) - start)
            values, start = _unpacked(tail[start:end], datatype, place), end
        if len(values) != math.prod(shape):
            raise requests.unexpected(
                place, f"{math.prod(shape)} values for the shape {list(shape)}", len(values)
            )
        if tensor["name"] in inputs:
            raise requests.unexpected(f"{place}.name", "each tensor once", repr(tensor["name"]))
        inputs[tensor["name"]] = _Array(datatype, shape, values)
    if start != len(tail):
        raise requests.unexpected("the request", f"{start} bytes after the JSON", len(tail))
    return inputs


def _binary_size(tensor: dict[str, Any], datatype: str, place: str) -> int | None:
    """Returns how many bytes after the JSON a tensor has, from its parameters; None: it has data.

    MLServer's clients say in content_type what values mean: texts ("str") or an array ("np").
    """
    parameters = _parameters(tensor, place, {"binary_data_size": int, "content_type": str})
    expected = ("np", "str") if datatype == tensors.BYTES else ("np",)
    content = parameters.get("content_type", expected[0])
    if content not in expected:
        raise requests.unexpected(
            f"{place}.parameters.content_type",
            f"{' or '.join(expected)} for {datatype}",
            repr(content),
        )
    return parameters.get("binary_data_size")


def _type_of(
    tensor: dict[str, Any], place: str, limits: requests.Limits
) -> tuple[str, tuple[int, ...]]:
    _check_names(tensor, TENSOR_SCHEMA, place)
    datatype, shape = tensor.get("datatype"), tensor.get("shape")
    json_shapes.check(tensor.get("name"), str, f"{place}.name")
    json_shapes.check(datatype, str, f"{place}.datatype")
    json_shapes.check(shape, [int], f"{place}.shape")
    if datatype != tensors.BYTES and datatype not in _INTEGERS:
        expected = ", ".join((tensors.BYTES, *_INTEGERS))
        raise requests.unexpected(f"{place}.datatype", f"one of {expected}", repr(datatype))
    assert datatype is not None and shape is not None
    if not 1 <= len(shape) <= 2 or min(shape) < 1 or shape[0] > limits.examples:
        raise requests.unexpected(
            f"{place}.shape",
            f"1 to {limits.examples} examples and perhaps a second size of at least 1",
            shape,
        )
    return datatype, tuple(shape)


def _flat(data: Any, datatype: str, place: str) -> list:
    """Returns the values of a tensor in JSON, which may be nested, as a flat list."""
    kind = str if datatype == tensors.BYTES else int
    json_shapes.check(data, list, place)
    if data and isinstance(data[0], list):
        for number, part in enumerate(data):
            json_shapes.check(part, list, f"{place}[{number}]")
        data = [value for part in data for value in part]
    if not all(type(value) is kind for value in data):
        json_shapes.check(data, [kind], place)  # raises an error that names the value
    return data


def _unpacked(part: bytes, datatype: str, place: str) -> list:
    """Returns the values of a binary tensor."""
    if datatype in _INTEGERS:
        kind = np.dtype(_INTEGERS[datatype])
        if len(part) % kind.itemsize:
            raise requests.unexpected(
                place, f"values of {kind.itemsize} bytes", f"{len(part)} bytes"
            )
        return np.frombuffer(part, kind).tolist()
    values, start = [], 0
    while start < len(part):
        end = start + _PREFIX
        size = int.from_bytes(part[start:end], "little")
        start = end + size
        if start > len(part):
            raise requests.unexpected(
                place,
                f"each text after its length in {_PREFIX} bytes",
                f"{size} bytes announced and {max(len(part) - end, 0)} left",
            )
        try:
            values.append(part[end:start].decode())
        except UnicodeDecodeError as error:
            raise requests.unexpected(place, "UTF-8", error) from error
    return values


def _rows(inputs: dict[str, _Array], form: requests.RequestSchema) -> list[dict[str, Any]]:
    """Returns a dict by field for each row of the tensors of texts."""
    fields = {tensor.name: tensor for tensor in tensors.text_inputs(form)}
    sizes = {name: array.shape[0] for name, array in inputs.items()}
    if len(set(sizes.values())) != 1:
        listed = ", ".join(f"{name} {size}" for name, size in sizes.items()) or "nothing"
        raise requests.unexpected("inputs", "tensors with the same number of rows", listed)
    columns = {}
    for name, array in inputs.items():
        field = form.by_name.get(name)
        tensor = fields[field.name] if field else None
        if tensor is not None and (array.datatype == tensors.BYTES) != (
            tensor.datatype == tensors.BYTES
        ):
            raise requests.unexpected("inputs", f"{name} as {tensor.datatype}", array.datatype)
        width = array.shape[1] if len(array.shape) == 2 else 1
        starts = range(0, len(array.values), width)
        # A client may send each of several texts as a row of one value, but words are a list.
        is_words = field is not None and field.name == name and isinstance(field.example, list)
        is_list = tensor is not None and (
            len(tensor.shape) == 2 or width > 1 or (is_words and len(array.shape) == 2)
        )
        columns[name] = [
            array.values[start : start + width] if is_list else array.values[start]
            for start in starts
        ]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _ids(inputs: dict[str, _Array], ids: tensors.IdModel) -> requests.Ids:
    """Returns the checked ids of a request."""
    expected = [tensor.name for tensor in ids.inputs]
    if sorted(inputs) != sorted(expected):
        raise requests.unexpected("inputs", ", ".join(expected), ", ".join(inputs))
    shape = inputs[expected[0]].shape
    arrays = {}
    for name in expected:
        array = inputs[name]
        if array.datatype == tensors.BYTES or array.shape != shape or len(shape) != 2:
            raise requests.unexpected(
                "inputs",
                f"{name} as INT32 of the shape [batch, sequence] of all inputs",
                f"{array.datatype} {list(array.shape)}",
            )
        limit, low, high = ids.limits[name], min(array.values), max(array.values)
        if low < 0 or high >= limit:
            raise requests.unexpected(
                "inputs", f"{name} of 0 to {limit - 1}", low if low < 0 else high
            )
        arrays[name] = np.array(array.values, np.int32).reshape(shape)
    if not ids.min_length <= shape[1] <= ids.max_length:
        raise requests.unexpected(
            "inputs", f"{ids.min_length} to {ids.max_length} ids in a sequence", shape[1]
        )
    return requests.Ids(arrays)


def _outputs(value: Any, output_tensors: Sequence[tensors.Tensor], is_binary: bool) -> list[Output]:
    """Returns the outputs that a client wants; all if it names none."""
    by_name = {tensor.name: tensor for tensor in output_tensors}
    if value is None or value == []:
        return [Output(tensor, is_binary) for tensor in output_tensors]
    json_shapes.check(value, [dict], "outputs")
    outputs: dict[str, Output] = {}
    for number, output in enumerate(value):
        place, name = f"outputs[{number}]", output.get("name")
        _check_names(output, _OUTPUT_SCHEMA, place)
        if not isinstance(name, str) or name not in by_name or name in outputs:
            raise requests.unexpected(
                f"{place}.name", f"each of {', '.join(by_name)} at most once", repr(name)
            )
        own = _parameters(output, place, {"binary_data": bool}).get("binary_data", is_binary)
        outputs[name] = Output(by_name[name], own)
    return list(outputs.values())


# --- replies ------------------------------------------------------------------------------------


def _packed(values: np.ndarray, datatype: str) -> bytes:
    if datatype == tensors.BYTES:
        texts = [text.encode("utf-8", "replace") for text in values.ravel()]
        return b"".join(len(text).to_bytes(_PREFIX, "little") + text for text in texts)
    return values.astype("<i4" if datatype == tensors.INT32 else "<f4").tobytes()
