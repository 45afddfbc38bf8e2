"""`run_pretraining --sentence_task`: records, metrics, checkpoints, and folders of other tasks."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
import tensorflow as tf
from absl import flags

from albert import run_pretraining
from albert.cli import pretraining
from albert.data import dynamic_masking, instances, record_files
from albert.io import file_io
from albert.model import checkpoints, encoder, pretraining_heads, sources
from tests.support import command_lines

CONFIG = encoder.AlbertConfig(
    vocab_size=40, embedding_size=8, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
    intermediate_size=16, max_position_embeddings=16,
)  # fmt: skip
LENGTH, SLOTS = 8, 2
SPECS = instances.feature_specs(LENGTH, SLOTS)
HEAD = "cls/seq_relationship/output_weights"


def make_rows():
    rng = np.random.default_rng(1)
    for _ in range(24):
        ids = rng.integers(5, 40, LENGTH)
        yield {
            "input_ids": ids,
            "input_mask": np.ones(LENGTH, int),
            "segment_ids": np.arange(LENGTH) // 4,
            "token_boundary": np.ones(LENGTH, int),
            "masked_lm_positions": np.array([1, 5]),
            "masked_lm_ids": ids[[1, 5]],
            "masked_lm_weights": np.float32([1, 1]),
            "next_sentence_labels": rng.integers(2),
        }


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    record_files.write(str(folder / "labeled.tfrecord"), SPECS, make_rows(), {})
    specs = [spec for spec in SPECS if spec.name != "next_sentence_labels"]
    rows = ({name: row[name] for name in (s.name for s in specs)} for row in make_rows())
    record_files.write(str(folder / "unlabeled.tfrecord"), specs, rows, {})
    file_io.write_text(str(folder / "config.json"), CONFIG.to_json_string())
    return folder


@pytest.fixture
def pretrain(inputs, run_script):
    def run(output_dir, records="labeled", **given):
        given = {"do_eval": True, "num_train_steps": 2, **given}
        run_script(
            run_pretraining, albert_config_file=inputs / "config.json", output_dir=output_dir,
            input_file=inputs / f"{records}.tfrecord", max_seq_length=LENGTH,
            max_predictions_per_seq=SLOTS, train_batch_size=8, eval_batch_size=8,
            num_warmup_steps=1, learning_rate=0.001, optimizer="adamw", **given,
        )  # fmt: skip

    return run


def last_results(folder):
    last = (folder / "eval_results.txt").read_text().split("=" * 50)[-2]
    found = dict(line.split(" = ") for line in last.strip().splitlines())
    left_out = ("global_step", "best")
    return {name: float(value) for name, value in found.items() if name not in left_out}


def logged(folder):
    """Tags of TensorBoard's events of training."""
    events = [tf.compat.v1.train.summary_iterator(str(path)) for path in folder.glob("events*")]
    return {value.tag for found in events for event in found for value in event.summary.value}


def test_the_vocabulary_in_the_folder_must_fit(pretrain, tmp_path, testdata):
    shutil.copy(testdata / "tiny.model", tmp_path)
    with pytest.raises(file_io.InputError, match=r"tiny.model has 400 pieces, .* only 40: they"):
        pretrain(tmp_path)


def make_shard(inputs, folder, **settings):
    """Path of a shard whose manifest has these settings."""
    shard = folder / "part-00000-of-00001"
    shutil.copy(inputs / "labeled.tfrecord", shard)
    shards = [{"name": shard.name, "instances": 24, "bytes": shard.stat().st_size, "sha256": ""}]
    manifest = {"shards": shards, "settings": settings}
    file_io.write_json(str(folder / "part.manifest.json"), manifest)
    return shard


@pytest.mark.parametrize("split", ["input_file", "eval_input_file"])
@pytest.mark.parametrize("given", [True, False])
def test_records_of_another_vocabulary_are_refused(
    inputs, tmp_path, testdata, run_script, split, given
):
    output_dir = tmp_path / "out"
    output_dir.mkdir()
    shard = make_shard(inputs, tmp_path, vocab_file="0" * 64, do_lower_case=True)
    shutil.copy(testdata / "tiny.model", output_dir)
    config = dataclasses.replace(CONFIG, vocab_size=400)
    file_io.write_text(str(tmp_path / "config.json"), config.to_json_string())
    files = {"input_file": inputs / "labeled.tfrecord", split: shard}
    vocabulary = {"spm_model_file": testdata / "tiny.model"} if given else {}
    with pytest.raises(file_io.InputError, match="part.manifest.json: .* another vocabulary than"):
        run_script(
            run_pretraining, albert_config_file=tmp_path / "config.json", output_dir=output_dir,
            max_seq_length=LENGTH, max_predictions_per_seq=SLOTS, do_train=given, do_eval=True,
            num_train_steps=2, num_warmup_steps=1, **files, **vocabulary,
        )  # fmt: skip


def test_records_of_another_sentence_task_are_refused(inputs, tmp_path, pretrain):
    shard = make_shard(inputs, tmp_path, sentence_task="nsp")
    with pytest.raises(file_io.InputError, match="part.manifest.json: .* give --sentence_task=nsp"):
        pretrain(tmp_path / "out", eval_input_file=shard)


@pytest.mark.slow
def test_rules_of_a_vocabulary_in_the_output_folder_are_recorded(
    inputs, tmp_path, testdata, run_script
):
    shutil.copy(testdata / "tiny.model", tmp_path)
    config = dataclasses.replace(CONFIG, vocab_size=400)
    file_io.write_text(str(tmp_path / "config.json"), config.to_json_string())
    run_script(
        run_pretraining, albert_config_file=tmp_path / "config.json", output_dir=tmp_path,
        input_file=inputs / "labeled.tfrecord", max_seq_length=LENGTH, do_lower_case=False,
        max_predictions_per_seq=SLOTS, do_train=True, num_train_steps=1, num_warmup_steps=0,
    )  # fmt: skip
    assert not sources.locate(checkpoint=str(tmp_path)).rules.do_lower_case


def test_the_flag_knows_every_task():
    values = command_lines.define(run_pretraining)
    assert values["sentence_task"].default == "sop"
    assert values["sentence_task"].parser.enum_values == list(pretraining_heads.SENTENCE_TASKS)
    with pytest.raises(flags.IllegalFlagValueError, match="sentence_task=reference"):
        values(["script", "--input_file=x", "--output_dir=y", "--sentence_task=reference"])


def settings_of(*arguments):
    return command_lines.read(run_pretraining, "--input_file=x", "--output_dir=y", *arguments)


def test_flags_of_blimp_without_effect_are_refused():
    """Runs with them are in test_sentence_scores.py."""
    with pytest.raises(file_io.InputError, match="--blimp_data_dir needs --do_eval"):
        settings_of("--blimp_data_dir=x").check()
    with pytest.raises(file_io.InputError, match="--blimp_limit: only for --blimp_data_dir"):
        settings_of("--blimp_limit=2", "--do_eval").check()
    settings_of("--blimp_limit=2", "--do_eval", "--blimp_data_dir=x").check()


def test_without_data_of_blimp_the_task_stays_as_it_is():
    assert pretraining.with_blimp(settings_of(), "task", None) == "task"


@pytest.mark.parametrize(
    ("second", "types", "labels", "warnings"),
    [
        (False, 2, False, ["only one of 2 token types is trained"]),
        (True, 2, True, []),
        (False, 1, False, []),
        (False, 1, True, ["no sentence task to learn; give --sentence_task=none"]),
    ],
)
def test_records_without_second_texts_get_warnings(second, types, labels, warnings, caplog):
    files = {"train": dynamic_masking.RecordFiles(["a"], True, {}, second)}
    config = encoder.AlbertConfig.from_dict({**CONFIG.to_dict(), "type_vocab_size": types})
    pretraining.warn_of_untrained_types(files, config, labels)
    found = [record.getMessage() for record in caplog.records]
    assert len(found) == len(warnings)
    assert all(text in message for text, message in zip(warnings, found, strict=True))


MASKED = {"masked_lm_accuracy", "masked_lm_loss"}


@pytest.mark.slow
def test_masked_words_alone(inputs, pretrain, tmp_path):
    folder = tmp_path / "none"
    pretrain(folder, "unlabeled", sentence_task="none", num_train_steps=1)
    pretrain(folder, "labeled", sentence_task="none")  # resumes; labels are ignored
    found = last_results(folder)
    assert set(found) == MASKED | {"loss"}
    assert found["loss"] == found["masked_lm_loss"]
    assert not any("sentence" in tag for tag in logged(folder))
    names = {name for name, _ in tf.train.list_variables(str(folder / "model.ckpt-best"))}
    assert not any(name.startswith("cls/seq_relationship") for name in names)
    assert {name for name in names if "pooler" in name} == {
        "bert/pooler/dense/kernel", "bert/pooler/dense/bias",
    }  # fmt: skip
    description = json.loads((folder / "pretraining.json").read_text())
    assert description == {"version": 1, "sentence_task": "none"}
    # Evaluation by itself knows what there is to measure, and refuses what is not.
    before = (folder / "eval_results.txt").read_text()
    pretrain(folder, do_train=False)
    after = (folder / "eval_results.txt").read_text()
    assert after.endswith(before)  # step 0 had been measured on the unlabeled data alone
    for task in ("sop", "nsp"):
        with pytest.raises(file_io.InputError, match=f"no head that --sentence_task={task}"):
            pretrain(folder, do_train=False, sentence_task=task)
    with pytest.raises(file_io.InputError, match="_task=none: .* --sentence_task=sop"):
        pretrain(folder)
    # The head is new where training starts from these weights.
    pretrain(tmp_path / "sop", init_checkpoint=folder, num_train_steps=1, do_eval=False)
    report = json.loads((tmp_path / "sop" / "load_report.json").read_text())
    assert report["new"] == ["cls/seq_relationship/output_bias", HEAD]
    assert not report["unused"]


@pytest.mark.slow
def test_next_sentences(pretrain, tmp_path, caplog):
    folder = tmp_path / "nsp"
    pretrain(folder, sentence_task="nsp")
    found = last_results(folder)
    names = {"next_sentence_accuracy", "next_sentence_loss"}
    assert set(found) == MASKED | names | {"loss"}
    total = found["masked_lm_loss"] + found["next_sentence_loss"]
    assert found["loss"] == pytest.approx(total, rel=1e-6)
    assert names <= logged(folder)
    best = (folder / "best_trial.txt").read_text()
    with pytest.raises(file_io.InputError, match="_task=nsp: .* --sentence_task=sop"):
        pretrain(folder)
    with pytest.raises(file_io.InputError, match="has no feature 'next_sentence_labels'"):
        pretrain(tmp_path / "unlabeled", "unlabeled", sentence_task="nsp")
    # Evaluation by itself: the folder's task unless another is asked for.
    before = (folder / "eval_results.txt").read_text()
    pretrain(folder, do_train=False)
    assert (folder / "eval_results.txt").read_text() == before
    with caplog.at_level("INFO", logger="absl"):
        pretrain(folder, do_train=False, sentence_task="sop")
    cross = {"next_sentence_head_on_sentence_order_accuracy": "next_sentence_accuracy"}
    cross["next_sentence_head_on_sentence_order_loss"] = "next_sentence_loss"
    crossed = last_results(folder)
    assert crossed == {
        **{name: found[name] for name in (*MASKED, "loss")},
        **{new: found[old] for new, old in cross.items()},
    }
    assert (
        f"{folder} holds a model trained with --sentence_task=nsp: next_sentence_head_on_"
        "sentence_order_accuracy and …_loss measure its next sentence head on sentence order labels"
    ) in caplog.text
    pretrain(folder, do_train=False, sentence_task="none", checkpoint=folder / "model.ckpt-2")
    assert set(last_results(folder)) == MASKED | {"loss"}
    assert (folder / "best_trial.txt").read_text() == best


@pytest.mark.slow
def test_a_folder_without_a_description_is_known_by_its_variables(pretrain, tmp_path):
    for task in ("sop", "none"):
        pretrain(tmp_path / task, sentence_task=task, num_train_steps=1, do_eval=False)
        (tmp_path / task / "pretraining.json").unlink()

    def has_head(task, step):
        return checkpoints.reader(str(tmp_path / task / f"model.ckpt-{step}")).has_tensor(HEAD)

    assert has_head("sop", 1) and not has_head("none", 1)
    with pytest.raises(file_io.InputError, match="sop or nsp: .*--sentence_task=none"):
        pretrain(tmp_path / "sop", sentence_task="none")
    with pytest.raises(file_io.InputError, match="=none: .* --sentence_task=sop"):
        pretrain(tmp_path / "none")
    # Nothing tells for which of both the head was trained.
    pretrain(tmp_path / "sop", sentence_task="nsp", do_eval=False)
    assert has_head("sop", 2)
