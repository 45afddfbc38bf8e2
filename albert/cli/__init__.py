"""Turns flags into settings, and starts and ends commands."""

# Modules that other rooms and commands may import.
__all__ = (
    "app",
    "blimp_flags",
    "card_settings",
    "common_flags",
    "distillation_flags",
    "dropout_flags",
    "fine_tuning_flags",
    "inference_flags",
    "model_settings",
    "optimizer_flags",
    "options",
    "pretraining",
    "pretraining_flags",
    "record_flags",
    "runner",
    "schedule_flags",
    "script_flags",
    "squad_flags",
    "study_flags",
)
