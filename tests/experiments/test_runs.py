"""Places of steps on the axes of reports."""

from albert.experiments import runs


def run_of(*sessions, cost=None):
    """A run with sessions (first step, cost)."""
    record = {
        "cost": cost if cost is not None else {"tokens": 1, "seconds": 1.0},
        "sessions": [{"first_step": first, "cost": spent} for first, spent in sessions],
    }
    return runs.Run("r", "r", record, [])


def test_a_step_costs_the_mean_of_its_session():
    run = run_of((0, {"steps": 10, "tokens": 500, "seconds": 60.0}))
    assert run.places([0, 5, 10], runs.AXES["tokens"]) == [0, 250, 500]
    assert run.places([5], runs.AXES["minutes"]) == [0.5]
    assert run.places([5], runs.STEPS) == [5]
    assert run.places([5], runs.AXES["words"]) is None
    assert run_of(cost={}).places([5], runs.AXES["tokens"]) is None


def test_sessions_follow_each_other_without_the_steps_that_were_lost():
    run = run_of(
        (0, {"steps": 10, "tokens": 100}),  # killed: steps 7 to 10 are lost
        (6, {"steps": 4, "tokens": 80}),
        (None, {}),  # an evaluation
        (10, {"steps": 10, "tokens": 10}),
    )
    steps = [0, 6, 8, 10, 20]
    assert run.places(steps, runs.AXES["tokens"]) == [0, 60, 100, 140, 150]


def test_sessions_that_began_again_replace_earlier_ones():
    run = run_of((0, {"steps": 10, "tokens": 100}), (0, {"steps": 5, "tokens": 10}))
    assert run.places([5], runs.AXES["tokens"]) == [10]
