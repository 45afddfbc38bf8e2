"""Optimizers under the name users import.

The work is done in `albert.training`: `optimizers`, `optimizer_base`, `adam` and
`learning_rates`.

Examples:
    >>> from albert import optimization
    >>> rates = [optimization.learning_rate_at(step, 1e-3, 100, 10) for step in (5, 55, 100)]
    >>> [f"{float(rate):.5f}" for rate in rates]
    ['0.00050', '0.00045', '0.00000']
"""

from albert.io import requirements

with requirements.explained():
    from albert.model.weight_names import STEP
    from albert.training.adam import AdamBase, AdamWeightDecayOptimizer
    from albert.training.learning_rates import learning_rate_at
    from albert.training.optimizer_base import EXCLUDED_FROM_DECAY, LossScale, Optimizer, matches
    from albert.training.optimizers import create_optimizer, optimizer_class

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
