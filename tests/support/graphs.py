"""Graphs that are made faster, for tests of tiny models, which compute for a short time only.

Processes that tests fork do the same if `VARIABLE` is set in their environment, as optimizing
changes the rounding. The demo and the tutorial run as they do for users.
"""

import functools
import os

import tensorflow as tf
from tensorflow.python.framework import ops

VARIABLE = "PLAIN_GRAPHS"


def leave_out_tracebacks():
    """From now on operations of this process have no stack.

    TensorFlow keeps the whole stack for each operation, to show it in errors of that operation: a
    twentieth of the time of many tests, the more the deeper the stack.
    """
    ops._create_c_op = functools.partial(ops._create_c_op, extract_traceback=False)


def leave_unoptimized():
    """From now on graphs of this process are not optimized, a fifth of the time of many tests."""
    if os.environ.get(VARIABLE):
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
