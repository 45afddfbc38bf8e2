"""What all fine-tuning scripts have in common: their flags, the checks of these, and the run."""

from albert import common_flags, dropout_flags, optimizer_flags, schedule_flags, study_flags


def define_flags(flag_values, learning_rate, **of_optimizer):
    """Flags of devices, runs, the model, the optimizer, dropout, the course of training, studies.

    Args:
      flag_values: flag values.
      learning_rate: its default.
      **of_optimizer: see `optimizer_flags.define_optimizer_flags`.
    """
    common_flags.define_device_flags(flag_values)
    common_flags.define_run_flags(flag_values)
    common_flags.define_model_flags(flag_values)
    optimizer_flags.define_optimizer_flags(flag_values, "adamw", learning_rate, **of_optimizer)
    dropout_flags.define_dropout_flags(flag_values)
    schedule_flags.define_flags(flag_values)
    study_flags.define_flags(flag_values)


def check(values):
    """Refuses contradictions among these flags before any work."""
    optimizer_flags.check_optimizer(values)
    dropout_flags.check_dropout(values)
    schedule_flags.check(values)
    study_flags.check_study(values)


def run(values, task, data, run, taught=lambda task: task, shares=True):
    """Runs the stages that the flags ask for; returns the `engine.Engine`.

    Args:
      values: flag values.
      task: `task.Task`.
      data: `task.Data`.
      run: `stages.Run`.
      taught: ``(task) -> task`` with a teacher beside it.
      shares: see `study_flags.studied`.
    """
    from albert import stages

    task = study_flags.frozen(values, schedule_flags.with_metric(values, task))
    data = study_flags.studied(values, data, task, run, shares)
    return stages.run(taught(task), data, run)
