"""Runs a script over a grid or a search of its flags, a process and a folder each trial."""

import os
import shlex
import sys

from absl import flags

from albert.cli import app, common_flags, script_flags
from albert.experiments import sweep, sweep_journal, sweep_plan, sweep_results
from albert.io import file_io, signals

_GOES_ON = "the same command goes on from the last checkpoints"


def define_flags(flag_values):
    text, integer, _, switch = common_flags.definers(flag_values)
    text("output_dir", None, "Folder of the sweep: a folder for each trial, logs and the table.")
    text("spec", None, "JSON file that says what to try; the flags of its keys' names win over it.")
    text("grid", None, "Parameters and their values: 'learning_rate=1e-3,3e-3;seed=1,2'.")
    text("script", None, "Script that each trial runs, such as run_classifier.")
    text("script_flags", "", "Further flags of every trial, as on a command line.")
    text("trials", None, "Trials by name, a line each: 'RTE: --task_name=RTE --train_step=800'.")
    flags.DEFINE_list("seeds", None, "Values of --seed to repeat each point with.", flag_values)
    text("metric", None, "Score of a trial; by default the one that picks its best checkpoint.")
    switch("minimize", None, "Whether a low score is good; by default that of a loss is.")
    flags.DEFINE_enum(
        "method",
        None,
        sweep_plan.METHODS,
        "How points are chosen: all in order (grid, the default), drawn, or drawn near good ones "
        "(tpe, which needs the extra sweep).",
        flag_values=flag_values,
    )
    integer("num_trials", None, "Trials in all, those of earlier starts counted.")
    switch("prune", None, "End trials that are behind the median of the earlier ones.")
    integer("prune_after", None, "Step before which --prune ends no trial.")
    integer("seed", None, "Source of what random and tpe draw.")
    flags.DEFINE_integer(
        "parallel",
        1,
        "Trials at the same time; they share this machine.",
        lower_bound=1,
        flag_values=flag_values,
    )
    switch("retry_failed", False, "Run the trials again that have failed.")
    text("python", sys.executable, "Interpreter that runs the trials.")
    flags.mark_flag_as_required("output_dir", flag_values=flag_values)


def _split(text, name):
    try:
        return shlex.split(text)
    except ValueError as error:
        raise file_io.InputError(f"{name}: {text!r} is no command line: {error}") from error


def _given_trials(values):
    found = {}
    for line in (values.trials or "").splitlines():
        name, colon, own = line.partition(":")
        if not colon or name.strip() in found:
            raise file_io.InputError(
                f"--trials: expected lines 'name: flags' with another name each, found {line!r}"
            )
        found[name.strip()] = _split(own, "--trials")
    return found


def make_plan(values):
    """`sweep_plan.Plan` of the specification and the flags."""
    spec = sweep_plan.read_spec(values.spec) if values.spec else {}
    names = ("script", "metric", "minimize", "method", "num_trials", "prune", "prune_after", "seed")
    given = {name: values[name].value for name in names}
    spec.update((name, value) for name, value in given.items() if value is not None)
    if values.grid is not None:
        spec["parameters"] = sweep_plan.parse_grid(values.grid)
    if values.seeds is not None:
        spec["seeds"] = [int(seed) if seed.isdigit() else seed for seed in values.seeds]
    common = _split(values.script_flags, "--script_flags")
    return sweep_plan.make_plan(spec, common, _given_trials(values), values.spec)


def main(values):
    plan = make_plan(values)
    settings = script_flags.check_trials(plan)
    plan = plan.scored_by(settings.get("metric_for_best"))  # what trials pick checkpoints by
    runner = sweep.Sweep(plan, settings, values.output_dir, values.python, values.parallel)
    try:
        runner.run(values.retry_failed)
    except signals.Terminated:
        raise signals.Terminated(_GOES_ON) from None
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"interrupted; {_GOES_ON}") from None
    summary = runner.summary()
    print(sweep_results.to_markdown(summary), end="")
    if summary["best"] is None:
        print("No trial wins: of each point, the table says why.")
    print(f"Written to {os.path.join(values.output_dir, sweep_results.NAME)}.md, .csv and .json")
    failed = [trial.name for trial in runner.trials if trial.state == sweep_journal.FAILED]
    if failed:
        raise file_io.InputError(
            f"{len(failed)} of {len(runner.trials)} trials failed: {', '.join(failed)}; their logs "
            "say why, --retry_failed runs them again"
        )


if __name__ == "__main__":
    app.run(main, define_flags)
