"""Runs on a frozen encoder from the command line: with a cache and without, resumed, predicted."""

import json
import os
import shutil

import numpy as np
import pytest

from albert import run_classifier, run_race, run_squad_v1, run_squad_v2
from albert.cli import fine_tuning
from albert.export import huggingface_export
from albert.io import file_io
from albert.model import checkpoints
from albert.serving import predictors
from albert.training import frozen_encoder
from tests.support import builders, forked, processes, squad_samples
from tests.support.squad_samples import flags_for, read_json

LAYER = {"head_hidden_size": 12, "head_input_activation": "relu"}
TWO_CPUS = """
import sys
import tensorflow as tf
from albert import run_squad_v1
from tests.support import builders
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
builders.run(run_squad_v1, **dict(a.removeprefix("--").split("=", 1) for a in sys.argv[1:]))
"""


def assert_close(one, other, atol=2e-5):
    """Two checkpoints have the same names and nearly the same values."""
    ours, theirs = builders.weights(one), builders.weights(other)
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        np.testing.assert_allclose(value, theirs[name], atol=atol, err_msg=name)


def last(folder):
    return checkpoints.numbered(str(folder))[-1]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    squad_samples.write_inputs(folder, version=2)
    return folder


def squad_flags(inputs, folder, **changes):
    values = {
        "do_train": True, "do_predict": True, "from_scratch": True, "num_train_epochs": 1,
        "save_checkpoints_steps": 10, "freeze_encoder": True, "answerable_only": True,
        "drop_longer_than": 50, "train_fraction": 0.5, "eval_fraction": 0.5,
    }  # fmt: skip
    return flags_for(inputs, folder, **{**values, **LAYER, **changes})


@pytest.fixture(scope="module")
def study(inputs, tmp_path_factory):
    """Output folders of a run of SQuAD 1.1 with the cache and of one without."""
    root = tmp_path_factory.mktemp("study")
    for name in ("cached", "plain"):
        flags = squad_flags(inputs, root / name, cache_encoder_outputs=name == "cached")
        builders.run(run_squad_v1, **flags, export_dir=root / name / "export")
    return root


@pytest.mark.slow
def test_results_do_not_depend_on_the_cache(study):
    results = {name: builders.read_results(study / name) for name in ("cached", "plain")}
    assert [block["global_step"] for block in results["plain"]] == ["0", "10", "19"]
    for ours, theirs in zip(*results.values(), strict=True):
        assert ours.keys() == theirs.keys()
        for name, value in ours.items():
            assert float(value) == pytest.approx(float(theirs[name]), rel=1e-4), name
    names = {"start_accuracy", "end_accuracy", "loss"}
    assert {f"train_{name}" for name in names} <= set(results["cached"][-1])
    assert {"start_accuracy", "end_accuracy", "eval_loss"} <= set(results["cached"][0])
    assert_close(last(study / "cached"), last(study / "plain"))
    predictions = [read_json(study / name / "predictions.json") for name in results]
    # 60 questions; 48 have an answer, 44 of them fit, half of which are asked.
    assert predictions[0] == predictions[1] and len(predictions[0]) == 22


@pytest.mark.slow
def test_checkpoints_hold_the_whole_model_and_no_slots_of_the_encoder(study):
    found = builders.weights(last(study / "cached"))
    first = builders.weights(study / "cached" / "model.ckpt-0")
    encoder = {name for name in found if name.startswith("bert/")}
    assert encoder and not [name for name in encoder if "adam" in name]
    for name in encoder:
        np.testing.assert_array_equal(found[name], first[name])
    assert "head_hidden/kernel/adam_m" in found


@pytest.mark.slow
def test_the_manifest_says_what_is_in_the_cache(study):
    (folder,) = (study / "cached" / fine_tuning.CACHE_FOLDER).iterdir()
    manifest = file_io.read_json(str(folder / frozen_encoder.MANIFEST), "manifest")
    entries = {entry["file"]: entry for entry in manifest["data"].values()}
    train = entries["squad_v1_train.tf_record"]
    assert train["num_examples"] == 308
    assert train["settings"]["train_fraction"] == 0.5 and train["settings"]["answerable_only"]
    assert {"weights_sha256", "config", "dtype", "output"} <= set(manifest["settings"])


@pytest.mark.slow
def test_the_head_is_used_by_all_that_uses_the_folder(study, inputs, tmp_path):
    folder = str(study / "cached")
    examples = read_json(inputs / "dev.json")["data"][0]["paragraphs"][0]
    answerer = predictors.Answerer(folder)
    reply = answerer.ask(examples["qas"][0]["question"], examples["context"])
    assert reply.answers
    # Prediction finds the head in the folder.
    flags = squad_flags(
        inputs, folder, do_train=None, freeze_encoder=None, train_file=None, from_scratch=None,
        train_fraction=None, albert_config_file=None, spm_model_file=None, head_hidden_size=None,
        head_input_activation=None,
    )  # fmt: skip
    before = (study / "cached" / "predictions.json").read_text()
    builders.run(run_squad_v1, **flags)
    assert (study / "cached" / "predictions.json").read_text() == before
    assert (study / "cached" / "export" / "albert_model.tflite").exists()
    with pytest.raises(file_io.InputError, match="layer before its output layer"):
        huggingface_export.export(folder, output_dir=str(tmp_path / "hf"))
    flags = squad_flags(inputs, folder, head_hidden_size=13)
    with pytest.raises(file_io.InputError, match="holds a run with --head_hidden_size=12"):
        builders.run(run_squad_v1, **flags)
    flags = squad_flags(inputs, folder, freeze_encoder=None)
    with pytest.raises(file_io.InputError, match="its encoder was frozen"):
        builders.run(run_squad_v1, **flags)


@pytest.mark.slow
def test_an_interrupted_run_goes_on_from_its_cache(study, inputs, tmp_path, caplog):
    """The second half of the steps, with the cache of another run, which has all texts."""
    shared = {"cache_encoder_outputs": True, "encoder_cache_dir": study / "cached/encoder_cache"}
    folder = tmp_path / "out"
    shutil.copytree(study / "plain", folder)
    checkpoints.delete(str(folder / "model.ckpt-19"))
    with caplog.at_level("INFO", logger="absl"):
        builders.run(run_squad_v1, **squad_flags(inputs, folder, **shared))
    assert "Using the encoder's outputs in" in caplog.text
    assert "texts need" not in caplog.text
    assert_close(last(folder), last(study / "plain"))
    # A best checkpoint of another encoder is not scored from this cache.
    for prefix in checkpoints.numbered(str(folder)):
        checkpoints.delete(prefix)
    weights = builders.weights(folder / "model.ckpt-best")
    weights["bert/encoder/transformer/group_0/inner_group_0/LayerNorm/beta"] += 1
    (folder / "best_trial.txt").unlink()
    checkpoints.write_tensors(str(folder / "model.ckpt-best"), weights)
    with pytest.raises(file_io.InputError, match="has another encoder .*LayerNorm/beta"):
        builders.run(run_squad_v1, **squad_flags(inputs, folder, **shared))


@pytest.mark.slow
def test_two_devices_train_as_one(study, inputs, tmp_path):
    flags = squad_flags(
        inputs, tmp_path / "out", cache_encoder_outputs=True, distribution_strategy="mirrored",
        gradient_accumulation_steps=2,
    )  # fmt: skip
    result = processes.run(
        [forked.python(), "-c", TWO_CPUS, *(f"--{name}={value}" for name, value in flags.items())]
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert_close(last(tmp_path / "out"), last(study / "plain"))


def check_evaluation(script, flags, folder, names=None, **changes):
    """An evaluation that runs the encoder gives the results of training from the cache.

    `names` are those compared, by default all.
    """
    trained = builders.read_results(folder)[-1]
    dropped = (
        *("do_train", "freeze_encoder", "cache_encoder_outputs", "train_fraction"),
        *("from_scratch", "albert_config_file", "spm_model_file", *LAYER),
    )
    flags = {name: value for name, value in flags.items() if name not in dropped}
    builders.run(script, **{**flags, **changes})
    block = builders.read_results(folder)[-1]
    for name, value in block.items():
        if name in names if names else not name.startswith(("best", "global")):
            assert float(value) == pytest.approx(float(trained[name]), rel=0.01), name


@pytest.mark.slow
def test_squad_v2_in_low_precision(inputs, tmp_path):
    flags = squad_flags(
        inputs, tmp_path, cache_encoder_outputs=True, answerable_only=None, dropout_prob=0.0,
        precision="mixed_bfloat16", start_n_top=3, end_n_top=3, num_train_epochs=0.2,
    )  # fmt: skip
    builders.run(run_squad_v2, **flags)
    assert {"train_loss", "train_end_accuracy"} <= set(builders.read_results(tmp_path)[-1])
    # Other batches are rounded otherwise, which may turn a choice.
    check_evaluation(run_squad_v2, flags, tmp_path, names=("eval_loss",), checkpoint="last")


@pytest.mark.slow
def test_a_classifier(tmp_path):
    builders.write_glue(tmp_path)
    out = tmp_path / "out"
    flags = builders.glue_flags(
        tmp_path, out, do_train=True, do_eval=True, do_predict=True, freeze_encoder=True,
        from_scratch=True, cache_encoder_outputs=True, train_fraction=0.5, eval_fraction=0.5,
        **LAYER,
    )  # fmt: skip
    builders.run(run_classifier, **flags)
    names = os.listdir(out)
    assert [name for name in names if name.startswith("sst-2_train.tf_record.share-0.5-seed-")]
    predictor = predictors.TextPredictor(str(out))
    texts = [text for (text,) in builders.glue_texts(tmp_path / "glue/SST-2/test.tsv", "SST-2")]
    ours = [answer.prediction for answer in predictor.predict(texts)]
    rows = (out / "predictions.tsv").read_text().splitlines()[1:]
    assert ours == [row.split("\t")[1] for row in rows]
    check_evaluation(run_classifier, flags, out, checkpoint="last", do_predict=False)


@pytest.mark.slow
def test_race(tmp_path):
    for split, count in (("train", 8), ("dev", 4), ("test", 2)):
        for level in ("middle", "high"):
            (tmp_path / "RACE" / split / level).mkdir(parents=True)
            texts = map(json.dumps, builders.passages(level, split, count))
            (tmp_path / "RACE" / split / level / "all.txt").write_text("\n".join(texts))
    config = builders.tiny_config(num_hidden_layers=2)
    (tmp_path / "config.json").write_text(config.to_json_string())
    flags = {
        "data_dir": tmp_path, "output_dir": tmp_path / "out", "train_step": 4,
        "spm_model_file": builders.SPM, "max_seq_length": 32, "max_qa_length": 12,
        "warmup_step": 0, "train_batch_size": 2, "save_checkpoints_steps": 4,
        "albert_config_file": tmp_path / "config.json", "from_scratch": True,
        "freeze_encoder": True, "cache_encoder_outputs": True, "train_fraction": 0.5,
        "eval_fraction": 0.5, **LAYER,
    }  # fmt: skip
    builders.run(run_race, **flags)
    check_evaluation(run_race, flags, tmp_path / "out", checkpoint="last", do_train=False)
