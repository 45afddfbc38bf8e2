"""Training by budget, with restarts, early ends and evaluations of their own, on a tiny task."""

import dataclasses
import gc
import json
import operator
import weakref

import numpy as np
import pytest
import tensorflow as tf

from albert.data import record_files, tfrecord
from albert.io import file_io
from albert.model import checkpoints, encoder
from albert.tasks import metrics
from albert.training import (
    budget,
    contracts,
    distribution,
    engine,
    learning_signals,
    optimizer_table,
    run_record,
    run_session,
    stages,
    stuck_runs,
)
from tests.support import builders, data_samples

SPECS = (
    tfrecord.FeatureSpec("input_mask", "int64", (8,), sequence=True),
    tfrecord.FeatureSpec("x", "float32", (2,)),
    tfrecord.FeatureSpec("label_ids", "int64"),
    tfrecord.FeatureSpec("is_real_example", "int64"),
)
STUCK_SEEDS = (3, 4)


class Line(builders.WithoutEncoder):
    """Two classes told by a line; with some seeds the inputs are not seen."""

    def __init__(self, seed):
        super().__init__()
        self._sees = 0.0 if seed in STUCK_SEEDS else 1.0
        self.kernel = tf.Variable([[0.0, 0.0], [0.0, 0.0]], name="kernel")
        self.bias = tf.Variable([float(seed), float(seed)], name="bias")
        self.trained_variables = [self.kernel, self.bias]

    def __call__(self, features, training=False, seed=None):
        logits = tf.matmul(features["x"] * self._sees, self.kernel) + self.bias
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(features["label_ids"], logits)
        return {
            "probabilities": tf.nn.softmax(logits),
            "predictions": tf.argmax(logits, -1, tf.int64),
            "per_example_loss": loss,
        }

    def loss_weights(self, features):
        return {"loss": tf.cast(tf.size(features["label_ids"]), tf.float32)}

    def losses(self, outputs, features, weights=None):
        return {"loss": tf.reduce_sum(outputs["per_example_loss"]) / weights["loss"]}

    def total(self, losses):
        return losses["loss"]


def eval_outputs(outputs, features):
    names = ("label_ids", "is_real_example")
    return {**{name: features[name] for name in names}, **outputs}


TASK = contracts.Task(
    name="line",
    build_model=lambda config, compute, seed: Line(seed),
    eval_outputs=eval_outputs,
    evaluator=lambda: metrics.Evaluator((("eval_accuracy", metrics.accuracy),)),
    train_metrics=contracts.no_metrics,
    best_metric="eval_accuracy",
    learning_signals=learning_signals.label_signals,
)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    rng = np.random.default_rng(0)
    rows = [
        {
            "input_mask": np.ones(8, np.int64),
            "x": (x := rng.normal(size=2).astype(np.float32)),
            "label_ids": np.int64(x[0] + 0.3 * rng.normal() > 0),
            "is_real_example": np.int64(1),
        }
        for _ in range(320)
    ]
    path = str(tmp_path_factory.mktemp("data") / "line")
    record_files.write(path, SPECS, rows, {})
    return path


def data_of(path):
    return data_samples.RecordData(paths=[path], features=SPECS)


def make_run(folder, settings=None, limits=None, rate=0.02, **changes):
    config = {
        "output_dir": str(folder), "num_train_steps": 40, "train_batch_size": 16,
        "eval_batch_size": 32, "predict_batch_size": 32, "save_checkpoints_steps": 10,
        "keep_checkpoint_max": 5, "iterations_per_loop": 1000, "log_every_steps": 20, "seed": 5,
    }  # fmt: skip
    run_config = engine.RunConfig(**{**config, **changes})
    return stages.Run(
        model_config=encoder.AlbertConfig(vocab_size=8),  # the model here needs none
        run_config=run_config,
        strategy=distribution.create_strategy("one_device"),
        training=stages.Training(
            optimizer_table.Settings(rate, 1000, 100 if limits else 0), settings, limits
        ),
        from_scratch=True,
        do_eval=True,
    )


def train(path, run, of_task=TASK):
    return stages.run(of_task, data_of(path), run)


def evaluated(folder):
    return [int(block["global_step"]) for block in builders.read_results(folder)]


def saved(folder):
    return [checkpoints.step_of(prefix) for prefix in checkpoints.numbered(str(folder))]


# --- evaluations --------------------------------------------------------------------------------


@pytest.mark.slow
def test_evaluations_have_steps_of_their_own(path, tmp_path):
    run = make_run(tmp_path, eval_every=15, keep_checkpoint_max=0, num_train_steps=20)
    train(path, run)
    assert evaluated(tmp_path) == [0, 15, 20]
    assert saved(tmp_path) == [0, 10, 15, 20]
    assert checkpoints.find_best(str(tmp_path))
    # A run that resumes from a checkpoint between them does not evaluate it.
    for step in (15, 20):
        checkpoints.delete(str(tmp_path / f"model.ckpt-{step}"))
    for name in ("eval_results.txt", "best_trial.txt"):
        (tmp_path / name).unlink()
    train(path, run)
    assert 10 not in evaluated(tmp_path)


@pytest.mark.slow
def test_training_ends_where_nothing_gets_better(path, tmp_path, caplog):
    """At a rate of 0 nothing does after step 10, which step 0 with random parts cannot beat."""
    run = make_run(tmp_path, rate=0.0, early_stopping_patience=2)
    with caplog.at_level("INFO", logger="absl"):
        train(path, run)
    assert evaluated(tmp_path) == saved(tmp_path) == [0, 10, 20, 30]
    assert "Early stopping: no improvement in the last 2 evaluations" in caplog.text
    caplog.clear()
    with caplog.at_level("INFO", logger="absl"):
        train(path, run)
    assert "Nothing to train: already at step 30" in caplog.text
    assert evaluated(tmp_path) == [0, 10, 20, 30]


def test_the_lowest_loss_can_pick_the_best(path, tmp_path):
    of_task = dataclasses.replace(TASK, best_metric="eval_loss")
    train(path, make_run(tmp_path, early_stopping_patience=1, num_train_steps=20), of_task)
    losses = {int(b["global_step"]): float(b["eval_loss"]) for b in builders.read_results(tmp_path)}
    assert losses[0] > losses[10] > losses[20]
    assert checkpoints.read_step(str(tmp_path / "model.ckpt-best")) == 20
    assert (tmp_path / "best_trial.txt").read_text().startswith("20:20:0.")


@pytest.mark.slow
def test_scores_of_a_resumed_run_belong_to_the_data_and_settings_of_that_time(path, tmp_path):
    dev, folder = tmp_path / "dev.csv", tmp_path / "out"
    data = dataclasses.replace(data_of(path), sources=[str(dev)])

    def run(text, length, steps):
        dev.write_text(text)
        flags = {"max_seq_length": {"value": length, "source": "default"}}
        recorder = run_session.Recorder("run_line", [], flags, {})
        changed = make_run(folder, num_train_steps=steps, save_checkpoints_steps=5)
        stages.run(TASK, data, dataclasses.replace(changed, record=recorder))
        basis = run_record.read(str(folder))["measured_on"]
        assert basis["sha256"] == file_io.sha256(str(dev))
        assert basis["reading"] == {"max_seq_length": length}
        return evaluated(folder), len(list(folder.glob("eval_results.earlier*")))

    assert run("one", 8, 10) == ([0, 5, 10], 0)
    best = checkpoints.read_step(str(folder / "model.ckpt-best"))
    assert run("other", 8, 15) == (sorted({best, 10, 15}), 1)
    best = checkpoints.read_step(str(folder / "model.ckpt-best"))
    assert run("other", 16, 15) == (sorted({best, 15}), 2)
    assert run("other", 16, 15)[1] == 2  # the same again


# --- restarts -----------------------------------------------------------------------------------

JUDGED = stuck_runs.Settings(0.5, 0.0, "Try another rate", min_examples=160)


@pytest.mark.slow
def test_a_run_that_does_not_learn_is_warned_of(path, tmp_path, caplog):
    with caplog.at_level("WARNING", logger="absl"):
        train(path, make_run(tmp_path / "stuck", JUDGED, seed=3))
        assert "At 50% of the steps: this run does not learn" in caplog.messages[0]
        assert (tmp_path / "stuck" / "best_trial.txt").read_text().startswith("40:10:")
        train(path, make_run(tmp_path / "good", JUDGED, num_train_steps=20))
    assert len(caplog.messages) == 1
    folders = [tmp_path / name for name in ("stuck", "good")]
    states = [json.loads((folder / "stuck.json").read_text()) for folder in folders]
    assert states[0]["warning"] and not states[1]["warning"]


def restarting(num_restarts):
    return dataclasses.replace(JUDGED, num_restarts=num_restarts)


@pytest.mark.slow
def test_restarts_take_other_seeds_and_go_on_exactly_after_a_kill(path, tmp_path, monkeypatch):
    train(path, make_run(tmp_path / "good", JUDGED, seed=5))
    expected = builders.weights(tmp_path / "good" / "model.ckpt-40")
    folder = tmp_path / "out"
    run = make_run(folder, restarting(2), seed=3)
    # Killed in the first attempt, in the second, and in the third, each after a checkpoint.
    save, kills = stuck_runs.Watch.save, [(3, 10), (4, 10), (5, 30)]
    monkeypatch.setattr(stuck_runs, "seed_of", operator.add)  # 3 and 4 are known to be stuck

    def killed(watch, step):
        save(watch, step)
        seed = 3 + len(list(folder.glob("attempt_*")))
        if (seed, step) in kills:
            kills.remove((seed, step))
            raise KeyboardInterrupt

    monkeypatch.setattr(stuck_runs.Watch, "save", killed)
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            train(path, run)
    train(path, run)
    assert not kills
    found = json.loads((folder / "attempts.json").read_text())
    assert [(a["seed"], a["step"]) for a in found["given_up"]] == [(3, 20), (4, 20)]
    builders.assert_same(builders.weights(folder / "model.ckpt-40"), expected)
    assert {block["restarts"] for block in builders.read_results(folder)} == {"2"}
    for number in (1, 2):
        assert saved(folder / f"attempt_{number}") == [0, 10]


@pytest.mark.slow
def test_a_run_whose_attempts_are_all_stuck_fails(path, tmp_path, monkeypatch):
    make, alive, made = engine.Engine.__init__, weakref.WeakSet(), []

    def make_alone(self, *arguments):
        gc.collect()
        made.append(len(alive))  # Memory holds one attempt at a time.
        alive.add(self)
        make(self, *arguments)

    monkeypatch.setattr(engine.Engine, "__init__", make_alone)
    monkeypatch.setattr(stuck_runs, "seed_of", operator.add)
    for _ in range(2):
        with pytest.raises(file_io.InputError, match=r"none of 2 attempts \(seeds 3, 4\) learns"):
            train(path, make_run(tmp_path, restarting(1), seed=3))
    assert made == [0, 0]
    assert not saved(tmp_path)


# --- budget -------------------------------------------------------------------------------------


class Clock:
    """A second later each time it is asked."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1.0
        return self.now


def limits(minutes=3.0, **changes):
    return budget.Settings(minutes, clock=Clock(), started=0.0, **changes)


def trained_rows(folder):
    """{step: logged values of training, without speed and time}."""
    of_speed = {"seconds", "examples_per_second", "tokens_per_second", "input_share"}
    return {
        row["step"]: {name: value for name, value in row.items() if name not in of_speed}
        for row in run_record.read_metrics(str(folder))
        if row["kind"] == "train"
    }


@pytest.mark.slow
def test_a_budget_ends_training_by_the_clock(path, tmp_path):
    """A repetition of the run takes its steps at the same rates."""
    intervals = {"save_checkpoints_steps": 50, "log_every_steps": 5}
    train(path, make_run(tmp_path / "a", limits=limits(), **intervals))
    (attempt,) = json.loads((tmp_path / "a/budget.json").read_text())["attempts"]
    steps = attempt["plans"][-1]["num_train_steps"]
    assert saved(tmp_path / "a")[-1] == evaluated(tmp_path / "a")[-1] == steps > 20
    assert len(attempt["plans"]) > 2 and attempt["plans"][0]["num_train_steps"] != steps
    rows = trained_rows(tmp_path / "a")
    # From the warm-up, a tenth, down to 0 at the last step.
    rates = [rows[step]["learning_rate"] for step in sorted(rows)]
    top = rates.index(max(rates))
    assert rates[top] > 0.015 and rates[-1] == 0.0
    assert rates == sorted(rates[:top]) + sorted(rates[top:], reverse=True)
    budget.repeat(str(tmp_path / "a"), str(tmp_path / "b"))
    train(path, make_run(tmp_path / "b", limits=limits(), **intervals))
    assert trained_rows(tmp_path / "b") == rows
    last = f"model.ckpt-{steps}"
    builders.assert_same(
        builders.weights(tmp_path / "b" / last), builders.weights(tmp_path / "a" / last)
    )
    # A run that continues after its end also keeps the steps.
    checkpoints.delete(str(tmp_path / "a" / last))
    train(path, make_run(tmp_path / "a", limits=limits(), **intervals))
    assert saved(tmp_path / "a")[-1] == steps and trained_rows(tmp_path / "a") == rows


def test_a_run_without_a_budget_gets_none(path, tmp_path):
    train(path, make_run(tmp_path, num_train_steps=10))
    with pytest.raises(file_io.InputError, match="has a run without a budget; give another"):
        train(path, make_run(tmp_path, limits=limits()))


@pytest.mark.slow
def test_functions_are_compiled_once(path, tmp_path, caplog):
    """Steps and evaluations are timed in the run itself."""
    with caplog.at_level("INFO", logger="absl"):
        train(path, make_run(tmp_path, limits=limits(max_steps=12)))
    assert caplog.text.count("Traced the training graph") == 1
    # Nor is the untrained model evaluated.
    assert caplog.text.count("Evaluated") == 2 and evaluated(tmp_path) == [10, 12]
    assert caplog.text.count("An evaluation takes about") == 1
    # What fits is not known before steps are timed, so that 12 of them have no time left.
    assert "Training from step 0; batch" in caplog.text and "step 12/12 " in caplog.text


def test_training_without_evaluation_has_a_budget_too(path, tmp_path):
    run = make_run(tmp_path, limits=limits(max_steps=12))
    train(path, dataclasses.replace(run, do_eval=False))
    assert saved(tmp_path) == [0, 10, 12]
    assert not (tmp_path / "eval_results.txt").exists()
