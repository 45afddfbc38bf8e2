"""LAMB under the name users import; the work is done in `albert.training.optimizers`."""

from albert.io import requirements

with requirements.explained():
    from albert.training.optimizers import (
        LAMB,
    )

__all__ = [
    "LAMB",
]
