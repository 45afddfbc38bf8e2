"""Runs the SavedModel of a serving folder with TensorFlow.

Letters in shapes: B batch, S sequence.
"""

import os
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from albert.io import file_io
from albert.model import batching, checkpoints, saved_model_files
from albert.serving import serving_folder

SIGNATURE = "serving_default"
# The operations of exported models.
_OPERATIONS = frozenset(
    """
    AddV2 All ArgMax Assert BatchMatMulV2 BiasAdd Bitcast BitwiseAnd BroadcastTo Cast ConcatV2
    Const Erf Erfc Exp ExpandDims Fill FloorDiv FloorMod GatherV2 Greater GreaterEqual Identity
    IdentityN
    IsNan LeftShift LessEqual Log LogSoftmax LogicalNot MatMul Maximum Mean Minimum Mul Neg NoOp
    Pack PartitionedCall Placeholder Pow Prod Range ReadVariableOp RealDiv Relu Reshape
    ResourceGather RightShift Rsqrt SelectV2 Shape Sigmoid Size Softmax SplitV Square
    SquaredDifference
    Squeeze StatefulPartitionedCall StridedSlice Sub Sum Tanh TensorScatterUpdate TopKV2
    Transpose Unpack VarHandleOp Where
    """.split()
)


def load(folder: serving_folder.ServingFolder, threads: int | None = None) -> batching.Infer:
    """Loads the model of a serving folder as a function; see `runtimes.load`.

    `threads` are those of TensorFlow in the whole process; None: one per core. If it has started
    with another number, that is an error, as is a model that has other operations than
    computations.
    """
    _set_threads(threads)
    graph_def, signature = _read(folder)
    answers = {name: signature.outputs[name].name for name in folder.outputs}
    graph_def = _needed(graph_def, answers.values(), folder.model_file)
    try:
        session = _session(graph_def, folder.model_file, threads)
        inputs = [signature.inputs[name].name for name in folder.inputs]
        compute = session.make_callable(list(answers.values()), inputs)
    except (ValueError, KeyError, tf.errors.OpError) as error:
        raise file_io.InputError(f"{folder.model_file} is damaged: {error}") from error

    def score(features: batching.Arrays) -> batching.Arrays:
        arrays = compute(*(np.asarray(features[name], np.int32) for name in folder.inputs))
        return dict(zip(answers, arrays, strict=True))

    return score


def _set_threads(threads: int | None) -> None:
    if threads in (None, tf.config.threading.get_intra_op_parallelism_threads()):
        return
    try:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
    except RuntimeError as error:
        raise file_io.InputError(
            f"threads={threads}: TensorFlow has started with another number in this process"
        ) from error


def _read(folder: serving_folder.ServingFolder) -> tuple[Any, Any]:
    """Reads `GraphDef` and `SignatureDef` of a folder's model; checks its inputs and outputs."""
    path = folder.model_file
    graphs = saved_model_files.read_graphs(path)
    signature = graphs[0].signature_def[SIGNATURE] if len(graphs) == 1 else None
    names = [*folder.inputs, *folder.outputs]
    if signature is None or sorted([*signature.inputs, *signature.outputs]) != sorted(names):
        raise file_io.InputError(
            f"{path}: expected one graph with a signature {SIGNATURE} of {', '.join(names)}; "
            "export the model again"
        )
    return graphs[0].graph_def, signature


def _needed(
    graph_def: tf.compat.v1.GraphDef, tensors: Iterable[str], path: str
) -> tf.compat.v1.GraphDef:
    """Returns the part of a graph that tensors depend on; rejects all but `_OPERATIONS`."""
    functions = saved_model_files.functions_of(graph_def)
    by_name = {node.name: node for node in graph_def.node}
    nodes: dict[str, tf.compat.v1.NodeDef] = {}
    library: dict[str, Any] = {}
    waiting = [_node_of(tensor) for tensor in tensors]
    while waiting:
        name = waiting.pop()
        if name in nodes:
            continue
        if name not in by_name:
            raise file_io.InputError(f"{path} is damaged: it lacks the node {name}")
        nodes[name] = by_name[name]
        waiting += map(_node_of, by_name[name].input)
        _check(by_name[name], functions, library, path)
    return tf.compat.v1.GraphDef(
        versions=graph_def.versions, node=nodes.values(), library={"function": library.values()}
    )


def _node_of(tensor: str) -> str:
    return tensor.removeprefix("^").split(":")[0]


def _check(
    node: tf.compat.v1.NodeDef, functions: dict[str, Any], library: dict[str, Any], path: str
) -> None:
    """Rejects nodes that are not of `_OPERATIONS`; adds the functions they call to `library`."""
    if node.op not in _OPERATIONS:
        raise file_io.InputError(
            f"{path} has the operation {node.op}, which exported models do not consist of; run it "
            "with TensorFlow Serving if you trust its author"
        )
    values = node.attr.values()
    names = [value.func.name for value in values]
    names += [function.name for value in values for function in value.list.func]
    for name in filter(None, names):
        if name not in functions:
            raise file_io.InputError(f"{path} is damaged: it lacks the function {name}")
        if name not in library:
            library[name] = functions[name]
            for inner in functions[name].node_def:
                _check(inner, functions, library, path)


def _session(
    graph_def: tf.compat.v1.GraphDef, path: str, threads: int | None
) -> tf.compat.v1.Session:
    """Returns a session of a new graph, whose variables have the values of the SavedModel."""
    values = checkpoints.reader(os.path.join(path, "variables", "variables"))
    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=threads or 0)
    with tf.Graph().as_default() as graph:
        tf.graph_util.import_graph_def(graph_def, name="")
        session = tf.compat.v1.Session(graph=graph, config=config)
        for node in graph_def.node:
            if node.op == "VarHandleOp":
                value = values.get_tensor(node.attr["shared_name"].s.decode())
                placeholder = tf.compat.v1.placeholder(value.dtype, value.shape)
                handle = graph.get_tensor_by_name(f"{node.name}:0")
                assign = tf.raw_ops.AssignVariableOp(resource=handle, value=placeholder)
                session.run(assign, {placeholder: value})
        return session
