"""Optimizers under the name users import.

The work is done in `albert.training.optimizers`; warm-up and decay are in `learning_rates` there.
"""

from albert.io import requirements

with requirements.explained():
    from albert.model.weight_names import (
        STEP,
    )
    from albert.training.learning_rates import (
        learning_rate_at,
    )
    from albert.training.loss_scale import (
        LossScale,
    )
    from albert.training.optimizers import (
        EXCLUDED_FROM_DECAY,
        AdamBase,
        AdamWeightDecayOptimizer,
        Optimizer,
        create_optimizer,
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
