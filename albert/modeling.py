"""The encoder under the name users import; the work is done in `albert.model.encoder`.

Examples:
    >>> from albert import modeling
    >>> config = modeling.AlbertConfig.from_json_file("configs/albert_small.json")
    >>> encoder = modeling.AlbertModel(config)
    >>> encoder([[2, 13, 1, 3]]).sequence_output.shape  # token ids [B, S]
    TensorShape([1, 4, 256])
"""

from albert.io import requirements

with requirements.explained():
    from albert.model.encoder import AlbertConfig, AlbertModel, AlbertOutput

__all__ = ["AlbertConfig", "AlbertModel", "AlbertOutput"]
