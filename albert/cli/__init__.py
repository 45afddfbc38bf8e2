"""Turns flags into settings, and starts and ends commands."""

# Modules that other rooms and commands may import.
__all__ = (
    "app",
    "common_flags",
    "distillation",
    "fine_tuning",
    "inference_flags",
    "model_settings",
    "options",
    "pretraining",
    "pretraining_data_flags",
    "record_flags",
    "runner_flags",
    "script_flags",
    "squad",
    "training",
)
