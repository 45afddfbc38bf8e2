"""Tools for many runs: sweeps, seeds, BLiMP, reports, model cards and reproduction."""

# Modules that other rooms and commands may import.
__all__ = (
    "blimp",
    "demo_data",
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
    "trial_processes",
)
