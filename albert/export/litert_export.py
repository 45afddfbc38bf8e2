"""Writes models for LiteRT, which was TensorFlow Lite: flatbuffers with signatures.

In int8 the kernels of products are integers with a scale for each output, and what they are
multiplied by is turned into integers while the model runs, with a scale of its own for each token.
Layers that share their weights meet values of very different sizes, and there are tokens that are
far larger than others: a scale for each token follows both, and needs no calibration. Sums,
normalization and attention stay float32.

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

# Names of the signatures: of any sizes, and of one input of the longest length.
ANY_SIZE, FIXED_SIZE = "serving_default", "fixed_length"
METADATA = "albert"  # name of the entry that says what the model is


def write(folder: serving_folder.ServingFolder, trained: model_folder.ModelFolder) -> None:
    """Writes the model's file of a serving folder.

    It has two signatures, which share their weights: `ANY_SIZE` takes int32 [B, S] of any sizes,
    `FIXED_SIZE` takes [1, max_seq_length] and is the graph that runtimes without signatures run,
    with inputs and outputs in the order of `kinds.Kind`. The entry
    `METADATA` holds an object of JSON: kind, labels (by id), max_seq_length, inputs, outputs.

    Args:
      folder: `serving_folder.ServingFolder` to write to, in float32 or int8.
      trained: `model_folder.ModelFolder` of the model, with its checkpoint.
    """
    served = graphs.ExportedModel(trained)
    served.fixed = served.function(1, served.max_seq_length)
    served.any = served.function()
    # The first is the graph that old runtimes know.
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
      module: `tf.Module` that holds the variables.
      functions: {name of the signature: `tf.function` with an input signature}.
      about: JSON-ready dict with "inputs" and "outputs", the names in their order; the rest only
        goes into the file.
      path: where the model is to go; temporary files are written next to it.
      is_quantized: in int8, see the module.
    """
    from tensorflow.lite.tools import flatbuffer_utils  # needed for this alone

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
    """Names and orders inputs and outputs, which the converter leaves to chance."""
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
