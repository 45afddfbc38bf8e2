"""Finding, reading and writing checkpoints."""

import contextlib
import os
import shutil
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

from albert.io import file_io
from albert.model import checkpoints, encoder, heads, pretraining_heads
from albert.training import checkpoint_writer, optimizers
from tests.support.builders import assert_same, model_weights
from tests.support.processes import wait_until

CONFIG = encoder.AlbertConfig(
    vocab_size=20, embedding_size=4, hidden_size=8, num_hidden_layers=2, num_hidden_groups=2,
    num_attention_heads=2, intermediate_size=8, max_position_embeddings=8,
)  # fmt: skip


@pytest.fixture
def model():
    return heads.ClassifierModel(CONFIG, 2, seed=1)


@pytest.fixture
def prefix(tmp_path, model):
    prefix = str(tmp_path / "model.ckpt-30")
    checkpoints.save(prefix, model)
    return prefix


@pytest.mark.parametrize(
    "form", ["", ".index", ".data-00000-of-00001", "folder", "folder/", "other name"]
)
def test_every_form_of_a_path_is_read(prefix, model, form):
    other = heads.ClassifierModel(CONFIG, 2, seed=2)
    path = prefix + form
    if form.startswith("folder"):
        path = os.path.dirname(prefix) + form[len("folder") :]
    elif form == "other name":
        for ending in (".index", ".data-00000-of-00001"):
            shutil.move(prefix + ending, os.path.dirname(prefix) + "/bert_model" + ending)
        path = os.path.dirname(prefix)
    report = checkpoints.restore(other, path)
    assert_same(model_weights(other), model_weights(model))
    assert report.new == report.unused == []


def test_a_folder_means_its_best_checkpoint(prefix, model, tmp_path):
    assert checkpoints.resolve(str(tmp_path)) == prefix
    checkpoints.save(str(tmp_path / "model.ckpt-4"), model)
    assert checkpoints.resolve(str(tmp_path)) == prefix
    checkpoints.copy(prefix, str(tmp_path / "model.ckpt-best"))
    assert checkpoints.resolve(str(tmp_path)) == str(tmp_path / "model.ckpt-best")


def test_a_missing_checkpoint_is_named_with_what_is_there(prefix, tmp_path, model):
    with pytest.raises(file_io.InputError, match=r"best.*holds \['model\.ckpt-30'\]"):
        checkpoints.restore(model, str(tmp_path / "best"))
    with pytest.raises(file_io.InputError, match="nowhere does not exist"):
        checkpoints.restore(model, str(tmp_path / "nowhere" / "model.ckpt"))


def test_a_folder_without_a_checkpoint_is_listed_in_part(tmp_path):
    for number in range(25):
        (tmp_path / f"{number:02}.txt").touch()
    with pytest.raises(file_io.InputError, match=r"holds \['00.txt', .*'04.txt'\] and 20 more$"):
        checkpoints.resolve(str(tmp_path))
    (tmp_path / "sst2").mkdir()
    for name, place in (("sst3", r"holds \['sst2'\]$"), ("RTE", "nothing of a similar name$")):
        with pytest.raises(file_io.InputError, match=place):
            checkpoints.resolve(str(tmp_path / name))


def test_new_heads_keep_their_values_and_are_listed(prefix):
    other = heads.RegressionModel(CONFIG, seed=3)
    pooler = heads.SquadV1Model(CONFIG, seed=3)
    before = model_weights(pooler)
    with pytest.raises(file_io.InputError, match=r"output_weights is \[2, 8\] in the checkpoint"):
        checkpoints.restore(other, prefix)
    report = checkpoints.restore(pooler, prefix)
    assert report.new == ["cls/squad/output_bias", "cls/squad/output_weights"]
    assert report.unused == ["output_bias", "output_weights"]
    np.testing.assert_array_equal(model_weights(pooler)[report.new[1]], before[report.new[1]])
    assert "new, with random values: cls/squad/output_bias" in str(report)


def test_evaluation_needs_the_head(prefix):
    with pytest.raises(file_io.InputError, match=r"lacks .*cls/squad.*fine-tune first"):
        checkpoints.restore(heads.SquadV1Model(CONFIG), prefix, allow_new_heads=False)


def test_other_shapes_are_refused_and_change_nothing(prefix):
    config = encoder.AlbertConfig(**{**CONFIG.to_dict(), "hidden_size": 16})
    other = heads.ClassifierModel(config, 2, seed=5)
    before = model_weights(other)
    with pytest.raises(file_io.InputError, match=r"pooler/dense/kernel is \[8, 8\] in the check"):
        checkpoints.restore(other, prefix)
    assert_same(model_weights(other), before)


def test_missing_encoder_variables_are_named(prefix, tmp_path):
    config = encoder.AlbertConfig(**{**CONFIG.to_dict(), "inner_group_num": 2})
    with pytest.raises(file_io.InputError, match="lacks .*inner_group_1"):
        checkpoints.restore(heads.ClassifierModel(config, 2), prefix)
    report = checkpoints.restore(heads.ClassifierModel(config, 2), prefix, strict=False)
    assert any("inner_group_1" in name for name in report.new)


def test_a_checkpoint_of_something_else_is_refused(tmp_path, model):
    checkpoints.write_tensors(str(tmp_path / "other"), {"resnet/conv1": tf.zeros([2])})
    with pytest.raises(file_io.InputError, match=r"no variable of this model.*resnet/conv1"):
        checkpoints.restore(model, str(tmp_path / "other"))
    names = ("embeddings/word_embeddings_2", "encoder/layer_shared/output/dense/kernel")
    checkpoints.write_tensors(str(tmp_path / "zh"), {f"bert/{n}": tf.zeros([2]) for n in names})
    with pytest.raises(file_io.InputError, match=r"first layout of brightmart/albert_zh .*_google"):
        checkpoints.restore(model, str(tmp_path / "zh"))


@pytest.mark.parametrize("damaged", ["index", "data-00000-of-00001"])
def test_a_checkpoint_cut_in_half_is_refused(prefix, model, damaged):
    path = f"{prefix}.{damaged}"
    with open(path, "r+b") as file:
        file.truncate(os.path.getsize(path) // 2)
    before = model_weights(model)
    with pytest.raises(file_io.InputError, match="checkpoint .*model.ckpt-30 is damaged: ") as one:
        checkpoints.restore(model, prefix)
    assert_same(model_weights(model), before)
    assert str(one.value).endswith("; download or train it again")
    older = prefix.replace("ckpt-30", "ckpt-20")
    checkpoints.save(older, model)
    with pytest.raises(file_io.InputError, match=f"; use another, such as {older}$"):
        checkpoints.restore(model, prefix)
    os.remove(checkpoints.path_of(prefix))  # TensorFlow's own checks also find it.
    with pytest.raises(file_io.InputError, match=f"damaged: .*; use another, such as {older}$"):
        checkpoints.restore(model, prefix)
    assert_same(model_weights(model), before)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_refused(prefix, model, value):
    before = model_weights(model)
    before["bert/pooler/dense/bias"][3] = value
    checkpoints.write_tensors(prefix, before)
    before = model_weights(model)
    message = "is damaged: bert/pooler/dense/bias holds values that are not finite; download or tr"
    with pytest.raises(file_io.InputError, match=message):
        checkpoints.restore(model, prefix)
    assert_same(model_weights(model), before)


def test_every_group_can_start_from_group_0(prefix, model):
    other = heads.ClassifierModel(CONFIG, 2, seed=2)
    report = checkpoints.restore(other, prefix, rename=checkpoints.group_zero_name)
    loaded = model_weights(other)
    name = "bert/encoder/transformer/group_{}/inner_group_0/attention_1/self/query/kernel"
    np.testing.assert_array_equal(loaded[name.format(1)], loaded[name.format(0)])
    np.testing.assert_array_equal(loaded[name.format(0)], model_weights(model)[name.format(0)])
    assert all("group_1" in unused for unused in report.unused)


def test_a_failed_save_leaves_the_old_checkpoint(prefix, model, monkeypatch, tmp_path):
    before = model_weights(model)

    def full_disk(**_):
        raise tf.errors.ResourceExhaustedError(None, None, "no space left")

    monkeypatch.setattr(tf.raw_ops, "SaveV2", full_disk)
    with pytest.raises(file_io.InputError, match="cannot write the checkpoint .*no space left"):
        checkpoints.save(prefix, heads.ClassifierModel(CONFIG, 2, seed=9))
    monkeypatch.undo()
    checkpoints.restore(model, prefix)
    assert_same(model_weights(model), before)


def test_a_background_save_holds_the_values_of_its_moment(model, tmp_path, monkeypatch):
    before, go_on = model_weights(model), threading.Event()
    write, prefix = checkpoints.write_tensors, str(tmp_path / "model.ckpt-7")

    def slow_write(*arguments, **settings):
        assert go_on.wait(60)
        write(*arguments, **settings)

    monkeypatch.setattr(checkpoints, "write_tensors", slow_write)
    optimizer = optimizers.create_optimizer(0.1, 10, 0)
    optimizer.build(model.trained_variables)
    with checkpoint_writer.BackgroundWriter() as writer:
        writer.save(prefix, model, optimizer, lambda: None)
        optimizer.apply_gradients([(tf.ones_like(v), v) for v in model.trained_variables])
        for variable in model.variables:
            variable.assign_add(tf.ones_like(variable))
        assert not checkpoints.prefix_exists(prefix)
        writer.check()
        go_on.set()
    assert checkpoints.read_step(prefix) == 0
    checkpoints.restore(model, prefix)
    assert_same(model_weights(model), before)


def test_an_interrupted_run_lets_its_checkpoint_be_finished(model, tmp_path, monkeypatch):
    prefix, write = str(tmp_path / "model.ckpt-7"), checkpoints.write_tensors

    def slow_write(*given, **settings):
        return time.sleep(0.5) or write(*given, **settings)

    monkeypatch.setattr(checkpoints, "write_tensors", slow_write)
    done = []
    with pytest.raises(KeyboardInterrupt), checkpoint_writer.BackgroundWriter() as writer:
        writer.save(prefix, model, None, lambda: done.append(checkpoints.prefix_exists(prefix)))
        raise KeyboardInterrupt
    assert done == [True]


def test_a_failed_background_save_is_reported_without_waiting_for_the_next(
    model, tmp_path, monkeypatch
):
    def full_disk(*_, **__):
        raise file_io.InputError("no space left")

    monkeypatch.setattr(checkpoints, "write_tensors", full_disk)
    for report in ("check", "wait", "__exit__"):
        with contextlib.ExitStack() as stack:
            stack.enter_context(pytest.raises(file_io.InputError, match="no space left"))
            writer = stack.enter_context(checkpoint_writer.BackgroundWriter())
            writer.save(str(tmp_path / "model.ckpt-7"), model, None, lambda: None)
            if report == "wait":
                writer.wait()
            if report == "check":
                wait_until(writer.check, seconds=60)


def test_pruning_keeps_the_last_and_the_best(tmp_path, model):
    for step in (0, 5, 10, 100):
        checkpoints.save(str(tmp_path / f"model.ckpt-{step}"), model)
    checkpoints.copy(str(tmp_path / "model.ckpt-0"), str(tmp_path / "model.ckpt-best"))
    checkpoints.prune(str(tmp_path), keep=2)
    names = sorted(p.name for p in tmp_path.iterdir() if p.name.endswith(".index"))
    assert names == ["model.ckpt-10.index", "model.ckpt-100.index", "model.ckpt-best.index"]
    assert (tmp_path / "checkpoint").read_text() == (
        'model_checkpoint_path: "model.ckpt-100"\n'
        'all_model_checkpoint_paths: "model.ckpt-10"\n'
        'all_model_checkpoint_paths: "model.ckpt-100"\n'
    )
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-100")


@pytest.mark.parametrize("pending", [False, True])
def test_only_the_weights_of_the_best_are_left(tmp_path, model, pending):
    optimizer = optimizers.create_optimizer(0.1, 2, 0)
    optimizer.build(model.variables)
    for step in (5, 10):
        optimizer.global_step.assign(step)
        checkpoints.save(str(tmp_path / f"model.ckpt-{step}"), model, optimizer)
    name = checkpoints.NEW_BEST if pending else checkpoints.BEST
    checkpoints.copy(str(tmp_path / "model.ckpt-5"), str(tmp_path / name))
    checkpoints.prune(str(tmp_path), keep=2)
    before = checkpoints.size_in(str(tmp_path))
    checkpoints.keep_only_best(str(tmp_path))
    best = checkpoints.find_best(str(tmp_path))
    assert {path.name.rpartition(".")[0] for path in tmp_path.iterdir()} <= {
        *(checkpoints.BEST, f"{checkpoints.BEST}.manifest")
    }
    names = checkpoints.reader(best).get_variable_to_shape_map()
    assert set(names) == {*checkpoints.variables_by_name(model), "global_step"}
    assert checkpoints.read_step(best) == 5
    assert checkpoints.damage_of(best) is None
    assert checkpoints.size_in(str(tmp_path)) < before / 4


def test_a_numbered_checkpoint_has_an_empty_meta_file_before_it_is_there(
    tmp_path, model, monkeypatch
):
    """The reference opens it, and reads nothing in it."""
    prefix, meta = str(tmp_path / "model.ckpt-5"), tmp_path / "model.ckpt-5.meta"
    rename, seen = file_io.rename, []

    def watch(source, target):
        seen.append((os.path.basename(target), meta.exists()))
        rename(source, target)

    monkeypatch.setattr(file_io, "rename", watch)
    checkpoints.save(prefix, model)
    assert (
        seen[-2:] == [("model.ckpt-5.index", True), ("model.ckpt-5.manifest.json", True)]
        and meta.read_text() == ""
    )
    with checkpoint_writer.BackgroundWriter() as writer:
        writer.save(str(tmp_path / "model.ckpt-6"), model, None, lambda: None)
    checkpoints.write_tensors(str(tmp_path / "released"), {"x": tf.zeros([1])})
    metas = sorted(path.name for path in tmp_path.glob("*.meta"))
    assert metas == ["model.ckpt-5.meta", "model.ckpt-6.meta"]
    checkpoints.prune(str(tmp_path), keep=1)
    assert [path.name for path in tmp_path.glob("model.ckpt-5*")] == []
    assert (tmp_path / "model.ckpt-6.meta").exists()


def test_the_copy_of_a_killed_replacement_is_the_best(tmp_path, model):
    other = heads.ClassifierModel(CONFIG, 2, seed=2)
    checkpoints.save(str(tmp_path / "model.ckpt-9"), other)
    checkpoints.save(str(tmp_path / "new-model.ckpt-best"), model)
    for path in (tmp_path, tmp_path / "model.ckpt-best", tmp_path / "model.ckpt-best.index"):
        assert checkpoints.resolve(str(path)) == str(tmp_path / "new-model.ckpt-best")
    checkpoints.complete_best(str(tmp_path))
    assert checkpoints.resolve(str(tmp_path)) == str(tmp_path / "model.ckpt-best")
    checkpoints.restore(other, str(tmp_path))
    assert_same(model_weights(other), model_weights(model))
    (tmp_path / "new-model.ckpt-best.data-00000-of-00001").write_text("half")
    checkpoints.complete_best(str(tmp_path))
    assert not list(tmp_path.glob("new-*"))


def test_files_of_another_best_do_not_stay_beside_the_new_one(tmp_path, model):
    best = tmp_path / "model.ckpt-best"
    checkpoints.save(str(tmp_path / "model.ckpt-1"), model)
    for ending in (".index", ".meta", ".data-00000-of-00002", ".data-00001-of-00002"):
        (tmp_path / f"{best.name}{ending}").write_text("of the reference")
    checkpoints.replace_best(str(tmp_path), str(tmp_path / "model.ckpt-1"))
    for ending in (".index", ".meta", ".data-00000-of-00001", ".manifest.json"):
        found = (tmp_path / f"{best.name}{ending}").read_bytes()
        assert found == (tmp_path / f"model.ckpt-1{ending}").read_bytes()
    assert len(list(tmp_path.glob("model.ckpt-best.*"))) == 4


def test_what_a_killed_save_left_is_deleted(tmp_path):
    (tmp_path / "model.ckpt-10.tmp-77-0123abcd.data-00000-of-00001").write_bytes(b"half")
    kept = ["model.ckpt-10.data-00000-of-00001", "model.ckpt-10.tmp-2024-backup"]
    for name in kept:
        (tmp_path / name).write_bytes(b"no index yet; a user's")
    assert checkpoints.numbered(str(tmp_path)) == []
    checkpoints.clean_up(str(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == kept


def test_variables_have_the_names_of_a_reference_checkpoint(golden):
    folder = golden / "model" / "groups"
    config = encoder.AlbertConfig.from_json_file(str(folder / "albert_config.json"))
    names = set(checkpoints.variables_by_name(pretraining_heads.PretrainingModel(config)))
    stored = {name for name, _ in tf.train.list_variables(str(folder / "model.ckpt-best"))}
    assert names | {"global_step"} == stored


def test_a_hub_module_folder_is_a_checkpoint(golden):
    config = encoder.AlbertConfig.from_json_file(
        str(golden / "hub_tf1" / "assets" / "albert_config.json")
    )
    report = checkpoints.restore(
        pretraining_heads.PretrainingModel(config), str(golden / "hub_tf1")
    )
    assert report.new == report.unused == []
