"""LAMB under the name users import; the work is done in `albert.training.optimizers`."""

from albert.training.optimizers import (
    LAMB,
)

__all__ = [
    "LAMB",
]
