"""Builds ONNX graphs node by node, with the package onnx.

Only standard operations are used, so every runtime can read the files. They are arranged so that
ONNX Runtime and OpenVINO fuse them, such as a product after DequantizeLinear.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from albert.io import requirements

OPSET = 20  # the first version with Gelu
_IR_VERSION = 10  # the version of runtimes that support this opset


def package() -> ModuleType:
    """Imports the package onnx."""
    with requirements.needed("format=onnx needs onnx: pip install onnx onnxruntime ({error})"):
        import onnx
    return onnx


class Graph:
    """A graph under construction; tensors are identified by name.

    Args:
      inputs: names of the inputs, int32 [batch, sequence].
      half: whether `matrix` stores float16, which runtimes convert once, when they load the file.
    """

    def __init__(self, inputs: Iterable[str], half: bool = False) -> None:
        self._half = half
        self._helper = package().helper
        self._inputs = [self._info(name, np.int32, ("batch", "sequence")) for name in inputs]
        self._outputs: list[Any] = []
        self._nodes: list[Any] = []
        self._constants: dict[str, Any] = {}
        self._converted: dict[str, str] = {}

    def _type(self, dtype: Any) -> int:
        return self._helper.np_dtype_to_tensor_dtype(np.dtype(dtype))

    def _info(self, name: str, dtype: Any, shape: Sequence[int | str | None]) -> Any:
        return self._helper.make_tensor_value_info(name, self._type(dtype), shape)

    def constant(self, name: str, value: Any) -> str:
        """Adds a constant unless there is one of this name; returns the name."""
        if name not in self._constants:
            self._constants[name] = package().numpy_helper.from_array(
                np.asarray(value, order="C"), name
            )
        return name

    def matrix(self, name: str, value: np.ndarray) -> str:
        """Adds a constant of many float32 numbers; returns its name, or that of its conversion."""
        if not self._is_half(value):
            return self.constant(name, value)
        if name not in self._converted:
            stored = self.constant(f"{name}/float16", value.astype(np.float16))
            self._converted[name] = self.cast(stored, np.float32)
        return self._converted[name]

    def lookup(self, name: str, table: np.ndarray, ids: str) -> str:
        """Takes rows of a table [V, E]: [B, S] -> [B, S, E]; in memory it stays as it is stored."""
        if not self._is_half(table):
            return self.node("Gather", self.constant(name, table), ids)
        stored = self.constant(f"{name}/float16", table.astype(np.float16))
        return self.cast(self.node("Gather", stored, ids), np.float32)

    def _is_half(self, value: np.ndarray) -> bool:
        return self._half and bool(np.abs(value).max(initial=0) <= np.finfo(np.float16).max)

    def number(self, value: float) -> str:
        """Adds a float32 scalar; returns its name."""
        return self.constant(f"number {value:.9g}", np.array(value, np.float32))

    def integers(self, *values: int) -> str:
        """Adds an int64 vector; returns its name."""
        return self.constant(f"integers {values}", np.array(values, np.int64))

    def node(self, operation: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """Adds a node; returns the name of its output, or a list of `outputs` names."""
        names = [f"{operation}_{len(self._nodes)}_{number}" for number in range(outputs)]
        self._nodes.append(
            self._helper.make_node(operation, list(inputs), names, names[0], **attributes)
        )
        return names[0] if outputs == 1 else names

    def cast(self, x: str, dtype: Any) -> str:
        """Casts a tensor to another type."""
        return self.node("Cast", x, to=self._type(dtype))

    def output(self, name: str, x: str, dtype: Any, shape: Sequence[int | str | None]) -> None:
        """Makes a tensor an output of the graph; a size that depends on the inputs has a name."""
        self._nodes.append(self._helper.make_node("Identity", [x], [name], name))
        self._outputs.append(self._info(name, dtype, shape))

    def to_bytes(self, metadata: Mapping[str, str]) -> bytes:
        """Returns the content of the file; metadata are for programs that have only this file."""
        helper = self._helper
        constants = list(self._constants.values())
        graph = helper.make_graph(self._nodes, "albert", self._inputs, self._outputs, constants)
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(
            graph, opset_imports=opsets, ir_version=_IR_VERSION, producer_name="albert"
        )
        helper.set_model_props(model, metadata)
        return model.SerializeToString()

    # --- layers made of several nodes -------------------------------------------------------------

    def dense(self, x: str, name: str, kernel: np.ndarray, bias: np.ndarray) -> str:
        """Adds ``x @ kernel + bias`` for x [..., inputs]; `name` is the prefix of the constants."""
        product = self.node("MatMul", x, self.matrix(f"{name}/kernel", kernel))
        return self.node("Add", product, self.constant(f"{name}/bias", bias))

    def layer_norm(
        self, x: str, name: str, gamma: np.ndarray, beta: np.ndarray, epsilon: float
    ) -> str:
        """Adds the normalization of the last axis."""
        scale, shift = self.constant(f"{name}/gamma", gamma), self.constant(f"{name}/beta", beta)
        return self.node("LayerNormalization", x, scale, shift, axis=-1, epsilon=epsilon)

    def activation(self, x: str, name: str) -> str:
        """Adds an activation of `layers.ACTIVATIONS`."""
        if name == "linear":
            return x
        if name in ("gelu", "gelu_erf"):
            return self.node("Gelu", x, approximate="tanh" if name == "gelu" else "none")
        return self.node({"relu": "Relu", "tanh": "Tanh"}[name], x)

    def reshape(self, x: str, *sizes: int) -> str:
        """Reshapes a tensor; a size of 0 keeps the old size, -1 is computed from the others."""
        return self.node("Reshape", x, self.integers(*sizes))

    def at(self, x: str, axis: int, index: int) -> str:
        """Takes one index of an axis and removes the axis."""
        return self.node("Gather", x, self.constant(f"at {index}", np.int64(index)), axis=axis)

    def first(self, x: str, axis: int) -> str:
        """Takes the first index of an axis and keeps the axis, with size 1."""
        return self.node("Slice", x, self.integers(0), self.integers(1), self.integers(axis))
