"""Keeping the best checkpoint, with an engine that only has numbers."""

import os
import threading
import time
import types

import pytest
import tensorflow as tf

from albert import checkpoint_walk, checkpoints, distribution, file_io

SCORES = {0: 0.25, 10: 0.75, 20: 0.5}


class Numbers(tf.Module):
    """A model whose weight is its step."""

    def __init__(self):
        super().__init__()
        self.step = tf.Variable(0.0, name="step")


def make_engine(folder, scores=SCORES):
    model = Numbers()
    return types.SimpleNamespace(
        model=model,
        run_config=types.SimpleNamespace(output_dir=str(folder)),
        task=types.SimpleNamespace(best_metric="score"),
        strategy=distribution.create_strategy("one_device"),
        evaluate=lambda input_fn: {"score": scores[int(model.step)], "loss": 1.5},
    )


def save(folder, step):
    tensors = {"step": tf.constant(float(step)), "global_step": tf.constant(step, tf.int64)}
    checkpoints.write_tensors(os.path.join(folder, f"model.ckpt-{step}"), tensors)


@pytest.fixture
def folder(tmp_path):
    for step in SCORES:
        save(str(tmp_path), step)
    return tmp_path


def best_step(folder):
    return tf.train.load_variable(str(folder / "model.ckpt-best"), "step")


def test_every_checkpoint_is_evaluated_and_the_best_kept(folder):
    tracker = checkpoint_walk.evaluate_all(make_engine(folder), None)
    assert (tracker.best_step, tracker.best_value, tracker.last_step) == (10, 0.75, 20)
    assert best_step(folder) == 10
    assert (folder / "best_trial.txt").read_text() == "20:10:0.75"
    rule = "=" * 50
    assert (folder / "eval_results.txt").read_text() == (
        f"global_step = 0\nloss = 1.5\nscore = 0.25\nbest = 0.25\n{rule}\n"
        f"global_step = 10\nloss = 1.5\nscore = 0.75\nbest = 0.75\n{rule}\n"
        f"global_step = 20\nloss = 1.5\nscore = 0.5\nbest = 0.75\n{rule}\n"
    )


def test_the_best_counts_when_its_numbered_file_is_gone(folder):
    checkpoint_walk.evaluate_all(make_engine(folder), None)
    checkpoints.prune(str(folder), keep=1)
    before = (folder / "model.ckpt-best.index").read_bytes()
    tracker = checkpoint_walk.evaluate_all(make_engine(folder), None)
    assert (tracker.best_step, tracker.last_step) == (10, 20)
    assert (folder / "model.ckpt-best.index").read_bytes() == before


def test_a_run_killed_while_it_replaced_the_best_goes_on(folder):
    tracker = checkpoint_walk.BestTracker(str(folder), "score", resume=True)
    tracker.record(str(folder / "model.ckpt-0"), 0, {"score": 0.25})
    checkpoints.delete(str(folder / "model.ckpt-best"))
    tracker = checkpoint_walk.BestTracker(str(folder), "score", resume=True)
    assert (tracker.last_step, tracker.best_step) == (0, None)
    tracker.record(str(folder / "model.ckpt-10"), 10, {"score": 0.75})
    assert best_step(folder) == 10
    assert (folder / "eval_results.txt").read_text().count("=" * 50) == 2


def test_a_walk_beside_a_trainer_waits_for_its_checkpoints(tmp_path):
    def trainer():
        for step in SCORES:
            time.sleep(0.3)
            save(str(tmp_path), step)

    thread = threading.Thread(target=trainer)
    thread.start()
    tracker = checkpoint_walk.evaluate_all(make_engine(tmp_path), None, wait_secs=3)
    thread.join()
    assert (tracker.last_step, tracker.best_step) == (20, 10)


@pytest.mark.parametrize(
    ("which", "step"), [(None, 10), ("best", 10), ("last", 20), ("{}/model.ckpt-0.index", 0)]
)
def test_the_checkpoint_flag(folder, which, step):
    checkpoint_walk.evaluate_all(make_engine(folder), None)
    prefix = checkpoint_walk.choose(str(folder), which and which.format(folder))
    assert tf.train.load_variable(prefix, "step") == step


def test_without_a_best_the_last_is_taken(folder):
    assert checkpoint_walk.choose(str(folder), None) == str(folder / "model.ckpt-20")
    with pytest.raises(file_io.InputError, match="there is no checkpoint .*model.ckpt-best"):
        checkpoint_walk.choose(str(folder), "best")


def test_one_checkpoint_can_be_evaluated_without_touching_the_best(folder):
    checkpoint_walk.evaluate_all(make_engine(folder), None)
    checkpoint_walk.evaluate(make_engine(folder, dict.fromkeys(SCORES, 0.9)), None, "last")
    assert best_step(folder) == 10
    assert (
        "global_step = 20\nloss = 1.5\nscore = 0.9\n" in (folder / "eval_results.txt").read_text()
    )


def test_an_empty_folder_and_a_missing_metric_are_named(tmp_path, folder):
    (tmp_path / "empty").mkdir()
    with pytest.raises(file_io.InputError, match="no checkpoint to evaluate in .*empty; train fi"):
        checkpoint_walk.evaluate_all(make_engine(tmp_path / "empty"), None)
    tracker = checkpoint_walk.BestTracker(str(folder), "f1", resume=False)
    with pytest.raises(file_io.InputError, match=r"no f1 among the results \['score'\]"):
        tracker.record(str(folder / "model.ckpt-0"), 0, {"score": 1.0})


def test_checkpoints_that_a_trainer_deletes_are_left_out(folder):
    """One is deleted while it is evaluated, the next before it is its turn."""
    runner = make_engine(folder)
    evaluate = runner.evaluate

    def while_a_trainer_prunes(input_fn):
        for step in (0, 10):
            checkpoints.delete(str(folder / f"model.ckpt-{step}"))
        return evaluate(input_fn)

    runner.evaluate = while_a_trainer_prunes
    (folder / "eval").mkdir()
    (folder / "eval" / "model.ckpt-5.index").write_text("of a killed run")
    tracker = checkpoint_walk.evaluate_all(runner, None)
    assert (tracker.best_step, tracker.best_value, tracker.last_step) == (20, 0.5, 20)
    assert best_step(folder) == 20
    results = (folder / "eval_results.txt").read_text()
    assert "global_step = 0\n" in results and "global_step = 10\n" not in results
    assert not [name for name in os.listdir(folder / "eval") if "ckpt" in name]


def test_a_checkpoint_deleted_at_its_turn_is_left_out(folder, monkeypatch, caplog):
    copy = checkpoints.copy

    def copy_too_late(source, target):
        if source.endswith("-10"):
            checkpoints.delete(source)
        copy(source, target)

    monkeypatch.setattr(checkpoints, "copy", copy_too_late)
    with caplog.at_level("WARNING", logger="absl"):
        tracker = checkpoint_walk.evaluate_all(make_engine(folder), None)
    assert (tracker.best_step, tracker.last_step) == (20, 20)
    assert "model.ckpt-10 was deleted before it could be evaluated: left out" in caplog.text


def test_if_all_are_deleted_at_their_turn_it_is_said(folder, monkeypatch):
    def copy_too_late(source, target):
        checkpoints.delete(source)
        raise FileNotFoundError(source)

    monkeypatch.setattr(checkpoints, "copy", copy_too_late)
    with pytest.raises(file_io.InputError, match="every checkpoint of .* --?keep_checkpoint_max|k"):
        checkpoint_walk.evaluate_all(make_engine(folder), None)


def test_a_damaged_best_trial_is_named(folder):
    (folder / "best_trial.txt").write_text("garbage")
    with pytest.raises(
        file_io.InputError, match="best_trial.txt must hold .* found 'garbage'; del"
    ):
        checkpoint_walk.BestTracker(str(folder), "score", resume=True)
