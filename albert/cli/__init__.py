"""Turns flags into settings, and starts and ends commands."""

# Modules that other rooms and commands may import.
__all__ = (
    "app",
    "blimp_flags",
    "common_flags",
    "distillation_flags",
    "dropout_flags",
    "fine_tuning_flags",
    "inference_flags",
    "optimizer_flags",
    "pretraining_data_flags",
    "pretraining_flags",
    "record_flags",
    "runner_flags",
    "schedule_flags",
    "script_flags",
    "squad_flags",
    "study_flags",
)
