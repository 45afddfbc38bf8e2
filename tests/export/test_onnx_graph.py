"""Graphs of ONNX: constants are shared by name, and small functions are NumPy's."""

import math
import sys

import numpy as np
import pytest

from albert.export import onnx_graph
from albert.io import file_io

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")


def run(graph, ids):
    content = graph.to_bytes({"key": "value"})
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return session.run(None, {"ids": np.int32(ids)})


def test_what_is_built_is_computed():
    graph = onnx_graph.Graph(["ids"])
    x = graph.cast("ids", np.float32)
    kernel, bias = np.float32([[1, 2], [3, 4], [-5, 6]]), np.float32([1, -1])
    twice = graph.dense(graph.dense(x, "d", kernel, bias), "e", kernel[:2], bias)
    again = graph.dense(x, "d", kernel, bias)
    graph.output("twice", twice, np.float32, ("batch", 2))
    graph.output("again", graph.layer_norm(again, "n", bias, bias, 1e-12), np.float32, ("batch", 2))
    graph.output("at", graph.at(x, 1, 2), np.float32, ("batch",))
    graph.output("first", graph.first(graph.reshape(x, 0, 3, 1), 1), np.float32, ("batch", 1, 1))
    content = graph.to_bytes({"key": "value"})
    onnx.checker.check_model(onnx.load_from_string(content), full_check=True)
    names = [c.name for c in onnx.load_from_string(content).graph.initializer]
    assert names.count("d/kernel") == 1
    ids = np.array([[1, 2, 3], [4, 5, 7]])
    hidden = ids @ kernel + bias
    normal = (hidden - hidden.mean(-1, keepdims=True)) / hidden.std(-1, keepdims=True)
    expected = (hidden @ kernel[:2] + bias, normal * bias + bias, ids[:, 2], ids[:, :1, None])
    for found, value in zip(run(graph, ids), expected, strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("linear", float),
        ("relu", lambda x: max(x, 0.0)),
        ("tanh", math.tanh),
        ("gelu_erf", lambda x: x * 0.5 * (1 + math.erf(x / math.sqrt(2)))),
        (
            "gelu",
            lambda x: x * 0.5 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
        ),
    ],
)
def test_activations(name, function):
    graph = onnx_graph.Graph(["ids"])
    y = graph.activation(graph.cast("ids", np.float32), name)
    graph.output("y", y, np.float32, ("batch", "sequence"))
    (found,) = run(graph, [[-2, -1, 0, 1, 2]])
    np.testing.assert_allclose(found[0], [function(x) for x in range(-2, 3)], atol=1e-6)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(file_io.InputError, match="format=onnx needs onnx: pip install onnx"):
        onnx_graph.Graph(["ids"])
