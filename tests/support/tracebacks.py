"""Graphs without the places in Python where their operations were made.

TensorFlow keeps the whole stack for each operation, to show it in errors of that operation: a
twentieth of the time of many tests, the more the deeper the stack.
"""

import functools

from tensorflow.python.framework import ops


def leave_out():
    """From now on operations of this process have no stack."""
    ops._create_c_op = functools.partial(ops._create_c_op, extract_traceback=False)
