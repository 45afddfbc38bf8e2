"""Flags of when a run is evaluated, judged and ended, of its seeds, and what is built from them."""

import os

from albert.cli import common_flags
from albert.experiments import seeds
from albert.io import file_io
from albert.training import budget, stuck_runs

# Of the scripts, those that say how many steps there are.
_LENGTHS = ("train_step", "num_train_steps", "num_train_epochs")
_NO_RECIPE = "docs/recipes.md"


def define_flags(flag_values, fine_tuning=True):
    """When a run is evaluated and ended; in fine-tuning also judgements, restarts and seeds."""
    text, integer, number, _ = common_flags.definers(flag_values)
    integer(
        "eval_every",
        0,
        "Steps between evaluations, each of a checkpoint; 0: at each that is saved.",
    )
    text("metric_for_best", None, "Result by which the best checkpoint is picked.")
    integer("early_stopping_patience", 0, "End after so many evaluations without a better; 0: not.")
    number(
        "budget_minutes",
        0.0,
        "Above 0: train until so many minutes are up, with the evaluations; the learning rate "
        "follows the clock.",
    )
    if not fine_tuning:
        return
    number(
        "stuck_after",
        0.2,
        "Share of the steps from which on a run that does not learn is warned of; 0: never.",
    )
    integer("num_restarts", 0, "Times to start again with the next seed where that is so.")
    integer("num_seeds", 1, "Runs to make, from --seed on, each in a folder seed_<n>.")


def check(values):
    """Refuses contradictions before any work.

    Raises:
      file_io.InputError: names the flags and what is possible.
    """
    names = ["eval_every", "early_stopping_patience", "budget_minutes"]
    fine_tuning = "num_seeds" in values
    names += ["num_restarts"] if fine_tuning else []
    for name in names:
        if values[name].value < 0:
            raise file_io.InputError(f"--{name}={values[name].value} must be at least 0")
    if not _evaluates(values):
        purpose = "training with evaluations"
        common_flags.refuse_given(values, purpose, "eval_every", "early_stopping_patience")
    if not values.do_train:
        common_flags.refuse_given(values, "training", "budget_minutes")
    if values.budget_minutes and "start_warmup_step" in values:
        common_flags.refuse_given(values, "runs without --budget_minutes", "start_warmup_step")
    if fine_tuning:
        _check_seeds(values)


def _evaluates(values):
    """Whether a training run evaluates; SQuAD's scripts do where they predict."""
    name = "do_eval" if "do_eval" in values else "do_predict"
    return values.do_train and values[name].value


def _check_seeds(values):
    """Refuses contradictions of the flags of fine-tuning."""
    if not 0 <= values.stuck_after < 1:
        raise file_io.InputError(
            f"--stuck_after={values.stuck_after} must be a share, from 0 to below 1"
        )
    common_flags.require_positive(values, "num_seeds")
    if values.num_restarts and not (values.do_train and values.stuck_after):
        raise file_io.InputError("--num_restarts needs --do_train and --stuck_after above 0")
    if values.num_seeds == 1:
        return
    if not _evaluates(values):
        raise file_io.InputError("--num_seeds needs training with evaluations, to compare the runs")
    if "export_dir" in values:
        common_flags.refuse_given(values, "one run, such as the best of --num_seeds", "export_dir")
    if "TF_CONFIG" in os.environ:
        raise file_io.InputError("--num_seeds is for one worker, but TF_CONFIG is set")


def with_metric(values, task):
    """The task, with the metric that is to pick the best checkpoint.

    Args:
      values: flag values.
      task: `contracts.Task`.

    Raises:
      file_io.InputError: it has no such metric; names those that it has.
    """
    import dataclasses

    chosen = values.metric_for_best
    if chosen is None:
        return task
    if chosen not in task.metrics:
        raise file_io.InputError(
            f"--metric_for_best={chosen}: {task.name} has {', '.join(sorted(task.metrics))}"
        )
    return dataclasses.replace(task, best_metric=chosen)


def glue_recipe(row):
    """The flag file of a task of `run_classifier` in `recipes/`."""
    folder = getattr(row, "folder", None)  # None: one's own data
    with_file = ("SST-2", "MNLI", "CoLA", "QNLI", "QQP", "RTE", "STS-B", "MRPC")
    return f"recipes/glue_{folder}.flags" if folder in with_file else _NO_RECIPE


def of_run(values, steps, warmup_steps, recipe=None, **schedule):
    """The arguments of `stages.Run` that say which stages there are and how long training is.

    Args:
      values: flag values.
      steps, warmup_steps: of training; with a budget the share of the warm-up counts.
      recipe: file or page with settings to try; None: the run is not judged.
      **schedule: see `optimizers.create_optimizer`.
    """
    from albert.cli import optimizer_flags

    share = warmup_steps / steps if steps else 0.0
    stages = [name for name in ("do_train", "do_eval", "do_predict") if name in values]
    return {
        "make_optimizer": lambda: optimizer_flags.make_optimizer(
            values, steps, warmup_steps, **schedule
        ),
        **{name: values[name].value for name in stages},
        "checkpoint": values.checkpoint,
        "eval_wait_secs": values.eval_wait_secs,
        "stuck": _judged(values, share, recipe) if recipe else None,
        "budget": _budget(values, steps, share, schedule),
    }


def _judged(values, warmup_share, recipe):
    """`stuck_runs.Settings` of the flags; None if the run is not to be judged."""
    if not values.stuck_after:
        return None
    advice = (
        f"learning_rate={values.learning_rate} with {warmup_share:.0%} of the steps as warm-up: "
        f"try a lower rate, a longer warm-up, the settings in {recipe}, or another seed "
        "(num_restarts); load_report.json says whether the encoder was loaded"
    )
    return stuck_runs.Settings(values.stuck_after, warmup_share, advice, values.num_restarts)


def _budget(values, steps, warmup_share, schedule):
    """`budget.Settings` of the flags; None without a budget."""
    from albert.cli import optimizer_flags

    if not values.budget_minutes:
        return None
    is_bound = any(values[name].present for name in _LENGTHS if name in values)

    def make_optimizer(pace):
        return optimizer_flags.make_optimizer(values, 1, warmup_share, pace=pace, **schedule)

    return budget.Settings(values.budget_minutes, make_optimizer, steps if is_bound else None)


def runs_seeds(values, script, metric, shared=None):
    """With --num_seeds makes the runs, each by the same command with a seed of its own.

    Args:
      values: flag values.
      script: name of the script.
      metric: the result that picks the best checkpoint unless --metric_for_best does.
      shared: {flag: name in --output_dir} of data that all runs use, unless the flag is given.

    Returns:
      Whether it did, so that nothing else is to be done.

    Raises:
      file_io.InputError: all runs failed.
    """
    if values.num_seeds == 1:
        return False
    own = ("num_seeds", "seed", "output_dir")
    given = [values[name].serialize() for name in values if values[name].present]
    given = [argument for argument in given if argument and not _names(argument, own)]
    for name, file in (shared or {}).items():
        if not values[name].value:
            given.append(f"--{name}={os.path.join(values.output_dir, file)}")

    def arguments(seed, folder):
        return [*given, f"--seed={seed}", f"--output_dir={folder}"]

    study = seeds.Study(values.output_dir, script, values.metric_for_best or metric, arguments)
    print(seeds.run(study, values.seed, values.num_seeds))
    return True


def _names(argument, flags):
    """Whether a command line argument is one of these flags."""
    return argument.removeprefix("--").partition("=")[0] in flags
