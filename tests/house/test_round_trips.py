"""Every form in which a model can be given starts the same training, bit for bit."""

import json
import tarfile

import numpy as np
import pytest

from albert import (
    export_checkpoints,
    export_to_huggingface,
    export_to_tfhub,
    run_classifier,
    run_pretraining,
)
from albert.data import record_files
from albert.io import file_io
from albert.model import encoder, pretraining_heads
from tests.support import builders
from tests.support.builders import assert_same, weights


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """GLUE data, and in `model` a pre-trained model."""
    folder = tmp_path_factory.mktemp("inputs")
    builders.write_glue(folder)
    config = encoder.AlbertConfig.from_json_file(str(folder / "albert_config.json"))
    builders.write_model(
        folder / "model", pretraining_heads.PretrainingModel(config, seed=5), config
    )
    return folder


def fine_tune(inputs, out, run_script, **start):
    flags = builders.glue_flags(inputs, out, do_train=True, train_step=1, **start)
    del flags["albert_config_file"], flags["spm_model_file"]
    run_script(run_classifier, **flags)
    return weights(out / "model.ckpt-1")


@pytest.mark.slow
def test_fine_tuning_is_the_same_from_every_form(inputs, tmp_path, run_script, monkeypatch):
    model = inputs / "model"
    monkeypatch.setenv("TFHUB_CACHE_DIR", str(tmp_path / "cache"))
    run_script(export_to_tfhub, albert_directory=model, export_path=tmp_path / "hub")
    run_script(export_to_huggingface, model_dir=model, output_dir=tmp_path / "hf")
    run_script(export_checkpoints, albert_directory=model, export_path=f"{tmp_path}/slim/")
    with tarfile.open(tmp_path / "hub.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "hub", ".")
    forms = {
        "archive": {"albert_hub_module_handle": tmp_path / "hub.tar.gz"},
        "hf": {"init_checkpoint": tmp_path / "hf"},
        "slim": {"init_checkpoint": tmp_path / "slim"},
    }
    expected = fine_tune(inputs, tmp_path / "plain", run_script, init_checkpoint=model)
    for name, start in forms.items():
        assert_same(fine_tune(inputs, tmp_path / name, run_script, **start), expected)
        report = json.loads((tmp_path / name / "load_report.json").read_text())
        assert report["new"] == ["output_bias", "output_weights"]
    # What was fine-tuned goes out and comes back as a start for the next run.
    run_script(export_to_huggingface, model_dir=tmp_path / "plain", output_dir=tmp_path / "tuned")
    config = json.loads((tmp_path / "tuned" / "config.json").read_text())
    assert config["architectures"] == ["AlbertForSequenceClassification"]
    again = [
        fine_tune(inputs, tmp_path / f"again{i}", run_script, init_checkpoint=tmp_path / name)
        for i, name in enumerate(("plain", "tuned"))
    ]
    assert_same(*again)


@pytest.mark.slow
def test_pre_training_goes_on_from_a_module_as_from_its_checkpoint(tmp_path, run_script, golden):
    module = golden / "hub_tf1"
    specs = builders.PRETRAINING_SPECS
    record_files.write(str(tmp_path / "part.tfrecord"), specs, builders.pretraining_rows(40), {})
    starts = {
        "hub": {"albert_hub_module_handle": module},
        "checkpoint": {
            "init_checkpoint": module / "variables" / "variables.index",
            "albert_config_file": module / "assets" / "albert_config.json",
        },
    }
    for name, start in starts.items():
        flags = builders.pretraining_flags(tmp_path, tmp_path / name, num_train_steps=1)
        del flags["albert_config_file"]
        run_script(run_pretraining, **{**flags, "input_file": tmp_path / "part.tfrecord", **start})
    first = weights(tmp_path / "hub" / "model.ckpt-0")
    for name, value in weights(module / "variables" / "variables").items():
        np.testing.assert_array_equal(first[name], value, err_msg=name)
    one, other = (weights(tmp_path / name / "model.ckpt-1") for name in starts)
    assert_same(one, other)


def test_pre_training_needs_a_configuration_from_somewhere(tmp_path, run_script):
    flags = builders.pretraining_flags(tmp_path, tmp_path / "out")
    del flags["albert_config_file"]
    with pytest.raises(file_io.InputError, match="albert_config_file must be given"):
        run_script(run_pretraining, **flags)
