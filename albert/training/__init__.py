"""Trains, evaluates and predicts any task with one engine, and records each run.

Letters in the shapes of this room: B batch, S sequence, H hidden, V classes compared by
distillation (in pre-training the vocabulary), C classes.
"""

# Modules that other rooms and commands may import.
__all__ = (
    "budget",
    "contracts",
    "cost",
    "distillation",
    "distribution",
    "engine",
    "evaluation_basis",
    "flops",
    "frozen_encoder",
    "learning_signals",
    "memory",
    "optimizer_table",
    "optimizers",
    "results",
    "run_facts",
    "run_record",
    "run_session",
    "stages",
    "stuck_runs",
    "subsets",
)
