"""Builds graphs of ONNX node by node, with the package onnx.

The operations are those of the standard alone, so every runtime reads the files, in forms that ONNX
Runtime and OpenVINO compute as one pass (such as a product of what comes from DequantizeLinear).
"""

from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from albert.io import file_io

OPSET = 20  # the first with Gelu
_IR_VERSION = 10  # what runtimes of that time read


def package() -> ModuleType:
    """Imports the package onnx.

    Raises:
      file_io.InputError: it is not installed.
    """
    try:
        import onnx
    except ImportError as error:
        raise file_io.InputError(f"format=onnx needs onnx: pip install onnx ({error})") from error
    return onnx


class Graph:
    """A graph in the making; tensors are known by their names.

    Args:
      inputs: names of its inputs, int32 [batch, sequence].
    """

    def __init__(self, inputs: Iterable[str]) -> None:
        self._helper = package().helper
        self._types = package().TensorProto
        self._inputs = [self._info(name, np.int32, ("batch", "sequence")) for name in inputs]
        self._outputs: list[Any] = []
        self._nodes: list[Any] = []
        self._constants: dict[str, Any] = {}

    def _type(self, dtype: Any) -> int:
        return self._helper.np_dtype_to_tensor_dtype(np.dtype(dtype))

    def _info(self, name: str, dtype: Any, shape: Sequence[int | str | None]) -> Any:
        return self._helper.make_tensor_value_info(name, self._type(dtype), shape)

    def constant(self, name: str, value: Any) -> str:
        """Adds a tensor that the file holds once per name; returns the name."""
        if name not in self._constants:
            self._constants[name] = package().numpy_helper.from_array(
                np.asarray(value, order="C"), name
            )
        return name

    def number(self, value: float) -> str:
        """A float32 scalar."""
        return self.constant(f"number {value:.9g}", np.array(value, np.float32))

    def integers(self, *values: int) -> str:
        """An int64 vector."""
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
        """Makes a tensor an output of the graph.

        Args:
          name: that of the output.
          x: the tensor.
          dtype: its type.
          shape: sizes, and names of sizes that the inputs decide.
        """
        self._nodes.append(self._helper.make_node("Identity", [x], [name], name))
        self._outputs.append(self._info(name, dtype, shape))

    def to_bytes(self, metadata: Mapping[str, str]) -> bytes:
        """Returns the content of the file.

        Args:
          metadata: {key: text}, which the file holds for readers without its folder.
        """
        helper = self._helper
        constants = list(self._constants.values())
        graph = helper.make_graph(self._nodes, "albert", self._inputs, self._outputs, constants)
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(
            graph, opset_imports=opsets, ir_version=_IR_VERSION, producer_name="albert"
        )
        helper.set_model_props(model, metadata)
        return model.SerializeToString()

    # --- what several nodes make up ---------------------------------------------------------------

    def dense(self, x: str, name: str, kernel: np.ndarray, bias: np.ndarray) -> str:
        """``x @ kernel + bias`` of x [..., inputs]; the constants are called after `name`."""
        product = self.node("MatMul", x, self.constant(f"{name}/kernel", kernel))
        return self.node("Add", product, self.constant(f"{name}/bias", bias))

    def layer_norm(
        self, x: str, name: str, gamma: np.ndarray, beta: np.ndarray, epsilon: float
    ) -> str:
        """Normalizes the last axis."""
        scale, shift = self.constant(f"{name}/gamma", gamma), self.constant(f"{name}/beta", beta)
        return self.node("LayerNormalization", x, scale, shift, axis=-1, epsilon=epsilon)

    def activation(self, x: str, name: str) -> str:
        """A function of `layers.ACTIVATIONS`."""
        if name == "linear":
            return x
        if name in ("gelu", "gelu_erf"):
            return self.node("Gelu", x, approximate="tanh" if name == "gelu" else "none")
        return self.node({"relu": "Relu", "tanh": "Tanh"}[name], x)

    def reshape(self, x: str, *sizes: int) -> str:
        """0 keeps a size, -1 is what is left."""
        return self.node("Reshape", x, self.integers(*sizes))

    def at(self, x: str, axis: int, index: int) -> str:
        """The part at one place of an axis, which goes."""
        return self.node("Gather", x, self.constant(f"at {index}", np.int64(index)), axis=axis)

    def first(self, x: str, axis: int) -> str:
        """The part at the first place of an axis, which stays."""
        return self.node("Slice", x, self.integers(0), self.integers(1), self.integers(axis))
