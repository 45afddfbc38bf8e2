"""Reads the graphs of SavedModels from their files, without executing them."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf
from google.protobuf import message
from tensorflow.core.framework import function_pb2, graph_pb2, node_def_pb2
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from albert.io import file_io

NAME = "saved_model.pb"
_FUNCTIONS = "library"  # what TensorFlow calls the functions of a graph


def path_of(folder: str) -> str:
    """Returns the path of the graph file in a SavedModel's folder."""
    return os.path.join(folder, NAME)


def read_graphs(folder: str) -> Sequence[meta_graph_pb2.MetaGraphDef]:
    """Reads the graphs of a SavedModel."""
    path = path_of(folder)
    with file_io.open_input(path, "SavedModel", "rb") as file:
        content = file.read()
    try:
        return saved_model_pb2.SavedModel.FromString(content).meta_graphs
    except message.DecodeError as error:
        raise file_io.InputError(f"{path} is damaged: {error}") from error


def functions_of(graph_def: graph_pb2.GraphDef) -> dict[str, function_pb2.FunctionDef]:
    """Returns {name: function} of a graph."""
    functions = getattr(graph_def, _FUNCTIONS).function
    return {function.signature.name: function for function in functions}


def all_nodes(graph_def: graph_pb2.GraphDef) -> Iterator[node_def_pb2.NodeDef]:
    """Yields the nodes of a graph and of its functions."""
    yield from graph_def.node
    for function in functions_of(graph_def).values():
        yield from function.node_def


def constant(graph_def: graph_pb2.GraphDef, tensor: str) -> np.ndarray | None:
    """Returns the value of a tensor, such as "node:0", of a graph; None if it is not a constant.

    Raises:
      ValueError, TypeError: the constant is damaged.
    """
    return _constant(graph_def.node, tensor, functions_of(graph_def))


def _constant(
    nodes: Iterable[node_def_pb2.NodeDef],
    tensor: str,
    functions: Mapping[str, function_pb2.FunctionDef],
) -> np.ndarray | None:
    """Implements `constant` for the nodes of a graph or of one of its functions."""
    by_name = {node.name: node for node in nodes}
    seen = set()
    while tensor not in seen:
        seen.add(tensor)
        name, *rest = tensor.split(":")
        number = rest[-1] if rest else "0"
        node = by_name.get(name)
        if node is None:
            return None
        if node.op == "Const":
            return tf.make_ndarray(node.attr["value"].tensor)
        function = functions.get(node.attr["f"].func.name)
        if function and number.isdigit() and int(number) < len(function.signature.output_arg):
            output = function.signature.output_arg[int(number)].name
            others = {key: value for key, value in functions.items() if value is not function}
            return _constant(function.node_def, function.ret[output], others)
        if node.op != "Identity" or not node.input:
            return None
        tensor = node.input[0]
    return None
