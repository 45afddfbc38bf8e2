"""Answers questions about paragraphs: SQuAD 1.1 and 2.0, from their files to scored answers."""

# Modules that other rooms and commands may import.
__all__ = (
    "answers",
    "features",
    "metrics",
    "null_threshold",
    "outcomes",
    "positions",
    "question_files",
    "records",
    "selection",
    "task",
)
