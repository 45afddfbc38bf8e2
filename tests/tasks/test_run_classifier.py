"""Fine-tuning end to end on small made-up tasks in GLUE's layout."""

import json
import os
import re
import shutil
import signal
import subprocess
import traceback

import numpy as np
import pytest
import tensorflow as tf

from albert import run_classifier
from albert.cli import training
from albert.data import input_options, input_pipeline
from albert.experiments import comparison, comparison_sides
from albert.io import file_io
from albert.model import checkpoints, encoder
from albert.serving import example_requests, requests
from albert.tasks import glue
from albert.training import stages, training_log
from tests.support import builders, forked, processes, recorded_runs, reference_folder
from tests.support.builders import glue_flags, read_results, weights
from tests.support.forked import Process
from tests.support.processes import wait_until


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("classifier")
    builders.write_glue(folder)
    return folder


@pytest.fixture(scope="module")
def trained(inputs, tmp_path_factory):
    """Output folder of an SST-2 model that has learned its task, with predictions and an export."""
    folder = tmp_path_factory.mktemp("trained") / "out"
    chosen = glue_flags(
        inputs, folder, do_train=True, do_eval=True, do_predict=True, from_scratch=True,
        train_step=200, save_checkpoints_steps=50, keep_checkpoint_max=2,
        export_dir=folder / "export", threshold_to_export=0.25,
    )  # fmt: skip
    builders.run(run_classifier, **chosen)
    return folder


@pytest.fixture(scope="module")
def short(inputs, tmp_path_factory):
    """Output folder and flags of a run of few steps, and the calls that led to its first one."""
    folder = tmp_path_factory.mktemp("short") / "out"
    flags = glue_flags(
        inputs, folder, do_train=True, do_eval=True, do_predict=True, from_scratch=True
    )
    calls, update = [], training_log.TrainingLog.update

    def seen(*arguments):
        calls.append(traceback.extract_stack())
        update(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_log.TrainingLog, "update", seen)
        builders.run(run_classifier, **flags)
    return folder, flags, calls[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "file", "changes"),
    [
        ("do_train", "sst-2_train.tf_record", {"train_step": 80}),  # more than an epoch
        ("do_train", "sst-2_train.tf_record", {"cache": True}),
        ("do_eval", "sst-2_eval.tf_record", {}),
        ("do_predict", "predict.tf_record", {}),
    ],
)
def test_forged_features_stop_each_stage(short, tmp_path, stage, file, changes):
    """No such token is computed with, nor a score written."""
    folder, flags, _ = short
    out = tmp_path / "out"
    shutil.copytree(folder, out)
    if changes == {"cache": True}:
        for path in out.glob("model.ckpt-*"):
            path.unlink()
        changes = {"freeze_encoder": True, "cache_encoder_outputs": True}
    size = encoder.AlbertConfig.from_json_file(str(flags["albert_config_file"])).vocab_size
    builders.forge_record(out / file, 7, "input_ids", 2, size)
    stages_of_run = {"do_train": False, "do_eval": False, "do_predict": False, stage: True}
    before = (out / "eval_results.txt").read_text()
    with pytest.raises(file_io.InputError, match=rf"{file}, record 7: .* = {size}, .*{size - 1}"):
        builders.run(run_classifier, **{**flags, "output_dir": out, **stages_of_run, **changes})
    assert (out / "eval_results.txt").read_text() == before


@pytest.mark.slow
def test_a_model_learns_and_the_best_is_kept(trained):
    results = read_results(trained)
    assert [int(block["global_step"]) for block in results] == [0, 50, 100, 150, 200]
    accuracies = [float(block["eval_accuracy"]) for block in results]
    assert accuracies[0] < 0.7 and max(accuracies) > 0.8
    best = int(np.argmax(accuracies))
    assert (trained / "best_trial.txt").read_text().startswith(f"200:{best * 50}:")
    running = np.maximum.accumulate(accuracies)
    assert [float(np.float32(float(b["best"]))) for b in results] == pytest.approx(
        running, abs=1e-6
    )
    kept = [os.path.basename(p) for p in checkpoints.numbered(str(trained))]
    assert kept == ["model.ckpt-150", "model.ckpt-200"]
    assert weights(trained / "model.ckpt-best")["global_step"] == best * 50
    roles = ("configuration", "vocabulary", "train_data", "eval_data", "predict_data")
    recorded_runs.check_record(trained, "run_classifier", *roles)


def test_the_files_are_those_of_the_reference(trained, golden):
    theirs = golden / "runs" / "classifier"
    for name in ("eval_results.txt", "best_trial.txt", "test_results.tsv", "submit_results.tsv"):
        assert (theirs / name).exists() and (trained / name).exists()

    def keys(block):
        return list(block)

    first = (theirs / "eval_results.txt").read_text().split("=" * 50)[0].strip().splitlines()
    assert keys(read_results(trained)[0]) == [line.split(" = ")[0] for line in first]
    for folder in (trained, theirs):
        rows = [line.split("\t") for line in (folder / "test_results.tsv").read_text().splitlines()]
        probabilities = np.float32(rows)
        np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-5)
        assert [[str(x) for x in row] for row in probabilities] == rows
        submit = (folder / "submit_results.tsv").read_text().splitlines()
        assert submit[0] == "index\tprediction"
        assert [line.split("\t")[1] for line in submit[1:]] == [
            str(i) for i in probabilities.argmax(axis=1)
        ]
    names = {"sst-2_train.tf_record", "sst-2_eval.tf_record", "predict.tf_record"}
    assert names <= set(os.listdir(trained))
    assert len(example_requests.read(str(trained), requests.ONE_TEXT)) == 3
    assert any("tfevents" in name for name in os.listdir(trained / "eval"))


@pytest.mark.slow
def test_the_best_of_the_reference_is_not_lost(inputs, trained, tmp_path, run_script):
    flags = glue_flags(inputs, tmp_path / "out", do_eval=True, train_step=1)

    def run(do_train):
        return run_script(run_classifier, **flags, do_train=do_train)

    reference_folder.check_best_survives(trained, tmp_path / "out", run)


def test_the_exported_model_answers_examples_with_the_predictions(trained, inputs):
    (exported,) = (trained / "export").iterdir()
    assert exported.name.isdigit()
    serve = tf.saved_model.load(str(exported)).signatures["serving_default"]
    serialized = list(tf.data.TFRecordDataset(str(trained / "predict.tf_record")))
    answer = serve(input=tf.stack(serialized))
    rows = [line.split("\t") for line in (trained / "test_results.tsv").read_text().splitlines()]
    np.testing.assert_allclose(answer["probabilities"], np.float32(rows), atol=1e-6)
    np.testing.assert_array_equal(answer["predictions"], np.float32(rows).argmax(axis=1))
    assert answer["threshold"] == 0.25


@pytest.mark.slow
def test_saved_model_cli_gives_the_predictions(trained, tmp_path):
    """The command that users of the reference check their exports with."""
    (exported,) = (trained / "export").iterdir()
    serialized = [s.numpy() for s in tf.data.TFRecordDataset(str(trained / "predict.tf_record"))]
    np.save(tmp_path / "examples.npy", np.array(serialized, dtype=object), allow_pickle=True)
    examples = [
        {
            name: list(tf.train.Example.FromString(s).features.feature[name].int64_list.value)
            for name in ("input_ids", "input_mask", "segment_ids")
        }
        for s in serialized[:3]
    ]
    done = processes.run(
        [
            *(forked.python(), "-m", "tensorflow.python.tools.saved_model_cli", "run"),
            *("--dir", str(exported), "--tag_set", "serve", "--signature_def", "serving_default"),
            *("--input_examples", f"input={examples}", "--outdir", str(tmp_path)),
        ]
    )
    assert done.returncode == 0, done.stderr
    rows = [line.split("\t") for line in (trained / "test_results.tsv").read_text().splitlines()]
    answer = np.load(tmp_path / "probabilities.npy")
    np.testing.assert_allclose(answer, np.float32(rows[:3]), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "metrics", "best"),
    [
        ("rte", {"eval_accuracy", "eval_loss", "loss"}, "eval_accuracy"),
        ("STS-B", {"pearson", "spearman", "MSE", "eval_loss", "loss"}, "pearson"),
    ],
)
def test_pair_and_regression_tasks(inputs, tmp_path, run_script, task, metrics, best):
    steps = {"train_step": 250, "save_checkpoints_steps": 125} if task == "STS-B" else {}
    flags = glue_flags(
        inputs, tmp_path, task, do_train=True, do_eval=True, do_predict=True, from_scratch=True,
        **steps,
    )  # fmt: skip
    run_script(run_classifier, **flags)
    last = read_results(tmp_path)[-1]
    assert set(last) == metrics | {"global_step", "best"}
    assert all(np.isfinite(float(value)) for value in last.values())
    values = [float(block[best]) for block in read_results(tmp_path)]
    stored = float((tmp_path / "best_trial.txt").read_text().split(":")[2])
    assert stored == pytest.approx(max(values), rel=1e-6)
    submit = (tmp_path / "submit_results.tsv").read_text().splitlines()[1:]
    assert len(submit) == 21
    if task == "STS-B":
        assert max(values) > 0.3
        results = (tmp_path / "test_results.tsv").read_text().splitlines()
        assert [line.split("\t")[1] for line in submit] == results
    else:
        assert {line.split("\t")[1] for line in submit} <= {"entailment", "not_entailment"}


@pytest.mark.slow
@pytest.mark.parametrize("task", ["rte", "STS-B"])
def test_the_dev_data_can_be_predicted_and_compared(inputs, tmp_path, run_script, task):
    folders = [tmp_path / name for name in ("a", "b")]
    for seed, folder in enumerate(folders):
        flags = glue_flags(
            inputs, folder, task, do_train=True, do_eval=True, do_predict=True,
            predict_on="dev", from_scratch=True, seed=seed, train_step=4, save_checkpoints_steps=4,
        )  # fmt: skip
        run_script(run_classifier, **flags)
    sides = comparison_sides.read(map(str, folders))
    for side, folder in zip(sides, folders, strict=True):
        (run,) = side.runs
        kept = comparison_sides.predictions_of(run)
        assert len(kept.labels) == 60 and kept.data.endswith("dev.tsv")
        examples = builders.read_examples(folder)
        assert {row["id"]: row["text"] for row in examples} == kept.texts
        if task == "rte":
            assert {row["id"]: row["right"] for row in examples} == kept.right
        # The predictions are those of the best checkpoint, whose scores are in the record.
        for name in ("pearson", "MSE") if task == "STS-B" else ("eval_accuracy",):
            assert kept.metrics[name].value == pytest.approx(run.scores[name], abs=1e-4)
        assert not any(name.startswith(comparison_sides.TEST) for name in run.scores)
        assert run.cost.steps == 4
    (pair,) = comparison.compare(sides).pairs
    expected = sides[1].runs[0].scores, sides[0].runs[0].scores
    name = sides[0].best_metric
    assert pair.examples.metric == name
    assert pair.examples.finding.comparison.difference == pytest.approx(
        expected[0][name] - expected[1][name], abs=1e-4
    )


def test_ax_is_predicted_by_a_model_of_mnli(inputs, tmp_path, run_script):
    with pytest.raises(file_io.InputError, match="task ax has no train data, only test"):
        run_script(run_classifier, **glue_flags(inputs, tmp_path, "ax", do_train=True))
    config = encoder.AlbertConfig.from_json_file(str(inputs / "albert_config.json"))
    from albert.model import heads

    checkpoints.save(str(tmp_path / "model.ckpt-best"), heads.ClassifierModel(config, 3, seed=1))
    run_script(run_classifier, **glue_flags(inputs, tmp_path, "AX", do_predict=True))
    lines = (tmp_path / "submit_results.tsv").read_text().splitlines()[1:]
    assert len(lines) == 21
    assert {line.split("\t")[1] for line in lines} <= {"contradiction", "entailment", "neutral"}


@pytest.mark.slow
def test_few_calls_lie_between_the_command_and_a_step(short):
    places = [(os.path.basename(call.filename), call.name) for call in short[2]]
    start = places.index(("run_classifier.py", "main"))
    assert places[start:-1] == [
        ("run_classifier.py", "main"),
        ("fine_tuning.py", "run"),
        ("stages.py", "run"),
        ("stages.py", "_train"),
        ("engine.py", "train"),
        ("engine.py", "_train_steps"),
    ]


@pytest.mark.slow
def test_the_same_command_again_is_harmless(short, run_script):
    folder, flags, _ = short
    kept = [
        "eval_results.txt", "best_trial.txt", "test_results.tsv", "submit_results.tsv",
        "checkpoint", "model.ckpt-20.data-00000-of-00001", "model.ckpt-best.data-00000-of-00001",
    ]  # fmt: skip
    before = {name: (folder / name).read_bytes() for name in kept}
    made = {name: os.stat(folder / name).st_mtime_ns for name in os.listdir(folder)}
    run_script(run_classifier, **flags)
    assert {name: (folder / name).read_bytes() for name in kept} == before
    for name in ("sst-2_train.tf_record", "sst-2_eval.tf_record", "predict.tf_record"):
        assert os.stat(folder / name).st_mtime_ns == made[name]


def test_the_folder_of_another_task_stays_as_it_is(short, inputs, tmp_path, run_script):
    shutil.copytree(short[0], tmp_path / "out")
    before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    flags = glue_flags(inputs, tmp_path / "out", "RTE", do_train=True, from_scratch=True)
    with pytest.raises(file_io.InputError, match=r'task_name "sst-2" \(here "rte"\); give another'):
        run_script(run_classifier, **flags)
    after = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert after == before


@pytest.mark.slow
def test_stages_can_run_one_by_one(inputs, tmp_path, run_script, caplog):
    """Apart they give the files of one run, also of more checkpoints than are kept by default."""
    caplog.set_level("INFO", logger="absl")
    stages = ("do_train", "do_eval", "do_predict")
    for name, commands in {"one": [stages], "apart": [(stage,) for stage in stages]}.items():
        for chosen in commands:
            flags = glue_flags(
                inputs, tmp_path / name, from_scratch=True, train_step=7, save_checkpoints_steps=1,
                **dict.fromkeys(chosen, True),
            )  # fmt: skip
            caplog.clear()
            run_script(run_classifier, **flags)
            shown = [r.getMessage() for r in caplog.records if "***** Eval" in r.getMessage()]
            assert len(shown) == ("do_eval" in chosen)
            if shown:
                best = (tmp_path / name / "best_trial.txt").read_text().split(":")[1]
                assert f"  global_step = {best}" in shown[0].splitlines()
                assert "  eval_accuracy = " in shown[0] and "  best" not in shown[0]
    assert len(read_results(tmp_path / "apart")) == 8
    for name in ("eval_results.txt", "best_trial.txt", "test_results.tsv", "submit_results.tsv"):
        assert (tmp_path / "one" / name).read_text() == (tmp_path / "apart" / name).read_text()


@pytest.mark.slow(3)
def test_pretrained_weights_are_loaded_and_reported(inputs, trained, tmp_path, run_script):
    flags = glue_flags(
        inputs, tmp_path, "RTE", do_train=True, train_step=1, init_checkpoint=trained
    )
    run_script(run_classifier, **flags)
    start, source = weights(tmp_path / "model.ckpt-0"), weights(trained / "model.ckpt-best")
    for name, value in start.items():
        if name.startswith("bert/") and "adam" not in name:
            np.testing.assert_array_equal(value, source[name])
    assert start["global_step"] == 0
    assert '"new": []' in (tmp_path / "load_report.json").read_text()


@pytest.mark.slow
def test_a_hub_module_brings_weights_configuration_and_vocabulary(
    inputs, tmp_path, run_script, golden
):
    flags = glue_flags(
        inputs, tmp_path / "hub", do_train=True, train_step=1,
        albert_hub_module_handle=golden / "hub_tf1",
    )  # fmt: skip
    del flags["albert_config_file"], flags["spm_model_file"]
    run_script(run_classifier, **flags)
    start = weights(tmp_path / "hub" / "model.ckpt-0")
    module = weights(golden / "hub_tf1" / "variables" / "variables")
    assert {n for n in start if n.startswith("bert/") and "adam" not in n} == {
        n for n in module if n.startswith("bert/")
    }
    for name in module:
        if name.startswith("bert/"):
            np.testing.assert_array_equal(start[name], module[name])
    report = (tmp_path / "hub" / "load_report.json").read_text()
    assert "output_weights" in report and "cls/predictions/output_bias" in report
    # A model of the same weights given as a checkpoint starts with the same loss, bit for bit.
    flags = {
        **glue_flags(inputs, tmp_path / "checkpoint", do_train=True, train_step=1),
        "albert_config_file": golden / "hub_tf1" / "assets" / "albert_config.json",
        "spm_model_file": golden / "hub_tf1" / "assets" / "30k-clean.model",
        "init_checkpoint": golden / "hub_tf1" / "variables" / "variables.index",
    }
    run_script(run_classifier, **flags)
    one, other = (weights(tmp_path / x / "model.ckpt-1") for x in ("hub", "checkpoint"))
    for name, value in one.items():
        np.testing.assert_array_equal(other[name], value, err_msg=name)


def test_a_url_is_resolved_by_tensorflow_hub(inputs, tmp_path, run_script, golden, monkeypatch):
    tensorflow_hub = pytest.importorskip("tensorflow_hub")

    asked, runs = [], []
    monkeypatch.setattr(stages, "run", lambda task, data, run: runs.append(run))

    def resolve(handle):
        asked.append(handle)
        return str(golden / "hub_tf1")

    monkeypatch.setattr(tensorflow_hub, "resolve", resolve)
    url = "https://example.org/albert/1"
    flags = glue_flags(inputs, tmp_path, do_train=True, train_step=1, albert_hub_module_handle=url)
    del flags["albert_config_file"], flags["spm_model_file"]
    run_script(run_classifier, **flags)
    assert asked == [url]
    assert runs[0].init_checkpoint == str(golden / "hub_tf1" / "variables" / "variables")


@pytest.mark.slow
def test_cached_records_can_live_elsewhere(inputs, tmp_path, run_script, caplog, capsys):
    flags = glue_flags(
        inputs, tmp_path / "out", do_train=True, do_eval=True, from_scratch=True, train_step=1,
        cached_dir=tmp_path / "cache",
    )  # fmt: skip
    run_script(run_classifier, **flags)
    made = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").glob("*record")}
    names = sorted(path.name.partition("-2_")[2] for path in made)
    assert [re.sub(r"-\w{8}\.", "-hash.", name) for name in names] == [
        "eval-hash.tf_record", "train-hash.tf_record",
    ]  # fmt: skip
    with caplog.at_level("INFO", logger="absl"):
        run_script(run_classifier, **flags, keep_only_best=True)
    assert made == {path: path.stat().st_mtime_ns for path in made}
    assert not list((tmp_path / "out").glob("*tf_record"))
    # What is left can be evaluated and used.
    assert re.search(r"Kept only the weights .* KiB of .* KiB; this run cannot be", caplog.text)
    assert [path.name for path in (tmp_path / "out").glob("*.index")] == ["model.ckpt-best.index"]
    assert f"\n  python -m albert.predict --model_dir={tmp_path}/out " in capsys.readouterr().out
    caplog.clear()
    with caplog.at_level("INFO", logger="absl"):
        run_script(run_classifier, **flags | {"do_train": False, "from_scratch": False})
    assert "Best: step 1" in caplog.text
    with pytest.raises(
        file_io.InputError, match="only the best checkpoint is left.* another --outp"
    ):
        run_script(run_classifier, **flags | {"train_step": 2})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "nothing to do: none of --do_train, --do_eval, --do_predict, --export_dir"),
        ({"do_train": True}, "no weights to start from: give --init_checkpoint or .*from_scratch"),
        ({"do_eval": True}, "no checkpoint to evaluate in .*train first"),
        ({"do_predict": True}, "there is no checkpoint in .*train first"),
        ({"do_train": True, "init_checkpoint": "x", "from_scratch": True}, "--from_scratch contra"),
        (
            {"do_train": True, "init_checkpoint": "x", "albert_hub_module_handle": "y"},
            "both give weights; give only one",
        ),
        (
            {"do_train": True, "albert_hub_module_handle": "nowhere"},
            "the folder or .tar.gz file nowhere does not exist",
        ),
        ({"do_train": True, "from_scratch": True, "task_name": "SST2"}, "(?i)sst-2"),
        (
            {"do_train": True, "from_scratch": True, "learning_rate": -1},
            "--learning_rate=-1.0 must be at least 0",
        ),
        ({"do_train": True, "from_scratch": True, "max_seq_length": 65}, "max_position_embeddings"),
        (
            {"do_train": True, "from_scratch": True, "optimizer": "sgd"},
            "expected adamw, lamb, adam or muon",
        ),
        (  # before the data are looked at
            {
                "do_train": True,
                "from_scratch": True,
                "data_dir": "no",
                "gradient_accumulation_steps": 3,
            },
            "train_batch_size=.* cannot be split into --gradient_accumulation_steps=3 equal parts",
        ),
        (
            {"do_train": True, "from_scratch": True, "data_dir": "no"},
            "the file no/SST-2/train.tsv does not exist",
        ),
        ({"do_train": True, "from_scratch": True, "spm_model_file": "no.model"}, "no.model"),
    ],
)
def test_mistakes_are_named(inputs, tmp_path, run_script, changes, message):
    with pytest.raises(file_io.InputError, match=message):
        run_script(run_classifier, **glue_flags(inputs, tmp_path / "out", **changes))


def test_a_vocabulary_that_does_not_fit_is_named(inputs, tmp_path, run_script):
    config = encoder.AlbertConfig.from_json_file(str(inputs / "albert_config.json"))
    small = encoder.AlbertConfig(**{**config.to_dict(), "vocab_size": 300})
    file_io.write_text(str(tmp_path / "small.json"), small.to_json_string())
    flags = glue_flags(
        inputs,
        tmp_path,
        do_train=True,
        from_scratch=True,
        albert_config_file=tmp_path / "small.json",
    )
    with pytest.raises(file_io.InputError, match="400.*300|300.*400"):
        run_script(run_classifier, **flags)


def test_a_checkpoint_without_the_head_cannot_be_evaluated(inputs, trained, tmp_path, run_script):
    tensors = weights(trained / "model.ckpt-best")
    encoder = {name: value for name, value in tensors.items() if name.startswith("bert/")}
    checkpoints.write_tensors(str(tmp_path / "model.ckpt-best"), encoder)
    with pytest.raises(file_io.InputError, match="lacks .*output_weights.*fine-tune first"):
        run_script(run_classifier, **glue_flags(inputs, tmp_path, do_eval=True))


@pytest.mark.slow
def test_a_damaged_cache_is_made_again(short, run_script):
    folder, flags, _ = short
    path = folder / "sst-2_train.tf_record"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    run_script(run_classifier, **flags)
    assert path.read_bytes() == whole


@pytest.mark.slow
def test_a_bad_label_changes_nothing_that_exists(inputs, tmp_path, run_script):
    data = tmp_path / "glue" / "SST-2"
    data.mkdir(parents=True)
    good = (inputs / "glue" / "SST-2" / "train.tsv").read_text()
    (data / "train.tsv").write_text(good)
    flags = glue_flags(
        inputs, tmp_path / "out", do_train=True, from_scratch=True, train_step=1,
        data_dir=tmp_path / "glue",
    )  # fmt: skip
    run_script(run_classifier, **flags)
    before = {p.name: p.read_bytes() for p in (tmp_path / "out").iterdir() if p.is_file()}
    assert json.loads(before.pop("run.json"))["status"] == "done"
    (data / "train.tsv").write_text(good + "a fine thing .\t7\n")
    with pytest.raises(file_io.InputError, match=r"train\.tsv.*602.*'7'.*0.*1"):
        run_script(run_classifier, **flags)
    after = {p.name: p.read_bytes() for p in (tmp_path / "out").iterdir() if p.is_file()}
    record = json.loads(after.pop("run.json"))
    assert (record["status"], record["sessions"][-1]["status"]) == ("done", "failed")
    assert after == before


@pytest.mark.slow
def test_a_run_killed_while_it_evaluates_goes_on(inputs, short, tmp_path, run_script):
    flags = glue_flags(inputs, tmp_path, do_train=True, do_eval=True, from_scratch=True)
    arguments = [f"--{name}={value}" for name, value in flags.items()]
    process = Process(["-m", "albert.run_classifier", *arguments], stderr=subprocess.DEVNULL)
    wait_until(lambda: len(checkpoints.numbered(str(tmp_path))) >= 2, process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    run_script(run_classifier, **flags)
    for name in ("eval_results.txt", "best_trial.txt"):
        assert (tmp_path / name).read_text() == (short[0] / name).read_text()
    builders.assert_same(*(weights(folder / "model.ckpt-20") for folder in (tmp_path, short[0])))


def test_trimmed_and_padded_batches_give_the_same_predictions(inputs, trained):
    row = glue.get_task("sst-2")
    from albert.training import distribution, engine

    task = glue.make_task(row)
    config = encoder.AlbertConfig.from_json_file(str(inputs / "albert_config.json"))
    run_config = engine.RunConfig(
        output_dir=str(trained), num_train_steps=1, train_batch_size=1, eval_batch_size=8,
        predict_batch_size=8, save_checkpoints_steps=1, keep_checkpoint_max=1,
        iterations_per_loop=1, log_every_steps=1, seed=1,
    )  # fmt: skip
    strategy = distribution.create_strategy("one_device")
    runner = engine.Engine(task, config, run_config, strategy)
    stages.load(runner)
    path, specs = str(trained / "predict.tf_record"), glue.feature_specs(64)
    trimmed, padded = (
        runner.predict(input_pipeline.eval_input_fn([path], specs, input_options.EvalInput(trim)))
        for trim in (True, False)
    )
    np.testing.assert_allclose(trimmed["probabilities"], padded["probabilities"], atol=1e-5)


class ThreeReplicas:
    num_replicas_in_sync = 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"do_train": True}, "--train_batch_size=16 must be a multiple of the 3 replicas"),
        ({"train_batch_size": 18, "do_train": True, "do_eval": True}, "--eval_batch_size=8 must"),
        ({"train_batch_size": 18, "do_train": True, "do_predict": True}, "--predict_batch_size=8"),
    ],
)
def test_batches_are_checked_before_any_data(
    inputs, tmp_path, run_script, monkeypatch, changes, message
):
    monkeypatch.setattr(training, "make_strategy", lambda *_: ThreeReplicas())
    flags = glue_flags(inputs, tmp_path, from_scratch=True, **changes)
    with pytest.raises(file_io.InputError, match=message):
        run_script(run_classifier, **flags)
    assert not list(tmp_path.iterdir())
