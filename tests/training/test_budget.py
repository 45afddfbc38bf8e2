"""Steps that fit into minutes, on a clock of the test's own."""

import json

import pytest

from albert.io import file_io
from albert.training import budget

MEASURED = budget.Measured(20.0, 0.5, 8.0, 4.0, 1.0)


def spelled_out(measured, steps, save_every, eval_every):
    """Seconds of a run, step by step."""
    seconds = measured.start + measured.first_evaluation
    for step in range(1, steps + 1):
        evaluates = step % (eval_every or save_every) == 0 or step == steps
        saves = step % save_every == 0 or evaluates
        seconds += measured.step + evaluates * measured.evaluation + saves * measured.saving
    return seconds


@pytest.mark.parametrize("eval_every", [0, 10, 15, 40, 1000])
@pytest.mark.parametrize("steps", [1, 29, 30, 31, 100])
def test_a_run_takes_the_sum_of_its_parts(steps, eval_every):
    wanted = spelled_out(MEASURED, steps, 30, eval_every)
    assert MEASURED.run(steps, 30, eval_every) == pytest.approx(wanted)


@pytest.mark.parametrize("seconds", [-5.0, 0.0, 33.0, 33.5, 100.0, 1234.5])
def test_the_most_steps_that_fit(seconds):
    steps = budget.most_steps_within(seconds, MEASURED, 30, 20)
    assert steps == 0 or spelled_out(MEASURED, steps, 30, 20) <= seconds
    assert spelled_out(MEASURED, steps + 1, 30, 20) > seconds


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def trial(stopwatch, clock, step_seconds, evaluations):
    """Goes through what the engine does, with times of a test."""
    clock.now += 7  # building
    stopwatch.save(0)
    clock.now += 2  # saving
    times = iter(evaluations)

    def evaluate():
        clock.now += next(times)

    if evaluations:
        assert stopwatch.evaluating(evaluate)("prefix", 0) is False
    stopwatch.resume(0)
    step = 0
    while True:
        count = min(5, stopwatch.steps_to_stop(step))
        clock.now += step_seconds * count + (10 if step == 0 else 0)  # tracing
        step += count
        stopwatch.update(step, {})


@pytest.mark.parametrize(("evaluations", "saving"), [((6.0, 3.0), 2.0), ((), 0.0)])
def test_the_parts_of_a_run_are_timed(evaluations, saving):
    clock = Clock()
    stopwatch = budget.Stopwatch(clock, 600.0)
    with pytest.raises(budget.EnoughTimed):
        trial(stopwatch, clock, 0.5, evaluations)
    first, further = evaluations or (0.0, 0.0)
    wanted = budget.Measured(7 + 2 + 10 + 2 * 0.5, 0.5, first, further, saving)
    assert stopwatch.measured == wanted
    # Steps are timed for a twentieth of the budget.
    assert clock.now == pytest.approx(100 + wanted.start + sum(evaluations) + 30, abs=2.5)


def test_one_long_call_does_not_tell_enough():
    clock = Clock()
    stopwatch = budget.Stopwatch(clock, 60.0)
    for step, seconds in ((1, 5), (2, 1), (22, 40)):
        clock.now += seconds
        stopwatch.update(step, {})
    clock.now += 20
    with pytest.raises(budget.EnoughTimed):
        stopwatch.update(42, {})
    assert stopwatch.measured.step == 1.0 and stopwatch.measured.start == 6.0


def test_warming_up_is_not_taken_for_the_usual_step():
    clock = Clock()
    stopwatch = budget.Stopwatch(clock, 100.0)  # 15 s of which are timed
    steps = 0
    with pytest.raises(budget.EnoughTimed):
        for seconds in (1, 0.2, 9, 1, 1, 3, 1, 1, 99):
            steps += 1 if steps < 2 else 5
            clock.now += seconds
            stopwatch.update(steps, {})
    assert stopwatch.measured.step == 0.2 and seconds == 1
    assert stopwatch.measured.start == pytest.approx(1.2)


def settings(clock, minutes=10.0, **changes):
    return budget.Settings(minutes, lambda steps: None, clock=clock, started=40.0, **changes)


def test_the_number_is_fixed_and_kept(tmp_path):
    clock, folder = Clock(), str(tmp_path)
    assert budget.read(folder, 10.0) is None
    steps = budget.fix(folder, settings(clock), MEASURED, 30, 20)
    # A minute has passed before.
    assert steps == budget.most_steps_within(540.0, MEASURED, 30, 20) > 500
    assert budget.read(folder, 10.0) == steps
    written = json.loads((tmp_path / "budget.json").read_text())
    assert written["seconds"]["step"] == 0.5
    with pytest.raises(file_io.InputError, match=rf"budget_minutes=5, .* fixed {steps} .* for 10 "):
        budget.read(folder, 5.0)


def test_a_given_number_of_steps_is_the_most(tmp_path):
    assert budget.fix(str(tmp_path), settings(Clock(), most_steps=7), MEASURED, 30, 20) == 7


def test_a_budget_without_room_for_a_step_is_refused(tmp_path):
    with pytest.raises(file_io.InputError, match=r"budget_minutes=1 is too little: 0 s are left"):
        budget.fix(str(tmp_path), settings(Clock(), minutes=1.0), MEASURED, 30, 20)
    assert not list(tmp_path.iterdir())


def test_a_damaged_file_is_named(tmp_path):
    (tmp_path / "budget.json").write_text('{"num_train_steps": "many"}')
    with pytest.raises(file_io.InputError, match="budget.json: there is no 'budget_minutes'"):
        budget.read(str(tmp_path), 1.0)


def test_all_workers_end_a_trial_together():
    asked = []
    stopwatch = budget.Stopwatch(Clock(), 60.0, lambda make: asked.append(make()))
    for step in (1, 2, 7, 12):
        stopwatch.update(step, {})
    assert asked == [False, False]
    assert not hasattr(stopwatch, "measured")
