"""Models of several labels per text in every exported form: the same probabilities and labels."""

import json

import numpy as np
import pytest
import tensorflow as tf

from albert.export import huggingface_export, saved_model_export, serving_export
from albert.model import checkpoints, decision, head_config, layers
from albert.serving import predictors
from albert.tasks import kinds, label_sets
from tests.support import builders

TEXTS = ["the bread was fine .", "the cake and the soup were cheap .", "the house ."]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A model whose thresholds lie between the probabilities of texts."""
    folder = tmp_path_factory.mktemp("export")
    warm = decision.Decision(2.0)
    plain = predictors.load(builders.write_multi_label(folder / "plain", decision=warm))
    rows = np.array([[*row.probabilities.values()] for row in plain.predict(TEXTS)])
    thresholds = tuple(((rows.min(axis=0) + rows.max(axis=0)) / 2).tolist())
    chosen = decision.Decision(2.0, thresholds=thresholds)
    return builders.write_multi_label(folder / "trained", decision=chosen)


def compare(folder, expected, tolerance=1e-4):
    for one, other in zip(expected, predictors.load(folder).predict(TEXTS), strict=True):
        assert one.prediction == other.prediction
        for name, value in one.probabilities.items():
            assert other.probabilities[name] == pytest.approx(value, abs=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["onnx", "saved_model", "litert"])
def test_exported_models_decide_alike(trained, tmp_path, form):
    for package in {"onnx": ["onnx", "onnxruntime"], "litert": ["ai_edge_litert"]}.get(form, []):
        pytest.importorskip(package)
    expected = list(predictors.load(trained).predict(TEXTS))
    assert len({row.prediction for row in expected}) > 1
    serving_export.export(trained, str(tmp_path / form), form)
    compare(str(tmp_path / form), expected)


@pytest.mark.slow
def test_int8_models_are_compared_by_decision(trained, tmp_path):
    pytest.importorskip("onnxruntime")
    rows = [json.dumps({"text": text, "label": ["fine"]}) for text in TEXTS * 8]
    (tmp_path / "dev.jsonl").write_text("\n".join(rows))
    files = [str(tmp_path / "dev.jsonl")] * 2
    serving_export.export(trained, str(tmp_path / "int8"), "onnx", "int8", *files, 0.0, 100.0)
    measured = (tmp_path / "int8" / "serving.json").read_text()
    assert '"answers": 72' in measured and '"metric": "micro_f1"' in measured


@pytest.mark.slow
def test_a_text_server_gives_members_and_names(trained):
    pytest.importorskip("tensorflow_text")
    folder = kinds.read_folder(trained)
    predictor = predictors.load(trained)
    model = kinds.KINDS[folder.kind].build(folder, layers.Compute(), head_config.NO_LAYER)
    checkpoints.restore(model, f"{trained}/model.ckpt-best")
    server = saved_model_export.TextServer(model, predictor.tokenizer, 32, builders.LABELS, False)
    found = server.serve(tf.constant(TEXTS))
    for row, bits in zip(predictor.predict(TEXTS), found["predictions"].numpy(), strict=True):
        assert [name in row.prediction for name in builders.LABELS] == bits.tolist()
    assert found["labels"].numpy()[2].tolist() == [name.encode() for name in builders.LABELS]
    assert "prediction" not in found


def test_hugging_face_folders_both_ways(trained, tmp_path):
    out = str(tmp_path / "hub")
    best = f"{trained}/model.ckpt-best"
    assert huggingface_export.export(checkpoint=best, output_dir=f"{out}2") == "multi_label"
    assert huggingface_export.export(trained, output_dir=out) == "multi_label"
    config = json.loads((tmp_path / "hub" / "config.json").read_text())
    assert config["problem_type"] == "multi_label_classification"
    assert config == json.loads((tmp_path / "hub2" / "config.json").read_text())
    assert config["id2label"] == {str(i): name for i, name in enumerate(builders.LABELS)}
    folder = kinds.read_folder(out)
    length = kinds.read_folder(trained).settings["max_seq_length"]
    assert folder.settings["max_seq_length"] == length < folder.config.max_position_embeddings
    assert folder.kind == label_sets.KIND and folder.settings["labels"] == [*builders.LABELS]
    # The temperature is in the weights.
    expected = [row.probabilities for row in predictors.load(trained).predict(TEXTS)]
    for row, other in zip(predictors.load(out).predict(TEXTS), expected, strict=True):
        np.testing.assert_allclose([*row.probabilities.values()], [*other.values()], atol=1e-5)
        assert row.prediction == tuple(name for name, x in other.items() if x >= 0.5)
