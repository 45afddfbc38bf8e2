"""Names of the points of a sweep."""

import pytest

from albert.experiments import sweep_journal
from albert.experiments.sweep_journal import Trial
from albert.io import file_io


def trial(number, seed=None, name=None, **parameters):
    return Trial(number, name or f"trial_{number:04d}", [], parameters, seed)


TRIALS = [trial(2 * i + j, seed=j, rate=rate, do_lower_case=True)
          for i, rate in enumerate((1e-5, 2e-5)) for j in range(2)]  # fmt: skip


def test_points_are_named_by_their_values():
    points = sweep_journal.points_of(TRIALS)
    names = ["rate=1e-05;do_lower_case=true", "rate=2e-05;do_lower_case=true"]
    assert [point.name for point in points] == names
    assert [[trial.seed for trial in point.trials] for point in points] == [[0, 1]] * 2


def test_trials_by_name_keep_it_and_repeated_points_differ():
    named = [trial(i, seed=i, name=f"RTE/seed_{i}") for i in range(2)] + [trial(2, name="CoLA")]
    assert [point.name for point in sweep_journal.points_of(named)] == ["RTE", "CoLA"]
    twice = [trial(0, rate=1), trial(1, rate=1)]
    assert [p.name for p in sweep_journal.points_of(twice)] == ["rate=1", "rate=1;trial_0001"]


@pytest.mark.parametrize(
    "text",
    [
        "rate=2e-05;do_lower_case=true",
        "rate=0.00002",
        "do_lower_case=true; rate=2e-5",
        "trial_0003",
    ],
)
def test_a_point_is_found_by_name_values_or_trial(text):
    points = sweep_journal.points_of(TRIALS)
    assert sweep_journal.find_point(points, text) is points[1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rate=3e-5", "no point of the sweep: 'rate=3e-5'; expected one of 'rate=1e-05;do_"),
        ("batch=3", "no point of the sweep"),
        ("", "no point of the sweep"),
        ("do_lower_case=true", "several points of the sweep"),
    ],
)
def test_no_point_or_several_are_refused(text, message):
    with pytest.raises(file_io.InputError, match=message):
        sweep_journal.find_point(sweep_journal.points_of(TRIALS), text)
