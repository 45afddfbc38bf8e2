"""Runtimes run the folders that are theirs, and say what is missing."""

import sys

import numpy as np
import pytest

from albert.export import onnx_export
from albert.io import file_io, manifests
from albert.serving import runtimes, serving_folder
from albert.tasks import glue
from albert.tasks.squad import task as squad_task
from tests.support import serving_samples

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


def write(folder, kind, precision="float32"):
    trained = serving_samples.trained_in(folder / "run", kind)
    path = str(folder / "out")
    with serving_folder.creating(path, trained, "onnx", precision) as made:
        onnx_export.write(made, onnx_export.Model(trained))
    return serving_folder.read(path)


def test_each_format_has_its_runtime(tmp_path):
    assert runtimes.supported_by("onnx", "float32")[0] == "onnxruntime"
    assert runtimes.supported_by("onnx", "bfloat16") == ["openvino"]
    assert runtimes.supported_by("onnx", "int8_bfloat16") == ["openvino"]
    folder = write(tmp_path, glue.KIND)
    given = serving_samples.features(glue.KIND, 3, 12)
    found = [
        runtimes.load(folder, runtime, threads)(given | {"unique_ids": np.zeros(3)})
        for runtime, threads in (("auto", None), ("onnxruntime", 1))
    ]
    for name in folder.outputs:
        np.testing.assert_allclose(found[0][name], found[1][name], atol=1e-6)
    with pytest.raises(file_io.InputError, match="runtime=litert: .* which onnxruntime or openv"):
        runtimes.load(folder, "litert")


def test_damaged_models_are_named(tmp_path):
    folder = write(tmp_path, glue.KIND)
    content = bytearray(file_io.read_bytes(folder.model_file, "model"))
    content[len(content) // 2] ^= 1
    file_io.write_bytes(folder.model_file, bytes(content))
    message = r"out/model\.onnx has changed since its export: .* has the SHA-256 .*export it again"
    for runtime in ("onnxruntime", "openvino"):
        pytest.importorskip(runtime)
        with pytest.raises(file_io.InputError, match=message):
            runtimes.load(folder, runtime)
    file_io.write_bytes(folder.model_file, bytes(content[:100]))
    with pytest.raises(file_io.InputError, match=r"model\.onnx has 100 bytes, "):
        runtimes.load(folder)
    file_io.remove(f"{folder.path}/{manifests.NAME}")
    with pytest.raises(file_io.InputError, match=r"onnxruntime cannot load .*model\.onnx: "):
        runtimes.load(folder)


def test_lengths_are_checked(tmp_path):
    folder = write(tmp_path, squad_task.V2)
    score = runtimes.load(folder, threads=1)
    longest = folder.model.config.max_position_embeddings

    def given(length):
        return serving_samples.features(squad_task.V2, 1, length)

    with pytest.raises(file_io.InputError, match=f"= {longest} tokens; got {longest + 1}"):
        score(given(longest + 1))
    with pytest.raises(file_io.InputError, match="at least 3 tokens, as the beams have; got 2"):
        score(given(2))
    assert score(given(3))["end_top_index"].shape == (1, 6)


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    folder = write(tmp_path, glue.KIND)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(file_io.InputError, match="runtime=onnxruntime needs onnxruntime: pip inst"):
        runtimes.load(folder)


@pytest.mark.parametrize("kind", serving_samples.KINDS)
def test_openvino_computes_the_same(tmp_path, kind):
    pytest.importorskip("openvino")
    folder = write(tmp_path, kind)
    given = serving_samples.features(kind, 3, 12)
    wanted = runtimes.load(folder, threads=1)(given)
    found = runtimes.load(folder, "openvino", threads=1)(given)
    serving_samples.assert_close(found, wanted, given, 1e-4)
