"""Defines what is learned: reading, features, scores and predictions of each task."""

# Modules that other rooms and commands may import.
__all__ = (
    "calibration",
    "class_weights",
    "custom",
    "entities",
    "example_data",
    "glue",
    "kinds",
    "metrics",
    "model_labels",
    "outcomes",
    "prediction_files",
    "pretraining",
    "race",
    "token_classification",
    "word_files",
)
