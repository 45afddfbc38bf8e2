"""Optimizers under the name users import.

The work is done in `albert.training.optimizers`.
"""

from albert.io import requirements

with requirements.explained():
    from albert.model.weight_names import (
        STEP,
    )
    from albert.training.optimizers import (
        EXCLUDED_FROM_DECAY,
        AdamBase,
        AdamWeightDecayOptimizer,
        LossScale,
        Optimizer,
        create_optimizer,
        learning_rate_at,
        matches,
        optimizer_class,
    )

__all__ = [
    "AdamBase",
    "AdamWeightDecayOptimizer",
    "EXCLUDED_FROM_DECAY",
    "LossScale",
    "Optimizer",
    "STEP",
    "create_optimizer",
    "learning_rate_at",
    "matches",
    "optimizer_class",
]
