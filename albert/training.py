"""What starts a training, and how many steps fit into its budget."""

import contextlib
import dataclasses
import functools
import os

from absl import logging

from albert import (
    budget,
    checkpoints,
    distribution,
    engine,
    file_io,
    records,
    run_record,
    stuck,
    task,
)

_TRIAL = "budget_trial"  # folder in which steps are timed
_ENDLESS = 10**6  # steps of that run, which is stopped


def make_engine(task_, run, run_config):
    """The `engine.Engine` of a run, which the run's record then tells of.

    Args:
      task_: `task.Task`.
      run: `stages.Run`.
      run_config: `engine.RunConfig`.
    """
    runner = engine.Engine(task_, run.model_config, run_config, run.strategy)
    runner.before_save = run.before_save
    if distribution.is_chief(run.strategy):
        counts = [
            sum(variable.shape.num_elements() for variable in variables)
            for variables in (runner.model.variables, runner.model.trained_variables)
        ]
        run_record.set_model(run_config.output_dir, task_.name, task_.best_metric, *counts)
    return runner


def start(task_, data, paths, run, run_config):
    """What trains.

    Args:
      task_: `task.Task`.
      data: `task.Data`.
      paths: record files to train on.
      run: `stages.Run`.
      run_config: `engine.RunConfig`.

    Returns:
      An `engine.Engine`, and ``(on_checkpoint, watch)`` that trains it, see `Engine.train`.
    """
    if not run.stuck:
        task_ = dataclasses.replace(task_, signs=task.no_metrics)
    runner = make_engine(task_, run, run_config)
    specs, seed = data.specs("train"), run_config.seed
    train_input = records.train_input_fn(paths, specs, seed, **data.train_input)

    def initialize(model):
        if run.init_checkpoint:
            return checkpoints.restore(model, run.init_checkpoint, rename=run.rename)
        return None

    return runner, functools.partial(runner.train, train_input, run.make_optimizer, initialize)


def watch(run):
    """How a run is judged while it trains: `stuck.Watch`, or nothing."""
    if not run.stuck:
        return stuck.UNWATCHED
    config = run.run_config
    return stuck.Watch(
        run.stuck, config.output_dir, config.num_train_steps, config.train_batch_size,
        distribution.is_chief(run.strategy),
    )  # fmt: skip


def within_budget(run, start, eval_input):
    """The run with the number of steps that fits its budget, as it was fixed or is measured now.

    Args:
      run: `stages.Run` with a budget.
      start: ``(run, run_config)``, see the function `start`.
      eval_input: evaluation input, or None.

    Raises:
      file_io.InputError: too little, or the folder holds a run whose steps no budget has fixed.
    """
    on_chief = functools.partial(distribution.from_chief, run.strategy)
    config, settings = run.run_config, run.budget
    folder = config.output_dir
    steps = on_chief(lambda: budget.read(folder, settings.minutes))
    if steps is None:
        if on_chief(lambda: bool(checkpoints.numbered(folder))):
            raise file_io.InputError(
                f"budget_minutes={settings.minutes:g}: {folder} holds a run whose steps no budget "
                "has fixed: give another output_dir"
            )
        measured = _measure(run, start, eval_input)
        intervals = config.save_checkpoints_steps, config.eval_every
        steps = on_chief(lambda: budget.fix(folder, settings, measured, *intervals))
    logging.info("budget_minutes=%g: %d steps", settings.minutes, steps)
    return dataclasses.replace(
        run,
        run_config=dataclasses.replace(config, num_train_steps=steps),
        make_optimizer=lambda: settings.make_optimizer(steps),
    )


def _measure(run, start, eval_input):
    """`budget.Measured` of a trial run that begins like the run itself."""
    on_chief = functools.partial(distribution.from_chief, run.strategy)
    settings = run.budget
    folder = os.path.join(run.run_config.output_dir, _TRIAL)
    trial_config = dataclasses.replace(
        run.run_config, output_dir=folder, num_train_steps=_ENDLESS,
        save_checkpoints_steps=_ENDLESS, eval_every=0,
    )  # fmt: skip
    trial = dataclasses.replace(run, make_optimizer=lambda: settings.make_optimizer(_ENDLESS))
    logging.info("budget_minutes=%g: timing the first steps", settings.minutes)
    on_chief(lambda: file_io.remove(folder))
    stopwatch = budget.Stopwatch(settings.clock, 60.0 * settings.minutes, on_chief)
    runner, train_once = start(trial, trial_config)
    evaluate = eval_input and stopwatch.evaluating(lambda: runner.evaluate(eval_input))
    with contextlib.suppress(budget.EnoughTimed):
        train_once(evaluate, stopwatch)
    on_chief(lambda: file_io.remove(folder))
    return stopwatch.measured
