"""SQuAD 2.0 end to end; what it shares with 1.1 is tested in test_run_squad_v1.py."""

import json
import os
import shutil

import numpy as np
import pytest
import tensorflow as tf

from albert import run_squad_v2
from albert.data import input_pipeline
from albert.experiments import runs
from albert.experiments.predictions import read as read_predictions
from albert.io import file_io
from albert.model import checkpoints, model_folder
from albert.serving import trained_model
from albert.tasks.squad import null_threshold
from albert.tasks.squad import records as squad_records
from tests.support import builders, recorded_runs, squad_samples
from tests.support.builders import read_results
from tests.support.squad_samples import flags_for, read_json

BEAMS = ("start_top_log_probs", "start_top_index", "end_top_log_probs", "end_top_index")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("squad_v2")
    squad_samples.write_inputs(folder, version=2)
    return folder


@pytest.fixture(scope="module")
def trained(inputs, tmp_path_factory):
    """Output folder of a model that has learned its task, with answers and an export."""
    folder = tmp_path_factory.mktemp("trained_v2") / "out"
    builders.run(
        run_squad_v2,
        **flags_for(
            inputs, folder, do_train=True, do_predict=True, from_scratch=True,
            num_train_epochs=6, save_checkpoints_steps=100, export_dir=folder / "export",
        ),
    )  # fmt: skip
    return folder


@pytest.mark.slow
def test_a_model_learns_both_to_answer_and_not_to(trained):
    results = read_results(trained)
    # 800 questions / 16 * 6
    assert [int(block["global_step"]) for block in results] == [0, 100, 200, 300]
    scores = [float(block["f1"]) for block in results]
    best = results[int(np.argmax(scores))]
    assert scores[0] < 40 and max(scores) > 60
    assert float(best["HasAns_f1"]) > 50 and float(best["NoAns_f1"]) > 80
    assert {"exact", "f1", "total", "null_score_diff_threshold"} <= set(best)
    assert {"f1_at_0", "exact_at_0", "HasAns_f1_at_0", "NoAns_exact_at_0"} <= set(best)
    assert (best["total"], best["HasAns_total"], best["NoAns_total"]) == ("60", "48", "12")
    roles = ("configuration", "vocabulary", "train_data", "eval_data", "predict_data")
    recorded_runs.check_record(trained, "run_squad_v2", *roles)


@pytest.mark.slow
def test_the_files_are_those_of_the_reference(trained, golden):
    theirs = golden / "runs" / "squad_v2"
    recorded = (theirs / "eval_results.txt").read_text().split("=" * 50)[0].splitlines()
    keys = {line.split(" = ")[0] for line in recorded if " = " in line}
    assert "best f1" in keys and keys <= set(read_results(trained)[0])
    text = (trained / "eval_results.txt").read_text()
    assert text.splitlines()[-1].startswith("best perf happened at step: ")
    names = ("predictions.json", "nbest_predictions.json", "null_odds.json")
    predictions, nbest, odds = (read_json(trained / name) for name in names)
    assert list(predictions) == list(nbest) == list(odds)
    kept = read_predictions(runs.read_run(str(trained), "run"))
    best = max(read_results(trained), key=lambda block: float(block["f1"]))
    for name in ("f1", "exact"):
        assert kept.metrics[name].value == pytest.approx(float(best[name]))
        values = [row["numbers"][name] for row in builders.read_examples(trained)]
        assert np.mean(values) == pytest.approx(float(best[name]))
    assert {key for key, text in kept.answers.items() if text == "(no answer)"} == {
        key for key, text in predictions.items() if text == ""
    }
    threshold = read_json(trained / "null_score_diff_threshold.json")
    assert (threshold["predict_file"], threshold["num_questions"]) == ("dev.json", 60)
    for key, text in predictions.items():
        answered = odds[key] < threshold["null_score_diff_threshold"]
        assert text == (nbest[key][0]["text"] if answered else "")
    keys = ("text", "probability", "start_log_prob", "end_log_prob")
    assert {tuple(answer) for found in nbest.values() for answer in found} == {keys}
    assert sum(text == "" for text in predictions.values()) > 5


@pytest.mark.slow
def test_a_file_without_answers_uses_the_threshold_of_the_model(trained, inputs, run_script):
    path = trained / "null_score_diff_threshold.json"
    before = path.read_text()
    results = (trained / "eval_results.txt").read_text()
    for threshold, answered in ((1e9, 15), (-1e9, 0)):
        content = {**read_json(path), "null_score_diff_threshold": threshold}
        file_io.write_json(str(path), content)
        run_script(
            run_squad_v2,
            **flags_for(
                inputs, trained, train_file=None, do_predict=True, albert_config_file=None,
                spm_model_file=None, predict_file=inputs / "test.json",
            ),
        )  # fmt: skip
        predictions = read_json(trained / "predictions.json")
        assert sum(bool(text) for text in predictions.values()) == answered
        assert len(predictions) == 15
        assert read_json(path) == content
    assert (trained / "eval_results.txt").read_text() == results
    path.write_text(before)


@pytest.mark.slow
def test_a_checkpoint_of_another_folder_keeps_threshold_and_results(
    trained, inputs, tmp_path, run_script
):
    names = ("null_score_diff_threshold.json", "eval_results.txt", "best_trial.txt")
    before = [(trained / name).read_bytes() for name in names]
    other = shutil.copytree(trained, tmp_path / "other")
    run_script(
        run_squad_v2,
        **flags_for(
            inputs, trained, train_file=None, do_predict=True, albert_config_file=None,
            spm_model_file=None, checkpoint=other / "model.ckpt-0",
        ),
    )  # fmt: skip
    assert [(trained / name).read_bytes() for name in names] == before


@pytest.mark.slow
def test_thresholds_that_do_not_fit_are_reported(trained, tmp_path, caplog):
    prefix = str(trained / "model.ckpt-best")
    with caplog.at_level("WARNING", logger="absl"):
        null_threshold.write(str(trained), -0.5, str(trained / "model.ckpt-100"), "d.json")
        assert null_threshold.read(prefix) == -0.5
    if checkpoints.read_step(prefix) != 100:
        assert "was found with the checkpoint of step 100, not with" in caplog.text
    null_threshold.write(str(trained), -0.25, prefix, "d.json")
    caplog.clear()
    with caplog.at_level("WARNING", logger="absl"):
        assert null_threshold.read(prefix) == -0.25
    assert not caplog.text
    with caplog.at_level("WARNING", logger="absl"):
        assert null_threshold.read(str(tmp_path / "model.ckpt-1")) == 0.0
    assert "using the threshold 0" in caplog.text
    for content, message in (
        ("{}", "there is no 'null_score_diff_threshold'"),
        (f'{{"null_score_diff_threshold": {"9" * 400}, "step": 1}}', "400 digits: too large"),
        ('{"null_score_diff_threshold": NaN, "step": 1}', "threshold is nan, not a number"),
    ):
        (trained / "null_score_diff_threshold.json").write_text(content)
        with pytest.raises(file_io.InputError, match=message):
            null_threshold.read(prefix)


def test_the_threshold_of_an_exported_checkpoint_is_its_own(tmp_path, caplog):
    """Exports have no step."""
    prefix, data = str(tmp_path / "model.ckpt-best"), tmp_path / "few.json"
    checkpoints.write_tensors(prefix, {"weights": np.zeros(2, np.float32)})
    data.write_text("{}")
    content = {"null_score_diff_threshold": -1.5, "step": 21, "num_questions": 39, "sha256": "0"}
    (tmp_path / null_threshold.FILE_NAME).write_text(json.dumps(content))
    with caplog.at_level("WARNING", logger="absl"):
        assert null_threshold.read(prefix) == -1.5
    assert not caplog.text
    null_threshold.update(str(tmp_path), 2.0, prefix, str(data), 3)  # fewer questions
    assert null_threshold.read(prefix) == -1.5
    null_threshold.update(str(tmp_path), 2.0, prefix, str(data), 40)
    assert null_threshold.read(prefix) == 2.0
    assert null_threshold.read_file(str(tmp_path))["step"] is None


@pytest.mark.slow
def test_the_saved_model_computes_the_beams(trained):
    specs = squad_records.feature_specs(64, is_training=False)
    path = str(trained / "squad_v2_predict.tf_record")
    features = input_pipeline.parse(specs, tf.stack(list(tf.data.TFRecordDataset(path).take(5))))
    null_threshold.write(str(trained), 0.0, str(trained / "model.ckpt-best"), "d.json")
    outputs = trained_model.restored_model(model_folder.read(str(trained)))(features)
    (folder,) = (trained / "export" / "saved_model").iterdir()
    serve = tf.saved_model.load(str(folder)).signatures["serving_default"]
    found = serve(**{name: features[name] for name in ("input_ids", "input_mask", "segment_ids")})
    assert set(found) == {*BEAMS, "cls_logits"}
    for name, value in found.items():
        np.testing.assert_allclose(value, outputs[name], atol=1e-4)
    assert os.listdir(trained / "export") == ["saved_model"]


@pytest.mark.slow
def test_beams_wider_than_the_shortest_batches(inputs, tmp_path, run_script):
    """Batches are then left at their full length."""
    flags = flags_for(
        inputs, tmp_path, do_train=True, do_predict=True, from_scratch=True, start_n_top=50,
        end_n_top=60, save_checkpoints_steps=100,
    )  # fmt: skip
    run_script(run_squad_v2, **flags)
    assert [block["global_step"] for block in read_results(tmp_path)] == ["0", "12"]
    assert len(read_json(tmp_path / "predictions.json")) == 60


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"start_n_top": 0}, "--start_n_top=0 must be at least 1"),
        ({"end_n_top": 65}, "--end_n_top=65 must be at most --max_seq_length=64"),
        ({"dropout_prob": 1}, "--dropout_prob=1.0 must be a fraction"),
    ],
)
def test_mistakes_are_named(inputs, tmp_path, run_script, changes, message):
    with pytest.raises(file_io.InputError, match=message):
        run_script(run_squad_v2, **flags_for(inputs, tmp_path, do_predict=True, **changes))


@pytest.mark.slow
def test_a_model_of_the_other_version_is_refused(trained, inputs, run_script):
    from albert import run_squad_v1

    for changes in ({"albert_config_file": None}, {}):
        flags = flags_for(inputs, trained, do_predict=True, **changes)
        with pytest.raises(file_io.InputError, match="of kind squad_v2; expected squad_v1"):
            run_script(run_squad_v1, **flags)
