"""Turns flags into settings, and starts and ends commands."""

# Modules that other rooms and commands may import.
__all__ = (
    "app",
    "card_settings",
    "commands",
    "common_flags",
    "distillation",
    "fine_tuning",
    "inference_flags",
    "model_settings",
    "options",
    "packaged_files",
    "pretraining",
    "record_flags",
    "runner",
    "script_flags",
    "squad",
    "training",
)
