"""What all fine-tuning scripts have in common: flags, their checks, what they change."""

from albert.cli import common_flags, dropout_flags, optimizer_flags, schedule_flags, study_flags

# Flags that must be at least one, in all of these scripts but SQuAD's.
COUNTS = (
    "train_batch_size", "eval_batch_size", "predict_batch_size", "max_seq_length", "train_step",
    "save_checkpoints_steps",
)  # fmt: skip


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


def define_keep_flag(flag_values, name):
    """How many checkpoints are kept; scripts have names of their own for it."""
    _, integer, _, _ = common_flags.definers(flag_values)
    integer(
        name,
        5,
        "Checkpoints kept, beside the best; 0 keeps all, as training without evaluation does "
        "unless the flag is given.",
    )


def num_kept(values, evaluates):
    """Numbered checkpoints that a run keeps; 0: all.

    By default a run that does not evaluate its checkpoints keeps all for a later command.

    Args:
      values: flag values.
      evaluates: whether the run evaluates each checkpoint as it is saved.
    """
    names = [name for name in ("keep_checkpoint_max", "num_keep_checkpoint") if name in values]
    flag = values[names[0]]
    return 0 if values.do_train and not evaluates and not flag.present else flag.value


def check(values):
    """Refuses contradictions among these flags before any work."""
    optimizer_flags.check_optimizer(values)
    dropout_flags.check_dropout(values)
    schedule_flags.check(values)
    study_flags.check_study(values)


def prepared(values, task, data, run, taught=lambda task: task, shares=True):
    """The task and the data as the flags want them: metric, frozen encoder, subset, teacher.

    Args:
      values: flag values.
      task: `contracts.Task`.
      data: `contracts.Data`.
      run: `stages.Run`.
      taught: ``(task) -> task`` with a teacher beside it.
      shares: see `study_flags.studied`.
    """
    task = study_flags.frozen(values, schedule_flags.with_metric(values, task))
    data = study_flags.studied(values, data, task, run, shares)
    return taught(task), data
