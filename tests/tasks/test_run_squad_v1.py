"""SQuAD 1.1 end to end on the demo's questions, cut to a small number."""

import json
import os
import shutil
import subprocess

import numpy as np
import pytest
import tensorflow as tf

from albert import run_squad_v1
from albert.data import input_pipeline
from albert.experiments import runs
from albert.experiments.predictions import read as read_predictions
from albert.export import saved_model_export
from albert.io import file_io
from albert.model import checkpoints, model_folder
from albert.serving import example_requests, requests, trained_model
from albert.tasks.squad import features as squad_features
from albert.tasks.squad import records as squad_records
from tests.support import (
    builders,
    forked,
    processes,
    recorded_runs,
    reference_folder,
    squad_samples,
)
from tests.support.builders import read_results
from tests.support.squad_samples import flags_for, read_json

TWO_CPUS = """
import sys
import tensorflow as tf
from albert import run_squad_v1
from tests.support import builders
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
builders.run(run_squad_v1, **dict(a.removeprefix("--").split("=", 1) for a in sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("squad_v1")
    squad_samples.write_inputs(folder, version=1)
    return folder


def training_flags(inputs, folder):
    return flags_for(
        inputs, folder, do_train=True, do_predict=True, from_scratch=True, num_train_epochs=6,
        save_checkpoints_steps=80, keep_checkpoint_max=2,
    )  # fmt: skip


@pytest.fixture(scope="module")
def trained(inputs, tmp_path_factory):
    """Output folder of a model that has learned its task, with answers and an export."""
    folder = tmp_path_factory.mktemp("trained_v1") / "out"
    flags = training_flags(inputs, folder)
    builders.run(run_squad_v1, **flags, export_dir=folder / "export")
    return folder


@pytest.mark.slow
def test_a_model_learns_and_the_best_is_kept(trained):
    results = read_results(trained)
    # 640 questions / 16 * 6
    assert [int(block["global_step"]) for block in results] == [0, 80, 160, 240]
    scores = [float(block["f1"]) for block in results]
    assert scores[0] < 30 and max(scores) > 60
    best = int(np.argmax(scores))
    assert (trained / "best_trial.txt").read_text().startswith(f"240:{best * 80}:")
    kept = [os.path.basename(prefix) for prefix in checkpoints.numbered(str(trained))]
    assert kept == ["model.ckpt-160", "model.ckpt-240"]
    assert checkpoints.read_step(str(trained / "model.ckpt-best")) == best * 80
    roles = ("configuration", "vocabulary", "train_data", "eval_data", "predict_data")
    recorded_runs.check_record(trained, "run_squad_v1", *roles)


def test_the_files_are_those_of_the_reference(trained, golden, inputs):
    theirs = golden / "runs" / "squad_v1"
    recorded = (theirs / "eval_results.txt").read_text().split("=" * 50)
    keys = {line.split(" = ")[0] for line in recorded[0].splitlines() if " = " in line}
    places = {"start_accuracy", "end_accuracy", "eval_loss"}
    results = read_results(trained)
    assert set(results[0]) == keys | places | {"global_step"} and "best f1" in keys
    *scores, last = (trained / "eval_results.txt").read_text().split("=" * 50)[-1].splitlines()[1:]
    best = max(results, key=lambda block: float(block["f1"]))
    assert last == f"best perf happened at step: {best['global_step']}"
    assert last.rpartition(" ")[0] == recorded[-1].splitlines()[-1].rpartition(" ")[0]
    assert dict(line.split(" = ") for line in scores).items() <= best.items()
    assert keys - {"best f1"} <= {line.split(" = ")[0] for line in scores}
    ids = [
        q["id"] for p in read_json(inputs / "dev.json")["data"][0]["paragraphs"] for q in p["qas"]
    ]
    predictions, nbest = (
        read_json(trained / name) for name in ("predictions.json", "nbest_predictions.json")
    )
    assert list(predictions) == list(nbest) == ids
    kept = read_predictions(runs.read_run(str(trained), "run"))
    for name in ("f1", "exact_match"):
        assert kept.metrics[name].value == pytest.approx(float(best[name]))
    assert dict(kept.answers) == predictions and list(kept.texts) == ids
    for key, answers in nbest.items():
        assert answers[0]["text"] == predictions[key]
        assert 1 <= len(answers) <= 20
        assert sum(answer["probability"] for answer in answers) == pytest.approx(1)
    keys = ("text", "probability", "start_log_prob", "end_log_prob")
    assert {tuple(answer) for found in nbest.values() for answer in found} == {keys}
    assert not (trained / "null_odds.json").exists()
    names = {"squad_v1_train.tf_record", "squad_v1_predict.tf_record"}
    assert names | {"squad_v1_predict_features.json", "model.json"} <= set(os.listdir(trained))
    assert len(example_requests.read(str(trained), requests.QUESTION)) == 3


@pytest.mark.slow
def test_the_best_of_the_reference_is_not_lost(trained, inputs, tmp_path, run_script):
    folder = tmp_path / "out"
    later = flags_for(inputs, folder, train_file=None, do_predict=True, checkpoint="all")
    flags = flags_for(inputs, folder, do_train=True, do_predict=True, num_train_epochs=0.025)

    def run(do_train):
        return run_script(run_squad_v1, **(flags if do_train else later))

    reference_folder.check_best_survives(trained, folder, run)


@pytest.mark.slow
def test_the_predictions_are_those_of_the_best(trained, inputs, tmp_path, run_script, caplog):
    """Prediction alone: no training file, other files of features, scores of the one used."""
    predictions = (trained / "predictions.json").read_text()
    results, best = (trained / "eval_results.txt").read_text(), read_results(trained)[-1]["best f1"]
    flags = flags_for(
        inputs, trained, train_file=None, do_predict=True, albert_config_file=None,
        spm_model_file=None, predict_feature_file=tmp_path / "a" / "p.tf_record",
        predict_feature_left_file=tmp_path / "b" / "left.json",
    )  # fmt: skip
    with caplog.at_level("INFO", logger="absl"):
        run_script(run_squad_v1, **flags)
    assert (trained / "predictions.json").read_text() == predictions
    (shown,) = [r.getMessage() for r in caplog.records if "***** Eval results" in r.getMessage()]
    assert f"  f1 = {best}" in shown.splitlines()
    assert (tmp_path / "a" / "p.tf_record").exists() and (tmp_path / "b" / "left.json").exists()
    run_script(run_squad_v1, **flags, checkpoint="last")
    # The scores of the other checkpoints stay; those of this one were known.
    assert (trained / "eval_results.txt").read_text() == results
    (trained / "predictions.json").write_text(predictions)


def test_a_file_without_answers_gives_predictions_alone(trained, inputs, run_script):
    names = ("eval_results.txt", "predictions.json", "nbest_predictions.json")
    before = {name: (trained / name).read_text() for name in names}
    run_script(
        run_squad_v1,
        **flags_for(inputs, trained, do_predict=True, predict_file=inputs / "test.json"),
    )
    assert (trained / "eval_results.txt").read_text() == before["eval_results.txt"]
    predictions = read_json(trained / "predictions.json")
    assert len(predictions) == 12
    assert all(predictions.values())
    for name, text in before.items():
        (trained / name).write_text(text)


@pytest.mark.slow
def test_two_mirrored_devices_answer_as_one(trained, inputs):
    """Their batches have different lengths, and rows of all are put together."""
    names = ("predictions.json", "nbest_predictions.json", "eval_results.txt")
    before = {name: (trained / name).read_text() for name in names}
    flags = flags_for(
        inputs, trained, train_file=None, do_predict=True, distribution_strategy="mirrored"
    )
    arguments = [f"--{name}={value}" for name, value in flags.items()]
    subprocess.run([forked.python(), "-c", TWO_CPUS, *arguments], check=True, timeout=300)
    assert (trained / names[0]).read_text() == before[names[0]]
    for key, answers in json.loads(before[names[1]]).items():
        found = [answer["probability"] for answer in read_json(trained / names[1])[key]]
        assert found == pytest.approx([answer["probability"] for answer in answers], abs=1e-4)
    for name, text in before.items():
        (trained / name).write_text(text)


def test_the_same_command_again_is_harmless(trained, inputs, run_script):
    names = ("eval_results.txt", "predictions.json", "best_trial.txt", "model.json")
    before = {name: (trained / name).read_text() for name in names}
    features = (trained / "squad_v1_train.tf_record").stat().st_mtime_ns
    run_script(run_squad_v1, **training_flags(inputs, trained))
    assert {name: (trained / name).read_text() for name in names} == before
    assert (trained / "squad_v1_train.tf_record").stat().st_mtime_ns == features


@pytest.mark.slow
def test_all_checkpoints_can_be_scored_later(inputs, tmp_path, run_script):
    flags = flags_for(inputs, tmp_path, do_train=True, from_scratch=True, save_checkpoints_steps=2)
    run_script(run_squad_v1, **flags)
    assert not (tmp_path / "eval_results.txt").exists()
    later = flags_for(inputs, tmp_path, train_file=None, do_predict=True)
    run_script(run_squad_v1, **later)  # Nothing says yet which is the best.
    steps = [str(step) for step in range(0, 11, 2)]
    assert [block["global_step"] for block in read_results(tmp_path)] == steps
    later["checkpoint"] = "all"
    run_script(run_squad_v1, **later)
    assert [block["global_step"] for block in read_results(tmp_path)] == steps
    assert (tmp_path / "model.ckpt-best.index").exists()
    assert (tmp_path / "predictions.json").exists()
    with pytest.raises(file_io.InputError, match=r"the answers of .*test\.json are not known"):
        run_script(run_squad_v1, **{**later, "predict_file": inputs / "test.json"})


# --- export -------------------------------------------------------------------------------------


def first_windows(trained, count):
    """Inputs [count, 64] of the first windows and what the Python model makes of them."""
    specs = squad_records.feature_specs(64, is_training=False)
    path = str(trained / "squad_v1_predict.tf_record")
    serialized = list(tf.data.TFRecordDataset(path).take(count))
    features = input_pipeline.parse(specs, tf.stack(serialized))
    outputs = trained_model.restored_model(model_folder.read(str(trained)))(features)
    names = ("input_ids", "input_mask", "segment_ids")
    return {name: features[name] for name in names}, outputs


def test_the_saved_model_computes_the_logits(trained):
    inputs, outputs = first_windows(trained, 5)
    (folder,) = (trained / "export" / "saved_model").iterdir()
    assert folder.name.isdigit()
    serve = tf.saved_model.load(str(folder)).signatures["serving_default"]
    assert {
        name: spec.dtype for name, spec in serve.structured_input_signature[1].items()
    } == dict.fromkeys(inputs, tf.int32)
    names = {"start_log_prob": "start_logits", "end_log_prob": "end_logits"}
    names |= {name: name for name in names.values()}
    for size, length in ((5, 64), (2, 48)):
        found = serve(**{name: value[:size, :length] for name, value in inputs.items()})
        assert set(found) == set(names)
        for name, value in found.items():
            np.testing.assert_allclose(value, outputs[names[name]][:size, :length], atol=1e-4)


def test_the_tflite_model_computes_the_logits(trained):
    inputs, outputs = first_windows(trained, 3)
    interpreter = tf.lite.Interpreter(str(trained / "export" / "albert_model.tflite"))
    places = [*interpreter.get_input_details(), *interpreter.get_output_details()]
    assert [(place["name"], place["dtype"], place["shape"].tolist()) for place in places] == [
        *((name, np.int32, [1, 64]) for name in ("input_ids", "input_mask", "segment_ids")),
        *((name, np.float32, [1, 64]) for name in ("end_logits", "start_logits")),
    ]
    # Programs that know no signatures go by the order.
    interpreter.allocate_tensors()
    for place, value in zip(places[:3], inputs.values(), strict=True):
        interpreter.set_tensor(place["index"], value[:1])
    interpreter.invoke()
    for place in places[3:]:
        found = interpreter.get_tensor(place["index"])
        np.testing.assert_allclose(found, outputs[place["name"]][:1], atol=1e-4)
    runner = interpreter.get_signature_runner()
    for row in range(3):
        found = runner(**{name: value[row : row + 1] for name, value in inputs.items()})
        assert set(found) == {"start_logits", "end_logits"}
        for name, value in found.items():
            np.testing.assert_allclose(value, outputs[name][row : row + 1], atol=1e-4)


def test_the_mask_of_answers_follows_from_the_inputs():
    windows = [
        squad_features.SquadFeatures(0, "q", 0, 0, 12, [2, *ids, 3], begin, (0, 0), starts, starts)
        for ids, begin, starts in (
            ([9, 9, 3, 7, 7, 7], 4, np.zeros(3)),
            ([9, 3, *[7] * 8], 3, np.zeros(8)),
            ([3], 2, np.zeros(0)),
        )
    ]
    for window in windows:
        mask, segments = (np.int32([x]) for x in (window.input_mask, window.segment_ids))
        found = saved_model_export.answer_mask(tf.constant(mask), tf.constant(segments))
        assert found.numpy()[0].tolist() == window.p_mask


@pytest.mark.parametrize(("which", "name"), [(None, "best"), ("last", "240")])
def test_the_best_is_exported_unless_the_last_is_asked_for(
    trained, inputs, tmp_path, run_script, monkeypatch, which, name
):
    """The one whose answers and scores the run has written; the reference exports the last."""
    used = []

    def note(task, config, prefix, **_):
        used.append(os.path.basename(prefix))
        raise file_io.InputError("enough seen")

    monkeypatch.setattr(saved_model_export, "model_to_serve", note)
    flags = flags_for(
        inputs, trained, train_file=None, predict_file=None, export_dir=tmp_path, checkpoint=which
    )
    with pytest.raises(file_io.InputError, match="enough seen"):
        run_script(run_squad_v1, **flags)
    assert used == [f"model.ckpt-{name}"]


@pytest.mark.slow
def test_a_second_export_is_a_second_version(trained, inputs, tmp_path, run_script):
    flags = flags_for(
        inputs, trained, train_file=None, predict_file=None, export_dir=tmp_path / "export"
    )
    shutil.copytree(trained / "export", tmp_path / "export")
    run_script(run_squad_v1, **flags)
    for folder, count in ((trained, 1), (tmp_path, 2)):
        assert sorted(os.listdir(folder / "export")) == ["albert_model.tflite", "saved_model"]
        assert len(os.listdir(folder / "export" / "saved_model")) == count


# --- mistakes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "nothing to do: none of --do_train, --do_predict, --export_dir"),
        ({"do_train": True, "train_file": None}, "--do_train needs --train_file"),
        ({"do_predict": True, "predict_file": None}, "--do_predict needs --predict_file"),
        ({"do_train": True}, "no weights to start from"),
        (
            {"do_train": True, "max_query_length": 62},
            r"max_seq_length must be greater than .*max_query_length \+ 3.*got 64 and 62",
        ),
        ({"do_train": True, "doc_stride": 0}, "doc_stride must be at least 1"),
        (
            {"do_train": True, "max_seq_length": 128},
            "--max_seq_length=128 is above the model's max_position_embeddings of 64",
        ),
        (
            {"do_train": True, "warmup_proportion": 2},
            "--warmup_proportion=2.0 must be between 0 and 1",
        ),
        (
            {"do_train": True, "from_scratch": True, "num_train_epochs": 0.01},
            "640 questions, --train_batch_size=16 and --num_train_epochs=0.01 give no training",
        ),
        ({"do_predict": True, "n_best_size": 0}, "--n_best_size=0 must be at least 1"),
        ({"do_train": True, "checkpoint": "all"}, "--checkpoint=all is for --do_predict alone"),
        ({"do_predict": True, "eval_wait_secs": 5}, "--eval_wait_secs is for --do_predict"),
        ({"do_predict": True}, "there is no checkpoint in .*; train first"),
        (
            {"do_predict": True, "albert_config_file": None},
            r"has no model\.json: expected the --output_dir of a fine-tuning run",
        ),
    ],
)
def test_mistakes_are_named(inputs, tmp_path, run_script, changes, message):
    with pytest.raises(file_io.InputError, match=message):
        run_script(run_squad_v1, **flags_for(inputs, tmp_path, **changes))


def _no_brace(data):
    return '{"data": [\n  {"paragraphs": ]}'


def _two_answers(data):
    question = data["data"][0]["paragraphs"][1]["qas"][2]
    question["answers"].append({"text": "The", "answer_start": 0})


def _misplaced_answer(data):
    data["data"][0]["paragraphs"][1]["qas"][2]["answers"][0]["answer_start"] += 1


def _empty_contexts(data):
    for paragraph in data["data"][0]["paragraphs"]:
        paragraph["context"] = " "
        for question in paragraph["qas"]:
            question["answers"] = [{"text": " ", "answer_start": 0}]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_no_brace, r"bad\.json is not valid JSON: .* \(line 2, column 18\)"),
        (_two_answers, r"bad\.json: question '1-where' has 2 different answers; for training"),
        (_misplaced_answer, r"answer of question '1-where' is '\w+', but at character \d+ the"),
        (
            _empty_contexts,
            "640 of 640 questions cannot be used: 640 because the paragraph has no text, such as",
        ),
    ],
)
def test_bad_training_files_are_named(inputs, tmp_path, run_script, damage, message):
    data = read_json(inputs / "train.json")
    text = damage(data)
    path = tmp_path / "bad.json"
    if text is None:
        file_io.write_json(str(path), data)
    else:
        path.write_text(text)
    flags = flags_for(inputs, tmp_path, train_file=path, do_train=True, from_scratch=True)
    with pytest.raises(file_io.InputError, match=message):
        run_script(run_squad_v1, **flags)
    assert not list(tmp_path.glob("model*")) and not list(tmp_path.glob("*.tf_record"))


@pytest.mark.slow
def test_the_command_line(inputs, tmp_path):
    """A mistake in a file is one line and status 1."""
    (tmp_path / "bad.json").write_text("{]")
    flags = flags_for(
        inputs, tmp_path, train_file=tmp_path / "bad.json", do_train=True, from_scratch=True
    )
    result = processes.run(
        [forked.python(), "-m", "albert.run_squad_v1", *(f"--{k}={v}" for k, v in flags.items())]
    )
    assert result.returncode == 1
    assert "bad.json is not valid JSON" in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr
