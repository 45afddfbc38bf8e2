"""Holds the network, its weights in any form, and the folder of a model."""

# Modules that other rooms and commands may import.
__all__ = (
    "batching",
    "checkpoints",
    "encoder",
    "head_config",
    "heads",
    "huggingface",
    "kernels",
    "layers",
    "model_folder",
    "pretraining_heads",
    "saved_model_files",
    "sources",
    "weight_names",
)
