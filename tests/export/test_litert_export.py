"""LiteRT models compute what Python computes, at any size and at the one of old runtimes."""

import dataclasses
import json

import numpy as np
import pytest

from albert.export import litert_export, serving_export
from albert.io import file_io
from albert.serving import runtimes, serving_folder
from tests.support import serving_samples
from tests.support.serving_samples import LENGTH

interpreter = pytest.importorskip("ai_edge_litert.interpreter")
schema = pytest.importorskip("ai_edge_litert.schema_py_generated")


def write(path, trained, precision):
    with serving_folder.creating(str(path), trained, "litert", precision) as folder:
        litert_export.write(folder, trained)
    return serving_folder.read(str(path))


@pytest.mark.slow
@pytest.mark.parametrize("kind", serving_samples.MARKED_KINDS)
def test_float_models_are_those_of_python(tmp_path, kind):
    trained = serving_samples.trained_in(tmp_path / "run", kind)
    folder = write(tmp_path / "out", trained, "float32")
    of_any_size = runtimes.load(folder, threads=1)
    found = interpreter.Interpreter(folder.model_file)
    of_one_size = found.get_signature_runner("fixed_length")
    for rows, length in ((3, 9), (1, 24), (1, LENGTH)):
        features = serving_samples.features(kind, rows, length)
        expected = serving_samples.expected(trained, features)
        serving_samples.assert_close(of_any_size(features), expected, features, 1e-5)
    serving_samples.assert_close(of_one_size(**features), expected, features, 1e-5)


@pytest.fixture(scope="module")
def int8(tmp_path_factory):
    """Training's folder, and the serving folder in int8."""
    inputs = tmp_path_factory.mktemp("litert")
    sizes = {"hidden_size": 32, "intermediate_size": 64, "initializer_range": 0.2}
    trained = serving_samples.trained_in(inputs / "run", "classifier", num_hidden_layers=3, **sizes)
    return trained, write(inputs / "out", trained, "int8")


def graph_of(folder):
    with file_io.open_file(folder.model_file, "rb") as file:
        content = bytearray(file.read())
    return schema.ModelT.InitFromObj(schema.Model.GetRootAsModel(content, 0))


def test_int8_answers_are_those_of_python(int8):
    trained, folder = int8
    features = serving_samples.features("classifier", 4, 12)
    expected = serving_samples.expected(trained, features)["probabilities"]
    answers = runtimes.load(folder)(features)["probabilities"]
    np.testing.assert_allclose(answers, expected, atol=0.05)
    assert np.abs(answers - expected).max() > 1e-6  # float32 would be closer


def test_int8_weights_are_shared_and_have_a_scale_for_each_output(int8):
    trained, folder = int8
    model = graph_of(folder)
    kernels = {}
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            is_constant = model.buffers[tensor.buffer].data is not None
            if is_constant and tensor.type == schema.TensorType.INT8:
                shape = tuple(map(int, tensor.shape))
                kernels[tensor.buffer] = (shape, len(tensor.quantization.scale))
    hidden, inner, pieces = 32, 64, trained.config.vocab_size
    qkv, output = ((3 * hidden, hidden), 3 * hidden), ((hidden, hidden), hidden)
    assert sorted(kernels.values()) == sorted(
        [
            # The first layer follows another LayerNorm, whose factors the converter puts inside.
            *(qkv, qkv),
            # The last layer, which asks for [CLS] alone, has queries apart.
            *(output, ((2 * hidden, hidden), 2 * hidden)),
            *(output, ((inner, hidden), inner), ((hidden, inner), hidden)),
            output,  # the pooler
            ((pieces, 8), 1),  # rows are looked up, which has one scale
        ]
    )


def test_the_file_says_what_it_is(int8):
    _, folder = int8
    model = graph_of(folder)
    entries = {entry.name: model.buffers[entry.buffer].data for entry in model.metadata}
    about = json.loads(bytes(entries[b"albert"]))
    assert about == {
        "kind": "classifier",
        "labels": ["bad", "fine", "good"],
        "max_seq_length": LENGTH,
        "inputs": ["input_ids", "input_mask", "segment_ids"],
        "outputs": ["predictions", "probabilities"],
    }


def test_programs_without_signatures_go_by_the_order(int8):
    _, folder = int8
    found = interpreter.Interpreter(folder.model_file)
    places = [*found.get_input_details(), *found.get_output_details()]
    assert [(place["name"], place["shape"].tolist()) for place in places] == [
        *((name, [1, LENGTH]) for name in ("input_ids", "input_mask", "segment_ids")),
        *(("predictions", [1]), ("probabilities", [1, 3])),
    ]


def test_what_litert_cannot_do_is_refused(int8, tmp_path):
    trained, _ = int8
    run, out = trained.path, str(tmp_path / "out")
    with pytest.raises(file_io.InputError, match="format=litert .* precision=bfloat16"):
        serving_export.export(run, out, "litert", "bfloat16")
    with pytest.raises(file_io.InputError, match="format=litert .*takes no calibration_file"):
        serving_export.export(run, out, "litert", "int8", "texts.tsv", "dev.tsv")
    assert not list(tmp_path.iterdir())


def test_a_damaged_file_is_named(int8, tmp_path):
    _, folder = int8
    copy = dataclasses.replace(folder, path=str(tmp_path))
    file_io.write_text(copy.model_file, "no model")
    with pytest.raises(file_io.InputError, match=r"litert cannot load .*model\.tflite"):
        runtimes.load(copy)
