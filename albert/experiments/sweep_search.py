"""Suggests points from earlier results, and finds weak trials to prune, with Optuna.

The tree-structured Parzen estimator (Bergstra et al. 2011) and the median rule. Both use only the
given trials, and the number of the trial as the seed, so the same history gives the same answer in
any process.
"""

import statistics
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

from albert.experiments import sweep_journal, sweep_plan
from albert.io import requirements

if TYPE_CHECKING:
    import optuna


def check_installed() -> None:
    """Checks that Optuna is installed."""
    _optuna()


def _optuna() -> ModuleType:
    with requirements.needed("method=tpe and prune need Optuna: pip install optuna"):
        import optuna
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _direction(plan: sweep_plan.Plan) -> str:
    return "minimize" if plan.minimize else "maximize"


def suggest(
    plan: sweep_plan.Plan, number: int, trials: Sequence[sweep_journal.Trial]
) -> dict[str, object]:
    """Suggests the next point of `sweep_plan.Plan.parameters`, {name: value}, for a trial.

    Of earlier trials that have not ended only the point counts, so that it is not tried twice.
    """
    optuna = _optuna()
    choices = {name: _distribution(optuna, v) for name, v in plan.parameters.items()}
    sampler = optuna.samplers.TPESampler(seed=plan.seed + number, constant_liar=True)
    study = optuna.create_study(direction=_direction(plan), sampler=sampler)
    for point in sweep_journal.by_point(trials):
        study.add_trial(_as_trial(optuna, plan, choices, point))
    drawn = study.ask(choices).params
    return {
        name: values.near(drawn[name]) if isinstance(values, sweep_plan.Range) else drawn[name]
        for name, values in plan.parameters.items()
    }


def _distribution(
    optuna: ModuleType, values: Sequence | sweep_plan.Range
) -> "optuna.distributions.BaseDistribution":
    """Returns the distribution of a parameter's values in Optuna: categories, or numbers."""
    if not isinstance(values, sweep_plan.Range):
        return optuna.distributions.CategoricalDistribution(values)
    kinds = optuna.distributions
    kind = kinds.IntDistribution if values.is_whole else kinds.FloatDistribution
    return kind(values.low, values.high, log=values.log)


def _as_trial(
    optuna: ModuleType,
    plan: sweep_plan.Plan,
    choices: dict[str, "optuna.distributions.BaseDistribution"],
    trials: Sequence[sweep_journal.Trial],
) -> "optuna.trial.FrozenTrial":
    """Returns a point with its seeds, each a trial, as one Optuna trial."""
    states = optuna.trial.TrialState
    scores = [trial.value for trial in trials if trial.value is not None]
    if not all(trial.has_ended for trial in trials):
        state, value = states.RUNNING, None
    elif any(trial.state == sweep_journal.PRUNED for trial in trials):
        state, value = states.PRUNED, None
    elif scores:
        state, value = states.COMPLETE, statistics.fmean(scores)
    else:
        state, value = states.FAIL, None
    at_steps = {}
    if state == states.PRUNED and scores:
        at_steps = {trials[0].step: scores[0]}
    return optuna.trial.create_trial(
        state=state,
        value=value,
        params={name: trials[0].parameters[name] for name in plan.parameters},
        distributions=choices,
        intermediate_values=at_steps,
    )


def step_to_end_at(
    plan: sweep_plan.Plan, curve: dict[int, float], earlier: Iterable[dict[int, float]]
) -> int | None:
    """Returns the first step at which a trial is behind the median of earlier ones, or None.

    Its best score so far is compared with what the others had at the same step. The first five
    trials are never ended, nor is any trial before `sweep_plan.Plan.prune_after`.

    Args:
      curve, earlier: {step: score} of the trial, and of each earlier one that is done.
    """
    optuna = _optuna()
    pruner = optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=plan.prune_after)
    study = optuna.create_study(direction=_direction(plan), pruner=pruner)
    for other in earlier:
        if other:
            value = (min if plan.minimize else max)(other.values())
            study.add_trial(optuna.trial.create_trial(value=value, intermediate_values=other))
    trial = study.ask()
    for step, score in sorted(curve.items()):
        trial.report(score, step)
        if trial.should_prune():
            return step
    return None
