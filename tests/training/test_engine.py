"""The engine on a task so small that every number can be checked."""

import dataclasses
import errno
import os
import re
import threading
import time
import traceback

import numpy as np
import pytest
import tensorflow as tf

from albert.data import input_options, input_pipeline, record_files
from albert.io import file_io
from albert.model import batching, checkpoints, encoder, layers
from albert.training import (
    contracts,
    distribution,
    engine,
    optimizer_table,
    run_record,
    train_step,
    training_log,
)
from tests.support import builders

SPECS = (
    input_pipeline.FeatureSpec("input_mask", "int64", (8,), sequence=True),
    input_pipeline.FeatureSpec("x", "float32", (2,)),
    input_pipeline.FeatureSpec("y", "float32"),
)


class Line(builders.WithoutEncoder):
    """y = x @ kernel + bias by least squares."""

    def __init__(self):
        super().__init__()
        self.kernel = tf.Variable([[0.0], [0.0]], name="kernel")
        self.bias = tf.Variable([0.0], name="bias")

    @property
    def trained_variables(self):
        return self.trainable_variables

    def __call__(self, features, training=False, seed=None):
        return {"y": tf.matmul(features["x"], self.kernel)[:, 0] + self.bias}

    def loss_weights(self, features):
        return {"square": tf.cast(tf.size(features["y"]), tf.float32)}

    def losses(self, outputs, features, weights=None):
        error = tf.reduce_sum(tf.square(outputs["y"] - features["y"]))
        return {"square": error / (weights or self.loss_weights(features))["square"]}

    def total(self, losses):
        return losses["square"]


class MeanError:
    def __init__(self):
        self.rows = []

    def update(self, rows):
        self.rows.append(rows["error"])

    def result(self):
        errors = np.concatenate(self.rows)
        return {"count": len(errors), "closeness": -float(errors.mean())}

    def classes(self):
        return ()

    def baseline(self):
        return {}


TASK = contracts.Task(
    name="line",
    build_model=lambda config, compute, seed: Line(),
    eval_outputs=lambda outputs, features: {
        "error": tf.abs(outputs["y"] - features["y"]),
        "x": features["x"],
    },
    evaluator=MeanError,
    train_metrics=lambda outputs, features: {},
    best_metric="closeness",
)


# With a metric whose steps do not count alike.
WEIGHED = dataclasses.replace(
    TASK,
    train_metrics=lambda outputs, features: {
        "weighed": (tf.reduce_sum(outputs["y"]), tf.reduce_sum(features["input_mask"]))
    },
)


def write_line(path, count=37, y_of=lambda x: 2 * x[0] - x[1] + 1):
    rng = np.random.default_rng(0)
    rows = []
    for i in range(count):
        x = rng.normal(size=2).astype(np.float32)
        mask = np.arange(8) <= i % 8
        rows.append({"input_mask": mask.astype(np.int64), "x": x, "y": y_of(x)})
    record_files.write(path, SPECS, rows, {})
    return np.stack([row["x"] for row in rows])


@pytest.fixture
def path(tmp_path):
    write_line(str(tmp_path / "line"))
    return str(tmp_path / "line")


CONFIG = encoder.AlbertConfig(vocab_size=8)  # the model here needs none


def make_engine(output_dir, of_task=TASK, **changes):
    config = engine.RunConfig(
        output_dir=str(output_dir), num_train_steps=30, train_batch_size=4, eval_batch_size=4,
        predict_batch_size=5, save_checkpoints_steps=10, keep_checkpoint_max=5,
        iterations_per_loop=1000, log_every_steps=7, seed=3,
    )  # fmt: skip
    config = dataclasses.replace(config, **changes)
    return engine.Engine(of_task, CONFIG, config, distribution.create_strategy("one_device"))


def train(runner, path, on_checkpoint=None, rate=0.1):
    steps = max(runner.run_config.num_train_steps, 30)
    runner.train(
        input_pipeline.train_input_fn([path], SPECS, runner.run_config.seed),
        optimizer_table.Settings(rate, steps, 0),
        lambda model: None,
        on_checkpoint,
    )
    return builders.model_weights(runner.model)


def test_outputs_that_are_not_finite_have_no_scores(path, tmp_path):
    runner = make_engine(tmp_path / "out")
    for variable in runner.model.trainable_variables:
        variable.assign(np.nan * variable)
    input_fn = input_pipeline.eval_input_fn([path], SPECS)
    for use in (runner.evaluate, runner.predict):
        with pytest.raises(batching.NonFiniteError, match="computed .* that are not finite"):
            use(input_fn)


def test_training_learns_and_saves(path, tmp_path):
    runner = make_engine(tmp_path / "out", num_train_steps=200)
    before = runner.evaluate(input_pipeline.eval_input_fn([path], SPECS))
    train(runner, path)
    after = runner.evaluate(input_pipeline.eval_input_fn([path], SPECS))
    assert before["count"] == after["count"] == 37
    assert after["closeness"] > before["closeness"] / 4
    names = [os.path.basename(p) for p in checkpoints.numbered(str(tmp_path / "out"))]
    assert names == [f"model.ckpt-{step}" for step in (160, 170, 180, 190, 200)]
    stored = {name for name, _ in tf.train.list_variables(str(tmp_path / "out/model.ckpt-200"))}
    slots = {f"{v}/{slot}" for v in ("kernel", "bias") for slot in ("adam_m", "adam_v")}
    assert stored == {"kernel", "bias", "global_step"} | slots


@pytest.mark.slow
def test_the_room_for_all_checkpoints_is_in_the_log(path, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(file_io, "free_bytes", lambda path: 500)
    with caplog.at_level("INFO", logger="absl"):
        train(make_engine(tmp_path / "few", num_train_steps=1), path)
        assert "checkpoints are kept" not in caplog.text
        train(make_engine(tmp_path / "all", num_train_steps=1, keep_checkpoint_max=0), path)
    (line,) = [x for x in caplog.records if "checkpoints are kept" in x.getMessage()]
    # kernel and bias, each with two slots, and the step
    size = 3 * (2 + 1) * 4 + 8
    assert f"kept: 1 more, {size} bytes in total; 500 bytes are free in" in line.getMessage()
    assert line.levelname == "INFO"
    caplog.clear()
    train(make_engine(tmp_path / "many", save_checkpoints_steps=2, keep_checkpoint_max=0), path)
    (line,) = [x for x in caplog.records if "checkpoints are kept" in x.getMessage()]
    assert f"kept: 15 more, {15 * size} bytes" in line.getMessage()
    assert line.levelname == "WARNING"


def test_graphs_are_traced_as_they_are_written(path, tmp_path):
    """Rewriting by autograph takes most of the time until the first step."""
    files = set()

    def note(outputs, features):
        files.update(frame.filename for frame in traceback.extract_stack())
        return {}

    def transform(number, features):
        return note(None, features) or features

    runner = make_engine(
        tmp_path / "out",
        dataclasses.replace(
            TASK,
            train_metrics=note,
            eval_outputs=lambda *args: note(*args) or TASK.eval_outputs(*args),
        ),
        num_train_steps=1,
    )
    runner.train(
        input_pipeline.train_input_fn(
            [path], SPECS, 1, input_options.TrainInput(transform=transform)
        ),
        optimizer_table.Settings(0.1, 30, 0),
        lambda model: None,
    )
    runner.evaluate(input_pipeline.eval_input_fn([path], SPECS))
    assert any(name.endswith("train_step.py") for name in files)
    assert not [name for name in files if "autograph_generated" in name]


def test_evaluating_again_builds_no_pipeline_again(path, tmp_path):
    runner = make_engine(tmp_path / "out")
    built = []
    whole = input_pipeline.eval_input_fn([path], SPECS)

    def input_fn(params):
        built.append(params)
        return whole(params)

    results = [runner.evaluate(input_fn) for _ in range(3)]
    assert len(built) == 1 and results[0] == results[1] == results[2]
    runner.predict(input_fn)
    assert [params["batch_size"] for params in built] == [4, 5]


@pytest.mark.slow
@pytest.mark.parametrize("loop", [1, 4, 1000])
def test_the_loop_length_changes_nothing(path, tmp_path, loop):
    whole = train(make_engine(tmp_path / "a"), path)
    other = train(make_engine(tmp_path / "b", iterations_per_loop=loop, log_every_steps=11), path)
    builders.assert_same(other, whole)


@pytest.mark.parametrize("stop", [0, 10, 20, 30])
def test_a_resumed_run_ends_with_the_same_weights(path, tmp_path, stop):
    whole = train(make_engine(tmp_path / "whole"), path)
    folder = tmp_path / "parts"
    train(make_engine(folder, num_train_steps=stop), path) if stop else None
    builders.assert_same(train(make_engine(folder), path), whole)
    rows = [run_record.read_metrics(str(tmp_path / name)) for name in ("whole", "parts")]
    steps = [[row["step"] for row in part] for part in rows]
    assert steps[1] == sorted(set(steps[1])) and set(steps[0]) <= set(steps[1])


def test_a_run_with_a_damaged_checkpoint_ends_with_the_same_weights(path, tmp_path, caplog):
    whole = train(make_engine(tmp_path / "out"), path)
    os.truncate(tmp_path / "out" / "model.ckpt-30.data-00000-of-00001", 9)
    builders.assert_same(train(make_engine(tmp_path / "out"), path), whole)
    assert "ckpt-30 is damaged" in caplog.text and "steps 21 to 30 are rep" in caplog.text


@pytest.mark.slow
def test_a_resumed_run_goes_on_with_its_loss_scale(path, tmp_path, monkeypatch):
    monkeypatch.setattr("albert.training.optimizer_base.LossScale.GOOD_UPDATES", 8)
    float16 = {"compute": layers.Compute("float16")}

    def run(folder, stop, **changes):
        train(make_engine(tmp_path / folder, num_train_steps=stop, **changes), path)
        stored = tf.train.load_checkpoint(str(tmp_path / folder / f"model.ckpt-{stop}"))
        if not stored.has_tensor("loss_scale/scale"):
            return None
        return tuple(stored.get_tensor(f"loss_scale/{name}") for name in ("scale", "good_updates"))

    assert run("whole", 30, **float16) == (2.0**18, 6)
    assert run("parts", 10, **float16) == (2.0**16, 2)
    assert run("parts", 30, **float16) == (2.0**18, 6)
    # Resuming in another precision finds a new scale, or drops it.
    assert run("mixed", 10) is None
    assert run("mixed", 20, **float16) == (2.0**16, 2)
    assert run("mixed", 30) is None


def test_a_finished_run_does_nothing_more(path, tmp_path):
    whole = train(make_engine(tmp_path / "out"), path)
    seen = []
    again = train(make_engine(tmp_path / "out"), path, lambda prefix, step: seen.append(step))
    for name, value in whole.items():
        np.testing.assert_array_equal(again[name], value)
    assert seen == [30]


@pytest.mark.slow
def test_training_goes_on_while_a_checkpoint_is_written(path, tmp_path, monkeypatch):
    train(make_engine(tmp_path / "ten", num_train_steps=10, log_every_steps=1), path)
    expected = checkpoints.read_tensors(str(tmp_path / "ten" / "model.ckpt-10"))
    past_ten, waited = threading.Event(), []
    write, update = checkpoints.write_tensors, training_log.TrainingLog.update

    def slow_write(prefix, tensors, **settings):
        if prefix.endswith("-10"):
            waited.append(past_ten.wait(60))
        write(prefix, tensors, **settings)

    def watch(log, step, *arguments):
        update(log, step, *arguments)
        if step > 12:
            past_ten.set()

    monkeypatch.setattr(checkpoints, "write_tensors", slow_write)
    monkeypatch.setattr(training_log.TrainingLog, "update", watch)
    train(make_engine(tmp_path / "thirty", log_every_steps=1), path)
    assert waited == [True]
    found = checkpoints.read_tensors(str(tmp_path / "thirty" / "model.ckpt-10"))
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-6)
    assert checkpoints.step_of(checkpoints.numbered(str(tmp_path / "thirty"))[-1]) == 30


def test_a_checkpoint_that_cannot_be_written_stops_the_run(path, tmp_path, monkeypatch):
    write, written = checkpoints.write_tensors, []

    def full_disk(prefix, tensors, **settings):
        if prefix.endswith("-10"):
            raise file_io.InputError(f"cannot write the checkpoint {prefix}: no space left")
        write(prefix, tensors, **settings)
        written.append(checkpoints.step_of(prefix))

    monkeypatch.setattr(checkpoints, "write_tensors", full_disk)
    with pytest.raises(file_io.InputError, match="cannot write .*ckpt-10: no space left"):
        train(make_engine(tmp_path, log_every_steps=1), path)
    assert written == [0]


@pytest.mark.parametrize("end", [KeyboardInterrupt, engine.NonFiniteLossError])
def test_a_checkpoint_that_cannot_be_written_is_told_of_at_any_end(
    path, tmp_path, monkeypatch, caplog, end
):
    write, ended = checkpoints.write_tensors, threading.Event()

    def full_disk(prefix, tensors, **settings):
        if prefix.endswith("-10"):
            ended.wait(60)
            raise file_io.InputError(f"cannot write the checkpoint {prefix}: no space left")
        write(prefix, tensors, **settings)

    def stop(log, step, means, *arguments):
        if step > 10:
            ended.set()
            if end is KeyboardInterrupt:
                raise KeyboardInterrupt
            runner._stop_at_non_finite(step, 0.1, means)

    monkeypatch.setattr(checkpoints, "write_tensors", full_disk)
    monkeypatch.setattr(training_log.TrainingLog, "update", stop)
    runner = make_engine(tmp_path, log_every_steps=1)
    with pytest.raises(end):
        train(runner, path)
    errors = [r.getMessage() for r in caplog.records if r.levelname == "ERROR"]
    assert errors == [f"cannot write the checkpoint {tmp_path}/model.ckpt-10: no space left"]


def test_checkpoints_are_reported_in_order(path, tmp_path):
    seen = []
    train(make_engine(tmp_path / "out"), path, lambda prefix, step: seen.append((step, prefix)))
    assert [step for step, _ in seen] == [0, 10, 20, 30]
    assert all(prefix.endswith(f"model.ckpt-{step}") for step, prefix in seen)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_loss_that_is_not_finite_stops_after_the_last_good_checkpoint(tmp_path, bad):
    path = str(tmp_path / "line")
    values = iter([1.0] * 5 + [bad] + [1.0] * 1000)
    write_line(path, count=200, y_of=lambda x: next(values))
    runner = make_engine(tmp_path / "out", num_train_steps=100)
    with pytest.raises(
        engine.NonFiniteLossError,
        match=r"not finite at step \d+ .*learning rate 0\.\d+.*model\.ckpt-\d+",
    ):
        train(runner, path)
    last = checkpoints.numbered(str(tmp_path / "out"))[-1]
    stored = tf.train.load_checkpoint(last)
    assert all(np.isfinite(stored.get_tensor(n)).all() for n, _ in tf.train.list_variables(last))


def test_predictions_come_in_input_order(tmp_path):
    path = str(tmp_path / "line")
    x = write_line(path)
    rows = make_engine(tmp_path / "out").predict(input_pipeline.eval_input_fn([path], SPECS))
    np.testing.assert_array_equal(rows["x"], x)


@pytest.mark.slow
def test_graphs_are_built_once_whatever_the_shapes(tmp_path):
    """Batches differ in length and, in evaluation, in number of examples."""
    specs = (input_pipeline.FeatureSpec("input_mask", "int64", (64,), sequence=True), *SPECS[1:])
    path = str(tmp_path / "line")
    row = {"x": np.ones(2, np.float32), "y": 1.0}
    masks = [(np.arange(64) < length).astype(np.int64) for length in range(1, 65)]
    record_files.write(path, specs, [{**row, "input_mask": mask} for mask in masks], {})
    input_fn = input_pipeline.eval_input_fn([path], specs)
    batches = list(input_fn({"batch_size": 4}))
    assert len({tuple(batch["input_mask"].shape) for batch in batches}) > 5

    calls = []

    class Counted(Line):
        def __call__(self, features, training=False, seed=None):
            calls.append(training)
            return super().__call__(features, training, seed)

    counted = dataclasses.replace(TASK, build_model=lambda config, compute, seed: Counted())
    runner = make_engine(tmp_path / "out", of_task=counted)
    for _ in range(3):
        assert runner.evaluate(input_fn)["count"] == 64
    assert calls == [False]
    runner.train(
        input_pipeline.train_input_fn([path], specs, 3),
        optimizer_table.Settings(0.1, 30, 0),
        lambda model: None,
    )
    assert calls == [False, True]


@pytest.mark.parametrize("batch_size", [1, 5, 36, 37, 38])
def test_the_batch_size_does_not_change_an_evaluation(path, tmp_path, batch_size):
    results = [
        make_engine(tmp_path / "out", eval_batch_size=size).evaluate(
            input_pipeline.eval_input_fn([path], SPECS)
        )
        for size in (4, batch_size)
    ]
    assert results[0]["count"] == results[1]["count"]
    assert results[0]["closeness"] == pytest.approx(results[1]["closeness"], rel=1e-6)


def test_an_output_folder_that_cannot_be_written_is_named(path, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(file_io.InputError, match="cannot make the folder .*file/out"):
        train(make_engine(tmp_path / "file" / "out"), path)
    assert (tmp_path / "file").read_text() == "in the way"


def test_a_batch_that_does_not_divide_among_replicas_is_refused(path, tmp_path):
    strategy = distribution.create_strategy("one_device")
    assert distribution.per_replica_batch_size(strategy, 7, "train_batch_size") == 7

    class Three:
        num_replicas_in_sync = 3

    with pytest.raises(file_io.InputError, match="train_batch_size=7 must be a multiple of .* 3"):
        distribution.per_replica_batch_size(Three(), 7, "train_batch_size")


@pytest.mark.parametrize(
    ("stage", "advice"),
    [
        ("train", "train_batch_size=4 .*gradient_accumulation_steps.*recompute.*max_seq_len"),
        ("evaluate", "lower eval_batch_size=4 .*max_seq_length"),
        ("predict", "lower predict_batch_size=5 .*max_seq_length"),
    ],
)
def test_running_out_of_memory_says_what_to_change(path, tmp_path, monkeypatch, stage, advice):
    def exhausted(*arguments, **more):
        raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating [9,9]")

    runner = make_engine(tmp_path / "out")
    monkeypatch.setattr(Line, "__call__", exhausted)
    with pytest.raises(
        engine.OutOfMemoryError, match=rf"out of memory: .*{advice}.* OOM .*\[9,9\]"
    ):
        if stage == "train":
            train(runner, path)
        else:
            getattr(runner, stage)(input_pipeline.eval_input_fn([path], SPECS))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_not_taken_for_a_full_memory(path, tmp_path, monkeypatch, code):
    """TensorFlow has one kind of error for both; its summaries raise it."""

    def full(*arguments, **more):
        raise tf.errors.ResourceExhaustedError(None, None, f"/a/events; {os.strerror(code)}\nmore")

    monkeypatch.setattr(tf.summary, "scalar", full)
    with pytest.raises(file_io.InputError, match=f"write .*out: {os.strerror(code)}; .* free"):
        train(make_engine(tmp_path / "out"), path)


def test_the_first_step_is_reported_by_itself(path, tmp_path, caplog):
    with caplog.at_level("INFO", logger="absl"):
        train(make_engine(tmp_path / "out"), path)
    texts = [record.getMessage() for record in caplog.records]
    assert sum(bool(re.fullmatch(r"First step after \d+\.\d s", text)) for text in texts) == 1
    assert any("batch: 1 replicas x 4 = 4" in text for text in texts)


@pytest.mark.slow
def test_waiting_for_input_is_measured(path, tmp_path, monkeypatch):
    def sleepy(params):
        def awake(features):
            slept = tf.py_function(lambda: time.sleep(0.02) is None, [], tf.bool)
            return tf.ensure_shape(slept, [])

        return input_pipeline.train_input_fn([path], SPECS, 3)(params).filter(awake)

    def busy(task, model, optimizer, features, **settings):
        """A step with products that a single thread could compute before it reads the clock."""
        x = tf.fill([700, 700], tf.cast(tf.reduce_max(features["input_mask"]), tf.float32))
        for _ in range(3):
            x = tf.tanh(x @ x)
        results = run(task, model, optimizer, features, **settings)
        with tf.control_dependencies([x]):
            return tf.nest.map_structure(tf.identity, results)

    shares, run = [], train_step.run
    plain = input_pipeline.train_input_fn([path], SPECS, 3)
    for input_fn, step in ((sleepy, run), (plain, run), (plain, busy)):
        monkeypatch.setattr(train_step, "run", step)
        folder = tmp_path / str(len(shares))
        runner = make_engine(folder)
        runner.train(input_fn, optimizer_table.Settings(0.1, 30, 0), lambda model: None)
        (events,) = [name for name in os.listdir(folder) if "tfevents" in name]
        found = [
            tf.make_ndarray(value.tensor).item()
            for event in tf.compat.v1.train.summary_iterator(str(folder / events))
            for value in event.summary.value
            if value.tag == "input_share"
        ]
        shares.append(np.mean(found))
    assert 1.0 >= shares[0] > 0.7 and shares[0] > shares[1] >= 0.0 and shares[2] < 0.5


@pytest.mark.parametrize(("longest", "calls"), [(0.0, 30), (1e9, 5)])
def test_calls_are_short_enough_for_ctrl_c(path, tmp_path, monkeypatch, longest, calls):
    """One step at a time if it is slow, else as many as fit between logs and checkpoints."""
    monkeypatch.setattr(engine, "MAX_CALL_SECONDS", longest)
    updates = []
    monkeypatch.setattr(
        training_log.TrainingLog, "update", lambda log, step, *_: updates.append(step)
    )
    train(make_engine(tmp_path / "out", log_every_steps=10), path)
    assert len(updates) == calls and updates[-1] == 30


@pytest.mark.slow
def test_what_is_logged_does_not_depend_on_the_steps_of_a_call(path, tmp_path):
    """The number of steps per call only matters for speed; `reproduce` compares these lines."""
    rows = []
    for most in (1, 3, 1000):
        folder = tmp_path / str(most)
        train(make_engine(folder, of_task=WEIGHED, iterations_per_loop=most), path)
        of_speed = {"seconds", "examples_per_second", "tokens_per_second", "input_share"}
        rows.append(
            [
                {name: value for name, value in row.items() if name not in of_speed}
                for row in run_record.read_metrics(str(folder))
            ]
        )
    assert rows[0] == rows[1] == rows[2]
    trained = [row for row in rows[0] if row["kind"] == "train"]
    assert [row["step"] for row in trained] == [7, 14, 21, 28, 30]
    # Of 37 examples with 1 to 8 tokens.
    assert 30 * 4 < trained[-1]["tokens_seen"] < 30 * 4 * 8 and "weighed" in trained[0]
    assert [(r["kind"], r["step"]) for r in rows[0] if r["kind"] == "save"] == [
        ("save", 10), ("save", 20),
    ]  # fmt: skip


def test_workers_compare_their_weights_before_they_train(path, tmp_path, monkeypatch):
    found = []
    monkeypatch.setattr(
        distribution,
        "check_same_weights",
        lambda strategy, variables: found.append(sum(float(tf.norm(v)) for v in variables)),
    )
    whole = train(make_engine(tmp_path, num_train_steps=10), path)
    train(make_engine(tmp_path, num_train_steps=20), path)
    trained = sum(float(np.linalg.norm(v)) for v in whole.values())
    assert len(found) == 2 and found[1] == pytest.approx(trained) and found[0] != found[1]
