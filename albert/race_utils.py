"""RACE under the name users import; the work is done in `albert.tasks.race`.

Examples:
    >>> from albert import race_utils
    >>> race_utils.ending("We stayed _ .", "inside")
    'We stayed inside .'
"""

from albert.tasks.race import (
    KIND,
    LEVELS,
    METRICS,
    NUM_CHOICES,
    Evaluator,
    RaceExample,
    convert_example,
    data_files,
    ending,
    feature_specs,
    fingerprint,
    iter_race_examples,
    make_data,
    make_task,
    read_passages,
    read_race_examples,
    write_predictions,
)

__all__ = [
    "Evaluator",
    "KIND",
    "LEVELS",
    "METRICS",
    "NUM_CHOICES",
    "RaceExample",
    "convert_example",
    "data_files",
    "ending",
    "feature_specs",
    "fingerprint",
    "iter_race_examples",
    "make_data",
    "make_task",
    "read_passages",
    "read_race_examples",
    "write_predictions",
]
