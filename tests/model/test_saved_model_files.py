"""SavedModels read as files."""

import numpy as np
import pytest
import tensorflow as tf

from albert.export import saved_model_export
from albert.io import file_io
from albert.model import saved_model_files


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tf.Module()
    root.value = tf.Variable([1.0, 2.0])

    @tf.function(input_signature=[], autograph=False)
    def serve():
        return {
            "flag": tf.identity(tf.constant(True)), "number": tf.constant([3, 4]),
            "value": root.value * 2.0,
        }  # fmt: skip

    parent = tmp_path_factory.mktemp("export")
    return saved_model_export.save_model(root, {"serve": serve}, str(parent), "model")


def test_constants_are_found_behind_functions_and_identities(folder):
    (graph,) = saved_model_files.read_graphs(folder)
    outputs = graph.signature_def["serve"].outputs
    found = {
        name: saved_model_files.constant(graph.graph_def, outputs[name].name) for name in outputs
    }
    assert bool(found["flag"]) is True
    np.testing.assert_array_equal(found["number"], [3, 4])
    assert found["value"] is None
    assert saved_model_files.constant(graph.graph_def, "no such node:0") is None


def test_nodes_of_functions_are_among_all(folder):
    (graph,) = saved_model_files.read_graphs(folder)
    own = {node.name for node in graph.graph_def.node}
    names = {node.name for node in saved_model_files.all_nodes(graph.graph_def)}
    assert own < names
    assert saved_model_files.functions_of(graph.graph_def)


def test_damaged_and_missing_files_are_named(tmp_path):
    with pytest.raises(file_io.InputError, match=r"the file .*saved_model\.pb does not exist"):
        saved_model_files.read_graphs(str(tmp_path))
    (tmp_path / "saved_model.pb").write_bytes(b"no such thing")
    with pytest.raises(file_io.InputError, match=r"saved_model\.pb is damaged: "):
        saved_model_files.read_graphs(str(tmp_path))
