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
    "label_set_scores",
    "label_sets",
    "label_thresholds",
    "metrics",
    "model_labels",
    "multi_label",
    "outcomes",
    "prediction_files",
    "pretraining",
    "race",
    "token_classification",
    "word_files",
)
