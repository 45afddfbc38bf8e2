"""Writes models for LiteRT (formerly TensorFlow Lite): flatbuffers with signatures.

In int8 the weights of matrix products are integers with one scale per output. Activations become
integers while the model runs, with one scale per token (dynamic quantization). Layers that share
their weights have activations of very different sizes, and some tokens are far larger than others:
a scale per token adapts to both and needs no calibration. Sums, normalization and attention stay
float32.

Letters in shapes: B batch, S sequence.
"""

import json
from typing import Any

import tensorflow as tf
from absl import logging

from albert.export import graphs
from albert.io import file_io
from albert.model import model_folder
from albert.serving import serving_folder

# Names of the signatures: for inputs of any size, and for one input of the maximum length.
ANY_SIZE, FIXED_SIZE = "serving_default", "fixed_length"
METADATA = "albert"  # name of the entry that describes the model


def write(folder: serving_folder.ServingFolder, trained: model_folder.ModelFolder) -> None:
    """Writes the model file of a serving folder.

    It has two signatures, which share their weights: `ANY_SIZE` takes int32 [B, S] of any sizes,
    `FIXED_SIZE` takes [1, max_seq_length]. Runtimes without signatures run the graph of the latter,
    with inputs and outputs in the order of `kinds.Kind`. The entry `METADATA` is a JSON object with
    kind, labels (by id), max_seq_length, inputs and outputs.
    """
    served = graphs.ExportedModel(trained)
    served.fixed = served.function(1, served.max_seq_length)
    served.any = served.function()
    # Old runtimes only know the first graph.
    functions = {FIXED_SIZE: served.fixed, ANY_SIZE: served.any}
    about = {
        "kind": served.kind,
        "labels": list(served.labels),
        "max_seq_length": served.max_seq_length,
        "inputs": list(served.inputs),
        "outputs": list(served.outputs),
    }
    is_quantized = folder.precision == "int8"
    content = convert(served, functions, about, folder.model_file, is_quantized)
    with file_io.open_file(folder.model_file, "wb") as file:
        file.write(content)


def convert(
    module: tf.Module,
    functions: dict[str, Any],
    about: dict[str, Any],
    path: str,
    is_quantized: bool = False,
) -> bytes:
    """Returns the bytes of a LiteRT model.

    Args:
      module: holds the variables.
      functions: {name of the signature: `tf.function` with an input signature}.
      about: JSON-ready dict with "inputs" and "outputs", names in order; it is also written to
        the file.
      path: path of the model file; temporary files are written next to it.
      is_quantized: whether to write weights in int8.
    """
    from tensorflow.lite.tools import flatbuffer_utils  # needed only here

    temporary = file_io.temporary_name(f"{path}.graph")
    try:
        options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
        tf.saved_model.save(module, temporary, signatures=functions, options=options)
        converter = tf.lite.TFLiteConverter.from_saved_model(temporary, list(functions))
        if is_quantized:
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        content = converter.convert()
    finally:
        file_io.remove(temporary)
    model = flatbuffer_utils.read_model_from_bytearray(bytearray(content))
    _put_in_order(model, about)
    _add_metadata(model, METADATA, json.dumps(about).encode())
    logging.info("Converted to LiteRT: %d bytes", len(content))
    return bytes(flatbuffer_utils.convert_object_to_bytearray(model))


def _put_in_order(model: Any, about: dict[str, Any]) -> None:
    """Names and orders inputs and outputs, whose order the converter does not define."""
    for signature in model.signatureDefs:
        graph = model.subgraphs[signature.subgraphIndex]
        inputs = {item.name.decode(): item.tensorIndex for item in signature.inputs}
        outputs = {item.name.decode(): item.tensorIndex for item in signature.outputs}
        graph.inputs = [inputs[name] for name in about["inputs"]]
        graph.outputs = [outputs[name] for name in about["outputs"]]
        for name, index in (inputs | outputs).items():
            graph.tensors[index].name = name.encode()


def _add_metadata(model: Any, name: str, content: bytes) -> None:
    from tensorflow.lite.python import schema_py_generated as schema

    buffer, entry = schema.BufferT(), schema.MetadataT()
    buffer.data = list(content)
    entry.name, entry.buffer = name.encode(), len(model.buffers)
    model.buffers.append(buffer)
    model.metadata = [*(model.metadata or ()), entry]
