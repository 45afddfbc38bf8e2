"""Tools for many runs: sweeps, seeds, statistics, BLiMP, reports, cards, trackers."""

# Modules that other rooms and commands may import.
__all__ = (
    "blimp",
    "comparison",
    "comparison_sides",
    "comparison_text",
    "demo_data",
    "example_predictions",
    "example_statistics",
    "exported_runs",
    "glue_table",
    "model_card",
    "power",
    "report",
    "report_data",
    "reproduction",
    "seeds",
    "sentence_scores",
    "statistics",
    "sweep",
    "sweep_journal",
    "sweep_plan",
    "sweep_results",
    "trackers",
    "trial_processes",
)
