"""Places of steps on the axes of reports."""

import pytest

from albert.experiments import report_axes, report_data
from albert.training import run_record


def run_of(*sessions, cost=None):
    """A run with sessions (first step, cost)."""
    record = {
        "cost": cost if cost is not None else {"tokens": 1, "seconds": 1.0},
        "sessions": [{"first_step": first, "cost": spent} for first, spent in sessions],
    }
    return report_data.Run("r", "r", record, [])


def test_a_step_costs_the_mean_of_its_session():
    run = run_of((0, {"steps": 10, "tokens": 500, "seconds": 60.0}))
    assert report_axes.place(run, [0, 5, 10], report_axes.AXES["tokens"]) == [0, 250, 500]
    assert report_axes.place(run, [5], report_axes.AXES["minutes"]) == [0.5]
    assert report_axes.place(run, [5], report_axes.STEPS) == [5]
    assert report_axes.place(run, [5], report_axes.AXES["words"]) is None
    assert report_axes.place(run_of(cost={}), [5], report_axes.AXES["tokens"]) is None


def test_sessions_follow_each_other_without_the_steps_that_were_lost():
    run = run_of(
        (0, {"steps": 10, "tokens": 100}),  # killed: steps 7 to 10 are lost
        (6, {"steps": 4, "tokens": 80}),
        (None, {}),  # an evaluation
        (10, {"steps": 10, "tokens": 10}),
    )
    steps = [0, 6, 8, 10, 20]
    assert report_axes.place(run, steps, report_axes.AXES["tokens"]) == [0, 60, 100, 140, 150]


def test_sessions_that_began_again_replace_earlier_ones():
    run = run_of((0, {"steps": 10, "tokens": 100}), (0, {"steps": 5, "tokens": 10}))
    assert report_axes.place(run, [5], report_axes.AXES["tokens"]) == [10]


def test_totals_have_the_unit_of_the_axis():
    cost = run_record.Cost(steps=10, seconds=90.0)
    assert report_axes.AXES["minutes"].total(cost) == pytest.approx(1.5)
    assert report_axes.AXES["flop"].total(cost) is None is report_axes.STEPS.total(None)
