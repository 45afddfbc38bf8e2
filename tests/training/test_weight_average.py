"""The average of the weights over the last steps: numbers, checkpoint and evaluation."""

import numpy as np
import pytest
import tensorflow as tf

from albert.data import input_pipeline
from albert.io import file_io
from albert.model import checkpoints
from albert.training import (
    budget,
    evaluation,
    learning_rates,
    optimizer_table,
    optimizers,
    results,
    run_record,
)
from tests.support import builders
from tests.training import test_budget, test_engine


@pytest.fixture
def path(tmp_path):
    test_engine.write_line(str(tmp_path / "line"))
    return str(tmp_path / "line")


def make_optimizer(share, steps=30, **settings):
    return optimizers.create_optimizer(0.1, steps, 0, average_last=share, **settings)


def steps_averaged(share, steps, taken, pace=None):
    """{step: number of averaged steps after it} of an optimizer with one variable."""
    optimizer = make_optimizer(share, steps, pace=pace)
    variable, found = tf.Variable([1.0], name="a"), {}
    for step in range(1, taken + 1):
        optimizer.apply_gradients([(tf.constant([1.0]), variable)])
        found[step] = int(optimizer.average.count)
    return found


@pytest.mark.parametrize(
    ("share", "first"), [(1.0, 1), (0.2, 9), (0.3, 8), (0.25, 8), (0.1, 10), (0.01, 10)]
)
def test_the_last_steps_count(share, first):
    wanted = {step: max(0, step - first + 1) for step in range(1, 11)}
    assert steps_averaged(share, 10, 10) == wanted


def test_with_a_budget_the_share_is_that_of_the_plan():
    pace = learning_rates.Pace()
    pace.set(0, 0.5, 8)  # half of the time has passed before the first step
    assert steps_averaged(0.25, 1, 8, pace) == {step: max(0, step - 4) for step in range(1, 9)}


@pytest.mark.parametrize("compiled", [False, True])
def test_is_the_mean_of_the_weights_after_each_step(compiled):
    rng = np.random.default_rng(1)
    variable = tf.Variable(tf.constant(rng.normal(size=[3, 2]), tf.float32), name="a")
    optimizer = make_optimizer(0.4, 10)
    optimizer.build([variable])

    def apply(gradient):
        return optimizer.apply_gradients([(gradient, variable)])

    apply, values = tf.function(apply, autograph=False) if compiled else apply, []
    for _ in range(10):
        apply(tf.constant(rng.normal(size=[3, 2]), tf.float32))
        values.append(variable.numpy())
    found = optimizer.variables_by_name()
    np.testing.assert_allclose(found["a/average"].numpy(), np.mean(values[6:], 0), rtol=1e-6)
    assert found["global_step/average"].numpy() == 4


def test_a_prolonged_run_starts_its_average_again():
    short, longer = make_optimizer(0.5, 6), make_optimizer(0.5, 8)
    variable = tf.Variable([1.0], name="a")
    for _ in range(6):
        short.apply_gradients([(tf.constant([1.0]), variable)])
    assert int(short.average.count) == 3
    longer.build([variable])
    for name, value in longer.variables_by_name().items():
        value.assign(short.variables_by_name()[name])
    for count in (1, 2):  # of steps 5 to 8 only the last two are still to come
        longer.apply_gradients([(tf.constant([1.0]), variable)])
        assert int(longer.average.count) == count
        if count == 1:
            found = longer.variables_by_name()["a/average"].numpy()
            np.testing.assert_array_equal(found, variable.numpy())


# --- in a run -------------------------------------------------------------------------------------


def train(runner, path, share=0.5):
    return runner.train(
        input_pipeline.train_input_fn([path], test_engine.SPECS, runner.run_config.seed),
        optimizer_table.Settings(0.1, 30, 0, average_last=share),
        lambda model: None,
    )


@pytest.fixture
def run(path, tmp_path):
    """The engine and the average of a run of 30 steps, which keeps the weights of each."""
    runner = test_engine.make_engine(
        tmp_path / "run", save_checkpoints_steps=1, keep_checkpoint_max=0
    )
    return runner, train(runner, path)


def test_has_a_checkpoint_of_its_own(run, tmp_path):
    _, prefix = run
    assert prefix == str(tmp_path / "run" / "model.ckpt-average")
    average = builders.weights(prefix)
    assert set(average) == {"kernel", "bias", "global_step"} and average["global_step"] == 30
    last = [builders.weights(tmp_path / "run" / f"model.ckpt-{step}") for step in range(16, 31)]
    for name in ("kernel", "bias"):
        mean = np.mean([found[name] for found in last], 0)
        np.testing.assert_allclose(average[name], mean, rtol=1e-6)
        assert (average[name] != last[-1][name]).all()
    folder = str(tmp_path / "run")
    assert checkpoints.resolve(folder).endswith("model.ckpt-30")
    assert checkpoints.find_best(folder) is None and checkpoints.last_whole(folder) != prefix
    assert checkpoints.damage_of(prefix) is None
    other = test_engine.Line()
    assert checkpoints.restore(other, prefix, allow_new_heads=False).unused == []
    builders.assert_same(builders.model_weights(other), {k: average[k] for k in ("bias", "kernel")})


@pytest.mark.slow
@pytest.mark.parametrize("stop", [10, 20, 30])
def test_a_resumed_run_has_the_same_average(run, path, tmp_path, stop):
    """Before the average has begun, within it, and killed before its checkpoint."""
    _, prefix = run
    source = str(tmp_path / "run" / f"model.ckpt-{stop}")
    file_io.make_dirs(str(tmp_path / "again"))
    checkpoints.copy(source, str(tmp_path / "again" / f"model.ckpt-{stop}"))
    found = train(test_engine.make_engine(tmp_path / "again"), path)
    builders.assert_same(builders.weights(found), builders.weights(prefix))


def test_an_average_that_is_not_stored_is_missed(run, path, tmp_path):
    runner = test_engine.make_engine(tmp_path / "plain", num_train_steps=10)
    test_engine.train(runner, path)
    with pytest.raises(file_io.InputError, match=r"cannot resume .* lacks \['bias/average', 'glob"):
        train(test_engine.make_engine(tmp_path / "plain"), path)


def test_a_run_that_ends_early_has_none(path, tmp_path):
    runner = test_engine.make_engine(tmp_path / "out", num_train_steps=10)
    assert train(runner, path) is None
    assert not (tmp_path / "out" / "model.ckpt-average.index").exists()


def test_is_evaluated_once_apart_from_the_others(run, path, tmp_path, monkeypatch):
    runner, prefix = run
    input_fn = input_pipeline.eval_input_fn([path], test_engine.SPECS)
    evaluation.evaluate_average(runner, input_fn, prefix)
    metrics = runner.evaluate(input_fn)
    (block,) = results.read_blocks(str(tmp_path / "run"), results.AVERAGE_RESULTS)
    assert block.step == 30 and block.values["closeness"] == pytest.approx(metrics["closeness"])
    assert not (tmp_path / "run" / "eval_results.txt").exists()
    (row,) = [
        row for row in run_record.read_metrics(str(tmp_path / "run")) if row["kind"] == "average"
    ]
    assert (row["step"], row["checkpoint"]) == (30, "model.ckpt-average")
    monkeypatch.setattr(runner, "evaluate", None)
    evaluation.evaluate_average(runner, input_fn, prefix)


@pytest.mark.parametrize("evaluation_seconds", [3.0, 20.0])
def test_a_budget_has_room_for_its_evaluation(tmp_path, evaluation_seconds):
    machine = test_budget.Machine(tmp_path, test_budget.steady, evaluation_seconds, averages=True)
    machine.run()
    taken = machine.minutes_taken + (1.0 + evaluation_seconds) / 60
    assert 0.96 * 6 < taken < 1.02 * 6


def test_durations_count_it():
    plain = budget.Durations(0.5, 4.0, 1.0)
    with_average = budget.Durations(0.5, 4.0, 1.0, averages=True)
    found = [x.seconds_left(5, 40, 10, 20) for x in (plain, with_average)]
    assert found[1] == found[0] + 5.0
