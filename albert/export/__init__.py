"""Writes a trained model in other forms, and checks that they answer alike."""

# Modules that other rooms and commands may import.
__all__ = (
    "graphs",
    "hub_export",
    "huggingface_export",
    "saved_model_export",
    "serving_export",
    "verification",
)
