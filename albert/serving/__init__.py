"""Answers with a trained model: predictors, runtimes and the HTTP server."""

# Modules that other rooms and commands may import.
__all__ = (
    "answer_text",
    "embeddings",
    "example_requests",
    "inference",
    "masked_words",
    "predictors",
    "requests",
    "runtimes",
    "served_model",
    "server",
    "serving_folder",
    "trained_model",
)
