"""Parts that need Optuna: points that follow from results, and trials that are not worth ending."""

import dataclasses
import math
import sys

import pytest

from albert.experiments import sweep_plan, sweep_search
from albert.experiments.sweep_journal import DONE, FAILED, PRUNED, RUNNING, Trial
from albert.io import file_io

PARAMETERS = {"rate": {"low": 1e-5, "high": 1e-1, "log": True}, "batch": [16, 32]}


def _plan(**spec):
    fields = {"script": "x", "parameters": PARAMETERS, "method": "tpe", "num_trials": 100}
    return sweep_plan.make_plan({**fields, **spec})


def _search(plan, count):
    """Trials of a score that is best at a rate of 1e-3."""
    trials = []
    for number in range(count):
        point = sweep_search.suggest(plan, number, trials)
        score = -abs(math.log10(point["rate"]) + 3)
        trials.append(Trial(number, str(number), [], point, state=DONE, value=score))
    return trials


def test_tpe_finds_what_is_good_and_repeats_itself():
    pytest.importorskip("optuna")
    plan = _plan()
    trials = _search(plan, 30)
    first, last = ([t.value for t in part] for part in (trials[:10], trials[20:]))
    assert sum(last) / 10 > sum(first) / 10 + 0.3
    again = sweep_search.suggest(plan, 12, trials[:12])  # as another process would ask
    assert again == trials[12].parameters
    other = [dataclasses.replace(trial, value=-trial.value) for trial in trials[:12]]
    assert sweep_search.suggest(plan, 12, other) != again
    assert len({trial.parameters["batch"] for trial in trials}) == 2


def test_tpe_takes_every_state_and_the_mean_over_seeds():
    pytest.importorskip("optuna")
    plan = _plan(seeds=[1, 2])
    point = {"rate": 0.01, "batch": 16}
    states = [DONE, DONE, FAILED, DONE, FAILED, FAILED, RUNNING, DONE]
    values = [0.5, 0.7, None, 0.2, None, None, None, 0.1]
    pairs = zip(states, values, strict=True)
    trials = [Trial(i, "", [], point, state=s, value=v) for i, (s, v) in enumerate(pairs)]
    assert set(sweep_search.suggest(plan, 8, trials)) == {"rate", "batch"}
    pruned = Trial(0, "", [], point, state=PRUNED, step=10, value=0.3)
    assert sweep_search.suggest(_plan(), 1, [pruned])["batch"] in (16, 32)


def test_a_trial_behind_the_median_is_ended_at_the_first_such_step():
    pytest.importorskip("optuna")
    plan = _plan(prune=True, metric="f1")
    earlier = [{10: 0.5 + i / 100, 20: 0.6, 30: 0.6} for i in range(5)]
    assert sweep_search.step_to_end_at(plan, {10: 0.6, 20: 0.5, 30: 0.1}, earlier) is None
    assert sweep_search.step_to_end_at(plan, {10: 0.4, 20: 0.9}, earlier) == 10
    assert sweep_search.step_to_end_at(plan, {10: 0.4}, earlier[:4]) is None
    later = _plan(prune=True, metric="f1", prune_after=15)
    assert sweep_search.step_to_end_at(later, {10: 0.4, 20: 0.5}, earlier) == 20
    loss = _plan(prune=True, metric="loss", minimize=True)
    assert sweep_search.step_to_end_at(loss, {10: 0.4}, earlier) is None
    assert sweep_search.step_to_end_at(loss, {10: 0.9}, earlier) == 10


def test_without_optuna_the_way_to_get_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(file_io.InputError, match="need Optuna: pip install optuna"):
        sweep_search.check_installed()
