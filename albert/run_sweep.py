r"""Runs a script over a grid or a search of its flags, with a process and a folder per trial.

Example:

    albert run_sweep --script=run_classifier --output_dir=out/sweep \
        --grid='learning_rate=1e-5,3e-5' --seeds=1,2,3 \
        --script_flags='--flagfile=sst2.flags'
"""

import dataclasses
import functools
import math
import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from absl import flags, logging

from albert.cli import app, command_flags, next_steps, options, path_flags
from albert.experiments import equivalence, power, sweep, sweep_journal, sweep_plan, sweep_results
from albert.experiments.runs import find_folders
from albert.io import file_io, signals

_METRIC = "metric_for_best"  # flag of the scripts


def _is_above_0(name: str, value: float) -> None:
    """Checks that the value of flag `name` is finite and above 0."""
    if not 0 < value < math.inf:
        raise file_io.InputError(f"--{name}={value:g} must be above 0")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(options.Group):
    """Settings of a sweep and its trials."""

    output_dir: str = options.flag(
        None,
        "Folder of the sweep: a folder for each trial, logs and the table.",
        required=True,
        path=path_flags.outputs("/sweep.json", "/sweep_results.*"),
    )
    spec: str | None = options.flag(
        None,
        "JSON file that says what to try; flags with the names of its keys override it.",
        path=path_flags.INPUT,
    )
    grid: str | None = options.flag(
        None, "Parameters and their values: 'learning_rate=1e-3,3e-3;seed=1,2'."
    )
    script: str | None = options.flag(None, "Script that each trial runs, such as run_classifier.")
    script_flags: str = options.flag("", "Further flags of every trial, as on a command line.")
    trials: str | None = options.flag(
        None, "Trials by name, one per line: 'RTE: --task_name=RTE --train_step=800'."
    )
    seeds: tuple[str, ...] | None = options.flag(
        None, "Values of --seed to repeat each point with."
    )
    metric: str | None = options.flag(
        None, "Score of a trial; by default the one that picks its best checkpoint."
    )
    minimize: bool | None = options.flag(
        None, "Whether lower scores are better; by default only where the score is a loss."
    )
    baseline: str | None = options.flag(
        None,
        "Point that the table compares all others with, by the name of its trials or as "
        "'learning_rate=1e-5;train_batch_size=16'; by default the best one.",
    )
    equivalence_margin: float | None = options.flag(
        None,
        "Largest difference that does not matter, in the unit of the score: the table then also "
        "says which points are equal to the reference within it.",
        check=equivalence.check_margin,
    )
    method: str | None = options.flag(
        None,
        "How points are chosen: all in order (grid, the default), drawn, or drawn near good ones "
        "(tpe, which needs the extra sweep).",
        choices=tuple(sweep_plan.METHODS),
    )
    num_trials: int | None = options.flag(
        None, "Number of trials, including those of earlier starts."
    )
    prune: bool | None = options.flag(
        None, "End trials that are behind the median of the earlier ones."
    )
    prune_after: int | None = options.flag(None, "Step before which --prune ends no trial.")
    seed: int | None = options.flag(None, "Source of the points that random and tpe draw.")
    parallel: int = options.flag(1, "Trials at the same time; they share this machine.", minimum=1)
    retry_failed: bool = options.flag(False, "Run the failed trials again.")
    plan: bool = options.flag(
        False,
        "Only say how many seeds a difference needs and how long the runs take; start nothing.",
    )
    plan_from: tuple[str, ...] | None = options.flag(
        None,
        "Folders of finished runs of the task, from which --plan takes spread and time; by default "
        "those in --output_dir.",
        path=path_flags.FOLDER,
    )
    detect: tuple[str, ...] | None = options.flag(
        None, "Differences of the score for which --plan computes seeds, such as 0.01,0.02."
    )
    assumed_deviation: float | None = options.flag(
        None, "Standard deviation of the score over seeds that --plan assumes.", check=_is_above_0
    )
    python: str = options.flag(
        sys.executable, "Interpreter that runs the trials.", path=path_flags.FOLDER
    )

    def specification(self) -> dict[str, Any]:
        """Returns the keys of a specification that flags set, with their values."""
        specification: dict[str, Any] = {
            "script": self.script,
            "metric": self.metric,
            "minimize": self.minimize,
            "method": self.method,
            "num_trials": self.num_trials,
            "prune": self.prune,
            "prune_after": self.prune_after,
            "seed": self.seed,
        }
        if self.grid is not None:
            specification["parameters"] = sweep_plan.parse_grid(self.grid)
        if self.seeds is not None:
            specification["seeds"] = [
                int(seed) if re.fullmatch("-?[0-9]+", seed) else seed for seed in self.seeds
            ]
        return {name: value for name, value in specification.items() if value is not None}

    def named_trials(self) -> dict[str, list[str]]:
        """Returns {name: flags} of the trials in --trials."""
        trials = {}
        for line in (self.trials or "").splitlines():
            name, colon, own = line.partition(":")
            if not colon or name.strip() in trials:
                raise file_io.InputError(
                    f"--trials: expected lines 'name: flags' with different names, found {line!r}"
                )
            trials[name.strip()] = _split(own, "--trials")
        return trials


def define_flags(flag_values: flags.FlagValues) -> None:
    options.define(Settings, flag_values)


def _split(text: str, name: str) -> list[str]:
    """Returns the words of a command line; `name` is the flag, for messages."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise file_io.InputError(f"{name}: {text!r} is not a command line: {error}") from error


def make_plan(settings: Settings) -> sweep_plan.Plan:
    """Returns the plan of the specification and the flags."""
    spec = sweep_plan.read_spec(settings.spec) if settings.spec else {}
    spec.update(settings.specification())
    common = _split(settings.script_flags, "--script_flags")
    return sweep_plan.make_plan(spec, common, settings.named_trials(), settings.spec)


# --- the flags of trials --------------------------------------------------------------------------


def check_trials(plan: sweep_plan.Plan) -> dict[str, str]:
    """Checks the arguments of all trials; returns {flag: text} of the flags that all have."""
    _check_given_once(plan)
    seeds = [sweep_plan.argument("seed", seed) for seed in plan.seeds]
    points = [_arguments(point) for point in _points_that_name_all(plan)]
    for own in (*plan.trials.values(), *points):
        given = command_flags.read_trial_flags(plan.script, [*plan.arguments, *own, *seeds])
        if seeds and int(given.get("num_seeds", 1)) > 1:
            raise file_io.InputError(
                f"seeds: each trial would draw num_seeds={given['num_seeds']} seeds of its own, "
                "some of them twice; give seeds or num_seeds, not both"
            )
    if plan.trials:
        return {}
    # A script may accept the common arguments only together with parameters.
    first = points[0] if points else []
    values = command_flags.read_trial_flags(plan.script, [*plan.arguments, *first])
    return {name: value for name, value in values.items() if name not in plan.parameters}


def find_metric(plan: sweep_plan.Plan, common: Mapping[str, str]) -> str | None:
    """Returns the metric by which all trials pick checkpoints; None if their tasks decide.

    `common`: {flag: text} of the flags that all trials have.
    """
    if plan.metric or not plan.trials:
        return plan.metric or common.get(_METRIC)
    found = {
        command_flags.read_trial_flags(plan.script, [*plan.arguments, *own]).get(_METRIC)
        for own in plan.trials.values()
    }
    if len(found) > 1:
        names = ", ".join(sorted(name or "their task's" for name in found))
        logging.warning(
            "Trials differ in %s (%s): the table ranks higher scores first, whatever they are; "
            "--metric names one for all",
            _METRIC,
            names,
        )
        return None
    return found.pop()


def _check_given_once(plan: sweep_plan.Plan) -> None:
    """Rejects a flag of all trials that a parameter would override, except in flag files."""
    own = dict.fromkeys(plan.parameters, "parameter")
    if plan.seeds:
        own["seed"] = "seeds: the flag"
    for argument in plan.arguments:
        name = argument.lstrip("-").partition("=")[0]
        name = name if name in own else name.removeprefix("no")
        if argument.startswith("-") and name in own:
            raise file_io.InputError(
                f"{own[name]} {name!r} also stands among the flags of all trials: {argument!r}; "
                "remove it from --script_flags or from the specification's flags"
            )


def _arguments(point: dict[str, Any]) -> list[str]:
    return [sweep_plan.argument(name, value) for name, value in point.items()]


def _points_that_name_all(plan: sweep_plan.Plan) -> Iterator[dict[str, Any]]:
    """Yields points that together cover each value of each parameter and both ends of ranges."""
    ends = {
        name: (values.low, values.high) if isinstance(values, sweep_plan.Range) else values
        for name, values in plan.parameters.items()
    }
    for place in range(max(map(len, ends.values()), default=0)):
        yield {name: values[min(place, len(values) - 1)] for name, values in ends.items()}


def describe_plan(settings: Settings, plan: sweep_plan.Plan, common: Mapping[str, str]) -> str:
    """Returns what --plan prints; `common`: {flag: text} of the flags that all trials have."""
    folders = list(settings.plan_from or ()) or power.find_finished(settings.output_dir)
    runs = power.read_runs(find_folders(folders) if folders else [], plan.metric)
    if runs is not None:
        power.check_task(runs, plan.script, common.get("task_name"))
    if settings.assumed_deviation is not None:
        spread = power.assume_spread(settings.assumed_deviation)
    elif runs is None:
        raise file_io.InputError(
            "plan: the spread of the score over seeds is not known: name finished runs with "
            "--plan_from, or give --assumed_deviation"
        )
    else:
        spread = power.measure_spread(runs)
    return power.describe(
        plan, spread, runs, _differences(settings.detect), settings.parallel,
        settings.baseline is not None,
    )  # fmt: skip


def _differences(texts: tuple[str, ...] | None) -> list[float]:
    differences = []
    for text in texts or ():
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not 0 < value < math.inf:
            raise file_io.InputError(f"--detect={text}: expected numbers above 0, such as 0.01")
        differences.append(value)
    return differences


def check_baseline(plan: sweep_plan.Plan, folder: str, baseline: str | None) -> None:
    """Checks that exactly one point of the plan, or of the sweep in `folder`, is the baseline.

    `baseline` is the name of a point or trial; None: there is nothing to check.
    """
    if baseline is None:
        return
    if plan.method != "grid":
        if not re.fullmatch(r"trial_\d{4,}", baseline):
            raise file_io.InputError(
                f"baseline={baseline}: expected the name of a trial such as trial_0000, as "
                f"method={plan.method} draws the points"
            )
        return
    trials = sweep.planned_trials(plan)
    if sweep_journal.is_sweep(folder):
        trials += [t for t in sweep_journal.read(folder)[1] if t.name == baseline]
    try:
        sweep_journal.find_point(sweep_journal.points_of(trials), baseline)
    except file_io.InputError as error:
        raise file_io.InputError(f"baseline: {error}") from error


def main(values: flags.FlagValues) -> None:
    settings = options.read(Settings, values)
    plan = make_plan(settings)
    common = check_trials(plan)
    check_baseline(plan, settings.output_dir, settings.baseline)
    plan = plan.scored_by(find_metric(plan, common))
    if settings.plan:
        print(app.with_flag_names(describe_plan(settings, plan, common), values), end="")
        return
    settings.refuse_given("--plan", "plan_from", "detect", "assumed_deviation")
    runner = sweep.Sweep(
        plan, common, settings.output_dir, settings.python, settings.parallel,
        baseline=settings.baseline, equivalence_margin=settings.equivalence_margin,
        changed_flags=functools.partial(command_flags.changed_flags, plan.script),
    )  # fmt: skip
    signals.REQUESTS.remedy = "the same command resumes from the last checkpoints"
    runner.run(settings.retry_failed)
    summary = runner.summary()
    print(sweep_results.to_markdown(summary), end="")
    if summary["best"] is None:
        print("No trial wins: the table gives the reason for each point.")
    print(f"Written to {os.path.join(settings.output_dir, sweep_results.NAME)}.md, .csv and .json")
    failed = [trial.name for trial in runner.trials if trial.state == sweep_journal.FAILED]
    if failed:
        raise file_io.InputError(
            f"{len(failed)} of {len(runner.trials)} trials failed: {', '.join(failed)}; their logs "
            "say why, --retry_failed runs them again"
        )
    next_steps.show(next_steps.line("report", runs=settings.output_dir))


if __name__ == "__main__":
    app.run(main, define_flags)
