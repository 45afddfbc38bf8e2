"""Forms of the log: short on a terminal; elsewhere with date, thread, file and line."""

import logging as python_logging
import sys
import time

from absl import logging

AUTO, SHORT, FULL = "auto", "short", "full"
FORMATS = (AUTO, SHORT, FULL)


class ShortFormatter(python_logging.Formatter):
    """Formats log records as time of day, level of warnings and errors, and message."""

    def format(self, record: python_logging.LogRecord) -> str:
        """Returns a line without its end; the lines of a traceback follow it."""
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        is_usual = record.levelno <= python_logging.INFO
        level = "" if is_usual else f"{record.levelname.lower()}: "
        text = f"{clock} {level}{record.getMessage()}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def use(form: str) -> None:
    """Sets the form of the log of this process, one of `FORMATS`.

    `AUTO` is short on a terminal. Logs in files and pipes are full, because programs read them.
    """
    if form == SHORT or (form == AUTO and sys.stderr.isatty()):
        logging.get_absl_handler().setFormatter(ShortFormatter())


def is_short() -> bool:
    """Returns whether the log of this process is short."""
    return isinstance(logging.get_absl_handler().python_handler.formatter, ShortFormatter)
