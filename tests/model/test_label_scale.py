"""The unit of a regression's labels: answers, losses, and output layers of other units."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from albert import export_checkpoints, run_classifier
from albert.cli import fine_tuning_settings
from albert.export import huggingface_export
from albert.io import file_io
from albert.model import checkpoints, heads, label_scale, model_folder
from albert.serving import text_predictor
from albert.tasks import metrics
from tests.support import builders, command_lines

MINUTES = label_scale.LabelScale(30.0, 14.5)
HOURS = label_scale.LabelScale(0.5, 0.25)
FEATURES = {"input_ids": np.int32([[2, 9, 8, 3], [2, 7, 5, 3]]), "label_ids": np.float32([89, 2])}
TEXTS = ["the old harbour", "bread"]


def model_in(scale, seed=1):
    model = heads.RegressionModel(builders.tiny_config(), seed=seed, scale=scale)
    model.output.bias.assign([0.3])  # 0 would hide much
    return model


def answers(model):
    return model(FEATURES)["predictions"].numpy()


def test_answers_are_in_the_unit_of_the_labels_and_losses_in_deviations():
    raw, model = model_in(label_scale.RAW), model_in(MINUTES)
    found = model(FEATURES)
    expected = 30 + 14.5 * raw(FEATURES)["logits"].numpy()
    for name in ("logits", "predictions"):
        np.testing.assert_allclose(found[name], expected, rtol=1e-6)
    np.testing.assert_allclose(found["probabilities"][:, 0], expected, rtol=1e-6)
    losses, gradients = [], []
    in_deviations = {**FEATURES, "label_ids": (FEATURES["label_ids"] - 30) / np.float32(14.5)}
    for each, features in ((model, FEATURES), (raw, in_deviations)):
        with tf.GradientTape() as tape:
            losses.append(each.loss(each(features), features))
        gradients.append(tape.gradient(losses[-1], each.output.weights))
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)
    np.testing.assert_allclose(*gradients, rtol=1e-4, atol=1e-6)


def test_the_scale_is_that_of_the_labels():
    assert label_scale.LabelScale.from_labels([2, 4, 9]) == label_scale.LabelScale(
        5, 26**0.5 / 3**0.5
    )
    assert label_scale.LabelScale.from_labels([7, 7]) == label_scale.LabelScale(7, 1)
    # The mean of seven times 3.3 is not 3.3.
    assert label_scale.LabelScale.from_labels([3.3] * 7).deviation == 1
    assert label_scale.LabelScale.from_settings(MINUTES.settings) == MINUTES
    assert label_scale.RAW.settings == {} and label_scale.LabelScale.from_settings({}).is_raw


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"label_mean": 5, "label_deviation": 0}, "label_deviation=0 must be above 0"),
        ({"label_mean": "5", "label_deviation": 1}, "label_mean='5' must be a finite number"),
        ({"label_mean": float("nan")}, "label_mean=nan must be a finite number"),
        ({"label_mean": 5, "label_deviation": True}, "label_deviation=True must be a finite"),
        ({"label_mean": 5}, "label_deviation=None must be a finite number"),
        ({"label_deviation": 2.0}, "label_mean=None must be a finite number"),
    ],
)
def test_damaged_scales_are_named(settings, message):
    with pytest.raises(file_io.InputError, match=message):
        label_scale.LabelScale.from_settings(settings)


def test_the_loss_of_the_best_constant_answer_is_in_deviations():
    evaluator = metrics.Evaluator((("MAE", metrics.mean_absolute_error),), deviation=2.0)
    labels, zeros = np.float32([0, 0, 9]), np.zeros(3, np.float32)
    rows = {"label_ids": labels, "is_real_example": zeros + 1}
    evaluator.update({**rows, "predictions": zeros, "per_example_loss": zeros})
    baseline = evaluator.baseline()
    assert baseline["MAE"] == 3  # of the median, 0; the mean, 3, has 4
    assert baseline["eval_loss"] == pytest.approx(18 / 4)


def test_a_regression_that_starts_from_another_begins_with_its_answers(tmp_path):
    builders.write_classifier(tmp_path / "run", labels=(), scale=MINUTES, seed=3)
    prefix = f"{tmp_path / 'run'}/model.ckpt-best"
    expected = answers(model_in_folder(prefix, MINUTES))
    for scale in (MINUTES, HOURS, label_scale.RAW):
        model = model_in(scale)
        run_classifier.keep_answers(model, checkpoints.restore(model, prefix))
        np.testing.assert_allclose(answers(model), expected, rtol=1e-5)


def model_in_folder(prefix, scale):
    model = model_in(scale)
    checkpoints.restore(model, prefix, allow_new_heads=False)
    return model


def test_copies_answer_in_the_unit_of_the_labels(tmp_path, run_script):
    """A Hugging Face folder has no place for the scale; a copied checkpoint has its description."""
    builders.write_classifier(tmp_path / "run", labels=(), scale=MINUTES, seed=3)
    expected = answers(model_in_folder(f"{tmp_path / 'run'}/model.ckpt-best", MINUTES))
    assert np.abs(expected - 30).max() < 14.5
    huggingface_export.export(str(tmp_path / "run"), output_dir=str(tmp_path / "hf"))
    run_script(
        export_checkpoints, albert_directory=tmp_path / "run", export_path=tmp_path / "copy/model"
    )
    for path, scale in ((tmp_path / "hf", label_scale.RAW), (tmp_path / "copy/model", MINUTES)):
        found = model_in_folder(str(path), scale)
        np.testing.assert_allclose(answers(found), expected, rtol=1e-5)
        model = model_in(HOURS)
        run_classifier.keep_answers(model, checkpoints.restore(model, str(path)))
        np.testing.assert_allclose(answers(model), expected, rtol=1e-5)


def test_folders_without_a_scale_answer_as_before(tmp_path):
    folder = builders.write_classifier(tmp_path / "early", labels=(), seed=3)
    assert not {"label_mean", "label_deviation"} & model_folder.described_settings(folder).keys()
    early = [found.prediction for found in text_predictor.TextPredictor(folder).predict(TEXTS)]
    folder = builders.write_classifier(tmp_path / "new", labels=(), seed=3, scale=MINUTES)
    new = [found.prediction for found in text_predictor.TextPredictor(folder).predict(TEXTS)]
    np.testing.assert_allclose(new, 30 + 14.5 * np.array(early), rtol=1e-5)
    broken = json.loads((tmp_path / "new" / "model.json").read_text())
    broken["settings"]["label_mean"] = "30"
    (tmp_path / "early" / "model.json").write_text(json.dumps(broken))
    with pytest.raises(file_io.InputError, match="early/model.json: label_mean='30' must be"):
        text_predictor.TextPredictor(str(tmp_path / "early"))
    assert dataclasses.astuple(model_folder.described_scale(folder)) == (30, 14.5)


def scale_of(folder, **given):
    """The scale that `run_classifier` takes for a regression on two rows, 10 and 40."""
    values = command_lines.parse(run_classifier, output_dir=folder, **given)
    settings = fine_tuning_settings.read(run_classifier.Settings, values)
    return run_classifier.find_scale(settings, run_classifier.find_task(settings))


def test_the_scale_of_a_run(tmp_path, caplog):
    train = tmp_path / "train.csv"
    train.write_text("text,label\na,10.5\nb,40.5\n")
    own = {"task_name": "custom", "train_file": train, "label_type": "regression"}
    new = {**own, "do_train": True}
    with caplog.at_level("INFO", "absl"):
        assert scale_of(tmp_path / "new", **new) == label_scale.LabelScale(25.5, 15)
    assert "2 labels of the train data: 10.5 to 40.5, mean 25.5, deviation 15" in caplog.text
    assert scale_of(tmp_path / "new", **new, standardize_labels=False).is_raw
    # A folder with weights keeps their scale: also an early one, which has none.
    folder = builders.write_classifier(tmp_path / "run", labels=(), scale=MINUTES)
    early = builders.write_classifier(tmp_path / "early", labels=())
    for resumes in (new, {**own, "do_eval": True}):
        assert scale_of(folder, **resumes) == MINUTES
        assert scale_of(early, **resumes).is_raw
    with pytest.raises(file_io.InputError, match="trained without --standardize_labels"):
        scale_of(early, **new, standardize_labels=True)
    # A model that is only evaluated brings its scale.
    evaluated = {**own, "do_eval": True, "init_checkpoint": folder}
    assert scale_of(tmp_path / "other", **evaluated) == MINUTES
    with pytest.raises(file_io.InputError, match="--standardize_labels: only for regressions"):
        train.write_text("text,label\na,x\nb,y\n")
        scale_of(tmp_path / "words", task_name="custom", train_file=train, standardize_labels=True)


def test_sts_b_is_trained_as_in_the_reference_unless_asked(tmp_path):
    (tmp_path / "STS-B").mkdir()
    rows = [[*"index", *"four", "score"], [*"01234", *"5678", "2"], [*"11234", *"5678", "4"]]
    (tmp_path / "STS-B" / "train.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    given = {"task_name": "STS-B", "data_dir": tmp_path, "do_train": True}
    assert scale_of(tmp_path / "out", **given).is_raw
    asked = scale_of(tmp_path / "out", **given, standardize_labels=True)
    assert asked == label_scale.LabelScale(3, 1)
