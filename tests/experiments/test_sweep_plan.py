"""Specifications of sweeps, and the points that follow from them."""

import itertools
import json

import pytest

from albert.experiments import sweep_plan
from albert.io import file_io


def _plan(**spec):
    return sweep_plan.make_plan({"script": "run_classifier", **spec})


def test_a_grid_has_every_point_once_the_last_parameter_fastest():
    text = "learning_rate=1e-3,3e-3; train_batch_size=16,32;do_lower_case=true"
    parameters = sweep_plan.parse_grid(text)
    assert parameters == {
        "learning_rate": [0.001, 0.003],
        "train_batch_size": [16, 32],
        "do_lower_case": [True],
    }
    plan = _plan(parameters=parameters)
    pairs = [tuple(point.values()) for point in sweep_plan.points(plan)]
    assert pairs == [(0.001, 16, True), (0.001, 32, True), (0.003, 16, True), (0.003, 32, True)]
    assert sweep_plan.count(plan) == 4 and sweep_plan.count(_plan(parameters={"a": [1]})) == 1
    repeated = _plan(parameters=parameters, seeds=[1, 2, 3])
    assert sweep_plan.count(repeated) == 12
    assert sweep_plan.count(_plan(parameters=parameters, seeds=[1, 2], num_trials=6)) == 6
    assert sweep_plan.argument("do_lower_case", True) == "--do_lower_case=true"


def test_names_of_digits_are_no_numbers():
    """Trials get the values of a grid as they were written."""
    names = ["2024_01", "007", "-01", "1e9999", "²", "1_0.5", "nan"]
    assert sweep_plan.parse_grid(f"a={','.join(names)}") == {"a": names}
    (values,) = sweep_plan.parse_grid("a=1e-4,0.5,-3,1e3,0,.5,10,2.,1E2").values()
    assert values == [0.0001, 0.5, -3, 1000.0, 0, 0.5, 10, 2.0, 100.0]
    assert [type(value) for value in values[2:5]] == [int, float, int]


def test_random_points_depend_on_the_seed_alone_and_stay_inside():
    parameters = {
        "rate": {"low": 1e-5, "high": 1e-2, "log": True},
        "layers": {"low": 1, "high": 4},
        "optimizer": ["lamb", "adamw"],
    }
    plan = _plan(parameters=parameters, method="random", num_trials=200)
    drawn = list(itertools.islice(sweep_plan.points(plan), 200))
    assert drawn == list(itertools.islice(sweep_plan.points(plan), 200))
    other = _plan(parameters=parameters, method="random", num_trials=200, seed=1)
    assert drawn[0] != next(sweep_plan.points(other))
    rates = sorted(point["rate"] for point in drawn)
    assert 1e-5 <= rates[0] < 2e-5 and 5e-3 < rates[-1] <= 1e-2
    assert 1e-4 < rates[100] < 1e-3  # the middle of a logarithmic scale
    assert {point["layers"] for point in drawn} == {1, 2, 3, 4}
    assert {point["optimizer"] for point in drawn} == {"lamb", "adamw"}
    assert all(float(f"{rate:.4g}") == rate for rate in rates)  # short to read


def test_random_search_of_lists_repeats_nothing_and_ends():
    plan = _plan(parameters={"a": [1, 2, 3], "b": [1, 2]}, method="random", num_trials=50)
    found = [tuple(point.values()) for point in sweep_plan.points(plan)]
    assert sorted(found) == [(a, b) for a in (1, 2, 3) for b in (1, 2)]
    assert sweep_plan.count(plan) == 6


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({}, "needs parameters .* or trials"),
        ({"parameters": {"a": []}}, "parameter 'a': expected a list"),
        ({"parameters": {"a": [1, 1]}}, "a value appears twice"),
        ({"parameters": {"a": [[1]]}}, "is not a text, a number, true or false"),
        ({"parameters": {"a": {"low": 1}}}, "a range is"),
        ({"parameters": {"a": {"low": 2, "high": 1}}}, "low must be below high"),
        ({"parameters": {"a": {"low": 0, "high": 1, "log": True}}}, "above 0 on a logarithmic"),
        ({"parameters": {"a": {"low": 1, "high": 2, "steps": 3}}}, "a range is"),
        ({"parameters": {"a": {"low": 1, "high": 2}}}, "'a' is a range, .* method=random"),
        ({"parameters": {"a": [1]}, "method": "bayes"}, "expected one of grid, random, tpe"),
        ({"parameters": {"a": [1]}, "method": "tpe"}, "method=tpe needs num_trials"),
        ({"parameters": {"a": [1]}, "seeds": [1, 2], "num_trials": 3}, "a multiple of the number"),
        ({"parameters": {"a": [1]}, "seeds": [1, 1]}, "a seed appears twice"),
        ({"parameters": {"a": [1]}, "seeds": ["x"]}, "expected whole numbers, found 'x'"),
        ({"parameters": {"seed": [1]}, "seeds": [1]}, "drop one of the two"),
        (
            {"parameters": {"eval_fraction": [0.1, 1]}},
            "other values of eval_fraction other examples",
        ),
        ({"parameters": {"label_column": ["a", "b"]}}, "label_column .* make a sweep for each"),
        (
            {"parameters": {"a": [1]}, "prune": True, "metric": "f1", "seeds": [1, 2]},
            "leave the bad ones out",
        ),
        ({"trials": {"../up": {}}}, "cannot be the name of a folder"),
        ({"trials": {"a": [1]}}, "a: expected an object of flags"),
        ({"trials": {"a": {}}, "num_trials": 1}, "trials that are given are all run"),
        ({"parameters": {"a": [1]}, "flags": {"x": None}}, "flags: x must be a text"),
    ],
)
def test_what_cannot_be_is_refused(spec, message):
    with pytest.raises(file_io.InputError, match=message):
        _plan(**spec)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"script": "run_classifier",\n "parameters": }', "not valid JSON.* .line 2, column"),
        ("[1]", "sweep.json: expected object, found list"),
        ('{"scripts": "x"}', "unknown key 'scripts'; known are script, flags"),
        ('{"num_trials": "ten"}', "num_trials: expected whole number, found text"),
        ('{"seed": true}', "seed: expected whole number, found true or false"),
    ],
)
def test_a_specification_that_cannot_be_read(text, message, tmp_path):
    path = tmp_path / "sweep.json"
    path.write_text(text)
    with pytest.raises(file_io.InputError, match=message) as caught:
        sweep_plan.read_spec(str(path))
    assert str(path) in str(caught.value)


def test_a_script_has_to_be_named():
    with pytest.raises(file_io.InputError, match="script must name what each trial runs"):
        sweep_plan.make_plan({"parameters": {"a": [1]}})


@pytest.mark.parametrize("text", ["", "a", "a=1;a=2", "a=1,,2", "=1"])
def test_a_grid_that_cannot_be_read(text):
    with pytest.raises(file_io.InputError, match="^grid: "):
        sweep_plan.parse_grid(text)


def test_low_losses_are_good():
    plan = _plan(parameters={"a": [1]})
    assert not plan.minimize and plan.scored_by(None) is plan
    assert plan.scored_by("eval_loss").minimize and not plan.scored_by("f1").minimize
    assert _plan(parameters={"a": [1]}, metric="eval_loss").minimize
    assert _plan(parameters={"a": [1]}, metric="MSE").minimize
    assert not _plan(parameters={"a": [1]}, metric="f1_weight_loss").minimize  # of a label
    assert _plan(parameters={"a": [1]}, prune=True).metric is None
    kept = _plan(parameters={"a": [1]}, metric="eval_loss", minimize=False)
    assert not kept.minimize and kept.scored_by("f1") is kept


def test_flags_of_a_specification_become_arguments():
    plan = _plan(flags={"do_train": True, "x": 1e-5}, parameters={"a": [1]})
    assert plan.arguments == ("--do_train=true", "--x=1e-05")
    assert json.loads(json.dumps(plan.describe())) == plan.describe()
