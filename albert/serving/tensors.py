"""Names, types and shapes of the inputs and outputs of served models, for protocols with tensors.

A model takes texts, the fields of its `requests.RequestSchema`, or ids, as its exported file does.
Datatypes are those of the Open Inference Protocol. Letters in shapes: B batch, C options,
K labels, S sequence, N starts kept, M ends kept for each start.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from albert.serving import requests
from albert.tasks import kinds, label_sets, token_classification

BYTES, INT32, FP32 = "BYTES", "INT32", "FP32"
ANY = -1  # any size of an axis


@dataclasses.dataclass(frozen=True)
class Tensor:
    """An input or output."""

    name: str
    datatype: str  # `BYTES` (texts in UTF-8), `INT32` or `FP32`
    shape: tuple[int, ...]  # sizes of its axes, or `ANY`
    # How an output is made from a result of the model: the key of a value, or a function; None for
    # tensors of ids and for inputs.
    field: str | Callable[[dict], Any] | None = None
    # The field of replies that are rows of fields, if it has another name or type.
    row_field: "Tensor | None" = None

    def value_of(self, result: dict[str, Any]) -> Any:
        """Returns the output of one example: a text, a number or a list."""
        if callable(self.field):
            return self.field(result)
        return result[str(self.field)]


@dataclasses.dataclass(frozen=True)
class IdModel:
    """Names the tensors that a model takes and returns instead of texts."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    limits: dict[str, int]  # {name of an input: number of its possible values, from 0}
    max_length: int  # of ids in a sequence
    min_length: int


def text_inputs(form: requests.RequestSchema) -> tuple[Tensor, ...]:
    """Returns the fields of a form as tensors: [B], and options [B, C]."""
    inputs = []
    for name, schema in form.schema["properties"].items():
        kind = schema.get("type")
        datatype = INT32 if kind == "integer" else BYTES
        inputs.append(Tensor(name, datatype, (ANY, ANY) if kind == "array" else (ANY,)))
    return tuple(inputs)


PREDICTION = Tensor("prediction", BYTES, (ANY,), "prediction")
NUMBER = Tensor("prediction", FP32, (ANY,), "prediction")
ANSWER = Tensor("answer", BYTES, (ANY,), "answer")
# The whole result as JSON, as in replies in the toolkit's own format.
RESULT = Tensor("result", BYTES, (ANY,), lambda result: requests.to_json(result).strip())


def probabilities(size: int) -> Tensor:
    """Returns the output of probabilities [B, size]."""
    return _numbers("probabilities", size)


def thresholds(size: int) -> Tensor:
    """Returns the output of the thresholds of labels [B, size]."""
    return _numbers("thresholds", size)


def _numbers(name: str, size: int) -> Tensor:
    return Tensor(name, FP32, (ANY, size), lambda result: list(result[name].values()))


def members(labels: Sequence[str]) -> Tensor:
    """Returns the output of several labels per text [B, K], 1 for those of the text."""

    def bits(result: dict[str, Any]) -> list[int]:
        return [int(label in result["prediction"]) for label in labels]

    names = Tensor("prediction", BYTES, (ANY, ANY))
    return Tensor("predictions", INT32, (ANY, len(labels)), bits, names)


def id_inputs(kind: str) -> tuple[Tensor, ...]:
    """Returns the inputs of the model's file, [B, S]."""
    return tuple(Tensor(name, INT32, (ANY, ANY)) for name in kinds.KINDS[kind].inputs)


def id_outputs(kind: str, labels: Sequence[str]) -> tuple[Tensor, ...]:
    """Returns the outputs of the file of a kind of model; see `kinds.Kind`.

    Labels are empty for regression and for kinds without labels.
    """
    size = len(labels) or 1
    by_token = kind == token_classification.KIND
    by_label = kind == label_sets.KIND
    shapes: dict[str, tuple[int, ...]] = {
        "predictions": (ANY, ANY) if by_token else (ANY, size) if by_label else (ANY,),
        "probabilities": (ANY, ANY, size) if by_token else (ANY, size),
        "logits": (ANY,),
        "cls_logits": (ANY,),
    }
    return tuple(
        Tensor(name, _datatype(name, labels), shapes.get(name, (ANY, ANY)))
        for name in kinds.KINDS[kind].outputs
    )


def _datatype(name: str, labels: Sequence[str]) -> str:
    is_index = name.endswith("_index") or (name == "predictions" and bool(labels))
    return INT32 if is_index else FP32
