"""Distillation by flags: students of both scripts, and what is refused."""

import dataclasses
import json
import re

import numpy as np
import pytest

from albert import run_classifier, run_pretraining
from albert.data import record_files
from albert.io import file_io
from albert.model import encoder, label_scale, model_folder, pretraining_heads
from tests.support import builders, forked, processes
from tests.support.builders import glue_flags, pretraining_flags, tiny_config, write_glue
from tests.support.sources import ROOT

SHORT = {"train_step": 2, "save_checkpoints_steps": 2, "max_seq_length": 16, "log_every_steps": 1}
TEACHER = tiny_config(num_hidden_layers=2, hidden_dropout_prob=0.1)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """GLUE data, a student's configuration and a teacher that was trained for two steps."""
    folder = tmp_path_factory.mktemp("distillation")
    write_glue(folder)
    (folder / "albert_config.json").write_text(tiny_config().to_json_string())
    (folder / "teacher.json").write_text(TEACHER.to_json_string())
    flags = glue_flags(folder, folder / "teacher", do_train=True, from_scratch=True)
    flags = {**flags, "albert_config_file": folder / "teacher.json", **SHORT}
    builders.run(run_classifier, **flags)
    return folder


def student_flags(inputs, output_dir, **changes):
    flags = {
        **glue_flags(inputs, output_dir, do_train=True),
        **SHORT,
        "teacher": inputs / "teacher",
    }
    del flags["spm_model_file"]
    return flags | changes


@pytest.mark.slow
def test_a_classifier_learns_from_its_teacher_and_is_used_without_it(inputs, tmp_path, caplog):
    flags = student_flags(inputs, tmp_path / "out", init_from_teacher=True, do_eval=True)
    with caplog.at_level("INFO", logger="absl"):
        builders.run(run_classifier, **flags, export_dir=tmp_path / "export")
    log = caplog.text
    assert "distillation_loss" in log and "hidden_cosine_loss" in log
    report = json.loads((tmp_path / "out" / "load_report.json").read_text())
    assert report["new"] == [] and "output_weights" in report["loaded"]
    description = json.loads((tmp_path / "out" / "model.json").read_text())
    assert description["spm_model_file"] == builders.SPM.name
    (exported,) = (tmp_path / "export").iterdir()
    assert exported.is_dir()
    builders.run(
        run_classifier,
        do_predict=True, task_name="SST-2", output_dir=tmp_path / "out",
        data_dir=inputs / "glue", max_seq_length=16,
    )  # fmt: skip
    assert (tmp_path / "out" / "predictions.tsv").exists()


@pytest.mark.slow
def test_any_encoder_teaches_hidden_states_to_a_regression(inputs, tmp_path, caplog):
    flags = student_flags(inputs, tmp_path / "out", task_name="STS-B", distill_weights="0,1,0,1,1")
    flags |= {"do_eval": True, "standardize_labels": True}
    with caplog.at_level("INFO", logger="absl"):
        builders.run(run_classifier, **flags, from_scratch=True)
    assert re.search(r"step 1/2 .*regression_loss .* hidden_error_loss .* mean_cosine", caplog.text)
    # A student that starts from a regression keeps its answers.
    first = builders.weights(tmp_path / "out" / "model.ckpt-2")
    flags |= {"output_dir": tmp_path / "next", "init_checkpoint": tmp_path / "out"}
    builders.run(run_classifier, **flags | {"standardize_labels": False})
    scale = model_folder.described_scale(str(tmp_path / "out"))
    raw = label_scale.convert_head(first, scale, label_scale.RAW)
    start = builders.weights(tmp_path / "next" / "model.ckpt-0")
    for name in label_scale.HEAD:
        np.testing.assert_allclose(start[name], raw[name], rtol=1e-6)
        assert (first[name] != raw[name]).any()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Records, and a teacher of pre-training with two layers of its own."""
    folder = tmp_path_factory.mktemp("records")
    rows = builders.pretraining_rows(40)
    record_files.write(str(folder / "part0.tfrecord"), builders.PRETRAINING_SPECS, rows, {})
    config = dataclasses.replace(builders.PRETRAINING_CONFIG, num_hidden_layers=4, share="none")
    builders.write_model(
        folder / "teacher", pretraining_heads.PretrainingModel(config, seed=5), config
    )
    student = dataclasses.replace(config, num_hidden_layers=2)
    (folder / "config.json").write_text(student.to_json_string())
    return folder


@pytest.mark.slow
def test_a_pre_trained_student_takes_every_other_layer(corpus, tmp_path, caplog):
    flags = pretraining_flags(corpus, tmp_path, num_train_steps=2)
    builders.run(run_pretraining, **flags, teacher=corpus / "teacher", init_from_teacher=True)
    assert "only the numbers of entries are compared" in caplog.text
    first, teacher = (
        builders.weights(x) for x in (tmp_path / "model.ckpt-0", corpus / "teacher/model.ckpt-best")
    )
    for layer, source in ((0, 0), (1, 2)):
        name = "bert/encoder/transformer/group_{}/inner_group_0/ffn_1/intermediate/dense/kernel"
        np.testing.assert_array_equal(first[name.format(layer)], teacher[name.format(source)])
    assert not [name for name in first if "group_2" in name]
    last = builders.weights(tmp_path / "model.ckpt-2")
    assert any((last[name] != first[name]).any() for name in teacher if name in first)


@pytest.mark.slow
def test_two_devices_teach_as_one(corpus, tmp_path):
    """Their parts of a batch have different numbers of real tokens."""
    config = builders.PRETRAINING_CONFIG
    builders.write_model(
        tmp_path / "teacher", pretraining_heads.PretrainingModel(config, seed=5), config
    )
    (tmp_path / "config.json").write_text(config.to_json_string())
    flags = pretraining_flags(
        corpus, tmp_path / "one", num_train_steps=2, num_warmup_steps=0, optimizer="adamw",
        learning_rate=0.001,
        albert_config_file=tmp_path / "config.json", teacher=tmp_path / "teacher",
        distribution_strategy="one_device",
    )  # fmt: skip
    builders.run(run_pretraining, **flags)
    flags |= {"output_dir": tmp_path / "two", "distribution_strategy": "mirrored"}
    step = {"script": "run_pretraining", "flags": {k: str(v) for k, v in flags.items()}}
    plan = str(tmp_path / "plan.json")
    file_io.write_json(plan, {"logical_cpus": 2, "runs": [step]})
    done = processes.run([forked.python(), "-m", "tests.support.worker", plan], cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "batch: 2 replicas x 8 = 16" in done.stderr
    one, two = (builders.weights(tmp_path / name / "model.ckpt-2") for name in ("one", "two"))
    assert one.keys() == two.keys()
    for name, value in one.items():
        if "key/bias" not in name:  # its gradient is nothing but rounding
            np.testing.assert_allclose(two[name], value, atol=2e-5, err_msg=name)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"teacher": None, "init_from_teacher": True}, "--init_from_teacher: only for --teacher"),
        ({"teacher": None, "distill_weights": "1,1,0"}, "--distill_weights: only for --teacher"),
        ({"albert_config_file": None}, "--teacher needs the sizes of the student"),
        ({"do_train": False, "do_eval": True}, "--teacher: only for --do_train"),
        ({"estimate_memory": True}, "--estimate_memory does not count the --teacher"),
        ({"distill_weights": "5,2"}, "distill_weights must be three"),
        (
            {"distill_weights": "5;2;1"},
            "--distill_weights=5;2;1: three to five numbers with commas",
        ),
        ({"distill_temperature": 0}, "distill_temperature must be above 0"),
        (
            {"init_from_teacher": True, "from_scratch": True},
            "--from_scratch: only for a run without --init_from_teacher",
        ),
        ({"task_name": "STS-B"}, "task sts-b is a regression; .* --distill_weights=0,1,0,1,1"),
        ({"task_name": "RTE"}, "has the labels 0, 1; those of task rte are"),
        ({"teacher": "no/such"}, "--teacher=no/such: there is no model folder no/such"),
    ],
)
def test_mistakes_are_named(inputs, tmp_path, changes, message):
    flags = {**student_flags(inputs, tmp_path), **changes}
    with pytest.raises(file_io.InputError, match=message):
        builders.run(run_classifier, **{k: v for k, v in flags.items() if v is not None})


def test_a_teacher_of_another_vocabulary_is_refused(inputs, tmp_path):
    (tmp_path / "other.model").write_bytes(builders.SPM.read_bytes() + b"\x1a\x00")
    flags = student_flags(inputs, tmp_path, spm_model_file=tmp_path / "other.model")
    with pytest.raises(file_io.InputError, match="vocabulary .* differs from the student's"):
        builders.run(run_classifier, **flags)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"keep_accents": True}, "keep_accents is True .there False."),
        ({"do_lower_case": False}, "do_lower_case is False .there True."),
        ({"extra_pieces": "<x>"}, "extra_pieces is .'<x>'. .there ..."),
    ],
)
def test_a_teacher_that_reads_texts_by_other_rules_is_refused(inputs, tmp_path, changes, message):
    flags = student_flags(inputs, tmp_path, spm_model_file=builders.SPM, **changes)
    with pytest.raises(file_io.InputError, match=f"by other rules than the teacher's: --{message}"):
        builders.run(run_classifier, **flags)


def test_a_student_with_more_layers_cannot_learn_those_of_the_teacher(inputs, tmp_path):
    deeper = dataclasses.replace(TEACHER, num_hidden_layers=TEACHER.num_hidden_layers + 1)
    (tmp_path / "deeper.json").write_text(deeper.to_json_string())
    flags = student_flags(inputs, tmp_path / "out", distill_weights="1,1,0,1")
    flags["albert_config_file"] = tmp_path / "deeper.json"
    with pytest.raises(file_io.InputError, match="num_hidden_layers=.* at most the teacher's, "):
        builders.run(run_classifier, **flags)


def test_a_teacher_without_the_head_is_refused(corpus, tmp_path):
    config = encoder.AlbertConfig.from_json_file(corpus / "teacher" / "albert_config.json")
    builders.write_model(tmp_path / "teacher", encoder.AlbertModel(config, seed=1), config)
    flags = pretraining_flags(corpus, tmp_path / "out", teacher=tmp_path / "teacher")
    with pytest.raises(file_io.InputError, match="lacks .*cls/predictions.* masked words"):
        builders.run(run_pretraining, **flags)
