"""LAMB under the name users import.

The work is done in `albert.training.lamb`, the trust ratio in `LAMB._trust_ratio` there.
"""

from albert.io import requirements

with requirements.explained():
    from albert.training.lamb import LAMB

__all__ = ["LAMB"]
