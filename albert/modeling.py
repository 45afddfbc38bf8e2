"""The encoder under the name users import; the work is done in `albert.model.encoder`."""

from albert.io import requirements

with requirements.explained():
    from albert.model.encoder import (
        AlbertConfig,
        AlbertModel,
        AlbertOutput,
    )

__all__ = [
    "AlbertConfig",
    "AlbertModel",
    "AlbertOutput",
]
