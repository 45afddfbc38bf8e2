"""Writes a trained model in other formats, and checks that they give the same answers."""

# Modules that other rooms and commands may import.
__all__ = (
    "graphs",
    "hub_export",
    "huggingface_export",
    "saved_model_export",
    "serving_export",
    "verification",
)
