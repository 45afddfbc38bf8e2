"""Keeping the best checkpoint, with an engine that only has numbers."""

import os
import re
import types

import numpy as np
import pytest
import tensorflow as tf

from albert.io import file_io
from albert.model import checkpoints
from albert.training import best_checkpoint, evaluation, results, run_record
from albert.training.evaluation_basis import Basis
from tests.support import reference_folder
from tests.support.number_engine import SCORES, best_step, make_engine, recorded, save


@pytest.fixture
def folder(tmp_path):
    for step in SCORES:
        save(str(tmp_path), step)
    return tmp_path


def test_every_checkpoint_is_evaluated_and_the_best_kept(folder):
    tracker = evaluation.evaluate_all(make_engine(folder), None)
    assert (tracker.best_step, tracker.best_value, tracker.last_step) == (10, 0.75, 20)
    assert best_step(folder) == 10
    assert (folder / "best_trial.txt").read_text() == "20:10:0.75"
    rule = "=" * 50
    assert (folder / "eval_results.txt").read_text() == (
        f"global_step = 0\nloss = 1.5\nscore = 0.25\nbest = 0.25\n{rule}\n"
        f"global_step = 10\nloss = 1.5\nscore = 0.75\nbest = 0.75\n{rule}\n"
        f"global_step = 20\nloss = 1.5\nscore = 0.5\nbest = 0.75\n{rule}\n"
    )
    (events,) = (folder / "eval").glob("*tfevents*")
    found = tf.compat.v1.train.summary_iterator(str(events))
    tags = [(event.step, value.tag) for event in found for value in event.summary.value]
    assert sorted(tags) == [(step, name) for step in SCORES for name in ("loss", "score")]


def test_names_with_more_digits_than_steps_have_are_no_checkpoints():
    assert checkpoints.step_of("out/model.ckpt-" + 18 * "9") == 10**18 - 1
    assert checkpoints.step_of("out/model.ckpt-" + 30 * "9") is None


def test_the_best_counts_when_its_numbered_file_is_gone(folder):
    evaluation.evaluate_all(make_engine(folder), None)
    checkpoints.prune(str(folder), keep=1)
    before = (folder / "model.ckpt-best.index").read_bytes()
    results_before = (folder / "eval_results.txt").read_text()
    tracker = evaluation.evaluate_all(make_engine(folder), None)
    assert (tracker.best_step, tracker.last_step) == (10, 20)
    assert (folder / "model.ckpt-best.index").read_bytes() == before
    # That of step 0, which exists no more, keeps its results.
    assert (folder / "eval_results.txt").read_text() == results_before


def test_a_run_killed_while_it_replaced_the_best_goes_on(folder):
    tracker = best_checkpoint.BestTracker(str(folder), "score", resume=True)
    tracker.record(str(folder / "model.ckpt-0"), 0, {"score": 0.25})
    checkpoints.delete(str(folder / "model.ckpt-best"))
    tracker = best_checkpoint.BestTracker(str(folder), "score", resume=True)
    assert (tracker.last_step, tracker.best_step) == (0, None)
    tracker.record(str(folder / "model.ckpt-10"), 10, {"score": 0.75})
    assert best_step(folder) == 10
    assert (folder / "eval_results.txt").read_text().count("=" * 50) == 2


def test_a_walk_beside_a_trainer_waits_for_its_checkpoints(tmp_path, monkeypatch):
    """Each comes two seconds after the last, by a clock that only waiting moves."""
    seconds = [0]

    def sleep(more):
        seconds[0] += more
        step = {2: 0, 4: 10, 6: 20}.get(seconds[0])
        if step is not None:
            save(str(tmp_path), step)

    clock = types.SimpleNamespace(time=lambda: seconds[0], sleep=sleep)
    monkeypatch.setattr(evaluation, "time", clock)
    tracker = evaluation.evaluate_all(make_engine(tmp_path), None, wait_secs=3)
    assert (tracker.last_step, tracker.best_step) == (20, 10)
    assert seconds[0] == 6 + 3


@pytest.mark.parametrize(
    ("which", "step"), [(None, 10), ("best", 10), ("last", 20), ("{}/model.ckpt-0.index", 0)]
)
def test_the_checkpoint_flag(folder, which, step):
    evaluation.evaluate_all(make_engine(folder), None)
    prefix = checkpoints.choose(str(folder), which and which.format(folder))
    assert tf.train.load_variable(prefix, "step") == step


def test_without_a_best_the_last_is_taken(folder):
    assert checkpoints.choose(str(folder), None) == str(folder / "model.ckpt-20")
    with pytest.raises(file_io.InputError, match="there is no checkpoint .*model.ckpt-best"):
        checkpoints.choose(str(folder), "best")


def test_one_checkpoint_can_be_evaluated_without_touching_the_best(folder):
    evaluation.evaluate_all(make_engine(folder), None)
    evaluation.evaluate(make_engine(folder, dict.fromkeys(SCORES, 0.9)), None, "last")
    assert best_step(folder) == 10
    assert (
        "global_step = 20\nloss = 1.5\nscore = 0.9\n" in (folder / "eval_results.txt").read_text()
    )


def test_a_checkpoint_of_another_folder_leaves_the_results(folder, tmp_path, caplog):
    evaluation.evaluate_all(make_engine(folder), None)
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    other, new = tmp_path / "other", tmp_path / "new"
    other.mkdir()
    save(str(other), 20)
    elsewhere = make_engine(folder, dict.fromkeys(SCORES, 0.9))
    with caplog.at_level("INFO", "absl"):
        assert evaluation.evaluate(elsewhere, None, f"{other}/model.ckpt-20") is None
    assert "score = 0.9" in caplog.text and "is of another folder" in caplog.text
    assert {path: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before
    # A folder without checkpoints has the results of the one that it uses.
    evaluation.evaluate(make_engine(new), None, f"{other}/model.ckpt-20")
    assert "global_step = 20" in (new / "eval_results.txt").read_text()


def test_results_of_one_alone_stay_beside_those_of_others(folder):
    engine, rule = make_engine(folder), "=" * 50
    evaluation.evaluate_all(engine, None)
    before = (folder / "eval_results.txt").read_text()
    for which in ("best", "last"):  # They say the same.
        block = evaluation.evaluate(engine, None, which)
        assert (folder / "eval_results.txt").read_text() == before
    assert (block.step, block.text) == (20, "global_step = 20\nloss = 1.5\nscore = 0.5")
    evaluation.evaluate(make_engine(folder, dict.fromkeys(SCORES, 0.9)), None, "last")
    blocks = before.split(f"{rule}\n")
    changed = blocks[2].replace("score = 0.5\nbest = 0.75", "score = 0.9")
    expected = f"{rule}\n".join([*blocks[:2], changed, ""])
    assert (folder / "eval_results.txt").read_text() == expected


def train_through(folder, scores, steps):
    """Evaluates the checkpoints of steps like a training that resumes before the first of them."""
    runner = make_engine(folder, scores)
    on_checkpoint = evaluation.evaluate_while_training(runner, None)
    for step in steps:
        runner.model.step.assign(step)
        on_checkpoint(str(folder / f"model.ckpt-{step}"), step)
    return runner


@pytest.mark.parametrize("stage", ["training", "resumed training", "evaluation"])
def test_step_0_with_random_parts_is_shown_and_never_chosen(folder, stage, caplog):
    """Its score is the best one by chance, and a later one is worse than the first trained one."""
    scores = {0: 0.9, 10: 0.75, 20: 0.5}
    runner = make_engine(folder, scores)
    if stage == "training":
        train_through(folder, scores, (0, 10, 20))
    elif stage == "resumed training":
        train_through(folder, scores, [0])
        assert best_step(folder) == 0  # until there is another
        train_through(folder, scores, (10, 20))
    else:
        evaluation.evaluate_all(runner, None)
    for _ in range(2):
        assert best_step(folder) == 10
        assert (folder / "best_trial.txt").read_text() == "20:10:0.75"
        assert "score = 0.9\n" in (folder / "eval_results.txt").read_text()
        evaluation.evaluate_all(make_engine(folder, scores), None)
    evaluation.warn_of_start(runner, evaluation.find_best_block(runner))
    assert "Step 0, before training, has a better score (0.9000) than step 10 (0.7500)" in (
        caplog.text
    )
    assert "these variables had random values: step" in caplog.text


def test_step_0_can_be_the_best_if_all_of_it_was_loaded(folder):
    (folder / "load_report.json").write_text('{"new": []}')
    evaluation.evaluate_all(make_engine(folder, {0: 0.9, 10: 0.75, 20: 0.5}), None)
    assert best_step(folder) == 0


def test_a_best_checkpoint_without_a_step_is_not_taken_for_that_of_step_0(folder):
    checkpoints.write_tensors(str(folder / "model.ckpt-best"), {"step": tf.constant(7.0)})
    train_through(folder, {7: 0.9, **SCORES}, SCORES)
    train_through(folder, {7: 0.9, **SCORES}, [20])
    assert best_step(folder) == 7


def test_of_scores_that_are_undefined_the_last_one_counts(folder):
    runner = train_through(folder, {0: 0.9, 10: np.nan, 20: np.nan}, SCORES)
    assert best_step(folder) == 20
    assert results.read_trial(str(folder)).best_step == 20
    text = results.display(evaluation.find_best_block(runner))
    assert "score = undefined" in text


def test_results_of_squad_have_the_form_of_the_reference(folder, golden):
    """Names and digits of the recorded file, with the step that each block is of."""
    scores = {0: 25.5, 10: 250 / 3, 20: 50.0}
    engine = make_engine(folder, scores, results.SQUAD)
    block = evaluation.evaluate(engine, None)
    assert block.step == 10
    rule, third = "=" * 50, "83.33333333333333"
    expected = (
        f"global_step = 0\nloss = 1.5\nscore = 25.5\nbest score = 25.5\n{rule}\n"
        f"global_step = 10\nloss = 1.5\nscore = {third}\nbest score = {third}\n{rule}\n"
        f"global_step = 20\nloss = 1.5\nscore = 50.0\nbest score = {third}\n{rule}\n"
        f"loss = 1.5\nscore = {third}\nbest perf happened at step: 10\n"
    )
    assert (folder / "eval_results.txt").read_text() == expected
    assert (folder / "best_trial.txt").read_text() == f"20:10:{third}"
    evaluation.evaluate(engine, None, "best")
    assert (folder / "eval_results.txt").read_text() == expected
    theirs = (golden / "runs" / "squad_v1" / "eval_results.txt").read_text().split(rule)
    assert theirs[0].splitlines()[-1].startswith("best f1 = ") and "f1 = 3.6363636363636362" in (
        theirs[3].splitlines()
    )
    assert theirs[3].splitlines()[-1].startswith("best perf happened at step: ")
    save(str(folder), 30)
    later = make_engine(folder, {**scores, 30: 90.0}, results.SQUAD)
    on_checkpoint = evaluation.evaluate_while_training(later, None)
    later.model.step.assign(30.0)
    on_checkpoint(str(folder / "model.ckpt-30"), 30)
    found = (folder / "eval_results.txt").read_text().split(f"{rule}\n")
    assert found[:3] == expected.split(f"{rule}\n")[:3] and len(found) == 5
    assert found[4] == "loss = 1.5\nscore = 90.0\nbest perf happened at step: 30\n"


def test_an_empty_folder_and_a_missing_metric_are_named(tmp_path, folder):
    (tmp_path / "empty").mkdir()
    with pytest.raises(file_io.InputError, match="no checkpoint to evaluate in .*empty; train fi"):
        evaluation.evaluate_all(make_engine(tmp_path / "empty"), None)
    tracker = best_checkpoint.BestTracker(str(folder), "f1", resume=False)
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
    tracker = evaluation.evaluate_all(runner, None)
    assert (tracker.best_step, tracker.best_value, tracker.last_step) == (20, 0.5, 20)
    assert best_step(folder) == 20
    results = (folder / "eval_results.txt").read_text()
    assert "global_step = 0\n" in results and "global_step = 10\n" not in results
    assert not [name for name in os.listdir(folder / "eval") if "ckpt" in name]


def test_a_checkpoint_deleted_at_its_turn_is_left_out(folder, monkeypatch, caplog):
    copy = checkpoints.copy

    def copy_too_late(source, *arguments):
        if source.endswith("-10"):
            checkpoints.delete(source)
        copy(source, *arguments)

    monkeypatch.setattr(checkpoints, "copy", copy_too_late)
    with caplog.at_level("WARNING", logger="absl"):
        tracker = evaluation.evaluate_all(make_engine(folder), None)
    assert (tracker.best_step, tracker.last_step) == (20, 20)
    assert "model.ckpt-10 was deleted before it could be evaluated: skipped" in caplog.text


def test_if_all_are_deleted_at_their_turn_it_is_said(folder, monkeypatch):
    def copy_too_late(source, target):
        checkpoints.delete(source)
        raise FileNotFoundError(source)

    monkeypatch.setattr(checkpoints, "copy", copy_too_late)
    with pytest.raises(file_io.InputError, match="every checkpoint of .* --?keep_checkpoint_max|k"):
        evaluation.evaluate_all(make_engine(folder), None)


# --- an existing best checkpoint --------------------------------------------------------------

REFERENCE_SCORES = {0: 0.25, 20: 0.5, 40: 0.75}
BLOCK = "global_step = {}\nloss = 1.5\nscore = {}\nbest = {}\n" + "=" * 50 + "\n"
RESULTS = BLOCK.format(0, 0.25, 0.25) + BLOCK.format(20, 0.5, 0.5) + BLOCK.format(40, 0.75, 0.75)
UNKNOWN = [
    None, "", "garbage", "40:40", "40:40:nan", "40:40:inf", "40:40:9e99", "40:40:-1e99",
    "40:20:0.5", "40:40:0.5", "40:60:0.75",
]  # fmt: skip


@pytest.fixture
def reference(tmp_path):
    """Checkpoints 0 and 20; step 40 is the best, and only there."""
    folder = tmp_path / "reference"
    folder.mkdir()
    for step in REFERENCE_SCORES:
        save(str(folder), step)
    reference_folder.rename_best(folder, 40)
    return folder


@pytest.mark.parametrize("trial", [*UNKNOWN, "40:40:0.75"])
def test_a_best_that_is_nowhere_else_survives_an_evaluation(reference, trial):
    if trial is not None:
        (reference / "best_trial.txt").write_text(trial)
    before = reference_folder.data_of_best(reference)
    runner = make_engine(reference, REFERENCE_SCORES)
    tracker = evaluation.evaluate_all(runner, None)
    assert (tracker.best_step, tracker.best_value, tracker.last_step) == (40, 0.75, 40)
    assert runner.evaluated == [40, 0, 20]
    for _ in range(2):
        assert reference_folder.data_of_best(reference) == before and best_step(reference) == 40
        assert (reference / "eval_results.txt").read_text() == RESULTS
        assert (reference / "best_trial.txt").read_text() == "40:40:0.75"
        evaluation.evaluate_all(make_engine(reference, REFERENCE_SCORES), None)


def test_a_better_one_replaces_the_best_and_the_graph_beside_it(reference):
    (reference / "model.ckpt-20.meta").write_text("")
    tracker = evaluation.evaluate_all(make_engine(reference, {**REFERENCE_SCORES, 20: 1.0}), None)
    assert (tracker.best_step, best_step(reference)) == (20, 20)
    assert (reference / "model.ckpt-best.meta").read_text() == ""
    assert (reference / "eval_results.txt").read_text() == (
        BLOCK.format(0, 0.25, 0.25) + BLOCK.format(20, 1.0, 1.0) + BLOCK.format(40, 0.75, 1.0)
    )
    assert (reference / "best_trial.txt").read_text() == "40:20:1.0"
    checkpoints.delete(str(reference / "model.ckpt-20"))
    save(str(reference), 50)
    evaluation.evaluate_all(make_engine(reference, {0: 0, 20: 0, 50: 1}), None)
    assert best_step(reference) == 50
    assert not (reference / "model.ckpt-best.meta").exists()


def test_the_original_of_the_best_is_not_evaluated_twice(folder):
    evaluation.evaluate_all(make_engine(folder), None)
    results = (folder / "eval_results.txt").read_text()
    runner = make_engine(folder)
    evaluation.evaluate_all(runner, None)
    assert runner.evaluated == [10, 0, 20]
    assert (folder / "eval_results.txt").read_text() == results


def test_another_checkpoint_of_the_step_of_the_best_is_evaluated_for_itself(reference):
    tensors = {"step": tf.constant(41.0), "global_step": tf.constant(40, tf.int64)}
    checkpoints.write_tensors(str(reference / "model.ckpt-40"), tensors)
    runner = make_engine(reference, {**REFERENCE_SCORES, 41: 0.625})
    evaluation.evaluate_all(runner, None)
    assert runner.evaluated == [40, 0, 20, 41]
    assert best_step(reference) == 40
    assert BLOCK.format(40, 0.625, 0.625) in (reference / "eval_results.txt").read_text()


@pytest.mark.slow
def test_a_walk_beside_a_trainer_keeps_the_best_of_the_reference(reference):
    runner = make_engine(reference, {**REFERENCE_SCORES, 30: 0.6, 50: 0.7})
    evaluate = runner.evaluate

    def while_a_trainer_saves(input_fn):
        if runner.evaluated:  # after the best
            save(str(reference), 30 if runner.evaluated[-1] == 40 else 50)
        return evaluate(input_fn)

    runner.evaluate = while_a_trainer_saves
    tracker = evaluation.evaluate_all(runner, None, wait_secs=1)
    assert runner.evaluated == [40, 0, 20, 30, 50]
    assert (tracker.best_step, best_step(reference)) == (40, 40)


@pytest.mark.parametrize("trial", UNKNOWN)
def test_training_scores_an_unknown_best_first(reference, trial):
    if trial is not None:
        (reference / "best_trial.txt").write_text(trial)
        (reference / "eval_results.txt").write_text(RESULTS)
    before = reference_folder.data_of_best(reference)
    scores = {**REFERENCE_SCORES, 50: 0.625, 60: 1.0}
    runner = make_engine(reference, scores)
    runner.model.step.assign(7.0)
    on_checkpoint = evaluation.evaluate_while_training(runner, None)
    assert runner.evaluated == [40] and int(runner.model.step) == 7
    assert BLOCK.format(40, 0.75, 0.75) in (reference / "eval_results.txt").read_text()
    assert (reference / "best_trial.txt").read_text().endswith(":40:0.75")
    for step in (50, 60):
        assert reference_folder.data_of_best(reference) == before
        save(str(reference), step)
        runner.model.step.assign(step)
        on_checkpoint(str(reference / f"model.ckpt-{step}"), step)
    assert best_step(reference) == 60
    assert (reference / "best_trial.txt").read_text() == "60:60:1.0"
    text = (reference / "eval_results.txt").read_text()
    assert BLOCK.format(50, 0.625, 0.75) + BLOCK.format(60, 1.0, 1.0) in text
    steps = ["40", "50", "60"] if trial is None else ["0", "20", "40", "50", "60"]
    assert re.findall("step = (.*)", text) == steps


def test_training_takes_over_a_score_that_is_known(reference):
    (reference / "best_trial.txt").write_text("40:40:0.75")
    (reference / "eval_results.txt").write_text(RESULTS)
    runner = make_engine(reference, {50: 0.625})
    on_checkpoint = evaluation.evaluate_while_training(runner, None)
    save(str(reference), 50)
    runner.model.step.assign(50)
    on_checkpoint(str(reference / "model.ckpt-50"), 50)
    assert runner.evaluated == [50] and best_step(reference) == 40
    assert (reference / "best_trial.txt").read_text() == "50:40:0.75"
    assert (reference / "eval_results.txt").read_text() == RESULTS + BLOCK.format(50, 0.625, 0.75)


def test_a_score_of_another_metric_is_not_taken_over(reference):
    (reference / "best_trial.txt").write_text("40:40:0.75")
    (reference / "eval_results.txt").write_text(RESULTS.replace("score", "pearson"))
    runner = make_engine(reference, {40: 0.125})
    evaluation.evaluate_while_training(runner, None)
    assert runner.evaluated == [40]
    assert (reference / "best_trial.txt").read_text() == "40:40:0.125"


def test_a_score_that_is_no_number_is_worse_than_any(folder):
    tracker = evaluation.evaluate_all(make_engine(folder, {0: np.nan, 10: 0.5, 20: 0}), None)
    assert (tracker.best_step, best_step(folder)) == (10, 10)
    tracker = evaluation.evaluate_all(make_engine(folder, {0: 0, 10: np.nan, 20: 0.5}), None)
    assert (tracker.best_step, best_step(folder)) == (20, 20)


@pytest.mark.parametrize("fault", ["damaged", "without head"])
def test_a_best_that_cannot_be_evaluated_is_not_replaced(reference, fault):
    data = reference / "model.ckpt-best.data-00000-of-00001"
    if fault == "damaged":
        data.write_bytes(data.read_bytes()[:-1])
    else:
        checkpoints.write_tensors(str(reference / "model.ckpt-best"), {"bert/x": tf.zeros([1])})
    before = data.read_bytes()
    for evaluate in (evaluation.evaluate_all, evaluation.evaluate_while_training):
        with pytest.raises(file_io.InputError, match="ckpt-best.* cannot be evaluated: move it"):
            evaluate(make_engine(reference, REFERENCE_SCORES), None)
    assert data.read_bytes() == before


# --- results on other data ------------------------------------------------------------------------


def test_a_score_on_other_data_is_not_kept_and_does_not_compete(folder):
    """The dev file changes before the run resumes: 0.98 on the old one is 0.5 on the new one."""
    old, new = (Basis(sha256=name * 64, path="dev.csv", metric="score") for name in "ab")

    def train(basis, scores, steps):
        with recorded(folder, ["train", "eval"]):
            runner = make_engine(folder, scores, basis=basis)
            on_checkpoint = evaluation.evaluate_while_training(runner, None)
            for step in steps:
                runner.model.step.assign(step)
                on_checkpoint(str(folder / f"model.ckpt-{step}"), step)
        return runner

    train(old, {0: 0.1, 10: 0.98}, (0, 10))
    before = (folder / "eval_results.txt").read_text()
    runner = train(new, {10: 0.5, 20: 0.625}, [20])
    assert runner.evaluated == [10, 20] and best_step(folder) == 20
    assert (folder / "best_trial.txt").read_text() == "20:20:0.625"
    assert (folder / "eval_results.earlier1.txt").read_text() == before
    steps = re.findall("step = (.*)", (folder / "eval_results.txt").read_text())
    assert steps == ["10", "20"]
    rows = run_record.read_metrics(str(folder))
    assert [(r["kind"], r["step"], r["score"]) for r in rows] == [
        ("earlier_eval", 0, 0.1), ("earlier_eval", 10, 0.98),
        ("eval", 10, 0.5), ("eval", 20, 0.625),
    ]  # fmt: skip
    record = run_record.read(str(folder))
    assert record["result"]["score"] == 0.625 and record["evaluated"] == 2
    assert record["measured_on"] == new.to_dict()
    assert run_record.basis_of_result(str(folder), record) == new
    assert train(new, {}, []).evaluated == []  # nothing has changed since


@pytest.mark.parametrize("which", ["all", "last"])
def test_an_evaluation_on_other_data_keeps_the_earlier_results_aside(folder, which):
    old, new = (Basis(reading={"max_seq_length": length}) for length in (128, 64))
    for basis, scores in ((old, SCORES), (new, dict.fromkeys(SCORES, 0.5))):
        with recorded(folder, ["eval"]):
            evaluation.evaluate(make_engine(folder, scores, basis=basis), None, which)
    steps = ["0", "10", "20"] if which == "all" else ["20"]
    for name, last in (("eval_results.earlier1.txt", SCORES[20]), ("eval_results.txt", 0.5)):
        text = (folder / name).read_text()
        assert re.findall("step = (.*)", text) == steps and f"score = {last}\n" in text
    assert (folder / "best_trial.earlier1.txt").exists() == (which == "all")
    rows = [row["kind"] for row in run_record.read_metrics(str(folder))]
    assert sorted(rows) == ["earlier_eval"] * len(steps) + ["eval"] * len(steps)


# --- kills --------------------------------------------------------------------------------------


@pytest.fixture
def killed_at(monkeypatch):
    """``killed_at(count, run)``: whether ``run()`` dies at its change of a file of that number."""

    def killed_at(count, run):
        done = 0

        def dying(function):
            def change(*arguments):
                nonlocal done
                done += 1
                if done >= count:  # Nothing is tidied up by a process that is dead.
                    if function is copyfile and done == count:
                        with open(arguments[1], "wb") as file:
                            file.write(b"half")
                    raise KeyboardInterrupt
                return function(*arguments)

            return change

        copyfile = file_io.shutil.copyfile
        with monkeypatch.context() as patch:
            patch.setattr(file_io.shutil, "copyfile", dying(copyfile))
            patch.setattr(file_io.os, "link", dying(os.link))
            patch.setattr(file_io.os, "replace", dying(os.replace))
            patch.setattr(file_io, "remove", dying(file_io.remove))
            try:
                run()
            except KeyboardInterrupt:
                return True
        return False

    return killed_at


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["training", "evaluation"])
def test_a_run_killed_anywhere_loses_no_best(tmp_path, killed_at, stage):
    scores = {**SCORES, 30: 1.0}
    for count in range(1, 200):
        folder = tmp_path / str(count)
        folder.mkdir()
        for step in SCORES:
            save(str(folder), step)
        evaluation.evaluate_all(make_engine(folder), None)
        save(str(folder), 30)

        def run(folder=folder):
            runner = make_engine(folder, scores)
            if stage == "evaluation":
                return evaluation.evaluate_all(runner, None)
            on_checkpoint = evaluation.evaluate_while_training(runner, None)
            runner.model.step.assign(30)
            return on_checkpoint(str(folder / "model.ckpt-30"), 30)

        checkpoints.delete(str(folder / "model.ckpt-10"))
        was_killed = killed_at(count, run)
        found = checkpoints.choose(str(folder), "best")
        assert checkpoints.resolve(str(folder)) == found
        step = tf.train.load_variable(found, "step")
        assert step in (10, 30)
        if stage == "evaluation":  # next to a trainer, which deletes what it has saved
            checkpoints.delete(str(folder / "model.ckpt-30"))
        run()
        assert best_step(folder) >= (step if stage == "evaluation" else 30)
        assert not [name for name in os.listdir(folder) if name.startswith("new-")]
        if stage == "training":
            steps = re.findall("step = (.*)", (folder / "eval_results.txt").read_text())
            assert steps == ["0", "10", "20", "30"]
            assert (folder / "best_trial.txt").read_text() == "30:30:1.0"
        if not was_killed:
            break
    assert 12 < count < 199
