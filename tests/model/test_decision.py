"""A classifier's temperature: in its description, its outputs, and every copy of the model."""

import importlib.util
import json

import numpy as np
import pytest
import tensorflow as tf

from albert import run_classifier
from albert.cli import fine_tuning_settings
from albert.export import huggingface_export, serving_export
from albert.io import file_io
from albert.model import checkpoints, decision, heads, model_folder
from albert.serving import text_predictor
from tests.support import builders, command_lines

WARM = decision.Decision(temperature=2.5)
FEATURES = {"input_ids": np.int32([[2, 9, 8, 3], [2, 7, 5, 3]]), "label_ids": np.int32([2, 0])}
TEXTS = ["the old harbour", "bread"]


def model_with(chosen, seed=1):
    model = heads.ClassifierModel(builders.tiny_config(), 3, seed=seed, decision=chosen)
    model.output.bias.assign([0.3, -2.0, 1.5])  # equal logits would hide much
    return model


def folder_with(path, chosen):
    """A classifier of three labels with unequal logits."""
    builders.write_classifier(path, labels=("a", "b", "c"), decision=chosen)
    checkpoints.save(f"{path}/model.ckpt-best", model_with(chosen))
    return str(path)


def test_the_temperature_changes_probabilities_and_nothing_else():
    plain, warm = (model_with(chosen)(FEATURES) for chosen in (decision.PLAIN, WARM))
    for name in ("logits", "predictions", "per_example_loss"):
        np.testing.assert_array_equal(plain[name], warm[name])
    expected = tf.nn.softmax(plain["logits"] / 2.5)
    np.testing.assert_allclose(warm["probabilities"], expected, rtol=1e-6)
    np.testing.assert_array_equal(plain["probabilities"], tf.nn.softmax(plain["logits"]))


def test_settings():
    assert decision.PLAIN.settings == {}
    assert decision.Decision.from_settings({}) == decision.PLAIN
    assert WARM.settings == {"decision": {"temperature": 2.5}}
    assert decision.Decision.from_settings(WARM.settings) == WARM


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"temperature": 0}, "temperature=0 must be a finite number above 0"),
        ({"temperature": "1"}, "temperature='1' must be"),
        ({"temperature": float("inf")}, "temperature=inf must be"),
        ({"min_probability": None}, "min_probability=None must be a number from 0 to 1"),
        ({"max_error": 2}, "max_error=2 must be a number from 0 to 1"),
        ({"step": 1.5}, "step=1.5 must be a whole number"),
        ({"heat": 2}, "decision={'heat': 2} must be an object with the keys temperature"),
        (2.5, "decision=2.5 must be an object"),
    ],
)
def test_damaged_decisions_are_named(setting, message, tmp_path):
    with pytest.raises(file_io.InputError, match=message):
        decision.Decision.from_settings({"decision": setting})
    folder = builders.write_classifier(tmp_path / "run", decision=WARM)
    description = json.loads((tmp_path / "run" / "model.json").read_text())
    description["settings"]["decision"] = setting
    (tmp_path / "run" / "model.json").write_text(json.dumps(description))
    with pytest.raises(file_io.InputError, match=f"run/model.json: {message}"):
        text_predictor.TextPredictor(folder)


def test_every_copy_answers_alike(tmp_path):
    """ONNX has the temperature in its graph, a Hugging Face folder in its output layer."""
    folder = folder_with(tmp_path / "run", WARM)
    plain = folder_with(tmp_path / "plain", decision.PLAIN)
    assert model_folder.described_decision(folder) == WARM
    rows = [
        list(p.probabilities.values()) for p in text_predictor.TextPredictor(plain).predict(TEXTS)
    ]
    expected = tf.nn.softmax(np.log(rows) / 2.5)
    huggingface_export.export(folder, output_dir=str(tmp_path / "hf"))
    copies = [folder, tmp_path / "hf"]
    if importlib.util.find_spec("onnxruntime"):
        serving_export.export(folder, str(tmp_path / "onnx"), "onnx")
        copies.append(tmp_path / "onnx")
    for path in copies:
        found = [*text_predictor.TextPredictor(str(path)).predict(TEXTS)]
        rows = [list(one.probabilities.values()) for one in found]
        np.testing.assert_allclose(rows, expected, rtol=2e-5)


def test_a_decision_of_another_checkpoint_is_a_warning(tmp_path, caplog):
    """An evaluation may replace the best checkpoint, and another one may be chosen."""
    found = decision.Decision(2.5, min_probability=0.75, max_error=0.05, step=10)
    folder = builders.write_classifier(tmp_path / "run", step=10, decision=found)
    assert model_folder.described_decision(folder).step == 10
    with caplog.at_level("WARNING", "absl"):
        text_predictor.TextPredictor(folder)
        huggingface_export.export(folder, output_dir=str(tmp_path / "right"))
        assert "found with the" not in caplog.text
        checkpoints.copy(f"{folder}/model.ckpt-10", f"{folder}/model.ckpt-20")
        given = {"output_dir": str(tmp_path / "hf"), "checkpoint": f"{folder}/model.ckpt-20"}
        huggingface_export.export(**given)
        (warning,) = [text for text in caplog.messages if "found with the" in text]
        text_predictor.TextPredictor(folder)  # it takes the last
    assert warning == (
        f"{folder}/model.json: found with the checkpoint of step 10, not with model.ckpt-20 of "
        "step 20: temperature and abstention, so that more than 5.00% of its answers may be wrong; "
        "find them again with do_eval and calibrate, choose_thresholds or max_error"
    )
    assert caplog.messages.count(warning) == 2


def test_the_decision_of_a_run_is_that_of_its_folder(tmp_path, caplog):
    train = tmp_path / "train.csv"
    train.write_text("text,label\nx,a\ny,b\nz,c\n")
    folder = folder_with(tmp_path / "run", WARM)

    def found(output_dir, **given):
        values = command_lines.parse(
            run_classifier, output_dir=output_dir, task_name="custom", train_file=train, **given
        )
        settings = fine_tuning_settings.read(run_classifier.Settings, values)
        return run_classifier.find_decision(settings, run_classifier.find_task(settings))

    assert found(folder, do_eval=True) == WARM
    with caplog.at_level("WARNING", "absl"):
        assert found(folder, do_train=True) == decision.PLAIN  # of other weights
    assert "its calibration is dropped" in caplog.text
    assert found(tmp_path / "other", do_eval=True, init_checkpoint=folder) == WARM
    assert found(tmp_path / "new", do_train=True, init_checkpoint=folder).temperature == 1
