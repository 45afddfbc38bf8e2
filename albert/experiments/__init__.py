"""Tools for many runs: sweeps, seeds, BLiMP, reports, model cards, reproduction, trackers."""

# Modules that other rooms and commands may import.
__all__ = (
    "blimp",
    "demo_data",
    "exported_runs",
    "glue_table",
    "model_card",
    "report",
    "report_data",
    "reproduction",
    "seeds",
    "sentence_scores",
    "sweep",
    "sweep_journal",
    "sweep_plan",
    "sweep_results",
    "trackers",
    "trial_processes",
)
