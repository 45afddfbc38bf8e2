"""Turns flags into settings, and starts and ends commands."""

# Modules that other rooms and commands may import.
__all__ = (
    "app",
    "calibration",
    "card_settings",
    "command_flags",
    "command_help",
    "commands",
    "distillation",
    "fine_tuning",
    "model_settings",
    "next_steps",
    "options",
    "packaged_files",
    "path_flags",
    "pretraining",
    "squad",
    "text_runner",
    "training",
)
