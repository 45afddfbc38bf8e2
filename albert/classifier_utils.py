"""GLUE tasks under the name users import; the work is done in `albert.tasks.glue`.

Examples:
    >>> from albert import classifier_utils
    >>> task = classifier_utils.get_task("SST-2")
    >>> task.labels, dict(task.words)
    (('0', '1'), {'0': 'negative', '1': 'positive'})
"""

from albert.tasks.glue import (
    KIND,
    REGRESSION_SCORES,
    TASKS,
    GlueTask,
    InputExample,
    batch_accuracy,
    check_length,
    convert_example,
    eval_outputs,
    feature_specs,
    get_task,
    is_number,
    make_data,
    make_example,
    make_task,
)
from albert.tasks.glue import learning_signals as signs

__all__ = [
    "GlueTask",
    "InputExample",
    "KIND",
    "REGRESSION_SCORES",
    "TASKS",
    "batch_accuracy",
    "check_length",
    "convert_example",
    "eval_outputs",
    "feature_specs",
    "get_task",
    "is_number",
    "make_data",
    "make_example",
    "make_task",
    "signs",
]
