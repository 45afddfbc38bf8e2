"""Forms of log lines."""

import os
import pty
import re
import subprocess
import sys

import pytest

from tests.support.sources import ROOT

SCRIPT = """
import sys
from absl import flags, logging
from albert.io import log_format
flags.FLAGS([sys.argv[0]])
logging.use_absl_handler()
logging.set_verbosity(logging.INFO)
log_format.use(sys.argv[1])
logging.info("%d lines", 3)
logging.warning("slow")
try:
    1 / 0
except ZeroDivisionError:
    logging.exception("failed")
print(log_format.is_short())
"""
CLOCK = r"\d\d:\d\d:\d\d "
SHORT = rf"{CLOCK}3 lines\n{CLOCK}warning: slow\n{CLOCK}error: failed\nTraceback .*\n"
FULL = r"I\d{4} [\d:.]+ +\d+ <?[\w.]+>?:\d+\] 3 lines\nW.*\] slow\nE.*\] failed\nTraceback .*\n"


@pytest.mark.parametrize(
    ("form", "on_terminal", "expected"),
    [
        ("auto", True, SHORT),
        ("auto", False, FULL),
        ("short", False, SHORT),
        ("full", True, FULL),
    ],
)
def test_lines_are_short_on_a_terminal_or_on_request(form, on_terminal, expected):
    ours, theirs = pty.openpty() if on_terminal else os.pipe()
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT, form],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
    )
    lines = os.read(ours, 1 << 16).decode().replace("\r\n", "\n")
    os.close(theirs)
    os.close(ours)
    assert result.stdout == f"{expected is SHORT}\n"
    assert re.match(expected, lines), lines
