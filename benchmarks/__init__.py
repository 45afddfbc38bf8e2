"""Benchmarks: programs whose sides take turns, and RESULTS.md with what they measured.

TensorFlow starts here as in commands: with its own allocator, and without notes. Other programs,
such as peers, get the environment that this one was started with.
"""

import os

from albert.io import tensorflow_start

STARTED_WITH = dict(os.environ)
tensorflow_start.install()
