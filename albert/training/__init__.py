"""Trains, evaluates and predicts any task with one engine, and records what a run did."""

# Modules that other rooms and commands may import.
__all__ = (
    "budget",
    "contracts",
    "distillation",
    "distribution",
    "engine",
    "frozen_encoder",
    "learning_signals",
    "memory",
    "optimizer_table",
    "optimizers",
    "results",
    "run_record",
    "stages",
    "stuck_runs",
    "subsets",
)
