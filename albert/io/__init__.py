"""Handles files, folders, locks, processes and signals safely. No TensorFlow."""

# Modules that other rooms and commands may import.
__all__ = (
    "archives",
    "downloads",
    "file_io",
    "json_shapes",
    "locks",
    "log_format",
    "manifests",
    "processes",
    "progress",
    "requirements",
    "signals",
    "tables",
    "tensorflow_start",
    "usage",
)
