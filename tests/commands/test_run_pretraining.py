"""Pre-training end to end on records that a tiny model can learn."""

import dataclasses
import itertools
import os
import re
import shutil
import signal
import subprocess

import numpy as np
import pytest
import tensorflow as tf

from albert import run_pretraining
from albert.data import record_files
from albert.experiments import reproduction
from albert.io import file_io
from albert.model import checkpoints, encoder
from albert.training import run_record
from tests.support import recorded_runs, reference_folder
from tests.support.builders import PRETRAINING_CONFIG as CONFIG
from tests.support.builders import PRETRAINING_LENGTH as LENGTH
from tests.support.builders import PRETRAINING_SPECS as SPECS
from tests.support.builders import (
    assert_same,
    pretraining_flags,
    pretraining_rows,
    read_results,
    weights,
)
from tests.support.forked import Process
from tests.support.processes import wait_until

TWO_LAYERS = dataclasses.replace(CONFIG, num_hidden_layers=2)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pretraining")
    for i in range(2):
        record_files.write(
            str(folder / f"part{i}.tfrecord"), SPECS, pretraining_rows(90, seed=i), {}
        )
    file_io.write_text(str(folder / "config.json"), CONFIG.to_json_string())
    file_io.write_text(str(folder / "two_layers.json"), TWO_LAYERS.to_json_string())
    return folder


def two_layers(inputs, output_dir, **changes):
    """Flags of a run like that of `evaluated`."""
    config = inputs / "two_layers.json"
    return pretraining_flags(inputs, output_dir, albert_config_file=config, **changes)


@pytest.fixture(scope="module")
def evaluated(inputs, run_script):
    """The folder of a run that evaluated while it trained. Nothing is to change it."""
    run_script(run_pretraining, **two_layers(inputs, inputs / "evaluated", do_eval=True))
    return inputs / "evaluated"


# With fewer steps or a higher rate the seed, or rounding, decides how far a run gets.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("optimizer", "rate", "steps"), [("adamw", 0.004, 300), ("lamb", 0.005, 600)]
)
def test_a_model_learns_what_can_be_learned(inputs, tmp_path, run_script, optimizer, rate, steps):
    flags = pretraining_flags(
        inputs, tmp_path, do_eval=True, optimizer=optimizer, num_train_steps=steps,
        save_checkpoints_steps=steps // 2, learning_rate=rate,
    )  # fmt: skip
    run_script(run_pretraining, **flags)
    first, _, last = read_results(tmp_path)
    assert [int(block["global_step"]) for block in (first, last)] == [0, steps]
    assert float(last["masked_lm_accuracy"]) > 0.35 > 0.2 > float(first["masked_lm_accuracy"])
    assert float(last["sentence_order_accuracy"]) > 0.9
    assert float(last["loss"]) == pytest.approx(
        float(last["masked_lm_loss"]) + float(last["sentence_order_loss"]), rel=1e-5
    )
    best = (tmp_path / "best_trial.txt").read_text()
    best_value = float(np.float32(last["masked_lm_accuracy"]))
    assert re.fullmatch(rf"{steps}:{steps}:{best_value}", best)
    assert_same(weights(tmp_path / "model.ckpt-best"), weights(tmp_path / f"model.ckpt-{steps}"))
    roles = ("configuration", "train_data", "eval_data")
    record = recorded_runs.check_record(tmp_path, "run_pretraining", *roles)
    assert len(record["inputs"]["train_data"]["files"]) == 2


@pytest.mark.slow
def test_the_cost_of_a_run_is_that_of_its_steps(inputs, evaluated):
    cost = run_record.read_cost(str(evaluated))
    rows = [row for row in run_record.read_metrics(str(evaluated)) if row["kind"] == "train"]
    batch_size = int(pretraining_flags(inputs, "")["train_batch_size"])
    assert (cost.steps, cost.examples) == (30, 30 * batch_size)
    assert cost.tokens == rows[-1]["tokens_seen"] <= cost.positions <= cost.examples * LENGTH
    # The encoder's products of a token alone; six, as of forward and backward pass.
    hidden, layers = CONFIG.hidden_size, TWO_LAYERS.num_hidden_layers - 1
    of_token = layers * (4 * hidden**2 + 2 * hidden * CONFIG.intermediate_size)
    assert cost.flop > 6 * cost.tokens * of_token
    assert cost.evaluation_seconds > 0
    assert cost.words is None  # These records have no manifest that says it.


def test_names_are_those_of_a_reference_run(evaluated, golden):
    ours = {name for name, _ in tf.train.list_variables(str(evaluated / "model.ckpt-30"))}
    theirs = tf.train.list_variables(str(golden / "model" / "shared" / "lamb" / "model.ckpt-8"))
    assert ours == {name for name, _ in theirs}
    assert (evaluated / "checkpoint").read_text().splitlines() == [
        'model_checkpoint_path: "model.ckpt-30"',
        *(f'all_model_checkpoint_paths: "model.ckpt-{step}"' for step in (0, 10, 20, 30)),
    ]


@pytest.mark.slow
def test_a_run_of_the_reference_goes_on_with_its_slots(tmp_path, shared, run_script):
    """The stored run has 30,000 words; its checkpoint is too large for this repository."""
    source = shared / "golden" / "runs"
    for ending in (".index", ".data-00000-of-00001"):
        name = f"model.ckpt-20{ending}"
        (tmp_path / name).write_bytes((source / "pretraining" / name).read_bytes())
    before = weights(tmp_path / "model.ckpt-20")
    flags = {
        "albert_config_file": source / "albert_config.json", "output_dir": tmp_path,
        "input_file": source / "loss_parity" / "eval.tfrecord", "max_seq_length": 128,
        "max_predictions_per_seq": 20, "train_batch_size": 4, "num_warmup_steps": 2,
    }  # fmt: skip
    run_script(run_pretraining, num_train_steps=20, **flags)
    assert_same(weights(tmp_path / "model.ckpt-20"), before)
    run_script(run_pretraining, num_train_steps=21, **flags)
    after = weights(tmp_path / "model.ckpt-21")
    assert after.keys() == before.keys()
    assert after["global_step"] == 21
    name = "cls/predictions/transform/dense/kernel/adam_v"
    # One step with rate (1 - 0.999) cannot move the second moment below 0.999 of what it was.
    assert (after[name] >= before[name] * 0.9989).all()
    assert (after[name] != before[name]).any()


@pytest.mark.slow
def test_evaluation_while_training_or_after_is_the_same(inputs, evaluated, tmp_path, run_script):
    shutil.copytree(evaluated, tmp_path, dirs_exist_ok=True)
    while_training = (tmp_path / "eval_results.txt").read_text()
    assert [int(b["global_step"]) for b in read_results(tmp_path)] == [0, 10, 20, 30]
    flags = two_layers(inputs, tmp_path, do_train=False, do_eval=True)
    run_script(run_pretraining, **flags)
    assert (tmp_path / "eval_results.txt").read_text() == while_training
    for path in [*tmp_path.glob("model.ckpt-best*"), *tmp_path.glob("*.txt")]:
        path.unlink()  # as if nothing had been evaluated
    run_script(run_pretraining, **flags)
    assert (tmp_path / "eval_results.txt").read_text() == while_training
    run_script(run_pretraining, **flags, checkpoint="last")
    assert (tmp_path / "eval_results.txt").read_text() == while_training


@pytest.mark.slow
def test_the_best_of_the_reference_is_not_lost(inputs, evaluated, tmp_path, run_script):
    flags = pretraining_flags(inputs, tmp_path / "reference", do_eval=True, num_train_steps=1)

    def run(do_train):
        return run_script(run_pretraining, **flags, do_train=do_train)

    reference_folder.check_best_survives(evaluated, tmp_path / "reference", run)


@pytest.mark.slow
def test_memory_can_be_saved_without_changing_the_result(inputs, evaluated, tmp_path, run_script):
    saving = {"gradient_accumulation_steps": 4, "recompute": True}
    run_script(run_pretraining, **two_layers(inputs, tmp_path, **saving))
    expected, found = (weights(folder / "model.ckpt-10") for folder in (evaluated, tmp_path))
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], atol=1e-4, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["mixed_bfloat16", "mixed_float16"])
def test_low_precision_follows_float32(inputs, evaluated, tmp_path, run_script, precision):
    flags = two_layers(inputs, tmp_path, precision=precision, do_eval=True)
    run_script(run_pretraining, **flags)
    found, expected = (float(read_results(path)[-1]["loss"]) for path in (tmp_path, evaluated))
    assert found == pytest.approx(expected, rel=0.02)
    assert found != expected


def test_memory_is_estimated_before_anything_is_done(inputs, tmp_path, run_script, capsys):
    with pytest.raises(SystemExit) as stop:
        run_script(
            run_pretraining, **pretraining_flags(inputs, tmp_path / "out", estimate_memory=True)
        )
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert "estimated for 16 x 24 tokens in float32" in text and "recompute" in text
    assert not (tmp_path / "out").exists()
    flags = pretraining_flags(inputs, tmp_path, estimate_memory=True, gradient_accumulation_steps=3)
    with pytest.raises(file_io.InputError, match="split into --gradient_accumulation_steps=3 eq"):
        run_script(run_pretraining, **flags)


@pytest.mark.slow
def test_every_group_can_start_from_group_0(inputs, evaluated, tmp_path, run_script):
    config = dataclasses.replace(TWO_LAYERS, num_hidden_groups=2)
    file_io.write_text(str(tmp_path / "groups.json"), config.to_json_string())
    flags = pretraining_flags(
        inputs, tmp_path / "b", num_train_steps=1, albert_config_file=tmp_path / "groups.json",
        init_checkpoint=evaluated,
    )  # fmt: skip
    with pytest.raises(file_io.InputError, match="lacks .*group_1"):
        run_script(run_pretraining, **flags)
    run_script(run_pretraining, **flags, init_from_group0=True)
    start = weights(tmp_path / "b" / "model.ckpt-0")
    name = "bert/encoder/transformer/group_{}/inner_group_0/LayerNorm/gamma"
    np.testing.assert_array_equal(start[name.format(0)], start[name.format(1)])
    assert '"new": []' in (tmp_path / "b" / "load_report.json").read_text()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input_file": "nowhere*"}, "^--input_file: no file matches 'nowhere\\*'"),
        ({"eval_input_file": "x"}, "--eval_input_file: only for --do_eval"),
        (
            {"eval_input_file": "nowhere*", "do_eval": True},
            "^--eval_input_file: no file matches 'nowhere\\*'",
        ),
        ({"max_seq_length": 16}, "input_ids has 24 values, expected 16. Give the --max_seq_length"),
        ({"max_predictions_per_seq": 5}, "masked_lm_positions has 4 values, expected 5"),
        ({"max_seq_length": 64}, "--max_seq_length=64 is above .* max_position_embeddings of 32"),
        ({"do_train": False}, "nothing to do: neither --do_train nor --do_eval"),
        ({"init_from_group0": True}, "--init_from_group0 needs --init_checkpoint"),
        ({"masked_lm_budget": 0.15}, "--masked_lm_budget needs the vocabulary"),
        ({"masked_lm_budget": 1.5}, "--masked_lm_budget=1.5 must be a fraction"),
        ({"train_batch_size": 0}, "--train_batch_size=0 must be at least 1"),
        ({"gradient_accumulation_steps": 3}, "=16 on 1 replicas cannot be .*_steps=3 equal parts"),
        ({"use_xla": True}, "--use_xla needs a GPU, and there is none"),
        ({"use_tpu": True, "distribution_strategy": "mirrored"}, "--use_tpu contradicts"),
        ({"albert_config_file": "no.json"}, "the file no.json does not exist"),
        ({"init_checkpoint": "nowhere/model.ckpt"}, "there is no checkpoint nowhere/model.ckpt"),
        (
            {"do_train": False, "do_eval": True},
            "there is no checkpoint to evaluate in .*train first",
        ),
    ],
)
def test_mistakes_are_named(inputs, tmp_path, run_script, changes, message):
    with pytest.raises(file_io.InputError, match=message):
        run_script(run_pretraining, **pretraining_flags(inputs, tmp_path / "out", **changes))


def test_files_of_the_training_are_not_held_out(inputs, tmp_path, run_script):
    (tmp_path / "heldout").symlink_to(inputs / "part1.tfrecord")  # by another name
    flags = pretraining_flags(
        inputs, tmp_path / "out", eval_input_file=tmp_path / "heldout", do_eval=True
    )
    expected = "--eval_input_file: .*heldout is also a file of --input_file; .* omit"
    with pytest.raises(file_io.InputError, match=expected):
        run_script(run_pretraining, **flags)


@pytest.mark.slow
def test_positions_without_weight_may_be_anything(inputs, evaluated, tmp_path, run_script):
    # Far behind the sequence, before it, and behind the real tokens of every row.
    anywhere = itertools.cycle([400, -3, LENGTH - 1])

    def changed(row):
        row["masked_lm_positions"][-1] = next(anywhere)
        row["masked_lm_ids"][-1] = -100
        return row

    for i in range(2):
        rows = map(changed, pretraining_rows(90, seed=i))
        record_files.write(str(tmp_path / f"part{i}.tfrecord"), SPECS, rows, {})
    flags = two_layers(
        inputs, tmp_path / "out", input_file=tmp_path / "part*.tfrecord", do_eval=True
    )
    run_script(run_pretraining, **flags)
    assert read_results(tmp_path / "out") == read_results(evaluated)
    assert_same(*(weights(folder / "model.ckpt-30") for folder in (tmp_path / "out", evaluated)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("position", "flags"),
    [
        (LENGTH - 1, {}),
        (-1, {}),
        (LENGTH, {"do_train": False, "do_eval": True}),
    ],
)
def test_a_position_behind_the_real_tokens_is_named(
    inputs, evaluated, tmp_path, run_script, position, flags
):
    rows = list(pretraining_rows(40))
    rows[37]["masked_lm_positions"][1] = position
    path = tmp_path / "other.tfrecord"
    record_files.write(str(path), SPECS, rows, {})
    if flags:
        shutil.copytree(evaluated, tmp_path / "out")
    tokens = rows[37]["input_mask"].sum()
    message = (
        rf"^{path}, record 38: masked_lm_positions\[1\] = {position} is the place of none of the "
        rf"{tokens} real tokens \(input_mask\), but masked_lm_weights\[1\] is 1.0: "
    )
    with pytest.raises(file_io.InputError, match=message):
        run_script(
            run_pretraining, **pretraining_flags(inputs, tmp_path / "out", input_file=path, **flags)
        )


def test_a_record_file_cut_in_half_is_named(inputs, tmp_path, run_script):
    cut = tmp_path / "cut.tfrecord"
    whole = (inputs / "part0.tfrecord").read_bytes()
    cut.write_bytes(whole[: len(whole) // 2 + 5])
    with pytest.raises(file_io.InputError, match=rf"{cut} is damaged: .* at byte \d+; make it ag"):
        run_script(run_pretraining, **pretraining_flags(inputs, tmp_path / "out", input_file=cut))


def test_other_shapes_than_the_checkpoint_of_the_folder_are_named(
    inputs, evaluated, tmp_path, run_script
):
    shutil.copytree(evaluated, tmp_path / "out")
    config = encoder.AlbertConfig(**{**CONFIG.to_dict(), "hidden_size": 32})
    file_io.write_text(str(tmp_path / "wide.json"), config.to_json_string())
    flags = pretraining_flags(inputs, tmp_path / "out", albert_config_file=tmp_path / "wide.json")
    with pytest.raises(file_io.InputError, match="does not fit the configuration"):
        run_script(run_pretraining, **flags)
    assert_same(*(weights(folder / "model.ckpt-30") for folder in (tmp_path / "out", evaluated)))


@pytest.mark.slow
def test_the_average_of_the_last_weights_is_evaluated_and_can_be_started_from(
    inputs, tmp_path, run_script
):
    flags = pretraining_flags(inputs, tmp_path / "first", do_eval=True, num_train_steps=20)
    run_script(run_pretraining, **flags, average_last=0.5)
    average = weights(tmp_path / "first" / "model.ckpt-average")
    (text, _) = (tmp_path / "first" / "average_results.txt").read_text().split("=" * 50)
    assert "global_step = 20\n" in text and "masked_lm_loss = " in text
    assert [int(b["global_step"]) for b in read_results(tmp_path / "first")] == [0, 10, 20]
    checkpoint = tmp_path / "first" / "model.ckpt-average"
    flags = pretraining_flags(inputs, tmp_path / "next", init_checkpoint=checkpoint)
    run_script(run_pretraining, **flags, keep_checkpoint_max=0)
    start = weights(tmp_path / "next" / "model.ckpt-0")
    assert_same({k: v for k, v in start.items() if k in average} | {"global_step": 20}, average)
    assert '"new": []' in (tmp_path / "next" / "load_report.json").read_text()


@pytest.mark.slow
def test_muon_learns_and_a_resumed_run_ends_with_the_same_weights(inputs, tmp_path, run_script):
    flags = pretraining_flags(
        inputs, tmp_path / "whole", optimizer="muon", num_train_steps=40, do_eval=True
    )
    run_script(run_pretraining, **flags)
    first, *_, last = read_results(tmp_path / "whole")
    assert float(last["loss"]) < float(first["loss"]) - 0.2
    (tmp_path / "resumed").mkdir()
    checkpoints.copy(str(tmp_path / "whole/model.ckpt-20"), str(tmp_path / "resumed/model.ckpt-20"))
    run_script(run_pretraining, **{**flags, "output_dir": tmp_path / "resumed", "do_eval": False})
    assert_same(*(weights(tmp_path / name / "model.ckpt-40") for name in ("whole", "resumed")))


def start_process(flags):
    arguments = [f"--{name}={value}" for name, value in flags.items()]
    return Process(
        ["-m", "albert.run_pretraining", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )


@pytest.mark.slow
def test_a_stopped_run_ends_with_the_weights_of_an_unbroken_one(inputs, tmp_path, run_script):
    """First Ctrl-C, then SIGKILL, while steps and saves alternate quickly: they hit either."""
    flags = pretraining_flags(
        inputs, tmp_path / "stopped", num_train_steps=16, save_checkpoints_steps=2, do_eval=True,
        average_last=0.75,
    )  # fmt: skip

    def written():
        return len(checkpoints.numbered(str(tmp_path / "stopped")))

    for kind, status in ((signal.SIGINT, 130), (signal.SIGKILL, -9)):
        more = written() + 2
        process = start_process(flags)
        wait_until(lambda: written() >= more, process, say=process.stderr.read)  # noqa: B023
        process.send_signal(kind)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == status
        assert "Traceback" not in errors
        assert ("interrupted" in errors) == (kind == signal.SIGINT)
    run_script(run_pretraining, **flags)
    run_script(run_pretraining, **{**flags, "output_dir": tmp_path / "whole"})
    for name in ("model.ckpt-16", "model.ckpt-average"):
        assert_same(weights(tmp_path / "stopped" / name), weights(tmp_path / "whole" / name))
    for name in ("eval_results.txt", "average_results.txt", "best_trial.txt", "checkpoint"):
        assert (tmp_path / "stopped" / name).read_text() == (tmp_path / "whole" / name).read_text()
    folders = [str(tmp_path / name) for name in ("stopped", "whole")]
    sessions = run_record.read(folders[0])["sessions"]
    assert [session["status"] for session in sessions] == ["interrupted", "interrupted", "done"]
    equal, different, _ = reproduction.compare(*folders)
    assert "evaluation: 9 lines" in equal and not different
